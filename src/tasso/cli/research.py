"""Commands for many runs: sweep, paper, report, demo."""

from __future__ import annotations

import itertools
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tasso.cli.options import (
    SHOWN_METHOD,
    add_options,
    add_run_options,
    given_options,
    import_own,
    split_commas,
    split_integers,
)
from tasso.cli.parser import Parser
from tasso.config import RunConfig
from tasso.errors import ConfigError, RunError
from tasso.progress import duration

if TYPE_CHECKING:
    from tasso.experiments.plans import Plan
    from tasso.experiments.record import Record
    from tasso.experiments.sweep import Job
    from tasso.experiments.sweep.choose import By
    from tasso.experiments.sweep.execution import Execution
    from tasso.experiments.sweep.run_jobs import Summary

log = logging.getLogger("tasso")


def sweep(args: list[str]) -> None:
    """tasso sweep"""
    from tasso.experiments.sweep import make_grid, parse_for, parse_values, read_grid
    from tasso.experiments.sweep.choose import By, for_choice, read_rates
    from tasso.experiments.sweep.run_jobs import check, run_jobs

    parser = Parser("tasso sweep", "Learn many runs: methods × sequences × seeds × options.")
    parser.option("--out", Path, "folder of the run folders", required=True)
    parser.option("--config", Path, "YAML file that describes the sweep", metavar="FILE")
    parser.option("--methods", str, "methods, with commas", shown=SHOWN_METHOD, metavar="NAME,NAME")
    parser.option("--sequences", str, "S1 … S8, with commas", shown="S1", metavar="S1,S2")
    parser.option("--seeds", str, "seeds, with commas", shown="1102", metavar="N,N")
    parser.option("--set", list[str], "one run for each value; repeatable", [], metavar="KEY=A,B")
    parser.option(
        "--choose", By, "of what --set lists, choose for each method what has the best accuracy on validation images"
    )
    _add_rates(parser)
    _add_execution(parser)
    add_run_options(parser, "sweep")
    values = parser.parse(args)
    import_own(values["methods"])
    given = {
        **{axis: split_commas(values[axis]) for axis in ("methods", "sequences")},
        "seeds": split_integers(values["seeds"], "seeds"),
        "overrides": parse_values(itertools.chain(*values["set"]), "set"),
        "by_method": parse_for(values["for"]),
        "common": given_options(values, "sweep"),
    }
    grid = make_grid(read_grid(values["config"]) if values["config"] else {}, given)
    if values["rates"]:
        grid = grid.with_rates(read_rates(values["rates"]))
    if values["choose"]:
        grid = for_choice(grid)
    jobs, execution = grid.jobs(), _execution(values, grid.common)
    if values["dry_run"]:
        check(jobs)
        print("\n".join(job.name for job in jobs))
        return
    summary = run_jobs(jobs, values["out"], execution)
    if values["choose"] and not summary.stopped:
        _choose(jobs, list(grid.overrides), values["out"], values["choose"], summary)
    else:
        _end(summary)
        print(f"next: tasso report {values['out']} --html PAGE")


def _choose(jobs: Sequence[Job], varied: Sequence[str], out: Path, by: By, summary: Summary) -> None:
    """Print and write what is chosen. A failed run is no failure as long as every method has a choice."""
    from tasso.experiments.sweep.choose import CHOSEN, TRIED, choices, write_chosen
    from tasso.files import write_text
    from tasso.report import print_table
    from tasso.report.choice import choice_table, tried_runs

    chosen = choices(jobs, varied, out, by)
    write_chosen(chosen, out / CHOSEN)
    write_text(out / TRIED, tried_runs(jobs, varied, out).to_csv(index=False, lineterminator="\n"))
    print("\n".join(summary.lines()))
    print_table(choice_table(chosen, by))
    print(f"chosen: {out / CHOSEN}\nall runs: {out / TRIED}")
    if undecided := [choice.method for choice in chosen if choice.best is None]:
        raise RunError(f"choose: no combination of options was finished with {', '.join(undecided)}")


