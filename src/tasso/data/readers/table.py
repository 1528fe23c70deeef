"""A table of images: CSV, TSV or JSON lines with a path, a label and perhaps a split."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasso.data.annotated import FolderSource
from tasso.data.readers.labelled import Entry, LabelledImages, label_text, read_text, split_of
from tasso.errors import DataError, shortened
from tasso.files import json_lines

JSON_LINES = (".jsonl", ".ndjson")
SUFFIXES = (".csv", ".tsv", *JSON_LINES)
# Names of columns that are recognised, in this order.
COLUMN_NAMES = {
    "path": ("path", "image", "file", "filename", "file_name", "filepath", "image_path"),
    "label": ("label", "class", "class_name", "category"),
    "split": ("split", "set"),
}

Row = tuple[int, dict[str, Any]]  # line of the file, and its cells by column


def read_table(file: Path, images: Path | None = None, columns: Mapping[str, str] | None = None) -> LabelledImages:
    """Images of a table.

    Args:
        file: CSV (commas or semicolons) and TSV begin with the names of the columns; JSON lines are objects.
        images: the folder that paths are relative to; by default that of the file.
        columns: which columns have `path`, `label` and `split`, if they have other names.
    """
    text = read_text(file)
    if file.suffix.lower() in JSON_LINES:
        rows: list[Row] = list(json_lines(text, file, "an object with path and label"))
        header = list(dict.fromkeys(key for _, cells in rows for key in cells))
    else:
        header, rows = _cells(file, text)
    chosen = _columns(file, header, columns or {})
    source = FolderSource(images or file.parent)
    entries: list[Entry] = []
    first: dict[str, int] = {}
    for line, cells in rows:
        where = f"{file}, line {line}"
        path = _cell(cells, chosen["path"], where)
        if (earlier := first.setdefault(path, line)) != line:
            raise DataError(f"{where}: {path} is in line {earlier} already; an image may be listed once")
        if "\0" in path:
            raise DataError(f"{where}: {path!r} cannot be a path")
        split = split_of(_cell(cells, chosen["split"], where), where) if "split" in chosen else None
        entries.append(Entry(path, _cell(cells, chosen["label"], where), split))
    if not entries:
        raise DataError(f"{file}: has no rows; one per image is expected")
    missing = source.missing([entry.key for entry in entries])
    if missing:
        more = f" ({len(missing)} such rows)" if len(missing) > 1 else ""
        raise DataError(
            f"{file}, line {first[missing[0]]}: no such image: {source.describe(missing[0])}{more}. Paths are "
            f"relative to {source.root}; 'images: FOLDER' in a .yaml file of tasks says otherwise"
        )
    return LabelledImages(str(file), source, entries)


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
                    f"columns ({shortened(', '.join(header))})"
                )
            rows.append((reader.line_num, dict(zip(header, cells, strict=True))))
    except csv.Error as error:
        raise DataError(f"{file}, line {reader.line_num}: cannot be read: {error}") from None
    return header, rows


def _columns(file: Path, header: list[str], given: Mapping[str, str]) -> dict[str, str]:
    """Which column is path, label and split; a split may be missing."""
    chosen = {}
    for kind, names in COLUMN_NAMES.items():
        if kind in given:
            if given[kind] not in header:
                raise DataError(f"{file}: no column {given[kind]!r}. Columns: {shortened(', '.join(header))}")
            chosen[kind] = given[kind]
            continue
        found = [column for name in names for column in header if column.lower() == name]
        if found:
            chosen[kind] = found[0]
        elif kind != "split":
            raise DataError(
                f"{file}: no column {kind!r}. Columns: {shortened(', '.join(header)) or 'none'}. Call one {kind}, or "
                f"say which it is in a .yaml file of tasks, as in "
                f"columns: {{{kind}: {header[0] if header else 'NAME'}}}"
            )
    return chosen


def _cell(cells: Mapping[str, Any], column: str, where: str) -> str:
    value = cells.get(column)
    if not (text := label_text(value)):
        raise DataError(f"{where}: {column} is empty" if value in (None, "") else f"{where}: {column} is {value!r}")
    return text
