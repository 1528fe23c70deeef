"""What a benchmark is: data sets with their sizes, how they are read, and the options that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasso.data import drawn
from tasso.data.annotated import read_annotated
from tasso.data.task import ImageSet, Task
from tasso.errors import DataError

Reference = tuple[ImageSet, tuple[str, ...]]  # images, and the class names of their data set


@dataclass(frozen=True)
class DataSet:
    """One data set of a benchmark, with the sizes it must have; `prefix` is that of its file in the authors' layout."""

    name: str
    prefix: str
    classes: int
    train: int
    test: int

    def load(self, root: Path, check_counts: bool) -> Task:
        """Read it from the authors' layout and check it."""
        return self.checked(read_annotated(root, self.name, self.prefix), root, check_counts)

    def checked(self, task: Task, root: Path, check_counts: bool) -> Task:
        """The task, or an error that says which sizes are wrong."""
        found = (len(task.class_names), len(task.train), len(task.test))
        expected = (self.classes, self.train, self.test)
        if check_counts and found != expected:
            raise DataError(
                f"{self.name}: expected {expected[0]} classes, {expected[1]} train and {expected[2]} test images, "
                f"found {found[0]}, {found[1]} and {found[2]} in {root}. Use --no-check-counts to go on with these"
            )
        return task


@dataclass(frozen=True)
class Benchmark:
    """A catalogue entry.

    Attributes:
        data_sets: of the tasks, in the benchmark's order, with their sizes.
        reference: the data set of the reference images.
        needs_root: must the user give a folder with the data sets? Else its images are drawn by code.
        load_task: (task name, data root, check counts?) → task.
        load_reference: (data root, check counts?) → images, and the class names of their data set.
        options: of runs on it, where they say nothing else.
        sequences: orders that have names, besides the rotations S1, S2 …
        protocol: whose splits, names and prompts its tasks have; tasks of two protocols are not mixed. Empty: drawn.
    """

    name: str
    summary: str
    data_sets: tuple[DataSet, ...]
    reference: DataSet
    needs_root: bool
    load_task: Callable[[str, Path, bool], Task]
    load_reference: Callable[[Path, bool], Reference]
    options: Mapping[str, Any] = field(default_factory=dict)
    sequences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    protocol: str = ""

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(data_set.name for data_set in self.data_sets)


# Reference images of benchmarks that bring none, as of own tasks.
SCENES = DataSet("scenes", "", 0, drawn.REFERENCE_IMAGES, 0)


def load_scenes(root: Path, check_counts: bool) -> Reference:
    """Scenes drawn by code."""
    return drawn.load_reference()


def annotated_benchmark(
    name: str, summary: str, data_sets: list[DataSet], reference: DataSet, exact: bool
) -> Benchmark:
    """A benchmark in the authors' layout; `exact` says whether the size of the reference set is checked."""
    by_name = {data_set.name: data_set for data_set in data_sets}

    def load_task(task: str, root: Path, check_counts: bool) -> Task:
        return by_name[task].load(root, check_counts)

    def load_reference(root: Path, check_counts: bool) -> Reference:
        # ImageNet's list may have any length: a subset of it is drawn.
        task = reference.load(root, check_counts and exact)
        return task.train, task.class_names

    return Benchmark(name, summary, tuple(data_sets), reference, True, load_task, load_reference, protocol="paper")
