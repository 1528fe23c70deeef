"""The command that measures speed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tasso.cli.words import DEFAULT_METHOD, add_run_options, flags_of, new_parser, only_given, parsed
from tasso.config import RunConfig
from tasso.errors import ConfigError
from tasso.files import write_text

BENCH_OPTIONS = (
    "model", "method", "batch_size", "reference_batch_size", "device", "precision", "compile", "cuda_graphs",
    "eval_batch_size", "workers",
)  # fmt: skip


def bench(words: list[str]) -> None:
    """tasso bench WHAT, or tasso bench --check"""
    from tasso.experiments.bench import BENCHES, measure
    from tasso.experiments.bench.budget import SHIPPED, compare, read_budget
    from tasso.experiments.bench.table import show

    what = words[0] if words and not words[0].startswith("-") else ""
    if what and what not in BENCHES:
        raise ConfigError(f"bench: no {what!r}. There are: {', '.join(BENCHES)}")
    parser = new_parser(f"tasso bench {what or '|'.join(BENCHES)}", "Speed with random weights on random images.")
    parser.add_argument("--quick", type=bool, default=False, help="nano and a few steps: a minute on two CPU cores")
    parser.add_argument("--reference", type=bool, default=False, help="time the plain recipe of TASSO's authors too")
    parser.add_argument("--eager", type=bool, default=False, help="time steps neither compiled nor recorded too")
    parser.add_argument("--check", type=bool, default=False, help="compare ratios with a budget; alone: all it needs")
    parser.add_argument("--budget", type=Path, default=SHIPPED, help="the budget's file [the package's own]")
    parser.add_argument("--classes", type=int | None, default=None, help="classes of a task [100; eval: 347]")
    parser.add_argument("--json", type=Path | None, default=None, help="write the result here")
    parser.add_argument("--method", type=str, default=DEFAULT_METHOD, help=f"method [{DEFAULT_METHOD}]")
    add_run_options(parser, [key for key in BENCH_OPTIONS if key != "method"])
    flags = ["--quick", "--reference", "--eager", "--check", *flags_of(RunConfig)]
    values = parsed(parser, words[1:] if what else words, flags=flags)
    if not what and not values["check"]:
        raise ConfigError(f"bench: which? {', '.join(BENCHES)}")
    if values["classes"] is not None and values["classes"] < 2:
        raise ConfigError(f"classes: must be at least 2, not {values['classes']}")
    if values["json"] and not values["json"].parent.is_dir():
        raise ConfigError(f"json: {values['json']} cannot be written: {values['json'].parent} is not a folder")
    rules = read_budget(values["budget"]) if values["check"] else []
    baselines = {key for key in ("reference", "eager") if values[key] or not what}
    given = only_given(values, BENCH_OPTIONS)
    results = []
    for part in [what] if what else ["step", "images"]:
        results.append(measure(part, given, quick=values["quick"], classes=values["classes"], baselines=baselines))
        show(results[-1])
    if values["json"]:
        write_text(values["json"], json.dumps(results[0] if what else results, indent=1) + "\n")
    if values["check"]:
        judged, wrong = compare(results, rules)
        print(f"budget: {judged - len(wrong)} of {judged} rules kept", *wrong, sep="\n  ")
        sys.exit(1 if wrong else 0)
