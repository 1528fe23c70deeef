"""Our forward passes give the embeddings and gradients of open_clip's."""

from __future__ import annotations

from functools import cache
from typing import Any

import open_clip
import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrize

from conftest import TINY_CONFIG
from tasso.models import blocks
from tasso.models.blocks import Operations, attend
from tasso.models.clip import Clip
from tasso.models.towers import embed_images, embed_tokens, without_padding

TEXTS = ["a cat.", "a photo of a dog in the grass", "x"]


@cache
def tokenised(*texts: str) -> Tensor:
    tokens: Tensor = open_clip.get_tokenizer("ViT-B-32", context_length=16)(texts)
    return tokens


def model(**changes: Any) -> Any:
    torch.manual_seed(0)
    config = {**TINY_CONFIG["model_cfg"], **changes}
    created = open_clip.CLIP(**config).double()
    for parameter in created.parameters():  # biases and embeddings that are not zero
        parameter.data += 0.1 * torch.randn_like(parameter)
    return created.train()


def vision(**changes: Any) -> dict[str, Any]:
    return {"vision_cfg": {**TINY_CONFIG["model_cfg"]["vision_cfg"], **changes}}  # type: ignore[dict-item]


PIXELS = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def gradients(value: Tensor, created: Any) -> dict[str, Tensor]:
    weights = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).view_as(value)
    named = dict(created.named_parameters())
    found = torch.autograd.grad((value * weights).sum(), list(named.values()), materialize_grads=True)
    return dict(zip(named, found, strict=True))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"quick_gelu": True},
        vision(ls_init_value=0.5),
        vision(layers=1),
        # Other architectures are run by open_clip.
        vision(layers=0),
        vision(pool_type="avg"),
        vision(attentional_pool=True, attn_pooler_queries=4),
        vision(output_tokens=True),
    ],
    ids=str,
)
def test_images(changes: dict[str, Any]) -> None:
    created = model(**changes)
    ours, theirs = embed_images(created.visual, PIXELS), created.visual(PIXELS)
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    expected = gradients(theirs, created)
    for name, gradient in gradients(ours, created).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-11, msg=name)


def test_no_images() -> None:
    assert embed_images(model().visual, PIXELS[:0]).shape == (0, 24)


def test_the_norm_after_the_blocks_sees_one_row_per_image() -> None:
    created = model()
    shapes: list[tuple[int, ...]] = []
    created.visual.ln_post.register_forward_pre_hook(lambda module, inputs: shapes.append(tuple(inputs[0].shape)))
    embed_images(created.visual, PIXELS)
    assert shapes == [(3, 32)]


def test_the_last_block_computes_one_token_only(monkeypatch: pytest.MonkeyPatch) -> None:
    created = model()
    lengths: list[int] = []
    for block in created.visual.transformer.resblocks:
        block.mlp.register_forward_pre_hook(lambda module, inputs: lengths.append(inputs[0].shape[1]))
    embed_images(created.visual, PIXELS)
    assert lengths == [5, 1]


@pytest.mark.parametrize("changes", [{}, {"quick_gelu": True}], ids=str)
def test_texts_without_their_padding(changes: dict[str, Any]) -> None:
    created = model(**changes)
    tokens = tokenised(*TEXTS)
    short = without_padding(created, tokens)
    assert short.shape[1] < tokens.shape[1]
    assert int((short == 49407).sum()) == 3, "every text keeps its end-of-text token"
    ours, theirs = embed_tokens(created, short), created.encode_text(tokens)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    expected = gradients(theirs, created)
    for name, gradient in gradients(ours, created).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-11, msg=name)


def test_texts_that_fill_the_context_are_not_cut() -> None:
    created = model()
    tokens = tokenised("many words " * 20)
    assert without_padding(created, tokens).shape == tokens.shape
    torch.testing.assert_close(embed_tokens(created, tokens), created.encode_text(tokens), rtol=1e-9, atol=1e-12)


def test_other_text_towers_are_run_by_open_clip() -> None:
    created = model(text_cfg={**TINY_CONFIG["model_cfg"]["text_cfg"], "no_causal_mask": True})  # type: ignore[dict-item]
    tokens = tokenised(*TEXTS)
    assert without_padding(created, tokens).shape == tokens.shape, "every token attends to the padding there"
    assert torch.equal(embed_tokens(created, tokens), created.encode_text(tokens))


