"""Our forward passes give the embeddings and gradients of open_clip's."""

from __future__ import annotations

from typing import Any

import open_clip
import pytest
import torch
from torch import Tensor

from conftest import TINY_CONFIG
from tasso.models.clip import Clip
from tasso.models.towers import embed_images, embed_tokens, self_attention, without_padding

TEXTS = ["a cat.", "a photo of a dog in the grass", "x"]


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
    tokens = open_clip.get_tokenizer("ViT-B-32", context_length=16)(TEXTS)
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
    tokens = open_clip.get_tokenizer("ViT-B-32", context_length=16)(["many words " * 20])
    assert without_padding(created, tokens).shape == tokens.shape
    torch.testing.assert_close(embed_tokens(created, tokens), created.encode_text(tokens), rtol=1e-9, atol=1e-12)


def test_other_text_towers_are_run_by_open_clip() -> None:
    created = model(text_cfg={**TINY_CONFIG["model_cfg"]["text_cfg"], "no_causal_mask": True})  # type: ignore[dict-item]
    tokens = open_clip.get_tokenizer("ViT-B-32", context_length=16)(TEXTS)
    assert without_padding(created, tokens).shape == tokens.shape, "every token attends to the padding there"
    assert torch.equal(embed_tokens(created, tokens), created.encode_text(tokens))


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
        self_attention(attention, x, queries, causal), expected[:, :queries], rtol=1e-9, atol=1e-12
    )


def test_embeddings_equal_those_of_open_clip(tiny_clip: Clip) -> None:
    pixels = PIXELS.float()
    with torch.no_grad():
        torch.testing.assert_close(
            tiny_clip.encode_images(pixels), tiny_clip.model.encode_image(pixels, normalize=True)
        )
        tokens = tiny_clip.tokenizer(TEXTS)
        torch.testing.assert_close(tiny_clip.encode_texts(TEXTS), tiny_clip.model.encode_text(tokens, normalize=True))
