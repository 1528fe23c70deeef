"""SnD (Select and Distill): two teachers, and for every reference image a choice between them.

L = CE + 9·mean(s·‖f − f_previous‖²) + 0.5·mean((1 − s)·‖f − f_pretrained‖²), image tower only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from tasso.config import option, unwrap
from tasso.methods.base import Batch, Extras, Method, RunInfo, TaskInfo, Wanted, numbers, register
from tasso.methods.losses import Selection, cross_entropy, selected_distances, teacher_preference
from tasso.models.clip import Clip, FrozenImageEncoder


@register("snd")
@dataclass
class SelectAndDistill(Method):
    """Defaults: its authors' code."""

    previous_weight: float = option("weight of the distillation from the previous model (code)", 9.0, ge=0)
    pretrained_weight: float = option("weight of the distillation from the pretrained model (code)", 0.5, ge=0)
    sharpness: float = option("steepness of the choice between the teachers (code)", 6.0, ge=0)
    threshold: float = option("distance of the teachers at which both count the same (code)", 0.2, ge=0)
    selection: Selection | None = option("per_sample (paper), or batch_mean, what the code computes (code)", None)

    title: ClassVar[str] = "SnD"
    summary: ClassVar[str] = "distillation from the previous and the pretrained model, chosen image by image"
    source: ClassVar[str] = "its authors' code"
    verified: ClassVar[str] = "both selections against a float64 re-computation; not against a run of its authors' code"
    teachers: ClassVar[str] = "previous task's model and the pretrained one"
    protocols: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "code": {"selection": "batch_mean"},
        "paper": {"selection": "per_sample"},
    }

    @property
    def whole_batch(self) -> bool:
        return self.selection == "batch_mean"

    def wants(self) -> tuple[Wanted, ...]:
        return (Wanted("reference"),)

    def extras(self, clip: Clip) -> Extras:
        return Extras(held=2 * numbers(clip.parameters_of("visual")), remark="one teacher in the first task")

    def begin_run(self, run: RunInfo) -> None:
        self.pretrained: FrozenImageEncoder = self.clip.frozen_image_encoder()

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        # In the first task both teachers are the pretrained model.
        self.previous = self.clip.frozen_image_encoder() if task.index else self.pretrained

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        reference = batch.others["reference"].pixels
        begun = [teacher.encode_async(reference) for teacher in dict.fromkeys((self.pretrained, self.previous))]
        features, student = self.clip.encode_together(batch.task.pixels, reference)
        taught = [wait() for wait in begun]
        pretrained, previous = taught[0], taught[-1]  # one and the same in the first task
        preference = teacher_preference(previous, pretrained, self.sharpness, self.threshold)
        old, new = selected_distances(student, previous, pretrained, preference, unwrap(self.selection))
        return {
            "ce": cross_entropy(features, self.class_embeddings, batch.task.labels, self.scale),
            "kd_previous": self.previous_weight * old,
            "kd_pretrained": self.pretrained_weight * new,
        }
