"""Trackers: what is logged can be read back; a missing or failing one is reported once and stops nothing."""

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
from tasso.training import learner, trackers
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
        for index, task in enumerate(results["tasks"]):
            rows = [results[setting]["zero_shot"], *results[setting]["matrix"]]
            expected = [(step, pytest.approx(row[index], abs=1e-4)) for step, row in zip((0, 4, 8), rows, strict=True)]
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
            [(step, logged)] = found[f"loss/{event['task']}/{name}"]
            assert (step, logged) == (before + event["step"], pytest.approx(value, rel=1e-5))


@needs("tensorboard")
def test_tracking_changes_neither_results_nor_the_identity_of_a_run(quick: dict[str, Any], tmp_path: Path) -> None:
    plain = learn(from_dict(quick))
    again = learn(from_dict({**quick, "track": "tensorboard"}))  # finished: only read
    assert again["mtil"] == plain["mtil"]
    assert not (Path(str(quick["out"])) / "tracking").exists()
    tracked = learn(from_dict({**quick, "track": "tensorboard", "out": str(tmp_path / "tracked")}))
    assert tracked["mtil"] == plain["mtil"]
    learn(from_dict({**quick, "out": str(tmp_path / "tracked"), "overwrite": True}))
    assert not (tmp_path / "tracked" / "tracking").exists(), "--overwrite removes everything of the old run"


def test_a_missing_tracker_is_named_before_anything_is_created(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "wandb" else real(name, *a))
    with pytest.raises(ConfigError, match=r"track: wandb is not installed: pip install '"):
        learn(from_dict({**quick, "track": "wandb"}))
    assert not Path(str(quick["out"])).exists()


def test_an_unknown_tracker_is_an_error_that_names_the_key(quick: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="track: expected one of tensorboard, wandb, mlflow or nothing"):
        from_dict({**quick, "track": "paper"})


class Failing:
    """A tracker whose calls fail from the n-th on; `open` counts as the first."""

    def __init__(self, fails_at: int) -> None:
        self.calls, self.fails_at = 0, fails_at

    def call(self) -> None:
        self.calls += 1
        if self.calls >= self.fails_at:
            raise ConnectionError("server unavailable")

    def open(self, *_: Any) -> Failing:
        self.call()
        return self

    def log_scalars(self, *_: Any) -> None:
        self.call()

    def close(self, finished: bool) -> None:
        assert finished
        self.call()


@pytest.mark.parametrize("fails_at", [1, 2, 4, 7])
def test_a_failing_tracker_is_reported_once_and_stops_nothing(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails_at: int
) -> None:
    failing = Failing(fails_at)
    monkeypatch.setitem(trackers.BACKENDS, "tensorboard", failing.open)
    monkeypatch.setattr(learner, "check_installed", lambda tracker: None)
    with caplog.at_level(logging.WARNING, logger="tasso"):
        results = learn(from_dict({**quick, "track": "tensorboard"}))
    assert results["finished"]
    warnings = [record.getMessage() for record in caplog.records if "track:" in record.getMessage()]
    assert warnings == ["track: tensorboard failed and is not used any more: server unavailable"]
    assert failing.calls == fails_at, "no further calls"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_values_that_are_not_finite_are_not_logged(value: Any) -> None:
    logged: list[dict[str, float]] = []

    class Backend:
        def log_scalars(self, values: Any, step: int) -> None:
            logged.append(dict(values))

        def close(self, finished: bool) -> None: ...

    tracked = trackers.Tracking("tensorboard", Backend)
    tracked.metrics({"mtil": {"forgetting": value, "accuracy": 1.0}}, 3)
    tracked.metrics({"mtil": {"forgetting": value}}, 4)
    assert logged == [{"mtil/accuracy": 1.0}]


def test_a_stopped_run_is_closed_as_stopped_and_resumed(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Backend:
        def __init__(self, *_: Any) -> None:
            calls.append("open")

        def log_scalars(self, values: Any, step: int) -> None:
            calls.append(step)
            if calls.count("open") == 1 and step == 4:
                raise KeyboardInterrupt

        def close(self, finished: bool) -> None:
            calls.append(finished)

    monkeypatch.setitem(trackers.BACKENDS, "tensorboard", Backend)
    monkeypatch.setattr(learner, "check_installed", lambda tracker: None)
    config = from_dict({**quick, "track": "tensorboard"})
    with pytest.raises(KeyboardInterrupt):
        learn(config)
    assert calls == ["open", 0, 4, False]
    calls.clear()
    calls.append("open")  # the second `open` is that of the resumed run
    learn(config)
    assert calls[1] == "open"
    assert calls[-1] is True
    assert 0 not in calls[:-1], "values are not logged twice"


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
