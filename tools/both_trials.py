"""Forms of TASSO on both towers that were tried on validation images, each an option of one method.

What they gave: results/README.md, "Forms of TASSO on both towers". What pays moves into the package.

    PYTHONPATH=tools tasso run --benchmark mtil-mini --method both_trials:Trial --method.flip --evaluate-on val …
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tasso.config import option
from tasso.data.images import ImageBatch, ShuffledEpochs
from tasso.decoding import views
from tasso.methods import generic
from tasso.methods.anchors import WHOLE, Names, anchor_prompts
from tasso.methods.base import Batch, Group, RunInfo, TaskInfo
from tasso.methods.losses import cross_entropy, distances, soft_cross_entropy
from tasso.methods.tasso import Compared, Tasso
from tasso.methods.tasso_both import TassoBoth
from tasso.models.clip import prompts

WORDINGS = (
    "a photo of a {}.", "a photo of the {}.", "an image of a {}.", "a picture of one {}.", "this is a {}.", "{}",
    "a close-up photo of a {}.", "a good photo of the {}.", "a photo of a small {}.", "a photo of a large {}.",
)  # fmt: skip


class Balanced(ShuffledEpochs):
    """Half of each step from the first `earlier` anchors, the other half from the rest."""

    def __init__(self, earlier: int, count: int, per_step: int, task: TaskInfo) -> None:
        half, self.earlier, seed = per_step // 2, earlier, (task.seed, task.index)
        self.first = ShuffledEpochs(earlier, min(half, earlier), seed, "anchors")
        self.second = ShuffledEpochs(count - earlier, per_step - min(half, earlier), seed, "anchors")

    def indices(self, step: int) -> Any:
        return np.concatenate([self.first.indices(step), self.earlier + self.second.indices(step)])


class LowRank(nn.Module):
    """W + B A, with A (rank, columns) drawn and B (rows, rank) zero."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.A = nn.Parameter(torch.randn(rank, columns).to(weight) / columns**0.5)
        self.B = nn.Parameter(torch.zeros(rows, rank).to(weight))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.B @ self.A


@dataclass
class Plain(Tasso):
    """TASSO as it is, with images mirrored at random or cropped more."""

    flip: bool = option("half of the images mirrored", False)
    crop: float = option("least share of an image that a crop shows", 0.9)

    def begin_run(self, run: RunInfo) -> None:
        super().begin_run(run)
        views.CROP_AREA = (self.crop, 1.0)

    def step_inputs(self, step: int) -> dict[str, Tensor]:
        inputs = super().step_inputs(step)
        if self.flip:
            draws = np.random.default_rng((self.task.seed, self.task.index, step, 7)).random(256) < 0.5
            inputs = {**inputs, "mirrored": torch.from_numpy(draws).to(self.clip.device, non_blocking=True)}
        return inputs

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        if self.flip:
            mirrored = batch.inputs["mirrored"]
            others = {name: _flipped(images, mirrored[64:]) for name, images in batch.others.items()}
            batch = Batch(_flipped(batch.task, mirrored), others, batch.inputs)
        return super().loss(batch)