def paper(args: list[str]) -> None:
    """tasso paper PLAN …"""
    from tasso.experiments.plans import GROUPS, chosen
    from tasso.experiments.sweep import parse_for

    names = [plan.name for plan in chosen([*GROUPS])]
    parser = Parser("tasso paper", "The runs behind the paper's tables and figures, and the tables and figures.")
    parser.argument("plans", str, f"{', '.join(GROUPS)}, or some of: {', '.join(names)}", metavar="PLAN", count="*")
    parser.option("--list", bool, "list the plans", False)
    parser.option("--out", Path, "folder for runs and report")
    _add_rates(parser)
    parser.option("--seeds", str, "seeds of the ablations, with commas", shown="1102", metavar="N,N")
    parser.option(
        "--main-seeds", str, "seeds of the main tables, and of beyond and growth", shown="1102; 1102,1,2", metavar="N,N"
    )
    parser.option("--sequences", str, "sequences of the main tables", shown="S1 … S8", metavar="S1,S2")
    parser.option("--runs", Path, "only report, from this folder of runs or file of a study")
    parser.option("--tables-only", bool, "draw no figures", False)
    _add_execution(parser)
    add_run_options(parser, "paper")
    values = parser.parse(args)
    if values["list"]:
        for plan in chosen([*GROUPS]):
            print(f"{plan.name:<16} {plan.title}")
        return
    if not values["plans"] or values["out"] is None:
        raise ConfigError("paper: name one plan or more (tasso paper --list) and --out, the folder to work in")
    plans = chosen(values["plans"])
    common = given_options(values, "paper")
    given = common or values["rates"] or values["for"] or values["seeds"] or values["main_seeds"] or values["sequences"]
    if values["runs"] and not given:
        _report_plans(values["runs"], values["out"], plans, not values["tables_only"])
        return
    from tasso.experiments.paper import cost_of, dry_run, make_setup, run_plans
    from tasso.experiments.record import make_record

    setup = make_setup(
        common,
        rates=values["rates"],
        by_method=parse_for(values["for"]),
        seeds=split_integers(values["seeds"], "seeds"),
        main_seeds=split_integers(values["main_seeds"], "main-seeds"),
        sequences=split_commas(values["sequences"]),
    )
    if values["runs"]:
        _report_plans(values["runs"], values["out"], plans, not values["tables_only"], make_record(setup, plans))
        return
    execution = _execution(values, common)
    if values["dry_run"]:
        print("\n".join(dry_run(plans, setup, values["out"], execution)))
        return
    print("\n".join(cost_of(plans, setup, values["out"], execution).lines()), flush=True)
    summary = run_plans(plans, setup, values["out"], execution)
    if not summary.stopped:
        _report_plans(values["out"] / "runs", values["out"], plans, not values["tables_only"])
    _end(summary)


def _report_plans(runs: Path, out: Path, plans: Sequence[Plan], figures: bool, record: Record | None = None) -> None:
    from tasso.experiments.plans import GROWTH, SHARED
    from tasso.report.paper.evaluation import read_evaluation
    from tasso.report.paper.growth import write_growth
    from tasso.report.paper.report import write_evaluation

    evaluation, of_growth = read_evaluation(runs, record), [plan for plan in plans if plan.name in GROWTH]
    of_paper = [plan for plan in plans if plan not in of_growth]
    if of_paper:
        write_evaluation(evaluation.of(SHARED), out, of_paper, figures=figures)
        print(f"report: {out / 'index.html'}")
    if of_growth:
        place = out / "growth" if of_paper else out
        write_growth(evaluation, place, of_growth, figures=figures)
        print(f"report: {place / 'index.html'}")


