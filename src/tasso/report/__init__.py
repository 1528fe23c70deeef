"""Reports are views of one table of results, read from run folders or from files of studies.

Nothing here trains. Importing this package does not import torch; it needs pandas and rich. What draws also needs
matplotlib and jinja2, and is imported when it is first asked for: the tables that a run prints do without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tasso.report.formats import print_table, to_csv, to_latex, to_markdown
from tasso.report.frame import (
    METRICS,
    SETTINGS,
    Setting,
    accuracies,
    compare,
    costs,
    distances,
    metrics,
    run_table,
    settings_of,
)
from tasso.report.reader import ReportError
from tasso.report.results import read_run, read_runs
from tasso.report.significance import PairedTest, paired_test, sign_flip_p
from tasso.report.study import read_study, write_study
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

if TYPE_CHECKING:
    from tasso.report.conclusion import conclude
    from tasso.report.figures import write_figures
    from tasso.report.folder import report_tables, write_report
    from tasso.report.page import Gallery, build_page, write_page

DRAWING = ("conclusion", "figures", "folder", "page")  # modules that draw


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = (import_module(f"{__name__}.{module}") for module in DRAWING)
    return next(getattr(module, name) for module in modules if hasattr(module, name))


__all__ = [
    "METRICS",
    "SETTINGS",
    "Cell",
    "Column",
    "Gallery",
    "PairedTest",
    "ReportError",
    "Row",
    "Setting",
    "Table",
    "accuracies",
    "build_page",
    "combined_table",
    "compare",
    "conclude",
    "cost_table",
    "costs",
    "distances",
    "matrix_table",
    "metrics",
    "order_table",
    "paired_test",
    "print_table",
    "rank",
    "read_run",
    "read_runs",
    "read_study",
    "report_tables",
    "run_table",
    "settings_of",
    "sign_flip_p",
    "summary_table",
    "to_csv",
    "to_latex",
    "to_markdown",
    "write_figures",
    "write_page",
    "write_report",
    "write_study",
]
