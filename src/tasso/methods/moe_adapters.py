"""MoE-Adapters: CLIP is frozen; small experts beside every MLP are trained, and each task has its own router to them.

L = CE, both towers routed. The experts that a task chose most are frozen after it. At inference, auto-encoders tell
which task an image belongs to; one that is unknown to all of them goes through plain CLIP.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from tasso.config import RunConfig, option, require, unwrap
from tasso.errors import ConfigError, RunError
from tasso.methods.base import Batch, Cost, Group, ImageRequest, Method, RunInfo, TaskInfo, Towers
from tasso.methods.losses import cross_entropy
from tasso.methods.moe.adapters import PLAIN, Adapters, Design, find_sites
from tasso.methods.moe.experts import expert_shapes
from tasso.methods.moe.features import ALEXNET_DIM, Kind, alexnet_file, load_alexnet
from tasso.methods.moe.routed import RoutedInference
from tasso.methods.moe.selector import REFERENCE, Recipe, TaskSelector
from tasso.methods.registry import register
from tasso.models.clip import Clip
from tasso.models.inference import Inference

log = logging.getLogger("tasso")

COUNTED_TASKS = 8  # `cost` counts what is saved after the benchmark's eight tasks


@register("moe-adapters")
@dataclass
class MoEAdapters(Method):
    """Defaults: its authors' code for MTIL, except where the help says ours."""

    experts: int = option("experts of each block, two per task (code: 22 for 11 tasks; ours: 16 for 8)", 16, ge=1)
    hidden: int = option("width of an expert (code)", 64, ge=1)
    top: int = option("experts per sample in each block (code)", 2, ge=1)
    freeze: int = option("experts of each block that are frozen after a task, the most chosen first (code)", 2, ge=0)
    dropout: float = option("dropout inside an expert while it is trained (code)", 0.1, ge=0, lt=1)
    expert_scale: float = option("factor on the output of experts (code)", 0.1)
    label_smoothing: float = option("label smoothing of the cross-entropy (code)", 0.2, ge=0, lt=1)
    routing: Literal["per_sample", "per_batch"] = option(
        "the selector decides per image (ours), or per test batch, which also tells it that the images are of one "
        "domain (code)",
        "per_sample",
    )
    routing_batch: int = option("test images that share a decision, with routing per_batch (code)", 128, ge=1)
    selector_features: Literal["auto", "alexnet", "clip"] = option(
        "features of the selector: ImageNet's AlexNet (code), pretrained CLIP (ours); auto: AlexNet if its weights "
        "are in torch's cache",
        "auto",
    )
    threshold: float | None = option(
        "error above which an image is unknown",
        None,
        unset="0.0655 with AlexNet (code), with CLIP the quantile",
        ge=0,
    )
    quantile: float = option(
        "share of its own training images that are known to an auto-encoder, with CLIP (ours)", 0.99, gt=0, le=1
    )
    selector_hidden: int = option("width of an auto-encoder (code)", 100, ge=1)
    selector_steps: int = option("training steps of an auto-encoder (code)", 300, ge=1)
    reference_steps: int = option("training steps of the one of the reference images (code)", 1000, ge=1)
    selector_batch_size: int = option("batch size of an auto-encoder (code)", 64, ge=1)

    title: ClassVar[str] = "MoE-Adapters"
    summary: ClassVar[str] = "frozen CLIP with experts beside every MLP, a router per task, and a task selector"
    source: ClassVar[str] = "its authors' code"
    verified: ClassVar[str] = (
        "routing with gradients, frozen experts and the selector's decisions against its authors' code "
        "(github.com/JiazuoYu/MoE-Adapters4CL) in float64; not the training of the selector"
    )
    group_names: ClassVar[tuple[str, ...]] = ("adapters",)
    # The code's rates differ by data set (Aircraft 5e-3, EuroSAT 1e-4, most 1e-3). One for all here: rates chosen by
    # looking at a data set are not for a method that does not know what comes next. Batches, steps, schedule and
    # prompts: the common protocol.
    run_defaults: ClassVar[Mapping[str, Any]] = {"lr": 1e-3, "weight_decay": 0.0}
    plain_model: ClassVar[bool] = False
    cuda_graphs: ClassVar[bool] = True

    def validate(self) -> None:
        require(self, "top", self.top <= self.experts, f"must lie in 1 … {self.experts} (experts)")
        require(self, "freeze", self.freeze <= self.experts, f"must lie in 0 … {self.experts} (experts)")

    @property
    def towers(self) -> Towers:
        return "none"

    @property
    def stand_in(self) -> str:
        return "" if self._kind == "alexnet" else "selector on CLIP features"

    @property
    def _kind(self) -> Kind:
        """The features of the selector on this machine."""
        if self.selector_features == "auto":
            return "alexnet" if alexnet_file().is_file() else "clip"
        return self.selector_features

    def resolve_auto(self, config: RunConfig) -> None:
        self.selector_features = self._kind

    def image_requests(self) -> tuple[ImageRequest, ...]:
        return (ImageRequest("reference", "eval", each_step=False),)

    def check(self, clip: Clip) -> None:
        find_sites(clip)
        if self.selector_features == "alexnet" and not alexnet_file().is_file():
            raise ConfigError(
                f"method.selector_features: AlexNet's weights are not on this machine; put torchvision's file at "
                f"{alexnet_file()}, or choose clip"
            )
        if self._kind == "alexnet":
            load_alexnet(alexnet_file())  # a damaged file is found now, not after the first task

    def cost(self, clip: Clip) -> Cost:
        widths = [site.width for site in find_sites(clip)]
        shapes = [shape for width in widths for shape in expert_shapes(self.experts, self.hidden, width).values()]
        experts = sum(torch.Size(shape).numel() for shape in shapes)
        gates = sum(widths) * self.experts
        dim = ALEXNET_DIM if self._kind == "alexnet" else clip.dim
        coder = 2 * dim * self.selector_hidden + dim + self.selector_hidden
        return Cost(
            trainable=experts + 2 * gates,  # gate and noise; later tasks train what is not frozen
            checkpoint=experts + COUNTED_TASKS * gates + (COUNTED_TASKS + 1) * coder,
            note=f"trainable: first task; checkpoint: after {COUNTED_TASKS} tasks, of which auto-encoders "
            f"{(COUNTED_TASKS + 1) * coder:,}" + ("; and AlexNet itself" if self._kind == "alexnet" else ""),
        )

    def attach(self, clip: Clip) -> None:
        before: Adapters | None = getattr(self, "adapters", None)
        if before is not None:
            before.detach()
        super().attach(clip)
        self.adapters = Adapters(clip, Design(self.experts, self.hidden, self.top, self.expert_scale, self.dropout))
        self.selector: TaskSelector | None = None
        self.state = nn.ModuleDict({"adapters": self.adapters})

    def prepare_state(self, tasks: int, tensors: Mapping[str, Tensor]) -> None:
        if self._kind == "alexnet" and not alexnet_file().is_file():
            raise RunError(
                "the task selector of this run uses AlexNet's features, and its weights are not on this machine; put "
                f"torchvision's file at {alexnet_file()}"
            )
        self.adapters.set_tasks(tasks)
        self._new_selector().set_tasks(tasks, any(f".{REFERENCE}." in name for name in tensors))

    def _new_selector(self) -> TaskSelector:
        self.selector = TaskSelector(self.clip, self._kind, self._recipe, self.routing == "per_batch")
        self.state = nn.ModuleDict({"adapters": self.adapters, "selector": self.selector})
        return self.selector

    def begin_run(self, run: RunInfo) -> None:
        super().begin_run(run)
        self.run = run

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        if task.index == 0:
            if self._kind == "clip" and not alexnet_file().is_file():
                log.info("moe-adapters: no AlexNet at %s, so the task selector uses CLIP's embeddings", alexnet_file())
            self.adapters.draw(_generator(task, 0))
            self._new_selector()
        elif self.adapters.learned != task.index:
            raise RunError(f"task {task.name!r}: routers of {self.adapters.learned} tasks, not of {task.index}")
        self.adapters.begin_task()
        if not self.adapters.free:
            log.warning(
                "task %s: all experts are frozen, so only its router is trained; see --method.experts", task.name
            )

    @property
    def _recipe(self) -> Recipe:
        return Recipe(self.selector_hidden, self.selector_batch_size, self.threshold, self.quantile)

    def groups(self) -> list[Group]:
        return [Group("adapters", self.adapters.trained())]

    def class_texts(self) -> Tensor:
        """Through the experts of the text tower."""
        return self.encode_classes(self.class_tokens)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        with self.adapters.learning():
            features, texts = self.gather(self.clip.encode_images(batch.task.pixels)), self.class_texts()
        return {"ce": cross_entropy(features, texts, batch.task.labels, self.scale, self.label_smoothing)}

    def end_task(self) -> None:
        super().end_task()
        self.adapters.end_task(self.freeze, self.clip.distributed)
        task, selector = self.task, unwrap(self.selector)
        if task.index == 0:
            if self.run.reference:
                images = self.run.reference()
                selector.learn(PLAIN, images, self.reference_steps, _generator(task, 1), "reference")
            else:
                log.info("moe-adapters: no reference images, so only the threshold tells what belongs to no task")
        selector.learn(task.index, unwrap(task.train), self.selector_steps, _generator(task, 2), task.name)

    def inference(self, tasks: Mapping[str, Sequence[str]]) -> Inference:
        if self.selector is None or not self.adapters.learned:
            return super().inference(tasks)
        return RoutedInference(self.clip, self.adapters, self.selector, self.routing_batch)


def _generator(task: TaskInfo, purpose: int) -> torch.Generator:
    """Random numbers of one purpose in one task; on the CPU, so that a seed means the same on every device."""
    return torch.Generator().manual_seed((task.seed * 1000 + task.index) * 4 + purpose)
