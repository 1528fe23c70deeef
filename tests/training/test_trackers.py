"""Trackers: what they are told can be read back; a missing or failing one is said once and stops nothing."""

from __future__ import annotations

import importlib.util
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from conftest import as_words
from tasso.cli import main
from tasso.config import from_dict
from tasso.errors import ConfigError
from tasso.training import learner
from tasso.training import trackers as tracking
from tasso.training.learner import learn


def needs(module: str) -> Any:
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads from the event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@needs("tensorboard")
def test_tensorboard_gets_what_the_log_and_the_results_have(quick: dict[str, Any]) -> None:
    main(["run", *as_words(quick), "--track", "tensorboard"])
    out = Path(str(quick["out"]))
    results = json.loads((out / "results.json").read_text())
    found = scalars(out / "tracking" / "tensorboard")
    for setting in ("mtil", "mcil"):
        for place, task in enumerate(results["tasks"]):
            rows = [results[setting]["zero_shot"], *results[setting]["matrix"]]
            expected = [(step, pytest.approx(row[place], abs=1e-4)) for step, row in zip((0, 4, 8), rows, strict=True)]
            assert found[f"{setting}/{task}"] == expected
        for name, value in results[setting]["metrics"].items():
            assert found[f"{setting}/{name}"] == [(8, pytest.approx(value, abs=1e-4))]
    events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    assert [event["task"] for event in steps] == results["tasks"]
    for before, event in zip((0, 4), steps, strict=True):
        values = {key: value for key, value in event.items() if key not in ("time", "event", "task", "step")}
        assert values
        for name, value in values.items():
            [(step, told)] = found[f"loss/{event['task']}/{name}"]
            assert (step, told) == (before + event["step"], pytest.approx(value, rel=1e-5))


@needs("tensorboard")
def test_tracking_changes_no_result_and_does_not_make_another_run(quick: dict[str, Any], tmp_path: Path) -> None:
    plain = learn(from_dict(quick))
    again = learn(from_dict({**quick, "track": "tensorboard"}))  # finished: only read
    assert again["mtil"] == plain["mtil"]
    assert not (Path(str(quick["out"])) / "tracking").exists()
    tracked = learn(from_dict({**quick, "track": "tensorboard", "out": str(tmp_path / "tracked")}))
    assert tracked["mtil"] == plain["mtil"]
    learn(from_dict({**quick, "out": str(tmp_path / "tracked"), "overwrite": True}))
    assert not (tmp_path / "tracked" / "tracking").exists(), "--overwrite leaves nothing of the old run"


def test_a_missing_tracker_is_named_before_anything_is_made(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "wandb" else real(name, *a))
    with pytest.raises(ConfigError, match=r"track: wandb is not installed: pip install 'tasso\[wandb\]'"):
        learn(from_dict({**quick, "track": "wandb"}))
    assert not Path(str(quick["out"])).exists()


def test_an_unknown_tracker_is_an_error_that_names_the_key(quick: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="track: expected one of tensorboard, wandb, mlflow or nothing"):
        from_dict({**quick, "track": "paper"})


class Failing:
    """A tracker whose n-th call fails; `open` counts as the first."""

    def __init__(self, fails_at: int) -> None:
        self.calls, self.fails_at = 0, fails_at

    def call(self) -> None:
        self.calls += 1
        if self.calls >= self.fails_at:
            raise ConnectionError("the server is on holiday")

    def open(self, *_: Any) -> Failing:
        self.call()
        return self

    def numbers(self, *_: Any) -> None:
        self.call()

    def close(self, finished: bool) -> None:
        assert finished
        self.call()


@pytest.mark.parametrize("fails_at", [1, 2, 4, 7])
def test_a_failing_tracker_is_told_once_and_stops_nothing(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails_at: int
) -> None:
    failing = Failing(fails_at)
    monkeypatch.setitem(tracking.BACKENDS, "tensorboard", failing.open)
    monkeypatch.setattr(learner, "check_installed", lambda tracker: None)
    with caplog.at_level(logging.WARNING, logger="tasso"):
        results = learn(from_dict({**quick, "track": "tensorboard"}))
    assert results["finished"]
    told = [record.getMessage() for record in caplog.records if "track:" in record.getMessage()]
    assert told == ["track: tensorboard failed and is left alone from here on: the server is on holiday"]
    assert failing.calls == fails_at, "it is asked no more"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_numbers_that_are_none_are_not_told(value: Any) -> None:
    told: list[dict[str, float]] = []

    class Backend:
        def numbers(self, values: Any, step: int) -> None:
            told.append(dict(values))

        def close(self, finished: bool) -> None: ...

    tracked = tracking.Tracking("tensorboard", Backend)
    tracked.metrics({"mtil": {"forgetting": value, "accuracy": 1.0}}, 3)
    tracked.metrics({"mtil": {"forgetting": value}}, 4)
    assert told == [{"mtil/accuracy": 1.0}]


def test_a_stopped_run_is_told_as_stopped_and_goes_on(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Backend:
        def __init__(self, *_: Any) -> None:
            told.append("open")

        def numbers(self, values: Any, step: int) -> None:
            told.append(step)
            if told.count("open") == 1 and step == 4:
                raise KeyboardInterrupt

        def close(self, finished: bool) -> None:
            told.append(finished)

    monkeypatch.setitem(tracking.BACKENDS, "tensorboard", Backend)
    monkeypatch.setattr(learner, "check_installed", lambda tracker: None)
    config = from_dict({**quick, "track": "tensorboard"})
    with pytest.raises(KeyboardInterrupt):
        learn(config)
    assert told == ["open", 0, 4, False]
    told.clear()
    told.append("open")  # the second of them goes on
    learn(config)
    assert told[1] == "open"
    assert told[-1] is True
    assert 0 not in told[:-1], "what was told is not told again"


@needs("mlflow")
def test_mlflow_with_a_file_store(quick: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for this
    results = learn(from_dict({**quick, "track": "mlflow"}))
    number = (Path(str(quick["out"])) / "tracking" / "mlflow-id.txt").read_text()
    run = MlflowClient().get_run(number)
    assert run.info.status == "FINISHED"
    assert run.data.params["method.rank"] == "6"
    assert run.data.metrics["mtil/accuracy"] == pytest.approx(results["mtil"]["metrics"]["accuracy"])
    history = MlflowClient().get_metric_history(number, "mtil/dtd")
    assert [entry.step for entry in history] == [0, 4, 8]


@needs("wandb")
def test_wandb_offline(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    results = learn(from_dict({**quick, "track": "wandb"}))
    assert results["finished"]
    folder = Path(str(quick["out"])) / "tracking"
    name = (folder / "wandb-id.txt").read_text()
    [file] = folder.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb")
    content = file.read_bytes()
    for word in (b"mtil/dtd", b"mcil/zero_shot_degradation", b"loss/eurosat/"):
        assert word in content
