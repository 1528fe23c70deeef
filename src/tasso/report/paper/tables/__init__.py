"""The tables of every plan: ours on the benchmark at hand, and the paper's numbers in columns of their own.

The paper's numbers were measured with its model on its data. They are never compared with ours by a mark or a
difference, unless the benchmark is `mtil` and the model is the paper's.
"""

from __future__ import annotations

from collections.abc import Callable

from tasso.experiments.plans import Plan
from tasso.report.paper.evidence import Evidence
from tasso.report.paper.printed import ABLATIONS
from tasso.report.paper.published import Published
from tasso.report.paper.tables.ablations import ablation_tables, grid_tables, seed_tables
from tasso.report.paper.tables.about import compute_tables, data_set_tables, matrix_tables, sequence_tables
from tasso.report.paper.tables.alignment import alignment_tables
from tasso.report.paper.tables.cells import Tables
from tasso.report.paper.tables.main import main_tables


def tables_of(plan: Plan, evidence: Evidence, published: Published) -> Tables:
    """All tables of a plan."""
    makers: dict[str, Callable[[Plan, Evidence, Published], Tables]] = {
        "main": main_tables,
        "distances": grid_tables,
        "seeds": seed_tables,
        "compute": compute_tables,
        "matrices": matrix_tables,
        "alignment": alignment_tables,
        "datasets": data_set_tables,
        "sequences": sequence_tables,
        **dict.fromkeys(ABLATIONS, ablation_tables),
    }
    return makers[plan.name](plan, evidence, published)
