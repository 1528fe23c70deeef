"""The task selector: one auto-encoder a task. An image belongs to the task whose auto-encoder knows it best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasso.data.images import Indices, Pixels
from tasso.errors import RunError
from tasso.methods.moe.adapters import PLAIN, fitting
from tasso.methods.moe.features import AlexNetFeatures, ClipFeatures, FeatureReader, Features, Kind, alexnet_file
from tasso.models.clip import Clip
from tasso.progress import progress

# Its authors' code.
LEARNING_RATE, WEIGHT_DECAY, DECAY, DECAY_EPOCHS = 0.01, 1e-4, 0.1, 10
ALEXNET_THRESHOLD = 0.0655
# Ours: a very small set would see the rate fall before anything is learned. The smallest of theirs has 16.
EPOCH_STEPS = 16

KINDS: dict[Kind, Callable[[Clip], Features]] = {"clip": ClipFeatures, "alexnet": AlexNetFeatures}


class AutoEncoder(nn.Module):
    """Squeezed features → hidden, ReLU → squeezed features."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        # Without values: torch would draw them from its global generator.
        self.down = nn.Linear(dim, hidden, device="meta").to_empty(device="cpu")
        self.up = nn.Linear(hidden, dim, device="meta").to_empty(device="cpu")

    def draw(self, generator: torch.Generator) -> None:
        """Fresh weights, as torch draws those of a linear layer."""
        with torch.no_grad():
            for layer in (self.down, self.up):
                bound = 1 / math.sqrt(layer.in_features)
                layer.weight.uniform_(-bound, bound, generator=generator)
                layer.bias.uniform_(-bound, bound, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """What it remembers of the inputs."""
        remembered: Tensor = self.up(F.relu(self.down(inputs)))
        return torch.sigmoid(remembered)

    def errors(self, inputs: Tensor) -> Tensor:
        """Mean squared error of each row, without gradient."""
        with torch.no_grad():
            return (self.forward(inputs) - inputs).square().mean(-1)


@dataclass(frozen=True)
class Recipe:
    """How an auto-encoder is made."""

    hidden: int
    batch_size: int
    threshold: float | None
    quantile: float


def drawn_batches(count: int, steps: int, batch_size: int, generator: torch.Generator) -> Indices:
    """Places of the images of each step: shuffled epochs of full batches; a set smaller than a batch is one."""
    size = min(batch_size, count)
    each = count // size
    epochs = [
        torch.randperm(count, generator=generator)[: each * size].view(each, size) for _ in range(-(-steps // each))
    ]
    batches: Indices = torch.cat(epochs)[:steps].numpy()
    return batches


def train_auto_encoder(
    coder: AutoEncoder, read: Callable[[Indices], Tensor], batches: Indices, epoch: int, on_step: Callable[[], None]
) -> None:
    """Adam on the mean squared error; the rate is a tenth after each ten epochs of `epoch` steps."""
    optimiser = torch.optim.Adam(coder.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for step, places in enumerate(batches):
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * DECAY ** (step // epoch // DECAY_EPOCHS)
        inputs = read(places)
        optimiser.zero_grad(set_to_none=True)
        F.mse_loss(coder(inputs), inputs).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        on_step()


def choose_tasks(errors: Tensor, numbers: Tensor, thresholds: Tensor, whole_batch: bool) -> Tensor:
    """The task of each image, or PLAIN.

    Args:
        errors: one row an image, one column an auto-encoder.
        numbers: which task each auto-encoder belongs to; PLAIN for that of the reference images.
        thresholds: the error above which an auto-encoder does not know an image.
        whole_batch: decide once, from the mean errors.
    """
    if whole_batch:
        errors = errors.mean(0, keepdim=True).expand_as(errors)
    least = errors.min(-1)
    return torch.where(least.values > thresholds[least.indices], PLAIN, numbers[least.indices])


class TaskSelector:
    """Auto-encoders of the tasks learned so far (the authors compare with those not yet trained, too) and, if there
    were reference images, one of the world beside the tasks."""

    def __init__(self, clip: Clip, kind: Kind, recipe: Recipe, whole_batch: bool) -> None:
        self.features, self.recipe, self.whole_batch = KINDS[kind](clip), recipe, whole_batch
        self.device = clip.device
        self.coders: dict[int, AutoEncoder] = {}
        self.thresholds: dict[int, float] = {}

    def learn(self, number: int, pixels: Pixels, steps: int, generator: torch.Generator, what: str) -> None:
        """Make the auto-encoder of a task (or PLAIN) from its images."""
        recipe = self.recipe
        coder = AutoEncoder(self.features.dim, recipe.hidden)
        coder.draw(generator)  # on the CPU, so that a seed means the same on every device
        coder.to(self.device)
        batches = drawn_batches(len(pixels), steps, recipe.batch_size, generator)
        with progress(f"looking at {what}", len(np.unique(batches))) as advance:
            reader = FeatureReader(self.features, pixels, batches, lambda n: advance(n, ""))
        with progress(f"selector of {what}", steps) as advance:
            epoch = max(len(pixels) // recipe.batch_size, EPOCH_STEPS)
            train_auto_encoder(coder, reader, batches, epoch, lambda: advance(1, ""))
        self.coders[number] = coder.requires_grad_(False)
        self.thresholds[number] = self._threshold(coder, reader)

    def _threshold(self, coder: AutoEncoder, reader: FeatureReader) -> float:
        if self.recipe.threshold is not None:
            return self.recipe.threshold
        if self.features.kind == "alexnet":
            return ALEXNET_THRESHOLD
        # Theirs belongs to AlexNet's features. Ours: nearly all of the images it was made from must be known to it.
        return float(reader.over_all(coder.errors).double().quantile(self.recipe.quantile))

    def routes(self, pixels: Tensor) -> Tensor:
        """The task of each image (normalised pixels), or PLAIN."""
        inputs = self.features.squeezed(self.features.raw(pixels))
        errors = torch.stack([coder.errors(inputs) for coder in self.coders.values()], dim=-1)
        numbers = torch.tensor(list(self.coders), device=errors.device)
        thresholds = torch.tensor(list(self.thresholds.values()), device=errors.device)
        return choose_tasks(errors, numbers, thresholds, self.whole_batch)

    def lasting_state(self) -> dict[str, Tensor]:
        """Everything that routes depend on."""
        state = {f"features/{name}": tensor for name, tensor in self.features.state().items()}
        state["kind"] = torch.tensor(list(KINDS).index(self.features.kind))
        state["numbers"] = torch.tensor(list(self.coders))
        state["thresholds"] = torch.tensor(list(self.thresholds.values()), dtype=torch.float64)
        for number, coder in self.coders.items():
            state |= {f"coders/{number}/{name}": tensor for name, tensor in coder.state_dict().items()}
        return state

    @staticmethod
    def from_lasting_state(
        clip: Clip, state: Mapping[str, Tensor], tasks: int, recipe: Recipe, whole_batch: bool, where: str
    ) -> TaskSelector:
        """The selector as it was after this many tasks."""
        code = int(fitting(state, "kind", (), where))
        if code not in range(len(KINDS)):
            raise RunError(f"{where}: the selector's features are of an unknown kind ({code})")
        kind = list(KINDS)[code]
        if kind == "alexnet" and not alexnet_file().is_file():
            raise RunError(
                f"{where}: this run's task selector sees AlexNet's features, and its weights are not on this machine; "
                f"put torchvision's file at {alexnet_file()}"
            )
        selector = TaskSelector(clip, kind, recipe, whole_batch)
        selector.features.load_state(_under(state, "features/"), where)
        numbers = fitting(state, "numbers", (-1,), where).tolist()
        thresholds = fitting(state, "thresholds", (len(numbers),), where).tolist()
        if sorted(set(numbers) - {PLAIN}) != list(range(tasks)):
            raise RunError(f"{where}: the selector knows the tasks {numbers}, but there are routers of {tasks} tasks")
        for number, threshold in zip(numbers, thresholds, strict=True):
            coder = AutoEncoder(selector.features.dim, recipe.hidden)
            own, found = coder.state_dict(), _under(state, f"coders/{number}/")
            found = {name: fitting(found, name, tuple(t.shape), f"{where}, coder {number}") for name, t in own.items()}
            coder.load_state_dict(found)
            selector.coders[number] = coder.to(selector.device).requires_grad_(False)
            selector.thresholds[number] = threshold
        return selector


def _under(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
