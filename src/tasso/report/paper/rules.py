"""Rules of claims: each queries the runs of an evaluation, and judges.

All comparisons are paired (same sequence, same seed). "Ahead", "behind" and "too close to tell" are defined by
`verdict.judge`. A rule is untested while runs are missing, unless those that are there refute it. Where it tests, its
findings have the p-values, and it judges them as `correct` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean

import pandas as pd

from tasso.experiments.plans import MAIN, PLANS, SEQUENCES, TASSO
from tasso.report.frame import Setting
from tasso.report.paper.evaluation import LEVELS, Evaluation
from tasso.report.paper.published import CORE, printed, printed_tables, published
from tasso.report.paper.verdict import (
    CLOSE,
    FAILS,
    FEW,
    FEWEST_RUNS,
    HOLDS,
    UNTESTED,
    Correct,
    Finding,
    Judgement,
    Outcome,
    Paired,
    direction,
    few_seeds,
    first_outcome,
    judge,
    judge_wins,
    pair,
    signed,
    threshold,
    too_few,
)
from tasso.report.significance import FEWEST
from tasso.report.tables import CORE_METRICS, SETTING_NAMES, count_of, fixed

Rule = Callable[[Evaluation, Correct], Judgement]

METRIC_NAMES = {metric.key: metric.name.lower() for metric in CORE_METRICS}
_JUDGED: dict[Outcome, str] = {HOLDS: "ahead", FAILS: "behind", CLOSE: "too close to tell"}


@dataclass(frozen=True)
class RowComparison:
    """One row of a plan against another.

    Attributes:
        rivals: the second row; of several the best, named by `{rival}` in `words`.
        words: what is compared; by default the labels of the rows.
        ahead: must the first be ahead? Otherwise it is enough that it is not behind.
        less: two more rows, whose difference is subtracted: a difference of differences.
    """

    plan: str
    setting: Setting
    metric: str
    first: str
    rivals: str | tuple[str, ...]
    words: str = ""
    ahead: bool = True
    less: tuple[str, str] | None = None

    def judged(self, evaluation: Evaluation, correct: Correct) -> tuple[Paired, Finding] | None:
        """The leads and what they say; None while runs are missing."""
        rivals = (self.rivals,) if isinstance(self.rivals, str) else self.rivals
        leads = {rival: found for rival in rivals if (found := self._leads(evaluation, rival)) is not None}
        if len(leads) < len(rivals):
            return None
        rival = min(leads, key=lambda name: leads[name].mean)
        paired = leads[rival]
        outcome = judge(paired, correct)
        papers = [value for one in rivals if (value := self._printed_lead(one)) is not None]
        words = self.words.format(rival=rival) or f"{self.first} against {rival}"
        finding = Finding(
            f"{SETTING_NAMES[self.setting]} {METRIC_NAMES[self.metric]}, {words}",
            paired.mean, len(paired.leads), paired.unit, paired.ahead, paired.p, min(papers, default=None),
            outcome=HOLDS if outcome == CLOSE and not self.ahead else outcome,
            judged=_JUDGED.get(outcome, "") if self.ahead or outcome != CLOSE else "not behind",
        )  # fmt: skip
        return paired, finding

    def _leads(self, evaluation: Evaluation, rival: str) -> Paired | None:
        rows = (self.first, rival, *(self.less or ()))
        values = [evaluation.values(self.plan, row, self.setting, self.metric) for row in rows]
        first, second = values[:2] if len(values) == 2 else (values[0] - values[1], values[2] - values[3])
        return pair(first, second, self.metric)

    def _printed_lead(self, rival: str) -> float | None:
        rows = (self.first, rival, *(self.less or ()))
        values = [printed(self.plan, row, self.setting, self.metric) for row in rows]
        numbers = [value for value in values if value is not None]
        if len(numbers) < len(rows):
            return None
        signs = (1, -1, -1, 1)
        return direction(self.metric) * float(sum(map(Decimal.__mul__, numbers, map(Decimal, signs)), Decimal()))


class Ahead:
    """Holds if every comparison does, does not hold if one does not.

    `resolution`: where nothing is decided, say how small a difference would not be seen.
    """

    def __init__(self, *comparisons: RowComparison, resolution: bool = False) -> None:
        self.comparisons, self.resolution = comparisons, resolution

    def __call__(self, evaluation: Evaluation, correct: Correct) -> Judgement:
        found = [judged for one in self.comparisons if (judged := one.judged(evaluation, correct)) is not None]
        findings = tuple(finding for _, finding in found)
        outcomes = [finding.outcome or UNTESTED for finding in findings]
        outcome = first_outcome([*outcomes, *[UNTESTED] * (len(self.comparisons) - len(found))])
        seeds = min((paired.seeds for paired, _ in found), default=0)
        few = note = ""
        if outcome == FEW:
            fewest = min(findings, key=lambda finding: finding.pairs)
            few = too_few(fewest.pairs, fewest.unit, FEWEST)
        spread = evaluation.spread("mtil", "accuracy")
        if self.resolution and outcome in (CLOSE, FEW) and spread is not None:
            limit = fixed(threshold(findings[0].pairs, spread), 2)
            note = f"Not shown to be nothing: a difference in MTIL accuracy below about {limit} would not be seen here."
        return Judgement(outcome, findings, seeds, note, few)


def printed_wins(setting: Setting, metric: str) -> int:
    """On how many sequences TASSO is best in the paper's table."""
    (table,) = printed_tables("main", setting)
    rows = [row for row in table.rows if row.metric == metric]
    best = max if metric == "accuracy" else min
    columns = [{row.key: float(row.values[index]) for row in rows} for index in range(len(SEQUENCES))]
    return sum(column["tasso"] == best(column.values()) for column in columns)


