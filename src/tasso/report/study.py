"""A study: the table of results as one CSV file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from tasso.config.labels import RENAMED
from tasso.files import write_atomically
from tasso.report.frame import COLUMNS, SPLITS, typed
from tasso.report.reader import ReportError, kind

STUDY_ENDINGS = (".csv", ".csv.gz")


def write_study(frame: pd.DataFrame, path: str | PathLike[str]) -> Path:
    """Write the table as one CSV file (`.csv`, or `.csv.gz`); `run` is cut to what the run folders do not share."""
    path = Path(path)
    _check_ending(path)
    parents = {str(Path(run).parent) for run in frame["run"]}
    shared = os.path.commonpath(parents) if len(parents) > 1 else parents.pop()
    prepared = frame.assign(
        run=frame["run"].map(lambda run: Path(run).relative_to(shared).as_posix()),
        order=frame["order"].map(lambda tasks: json.dumps(tasks, ensure_ascii=False)),
        values=frame["values"].map(lambda numbers: " ".join(map(_number, numbers))),
    )

    def write(part: Path) -> None:
        prepared.to_csv(part, index=False, lineterminator="\n", compression=_compression(path))

    write_atomically(path, write)
    return path


def read_study(path: str | PathLike[str]) -> pd.DataFrame:
    """Read what `write_study` has written."""
    path = Path(path)
    _check_ending(path)
    try:
        frame = pd.read_csv(path, dtype=object, keep_default_na=False, compression=_compression(path))
    except FileNotFoundError:
        raise ReportError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError) as error:
        raise ReportError(f"{path}: not a CSV file of a study: {error}") from None
    frame = frame if "split" in frame.columns else frame.assign(split="test")  # of earlier versions
    if missing := [name for name in COLUMNS if name not in frame.columns]:
        raise ReportError(f"{path}: missing column {missing[0]!r}")
    if frame.empty:
        raise ReportError(f"{path}: no rows")
    parsers: dict[str, Callable[[str], Any]] = {
        "label": lambda text: RENAMED.get(text, text),
        "order": lambda text: tuple(map(str, json.loads(text))),
        "split": lambda text: {split: split for split in SPLITS}[text],
        "seed": int, "step": int,
        "finished": lambda text: {"True": True, "False": False}[text],
        "value": lambda text: float(text) if text else math.nan,
        "values": lambda text: tuple(map(float, text.split())),
    }  # fmt: skip
    for name, parse in parsers.items():
        # Most columns have few different texts.
        distinct: dict[str, Any] = {}
        for text in frame[name].unique():
            try:
                distinct[text] = parse(text)
            except (ValueError, KeyError, TypeError):
                row = int((frame[name] == text).idxmax()) + 2
                raise ReportError(f"{path}: line {row}: {name}: cannot read {kind(text)}") from None
        frame[name] = pd.Series([distinct[text] for text in frame[name]], index=frame.index, dtype=object)
    return typed(frame[COLUMNS])


def _check_ending(path: Path) -> None:
    if not path.name.endswith(STUDY_ENDINGS):
        raise ReportError(f"{path}: the file of a study ends in {' or '.join(STUDY_ENDINGS)}")


def _number(number: float) -> str:
    """Counts without a point: most numbers of a histogram are."""
    return str(int(number)) if float(number).is_integer() else repr(number)


def _compression(path: Path) -> Any:
    return {"method": "gzip", "mtime": 0} if path.suffix == ".gz" else None  # no time: the same runs, the same bytes