def bent(output: Any) -> Any:
    """Another output, of attention or of other modules."""
    return (bent(output[0]), *output[1:]) if isinstance(output, tuple) else output + output.square()


@pytest.mark.parametrize("changes", [{}, {"quick_gelu": True}, vision(pool_type="avg")], ids=str)
def test_checkpointed_activations(changes: dict[str, Any]) -> None:
    """The same embeddings and gradients to the last bit, with fewer tensors kept for the backward pass."""
    created, tokens = model(**changes).float(), tokenised(*TEXTS)
    found = []
    for enabled in (False, True):
        created.set_grad_checkpointing(enabled)
        kept: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, kept=kept: kept.append(t) or t, lambda t: t):
            embedded = embed_images(created.visual, PIXELS.float()), embed_tokens(created, tokens)
        found.append((embedded, gradients(torch.cat(embedded), created), len(kept)))
    (one, expected, many), (other, actual, few) = found
    assert few < many / 2
    assert all(map(torch.equal, one, other))
    assert all(torch.equal(actual[name], gradient) for name, gradient in expected.items())


class Bent(torch.nn.MultiheadAttention):
    """Attention with another output."""

    def forward(self, *args: Any, **options: Any) -> Any:
        return bent(super().forward(*args, **options))


class Wrapped(torch.nn.Module):
    """As adapters wrap a module: the original is one of its parts, and its attributes are found through it."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.original = original

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("original"), name)

    def forward(self, *args: Any, **options: Any) -> Any:
        return bent(self.original(*args, **options))


class Squared(torch.nn.Module):
    """A parametrisation of a weight."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight + weight.square()


def subclassed(attention: Any) -> Any:
    attention.__class__ = Bent
    return attention


def overridden(module: Any) -> Any:
    forward = module.forward
    module.forward = lambda *args, **options: bent(forward(*args, **options))
    return module


def hooked(module: Any) -> Any:
    module.register_forward_hook(lambda module, args, output: bent(output))
    return module


def hooked_before(module: Any) -> Any:
    module.register_forward_pre_hook(lambda module, args: bent(args))
    return module


def parametrised(attention: Any) -> Any:
    parametrize.register_parametrization(attention, "in_proj_weight", Squared())
    return attention


CHANGES: list[tuple[str, Any]] = [
    *((place, change) for place in ("transformer.resblocks.0.attn", "transformer.resblocks.0", "transformer")
      for change in (Wrapped, hooked, overridden)),
    ("transformer.resblocks.0.attn", subclassed),
    ("transformer.resblocks.0.attn", parametrised),
    ("transformer.resblocks.0", hooked_before),
    ("conv1", Wrapped), ("conv1", hooked), ("patch_dropout", hooked), ("", hooked), ("", overridden),
    ("ln_post", Wrapped), ("transformer.resblocks.0.mlp", Wrapped), ("transformer.resblocks.0.ln_1", hooked),
]  # fmt: skip


@pytest.mark.parametrize("tower", ["visual", "text"])
@pytest.mark.parametrize(("place", "change"), CHANGES, ids=lambda v: v if isinstance(v, str) else v.__name__)
def test_changed_modules_are_not_skipped(tower: str, place: str, change: Any) -> None:
    """Whatever is wrapped, replaced, subclassed, parametrised or hooked has its effect."""
    created = model()
    owner = created.visual if tower == "visual" else created
    if tower == "text" and (not place or place in ("conv1", "patch_dropout")):
        pytest.skip("not a part of this tower")
    place = place.replace("ln_post", "ln_final") if tower == "text" else place
    tokens = tokenised(*TEXTS)

    def embeddings() -> tuple[Tensor, Tensor]:
        if tower == "visual":
            return embed_images(created.visual, PIXELS), created.visual(PIXELS)
        return embed_tokens(created, without_padding(created, tokens)), created.encode_text(tokens)

    before, _ = embeddings()
    changed = change(owner.get_submodule(place))
    if place:
        parent, _, name = place.rpartition(".")
        owner.get_submodule(parent)._modules[name] = changed
    ours, theirs = embeddings()
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(ours, before, rtol=1e-3)


