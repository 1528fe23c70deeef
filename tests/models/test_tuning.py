"""Which weights are trained, and LoRA against its definition."""

from __future__ import annotations

from typing import Any

import open_clip
import pytest
import torch
from torch import nn

from conftest import TINY_CONFIG
from tasso.errors import ConfigError
from tasso.models.clip import Clip
from tasso.models.lora import LowRank
from tasso.models.tuning import find_blocks, tuned


def test_blocks_and_what_follows_them(tiny_clip: Clip) -> None:
    blocks = ["visual.transformer.resblocks.0.", "visual.transformer.resblocks.1.", "transformer.resblocks.0."]
    assert list(find_blocks(tiny_clip.model)) == blocks
    tiny_clip.tune = "last:1"
    found = {name for name in tiny_clip.tuned_parameters("both") if not name.startswith(tuple(blocks))}
    assert found == {
        "visual.proj", "visual.ln_post.weight", "visual.ln_post.bias",
        "text_projection", "ln_final.weight", "ln_final.bias",
    }  # fmt: skip
    image = tiny_clip.tuned_parameters("visual")
    assert {name.split(".")[3] for name in image if "resblocks" in name} == {"1"}, "the last of two"
    with pytest.raises(ConfigError, match="tune: the text tower of this model has 1 blocks, and nothing for last:2"):
        tuned(tiny_clip.model, tiny_clip.parameters_of("both"), "last:2")


def test_norms_and_matrices(tiny_clip: Clip) -> None:
    named = tiny_clip.parameters_of("visual")
    assert {n.rsplit(".", 2)[-2] for n in tuned(tiny_clip.model, named, "norms")} == {
        "ln_pre", "ln_1", "ln_2", "ln_post"
    }  # fmt: skip
    assert {n.split(".", 4)[-1] for n in tuned(tiny_clip.model, named, "lora")} == {
        "attn.in_proj_weight", "attn.out_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"
    }  # fmt: skip
    assert tuned(tiny_clip.model, named, "full") == named


def test_other_architectures_have_blocks_too(tiny_clip: Clip) -> None:
    """A ResNet: convolutions have low-rank updates like matrices."""
    config: Any = {
        **TINY_CONFIG["model_cfg"],
        "vision_cfg": {"image_size": 32, "layers": [1, 1, 1, 2], "width": 8, "head_width": 8},
    }
    model = open_clip.CLIP(**config)
    blocks = [name for name in find_blocks(model) if name.startswith("visual.")]
    assert blocks == [
        "visual.layer1.0.",
        "visual.layer2.0.",
        "visual.layer3.0.",
        "visual.layer4.0.",
        "visual.layer4.1.",
    ]
    named = dict(model.visual.named_parameters(prefix="visual"))
    assert all(n.startswith(("visual.layer4.1.", "visual.attnpool.")) for n in tuned(model, named, "last:1"))
    weights = tuned(model, named, "lora")
    low = LowRank(weights, 2, 2)
    assert {factors[0].A.shape for factors in low.factors.values()} > {(2, 8 * 3 * 3)}
    tiny_clip.model = model
    with pytest.raises(ConfigError, match=r"checkpoint_activations: the image tower of .* cannot do this"):
        tiny_clip.checkpoint_activations()


class WithDecoder(open_clip.CLIP):  # type: ignore[misc]
    """As CoCa: a part that embeds nothing."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        layer = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        self.text_decoder = nn.Sequential(nn.Sequential(*layer), nn.Sequential(*layer))


@pytest.mark.parametrize("tune", ["full", "lora", "last:1", "norms"])
def test_what_embeds_nothing_is_never_trained(tiny_clip: Clip, tune: str) -> None:
    tiny_clip.tune = tune
    expected = {towers: list(tiny_clip.tuned_parameters(towers)) for towers in ("text", "both")}
    tiny_clip.model = WithDecoder(**TINY_CONFIG["model_cfg"])
    assert {towers: list(tiny_clip.tuned_parameters(towers)) for towers in ("text", "both")} == expected


def test_checkpointing_is_refused_or_switched_off_again(tiny_clip: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    layer: Any = tiny_clip.model.get_submodule("transformer.resblocks.0")
    layer.gradient_checkpointing = True  # as open_clip leaves text towers of transformers
    tiny_clip.checkpoint_activations()
    tiny_clip.checkpoint_activations(False)
    assert not layer.gradient_checkpointing
    monkeypatch.delattr(open_clip.CLIP, "set_grad_checkpointing")  # as own model objects
    with pytest.raises(ConfigError, match=r"checkpoint_activations: the image tower of .* cannot do this"):
        tiny_clip.checkpoint_activations()


def test_lora_is_what_its_definition_says() -> None:
    """Against W₀ + α/r · B A with autograd in float64, for packed and plain weights, with accumulated gradients."""
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).double()
    weights = {"in_proj_weight": attention.in_proj_weight, "out_proj.weight": attention.out_proj.weight}
    low = LowRank(weights, 3, 6.0)
    named = low.trained(weights)
    assert list(named)[:3] == ["in_proj_weight.0.A", "in_proj_weight.0.B", "in_proj_weight.1.A"]
    assert [len(found) for found in low.factors.values()] == [3, 1], "queries, keys and values are matrices"
    start = {name: weight.detach().clone() for name, weight in weights.items()}
    ours, theirs = list(named.values()), [p.detach().clone().requires_grad_() for p in named.values()]
    optimizers = [torch.optim.AdamW(parameters, lr=0.03) for parameters in (ours, theirs)]
    x = torch.randn(4, 2, 5, 8, dtype=torch.float64)

    def expected() -> dict[str, torch.Tensor]:
        products = [2.0 * B @ A for A, B in zip(theirs[::2], theirs[1::2], strict=True)]
        return {
            "in_proj_weight": start["in_proj_weight"] + torch.cat(products[:3]),
            "out_proj.weight": start["out_proj.weight"] + products[3],
        }

    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for chunk in x[step].split(1):
            attention(chunk, chunk, chunk)[0].square().sum().backward()
            torch.func.functional_call(attention, expected(), (chunk, chunk, chunk))[0].square().sum().backward()
        assert all(weight.grad is None for weight in weights.values()), "no gradient of a whole weight is held"
        with low.updating():
            optimizers[0].step()
        optimizers[1].step()
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
        for name, weight in expected().items():
            torch.testing.assert_close(weights[name].detach(), weight.detach(), rtol=1e-9, atol=1e-12)
    assert not torch.equal(weights["in_proj_weight"], start["in_proj_weight"])
    low.close()
    attention(x[0], x[0], x[0])[0].sum().backward()
    assert attention.in_proj_weight.grad is not None, "a plain weight again"


def test_a_step_without_gradients_moves_nothing(tiny_clip: Clip) -> None:
    weights = tuned(tiny_clip.model, tiny_clip.parameters_of("visual"), "lora")
    low = LowRank(weights, 2, 2)
    for factors in low.factors.values():
        nn.init.normal_(factors[0].B)
    before = {name: weight.clone() for name, weight in weights.items()}
    with low.updating():
        pass
    assert all(torch.equal(weight, before[name]) for name, weight in weights.items()), "to the last bit"
