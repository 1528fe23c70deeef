"""Many runs: what they are called, how they are listed, and who carries them out."""

from tasso.experiments.sweep.grid import COMMON, Grid, combined, make_grid, parse_for, parse_values, read_grid
from tasso.experiments.sweep.jobs import Job

__all__ = ["COMMON", "Grid", "Job", "combined", "make_grid", "parse_for", "parse_values", "read_grid"]
