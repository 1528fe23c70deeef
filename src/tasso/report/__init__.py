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
from tasso.report.figures import write_figures
from tasso.report.formats import print_table, to_csv, to_latex, to_markdown, to_text
from tasso.report.gallery import Gallery
from tasso.report.page import build_page, write_page
from tasso.report.significance import Paired, paired_test, sign_flip_p
from tasso.report.tables import (
    Cell,
    Column,
    Row,
    Table,
    combined_table,
    cost_table,
    matrix_table,
    order_table,
    rank,
    summary_table,
)
from tasso.report.whole import report_tables, write_report

__all__ = [
    "METRICS",
    "SETTINGS",
    "Cell",
    "Column",
    "Gallery",
    "Paired",
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
    "order_table",
    "paired_test",
    "print_table",
    "rank",
    "read_run",
    "read_runs",
    "report_tables",
    "sign_flip_p",
    "summary_table",
    "to_csv",
    "to_latex",
    "to_markdown",
    "to_text",
    "write_figures",
    "write_page",
    "write_report",
]
