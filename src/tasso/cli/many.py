"""Commands about many runs: sweep, paper, report, demo."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser

from tasso.cli.words import (
    DEFAULT_METHOD,
    add_run_options,
    flags_of,
    new_parser,
    numbers_in,
    only_given,
    parsed,
    split_words,
)
from tasso.config import RunConfig
from tasso.errors import ConfigError

if TYPE_CHECKING:
    from tasso.experiments.plans import Plan
    from tasso.experiments.record import Record
    from tasso.experiments.sweep.carry_out import Summary
    from tasso.experiments.sweep.how import How

log = logging.getLogger("tasso")


def sweep(words: list[str]) -> None:
    """tasso sweep"""
    from tasso.experiments.sweep import COMMON, make_grid, parse_for, parse_values, read_grid
    from tasso.experiments.sweep.carry_out import carry_out, check

    parser = new_parser("tasso sweep", "Learn many runs: methods × sequences × seeds × options.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run folders")
    parser.add_argument("--config", type=Path | None, default=None, help="YAML file that describes the sweep")
    parser.add_argument("--methods", type=str | None, default=None, help=f"methods, with commas [{DEFAULT_METHOD}]")
    parser.add_argument("--sequences", type=str | None, default=None, help="S1 … S8, with commas [S1]")
    parser.add_argument("--seeds", type=str | None, default=None, help="seeds, with commas [1102]")
    parser.add_argument("--set", nargs="+", action="append", default=[], help="KEY=A,B,C: one run for each value")
    _add_how(parser)
    add_run_options(parser, COMMON)
    values = parsed(parser, words, flags=["--dry-run", *flags_of(RunConfig)])
    given = {
        **{axis: split_words(values[axis]) for axis in ("methods", "sequences")},
        "seeds": numbers_in(values["seeds"], "seeds"),
        "overrides": parse_values([word for group in values["set"] for word in group], "set"),
        "by_method": parse_for(values["for"]),
        "common": only_given(values, COMMON),
    }
    grid = make_grid(read_grid(values["config"]) if values["config"] else {}, given)
    jobs, how = grid.jobs(), _how(values, grid.common)
    if values["dry_run"]:
        check(jobs)
        print("\n".join(job.name for job in jobs))
        return
    _end(carry_out(jobs, values["out"], how))


def paper(words: list[str]) -> None:
    """tasso paper PLAN …"""
    from tasso.experiments.plans import PLANS, chosen
    from tasso.experiments.sweep import COMMON, parse_for

    parser = new_parser("tasso paper", "The runs behind the paper's tables and figures, and the tables and figures.")
    parser.add_argument("plans", type=str, nargs="*", help=f"all, or some of: {', '.join(PLANS)}")
    parser.add_argument("--list", type=bool, default=False, help="say what plans there are")
    parser.add_argument("--out", type=Path | None, default=None, help="folder for runs and report")
    parser.add_argument("--rates", type=Path | None, default=None, help="YAML or JSON file: options by method")
    parser.add_argument("--seeds", type=str | None, default=None, help="seeds of the ablations, with commas [1102]")
    parser.add_argument("--main-seeds", type=str | None, default=None, help="seeds of the main tables [1102]")
    parser.add_argument("--sequences", type=str | None, default=None, help="sequences of the main tables [S1 … S8]")
    parser.add_argument(
        "--runs", type=Path | None, default=None, help="only report, from this folder of runs or file of a study"
    )
    parser.add_argument("--figures", type=bool, default=True, help="draw figures [true]")
    _add_how(parser)
    # Its plans are made for the benchmarks of the catalogue.
    shared = [key for key in COMMON if key != "tasks"]
    add_run_options(parser, shared)
    values = parsed(parser, words, flags=["--list", "--dry-run", "--figures", *flags_of(RunConfig)])
    if values["list"]:
        for plan in PLANS.values():
            print(f"{plan.name:<13} {plan.title}")
        return
    if not values["plans"] or values["out"] is None:
        raise ConfigError("paper: name one plan or more (tasso paper --list) and --out, the folder to work in")
    plans = chosen(values["plans"])
    common = only_given(values, shared)
    given = common or values["rates"] or values["for"] or values["seeds"] or values["main_seeds"] or values["sequences"]
    if values["runs"] and not given:
        _report_plans(values["runs"], values["out"], plans, values["figures"])
        return
    from tasso.experiments.paper import cost_of, make_setup, run_plans
    from tasso.experiments.record import make_record

    setup = make_setup(
        common,
        rates=values["rates"],
        by_method=parse_for(values["for"]),
        seeds=numbers_in(values["seeds"], "seeds"),
        main_seeds=numbers_in(values["main_seeds"], "main-seeds"),
        sequences=split_words(values["sequences"]),
    )
    if values["runs"]:
        _report_plans(values["runs"], values["out"], plans, values["figures"], make_record(setup))
        return
    how = _how(values, common)
    print("\n".join(cost_of(plans, setup, values["out"], how).lines()), flush=True)
    if not values["dry_run"]:
        summary = run_plans(plans, setup, values["out"], how)
        if not summary.stopped:
            _report_plans(values["out"] / "runs", values["out"], plans, values["figures"])
        _end(summary)


def _report_plans(runs: Path, out: Path, plans: Sequence[Plan], figures: bool, record: Record | None = None) -> None:
    from tasso.report.paper.evaluation import read_evaluation
    from tasso.report.paper.report import write_evaluation

    write_evaluation(read_evaluation(runs, record), out, plans, figures=figures)
    print(f"report: {out / 'index.html'}")


def report(words: list[str]) -> None:
    """tasso report RUN …"""
    from tasso.report import (
        print_table,
        read_runs,
        report_tables,
        to_csv,
        to_latex,
        to_markdown,
        write_figures,
        write_page,
        write_report,
    )

    parser = new_parser("tasso report", "Tables, figures and an HTML page from run folders; nothing is trained.")
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or folders of run folders")
    formats = Literal["terminal", "markdown", "csv", "latex"]
    parser.add_argument("--format", type=formats, default="terminal", help="format of the tables on standard output")
    parser.add_argument("--html", type=Path | None, default=None, help="write one self-contained HTML page here")
    parser.add_argument("--figures", type=Path | None, default=None, help="write figures as PNG and PDF here")
    parser.add_argument("--out", type=Path | None, default=None, help="write all of it here: page, tables, figures")
    values = parsed(parser, words)
    runs = read_runs(values["runs"])
    render = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}.get(values["format"], print_table)
    for table in report_tables(runs).values():
        text = render(table)
        if text is not None:
            print(text)
    # Standard output may be a file of tables: what else was written is told beside it.
    if values["html"]:
        write_page(runs, values["html"], title="tasso report", intro="")
        log.info("page: %s", values["html"])
    if values["figures"]:
        write_figures(runs, values["figures"])
        log.info("figures: %s", values["figures"])
    if values["out"]:
        log.info("report: %s", write_report(runs, values["out"]))


def demo(words: list[str]) -> None:
    """tasso demo"""
    from tasso.cli.demo import run_demo, run_full_demo
    from tasso.report import print_table

    parser = new_parser("tasso demo", "Learn drawn tasks with fine-tuning and with TASSO, and compare what is kept.")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for runs and page")
    parser.add_argument("--seed", type=int, default=1102, help="seed of both runs")
    parser.add_argument("--full", type=bool, default=False, help="every method, all domains, the paper's tables")
    values = parsed(parser, words, flags=["--full"])
    summary = None
    if values["full"]:
        table, sentence, page, summary = run_full_demo(values["out"], seed=values["seed"])
    else:
        table, sentence, page = run_demo(values["out"], seed=values["seed"])
    print_table(table)
    print(f"\n{sentence}\n\npage: {page}")
    if summary is not None:
        _end(summary)


def _add_how(parser: ArgumentParser) -> None:
    """Options about who carries runs out."""
    from tasso.experiments.sweep.how import Engine, Keep

    parser.add_argument("--for", nargs="+", action="append", default=[], help="METHOD KEY=VALUE …: for one method only")
    parser.add_argument("--jobs", type=int | None, default=None, help="runs at once on each GPU, or on the CPU")
    parser.add_argument("--gpus", type=str | None, default=None, help="numbers of the GPUs, with commas [all]")
    parser.add_argument("--engine", type=Engine, default="local", help="local, ray or slurm [local]")
    parser.add_argument("--slurm", nargs="+", default=[], help="KEY=VALUE …: parameters of submitit")
    parser.add_argument("--keep-checkpoints", type=Keep, default="last", help="of a finished run [last]")
    parser.add_argument("--dry-run", type=bool, default=False, help="say what would be done, and do nothing")


def _how(values: dict[str, Any], common: Mapping[str, Any]) -> How:
    from tasso.experiments.sweep import parse_values
    from tasso.experiments.sweep.how import How

    return How(
        engine=values["engine"],
        at_once=values["jobs"],
        gpus=numbers_in(values["gpus"], "gpus"),
        device=str(common.get("device", "auto")),
        keep=values["keep_checkpoints"],
        slurm={key: several[0] for key, several in parse_values(values["slurm"], "slurm").items()},
    )


def _end(summary: Summary) -> None:
    """Say how it ended; a failed run is a failed command."""
    print("\n".join(summary.lines()))
    if summary.stopped:
        raise KeyboardInterrupt("stopped; the same command goes on from what is saved")
    if summary.failed:
        sys.exit(1)
