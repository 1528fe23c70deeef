"""The task selector: one auto-encoder per task. An image is routed to the task with the least reconstruction error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasso.data.images import Indices, Pixels
from tasso.methods.moe.adapters import PLAIN
from tasso.methods.moe.features import AlexNetFeatures, ClipFeatures, FeatureReader, Features, Kind
from tasso.models.clip import Clip
from tasso.models.deferred import without_compiler
from tasso.progress import progress

# Its authors' code.
LEARNING_RATE, WEIGHT_DECAY, DECAY, DECAY_EPOCHS = 0.01, 1e-4, 0.1, 10
ALEXNET_THRESHOLD = 0.0655
# Ours: with a very small set the rate would fall before anything is learned. The smallest of theirs has 16.
EPOCH_STEPS = 16
REFERENCE = "reference"  # name of the auto-encoder of the reference images, whose route is PLAIN

KINDS: dict[Kind, Callable[[Clip], Features]] = {"clip": ClipFeatures, "alexnet": AlexNetFeatures}


class AutoEncoder(nn.Module):
    """Squashed features → hidden, ReLU → squashed features. `threshold`: the error above which an image is unknown."""

    threshold: Tensor

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        # Without values: torch would draw them from its global generator.
        self.down = nn.Linear(dim, hidden, device="meta").to_empty(device="cpu")
        self.up = nn.Linear(hidden, dim, device="meta").to_empty(device="cpu")
        self.register_buffer("threshold", torch.zeros((), dtype=torch.float64))

    def draw(self, generator: torch.Generator) -> None:
        """Fresh weights, as torch draws those of a linear layer."""
        with torch.no_grad():
            for layer in (self.down, self.up):
                bound = 1 / math.sqrt(layer.in_features)
                layer.weight.uniform_(-bound, bound, generator=generator)
                layer.bias.uniform_(-bound, bound, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Reconstruction (B, dim) of the inputs (B, dim)."""
        logits: Tensor = self.up(F.relu(self.down(inputs)))
        return torch.sigmoid(logits)

    def errors(self, inputs: Tensor) -> Tensor:
        """Mean squared error (B,) of each row, without gradient."""
        with torch.no_grad():
            return (self.forward(inputs) - inputs).square().mean(-1)


@dataclass(frozen=True)
class Recipe:
    """How an auto-encoder is trained."""

    hidden: int
    batch_size: int
    threshold: float | None
    quantile: float


def drawn_batches(count: int, steps: int, batch_size: int, generator: torch.Generator) -> Indices:
    """Indices (steps, batch) of images: shuffled epochs of full batches; a set smaller than a batch is one batch."""
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
    """Adam on the mean squared error; the rate falls to a tenth after every ten epochs of `epoch` steps."""
    optimiser = without_compiler(torch.optim.Adam)(coder.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for step, indices in enumerate(batches):
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * DECAY ** (step // epoch // DECAY_EPOCHS)
        inputs = read(indices)
        optimiser.zero_grad(set_to_none=True)
        F.mse_loss(coder(inputs), inputs).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        on_step()


def choose_tasks(errors: Tensor, tasks: Tensor, thresholds: Tensor, whole_batch: bool) -> Tensor:
    """The task of each image (B,), or PLAIN.

    Args:
        errors: (B, coders), of each image with each auto-encoder.
        tasks: (coders,) the task of each auto-encoder; PLAIN for that of the reference images.
        thresholds: (coders,) the error above which an image is unknown to an auto-encoder.
        whole_batch: decide once, from the mean errors.
    """
    if whole_batch:
        errors = errors.mean(0, keepdim=True).expand_as(errors)
    least = errors.min(-1)
    return torch.where(least.values > thresholds[least.indices], PLAIN, tasks[least.indices])


class TaskSelector(nn.Module):
    """Auto-encoders of the tasks learned so far (the authors also compare with those not yet trained) and, if there
    are reference images, one of what belongs to no task."""

    def __init__(self, clip: Clip, kind: Kind, recipe: Recipe, whole_batch: bool) -> None:
        super().__init__()
        self.features, self.recipe, self.whole_batch = KINDS[kind](clip), recipe, whole_batch
        self.device = clip.device
        self.coders = nn.ModuleDict()

    def coder(self, task: int) -> AutoEncoder:
        """The auto-encoder of a task (or PLAIN)."""
        coder = self.coders[_key(task)]
        assert isinstance(coder, AutoEncoder)
        return coder

    @property
    def tasks(self) -> list[int]:
        """The tasks that have an auto-encoder, in order; PLAIN comes first."""
        return [PLAIN if key == REFERENCE else int(key) for key in self.coders]

    def add(self, task: int) -> AutoEncoder:
        """A new auto-encoder, without values."""
        self.coders[_key(task)] = AutoEncoder(self.features.dim, self.recipe.hidden).requires_grad_(False)
        return self.coder(task)

    def set_tasks(self, count: int, with_reference: bool) -> None:
        """Have the auto-encoders that there are after this many tasks, without values."""
        self.coders = nn.ModuleDict()
        for task in [*([PLAIN] if with_reference else []), *range(count)]:
            self.add(task)

    def learn(self, task: int, pixels: Pixels, steps: int, generator: torch.Generator, name: str) -> None:
        """Train the auto-encoder of a task (or PLAIN) on its images; `name` is for the progress bar."""
        recipe, first = self.recipe, not self.coders
        coder = self.add(task).requires_grad_(True)
        coder.draw(generator)  # on the CPU, so that a seed means the same on every device
        coder.to(self.device)
        batches = drawn_batches(len(pixels), steps, recipe.batch_size, generator)
        with progress(f"features of {name}", len(np.unique(batches))) as advance:
            reader = FeatureReader(self.features, pixels, batches, lambda n: advance(n, ""))
        if first:
            reader.fit()
        with progress(f"selector of {name}", steps) as advance:
            epoch = max(len(pixels) // recipe.batch_size, EPOCH_STEPS)
            train_auto_encoder(coder, reader, batches, epoch, lambda: advance(1, ""))
        coder.requires_grad_(False)
        coder.threshold.fill_(self._threshold(coder, reader))

    def _threshold(self, coder: AutoEncoder, reader: FeatureReader) -> float:
        if self.recipe.threshold is not None:
            return self.recipe.threshold
        if self.features.kind == "alexnet":
            return ALEXNET_THRESHOLD
        # Theirs belongs to AlexNet's features. Ours: nearly all of the images it was trained on must be known to it.
        return float(reader.over_all(coder.errors).double().quantile(self.recipe.quantile))

    def routes(self, pixels: Tensor) -> Tensor:
        """The task of each image (B,), or PLAIN, from normalised pixels (B, 3, H, W)."""
        inputs = self.features.squashed(self.features.raw(pixels))
        coders = [self.coder(task) for task in self.tasks]
        errors = torch.stack([coder.errors(inputs) for coder in coders], dim=-1)
        thresholds = torch.stack([coder.threshold for coder in coders]).to(errors.dtype)
        return choose_tasks(errors, torch.tensor(self.tasks, device=errors.device), thresholds, self.whole_batch)


def _key(task: int) -> str:
    return REFERENCE if task == PLAIN else str(task)
