"""Learns one task: precision, optimiser, schedule, accumulation. Knows nothing of what a method does inside."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from tasso.config import Protocol
from tasso.data.images import Stream
from tasso.errors import ConfigError, RunError
from tasso.methods import Batch, Method
from tasso.models.clip import Clip, check_finite
from tasso.training.cuda_graphs import RecordedStep


@dataclass(frozen=True)
class Plan:
    """How one task is optimised."""

    steps: int
    lr: float
    weight_decay: float
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: int = 0
    accumulate: int = 1
    cuda_graphs: bool = True


def planned_steps(rule: Protocol, images: int, batch_size: int) -> int:
    """Steps a task. E is the number of full batches in the training set.

    `code`: T = min(10E, max(1000, 2E)), so a very large set is seen twice. `paper`: 1000 steps or 10 epochs,
    whichever comes first.
    """
    epoch = max(1, images // batch_size)
    return min(10 * epoch, max(1000, 2 * epoch)) if rule == "code" else min(1000, 10 * epoch)


def choose_device(device: str) -> torch.device:
    """The device that `auto` means, or the one asked for, if it is there."""
    own = os.environ.get("LOCAL_RANK")  # torchrun starts one process for each GPU
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and own is not None:
        device = f"cuda:{own}"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"device: {device!r} is not auto, cpu, cuda or cuda:N") from None
    if chosen.type not in ("cpu", "cuda") or (chosen.type == "cpu" and chosen.index):
        raise ConfigError(f"device: {device!r} is not auto, cpu, cuda or cuda:N")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device: {device!r} is not there, PyTorch sees {torch.cuda.device_count()} CUDA devices")
    return chosen


def choose_precision(precision: str, device: torch.device) -> torch.dtype:
    """bfloat16 on CUDA and float32 elsewhere, unless asked otherwise."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if precision == "bfloat16" and device.type == "cpu" and not cpu_has_bfloat16():
        raise ConfigError("precision: bfloat16 products fail on this CPU; use float32")
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]


@cache
def cpu_has_bfloat16() -> bool:
    """On some CPUs a bfloat16 product ends the process with an illegal instruction: let another process try."""
    attempt = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); assert float((x @ x).sum()) == 64**3"
    return subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False).returncode == 0


