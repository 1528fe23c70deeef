"""What a task costs as the number of tasks grows: `python tools/scaling.py RESULTS.json --tasks 20,50 --steps 2`.

Small drawn tasks of four classes, those of atlas-50, again from the first where more are asked for; nano; each run in
a process of its own. Options that this tool does not have are those of `tasso run`. Times, memory and bytes of every
task go to RESULTS.json, what is there already is kept. `--draw FILE.svg` draws the figure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tasso.data.benchmarks import BENCHMARKS
from tasso.files import write_text
from tasso.report.figures.style import QUIET, drawing, new_panels
from tasso.report.looks import PLACES

SOURCE = "atlas-50"
COSTS = ("preparing_seconds", "seconds", "evaluation_seconds", "peak_memory_bytes", "process_peak_memory_bytes")
LINES = ("solid", (0, (4, 2)), (0, (1, 1)))  # by number of tasks


def task_specs(count: int) -> list[dict[str, str]]:
    """This many own tasks, numbered."""
    names = BENCHMARKS[SOURCE].tasks
    return [{"name": f"{number:03}", "from": f"{SOURCE}:{names[number % len(names)]}"} for number in range(count)]


def measure(method: str, count: int, options: Sequence[str]) -> dict[str, Any]:
    """Learn the tasks; returns what each of them cost, and the bytes of the run's folder."""
    with tempfile.TemporaryDirectory() as place:
        file, run = Path(place) / "run.yaml", Path(place) / "run"
        file.write_text(
            yaml.safe_dump({"tasks": task_specs(count), "method": method, "head": "texts"}), encoding="utf-8"
        )
        words = ["--model", "nano", "--config", str(file), "--out", str(run), *options]
        subprocess.run([sys.executable, "-m", "tasso", "run", *words], check=True, stdout=subprocess.DEVNULL)
        learned = json.loads((run / "results.json").read_text(encoding="utf-8"))["per_task"]
        saved = [path.stat().st_size for path in sorted((run / "checkpoints").iterdir())]
        folder = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        results = (run / "results.json").stat().st_size
    per_task = [
        {key: task[key] for key in COSTS if key in task} | {"checkpoint_bytes": size}
        for task, size in zip(learned, saved, strict=True)
    ]
    return {"method": method, "tasks": count, "options": list(options), "folder_bytes": folder,
            "results_bytes": results, "per_task": per_task}  # fmt: skip


def draw(runs: Sequence[Mapping[str, Any]], file: Path) -> None:
    """One panel per cost, a line per run over its tasks."""
    memory = "process_peak_memory_bytes"
    panels: dict[str, Callable[[Mapping[str, Any]], float | None]] = {
        "training (s per task)": lambda task: task["preparing_seconds"] + task["seconds"],
        "evaluation of all tasks (s)": lambda task: task.get("evaluation_seconds"),
        "peak memory of the process (GiB)": lambda task: task.get(memory, 0) / 2**30,
        "checkpoint (MiB per task)": lambda task: task["checkpoint_bytes"] / 2**20,
    }
    counts = sorted({run["tasks"] for run in runs})
    with drawing():
        figure, axes = new_panels(len(panels), 2, 4.2, (3.6, 2.0), sharex=True)
        for panel, (title, cost) in zip(axes, panels.items(), strict=True):
            for run in runs:
                known = [(n, y) for n, task in enumerate(run["per_task"], 1) if (y := cost(task)) is not None]
                panel.plot(
                    *zip(*known, strict=True), color=PLACES[run["method"]][0][0], linewidth=1.1,
                    linestyle=LINES[counts.index(run["tasks"]) % len(LINES)],
                    label=f"{run['method']}, {run['tasks']} tasks",
                )  # fmt: skip
            panel.set_title(title)
            panel.set_ylim(bottom=0)
        figure.supxlabel("tasks learned", fontsize=8, color=QUIET)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
        figure.savefig(file, metadata={"Creator": None, "Date": None})


def main() -> None:
    """Measure what is asked for and draw all that is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tasks", default="", help="numbers of tasks, with commas")
    parser.add_argument("--methods", default="tasso,tasso-both")
    parser.add_argument("--draw", type=Path)
    asked, options = parser.parse_known_args()
    there = json.loads(asked.file.read_text(encoding="utf-8")) if asked.file.is_file() else {"runs": []}
    for count in map(int, filter(None, asked.tasks.split(","))):
        for method in asked.methods.split(","):
            run = measure(method, count, options)
            there["runs"] = [one for one in there["runs"] if (one["method"], one["tasks"]) != (method, count)] + [run]
            there["machine"] = f"{platform.machine()}, {os.cpu_count()} cores"
            write_text(asked.file, json.dumps(there, indent=1) + "\n")
    if asked.draw:
        draw(sorted(there["runs"], key=lambda run: (run["method"], run["tasks"])), asked.draw)


if __name__ == "__main__":
    main()
