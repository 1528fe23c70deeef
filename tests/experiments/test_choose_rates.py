"""The tool that chooses each method's learning rate from a sweep."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from run_results import results
from tasso.experiments.paper import NANO_RATES, read_rates

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "choose_rates.py"


def write_run(folder: Path, method: str, lr: str, accuracy: float, *, finished: bool = True) -> None:
    run = folder / f"{method}-{lr}"
    run.mkdir(parents=True)
    content = results(method.upper(), 1102, rows=None if finished else 1, sequence="S2", method=method)
    if finished:
        content["mtil"]["metrics"]["accuracy"] = accuracy
    (run / "results.json").write_text(json.dumps(content))
    (run / "config.yaml").write_text(f"lr: {lr}\n")


def test_best_accuracy_of_finished_runs_decides(tmp_path: Path) -> None:
    for lr, accuracy in (("1e-05", 41.0), ("0.0001", 48.0), ("0.001", 36.0)):
        write_run(tmp_path / "runs", "tasso", lr, accuracy)
    write_run(tmp_path / "runs", "snd", "0.0001", 47.0)
    write_run(tmp_path / "runs", "snd", "0.01", 99.0, finished=False)
    tried, rates = tmp_path / "tried.csv", tmp_path / "rates.json"
    subprocess.run([sys.executable, TOOL, tmp_path / "runs", tried], check=True)
    table = pd.read_csv(tried)
    assert list(zip(table["method"], table["lr"], table["mtil_accuracy"], strict=True)) == [
        ("snd", 1e-4, 47.0), ("tasso", 1e-5, 41.0), ("tasso", 1e-4, 48.0), ("tasso", 1e-3, 36.0),
    ]  # fmt: skip
    assert list(table.columns) == list(pd.read_csv(ROOT / "results" / "paper-learning-rates.csv").columns)
    subprocess.run([sys.executable, TOOL, tried, rates], check=True)
    assert json.loads(rates.read_text()) == {"snd": {"lr": 1e-4}, "tasso": {"lr": 1e-4}}


def test_shipped_rates_are_chosen_from_the_study(tmp_path: Path) -> None:
    rates = tmp_path / "rates.json"
    subprocess.run([sys.executable, TOOL, ROOT / "results" / "paper-learning-rates.csv", rates], check=True)
    chosen, shipped = ({name: float(one["lr"]) for name, one in read_rates(f).items()} for f in (rates, NANO_RATES))
    assert chosen == shipped
