"""Run folders for tests of the report, with made-up numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from run_results import TASKS, results
from tasso.report import read_runs
from tasso.report.figures import style

Json = dict[str, Any]


def alignment(tasks: int = len(TASKS), shift: float = 0.0) -> Json:
    """The key `alignment`: forty images and three classes per task."""

    def distances(start: float) -> Json:
        return {
            "count": 40,
            "mean": round(start + 0.05, 6),
            "quantiles": [round(start + step, 6) for step in (0.0, 0.02, 0.05, 0.07, 0.12)],
            "first_bin": int(start / 0.004),
            "counts": [10, 20, 0, 10],
            "prototypes": [round(start + step, 6) for step in (0.01, 0.03, 0.06)],
        }

    return {
        "bins": 500,
        "range": [0.0, 2.0],
        "zero_shot": [distances(0.5 + 0.01 * task) for task in range(tasks)],
        "last": [distances(0.4 + 0.01 * task + shift) for task in range(tasks)],
    }


def write_runs(root: Path, contents: Iterable[Json]) -> pd.DataFrame:
    """One folder each."""
    for number, content in enumerate(contents):
        folder = root / f"run-{number:02d}"
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps(content), encoding="utf-8")
    return read_runs(root)


def several(seeds: int = 7, orders: int = 1, *, aligned: bool = True) -> list[Json]:
    """Three methods, TASSO ahead of SnD ahead of fine-tuning, by a little noise more or less."""
    found = []
    for order in range(orders):
        tasks = [*TASKS[order:], *TASKS[:order]]
        for seed in range(1, seeds + 1):
            for place, label in enumerate(("fine-tuning", "SnD", "TASSO")):
                shift = 6.0 - 2 * place + 0.1 * ((seed * 3 + order + place) % 4)
                content = results(label, seed, tasks=tasks, shift=shift, sequence=f"S{order + 1}")
                found.append(content | ({"alignment": alignment(shift=0.02 * place)} if aligned else {}))
    return found


def draw_coarsely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer pixels are drawn faster, and so are letters that need not stay letters."""
    monkeypatch.setattr(style, "DPI", 40)
    monkeypatch.setitem(style.RULES, "pdf.fonttype", 3)
