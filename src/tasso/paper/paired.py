"""Paired comparisons: the same sequences and seeds with each of two methods. Is the difference more than chance?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

Outcome = Literal["holds", "does not hold", "too close to tell", "not tested on this benchmark"]
HOLDS: Outcome = "holds"
FAILS: Outcome = "does not hold"
CLOSE: Outcome = "too close to tell"
UNTESTED: Outcome = "not tested on this benchmark"

LEVEL = 0.05
ENOUGH = 6  # pairs with which the test below can reach the level at all: 2 of 2^6 sign patterns are 3.1 %


@dataclass(frozen=True)
class Paired:
    """How much better the first of two is, pair by pair: positive is better, whichever way the metric points."""

    leads: tuple[float, ...]
    unit: Literal["sequence", "seed"]
    seeds: int

    @property
    def mean(self) -> float:
        return fmean(self.leads)

    @property
    def ahead(self) -> int:
        """In how many pairs the first is better."""
        return sum(lead > 0 for lead in self.leads)

    @property
    def p(self) -> float | None:
        """See `sign_flip`; None for a single pair, with which nothing can be tested."""
        return sign_flip(self.leads) if len(self.leads) > 1 else None


def sign_flip(differences: Sequence[float]) -> float:
    """Exact two-sided permutation test of paired differences.

    If nothing but chance decided who is ahead, each difference might as well have the other sign. Returned is the
    share of all 2^n sign patterns whose sum is at least as far from zero as the sum found. No distribution is assumed.
    """
    half = len(differences) // 2
    left, right = _sums(differences[:half]), sorted(_sums(differences[half:]))
    found = abs(sum(differences)) - 1e-9 * (1 + sum(map(abs, differences)))  # equal sums must count as equal
    if found <= 0:
        return 1.0
    extreme = sum(len(right) - bisect_left(right, found - one) + bisect_right(right, -found - one) for one in left)
    return float(extreme / 2 ** len(differences))


def _sums(values: Sequence[float]) -> list[float]:
    """The sums of all sign patterns."""
    sums = [0.0]
    for value in values:
        sums = [one + sign * value for one in sums for sign in (1, -1)]
    return sums


def threshold(pairs: int, spread: float) -> float:
    """Two standard errors of a mean of `pairs` differences, each of two runs that scatter by `spread`."""
    return 2 * sqrt(2 / pairs) * spread


def judge(paired: Paired, spread: float | None) -> Outcome:
    """Is the first ahead of the second?

    With six pairs or more: if the sign-flip test reaches 5 %, the sign of the mean decides; else it is too close to
    tell. With fewer pairs no such test can reach 5 %. Then the sign decides only if all pairs have the same one and
    their mean is beyond two standard errors, taken from `spread`, the standard deviation over seeds of one method's
    runs on this benchmark; without it, from the differences. A single pair without a known spread is judged by its
    sign alone: whoever shows it must say so.
    """
    leads, mean = paired.leads, paired.mean
    if len(leads) >= ENOUGH:
        decided = sign_flip(leads) <= LEVEL
    else:
        if spread is not None:
            limit = threshold(len(leads), spread)
        else:
            limit = 2 * stdev(leads) / sqrt(len(leads)) if len(leads) > 1 else 0.0
        decided = (min(leads) > 0 or max(leads) < 0) and abs(mean) > limit
    return CLOSE if not decided else HOLDS if mean > 0 else FAILS
