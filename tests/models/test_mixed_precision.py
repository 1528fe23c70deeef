"""Weights cast together give the values and gradients of autocast, which casts them one by one."""

from __future__ import annotations

from typing import Any

import open_clip
import pytest
import torch
from torch import Tensor, nn

from conftest import TINY_CONFIG
from tasso.models.mixed_precision import autocast_forward, autocast_weights, cast_weights
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
    for run in (lambda *args: autocast_forward(*args, torch.bfloat16), with_autocast):
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
def test_weights_that_were_cast_before_are_not_cast_again(model: Any, device: str) -> None:
    module, inputs = model.visual.to(device).requires_grad_(False), torch.randn(2, 3, 16, 16, device=device)
    before = autocast_forward(embed_images, module, inputs, torch.bfloat16)
    cast_weights(module, torch.bfloat16)
    assert all(weight.dtype == torch.bfloat16 for weight in autocast_weights(module).values())
    assert module.ln_pre.weight.dtype == torch.float32
    assert torch.equal(autocast_forward(embed_images, module, inputs, torch.bfloat16), before)


def test_weights_of_products_of_one_tower_are_cast(model: Any) -> None:
    names = set(autocast_weights(model.visual))
    assert {
        "conv1.weight",
        "transformer.resblocks.0.attn.in_proj_bias",
        "transformer.resblocks.1.mlp.c_fc.bias",
    } < names
    assert not any("ln_" in name or "embedding" in name for name in names)
    assert set(autocast_weights(model)) == {n for n in autocast_weights(model) if not n.startswith("visual.")} != set()


def test_the_module_keeps_its_weights_if_the_forward_pass_fails(model: Any) -> None:
    weights = dict(model.visual.named_parameters())

    def fails(module: nn.Module, inputs: Tensor) -> Tensor:
        assert module.conv1.weight.dtype == torch.bfloat16  # type: ignore[union-attr]
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        autocast_forward(fails, model.visual, torch.zeros(1, 3, 16, 16), torch.bfloat16)
    assert all(weight is weights[name] for name, weight in model.visual.named_parameters())
