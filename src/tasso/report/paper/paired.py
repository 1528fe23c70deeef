"""Paired comparisons: the same sequences and seeds with each of two methods. Is the difference more than chance?"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

from tasso.report.significance import FEWEST, LEVEL, sign_flip_p

Outcome = Literal["holds", "does not hold", "too close to tell", "not tested on this benchmark"]
HOLDS: Outcome = "holds"
FAILS: Outcome = "does not hold"
CLOSE: Outcome = "too close to tell"
UNTESTED: Outcome = "not tested on this benchmark"

ENOUGH = FEWEST  # pairs with which the test can reach the level at all


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
        """Of the sign-flip test; None for a single pair, with which nothing can be tested."""
        return sign_flip_p(self.leads) if len(self.leads) > 1 else None


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
        decided = sign_flip_p(leads) <= LEVEL
    else:
        if spread is not None:
            limit = threshold(len(leads), spread)
        else:
            limit = 2 * stdev(leads) / sqrt(len(leads)) if len(leads) > 1 else 0.0
        decided = (min(leads) > 0 or max(leads) < 0) and abs(mean) > limit
    return CLOSE if not decided else HOLDS if mean > 0 else FAILS
