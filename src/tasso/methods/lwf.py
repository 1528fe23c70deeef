"""LwF (learning without forgetting) for CLIP: the previous model teaches on the new task's own images.

L = CE + D(Lₜ, Lₛ) + D(Lₜᵀ, Lₛᵀ), both towers; L are scaled cosines with the *teacher's* class texts, so that the
distillation trains the image tower only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tasso.methods.base import Batch, Extras, TaskInfo, Wanted, numbers, register
from tasso.methods.distillation import LogitDistillation
from tasso.models.clip import Clip


@register("lwf")
@dataclass
class LearningWithoutForgetting(LogitDistillation):
    """Defaults: ZSCL's code, which has the CLIP version of LwF that others compare with."""

    title: ClassVar[str] = "LwF"
    summary: ClassVar[str] = "distillation from the previous model on the new task's own images"
    source: ClassVar[str] = "ZSCL's code"
    verified: ClassVar[str] = "loss against a float64 re-computation; not against a run of ZSCL's code"
    teachers: ClassVar[str] = "previous task's model"

    def wants(self) -> tuple[Wanted, ...]:
        return (Wanted("current", "eval"),)

    def extras(self, clip: Clip) -> Extras:
        return Extras(held=numbers(clip.parameters_of("visual")))

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        self.teacher = self.clip.frozen_image_encoder()

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        current = batch.others["current"].pixels
        features, student = self.clip.encode_together(batch.task.pixels, current)
        teacher = self.teacher.encode_images(current)
        return {
            "ce": self.task_loss(features, batch.task.labels),
            **self.distil(teacher, student, self.class_embeddings),
        }

    def end_task(self) -> None:
        del self.teacher
