"""LwF (learning without forgetting) for CLIP: the previous model teaches on the new task's own images.

L = CE + D(Lₜ, Lₛ) + D(Lₜᵀ, Lₛᵀ), both towers; L are scaled cosines with the *teacher's* class texts, so that the
distillation trains the image tower only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tasso.methods.base import Batch, ImageRequest, Teacher
from tasso.methods.distillation import LogitDistillation
from tasso.methods.registry import register


@register("lwf")
@dataclass
class LearningWithoutForgetting(LogitDistillation):
    """Defaults: ZSCL's code, which has the CLIP version of LwF that others compare with."""

    title: ClassVar[str] = "LwF"
    summary: ClassVar[str] = "distillation from the previous model on the new task's own images"
    source: ClassVar[str] = "ZSCL's code"
    verified: ClassVar[str] = "losses and gradients against ZSCL's code (github.com/Thunderbeee/ZSCL) in float64"

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        return ("previous",)

    def image_requests(self) -> tuple[ImageRequest, ...]:
        return (ImageRequest("current", "eval"),)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        current = batch.others["current"].pixels
        features, student = map(self.gather, self.clip.encode_together(batch.task.pixels, current))
        teacher = self.gather(self.teacher_encoders["previous"].encode_images(current))
        return {
            "ce": self.task_loss(features, batch.task.labels),
            **self.distil(teacher, student, self.class_embeddings),
        }
