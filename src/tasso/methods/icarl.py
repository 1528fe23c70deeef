"""iCaRL for CLIP: a memory of earlier images on which the previous model teaches.

L = CE + D(Lₜ, Lₛ) + D(Lₜᵀ, Lₛᵀ), both towers; L are scaled cosines of the exemplars with the teacher's embeddings of
the current class texts. The exemplars' labels are not used unless asked for. The memory holds places in the tasks'
training sets, not images.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tasso.config import option, unwrap
from tasso.data import ImageSet, joined
from tasso.data.images import Pixels
from tasso.errors import RunError
from tasso.methods.base import Batch, Extras, RunInfo, TaskInfo, Wanted, numbers, register
from tasso.methods.distillation import LogitDistillation
from tasso.methods.losses import cross_entropy
from tasso.models.clip import Clip, FrozenImageEncoder, mean_of_templates, prompts
from tasso.models.inference import Embedded, Inference, Templates
from tasso.progress import progress

log = logging.getLogger("tasso")


@register("icarl")
@dataclass
class ICaRL(LogitDistillation):
    """Defaults: the paper of iCaRL and ZSCL's code, less what is broken there (misplaced exemplars, a memory that
    grows beyond its size). `herding=dataset, teacher=pretrained` is that code's variant."""

    memory: int = option("images kept of all tasks together (ZSCL's code)", 10_000, ge=1)
    herding: Literal["class", "dataset"] = option(
        "exemplars resemble the mean of each class or of the data set", "class"
    )
    teacher: Literal["previous", "pretrained"] = option("who teaches (ZSCL's code in MTIL: pretrained)", "previous")
    labelled_replay: bool = option("learn the exemplars' labels too, among the classes of all tasks seen", False)
    classifier: Literal["text", "nearest-mean"] = option("class texts, or the mean of a class's exemplars", "text")

    title: ClassVar[str] = "iCaRL"
    summary: ClassVar[str] = "distillation from the previous model on a memory of earlier images"
    source: ClassVar[str] = "ZSCL's code, with herding as iCaRL's paper has it"
    verified: ClassVar[str] = "herding, memory and loss against slow re-computations; not against a run of ZSCL's code"
    teachers: ClassVar[str] = "previous task's model (or the pretrained one)"

    def wants(self) -> tuple[Wanted, ...]:
        return (Wanted("exemplars", "eval"),)

    def extras(self, clip: Clip) -> Extras:
        remark = f"places of {self.memory:,} images" + (
            " and one mean a class" if self.classifier == "nearest-mean" else ""
        )
        return Extras(held=numbers(clip.parameters_of("visual")), remark=remark)

    def attach(self, clip: Clip) -> None:
        super().attach(clip)
        # By the number of the task: exemplars in the order in which they were chosen, and the means of its classes.
        self.exemplars: dict[int, Tensor] = {}
        self.means: dict[int, Tensor] = {}

    def begin_run(self, run: RunInfo) -> None:
        self.usual_prompts = run.templates
        self.pretrained: FrozenImageEncoder | None = None
        if self.teacher == "pretrained":  # what it makes of images, and of all texts that it will be asked for
            self.pretrained = self.clip.frozen_image_encoder()
            self.pretrained_texts = [
                self.clip.encode_classes(task.class_names, task.prompts(run.templates)) for task in run.tasks
            ]

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        self.tutor = self.pretrained or self.clip.frozen_image_encoder()
        self.tutor_texts = self.pretrained_texts[task.index] if self.pretrained else self.class_embeddings
        # Classes of all tasks seen; each task may have prompts of its own, and another number of them.
        each = [(seen.class_names, seen.prompts(self.usual_prompts)) for seen in task.earlier]
        each.append((task.class_names, task.templates))
        self.seen_tokens = self.clip.tokenise([text for names, own in each for text in prompts(names, own)])
        self.seen_prompts = [(len(names), len(own)) for names, own in each]

    def extra_images(self, task: TaskInfo) -> dict[str, ImageSet]:
        """The memory as one set; labels count through the classes of all tasks seen."""
        parts, offset = [], 0
        for number, earlier in enumerate(task.earlier):
            if number not in self.exemplars:
                raise RunError(f"{self.where}: no exemplars of task {number + 1}; is it a checkpoint of icarl?")
            places = self.exemplars[number].numpy()
            if len(places) and not 0 <= places.min() <= places.max() < len(earlier.train):
                raise RunError(
                    f"task {earlier.name!r}: the memory names images that its training set of {len(earlier.train)} "
                    "does not have; the data have changed since, or the checkpoint is damaged"
                )
            part = earlier.train.subset(places)
            parts.append(ImageSet(part.source, part.keys, part.labels + offset))
            offset += len(earlier.class_names)
        together = joined(parts)
        return {"exemplars": together} if len(together) else {}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        exemplars = batch.others.get("exemplars")
        if exemplars is None:  # the first task is plain fine-tuning
            return {"ce": self.task_loss(self.clip.encode_images(batch.task.pixels), batch.task.labels)}
        features, student = self.clip.encode_together(batch.task.pixels, exemplars.pixels)
        teacher = self.tutor.encode_images(exemplars.pixels)
        terms = {
            "ce": self.task_loss(features, batch.task.labels),
            **self.distil(teacher, student, self.tutor_texts),
        }
        if self.labelled_replay:
            seen = self._seen_texts()
            terms["replay"] = cross_entropy(student, seen, exemplars.labels, self.scale, self.label_smoothing)
        return terms

    def _seen_texts(self) -> Tensor:
        """One embedding for each class of all tasks seen, with gradient."""
        parts = torch.split(
            self.clip.encode_tokens(self.seen_tokens), [names * own for names, own in self.seen_prompts]
        )
        return torch.cat([
            mean_of_templates(part, own) for part, (_, own) in zip(parts, self.seen_prompts, strict=True)
        ])  # fmt: skip

    def end_task(self) -> None:
        """Every task seen gets the same share of the memory; the earlier ones lose what was chosen last."""
        task = self.task
        share = self.memory // (task.index + 1)
        features = self._features(unwrap(task.train), f"choosing from {task.name}")
        labels = torch.from_numpy(task.seen[-1].train.labels).to(features.device)
        groups = labels if self.herding == "class" else torch.zeros_like(labels)
        self.exemplars[task.index] = choose_exemplars(features, groups, share).cpu()
        self.exemplars = {number: places[:share] for number, places in self.exemplars.items()}
        if self.classifier == "nearest-mean":
            self.means = {number: self._class_means(number) for number in self.exemplars}

    def _class_means(self, number: int) -> Tensor:
        """Of a task's exemplars, as the model sees them now. A class without exemplars has the mean zero."""
        seen, places = self.task.seen[number], self.exemplars[number].numpy()
        means = torch.zeros(len(seen.class_names), self.clip.dim, device=self.clip.device)
        if len(places):
            images = seen.train.subset(places)
            features = self._features(unwrap(self.task.read)(images, f"{seen.name} exemplars"), f"means of {seen.name}")
            means.index_add_(0, torch.from_numpy(images.labels).to(means.device), features)
        if bare := int((means == 0).all(-1).sum()):
            log.warning("task %s: %d classes have no exemplar, so no image is ever taken for one", seen.name, bare)
        return F.normalize(means, dim=-1)

    def _features(self, images: Pixels, what: str) -> Tensor:
        with progress(what, len(images)) as advance:
            return Inference(self.clip).embed_all(images, on_progress=lambda n: advance(n, "")).features

    def lasting_state(self) -> dict[str, Tensor]:
        state = {f"exemplars/{number}": places for number, places in self.exemplars.items()}
        return state | {f"means/{number}": means for number, means in self.means.items()}

    def load_lasting_state(self, state: Mapping[str, Tensor], where: str) -> None:
        self.exemplars, self.means = {}, {}
        for key, tensor in state.items():
            kind, _, number = key.partition("/")
            if kind == "exemplars":
                self.exemplars[int(number)] = tensor
            else:
                self.means[int(number)] = tensor.to(self.clip.device)
        self.where = where

    def inference(self, tasks: Sequence[Sequence[str]]) -> Inference:
        if not self.means:
            return super().inference(tasks)
        return NearestMean(self.clip, {tuple(tasks[number]): means for number, means in self.means.items()})


