"""Trains one task: precision, optimiser, schedule, accumulation. Independent of what a method computes."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tasso.config import OptimizerName, RunConfig, StepRule, unwrap
from tasso.data.images import Stream
from tasso.errors import REDO_TASK, ConfigError, RunError
from tasso.methods import Batch, Method
from tasso.models.clip import Clip, check_finite
from tasso.models.fp8 import FP8, has_fp8
from tasso.models.lora import LowRank
from tasso.training.checkpoints import METHOD_PREFIX, check_tensors, copy_into_state, method_tensors, part
from tasso.training.cuda_graphs import CapturedStep, Inputs
from tasso.training.optimizers import (
    CAPTURABLE,
    build_optimizers,
    expected_state,
    load_optimizer_state,
    optimizer_state,
)

MODEL, FACTORS, OPTIMIZER = "model/", "lora/", "optimizer/"  # prefixes of tensors in a resume state
PRECISIONS: dict[torch.dtype, Literal["float32", "bfloat16", "fp8"]] = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    FP8: "fp8",
}
CAPTURE_DEVICES = ("cuda",)
METHOD = ""  # under this name, which no stream has, are the inputs of a step that the method asks for
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def planned_steps(rule: StepRule, images: int, batch_size: int) -> int:
    """Steps per task. E is the number of full batches in the training set.

    `code`: T = min(10E, max(1000, 2E)), so a very large set is seen twice. `paper`: 1000 steps or 10 epochs,
    whichever comes first. `quick`: the same with 200 steps, some minutes on two CPU cores with nano.
    """
    epoch = max(1, images // batch_size)
    most = {"code": max(1000, 2 * epoch), "paper": 1000, "quick": 200}
    return min(10 * epoch, most[rule])


def choose_device(device: str) -> torch.device:
    """The device that `auto` means, or the one asked for, if it is there."""
    own = os.environ.get("LOCAL_RANK")  # torchrun starts one process per GPU
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


def choose_precision(precision: str, device: torch.device, option: str = "precision") -> torch.dtype:
    """bfloat16 where it is fast, on CUDA and some CPUs, else float32; unless asked otherwise by this option."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" or cpu_has_fast_bfloat16() else torch.float32
    if precision == "bfloat16" and device.type == "cpu" and not cpu_has_bfloat16():
        raise ConfigError(f"{option}: bfloat16 products fail on this CPU; use auto")
    if precision == "fp8" and not has_fp8(device):
        raise ConfigError(f"{option}: fp8 needs a GPU of compute capability 8.9 or newer; use auto")
    return next(dtype for dtype, name in PRECISIONS.items() if name == precision)


def cpu_has_fast_bfloat16() -> bool:
    """Does this CPU have instructions for bfloat16 products (AVX-512 BF16)? Others emulate them."""
    known: Callable[[], Mapping[str, Any]] = getattr(torch.cpu, "get_capabilities", dict)  # not in older releases
    return bool(known().get("avx512_bf16"))


@cache
def cpu_has_bfloat16() -> bool:
    """On some CPUs a bfloat16 product ends the process with an illegal instruction: another process tries it, which
    takes as long as importing torch."""
    if cpu_has_fast_bfloat16():
        return True
    attempt = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); assert float((x @ x).sum()) == 64**3"
    return subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False).returncode == 0