@dataclass
class Trial(Plain, TassoBoth):
    """One idea per option; the defaults are TASSO on both towers."""

    sources: Literal["all", "listed", "first"] = option(
        "generic anchors: all; without composed captions; or the reference texts, else the reference set's names", "all"
    )
    balanced: bool = option("half of a step's anchors are names of earlier tasks", False)
    hold_generic: bool = option("generic anchors are held at the pretrained model, not at the previous one", False)
    logits: float = option("weight of the distillation of logits of reference images over the anchors", 0.0)
    temperature: float = option("its temperature", 2.0)
    drift: float = option("reference images weigh as their angle to the teacher to this power", 0.0)
    frozen_text: int = option("lower blocks of the text tower that rest, embeddings included; -1: nothing", -1)
    frozen_visual: int = option("lower blocks of the image tower that rest, patches included; -1: nothing", -1)
    frozen_tokens: bool = option("the token embeddings rest", False)
    text_lora: int = option("rank of LoRA on the text tower, merged after each task; 0: full", 0)
    ema: float = option("decay of a running mean of the weights, which is kept; 0: none", 0.0)
    step_back: float = option("share of the way back to the model before the task, at its end", 0.0)
    wordings: bool = option("class prompts in a wording of many, another one in each step", False)
    negatives: Literal["none", "step", "earlier"] = option(
        "further classes in both cross-entropies: the anchors of the step, or all names of earlier tasks", "none"
    )
    smoothing: float = option("label smoothing", 0.0)
    layer_decay: float = option("learning rate of a block, as a multiple of that of the block above it", 1.0)

    title: ClassVar[str] = "trial"
    summary: ClassVar[str] = "forms of TASSO on both towers, to be tried"

    def begin_run(self, run: RunInfo) -> None:
        super().begin_run(run)
        if self.sources == "listed":
            named = (*run.reference_names, *generic.names())
            self.generic = [(run.reference_texts, WHOLE), (named, run.templates), (generic.captions()[:64], WHOLE)]
        elif self.sources == "first" and (run.reference_texts or run.reference_names):
            told: Names = (run.reference_texts, WHOLE)
            self.generic = [told if run.reference_texts else (run.reference_names, run.templates)]
        self.pretrained: dict[str, Tensor] = {}
        if self.hold_generic:
            texts = [text for names, templates in self.generic for text in prompts(names, templates)]
            embedded = self.clip.encode_texts(texts)
            self.pretrained = dict(zip(texts, embedded, strict=True))

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        names: list[Names] = [(one.class_names, one.train_prompts(self.templates)) for one in task.earlier]
        earlier = anchor_prompts(names, task)
        self.earlier = self.table.embeddings[: len(earlier)] if self.table else None  # they come first
        if self.balanced and self.table and earlier:
            self.table.epochs = Balanced(len(earlier), len(self.table.tokens), self.anchors_per_step, task)
        if self.hold_generic and self.table:
            for row, text in enumerate(anchor_prompts([*names, *self.generic], task)):
                if text in self.pretrained and text not in earlier:
                    self.table.embeddings[row] = self.pretrained[text]
        if self.wordings and self.table:
            others = self.clip.tokenise(prompts(task.class_names, WORDINGS))
            length = max(others.shape[1], self.class_tokens.shape[1])
            self.class_tokens, self.table.tokens, others = (
                F.pad(tokens, (0, length - tokens.shape[1]))
                for tokens in (self.class_tokens, self.table.tokens, others)
            )
            self.worded = others.view(len(task.class_names), len(WORDINGS), length)
        self.before = {name: p.detach().clone() for name, p in self.clip.parameters_of("both").items()}
        self.mean = {name: p.clone() for name, p in self.before.items()} if self.ema else {}
        if self.text_lora:
            if self.table:  # open_clip's own pass, which runs parametrised blocks, takes texts of full length
                context = self.clip.tokenizer.context_length
                self.class_tokens, self.table.tokens = (
                    F.pad(tokens, (0, context - tokens.shape[1])) for tokens in (self.class_tokens, self.table.tokens)
                )
            for module in self._text_blocks():
                for weight in ("in_proj_weight", "weight"):
                    tensor = getattr(module, weight, None)
                    if isinstance(tensor, nn.Parameter) and tensor.ndim == 2:
                        parametrize.register_parametrization(module, weight, LowRank(tensor, self.text_lora))

    def _text_blocks(self) -> list[nn.Module]:
        blocks = self.clip.model.transformer
        assert isinstance(blocks, nn.Module)
        return list(blocks.modules())

    def groups(self) -> list[Group]:
        visual, text, *rest = super().groups()
        if self.text_lora:
            factors = {n: p for n, p in text.parameters.items() if n.endswith((".A", ".B"))}
            text = Group("text", factors, lr_factor=self.text_lr_factor)
        towers = [self._moving(visual, self.frozen_visual), self._moving(text, self.frozen_text)]
        return [*(part for tower in towers for part in self._by_depth(tower)), *rest]

    def _by_depth(self, group: Group) -> list[Group]:
        """One group per block, with what comes before the first and after the last one."""
        if self.layer_decay == 1:
            return [group]

        def depth(name: str) -> int:
            if "resblocks." in name:
                return int(name.split("resblocks.")[1].split(".")[0])
            return 0 if any(part in name for part in ("embedding", "conv1", "ln_pre")) else -1

        depths = {name: depth(name) for name in group.parameters}
        last = max(depths.values())
        parts: dict[int, dict[str, nn.Parameter]] = {}
        for name, parameter in group.parameters.items():
            parts.setdefault(last if depths[name] < 0 else depths[name], {})[name] = parameter
        return [
            Group(f"{group.name}.{block}", named, group.lr, group.weight_decay,
                  group.lr_factor * self.layer_decay ** (last - block))
            for block, named in sorted(parts.items())
        ]  # fmt: skip

    def lr_factors(self, step: int, total: int) -> dict[str, float]:
        factors = super().lr_factors(step, total)
        blocks = {f"{tower}.{block}": factors[tower] for tower in ("encoder", "text") for block in range(99)}
        return {**factors, **blocks}

    def _moving(self, group: Group, frozen: int) -> Group:
        def moves(name: str) -> bool:
            if self.frozen_tokens and "token_embedding" in name:
                return False
            if frozen < 0:
                return True
            if "resblocks." in name:
                return int(name.split("resblocks.")[1].split(".")[0]) >= frozen
            return not any(part in name for part in ("embedding", "conv1", "ln_pre"))

        kept = {name: p for name, p in group.parameters.items() if moves(name)}
        return Group(group.name, kept, group.lr, group.weight_decay, group.lr_factor)

    def step_inputs(self, step: int) -> dict[str, Tensor]:
        inputs = super().step_inputs(step)
        if self.wordings:
            draw = np.random.default_rng((self.task.seed, self.task.index, step, 8)).integers(2 * len(WORDINGS))
            which = torch.tensor(draw if draw < len(WORDINGS) else 0)  # half of them as evaluated
            inputs = {**inputs, "wording": which.to(self.clip.device, non_blocking=True)}
        return inputs

    def texts(self, batch: Batch) -> tuple[Tensor, dict[str, Compared]]:
        if self.wordings:
            self.class_tokens = self.worded.index_select(1, batch.inputs["wording"][None])[:, 0]
        texts, compared = super().texts(batch)
        self.classes = len(texts)
        if self.negatives == "step" and "kd_text" in compared:
            texts = torch.cat([texts, compared["kd_text"][1]])
        if self.negatives == "earlier" and self.earlier is not None:
            texts = torch.cat([texts, self.earlier])
        return texts, compared

    def _terms(
        self, features: Tensor, texts: Tensor, labels: Tensor, compared: Any, U: Tensor | None
    ) -> dict[str, Tensor]:
        terms = super()._terms(features, texts, labels, compared, U)
        if self.smoothing:
            terms["ce"] = cross_entropy(features, texts, labels, self.scale, self.smoothing)
        if self.logits and "kd_text" in compared:
            (_, image, image_before), (_, anchor, anchor_before) = compared["kd"], compared["kd_text"]
            student, teacher = self.scale * image @ anchor.mT, self.scale * image_before @ anchor_before.mT
            terms["kd_logits"] = self.logits * soft_cross_entropy(teacher, student, self.temperature)
        return terms

    def _distances(self, student: Tensor, teacher: Tensor, U: Tensor | None) -> Tensor:
        found = super()._distances(student, teacher, U)
        if not self.drift:
            return found
        # Reference images come first, then texts.
        weight = distances(student[:64].detach(), teacher[:64], "geodesic") ** self.drift
        return torch.cat([found[:64] * weight / weight.mean(), found[64:]])

    def after_step(self, step: int) -> None:
        super().after_step(step)
        if self.ema:
            current = self.clip.parameters_of("both")
            with torch.no_grad():
                torch._foreach_lerp_(list(self.mean.values()), [current[n].data for n in self.mean], 1 - self.ema)

    def end_task(self) -> None:
        super().end_task()
        for module in self._text_blocks() if self.text_lora else ():
            for weight in ("in_proj_weight", "weight"):
                if parametrize.is_parametrized(module, weight):
                    parametrize.remove_parametrizations(module, weight, leave_parametrized=True)
        with torch.no_grad():
            for name, p in self.clip.parameters_of("both").items():
                if self.ema:
                    p.copy_(self.mean[name])
                if self.step_back:
                    p.lerp_(self.before[name], self.step_back)
                p.requires_grad_(False)


def _flipped(images: ImageBatch, mirrored: Tensor) -> ImageBatch:
    where = mirrored[: len(images.pixels), None, None, None]
    return dataclasses.replace(images, pixels=torch.where(where, images.pixels.flip(-1), images.pixels))
