"""Bad inputs, each with a name and what the message about it must contain. `tests/cli/test_bad_inputs.py` runs them all."""

from bad_inputs import annotations, arguments, configs, images, own_tasks, packed, plans, runs, uses, weights
from bad_inputs.case import Bad

GROUPS: dict[str, list[Bad]] = {
    "Arguments of the command line": arguments.CASES,
    "Configurations in YAML": configs.CASES,
    "Annotation files and data sets": annotations.CASES,
    "Own tasks": own_tasks.CASES,
    "Images": images.CASES,
    "Packs": packed.CASES,
    "Run folders and saved states": runs.CASES,
    "Weights": weights.CASES,
    "Sweeps and the paper's plans": plans.CASES,
    "Using a run: evaluate, classify, serve, export, merge, extend, report, metrics, bench": uses.CASES,
}
CASES = [case for cases in GROUPS.values() for case in cases]
