"""Triton's kernels against PyTorch in float64: on a GPU where there is one, else in Triton's interpreter on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton")

from tasso.data.images.transforms import FILTER_WIDTH, resize_weights  # noqa: E402
from tasso.kernels import crops, without_kernels  # noqa: E402
from tasso.kernels.attention import attention, fits_attention  # noqa: E402
from tasso.kernels.gelu import gelu  # noqa: E402
from tasso.kernels.norm import add_norm  # noqa: E402
from tasso.kernels.rounding import rounded  # noqa: E402
from tasso.kernels.sums import column_sums  # noqa: E402
from tasso.kernels.unit import unit, unit_backward  # noqa: E402
from tasso.models import fp8, fused  # noqa: E402

BFLOAT16 = torch.bfloat16
# The interpreter multiplies bfloat16 as if it were integers.
OF_PRODUCTS, NEAR = (BFLOAT16, 2e-2) if DEVICE == "cuda" else (torch.float32, 1e-5)


@pytest.fixture(autouse=True)
def on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    if DEVICE == "cpu":
        monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: contextlib.nullcontext())


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape).to(DEVICE, dtype)


def apart(found: Tensor, exact: Tensor) -> float:
    return float(((found.double() - exact).norm() / exact.norm()).detach())


def check(
    ours: Callable[..., tuple[Tensor, ...]],
    exact: Callable[..., tuple[Tensor, ...]],
    inputs: Sequence[Tensor],
    near: float,
) -> None:
    """The same values and gradients, but for rounding, and the same bits when it is done again."""
    doubles = [x.double().requires_grad_() for x in inputs]
    expected = exact(*doubles)
    outer = [torch.randn_like(y, dtype=torch.float32) for y in expected]
    torch.autograd.backward(expected, [g.double() for g in outer])
    runs = []
    for _ in range(2):
        xs = [x.clone().requires_grad_() for x in inputs]
        values = ours(*xs)
        torch.autograd.backward(values, [g.to(y.dtype) for g, y in zip(outer, values, strict=True)])
        runs.append([*values, *(x.grad for x in xs)])
    for found, value in zip(runs[0], [*expected, *(x.grad for x in doubles)], strict=True):
        assert found is not None
        assert value is not None
        assert found.isfinite().all()
        assert apart(found, value) < near
    assert all(map(torch.equal, *runs))


@pytest.mark.parametrize("dtype", [BFLOAT16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(3, 7, 48), (2, 5, 256), (1, 1, 17)], ids=str)
def test_sum_and_its_norm(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    width = shape[-1]
    inputs = [drawn(*shape, dtype=dtype), drawn(*shape, dtype=BFLOAT16), *(drawn(width) for _ in range(3))]

    def exact(x: Tensor, update: Tensor, bias: Tensor, weight: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        total = x + update + bias
        return total, F.layer_norm(total, (width,), weight, shift, 1e-5)

    check(lambda *args: add_norm(*args, 1e-5), exact, inputs, 1e-2)


@pytest.mark.parametrize("dtype", [BFLOAT16, torch.float32], ids=str)
def test_norm_alone(dtype: torch.dtype) -> None:
    def ours(x: Tensor, weight: Tensor, shift: Tensor) -> tuple[Tensor]:
        total, normed = add_norm(x, None, None, weight, shift, 1e-5)
        assert total is x
        return (normed,)

    inputs = [drawn(4, 5, 48, dtype=dtype), drawn(48), drawn(48)]
    check(ours, lambda x, weight, shift: (F.layer_norm(x, (48,), weight, shift, 1e-5),), inputs, 1e-2)


def test_a_sum_whose_norm_is_not_used() -> None:
    """As after the last block: its gradient passes through."""
    x, update, bias = drawn(2, 3, 16).requires_grad_(), drawn(2, 3, 16, dtype=BFLOAT16), drawn(16).requires_grad_()
    total, _ = add_norm(x, update.requires_grad_(), bias, drawn(16), drawn(16), 1e-5)
    gradient = drawn(2, 3, 16)
    total.backward(gradient)
    assert torch.equal(x.grad, gradient)  # type: ignore[arg-type]
    assert torch.equal(update.grad, gradient.bfloat16())  # type: ignore[arg-type]
    torch.testing.assert_close(bias.grad, gradient.sum((0, 1)))


@pytest.mark.parametrize("width", [48, 1024, 1500])
@pytest.mark.parametrize("quick", [False, True])
def test_gelu(width: int, quick: bool) -> None:
    def exact(x: Tensor, bias: Tensor) -> tuple[Tensor]:
        x = x + bias
        return (x * torch.sigmoid(1.702 * x) if quick else F.gelu(x),)

    check(lambda x, bias: (gelu(x, bias, quick),), exact, [drawn(3, 5, width, dtype=BFLOAT16), drawn(width)], 1e-2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("length", "head_width"), [(1, 32), (7, 16), (17, 64), (50, 16), (64, 16), (65, 64), (197, 32), (300, 16)]
)
def test_attention(length: int, head_width: int, causal: bool) -> None:
    heads = 2
    width = heads * head_width
    assert fits_attention(width, heads)

    def ours(packed: Tensor, bias: Tensor) -> tuple[Tensor]:
        return (attention(packed + bias.detach().to(packed.dtype), None, bias, heads, causal),)

    inputs = [drawn(2, length, 3 * width, dtype=OF_PRODUCTS), drawn(3 * width)]
    check(ours, lambda packed, bias: (exact_attention(packed + bias, heads, length, causal),), inputs, NEAR)


@pytest.mark.parametrize(("length", "queries"), [(7, 1), (65, 1), (90, 60)])
def test_attention_of_the_first_queries(length: int, queries: int) -> None:
    heads, width = 2, 32

    def ours(q: Tensor, kv: Tensor, bias: Tensor) -> tuple[Tensor]:
        added = bias.detach().to(q.dtype)
        return (attention(q + added[:width], kv + added[width:], bias, heads),)

    def exact(q: Tensor, kv: Tensor, bias: Tensor) -> tuple[Tensor]:
        packed = torch.cat([F.pad(q, (0, 0, 0, length - queries)), kv], -1) + bias
        return (exact_attention(packed, heads, queries, causal=False),)

    inputs = [
        *(drawn(2, rows, n * width, dtype=OF_PRODUCTS) for rows, n in ((queries, 1), (length, 2))),
        drawn(3 * width),
    ]
    check(ours, exact, inputs, NEAR)


def exact_attention(packed: Tensor, heads: int, queries: int, causal: bool) -> Tensor:
    """By PyTorch; (B, queries, D) of (B, L, 3 D)."""
    q, k, v = packed.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)  # type: ignore[no-untyped-call]
    return F.scaled_dot_product_attention(q[:, :, :queries], k, v, is_causal=causal).transpose(1, 2).flatten(2)


def test_scores_of_any_size() -> None:
    """Neither overflow nor a sum of zeros, with scores of tens of thousands on either side."""
    for sign in (-1, 1):
        packed = drawn(1, 70, 96, dtype=OF_PRODUCTS)
        packed[..., :32], packed[..., 32:64] = 100 * sign, 100 + packed[..., 32:64]
        packed = packed.requires_grad_()
        y = attention(packed, None, drawn(96), 2)
        y.sum().backward()
        assert apart(y, exact_attention(packed.double(), 2, 70, causal=False)) < 2e-2
        assert packed.grad is not None
        assert packed.grad.isfinite().all()


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_not_read_has_no_influence(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masked loads without a value in their place: undefined on a GPU, zero in the interpreter, NaN here."""
    if DEVICE == "cuda":
        pytest.skip("of the interpreter")
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    builder = interpreter.InterpreterBuilder
    load, replaced = builder.create_masked_load, []

    def load_nan(self: Any, places: Any, mask: Any, other: Any, *options: Any) -> Any:
        if other is None:
            kind = places.get_element_ty()
            values = np.full(places.data.shape, np.nan, dtype=interpreter._get_np_dtype(kind))
            other = interpreter.TensorHandle(values, kind)
            replaced.append(other)
        return load(self, places, mask, other, *options)

    monkeypatch.setattr(builder, "create_masked_load", load_nan)
    for length in (1, 17, 33, 50):
        packed, bias = drawn(2, length, 96).requires_grad_(), drawn(96).requires_grad_()
        y = attention(packed, None, bias, 2, causal)
        gradients = torch.autograd.grad(y.sum(), (packed, bias))
        assert all(found.isfinite().all() for found in (y, *gradients))
    assert replaced


