"""SnD (Select and Distill): two teachers, weighted per reference image.

L = CE + 9·mean(s·‖f − f_previous‖²) + 0.5·mean((1 − s)·‖f − f_pretrained‖²), image tower only, or as a control both
towers, then also with text anchors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from tasso.config import option, unwrap
from tasso.methods.anchors import TextAnchors
from tasso.methods.base import Batch, Cost, ImageRequest, Teacher, Towers
from tasso.methods.losses import Selection, cross_entropy, selected_distances, teacher_preference
from tasso.methods.registry import register
from tasso.models.clip import Clip


@register("snd")
@dataclass
class SelectAndDistill(TextAnchors):
    """Defaults: its authors' code."""

    trainable: Literal["visual", "both"] = option(
        "towers that are trained: visual (code), or both (a control of tasso-both)", "visual"
    )
    previous_weight: float = option("weight of the distillation from the previous model (code)", 9.0, ge=0)
    pretrained_weight: float = option("weight of the distillation from the pretrained model (code)", 0.5, ge=0)
    sharpness: float = option("steepness of the choice between the teachers (code)", 6.0, ge=0)
    threshold: float = option("distance of the teachers at which both count the same (code)", 0.2, ge=0)
    selection: Selection | None = option("per_sample (paper), or batch_mean, what the code computes (code)", None)

    title: ClassVar[str] = "SnD"
    summary: ClassVar[str] = "distillation from the previous and the pretrained model, chosen image by image"
    source: ClassVar[str] = "its authors' code"
    verified: ClassVar[str] = (
        "losses and gradients, both selections, against its authors' code (github.com/chu0802/SnD) in float64"
    )
    cuda_graphs: ClassVar[bool] = True
    protocols: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "code": {"selection": "batch_mean"},
        "paper": {"selection": "per_sample"},
    }

    @property
    def towers(self) -> Towers:
        return self.trainable

    @property
    def whole_batch(self) -> bool:
        return self.selection == "batch_mean"

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        return ("previous", "pretrained")

    def image_requests(self) -> tuple[ImageRequest, ...]:
        return (ImageRequest("reference"),)

    def cost(self, clip: Clip) -> Cost:
        return Cost(training=self.teacher_size(clip), note="one teacher in the first task")

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        reference = batch.others["reference"].pixels
        # Both teachers are the same encoder in the first task: it encodes once.
        encoders = dict.fromkeys((self.teacher_encoders["pretrained"], self.teacher_encoders["previous"]))
        pending = [encoder.encode_async(reference) for encoder in encoders]
        features, student = map(self.gather, self.clip.encode_together(batch.task.pixels, reference))
        targets = [self.gather(each.wait()) for each in pending]
        pretrained, previous = targets[0], targets[-1]
        preference = teacher_preference(previous, pretrained, self.sharpness, self.threshold)
        old, new = selected_distances(student, previous, pretrained, preference, unwrap(self.selection))
        texts, held = self.encode_class_and_held_texts(batch)
        return {
            "ce": cross_entropy(features, texts, batch.task.labels, self.scale),
            "kd_previous": self.previous_weight * old,
            "kd_pretrained": self.pretrained_weight * new,
            **self.held_terms(held),
        }
