"""What a benchmark is: data sets with their sizes, how they are read, and the options that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tasso.data import drawn
from tasso.data.task import Draws, ImageSet, Task
from tasso.errors import DataError

Reference = tuple[ImageSet, tuple[str, ...]]  # images, and the class names of their data set


@dataclass(frozen=True)
class DataSet:
    """One data set of a benchmark, with the sizes it must have.

    Attributes:
        classes: 0: of unlabelled images.
        load: reads it; the argument is the folder with all data sets.
        prefix: of its annotation file, in the layout of the paper's authors.
        kind: torchvision's class that downloads it, if there is one.
        place: where its lists are in that folder, for messages.
        any_length: a subset of its images is drawn, so that their number is not checked.
    """

    name: str
    classes: int
    train: int
    test: int
    load: Callable[[Path], Task]
    prefix: str = ""
    kind: str = ""
    place: str = ""
    any_length: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that are checked, as in `Task.counts`."""
        images = {} if self.any_length else {"train": self.train, "test": self.test}
        return {"classes": self.classes, **images}

    def read(self, root: Path, check_counts: bool) -> Task:
        """Read it under its name."""
        task = replace(self.load(root), name=self.name)
        if check_counts and not self.any_length and not isinstance(task.train.source, Draws):
            self.check(task, f" in {root / self.place}")
        return task

    def changed(self, change: Callable[[Task], Task]) -> DataSet:
        """The same data set, with the task changed after it is read."""
        return replace(self, load=lambda root: change(self.load(root)))

    def check(self, task: Task, where: str = "") -> None:
        """Raise a DataError if it has other sizes; of other classes it names the first."""
        found = {key: task.counts[key] for key in self.sizes}
        if found != self.sizes:
            other = task.class_names and found["classes"] != self.classes
            hint = f" (the first class is {task.class_names[0]!r}: another data set?)" if other else ""
            raise DataError(
                f"{self.name}: expected {_words(self.sizes)}, found {_words(found)}{where}{hint}. Use "
                "--no-check-counts to go on with these"
            )


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sizes.items())


# Reference images of benchmarks that bring none, as of own tasks: drawn by code.
SCENES = DataSet("scenes", 0, drawn.REFERENCE_IMAGES, 0, lambda root: drawn.scenes())


@dataclass(frozen=True)
class Benchmark:
    """A catalogue entry.

    Attributes:
        data_sets: of the tasks, in the benchmark's order.
        reference: the data set of the reference images.
        protocol: whose splits, names and prompts its tasks have; tasks of two protocols are not mixed. Empty: its
            images are drawn by code.
        options: of runs on it, where they say nothing else.
        sequences: orders that have names, besides the rotations S1, S2 …
    """

    name: str
    summary: str
    data_sets: tuple[DataSet, ...]
    reference: DataSet = SCENES
    protocol: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    sequences: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(data_set.name for data_set in self.data_sets)

    @property
    def needs_root(self) -> bool:
        """Must the user give a folder with the data sets?"""
        return bool(self.protocol)

    def load_task(self, name: str, root: Path, check_counts: bool) -> Task:
        return self.data_sets[self.tasks.index(name)].read(root, check_counts)

    def load_reference(self, root: Path, check_counts: bool) -> Reference:
        """The reference images, and the class names of their data set."""
        task = self.reference.read(root, check_counts)
        return task.train, task.class_names
