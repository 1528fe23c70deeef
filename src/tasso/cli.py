"""The commands. They parse and call; the logic is elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser, Namespace

from tasso.config import RunConfig, from_dict, read_yaml
from tasso.endings import told
from tasso.errors import ConfigError
from tasso.files import write_text
from tasso.parser import Parser
from tasso.version import __version__

if TYPE_CHECKING:
    from tasso.sweep.carry_out import Summary
    from tasso.sweep.how import How

log = logging.getLogger("tasso")

DEFAULT_METHOD = "tasso"

USAGE = """usage: tasso COMMAND [options]

  run       learn a sequence of tasks, evaluate after each, save, resume
  extend    more tasks after those of a finished run, in a folder of its own
  eval      accuracy of a model, zero-shot or from a run, on every task of a benchmark
  metrics   accuracy, forgetting and zero-shot degradation of a results.json or a matrix file, as JSON
  methods   the methods: what they train, what they need, what they were verified against
  sweep     many runs: methods × sequences × seeds × options, on this machine or on a cluster
  paper     the runs behind the paper's tables and figures, on any benchmark, and the tables
  report    tables, figures and an HTML page from run folders
  classify  what a run's model says about pictures
  serve     a local page: drop a picture, see what the models before and after each task say
  export    a run's model, or any other, for open_clip, transformers, TorchScript or ONNX
  merge     the weights between two models, and the accuracy along the way
  data      prepare: get the paper's data sets; check: look through a benchmark's data; pack: decode it once
  bench     speed of steps, pictures, evaluation and whole sequences, with random weights
  demo      the whole idea in three minutes: fine-tuning and TASSO side by side on drawn tasks

tasso COMMAND --help shows a command's options; tasso --version the version.
With --debug an error shows where it happened, too."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `tasso` command."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    if words in (["--version"], ["-V"]):
        print(f"tasso {__version__}")
        return
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return
    commands: dict[str, Callable[[list[str]], None]] = {
        "run": run, "extend": extend, "eval": evaluate, "metrics": metrics, "methods": methods, "sweep": sweep,
        "paper": paper, "report": report, "classify": classify, "serve": serve, "export": export, "merge": merge,
        "data": data, "bench": bench, "demo": demo,
    }  # fmt: skip
    if words[0] not in commands:
        print(f"tasso: no command {words[0]!r}\n\n{USAGE}", file=sys.stderr)
        sys.exit(2)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("tasso").setLevel(logging.INFO)
    with told(debug):
        commands[words[0]](words[1:])


def run(words: list[str]) -> None:
    """tasso run"""
    from tasso.learner import learn

    config = parse_run_config("tasso run", words)
    learn(config)
    _print_run(config.out)


def extend(words: list[str]) -> None:
    """tasso extend RUN --tasks …"""
    from tasso.extension import OPTIONS
    from tasso.extension import extend as extend_run

    parser = _parser("tasso extend", "Learn more tasks after those of a finished run, which stays as it is.")
    parser.add_argument("run", type=Path, help="the finished run")
    _add_run_options(parser, ("tasks", *OPTIONS))
    parser.add_argument("--out", type=Path | None, default=None, help="the new run folder [RUN+TASK]")
    values = _values(parser, words, flags=_flags(RunConfig))
    if values["tasks"] is None:
        raise ConfigError("tasks: which shall be learned? Give --tasks NAME=PLACE …")
    options = _given(values, OPTIONS)
    _print_run(extend_run(values["run"], values["tasks"], values["out"], options))


def _print_run(folder: Path) -> None:
    from tasso.report import SETTINGS, print_table, read_run, summary_table

    result = read_run(folder)
    for setting in SETTINGS:
        print_table(summary_table([result], setting))
    print(f"results: {folder / 'results.json'}")


