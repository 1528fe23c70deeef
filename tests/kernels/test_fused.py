"""Towers whose blocks are computed by kernels, against the same towers in PyTorch's operations."""

from __future__ import annotations

import contextlib
from typing import Any

import open_clip
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from conftest import TINY_CONFIG
from tasso.models import blocks
from tasso.models.towers import embed_images, embed_tokens

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton")

from tasso.kernels.attention import attention  # noqa: E402
from tasso.models import fused  # noqa: E402


def in_float32(q: Tensor, kv: Tensor | None, bias: Tensor, heads: int, causal: bool) -> Tensor:
    """The interpreter multiplies bfloat16 as if it were integers."""
    return attention(q.float(), None if kv is None else kv.float(), bias, heads, causal).bfloat16()


@pytest.fixture(autouse=True)
def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "has_kernels", lambda device: True)
    if DEVICE == "cpu":
        monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: contextlib.nullcontext())
        monkeypatch.setattr(fused, "attend", in_float32)


def model(**changes: Any) -> Any:
    torch.manual_seed(0)
    created = open_clip.CLIP(**{**TINY_CONFIG["model_cfg"], **changes})
    for parameter in created.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return created.train().to(DEVICE)


def vision(**changes: Any) -> dict[str, Any]:
    return {"vision_cfg": {**TINY_CONFIG["model_cfg"]["vision_cfg"], **changes}}  # type: ignore[dict-item]


class Doubled(nn.Module):
    """An adapter in the place of a module."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.original = original

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = 2 * self.original(x)
        return y


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda module, args, output: 2 * output)
    return module


PIXELS = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1)).to(DEVICE)
TOKENS = open_clip.get_tokenizer("ViT-B-32", context_length=16)(["a cat.", "a photo of a dog", "x"]).to(DEVICE)
BLOCK = "transformer.resblocks.0"


@pytest.mark.parametrize(
    ("changes", "place", "change"),
    [
        ({}, "", None),
        ({"quick_gelu": True}, "", None),
        (vision(ls_init_value=0.5), "", None),
        (vision(layers=1), "", None),
        (vision(no_ln_pre=True), "", None),
        (vision(width=48, head_width=48), "", None),  # attention that the kernel cannot do
        *(({}, f"{BLOCK}.{name}", change) for name in ("ln_1", "ln_2", "mlp", "mlp.gelu", "mlp.c_proj", "attn.out_proj")
          for change in (hooked, Doubled) if (name, change) != ("attn.out_proj", Doubled)),
        ({}, f"{BLOCK}.ls_2", hooked),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)  # fmt: skip
@pytest.mark.parametrize("tower", ["visual", "text"])
def test_towers(tower: str, changes: dict[str, Any], place: str, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embeddings and all gradients are about as near to float32 as those of PyTorch's operations in bfloat16."""
    created = model(**changes)
    if place:
        owner = created.visual if tower == "visual" else created
        parent, _, name = place.rpartition(".")
        owner.get_submodule(parent)._modules[name] = change(owner.get_submodule(place))
    trained = [p for p in created.parameters() if p.requires_grad]

    def run(low: bool) -> list[Tensor]:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=low):
            y = embed_images(created.visual, PIXELS) if tower == "visual" else embed_tokens(created, TOKENS)
        y = y.float()
        weights = torch.linspace(-1, 1, y.numel(), device=DEVICE).view_as(y)
        return [y, *torch.autograd.grad((y * weights).sum(), trained, materialize_grads=True)]

    exact, found = run(low=False), run(low=True)
    monkeypatch.setattr(blocks, "has_kernels", lambda device: False)
    plain = run(low=True)
    assert not torch.equal(found[0], plain[0]), "the kernels were not used"
    for one, other, expected in zip(found, plain, exact, strict=True):
        size = expected.norm()
        assert (one - expected).norm() <= 1.5 * (other - expected).norm() + 0.02 * size


@pytest.mark.parametrize("tune", ["norms", "biases", "matrices"])
def test_some_weights_are_frozen(tune: str) -> None:
    """Those that are trained have the gradients that they have when all are."""
    created = model()
    chosen = {
        "norms": lambda name: ".ln_" in name,
        "biases": lambda name: name.endswith("bias"),
        "matrices": lambda name: name.endswith("weight") and ".ln_" not in name,
    }[tune]
    found = []
    for wanted in (lambda name: True, chosen):
        named = {n: p.requires_grad_(wanted(n)) for n, p in created.visual.named_parameters()}
        trained = {n: p for n, p in named.items() if p.requires_grad}
        with torch.autocast(DEVICE, torch.bfloat16):
            y = embed_images(created.visual, PIXELS)
        gradients = torch.autograd.grad(y.float().square().sum(), list(trained.values()), materialize_grads=True)
        found.append(dict(zip(trained, gradients, strict=True)))
    assert found[1]
    for name, gradient in found[1].items():
        torch.testing.assert_close(gradient, found[0][name], msg=name)


def test_inputs_of_frozen_weights_are_not_kept() -> None:
    created = model()
    transformer = created.visual.transformer
    counts = []
    for trained in ((".ln_1.", ".weight", "_weight"), (".ln_1.",)):
        kept: list[Tensor] = []
        for name, parameter in transformer.named_parameters():
            parameter.requires_grad_(any(part in name for part in trained))
        x = torch.randn(2, 5, 32, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
        keep = saved_tensors_hooks(lambda tensor, kept=kept: kept.append(tensor) or tensor, lambda tensor: tensor)
        with keep, torch.autocast(DEVICE, torch.bfloat16):
            blocks.Operations.of(transformer, F.linear, x.device).blocks(transformer, x)
        counts.append(len(kept))
    assert counts[0] - counts[1] == 2 * 4, "two blocks of four matrices"


def test_checkpointed_blocks() -> None:
    created = model()
    found = []
    for enabled in (False, True):
        created.set_grad_checkpointing(enabled)
        with torch.autocast(DEVICE, torch.bfloat16):
            y = embed_images(created.visual, PIXELS)
        found.append([y, *torch.autograd.grad(y.float().square().sum(), created.visual.conv1.weight)])
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() < 0.02 * other.norm()
