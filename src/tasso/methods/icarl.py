"""iCaRL for CLIP: a memory of earlier images on which the previous model teaches.

L = CE + D(Lₜ, Lₛ) + D(Lₜᵀ, Lₛᵀ), both towers; L are scaled cosines of the exemplars with the teacher's embeddings of
the current class texts. The exemplars' labels are not used unless asked for. The memory holds indices into the tasks'
training sets, not images.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasso.config import option, unwrap
from tasso.data import ImageSet, Task, joined
from tasso.data.images import Pixels
from tasso.errors import RunError
from tasso.methods.base import Batch, Cost, ImageRequest, RunInfo, TaskInfo, Teacher
from tasso.methods.distillation import LogitDistillation
from tasso.methods.losses import cross_entropy
from tasso.methods.registry import register
from tasso.models.classifier import LinearHead
from tasso.models.clip import Clip, mean_of_templates, prompts
from tasso.models.inference import Embedded, Inference, Templates
from tasso.progress import progress

log = logging.getLogger("tasso")


class TaskMemory(nn.Module):
    """The memory of one task.

    Attributes:
        exemplars: indices (n,) into its training set, in the order in which they were chosen.
        means: unit mean (C, D) of each class's exemplars; (0, D) unless the classifier needs them.
    """

    exemplars: Tensor
    means: Tensor

    def __init__(self, exemplars: Tensor, means: Tensor) -> None:
        super().__init__()
        self.register_buffer("exemplars", exemplars)
        self.register_buffer("means", means)


@register("icarl")
@dataclass
class ICaRL(LogitDistillation):
    """Defaults: the paper of iCaRL and ZSCL's code, less what is broken there (misplaced exemplars, a memory that
    grows beyond its size). `herding=dataset, teacher=pretrained` is that code's variant."""

    memory: int = option("size of the memory: images of all tasks together (ZSCL's code)", 10_000, ge=1)
    herding: Literal["class", "dataset"] = option(
        "choose exemplars that resemble the mean of each class or of the data set", "class"
    )
    teacher: Literal["previous", "pretrained"] = option(
        "the model that teaches (ZSCL's code in MTIL: pretrained)", "previous"
    )
    labelled_replay: bool = option("also learn the exemplars' labels, among the classes of all tasks so far", False)
    classifier: Literal["text", "nearest-mean"] = option("class texts, or the mean of a class's exemplars", "text")

    title: ClassVar[str] = "iCaRL"
    summary: ClassVar[str] = "distillation from the previous model on a memory of earlier images"
    source: ClassVar[str] = "ZSCL's code, with herding as iCaRL's paper has it"
    verified: ClassVar[str] = (
        "losses and gradients against ZSCL's code (github.com/Thunderbeee/ZSCL), herding and class means against "
        "mammoth (github.com/aimagelab/mammoth), in float64; the shares of the memory against slow re-computations"
    )

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        return (self.teacher,)

    def image_requests(self) -> tuple[ImageRequest, ...]:
        return (ImageRequest("exemplars", "eval"),)

    def cost(self, clip: Clip) -> Cost:
        means = " and one mean per class" if self.classifier == "nearest-mean" else ""
        return Cost(training=self.teacher_size(clip), note=f"indices of {self.memory:,} images{means}")

    def attach(self, clip: Clip) -> None:
        super().attach(clip)
        self.state = self.memories = nn.ModuleList()  # one TaskMemory per task learned

    def prepare_state(self, tasks: int, tensors: Mapping[str, Tensor]) -> None:
        def rows(name: str) -> int:
            return len(tensors[name]) if name in tensors and tensors[name].ndim else 0

        self.state = self.memories = nn.ModuleList(
            TaskMemory(
                torch.zeros(rows(f"{index}.exemplars"), dtype=torch.int64),
                torch.zeros(rows(f"{index}.means"), self.clip.dim),
            )
            for index in range(tasks)
        )

    def memory_of(self, index: int) -> TaskMemory:
        """The memory of an earlier task."""
        memory = self.memories[index]
        assert isinstance(memory, TaskMemory)
        return memory

    def begin_run(self, run: RunInfo) -> None:
        super().begin_run(run)
        self.default_templates = run.templates
        self.pretrained_texts: list[Tensor] = []  # per task, as the pretrained model encodes them
        if self.teacher == "pretrained":
            self.pretrained_texts = [
                self.clip.encode_classes(task.class_names, task.train_prompts(run.templates)) for task in run.tasks
            ]

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        self.teacher_texts = self.pretrained_texts[task.index] if self.pretrained_texts else self.class_embeddings
        # Classes of all tasks so far; each task may have prompts of its own, and another number of them. One that tasks
        # share is there once: it must not compete with itself.
        given = [(earlier.class_names, earlier.train_prompts(self.default_templates)) for earlier in task.earlier]
        each: list[tuple[list[str], tuple[str, ...]]] = []
        columns: dict[tuple[str, tuple[str, ...]], int] = {}
        for names, own in (*given, (task.class_names, task.templates)):
            each.append(([name for name in names if (name, own) not in columns], own))
            for name in names:
                columns.setdefault((name, own), len(columns))
        self.columns = [np.asarray([columns[name, own] for name in names]) for names, own in given]
        self.all_tokens = self.clip.tokenise([text for names, own in each for text in prompts(names, own)])
        self.prompt_counts = [(len(names), len(own)) for names, own in each]

    def extra_images(self, task: TaskInfo) -> dict[str, ImageSet]:
        """The memory as one set; labels count through the classes of all tasks so far, each name once."""
        parts = []
        for index, earlier in enumerate(task.earlier):
            indices = self.memory_of(index).exemplars.cpu().numpy()
            if len(indices) and not 0 <= indices.min() <= indices.max() < len(earlier.train):
                raise RunError(
                    f"task {earlier.name!r}: the memory names images that its training set of {len(earlier.train)} "
                    "does not have; the data have changed since, or the checkpoint is damaged"
                )
            part = earlier.train.subset(indices)
            parts.append(ImageSet(part.source, part.keys, self.columns[index][part.labels]))
        together = joined(parts)
        return {"exemplars": together} if len(together) else {}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        exemplars = batch.others.get("exemplars")
        if exemplars is None:  # the first task is fine-tuning
            features = self.gather(self.clip.encode_images(batch.task.pixels))
            return {"ce": self.task_loss(features, batch.task.labels)}
        features, student = map(self.gather, self.clip.encode_together(batch.task.pixels, exemplars.pixels))
        teacher = self.gather(self.teacher_encoders[self.teacher].encode_images(exemplars.pixels))
        terms = {
            "ce": self.task_loss(features, batch.task.labels),
            **self.distil(teacher, student, self.teacher_texts),
        }
        if self.labelled_replay:
            texts = self._all_class_texts()
            terms["replay"] = cross_entropy(student, texts, exemplars.labels, self.scale, self.label_smoothing)
        return terms

    def trained_texts(self, images: Mapping[str, int]) -> list[Tensor]:
        replayed = [self.all_tokens] if self.labelled_replay and "exemplars" in images else []
        return super().trained_texts(images) + replayed

    def _all_class_texts(self) -> Tensor:
        """Embeddings (C, D) of the classes of all tasks so far, with gradient."""
        sizes = [names * own for names, own in self.prompt_counts]
        parts = torch.split(self.clip.encode_tokens(self.all_tokens), sizes)
        return torch.cat([
            mean_of_templates(part, own) for part, (_, own) in zip(parts, self.prompt_counts, strict=True)
        ])  # fmt: skip

    def end_task(self) -> None:
        """Every task gets the same share of the memory; the earlier ones lose what was chosen last."""
        super().end_task()
        task = self.task
        share = self.memory // (task.index + 1)
        features = self._features(unwrap(task.train), f"choosing from {task.name}")
        labels = torch.from_numpy(task.tasks[-1].train.labels).to(features.device)
        groups = labels if self.herding == "class" else torch.zeros_like(labels)
        self.memories.append(
            TaskMemory(choose_exemplars(features, groups, share), features.new_zeros(0, self.clip.dim))
        )
        for index in range(len(self.memories)):
            memory = self.memory_of(index)
            memory.exemplars = memory.exemplars[:share].clone()
            if self.classifier == "nearest-mean":
                memory.means = self._class_means(task.tasks[index], memory)

    def _class_means(self, task: Task, memory: TaskMemory) -> Tensor:
        """Unit means (C, D) of a task's exemplars, as the model embeds them now; zero for a class without any."""
        means = memory.means.new_zeros(len(task.class_names), self.clip.dim, device=self.clip.device)
        if len(memory.exemplars):
            images = task.train.subset(memory.exemplars.cpu().numpy())
            pixels = unwrap(self.task.read)(images, f"{task.name} exemplars")
            features = self._features(pixels, f"means of {task.name}")
            labels = torch.from_numpy(images.labels).to(means.device)
            # A product, because index_add_ adds up in no fixed order on a GPU.
            means = F.one_hot(labels, len(means)).to(features.dtype).mT @ features
        if empty := int((means == 0).all(-1).sum()):
            log.warning("task %s: %d classes have no exemplars, so no image is assigned to them", task.name, empty)
        return F.normalize(means, dim=-1)

    def _features(self, images: Pixels, what: str) -> Tensor:
        with progress(what, len(images)) as advance:
            return Inference(self.clip).embed_all(images, on_progress=lambda n: advance(n, "")).features

    def inference(self, tasks: Mapping[str, Sequence[str]]) -> Inference:
        memories = [self.memory_of(index) for index in range(len(self.memories))]
        learned = zip(tasks.items(), memories, strict=False)  # later tasks have no memory yet
        means = {(task, tuple(names)): memory.means for (task, names), memory in learned if len(memory.means)}
        return NearestMean(self.clip, means) if means else super().inference(tasks)


