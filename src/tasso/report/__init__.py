"""Reports are views of one table of results, read from run folders or from files of studies.

Nothing here trains. Importing this package does not import torch; it needs pandas, matplotlib, jinja2 and rich.
"""

from tasso.report.conclusion import conclude
from tasso.report.figures import write_figures
from tasso.report.folder import report_tables, write_report
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
from tasso.report.page import Gallery, build_page, write_page
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
