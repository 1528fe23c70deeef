"""LwF (learning without forgetting) for CLIP: the previous model teaches on the new task's own pictures.

L = CE + D(Lₜ, Lₛ) + D(Lₜᵀ, Lₛᵀ), both towers; L are scaled cosines with the *teacher's* class texts, so that the
distillation trains the image tower only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from tasso.clip import Clip
from tasso.config import option, require
from tasso.losses import cross_entropy, distillation_both_ways
from tasso.methods.base import Batch, Extras, Method, TaskInfo, Towers, Wanted, numbers, register


@register("lwf")
@dataclass
class LearningWithoutForgetting(Method):
    """Defaults: ZSCL's code, which has the CLIP version of LwF that others compare with."""

    weight: float = option("weight of each direction of the distillation (code)", 1.0)
    temperature: float = option("temperature of the distillation (code)", 2.0)
    label_smoothing: float = option("label smoothing of the cross-entropy (code)", 0.2)

    title: ClassVar[str] = "LwF"
    summary: ClassVar[str] = "distillation from the previous model on the new task's own pictures"
    source: ClassVar[str] = "ZSCL's code"
    verified: ClassVar[str] = "loss against a float64 re-computation; not against a run of ZSCL's code"
    teachers: ClassVar[str] = "previous task's model"
    # lr and no weight decay: ZSCL's code. Batches, steps, schedule and prompts are those of the common protocol.
    run_defaults: ClassVar[Mapping[str, Any]] = {"lr": 1e-5, "weight_decay": 0.0}

    def validate(self) -> None:
        require(self, "weight", self.weight >= 0, "must not be negative")
        require(self, "temperature", self.temperature > 0, "must be positive")
        require(self, "label_smoothing", 0 <= self.label_smoothing < 1, "must lie in [0, 1)")

    @property
    def towers(self) -> Towers:
        return "both"

    @property
    def whole_batch(self) -> bool:
        return True  # the transposed term compares the pictures of a batch with each other

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
        texts = self.scale * self.class_embeddings.mT
        forth, back = distillation_both_ways(
            self.teacher.encode_images(current) @ texts, student @ texts, self.temperature
        )
        return {
            "ce": cross_entropy(features, self.class_texts(), batch.task.labels, self.scale, self.label_smoothing),
            "kd": self.weight * forth,
            "kd_transposed": self.weight * back,
        }

    def end_task(self) -> None:
        del self.teacher