class NearestMean(Inference):
    """Learned classes are told apart by the means of their exemplars.

    Images of classes that have no mean yet must be found too, and cosines between images are no match for those
    between images and texts. So the texts decide whether it is one of the learned classes, and the means which.
    """

    def __init__(self, clip: Clip, means: Mapping[tuple[str, ...], Tensor]) -> None:
        """`means`: one row a class, by the class names of each task learned."""
        super().__init__(clip)
        self.means = means

    def scores(self, images: Embedded, groups: Sequence[Sequence[str]], templates: Templates) -> Tensor:
        scores = super().scores(images, groups, templates)
        means = [self.means.get(tuple(names)) for names in groups]
        learned = torch.cat([
            torch.full((len(names),), mean is not None, device=scores.device)
            for names, mean in zip(groups, means, strict=True)
        ])  # fmt: skip
        if not learned.any():
            return scores
        near = images.features @ torch.cat([mean for mean in means if mean is not None]).mT
        best = scores[:, learned].max(-1, keepdim=True).values
        scores[:, learned] = best + near - near.max(-1, keepdim=True).values
        return scores


def choose_exemplars(features: Tensor, groups: Tensor, count: int) -> Tensor:
    """Places of up to `count` images that resemble the mean of their group, groups taking turns.

    The first n of them are what one would have chosen for a memory of n: they can be cut off at any length.
    """
    ranks, places = [], []
    different, sizes = torch.unique(groups, return_counts=True)
    each = turns_for(sizes.tolist(), count)
    for group in different:
        members = (groups == group).nonzero().squeeze(-1)
        chosen = herd(features[members], each)
        places.append(members[chosen])
        ranks.append(torch.arange(len(chosen), device=features.device))
    turns = torch.cat(ranks).argsort(stable=True)
    return torch.cat(places)[turns][:count]


def turns_for(sizes: Sequence[int], count: int) -> int:
    """How many turns it takes groups of these sizes to give `count` together (or all they have)."""
    return next((n for n in range(max(sizes)) if sum(min(n, size) for size in sizes) >= count), max(sizes))


def herd(features: Tensor, count: int) -> Tensor:
    """Greedy herding: each next vector brings the mean of the chosen ones closest to the mean of all.

    For unit vectors ‖μ − (S + f)/k‖ is least where ⟨kμ − S, f⟩ is greatest.
    """
    features = features.double()
    mean, total = features.mean(0), torch.zeros_like(features[0])
    free = torch.zeros(len(features), dtype=features.dtype, device=features.device)
    chosen = []
    for k in range(1, min(count, len(features)) + 1):
        place = (features @ (k * mean - total) + free).argmax()
        total = total + features[place]
        free[place] = -torch.inf
        chosen.append(place)
    return torch.stack(chosen) if chosen else torch.empty(0, dtype=torch.int64, device=features.device)