class NearestMean(Inference):
    """Learned classes are told apart by the means of their exemplars.

    Classes that have no mean yet must be found too, and cosines between images cannot be compared with those between
    images and texts. So the texts decide whether it is one of the learned classes, and the means which.
    """

    def __init__(self, clip: Clip, means: Mapping[tuple[str, tuple[str, ...]], Tensor]) -> None:
        """`means`: (C, D) by name and class names of each task learned; two tasks may have the same classes."""
        super().__init__(clip)
        self.means = means

    def scores(
        self,
        images: Embedded,
        groups: Sequence[Sequence[str]],
        templates: Templates,
        tasks: Sequence[str] = (),
    ) -> Tensor:
        scores = super().scores(images, groups, templates, tasks)
        means, learned = self._means(groups, tasks)
        if not means:
            return scores
        near = images.features @ torch.cat(means).mT
        best = scores[:, learned].max(-1, keepdim=True).values
        scores[:, learned] = best + near - near.max(-1, keepdim=True).values
        return scores

    def linear(self, groups: Sequence[Sequence[str]], tasks: Sequence[str] = ()) -> LinearHead | None:
        means, learned = self._means(groups, tasks)
        if not means:
            return None
        weight = means[0].new_zeros(self.clip.dim, len(learned))
        weight[:, learned] = self.clip.logit_scale * torch.cat(means).mT
        bias = weight.new_zeros(len(learned)).masked_fill(~learned.to(weight.device), -torch.inf)
        no_random = weight.new_zeros(self.clip.dim, 0)
        return LinearHead("NearestMean", weight, bias, 0.0, 1.0, lambda images: images.features, no_random, None)

    def _means(self, groups: Sequence[Sequence[str]], tasks: Sequence[str]) -> tuple[list[Tensor], Tensor]:
        """Means of the groups that have any, and which of all classes these are, (C,)."""
        named = zip(tasks or [""] * len(groups), groups, strict=True)
        means = [self.means.get((task, tuple(names))) for task, names in named]
        learned = [mean is not None for names, mean in zip(groups, means, strict=True) for _ in names]
        return [mean for mean in means if mean is not None], torch.tensor(learned)


def choose_exemplars(features: Tensor, groups: Tensor, count: int) -> Tensor:
    """Indices of up to `count` of the images (features (N, D), groups (N,)) that resemble the mean of their group.

    Groups take turns. The first n indices are those of a memory of size n: they can be cut off at any length.
    """
    ranks, indices = [], []
    different, sizes = torch.unique(groups, return_counts=True)
    each = turns_for(sizes.tolist(), count)
    for group in different:
        members = (groups == group).nonzero().squeeze(-1)
        chosen = herd(features[members], each)
        indices.append(members[chosen])
        ranks.append(torch.arange(len(chosen), device=features.device))
    turns = torch.cat(ranks).argsort(stable=True)
    return torch.cat(indices)[turns][:count]


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
        index = (features @ (k * mean - total) + free).argmax()
        total = total + features[index]
        free[index] = -torch.inf
        chosen.append(index)
    return torch.stack(chosen) if chosen else torch.empty(0, dtype=torch.int64, device=features.device)
