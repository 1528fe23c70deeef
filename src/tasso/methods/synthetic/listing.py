"""Files that list images with texts: JSON lines, or CSV with a header. Paths are relative to the file's folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from tasso.errors import DataError
from tasso.files import json_lines, read_bytes


@dataclass(frozen=True)
class Row:
    """One line of a listing."""

    where: str  # file and line, for messages
    file: str | None  # None: there was an image, but it was dropped
    text: str
    seed: int | None = None
    dropped: str = ""  # why, in a word


def find_listing(folder: Path, stem: str) -> Path | None:
    """STEM.jsonl in a folder, else STEM.csv, else None."""
    return next((path for end in ("jsonl", "csv") if (path := folder / f"{stem}.{end}").is_file()), None)


def read_listing(path: Path, column: str) -> list[Row]:
    """The rows of a .jsonl or .csv file with the columns `file` and `column`.

    JSON lines may tell the seed too, and a null file with why it was dropped. Anything else is ignored.

    An error names the file and the line. Whether the images exist is for `require_files` to say.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text: {error}") from None
    lines = json_lines(text, path) if path.suffix == ".jsonl" else _csv_lines(text, path, column)
    return [_row(values, column, f"{path}, line {number}") for number, values in lines]


def require_files(rows: Sequence[Row], folder: Path) -> None:
    """Every image is there; the error names the line of the first that is not and counts the rest."""
    missing = [row for row in rows if row.file is not None and not (folder / row.file).is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(f"{missing[0].where}: image missing: {folder / str(missing[0].file)}{more}")


def _csv_lines(text: str, path: Path, column: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    try:
        for cells in reader:
            if not cells:
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                if missing := [name for name in ("file", column) if name not in header]:
                    raise DataError(f"{path}, line 1: no column {missing[0]!r}; the header must be file,{column}")
            elif len(cells) != len(header):
                raise DataError(f"{path}, line {reader.line_num}: {len(cells)} cells under {len(header)} columns")
            else:
                values = dict(zip(header, cells, strict=True))
                yield reader.line_num, {"file": values["file"], column: values[column]}
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not valid CSV: {error}") from None
    if header is None:
        raise DataError(f"{path}: empty; the first line must be file,{column}")


def _row(values: dict[str, Any], column: str, where: str) -> Row:
    for key in ("file", column):
        if key not in values:
            raise DataError(f"{where}: no {key!r}")
    file, text, seed = values["file"], values[column], values.get("seed")
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{where}: {column} is empty or not text: {text!r}")
    if file is not None and not (isinstance(file, str) and _lies_below(file)):
        raise DataError(f"{where}: path {file!r} does not lie in the folder of this file")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise DataError(f"{where}: seed {seed!r} is not a whole number")
    return Row(where, file, text, seed, str(values.get("dropped", "")))


def _lies_below(file: str) -> bool:
    """Whether a relative path stays below where it starts. A listing may come from another system, so on none of them
    may it leave."""
    paths = PurePosixPath(file), PureWindowsPath(file)
    return bool(file) and not any(path.anchor or ".." in path.parts for path in paths)
