"""Linear layers in fp8. Products of a GPU are emulated: what was rounded is multiplied in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tasso.errors import ConfigError
from tasso.models import fp8
from tasso.models.clip import Clip
from tasso.models.towers import embed_images
from tasso.training.engine import choose_precision, cpu_has_bfloat16


def emulated(a: Tensor, b: Tensor, a_scales: Tensor, b_scales: Tensor, out_dtype: torch.dtype, **_: Any) -> Tensor:
    return ((a.float() * a_scales) @ (b.float() * b_scales)).to(out_dtype)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Emulates products, which must have what a GPU asks for; has rows, columns and length of each."""
    if not cpu_has_bfloat16():
        pytest.skip("bfloat16 products fail on this CPU")
    seen: list[tuple[int, ...]] = []

    def scaled(a: Tensor, b: Tensor, a_scales: Tensor, b_scales: Tensor, **more: Any) -> Tensor:
        (rows, length), columns = a.shape, b.shape[1]
        assert (a.dtype, b.dtype, more["out_dtype"]) == (fp8.FP8, fp8.FP8, torch.bfloat16)
        assert (a_scales.shape, b_scales.shape) == ((rows, 1), (1, columns))
        assert all(tensor.is_contiguous() for tensor in (a, b.mT, a_scales, b_scales))
        assert (length % 16, columns % 16) == (0, 0)
        seen.append((rows, columns, length))
        return emulated(a, b, a_scales, b_scales, **more)

    monkeypatch.setattr(torch, "_scaled_mm", scaled)
    monkeypatch.setattr(fp8, "LEAST_ROWS", 1)
    return seen


def apart(found: Tensor | None, expected: Tensor | None) -> float:
    """Distance relative to the length of what is expected."""
    assert found is not None
    assert expected is not None
    return float(((found - expected).norm() / expected.norm()).detach())


def test_values_and_gradients_are_near_those_of_float32(products: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    sizes = torch.logspace(-4, 4, 7)[:, None]  # tokens of very different size
    inputs = (sizes * torch.randn(3, 7, 32), torch.randn(48, 32), torch.randn(48))
    weighting = torch.randn(3, 7, 48) / sizes
    results = []
    for linear in (fp8.linear, F.linear):
        x, weight, bias = (tensor.clone().requires_grad_() for tensor in inputs)
        y = linear(x, weight, bias)
        (y * weighting).sum().backward()  # type: ignore[no-untyped-call]
        results.append((y, x.grad, weight.grad, bias.grad))
    ours, theirs = results
    assert (ours[0].dtype, ours[1].dtype, ours[2].dtype) == (torch.bfloat16, torch.float32, torch.float32)
    for token in range(7):
        assert apart(ours[0][:, token], theirs[0][:, token]) < 0.05
        assert apart(ours[1][:, token], theirs[1][:, token]) < 0.05
    assert apart(ours[2], theirs[2]) < 0.02, "in bfloat16"
    assert apart(ours[3], theirs[3]) < 0.02
    assert products == [(21, 48, 32), (21, 32, 48)], "the output, and the gradient of the input"


def test_zeros_stay_zeros(products: list[tuple[int, ...]]) -> None:
    values, scales = fp8.rounded(torch.zeros(2, 16))
    assert not values.float().any()
    assert torch.isfinite(scales).all()
    assert not fp8.linear(torch.zeros(2, 16), torch.randn(16, 16)).any()


def test_the_largest_value_of_a_row_is_exact() -> None:
    rows = torch.randn(1000, 16).bfloat16()
    values, scales = fp8.rounded(rows)
    largest = (values.float() * scales).abs().amax(1)
    torch.testing.assert_close(largest, rows.float().abs().amax(1), rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", [(16, 24), (24, 16)])
def test_weights_that_a_gpu_cannot_take_are_multiplied_as_ever(
    products: list[tuple[int, ...]], shape: tuple[int, int]
) -> None:
    x, weight = torch.randn(3, shape[1]), torch.randn(shape)
    assert torch.equal(fp8.linear(x, weight), F.linear(x, weight))
    assert products == []


def test_few_rows_are_multiplied_as_ever(products: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8, "LEAST_ROWS", 6)
    weight = torch.randn(16, 16)
    for rows in (5, 6):
        fp8.linear(torch.randn(1, rows, 16), weight)
    assert products == [(6, 16, 16)]


def test_blocks_of_both_towers_and_teachers(tiny_clip: Clip, products: list[tuple[int, ...]]) -> None:
    """Four products per block, one more in the last block of images, where few tokens have a query."""
    pixels, tokens = torch.randn(4, 3, 16, 16), tiny_clip.tokenise(["a photo of a cat"])
    plain = tiny_clip.encode_images(pixels), tiny_clip.encode_tokens(tokens)
    tiny_clip.to("cpu", fp8.FP8)
    found = tiny_clip.encode_images(pixels), tiny_clip.encode_tokens(tokens)
    blocks = [len(tower.transformer.resblocks) for tower in (tiny_clip.model.visual, tiny_clip.model)]  # type: ignore[union-attr,arg-type]
    assert len(products) == 4 * sum(blocks) + 1
    for one, other in zip(plain, found, strict=True):
        assert float((one * other).sum(-1).min()) > 0.99
    teacher = tiny_clip.frozen_image_encoder()
    assert {weight.dtype for weight in teacher.tower.transformer.parameters() if weight.dim() > 1} == {torch.bfloat16}
    assert torch.equal(teacher.encode_images(pixels), found[0]), "teacher and student agree at first"


@pytest.mark.slow
def test_a_tower_is_compiled_as_a_whole(tiny_clip: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced and differentiated as always, but without the last stage, which needs a compiler."""
    if not cpu_has_bfloat16():
        pytest.skip("bfloat16 products fail on this CPU")
    monkeypatch.setattr(torch, "_scaled_mm", emulated)
    monkeypatch.setattr(fp8, "LEAST_ROWS", 1)
    tower, pixels = tiny_clip.visual.requires_grad_(True), torch.randn(4, 3, 16, 16)
    found = []
    for run in (embed_images, torch.compile(embed_images, backend="aot_eager", dynamic=False, fullgraph=True)):
        with torch.autocast("cpu", torch.bfloat16):
            features = run(tower, pixels, fp8.linear)
        tower.zero_grad()
        F.normalize(features.float(), dim=-1)[:, 0].sum().backward()  # type: ignore[no-untyped-call]
        found.append((features, torch.cat([weight.grad.flatten() for weight in tower.parameters()])))  # type: ignore[union-attr]
    for one, other in zip(*found, strict=True):
        assert apart(one.detach(), other.detach()) < 0.1


def test_fp8_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    for device in ("cpu", "cuda"):
        with pytest.raises(ConfigError, match=r"^precision: fp8 needs a GPU of compute capability 8\.9 or newer"):
            choose_precision("fp8", torch.device(device))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert choose_precision("fp8", torch.device("cuda")) == fp8.FP8


def test_fp8_is_refused_for_towers_that_would_ignore_it(tiny_clip: Clip) -> None:
    tiny_clip.visual.pool_type = "avg"  # type: ignore[assignment]
    for option in ("precision", "teacher_precision"):
        with pytest.raises(ConfigError, match=f"^{option}: fp8 is for open_clip's own ViT"):
            tiny_clip.to("cpu", **{option: fp8.FP8})
