"""One suite that every method passes, and what is special to one of them."""

from __future__ import annotations

import dataclasses
import gc
import re
import shutil
import weakref
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tasso
from conftest import draw
from method_runs import LEARNING, PARTABLE, REPEATABLE, copied, learn_first_task, learner_for, options_for, same
from tasso.cli import main
from tasso.config import from_dict
from tasso.errors import ConfigError, DataError, RunError, TassoError
from tasso.methods import METHODS, build_method
from tasso.methods.describe import cost_in_words, describe
from tasso.methods.subspace import energy_rank, orthogonal_component, orthonormal
from tasso.methods.tasso import Tasso
from tasso.models.clip import Clip
from tasso.models.loading import load_clip
from tasso.training.checkpoints import method_tensors, save_checkpoint
from tasso.training.engine import cpu_has_bfloat16
from tasso.training.learner import learn
from tasso.training.resolve import resolve
from tasso.training.run_folder import read_tensors, write_tensors


@pytest.fixture(params=LEARNING)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.slow
def test_loss_is_finite_and_falls(quick: dict[str, Any], name: str) -> None:
    gentle = {"tasso": {"beta": 0.3}, "tasso-both": {"beta": 0.3, "gamma": 0.3}}.get(
        name, {}
    )  # random embeddings are no match for full distillation
    lr = {"moe-adapters": 0.1}.get(name, 1e-3)  # adapters start at nothing and count a tenth
    training = learner_for(quick, method={**options_for(name), **gentle}, steps=40, lr=lr).begin(0)
    batch = training.batch()
    before = training.method.loss(batch)
    assert all(bool(torch.isfinite(term)) for term in before.values())
    while training.step < 40:
        training.advance()
    after = training.method.loss(batch)
    assert float(after["ce"].detach()) < 0.9 * float(before["ce"].detach())


