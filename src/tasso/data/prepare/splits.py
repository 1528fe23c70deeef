"""Which image is for training, which for testing: the rules of the paper's benchmark, and CoOp's split files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasso.data.prepare.sources import Rule
from tasso.errors import DataError
from tasso.files import parse_json

Item = tuple[str, int]  # path below images/, label


@dataclass(frozen=True)
class Listing:
    """What the original lists say. For `resplit` all images stand in `train`, for `hold-out` train and val do."""

    class_names: tuple[str, ...]
    train: list[Item]
    val: list[Item] = field(default_factory=list)
    test: list[Item] = field(default_factory=list)


def apply(rule: Rule, listing: Listing, seed: int) -> Listing:
    """The sets as the benchmark has them."""
    if rule in ("official", "reference"):
        return listing
    groups = _by_class(listing.train, len(listing.class_names))
    train, val, test = [], [], list(listing.test)
    for group in groups:
        group = _shuffled(group, seed)
        # Rounded as CoOp's code rounds, so that the sizes are those of its files.
        if rule == "resplit":
            first, second = round(0.5 * len(group)), round(0.2 * len(group))
            train += group[:first]
            val += group[first : first + second]
            test += group[first + second :]
        else:
            held = round(0.2 * len(group))
            val += group[:held]
            train += group[held:]
    return Listing(listing.class_names, train, val, test)


def _by_class(items: Sequence[Item], classes: int) -> list[list[Item]]:
    groups: list[list[Item]] = [[] for _ in range(classes)]
    for path, label in items:
        groups[label].append((path, label))
    return groups


def _shuffled(items: list[Item], seed: int) -> list[Item]:
    """An order that follows from seed and path alone: the same on every machine and with every library."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{seed} {item[0]}".encode()).digest())


def read_coop_split(file: Path) -> Listing:
    """CoOp's `split_zhou_*.json`: {"train" | "val" | "test": [[path, label, class name], …]}."""
    document = read_json(file)
    if not isinstance(document, dict) or set(document) != {"train", "val", "test"}:
        raise DataError(f"{file}: expected the lists 'train', 'val' and 'test', as CoOp's split files have them")
    names: dict[int, str] = {}
    sets: dict[str, list[Item]] = {}
    for split, entries in document.items():
        if not isinstance(entries, list):
            raise DataError(f"{file}: {split} must be a list, not {entries!r}")
        sets[split] = [_coop_item(entry, f"{file}: {split}[{i}]", names) for i, entry in enumerate(entries)]
    if sorted(names) != list(range(len(names))):
        gap = next(label for label in range(len(names) + 1) if label not in names)
        raise DataError(f"{file}: no image has label {gap}, though labels go up to {max(names, default=0)}")
    return Listing(tuple(names[label] for label in range(len(names))), sets["train"], sets["val"], sets["test"])


def _coop_item(entry: Any, where: str, names: dict[int, str]) -> Item:
    match entry:
        case [str(path), int(label), str(name)] if not isinstance(label, bool) and label >= 0 and name.strip():
            if names.setdefault(label, name) != name:
                raise DataError(f"{where}: label {label} is called {name!r} here and {names[label]!r} before")
            return path, label
    raise DataError(f"{where}: expected [path, label, class name], found {entry!r}")


def read_json(file: Path) -> Any:
    """JSON, or an error that names the file."""
    try:
        return parse_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{file}: not valid JSON: {error}") from None
