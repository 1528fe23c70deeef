"""The report of an evaluation in one folder: tables, verdict, figures, page. Made from results alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from tasso.experiments.plans import PLANS, SND, TASSO, Plan
from tasso.files import write_text
from tasso.report.conclusion import conclude
from tasso.report.figures import Figure
from tasso.report.folder import write_tables
from tasso.report.formats import to_markdown
from tasso.report.page import Gallery, write_page
from tasso.report.paper.claims import verdicts
from tasso.report.paper.evaluation import Evaluation
from tasso.report.paper.figures import FOLDER, draw_figures, first_order, shown_runs
from tasso.report.paper.page import TESTED_PLANS, contradictions, tables_section, tested, untested, verdict_section
from tasso.report.paper.published import published
from tasso.report.paper.tables import PAPER, Tables, tables_of
from tasso.report.paper.verdict import FEWEST_RUNS, Verdict
from tasso.report.significance import FEWEST, LEVEL
from tasso.report.tables import Cell, Column, Row, Table, count_of

SHOWS_REPLAY = (
    "GIFT's images come from the code that draws the tasks themselves: it learns earlier tasks again from new "
    "images of them, which no generator could give it. Its row shows replay rather than GIFT, and the verdict leaves "
    "it out."
)


def write_evaluation(
    evaluation: Evaluation,
    out: Path,
    plans: Sequence[Plan] = tuple(PLANS.values()),
    *,
    figures: bool = True,
    gallery: Gallery | None = None,
    sentence: str = "",
) -> list[Verdict]:
    """Write the report of these plans to `out` and return the verdicts.

    `index.md` and `index.html` have everything; each table is also in `tables/` as CSV and LaTeX, each figure in
    `figures/` as PNG, PDF and SVG; `verdict.md` and `verdict.json` have the claims alone. The verdict is from the
    runs of all plans, whichever are shown: the spread over seeds, for one, comes from a plan of its own. Plans on
    which the paper claims nothing have none.

    Args:
        gallery: images for the page.
        sentence: what the page says first; without one it is worked out from the runs.
    """
    tables = {plan.name: tables_of(plan, evaluation) for plan in plans}
    found = verdicts(evaluation) if _tested(plans) else []
    write_tables({name: table for named in tables.values() for name, table in named.items()}, out, ("csv", "tex"))
    title = _title(plans, evaluation)
    for old in ("verdict.json", "verdict.md"):  # of an earlier report there
        (out / old).unlink(missing_ok=True)
    if found:
        write_text(out / "verdict.json", verdict_json(found, evaluation))
        write_text(out / "verdict.md", "\n".join([f"# {title}: verdict", "", *verdict_lines(found)]) + "\n")
    intro = introduction(plans, evaluation)
    shown = shown_runs(evaluation, plans)
    closely, pair = first_order(shown), {TASSO.label, SND.label}
    compared = closely[closely["label"].isin(pair)] if pair <= set(closely["label"]) else closely
    claims = [verdict_section(found, verdict_table(found))] if found else []
    write_page(
        shown,
        out / "index.html",
        title=title,
        intro="\n\n".join(intro),
        gallery=gallery,
        sentence=sentence or _sentence(plans, evaluation, shown),
        sections=[*claims, tables_section(plans, evaluation, tables)],
        matrices_of=set(closely["run"]),
        distances_of=set(compared["run"]),
    )
    drawn = draw_figures(plans, evaluation, out) if figures else {}
    write_text(out / "index.md", _index(title, plans, intro, tables, found, drawn))
    return found


def _tested(plans: Sequence[Plan]) -> bool:
    """Does the paper claim something that one of these plans tests?"""
    return any(plan.name in TESTED_PLANS for plan in plans)


def _title(plans: Sequence[Plan], evaluation: Evaluation) -> str:
    if any(plan.shows for plan in plans):
        return f"The paper's evaluation on {evaluation.where}"
    return plans[0].title if len(plans) == 1 else f"Beyond the paper: experiments on {evaluation.where}"


def _sentence(plans: Sequence[Plan], evaluation: Evaluation, shown: pd.DataFrame) -> str:
    """What the runs show; rows that show replay are left out, as in the verdict."""
    if not any(plan.rows for plan in plans):
        return "These tables need no runs."
    others = evaluation.without_replays(shown, plans)
    left_out = " GIFT is left out here: its row shows replay." if len(others) < len(shown) else ""
    return conclude(others) + left_out


def verdict_table(found: Sequence[Verdict]) -> Table:
    """One line per claim that the runs test, with the number that decides it."""
    rows = []
    for verdict in tested(found):
        shown = verdict.deciding
        ours = None if shown is None else f"{shown.what}: {shown.number(shown.value)}"
        paper = None if shown is None or shown.paper is None else shown.number(shown.paper)
        claim = f"Open question: {verdict.claim}" if verdict.question else verdict.claim
        seeds = Cell(verdict.seeds or None, digits=0)
        rows.append(Row((Cell(claim), Cell(verdict.text), Cell(ours), Cell(paper), seeds)))
    names = ("Claim", "Outcome", "Deciding number, ours", f"The same, {PAPER}")
    tests = sum(finding.p is not None for verdict in found for finding in verdict.numbers)
    notes = (
        "Leads are in percentage points; positive is better, whichever way the metric points.",
        f"A test needs {FEWEST} pairs: sequences (means over their seeds), or seeds where there is one sequence. A "
        f"claim without a test needs {FEWEST_RUNS} runs."
        + (
            f" Tests are one-sided sign-flip tests at {LEVEL:.0%}, corrected by Holm's method over all {tests} tests "
            "behind this table."
            if tests
            else ""
        ),
        "The rule of each claim is in tasso.report.paper.claims, what it does in tasso.report.paper.rules.",
        *filter(None, [untested(found)]),
    )
    columns = (*(Column(name, numeric=False) for name in names), Column("Seeds"))
    return Table("Verdict", columns, tuple(rows), notes)


def verdict_lines(found: Sequence[Verdict]) -> list[str]:
    """The verdict in Markdown: a table, then every number behind it."""
    if not tested(found):
        return [untested(found)]
    lines = [to_markdown(verdict_table(found)), "## The numbers behind it"]
    for verdict in tested(found):
        lines += ["", f"**{verdict.claim}: {verdict.text}.**"]
        lines += [""] if verdict.numbers else []
        lines += [f"- {finding.text}" for finding in verdict.numbers]
        lines += ["", verdict.note] if verdict.note else []
    return lines


def verdict_json(found: Sequence[Verdict], evaluation: Evaluation) -> str:
    """The verdict for other programs."""
    document = {
        "benchmark": evaluation.record.setup.benchmark,
        "split": evaluation.record.setup.split,
        "model": evaluation.model,
        "verdicts": [{**asdict(verdict), "text": verdict.text} for verdict in found],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def introduction(plans: Sequence[Plan], evaluation: Evaluation) -> list[str]:
    """What a reader of these plans must know first, paragraph by paragraph."""
    runs = evaluation.of([plan.name for plan in plans]).run_table
    every = evaluation.frame["run"].nunique()
    verdict = f"; the verdict is from all {every} that were found" if every > len(runs) and _tested(plans) else ""
    found = f"{count_of(len(runs), 'finished run')} on {evaluation.where}{verdict}"
    lines = [f"{found}. Paper: {published().paper}."]
    if any(plan.shows for plan in plans):
        lines[0] += (
            f' Numbers are ours unless a column or a title says "{PAPER}": those are printed in the paper, measured '
            "with its model on its data. Its authors chose their options on the test images."
        )
    by_method = evaluation.record.setup.by_method
    given = {method: by_method.get(method, {}).get("lr") for method in sorted(set(runs["method"]))}
    if rates := [f"{method} {float(rate):g}" for method, rate in given.items() if rate is not None]:
        lines.append(f"Learning rates: {', '.join(rates)}.")
    rows = [(plan, row) for plan in plans for row in plan.rows if evaluation.stand_in(plan, row)]
    if rows:
        names = dict.fromkeys(evaluation.name_of(plan, row) for plan, row in rows)
        lines.append(f"Stand-ins for what a method's authors use: {'; '.join(names)}.")
    if evaluation.replays(plans):
        lines.append(SHOWS_REPLAY)
    return lines


def _index(
    title: str,
    plans: Sequence[Plan],
    intro: Sequence[str],
    tables: Mapping[str, Tables],
    found: Sequence[Verdict],
    figures: Mapping[str, Sequence[Figure]],
) -> str:
    lines = [f"# {title}", ""]
    whole = "[The same as one page](index.html), with filters and values under the pointer."
    for paragraph in (*intro, whole):
        lines += [paragraph, ""]
    if found:
        lines += ["## Verdict", "", *(line.replace("## ", "### ") for line in verdict_lines(found)), ""]
    for plan in plans:
        lines += [f"## {plan.title}", ""]
        shown = ", ".join(f"`{label}`" for label in plan.shows)
        lines += [f"In the paper: {shown}." if shown else "The paper leaves this open.", ""]
        for name, table in tables[plan.name].items():
            lines += [to_markdown(table), f"[CSV](tables/{name}.csv) · [LaTeX](tables/{name}.tex)", ""]
        for figure in figures.get(plan.name, ()):
            file = f"{FOLDER}/{figure.name}"
            lines += [f"![{figure.name}]({file}.png)", ""]
            lines += [f"{figure.caption} [PDF]({file}.pdf) · [SVG]({file}.svg)", ""]
    if any(plan.shows for plan in plans):
        lines += ["## Where the paper contradicts itself", "", *(f"- {sentence}" for sentence in contradictions())]
    return "\n".join(lines) + "\n"
