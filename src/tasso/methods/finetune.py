"""Continual fine-tuning: cross-entropy on each task in turn, nothing to hold the earlier ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from tasso.config import option
from tasso.methods.base import Batch, Method, Towers, register
from tasso.methods.losses import cross_entropy


@register("finetune")
@dataclass
class FineTune(Method):
    """By default the image tower only: the same forward pass and step as TASSO's, less its two additions."""

    trainable: Literal["visual", "both"] = option(
        "what learns: visual (TASSO's ablation) or both (ZSCL's code)", "visual"
    )
    label_smoothing: float = option("label smoothing: 0 (TASSO's ablation); ZSCL's code has 0.2", 0.0, ge=0, lt=1)

    title: ClassVar[str] = "fine-tuning"
    summary: ClassVar[str] = "cross-entropy on each task in turn"
    source: ClassVar[str] = "the lower bound of every comparison"
    verified: ClassVar[str] = "equal to TASSO with both of its terms switched off"

    @property
    def towers(self) -> Towers:
        return self.trainable

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        features = self.clip.encode_images(batch.task.pixels)
        return {"ce": cross_entropy(features, self.class_texts(), batch.task.labels, self.scale, self.label_smoothing)}