@dataclass(frozen=True)
class Best:
    """TASSO is the best of the methods that the paper compares in this setting, on as many sequences as it says.

    A sequence is won if TASSO is better than every other method there (means over the seeds that both have). Judged by
    `judge_wins` over TASSO's leads over the best other method of each sequence; the noise of a sequence is two standard
    errors of the seeds, and TASSO's mean over the sequences must be best. A row that shows replay is left out, and
    named in the note.
    """

    setting: Setting
    metric: str

    def __call__(self, evaluation: Evaluation, correct: Correct) -> Judgement:
        (table,) = printed_tables("main", self.setting)
        compared = [row for row in MAIN if row != TASSO and table.find(row.printed, self.metric)]
        rivals = [row.label for row in compared if not evaluation.shows_replay(PLANS["main"], row)]
        ours = evaluation.values("main", TASSO.label, self.setting, self.metric)
        leads = pd.DataFrame({rival: self._by_sequence(evaluation, ours, rival) for rival in rivals}, SEQUENCES)
        margins, complete = leads.min(axis=1).dropna(), not leads.isna().any(axis=None)
        if margins.empty:
            return Judgement(UNTESTED)
        nearest = leads.loc[margins.index].idxmin(axis=1)
        means = leads.mean().dropna()
        runner_up, mean_lead = str(means.idxmin()), float(means.min())
        seeds = ours.index.get_level_values("seed").nunique()
        spread = evaluation.spread(self.setting, self.metric)
        noise = threshold(seeds, spread)
        needed, missing = printed_wins(self.setting, self.metric), len(SEQUENCES) - len(margins)
        paired = Paired(tuple(margins), "sequence", seeds)
        outcome = judge_wins(
            paired, [noise] * len(margins), needed, missing, correct, complete=complete, ahead=mean_lead > 0
        )
        papers = [self._printed_lead(rival) for rival in rivals]
        findings = (
            Finding("sequences won", paired.ahead, len(margins), "sequence", paper=needed, signed=False, digits=0),
            Finding(
                "lead over the best other method of each sequence, mean", paired.mean, len(margins), "sequence",
                paired.ahead, paired.p,
            ),
            Finding(
                f"lead over the next best mean ({runner_up})", mean_lead, len(margins), "sequence", paper=min(papers)
            ),
        )  # fmt: skip
        notes = [", ".join(f"{name} {signed(lead)} ({nearest[name]})" for name, lead in margins.items()) + "."]
        if spread is not None and (within := int((margins.abs() < noise).sum())):
            notes.append(
                f"Within two standard errors of the seeds ({fixed(noise, 2)}): {within} of {len(margins)} leads."
            )
        notes += self._left_out(evaluation, ours, rivals)
        if outcome in (FAILS, FEW) and not complete:
            why = evaluation.missing_note("main")
            notes.append(f"{why[0].upper()}{why[1:]}.")
        few = "" if outcome == UNTESTED else few_seeds(seeds, spread)
        if outcome == FEW:
            few = too_few(len(margins), "sequence", FEWEST)
        return Judgement(outcome, findings, seeds, " ".join(notes), few)

    def _by_sequence(self, evaluation: Evaluation, ours: pd.Series[float], rival: str) -> pd.Series[float]:
        theirs = evaluation.values("main", rival, self.setting, self.metric)
        return direction(self.metric) * (ours - theirs).dropna().groupby(level="sequence").mean()

    def _printed_lead(self, rival: str) -> float:
        ours, theirs = (printed("main", row, self.setting, self.metric) for row in (TASSO.label, rival))
        assert ours is not None
        assert theirs is not None
        return direction(self.metric) * float(ours - theirs)

    def _left_out(self, evaluation: Evaluation, ours: pd.Series[float], rivals: list[str]) -> list[str]:
        """Methods that we ran and that are not compared here."""
        notes = []
        for row in MAIN:
            theirs = evaluation.values("main", row.label, self.setting, self.metric)
            if row == TASSO or row.label in rivals or (paired := pair(ours, theirs, self.metric)) is None:
                continue
            behind = sum(lead < 0 for lead in paired.leads)
            by_paper = f"which the paper leaves out in {SETTING_NAMES[self.setting]}"
            why = "whose row shows replay" if evaluation.shows_replay(PLANS["main"], row) else by_paper
            notes.append(
                f"{row.label}, {why}, is better than TASSO in {behind} of "
                f"{count_of(len(paired.leads), paired.unit)} (TASSO's lead: {signed(paired.mean)})."
            )
        return notes


