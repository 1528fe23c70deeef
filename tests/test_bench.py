"""Benches run, and what they print is what they measured. No test looks at a speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tasso.bench import bench_eval, bench_run, bench_step
from tasso.bench.measure import QUICK, time_calls
from tasso.bench.noise import noise_learner
from tasso.bench.reference import ReferenceStep
from tasso.bench.step import count_tflop
from tasso.cli import main
from tasso.methods import METHODS
from test_methods import options_for

SMALL = {"batch_size": 4, "reference_batch_size": 4, "device": "cpu"}
FAST: dict[str, Any] = {"rounds": 2, "calls": 1}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_step_of_every_method(tiny_model: str, name: str) -> None:
    options = {**SMALL, "model": tiny_model, "method": options_for(name)}
    result = bench_step(options, classes=5, **FAST)
    assert result["images_per_second"] > 0
    assert result["share_of_matmul"] == pytest.approx(result["tflops"] / result["matmul_tflops"], abs=1e-3)
    assert result["method"]["name"] == name
    json.dumps(result)


def test_the_plain_recipe_has_the_same_losses(tiny_model: str) -> None:
    """Its first step against ours, from the same weights and projector, on the same pictures."""
    options = {**SMALL, "model": tiny_model, "method": options_for("tasso"), "steps": 9}
    ours = noise_learner(options, classes=5, pictures=16).begin(0)
    step = ReferenceStep(noise_learner(options, classes=5, pictures=16), 6)
    with torch.no_grad():
        step.A.copy_(ours.method.A)  # type: ignore[attr-defined]
    terms = {name: float(term) for name, term in ours.advance().items()}
    step()
    total, ce, subspace, parallel, perpendicular = step.read
    assert ce == pytest.approx(terms["ce"], rel=1e-4)
    assert 0.5 * subspace == pytest.approx(terms["subspace"], rel=1e-4)
    assert 3 * (parallel + perpendicular) == pytest.approx(terms["kd"], rel=1e-2)
    assert total == pytest.approx(sum(terms.values()), rel=1e-3)


def test_arithmetic_is_that_of_the_towers(tiny_model: str) -> None:
    """Fine-tuning: forward once and backward twice, so three times the forward's products."""
    options = {**SMALL, "model": tiny_model, "method": {"name": "finetune"}, "steps": 9}
    one = count_tflop(options, 5)
    assert count_tflop({**options, "batch_size": 8}, 5) == pytest.approx(2 * one, rel=0.02)
    assert count_tflop({**options, "method": options_for("tasso")}, 5) > 1.5 * one, "reference pictures and a teacher"


def test_evaluation_and_a_whole_run(tiny_model: str) -> None:
    options = {**SMALL, "model": tiny_model, "method": options_for("tasso")}
    result = bench_eval(options, classes=3, pictures=10, rounds=1)
    assert result["pictures"] == 20
    whole = bench_run({**options, "batch_size": 32}, classes=3, pictures=10, **FAST)
    assert (whole["steps"], whole["test_pictures"]) == (9956, 61_381), "the paper's sizes"
    expected = whole["steps"] * whole["seconds_ms"] / 6e4
    assert whole["training_minutes"] == pytest.approx(expected, abs=0.01)


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
    words = ["bench", "step", "--quick", "--classes", "3", "--method", "finetune", "--device", "cpu"]
    main([*words, "--json", str(file)])
    printed = capsys.readouterr().out
    written = json.loads(file.read_text())
    assert f"milliseconds a call (median)       {written['seconds_ms']}" in printed
    for words in (["bench"], ["bench", "magic"]):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 2
        assert "step, eval, run" in capsys.readouterr().err
