"""Reports are functions of run folders: reading and drawing results never trains and never imports torch."""

from tasso.report.collect import (
    METRICS,
    SETTINGS,
    ReportError,
    RunResult,
    Setting,
    SettingResult,
    TaskCost,
    read_run,
    read_runs,
)
from tasso.report.conclusion import conclude
from tasso.report.formats import print_table, to_csv, to_latex, to_markdown, to_text
from tasso.report.gallery import Gallery
from tasso.report.page import build_page, write_page
from tasso.report.tables import Cell, Column, Row, Table, combined_table, cost_table, matrix_table, summary_table

__all__ = [
    "METRICS",
    "SETTINGS",
    "Cell",
    "Column",
    "Gallery",
    "ReportError",
    "Row",
    "RunResult",
    "Setting",
    "SettingResult",
    "Table",
    "TaskCost",
    "build_page",
    "combined_table",
    "conclude",
    "cost_table",
    "matrix_table",
    "print_table",
    "read_run",
    "read_runs",
    "summary_table",
    "to_csv",
    "to_latex",
    "to_markdown",
    "to_text",
    "write_page",
]