class Operations(TorchDispatchMode):
    """Names of the operations that were run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.__name__.partition(".")[0].rstrip("_"))
        return func(*args, **(kwargs or {}))


def test_no_operation_of_a_step_depends_on_the_order_of_threads(quick: dict[str, Any], name: str) -> None:
    """On a GPU these add up with atomics, so that two runs of one seed would differ."""
    training = learner_for(quick, method=options_for(name)).begin(0)
    batch = training.batch()
    with Operations() as seen:
        torch.stack(list(training.method.loss(batch).values())).sum().backward()
    assert "mm" in seen.names
    assert not seen.names & {"index_add", "index_reduce", "scatter_add", "scatter_reduce", "cumsum", "put"}


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_only_declared_parameters_move(quick: dict[str, Any], name: str, index: int) -> None:
    if index:
        learn_first_task(quick, method=options_for(name))
    learner = learner_for(quick, method=options_for(name))
    training = learner.begin(index)
    before = copied(learner.clip.model.state_dict())
    for _ in range(3):
        training.advance()
    declared = set(learner.clip.parameters_of(learner.method.towers))
    moved = {key for key, value in learner.clip.model.state_dict().items() if not torch.equal(value, before[key])}
    assert moved <= declared
    if declared:
        assert len(moved) > 0.9 * len(declared)
    own = training.trainable_parameters - sum(learner.clip.model.state_dict()[key].numel() for key in declared)
    if index == 0:
        assert own == learner.method.cost(learner.clip).trainable, "as it declares"


@pytest.mark.slow
def test_both_settings_are_complete_and_every_checkpoint_can_be_evaluated(quick: dict[str, Any], name: str) -> None:
    results = learn(from_dict({**quick, "method": options_for(name)}))
    assert results["finished"]
    for setting in ("mtil", "mcil"):
        part = results[setting]
        assert [len(row) for row in (part["zero_shot"], *part["matrix"])] == [2, 2, 2]
        assert set(part["metrics"]) == {
            "accuracy", "forgetting", "zero_shot_degradation", "transfer", "average", "last",
        }  # fmt: skip
    assert all(m >= c for m, c in zip(results["mtil"]["zero_shot"], results["mcil"]["zero_shot"], strict=True))
    for index, after in enumerate(("dtd", "2")):
        again = tasso.evaluate(quick["out"], after=after, device="cpu")
        assert again["checkpoint"] == results["tasks"][index]
        for setting in ("mtil", "mcil"):
            assert again[setting] == results[setting]["matrix"][index]


@pytest.mark.slow
def test_what_was_learned_can_be_used_and_exported(quick: dict[str, Any], name: str, tmp_path: Path) -> None:
    run = tasso.learn(**{**quick, "method": options_for(name)})
    predictions = tasso.load(run.folder.path).classify(
        [draw(label, 1000 + label) for label in range(3)], task="dtd", top=3
    )
    assert [len(guess) for guess in predictions] == [3, 3, 3]
    assert all(sum(g.probability for g in guess) == pytest.approx(1, abs=1e-5) for guess in predictions)
    words = ["export", str(run.folder.path), "--out", str(tmp_path / "exported")]
    if not METHODS[name].plain_model:
        with pytest.raises(SystemExit):
            main(words)
        assert not (tmp_path / "exported").exists()
        return
    main(words)
    model = open_clip.create_model(f"local-dir:{tmp_path / 'exported'}")
    assert same(copied(model.state_dict()), copied(run.clip.model.state_dict()))


@pytest.mark.slow
def test_state_round_trip_is_bit_exact(quick: dict[str, Any], name: str) -> None:
    """Stopping after every single step of the second task, saving, and going on in a new process changes nothing."""
    learn_first_task(quick, method=options_for(name))
    whole = learner_for(quick, method=options_for(name)).begin(1)
    for _ in range(4):
        whole.advance()
    state = None
    for _ in range(4):
        part = learner_for(quick, method=options_for(name)).begin(1)
        if state is not None:
            part.load_state_dict(state, "state")
        part.advance()
        state = copied(part.state_dict())
    expected = whole.state_dict()
    assert state is not None
    assert state.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.equal(state[key], tensor), key
    for training in (whole, part):
        training.close()
        training.method.end_task()
    assert same(whole.clip.model.state_dict(), part.clip.model.state_dict())
    assert same(method_tensors(whole.method), method_tensors(part.method))


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["lora", "last:1", "norms"])
def test_some_of_the_weights(quick: dict[str, Any], name: str, tune: str) -> None:
    """Only they move, in a task that is stopped after its first step as in one that is not; the model stays plain."""
    options: dict[str, Any] = {"method": options_for(name), "tune": tune, "steps": 3}
    if name == "moe-adapters":
        with pytest.raises(ConfigError, match="tune: must be full with moe-adapters, which trains modules of its own"):
            learner_for(quick, **options)
        return
    learn_first_task(quick, **options)
    whole, first = (learner_for(quick, **options).begin(1) for _ in range(2))
    before = copied(whole.clip.model.state_dict())
    for _ in range(3):
        whole.advance()
    first.advance()
    state = copied(first.state_dict())
    rest = learner_for(quick, **options).begin(1)
    rest.load_state_dict(state, "state")
    for _ in range(2):
        rest.advance()
    assert same(copied(whole.state_dict()), copied(rest.state_dict()))
    declared = whole.clip.tuned_parameters(whole.method.towers)
    for training in (whole, rest):
        training.close()
        training.method.end_task()
    after = whole.clip.model.state_dict()
    assert same(after, rest.clip.model.state_dict())
    assert after.keys() == before.keys()
    moved = {key for key, value in after.items() if not torch.equal(value, before[key])}
    assert moved <= declared.keys()
    assert len(moved) > 0.9 * len(declared)


def test_low_rank_updates_are_of_low_rank_and_spoiled_factors_are_named(quick: dict[str, Any]) -> None:
    learner = learner_for(quick, tune="lora", lora_rank=2)
    before = copied(learner.clip.tuned_parameters("visual"))
    training = learner.begin(0)
    rates = {group["name"]: group["peak_lr"] for group in training.optimizers[0].param_groups}
    assert rates == pytest.approx({"encoder": 3e-3, "projector": 1e-3})
    for _ in range(3):
        training.advance()
    for key, weight in learner.clip.tuned_parameters("visual").items():
        parts = (weight.detach() - before[key]).double().chunk(3 if "in_proj" in key else 1)
        for values in map(torch.linalg.svdvals, parts):
            assert values[1] > 1e-3 * values[0] > 1e2 * values[2], key
    assert training.trainable_parameters < 0.5 * sum(weight.numel() for weight in before.values())
    state = copied(training.state_dict())
    key = "lora/visual.transformer.resblocks.0.attn.in_proj_weight.0.A"
    for how in SPOILED:
        changed = SPOILED[how][0](state[key])
        spoiled = {k: t for k, t in state.items() if k != key} | ({} if changed is None else {key: changed})
        with pytest.raises(TassoError, match=rf"state-file: .*{re.escape(key)}.*{SPOILED[how][1]}"):
            learner_for(quick, tune="lora", lora_rank=2).begin(0).load_state_dict(spoiled, "state-file")


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["full", "lora"])
def test_checkpointed_activations_change_no_bits(quick: dict[str, Any], name: str, tune: str) -> None:
    options: dict[str, Any] = {"method": options_for(name), "tune": tune, "steps": 3}
    if name == "moe-adapters":
        with pytest.raises(ConfigError, match="checkpoint_activations: must be false with moe-adapters"):
            learner_for(quick, **options | {"tune": "full"}, checkpoint_activations=True)
        return
    states = []
    for checkpointed in (False, True):
        training = learner_for(quick, **options, checkpoint_activations=checkpointed).begin(0)
        for _ in range(2):
            training.advance()
        states.append(copied(training.state_dict()))
    assert same(*states)


SPOILED: dict[str, tuple[Any, str]] = {
    "missing": (lambda tensor: None, "is missing"),
    "shape": (lambda tensor: tensor.new_zeros(*tensor.shape, 2), "has shape"),
    "type": (lambda tensor: tensor.to(torch.float16), r"torch\.float16 instead of"),
    "nan": (lambda tensor: torch.full_like(tensor, torch.nan), "contains inf or NaN"),
}


def spoiled(tensors: dict[str, torch.Tensor], how: str) -> tuple[dict[str, torch.Tensor], str] | None:
    """The same tensors but for the last one of the method's state, which for NaN is of floating-point numbers; its
    name."""
    named = {key: t for key, t in tensors.items() if key.startswith("method/") and t.numel()}
    names = [key for key, t in named.items() if t.is_floating_point()] or ([*named] if how != "nan" else [])
    if not names:
        return None
    changed = SPOILED[how][0](tensors[names[-1]])
    rest = {key: tensor for key, tensor in tensors.items() if key != names[-1]}
    return (rest if changed is None else {**rest, names[-1]: changed}), names[-1]


@pytest.mark.slow
@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_state_is_named(quick: dict[str, Any], name: str, how: str) -> None:
    """In the resume state of a task, and in the checkpoint after one, wherever the method has a state."""
    options = options_for(name)
    learner = learner_for(quick, method=options)
    training = learner.begin(0)
    training.advance()
    complaint = SPOILED[how][1]
    if found := spoiled(copied(training.state_dict()), how):
        with pytest.raises(TassoError, match=rf"state-file: .*{re.escape(found[1])}.*{complaint}"):
            learner_for(quick, method=options).begin(0).load_state_dict(found[0], "state-file")
    learn_first_task(quick, method=options)
    file = learner.folder.checkpoint_file(0, "dtd")
    loaded = read_tensors(file)
    assert loaded is not None
    if found := spoiled(loaded[0], how):
        write_tensors(file, found[0], loaded[1])
        with pytest.raises(TassoError, match=rf"01-dtd\.safetensors: .*{re.escape(found[1])}.*{complaint}"):
            learner_for(quick, method=options).begin(1)
    else:
        assert not any(key.startswith("method/") and t.is_floating_point() for key, t in loaded[0].items())


def test_states_are_in_the_places_that_the_contract_says(quick: dict[str, Any], name: str) -> None:
    """Within a task, after it, or never."""
    learner = learner_for(quick, method=options_for(name))
    learner.begin(0).close()
    within = learner.method.state is not None
    learner.method.end_task()
    assert (within, learner.method.state is not None) == {
        "tasso": (True, False), "tasso-both": (True, False), "zscl": (True, False), "icarl": (True, True),
        "moe-adapters": (True, True),
    }.get(name, (False, False))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [*map(options_for, REPEATABLE), {"name": "snd", "selection": "per_sample"}], ids=str
)
@pytest.mark.usefixtures("float32")
def test_accumulation_equals_one_pass(quick: dict[str, Any], options: dict[str, Any]) -> None:
    """In the second task, where teachers differ from each other."""
    learn_first_task(quick, method=options)
    ends = []
    for accumulate in (1, 4):
        training = learner_for(quick, method=options, accumulate=accumulate).begin(1)
        ends.append([training.advance() for _ in range(2)])
    for one, other in zip(*ends, strict=True):
        for key, term in one.items():
            torch.testing.assert_close(term, other[key], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", sorted(set(LEARNING) - set(PARTABLE)))
def test_batches_that_must_stay_whole_are_not_split(quick: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=f"accumulate: must be 1 with {name}"):
        learn(from_dict({**quick, "method": options_for(name), "accumulate": 2}))


@pytest.mark.slow
def test_bfloat16_learns(quick: dict[str, Any], name: str) -> None:
    if not cpu_has_bfloat16():
        pytest.skip("bfloat16 products fail on this CPU")
    results = learn(from_dict({**quick, "method": options_for(name), "precision": "bfloat16", "steps": 2}))
    assert results["finished"]


def test_reference_set_that_is_not_there_is_named(quick: dict[str, Any], name: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(str(quick["data_root"]), root, ignore=shutil.ignore_patterns("imagenet*"))
    config = from_dict({**quick, "method": options_for(name), "data_root": str(root)})
    if not any(request.name == "reference" for request in build_method(options_for(name)).image_requests()):
        assert learn(config)["finished"]
        return
    with pytest.raises(DataError, match="imagenet"):
        learn(config)
    assert not Path(str(quick["out"])).exists()


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


def test_costs_are_those_of_the_papers_model(name: str) -> None:
    cost = describe(name)["cost"]
    towers = {"visual": 86_192_640, "both": 149_620_736, "none": 0}[METHODS[name]().towers]
    assert cost["trainable_parameters"] - cost["own_parameters"] == towers
    teachers = {"tasso": 1, "tasso-both": 1, "lwf": 1, "icarl": 1, "zscl": 1, "gift": 1, "snd": 2}.get(name, 0)
    copies = {"zscl": 2, "gift": 2}.get(name, 0)  # anchor and mean; anchor and importance
    assert cost["training"] == teachers * 86_192_640 + copies * 149_620_736
    if name.startswith("tasso"):
        assert cost["own_parameters"] == 512 * 144
    assert cost_in_words(cost).startswith("trains ")


def test_memory_while_training_is_what_it_declares(quick: dict[str, Any], name: str) -> None:
    learn_first_task(quick, method=options_for(name))
    learner = learner_for(quick, method=options_for(name))
    method = learner.begin(1).method
    assert set(method.teacher_encoders) == set(method.teachers)
    found = sum(p.numel() for teacher in method.teacher_encoders.values() for p in teacher.tower.parameters())
    found += sum(tensor.numel() for tensor in getattr(method, "before", []))
    if name == "zscl":
        found += sum(tensor.numel() for tensor in method_tensors(method).values()) - 1  # less the counter
    importance = sum(p.numel() for p in learner.clip.parameters_of("both").values()) if name == "gift" else 0
    assert found + importance == method.cost(learner.clip).training, "importance is there only within a step"


def test_finished_tasks_leave_nothing_behind(quick: dict[str, Any], name: str) -> None:
    """Optimiser and images of a task are gone before the next one makes its own, without a garbage collection."""
    learner = learner_for(quick, method=options_for(name))
    gc.disable()
    try:
        training = learner.begin(0)
        training.advance()
        left = weakref.ref(training.optimizers[0]), weakref.ref(learner.method.task.train)
        training.close()
        learner.method.end_task()
        learner.method.release_images()
        learner.data.cache.begin_phase()  # as an evaluation or the next task does
        del training
        assert [what() for what in left] == [None, None]
    finally:
        gc.enable()


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
        projector = training.method.projector.A.detach().clone()
        training.advance()
        encoder_moved = any(not torch.equal(v, encoder[k]) for k, v in training.clip.state("visual").items())
        moves.append((encoder_moved, not torch.equal(training.method.projector.A.detach(), projector)))
    assert moves == expected


def test_projector_is_fresh_for_each_task_and_depends_on_the_seed(quick: dict[str, Any]) -> None:
    def projector(index: int, seed: int) -> torch.Tensor:
        learner = learner_for(quick, seed=seed)
        save_checkpoint(learner.clip, learner.method, learner.folder, 0, "dtd", {})
        method = learner.begin(index).method
        assert isinstance(method, Tasso)
        return method.projector.A.detach()

    base = projector(0, 1)
    assert not torch.equal(base, projector(1, 1))
    assert not torch.equal(base, projector(0, 2))
    assert float(base.std()) == pytest.approx(0.02, rel=0.2)


def test_frozen_projector_stays(quick: dict[str, Any]) -> None:
    training = learner_for(quick, method={"name": "tasso", "rank": 6, "train_projector": False}).begin(0)
    assert isinstance(training.method, Tasso)
    before = training.method.projector.A.detach().clone()
    for _ in range(3):
        training.advance()
    assert torch.equal(training.method.projector.A.detach(), before)


def test_projector_may_start_from_the_class_texts(quick: dict[str, Any]) -> None:
    methods = {how: {"name": "tasso", "rank": 6, "projector_init": how} for how in ("random", "texts")}
    learners = {how: learner_for(quick, method=method) for how, method in methods.items()}
    for learner in learners.values():
        learner.begin(0)
    A, usual = (learners[how].method.projector.A.detach() for how in ("texts", "random"))
    texts = learners["texts"].method.class_embeddings
    assert len(texts) == 3  # so three columns are filled up
    U = orthonormal(A)
    torch.testing.assert_close(orthogonal_component(texts, U), torch.zeros_like(texts), rtol=0, atol=1e-5)
    torch.testing.assert_close(A.norm(dim=0), torch.full((6,), 0.02 * 24**0.5))
    assert float(usual.norm(dim=0).mean()) == pytest.approx(float(A.norm(dim=0).mean()), rel=0.3)
    again = learner_for(quick, method=methods["texts"])
    again.begin(0)
    assert torch.equal(again.method.projector.A, A)
    other = learner_for(quick, method={**methods["texts"], "rank": 2})  # fewer columns than classes
    other.begin(0)
    values = torch.linalg.svdvals(texts.double())
    missed = (
        orthogonal_component(texts.double(), orthonormal(other.method.projector.A.detach().double())).square().sum()
    )
    assert float(missed) == pytest.approx(float(values[2:].square().sum()), abs=1e-6)


def test_rank_may_follow_the_class_texts(quick: dict[str, Any]) -> None:
    ranks = {}
    for share in (0.5, 0.999):
        learner = learner_for(quick, method={"name": "tasso", "rank_energy": share})
        learner.begin(0)
        texts = learner.method.class_embeddings
        ranks[share] = learner.method.projector.A.shape[1]
        assert ranks[share] == energy_rank(texts, share)
    assert ranks[0.5] < ranks[0.999] <= len(texts)
    learner = learner_for(quick, method={"name": "tasso", "rank_energy": 0.999, "rank": ranks[0.999] - 1})
    assert "rank depends on the task" in learner.method.cost(learner.clip).note
    learner.begin(0)
    assert learner.method.projector.A.shape[1] == ranks[0.999] - 1, "no more than was given"


@pytest.mark.parametrize("option", [{"projector_init": "texts"}, {"rank_energy": 0.9}], ids=["init", "rank"])
def test_projector_from_texts_goes_on_with_the_same_bits(quick: dict[str, Any], option: dict[str, Any]) -> None:
    method = {"name": "tasso", "rank": 6, **option}
    learn_first_task(quick, method=method)
    whole, first = (learner_for(quick, method=method).begin(1) for _ in range(2))
    for _ in range(4):
        whole.advance()
    first.advance()
    state = copied(first.state_dict())
    rest = learner_for(quick, method=method).begin(1)
    rest.load_state_dict(state, "state")
    for _ in range(3):
        rest.advance()
    assert same(copied(whole.state_dict()), copied(rest.state_dict()))


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
        1e-4,
        5e-4,
    )
    config, _ = resolve(from_dict({}))
    assert (config.template, config.step_rule, config.seed) == ("a photo of a {}.", "code", 1102)


def test_rank_must_fit_the_model(quick: dict[str, Any], tiny_clip: Clip) -> None:
    with pytest.raises(ConfigError, match="rank: must be below the embedding's length 24, not 144"):
        learn(from_dict({**quick, "method": {"name": "tasso", "rank": 144}}))
    assert not Path(str(quick["out"])).exists(), "nothing may be left behind by a run that cannot start"


def test_loss_that_is_not_finite_ends_the_run(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.methods.tasso.cross_entropy", lambda *_: torch.tensor(float("nan"), requires_grad=True))
    with pytest.raises(RunError, match=r"task 'dtd', step .*not finite"):
        learn(from_dict(quick))


def test_full_precision_model_is_what_load_clip_gives(tiny_model: str) -> None:
    assert {p.dtype for p in load_clip(tiny_model).model.parameters()} == {torch.float32}
