"""Class-incremental learning: a task as a sequence of steps, each with some of its classes. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from tasso.data.task import ImageSet, Task
from tasso.errors import ConfigError, did_you_mean, shortened
from tasso.files import read_text, user_path

NATURAL = "natural"  # as a class order: that of the data
WHOLE = "all"  # classes in the only step: the task is not split
HOW = "expected a number of classes per step, FIRST+STEP as in 50+10, or all"


def parse_split(text: str) -> tuple[int, int]:
    """Classes in the first step and in each later one: `10`, or `50+10`."""
    found = re.fullmatch(r"\s*(\d{1,6})(?:\s*\+\s*(\d{1,6}))?\s*", text)
    if not found:
        raise ConfigError(f"split_classes: {HOW}, not {text!r}")
    first, step = int(found[1]), int(found[2] or found[1])
    if not first or not step:
        raise ConfigError(f"split_classes: {text} has a step with no class; {HOW}")
    return first, step


def step_sizes(split: str, classes: int) -> list[int]:
    """Classes in each step of a task with this many; the last may have fewer."""
    if split == WHOLE:
        return [classes]
    first, step = parse_split(split)
    starts = [0, *range(first, classes, step)]
    return [end - start for start, end in pairwise([*starts, classes])]


def class_order_text(text: str) -> str:
    """A class order as a run records it: the lines of a file in the place of its path."""
    path = user_path(text)
    if "\n" in text or "," in text or not path.is_file():
        return text
    try:
        return read_text(path, "utf-8-sig").strip() + "\n"
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"class_order: {path}: not a readable text file: {error}") from None


def class_order(text: str | None, task: Task) -> list[int]:
    """Labels of a task in the order in which they are learned.

    Args:
        text: a seed (numpy's legacy permutation, as most class-incremental code draws it), `natural`, a file with one
            class per line, or classes separated by commas. A class is given by its name or its label.
    """
    names = task.class_names
    if text is None or text.strip() == NATURAL:
        return list(range(len(names)))
    text = class_order_text(text)
    if re.fullmatch(r"\s*\d+", text):
        if len(text) > 20 or int(text) >= 2**32:
            raise ConfigError(f"class_order: a seed must be below 2^32, not {shortened(text)}")
        return [int(label) for label in np.random.RandomState(int(text)).permutation(len(names))]
    entries = [entry.strip() for entry in (text.splitlines() if "\n" in text else text.split(",")) if entry.strip()]
    labels = {name: label for label, name in enumerate(names)}
    if not any(entry in labels for entry in entries) and all(entry.isdecimal() for entry in entries):
        labels = {str(label): label for label in range(len(names))}
    order: list[int] = []
    for entry in entries:
        if entry not in labels:
            close = did_you_mean(entry, names)
            raise ConfigError(f"class_order: {entry!r} is neither a class of task {task.name!r} nor a file.{close}")
        if labels[entry] in order:
            raise ConfigError(f"class_order: {entry!r} is given more than once")
        order.append(labels[entry])
    if missing := [name for label, name in enumerate(names) if label not in order]:
        some = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        raise ConfigError(f"class_order: {len(missing)} classes of task {task.name!r} are left out: {some}")
    return order


def split_task(task: Task, split: str, order: str | None) -> list[Task]:
    """The steps of a task; the last may have fewer classes. Their names are that of the task and a number."""
    if split == WHOLE:
        return [task]
    first, _ = parse_split(split)
    labels = class_order(order, task)
    if "+" in split and first >= len(labels):
        raise ConfigError(
            f"split_classes: {split} has a step with no class: task {task.name!r} has {len(labels)} classes, and the "
            "first step takes them all"
        )
    ends = list(accumulate(step_sizes(split, len(labels))))
    width = max(2, len(str(len(ends))))
    return [
        of_classes(task, labels[start:end], f"{task.name}-{number:0{width}}")
        for number, (start, end) in enumerate(pairwise([0, *ends]), 1)
    ]


def task_of_step(name: str) -> str:
    """The name of the task that a step is of."""
    return name.rpartition("-")[0]


def named_classes(task: Task, names: Sequence[str]) -> Task:
    """The task with these classes only, in this order."""
    order: list[int] = []
    for name in names:
        if name not in task.class_names:
            raise ConfigError(f"tasks: {task.name}: classes: no class {name!r}.{did_you_mean(name, task.class_names)}")
        order.append(task.class_names.index(name))
    return of_classes(task, order, task.name)


def of_classes(task: Task, labels: Sequence[int], name: str) -> Task:
    """A task with these of the classes, numbered in this order, and their images in the order they had."""
    numbers = np.full(len(task.class_names), -1, dtype=np.int64)
    numbers[list(labels)] = np.arange(len(labels))

    def part(images: ImageSet) -> ImageSet:
        chosen = images.subset(np.flatnonzero(numbers[images.labels] >= 0))
        return ImageSet(chosen.source, chosen.keys, numbers[chosen.labels])

    names = tuple(task.class_names[label] for label in labels)
    return replace(task.with_sets(part), name=name, class_names=names)
