"""Sections of the page of an evaluation: the verdict, then the plans' tables with the paper's numbers kept apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from tasso.experiments.plans import Plan
from tasso.report.frame import SETTINGS, Setting
from tasso.report.paper.evaluation import Evaluation
from tasso.report.paper.published import published
from tasso.report.paper.tables import PAPER, Tables
from tasso.report.paper.verdict import CLOSE, FAILS, FEW, HOLDS, UNTESTED, Outcome, Verdict
from tasso.report.sections import Block, Folded, Part, Section, Shown
from tasso.report.tables import Table, count_of
from tasso.report.templates import render

# Symbol, CSS class and words (one, several), in the order in which they are counted.
OUTCOMES: dict[Outcome, tuple[str, str, tuple[str, str]]] = {
    HOLDS: ("✓", "holds", ("holds", "hold")),
    FAILS: ("✗", "fails", ("does not hold", "do not hold")),
    CLOSE: ("≈", "close", ("is too close to tell", "are too close to tell")),
    FEW: ("…", "few", ("has not enough runs", "have not enough runs")),
    UNTESTED: ("–", "untested", ("is not tested", "are not tested")),
}


# What the plans behind claims are about, in the order of the page.
THEMES = {
    "TASSO against other methods": ("main", "seeds"),
    "What its parts contribute": ("components", "whole-kd", "distances", "optimisation"),
    "How much it depends on r, α and β": ("rank", "alpha", "beta"),
    "Images and class texts": ("alignment",),
    "Training time": ("compute",),
    "What the paper leaves open": ("projector",),
}
TESTED_PLANS = {plan for plans in THEMES.values() for plan in plans}


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def tally(found: Sequence[Verdict]) -> str:
    """How many claims have which outcome, in a sentence; open questions are not the paper's claims."""
    claims = [verdict for verdict in found if not verdict.question]
    return f"Of {len(claims)} claims of the paper, {_listed(_counts(claims))} on this benchmark."


def tested(found: Sequence[Verdict]) -> list[Verdict]:
    """Those of claims on which the runs say something, if only that more are needed."""
    return [verdict for verdict in found if verdict.outcome != UNTESTED]


def untested(found: Sequence[Verdict]) -> str:
    """How many claims the runs say nothing about, and the plans that would; "" where they say something about all."""
    lacking = [verdict for verdict in found if verdict.outcome == UNTESTED]
    if not lacking:
        return ""
    questions = sum(verdict.question for verdict in lacking)
    claims = len(lacking) - questions
    counted = [f"{count_of(claims, 'claim')} of the paper"] if claims else []
    counted += [count_of(questions, "open question")] if questions else []
    plans = list(dict.fromkeys(verdict.plan for verdict in lacking))
    needed = f"{'plan' if len(plans) == 1 else 'plans'} {_listed(plans)}"
    return f"Not tested on this benchmark: {_listed(counted)}. All runs of the {needed} are needed for that."


def _counts(found: Sequence[Verdict]) -> list[str]:
    counts = Counter(verdict.outcome for verdict in found)
    return [f"{counts[one]} {words[counts[one] != 1]}" for one, (*_, words) in OUTCOMES.items() if counts[one]]


def verdict_section(found: Sequence[Verdict], table: Table) -> Section:
    """Theme by theme; each claim opens to the numbers behind it. A sentence counts those that are not tested."""
    words = (
        f"{tally(found)} Judged by runs on the benchmark at hand. Leads are in percentage points, positive is better. "
        "Each line opens to the numbers behind it; the guide says how they are judged."
    )
    parts: list[Part] = [words] if tested(found) else []
    for theme, plans in THEMES.items():
        claims = [verdict for verdict in tested(found) if verdict.plan in plans]
        if claims:
            parts.append(Block([_claims(claims)], heading=theme, remark=", ".join(_counts(claims))))
    parts += filter(None, [untested(found)])
    parts += [Folded("The verdict as a table", [Shown("verdict", table)])] if table.rows else []
    return Section("verdict", "What the paper claims", parts, short="Claims")


def tables_section(plans: Sequence[Plan], evaluation: Evaluation, tables: Mapping[str, Tables]) -> Section:
    """One part per plan; what the paper prints is folded away within it."""
    of_paper = any(plan.shows for plan in plans)
    words = (
        f'Ours, unless a column or a title says "{PAPER}": those numbers are printed in the paper, measured with its '
        "model on its data. They are set apart, and nothing is marked across."
    )
    parts: list[Part] = [words] if of_paper else []
    for plan in plans:
        missing, wanted = evaluation.missing(plan.name)
        remark = f"{wanted - missing} of {count_of(wanted, 'run')}" if wanted else ""
        shown = {name: Shown(name, table, setting_of(name)) for name, table in tables[plan.name].items()}
        ours: list[Part] = [part for name, part in shown.items() if not name.startswith("paper-")]
        printed: list[Part] = [part for name, part in shown.items() if name.startswith("paper-")]
        ours += [Folded(f"Printed in the paper ({PAPER})", printed)] if printed else []
        parts.append(Folded(plan.title, ours, remark, large=True, open=plan is plans[0]))
    if of_paper:
        parts.append(Folded("Where the paper contradicts itself", [_list(contradictions())], large=True))
    return Section("tables", "The paper's tables" if of_paper else "Tables", parts, short="Tables")


def contradictions() -> list[str]:
    """Places of the paper that cannot both be right, a sentence each."""
    return [f"{item.where}: {item.says} or {item.shows}. {item.note}" for item in published().contradictions]


def setting_of(name: str) -> Setting | None:
    """The setting that a claim or a table is about, from its name."""
    return next((setting for setting in SETTINGS if f"-{setting}" in name), None)


def _list(items: Sequence[str]) -> Markup:
    return Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(item) for item in items))


def _claims(found: Sequence[Verdict]) -> Markup:
    lines = [(verdict, *OUTCOMES[verdict.outcome][:2], setting_of(verdict.key)) for verdict in found]
    return render("claims.html", lines=lines)
