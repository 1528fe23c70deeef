"""The command that measures speed."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, Literal

from tasso.cli.options import add_method, add_run_options, given_options, split_integers
from tasso.cli.parser import Parser
from tasso.config import DEFAULT_METHOD
from tasso.errors import ConfigError
from tasso.files import write_text


def bench(args: list[str]) -> None:
    """tasso bench [WHAT]"""
    from tasso.experiments.bench import BENCHES, MODEL, measure, needed_by
    from tasso.experiments.bench.budget import SHIPPED, compare, read_budget
    from tasso.experiments.bench.table import show

    parser = Parser("tasso bench", "Speed with random weights on random images.")
    parser.argument(
        "what", Literal[tuple(BENCHES)], f"{', '.join(BENCHES)}; with --check it may be left out", count="?"
    )
    parser.option("--quick", bool, "nano and a few steps: a minute on two CPU cores", False)
    parser.option("--plain", bool, "time the plain recipe of TASSO's authors, too", False)
    parser.option("--eager", bool, "time steps neither compiled nor captured, too", False)
    parser.option("--check", bool, "compare ratios with a budget; alone: all it needs", False)
    parser.option("--budget", Path, "the budget's file", shown="the package's own")
    parser.option("--classes-per-task", int, "classes per task", shown="100; eval: 347")
    parser.option("--jobs", str, "sweep: runs at once, with commas", shown="1,8,16; on a CPU 1,2", metavar="N,N")
    parser.option("--minutes", float, "sizes: begin no further row after these minutes", math.inf, shown="no limit")
    parser.option("--out", Path, "JSON file for the result; sizes writes it after each row")
    add_method(parser)
    add_run_options(parser, "bench", {"model": MODEL})
    values = parser.parse(args)
    what, classes, out = values["what"], values["classes_per_task"], values["out"]
    if not what and not values["check"]:
        raise ConfigError(f"bench: which? {', '.join(BENCHES)}")
    if classes is not None and classes < 2:
        raise ConfigError(f"classes-per-task: must be at least 2, not {classes}")
    if out and not out.parent.is_dir():
        raise ConfigError(f"out: {out} cannot be written: {out.parent} is not a folder")
    rules = read_budget(values["budget"] or SHIPPED) if values["check"] else []
    given = {"method": values["method"] or DEFAULT_METHOD, **given_options(values, "bench")}

    def write(result: Any) -> None:
        if out:
            write_text(out, json.dumps(result, indent=1) + "\n")

    baselines = {"reference": values["plain"] or not what, "eager": values["eager"] or not what}
    jobs = split_integers(values["jobs"], "jobs")
    given_args = {"classes": classes, **baselines, "jobs": jobs, "minutes": values["minutes"], "save": write}
    results = []
    parts = [what] if what else needed_by(rules, given)
    if not parts:
        raise ConfigError("budget: it has no rule for this kind of device")
    for part in parts:
        results.append(measure(part, given, quick=values["quick"], **given_args))
        show(results[-1])
    write(results[0] if what else results)
    if values["check"]:
        judged, wrong = compare(results, rules)
        print(f"budget: {judged - len(wrong)} of {judged} rules kept", *wrong, sep="\n  ")
        sys.exit(1 if wrong else 0)
