"""Classes of different tasks that a model cannot tell apart, because their names are the same or mean the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tasso.data import Task
from tasso.models.clip import Clip

log = logging.getLogger("tasso")

# Above it, two prompts are told apart by next to nothing. With nano, the prompts of all classes of different tasks
# stay below it, in atlas (0.67 at most) and in mtil-mini (0.73 at most).
THRESHOLD = 0.95
SHOWN = 10


@dataclass(frozen=True)
class Pair:
    """Two classes of different tasks, the earlier task's first."""

    task: str
    class_name: str
    other_task: str
    other_name: str
    cosine: float

    @property
    def same(self) -> bool:
        """Is it the same name?"""
        return plain(self.class_name) == plain(self.other_name)

    def __str__(self) -> str:
        names = f"{self.class_name!r} ({self.task}) and {self.other_name!r} ({self.other_task})"
        return names if self.same else f"{names}, cosine {self.cosine:.3f}"


def plain(name: str) -> str:
    """A name without what makes no difference."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def similar_classes(
    clip: Clip, tasks: Sequence[Task], templates: Sequence[str], threshold: float = THRESHOLD
) -> list[Pair]:
    """Pairs of classes of different tasks with the same name, or with prompts closer than the threshold; the closest
    first."""
    texts = [clip.class_embeddings(task.class_names, task.prompts(templates)) for task in tasks]
    pairs = []
    for number, task in enumerate(tasks):
        for before, earlier in enumerate(tasks[:number]):
            cosines = texts[before] @ texts[number].mT
            close = cosines >= threshold
            for i, name in enumerate(earlier.class_names):
                for j, other in enumerate(task.class_names):
                    close[i, j] |= plain(name) == plain(other)
            for i, j in torch.nonzero(close).tolist():
                cosine = float(cosines[i, j])
                pairs.append(Pair(earlier.name, earlier.class_names[i], task.name, task.class_names[j], cosine))
    return sorted(pairs, key=lambda pair: (not pair.same, -pair.cosine))


def warn_of_similar_classes(clip: Clip, tasks: Sequence[Task], templates: Sequence[str]) -> list[Pair]:
    """Say which classes may be meant twice, before anything is learned."""
    pairs = similar_classes(clip, tasks, templates)
    for same, text in ((True, "have the same name"), (False, "mean nearly the same to this model")):
        some = [pair for pair in pairs if pair.same == same]
        if some:
            more = f"; and {len(some) - SHOWN} more" if len(some) > SHOWN else ""
            log.warning(
                "%d pairs of classes of different tasks %s: %s%s. Scored against all tasks (MCIL), an image of one "
                "can be taken for the other; name them apart in a names file if they are different things",
                len(some), text, "; ".join(map(str, some[:SHOWN])), more,
            )  # fmt: skip
    return pairs
