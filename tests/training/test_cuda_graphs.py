"""Methods whose step may be captured as a CUDA graph do in a replay what they do step by step. Emulated on the CPU."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import pytest
import torch
from torch import Tensor

from method_runs import LEARNING, learn_first_task, learner_for, options_for
from replayed_step import ReplayedStep, use_tensor_rates
from tasso.errors import ConfigError, RunError
from tasso.methods import METHODS, Batch
from tasso.methods.finetune import FineTune
from tasso.training.cuda_graphs import WARM_UP, CapturedStep

STEPS = 8
CAPTURED = sorted(name for name, cls in METHODS.items() if cls.cuda_graphs)


def curves(
    quick: dict[str, Any], options: dict[str, Any], index: int, steps: int = STEPS, **more: Any
) -> tuple[list[dict[str, float]], ...]:
    """Losses of the same steps, once eager and once replayed."""
    found = []
    for replayed in (False, True):
        training = learner_for(quick, method=options, steps=steps, **more).begin(index)
        use_tensor_rates(training)
        if replayed:
            training.captured = ReplayedStep(training)  # type: ignore[assignment]
        found.append([{key: float(term) for key, term in training.advance().items()} for _ in range(steps)])
        training.close()
    return tuple(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", CAPTURED)
def test_a_replay_does_what_the_steps_do(quick: dict[str, Any], name: str) -> None:
    """In the second task, where teachers and memories differ from the model."""
    learn_first_task(quick, method=options_for(name), steps=STEPS)
    eager, replayed = curves(quick, options_for(name), 1)
    assert replayed == eager, "to the last bit"


@pytest.mark.parametrize("more", [{"tune": "lora"}, {"optimizer_precision": "bfloat16"}], ids=str)
def test_other_updates_are_replayed(quick: dict[str, Any], more: dict[str, Any]) -> None:
    eager, replayed = curves(quick, {**options_for("tasso"), "optimise": "alternate"}, 0, steps=12, **more)
    assert replayed == eager


def test_every_method_here_is_captured() -> None:
    assert LEARNING == CAPTURED
    assert not FineTune.__mro__[1].cuda_graphs, "a new method is not, unless it says so"


class Ramp(FineTune):
    """A loss weight that grows in Python."""

    name = "ramp"

    def begin_task(self, task: Any) -> None:
        super().begin_task(task)
        self.weight = 0.0

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        self.weight += 0.1
        return {"ce": self.weight * super().loss(batch)["ce"]}


class Reader(FineTune):
    """A loss that reads a value back."""

    name = "reader"

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        terms = super().loss(batch)
        return {"ce": terms["ce"] * (1 + 0 * terms["ce"].detach().item())}


class TensorRamp(Ramp):
    """The same, but the weight is a tensor that is changed in place."""

    name = "tensor-ramp"

    def begin_task(self, task: Any) -> None:
        super().begin_task(task)
        self.weight = torch.zeros(())  # type: ignore[assignment]


@pytest.mark.slow
def test_frozen_python_is_found_out(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (Ramp, TensorRamp, Reader):
        monkeypatch.setitem(METHODS, cls.name, cls)
    eager, replayed = curves(quick, {"name": "ramp"}, 0)
    assert replayed[: WARM_UP + 1] == eager[: WARM_UP + 1], "eager and recorded steps run Python"
    assert replayed[5]["ce"] != pytest.approx(eager[5]["ce"], rel=0.05), "replayed ones do not"
    eager, replayed = curves(quick, {"name": "tensor-ramp"}, 0)
    assert replayed == eager
    with pytest.raises(RuntimeError, match="waits for the device"):
        curves(quick, {"name": "reader"}, 0)


@pytest.mark.parametrize("optimise", ["alternate", "projector-first"])
def test_groups_that_rest_are_recorded_apart(quick: dict[str, Any], optimise: str) -> None:
    eager, replayed = curves(quick, {**options_for("tasso"), "optimise": optimise}, 0, steps=12)
    assert replayed == eager


def test_a_new_method_is_not_captured(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a step is captured follows from the method, the option, the optimiser and the device."""
    made: list[object] = []
    monkeypatch.setattr(
        "tasso.training.engine.CapturedStep", lambda step, device: made.append(step) or ReplayedSilently()
    )
    monkeypatch.setattr("tasso.training.engine.CAPTURE_DEVICES", ("cpu",))
    for more, captured in (
        ({}, True),
        ({"cuda_graphs": False}, False),
        ({"optimizer": "sgd"}, True),
        ({"optimizer": "muon"}, False),
        ({"checkpoint_activations": True}, False),
    ):
        made.clear()
        learner_for(quick, method="finetune", **more).begin(0).close()
        assert bool(made) == captured, more
    monkeypatch.setattr(FineTune, "cuda_graphs", False)
    made.clear()
    learner_for(quick, method="finetune").begin(0).close()
    assert not made


class ReplayedSilently:
    def close(self) -> None:
        pass


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a capture asks of a GPU. The graph cannot be ended once something has failed, as on a real one."""
    state: dict[str, Any] = {"cached": 0, "free": 0, "emptied": 0, "failed": False}

    class Graph:
        def capture_begin(self, capture_error_mode: str) -> None:
            assert not state["failed"]

        def capture_end(self) -> None:
            if state["failed"]:
                raise RuntimeError("capture was invalidated")

        def replay(self) -> None:
            pass

    def empty() -> None:
        state["emptied"] += 1

    for name, value in {
        "Stream": object,
        "stream": lambda stream: contextlib.nullcontext(),
        "CUDAGraph": Graph,
        "synchronize": lambda device: None,
        "mem_get_info": lambda device: (state["free"], 32 * 100),
        "memory_reserved": lambda device: 1000 + state["cached"],
        "memory_allocated": lambda device: 1000,
        "empty_cache": empty,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return state


@pytest.mark.parametrize(
    ("error", "seen", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), torch.OutOfMemoryError, "CUDA out of memory"),
        (RuntimeError("a value was read back\nmore"), RunError, r"captured.*\(a value was read back\)"),
        (ConfigError("method: this task has no images"), ConfigError, "^method: this task"),
    ],
)
def test_what_fails_in_a_capture_is_told(
    fake_gpu: dict[str, Any], error: Exception, seen: type[Exception], words: str
) -> None:
    def step(inputs: object, kind: object) -> dict[str, Tensor]:
        fake_gpu["failed"] = True
        raise error

    captured = CapturedStep(step, torch.device("cpu"))
    captured.calls[frozenset()] = WARM_UP
    with pytest.raises(seen, match=words):
        captured({}, frozenset())
    assert gc.isenabled()


@pytest.mark.parametrize(("cached", "free", "emptied"), [(0, 0, 0), (90, 95, 0), (90, 80, 1), (101, 3000, 1)])
def test_the_cache_is_emptied_where_a_graph_may_need_it(
    fake_gpu: dict[str, Any], cached: int, free: int, emptied: int
) -> None:
    """That takes long. Of 3,200 bytes, 100 may stay in the cache."""
    fake_gpu |= {"cached": cached, "free": free}
    captured = CapturedStep(lambda inputs, kind: {"ce": torch.ones(())}, torch.device("cpu"))
    captured.calls[frozenset()] = WARM_UP
    assert float(captured({}, frozenset())["ce"]) == 1
    assert fake_gpu["emptied"] == emptied
