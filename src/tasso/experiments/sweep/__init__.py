"""Many runs: their names, the grid that lists them, and the engines that run them."""

from tasso.experiments.sweep.grid import Grid, combined, make_grid, parse_for, parse_values, read_grid
from tasso.experiments.sweep.jobs import Job

__all__ = ["Grid", "Job", "combined", "make_grid", "parse_for", "parse_values", "read_grid"]
