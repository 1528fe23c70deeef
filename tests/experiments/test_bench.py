"""Benches run and print what they measured. No test depends on speed."""

from __future__ import annotations

import json
import multiprocessing
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from method_runs import LEARNING, options_for
from tasso.cli import main
from tasso.config import from_dict
from tasso.errors import ConfigError, RunError
from tasso.experiments.bench import (
    QUICK,
    bench_eval,
    bench_head,
    bench_images,
    bench_run,
    bench_sizes,
    bench_step,
    bench_sweep,
    many_runs,
    needed_by,
    sizes,
    step,
)
from tasso.experiments.bench.authors_step import AuthorsStep
from tasso.experiments.bench.budget import SHIPPED, Rule, compare, read_budget
from tasso.experiments.bench.random_tasks import random_learner
from tasso.experiments.bench.step import Work, count_work
from tasso.experiments.bench.timing import time_calls
from tasso.models.fp8 import FP8
from tasso.training.learner import Learner

SMALL = {"batch_size": 4, "reference_batch_size": 4, "device": "cpu"}
FAST: dict[str, Any] = {"rounds": 2, "calls": 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNING)
def test_a_step_of_every_method(tiny_model: str, name: str) -> None:
    options = {**SMALL, "model": tiny_model, "method": options_for(name)}
    result = bench_step(options, classes=5, **FAST)
    assert result["images_per_second"] > 0
    assert result["share_of_matmul"] == pytest.approx(result["tflops"] / result["matmul_tflops"], abs=1e-3)
    assert result["method"]["name"] == name
    json.dumps(result)


@pytest.mark.usefixtures("float32")
def test_the_authors_step_has_the_same_losses(tiny_model: str) -> None:
    """The first step of both, from the same weights and projector, on the same images."""
    options = {**SMALL, "model": tiny_model, "method": options_for("tasso"), "steps": 9}
    ours = random_learner(options, classes=5, images=16).begin(0)
    step = AuthorsStep(random_learner(options, classes=5, images=16), 6)
    with torch.no_grad():
        step.A.copy_(ours.method.projector.A)  # type: ignore[attr-defined]
    terms = {name: float(term) for name, term in ours.advance().items()}
    step()
    total, ce, subspace, parallel, perpendicular = step.losses
    assert ce == pytest.approx(terms["ce"], rel=1e-4)
    assert 0.5 * subspace == pytest.approx(terms["subspace"], rel=1e-4)
    assert 3 * (parallel + perpendicular) == pytest.approx(terms["kd"], rel=1e-2)
    assert total == pytest.approx(sum(terms.values()), rel=1e-3)


def test_tflop_are_those_of_the_towers(tiny_model: str) -> None:
    """Proportional to the batch size; TASSO adds reference images and a teacher."""
    options = {**SMALL, "model": tiny_model, "method": {"name": "finetune"}, "steps": 9}
    one = count_work(options, 5)
    twice = count_work({**options, "batch_size": 8}, 5)
    assert (twice.tflop, twice.operations) == (pytest.approx(2 * one.tflop, rel=0.02), one.operations)
    more = count_work({**options, "method": options_for("tasso")}, 5)
    assert more.tflop > 1.5 * one.tflop, "with reference images and a teacher"
    assert more.operations > 1.5 * one.operations


@pytest.mark.slow
def test_evaluation_and_a_full_run(tiny_model: str) -> None:
    options = {**SMALL, "model": tiny_model, "method": options_for("tasso")}
    result = bench_eval(options, classes=3, images=10, rounds=1)
    assert result["images"] == 20
    full = bench_run({**options, "batch_size": 32}, classes=3, images=10, **FAST)
    assert (full["steps"], full["test_images"]) == (9956, 61_381), "the paper's sizes"
    expected = full["steps"] * full["seconds_ms"] / 6e4
    assert full["training_minutes"] == pytest.approx(expected, abs=0.01)


