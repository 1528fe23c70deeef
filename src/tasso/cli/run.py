"""Commands for one run: run, tune, extend, eval, metrics."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tasso.cli.options import (
    add_after,
    add_own_method,
    add_run_options,
    check_early,
    given_options,
    import_method_of_run,
    names_model,
    own_method,
    parse_run_config,
)
from tasso.cli.parser import Parser
from tasso.config import RunConfig, options_of
from tasso.errors import ConfigError
from tasso.files import RESULTS, parse_json
from tasso.progress import duration

if TYPE_CHECKING:  # importing it takes half a second
    import pandas as pd

    from tasso.report.frame import Setting

log = logging.getLogger("tasso")

SMALL_MODEL = (
    "model nano: small, sees 64 × 64 pixels and knows few words. For photographs, best on a GPU: "
    "--model ViT-B-16-quickgelu --pretrained openai"
)
BUSY = 2.0  # processes per core that want to run


def run(args: list[str]) -> None:
    """tasso run"""
    check_early("tasso run", args)
    from tasso.training.learner import learn

    config = parse_run_config("tasso run", args)
    if config.tasks and not config.out.exists() and not names_model("tasso run", args):
        log.info("%s", SMALL_MODEL)
    tell_load(config.device)
    import_report_meanwhile()
    learn(config)
    _print_run(config.out)


def import_report_meanwhile() -> None:
    """Import what the table at the end needs, which takes a second or more: a run has to wait for images and the device
    anyway. An error is raised by the import at the end."""

    def attempt() -> None:
        with contextlib.suppress(Exception):
            import_module("tasso.report")

    threading.Thread(target=attempt, daemon=True).start()


def tell_load(device: str) -> None:
    """Say what may help where a run on a CPU begins while other processes keep the cores busy."""
    from tasso.training.engine import choose_device

    if choose_device(device).type == "cpu" and "OMP_NUM_THREADS" not in os.environ and hasattr(os, "getloadavg"):
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if load > BUSY * cores:
            log.info(
                "this machine is busy (load %.0f, %d cores), so threads wait for each other: "
                "OMP_NUM_THREADS=1 before the command may be faster", load, cores,
            )  # fmt: skip


def tune(args: list[str]) -> None:
    """tasso tune"""
    check_early("tasso tune", args)
    from tasso.experiments.sweep import tune
    from tasso.report import print_table
    from tasso.report.choice import tried_table

    does = (
        "Choose the learning rate of `tasso run` with the same options: a few short runs over its first "
        f"{tune.FIRST_TASKS} tasks, judged on validation images; test images are not read."
    )
    config = parse_run_config("tasso tune", args, does)
    choice, file = tune.tune(config)
    print_table(tried_table(choice, tune.BY))
    print(f"config: {file}")
    log.info("next: tasso run --config %s%s", file, own_method(config.method["name"]))


def extend(args: list[str]) -> None:
    """tasso extend RUN --tasks …"""
    from tasso.training.extend import extend as extend_run

    does = "Learn more tasks after those of a finished run, which stays as it is."
    parser = Parser("tasso extend", f"{does} Model, method, learning rate, steps and the like are those of RUN.")
    parser.argument("run", Path, "the finished run")
    parser.option("--out", Path, "the new run folder", shown="RUN+TASK")
    add_own_method(parser)
    add_run_options(parser, "extend", {"tasks": "required"})
    of_run = options_of(RunConfig, command="run").keys() - options_of(RunConfig, command="extend").keys()
    fixed = of_run - options_of(RunConfig, scope="output").keys()
    why = "it is as in RUN. With another value, learn all tasks with tasso run"
    parser.elsewhere = {f"--{name.replace('_', '-')}": why for name in fixed}
    values = parser.parse(args)
    import_method_of_run(values)
    options = given_options(values, "extend")
    if "tasks" not in options:
        raise ConfigError("tasks: which shall be learned? Give --tasks NAME=PLACE …")
    import_report_meanwhile()
    _print_run(extend_run(values["run"], options.pop("tasks"), values["out"], options))


def _print_run(folder: Path) -> None:
    from tasso.report import print_table, read_run, settings_of, summary_table

    runs = read_run(folder)
    for setting in settings_of(runs):
        print_table(summary_table(runs, setting))
    print(gains(runs))
    file = folder / RESULTS
    results = parse_json(file.read_text(encoding="utf-8"))
    seconds = results.get("wall_seconds")  # earlier versions had none
    print((f"finished in {duration(seconds, exact=True)}; " if seconds else "") + f"results: {file}")
    own = own_method(results["method"])
    commands = (
        f"classify {{}} IMAGE{own}", f"extend {{}} --tasks NAME=PLACE{own}", f"serve {{}}{own}",
        "report {} --html PAGE",
    )  # fmt: skip
    log.info("next: %s", ", ".join(f"tasso {command.format(folder)}" for command in commands))


def gains(run: pd.DataFrame) -> str:
    """Accuracy of a run on each task before all tasks and at the end, and which tasks are worse than they were.

    Where the classes learned so far count, these are all of them in the end: MCIL.
    """
    from tasso.report.frame import SEEN, accuracies, settings_of

    setting: Setting = "mcil" if SEEN in settings_of(run) else "mtil"
    steps = accuracies(run, setting)
    pairs = list(zip(steps.columns, steps.iloc[0], steps.iloc[-1], strict=True))
    text = ", ".join(f"{name} {before:.1f} → {after:.1f}" for name, before, after in pairs)
    worse = ", ".join(name for name, before, after in pairs if after < before)
    named = f"zero-shot → now, accuracy (%), {setting.upper()}: {text}"
    return named + (f"; worse than zero-shot: {worse}" if worse else "")


def evaluate(args: list[str]) -> None:
    """tasso eval [RUN]"""
    from tasso.training.evaluator import evaluate as evaluate_model
    from tasso.training.evaluator import evaluation_config

    parser = Parser("tasso eval", "Accuracy on every task of a benchmark, in both settings.")
    text = "run folder, whose options hold unless others are given; without it, a model zero-shot"
    parser.argument("run", Path, text, count="?")
    add_after(parser)
    parser.option("--json", bool, "print JSON instead of a table", False)
    add_own_method(parser)
    add_run_options(parser, "eval")
    values = parser.parse(args)
    import_method_of_run(values)
    folder, after = values["run"], values["after"]
    if after and not folder:
        raise ConfigError("after: needs RUN, the run whose model is meant, as in tasso eval RUN --after 1")
    given = given_options(values, "eval")
    result = evaluate_model(evaluation_config(given, folder, "eval"), folder, after)
    if values["json"]:
        print(json.dumps(result, indent=1))
    else:
        _print_rows(result)


def _print_rows(result: dict[str, Any]) -> None:
    from tasso.report.tables import SETTING_NAMES

    width = max(map(len, result["tasks"]))
    rows = {SETTING_NAMES[setting]: result[setting] for setting in SETTING_NAMES if setting in result}
    print(f"{'':{width}}" + "".join(f"  {name:>6}" for name in rows))
    for name, *values in zip((*result["tasks"], "mean"), *([*row, fmean(row)] for row in rows.values()), strict=True):
        print(f"{name:{width}}" + "".join(f"  {value:6.2f}" for value in values))
    explained = "MTIL: among the classes of the image's own task; MCIL: among those of all tasks above"
    if "seen" in result:
        explained += "; Seen: among those learned so far, of a task not yet learned among its own"
    log.info("In percent, %s images. %s", "validation" if result["split"] == "val" else "test", explained)


def metrics(args: list[str]) -> None:
    """tasso metrics RUN"""
    from tasso.evaluation.metrics import metrics_of_file

    parser = Parser("tasso metrics", "Metrics as JSON.")
    parser.argument("run", Path, 'run folder, results.json, or a file {"zero_shot": […], "matrix": [[…], …]}')
    print(json.dumps(metrics_of_file(parser.parse(args)["run"]), indent=1))
