"""Text anchors: prompts whose embeddings are held where they were before the task.

What a text tower must remember is known exactly: the names of the classes learned so far are strings. Generic texts
stand for everything else. Names of later tasks are never looked up.

A class of the current task is no anchor: it must be free to move. One that an earlier task has, too, as with a new
camera, is held by a term of its own in every step, since its text serves the earlier images as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tasso.config import option, require
from tasso.data.images import ShuffledEpochs
from tasso.methods import generic
from tasso.methods.base import Batch, ImageRequest, Method, RunInfo, TaskInfo
from tasso.methods.losses import distances
from tasso.models.class_overlap import normalised
from tasso.models.clip import TEXT_CHUNK, Clip, mean_of_templates, prompts
from tasso.models.towers import without_padding

WHOLE = ("{}",)  # the template of texts that are prompts already

# Class names, and the templates they are put into.
Names = tuple[Sequence[str], Sequence[str]]
# Texts that are held, by the name of their term: embeddings of the student and of the model before the task, (n, D).
Held = dict[str, tuple[Tensor, Tensor]]


def generic_names(run: RunInfo) -> list[Names]:
    """The user's reference texts, the class names of the reference images, and the package's own names and captions."""
    named = (*run.reference_names, *generic.names())
    return [(run.reference_texts, WHOLE), (named, run.templates), (generic.captions(), WHOLE)]


def anchor_prompts(names: Iterable[Names], task: TaskInfo) -> list[str]:
    """Every name in every template, each prompt once.

    A name that is also a class of the current task is left out, whatever its template: it must be free to move.
    """
    own = {normalised(text) for text in (*task.class_names, *prompts(task.class_names, task.templates))}
    found: dict[str, str] = {}
    for some, templates in names:
        kept = [name for name in some if normalised(name) not in own]
        for prompt in prompts(kept, templates):
            found.setdefault(normalised(prompt), prompt)
    return list(found.values())


class AnchorTable:
    """Anchor prompts of one task: their tokens, and their embeddings by the model before the task.

    That model's text tower is the model's own when the task begins, so the teacher is this table and not a copy of a
    tower. It is computed in the precision of training: else teacher and student would differ from the first step on.
    """

    def __init__(self, clip: Clip, tokens: Tensor, per_step: int, seed: tuple[int, int]) -> None:
        """
        Args:
            tokens: (N, L).
            per_step: how many each step gets; 0: all.
            seed: of the run, and the index of the task.
        """
        self.tokens = tokens
        order = tokens.argmax(-1).argsort()  # by length: the end of a text has the largest id
        with torch.no_grad():
            parts = torch.split(tokens[order], TEXT_CHUNK)
            chunks = [clip.encode_tokens(without_padding(clip.model, part)) for part in parts]
        self.embeddings = torch.cat(chunks)[order.argsort()]  # (N, D)
        count = len(tokens)
        self.epochs = ShuffledEpochs(count, min(per_step or count, count), seed, "anchors")

    def rows(self, step: int) -> Tensor:
        """Which anchors a step gets, (n,): shuffled epochs, a function of seed, task and step."""
        return torch.from_numpy(self.epochs.indices(step)).to(self.tokens.device, non_blocking=True)


@dataclass
class TextAnchors(Method):
    """A method whose text tower, if it is trained, may be held by anchors. With γ = 0 they cost nothing."""

    gamma: float = option("weight γ of the distillation of anchor prompts; 0: no anchors", 0.0, ge=0)
    anchors: Literal["both", "earlier", "generic"] = option(
        "anchor prompts: class names of earlier tasks, generic texts (--reference-texts, names of the reference set, "
        "and names and captions of the package), or both",
        "both",
    )
    anchors_per_step: int = option("anchor prompts per step, a fresh sample if there are more; 0: all", 128, ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.table: AnchorTable | None = None
        # Classes of the task that were learned before (n,), and their embeddings before the task (n, D).
        self.relearned: tuple[Tensor, Tensor] | None = None

    def validate(self) -> None:
        super().validate()
        require(self, "gamma", not self.gamma or self.towers == "both", "needs a text tower that is trained")

    @property
    def uses_anchors(self) -> bool:
        """Whether there may be anchors; the first task has none of earlier tasks."""
        return self.gamma > 0

    def image_requests(self) -> tuple[ImageRequest, ...]:
        requests = super().image_requests()
        if not self.uses_anchors or self.anchors == "earlier" or any(one.name == "reference" for one in requests):
            return requests
        return (*requests, ImageRequest("reference", each_step=False))  # of the reference set only the names

    def begin_run(self, run: RunInfo) -> None:
        super().begin_run(run)
        self.generic: list[Names] = generic_names(run) if self.anchors != "earlier" else []
        self.templates = run.templates

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        if not self.uses_anchors:
            return
        names: list[Names] = []
        if self.anchors != "generic":
            names = [(earlier.class_names, earlier.train_prompts(self.templates)) for earlier in task.earlier]
        if anchors := anchor_prompts([*names, *self.generic], task):
            # Of one length with the classes' tokens: one forward pass encodes both.
            tokens = self.clip.tokenise([*prompts(task.class_names, task.templates), *anchors])
            self.class_tokens, rest = tokens[: -len(anchors)], tokens[-len(anchors) :]
            self.table = AnchorTable(self.clip, rest, self.anchors_per_step, (task.seed, task.index))
        learned = {normalised(name) for some, _ in names for name in some}
        if again := [row for row, name in enumerate(task.class_names) if normalised(name) in learned]:
            rows = torch.tensor(again, device=self.clip.device)
            with torch.no_grad():
                self.relearned = rows, self.class_texts()[rows]

    def step_inputs(self, step: int) -> dict[str, Tensor]:
        inputs = super().step_inputs(step)
        return {**inputs, "anchors": self.table.rows(step)} if self.table else inputs

    def trained_texts(self, images: Mapping[str, int]) -> list[Tensor]:
        anchors = [self.table.tokens[self.table.rows(0)]] if self.table else []
        return super().trained_texts(images) + anchors

    def encode_class_and_held_texts(self, batch: Batch) -> tuple[Tensor, Held]:
        """The student's class texts (C, D), and the texts that are held in this step."""
        held: Held = {}
        if self.table is None:
            texts = self.class_texts()
        else:
            rows, classes = batch.inputs["anchors"], len(self.class_tokens)
            embedded = self.clip.encode_tokens(torch.cat([self.class_tokens, self.table.tokens[rows]]))
            own, anchors = torch.split(embedded, [classes, len(rows)])
            texts = mean_of_templates(own, len(self.task.templates))
            held["kd_text"] = anchors, self.table.embeddings[rows]
        if self.relearned:
            rows, before = self.relearned
            held["kd_relearned"] = texts[rows], before
        return texts, held

    def held_terms(self, held: Held) -> dict[str, Tensor]:
        """γ times the mean angle between the student's embeddings and those before the task, undivided."""
        return {name: self.gamma * distances(*pair, "geodesic").mean() for name, pair in held.items()}

    def end_task(self) -> None:
        super().end_task()
        self.table = self.relearned = None
