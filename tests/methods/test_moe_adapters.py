"""MoE-Adapters: experts, routing and the task selector against slow, obvious re-computations; what is frozen stays."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import open_clip
import pytest
import torch
import torch.nn.functional as F
from open_clip.transformer import Transformer
from torch import Tensor, nn
from torchvision.models import alexnet

import tasso
from conftest import TINY_CONFIG, in_memory
from method_runs import copied, learner_for, same
from tasso.config import from_dict
from tasso.errors import ConfigError, ModelError, RunError
from tasso.methods import RunInfo, TaskInfo, build_method, moe_adapters
from tasso.methods.moe import adapters as adapters_module
from tasso.methods.moe import features as features_module
from tasso.methods.moe import selector as selector_module
from tasso.methods.moe.adapters import PLAIN, Adapters, BlockExperts, Design, find_sites
from tasso.methods.moe.experts import choose_experts, draw_experts, mix_experts, most_chosen
from tasso.methods.moe.features import AlexNetFeatures, ClipFeatures, FeatureReader, Features, alexnet_file
from tasso.methods.moe.routed import RoutedInference
from tasso.methods.moe.selector import (
    AutoEncoder,
    Recipe,
    TaskSelector,
    choose_tasks,
    drawn_batches,
    train_auto_encoder,
)
from tasso.methods.moe_adapters import MoEAdapters
from tasso.models.clip import Clip
from tasso.models.inference import Embedded, Inference
from tasso.models.loading import load_clip
from tasso.training.checkpoints import load_method, method_tensors, save_checkpoint
from tasso.training.engine import cpu_has_bfloat16
from tasso.training.learner import Learner, learn
from tasso.training.resolve import resolve

SMALL: dict[str, Any] = {
    "name": "moe-adapters", "experts": 4, "hidden": 3, "freeze": 1, "selector_features": "clip",
    "selector_hidden": 6, "selector_steps": 12, "reference_steps": 12, "selector_batch_size": 8,
}  # fmt: skip
DESIGN = Design(experts=4, hidden=3, top=2, scale=0.7, dropout=0.0)
NAMES, TEMPLATES = ("red thing", "blue thing"), ("a photo of a {}.",)
EXPERTS, SELECTOR = "method/adapters.", "method/selector."  # names of tensors


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_adapters(clip: Clip, tasks: int = 2, dtype: torch.dtype = torch.float32) -> Adapters:
    """Experts that add something, and routers of some tasks that want different ones."""
    adapters = Adapters(clip, DESIGN)
    drawing = generator(7)
    for block in adapters.blocks.values():
        block.draw(drawing)
        for name, shape in block.shapes.items():
            setattr(block, name, torch.randn(shape, generator=drawing).to(dtype))
        block.gates = torch.stack([torch.randn(block.width, 4, generator=drawing).to(dtype) for _ in range(tasks)])
    return adapters


def weights_of(block: BlockExperts) -> dict[str, Tensor]:
    return copied({name: block.get_buffer(name) for name in block.shapes})


def images(count: int = 6, seed: int = 1) -> Tensor:
    return torch.randn(count, 3, 16, 16, generator=generator(seed))


# -- experts against loops -------------------------------------------------------------------------------------


def slow_experts(tokens: Tensor, weights: dict[str, Tensor], gate: Tensor, scale: float) -> Tensor:
    """Sample by sample, expert by expert, as one would write it down."""
    rows = []
    for sample in tokens:
        logits = [float(sample[0].detach() @ gate[:, e]) for e in range(gate.shape[1])]
        best = sorted(range(len(logits)), key=lambda e: -logits[e])[:2]
        total = sum(math.exp(logits[e]) for e in best)
        added = torch.zeros_like(sample)
        for e in best:
            hidden = F.relu(F.linear(sample, weights["down"][e], weights["down_bias"][e]))
            out = F.linear(hidden, weights["up"][e].mT, weights["up_bias"][e])
            added = added + math.exp(logits[e]) / total * out
        rows.append(scale * added)
    return torch.stack(rows)


def random_weights(width: int = 5) -> dict[str, Tensor]:
    drawing = generator(3)
    return {
        name: torch.randn(weight.shape, generator=drawing, dtype=torch.float64)
        for name, weight in draw_experts(4, 3, width, drawing).items()
    }


def test_chosen_experts_are_mixed_as_in_a_loop_with_their_gradients() -> None:
    tokens = torch.randn(6, 4, 5, generator=generator(1), dtype=torch.float64)
    gate = torch.randn(5, 4, generator=generator(2), dtype=torch.float64)
    ends = []
    for slow in (True, False):
        inputs, weights = tokens.clone().requires_grad_(), {k: v.requires_grad_() for k, v in random_weights().items()}
        if slow:
            mixed = slow_experts(inputs, weights, gate, 0.1)
        else:
            mixed = mix_experts(inputs, weights, 0.1 * choose_experts(tokens[:, 0], gate, None, 2))
        mixed.square().sum().backward()
        ends.append([mixed, inputs.grad, *(weights[name].grad for name in sorted(weights))])
    for one, other in zip(*ends, strict=True):
        assert one is not None
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_dropout_is_inside_the_experts() -> None:
    tokens, weights = torch.randn(2, 4, 5, generator=generator(1), dtype=torch.float64), random_weights()
    shares = torch.tensor([[0.25, 0, 0, 0.75], [0, 0.5, 0.5, 0]], dtype=torch.float64)
    torch.manual_seed(3)
    mixed = mix_experts(tokens, weights, shares, dropout=0.5)
    torch.manual_seed(3)
    kept = F.dropout(torch.ones(2, 4, 4 * 3, dtype=torch.float64), 0.5).view(2, 4, 4, 3)
    for i in range(2):
        expected = torch.zeros(4, 5, dtype=torch.float64)
        for e in shares[i].nonzero().flatten().tolist():
            hidden = F.relu(F.linear(tokens[i], weights["down"][e], weights["down_bias"][e])) * kept[i, :, e]
            expected += shares[i, e] * F.linear(hidden, weights["up"][e].mT, weights["up_bias"][e])
        torch.testing.assert_close(mixed[i], expected, rtol=1e-10, atol=1e-12)


def test_experts_that_nobody_chose_have_gradient_zero() -> None:
    tokens, weights = torch.randn(2, 4, 5, generator=generator(1), dtype=torch.float64), random_weights()
    shares = torch.tensor([[0.25, 0, 0, 0.75], [0.5, 0, 0, 0.5]], dtype=torch.float64)
    mixed = mix_experts(tokens, {name: weight.requires_grad_() for name, weight in weights.items()}, shares, 0.5)
    mixed.square().sum().backward()
    for weight in weights.values():
        assert weight.grad is not None
        assert weight.grad.flatten(1).any(-1).tolist() == [True, False, False, True]


def test_two_best_experts_share_by_softmax() -> None:
    first, gate = (
        torch.eye(2, dtype=torch.float64),
        torch.tensor([[0.0, 3.0, 1.0, 2.0], [-1.0, -9.0, -5.0, -1.5]]).double(),
    )
    shares = choose_experts(first, gate, None, 2)
    expected = [
        [0, 1 / (1 + math.exp(-1.0)), 0, 1 / (1 + math.exp(1.0))],
        [1 / (1 + math.exp(-0.5)), 0, 0, 1 / (1 + math.exp(0.5))],
    ]
    np.testing.assert_allclose(shares.numpy(), expected, rtol=1e-12)
    # The same with one gate a sample.
    again = choose_experts(first, torch.stack([gate, gate.flip(1)]), None, 2)
    torch.testing.assert_close(again, torch.stack([shares[0], shares[1].flip(0)]))
    # Of equal ones, no more than two.
    tied = choose_experts(first, torch.zeros_like(gate), None, 2)
    assert tied.sort(-1).values.tolist() == [[0, 0, 0.5, 0.5]] * 2


def test_gate_learns_through_the_shares() -> None:
    """d share₁ / d logit₁ = share₁ · share₂, and nothing reaches experts that are not chosen."""
    first = torch.eye(4, dtype=torch.float64)[:1]
    gate = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64).repeat(4, 1).requires_grad_()
    shares = choose_experts(first, gate, None, 2)
    shares[0, 0].backward()
    assert gate.grad is not None
    slope = float((shares[0, 0] * shares[0, 1]).detach())
    np.testing.assert_allclose(gate.grad[0].numpy(), [slope, -slope, 0, 0], rtol=1e-12)
    assert not gate.grad[1:].any()


def test_noise_has_the_learned_deviation_and_is_drawn_from_the_global_generator() -> None:
    first, noise = torch.randn(5, 3, generator=generator(1)), torch.randn(3, 4, generator=generator(2))
    torch.manual_seed(11)
    shares = choose_experts(first, torch.zeros(3, 4), noise, 4)
    torch.manual_seed(11)
    drawn = torch.randn(5, 4).double() * (torch.log1p((first.double() @ noise.double()).exp()) + 0.01)
    torch.testing.assert_close(shares.double(), drawn.softmax(-1), rtol=1e-5, atol=1e-6)


def test_without_learning_nothing_is_random(tiny_clip: Clip) -> None:
    adapters = random_adapters(tiny_clip)
    block = adapters.blocks["visual.0"]
    block.design = dataclasses.replace(DESIGN, dropout=0.5)
    tokens = torch.randn(4, 5, 32, generator=generator(1))
    before = torch.get_rng_state()
    once = block(tokens, 0, learning=False)
    assert torch.equal(once, block(tokens, 0, learning=False))
    assert torch.equal(torch.get_rng_state(), before)
    assert not block.counts.any(), "only what is chosen while learning counts"
    block.begin_task()
    assert not torch.equal(block(tokens, 2, learning=True), block(tokens, 2, learning=True))


def test_fresh_experts_add_nothing_and_come_from_their_seed_alone() -> None:
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(drawn))  # the global generator must not matter
        drawn.append(draw_experts(4, 64, 50, generator(seed)))
    assert same(drawn[0], drawn[1])
    assert not torch.equal(drawn[0]["down"], drawn[2]["down"])
    for name in ("down_bias", "up", "up_bias"):
        assert not drawn[0][name].any()
    bound = math.sqrt(6 / ((1 + 5) * 50))  # Kaiming, a = √5
    assert float(drawn[0]["down"].abs().max()) <= bound
    assert float(drawn[0]["down"].std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)


# -- inside the model ------------------------------------------------------------------------------------------


def test_block_adds_the_experts_of_what_attention_left(tiny_clip: Clip) -> None:
    tiny_clip.model.double()
    adapters = random_adapters(tiny_clip, dtype=torch.float64)
    assert list(adapters.blocks) == ["visual.0", "visual.1", "text.0"]
    for site in find_sites(tiny_clip):
        block, beside = site.block, adapters.blocks[site.name]
        x = torch.randn(4, 6, site.width, generator=generator(5), dtype=torch.float64)
        with torch.no_grad():
            left = x + block.attention(block.ln_1(x))
            added = slow_experts(left, weights_of(beside), beside.gates[1], DESIGN.scale)
            expected = left + block.mlp(block.ln_2(left)) + added
            with adapters.routed(1):
                torch.testing.assert_close(block(x), expected, rtol=1e-9, atol=1e-10)
        assert float(added.abs().max()) > 0.1


def bare_clip(tower: Transformer) -> Clip:
    """A model that is hardly more than one transformer."""
    text = SimpleNamespace(transformer=Transformer(16, 1, 2))
    place, model = SimpleNamespace(transformer=tower), SimpleNamespace(text=text)
    return cast(Clip, SimpleNamespace(model=model, visual=place, spec="", device=torch.device("cpu")))


def test_order_of_batch_and_tokens() -> None:
    ends = []
    for batch_first in (True, False):
        torch.manual_seed(0)
        tower = Transformer(16, 2, 2, batch_first=batch_first).eval()
        adapters = random_adapters(bare_clip(tower))
        x = torch.randn(3, 5, 16, generator=generator(1))
        with torch.no_grad():
            plain = tower(x)
            with adapters.routed(torch.tensor([1, PLAIN, 0])):
                ends.append(tower(x))
        assert torch.equal(ends[-1][1], plain[1])
        assert float((ends[-1] - plain)[[0, 2]].abs().amax((1, 2)).min()) > 0.1
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-5, atol=1e-5)


def test_layer_scale_is_for_the_mlp_alone() -> None:
    torch.manual_seed(0)
    tower = Transformer(16, 1, 2, ls_init_value=0.3).eval()
    adapters = random_adapters(bare_clip(tower))
    block, beside = tower.resblocks[0], adapters.blocks["visual.0"]
    x = torch.randn(3, 5, 16, generator=generator(1))
    with torch.no_grad():
        left = x + 0.3 * block.attention(block.ln_1(x))
        expected = left + 0.3 * block.mlp(block.ln_2(left))
        expected = expected + slow_experts(left, weights_of(beside), beside.gates[0], DESIGN.scale)
        with adapters.routed(0):
            torch.testing.assert_close(block(x), expected, rtol=1e-4, atol=1e-5)


def test_a_mixed_batch_equals_each_image_alone(tiny_clip: Clip) -> None:
    adapters, pixels = random_adapters(tiny_clip), images(5)
    routes = torch.tensor([1, PLAIN, 0, 1, PLAIN])
    with torch.no_grad():
        plain = tiny_clip.encode_images(pixels)
        with adapters.routed(routes):
            mixed = tiny_clip.encode_images(pixels)
        alone = []
        for image, route in zip(pixels, routes.tolist(), strict=True):
            with adapters.routed(route):
                alone.append(tiny_clip.encode_images(image[None]))
    torch.testing.assert_close(mixed, torch.cat(alone), rtol=1e-5, atol=1e-6)
    assert torch.equal(mixed[routes == PLAIN], plain[routes == PLAIN])
    other = (mixed - plain).abs().amax(-1)
    assert float(other[routes != PLAIN].min()) > 1e-2
    with torch.no_grad(), adapters.routed(0):
        assert float((tiny_clip.encode_images(pixels) - mixed).abs().amax(-1)[0]) > 1e-2, "tasks differ"


def test_hooks_are_inert_without_a_route(tiny_clip: Clip, tiny_model: str) -> None:
    untouched, pixels = load_clip(tiny_model), images()
    keys = list(tiny_clip.model.state_dict())

    def assert_plain() -> None:
        with torch.no_grad():
            assert torch.equal(tiny_clip.encode_images(pixels), untouched.encode_images(pixels))
        assert torch.equal(tiny_clip.encode_classes(NAMES, TEMPLATES), untouched.encode_classes(NAMES, TEMPLATES))

    adapters = random_adapters(tiny_clip)
    assert_plain()
    adapters.begin_task()
    assert_plain()
    with adapters.routed(PLAIN):
        assert_plain()
    with pytest.raises(RuntimeError), adapters.learning():
        tiny_clip.encode_images(torch.zeros(1, 3, 7, 7))  # breaks half-way
    assert_plain()
    with adapters.routed(0), torch.no_grad():
        assert not torch.equal(tiny_clip.encode_images(pixels), untouched.encode_images(pixels))
    adapters.detach()
    with adapters.routed(0):
        assert_plain()
    assert list(tiny_clip.model.state_dict()) == keys


def test_attaching_again_takes_the_first_hooks_out(tiny_clip: Clip) -> None:
    method = build_method(SMALL)
    for _ in range(2):
        method.attach(tiny_clip)
    block = find_sites(tiny_clip)[0].block
    assert len(block.ln_2._forward_pre_hooks) == len(block.ls_2._forward_hooks) == 1


def test_text_tower_of_its_own(tiny_clip: Clip) -> None:
    config = cast(dict[str, Any], TINY_CONFIG["model_cfg"])
    tiny_clip.model = open_clip.CustomTextCLIP(**config).eval()
    adapters = random_adapters(tiny_clip)
    assert list(adapters.blocks) == ["visual.0", "visual.1", "text.0"]
    plain = tiny_clip.encode_classes(NAMES, TEMPLATES)
    with adapters.routed(0):
        assert float((tiny_clip.encode_classes(NAMES, TEMPLATES) - plain).abs().max()) > 1e-2


@pytest.mark.parametrize("tower", ["visual", "transformer"])
def test_towers_without_such_blocks_are_refused(tiny_clip: Clip, tower: str) -> None:
    setattr(tiny_clip.model, tower, nn.Identity())
    method = build_method(SMALL)
    which = {"visual": "image", "transformer": "text"}[tower]
    with pytest.raises(ConfigError, match=f"the {which} tower of local-dir:.* has none"):
        method.check(tiny_clip)


def test_residual_networks_are_refused(quick: dict[str, Any], tiny_clip: Clip) -> None:
    vision = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
    text = {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
    tiny_clip.model = open_clip.CLIP(24, vision, text)
    with pytest.raises(ConfigError, match="the image tower"):
        build_method(SMALL).check(tiny_clip)


def test_bfloat16_gives_nearly_the_same(tiny_clip: Clip) -> None:
    if not cpu_has_bfloat16():
        pytest.skip("bfloat16 products fail on this CPU")
    adapters, pixels, ends = random_adapters(tiny_clip), images(), []
    for precision in (torch.float32, torch.bfloat16):
        tiny_clip.precision = precision
        adapters.begin_task()
        for parameter in adapters.trained().values():
            parameter.requires_grad_(True)
        with adapters.routed(torch.tensor([0, 1, PLAIN] * 2)):
            features = tiny_clip.encode_images(pixels)
        features[:, 0].sum().backward()
        gradient = adapters.trained()["visual.0.down"].grad
        assert gradient is not None
        assert gradient.dtype == torch.float32
        ends.append((features.detach(), gradient))
    for number, limit in enumerate((0.05, 0.2)):
        difference = float((ends[0][number] - ends[1][number]).norm() / ends[0][number].norm())
        assert 0 < difference < limit


# -- learning and freezing -------------------------------------------------------------------------------------


def moe_learner(quick: dict[str, Any], **more: Any) -> tuple[Learner, MoEAdapters]:
    learner = learner_for(quick, **{"method": SMALL, **more})
    assert isinstance(learner.method, MoEAdapters)
    return learner, learner.method


def test_loss_is_cross_entropy_with_both_towers_routed(quick: dict[str, Any]) -> None:
    learner, method = moe_learner(quick)
    training = learner.begin(0)
    for _ in range(2):
        training.advance()
    batch = training.batch()
    with torch.no_grad():
        torch.manual_seed(5)
        terms = method.loss(batch)
        torch.manual_seed(5)  # the same noise once more
        with method.adapters.learning():
            features = learner.clip.encode_images(batch.task.pixels).double()
            texts = learner.clip.encode_tokens(method.class_tokens).double()
        plain = learner.clip.class_embeddings(method.task.class_names, method.task.templates)
    assert float((texts.float() - plain).abs().max()) > 1e-5, "texts go through experts as well"
    logits = (learner.clip.logit_scale * features @ texts.mT).numpy()
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    labels = batch.task.labels.numpy()
    right = logs[np.arange(len(labels)), labels].mean()
    assert list(terms) == ["ce"], "no load-balance loss"
    assert float(terms["ce"]) == pytest.approx(-(0.8 * right + 0.2 * logs.mean()), rel=1e-5)


def test_choices_are_counted_in_every_block(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    learner, method = moe_learner(quick)
    training = learner.begin(0)
    seen: list[Tensor] = []

    def spy(*args: Any) -> Tensor:
        seen.append(choose_experts(*args))
        return seen[-1]

    monkeypatch.setattr(adapters_module, "choose_experts", spy)
    for _ in range(3):
        training.advance()
    names = ["visual.0", "visual.1", "text.0"] * 3
    assert [len(shares) for shares in seen] == [8, 8, 3] * 3, "8 images and 3 classes a step"
    for name, block in method.adapters.blocks.items():
        own = torch.cat([shares for n, shares in zip(names, seen, strict=True) if n == name])
        assert block.counts.tolist() == np.count_nonzero(own.detach().numpy(), axis=0).tolist()
        assert int(block.counts.sum()) == 2 * len(own), "two a sample"


def test_most_chosen_and_ties() -> None:
    assert most_chosen(torch.tensor([1, 5, 5, 7, 5]), 2).tolist() == [3, 1]
    assert most_chosen(torch.tensor([2, 2, 2]), 2).tolist() == [0, 1]
    assert most_chosen(torch.tensor([0, 0, 4]), 2).tolist() == [2], "what was never chosen has nothing to keep"
    assert most_chosen(torch.tensor([1, 2]), 0).tolist() == []


def test_frozen_experts_keep_their_bits_and_the_others_learn(quick: dict[str, Any]) -> None:
    learner, method = moe_learner(quick, weight_decay=0.5, lr=1e-2, steps=6)
    training = learner.begin(0)
    while training.step < 6:
        training.advance()
    training.close()
    counts = {name: block.counts.clone() for name, block in method.adapters.blocks.items()}
    method.end_task()
    for name, block in method.adapters.blocks.items():
        assert block.frozen.nonzero().flatten().tolist() == [int(counts[name].argmax())]
    before = {name: weights_of(block) for name, block in method.adapters.blocks.items()}
    assert method.selector is not None
    save_checkpoint(learner.clip, method, learner.folder, 0, "dtd", {})
    training = learner.begin(1)
    for block in method.adapters.blocks.values():  # the new router wants the frozen expert
        with torch.no_grad():
            block.trained["gate"][:, block.frozen] += 0.3
    while training.step < 6:
        training.advance()
    chosen = sum(int(block.counts[block.frozen].sum()) for block in method.adapters.blocks.values())
    assert chosen > 0, "frozen ones stay selectable"
    method.end_task()
    for name, block in method.adapters.blocks.items():
        first = int(counts[name].argmax())
        for key, weight in weights_of(block).items():
            assert torch.equal(weight[first], before[name][key][first]), f"{name} {key}"
            others = [e for e in range(4) if e != first]
            assert not torch.equal(weight[others], before[name][key][others]), f"{name} {key}"
        assert block.frozen[first]
        assert len(block.gates) == 2


def test_when_all_are_frozen_only_the_router_learns(quick: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    options = {**SMALL, "freeze": 4, "top": 4}
    learner, method = moe_learner(quick, method=options)
    learner._learn_task(0)
    before = {name: weights_of(block) for name, block in method.adapters.blocks.items()}
    with caplog.at_level(logging.WARNING, "tasso"):
        training = learner.begin(1)
    assert "task eurosat: all experts are frozen" in caplog.text
    assert set(training.groups[0].parameters) == {f"{n}.{k}" for n in before for k in ("gate", "noise")}
    training.advance()
    training.advance()
    method.end_task()
    assert all(same(weights_of(block), before[name]) for name, block in method.adapters.blocks.items())
    assert all(block.gates[1].any() for block in method.adapters.blocks.values())


def test_second_task_resumes_bit_for_bit(quick: dict[str, Any], tmp_path: Path) -> None:
    ends = []
    for stop in (None, 2):
        options = {**quick, "out": str(tmp_path / f"run-{stop}")}
        learner, method = moe_learner(options)
        learner._learn_task(0)
        if stop:
            training = learner.begin(1)
            for _ in range(stop):
                training.advance()
            learner.task_loop(training, 1).save_state()
            torch.manual_seed(99)  # another process has other random numbers
            learner, method = moe_learner(options)
        learner._learn_task(1)
        ends.append(copied(method_tensors(method)))
    assert same(ends[0], ends[1])
    assert any(name.startswith("method/selector.coders.1.") for name in ends[0])


def test_counts_and_weights_are_part_of_the_state(quick: dict[str, Any]) -> None:
    training = moe_learner(quick)[0].begin(0)
    for _ in range(2):
        training.advance()
    state = copied(training.state_dict())
    assert int(state["method/adapters.visual.0.counts"].sum()) == 2 * 8 * 2
    again = moe_learner(quick)[0].begin(0)
    assert not same(again.state_dict(), state)
    again.load_state_dict(state, "state")
    assert same(again.state_dict(), state)


def test_experts_follow_from_seed_and_task_alone(tiny_model: str) -> None:
    def first(seed: int, elsewhere: int) -> Tensor:
        method = fresh(tiny_model)
        torch.manual_seed(elsewhere)
        method.begin_task(TaskInfo(0, "x", NAMES, TEMPLATES, seed))
        return method.adapters.blocks["visual.0"].get_buffer("down")

    assert torch.equal(first(1, 5), first(1, 6))
    assert not torch.equal(first(1, 5), first(2, 5))


# -- inference -------------------------------------------------------------------------------------------------


class FixedRoutes:
    """A selector that has made up its mind."""

    whole_batch = False

    def __init__(self, routes: Sequence[int]) -> None:
        self.chosen = torch.tensor(routes)

    def routes(self, pixels: Tensor) -> Tensor:
        return self.chosen


def test_texts_go_the_way_of_their_image(tiny_clip: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    adapters, pixels, routes = random_adapters(tiny_clip), images(4), [1, PLAIN, 0, 1]
    inference = RoutedInference(tiny_clip, adapters, cast(TaskSelector, FixedRoutes(routes)))
    groups = [("red thing", "blue thing"), ("a cat",)]
    embedded = inference.embed(pixels)
    assert embedded.routes is not None
    assert embedded.routes.tolist() == routes
    scores = inference.scores(embedded, groups, TEMPLATES)
    plain_texts = tiny_clip.encode_classes(["red thing", "blue thing", "a cat"], TEMPLATES)
    for row, route in enumerate(routes):
        with torch.no_grad(), adapters.routed(route):
            texts = tiny_clip.encode_classes(["red thing", "blue thing", "a cat"], TEMPLATES)
            feature = tiny_clip.encode_images(pixels[row : row + 1])
        torch.testing.assert_close(scores[row], (feature @ texts.mT)[0], rtol=1e-4, atol=1e-5)
        assert (route == PLAIN) == torch.allclose(texts, plain_texts)
    for names in groups:
        kept = tiny_clip.class_embeddings(names, TEMPLATES)
        assert torch.equal(kept, tiny_clip.encode_classes(names, TEMPLATES)), "the model's own store stays plain"
    # Kept until something changes.
    calls: list[tuple[str, ...]] = []

    def spy(
        self: Clip, texts: Sequence[str], encode: Callable[[Clip, Sequence[str]], Tensor] = Clip.encode_texts
    ) -> Tensor:
        calls.append(tuple(texts))
        return encode(self, texts)

    monkeypatch.setattr(Clip, "encode_texts", spy)
    assert torch.equal(inference.scores(embedded, groups, TEMPLATES), scores)
    assert not calls
    adapters.begin_task()
    for block in adapters.blocks.values():
        block.trained["up"].data *= -1.0
    changed = inference.scores(embedded, groups, TEMPLATES)
    assert len(calls) == 4, "two routes, two groups"
    assert torch.equal(changed[1], scores[1])
    assert not torch.allclose(changed[[0, 2, 3]], scores[[0, 2, 3]])


def test_before_the_first_task_it_is_plain_clip(tiny_clip: Clip) -> None:
    method = build_method(SMALL)
    method.attach(tiny_clip)
    assert type(method.inference({"first": NAMES})) is Inference


def test_embeddings_without_routes_are_plain(tiny_clip: Clip) -> None:
    inference = RoutedInference(tiny_clip, random_adapters(tiny_clip), cast(TaskSelector, FixedRoutes([0])))
    features = torch.eye(24)[:2]
    scores = inference.scores(Embedded(features), [NAMES], TEMPLATES)
    assert torch.equal(scores, features @ tiny_clip.encode_classes(NAMES, TEMPLATES).mT)


# -- the task selector -----------------------------------------------------------------------------------------


def test_least_error_decides_and_the_threshold_may_refuse() -> None:
    errors = torch.tensor([[0.5, 0.1, 0.2], [0.1, 0.2, 0.3], [0.9, 0.8, 0.4], [0.9, 0.3, 0.31], [0.2, 0.2, 0.2]])
    numbers, thresholds = torch.tensor([PLAIN, 0, 1]), torch.tensor([9.0, 0.25, 0.35])
    # known to 0; the reference wins; 1 wins but does not know it; 0 wins but does not know it; a tie is plain
    assert choose_tasks(errors, numbers, thresholds, False).tolist() == [0, PLAIN, PLAIN, PLAIN, PLAIN]
    assert choose_tasks(errors[:3], numbers, thresholds + 1, False).tolist() == [0, PLAIN, 1]


def test_a_batch_decides_as_one() -> None:
    errors = torch.tensor([[0.1, 0.3], [0.1, 0.2], [0.6, 0.1]])  # means 0.267 and 0.2
    numbers = torch.tensor([0, 1])
    assert choose_tasks(errors, numbers, torch.tensor([1.0, 0.21]), True).tolist() == [1, 1, 1]
    assert choose_tasks(errors, numbers, torch.tensor([1.0, 0.19]), True).tolist() == [PLAIN] * 3
    assert choose_tasks(errors, numbers, torch.tensor([1.0, 0.21]), False).tolist() == [0, 0, 1]


class VectorFeatures(Features):
    """Images are flat already."""

    kind = "clip"
    dim = 3 * 4 * 4

    def raw(self, pixels: Tensor) -> Tensor:
        return pixels.flatten(1)


class Vectors:
    """Images around a few patterns of their own."""

    def __init__(self, seed: int, count: int = 40) -> None:
        drawing = generator(seed)
        patterns = 2 * torch.randn(3, 3, 4, 4, generator=drawing)
        self.stack = patterns[torch.arange(count) % 3] + 0.2 * torch.randn(count, 3, 4, 4, generator=drawing)

    def __len__(self) -> int:
        return len(self.stack)

    def eval_view(self, indices: Any) -> Tensor:
        return self.stack[torch.as_tensor(indices)]

    train_view = None  # the selector has no use for crops


def new_selector(monkeypatch: pytest.MonkeyPatch, recipe: Recipe, whole_batch: bool = False) -> TaskSelector:
    monkeypatch.setitem(selector_module.KINDS, "clip", lambda clip: VectorFeatures())
    return TaskSelector(cast(Clip, SimpleNamespace(device=torch.device("cpu"))), "clip", recipe, whole_batch)


def test_selector_finds_the_task_and_knows_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = new_selector(monkeypatch, Recipe(6, 16, None, 1.0))
    for number in (0, 1):
        selector.learn(number, cast(Any, Vectors(number)), 100, generator(number), "x")
    every = np.arange(40)
    for number in (0, 1):
        assert selector.routes(Vectors(number).eval_view(every)).tolist() == [number] * 40
    stranger = Vectors(5).eval_view(every)
    assert selector.routes(stranger).tolist() == [PLAIN] * 40
    for task in (0, 1):
        selector.coder(task).threshold.fill_(1.0)
    assert set(selector.routes(stranger).tolist()) <= {0, 1}, "only the threshold kept them out"
    selector.learn(PLAIN, cast(Any, Vectors(5)), 100, generator(9), "reference")
    selector.thresholds = dict.fromkeys((0, 1, PLAIN), 1.0)
    assert selector.routes(stranger).tolist() == [PLAIN] * 40, "the auto-encoder of the reference images wins"
    mixed = torch.cat([Vectors(0).stack[:3], Vectors(1).stack[:2], stranger[:1]])
    assert selector.routes(mixed).tolist() == [0, 0, 0, 1, 1, PLAIN]
    selector.whole_batch = True
    assert len(set(selector.routes(mixed).tolist())) == 1


def test_threshold_is_the_quantile_of_its_own_images_or_the_one_given(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = new_selector(monkeypatch, Recipe(2, 16, None, 0.75))
    selector.learn(0, cast(Any, Vectors(0)), 20, generator(0), "x")
    coder = selector.coder(0)
    inputs = torch.sigmoid(Vectors(0).stack.flatten(1))
    errors = []
    for row in inputs.double():
        hidden = F.relu(coder.down.weight.double() @ row + coder.down.bias.double())
        out = torch.sigmoid(coder.up.weight.double() @ hidden + coder.up.bias.double())
        errors.append(float(((out - row) ** 2).mean()))
    assert float(selector.coder(0).threshold) == pytest.approx(np.quantile(errors, 0.75), rel=1e-5)
    selector = new_selector(monkeypatch, Recipe(2, 16, 0.123, 0.75))
    selector.learn(0, cast(Any, Vectors(0)), 2, generator(0), "x")
    assert float(selector.coder(0).threshold) == 0.123


def test_batches_of_the_selector_are_shuffled_epochs() -> None:
    batches = drawn_batches(10, 5, 4, generator(1))
    assert batches.shape == (5, 4)
    for epoch in (batches[:2], batches[2:4]):
        assert len(np.unique(epoch)) == 8
    assert not np.array_equal(batches[:2], batches[2:4])
    assert np.array_equal(batches, drawn_batches(10, 5, 4, generator(1)))
    assert [sorted(batch) for batch in drawn_batches(3, 2, 4, generator(1)).tolist()] == [[0, 1, 2]] * 2


def test_auto_encoder_is_trained_by_adam_with_a_falling_rate() -> None:
    inputs = torch.rand(4, 5, generator=generator(1), dtype=torch.float64)
    coder = AutoEncoder(5, 3).double()
    coder.draw(generator(2))
    slow = {name: value.detach().clone() for name, value in coder.named_parameters()}
    steps = 22  # with one step per epoch, the rate falls after 10 and after 20
    train_auto_encoder(
        coder, lambda batch: inputs[torch.as_tensor(batch)], drawn_batches(4, steps, 4, generator(3)), 1, lambda: None
    )
    first, second = ({name: torch.zeros_like(value) for name, value in slow.items()} for _ in range(2))
    for step in range(1, steps + 1):
        weights = {name: value.clone().requires_grad_() for name, value in slow.items()}
        out = torch.sigmoid(
            F.relu(inputs @ weights["down.weight"].mT + weights["down.bias"]) @ weights["up.weight"].mT
            + weights["up.bias"]
        )
        (out - inputs).square().mean().backward()
        rate = [0.01, 0.001, 0.0001][(step - 1) // 10]
        for name, weight in weights.items():
            assert weight.grad is not None
            gradient = weight.grad + 1e-4 * slow[name]  # Adam's weight decay, not AdamW's
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.999 * second[name] + 0.001 * gradient**2
            step_size = first[name] / (1 - 0.9**step) / ((second[name] / (1 - 0.999**step)).sqrt() + 1e-8)
            slow[name] = slow[name] - rate * step_size
    for name, value in coder.named_parameters():
        torch.testing.assert_close(value.detach(), slow[name], rtol=1e-7, atol=1e-9)


def test_drawing_an_auto_encoder_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    coders = [AutoEncoder(7, 3), AutoEncoder(7, 3)]
    for coder in coders:
        coder.draw(generator(4))
    assert torch.equal(torch.get_rng_state(), before)
    assert same(coders[0].state_dict(), coders[1].state_dict())
    assert float(coders[0].down.weight.detach().abs().max()) <= 1 / math.sqrt(7)


def test_features_are_read_once_or_when_wanted(tiny_clip: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = in_memory(
        torch.randint(0, 256, (9, 3, 16, 16), dtype=torch.uint8, generator=generator(0)), tiny_clip.preprocess
    )
    indices = np.array([[7, 2], [2, 5]])
    ends = []
    for limit in (2**30, 0):
        monkeypatch.setattr(features_module, "CACHE_BYTES", limit)
        features = ClipFeatures(tiny_clip)
        reader = FeatureReader(features, pixels, indices, lambda n: None)
        assert (reader.cache is None) == (limit == 0)
        reader.fit()
        ends.append(reader(np.array([5, 2])))
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        raw = tiny_clip.encode_images(pixels.eval_view(np.array([2, 5, 7]))).double().numpy()
    expected = 1 / (1 + np.exp(-(raw - raw.mean(0)) / raw.std(0)))
    np.testing.assert_allclose(ends[0].numpy(), expected[[1, 0]], rtol=1e-3, atol=1e-4)


def test_without_reference_images_there_is_no_auto_encoder_of_them(
    quick: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    learner, method = moe_learner(quick)
    method.begin_run(RunInfo())
    with caplog.at_level(logging.INFO, "tasso"):
        learner._learn_task(0)
    assert "no reference images" in caplog.text
    assert method.selector is not None
    assert method.selector.tasks == [0]
    train = learner.data.pixels(learner.sequence.tasks[0].train, "x").eval_view(np.arange(36))
    with torch.no_grad():
        raw = learner.clip.encode_images(train)
    features = method.selector.features
    assert isinstance(features, ClipFeatures)
    torch.testing.assert_close(features.mean, raw.mean(0), rtol=1e-4, atol=1e-6)


# -- AlexNet ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alexnet_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for TORCH_HOME with random weights where ImageNet's would be."""
    home = tmp_path_factory.mktemp("torch-home")
    torch.manual_seed(0)
    state = {key: value for key, value in alexnet(weights=None).state_dict().items() if key.startswith("features.")}
    file = home / "hub" / "checkpoints" / "alexnet-owt-7be5be79.pth"
    file.parent.mkdir(parents=True)
    torch.save(state, file)
    return home


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("nothing may be downloaded")

    for name in ("urlopen", "download_url_to_file", "load_state_dict_from_url"):
        monkeypatch.setattr(torch.hub, name, refuse)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)


