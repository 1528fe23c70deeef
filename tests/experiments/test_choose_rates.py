"""The tool that chooses each method's learning rate from a sweep."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "choose_rates.py"


def write_run(folder: Path, method: str, lr: str, accuracy: float, *, finished: bool = True) -> None:
    results = {"finished": finished, "method": method, "label": method.upper(), "sequence": "S2", "seed": 1102}
    metrics = {setting: {"metrics": {"accuracy": accuracy}} for setting in ("mtil", "mcil")}
    run = folder / f"{method}-{lr}"
    run.mkdir(parents=True)
    (run / "results.json").write_text(json.dumps({**results, **metrics}))
    (run / "config.yaml").write_text(f"lr: {lr}\n")


def test_best_accuracy_of_finished_runs_decides(tmp_path: Path) -> None:
    for lr, accuracy in (("1e-05", 41.0), ("0.0001", 48.0), ("0.001", 36.0)):
        write_run(tmp_path / "runs", "tasso", lr, accuracy)
    write_run(tmp_path / "runs", "snd", "0.0001", 47.0)
    write_run(tmp_path / "runs", "snd", "0.01", 99.0, finished=False)
    tried, rates = tmp_path / "tried.json", tmp_path / "rates.json"
    subprocess.run([sys.executable, TOOL, tmp_path / "runs", tried, rates], check=True)
    assert json.loads(rates.read_text()) == {"snd": {"lr": 1e-4}, "tasso": {"lr": 1e-4}}
    assert [(row["method"], row["lr"]) for row in json.loads(tried.read_text())] == [
        ("snd", 1e-4), ("tasso", 1e-5), ("tasso", 1e-4), ("tasso", 1e-3),
    ]  # fmt: skip