def peak_memory(device: torch.device) -> int:
    """Bytes at the highest point: of the GPU since the last reset, or of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Training:
    """One task being learned, step by step. `method.begin_task` has been called."""

    def __init__(self, clip: Clip, method: Method, streams: Mapping[str, Stream], plan: Plan) -> None:
        """`streams` has the task's own images under "task" and those the method wants under their names."""
        self.clip, self.method, self.streams, self.plan = clip, method, dict(streams), plan
        self.step = 0
        self.groups = method.groups()
        clip.model.requires_grad_(False)
        for group in self.groups:
            for parameter in group.parameters.values():
                parameter.requires_grad_(True)
        clip.visual.train()
        recorded = plan.cuda_graphs and clip.device.type == "cuda" and clip.distributed.world_size == 1
        self.recorded: RecordedStep | None = RecordedStep(self._compute) if recorded else None
        self.peak_lr = [plan.lr if group.lr is None else group.lr for group in self.groups]
        self.optimiser = torch.optim.AdamW(
            [
                {
                    "params": list(group.parameters.values()),
                    # A recorded step reads its learning rates from where they were: they are tensors then.
                    "lr": torch.tensor(peak, device=clip.device) if self.recorded else peak,
                    "weight_decay": plan.weight_decay if group.weight_decay is None else group.weight_decay,
                }
                for group, peak in zip(self.groups, self.peak_lr, strict=True)
            ],
            betas=plan.betas,
            fused=True,
            capturable=self.recorded is not None,
        )

    @property
    def trainable_parameters(self) -> int:
        """How many numbers this task may change."""
        return sum(p.numel() for group in self.groups for p in group.parameters.values())

    @property
    def images_per_step(self) -> int:
        """Images of all streams together."""
        return sum(stream.batch_size for stream in self.streams.values())

    def batch(self) -> Batch:
        """What the step at hand sees."""
        seen = {name: stream.batch(self.step) for name, stream in self.streams.items()}
        return Batch(seen.pop("task"), seen)

    def advance(self) -> dict[str, Tensor]:
        """One optimiser step. The returned terms stay on the device: reading them waits for it."""
        batch = self.batch()
        resting = self._set_learning_rates()
        terms = self.recorded(batch, resting) if self.recorded else self._compute(batch, resting)
        self.method.after_step(self.step)
        self.step += 1
        return terms

    def _compute(self, batch: Batch, resting: frozenset[str]) -> dict[str, Tensor]:
        """What happens on the device: losses, gradients, and a move of all groups but the resting ones."""
        self.optimiser.zero_grad(set_to_none=True)
        totals: dict[str, Tensor] = {}
        for part in range(self.plan.accumulate):
            terms = self.method.loss(batch.chunk(part, self.plan.accumulate))
            (torch.stack(list(terms.values())).sum() / self.plan.accumulate).backward()  # type: ignore[no-untyped-call]
            for name, term in terms.items():
                totals[name] = totals.get(name, 0) + term.detach() / self.plan.accumulate
        trained = [p.grad for group in self.groups for p in group.parameters.values() if p.grad is not None]
        self.clip.distributed.all_reduce_mean(trained)
        for group in self.groups:
            if group.name in resting:  # it keeps its moments too
                for parameter in group.parameters.values():
                    parameter.grad = None
        self.optimiser.step()
        return totals

    def _set_learning_rates(self) -> frozenset[str]:
        """Set those of this step; returns the names of the groups that rest."""
        warmth = min(1.0, (self.step + 1) / self.plan.warmup) if self.plan.warmup else 1.0
        factors = self.method.lr_factors(self.step, self.plan.steps)
        for group, settings, peak in zip(self.groups, self.optimiser.param_groups, self.peak_lr, strict=True):
            rate = peak * factors[group.name] * warmth
            if self.recorded:
                settings["lr"].fill_(rate)
            else:
                settings["lr"] = rate
        return frozenset(group.name for group in self.groups if factors[group.name] == 0)

    def close(self) -> None:
        """Freeze the model again and stop reading ahead."""
        for stream in self.streams.values():
            stream.close()
        if self.recorded:
            self.recorded.close()
            self.recorded = None  # it holds this object, and both would hold the optimiser's memory
        self.optimiser.zero_grad(set_to_none=True)
        self.clip.model.requires_grad_(False)
        self.clip.model.eval()

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that has changed since the task began, the random state included."""
        state = {f"model/{name}": tensor for name, tensor in self.clip.state(self.method.towers).items()}
        state |= {f"method/{name}": tensor for name, tensor in self.method.state_dict().items()}
        for group in self.groups:
            for name, parameter in group.parameters.items():
                for key, value in self.optimiser.state.get(parameter, {}).items():
                    state[f"optimiser/{group.name}/{name}/{key}"] = value
        state["random/cpu"] = torch.get_rng_state()
        if self.clip.device.type == "cuda":
            state["random/cuda"] = torch.cuda.get_rng_state(self.clip.device)
        state["step"] = torch.tensor(self.step)
        return state

    def _check_state(self, state: Mapping[str, Tensor], where: str) -> None:
        """All that `load_state_dict` needs is there, and as large as it has to be."""
        advice = "remove this file to begin the task once more, or use --overwrite to start afresh"
        expected = {f"model/{name}": tensor for name, tensor in self.clip.state(self.method.towers).items()}
        expected |= {f"method/{name}": tensor for name, tensor in self.method.state_dict().items()}
        expected |= {"random/cpu": torch.get_rng_state(), "step": torch.tensor(0)}
        for name, tensor in expected.items():
            if name not in state:
                raise RunError(f"{where}: incomplete resume state, {name!r} is missing; {advice}")
            if state[name].shape != tensor.shape or state[name].dtype != tensor.dtype:
                found, wanted = (f"{tuple(t.shape)} of {t.dtype}" for t in (state[name], tensor))
                raise RunError(f"{where}: {name!r} has shape {found} instead of {wanted}; {advice}")
        for group in self.groups:
            for name, parameter in group.parameters.items():
                for key in ("exp_avg", "exp_avg_sq"):
                    place = f"optimiser/{group.name}/{name}/{key}"
                    if (found_shape := state.get(place, parameter).shape) != parameter.shape:
                        shapes = f"{tuple(found_shape)} instead of {tuple(parameter.shape)}"
                        raise RunError(f"{where}: {place!r} has shape {shapes}; {advice}")
        check_finite({name: tensor for name, tensor in state.items() if name.startswith("optimiser/")}, where)
        if not 0 <= int(state["step"]) <= self.plan.steps:
            raise RunError(f"{where}: step {int(state['step'])} is not one of 0 … {self.plan.steps}; {advice}")

    def load_state_dict(self, state: Mapping[str, Tensor], where: str) -> None:
        """Go on where `state_dict` was taken."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}

        self._check_state(state, where)
        try:
            self.clip.load_state(part("model/"), where)
            self.method.load_state_dict(part("method/"))
            for group in self.groups:
                for name, parameter in group.parameters.items():
                    if moments := part(f"optimiser/{group.name}/{name}/"):
                        self.optimiser.state[parameter] = {
                            key: value.to(parameter.device) for key, value in moments.items()
                        }
            torch.set_rng_state(state["random/cpu"].cpu())
            if self.clip.device.type == "cuda" and "random/cuda" in state:
                torch.cuda.set_rng_state(state["random/cuda"].cpu(), self.clip.device)
            self.step = int(state["step"])
        except KeyError as error:
            raise RunError(
                f"{where}: incomplete resume state, {error} is missing; use --overwrite to start afresh"
            ) from None
