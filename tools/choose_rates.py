"""Choose each method's learning rate: `python tools/choose_rates.py RUNS TRIED.json [RATES.json]`.

RUNS is the folder of a `tasso sweep` over learning rates. TRIED.json gets the metrics of every finished run, and
RATES.json, for `tasso paper --rates`, the rate with the best MTIL accuracy of each method. A run that failed, as those
with far too large a rate do, is not chosen.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from tasso.files import write_text


def tried(folder: Path) -> list[dict[str, Any]]:
    """Metrics of every finished run with its learning rate, by method and rate."""
    found = []
    for file in sorted(folder.glob("*/results.json")):
        results = json.loads(file.read_text(encoding="utf-8"))
        if results["finished"]:
            config = yaml.safe_load(file.with_name("config.yaml").read_text(encoding="utf-8"))
            row = {key: results[key] for key in ("method", "label", "sequence", "seed")}
            metrics = {setting: results[setting]["metrics"] for setting in ("mtil", "mcil")}
            found.append({**row, "lr": float(config["lr"]), **metrics})
    return sorted(found, key=lambda row: (row["method"], row["lr"]))


def best(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The rate with the best MTIL accuracy of each method, in the mean over sequences and seeds."""
    tries: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        tries.setdefault(row["method"], {}).setdefault(row["lr"], []).append(row["mtil"]["accuracy"])
    return {method: {"lr": max(found, key=lambda lr: fmean(found[lr]))} for method, found in tries.items()}


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    rows = tried(Path(sys.argv[1]))
    write_text(Path(sys.argv[2]), json.dumps(rows, indent=1) + "\n")
    chosen = best(rows)
    for method, options in chosen.items():
        print(f"{method}: {options['lr']:g}")
    if len(sys.argv) == 4:
        write_text(Path(sys.argv[3]), json.dumps(chosen, indent=1) + "\n")