@pytest.mark.slow
def test_images_from_files_and_from_packs(tiny_model: str) -> None:
    options = {**SMALL, "model": tiny_model, "method": options_for("tasso"), "workers": 2, "pack_size": 32}
    result = bench_images(options, classes=4, images=24, batches=1, **FAST)
    assert result["images"] == 24
    ratio = result["packed_images_per_second"] / result["exact_images_per_second"]
    assert result["packed_against_exact"] == pytest.approx(ratio, abs=0.01)
    both = [result[key]["seconds_ms"] for key in ("step_on_device", "step_from_packs")]
    assert result["share_of_device_rate"] == pytest.approx(both[0] / both[1], abs=1e-3)


def test_eager_steps(tiny_model: str) -> None:
    options = {**SMALL, "model": tiny_model, "method": {"name": "finetune"}}
    result = bench_step(options, classes=5, eager=True, **FAST)
    ratio = result["eager"]["seconds_ms"] / result["seconds_ms"]
    assert result["times_faster_than_eager"] == pytest.approx(ratio, abs=0.01)


def test_the_authors_step_trains_all_weights(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    low_rank = {"tune": "lora", "lora_rank": 2, "checkpoint_activations": True}
    options = {**SMALL, "model": tiny_model, "method": options_for("tasso"), **low_rank, "steps": 9}
    monkeypatch.setattr(step, "RANK", 6)
    learners = []
    monkeypatch.setattr(
        step, "random_learner", lambda *a, **k: learners.append(random_learner(*a, **k)) or learners[-1]
    )
    step.bench_reference(options, 5, **FAST)
    [learner] = learners
    assert (learner.clip.tune, learner.clip.checkpointing) == ("full", False)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_captured_step_is_called_so(tiny_model: str, monkeypatch: pytest.MonkeyPatch, checkpointed: bool) -> None:
    monkeypatch.setattr("tasso.training.engine.CapturedStep", Uncaptured)
    monkeypatch.setattr("tasso.training.engine.CAPTURE_DEVICES", ("cpu",))
    options = {**SMALL, "model": tiny_model, "method": "finetune", "checkpoint_activations": checkpointed}
    monkeypatch.setattr(step, "count_work", lambda *args: Work(1.0, 1))
    assert bench_step(options, classes=5, **FAST)["cuda_graphs"] == (not checkpointed)


class Uncaptured:
    """Has the place of a captured step, which needs CUDA."""

    def __init__(self, compute: Any, device: torch.device) -> None:
        self.compute = compute

    def __call__(self, *args: Any) -> Any:
        return self.compute(*args)

    def close(self) -> None: ...


def test_sizes_has_rows_for_what_cannot_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"model": "tiny", "method": "tasso", "device": "cpu"}
    for key, value in (("tune", "lora"), ("checkpoint_activations", True)):
        with pytest.raises(ConfigError, match=f"{key}: sizes measures"):
            bench_sizes({**options, key: value})
    chosen: list[dict[str, Any]] = []
    monkeypatch.setattr(sizes, "_measure", lambda options, *args: chosen.append(options) or {})
    monkeypatch.setattr(sizes, "choose_precision", lambda name, device: FP8)
    assert bench_sizes({**options, "lora_rank": 4})["precision"] == "fp8"
    assert [from_dict(one).lora_settings for one in chosen] == 2 * [{}] + 2 * [{"lora_rank": 4}]


