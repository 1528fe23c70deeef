"""ZSCL: the pretrained model teaches on reference images and texts; weights are held back and averaged.

L = CE + D(Lₜ, Lₛ) + D(Lₜᵀ, Lₛᵀ) + λ·Σ‖θ − θ_start‖², both towers; L are scaled cosines with the *teacher's* embeddings
of the reference texts. What is saved, tested and passed on is the mean of the weights along the way.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tasso.config import option, require
from tasso.data.images import ImageBatch, Pixels, View
from tasso.errors import ConfigError
from tasso.methods.base import Batch, Extras, RunInfo, TaskInfo, Wanted, numbers, register
from tasso.methods.distillation import LogitDistillation
from tasso.methods.losses import squared_shift
from tasso.models.clip import Clip, FrozenImageEncoder, prompts
from tasso.models.inference import Inference
from tasso.progress import progress

log = logging.getLogger("tasso")


@register("zscl")
@dataclass
class ZeroShotContinualLearning(LogitDistillation):
    """Defaults: its authors' code for MTIL."""

    anchor: float = option("weight λ of the squared distance from the weights before the task (code)", 1.0, ge=0)
    average_every: int = option("add the weights to their mean every N steps; 0: no mean (code: 100)", 100, ge=0)
    reference_view: View = option("how reference images are seen: eval (code) or train", "eval")
    cache_teacher: bool = option("embed all reference images once a run instead of in every step", False)

    title: ClassVar[str] = "ZSCL"
    summary: ClassVar[str] = "distillation from the pretrained model on reference images and texts; mean of weights"
    source: ClassVar[str] = "its authors' code"
    verified: ClassVar[str] = "loss and mean against float64 re-computations; not against a run of its authors' code"
    teachers: ClassVar[str] = "the pretrained model"

    def validate(self) -> None:
        rule = "needs reference_view eval: random crops are different in every step"
        require(self, "cache_teacher", not self.cache_teacher or self.reference_view == "eval", rule)

    def wants(self) -> tuple[Wanted, ...]:
        return (Wanted("reference", self.reference_view),)

    def extras(self, clip: Clip) -> Extras:
        model, teacher = numbers(clip.parameters_of("both")), numbers(clip.parameters_of("visual"))
        copies = (self.anchor > 0) + (self.average_every > 0)
        return Extras(held=teacher + copies * model, remark="embeddings of the reference texts")

    def begin_run(self, run: RunInfo) -> None:
        texts = run.reference_texts or prompts(run.reference_names, run.templates)
        if not texts:
            raise ConfigError("reference_texts: zscl needs texts; give --reference-texts, a file with one text a line")
        if not run.reference_texts:
            log.info("zscl: no --reference-texts, so the %d class names of the reference set serve", len(texts))
        self.pretrained: FrozenImageEncoder = self.clip.frozen_image_encoder()
        self.texts = self.clip.encode_texts(texts)  # the teacher's, which never change
        self.known: Tensor | None = None
        if self.cache_teacher and run.reference:
            self.known = self._embedded(run.reference())

    def _embedded(self, reference: Pixels) -> Tensor:
        with progress("embedding reference", len(reference)) as advance:
            return Inference(self.clip).embed_all(reference, on_progress=lambda n: advance(n, "")).features

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        weights = self.clip.parameters_of("both")
        self.weights: list[Tensor] = list(weights.values())
        self.before = [weight.detach().clone() for weight in self.weights]
        self.mean = {name: weight.detach().clone() for name, weight in weights.items()} if self.average_every else {}
        self.averaged = 1  # the weights at the start count too

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        reference = batch.others["reference"]
        features, student = self.clip.encode_together(batch.task.pixels, reference.pixels)
        terms = {
            "ce": self.task_loss(features, batch.task.labels),
            **self.distil(self._teacher(reference), student, self.texts),
        }
        if self.anchor:
            terms["anchor"] = squared_shift(self.weights, self.before, self.anchor)
        return terms

    def _teacher(self, reference: ImageBatch) -> Tensor:
        if self.known is None:
            return self.pretrained.encode_images(reference.pixels)
        return self.known[reference.indices]

    def after_step(self, step: int) -> None:
        # The code takes the steps 0, 100, … and its last one.
        if self.average_every and (step % self.average_every == 0 or step + 1 == self.task.steps):
            self.averaged += 1
            torch._foreach_lerp_(list(self.mean.values()), [w.detach() for w in self.weights], 1 / self.averaged)

    def end_task(self) -> None:
        if self.mean:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, list(self.mean.values()))
        self.before, self.mean = [], {}

    def state_dict(self) -> dict[str, Tensor]:
        return {**{f"mean/{name}": mean for name, mean in self.mean.items()}, "averaged": torch.tensor(self.averaged)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, mean in self.mean.items():
            mean.copy_(state[f"mean/{name}"])
        self.averaged = int(state["averaged"])
