"""ZSCL: the pretrained model teaches on reference images and texts; weights are anchored and averaged.

L = CE + D(Lₜ, Lₛ) + D(Lₜᵀ, Lₛᵀ) + λ·Σ‖θ − θ_start‖², both towers; L are scaled cosines with the *teacher's* embeddings
of the reference texts. What is saved, evaluated and passed on is the running mean of the weights.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tasso.config import option, require
from tasso.data.images import ImageBatch, Pixels, View
from tasso.errors import ConfigError
from tasso.methods.base import Batch, Cost, ImageRequest, RunInfo, TaskInfo, Teacher, numel
from tasso.methods.distillation import LogitDistillation
from tasso.methods.losses import squared_shift
from tasso.methods.registry import register
from tasso.models.clip import Clip, FrozenImageEncoder, prompts
from tasso.models.inference import Embedded, Inference
from tasso.progress import progress

log = logging.getLogger("tasso")


class WeightAverage(nn.Module):
    """The running mean of weights, one buffer per weight, and how many were averaged."""

    count: Tensor

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(1))  # the weights at the start count too
        self.names = [name.replace(".", "/") for name in weights]  # buffers must not have dots in their names
        for name, weight in zip(self.names, weights.values(), strict=True):
            self.register_buffer(name, weight.detach().clone())

    def means(self) -> list[Tensor]:
        """In the order of the weights."""
        return [self.get_buffer(name) for name in self.names]

    def update(self, weights: list[Tensor]) -> None:
        """Add one more set of weights to the mean."""
        self.count += 1
        torch._foreach_lerp_(self.means(), [weight.detach() for weight in weights], 1 / int(self.count))


class ByTeacher(Inference):
    """Images are embedded by a teacher, which may have a precision of its own."""

    def __init__(self, clip: Clip, teacher: FrozenImageEncoder) -> None:
        super().__init__(clip)
        self.teacher = teacher

    def embed(self, pixels: Tensor) -> Embedded:
        return Embedded(self.teacher.encode_images(pixels))


@register("zscl")
@dataclass
class ZeroShotContinualLearning(LogitDistillation):
    """Defaults: its authors' code for MTIL."""

    anchor: float = option("weight λ of the squared distance from the weights before the task (code)", 1.0, ge=0)
    average_every: int = option("add the weights to their mean every N steps; 0: no mean (code: 100)", 100, ge=0)
    reference_view: View = option("view of the reference images: eval (code) or train", "eval")
    cache_teacher: bool = option("embed all reference images once per run instead of in every step", False)

    title: ClassVar[str] = "ZSCL"
    summary: ClassVar[str] = "distillation from the pretrained model on reference images and texts; mean of weights"
    source: ClassVar[str] = "its authors' code"
    verified: ClassVar[str] = (
        "losses, gradients and mean of weights against its authors' code (github.com/Thunderbeee/ZSCL) in float64"
    )

    def validate(self) -> None:
        rule = "needs reference_view eval: random crops are different in every step"
        require(self, "cache_teacher", not self.cache_teacher or self.reference_view == "eval", rule)

    def check(self, clip: Clip) -> None:
        super().check(clip)
        if self.average_every and clip.has_batch_norm:
            raise ConfigError(
                f"method.average_every: {clip.spec} has batch norm, whose statistics are those of the last weights, "
                "not of their mean; use 0, or a model without batch norm"
            )

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        return ("pretrained",)

    def image_requests(self) -> tuple[ImageRequest, ...]:
        return (ImageRequest("reference", self.reference_view),)

    def cost(self, clip: Clip) -> Cost:
        copies = (self.anchor > 0) + (self.average_every > 0)
        training = self.teacher_size(clip) + copies * numel(clip.tuned_parameters("both").values())
        return Cost(training=training, note="embeddings of the reference texts")

    def begin_run(self, run: RunInfo) -> None:
        super().begin_run(run)
        texts = run.reference_texts or prompts(run.reference_names, run.templates)
        if not texts:
            raise ConfigError(
                "reference_texts: zscl needs texts; give --reference-texts, a file with one text per line"
            )
        if not run.reference_texts:
            log.info("zscl: no --reference-texts, so the %d class names of the reference set are used", len(texts))
        self.texts = self.clip.encode_texts(texts)  # the teacher's, which never change
        self.cached_features: Tensor | None = None
        if self.cache_teacher and run.reference:
            self.cached_features = self._embed(run.reference())

    def _embed(self, reference: Pixels) -> Tensor:
        """Unit embeddings (N, D) of all reference images."""
        teacher = ByTeacher(self.clip, self.teacher_encoders["pretrained"])
        with progress("embedding reference", len(reference)) as advance:
            return teacher.embed_all(reference, on_progress=lambda n: advance(n, "")).features

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        weights = self.clip.tuned_parameters("both")
        self.weights: list[Tensor] = list(weights.values())
        self.before = [weight.detach().clone() for weight in self.weights]
        self.average = WeightAverage(weights) if self.average_every else None
        self.state = self.average

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        reference = batch.others["reference"]
        features, student = map(self.gather, self.clip.encode_together(batch.task.pixels, reference.pixels))
        terms = {
            "ce": self.task_loss(features, batch.task.labels),
            **self.distil(self._teacher_features(reference), student, self.texts),
        }
        if self.anchor:
            terms["anchor"] = squared_shift(self.weights, self.before, self.anchor)
        return terms

    def _teacher_features(self, reference: ImageBatch) -> Tensor:
        if self.cached_features is None:
            return self.gather(self.teacher_encoders["pretrained"].encode_images(reference.pixels))
        return self.cached_features[reference.indices]

    def after_step(self, step: int) -> None:
        # The code takes the steps 0, 100, … and its last one.
        if self.average and (step % self.average_every == 0 or step + 1 == self.task.steps):
            self.average.update(self.weights)

    def end_task(self) -> None:
        super().end_task()
        if self.average:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.average.means())
        self.before, self.state, self.average = [], None, None
