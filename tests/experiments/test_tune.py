"""`tasso tune`: a learning rate chosen on validation images of the first tasks."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from own_images import write_folder
from tasso.cli import main
from tasso.config import RunConfig, from_dict
from tasso.errors import ConfigError
from tasso.experiments.sweep import tune
from tasso.experiments.sweep.choose import Choice, Tried
from tasso.experiments.sweep.tune import first_tasks, widened
from tasso.report.choice import tried_table
from tasso.report.formats import to_markdown
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder

LADDER = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3]


def test_rates_are_added_while_the_best_is_at_an_end() -> None:
    assert widened(LADDER[1:4], 1e-4, LADDER) == LADDER[1:4]
    assert widened(LADDER[1:4], 3e-4, LADDER) == LADDER[1:5]
    assert widened(LADDER[1:4], 3e-5, LADDER) == LADDER[0:4]
    assert widened(LADDER, 1e-3, LADDER) == widened(LADDER, 1e-5, LADDER) == LADDER, "nothing lies beyond"


def test_the_table_shows_every_rate() -> None:
    tried = [Tried({"lr": lr}, [accuracy]) for lr, accuracy in ((1e-5, 40.0), (1e-4, 50.0), (1e-3, None))]
    text = to_markdown(tried_table(Choice("tasso", tried), "mean"))
    for row in ("| 1e-05 | 40.00 |  |", "| 0.0001 | 50.00 | chosen |", "| 0.001 | – | not finished |"):
        assert row in text


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["aircraft", "textures"]),
        ({"limit_tasks": 1}, ["aircraft"]),
        ({"sequence": "aircraft"}, ["aircraft"]),
        ({"benchmark": "atlas-classes-8"}, ["step 1", "step 2"]),
        ({"benchmark": "atlas-classes-8", "limit_tasks": 1}, ["step 1"]),
        ({"sequence": "aircraft", "split_classes": "4", "limit_tasks": 5}, ["step 1", "step 2"]),
    ],
)
def test_the_first_tasks_are_those_of_the_run(options: dict[str, Any], names: list[str]) -> None:
    assert first_tasks(from_dict(options)) == names


@pytest.mark.parametrize("method", ["tasso", "tasso-both", "snd"])
@pytest.mark.parametrize("tasks", [{}, {"tasks": {"a": "./a"}}])
def test_the_file_runs_the_same_method(
    method: str, tasks: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine-tune").mkdir()
    best = Choice(method, [Tried({"lr": 1e-4}, [50.0])])
    monkeypatch.setattr(tune, "run_jobs", lambda *args: SimpleNamespace(stopped=False))
    monkeypatch.setattr(tune, "choices", lambda *args: [best])
    monkeypatch.setattr(tune, "widened", lambda rates, *args: rates)
    config = from_dict({**tasks, "method": method, "out": tmp_path / "mine"})
    _, file = tune.tune(config)
    assert from_dict(yaml.safe_load(file.read_text())).method == config.method
    with pytest.raises(ConfigError, match=r"overwrite: finished runs are not repeated; delete .*mine-tune"):
        tune.tune(dataclasses.replace(config, overwrite=True))


def test_a_folder_that_has_another_run_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tasso")
    (tmp_path / "mine-tune").mkdir()
    monkeypatch.setattr(tune, "run_jobs", lambda *args: SimpleNamespace(stopped=False))
    monkeypatch.setattr(tune, "choices", lambda *args: [Choice("tasso", [Tried({"lr": 1e-4}, [50.0])])])
    monkeypatch.setattr(tune, "widened", lambda rates, *args: rates)
    config = from_dict({"method": "tasso", "out": tmp_path / "mine", "device": "cpu"})

    def tuned() -> RunConfig:
        _, file = tune.tune(config)
        return from_dict(yaml.safe_load(file.read_text()))

    def begin(run: RunConfig) -> None:
        with RunFolder(run.out).opened(resolve(run)[0]):
            pass

    assert tuned().out == tmp_path / "mine"
    begin(dataclasses.replace(config, lr=3e-4))
    first = tuned()
    assert first.out == tmp_path / "mine-tuned"
    assert f"{config.out} has another run already, so the run with this rate gets the folder {first.out}" in caplog.text
    begin(first)
    assert tuned() == first, "a run that was begun from the file goes on"
    begin(dataclasses.replace(first, lr=3e-4, overwrite=True))
    assert tuned().out == tmp_path / "mine-tuned-2"
    begin(dataclasses.replace(first, out=config.out, overwrite=True))
    assert tuned().out == config.out, "a run with the same rate is this run"


@pytest.mark.slow
def test_from_tuning_to_the_run(
    tmp_path: Path, tiny_model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("pets", "land", "food")
    for name in names:
        write_folder(tmp_path / name, name, splits=("train", "test"))
    tests = [file for name in names for file in (tmp_path / name / "test").rglob("*.png")]
    kept = {file: file.read_bytes() for file in tests}
    for file in tests:
        file.write_bytes(b"not an image")
    options = ["--tasks", *(f"{name}=./{name}" for name in names), "--model", tiny_model, "--steps", "2"]
    options += ["--batch-size", "4", "--reference-batch-size", "4", "--reference-images", "8", "--device", "cpu"]
    main(["tune", *options, "--method.rank", "6", "--out", "runs/mine"])
    said = capsys.readouterr().out
    tried = [RunFolder(file.parent) for file in Path("runs/mine-tune").glob("tasso-*/results.json")]
    rates = {float(run.read_config().lr) for run in tried}
    assert rates >= {3.3e-5, 1e-4, 3e-4}
    for run in tried:
        results = run.read_results()
        assert results is not None
        assert (results["split"], results["tasks"]) == ("val", ["pets", "land"]), "the first tasks, no test images"
        assert f"{float(run.read_config().lr):g}" in said
    assert "config: runs/mine-tune/tuned.yaml" in said
    tuned = yaml.safe_load(Path("runs/mine-tune/tuned.yaml").read_text())
    assert tuned["lr"] in rates
    assert from_dict(tuned).method == {"name": "tasso-both", "rank": 6}
    for file, content in kept.items():
        file.write_bytes(content)
    monkeypatch.chdir(tmp_path / "runs")  # paths in the file are absolute, all but that of the run
    main(["run", "--config", "mine-tune/tuned.yaml", "--out", "mine"])
    results = json.loads(Path("mine/results.json").read_text())
    assert (results["split"], results["tasks"]) == ("test", list(names))
    assert RunFolder(Path("mine")).read_config().lr == tuned["lr"]