def test_backward_hooks_are_not_skipped() -> None:
    created, calls = model(), []
    created.visual.transformer.resblocks[0].attn.register_full_backward_hook(lambda *_: calls.append("attn"))
    created.visual.transformer.resblocks[0].register_full_backward_hook(lambda *_: calls.append("block"))
    embed_images(created.visual, PIXELS).sum().backward()
    assert sorted(calls) == ["attn", "block"]


def test_a_block_that_is_used_twice() -> None:
    """Only its last use is for the class token alone."""
    created = model()
    blocks = created.visual.transformer.resblocks
    created.visual.transformer.resblocks = torch.nn.ModuleList([blocks[0], blocks[0]])
    torch.testing.assert_close(embed_images(created.visual, PIXELS), created.visual(PIXELS), rtol=1e-9, atol=1e-12)


def test_attention_with_dropout_is_run_by_open_clip() -> None:
    created = model()
    created.visual.transformer.resblocks[0].attn.dropout = 0.9
    one, other = embed_images(created.visual, PIXELS), embed_images(created.visual, PIXELS)
    assert not torch.allclose(one, other, rtol=1e-3)


@pytest.mark.parametrize("queries", [None, 1, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(queries: int | None, causal: bool) -> None:
    if causal and queries is not None:
        pytest.skip("not used together")
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).double()
    torch.nn.init.normal_(attention.in_proj_bias)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    mask = torch.full((5, 5), float("-inf"), dtype=torch.float64).triu(1) if causal else None
    expected = attention(x, x, x, need_weights=False, attn_mask=mask)[0]
    torch.testing.assert_close(
        Operations().attention(attention, x, queries, causal)[0], expected[:, :queries], rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(("size", "near"), [(1, 0.008), (2, 0.02)])
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_a_cpu_in_bfloat16(queries: int, causal: bool, size: float, near: float) -> None:
    """In plain products: values and gradients agree with float64 up to rounding, which grows with the scores."""
    if causal and queries == 1:
        pytest.skip("not used together")
    torch.manual_seed(0)
    inputs = [(size * torch.randn(2, 2, length, 8)).bfloat16().requires_grad_() for length in (queries, 5, 5)]
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        y = attend(*inputs, causal=causal)
    exact = torch.nn.functional.scaled_dot_product_attention(*doubles, is_causal=causal)
    outer = torch.randn_like(exact)
    found = [y, *torch.autograd.grad(y, inputs, outer.bfloat16())]
    expected = [exact, *torch.autograd.grad(exact, doubles, outer)]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.bfloat16
        assert (one.double() - other).norm() < near * other.norm()


@pytest.mark.parametrize("checkpointed", [False, True])
def test_weights_cast_at_once_give_the_bits_of_autocast(checkpointed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    created = model().float()
    created.set_grad_checkpointing(checkpointed)
    created.visual.transformer.resblocks[0].mlp.c_fc.weight.requires_grad_(False)
    trained = [p for p in created.parameters() if p.requires_grad]
    found = []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(blocks, "cast_at_once", lambda transformer, dtype: lambda weight: weight)
        with torch.autocast("cpu", torch.bfloat16):
            images, texts = embed_images(created.visual, PIXELS.float()), embed_tokens(created, tokenised(*TEXTS))
        gradients = torch.autograd.grad(images.sum() + texts.sum(), trained, materialize_grads=True)
        found.append([images, texts, *gradients])
    assert {tensor.dtype for tensor in found[0][2:]} == {torch.float32}
    assert all(map(torch.equal, *found))


def test_embeddings_equal_those_of_open_clip(tiny_clip: Clip) -> None:
    pixels = PIXELS.float()
    with torch.no_grad():
        torch.testing.assert_close(
            tiny_clip.encode_images(pixels), tiny_clip.model.encode_image(pixels, normalize=True)
        )
        tokens = tiny_clip.tokenizer(TEXTS)
        torch.testing.assert_close(tiny_clip.encode_texts(TEXTS), tiny_clip.model.encode_text(tokens, normalize=True))
