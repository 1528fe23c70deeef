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
from tasso.models.deferred import without_compiler
from tasso.training import engine
from tasso.training.engine import cpu_has_bfloat16
from tasso.training.learner import learn
from tasso.training.optimizers import OPTIMIZERS, RoundedAdamW, build_optimizers, random_bits, rounded
from tasso.training.resolve import resolve

# Rates at which the tiny model learns; SGD's gradients are not normalised.
RATES = {"adamw": 1e-3, "sgd": 3e-2, "muon": 1e-3}


@pytest.fixture(params=[*((name, "float32") for name in sorted(OPTIMIZERS)), ("adamw", "bfloat16")], ids=str)
def options(request: pytest.FixtureRequest, quick: dict[str, Any]) -> dict[str, Any]:
    name, precision = request.param
    if name == "muon" and not (hasattr(torch.optim, "Muon") and cpu_has_bfloat16()):
        pytest.skip("torch.optim.Muon cannot run here")
    return {**quick, "optimizer": name, "optimizer_precision": precision, "lr": RATES[name]}


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
    key = "optimizer" if options["optimizer"] != "adamw" else "optimizer_precision"
    other = "adamw" if key == "optimizer" else next(p for p in ("float32", "bfloat16") if p != options[key])
    with pytest.raises(RunError, match=f"{key} = '{options[key]}', not '{other}'"):
        learn(from_dict({**options, key: other}))


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


# -- moments in bfloat16 ---------------------------------------------------------------------------------------


def test_numbers_are_rounded_to_a_neighbour_and_right_on_average() -> None:
    """Over 4,000 steps, whatever the sign and the size."""
    values = torch.randn(64) * torch.logspace(-30, 5, 64)
    draws = torch.stack([rounded(values, random_bits(values, torch.tensor(step), 1)) for step in range(4000)])
    assert torch.equal(draws, draws.bfloat16().float()), "what bfloat16 can hold"
    ulp = 2.0 ** (values.abs().log2().floor() - 7)
    assert float(((draws - values).abs() / ulp).max()) < 1
    assert float(((draws.mean(0) - values).abs() / ulp).max()) < 5 * 0.5 / 4000**0.5, "five standard errors"
    exact = values.bfloat16().float()
    assert torch.equal(rounded(exact, random_bits(exact, torch.tensor(9), 1)), exact)


def test_random_bits_are_even_and_differ_between_steps_places_and_parameters() -> None:
    like = torch.zeros(100, 50)
    draws = [random_bits(like, torch.tensor(step), number) for step in range(1, 5) for number in range(1, 5)]
    bits = torch.stack([(draw >> place) & 1 for draw in draws for place in range(32)]).view(16, 32, -1).double()
    assert float((bits.mean(-1) - 0.5).abs().max()) < 5 * 0.5 / 5000**0.5
    signs = (2 * bits - 1).transpose(0, 1)  # per bit: draws × places
    between = torch.einsum("bip,bjp->bij", signs, signs) / 5000
    assert float((between - torch.eye(16)).abs().max()) < 5.5 / 5000**0.5, "no two draws go together"
    assert float((signs[..., 1:] * signs[..., :-1]).mean(-1).abs().max()) < 5.5 / 5000**0.5, "nor neighbours"


def test_moments_decay() -> None:
    """As they would in float32; rounded to the nearest, the second moment would stay as it is."""
    w = torch.nn.Parameter(torch.zeros(10_000))
    (optimizer,) = build_optimizers(
        "adamw", [{"params": [w], "lr": 0.1, "weight_decay": 0.0}], (0.9, 0.999), False, "bfloat16"
    )
    for step in range(400):
        w.grad = torch.full_like(w, float(step == 0))
        optimizer.step()
    state = optimizer.state[w]
    assert {state[key].dtype for key in ("exp_avg", "exp_avg_sq")} == {torch.bfloat16}
    assert float(state["exp_avg_sq"].double().mean()) == pytest.approx(1e-3 * 0.999**399, rel=0.01)
    stays = torch.tensor(1e-3, dtype=torch.bfloat16)
    assert torch.equal((0.999 * stays.float()).bfloat16(), stays)


def test_steps_are_nearly_those_of_adamw() -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(50, 20), torch.randn(30, 50, 20)
    ends = []
    for precision in ("float32", "bfloat16"):
        w = torch.nn.Parameter(start.clone())
        group = {"params": [w], "lr": 0.01, "weight_decay": 0.1}
        (optimizer,) = build_optimizers("adamw", [group], (0.9, 0.99), False, precision)
        for gradient in gradients:
            w.grad = gradient.clone()
            optimizer.step()
        ends.append(w.detach() - start)
    assert float((ends[1] - ends[0]).norm() / ends[0].norm()) < 0.02
    assert isinstance(optimizer, RoundedAdamW)


def test_only_adamw_has_moments_in_bfloat16(quick: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="optimizer_precision: needs --optimizer adamw, not 'bfloat16'"):
        from_dict({**quick, "optimizer": "sgd", "optimizer_precision": "bfloat16"})


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Adam", "Muon"])
@pytest.mark.parametrize("hooked", [False, True])
def test_optimisers_without_the_compiler_take_pytorchs_steps(kind: str, hooked: bool) -> None:
    if not hasattr(torch.optim, kind) or (kind == "Muon" and not cpu_has_bfloat16()):
        pytest.skip(f"torch.optim.{kind} cannot run here")
    theirs: type[torch.optim.Optimizer] = type(kind, (getattr(torch.optim, kind),), {})
    weights = [torch.nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4)) for _ in range(2)]
    first = theirs([weights[0]], lr=0.1, weight_decay=0.1)  # now its step is hooked
    ours = without_compiler(theirs if hooked else getattr(torch.optim, kind))
    seen: list[Any] = []
    second = ours([weights[1]], lr=0.1, weight_decay=0.1)
    second.register_step_post_hook(lambda optimizer, *_: seen.append(torch.is_grad_enabled()))
    for optimizer, weight in zip((first, second), weights, strict=True):
        for _ in range(3):
            optimizer.zero_grad()
            (weight**2).sum().backward()
            optimizer.step()
    assert torch.equal(*weights)
    assert seen == [True] * 3, "hooks are called once per step, and gradients are on again"


def test_a_method_that_is_wrapped_in_an_unknown_way_stays() -> None:
    class Unknown(torch.optim.SGD):
        @torch.enable_grad()
        def step(self, closure: None = None) -> None:
            assert torch.is_grad_enabled()

    assert without_compiler(Unknown).step is Unknown.step
