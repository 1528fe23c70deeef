"""A table of images: CSV, TSV or JSON lines with a path, a label and perhaps a split."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasso.data.annotated import FolderSource
from tasso.data.readers.found import Entry, Found, split_of
from tasso.errors import DataError
from tasso.files import json_lines

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson")
# Names of columns that need no explanation, in the order in which they are looked for.
USUAL = {
    "path": ("path", "image", "file", "filename", "file_name", "filepath", "image_path"),
    "label": ("label", "class", "class_name", "category"),
    "split": ("split", "set"),
}

Row = tuple[int, dict[str, Any]]  # line of the file, and its cells by column


def read_table(file: Path, images: Path | None = None, columns: Mapping[str, str] | None = None) -> Found:
    """Images of a table.

    Args:
        file: CSV (commas or semicolons) and TSV begin with the names of the columns; JSON lines are objects.
        images: the folder that paths are relative to; by default that of the file.
        columns: which columns hold `path`, `label` and `split`, if they are called otherwise.
    """
    text = _text(file)
    columns_there, rows = _json_lines(file, text) if file.suffix.lower() in ENDINGS[2:] else _cells(file, text)
    chosen = _columns(file, columns_there, columns or {})
    source = FolderSource(images or file.parent)
    entries: list[Entry] = []
    first: dict[str, int] = {}
    for line, cells in rows:
        where = f"{file}, line {line}"
        path = _cell(cells, chosen["path"], where)
        if (earlier := first.setdefault(path, line)) != line:
            raise DataError(f"{where}: {path} stands in line {earlier} already; an image may stand once")
        if "\0" in path:
            raise DataError(f"{where}: {path!r} cannot be a path")
        split = split_of(_cell(cells, chosen["split"], where), where) if "split" in chosen else None
        entries.append(Entry(path, _cell(cells, chosen["label"], where), split))
    if not entries:
        raise DataError(f"{file}: has no rows; one an image is expected")
    missing = source.missing([entry.key for entry in entries])
    if missing:
        more = f" ({len(missing)} such rows)" if len(missing) > 1 else ""
        raise DataError(
            f"{file}, line {first[missing[0]]}: no such image: {source.describe(missing[0])}{more}. Paths are "
            f"relative to {source.root}; 'images: FOLDER' in a .yaml file of tasks says otherwise"
        )
    return Found(str(file), source, entries)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: not a readable text file: {error}") from None


def _cells(file: Path, text: str) -> tuple[list[str], list[Row]]:
    head = text.partition("\n")[0]
    delimiter = "\t" if file.suffix.lower() == ".tsv" else ";" if "," not in head and ";" in head else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[Row] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise DataError(
                    f"{file}, line {reader.line_num}: {len(cells)} cells, but the first line names {len(header)} "
                    f"columns ({', '.join(header)})"
                )
            rows.append((reader.line_num, dict(zip(header, cells, strict=True))))
    except csv.Error as error:
        raise DataError(f"{file}, line {reader.line_num}: cannot be read: {error}") from None
    return header, rows


def _json_lines(file: Path, text: str) -> tuple[list[str], list[Row]]:
    rows = list(json_lines(text, file, "an object with path and label"))
    return list(dict.fromkeys(key for _, cells in rows for key in cells)), rows


def _columns(file: Path, there: list[str], given: Mapping[str, str]) -> dict[str, str]:
    """Which column is which; a split may be missing."""
    chosen = {}
    for kind, usual in USUAL.items():
        if kind in given:
            if given[kind] not in there:
                raise DataError(f"{file}: no column {given[kind]!r}. Columns: {', '.join(there)}")
            chosen[kind] = given[kind]
            continue
        found = [name for wanted in usual for name in there if name.lower() == wanted]
        if found:
            chosen[kind] = found[0]
        elif kind != "split":
            raise DataError(
                f"{file}: no column {kind!r}. Columns: {', '.join(there) or 'none'}. Call one {kind}, or say which it "
                f"is in a .yaml file of tasks, as in columns: {{{kind}: {there[0] if there else 'NAME'}}}"
            )
    return chosen


def _cell(cells: Mapping[str, Any], column: str, where: str) -> str:
    value = cells.get(column)
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise DataError(f"{where}: {column} is empty" if value in (None, "") else f"{where}: {column} is {value!r}")
    return str(value).strip()
