"""Class names for prompts: directory names made readable, or a names file of the user."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasso.data.readers.labelled import read_text
from tasso.errors import DataError
from tasso.files import parse_json, parse_yaml

NUMBERED = re.compile(r"\d+[._\- ]+(?=[^\W\d_])")  # 001.Black_footed_Albatross
WORDNET = re.compile(r"n\d{8}[-_]+(?=\w)")  # n02085620-Chihuahua
# Before a capital after two small letters, and before the last of several capitals: "AnnualCrop", "HTMLPage".
# "iPhone" and "McDonald" are not split.
CAMEL = re.compile(r"(?<=[a-z][a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")


def natural_order(labels: Sequence[str]) -> list[str]:
    """Each label once, sorted with numbers as numbers: 9 before 10."""

    def key(label: str) -> tuple[list[tuple[bool, int, str]], str]:
        parts = re.split(r"(\d+)", label.casefold())
        return [number(p) if p.isdecimal() else (True, 0, p) for p in parts if p], label

    def number(digits: str) -> tuple[bool, int, str]:  # not `int`, which refuses thousands of digits
        value = "".join(str(unicodedata.decimal(digit)) for digit in digits).lstrip("0")
        return False, len(value), value

    return sorted(set(labels), key=key)


def class_names(labels: Sequence[str], given: Mapping[str, str], file: Path | None, where: str) -> tuple[str, ...]:
    """One name per label, all different.

    Args:
        given: names that the data give.
        file: the user's own names, which take precedence.
        where: the place of the data, for messages.
    """
    if file is None and len(given) < len(labels) and all(label.isdecimal() for label in labels):
        raise DataError(
            f"{where}: its classes have numbers and no names ({', '.join(labels[:3])} …). A prompt needs names: give a "
            "names file with one name per line, the first for the lowest number"
        )
    names = {**dict(zip(labels, readable(labels), strict=True)), **given}
    if file is not None:
        try:
            names.update(read_names(file, labels, given))
        except DataError as error:
            raise DataError(f"names: {error}") from None
    first: dict[str, str] = {}
    for label in labels:
        name = names[label].strip()
        if not name:
            raise DataError(f"{where}: class {label!r} has an empty name")
        other = first.setdefault(name.casefold(), label)
        if other != label:
            raise DataError(
                f"{where}: classes {other!r} and {label!r} are both called {name!r}. Put them together, or name them "
                "in a names file"
            )
    return tuple(names[label].strip() for label in labels)


def readable(labels: Sequence[str]) -> list[str]:
    """Directory names as class names: without number prefixes, underscores and CamelCase.

    Prefixes are removed only if every class has one, so that "747-400" beside "A380" keeps its number.
    """
    names = list(labels)
    for prefix in (NUMBERED, WORDNET):
        if all(prefix.match(name) for name in names):
            cut = [prefix.sub("", name, count=1) for name in names]
            if len(set(cut)) == len(names):
                names = cut
    return [_spaced(name) for name in names]


def _spaced(label: str) -> str:
    words = label.replace("_", " ").split()
    if len(words) == 1:  # "Black_footed_McDonald" is separated already
        words = CAMEL.sub(" ", words[0]).split()
    return " ".join(words) or label


# -- the names file ------------------------------------------------------------------------------------------------


def read_names(file: Path, labels: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """Names by label from a file: JSON or YAML (a mapping or a list), or text with `label,name` or one name per line.

    A list has a name for every class in order. A mapping may leave labels out, which keep their names; a label that the
    data do not have is an error.
    """
    text = read_text(file)
    found = _document(file, text) if file.suffix.lower() in (".json", ".yaml", ".yml") else _lines(file, text)
    if isinstance(found, list):
        if len(found) != len(labels):
            raise DataError(f"{file} has {len(found)} names for {len(labels)} classes")
        return {label: name for label, (name, _) in zip(labels, found, strict=True)}
    by_name = {name: label for label, name in given.items()}  # a mapping may use the names that the data give
    for label, (_, where) in found.items():
        if label not in labels and label not in by_name:
            raise DataError(f"{where}: no class {label!r}. Classes: {', '.join(labels[:5])} …")
    if (missing := [label for label in labels if label.isdecimal() and label not in found]) and not given:
        raise DataError(f"{file} has no name for class {missing[0]}")
    return {label if label in labels else by_name[label]: name for label, (name, _) in found.items()}


Named = tuple[str, str]  # a name, and where it was read


def _document(file: Path, text: str) -> list[Named] | dict[str, Named]:
    try:
        value: Any = parse_json(text) if file.suffix.lower() == ".json" else parse_yaml(text)
    except ValueError as error:
        raise DataError(f"{file}: not valid {file.suffix[1:].upper()}: {error}") from None
    if not isinstance(value, dict | list) or not value:
        raise DataError(f"{file}: expected a mapping of labels to names, or a list of names")
    for label, name in value.items() if isinstance(value, dict) else enumerate(value):
        if not isinstance(name, str):
            raise DataError(f"{file}: {label}: expected a name, not {name!r}")
    if isinstance(value, list):
        return [(name, f"{file}[{number}]") for number, name in enumerate(value)]
    return {str(label): (name, str(file)) for label, name in value.items()}


def _lines(file: Path, text: str) -> list[Named] | dict[str, Named]:
    """Pairs if every line has a tab, or else a comma; otherwise a list of names."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise DataError(f"{file} is empty")
    separator = next((s for s in ("\t", ",") if all(s in line for _, line in lines)), None)
    if separator is None:
        return [(line, f"{file}, line {number}") for number, line in lines]
    pairs: dict[str, Named] = {}
    for number, line in lines:
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=separator))]
        if len(cells) != 2 or not all(cells):
            raise DataError(f"{file}, line {number}: expected a label and a name, found {line!r}")
        if cells[0] in pairs:
            raise DataError(f"{file}, line {number}: {cells[0]!r} has a name already ({pairs[cells[0]][1]})")
        pairs[cells[0]] = (cells[1], f"{file}, line {number}")
    return pairs
