"""Choose each method's learning rate from a sweep over learning rates.

    python tools/choose_rates.py RUNS TRIED.csv         metrics of every finished run in the folder of a `tasso sweep`
    python tools/choose_rates.py TRIED.csv RATES.json   the rate with the best MTIL accuracy of each method

RATES.json is for `tasso paper --rates`. A run that failed, as with far too large a rate, is not chosen.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import yaml

from tasso.files import write_text
from tasso.report.frame import SETTINGS, metrics, run_table
from tasso.report.results import read_runs


def tried(folder: Path) -> pd.DataFrame:
    """One row per finished run: its learning rate and its metrics, by method and rate."""
    frame = read_runs([folder])
    frame = frame[frame["finished"]]
    runs = run_table(frame)[["method", "label", "sequence", "seed"]]
    configs = [yaml.safe_load((Path(run) / "config.yaml").read_text(encoding="utf-8")) for run in runs.index]
    runs["lr"] = [float(config["lr"]) for config in configs]
    found = runs.join([metrics(frame, setting).add_prefix(f"{setting}_") for setting in SETTINGS])
    return found.sort_values(["method", "lr"], kind="stable")


def best(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """The rate with the best MTIL accuracy of each method, in the mean over sequences and seeds."""
    means = table.groupby(["method", "lr"])["mtil_accuracy"].mean().unstack("lr")
    return {str(method): {"lr": float(rate)} for method, rate in means.idxmax(axis=1).items()}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = map(Path, sys.argv[1:])
    if source.is_dir():
        write_text(target, tried(source).to_csv(index=False, lineterminator="\n"))
    else:
        chosen = best(pd.read_csv(source))
        write_text(target, json.dumps(chosen, indent=1) + "\n")
        for method, options in chosen.items():
            print(f"{method}: {options['lr']:g}")