def test_rows_of_sizes_are_kept_and_their_memory_is_not(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row has no memory, the others go on; each is saved at once; no learner outlives its row."""
    learners: list[weakref.ref[Learner]] = []
    saved: list[list[dict[str, Any]]] = []

    def learner(*args: Any, **more: Any) -> Learner:
        assert [earlier() for earlier in learners] == [None] * len(learners)
        made = random_learner(*args, **more)
        learners.append(weakref.ref(made))
        return made

    def calls(*args: Any, **more: Any) -> Any:
        if len(learners) == 2:
            raise torch.OutOfMemoryError("no memory\nof this kind")
        return time_calls(*args, **more)

    monkeypatch.setattr(sizes, "random_learner", learner)
    monkeypatch.setattr(sizes, "time_calls", calls)
    options = {**SMALL, "model": tiny_model, "method": options_for("tasso-both"), "device": "cpu"}
    result = bench_sizes(options, classes=3, rounds=1, calls=1, save=lambda result: saved.append([*result["rows"]]))
    assert len(learners) == 4
    assert [row.get("error") for row in result["rows"]] == [None, "no memory", None, None]
    assert [len(rows) for rows in saved] == [1, 2, 3, 4]
    late = bench_sizes(options, minutes=-1)["rows"]
    assert {row["error"] for row in late} == {"not measured within -1 minutes"}


@pytest.mark.slow
def test_sizes(
    tiny_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full and LoRA, with and without checkpointing; a model that cannot be made has a row that says why."""
    monkeypatch.setitem(QUICK, "batch_size", 128)
    models = f"{tiny_model},no-such-model"
    args = ["--quick", "--model", models, "--classes-per-task", "3", "--device", "cpu", "--minutes", "9"]
    main(["bench", "sizes", *args, "--out", str(tmp_path / "sizes.json")])
    assert len(json.loads((tmp_path / "sizes.json").read_text())["rows"]) == 8
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if line.startswith((tiny_model, "no-such-model"))]
    assert [row[1:3] for row in rows] == 2 * [["full", "False"], ["full", "True"], ["lora", "False"], ["lora", "True"]]
    estimates = [float(row[6]) for row in rows[:4]]
    assert estimates[3] <= estimates[1] <= estimates[0]
    assert estimates[3] < estimates[0]
    assert "knows no model 'no-such-model'" in " ".join(rows[4])


def test_budget_rules(tmp_path: Path) -> None:
    result = {"what": "step", "cuda": False, "model": "nano (random weights)", "method": {"name": "tasso"}}
    result |= {"times_faster": 2.0, "share_of_matmul": 0.5}
    rule = Rule("step", "cpu", "nano", "tasso", "times_faster", at_least=2.0)
    assert compare([result], [rule]) == (1, [])
    assert compare([{**result, "times_faster": 1.9}], [rule]) == (
        1,
        ["step: times_faster is 1.9, must be at least 2.0"],
    )
    most = Rule("step", "cpu", "nano", "tasso", "share_of_matmul", at_most=0.4)
    assert compare([result], [most])[1] == ["step: share_of_matmul is 0.5, must be at most 0.4"]
    for other in ({"cuda": True}, {"what": "eval"}, {"model": "ViT-B-16"}, {"method": {"name": "snd"}}):
        assert compare([{**result, **other}], [rule]) == (0, [])
    evaluation = {"what": "eval", "cuda": False, "model": "nano", "times_faster_than_eager": 1.2}
    faster = Rule("eval", "cpu", "nano", None, "times_faster_than_eager", at_least=1.4)
    assert compare([evaluation], [rule, faster])[1] == ["eval: times_faster_than_eager is 1.2, must be at least 1.4"]
    assert not any(rule.value.endswith(("_ms", "seconds", "minutes")) for rule in read_budget(SHIPPED)), "no times"
    (tmp_path / "budget.json").write_text('{"rules": [{"what": "step", "speed": 1}]}')
    with pytest.raises(ConfigError, match=r"budget\.json is not a budget file"):
        read_budget(tmp_path / "budget.json")


