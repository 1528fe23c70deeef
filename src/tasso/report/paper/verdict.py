"""What a verdict on a claim is made of.

The claims and their rules are in `claims`. Comparisons are paired (same sequence, same seed) and judged by
`paired.judge`; "ahead", "behind" and "too close" mean what it says there. A lead is in percentage points and positive
where the first named is better, whichever way the metric points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from tasso.experiments.plans import PLANS
from tasso.report.collect import Setting
from tasso.report.paper.evidence import Evidence, direction, pair
from tasso.report.paper.paired import (
    CLOSE,
    ENOUGH,
    FAILS,
    HOLDS,
    UNTESTED,
    Outcome,
    Paired,
    judge,
)
from tasso.report.paper.published import PublishedTable
from tasso.report.tables import SETTING_NAMES, count_of, fixed

WORDS = {"accuracy": "accuracy", "forgetting": "forgetting", "zero_shot_degradation": "zero-shot degradation"}


@dataclass(frozen=True)
class Finding:
    """One number behind a verdict. `signed` ones are leads. `paper` is the same number from the paper, on its data.

    `outcome` is what it alone would make of the claim, `judged` says how it was judged.
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
        """A value of this kind in the digits it deserves."""
        text = fixed(value, self.digits)
        return f"+{text}" if self.signed and not text.startswith("-") else text

    @property
    def text(self) -> str:
        """The number in words."""
        told = [count_of(self.pairs, self.unit)]
        if self.ahead is not None and self.pairs > 1:
            told = [f"better in {self.ahead} of {told[0]}"]
        if self.p is not None:
            told.append(f"p = {fixed(self.p, 3)}")
        if self.paper is not None:
            told.append(f"paper, its own data: {self.number(self.paper)}")
        judged = f": {self.judged}" if self.judged else ""
        return f"{self.what}: {self.number(self.value)} ({'; '.join(told)}){judged}"


@dataclass(frozen=True)
class Verdict:
    """`few` says what weakens an outcome: one seed, or too few for a test. `question`: the paper does not claim it."""

    key: str
    claim: str
    outcome: Outcome
    numbers: tuple[Finding, ...] = ()
    seeds: int = 0
    note: str = ""
    few: str = ""
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


@dataclass(frozen=True)
class Part:
    """One comparison of a claim with several. Unless it must be `ahead`, it is enough not to be behind."""

    what: str
    paired: Paired | None
    spread: float | None
    paper: float | None = None
    ahead: bool = True


_JUDGED: dict[Outcome, str] = {HOLDS: "ahead", FAILS: "behind", CLOSE: "too close to tell"}


def decide(key: str, claim: str, parts: Sequence[Part], *, note: str = "", question: bool = False) -> Verdict:
    """Holds if all parts do; does not hold if one does not; untested while runs are missing and none refutes it."""
    findings, outcomes = [], []
    for part in parts:
        if part.paired is None:
            outcomes.append(UNTESTED)
            continue
        judged = judge(part.paired, part.spread)
        outcomes.append(HOLDS if judged == CLOSE and not part.ahead else judged)
        leads, count = part.paired, len(part.paired.leads)
        findings.append(
            Finding(
                part.what, leads.mean, count, leads.unit, leads.ahead, leads.p, part.paper,
                outcome=outcomes[-1], judged=_JUDGED[judged] if part.ahead or judged != CLOSE else "not behind",
            )
        )  # fmt: skip
    outcome = next((one for one in (FAILS, UNTESTED, CLOSE) if one in outcomes), HOLDS)
    present = [part for part in parts if part.paired is not None]
    seeds = min((part.paired.seeds for part in present if part.paired), default=0)
    return Verdict(key, claim, outcome, tuple(findings), seeds, note, _few(outcome, present), question)


def _few(outcome: Outcome, parts: Sequence[Part]) -> str:
    pairs = min((len(part.paired.leads) for part in parts if part.paired), default=0)
    if outcome == UNTESTED or pairs >= ENOUGH:
        return ""
    if pairs == 1:
        known = all(part.spread is not None for part in parts)
        return "one seed" if known else "one seed, spread over seeds unknown"
    return f"{count_of(pairs, 'seed')}, too few for a test"


def compare(
    evidence: Evidence, published: PublishedTable | None, plan: str, first: str, second: str, setting: Setting,
    metric: str, *, keys: tuple[str, str] = ("", ""), words: str = "", ahead: bool = True,
) -> Part:  # fmt: skip
    """The first row of a plan against the second; `keys` are their keys in the paper's table."""
    values = [evidence.values(plan, row, setting, metric) for row in (first, second)]
    printed = None if published is None else direction(metric) * float(difference(published, None, metric, *keys))
    what = f"{SETTING_NAMES[setting]} {WORDS[metric]}, {words or f'{first} against {second}'}"
    return Part(what, pair(values[0], values[1], metric), evidence.spread(setting, metric), printed, ahead)


def difference(table: PublishedTable, metric: str | None, column: str, first: str, second: str) -> Decimal:
    """First less second, with the digits that are printed."""
    texts = [table.text(row, column, metric) for row in (first, second)]
    return Decimal(texts[0] or "NaN") - Decimal(texts[1] or "NaN")


def with_sign(value: float) -> str:
    text = fixed(value, 2)
    return text if text.startswith("-") else f"+{text}"


def missing_note(evidence: Evidence, plan: str) -> str:
    missing, wanted = evidence.missing(PLANS[plan])
    if not wanted:
        return f"The plan {plan} was not run."
    # None may be missing where fewer sequences or seeds were asked for than the claim is about.
    if not missing:
        return f"The plan {plan} is cut short."
    return f"{missing} of {wanted} runs of the plan {plan} are missing."


def untested(key: str, claim: str, evidence: Evidence, plan: str) -> Verdict:
    return Verdict(key, claim, UNTESTED, note=missing_note(evidence, plan))


def or_untested(verdict: Verdict, evidence: Evidence, plan: str) -> Verdict:
    """Say which runs are missing where that is why nothing can be said."""
    if verdict.outcome != UNTESTED:
        return verdict
    return replace(verdict, note=f"{verdict.note} {missing_note(evidence, plan)}".strip())
