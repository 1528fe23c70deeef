"""How a claim is judged: paired leads, the outcome of a comparison, and the verdict with the numbers behind it.

A lead is in percentage points and positive where the first of two rows is better, whichever way the metric points.
Pairs have the same sequence and the same seed. Nothing is said to hold or not to hold unless enough runs stand behind
it: six pairs where there is a test, three runs where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean
from typing import Literal

import pandas as pd

from tasso.report.significance import FEWEST, LEVEL, paired_differences, sign_flip_p
from tasso.report.tables import METRIC_COLUMNS, count_of, fixed

Outcome = Literal["holds", "does not hold", "too close to tell", "not enough runs", "not tested on this benchmark"]
HOLDS: Outcome = "holds"
FAILS: Outcome = "does not hold"
CLOSE: Outcome = "too close to tell"
FEW: Outcome = "not enough runs"
UNTESTED: Outcome = "not tested on this benchmark"

FEWEST_RUNS = 3  # behind a claim without a test

# From the p of a test, and whether the first is ahead in it, to p corrected for all tests of the study.
Correct = Callable[[float, bool], float]


@dataclass(frozen=True)
class Paired:
    """Leads of one row over another. A pair is a sequence, or a seed where there is one sequence only."""

    leads: tuple[float, ...]
    unit: Literal["sequence", "seed", "data set"]
    seeds: int

    @property
    def mean(self) -> float:
        return fmean(self.leads)

    @property
    def ahead(self) -> int:
        """Number of pairs in which the first is better."""
        return sum(lead > 0 for lead in self.leads)

    @property
    def p(self) -> float | None:
        """Of the sign-flip test on the side of the mean; None where there are too few pairs for a test.

        One-sided: a claim says who is ahead. If the two are level it is false, and only "ahead" would be an error.
        """
        return sign_flip_p(self.leads, one_sided=True) if len(self.leads) >= FEWEST else None


def direction(metric: str) -> int:
    """1 where higher is better, -1 where lower is."""
    return {"up": 1, "down": -1}[next(one.better for one in METRIC_COLUMNS if one.key == metric)]


def pair(first: pd.Series[float], second: pd.Series[float], metric: str) -> Paired | None:
    """Leads on the sequences and seeds that both have (`paired_differences`); None if there are none."""
    ours, theirs = ((direction(metric) * values.dropna()).to_dict() for values in (first, second))
    unit, leads = paired_differences(ours, theirs)
    if not leads:
        return None
    seeds = len({seed for sequence, seed in ours if (sequence, seed) in theirs})
    return Paired(tuple(leads), "sequence" if unit == "order" else "seed", seeds)


def threshold(pairs: int, spread: float | None) -> float:
    """Two standard errors of a mean of `pairs` differences between two runs with standard deviation `spread`.

    Without a known spread any difference may be chance.
    """
    return inf if spread is None else 2 * sqrt(2 / pairs) * spread


def judge(paired: Paired, correct: Correct) -> Outcome:
    """Is the first ahead of the second? The sign of the mean decides if the test reaches 5 %, corrected."""
    if paired.p is None:
        return FEW
    if correct(paired.p, paired.mean > 0) > LEVEL:
        return CLOSE
    return HOLDS if paired.mean > 0 else FAILS


def judge_wins(
    paired: Paired, noise: Sequence[float], needed: int, missing: int, correct: Correct, *, complete: bool, ahead: bool
) -> Outcome:
    """Are `needed` units (sequences, data sets) won, more than by chance?

    Does not hold if fewer are won, even when units lost by less than their noise and those that are missing are counted
    as won. Holds if enough are won, the first is `ahead` in the mean, and the test over the leads says so too. Too
    close to tell in between.
    """
    tested = judge(paired, correct)
    if tested == FEW:
        return FEW
    undecided = sum(-limit <= lead <= 0 for lead, limit in zip(paired.leads, noise, strict=True)) + missing
    if paired.ahead + undecided < needed:
        return FAILS
    if not complete:
        return UNTESTED
    return HOLDS if paired.ahead >= needed and ahead and tested == HOLDS else CLOSE


@dataclass(frozen=True)
class Finding:
    """One number behind a verdict.

    Attributes:
        what: what was measured.
        value: the number; a lead if it is `signed`.
        pairs, unit, ahead: how many pairs of what it comes from, in how many the first is better.
        p, corrected: of the test that is judged, and for the number of tests of the study.
        paper: the same number from the paper, on its data.
        outcome: what it alone would make of the claim.
        judged: how it was judged, in words.
    """

    what: str
    value: float
    pairs: int
    unit: str
    ahead: int | None = None
    p: float | None = None
    paper: float | None = None
    signed: bool = True
    outcome: Outcome | None = None
    judged: str = ""
    digits: int = 2
    corrected: float | None = None

    def number(self, value: float) -> str:
        """A value of this kind, with its digits."""
        return (signed if self.signed else fixed)(value, self.digits)

    @property
    def text(self) -> str:
        """The number in words."""
        details = [count_of(self.pairs, self.unit)]
        if self.ahead is not None and self.pairs > 1:
            details = [f"better in {self.ahead} of {details[0]}"]
        if self.p is not None:
            details.append(f"p = {fixed(self.p, 3)}")
        if self.corrected is not None:
            details.append(f"corrected {fixed(self.corrected, 3)}")
        if self.paper is not None:
            details.append(f"paper, its own data: {self.number(self.paper)}")
        judged = f": {self.judged}" if self.judged else ""
        return f"{self.what}: {self.number(self.value)} ({'; '.join(details)}){judged}"


@dataclass(frozen=True)
class Judgement:
    """What a rule makes of the runs. `few` says what weakens the outcome, or how many runs are missing."""

    outcome: Outcome
    numbers: tuple[Finding, ...] = ()
    seeds: int = 0
    note: str = ""
    few: str = ""


@dataclass(frozen=True)
class Verdict(Judgement):
    """The judgement of one claim, which needs the runs of `plan`. `question`: the paper does not claim it."""

    key: str = ""
    claim: str = ""
    plan: str = ""
    question: bool = False

    @property
    def text(self) -> str:
        """The outcome, with what weakens it."""
        return f"{self.outcome} ({self.few})" if self.few else self.outcome

    @property
    def deciding(self) -> Finding | None:
        """The number to show where there is room for one: the first that came to this outcome, or the first."""
        decided = [finding for finding in self.numbers if finding.outcome == self.outcome]
        return next(iter((*decided, *self.numbers)), None)


def too_few(count: int, unit: str, needed: int) -> str:
    """How many are missing where runs are not enough."""
    return f"{needed - count} of {needed} needed {unit}s missing"


def few_seeds(seeds: int, spread: float | None) -> str:
    """What weakens an outcome that compares means with the spread over seeds."""
    return ", ".join(["one seed"] * (seeds == 1) + ["spread over seeds unknown"] * (spread is None))


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign."""
    text = fixed(value, digits)
    return text if text.startswith("-") else f"+{text}"


def first_outcome(outcomes: Sequence[Outcome]) -> Outcome:
    """Of a claim with several parts: fails if one fails, holds if all hold."""
    return next((one for one in (FAILS, UNTESTED, FEW, CLOSE) if one in outcomes), HOLDS)