def test_one_token_with_any_stride() -> None:
    """Contiguous for PyTorch, whatever the stride of a side of one."""
    q, kv, bias = drawn(1, 4, 32, dtype=OF_PRODUCTS).transpose(0, 1), drawn(4, 5, 64, dtype=OF_PRODUCTS), drawn(96)
    assert q.is_contiguous()
    assert torch.equal(
        attention(q, kv, bias, 2), attention(q.clone(memory_format=torch.contiguous_format), kv, bias, 2)
    )


@pytest.mark.parametrize("rows", [0, 300])
def test_gradients_of_weights_are_not_rounded(rows: int) -> None:
    x, low = drawn(rows, 48, dtype=BFLOAT16), drawn(32, 48, dtype=BFLOAT16)
    weight = low.float().requires_grad_()
    y = fused._Product.apply(x, weight, low, None)
    gradient = drawn(rows, 32, dtype=BFLOAT16)
    (found,) = torch.autograd.grad(y, weight, gradient)
    expected = gradient.double().mT @ x.double()
    assert found.dtype == torch.float32
    assert (found - expected).norm() <= 1e-5 * expected.norm()
    assert rows == 0 or not torch.equal(found, found.bfloat16().float())


def test_inputs_and_gradients_in_other_orders() -> None:
    """Parts of larger tensors, and gradients that are one number everywhere."""
    whole = drawn(2, 9, 96, dtype=OF_PRODUCTS)
    bias, weight, shift = drawn(96), drawn(96), drawn(96)
    for ours in (
        lambda x: attention(x, None, bias, 2),
        lambda x: gelu(x, bias, False),
        lambda x: add_norm(x.bfloat16(), x.bfloat16(), bias, weight, shift, 1e-5)[1],
    ):
        found = []
        for x in (whole[:, :5], whole[:, :5].clone()):
            x = x.detach().requires_grad_()
            y = ours(x)
            found.append((y, torch.autograd.grad(y.float().sum(), x)[0]))
        assert all(map(torch.equal, *found))


