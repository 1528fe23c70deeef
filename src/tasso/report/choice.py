"""What a sweep tried and what was chosen from it (`tasso sweep --choose`), as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tasso.experiments.sweep import Job
from tasso.experiments.sweep.choose import By, Choice
from tasso.experiments.sweep.jobs import full_identity
from tasso.files import RESULTS
from tasso.report.frame import SETTINGS, metrics, run_table
from tasso.report.results import read_run
from tasso.report.tables import SETTING_NAMES, Cell, Column, Row, Table, count_of


def choice_table(chosen: Sequence[Choice], by: By) -> Table:
    """One row per method: its best options, and whether better ones may lie beyond those tried."""
    keys = list(dict.fromkeys(key for choice in chosen for one in choice.tried for key in one.options))
    rows = []
    for choice in chosen:
        best, failed = choice.best, sum(one.mean is None for one in choice.tried)
        remarks = [_beyond(key) for key in choice.at_end]
        remarks += [f"{failed} of {count_of(len(choice.tried), 'combination')} not finished"] if failed else []
        options = [Cell(_text(best.options[key]) if best and key in best.options else None) for key in keys]
        measured = (Cell(best.mean), Cell(len(best.accuracies), digits=0)) if best else (Cell(None), Cell(None))
        rows.append(Row((Cell(choice.method), *options, *measured, Cell("; ".join(remarks))), label=choice.method))
    return Table(
        "Chosen on validation images",
        (
            Column("Method", numeric=False),
            *(Column(key, numeric=False) for key in keys),
            _accuracy(by),
            Column("Runs"),
            Column("Remark", numeric=False),
        ),
        tuple(rows),
        ("Accuracy in percent on validation images: the mean over sequences and seeds.",),
    )


def tried_table(choice: Choice, by: By) -> Table:
    """One row per combination of options that was tried with one method."""
    rows = []
    for one in choice.tried:
        remark = "chosen" if one is choice.best else "" if one.mean is not None else "not finished"
        options = (Cell(_text(value)) for value in one.options.values())
        rows.append(Row((*options, Cell(one.mean), Cell(remark))))
    columns = (*(Column(key, numeric=False) for key in choice.tried[0].options), _accuracy(by))
    notes = ("Accuracy in percent on validation images.", *(_beyond(key) for key in choice.at_end))
    return Table(f"Tried with {choice.method}", (*columns, Column("Remark", numeric=False)), tuple(rows), notes)


def tried_runs(jobs: Iterable[Job], varied: Sequence[str], folder: Path) -> pd.DataFrame:
    """One row per finished run of a sweep: the options that it varies, and all metrics."""
    options: dict[str, dict[str, Any]] = {}
    frames = []
    for job in jobs:
        run = folder / job.name
        if (run / RESULTS).is_file():
            frames.append(read_run(run))
            identity = full_identity(job.options)
            options[str(run)] = {key: identity.get(key) for key in varied}
    if not frames:
        return pd.DataFrame()
    frame = pd.concat(frames, ignore_index=True)
    frame = frame[frame["finished"]]
    runs = run_table(frame)[["method", "label", "split", "sequence", "seed"]]
    settings = [metrics(frame, setting).add_prefix(f"{setting}_") for setting in SETTINGS]
    found = runs.join([pd.DataFrame.from_dict(options, orient="index"), *settings])
    return found.sort_values(["method", *varied], kind="stable")


def _accuracy(by: By) -> Column:
    return Column(f"{'Mean of MTIL and MCIL' if by == 'mean' else SETTING_NAMES[by]} accuracy", "up")


def _beyond(key: str) -> str:
    return f"{key} at the end of the values tried"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
