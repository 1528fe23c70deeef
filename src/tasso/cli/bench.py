"""The command that measures speed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tasso.cli.options import DEFAULT_METHOD, add_run_options, given_options
from tasso.cli.parser import Parser
from tasso.errors import ConfigError
from tasso.files import write_text


def bench(args: list[str]) -> None:
    """tasso bench WHAT, or tasso bench --check"""
    from tasso.experiments.bench import BENCHES, measure
    from tasso.experiments.bench.budget import SHIPPED, compare, read_budget
    from tasso.experiments.bench.table import show

    what = args[0] if args and not args[0].startswith("-") else ""
    if what and what not in BENCHES:
        raise ConfigError(f"bench: no {what!r}. There are: {', '.join(BENCHES)}")
    parser = Parser(f"tasso bench {what or '|'.join(BENCHES)}", "Speed with random weights on random images.")
    parser.add_argument("--quick", type=bool, default=False, help="nano and a few steps: a minute on two CPU cores")
    parser.add_argument("--reference", type=bool, default=False, help="time the plain recipe of TASSO's authors too")
    parser.add_argument("--eager", type=bool, default=False, help="time steps neither compiled nor captured too")
    parser.add_argument("--check", type=bool, default=False, help="compare ratios with a budget; alone: all it needs")
    parser.add_argument("--budget", type=Path | None, default=None, help="the budget's file [the package's own]")
    parser.add_argument("--classes", type=int | None, default=None, help="classes per task [100; eval: 347]")
    parser.add_argument("--json", type=Path | None, default=None, help="write the result here")
    parser.add_argument("--method", type=str, default=DEFAULT_METHOD, help="method")
    add_run_options(parser, "bench")
    values = parser.parse(args[1:] if what else args)
    if not what and not values["check"]:
        raise ConfigError(f"bench: which? {', '.join(BENCHES)}")
    if values["classes"] is not None and values["classes"] < 2:
        raise ConfigError(f"classes: must be at least 2, not {values['classes']}")
    if values["json"] and not values["json"].parent.is_dir():
        raise ConfigError(f"json: {values['json']} cannot be written: {values['json'].parent} is not a folder")
    rules = read_budget(values["budget"] or SHIPPED) if values["check"] else []
    baselines = {key for key in ("reference", "eager") if values[key] or not what}
    given = {"method": values["method"], **given_options(values, "bench")}
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
