"""Everything about a set of plans in one folder: tables, verdict, figures, page. Made from finished runs alone."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tasso.experiments.plans import PLANS, Plan, Setup
from tasso.files import write_text
from tasso.report.figures.style import require_matplotlib
from tasso.report.formats import to_csv, to_latex, to_markdown
from tasso.report.gallery import Gallery
from tasso.report.paper.claims import verdicts
from tasso.report.paper.evidence import Evidence, gather
from tasso.report.paper.figures import FOLDER, Drawn, draw_figures
from tasso.report.paper.page import Lead, write_evaluation_page
from tasso.report.paper.published import Published, published
from tasso.report.paper.record import RECORD, Names, read_record
from tasso.report.paper.tables import tables_of
from tasso.report.paper.tables.cells import PAPER, Tables, where
from tasso.report.paper.verdict import Verdict
from tasso.report.reader import ReportError
from tasso.report.tables import Cell, Column, Row, Table, count_of

log = logging.getLogger("tasso")
AS_GOOD_AS_REPLAY = (
    "GIFT's images come from the code that draws the tasks themselves: it learns earlier tasks again from new "
    "images of them, which no generator could give it. Its row shows replay rather than GIFT, and the verdict leaves "
    "it out."
)


def write(
    plans: Sequence[Plan],
    setup: Setup,
    out: Path,
    *,
    runs: Path | None = None,
    names: Names | None = None,
    figures: bool = True,
    gallery: Gallery | None = None,
    lead: Lead | None = None,
) -> list[Verdict]:
    """Write the report of these plans to `out` and return the verdicts.

    `index.md` and `index.html` have everything; each table is also in `tables/` as CSV and LaTeX, each figure in
    `figures/` as PNG and PDF; `verdict.md` and `verdict.json` have the claims alone. The verdict looks at the runs of
    all plans that are there, whichever are shown: the spread over seeds, for one, comes from a plan of its own.

    Args:
        runs: folder that holds the runs, each under its job's name; `runs` in `out` if none is named.
        names: what the runs are called, where that is written down (`record.read_record`).
        figures: draw figures; without matplotlib there are none, and the report says so.
        gallery: images for the page.
        lead: what the page says first, from the runs it draws.
    """
    every = {**PLANS, **{plan.name: plan for plan in plans}}
    evidence, paper = gather(tuple(every.values()), setup, runs or out / "runs", names), published()
    tables = {plan.name: tables_of(plan, evidence, paper) for plan in plans}
    found = verdicts(evidence, paper)
    try:
        (out / "tables").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"{out}: cannot make this folder for the report: {error.strerror}") from None
    for named in tables.values():
        for name, table in named.items():
            write_text(out / "tables" / f"{name}.csv", to_csv(table))
            write_text(out / "tables" / f"{name}.tex", to_latex(table))
    title = f"The paper's evaluation on {where(evidence)}"
    write_text(out / "verdict.json", verdict_json(found, evidence))
    write_text(out / "verdict.md", "\n".join([f"# {title}: verdict", "", *verdict_lines(found)]) + "\n")
    about = _about(evidence, paper)
    intro = "\n\n".join(about)
    write_evaluation_page(
        out, title, plans, evidence, paper, tables, found, verdict_table(found),
        intro=intro, gallery=gallery, lead=lead,
    )  # fmt: skip
    drawn, remark = _draw(plans, evidence, out) if figures else ([], "")
    write_text(out / "index.md", _index(title, plans, about, paper, tables, found, drawn, remark))
    return found


def write_again(plans: Sequence[Plan], runs: Path, out: Path, *, figures: bool = True) -> list[Verdict]:
    """The report from a folder of runs that says itself what they are; of each run `results.json` is enough."""
    record = read_record(runs)
    if record is None:
        raise ReportError(
            f"{runs / RECORD}: not found. tasso paper writes it into its folder of runs; without it, give the options "
            "with which the runs were made"
        )
    setup, names = record
    return write(plans, setup, out, runs=runs, names=names, figures=figures)


def _draw(plans: Sequence[Plan], evidence: Evidence, out: Path) -> tuple[list[Drawn], str]:
    """The figures, or why there are none: hours of training may lie behind, and the tables are there."""
    try:
        require_matplotlib()
    except ReportError as error:
        log.warning("no figures: %s", error)
        return [], f"No figures: {error}."
    return draw_figures(plans, evidence, out), ""


def verdict_table(found: Sequence[Verdict]) -> Table:
    """One line a claim, with the number that decides it."""
    rows = []
    for verdict in found:
        shown = verdict.deciding
        ours = None if shown is None else f"{shown.what}: {shown.number(shown.value)}"
        paper = None if shown is None or shown.paper is None else shown.number(shown.paper)
        claim = f"Open question: {verdict.claim}" if verdict.question else verdict.claim
        seeds = Cell(verdict.seeds or None, digits=0)
        rows.append(Row((Cell(claim), Cell(verdict.text), Cell(ours), Cell(paper), seeds)))
    columns = ("Claim", "Outcome", "Deciding number, ours", f"The same, {PAPER}")
    return Table(
        "Verdict",
        (*(Column(name, numeric=False) for name in columns), Column("Seeds")),
        tuple(rows),
        (
            "Leads are in percentage points; positive is better, whichever way the metric points.",
            "The rule of each claim is in the documentation of its function in tasso.report.paper.claims.",
        ),
    )


def verdict_lines(found: Sequence[Verdict]) -> list[str]:
    """The verdict in Markdown: a table, then every number behind it."""
    lines = [to_markdown(verdict_table(found)), "## The numbers behind it"]
    for verdict in found:
        lines += ["", f"**{verdict.claim}: {verdict.text}.**"]
        lines += [""] if verdict.numbers else []
        lines += [f"- {finding.text}" for finding in verdict.numbers]
        lines += ["", verdict.note] if verdict.note else []
    return lines


def verdict_json(found: Sequence[Verdict], evidence: Evidence) -> str:
    """The verdict for other programs."""
    models = {run.model for run in evidence.every_run()}
    document = {
        "benchmark": evidence.setup.benchmark,
        "model": next(iter(models), None),
        "verdicts": [{**asdict(verdict), "text": verdict.text} for verdict in found],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _about(evidence: Evidence, paper: Published) -> list[str]:
    """What a reader must know first, paragraph by paragraph."""
    runs = count_of(len(evidence.every_run()), "finished run")
    lines = [
        f"{runs} on {where(evidence)}. Paper: {paper.paper}. Numbers are ours unless a column or a title says "
        f'"{PAPER}": those are printed in the paper, measured with its model on its data.'
    ]
    settings = _settings(evidence)
    lines += [settings] if settings else []
    if stand_ins := evidence.stand_ins():
        lines.append(f"Stand-ins for what a method's authors use: {'; '.join(stand_ins)}.")
    if evidence.shows_replay("GIFT") and evidence.of("main", "GIFT"):
        lines.append(AS_GOOD_AS_REPLAY)
    return lines


def _settings(evidence: Evidence) -> str:
    """Steps and learning rates, which a reader of the tables must know."""
    setup = evidence.setup
    steps = [f"Steps a task: {setup.common['steps']}."] if setup.common.get("steps") else []
    rates = {name: options["lr"] for name, options in setup.by_method.items() if "lr" in options}
    told = ", ".join(f"{name} {float(rate):g}" for name, rate in sorted(rates.items()))
    return " ".join([*steps, *([f"Learning rates: {told}."] if told else [])])


def _index(
    title: str,
    plans: Sequence[Plan],
    about: Sequence[str],
    paper: Published,
    tables: Mapping[str, Tables],
    found: Sequence[Verdict],
    figures: Sequence[Drawn],
    remark: str,
) -> str:
    lines = [f"# {title}", ""]
    for paragraph in (*about, *([remark] if remark else [])):
        lines += [paragraph, ""]
    lines += ["## Verdict", "", *(line.replace("## ", "### ") for line in verdict_lines(found)), ""]
    for plan in plans:
        lines += [f"## {plan.title}", ""]
        shown = ", ".join(f"`{label}`" for label in plan.shows)
        lines += [f"In the paper: {shown}." if shown else "The paper leaves this open.", ""]
        for name, table in tables[plan.name].items():
            lines += [to_markdown(table), f"[CSV](tables/{name}.csv) · [LaTeX](tables/{name}.tex)", ""]
        for figure in figures:
            if figure.plan == plan.name:
                file = f"{FOLDER}/{figure.name}"
                lines += [f"![{figure.name}]({file}.png)", "", f"{figure.caption} [PDF]({file}.pdf)", ""]
    lines += ["## Where the paper contradicts itself", ""]
    lines += [f"- {item.where}: {item.says} or {item.shows}. {item.note}" for item in paper.contradictions]
    return "\n".join(lines) + "\n"