@pytest.mark.parametrize("size", [16, 224, 300])
def test_alexnet_sees_what_it_was_trained_with(
    size: int, tiny_clip: Clip, alexnet_weights: Path, no_network: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(alexnet_weights))
    assert alexnet_file().is_file()
    before = torch.get_rng_state()
    features = AlexNetFeatures(tiny_clip)
    assert torch.equal(torch.get_rng_state(), before)
    network = alexnet(weights=None).eval()
    network.load_state_dict(torch.load(alexnet_file(), weights_only=True), strict=False)
    colours = torch.rand(2, 3, size, size, generator=generator(1))
    seen = F.interpolate(colours, (224, 224), mode="bilinear", antialias=True)
    seen = (seen - torch.tensor([0.485, 0.456, 0.406])[:, None, None]) / torch.tensor([0.229, 0.224, 0.225])[
        :, None, None
    ]
    with torch.no_grad():
        for layer in list(network.features)[:11]:
            seen = layer(seen)
    raw = features.raw((colours - 0.5) / 0.25)  # the tiny model's normalisation
    assert raw.shape == (2, 43264)
    assert float(raw.min()) < 0, "before the last ReLU"
    torch.testing.assert_close(raw, seen.flatten(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(features.squashed(raw), torch.sigmoid(seen.flatten(1)), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_run_with_alexnet_and_without(
    quick: dict[str, Any], alexnet_weights: Path, no_network: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"selector_hidden": 2, "selector_steps": 2, "reference_steps": 2, "selector_batch_size": 4}
    options = {**quick, "method": {**SMALL, **small, "selector_features": "auto"}, "test_per_class": 1}
    monkeypatch.setenv("TORCH_HOME", str(alexnet_weights))
    config, _ = resolve(from_dict(options))
    assert config.label is not None
    assert "CLIP" not in config.label
    results = learn(from_dict(options))
    assert tasso.evaluate(quick["out"], device="cpu")["mtil"] == results["mtil"]["matrix"][-1]
    loaded = tasso.load(Path(str(quick["out"]))).inference
    assert isinstance(loaded, RoutedInference)
    assert {float(loaded.selector.coder(task).threshold) for task in loaded.selector.tasks} == {0.0655}
    assert loaded.selector.features.kind == "alexnet"
    # The same run on a machine without the weights.
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    with pytest.raises(RunError, match=r"02-eurosat\.safetensors: .*AlexNet.*empty.*alexnet-owt-7be5be79\.pth"):
        tasso.evaluate(quick["out"], device="cpu")
    config, _ = resolve(from_dict(options))
    assert config.label is not None
    assert config.label.endswith(", selector on CLIP features")
    explicit = {**options, "method": {**SMALL, "selector_features": "alexnet"}, "out": str(tmp_path / "other")}
    with pytest.raises(ConfigError, match=r"method\.selector_features: AlexNet's weights are not on this machine"):
        learn(from_dict(explicit))
    assert not (tmp_path / "other").exists()


def test_auto_without_alexnet_is_said(
    quick: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    learner, method = moe_learner(quick, method={**SMALL, "selector_features": "auto"})
    with caplog.at_level(logging.INFO, "tasso"):
        learner.begin(0)
    assert "no AlexNet at" in caplog.text
    assert method.selector is not None
    assert method.selector.features.kind == "clip"


def test_damaged_alexnet_is_named(tiny_clip: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    alexnet_file().parent.mkdir(parents=True)
    for content in (b"no weights", None):
        if content:
            alexnet_file().write_bytes(content)
        else:
            torch.save({"features.0.weight": torch.zeros(1)}, alexnet_file())
        with pytest.raises(ModelError, match=r"alexnet-owt-7be5be79\.pth: not the weights of torchvision's AlexNet"):
            AlexNetFeatures(tiny_clip)


# -- what lasts ------------------------------------------------------------------------------------------------


@pytest.fixture
def finished(quick: dict[str, Any]) -> tuple[dict[str, Any], MoEAdapters]:
    learner, method = moe_learner(quick)
    return learner.run(), method


def fresh(tiny_model: str, **options: Any) -> MoEAdapters:
    method = build_method({**SMALL, **options})
    assert isinstance(method, MoEAdapters)
    method.attach(load_clip(tiny_model))
    return method


def load_into(method: MoEAdapters, state: dict[str, Tensor], tasks: int = 2) -> None:
    load_method(method, tasks, {name.removeprefix("method/"): tensor for name, tensor in state.items()}, "some-file")


@pytest.mark.usefixtures("float32")
def test_state_is_all_that_a_fresh_model_needs(finished: tuple[dict[str, Any], MoEAdapters], tiny_model: str) -> None:
    _, method = finished
    other = fresh(tiny_model)
    load_into(other, copied(method_tensors(method)))
    assert same(method_tensors(other), method_tensors(method))
    pixels = images(8)
    ends = []
    for owner in (method, other):
        inference = owner.inference({})
        assert isinstance(inference, RoutedInference)
        for task in inference.selector.tasks:
            inference.selector.coder(task).threshold.fill_(1.0)
        embedded = inference.embed(pixels)
        assert embedded.routes is not None
        ends.append((embedded.features, embedded.routes, inference.scores(embedded, [NAMES], TEMPLATES)))
    for one, another in zip(*ends, strict=True):
        assert torch.equal(one, another)
    with torch.no_grad():
        assert torch.equal(other.clip.encode_images(pixels), load_clip(tiny_model).encode_images(pixels)), "inert"
    assert [block.frozen.tolist() for block in other.adapters.blocks.values()] == [
        block.frozen.tolist() for block in method.adapters.blocks.values()
    ]


def test_loading_does_not_share_memory(finished: tuple[dict[str, Any], MoEAdapters], tiny_model: str) -> None:
    state = method_tensors(finished[1])
    other = fresh(tiny_model)
    load_into(other, state)
    before = copied(state)
    for tensor in method_tensors(other).values():
        tensor.zero_()
    assert same(state, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda s: s.pop(f"{EXPERTS}text.0.up"), r"'method/adapters\.text\.0\.up' is missing"),
        (
            lambda s: s.update({f"{EXPERTS}visual.1.frozen": torch.zeros(3, dtype=torch.bool)}),
            r"visual\.1\.frozen' has shape \(3,\) of torch\.bool instead of \(4,\)",
        ),
        (
            lambda s: s.update({f"{EXPERTS}visual.1.frozen": torch.zeros(4)}),
            r"has shape \(4,\) of torch\.float32 instead of \(4,\) of torch\.bool",
        ),
        (
            lambda s: s.update({f"{EXPERTS}text.0.gates": torch.zeros(1, 16, 4)}),
            r"text\.0\.gates' has shape \(1, 16, 4\) .* instead of \(2, 16, 4\)",
        ),
        (lambda s: s.update({f"{EXPERTS}text.0.up": torch.full((4, 3, 16), torch.nan)}), "contains inf or NaN"),
        (lambda s: s.pop(f"{SELECTOR}coders.1.up.bias"), r"'method/selector\.coders\.1\.up\.bias' is missing"),
        (lambda s: s.pop(f"{SELECTOR}features.std"), r"selector\.features\.std' is missing"),
        (lambda s: s.pop(f"{SELECTOR}coders.0.threshold"), r"selector\.coders\.0\.threshold' is missing"),
        (lambda s: s.update({f"{SELECTOR}coders.2.up.bias": torch.zeros(24)}), r"coders\.2\.up\.bias' does not belong"),
    ],
)
def test_states_that_do_not_fit_are_named(
    finished: tuple[dict[str, Any], MoEAdapters],
    tiny_model: str,
    spoil: Callable[[dict[str, Tensor]], Any],
    complaint: str,
) -> None:
    state = copied(method_tensors(finished[1]))
    spoil(state)
    with pytest.raises((RunError, ModelError), match=rf"some-file.*{complaint}"):
        load_into(fresh(tiny_model), state)


def test_state_after_another_number_of_tasks_is_refused(
    finished: tuple[dict[str, Any], MoEAdapters], tiny_model: str
) -> None:
    for tasks in (1, 3):
        with pytest.raises(
            RunError, match=rf"some-file: .*gates' has shape \(2, 32, 4\) .* instead of \({tasks}, 32, 4\)"
        ):
            load_into(fresh(tiny_model), method_tensors(finished[1]), tasks)


def test_states_of_other_options_are_refused(finished: tuple[dict[str, Any], MoEAdapters], tiny_model: str) -> None:
    state = method_tensors(finished[1])
    for options, name in (({"experts": 5}, "visual.0.down"), ({"selector_hidden": 7}, "down.weight")):
        with pytest.raises(RunError, match=rf"some-file.*{name}.* not a checkpoint of moe-adapters with these options"):
            load_into(fresh(tiny_model, **options), state)


def test_a_task_needs_the_routers_of_those_before(tiny_model: str) -> None:
    method = fresh(tiny_model)
    with pytest.raises(RunError, match="task 'late': routers of 0 tasks, not of 2"):
        method.begin_task(TaskInfo(2, "late", NAMES, TEMPLATES, 0))


def test_cost_is_what_is_really_saved(
    finished: tuple[dict[str, Any], MoEAdapters], tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moe_adapters, "COUNTED_TASKS", 2)
    state = method_tensors(finished[1])
    extra = ("frozen", "counts", "threshold", "features.mean", "features.std")
    saved = {name: tensor for name, tensor in state.items() if not name.endswith(extra)}
    bookkeeping = sum(tensor.numel() for name, tensor in state.items() if name not in saved)
    clip = load_clip(tiny_model)
    clip.model.to("meta")
    cost = build_method(SMALL).cost(clip)
    assert cost.checkpoint == sum(tensor.numel() for tensor in saved.values())
    assert bookkeeping < 100
    assert (cost.training, cost.trainable) == (
        0,
        2 * 4 * (2 * 3 * 32 + 3 + 32 + 2 * 32) + 4 * (2 * 3 * 16 + 3 + 16 + 2 * 16),
    )
    assert "after 2 tasks" in cost.note


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"top": 5}, r"method\.top: must lie in 1 … 4 \(experts\), not 5"),
        ({"freeze": 9}, r"method\.freeze: must lie in 0 … 4"),
        ({"hidden": 0}, r"method\.hidden: must be at least 1"),
        ({"dropout": 1.0}, r"method\.dropout: must lie in \[0, 1\)"),
        ({"quantile": 0.0}, r"method\.quantile: must lie in \(0, 1\]"),
        ({"threshold": -0.1}, r"method\.threshold: must not be negative"),
        ({"routing": "per_task"}, r"method\.routing: expected one of per_sample, per_batch"),
    ],
)
def test_impossible_options_are_named(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        build_method({**SMALL, **options})


def test_per_batch_reaches_the_selector(quick: dict[str, Any]) -> None:
    for routing, whole in (("per_sample", False), ("per_batch", True)):
        learner, method = moe_learner(quick, method={**SMALL, "routing": routing})
        learner.begin(0)
        assert method.selector is not None
        assert method.selector.whole_batch is whole


def test_decisions_of_a_batch_belong_to_a_recorded_batch_size(tiny_clip: Clip) -> None:
    class FirstDecides(FixedRoutes):
        whole_batch = True

        def routes(self, pixels: Tensor) -> Tensor:
            return (pixels[:1, 0, 0, 0] > 0).long().expand(len(pixels))

    pixels = Arrays(images(40))
    found = []
    for batch_size in (1, 5, 8, 12, 256):
        selector = cast(TaskSelector, FirstDecides([]))
        inference = RoutedInference(tiny_clip, random_adapters(tiny_clip), selector, routing_batch=8)
        routes = inference.embed_all(pixels, batch_size).routes
        assert routes is not None
        found.append(routes.tolist())
    assert all(routes == found[0] for routes in found)
    assert len(set(found[0])) == 2
    recorded = resolve(from_dict({"method": {**SMALL, "routing": "per_batch"}, "benchmark": "atlas"}))[0].method
    assert recorded["routing_batch"] == 128


class Arrays:
    """Images that are normalised already."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def train_view(self, indices: Any, draws: Any) -> Tensor:
        raise AssertionError("evaluation uses eval_view")

    def eval_view(self, indices: Any) -> Tensor:
        return self.pixels[torch.from_numpy(indices)]


def test_defaults_are_those_of_the_code() -> None:
    config, method = resolve(from_dict({"method": "moe-adapters", "benchmark": "atlas", "model": "ViT-B-16"}))
    assert (config.lr, config.weight_decay) == (1e-3, 0.0)
    assert isinstance(method, MoEAdapters)
    assert (method.hidden, method.top, method.freeze, method.dropout, method.expert_scale) == (64, 2, 2, 0.1, 0.1)
    assert (method.label_smoothing, method.selector_hidden, method.selector_steps) == (0.2, 100, 300)
    assert method.towers == "none"
    assert not method.plain_model
    assert [(w.name, w.view, w.each_step) for w in method.image_requests()] == [("reference", "eval", False)]


def test_block_trains_only_free_rows() -> None:
    block = BlockExperts(5, DESIGN, torch.device("cpu"))
    block.draw(generator(0))
    block.frozen[torch.tensor([1, 2])] = True
    block.begin_task()
    assert {name: tuple(p.shape) for name, p in block.trained.items()} == {
        "down": (2, 3, 5), "down_bias": (2, 3), "up": (2, 3, 5), "up_bias": (2, 5), "gate": (5, 4), "noise": (5, 4),
    }  # fmt: skip
    with torch.no_grad():
        block.trained["up_bias"].copy_(torch.tensor([[1.0] * 5, [2.0] * 5]))
    assert block.weight("up_bias")[:, 0].tolist() == [1.0, 0.0, 0.0, 2.0]
