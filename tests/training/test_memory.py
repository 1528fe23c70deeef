"""The memory that a run announces."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from method_runs import copied, learn_first_task, learner_for, options_for, same
from tasso.errors import LESS_MEMORY
from tasso.training import memory
from tasso.training.engine import cpu_has_bfloat16
from tasso.training.memory import GIB, Memory, memory_needed, saved_bytes, tell_memory


def test_saved_bytes_are_those_of_the_backward_pass() -> None:
    """Two layers of a perceptron keep their inputs, and the activation its output, which is one of these inputs."""
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    assert saved_bytes(model, lambda n: model(torch.zeros(n, 5)), 4) == 4 * 4 * (5 + 7)
    model[0].requires_grad_(False)
    assert saved_bytes(model, lambda n: model(torch.zeros(n, 5)), 4) == 4 * 4 * 7


def test_nothing_is_left_of_the_passes_that_count() -> None:
    """What stayed would hold on to the stream that they ran on, and a step could not be captured on another."""
    model = nn.Sequential(nn.Linear(5, 7), nn.Sigmoid())  # which keeps its own output for the backward pass
    outputs: list[weakref.ref[torch.Tensor]] = []

    def forward(count: int) -> torch.Tensor:
        output = model(torch.zeros(count, 5))
        outputs.append(weakref.ref(output))
        return output

    gc.disable()
    try:
        saved_bytes(model, forward, 2)
        assert outputs[0]() is None
    finally:
        gc.enable()


def needed(quick: dict[str, Any], **more: Any) -> Memory:
    return memory_needed(learner_for(quick, **more).begin(0))


@pytest.mark.usefixtures("float32")
def test_more_takes_more_and_savings_save(quick: dict[str, Any]) -> None:
    usual = needed(quick)
    larger = needed(quick, batch_size=16, reference_batch_size=16)
    assert (larger.held, larger.trained) == (usual.held, usual.trained)
    assert larger.activations == pytest.approx(2 * usual.activations, rel=0.01), "twice the images"
    assert needed(quick, accumulate=2).activations == pytest.approx(usual.activations / 2, rel=0.01)
    few = needed(quick, tune="lora", lora_rank=2)
    assert few.trained < 0.4 * usual.trained
    assert few.held == usual.held
    assert needed(quick, tune="norms").activations < usual.activations
    assert needed(quick, checkpoint_activations=True).activations < 0.85 * usual.activations
    if cpu_has_bfloat16():
        assert needed(quick, teacher_precision="bfloat16").held < usual.held
    assert needed(quick, optimizer="sgd").trained < usual.trained
    assert needed(quick, optimizer_precision="bfloat16").trained == usual.trained * 2 // 3, "gradients stay as they are"
    assert needed(quick, method=options_for("finetune")).total < usual.total, "no teacher, no reference images"
    both = needed(quick, method=options_for("tasso-both"))
    assert both.activations > usual.activations
    assert both.trained > usual.trained


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_blocks_that_are_not_trained_keep_nothing(quick: dict[str, Any], precision: str) -> None:
    if precision == "bfloat16" and not cpu_has_bfloat16():
        pytest.skip("bfloat16 products fail on this CPU")
    usual, last, none = (
        needed(quick, precision=precision, method=options_for("finetune"), **more).activations
        for more in ({}, {"tune": "last:1"}, {"tune": "norms"})
    )
    assert last < 0.7 * usual
    assert none < usual


@pytest.mark.parametrize(
    ("name", "more"),
    [("tasso", {}), ("tasso-both", {"anchors_per_step": 64}), ("gift", {}), ("icarl", {"labelled_replay": True})],
)
@pytest.mark.usefixtures("float32")
def test_activations_are_those_of_the_loss(quick: dict[str, Any], name: str, more: dict[str, Any]) -> None:
    options = {**quick, "method": {**options_for(name), **more}, "reference_batch_size": 16}
    learn_first_task(options)
    training = learner_for(options).begin(1)
    batch = training.batch()
    kept = saved_bytes(training.clip.model, lambda n: torch.stack(list(training.method.loss(batch).values())), 1)
    assert memory_needed(training).activations == pytest.approx(kept, rel=0.1)


def test_asking_changes_nothing(quick: dict[str, Any]) -> None:
    states = []
    for asks in (False, True):
        training = learner_for(quick, checkpoint_activations=True).begin(0)
        if asks:
            memory_needed(training)
        training.advance()
        states.append(copied(training.state_dict()))
    assert same(*states)


@pytest.mark.parametrize(("free", "warns"), [(8, False), (4, True)])
def test_what_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, free: int, warns: bool
) -> None:
    monkeypatch.setattr(memory, "memory_needed", lambda training: Memory(3 * GIB, 2 * GIB, 4 * GIB))
    for name, value in (("mem_get_info", (free * GIB, 24 * GIB)), ("memory_reserved", GIB), ("memory_allocated", 0)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    training: Any = SimpleNamespace(
        clip=SimpleNamespace(device=torch.device("cuda")), method=SimpleNamespace(towers="visual")
    )
    with caplog.at_level("INFO", "tasso"):
        tell_memory(training)
    assert "needs about 10.0 GiB; this GPU has 24.0" in caplog.text
    assert (f"need about 7.0 GiB more and 5.0 are free. {LESS_MEMORY}" in caplog.text) == warns
