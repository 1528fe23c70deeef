"""Everything a report has, in one folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

import pandas as pd

from tasso.files import write_text
from tasso.report.figures import write_figures
from tasso.report.formats import to_csv, to_latex, to_markdown
from tasso.report.frame import by_setting, compare, settings_of, several_orders
from tasso.report.page import write_page
from tasso.report.peers import peer_tables
from tasso.report.reader import ReportError
from tasso.report.tables import CORE_METRICS, Table, cost_table, order_table, summary_table
from tasso.report.templates import slug

_FORMATS = {"md": to_markdown, "csv": to_csv, "tex": to_latex}


def report_tables(frame: pd.DataFrame) -> dict[str, Table]:
    """The tables of a report by name, what sums up most of them first."""
    tables: dict[str, Table] = {}
    for number, orders in enumerate(several_orders(compare(frame)), 1):
        for setting in settings_of(orders.frame):
            for metric in CORE_METRICS:
                tables[f"orders-{number}-{setting}-{slug(metric.key)}"] = order_table(orders, setting, metric.key)
    tables |= {f"summary-{setting}": summary_table(rows, setting) for setting, rows in by_setting(frame).items()}
    return tables | peer_tables(frame)


def write_tables(tables: Mapping[str, Table], folder: Path, endings: Iterable[str] = _FORMATS) -> None:
    """Write these tables, by name, into `tables/` of the folder of a report, which is made if it is not there."""
    try:
        (folder / "tables").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"{folder}: cannot make this folder for the report: {error.strerror}") from None
    for name, table in tables.items():
        for ending in endings:
            write_text(folder / "tables" / f"{name}.{ending}", _FORMATS[ending](table))


def write_report(frame: pd.DataFrame, folder: str | PathLike[str], *, title: str = "tasso report") -> Path:
    """Write index.html, tables/ (Markdown, CSV, LaTeX) and figures/ into `folder`; returns the page."""
    folder = Path(folder)
    write_tables({**report_tables(frame), "time-and-memory": cost_table(frame)}, folder)
    write_figures(frame, folder / "figures")
    return write_page(frame, folder / "index.html", title=title, intro="")
