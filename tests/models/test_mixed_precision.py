"""Weights cast together are those that autocast casts one by one."""

from __future__ import annotations

from typing import Any

import open_clip
import pytest
import torch
from torch import Tensor, nn

from conftest import TINY_CONFIG
from tasso.models.mixed_precision import cast, matrices, run_in
from tasso.models.towers import embed_images, embed_tokens
from tasso.training.engine import cpu_has_bfloat16

DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(not cpu_has_bfloat16(), reason="no bfloat16 products on this CPU")),
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")),
]


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    return open_clip.CLIP(**TINY_CONFIG["model_cfg"])  # type: ignore[arg-type]


def with_autocast(forward: Any, module: nn.Module, inputs: Tensor) -> Tensor:
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
        features: Tensor = forward(module, inputs)
        return features


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tower", ["images", "texts"])
def test_values_and_gradients_are_those_of_autocast(model: Any, device: str, tower: str) -> None:
    model = model.to(device)
    if tower == "images":
        module, forward, inputs = model.visual, embed_images, torch.randn(3, 3, 16, 16, device=device)
    else:
        tokens = open_clip.get_tokenizer("ViT-B-32", context_length=16)(["a cat.", "x"])
        module, forward, inputs = model, embed_tokens, tokens.to(device)
    found = []
    for run in (lambda *a: run_in(torch.bfloat16, *a), with_autocast):
        features = run(forward, module, inputs)
        named = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        gradients = torch.autograd.grad(features.float().square().sum(), list(named.values()), allow_unused=True)
        found.append((features, dict(zip(named, gradients, strict=True))))
    (ours, our_gradients), (theirs, their_gradients) = found
    assert torch.equal(ours, theirs)
    for name, gradient in our_gradients.items():
        assert (gradient is None) == (their_gradients[name] is None), name
        if gradient is not None:
            assert gradient.dtype == torch.float32
            assert torch.equal(gradient, their_gradients[name]), name


@pytest.mark.parametrize("device", DEVICES)
def test_what_was_cast_for_good_is_not_cast_again(model: Any, device: str) -> None:
    module, inputs = model.visual.to(device).requires_grad_(False), torch.randn(2, 3, 16, 16, device=device)
    before = run_in(torch.bfloat16, embed_images, module, inputs)
    cast(module, torch.bfloat16)
    assert all(weight.dtype == torch.bfloat16 for weight in matrices(module).values())
    assert module.ln_pre.weight.dtype == torch.float32
    assert torch.equal(run_in(torch.bfloat16, embed_images, module, inputs), before)


def test_the_weights_of_products_and_of_one_tower(model: Any) -> None:
    ours = set(matrices(model.visual))
    assert {"conv1.weight", "transformer.resblocks.0.attn.in_proj_bias", "transformer.resblocks.1.mlp.c_fc.bias"} < ours
    assert not any("ln_" in name or "embedding" in name for name in ours)
    assert set(matrices(model)) == {n for n in matrices(model) if not n.startswith("visual.")} != set()


def test_the_module_keeps_its_own_weights(model: Any) -> None:
    """Also where the forward pass fails."""
    weights = dict(model.visual.named_parameters())

    def fails(module: nn.Module, inputs: Tensor) -> Tensor:
        assert module.conv1.weight.dtype == torch.bfloat16  # type: ignore[union-attr]
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        run_in(torch.bfloat16, fails, model.visual, torch.zeros(1, 3, 16, 16))
    assert all(weight is weights[name] for name, weight in model.visual.named_parameters())