def test_no_samples() -> None:
    bias, weight, shift = (drawn(48).requires_grad_() for _ in range(3))
    x = drawn(0, 5, 48, dtype=BFLOAT16).requires_grad_()
    total, normed = add_norm(x, x, bias, weight, shift, 1e-5)
    loss = (total.sum() + normed.sum() + gelu(x, bias, True).sum()).float()
    loss.backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert all(p.grad is not None and not p.grad.any() for p in (bias, weight, shift))
    assert attention(drawn(0, 5, 96, dtype=OF_PRODUCTS), None, drawn(96), 1).shape == (0, 5, 32)


def test_attention_that_does_not_fit() -> None:
    assert not fits_attention(128, 1)
    assert not fits_attention(60, 1)
    assert not fits_attention(64, 3)


@pytest.mark.parametrize("eps", [1e-6, 1e3])
def test_unit(eps: float) -> None:
    x, gradient = drawn(5, 48), drawn(5, 48)
    exact = x.double().requires_grad_()
    expected = F.normalize(exact, dim=-1, eps=eps)
    expected.backward(gradient.double())
    y, lengths = unit(x, eps)
    assert apart(y, expected) < 1e-6
    assert apart(unit_backward(gradient, y, lengths, eps), exact.grad) < 1e-5  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [BFLOAT16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [16, 48, 1536])
def test_rounded_rows(width: int, dtype: torch.dtype) -> None:
    """Rows of very different size, of zeros, with gaps between them, and transposed."""
    rows = drawn(7, width, dtype=dtype) * torch.logspace(-8, 8, 7, dtype=dtype, device=DEVICE)[:, None]
    rows[3] = 0
    kind = fp8.FP8 if DEVICE == "cuda" else torch.float16  # the interpreter rounds to fp8 wrongly
    for x in (rows, rows.repeat(2, 1)[::2], rows.mT.contiguous().mT):
        values, scales = rounded(x, kind, fp8.TINY)
        assert values.is_contiguous()
        assert values.float().abs().amax(1).tolist() == [torch.finfo(kind).max if row.any() else 0.0 for row in x]
        torch.testing.assert_close(values.float(), x / scales, rtol=torch.finfo(kind).eps, atol=2**-10)
        if DEVICE == "cuda":
            with without_kernels():
                expected, expected_scales = fp8.rounded(x)
            torch.testing.assert_close(scales, expected_scales)
            assert (values.float() != expected.float()).float().mean() < 0.01, "halfway between two numbers"


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (513, 48), (1100, 33)], ids=str)
def test_column_sums(shape: tuple[int, int]) -> None:
    parts = drawn(*shape)
    torch.testing.assert_close(column_sums(parts), parts.sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("interpolation", FILTER_WIDTH)
@pytest.mark.parametrize(("size", "source"), [(16, 16), (16, 40), (64, 73), (40, 16)])
def test_weights_of_crops(interpolation: str, size: int, source: int) -> None:
    rng = np.random.default_rng(0)
    length = rng.uniform(0.3, 1, 5) * source
    start = rng.uniform(0, 1, 5) * (source - length)
    whole, offset = np.array([size, size, size, 2 * size, size]), np.array([0, 0, 0, 3, 0])
    spans = torch.from_numpy(np.stack([start, length, whole, offset])).to(DEVICE)
    expected = resize_weights(spans, size, source, interpolation)  # type: ignore[arg-type]
    found = crops.resize_weights(spans, size, source, FILTER_WIDTH[interpolation])
    torch.testing.assert_close(found, expected.half(), rtol=2e-3, atol=2e-4)
