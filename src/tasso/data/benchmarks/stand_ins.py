"""Small stand-ins for the field's benchmarks, drawn by code: new classes, new styles, and a long mixed sequence."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tasso.data import atlas, drawn
from tasso.data.benchmarks.base import SCENES, Benchmark, DataSet, load_scenes
from tasso.data.benchmarks.class_incremental import SEED
from tasso.data.drawn import Drawn
from tasso.data.task import Task

LONG, GROUP = 50, 4  # tasks of the long sequence, and classes per task


def all_classes() -> Drawn:
    """The 96 classes of atlas as one task."""
    return Drawn(tuple((name, label) for name in atlas.DOMAINS for label in range(drawn.classes_of(name))))


def styles() -> dict[str, Drawn]:
    """The same 24 classes in every style: four of each domain whose subjects do not fill the frame."""
    solid = [domain.name for domain in atlas.DOMAINS.values() if not domain.fills_frame]
    classes = tuple((name, label) for name in solid for label in range(0, drawn.classes_of(name), 3))
    return {style: Drawn(classes, style) for style in atlas.STYLES}


def mixed() -> dict[str, Drawn]:
    """Four classes of one domain in one style per task; a group comes back two or three times, each time in another
    style."""
    groups = [
        [(name, label) for label in range(first, first + GROUP)]
        for first in range(0, 12, GROUP)
        for name in atlas.DOMAINS
    ]
    kinds = [style for style in atlas.STYLES if style != "sketch"]
    found = {}
    for number in range(LONG):
        group = groups[number % len(groups)]
        style = kinds[(number + number // len(groups)) % len(kinds)]
        found[f"{number + 1:02}-{group[0][0]}-{style}"] = Drawn(tuple(group), style)
    return found


def _benchmark(name: str, summary: str, tasks: Mapping[str, Drawn], **options: Any) -> Benchmark:
    def load_task(task: str, root: Path, check_counts: bool) -> Task:
        return tasks[task].task(task)

    data_sets = tuple(DataSet(task, "", *what.sizes) for task, what in tasks.items())
    return Benchmark(name, summary, data_sets, SCENES, False, load_task, load_scenes, options)


_steps = partial(_benchmark, tasks={"atlas": all_classes()}, class_order=SEED)
STAND_INS = (
    _steps("atlas-classes-8", "the 96 classes of atlas in 8 steps", split_classes="12"),
    _steps("atlas-classes-12", "the 96 classes of atlas in 12 steps", split_classes="8"),
    _steps("atlas-classes-24", "the 96 classes of atlas in 24 steps", split_classes="4"),
    _benchmark("atlas-styles", "24 classes of atlas in five styles", styles(), same_names="one"),
    _benchmark("atlas-50", "50 tasks of 4 classes of atlas, in four styles", mixed(), same_names="one"),
)
