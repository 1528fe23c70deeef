"""GIFT: the previous model teaches on synthetic images with their prompts; weights that matter there are anchored.

L = CE + D(Lₜ, Lₛ) + D(Lₜᵀ, Lₛᵀ) + μ·ITA + λ·Σ F(θ − θ_start)², both towers. L are scaled cosines between the images
and the prompts of a batch, for the student with its own texts. ITA is the cross-entropy of which belong together.
F = g²/mean(g²) for each tensor, g the gradient of distillation and ITA at this very step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from tasso.config import RunConfig, option, unwrap
from tasso.data import BENCHMARKS, ImageSet
from tasso.errors import ConfigError
from tasso.methods.base import Batch, Cost, ImageRequest, RunInfo, TaskInfo, Teacher, numel
from tasso.methods.distillation import LogitDistillation
from tasso.methods.losses import (
    alignment,
    distillation_both_ways,
    matching_targets,
    with_consolidation,
    with_gradient,
)
from tasso.methods.registry import register
from tasso.methods.synthetic import STAND_INS, Generator, Request, build_generator
from tasso.models.clip import Clip, prompts
from tasso.progress import progress

log = logging.getLogger("tasso")


@register("gift")
@dataclass
class Gift(LogitDistillation):
    """Defaults: its authors' code for MTIL."""

    generator: Literal["auto", "diffusers", "folder", "atlas", "retrieval"] = option(
        "where images come from: diffusers (Stable Diffusion, as its authors), folder, atlas (drawn by code), "
        "retrieval; auto: atlas on that benchmark, else diffusers",
        "auto",
    )
    generator_source: str | None = option(
        "model of diffusers, or folder of images", None, unset="Stable Diffusion v1.5", content=True
    )
    images: int = option("synthetic images per task (code)", 1000, ge=1)
    generation_steps: int = option("denoising steps of diffusers (code)", 50, ge=1)
    guidance: float = option("guidance of diffusers (its own default, which the code leaves as it is)", 7.5, ge=0)
    alignment: float = option("weight μ of each direction of the image–text alignment (code)", 0.25, ge=0)
    consolidation: float = option("weight λ of the adaptive weight consolidation; 0 switches it off (code)", 1.0, ge=0)

    title: ClassVar[str] = "GIFT"
    summary: ClassVar[str] = "distillation and alignment on synthetic pairs, with weights held where they matter"
    source: ClassVar[str] = "its authors' code"
    verified: ClassVar[str] = (
        "losses, gradients and consolidation against its authors' code (github.com/Luo-Jiaming/GIFT_CL) in float64; "
        "not its generated images"
    )

    def resolve_auto(self, config: RunConfig) -> None:
        if self.generator == "auto":
            own = BENCHMARKS.get(config.benchmark)
            drawn = own and not own.needs_root and config.tasks is None and self.generator_source is None
            self.generator = "atlas" if drawn else "diffusers"

    @property
    def stand_in(self) -> str:
        return STAND_INS.get(self.generator, "")

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        return ("previous",)

    def image_requests(self) -> tuple[ImageRequest, ...]:
        # Of the reference set only the class names, for prompts.
        return ImageRequest("reference", each_step=False), ImageRequest("synthetic", "eval")

    def cost(self, clip: Clip) -> Cost:
        copies = 2 * (self.consolidation > 0)  # the weights before the task, and the gradient that holds them
        training = self.teacher_size(clip) + copies * numel(clip.tuned_parameters("both").values())
        if self.generator == "retrieval":
            training += numel(clip.model.parameters())  # the pretrained model, for its texts
        return Cost(training=training, note=f"{self.images:,} synthetic images per task")

    def begin_run(self, run: RunInfo) -> None:
        """Check the prompts of all tasks: they are known from the start."""
        super().begin_run(run)
        log.info("gift: images by --method.generator %s%s", self.generator, f" ({self.stand_in})" * bool(self.stand_in))
        # Retrieval compares texts as the pretrained model sees them, in every task and after every resume.
        self.pairs = self._generator(self.clip.copy() if self.generator == "retrieval" else self.clip)
        self.requests = [self._request(run, index) for index in range(len(run.tasks))]
        try:
            self.pairs.check(self.requests)
        except ConfigError as error:
            raise _with_option_name(error) from None

    def _generator(self, clip: Clip) -> Generator:
        try:
            return build_generator(
                self.generator,
                source=self.generator_source,
                steps=self.generation_steps,
                guidance=self.guidance,
                device=clip.device,
                encode_texts=clip.encode_texts,
            )
        except ConfigError as error:
            raise _with_option_name(error) from None

    def _request(self, run: RunInfo, index: int) -> Request:
        """Images for task `index`: of classes learned before it and of those of the reference set."""
        pool = prompts(run.reference_names, run.templates[:1])
        learned = [prompts(task.class_names, task.prompts(run.templates)[:1]) for task in run.tasks[:index]]
        pool += dict.fromkeys(prompt for some in learned for prompt in some)  # tasks may share classes
        if not pool:
            raise ConfigError("gift needs the class names of a reference set for its prompts, and there is none")
        draws = np.random.default_rng((run.seed, index)).integers(len(pool), size=self.images)
        # As the code numbers them: its 42 is a seed, and its tasks count from −1. Generators take 63 bits.
        first = 100_000 * (index - 1) + 10_000_000 * run.seed
        seeds = tuple((first + number) % 2**63 for number in range(self.images))
        return Request(tuple(pool[draw] for draw in draws), seeds, unwrap(run.folder) / f"synthetic-{index + 1:02d}")

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        self.weights: list[Tensor] = list(self.clip.tuned_parameters("both").values())
        self.before = [weight.detach().clone() for weight in self.weights] if self.consolidation else []

    def extra_images(self, task: TaskInfo) -> dict[str, ImageSet]:
        request = self.requests[task.index]
        with progress(f"images for {task.name}", len(request.prompts)) as advance:
            pairs = self.pairs.pairs(request.prompts, request.seeds, request.folder, lambda n: advance(n, ""))
        self.pair_tokens = self.clip.tokenise(pairs.texts)
        with torch.no_grad():  # the teacher's texts never change within a task
            chunks = torch.split(self.pair_tokens, 256)
            self.teacher_texts = torch.cat([self.clip.encode_tokens(chunk) for chunk in chunks])
        return {"synthetic": pairs.images}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        pairs = batch.others["synthetic"]
        features = self.gather(self.clip.encode_images(batch.task.pixels))
        images = self.gather(self.clip.encode_images(pairs.pixels))
        texts = self.clip.encode_tokens(self.pair_tokens[pairs.labels])
        student = self.scale * images @ texts.mT
        teacher_images = self.gather(self.teacher_encoders["previous"].encode_images(pairs.pixels))
        teacher = self.scale * teacher_images @ self.teacher_texts[pairs.labels].mT
        forth, back = distillation_both_ways(teacher, student, self.temperature)
        aligned = alignment(student, matching_targets(pairs.labels, student.dtype), self.label_smoothing)
        return {
            "ce": self.task_loss(features, batch.task.labels),
            **self._consolidated(self.weight * (forth + back), self.alignment * aligned),
        }

    def trained_texts(self, images: Mapping[str, int]) -> list[Tensor]:
        pairs = self.pair_tokens[:1].expand(images["synthetic"], -1)
        return [*super().trained_texts(images), pairs]

    def _consolidated(self, kd: Tensor, aligned: Tensor) -> dict[str, Tensor]:
        """Distillation and alignment, and the penalty on changes of weights that matter to them."""
        if not self.consolidation:
            return {"kd": kd, "alignment": aligned}
        gradients = torch.autograd.grad(kd + aligned, self.weights, materialize_grads=True)
        self.clip.distributed.all_reduce_mean(gradients)
        penalty, together = with_consolidation(gradients, self.weights, self.before, self.consolidation)
        return {
            # The gradients of all three have been computed: `kd` carries their sum, so that backward adds it once.
            "kd": with_gradient(kd, self.weights, together),
            "alignment": aligned.detach(),
            "consolidation": penalty,
        }

    def end_task(self) -> None:
        super().end_task()
        self.before = []


def _with_option_name(error: ConfigError) -> ConfigError:
    """A generator's error with the name of the method's option."""
    message = str(error)
    return ConfigError(("method.generator_" if message.startswith("source:") else "method.") + message)
