"""Which printed row of the paper belongs to which row of a plan."""

from __future__ import annotations

from tasso.experiments.plans import Plan, PlanRow
from tasso.report.collect import Setting
from tasso.report.paper.published import Published, PublishedRow, PublishedTable

# Plans whose table the paper prints for S1 with three columns: accuracy, forgetting, zero-shot degradation.
ABLATIONS = ("components", "rank", "alpha", "beta", "whole-kd", "optimisation", "projector")
_COMPONENTS = {
    ("✗", "✗"): "ce", ("L2", "✗"): "l2", ("geo", "✗"): "geo",
    ("✗", "✓"): "sub", ("L2", "✓"): "sub-l2", ("geo", "✓"): "tasso",
}  # fmt: skip
DISTANCES = {"✗": "none", "L2": "l2", "geo": "geodesic"}


def printed_table(published: Published, plan: str, setting: Setting) -> PublishedTable | None:
    """The paper's table of an ablation in a setting, or None where it has none."""
    if plan in ("components", "rank", "alpha", "beta"):
        return published.table(f"{plan}-{setting}")
    names = {"whole-kd": "undivided", "optimisation": "optimisation", "seeds": "seeds"}
    return published.table(names[plan]) if plan in names and setting == "mtil" else None


def printed_row(published: Published, plan: Plan, row: PlanRow, setting: Setting) -> PublishedRow | None:
    """What the paper prints for a row of an ablation, or None."""
    table = printed_table(published, plan.name, setting)
    if table is None:
        return None
    if plan.name == "whole-kd":  # TASSO itself stands in a table nearby
        return published.table("optimisation").find("tasso") if row.ours else table.find("undivided")
    if plan.name == "components":
        return table.find(_COMPONENTS[row.cells["L_KD"], row.cells["Subspace Learning"]])
    if plan.name in ("rank", "alpha", "beta"):
        (value,) = row.cells.values()
        return next((found for found in table.rows if float(found.value or "nan") == float(value)), None)
    return next((found for found in table.rows if found.name == row.label), None)