def evaluate(words: list[str]) -> None:
    """tasso eval"""
    from tasso.learner import EVALUATION_OPTIONS, evaluation_config
    from tasso.learner import evaluate as evaluate_model

    parser = _parser("tasso eval", "Accuracy on every task of a benchmark, in both settings.")
    parser.add_argument("--run", type=Path | None, default=None, help="evaluate this run's latest checkpoint")
    parser.add_argument("--after", type=str | None, default=None, help="or the one after this task: a name or a number")
    parser.add_argument("--json", type=bool, default=False, help="print JSON instead of a table")
    _add_run_options(parser, EVALUATION_OPTIONS)
    values = _values(parser, words, flags=["--json", *_flags(RunConfig)])
    folder, after, as_json = (values.pop(key) for key in ("run", "after", "json"))
    if after and not folder:
        raise ConfigError("after: needs --run, the run whose checkpoint is meant")
    given = {key: value for key, value in values.items() if value is not None}
    result = evaluate_model(evaluation_config(given, folder, "tasso eval"), folder, after)
    if as_json:
        print(json.dumps(result, indent=1))
    else:
        _print_rows(result)


def _print_rows(result: dict[str, Any]) -> None:
    width = max(map(len, result["tasks"]))
    print(f"{'':{width}}    MTIL    MCIL")
    for name, mtil, mcil in zip(result["tasks"], result["mtil"], result["mcil"], strict=True):
        print(f"{name:{width}}  {mtil:6.2f}  {mcil:6.2f}")
    mean = [sum(result[setting]) / len(result["tasks"]) for setting in ("mtil", "mcil")]
    print(f"{'mean':{width}}  {mean[0]:6.2f}  {mean[1]:6.2f}")


def metrics(words: list[str]) -> None:
    """tasso metrics FILE"""
    from tasso.metrics import metrics_of_file

    parser = _parser("tasso metrics", "Metrics as JSON.")
    parser.add_argument("file", type=Path, help='run folder, results.json, or {"zero_shot": […], "matrix": [[…], …]}')
    print(json.dumps(metrics_of_file(_values(parser, words)["file"]), indent=1))


def methods(words: list[str]) -> None:
    """tasso methods"""
    from tasso.methods import METHODS
    from tasso.methods.describe import MEASURE, cost_in_words, describe

    parser = _parser("tasso methods", "What there is to choose from.")
    parser.add_argument("--json", type=bool, default=False, help="print JSON instead of text")
    as_json = _values(parser, words, flags=["--json"])["json"]
    about = {name: describe(name) for name in METHODS}
    if as_json:
        print(json.dumps(about, indent=1))
        return
    for name, facts in about.items():
        print(f"{name}: {facts['summary']}")
        for key in ("trains", "teachers", "wants", "source", "verified"):
            print(f"  {key:<9} {facts[key]}")
        print(f"  {'cost':<9} at {MEASURE}: {cost_in_words(facts['cost'])}")
        print(
            f"  {'defaults':<9} "
            + ", ".join(f"--{key.replace('_', '-')} {v}" for key, v in facts["run_defaults"].items())
        )
        for key, value in facts["options"].items():
            print(f"  --method.{key.replace('_', '-'):<24} {value['default']!s:<10} {value['help']}")
        print()


