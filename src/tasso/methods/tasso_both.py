"""TASSO on both towers: the text tower is trained too, and anchor prompts keep it from forgetting.

L = CE + α·L_sub + β·L_KD(reference images) + γ·L_KD(anchor prompts) + δ·CE_seen, teacher = the model before this task.
All cross-entropies use the student's class texts, with gradient. CE_seen is over all classes learned so far and trains
the class texts only. Anchor prompts: class names of earlier tasks and generic texts (`anchors.py`). The result is one
plain CLIP model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tasso.config import option
from tasso.methods.anchors import TextAnchors
from tasso.methods.base import Batch, Cost, Group, TaskInfo, Towers
from tasso.methods.losses import cross_entropy
from tasso.methods.registry import register
from tasso.methods.tasso import Compared, Tasso
from tasso.models.class_overlap import normalised
from tasso.models.clip import Clip


@register("tasso-both")
@dataclass
class TassoBoth(TextAnchors, Tasso):
    """TASSO's hyper-parameters, which mean the same here, and those of the text tower.

    The distances `kd_parallel`, `kd_perpendicular` and `kd_whole` are those of images and of anchors.
    """

    gamma: float = option(
        "weight γ of the distillation of anchor prompts; 0: no anchors (chosen on validation images, with nano)",
        10.0,
        ge=0,
    )
    delta: float = option(
        "weight δ of a cross-entropy over all classes learned so far, which trains the task's class texts; 0: none",
        0.0,
        ge=0,
    )
    text_lr_factor: float = option("the text tower's learning rate, as a multiple of the run's", 1.0, ge=0)

    title: ClassVar[str] = "TASSO, both towers"
    summary: ClassVar[str] = "TASSO on both towers; earlier class names and generic texts are distilled like images"
    source: ClassVar[str] = "this project; beyond the paper"
    verified: ClassVar[str] = (
        "no authors' code exists; losses and gradients against a separate computation in float64, and against TASSO "
        "where the text tower rests"
    )
    group_names: ClassVar[tuple[str, ...]] = ("encoder", "text", "projector")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.earlier_texts: Tensor | None = None

    @property
    def towers(self) -> Towers:
        return "both"

    @property
    def uses_anchors(self) -> bool:
        return super().uses_anchors and self.has_distance

    @property
    def uses_subspace(self) -> bool:
        return super().uses_subspace or (self.uses_anchors and self.divides)

    def cost(self, clip: Clip) -> Cost:
        cost = super().cost(clip)
        notes = [cost.note, "embeddings of the anchor prompts" if self.uses_anchors else ""]
        return dataclasses.replace(cost, note="; ".join(filter(None, notes)))

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        self.earlier_texts = self.earlier_class_texts(task) if self.delta else None

    def earlier_class_texts(self, task: TaskInfo) -> Tensor | None:
        """Class texts (E, D) of earlier tasks by the model before this one, each class once and none of this task."""
        known = set(map(normalised, task.class_names))
        found = []
        for earlier in task.earlier:
            if names := [name for name in earlier.class_names if normalised(name) not in known]:
                known.update(map(normalised, names))
                found.append(self.clip.class_embeddings(names, earlier.train_prompts(self.templates)))
        return torch.cat(found) if found else None

    def groups(self) -> list[Group]:
        _, *projector = super().groups()
        encoder = Group("encoder", self.clip.parameters_of("visual"))
        text = Group("text", self.clip.parameters_of("text"), lr_factor=self.text_lr_factor)
        return [encoder, text, *projector]

    def lr_factors(self, step: int, total: int) -> dict[str, float]:
        factors = super().lr_factors(step, total)
        return {**factors, "text": factors["encoder"]}  # both towers move in the same steps

    def texts(self, batch: Batch) -> tuple[Tensor, dict[str, Compared]]:
        texts, held = self.encode_class_and_held_texts(batch)
        return texts, {name: (self.gamma, *pair) for name, pair in held.items()}

    def _terms(
        self, features: Tensor, texts: Tensor, labels: Tensor, compared: Mapping[str, Compared], U: Tensor | None
    ) -> dict[str, Tensor]:
        terms = super()._terms(features, texts, labels, compared, U)
        if self.earlier_texts is not None:
            # The images are constant: with their gradient, too, earlier classes lost more in the one trial of it.
            seen = torch.cat([texts, self.earlier_texts])
            terms["seen"] = self.delta * cross_entropy(features.detach(), seen, labels, self.scale)
        return terms

    def end_task(self) -> None:
        super().end_task()
        self.earlier_texts = None
