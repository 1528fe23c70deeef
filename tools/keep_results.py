"""Keep the results of runs as a study: `python tools/keep_results.py RUNS results/NAME.csv` (or .csv.gz).

RUNS is a folder of run folders. Of each run everything that a report reads is kept, and nothing else: no checkpoints,
no paths. For the runs of `tasso paper`, what they are (`plans.json`) is kept beside, as NAME.json.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tasso.experiments.record import RECORD, read_record, write_record
from tasso.report.paper.evaluation import read_evaluation, record_file
from tasso.report.results import read_runs
from tasso.report.study import write_study


def keep(runs: Path, file: Path) -> int:
    """Write the study; returns the number of runs. Of plans, runs that are not finished are left out."""
    record = read_record(runs / RECORD)
    if record is None:
        frame = read_runs([runs])
    else:
        frame = read_evaluation(runs, record).frame
        write_record(record, record_file(file))
    write_study(frame, file)
    return int(frame["run"].nunique())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(f"{keep(Path(sys.argv[1]), Path(sys.argv[2]))} runs")
