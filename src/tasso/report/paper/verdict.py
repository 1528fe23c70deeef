"""How a claim is judged: paired leads, the outcome of a comparison, and the verdict with the numbers behind it.

A lead is in percentage points and positive where the first of two rows is better, whichever way the metric points.
Pairs have the same sequence and the same seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

import pandas as pd

from tasso.report.significance import FEWEST, LEVEL, sign_flip_p
from tasso.report.tables import count_of, fixed

Outcome = Literal["holds", "does not hold", "too close to tell", "not tested on this benchmark"]
HOLDS: Outcome = "holds"
FAILS: Outcome = "does not hold"
CLOSE: Outcome = "too close to tell"
UNTESTED: Outcome = "not tested on this benchmark"


@dataclass(frozen=True)
class Paired:
    """Leads of one row over another. A pair is a sequence, or a seed where there is one sequence only."""

    leads: tuple[float, ...]
    unit: Literal["sequence", "seed"]
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
        """Of the sign-flip test; None for a single pair, which cannot be tested."""
        return sign_flip_p(self.leads) if len(self.leads) > 1 else None


def direction(metric: str) -> int:
    """1 where higher is better, -1 where lower is."""
    return -1 if metric in ("forgetting", "zero_shot_degradation") else 1


def pair(first: pd.Series[float], second: pd.Series[float], metric: str) -> Paired | None:
    """Leads on the sequences and seeds that both have, mean over the seeds of a sequence; None if there are none."""
    leads = direction(metric) * (first - second).dropna()
    if leads.empty:
        return None
    seeds = leads.index.get_level_values("seed").nunique()
    by_sequence = leads.groupby(level="sequence", sort=False).mean()
    if len(by_sequence) == 1:
        return Paired(tuple(leads), "seed", seeds)
    return Paired(tuple(by_sequence), "sequence", seeds)


def threshold(pairs: int, spread: float | None) -> float:
    """Two standard errors of a mean of `pairs` differences between two runs with standard deviation `spread`."""
    return 0.0 if spread is None else 2 * sqrt(2 / pairs) * spread


def judge(paired: Paired, spread: float | None) -> Outcome:
    """Is the first ahead of the second?

    With six pairs or more: if the sign-flip test reaches 5 %, the sign of the mean decides; else it is too close to
    tell. With fewer pairs no such test can reach 5 %. Then the sign decides only if all pairs have the same sign and
    their mean is beyond two standard errors, taken from `spread`, the standard deviation over seeds of TASSO on this
    benchmark; without it, from the differences. A single pair without a known spread is judged by its sign alone,
    which the verdict says.
    """
    leads, mean = paired.leads, paired.mean
    if len(leads) >= FEWEST:
        decided = sign_flip_p(leads) <= LEVEL
    else:
        limit = threshold(len(leads), spread)
        if spread is None and len(leads) > 1:
            limit = 2 * stdev(leads) / sqrt(len(leads))
        decided = (min(leads) > 0 or max(leads) < 0) and abs(mean) > limit
    return CLOSE if not decided else HOLDS if mean > 0 else FAILS


def judge_wins(
    margins: Sequence[float], noise: Sequence[float], needed: int, missing: int = 0, *, complete: bool, ahead: bool
) -> Outcome:
    """Are `needed` units (sequences, data sets) won, more than by chance?

    Does not hold if fewer are won, even when units lost by less than their noise and those that are missing are counted
    as won. Holds if enough are won, the first is `ahead` in the mean, and the sign-flip test over the margins reaches
    5 %. Too close to tell in between.
    """
    won = sum(margin > 0 for margin in margins)
    undecided = sum(-limit <= margin <= 0 for margin, limit in zip(margins, noise, strict=True)) + missing
    if won + undecided < needed:
        return FAILS
    if not complete:
        return UNTESTED
    return HOLDS if won >= needed and ahead and sign_flip_p(margins) <= LEVEL else CLOSE


@dataclass(frozen=True)
class Finding:
    """One number behind a verdict.

    Attributes:
        what: what was measured.
        value: the number; a lead if it is `signed`.
        pairs, unit, ahead, p: how many pairs of what it comes from, in how many the first is better, sign-flip test.
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

    def number(self, value: float) -> str:
        """A value of this kind, with its digits."""
        text = fixed(value, self.digits)
        return f"+{text}" if self.signed and not text.startswith("-") else text

    @property
    def text(self) -> str:
        """The number in words."""
        details = [count_of(self.pairs, self.unit)]
        if self.ahead is not None and self.pairs > 1:
            details = [f"better in {self.ahead} of {details[0]}"]
        if self.p is not None:
            details.append(f"p = {fixed(self.p, 3)}")
        if self.paper is not None:
            details.append(f"paper, its own data: {self.number(self.paper)}")
        judged = f": {self.judged}" if self.judged else ""
        return f"{self.what}: {self.number(self.value)} ({'; '.join(details)}){judged}"


@dataclass(frozen=True)
class Judgement:
    """What a rule makes of the runs. `few` says what weakens the outcome: one seed, or too few for a test."""

    outcome: Outcome
    numbers: tuple[Finding, ...] = ()
    seeds: int = 0
    note: str = ""
    few: str = ""


@dataclass(frozen=True)
class Verdict(Judgement):
    """The judgement of one claim. `question`: the paper does not claim it."""

    key: str = ""
    claim: str = ""
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


def few_seeds(seeds: int, spread: float | None) -> str:
    """What weakens an outcome that compares means with the spread over seeds."""
    return ", ".join(["one seed"] * (seeds == 1) + ["spread over seeds unknown"] * (spread is None))


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign."""
    text = fixed(value, digits)
    return text if text.startswith("-") else f"+{text}"


def first_outcome(outcomes: Sequence[Outcome]) -> Outcome:
    """Of a claim with several parts: fails if one fails, holds if all hold."""
    return next((one for one in (FAILS, UNTESTED, CLOSE) if one in outcomes), HOLDS)
