"""Which image is for training, which for testing: the rules of the paper's benchmark."""

from __future__ import annotations

import hashlib

from tasso.data.prepare.sources import Rule
from tasso.data.readers.labelled import Item, Listing


def apply_rule(rule: Rule, listing: Listing, seed: int) -> Listing:
    """Split the images as the benchmark does.

    Before, `train` has all images for `resplit`, and those of train and val for `hold-out`.
    """
    if rule in ("official", "reference"):
        return listing
    groups: list[list[Item]] = [[] for _ in listing.class_names]
    for item in _shuffled(listing.train, seed):
        groups[item[1]].append(item)
    train, val, test = [], [], list(listing.test)
    for group in groups:
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


def _shuffled(items: list[Item], seed: int) -> list[Item]:
    """An order that depends on seed and path alone: the same on every machine and with every library."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{seed} {item[0]}".encode()).digest())
