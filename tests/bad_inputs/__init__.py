"""Bad inputs, each with a name, and what tasso says to them. `docs/bad-inputs.md` is made from this list."""

from bad_inputs import annotations, configs, images, own_tasks, packed, plans, runs, uses, weights, words
from bad_inputs.case import Bad

GROUPS: dict[str, list[Bad]] = {
    "Words of the command line": words.CASES,
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
