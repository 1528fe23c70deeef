"""One suite that every method passes, and what is special to one of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from tasso.clip import Clip, load_clip
from tasso.config import from_dict
from tasso.errors import ConfigError, RunError
from tasso.learner import Learner, learn, resolve
from tasso.methods import METHODS, build_method
from tasso.methods.tasso import Tasso
from tasso.runs import RunFolder

# Hyper-parameters that fit the tiny model.
SMALL: dict[str, dict[str, Any]] = {"tasso": {"rank": 6}}


def options_for(name: str) -> dict[str, Any]:
    return {"name": name, **SMALL.get(name, {})}


@pytest.fixture(params=sorted(METHODS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def learner_for(quick: dict[str, Any], **more: Any) -> Learner:
    config, method = resolve(from_dict({**quick, **more}))
    folder = RunFolder(config.out)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.checkpoints.mkdir(exist_ok=True)
    return Learner(config, method, folder)


def test_loss_is_finite_and_falls(quick: dict[str, Any], name: str) -> None:
    gentle = {"beta": 0.3} if name == "tasso" else {}  # random embeddings are no match for full distillation
    training = learner_for(quick, method={**options_for(name), **gentle}, steps=40, lr=1e-2).begin(0)
    batch = training.batch()
    before = training.method.loss(batch)
    assert all(bool(torch.isfinite(term)) for term in before.values())
    while training.step < 40:
        training.advance()
    after = training.method.loss(batch)
    assert float(after["ce"].detach()) < 0.9 * float(before["ce"].detach())


def test_only_declared_parameters_move(quick: dict[str, Any], name: str) -> None:
    learner = learner_for(quick, method=options_for(name))
    before = {key: value.clone() for key, value in learner.clip.model.state_dict().items()}
    training = learner.begin(0)
    for _ in range(3):
        training.advance()
    declared = set(learner.clip.parameters_of(METHODS[name].towers)) if METHODS[name].towers != "none" else set()
    moved = {key for key, value in learner.clip.model.state_dict().items() if not torch.equal(value, before[key])}
    assert moved <= declared
    if declared:
        assert len(moved) > 0.9 * len(declared)


def test_both_settings_are_complete(quick: dict[str, Any], name: str) -> None:
    results = learn(from_dict({**quick, "method": options_for(name)}))
    assert results["finished"]
    for setting in ("mtil", "mcil"):
        part = results[setting]
        assert [len(row) for row in (part["zero_shot"], *part["matrix"])] == [2, 2, 2]
        assert set(part["metrics"]) == {
            "accuracy", "forgetting", "zero_shot_degradation", "transfer", "average", "last",
        }  # fmt: skip
    assert all(m >= c for m, c in zip(results["mtil"]["zero_shot"], results["mcil"]["zero_shot"], strict=True))


def test_state_round_trip_is_bit_exact(quick: dict[str, Any], name: str) -> None:
    """Stopping after every single step, saving, and going on from the saved tensors changes nothing."""
    whole = learner_for(quick, method=options_for(name)).begin(0)
    for _ in range(4):
        whole.advance()
    state = None
    for _ in range(4):
        part = learner_for(quick, method=options_for(name)).begin(0)
        if state is not None:
            part.load_state_dict(state, "state")
        part.advance()
        state = {key: tensor.detach().clone() for key, tensor in part.state_dict().items()}
    expected = whole.state_dict()
    assert state is not None
    assert state.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.equal(state[key], tensor), key


def test_accumulation_equals_one_pass(quick: dict[str, Any], name: str) -> None:
    ends = []
    for accumulate in (1, 4):
        training = learner_for(quick, method=options_for(name), accumulate=accumulate).begin(0)
        terms = training.advance()
        ends.append((terms, training.clip.state("visual")))
    for key, term in ends[0][0].items():
        torch.testing.assert_close(term, ends[1][0][key], rtol=1e-4, atol=1e-5)


def test_unknown_and_ill_typed_options_are_named(name: str) -> None:
    with pytest.raises(ConfigError, match=r"method\.speed: .* has no such option"):
        build_method({"name": name, "speed": 1})
    for field in dataclasses.fields(METHODS[name]):
        with pytest.raises(ConfigError, match=rf"method\.{field.name}: expected"):
            build_method({"name": name, field.name: object()})


def test_methods_tell_about_themselves(name: str) -> None:
    cls = METHODS[name]
    assert all(len(text) >= 3 for text in (cls.summary, cls.source, cls.verified, cls.title))
    assert all(field.metadata["help"] for field in dataclasses.fields(cls))


def test_unknown_method() -> None:
    with pytest.raises(ConfigError, match=r"no method 'magic'\. There are: "):
        build_method({"name": "magic"})


# -- TASSO -----------------------------------------------------------------------------------------------------


def test_teacher_equals_student_at_step_zero(quick: dict[str, Any]) -> None:
    learner = learner_for(quick)
    training = learner.begin(0)
    terms = training.method.loss(training.batch())
    # Two clamped angles of zero: 2 · 1.414e-3 · β
    assert float(terms["kd"].detach()) == pytest.approx(3 * 2 * 1.4142e-3, rel=0.02)


def test_without_its_parts_tasso_is_fine_tuning(quick: dict[str, Any]) -> None:
    bare = {"name": "tasso", "alpha": 0.0, "kd_parallel": "none", "kd_perpendicular": "none"}
    ends = []
    for options in (bare, {"name": "finetune"}):
        training = learner_for(quick, method=options).begin(0)
        assert "reference" not in training.streams
        for _ in range(3):
            training.advance()
        ends.append(training.clip.state("visual"))
    for key, tensor in ends[0].items():
        assert torch.equal(tensor, ends[1][key]), key


@pytest.mark.parametrize(
    ("optimise", "expected"),
    [
        ("joint", [(True, True)] * 4),
        ("alternate", [(False, True), (True, False), (False, True), (True, False)]),
        ("projector-first", [(False, True), (False, True), (True, False), (True, False)]),
    ],
)
def test_who_moves_when(quick: dict[str, Any], optimise: str, expected: list[tuple[bool, bool]]) -> None:
    method = {"name": "tasso", "rank": 6, "optimise": optimise}
    training = learner_for(quick, method=method).begin(0)
    assert isinstance(training.method, Tasso)
    moves = []
    for _ in range(4):
        encoder = {k: v.clone() for k, v in training.clip.state("visual").items()}
        projector = training.method.A.detach().clone()
        training.advance()
        encoder_moved = any(not torch.equal(v, encoder[k]) for k, v in training.clip.state("visual").items())
        moves.append((encoder_moved, not torch.equal(training.method.A.detach(), projector)))
    assert moves == expected


def test_projector_is_fresh_for_each_task_and_depends_on_the_seed(quick: dict[str, Any]) -> None:
    def projector(index: int, seed: int) -> torch.Tensor:
        learner = learner_for(quick, seed=seed)
        learner.folder.write_checkpoint(0, "dtd", learner.clip.state("visual"), {})
        method = learner.begin(index).method
        assert isinstance(method, Tasso)
        return method.A.detach()

    base = projector(0, 1)
    assert not torch.equal(base, projector(1, 1))
    assert not torch.equal(base, projector(0, 2))
    assert float(base.std()) == pytest.approx(0.02, rel=0.2)


def test_frozen_projector_stays(quick: dict[str, Any]) -> None:
    training = learner_for(quick, method={"name": "tasso", "rank": 6, "train_projector": False}).begin(0)
    assert isinstance(training.method, Tasso)
    before = training.method.A.detach().clone()
    for _ in range(3):
        training.advance()
    assert torch.equal(training.method.A.detach(), before)


def test_protocols_name_every_difference() -> None:
    code, paper = build_method({"name": "tasso"}), build_method({"name": "tasso"}, "paper")
    assert isinstance(code, Tasso)
    assert isinstance(paper, Tasso)
    assert (code.angle, code.ce_scale, code.subspace_scale) == ("clamped", 0.0, 10.0)
    assert (paper.angle, paper.ce_scale, paper.subspace_scale) == ("exact", 1.0, 1.0)
    mixed = build_method({"name": "tasso", "subspace_scale": 10.0}, "paper")
    assert isinstance(mixed, Tasso)
    assert (mixed.angle, mixed.subspace_scale) == ("exact", 10.0)
    config, _ = resolve(from_dict({"protocol": "paper"}))
    assert (config.template, config.step_rule, config.lr, config.weight_decay) == (
        "The photo of {}",
        "paper",
        1e-5,
        5e-4,
    )
    config, _ = resolve(from_dict({}))
    assert (config.template, config.step_rule, config.seed) == ("a photo of a {}.", "code", 1102)


def test_rank_must_fit_the_model(quick: dict[str, Any], tiny_clip: Clip) -> None:
    with pytest.raises(ConfigError, match="rank: must be below the embedding's length 24, not 144"):
        learn(from_dict({**quick, "method": "tasso"}))
    assert not Path(str(quick["out"])).exists(), "nothing may be left behind by a run that cannot start"


def test_loss_that_is_not_finite_ends_the_run(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.methods.tasso.cross_entropy", lambda *_: torch.tensor(float("nan"), requires_grad=True))
    with pytest.raises(RunError, match=r"task 'dtd', step .*not finite"):
        learn(from_dict(quick))


def test_full_precision_model_is_what_load_clip_gives(tiny_model: str) -> None:
    assert {p.dtype for p in load_clip(tiny_model).model.parameters()} == {torch.float32}
