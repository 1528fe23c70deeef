"""Copy what a report is made of: `python tools/keep_results.py OUT/runs results/paper/mtil-mini`.

Of each run that is named in `plans.json`, `results.json` alone: configurations hold paths of a machine, and checkpoints
are large. `tasso paper all --runs FOLDER --out REPORT` makes the report from the copy.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tasso.files import write_text
from tasso.report.paper.arithmetic import FILE
from tasso.report.paper.record import RECORD, read_record


def keep(source: Path, target: Path) -> int:
    """Copy results; returns of how many runs. Unfinished and missing ones are left out by the report."""
    record = read_record(source)
    if record is None:
        sys.exit(f"{source / RECORD}: not found; tasso paper writes it into its folder of runs")
    names = sorted({name for runs in record[1].values() for name in runs.values()})
    files = [RECORD, FILE, *(f"{name}/results.json" for name in names)]
    there = [name for name in files if (source / name).is_file()]
    for name in there:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        write_text(target / name, (source / name).read_text(encoding="utf-8"))
    return sum(name.endswith("/results.json") for name in there)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(f"{keep(Path(sys.argv[1]), Path(sys.argv[2]))} runs")