def report(args: list[str]) -> None:
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

    parser = Parser("tasso report", "Tables, figures and an HTML page from run folders; nothing is trained.")
    parser.argument("runs", Path, "run folders, or folders of run folders", metavar="RUN", count="+")
    formats = Literal["terminal", "markdown", "csv", "latex"]
    parser.option("--format", formats, "format of the tables on standard output", "terminal")
    parser.option("--html", Path, "write one self-contained HTML page here")
    parser.option("--figures", Path, "write figures as PNG, PDF and SVG here")
    parser.option("--out", Path, "write all of it here: page, tables, figures")
    values = parser.parse(args)
    runs = read_runs(values["runs"])
    render = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}.get(values["format"], print_table)
    for table in report_tables(runs).values():
        text = render(table)
        if text is not None:
            print(text)
    # Standard output may be a file of tables: what else was written goes to the log.
    if values["html"]:
        write_page(runs, values["html"], title="tasso report", intro="")
        log.info("page: %s", values["html"])
    if values["figures"]:
        write_figures(runs, values["figures"])
        log.info("figures: %s", values["figures"])
    if values["out"]:
        log.info("report: %s", write_report(runs, values["out"]))


def demo(args: list[str]) -> None:
    """tasso demo"""
    from tasso.cli.demo import FULL, QUICK, plan_demo, run_demo, run_full_demo
    from tasso.report import print_table

    does = "Learn drawn tasks by fine-tuning, with TASSO and with TASSO on both towers, and compare what they retain."
    parser = Parser("tasso demo", does)
    parser.option("--out", Path, "folder for runs and page", Path("runs/demo"))
    parser.option("--seed", int, "seed of all runs", 1102)
    parser.option("--full", bool, "every method, all domains, the paper's tables", False)
    _add_dry_run(parser)
    shown = {key: f"{QUICK[key]}; {FULL.get(key, 'all')} with --full" for key in ("steps", "limit_tasks")}
    add_options(parser, RunConfig, shown.keys(), group="options", defaults=shown)
    values = parser.parse(args)
    out, seed, given = values["out"], values["seed"], {key: values[key] for key in shown if values[key] is not None}
    if given.get("limit_tasks") == 1:
        raise ConfigError("limit_tasks: must be at least 2: the demo shows what later tasks change")
    if values["dry_run"]:
        print("\n".join(plan_demo(out, seed, given, full=values["full"])))
        return
    started, summary = time.monotonic(), None
    if values["full"]:
        table, sentence, page, summary = run_full_demo(out, seed, given)
    else:
        table, sentence, page = run_demo(out, seed, given)
    print_table(table)
    print(f"\n{sentence}\n\npage: {page}")
    log.info("finished in %s; results in %s", duration(time.monotonic() - started, exact=True), out)
    if summary is not None:
        _end(summary)


def _add_rates(parser: Parser) -> None:
    parser.option("--rates", Path, "YAML or JSON file: options by method", metavar="FILE")


def _add_execution(parser: Parser) -> None:
    """Options of how runs are executed."""
    from tasso.experiments.sweep.execution import Engine, Keep

    parser.option("--for", list[str], "METHOD KEY=VALUE …: for one method only; repeatable", [], metavar="WORD")
    parser.option("--jobs", int, "runs at once on each GPU, or on the CPU", shown="as many as fit")
    parser.option("--gpus", str, "numbers of the GPUs, with commas", shown="all", metavar="N,N")
    parser.option("--engine", Engine, "what runs the jobs", "local")
    parser.option("--slurm", list[str], "parameters of submitit", [], metavar="KEY=VALUE")
    parser.option("--keep-checkpoints", Keep, "checkpoints of a finished run that stay", "last")
    _add_dry_run(parser)


def _add_dry_run(parser: Parser) -> None:
    parser.option("--dry-run", bool, "print what would be done, and do nothing", False)


def _execution(values: dict[str, Any], common: Mapping[str, Any]) -> Execution:
    from tasso.experiments.sweep.execution import Execution
    from tasso.experiments.sweep.on_slurm import parse_slurm

    return Execution(
        engine=values["engine"],
        at_once=values["jobs"],
        gpus=split_integers(values["gpus"], "gpus"),
        device=str(common.get("device", "auto")),
        keep=values["keep_checkpoints"],
        slurm=parse_slurm(itertools.chain(*values["slurm"])),
    )


def _end(summary: Summary) -> None:
    """Print how it ended; a failed run is a failed command."""
    print("\n".join(summary.lines()))
    if summary.stopped:
        raise KeyboardInterrupt("stopped; the same command goes on from what is saved")
    if summary.failed:
        sys.exit(1)
