"""Everything about a set of plans in one folder: tables, verdict, page. Made from finished runs alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tasso.files import write_text
from tasso.paper.claims import verdicts
from tasso.paper.evidence import Evidence, gather
from tasso.paper.plans import PLANS, Plan, Setup
from tasso.paper.published import Published, published
from tasso.paper.tables import tables_of
from tasso.paper.tables.cells import PAPER, Tables, where
from tasso.paper.verdict import Verdict
from tasso.report.formats import to_csv, to_latex, to_markdown
from tasso.report.page import write_page
from tasso.report.tables import Cell, Column, Row, Table, count_of


@dataclass(frozen=True)
class Figure:
    """A picture that belongs to a plan; `file` is relative to the report's folder."""

    plan: str
    title: str
    file: Path


# Draws what the plans show into a folder and says what it has drawn.
Draw = Callable[[Sequence[Plan], Evidence, Path], Sequence[Figure]]


def no_figures(plans: Sequence[Plan], evidence: Evidence, folder: Path) -> Sequence[Figure]:
    """Draws nothing."""
    return ()


def write(
    plans: Sequence[Plan], setup: Setup, out: Path, *, runs: Path | None = None, draw: Draw = no_figures
) -> list[Verdict]:
    """Write the report of these plans to `out` and return the verdicts.

    `index.md` has everything; each table is also in `tables/` as CSV and LaTeX; `verdict.md` and `verdict.json` have
    the claims alone; `index.html` shows the runs, once there are any. The verdict looks at the runs of all plans that
    are there, whichever are shown: the spread over seeds, for one, comes from a plan of its own.

    Args:
        runs: folder that holds the runs, each under its job's name; `runs` in `out` if none is named.
        draw: adds figures.
    """
    evidence, paper = gather(tuple(PLANS.values()), setup, runs or out / "runs"), published()
    tables = {plan.name: tables_of(plan, evidence, paper) for plan in plans}
    found = verdicts(evidence, paper)
    (out / "tables").mkdir(parents=True, exist_ok=True)
    for named in tables.values():
        for name, table in named.items():
            write_text(out / "tables" / f"{name}.csv", to_csv(table))
            write_text(out / "tables" / f"{name}.tex", to_latex(table))
    title = f"The paper's evaluation on {where(evidence)}"
    write_text(out / "verdict.json", verdict_json(found, evidence))
    write_text(out / "verdict.md", "\n".join([f"# {title}: verdict", "", *verdict_lines(found)]) + "\n")
    figures = draw(plans, evidence, out)
    write_text(out / "index.md", _index(title, plans, evidence, paper, tables, found, figures))
    # A timed run is the same once more, with the machine to itself: on the page it would count one seed twice.
    if finished := evidence.every_run([plan for plan in PLANS.values() if not plan.tag]):
        write_page(finished, out / "index.html", title=title, intro=_intro(evidence))
    return found


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
            "The rule of each claim is in the documentation of its function in tasso.paper.claims.",
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


def _intro(evidence: Evidence) -> str:
    runs = count_of(len(evidence.every_run()), "finished run")
    return f"{runs} on {where(evidence)}. Tables beside the paper's numbers and the verdict are in index.md."


def _index(
    title: str,
    plans: Sequence[Plan],
    evidence: Evidence,
    paper: Published,
    tables: Mapping[str, Tables],
    found: Sequence[Verdict],
    figures: Sequence[Figure],
) -> str:
    lines = [f"# {title}", "", f"Paper: {paper.paper}.", ""]
    lines += [
        f"{count_of(len(evidence.every_run()), 'finished run')}. Numbers are ours unless a column or a title says "
        f'"{PAPER}": those are printed in the paper, measured with its model on its data.',
        "",
    ]
    lines += ["## Verdict", "", *(line.replace("## ", "### ") for line in verdict_lines(found)), ""]
    for plan in plans:
        lines += [f"## {plan.title}", ""]
        shown = ", ".join(f"`{label}`" for label in plan.shows)
        lines += [f"In the paper: {shown}." if shown else "The paper leaves this open.", ""]
        for name, table in tables[plan.name].items():
            lines += [to_markdown(table), f"[CSV](tables/{name}.csv) · [LaTeX](tables/{name}.tex)", ""]
        drawn = [figure for figure in figures if figure.plan == plan.name]
        lines += [line for figure in drawn for line in (f"![{figure.title}]({figure.file.as_posix()})", "")]
        lines += [] if drawn or tables[plan.name] else ["Nothing is drawn here.", ""]
    lines += ["## Where the paper contradicts itself", ""]
    lines += [f"- {item.where}: {item.says} or {item.shows}. {item.note}" for item in paper.contradictions]
    return "\n".join(lines) + "\n"
