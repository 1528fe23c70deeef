"""What a folder of runs is the evaluation of: set-up, the runs behind every row of every plan, arithmetic of a step.

It is written as `plans.json` beside the runs when plans are run. With it, a report needs nothing but results: no
options, no configurations, no torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tasso.config.labels import RENAMED
from tasso.errors import RunError
from tasso.experiments.plans import GROWTH, PLANS, SHARED, Plan, Setup
from tasso.files import parse_json, read_text, write_text
from tasso.training.identity import portable

RECORD = "plans.json"
VERSION = 2
Names = Mapping[tuple[str, str], Mapping[tuple[str, int], str]]


@dataclass(frozen=True)
class Arithmetic:
    """TFLOP of one training step on a task with this many classes."""

    tflop: float
    classes: int


@dataclass(frozen=True)
class Record:
    """What the runs of an evaluation are.

    Attributes:
        setup: what all runs have in common.
        names: the name of each run's folder, by (plan, row), then by (sequence, seed).
        arithmetic: of the timed runs, by name.
    """

    setup: Setup
    names: Names
    arithmetic: Mapping[str, Arithmetic] = field(default_factory=dict)

    def sequences(self, plan: str) -> list[str]:
        return list(dict.fromkeys(sequence for sequence, _ in self._keys(plan)))

    def seeds(self, plan: str) -> list[int]:
        return list(dict.fromkeys(seed for _, seed in self._keys(plan)))

    def _keys(self, plan: str) -> list[tuple[str, int]]:
        return [key for (name, _), runs in self.names.items() if name == plan for key in runs]


def make_record(setup: Setup, plans: Iterable[Plan] = (), arithmetic: Mapping[str, Arithmetic] | None = None) -> Record:
    """The record of these plans in this set-up and of all others of their kind, by default of the paper's."""
    given = {plan.name: plan for plan in plans}
    groups = [group for group in (SHARED, GROWTH) if given.keys() & group] or [PLANS]
    every = {**{name: plan for group in groups for name, plan in group.items()}, **given}
    names = {
        (plan.name, row.label): {key: job.name for key, job in plan.jobs_of(row, setup).items()}
        for plan in every.values()
        for row in plan.rows
    }
    return Record(setup, names, arithmetic or {})


def write_record(record: Record, file: Path) -> None:
    """Write JSON. Paths on this machine are left out."""
    runs: dict[str, dict[str, list[list[Any]]]] = {}
    for (plan, row), names in record.names.items():
        runs.setdefault(plan, {})[row] = [[sequence, seed, name] for (sequence, seed), name in names.items()]
    setup = record.setup
    document = {
        "version": VERSION,
        "setup": {
            "common": portable(setup.common),
            "by_method": {name: portable(options) for name, options in sorted(setup.by_method.items())},
            "width": setup.width,
            "seeds": setup.seeds,
            "main_seeds": setup.main_seeds,
            "sequences": setup.sequences,
        },
        "runs": runs,
        "arithmetic": {name: asdict(counted) for name, counted in sorted(record.arithmetic.items())},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n")


def read_record(file: Path) -> Record | None:
    """Read `plans.json`; None if there is no such file."""
    try:
        content = parse_json(read_text(file))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunError(f"{file}: not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise RunError(f"{file}: expected a JSON object")
    if content.get("version") != VERSION:
        raise RunError(f"{file}: version: this tasso reads version {VERSION}, found {content.get('version')!r}")
    try:
        return _parse(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{file}: not as tasso paper writes it: {type(error).__name__} {error}") from None


def _parse(content: Mapping[str, Any]) -> Record:
    setup = content["setup"]
    several = {key: None if setup[key] is None else tuple(setup[key]) for key in ("seeds", "main_seeds", "sequences")}
    names = {
        (str(plan), RENAMED.get(row, row)): {
            (str(sequence), int(seed)): Path(name).name for sequence, seed, name in runs
        }
        for plan, rows in content["runs"].items()
        for row, runs in rows.items()
    }
    arithmetic = {
        str(name): Arithmetic(float(counted["tflop"]), int(counted["classes"]))
        for name, counted in content["arithmetic"].items()
    }
    common, by_method = dict(setup["common"]), dict(setup["by_method"])
    return Record(Setup(common, by_method, int(setup["width"]), **several), names, arithmetic)
