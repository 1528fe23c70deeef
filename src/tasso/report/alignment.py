"""Distances between images and class texts, as a run has kept them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tasso.report.reader import Reader, is_number, kind

QUANTILES = 5  # least, quartiles and median, greatest


@dataclass(frozen=True)
class Distances:
    """One task: 1 − cosine between each test image and the text of its class.

    `prototypes` has one number a class: the distance between its text and the mean of its images.
    """

    count: int
    mean: float
    quantiles: tuple[float, ...]
    first_bin: int
    counts: tuple[int, ...]
    prototypes: tuple[float, ...]


@dataclass(frozen=True)
class Alignment:
    """Task by task, for the starting model and after the last task; None where it was not measured.

    Bins have equal widths, from 0 to `high`.
    """

    bins: int
    high: float
    zero_shot: tuple[Distances, ...] | None
    last: tuple[Distances, ...] | None


def parse_alignment(reader: Reader, tasks: int) -> Alignment:
    """The key `alignment` of results.json."""
    bins, limits = reader.integer("bins"), reader.numbers("range")
    if bins < 1:
        raise reader.fail("bins", f"expected at least 1, found {bins}")
    if len(limits) != 2 or limits[0] != 0 or limits[1] <= 0:
        raise reader.fail("range", f"expected [0, a greater number], found {list(limits)}")

    def stage(key: str) -> tuple[Distances, ...] | None:
        if reader.get(key) is None:
            return None
        found = reader.items(key, lambda where, value: _distances(reader.inner(where, value), bins))
        if len(found) != tasks:
            raise reader.fail(key, f"wrong size: {len(found)} objects for {tasks} tasks")
        return found

    return Alignment(bins, limits[1], stage("zero_shot"), stage("last"))


def _distances(reader: Reader, bins: int) -> Distances:
    def natural(where: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise reader.fail(where, f"expected a number of images, found {kind(value)}")
        return value

    def distance(where: str, value: Any) -> float | None:
        if value is not None and not is_number(value):
            raise reader.fail(where, f"expected a distance or null, found {kind(value)}")
        return None if value is None else float(value)

    count, first, counts = reader.integer("count"), reader.integer("first_bin"), reader.items("counts", natural)
    if sum(counts) != count:
        raise reader.fail("counts", f"{sum(counts)} images, but count says {count}")
    if first < 0 or first + len(counts) > bins:
        raise reader.fail("first_bin", f"{len(counts)} bins from bin {first} on do not fit into {bins}")
    quantiles = reader.numbers("quantiles")
    if len(quantiles) != QUANTILES or list(quantiles) != sorted(quantiles):
        raise reader.fail("quantiles", f"expected {QUANTILES} rising numbers, found {list(quantiles)}")
    prototypes = tuple(value for value in reader.items("prototypes", distance) if value is not None)
    return Distances(count, reader.number("mean"), quantiles, first, counts, prototypes)


def density(parts: Sequence[Distances], bins: int, groups: int) -> list[float]:
    """The histogram of several runs together: the share of images in each of `groups` wider bins."""
    totals = [0.0] * groups
    whole = sum(part.count for part in parts)
    for part in parts:
        for number, count in enumerate(part.counts, part.first_bin):
            totals[min(number * groups // bins, groups - 1)] += count / whole
    return totals


def shares(values: Iterable[float], high: float, groups: int) -> list[float]:
    """The same for distances that are all at hand."""
    totals, values = [0.0] * groups, list(values)
    for value in values:
        totals[min(int(max(value, 0.0) / high * groups), groups - 1)] += 1 / len(values)
    return totals
