"""What a folder of runs is the evaluation of: its set-up and the name of every run. Written when plans are carried
out, so that the report can be made again from the results alone: by others, elsewhere, without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasso.experiments.plans import Plan, Setup
from tasso.files import parse_json, write_text
from tasso.report.reader import Reader, ReportError
from tasso.training.identity import portable

RECORD = "plans.json"
VERSION = 1
# By plan and row, then by sequence and seed: the name of the run's folder.
Names = Mapping[tuple[str, str], Mapping[tuple[str, int], str]]


def names_of(plans: Sequence[Plan], setup: Setup) -> Names:
    """What the runs of these plans are called."""
    return {
        (plan.name, row.label): {pair: job.name for pair, job in plan.jobs_of(row, setup).items()}
        for plan in plans
        for row in plan.rows
    }


def write_record(plans: Sequence[Plan], setup: Setup, folder: Path) -> None:
    """Write `plans.json` into the folder of the runs. Places on this machine are left out."""
    runs: dict[str, dict[str, list[list[Any]]]] = {}
    for (plan, row), names in names_of(plans, setup).items():
        runs.setdefault(plan, {})[row] = [[sequence, seed, name] for (sequence, seed), name in names.items()]
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
    }
    folder.mkdir(parents=True, exist_ok=True)
    lines = json.dumps(document, indent=1, ensure_ascii=False, default=str)
    write_text(folder / RECORD, lines + "\n")


def read_record(folder: Path) -> tuple[Setup, Names] | None:
    """The set-up and the names of the runs in a folder; None if nothing is written there."""
    file = folder / RECORD
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ReportError(f"{file}: not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ReportError(f"{file}: expected a JSON object")
    reader = Reader(file, content)
    if reader.integer("version") != VERSION:
        raise reader.fail("version", f"this tasso reads version {VERSION}")
    try:
        return _parse(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(f"{file}: not what tasso paper writes: {type(error).__name__} {error}") from None


def _parse(content: Mapping[str, Any]) -> tuple[Setup, Names]:
    setup = content["setup"]
    several = {key: None if setup[key] is None else tuple(setup[key]) for key in ("seeds", "main_seeds", "sequences")}
    names = {
        (str(plan), str(row)): {(str(sequence), int(seed)): Path(name).name for sequence, seed, name in runs}
        for plan, rows in content["runs"].items()
        for row, runs in rows.items()
    }
    return Setup(dict(setup["common"]), dict(setup["by_method"]), int(setup["width"]), **several), names