def sweep(words: list[str]) -> None:
    """tasso sweep"""
    from tasso.sweep import COMMON, make_grid, parse_for, parse_values, read_grid
    from tasso.sweep.carry_out import carry_out, check

    parser = _parser("tasso sweep", "Learn many runs: methods × sequences × seeds × options.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run folders")
    parser.add_argument("--config", type=Path | None, default=None, help="YAML file that describes the sweep")
    parser.add_argument("--methods", type=str | None, default=None, help=f"methods, with commas [{DEFAULT_METHOD}]")
    parser.add_argument("--sequences", type=str | None, default=None, help="S1 … S8, with commas [S1]")
    parser.add_argument("--seeds", type=str | None, default=None, help="seeds, with commas [1102]")
    parser.add_argument("--set", nargs="+", action="append", default=[], help="KEY=A,B,C: one run for each value")
    _add_how(parser)
    _add_run_options(parser, COMMON)
    values = _values(parser, words, flags=["--dry-run", *_flags(RunConfig)])
    given = {
        **{axis: _split(values[axis]) for axis in ("methods", "sequences")},
        "seeds": _numbers(values["seeds"], "seeds"),
        "overrides": parse_values([word for group in values["set"] for word in group], "set"),
        "by_method": parse_for(values["for"]),
        "common": _given(values, COMMON),
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
    from tasso.paper import PLANS
    from tasso.paper.plans import chosen
    from tasso.sweep import COMMON, parse_for

    parser = _parser("tasso paper", "The runs behind the paper's tables and figures, and the tables and figures.")
    parser.add_argument("plans", type=str, nargs="*", help=f"all, or some of: {', '.join(PLANS)}")
    parser.add_argument("--list", type=bool, default=False, help="say what plans there are")
    parser.add_argument("--out", type=Path | None, default=None, help="folder for runs and report")
    parser.add_argument("--rates", type=Path | None, default=None, help="YAML or JSON file: options by method")
    parser.add_argument("--seeds", type=str | None, default=None, help="seeds of the ablations, with commas [1102]")
    parser.add_argument("--main-seeds", type=str | None, default=None, help="seeds of the main tables [1102]")
    parser.add_argument("--sequences", type=str | None, default=None, help="sequences of the main tables [S1 … S8]")
    parser.add_argument("--runs", type=Path | None, default=None, help="only report, from the runs in this folder")
    parser.add_argument("--figures", type=bool, default=True, help="draw figures, where matplotlib is installed [true]")
    _add_how(parser)
    # Its plans are made for the benchmarks of the catalogue.
    shared = [key for key in COMMON if key != "tasks"]
    _add_run_options(parser, shared)
    values = _values(parser, words, flags=["--list", "--dry-run", "--figures", *_flags(RunConfig)])
    if values["list"]:
        for plan in PLANS.values():
            print(f"{plan.name:<13} {plan.title}")
        return
    if not values["plans"] or values["out"] is None:
        raise ConfigError("paper: name one plan or more (tasso paper --list) and --out, the folder to work in")
    plans = chosen(values["plans"])
    common = _given(values, shared)
    given = common or values["rates"] or values["for"] or values["seeds"] or values["main_seeds"] or values["sequences"]
    if values["runs"] and not given:
        from tasso.paper.report import write_again

        write_again(plans, values["runs"], values["out"], figures=values["figures"])
        print(f"report: {values['out'] / 'index.html'}")
        return
    from tasso.paper.evaluation import cost_of, make_setup, run_plans
    from tasso.paper.report import write

    setup = make_setup(
        common,
        rates=values["rates"],
        by_method=parse_for(values["for"]),
        seeds=_numbers(values["seeds"], "seeds"),
        main_seeds=_numbers(values["main_seeds"], "main-seeds"),
        sequences=_split(values["sequences"]),
    )
    if values["runs"]:
        write(plans, setup, values["out"], runs=values["runs"], figures=values["figures"])
        print(f"report: {values['out'] / 'index.html'}")
        return
    how = _how(values, common)
    print("\n".join(cost_of(plans, setup, values["out"], how).lines()), flush=True)
    if not values["dry_run"]:
        summary = run_plans(plans, setup, values["out"], how, figures=values["figures"])
        if not summary.stopped:
            print(f"report: {values['out'] / 'index.html'}")
        _end(summary)


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

    parser = _parser("tasso report", "Tables, figures and an HTML page from run folders; nothing is trained.")
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or folders of run folders")
    formats = Literal["terminal", "markdown", "csv", "latex"]
    parser.add_argument("--format", type=formats, default="terminal", help="format of the tables on standard output")
    parser.add_argument("--html", type=Path | None, default=None, help="write one self-contained HTML page here")
    parser.add_argument("--figures", type=Path | None, default=None, help="write figures as PNG and PDF here")
    parser.add_argument("--out", type=Path | None, default=None, help="write all of it here: page, tables, figures")
    values = _values(parser, words)
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


def classify(words: list[str]) -> None:
    """tasso classify RUN PICTURE …"""
    from tasso.guesses import MEANING
    from tasso.pictures import find_pictures
    from tasso.progress import progress
    from tasso.trained import Run

    parser = _parser("tasso classify", "What a run's model says about pictures.")
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("pictures", type=str, nargs="+", help="files, folders or patterns")
    parser.add_argument("--task", type=str | None, default=None, help="choose among this task's classes [all tasks']")
    parser.add_argument("--classes", type=str | None, default=None, help="choose among these names, with commas")
    _add_after(parser)
    parser.add_argument("--top", type=int, default=5, help="guesses a picture [5]")
    parser.add_argument("--json", type=bool, default=False, help="print one JSON object a picture")
    parser.add_argument(
        "--unreadable", type=Literal["skip", "error"], default="skip",
        help="files that are no pictures: go on and exit with 1, or stop at the first [skip]",
    )  # fmt: skip
    _add_device(parser)
    values = _values(parser, words, flags=["--json"])
    trained = Run(values["run"], after=values["after"], device=values["device"])
    among = trained.candidates(values["task"], _split(values["classes"]))
    files = find_pictures(values["pictures"])
    # A bar in the terminal takes standard output for itself while it is there: what is printed goes around it, and
    # where both are the same terminal it waits.
    output, lines, unreadable = sys.stdout, list[str](), 0
    with progress("classifying", len(files)) as advance:
        for answer in trained.answers(files, among, values["top"], skip=values["unreadable"] == "skip"):
            unreadable += bool(answer.error)
            lines += [json.dumps(answer.to_dict(), ensure_ascii=False)] if values["json"] else answer.lines()
            if not output.isatty():
                print(*lines, sep="\n", file=output)
                lines.clear()
            advance(1, "")
    if lines:
        print(*lines, sep="\n")
    log.info("%s; %s. %s", trained.stage, among, MEANING)
    if unreadable:
        print(f"tasso: {unreadable} of {len(files)} files could not be read as pictures", file=sys.stderr)
        sys.exit(1)


def serve(words: list[str]) -> None:
    """tasso serve RUN"""
    from tasso.serve import serve_run

    parser = _parser("tasso serve", "A local page that shows what a run's models say about a picture.")
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--host", type=str, default="127.0.0.1", help="address to listen on [127.0.0.1: this machine]")
    parser.add_argument("--port", type=int, default=8000, help="port; 0 takes a free one [8000]")
    parser.add_argument("--max-mib", type=float, default=20.0, help="largest file that is accepted, in MiB [20]")
    _add_device(parser)
    values = _values(parser, words)
    serve_run(values["run"], values["host"], values["port"], values["max_mib"], values["device"])


def export(words: list[str]) -> None:
    """tasso export RUN"""
    from tasso.export import FORMATS, export_model, open_source

    parser = _parser("tasso export", "Write a model as a folder that other libraries load.")
    parser.add_argument("folder", type=Path | None, nargs="?", default=None, help="run folder")
    parser.add_argument("--run", type=Path | None, default=None, help="the same, as an option")
    _add_after(parser)
    _add_run_options(parser, ("model", "pretrained"))
    parser.add_argument("--to", type=Literal[tuple(FORMATS)], default="open_clip", help="format [open_clip]")
    parser.add_argument("--out", type=Path | None, default=None, help="folder to write [exported/NAME-FORMAT]")
    values = _values(parser, words)
    given = [values[key] for key in ("folder", "run", "model") if values[key] is not None]
    if len(given) != 1:
        raise ConfigError("export: give either --run or --model (a run folder needs no --run before it)")
    source = open_source(values["folder"] or values["run"], values["after"], values["model"], values["pretrained"])
    folder = export_model(source, values["to"], values["out"])
    print(FORMATS[values["to"]].usage.replace("FOLDER", str(folder)))


def merge(words: list[str]) -> None:
    """tasso merge A B"""
    from tasso.learner import EVALUATION_OPTIONS
    from tasso.merge import merge_into, sweep_between

    parser = _parser("tasso merge", "The weights (1 − α)·A + α·B of two models, and the accuracy along the way.")
    for name in ("a", "b"):
        parser.add_argument(name, type=str, help="run folder, checkpoint file, MODEL or MODEL:PRETRAINED")
    parser.add_argument("--alpha", type=float | None, default=None, help="0 is A, 1 is B [0.5 unless --sweep]")
    parser.add_argument("--sweep", type=str | None, default=None, help="evaluate these values of alpha, with commas")
    parser.add_argument("--out", type=Path, required=True, help="folder to write: the merged model, or the curve")
    fields = [f for f in dataclasses.fields(RunConfig) if f.name in EVALUATION_OPTIONS - {"model", "pretrained"}]
    _add_fields(parser, RunConfig, fields)
    values = _values(parser, words, flags=_flags(RunConfig))
    given = {f.name: values[f.name] for f in fields if values[f.name] is not None}
    if values["sweep"] is not None:
        if values["alpha"] is not None:
            raise ConfigError("merge: give either --alpha or --sweep")
        print("\n".join(sweep_between(values["a"], values["b"], values["sweep"], given, values["out"])))
        return
    if given:
        raise ConfigError(f"merge: --{next(iter(given)).replace('_', '-')} belongs to --sweep")
    alpha = 0.5 if values["alpha"] is None else values["alpha"]
    print(f"merged: {merge_into(values['a'], values['b'], alpha, values['out'])}")


def _add_after(parser: ArgumentParser) -> None:
    words = "the model after this task: a name or a number, 0 before all [the latest]"
    parser.add_argument("--after", type=str | None, default=None, help=words)


def _add_device(parser: ArgumentParser) -> None:
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:N [auto]")


DATA_OPTIONS = (
    "benchmark", "tasks", "data_root", "sequence", "limit_tasks", "test_per_class", "shots", "seed", "test_share",
    "split_seed", "check_counts", "reference", "reference_images", "reference_seed", "workers", "pack_dir", "pack_size",
    "corrupt",
)  # fmt: skip


def data(words: list[str]) -> None:
    """tasso data prepare|check|pack"""
    actions: dict[str, Callable[[list[str]], None]] = {
        "prepare": data_prepare, "check": data_check, "pack": data_pack
    }  # fmt: skip
    if not words:
        raise ConfigError(f"data: which? {', '.join(actions)}")
    if words[0] in ("-h", "--help"):
        for action in actions.values():
            with contextlib.suppress(SystemExit):  # each parser ends the program when it has shown its help
                action(["--help"])
            print()
        sys.exit(0)
    if words[0] not in actions:
        raise ConfigError(f"data: no {words[0]!r}. There are: {', '.join(actions)}")
    actions[words[0]](words[1:])


def data_prepare(words: list[str]) -> None:
    """tasso data prepare NAME …"""
    from tasso.datasets import RECIPES
    from tasso.datasets.prepare import Names, Options, outcome_json, outcome_lines, plan, prepare

    parser = _parser("tasso data prepare", "Get, unpack and annotate the paper's data sets.")
    parser.add_argument("names", type=str, nargs="+", help=f"all, or some of: {', '.join(RECIPES)}")
    parser.add_argument("--root", type=Path, required=True, help="folder of all data sets; later --data-root")
    parser.add_argument("--archives", type=Path | None, default=None, help="look for archives here, too")
    parser.add_argument("--download", type=bool, default=True, help="download what torchvision has an address for")
    parser.add_argument("--check-archives", type=bool, default=True, help="refuse archives with another checksum")
    parser.add_argument("--check-counts", type=bool, default=True, help="refuse sizes that differ from the paper's")
    parser.add_argument("--split-seed", type=int, default=1102, help="seed of splits that are drawn here [1102]")
    parser.add_argument(
        "--names-style", type=Names, default="spaces", help="underscores in class names: spaces or coop"
    )
    parser.add_argument("--reference-images", type=int, default=100_000, help="of ImageNet; 0: all [100000]")
    parser.add_argument("--reference-seed", type=int, default=1102, help="seed of the reference subset [1102]")
    parser.add_argument("--overwrite", type=bool, default=False, help="replace an annotation file that was there")
    parser.add_argument("--dry-run", type=bool, default=False, help="say what would be done, and do nothing")
    parser.add_argument("--json", type=bool, default=False, help="print JSON instead of text")
    flags = ["--download", "--check-archives", "--check-counts", "--overwrite", "--dry-run", "--json"]
    values = _values(parser, words, flags=flags)
    names, root, dry_run, as_json = (values.pop(key) for key in ("names", "root", "dry_run", "json"))
    options = Options(names=values.pop("names_style"), **values)
    if dry_run:
        print("\n".join(plan(names, root, options)))
        return
    outcomes = prepare(names, root, options)
    print(json.dumps(outcome_json(outcomes), indent=1) if as_json else "\n".join(outcome_lines(outcomes)))
    if any(outcome.problem for outcome in outcomes):
        sys.exit(2)


CHECK_OPTIONS = (
    "benchmark", "data_root", "sequence", "limit_tasks", "test_per_class", "reference_images", "reference_seed",
    "model", "pretrained", "template", "protocol", "device", "precision", "eval_batch_size", "workers", "cache_gib",
    "pack_dir", "pack_size",
)  # fmt: skip


def data_check(words: list[str]) -> None:
    """tasso data check"""
    from tasso.datasets.check import check, report_lines

    parser = _parser("tasso data check", "Sizes, pictures and class names of a benchmark; with a model, its accuracy.")
    parser.add_argument("--quick", type=bool, default=False, help="do not decode the pictures")
    parser.add_argument("--tolerance", type=float, default=0.5, help="points that an accuracy may be off [0.5]")
    parser.add_argument("--json", type=bool, default=False, help="print JSON instead of text")
    _add_run_options(parser, CHECK_OPTIONS)
    values = _values(parser, words, flags=["--quick", "--json"])
    given = _given(values, CHECK_OPTIONS)
    report = check(
        from_dict(given, "tasso data check"),
        quick=values["quick"],
        with_model="model" in given,
        tolerance=values["tolerance"],
    )
    print(json.dumps(report, indent=1) if values["json"] else "\n".join(report_lines(report)))
    if not report["ok"]:
        sys.exit(1)


def data_pack(words: list[str]) -> None:
    """tasso data pack"""
    from tasso.images import open_packs, thread_pool
    from tasso.tasks import load_sequence

    parser = _parser("tasso data pack", "Decode each picture of a benchmark once: training, test and reference.")
    parser.add_argument("--verify", type=bool, default=False, help="compare all packed pixels with their checksums")
    _add_run_options(parser, DATA_OPTIONS)
    values = _values(parser, words, flags=["--verify", *_flags(RunConfig)])
    given = _given(values, DATA_OPTIONS)
    config = from_dict(given, "tasso data pack")
    packs = open_packs(config, thread_pool(config.workers))
    if packs is None:
        raise ConfigError("pack_dir: where shall the packs lie? Give --pack-dir")
    # Own tasks bring no reference images, and need none to be packed.
    with_reference = config.tasks is None or config.reference is not None
    packs.packed(load_sequence(config, with_reference=with_reference), verify=values["verify"])
    if not packs.reports:
        print(f"{config.benchmark}: its pictures are drawn by code, there is nothing to pack")
        return
    width = max(len(report.name) for report in packs.reports)
    print(f"{'set':{width}}  pictures  left out           bytes  seconds")
    for r in packs.reports:
        print(f"{r.name:{width}}  {r.pictures:8}  {r.left_out:8}  {r.bytes:14}  {r.seconds:7.1f}")


BENCH_OPTIONS = (
    "model", "method", "batch_size", "reference_batch_size", "device", "precision", "compile", "cuda_graphs",
    "eval_batch_size", "workers",
)  # fmt: skip


def bench(words: list[str]) -> None:
    """tasso bench WHAT, or tasso bench --check"""
    from tasso.bench import BENCHES, measure
    from tasso.bench.budget import SHIPPED, compare, read_budget
    from tasso.bench.table import show

    what = words[0] if words and not words[0].startswith("-") else ""
    if what and what not in BENCHES:
        raise ConfigError(f"bench: no {what!r}. There are: {', '.join(BENCHES)}")
    parser = _parser(f"tasso bench {what or '|'.join(BENCHES)}", "Speed with random weights on random pictures.")
    parser.add_argument("--quick", type=bool, default=False, help="nano and a few steps: a minute on two CPU cores")
    parser.add_argument("--reference", type=bool, default=False, help="time the plain recipe of TASSO's authors too")
    parser.add_argument("--eager", type=bool, default=False, help="time steps neither compiled nor recorded too")
    parser.add_argument("--check", type=bool, default=False, help="compare ratios with a budget; alone: all it needs")
    parser.add_argument("--budget", type=Path, default=SHIPPED, help="the budget's file [the package's own]")
    parser.add_argument("--classes", type=int | None, default=None, help="classes of a task [100; eval: 347]")
    parser.add_argument("--json", type=Path | None, default=None, help="write the result here")
    parser.add_argument("--method", type=str, default=DEFAULT_METHOD, help=f"method [{DEFAULT_METHOD}]")
    _add_run_options(parser, [key for key in BENCH_OPTIONS if key != "method"])
    flags = ["--quick", "--reference", "--eager", "--check", *_flags(RunConfig)]
    values = _values(parser, words[1:] if what else words, flags=flags)
    if not what and not values["check"]:
        raise ConfigError(f"bench: which? {', '.join(BENCHES)}")
    if values["classes"] is not None and values["classes"] < 2:
        raise ConfigError(f"classes: must be at least 2, not {values['classes']}")
    if values["json"] and not values["json"].parent.is_dir():
        raise ConfigError(f"json: {values['json']} cannot be written: {values['json'].parent} is not a folder")
    rules = read_budget(values["budget"]) if values["check"] else []
    beside = {key for key in ("reference", "eager") if values[key] or not what}
    given = _given(values, BENCH_OPTIONS)
    results = []
    for part in [what] if what else ["step", "images"]:
        results.append(measure(part, given, quick=values["quick"], classes=values["classes"], beside=beside))
        show(results[-1])
    if values["json"]:
        write_text(values["json"], json.dumps(results[0] if what else results, indent=1) + "\n")
    if values["check"]:
        judged, wrong = compare(results, rules)
        print(f"budget: {judged - len(wrong)} of {judged} rules kept", *wrong, sep="\n  ")
        sys.exit(1 if wrong else 0)


def demo(words: list[str]) -> None:
    """tasso demo"""
    from tasso.demo import run_demo, run_full_demo
    from tasso.report import print_table

    parser = _parser("tasso demo", "Learn drawn tasks with fine-tuning and with TASSO, and compare what is kept.")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for runs and page")
    parser.add_argument("--seed", type=int, default=1102, help="seed of both runs")
    parser.add_argument("--full", type=bool, default=False, help="every method, all domains, the paper's tables")
    values = _values(parser, words, flags=["--full"])
    summary = None
    if values["full"]:
        table, sentence, page, summary = run_full_demo(values["out"], seed=values["seed"])
    else:
        table, sentence, page = run_demo(values["out"], seed=values["seed"])
    print_table(table)
    print(f"\n{sentence}\n\npage: {page}")
    if summary is not None:
        _end(summary)


# -- many runs -------------------------------------------------------------------------------------------------


def _add_how(parser: ArgumentParser) -> None:
    """Options about who carries runs out."""
    from tasso.sweep.how import Engine, Keep

    parser.add_argument("--for", nargs="+", action="append", default=[], help="METHOD KEY=VALUE …: for one method only")
    parser.add_argument("--jobs", type=int | None, default=None, help="runs at once on each GPU, or on the CPU")
    parser.add_argument("--gpus", type=str | None, default=None, help="numbers of the GPUs, with commas [all]")
    parser.add_argument("--engine", type=Engine, default="local", help="local, ray or slurm [local]")
    parser.add_argument("--slurm", nargs="+", default=[], help="KEY=VALUE …: parameters of submitit")
    parser.add_argument("--keep-checkpoints", type=Keep, default="last", help="of a finished run [last]")
    parser.add_argument("--dry-run", type=bool, default=False, help="say what would be done, and do nothing")


def _how(values: dict[str, Any], common: Mapping[str, Any]) -> How:
    from tasso.sweep import parse_values
    from tasso.sweep.how import How

    return How(
        engine=values["engine"],
        at_once=values["jobs"],
        gpus=_numbers(values["gpus"], "gpus"),
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


def _split(text: str | None) -> tuple[str, ...] | None:
    return tuple(word.strip() for word in text.split(",") if word.strip()) if text is not None else None


def _numbers(text: str | None, where: str) -> tuple[int, ...] | None:
    try:
        return tuple(map(int, _split(text) or ())) or None
    except ValueError:
        raise ConfigError(f"{where}: expected whole numbers with commas, not {text!r}") from None


# -- parsing ---------------------------------------------------------------------------------------------------


def parse_run_config(program: str, words: list[str]) -> RunConfig:
    """A RunConfig from the command line and the YAML files it names; unknown and ill-typed keys are errors.

    The method is looked up first, so that its own hyper-parameters are options too, with their types and help.
    """
    from tasso.methods import METHODS

    files, words = _take_config_files([_method_word(word) for word in words])
    from_files: dict[str, Any] = {}
    for path in files:
        _merge(from_files, _from_file(path))
    name = _chosen_method(words) or from_files.get("method", {}).get("name") or DEFAULT_METHOD
    parser = _parser(program, "Learn a sequence of tasks. Every option may also stand in a YAML file (--config).")
    parser.add_argument("--config", type=Path | None, default=None, help="YAML file with options; repeatable")
    _add_fields(parser, RunConfig, [f for f in dataclasses.fields(RunConfig) if f.name != "method"])
    parser.add_argument("--method.name", type=Literal[tuple(METHODS)], default=None, help="method")
    if name in METHODS:
        cls = METHODS[name]
        _add_fields(parser, cls, list(dataclasses.fields(cls)), prefix="method.", title=f"method {name}")
    values = _values(parser, words, flags=_flags(RunConfig) + _flags(METHODS.get(name), "method."))
    values.pop("config")  # taken out above
    given = {key: value for key, value in values.items() if value is not None and key != "method"}
    given["method"] = {key: value for key, value in values["method"].items() if value is not None}
    merged = from_files
    _merge(merged, given)
    merged["method"] = {"name": name, **merged["method"]}
    return from_dict(merged, program)


def _method_word(word: str) -> str:
    """`--method tasso` is short for `--method.name tasso`."""
    if word == "--method" or word.startswith("--method="):
        return word.replace("--method", "--method.name", 1)
    return word


def _take_config_files(words: list[str]) -> tuple[list[Path], list[str]]:
    """The YAML files that the words name, and the words without them: files are read first, whatever their place."""
    files, rest = [], []
    remaining = iter(words)
    for word in remaining:
        if word == "--config":
            files.append(_config_file(next(remaining, "")))
        elif word.startswith("--config="):
            files.append(_config_file(word.removeprefix("--config=")))
        else:
            rest.append(word)
    return files, rest


def _config_file(word: str) -> Path:
    if not word or word.startswith("--"):
        raise ConfigError("config: expected a YAML file after --config")
    return Path(word)


def _chosen_method(words: list[str]) -> str | None:
    """The method that the words ask for, before anything else is parsed; the last one wins."""
    name = None
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--method.name":
            name = following
        elif word.startswith("--method.name="):
            name = word.removeprefix("--method.name=")
    return name


def _from_file(path: Path) -> dict[str, Any]:
    """A YAML file's options, checked key by key so that the error names file and key."""
    values = read_yaml(path)
    values.pop("versions", None)  # a run's own config.yaml can be used again
    return {key: value for key, value in from_dict(values, str(path)).to_dict().items() if key in values}


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    """Later options win. Another method's hyper-parameters are dropped with it."""
    method = more.pop("method", {})
    into.update(more)
    before = into.get("method", {})
    if method.get("name", before.get("name")) != before.get("name") and before.get("name") is not None:
        before = {}
    into["method"] = {**before, **method}


def _flags(owner: Any, prefix: str = "") -> list[str]:
    """Options that are true or false."""
    if owner is None:
        return []
    hints = typing.get_type_hints(owner)
    return [f"--{prefix}{f.name.replace('_', '-')}" for f in dataclasses.fields(owner) if hints[f.name] is bool]


def _parser(program: str, description: str) -> ArgumentParser:
    return Parser(prog=program, description=description)


def _add_fields(
    parser: ArgumentParser,
    owner: type,
    fields: list[dataclasses.Field[Any]],
    *,
    prefix: str = "",
    title: str | None = None,
) -> None:
    """One option a field. Defaults stay None here, so that what was not given can be told from what was."""
    hints = typing.get_type_hints(owner)
    group = parser.add_argument_group(title) if title else parser
    for f in fields:
        default = "" if f.default is None or f.default is dataclasses.MISSING else f" [{f.default}]"
        option = "--" + prefix + f.name.replace("_", "-")
        about = {"default": None, "help": f.metadata["help"] + default}
        if typing.get_origin(typing.get_args(hints[f.name] | None)[0]) is list:  # several words, and several times
            group.add_argument(option, type=str, nargs="+", action="append", **about)
        else:
            group.add_argument(option, type=hints[f.name] | None, **about)


def _add_run_options(parser: ArgumentParser, names: Collection[str]) -> None:
    """Some of the options of a run."""
    _add_fields(parser, RunConfig, [f for f in dataclasses.fields(RunConfig) if f.name in names])


def _given(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Those of these options that were given."""
    return {name: values[name] for name in names if values[name] is not None}


def _values(parser: ArgumentParser, words: list[str], flags: Sequence[str] = ()) -> dict[str, Any]:
    """Parsed values. A flag may stand alone (`--overwrite`) or with a value (`--overwrite false`)."""
    following = [*words[1:], ""]
    words = [
        f"{word}=true" if word in flags and after.lower() not in ("true", "false") else word
        for word, after in zip(words, following, strict=False)
    ]
    parsed: Namespace = parser.parse_args(words)
    values: dict[str, Any] = parsed.as_dict()
    return values
