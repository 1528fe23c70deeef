"""The paper's evaluation: which runs each of its tables and figures needs, and what it takes to make them."""

from tasso.experiments.plans import PLANS, Plan, PlanRow, Setup, run_folder

__all__ = ["PLANS", "Plan", "PlanRow", "Setup", "run_folder"]
