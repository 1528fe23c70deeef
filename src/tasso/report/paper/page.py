"""The page of an evaluation: the verdict, the plans' tables with the paper's numbers kept apart, then the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tasso.experiments.plans import SND, TASSO, Plan
from tasso.report.chapters import Chapter, Folded, Part, Shown
from tasso.report.collect import SETTINGS, RunResult, Setting
from tasso.report.gallery import Gallery
from tasso.report.markup import Html, element, join
from tasso.report.page import write_page
from tasso.report.paper.evidence import Evidence
from tasso.report.paper.paired import CLOSE, FAILS, HOLDS, UNTESTED, Outcome
from tasso.report.paper.published import Published
from tasso.report.paper.shown import closely, shown_runs
from tasso.report.paper.tables.cells import PAPER, Tables
from tasso.report.paper.verdict import Verdict
from tasso.report.tables import Table, count_of

# What a page says first, from the runs that it draws; "" where they are not enough to say it.
Lead = Callable[[Sequence[RunResult]], str]

# Sign, class and words; in the order in which they are counted.
OUTCOMES: dict[Outcome, tuple[str, str]] = {
    HOLDS: ("✓", "holds"),
    FAILS: ("✗", "fails"),
    CLOSE: ("≈", "close"),
    UNTESTED: ("–", "untested"),
}


def write_evaluation_page(
    out: Path,
    title: str,
    plans: Sequence[Plan],
    evidence: Evidence,
    paper: Published,
    tables: Mapping[str, Tables],
    found: Sequence[Verdict],
    verdict: Table,
    *,
    intro: str,
    gallery: Gallery | None = None,
    lead: Lead | None = None,
) -> Path:
    """Write `index.html`. What `lead` says of the runs stands first, before the tally of claims."""
    runs = shown_runs(evidence)
    first = lead(runs) if lead else ""
    chapters = [_verdict(found, verdict), _plans(plans, evidence, paper, tables)]
    return write_page(
        runs,
        out / "index.html",
        title=title,
        intro=intro,
        gallery=gallery,
        sentence=f"{first} {tally(found)}".strip(),
        chapters=chapters,
        matrices_of=closely(runs),
        distances_of=[run for run in closely(runs) if run.method in (TASSO.method, SND.method)],
    )


def tally(found: Sequence[Verdict]) -> str:
    """How many claims have which outcome, in a sentence; open questions are not the paper's claims."""
    counts = Counter(verdict.outcome for verdict in found if not verdict.question)
    words = {
        HOLDS: ("holds", "hold"),
        FAILS: ("does not hold", "do not hold"),
        CLOSE: ("is too close to tell", "are too close to tell"),
        UNTESTED: ("is not tested", "are not tested"),
    }
    parts = [f"{counts[outcome]} {words[outcome][counts[outcome] != 1]}" for outcome in OUTCOMES if counts[outcome]]
    said = ", ".join(parts[:-1]) + f" and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"Of {sum(counts.values())} claims of the paper, {said} on this benchmark."


def _verdict(found: Sequence[Verdict], table: Table) -> Chapter:
    tested = [verdict for verdict in found if verdict.outcome != UNTESTED]
    untested = [verdict for verdict in found if verdict.outcome == UNTESTED]
    claims = [verdict for verdict in tested if not verdict.question]
    questions = [verdict for verdict in tested if verdict.question]
    words = (
        "What the paper claims, judged by runs on the benchmark at hand. Leads are in percentage points, positive is "
        "better. Each line opens to the numbers behind it; the guide says how they are judged."
    )
    parts: list[Part] = [element("p", words, class_="legend")]
    if claims:
        parts.append(_claims(claims))
    if questions:
        parts += [element("h3", "What the paper leaves open"), _claims(questions)]
    if untested:
        parts.append(Folded(f"Not tested on this benchmark ({len(untested)})", [_claims(untested)]))
    parts.append(Folded("The verdict as a table", [Shown("verdict", table)]))
    return Chapter("verdict", "Verdict", parts)


def _claims(found: Sequence[Verdict]) -> Html:
    return element("div", *map(_claim, found), class_="claims")


def _claim(verdict: Verdict) -> Html:
    sign, kind = OUTCOMES[verdict.outcome]
    chip = element("span", element("span", sign, aria_hidden="true"), f" {verdict.outcome}", class_=f"chip {kind}")
    weak = element("span", verdict.few, class_="count") if verdict.few else ""
    numbers = [element("li", finding.text) for finding in verdict.numbers]
    content = join([element("ul", *numbers) if numbers else "", element("p", verdict.note) if verdict.note else ""])
    summary = element("summary", chip, element("span", verdict.claim, " ", weak, class_="said"))
    return element("details", summary, element("div", content, class_="behind"), data_setting=_setting(verdict.key))


def _setting(name: str) -> Setting | None:
    """The setting that a claim or a table is about, from its name."""
    return next((setting for setting in SETTINGS if f"-{setting}" in name), None)


def _plans(plans: Sequence[Plan], evidence: Evidence, paper: Published, tables: Mapping[str, Tables]) -> Chapter:
    words = (
        f'Ours, unless a column or a title says "{PAPER}": those numbers are printed in the paper, measured with its '
        "model on its data. They are set apart, and nothing is marked across."
    )
    parts: list[Part] = [element("p", words, class_="legend")]
    for plan in plans:
        missing, wanted = evidence.missing(plan)
        remark = f"{wanted - missing} of {count_of(wanted, 'run')}" if wanted else ""
        named = tables[plan.name]
        ours: list[Part] = [_shown(name, table) for name, table in named.items() if not _is_printed(name)]
        printed: list[Part] = [_shown(name, table) for name, table in named.items() if _is_printed(name)]
        if printed:
            ours.append(Folded(f"Printed in the paper ({PAPER})", printed))
        parts.append(Folded(plan.title, ours, remark, large=True, open=plan is plans[0]))
    parts.append(_contradictions(paper))
    return Chapter("tables", "The paper's tables", parts, short="Tables")


def _shown(name: str, table: Table) -> Shown:
    return Shown(name, table, _setting(name))


def _is_printed(name: str) -> bool:
    return name.startswith("paper-")


def _contradictions(paper: Published) -> Folded:
    items = [element("li", f"{item.where}: {item.says} or {item.shows}. {item.note}") for item in paper.contradictions]
    return Folded("Where the paper contradicts itself", [element("ul", *items)], large=True)
