"""The commands as a user types them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import as_words
from run_results import results
from tasso.cli import main, parse_run_config
from tasso.cli.options import check_early
from tasso.cli.run import gains, tell_load
from tasso.config import RunConfig, from_dict
from tasso.errors import ConfigError
from tasso.evaluation.metrics import metrics
from tasso.experiments.sweep import make_grid
from tasso.methods import build_method
from tasso.report import read_run
from tasso.report.tables import Column, Table
from tasso.training.run import Run

ROOT = Path(__file__).parents[2]


def test_the_issues_own_command_is_understood() -> None:
    line = (
        "--benchmark mtil-mini --data-root DATA --model nano --sequence S1 --method tasso "
        "--steps 300 --lr 1e-4 --method.rank 72 --out runs/x"
    )
    config = parse_run_config("tasso run", line.split())
    assert config.method == {"name": "tasso", "rank": 72}
    assert (config.lr, config.steps, config.out, config.sequence) == (1e-4, 300, Path("runs/x"), "S1")


@pytest.mark.slow
def test_run_eval_metrics_report(quick: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["run", *as_words(quick)])
    printed = capsys.readouterr().out
    assert "TASSO" in printed
    assert re.search(r"finished in \d+ s; results: \S+results\.json", printed)
    main(["metrics", str(quick["out"])])
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"mtil", "mcil"}
    main(["eval", str(quick["out"]), "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert rows["checkpoint"] == "eurosat"
    main(["eval", str(quick["out"]), "--after", "0", "--json"])
    before = json.loads(capsys.readouterr().out)
    assert before["checkpoint"] is None
    assert before["mtil"] == pytest.approx(Run(str(quick["out"])).results["mtil"]["zero_shot"])
    main(["eval", *as_words({k: quick[k] for k in ("benchmark", "data_root", "check_counts", "model", "sequence")})])
    assert re.search(r"mean +\d+\.\d\d", capsys.readouterr().out)
    page = tmp_path / "page.html"
    main(["report", str(quick["out"]), "--format", "markdown", "--html", str(page)])
    assert "| TASSO (rank 6) |" in capsys.readouterr().out
    assert page.read_text().startswith("<!")


def test_yaml_and_command_line_mix(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("lr: 1e-3\nsteps: 5\nmethod:\n  name: tasso\n  rank: 3\n  beta: 1.5\n")
    config = parse_run_config("tasso run", ["--config", str(file), "--steps", "9", "--method.rank", "4"])
    assert (config.lr, config.steps) == (1e-3, 9)
    assert config.method == {"name": "tasso", "rank": 4, "beta": 1.5}
    other = parse_run_config("tasso run", ["--config", str(file), "--method", "finetune"])
    assert other.method == {"name": "finetune"}


def test_a_runs_own_config_can_be_used_again(quick: dict[str, Any], tmp_path: Path) -> None:
    main(["run", *as_words(quick)])
    file = Path(str(quick["out"])) / "config.yaml"
    config = parse_run_config("tasso run", ["--config", str(file), "--out", str(tmp_path / "again")])
    assert config.method["rank"] == 6
    assert config.lr == 1e-3


def test_gains_are_told_task_by_task(tmp_path: Path) -> None:
    content = results("TASSO", 1, tasks=["pets", "land"])
    content["mtil"] |= {"zero_shot": [24.66, 90.0], "matrix": [[1, 2], [30.71, 88.75]]}
    (tmp_path / "results.json").write_text(json.dumps(content))
    told = "zero-shot → now, accuracy (%), MTIL: pets 24.7 → 30.7, land 90.0 → 88.8; worse than zero-shot: land"
    assert gains(read_run(tmp_path)) == told
    known = metrics([50, 50], [[60, 50], [55, 65]], images=[5, 5])
    content["seen"] = {**content["mcil"], "metrics": known, "images": [5, 5], "zero_shot_steps": [50, 40]}
    content["mcil"] |= {"zero_shot": [20.0, 80.0], "matrix": [[1, 2], [30.0, 85.0]]}
    (tmp_path / "results.json").write_text(json.dumps(content))
    told = "zero-shot → now, accuracy (%), MCIL: pets 20.0 → 30.0, land 80.0 → 85.0"
    assert gains(read_run(tmp_path)) == told, "all classes are learned in the end"


def test_own_tasks_have_a_method_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("tasks: {a: ./a}\n")

    def method(*args: str) -> str:
        return str(parse_run_config("tasso run", [*args, "--out", "x"]).method["name"])

    assert method("--tasks", "a=./a") == method("--tasks=a=./a") == method("--config", str(file)) == "tasso-both"
    assert method("--benchmark", "atlas") == method("--tasks", "a=./a", "--method", "tasso") == "tasso"
    assert from_dict({"tasks": {"a": "./a"}}).method == {"name": "tasso-both"}
    assert from_dict({"tasks": {"a": "./a"}, "method": "snd"}).method == {"name": "snd"}
    file.write_text("tasks: null\n")
    assert method("--config", str(file)) == from_dict({"tasks": None}).method["name"] == "tasso"
    assert make_grid({}, {"common": {"tasks": ["a=./a"]}}).methods == ("tasso-both",)
    assert make_grid({"common": {"tasks": {"a": "./a"}}}, {"methods": ("snd",)}).methods == ("snd",)
    assert make_grid({}, {"methods": None}).methods == ("tasso",)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--lr", "fast"], "lr"),
        (["--stps", "3"], "stps"),
        (["--steps", "1.5"], "steps"),
        (["--method", "magic"], "magic"),
        (["--method.rnk", "3"], "rnk"),
        (["--method", "finetune", "--method.rank", "3"], "rank"),
        (["--method.kd-parallel", "cosine"], "kd-parallel: expected one of none, l2, geodesic"),
        (["--precision", "int4"], "precision"),
    ],
)
def test_unknown_and_ill_typed_words_name_the_key(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["run", *words])
    assert stop.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("stepps: 3\n", "unknown key 'stepps'"),
        ("steps: many\n", "steps: expected a whole number or nothing, not 'many'"),
        ("batch_size: 0\n", "batch_size: must be at least 1, not 0"),
        ("check_counts: 3\n", "check_counts: expected true or false"),
        ("betas: [0.9]\n", "betas: expected 2 values"),
        ("protocol: mine\n", "protocol: expected one of code, paper"),
        ("accumulate: 5\n", "batch_size: must be a multiple of accumulate"),
        ("method: {rank: 3}\n", "method: needs a name"),
        ("- a\n", "expected 'key: value' lines"),
        ("a: [\n", "not valid YAML"),
        ("1: 2\nx: 3\n", "unknown key 1"),
        ("method: null\n", "method: expected a mapping"),
        ("seed: 99999999999999999999\n", "seed: must be below 2^48"),
    ],
)
def test_bad_yaml_names_file_and_key(
    tmp_path: Path, text: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(SystemExit) as stop:
        main(["run", "--config", str(file)])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert complaint in message
    assert "bad.yaml" in message


def test_out_of_range_hyper_parameter_names_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    for words, complaint in (
        (["--method.rank", "0"], "method.rank: must be at least 1, not 0"),
        (["--method.beta", "-1"], "method.beta: must not be negative"),
        (["--lr", "-1"], "lr: must be positive"),
    ):
        with pytest.raises(SystemExit):
            main(["run", *words])
        assert complaint in capsys.readouterr().err


def test_flags_may_stand_alone_and_numbers_in_yaml_may_have_exponents(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("method: {name: tasso, projector_lr: 1e-4}\nbetas: [9e-1, 0.99]\n")
    words = ["--config", str(file), "--overwrite", "--lr", "1e-3", "--method.no-train-projector"]
    config = parse_run_config("tasso run", words)
    assert config.overwrite is True
    assert config.betas == (0.9, 0.99)
    assert config.method["train_projector"] is False
    assert build_method(config.method).hyper_parameters()["projector_lr"] == 1e-4
    twice = tmp_path / "more.yaml"
    twice.write_text("lr: 0.5\nmethod: {name: tasso, rank: 9}\n")
    both = parse_run_config("tasso run", ["--config", str(file), "--config", str(twice)])
    assert both.lr == 0.5
    assert both.method == {"name": "tasso", "projector_lr": "1e-4", "rank": 9}


def test_python_values_are_checked_too() -> None:
    with pytest.raises(ConfigError, match="steps: expected a whole number"):
        RunConfig(steps="3")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="learn: unknown key 'step'"):
        from_dict({"step": 3}, "learn")


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert "usage: tasso COMMAND" in capsys.readouterr().out
    main(["--version"])
    assert re.match(r"tasso \d+\.\d+", capsys.readouterr().out)
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    assert "--method.kd-parallel" in text
    assert "--data-root" in text
    with pytest.raises(SystemExit) as stop:
        main(["fly"])
    assert stop.value.code == 2
    assert "no command 'fly'" in capsys.readouterr().err


def test_methods_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    from tasso.methods import METHODS

    main(["methods", "--json"])
    assert set(json.loads(capsys.readouterr().out)) == set(METHODS)
    main(["methods", "tasso"])
    assert "verified" in capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 200, None])
def test_methods_has_one_row_per_method(
    width: int | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a narrow terminal the last cell is continued below; into a file each row is one line."""
    from tasso.methods import METHODS

    monkeypatch.delenv("COLUMNS", raising=False)
    if width:
        monkeypatch.setenv("COLUMNS", str(width))
    main(["methods"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines[1 : lines.index("")] if not line.startswith(" ")]
    assert [row.split()[0] for row in rows] == sorted(METHODS)
    assert len(lines) < (70 if width == 60 else 20)
    if width == 200:
        row = next(row for row in rows if row.startswith("zscl "))
        assert re.split(r"  +", row)[1:4] == ["both towers", "reference", "+1470 MiB"]
        assert row.endswith("distillation from the pretrained model on reference images and texts; mean of weights")


@pytest.mark.parametrize("words", [["--limit-tasks", "1"], ["--sequence", "here"]])
def test_tasks_that_are_not_learned_may_be_missing(words: list[str], tmp_path: Path) -> None:
    check_early("tasso run", ["--tasks", f"here={tmp_path}", "gone=./nowhere", *words])


@pytest.mark.parametrize(("load", "told"), [(3.0, False), (9.0, True)])
def test_a_busy_machine_is_told(
    load: float, told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tasso")
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    tell_load("cpu")
    assert ("busy (load 9, 2 cores)" in caplog.text) == told
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    caplog.clear()
    tell_load("cpu")
    assert not caplog.text


def test_the_demo_says_how_long_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = Table("A table", (Column("Method", numeric=False),), ())
    monkeypatch.setattr("tasso.cli.demo.run_demo", lambda out, seed, given: (table, "", out / "report.html"))
    main(["demo", "--out", str(tmp_path)])
    assert f"finished in 0 s; results in {tmp_path}" in caplog.text


def test_module_entry_point() -> None:
    done = subprocess.run([sys.executable, "-m", "tasso", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tasso ")


RUN_FILES = sorted(file for file in (ROOT / "examples").glob("*.yaml") if not file.name.startswith("sweep"))


@pytest.mark.parametrize("file", RUN_FILES, ids=lambda file: file.stem)
def test_every_shipped_config_is_understood(file: Path) -> None:
    config = parse_run_config("tasso run", ["--config", str(file)])
    from tasso.training.resolve import resolve

    resolved, method = resolve(config)
    assert yaml.safe_load(file.read_text())["method"]["name"] == method.name
    assert resolved.template


def test_there_are_shipped_configs() -> None:
    assert RUN_FILES


@pytest.mark.slow
def test_report_writes_everything_into_one_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from runs_on_disk import draw_coarsely, several, write_runs

    draw_coarsely(monkeypatch)
    write_runs(tmp_path / "runs", several(seeds=1, aligned=False)[:1])
    out = tmp_path / "report"
    main(["report", str(tmp_path / "runs"), "--format", "csv", "--out", str(out)])
    printed = capsys.readouterr().out
    assert printed.startswith("Method,Benchmark,Model,Order,Runs,Accuracy")
    assert "report:" not in printed, "what is printed can be used as it is"
    assert {path.name for path in out.iterdir()} == {"index.html", "tables", "figures"}
    tables = {path.name for path in (out / "tables").iterdir()}
    names = ("summary-mtil", "summary-mcil", "time-and-memory")
    assert tables == {f"{name}.{kind}" for name in names for kind in ("md", "csv", "tex")}
    assert (out / "tables" / "summary-mtil.csv").read_text() in printed
    assert (out / "figures" / "captions.md").is_file()
    main(["report", str(tmp_path / "runs"), "--figures", str(tmp_path / "only")])
    assert {path.name for path in (out / "figures").iterdir()} == {path.name for path in (tmp_path / "only").iterdir()}


def test_report_into_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from runs_on_disk import several, write_runs

    write_runs(tmp_path / "runs", several(seeds=1)[:1])
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(SystemExit) as stop:
        main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "taken")])
    assert stop.value.code == 2
    assert "taken: cannot make this folder for the report" in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_run_that_is_not_there_is_told_in_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the command, and with the run that may be meant."""
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "runs/mine", "begun"):
        Path(folder).mkdir(parents=True)
    Path("runs/mine/results.json").write_text("{}")
    Path("begun/config.yaml").write_text("seed: 1\n")
    Path("file").write_text("")
    said = {
        "nowhere": "nowhere: no such run folder",
        "runs/mne": "runs/mne: no such run folder. Did you mean 'runs/mine'?",
        "empty": "empty: not a run folder, it has no results.json",
        "begun": "begun: this run has no results.json yet; the command that started it goes on with it",
        "runs": "runs: not a run folder, it has no results.json. There are runs in it: runs/mine",
        "file": "file: a file, not a run folder",
    }
    commands = {
        "eval {}": said.keys(),
        "classify {} x.png": said.keys(),
        "serve {}": said.keys(),
        "export {} --to open_clip --out e": said.keys(),
        "extend {} --tasks a=b": said.keys() - {"begun"},  # it says that the run is not finished
        "metrics {}": said.keys() - {"file"},  # which may be a matrix
        "report {}": said.keys() - {"runs", "file"},  # which has runs, or may be a study
        "merge {} nano --out m": said.keys() - {"nowhere", "file"},  # which may be names of models
    }
    for command, places in commands.items():
        for place in places:
            with pytest.raises(SystemExit) as stop:
                main(command.format(place).split())
            assert stop.value.code == 2
            printed = capsys.readouterr().err.strip().removeprefix("tasso: ").removeprefix("merge: ")
            assert printed == said[place], command
