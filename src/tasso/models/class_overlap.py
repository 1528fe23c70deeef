"""Classes of different tasks whose names, or whose text embeddings, are (nearly) the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tasso.data import Task
from tasso.models.clip import Clip

log = logging.getLogger("tasso")

# Cosine between prompts above which two classes are reported. With nano, classes of different tasks reach 0.67 in
# atlas and 0.73 in mtil-mini.
THRESHOLD = 0.95
MAX_REPORTED = 10


@dataclass(frozen=True)
class ClassPair:
    """Two classes of different tasks, the earlier task's first."""

    task: str
    class_name: str
    other_task: str
    other_name: str
    cosine: float

    @property
    def same_name(self) -> bool:
        """True if the names differ at most in case, hyphens, underscores and spaces."""
        return normalised(self.class_name) == normalised(self.other_name)

    def __str__(self) -> str:
        names = f"{self.class_name!r} ({self.task}) and {self.other_name!r} ({self.other_task})"
        return names if self.same_name else f"{names}, cosine {self.cosine:.3f}"


def normalised(name: str) -> str:
    """A class name in lower case, with single spaces for hyphens, underscores and runs of spaces."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def similar_classes(
    clip: Clip, tasks: Sequence[Task], templates: Sequence[str], threshold: float = THRESHOLD
) -> list[ClassPair]:
    """Pairs of classes of different tasks with the same name, or with a cosine of at least `threshold`.

    Equal names come first, then the largest cosines.
    """
    texts = [clip.class_embeddings(task.class_names, task.prompts(templates)) for task in tasks]
    pairs = []
    for later_index, task in enumerate(tasks):
        for earlier_index, earlier in enumerate(tasks[:later_index]):
            cosines = texts[earlier_index] @ texts[later_index].mT  # (C_earlier, C_later)
            close = cosines >= threshold
            for i, name in enumerate(earlier.class_names):
                for j, other in enumerate(task.class_names):
                    close[i, j] |= normalised(name) == normalised(other)
            for i, j in torch.nonzero(close).tolist():
                cosine = float(cosines[i, j])
                pairs.append(ClassPair(earlier.name, earlier.class_names[i], task.name, task.class_names[j], cosine))
    return sorted(pairs, key=lambda pair: (not pair.same_name, -pair.cosine))


def warn_of_similar_classes(
    clip: Clip, tasks: Sequence[Task], templates: Sequence[str], merge_names: bool = False
) -> list[ClassPair]:
    """Log a warning for pairs of classes that may be duplicates, before anything is learned.

    With `merge_names`, classes of exactly the same name are one class, and need no warning; nor do two classes that are
    in one task together.
    """
    pairs = similar_classes(clip, tasks, templates)
    if merge_names:
        own = {task.name: task.class_names for task in tasks}
        together = [{pair.class_name, pair.other_name} for pair in pairs]
        pairs = [pair for pair, two in zip(pairs, together, strict=True) if not any(map(two.issubset, own.values()))]
    for same_name, problem in ((True, "have the same name"), (False, "have nearly the same text embedding")):
        found = [pair for pair in pairs if pair.same_name == same_name]
        if found:
            more = f"; and {len(found) - MAX_REPORTED} more" if len(found) > MAX_REPORTED else ""
            log.warning(
                "%d pairs of classes of different tasks %s: %s%s. Scored against all tasks (MCIL), an image of one "
                "can be taken for the other; give them different names in a names file if they are different things",
                len(found), problem, "; ".join(map(str, found[:MAX_REPORTED])), more,
            )  # fmt: skip
    return pairs