def keep_freed_memory(device: torch.device) -> None:
    """On a CPU, let the C library keep the memory that tensors free, up to 2 GiB, for the next ones.

    It would give activations back to the system and ask for them again in each step, and each new page is a page fault.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if device.type == "cpu" else None
    if mallopt is None:  # not glibc
        return
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    if not mallopt(M_MMAP_THRESHOLD, 2**30):  # older releases refuse more than 32 MiB
        mallopt(M_MMAP_THRESHOLD, 2**25)


def check_optimizer(optimizer: OptimizerName, device: torch.device) -> None:
    """Raise a ConfigError if the optimiser cannot run on this device."""
    if optimizer == "muon" and device.type == "cpu" and not cpu_has_bfloat16():
        raise ConfigError("optimizer: muon computes bfloat16 products, which fail on this CPU; use adamw or sgd")


def peak_memory(device: torch.device) -> dict[str, int]:
    """Peak memory in bytes, under the name of what it is: of the GPU since the last reset, or on a CPU of the whole
    process since its start, which cannot be reset."""
    if device.type == "cuda":
        return {"peak_memory_bytes": torch.cuda.max_memory_allocated(device)}
    return {"process_peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def peak_memory_gib(device: torch.device) -> dict[str, float]:
    """As `peak_memory`, in GiB."""
    return {key.replace("_bytes", "_gib"): round(value / 2**30, 3) for key, value in peak_memory(device).items()}


class Training:
    """One task being trained, step by step. `method.begin_task` has been called."""

    def __init__(
        self, clip: Clip, method: Method, streams: Mapping[str, Stream], config: RunConfig, steps: int
    ) -> None:
        """
        Args:
            streams: the task's own images under "task", and those that the method requests under their names.
            config: resolved.
            steps: of this task.
        """
        self.clip, self.method, self.streams, self.config = clip, method, dict(streams), config
        self.step, self.steps = 0, steps
        if method.state is not None:
            method.state.to(clip.device)
        clip.model.requires_grad_(False)
        tuned = clip.tuned_parameters(method.towers)
        factored = tuned if clip.tune == "lora" else {}
        self.low_rank = LowRank(factored, config.lora_rank, config.lora_alpha)
        self.factors = self.low_rank.trained(factored)
        frozen = set(clip.parameters_of(method.towers).values()) - set(tuned.values())
        self.groups = []
        for group in method.groups():
            if named := {name: p for name, p in group.parameters.items() if p not in frozen}:
                low_rank = any(p in self.low_rank.factors for p in named.values())
                lr_factor = group.lr_factor * (config.lora_lr_factor if low_rank else 1)
                trained = self.low_rank.trained(named)
                self.groups.append(dataclasses.replace(group, parameters=trained, lr_factor=lr_factor))
        self.trained = [p for group in self.groups for p in group.parameters.values()]
        for parameter in self.trained:
            parameter.requires_grad_(True)
        clip.visual.train()
        allowed = config.cuda_graphs and method.cuda_graphs and config.optimizer in CAPTURABLE
        # Checkpointed blocks keep the random state, which cannot be read while a step is captured.
        possible = clip.device.type in CAPTURE_DEVICES and clip.distributed.world_size == 1 and not clip.checkpointing
        captures = allowed and possible
        self.captured: CapturedStep | None = CapturedStep(self._compute, clip.device) if captures else None
        settings = []
        for group in self.groups:
            peak = group.lr_factor * (float(config.lr) if group.lr is None else group.lr)
            settings.append({
                "params": list(group.parameters.values()),
                "name": group.name,
                "peak_lr": peak,
                # A captured step reads its learning rates from where they were: they are tensors then.
                "lr": torch.tensor(peak, device=clip.device) if captures else peak,
                "weight_decay": unwrap(config.weight_decay) if group.weight_decay is None else group.weight_decay,
            })  # fmt: skip
        self.optimizers = build_optimizers(
            config.optimizer, settings, config.betas, captures, config.optimizer_precision
        )

    @property
    def trainable_parameters(self) -> int:
        """Number of trainable parameters in this task."""
        return sum(p.numel() for p in self.trained)

    @property
    def images_per_step(self) -> int:
        """Images of all streams together."""
        return sum(stream.batch_size for stream in self.streams.values())

    def inputs(self) -> Inputs:
        """What decides the current step: what streams draw, and what the method asks for."""
        drawn = {name: stream.draw(self.step) for name, stream in self.streams.items()}
        return {**drawn, METHOD: self.method.step_inputs(self.step)}

    def batch(self, inputs: Inputs | None = None) -> Batch:
        """The batch of these inputs, or of the current step."""
        inputs = inputs or self.inputs()
        images = {name: stream.images(inputs[name]) for name, stream in self.streams.items()}
        return Batch(images.pop("task"), images, inputs[METHOD])

    def advance(self) -> dict[str, Tensor]:
        """One optimiser step. The returned terms stay on the device: reading them waits for it."""
        inputs = self.inputs()
        resting = self._set_learning_rates()
        terms = self.captured(inputs, resting) if self.captured else self._compute(inputs, resting)
        # Neither a captured step nor a fused optimiser counts its changes, and cached class embeddings go by them.
        torch.autograd.graph.increment_version([*self.trained, *self.low_rank.factors])
        self.method.after_step(self.step)
        self.step += 1
        return terms

    def _compute(self, inputs: Inputs, resting: frozenset[str]) -> dict[str, Tensor]:
        """What runs on the device: views of the images, losses, gradients, and an update of all groups but the resting
        ones."""
        batch = self.batch(inputs)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        totals: dict[str, Tensor] = {}
        chunks = self.config.accumulate
        for chunk in range(chunks):
            terms = self.method.loss(batch.chunk(chunk, chunks))
            if chunks > 1:
                terms = {name: term / chunks for name, term in terms.items()}
            torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
            for name, term in terms.items():
                totals[name] = totals[name] + term.detach() if name in totals else term.detach()
        gradients = [p.grad for group in self.groups for p in group.parameters.values() if p.grad is not None]
        self.clip.distributed.all_reduce_mean(gradients)
        for group in self.groups:
            if group.name in resting:  # its moments stay as they are, too
                for parameter in group.parameters.values():
                    parameter.grad = None
        with self.low_rank.updating():
            for optimizer in self.optimizers:
                optimizer.step()
        return totals

    def _set_learning_rates(self) -> frozenset[str]:
        """Set those of this step; returns the names of the groups that rest."""
        factors = self._lr_factors()
        for settings in (settings for optimizer in self.optimizers for settings in optimizer.param_groups):
            lr = settings["peak_lr"] * factors[settings["name"]]
            if isinstance(settings["lr"], Tensor):
                settings["lr"].fill_(lr)
            else:
                settings["lr"] = lr
        return frozenset(group.name for group in self.groups if factors[group.name] == 0)

    def _lr_factors(self) -> dict[str, float]:
        """Factors of this step: a linear rise to 1 over the warm-up, then the method's schedule over the other steps.

        A group that the method lets rest in a step of the warm-up rests.
        """
        warmup, total = self.config.warmup, self.steps
        if self.step >= warmup:
            return self.method.lr_factors(self.step - warmup, total - warmup)
        rise = (self.step + 1) / warmup
        return {name: rise * (factor != 0) for name, factor in self.method.lr_factors(self.step, total).items()}

    def close(self) -> None:
        """Freeze the model again and stop reading ahead."""
        for stream in self.streams.values():
            stream.close()
        if self.captured:
            self.captured.close()
            self.captured = None  # it refers to this object, and both would hold the optimiser's memory
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        self.low_rank.close()
        self.clip.model.requires_grad_(False)
        self.clip.model.eval()

    # -- resume ----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that has changed since the task began, including the random state."""
        state = self._model_and_method() | self._factors()
        for prefix, parameter in self._parameters():
            state |= {f"{prefix}{key}": value for key, value in optimizer_state(self.optimizers, parameter).items()}
        state["random/cpu"] = torch.get_rng_state()
        if self.clip.device.type == "cuda":
            state["random/cuda"] = torch.cuda.get_rng_state(self.clip.device)
        state["step"] = torch.tensor(self.step)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor], where: str) -> None:
        """Resume where `state_dict` was taken. Errors name the file (`where`) and the tensor."""
        self._check_state(state, where)
        self.clip.load_state(part(state, MODEL), where)
        copy_into_state(self.method, part(state, METHOD_PREFIX))
        with torch.no_grad():
            for name, factor in self._factors().items():
                factor.copy_(state[name])
        for prefix, parameter in self._parameters():
            if accumulated := part(state, prefix):
                load_optimizer_state(self.optimizers, parameter, accumulated)
        torch.set_rng_state(state["random/cpu"].cpu())
        if self.clip.device.type == "cuda" and "random/cuda" in state:
            torch.cuda.set_rng_state(state["random/cuda"].cpu(), self.clip.device)
        self.step = int(state["step"])

    def _check_state(self, state: Mapping[str, Tensor], where: str) -> None:
        """All that `load_state_dict` needs is there, has the right shape and is finite."""
        expected = self._model_and_method() | self._factors()
        expected |= {"random/cpu": torch.get_rng_state(), "step": torch.tensor(0)}
        accumulated = expected_state(self.optimizers)
        for prefix, parameter in self._parameters():
            if any(name.startswith(prefix) for name in state):  # else it has had no gradient yet
                expected |= {f"{prefix}{key}": tensor for key, tensor in accumulated[parameter].items()}
        check_tensors({name: t for name, t in state.items() if name != "random/cuda"}, expected, where, REDO_TASK)
        check_finite({name: tensor for name, tensor in state.items() if not name.startswith(MODEL)}, where)
        if not 0 <= int(state["step"]) <= self.steps:
            raise RunError(f"{where}: step {int(state['step'])} is not one of 0 … {self.steps}; {REDO_TASK}")

    def _model_and_method(self) -> dict[str, Tensor]:
        model = {f"{MODEL}{name}": tensor for name, tensor in self.clip.state(self.method.towers).items()}
        return model | method_tensors(self.method)

    def _factors(self) -> dict[str, Tensor]:
        """Those of LoRA; without it there are none."""
        return {f"{FACTORS}{name}": p.detach() for name, p in self.factors.items()}

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Trainable parameters, each with the prefix of its optimiser state."""
        for group in self.groups:
            for name, parameter in group.parameters.items():
                yield f"{OPTIMIZER}{group.name}/{name}/", parameter
