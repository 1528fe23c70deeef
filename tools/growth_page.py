"""What docs/results/growth.md shows, from the studies in results/ that tools/growth.sh keeps: tables and figures.

tools/results_page.py writes them into the page. Where a study is not there, the page says so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tasso.experiments.plans import GROWTH
from tasso.experiments.record import Record
from tasso.report.figures.write import save_figures
from tasso.report.formats import to_markdown
from tasso.report.paper.evaluation import Evaluation, read_evaluation
from tasso.report.paper.growth import RANKING, growth_figure, growth_tables, with_runs
from tasso.report.tables import Cell, Column, Row, Table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PAGE = ROOT / "docs" / "results" / "growth.md"
STUDIES = {"growth-classes": "New classes", "growth-styles": "New cameras", "growth-mixed": "All mixed"}
PLANS = list(GROWTH.values())
NOT_RUN = "Not run yet."


def evaluation() -> Evaluation | None:
    """The studies as one evaluation; each has rates of its own. None while there is none."""
    files = [file for name in STUDIES if (file := RESULTS / f"{name}.csv.gz").is_file()]
    found = [read_evaluation(file) for file in files]
    if not found:
        return None
    names = {key: runs for one in found for key, runs in one.record.names.items() if len(one.runs(key[0]))}
    return Evaluation(Record(found[0].record.setup, names), pd.concat([one.frame for one in found], ignore_index=True))


def tables() -> dict[str, Callable[[], str]]:
    """What can stand between the markers of the page: a table over all kinds of growth, those of each with a figure,
    and the rates. A note stands under the first table that has it."""
    made: dict[str, str] = {}
    if found := evaluation():
        said: set[str] = set()
        for name, table in growth_tables(PLANS, found).items():
            made[name] = to_markdown(replace(table, notes=tuple(note for note in table.notes if note not in said)))
            said.update(table.notes)
        for plan in with_runs(PLANS, found):
            figure = growth_figure(plan, found)
            made[plan.name] += f"\n![{figure.caption}]({figure.name}.svg)"
    shown = {name: lambda name=name: made.get(name, NOT_RUN) for name in (RANKING, *GROWTH)}
    return {**shown, "growth-rates": rates}


def rates() -> str:
    """The learning rates of the runs, chosen on validation images, by kind of growth."""
    files = {title: RESULTS / f"{name}.csv.gz" for name, title in STUDIES.items()}
    found = {title: read_evaluation(file).record.setup for title, file in files.items() if file.is_file()}
    if not found:
        return NOT_RUN
    methods = dict.fromkeys(row.method for row in PLANS[0].rows)
    rows = [
        Row((Cell(method), *(Cell(f"{float(setup.by_method[method]['lr']):g}") for setup in found.values())))
        for method in methods
    ]
    columns = (Column("Method", numeric=False), *map(Column, found))
    return to_markdown(Table("Learning rates", columns, tuple(rows)))


def write_figures() -> None:
    """The page's figures, beside it."""
    if (found := evaluation()) is None:
        return
    drawn = [growth_figure(plan, found) for plan in with_runs(PLANS, found)]
    with tempfile.TemporaryDirectory() as place:
        save_figures(drawn, Path(place))
        for figure in drawn:
            shutil.copyfile(Path(place) / f"{figure.name}.svg", PAGE.with_name(f"{figure.name}.svg"))