@pytest.mark.slow
def test_the_check_fails_if_a_rule_is_violated(
    tiny_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(QUICK, "model", tiny_model)
    rule = {"what": "step", "on": "cpu", "model": tiny_model, "method": "finetune", "value": "tflop"}
    for bound, code in ((0.0, 0), (1e9, 1)):
        file = tmp_path / "budget.json"
        file.write_text(json.dumps({"rules": [{**rule, "at_least": bound}]}))
        args = ["--quick", "--classes-per-task", "3", "--method", "finetune", "--device", "cpu", "--budget", str(file)]
        with pytest.raises(SystemExit) as stop:
            main(["bench", "step", "--check", *args])
        assert stop.value.code == code
        assert f"{1 - code} of 1 rules kept" in capsys.readouterr().out


def test_timing_counts_calls_and_takes_the_median() -> None:
    calls: list[int] = []
    timing = time_calls(lambda: calls.append(1), torch.device("cpu"), warm_up=2, rounds=3, calls=4)
    assert len(calls) == 2 + 3 * 4
    assert timing.seconds >= 0
    assert timing.spread >= 0


def test_the_command_prints_and_writes(
    tiny_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(QUICK, "model", tiny_model)
    file = tmp_path / "bench.json"
    args = ["bench", "step", "--quick", "--classes-per-task", "3", "--method", "finetune", "--device", "cpu"]
    main([*args, "--out", str(file)])
    printed = capsys.readouterr().out
    written = json.loads(file.read_text())
    assert f"milliseconds per call (median)     {written['seconds_ms']}" in printed
    for args in (["bench"], ["bench", "magic"]):
        with pytest.raises(SystemExit) as stop:
            main(args)
        assert stop.value.code == 2
        assert "step, images, eval, head, run, sizes, sweep" in capsys.readouterr().err


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Runs in the place of processes: the first makes 2 steps per second alone, and each one with others."""
    made: list[Any] = []

    class Run:
        def __init__(self, main: Any, options: dict[str, Any], *args: Any) -> None:
            self.options, self.sent, self.ended = options, 0, False
            self.connection = self.process = self
            made.append(self)

        def send(self, seconds: float) -> None:
            self.sent += 1

        def receive(self) -> Any:
            return {"model": "tiny"} if not self.sent else 2 / self.sent if self is made[0] else 1.0

        def terminate(self) -> None: ...

        def end(self) -> str:
            self.ended = True
            return "ended with 3"

    monkeypatch.setattr(many_runs, "Child", Run)
    return made


def test_steps_of_several_runs_are_added_up(children: list[Any]) -> None:
    result = bench_sweep({"device": "cpu", "method": "snd"}, jobs=(4, 2))
    assert [tuple(row.values()) for row in result["rows"]] == [(1, 2.0, 1.0), (2, 2.0, 1.0), (4, 3.67, 1.833)]
    assert (result["times_one_alone"], result["model"], result["mps"]) == (1.833, "tiny", False)
    assert [child.sent for child in children] == [3, 2, 1, 1]
    assert all(child.ended and child.options["method"] == "snd" for child in children)


@pytest.mark.parametrize("answer", [None, RunError("the process of one of the runs ended with 3")])
def test_a_run_that_fails_ends_all(children: list[Any], monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(
        many_runs.Child, "receive", lambda self: {} if not self.sent else answer if self is children[1] else 1.0
    )
    with pytest.raises(RunError, match="the process of one of the runs ended with 3"):
        bench_sweep({"device": "cpu"}, jobs=(2,))
    assert [child.ended for child in children] == [True, True]


@pytest.mark.slow
def test_a_sweep_of_two_runs(tiny_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sweep.json"
    args = ["--quick", "--classes-per-task", "3", "--device", "cpu", "--jobs", "2", "--out", str(file)]
    main(["bench", "sweep", "--model", tiny_model, "--method", "finetune", *args])
    result = json.loads(file.read_text())
    assert (result["what"], result["method"]["name"], result["classes"]) == ("sweep", "finetune", 3)
    one, two = result["rows"]
    assert (one["runs"], two["runs"]) == (1, 2)
    assert two["times_one_alone"] == pytest.approx(two["steps_per_second"] / one["steps_per_second"], abs=1e-2)
    assert "runs  steps_per_second  times_one_alone" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["bench", "sweep", "--model", "no-such-model", *args])
    assert "knows no model 'no-such-model'" in capsys.readouterr().err
    assert not multiprocessing.active_children()


def test_a_budget_alone_measures_what_it_has_rules_for() -> None:
    rules = [Rule(what, on, "nano", None, "x") for what, on in (("sweep", "cpu"), ("step", "cpu"), ("eval", "cuda"))]
    assert needed_by(rules, {"device": "cpu"}) == ["step", "sweep"]
    assert needed_by(read_budget(SHIPPED), {"device": "cpu"}) == ["step", "images"]


def test_a_head_is_embedded_for_and_fitted(tiny_model: str) -> None:
    result = bench_head({**SMALL, "model": tiny_model}, classes=4, images=64, rounds=1)
    assert result["features"] == 24 + 64 + 2000
    assert min(result["images_per_second"], result["fit_seconds"], result["state_mib"]) > 0
