"""The head of a run: what is done for it before and after each task, and what of it is saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tasso.config import TEXTS, HeadName, RunConfig, unwrap
from tasso.data import Task
from tasso.data.images import Pixels
from tasso.heads import ClassKey, HeadInference, build_head, class_key, collect
from tasso.heads.collect import embed_some
from tasso.models.clip import Clip
from tasso.models.inference import Embedded, Inference
from tasso.models.tokens import LastTokens
from tasso.progress import progress


@dataclass(frozen=True)
class Before:
    """Some images as the model embeds them before it learns a task: the task's own and, if there are any, reference
    images. A head follows the model by them."""

    own: Embedded
    reference: Embedded | None


@dataclass
class TaskHead:
    """One head, for one model.

    Attributes:
        name: of the kind of head.
        merge_names: classes of the same name in several tasks are one class.
    """

    name: HeadName
    clip: Clip
    merge_names: bool
    tokens: LastTokens = field(init=False)

    def __post_init__(self) -> None:
        size = self.clip.preprocess.size
        self.tokens = LastTokens(self.clip.visual, torch.zeros(1, 3, size, size, device=self.clip.device))
        self.clear()

    @staticmethod
    def of_run(config: RunConfig, clip: Clip) -> TaskHead | None:
        """The empty head of a run, or None where it compares images with texts alone."""
        name: HeadName = unwrap(config.head)
        return None if name == TEXTS else TaskHead(name, clip, config.merges_names)

    def clear(self) -> None:
        """Begin anew."""
        head = build_head(self.name, self.clip.dim, self.tokens.width, self.clip.logit_scale)
        self.head = head.to(self.clip.device)

    def inference(self, base: Inference) -> HeadInference:
        """How the model compares images with classes."""
        return HeadInference(base, self.head, self.tokens, self.merge_names)

    def keys(self, task: str, class_names: Sequence[str]) -> list[ClassKey]:
        """The keys of a task's classes."""
        return [class_key(task, name, self.merge_names) for name in class_names]

    # -- learning ----------------------------------------------------------------------------------------------

    def before(self, base: Inference, pixels: Pixels, reference: Pixels | None) -> Before | None:
        """Look at a task's images before it is learned; None if the head does not follow the model.

        Args:
            base: how the model compares images with texts.
            pixels: the task's training images.
            reference: images that are no task's; None: there are none.
        """
        if not self.head.moves:
            return None
        inference = self.inference(base)
        return Before(embed_some(inference, pixels), embed_some(inference, reference) if reference else None)

    def after(
        self,
        base: Inference,
        tasks: Sequence[Task],
        pixels: Pixels,
        templates: Sequence[str],
        before: Before | None = None,
        reference: Pixels | None = None,
        *,
        trained: bool,
    ) -> None:
        """Let the sums follow the model, which has learned the last of these tasks, and add those of its images.

        Args:
            base: how the model compares images with texts.
            tasks: all tasks up to and including this one.
            pixels: its training images.
            templates: prompts of tasks that have none of their own.
            before: of this task.
            reference: as for `before`.
            trained: whether the model was trained on these images.
        """
        task, inference = tasks[-1], self.inference(base)
        if before and self.head.counts.any():
            pairs = [(before.own, embed_some(inference, pixels))]
            if before.reference and reference:
                pairs.append((before.reference, embed_some(inference, reference)))
            self.head.move([(self.head.features(old), self.head.features(now)) for old, now in pairs])
        columns = self.head.add_classes(self.keys(task.name, task.class_names))
        with progress(f"features of {task.name}", len(task.train)) as advance:
            collected = collect(inference, pixels, task.train.labels, columns, lambda n: advance(n, ""))
        if self.head.chooses:
            images, labels = collected.held_out
            cosines = self._text_scores(base, images, tasks, templates)
            self.head.choose(unwrap(collected.rest), self.head.features(images), labels, cosines, trained)
        self.head.add(collected.moments)

    def _text_scores(
        self, base: Inference, images: Embedded, tasks: Sequence[Task], templates: Sequence[str]
    ) -> Tensor:
        """Cosines (N, C) with the texts of all classes of the head; of a class in several tasks, those of the last."""
        groups, prompts = [task.class_names for task in tasks], [task.prompts(templates) for task in tasks]
        scores = base.scores(images, groups, prompts, [task.name for task in tasks])
        keys = [key for task in tasks for key in self.keys(task.name, task.class_names)]
        places = {self.head.classes[key]: place for place, key in enumerate(keys)}
        return scores[:, [places[column] for column in range(len(self.head.classes))]]

    # -- what is saved -----------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """The head's state, by name."""
        return self.head.state_dict()

    def prepare(self, learned: Mapping[str, Sequence[str]]) -> None:
        """Begin anew with the classes of these tasks, before their state is loaded."""
        self.clear()
        for task, names in learned.items():
            self.head.add_classes(self.keys(task, names))

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Load a state whose names and shapes have been checked."""
        self.head.load_state_dict(dict(tensors))
        self.head.forget_classifier()
