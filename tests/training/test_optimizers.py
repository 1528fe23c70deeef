"""The table of optimisers: they learn, they resume to the same bits, and their saved state is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from method_runs import copied, learner_for, same
from tasso.config import from_dict
from tasso.errors import ConfigError, RunError, TassoError
from tasso.training import engine
from tasso.training.engine import cpu_has_bfloat16
from tasso.training.learner import learn
from tasso.training.optimizers import OPTIMIZERS, build_optimizers
from tasso.training.resolve import resolve

# Rates at which the tiny model learns; SGD's gradients are not normalised.
RATES = {"adamw": 1e-3, "sgd": 3e-2, "muon": 1e-3}


@pytest.fixture(params=sorted(OPTIMIZERS))
def options(request: pytest.FixtureRequest, quick: dict[str, Any]) -> dict[str, Any]:
    if request.param == "muon" and not (hasattr(torch.optim, "Muon") and cpu_has_bfloat16()):
        pytest.skip("torch.optim.Muon cannot run here")
    return {**quick, "optimizer": request.param, "lr": RATES[request.param]}


def test_the_loss_falls(options: dict[str, Any]) -> None:
    training = learner_for(options, method="finetune", steps=40).begin(0)
    batch = training.batch()
    before = float(training.method.loss(batch)["ce"].detach())
    while training.step < 40:
        training.advance()
    assert float(training.method.loss(batch)["ce"].detach()) < 0.9 * before


def test_a_stopped_task_goes_on_with_the_same_bits(options: dict[str, Any]) -> None:
    whole = learner_for(options).begin(0)
    for _ in range(4):
        whole.advance()
    state = None
    for _ in range(4):
        part = learner_for(options).begin(0)
        if state is not None:
            part.load_state_dict(state, "state")
        part.advance()
        state = copied(part.state_dict())
    assert state is not None
    assert same(state, copied(whole.state_dict()))
    assert any(name.startswith("optimizer/projector/A/") for name in state)


def test_a_run_is_finished_and_pinned(options: dict[str, Any]) -> None:
    assert learn(from_dict(options))["finished"]
    other = next(name for name in OPTIMIZERS if name != options["optimizer"])
    with pytest.raises(RunError, match=f"optimizer = '{options['optimizer']}', not '{other}'"):
        learn(from_dict({**options, "optimizer": other}))


def moments(state: dict[str, Tensor]) -> str:
    """The name of a tensor of an optimiser that has the shape of its parameter."""
    return next(name for name in state if name.startswith("optimizer/") and state[name].ndim == 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda state, name: {**state, name: state[name][:-1]}, "has shape"),
        (lambda state, name: {**state, name: state[name].double()}, r"torch\.float64 instead of"),
        (lambda state, name: {**state, name: torch.full_like(state[name], torch.inf)}, "contains inf or NaN"),
        (lambda state, name: {**state, f"{name}_sum": state[name]}, "does not belong here"),
    ],
)
def test_states_that_do_not_fit_are_named(
    options: dict[str, Any], spoil: Callable[[dict[str, Tensor], str], dict[str, Tensor]], complaint: str
) -> None:
    training = learner_for(options).begin(0)
    training.advance()
    state = copied(training.state_dict())
    name = moments(state)
    with pytest.raises(TassoError, match=rf"some-file: .*{name.rpartition('/')[0]}.*{complaint}"):
        learner_for(options).begin(0).load_state_dict(spoil(state, name), "some-file")


def test_a_missing_moment_is_named(quick: dict[str, Any]) -> None:
    training = learner_for(quick).begin(0)
    training.advance()
    state = copied(training.state_dict())
    del state["optimizer/projector/A/exp_avg_sq"]
    with pytest.raises(RunError, match="some-file: incomplete, 'optimizer/projector/A/exp_avg_sq' is missing"):
        learner_for(quick).begin(0).load_state_dict(state, "some-file")


def test_the_state_of_another_optimiser_is_refused(quick: dict[str, Any]) -> None:
    training = learner_for(quick, optimizer="sgd").begin(0)
    training.advance()
    with pytest.raises(RunError, match=r"some-file: incomplete, 'optimizer/.*' is missing"):
        learner_for(quick).begin(0).load_state_dict(copied(training.state_dict()), "some-file")


def test_sgd_has_the_first_beta_as_momentum() -> None:
    """Two steps against the formula: v ← βv + g + λw, w ← w − ηv."""
    w = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    (sgd,) = build_optimizers("sgd", [{"params": [w], "lr": 0.1, "weight_decay": 0.3}], (0.8, 0.5))
    expected, v = w.detach().clone(), torch.zeros(2, dtype=torch.float64)
    for _ in range(2):
        w.grad = 2 * w.detach()
        sgd.step()
        v = 0.8 * v + 2 * expected + 0.3 * expected
        expected = expected - 0.1 * v
    torch.testing.assert_close(w.detach(), expected)


def test_muon_takes_the_matrices_and_adamw_the_rest() -> None:
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("no torch.optim.Muon")
    tensors = {"matrix": torch.zeros(4, 3), "vector": torch.zeros(4), "filter": torch.zeros(2, 3, 2, 2)}
    group = {"params": [torch.nn.Parameter(t) for t in tensors.values()], "lr": 0.1, "weight_decay": 0.0}
    muon, adamw = build_optimizers("muon", [group], (0.9, 0.99))
    assert [type(o).__name__ for o in (muon, adamw)] == ["Muon", "AdamW"]
    assert [p.ndim for p in muon.param_groups[0]["params"]] == [2]
    assert [p.ndim for p in adamw.param_groups[0]["params"]] == [1, 4]
    only = {**group, "params": group["params"][:1]}
    assert [type(o).__name__ for o in build_optimizers("muon", [only], (0.9, 0.99))] == ["Muon"]


def test_muon_is_refused_where_bfloat16_fails(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "cpu_has_bfloat16", lambda: False)
    with pytest.raises(ConfigError, match="optimizer: muon computes bfloat16 products, which fail on this CPU"):
        resolve(from_dict({**quick, "optimizer": "muon"}))
    with pytest.raises(ConfigError, match="optimizer: expected one of adamw, sgd, muon, not 'adam'"):
        from_dict({**quick, "optimizer": "adam"})