@dataclass(frozen=True)
class SmallRange:
    """Accuracy hardly changes over the values of a hyper-parameter.

    The paper calls its own range (highest less lowest mean accuracy over its three values) stable, so that range is the
    yardstick. Holds if our range is no larger, or if it is within two standard errors of a difference over seeds. Does
    not hold if it is larger than both together; without a known spread over seeds that is too close to tell. Too close
    to tell in between. The other two metrics are shown, not judged.
    """

    plan: str
    sign: str
    setting: Setting

    def __call__(self, evaluation: Evaluation, correct: Correct) -> Judgement:
        rows = PLANS[self.plan].rows
        tables = {
            metric: pd.DataFrame(
                {row.label: evaluation.values(self.plan, row.label, self.setting, metric) for row in rows}
            )
            for metric in CORE
        }
        shared = tables["accuracy"].dropna().index
        if shared.empty:
            return Judgement(UNTESTED)
        labels = (row.label_at(evaluation.record.setup).split(" of ")[0] for row in rows)
        settings = ", ".join(label.removeprefix(f"{self.sign} = ") for label in labels)
        findings = []
        for metric, table in tables.items():
            means = table.reindex(shared).mean(skipna=False)
            if means.isna().any():
                continue  # runs of a single task have nothing to forget
            papers = [float(printed(self.plan, row.label, self.setting, metric) or "nan") for row in rows]
            findings.append(
                Finding(
                    f"range of {METRIC_NAMES[metric]} over {self.sign} = {settings}", float(means.max() - means.min()),
                    len(shared), "seed", paper=max(papers) - min(papers), signed=False,
                )
            )  # fmt: skip
        seeds = shared.get_level_values("seed").nunique()
        if seeds < FEWEST_RUNS:
            return Judgement(FEW, tuple(findings), seeds, few=too_few(seeds, "seed", FEWEST_RUNS))
        spread = evaluation.spread(self.setting, "accuracy")
        noise = threshold(seeds, spread)
        found, allowed = findings[0].value, findings[0].paper or 0.0
        outcome = FAILS
        if found <= allowed or (spread is not None and found <= noise):
            outcome = HOLDS
        elif found <= allowed + noise:
            outcome = CLOSE
        note = "" if spread is None else f"Two standard errors of a difference over seeds: {fixed(noise, 2)}."
        return Judgement(outcome, tuple(findings), seeds, note, few_seeds(seeds, spread))


