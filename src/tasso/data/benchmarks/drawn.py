"""Benchmarks drawn by code: atlas, and stand-ins for the field's (new classes, new styles, a long mixed sequence)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tasso.data import atlas
from tasso.data.benchmarks.base import Benchmark, DataSet
from tasso.data.benchmarks.class_incremental import SEED
from tasso.data.drawn import Drawn

LONG, GROUP = 50, 4  # tasks of the long sequence, and classes per task


def domains() -> dict[str, Drawn]:
    """All classes of each domain."""
    return {
        name: Drawn(tuple((name, label) for label in range(len(domain.class_names))))
        for name, domain in atlas.DOMAINS.items()
    }


def all_classes() -> Drawn:
    """The 96 classes of atlas as one task."""
    return Drawn(tuple(one for domain in domains().values() for one in domain.classes))


def styles() -> dict[str, Drawn]:
    """The same 24 classes in every style: four of each domain whose subjects do not fill the frame."""
    solid = [domain for name, domain in domains().items() if not atlas.DOMAINS[name].fills_frame]
    classes = tuple(one for domain in solid for one in domain.classes[::3])
    return {style: Drawn(classes, style) for style in atlas.STYLES}


def mixed() -> dict[str, Drawn]:
    """Four classes of one domain in one style per task; a group comes back two or three times, each time in another
    style."""
    groups = [domain.classes[first : first + GROUP] for first in range(0, 12, GROUP) for domain in domains().values()]
    kinds = [style for style in atlas.STYLES if style != "sketch"]
    found = {}
    for number in range(LONG):
        group = groups[number % len(groups)]
        style = kinds[(number + number // len(groups)) % len(kinds)]
        found[f"{number + 1:02}-{group[0][0]}-{style}"] = Drawn(group, style)
    return found


def _benchmark(name: str, summary: str, tasks: Mapping[str, Drawn], **options: Any) -> Benchmark:
    data_sets = tuple(DataSet(task, *what.sizes, what.task) for task, what in tasks.items())
    return Benchmark(name, summary, data_sets, options=options)


_steps = partial(_benchmark, tasks={"atlas": all_classes()}, class_order=SEED)
ATLAS = _benchmark("atlas", "eight domains drawn by code: nothing to download", domains())
STAND_INS = (
    _steps("atlas-classes-8", "the 96 classes of atlas in 8 steps", split_classes="12"),
    _steps("atlas-classes-12", "the 96 classes of atlas in 12 steps", split_classes="8"),
    _steps("atlas-classes-24", "the 96 classes of atlas in 24 steps", split_classes="4"),
    _benchmark("atlas-styles", "24 classes of atlas in five styles", styles(), same_names="one"),
    _benchmark("atlas-50", "50 tasks of 4 classes of atlas, in four styles", mixed(), same_names="one"),
)
