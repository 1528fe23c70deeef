"""Fine-tuning: cross-entropy on each task in turn, nothing against forgetting but, if asked for, text anchors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from tasso.config import option
from tasso.methods.anchors import TextAnchors
from tasso.methods.base import Batch, Towers
from tasso.methods.losses import cross_entropy
from tasso.methods.registry import register


@register("finetune")
@dataclass
class FineTune(TextAnchors):
    """By default the image tower only: the forward pass and step of TASSO without its two additions."""

    trainable: Literal["visual", "both"] = option(
        "towers that are trained: visual (TASSO's ablation) or both (ZSCL's code)", "visual"
    )
    label_smoothing: float = option("label smoothing: 0 (TASSO's ablation); ZSCL's code has 0.2", 0.0, ge=0, lt=1)

    title: ClassVar[str] = "fine-tuning"
    summary: ClassVar[str] = "cross-entropy on each task in turn"
    source: ClassVar[str] = "the lower bound of every comparison"
    verified: ClassVar[str] = (
        "both towers: losses and gradients against ZSCL's code (github.com/Thunderbeee/ZSCL) in float64; image tower: "
        "equal to TASSO with both of its terms switched off"
    )
    cuda_graphs: ClassVar[bool] = True

    @property
    def towers(self) -> Towers:
        return self.trainable

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        features = self.gather(self.clip.encode_images(batch.task.pixels))
        texts, held = self.encode_class_and_held_texts(batch)
        ce = cross_entropy(features, texts, batch.task.labels, self.scale, self.label_smoothing)
        return {"ce": ce, **self.held_terms(held)}