@dataclass(frozen=True)
class SmallSpread:
    """The standard deviation over seeds is as small as the paper's, in all three metrics (MTIL, S1).

    The paper's are population deviations (n, not n - 1), and so are these. Holds if none is more than 2.4 times the
    paper's: with seven seeds each, two samples of one distribution differ less than that in 19 of 20 cases (F 6, 6).
    Does not hold otherwise. Needs six seeds.
    """

    larger: float = 2.4

    def __call__(self, evaluation: Evaluation, correct: Correct) -> Judgement:
        findings, seeds = [], 0
        for metric in CORE:
            values = evaluation.values("seeds", TASSO.label, "mtil", metric)
            seeds = len(values)
            if not seeds:
                return Judgement(UNTESTED)
            if seeds < FEWEST:
                return Judgement(FEW, seeds=seeds, few=too_few(seeds, "seed", FEWEST))
            found, paper = float(values.std(ddof=0)), published().tables["seeds"].number_of("std", metric)
            assert paper is not None
            outcome = HOLDS if found <= self.larger * paper else FAILS
            what = f"standard deviation of {METRIC_NAMES[metric]}"
            findings.append(Finding(what, found, seeds, "seed", paper=paper, signed=False, outcome=outcome))
        return Judgement(first_outcome([one.outcome or UNTESTED for one in findings]), tuple(findings), seeds)


@dataclass(frozen=True)
class Closer:
    """After the last task of S1, images lie closer to the texts of their classes with TASSO than with SnD.

    The measure is the paper's: for each data set the median over classes of the distance between the text and the mean
    of its images, mean over the seeds that both have. Judged by `judge_wins` over the data sets; the noise of a data
    set is two standard errors over seeds. Needs three seeds. Distances of single images are shown, not judged.
    """

    needed: int
    of: int

    def __call__(self, evaluation: Evaluation, correct: Correct) -> Judgement:
        leads = evaluation.closer("classes")
        if leads.empty or len(leads.columns) < self.of:
            return Judgement(UNTESTED)
        means, seeds = leads.mean(), len(leads)
        paired = Paired(tuple(means), "data set", seeds)
        noise = 2 * leads.std() / leads.count() ** 0.5
        outcome, few = FEW, too_few(seeds, "seed", FEWEST_RUNS)
        if seeds >= FEWEST_RUNS:
            outcome, few = judge_wins(paired, list(noise), self.needed, 0, correct, complete=True, ahead=True), ""
        findings = [
            Finding(
                "data sets on which TASSO is closer", paired.ahead, self.of, "data set", paper=self.needed,
                signed=False, digits=0,
            )
        ]  # fmt: skip
        words = {"classes": "class text to the mean of its images", "images": "image to its class text"}
        for level in LEVELS:
            values = list(evaluation.closer(level).mean())
            what = f"how much closer, {words[level]}, mean of medians"
            ahead = sum(value > 0 for value in values)
            p = paired.p if level == "classes" and outcome != FEW else None
            findings.append(Finding(what, fmean(values), len(values), "data set", ahead, p, digits=4))
        note = ", ".join(f"{task} {signed(lead, 4)}" for task, lead in means.items()) + "."
        return Judgement(outcome, tuple(findings), seeds, note, few)


@dataclass(frozen=True)
class TimeRatio:
    """Mean training time of one row over that of another: holds up to `holds`, does not hold above `fails`.

    In between it is too close to tell: the same run took 7 % less or more. Needs three timed runs of each.
    """

    first: str
    second: str
    words: str
    holds: float
    fails: float

    def __call__(self, evaluation: Evaluation, correct: Correct) -> Judgement:
        ours, theirs = (evaluation.seconds(row) for row in (self.first, self.second))
        runs = min(len(ours), len(theirs))
        if not runs or not sum(theirs):
            return Judgement(UNTESTED)
        ratio = fmean(ours) / fmean(theirs)
        paper = _printed_seconds(self.first) / _printed_seconds(self.second)
        finding = Finding(self.words, ratio, runs, "run", paper=paper, signed=False, digits=3)
        if runs < FEWEST_RUNS:
            return Judgement(FEW, (finding,), runs, few=too_few(runs, "run", FEWEST_RUNS))
        outcome = HOLDS if ratio <= self.holds else FAILS if ratio > self.fails else CLOSE
        return Judgement(outcome, (finding,), runs)


def _printed_seconds(label: str) -> float:
    row = next(row for row in PLANS["compute"].rows if row.label == label)
    text = published().tables["compute"].text(row.printed, "Wall-clock time") or ""
    hours, minutes, seconds = (int(part.strip("hms")) for part in text.split())
    return float(3600 * hours + 60 * minutes + seconds)
