"""The tool that measures what tasks cost as their number grows."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import scaling


def test_tasks_repeat_where_more_are_asked_for_than_there_are() -> None:
    specs = scaling.task_specs(52)
    assert len({spec["name"] for spec in specs}) == 52
    assert specs[51]["from"] == specs[1]["from"] == f"{scaling.SOURCE}:02-textures-poster"


def test_runs_are_drawn_over_their_tasks(tmp_path: Path) -> None:
    task = {"preparing_seconds": 1.0, "seconds": 2.0, "process_peak_memory_bytes": 2**30, "checkpoint_bytes": 2**20}
    thinned = [{**task, "evaluation_seconds": 3.0} if number % 2 else task for number in range(4)]
    runs = [{"method": method, "tasks": 4, "per_task": thinned} for method in ("tasso", "tasso-both")]
    scaling.draw(runs, tmp_path / "scaling.svg")
    text = " ".join(ElementTree.parse(tmp_path / "scaling.svg").getroot().itertext())
    assert "tasso-both, 4 tasks" in text
    assert "evaluation of all tasks (s)" in text


@pytest.mark.slow
def test_every_task_is_measured() -> None:
    options = "--device cpu --steps 1 --batch-size 2 --reference-batch-size 2 --reference-images 8 --test-per-class 1"
    run = scaling.measure("tasso", 2, options.split())
    assert [set(task) for task in run["per_task"]] == [{*scaling.COSTS, "checkpoint_bytes"} - {"peak_memory_bytes"}] * 2
    assert run["folder_bytes"] > sum(task["checkpoint_bytes"] for task in run["per_task"]) > 2e7
