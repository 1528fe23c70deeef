"""Which image is for training, which for testing: the rules of the paper's benchmark, and CoOp's split files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasso.data.prepare.sources import Rule
from tasso.data.readers.coop import parse_coop
from tasso.errors import DataError

Item = tuple[str, int]  # path below images/, label


@dataclass(frozen=True)
class Listing:
    """Images of a data set by split. Before a rule is applied, `train` has all images for `resplit`, and those of
    train and val for `hold-out`."""

    class_names: tuple[str, ...]
    train: list[Item]
    val: list[Item] = field(default_factory=list)
    test: list[Item] = field(default_factory=list)


def apply_rule(rule: Rule, listing: Listing, seed: int) -> Listing:
    """Split the images as the benchmark does."""
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
            count = round(0.2 * len(group))
            val += group[:count]
            train += group[count:]
    return Listing(listing.class_names, train, val, test)


def _by_class(items: Sequence[Item], classes: int) -> list[list[Item]]:
    groups: list[list[Item]] = [[] for _ in range(classes)]
    for path, label in items:
        groups[label].append((path, label))
    return groups


def _shuffled(items: list[Item], seed: int) -> list[Item]:
    """An order that depends on seed and path alone: the same on every machine and with every library."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{seed} {item[0]}".encode()).digest())


def read_coop_split(file: Path) -> Listing:
    """The splits of CoOp's `split_zhou_*.json`. Labels must be 0, 1, 2 … without a gap."""
    names, items = parse_coop(file)
    if sorted(names) != list(range(len(names))):
        gap = next(label for label in range(len(names) + 1) if label not in names)
        raise DataError(f"{file}: no image has label {gap}, though labels go up to {max(names)}")
    return Listing(tuple(names[label] for label in range(len(names))), items["train"], items["val"], items["test"])
