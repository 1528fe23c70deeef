"""Losses against the authors' code (golden cases, float64) and against what mathematics says."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tasso.data.images import ImageBatch
from tasso.distributed import SINGLE_PROCESS
from tasso.methods import Batch
from tasso.methods.losses import Angle, cross_entropy, distances
from tasso.methods.subspace import (
    energy_rank,
    orthogonal_component,
    orthonormal,
    principal_basis,
    subspace_coordinates,
)
from tasso.methods.tasso import Projector, Tasso
from tasso.models.clip import Clip

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.npz"))


class Same(Clip):
    """An encoder whose embeddings are its input: the loss is then a function of given features."""

    def __init__(self) -> None:
        """There is no model inside."""
        self.distributed, self.compiled = SINGLE_PROCESS, False

    def encode_images(self, pixels: Tensor) -> Tensor:
        return pixels


def image_batch(features: Tensor, labels: Tensor | None = None) -> ImageBatch:
    count = len(features)
    return ImageBatch(features, torch.zeros(count) if labels is None else labels, torch.arange(count))


def golden_method(case: dict[str, Tensor], **options: object) -> Tasso:
    """TASSO with the golden case's projector, texts and teacher in the place of a model's."""
    method = Tasso(rank=case["A"].shape[1], angle="clamped", subspace_scale=10.0, **options)  # type: ignore[arg-type]
    method.clip = Same()
    method.class_embeddings = case["text_features"]
    method.scale = float(case["logit_scale"])
    method.projector = Projector(case["A"].clone(), trainable=True)
    pending = SimpleNamespace(wait=lambda: case["teacher_reference"])
    method.teacher_encoders["previous"] = SimpleNamespace(encode_async=lambda _: pending)  # type: ignore[assignment]
    return method


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
@pytest.mark.parametrize("how", ["qr", "cholesky"])
def test_golden_terms_and_gradients(file: Path, how: str) -> None:
    case = {key: torch.from_numpy(value) for key, value in np.load(file).items()}
    method = golden_method(case, orthonormalisation=how)
    images = case["image_features"].clone().requires_grad_()
    reference = case["student_reference"].clone().requires_grad_()
    terms = method.loss(Batch(image_batch(images, case["labels"]), {"reference": image_batch(reference)}))
    total = torch.stack(list(terms.values())).sum()
    total.backward()
    close = {"rtol": 1e-9, "atol": 1e-12}
    torch.testing.assert_close(terms["ce"], case["ce"], **close)
    torch.testing.assert_close(terms["subspace"], 0.5 * case["subspace_ce"], **close)
    torch.testing.assert_close(terms["kd"], 3 * (case["kd_parallel"] + case["kd_perpendicular"]), **close)
    torch.testing.assert_close(total, case["total"], **close)
    for tensor, name in ((images, "image_features"), (reference, "student_reference"), (method.projector.A, "A")):
        expected = case[f"grad_{name}"]
        assert tensor.grad is not None
        error = (tensor.grad - expected).norm() / expected.norm().clamp(min=1e-12)
        assert error < 1e-9, f"gradient of {name}: relative error {error}"


def test_golden_cases_are_there() -> None:
    assert len(GOLDEN) == 2


@pytest.mark.parametrize(
    ("options", "reaches"),
    [
        ({}, True),
        ({"alpha": 0.0}, True),
        ({"alpha": 0.0, "kd_parallel": "none"}, True),
        ({"alpha": 0.0, "kd_perpendicular": "none"}, True),
        ({"kd_parallel": "none", "kd_perpendicular": "none"}, True),
        ({"alpha": 0.0, "kd_trains_projector": False}, False),
    ],
)
def test_projector_gets_gradient_from_every_term(options: dict[str, object], reaches: bool) -> None:
    case = {key: torch.from_numpy(value) for key, value in np.load(GOLDEN[0]).items()}
    method = golden_method(case, **options)
    images = case["image_features"].clone().requires_grad_()
    reference = case["student_reference"].clone().requires_grad_()
    terms = method.loss(Batch(image_batch(images, case["labels"]), {"reference": image_batch(reference)}))
    torch.stack(list(terms.values())).sum().backward()
    assert (method.projector.A.grad is not None and bool(method.projector.A.grad.abs().max() > 1e-8)) is reaches


def test_subspace_loss_can_leave_the_encoder_alone() -> None:
    case = {key: torch.from_numpy(value) for key, value in np.load(GOLDEN[0]).items()}
    gradients = []
    for options in ({"subspace_gradient": "projector"}, {"alpha": 0.0}):
        method = golden_method(case, **options)
        images = case["image_features"].clone().requires_grad_()
        terms = method.loss(
            Batch(image_batch(images, case["labels"]), {"reference": image_batch(case["student_reference"])})
        )
        torch.stack(list(terms.values())).sum().backward()
        gradients.append(images.grad)
    torch.testing.assert_close(*gradients)


def test_kd_switches_add_up() -> None:
    case = {key: torch.from_numpy(value) for key, value in np.load(GOLDEN[0]).items()}
    batch = Batch(
        image_batch(case["image_features"], case["labels"]), {"reference": image_batch(case["student_reference"])}
    )

    def kd(**options: object) -> Tensor:
        return golden_method(case, **options).loss(batch)["kd"]

    both = kd(kd_parallel="l2", kd_perpendicular="l2")
    apart = kd(kd_parallel="l2", kd_perpendicular="none") + kd(kd_parallel="none", kd_perpendicular="l2")
    torch.testing.assert_close(both, apart)
    whole = kd(kd_parallel="none", kd_perpendicular="none", kd_whole="geodesic")
    torch.testing.assert_close(whole, 3 * geodesic(case["student_reference"], case["teacher_reference"]).mean())


def geodesic(x: Tensor, y: Tensor, angle: Angle = "clamped") -> Tensor:
    return distances(x, y, "geodesic", angle)


def test_geodesic_against_float64_reference_including_the_clamp() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 16, dtype=torch.float64, generator=generator)
    y = x + 0.3 * torch.randn(200, 16, dtype=torch.float64, generator=generator)
    y[:50] = x[:50]  # identical: the clamp acts
    y[50:60] = -x[50:60]  # opposite: it acts there too
    expected = []
    for a, b in zip(x.numpy(), y.numpy(), strict=True):
        cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
        expected.append(math.acos(min(max(cosine, -1 + 1e-6), 1 - 1e-6)))
    assert geodesic(x, y).numpy() == pytest.approx(np.array(expected), rel=1e-9)
    assert float(geodesic(x, y).mean()) == pytest.approx(np.mean(expected), rel=1e-12)
    assert float(geodesic(x.float(), y.float()).mean()) == pytest.approx(np.mean(expected), rel=1e-3)


def test_equal_vectors_get_the_clamped_angle_and_no_gradient() -> None:
    x = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    value = geodesic(x, x.detach().clone()).mean()
    value.backward()
    assert value.item() == pytest.approx(1.4142e-3, rel=1e-3)
    assert x.grad is not None
    assert float(x.grad.abs().max()) == 0


def test_exact_angle_is_right_where_the_clamp_is_flat() -> None:
    angle = 1e-5
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    assert float(geodesic(x, y, "exact")) == pytest.approx(angle, rel=1e-9)
    assert float(geodesic(x, x, "exact")) == 0
    z = x.clone().requires_grad_()
    geodesic(z, x, "exact").sum().backward()
    assert z.grad is not None
    assert bool(torch.isfinite(z.grad).all())


vectors = st.integers(0, 10_000)


@settings(deadline=None, max_examples=40)
@given(seed=vectors, scale=st.floats(0.01, 100))
def test_distances_ignore_length_and_are_symmetric(seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 6, dtype=torch.float64, generator=generator)
    y = torch.randn(3, 6, dtype=torch.float64, generator=generator)
    kinds: tuple[Literal["l2", "geodesic"], ...] = ("l2", "geodesic")
    for kind in kinds:
        d = distances(x, y, kind)
        torch.testing.assert_close(distances(scale * x, y, kind), d)
        torch.testing.assert_close(distances(y, x, kind), d)
    cosines = torch.cosine_similarity(x, y)
    torch.testing.assert_close(distances(x, y, "l2"), 2 - 2 * cosines)
    torch.testing.assert_close(geodesic(x, y, "exact"), cosines.acos(), rtol=1e-6, atol=1e-9)


def test_cross_entropy_against_its_definition() -> None:
    generator = torch.Generator().manual_seed(3)
    f, t = torch.randn(5, 7, generator=generator).double(), torch.randn(4, 7, generator=generator).double()
    labels = torch.tensor([0, 3, 1, 2, 2])
    expected = 0.0
    for row, label in zip(f, labels, strict=True):
        logits = [20 * float(torch.cosine_similarity(row, text, dim=0)) for text in t]
        expected += math.log(sum(math.exp(v) for v in logits)) - logits[int(label)]
    assert float(cross_entropy(f, t, labels, 20.0)) == pytest.approx(expected / 5, rel=1e-10)


@settings(deadline=None, max_examples=40)
@given(seed=vectors, d=st.integers(2, 40), share=st.floats(0.05, 0.95))
def test_projector_is_orthonormal_and_divides_by_pythagoras(seed: int, d: int, share: float) -> None:
    r = max(1, min(d - 1, round(share * d)))
    generator = torch.Generator().manual_seed(seed)
    A = 0.02 * torch.randn(d, r, dtype=torch.float64, generator=generator)
    f = torch.randn(5, d, dtype=torch.float64, generator=generator)
    U = orthonormal(A)
    torch.testing.assert_close(U.mT @ U, torch.eye(r, dtype=torch.float64))
    parallel, perpendicular = subspace_coordinates(f, U) @ U.mT, orthogonal_component(f, U)
    torch.testing.assert_close(parallel + perpendicular, f)
    torch.testing.assert_close(parallel.square().sum(-1) + perpendicular.square().sum(-1), f.square().sum(-1))
    torch.testing.assert_close(subspace_coordinates(perpendicular, U), torch.zeros(5, r, dtype=torch.float64))
    torch.testing.assert_close(subspace_coordinates(f, U).norm(dim=-1), parallel.norm(dim=-1))


@settings(deadline=None, max_examples=25)
@given(seed=vectors, d=st.integers(4, 40), rank=st.integers(1, 39), n=st.integers(1, 50), twice=st.booleans())
def test_columns_that_span_vectors(seed: int, d: int, rank: int, n: int, twice: bool) -> None:
    """They hold as much of the vectors as an SVD says that so many columns can, and are filled up by what was drawn."""
    rank = min(rank, d - 1)
    generator = torch.Generator().manual_seed(seed)
    vectors = nn.functional.normalize(torch.randn(n, d, generator=generator, dtype=torch.float64), dim=-1)
    vectors = torch.cat([vectors, vectors]) if twice else vectors  # dependent ones are no directions of their own
    drawn = torch.randn(d, rank, generator=generator, dtype=torch.float64)
    U = principal_basis(vectors, drawn)
    torch.testing.assert_close(U.mT @ U, torch.eye(rank, dtype=torch.float64), rtol=0, atol=1e-9)
    values = torch.linalg.svdvals(vectors)
    missed = float(orthogonal_component(vectors, U).square().sum())
    assert missed == pytest.approx(float(values[rank:].square().sum()), abs=1e-8)
    kept = min(n, d, rank)
    if kept < rank:  # what was drawn lies in the span of the texts and the columns that are filled up
        assert float(orthogonal_component(drawn[:, kept:].mT, U).abs().max()) < 1e-9


@given(seed=vectors, n=st.integers(2, 40), share=st.floats(0.05, 0.99))
def test_energy_rank_is_the_least_that_holds_the_share(seed: int, n: int, share: float) -> None:
    texts = nn.functional.normalize(torch.randn(n, 16, generator=torch.Generator().manual_seed(seed)) + 0.5, dim=-1)
    rank = energy_rank(texts, share)
    assert 1 <= rank < 16
    exact = texts.double()

    def held(rank: int) -> float:
        U = principal_basis(exact, torch.eye(16, rank, dtype=torch.float64))
        return float((exact @ U).square().sum() / exact.square().sum())

    assert rank == 15 or held(rank) >= share - 1e-9
    assert rank == 1 or held(rank - 1) < share + 1e-9


def test_columns_that_span_float32_vectors_ignore_rounding() -> None:
    generator = torch.Generator().manual_seed(0)
    base = nn.functional.normalize(torch.randn(3, 24, generator=generator), dim=-1)
    twice = torch.cat([base, nn.functional.normalize(1.0001 * base, dim=-1)])
    drawn = torch.randn(24, 6, generator=generator)
    one, other = principal_basis(base, drawn), principal_basis(twice, drawn)
    torch.testing.assert_close(one @ one.mT, other @ other.mT, rtol=0, atol=1e-5)
    assert one.dtype == torch.float32


@given(seed=vectors)
def test_cholesky_equals_sign_fixed_qr_with_its_gradient(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(20, 6, dtype=torch.float64, generator=generator)
    start = 0.02 * torch.randn(20, 6, dtype=torch.float64, generator=generator)
    results = []
    for how in ("qr", "cholesky"):
        A = start.clone().requires_grad_()
        U = orthonormal(A, how)  # type: ignore[arg-type]
        (U * weights).sum().backward()
        results.append((U.detach(), A.grad))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-7, atol=1e-7)


def test_cholesky_equals_qr_at_the_papers_size_in_float32() -> None:
    A = 0.02 * torch.randn(512, 144, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(orthonormal(A), orthonormal(A, "cholesky"), rtol=0, atol=2e-6)


def test_signs_do_not_matter_to_any_loss() -> None:
    case = {key: torch.from_numpy(value) for key, value in np.load(GOLDEN[0]).items()}
    batch = Batch(
        image_batch(case["image_features"], case["labels"]), {"reference": image_batch(case["student_reference"])}
    )
    fixed, free = (golden_method(case, fix_signs=fix).loss(batch) for fix in (True, False))
    for name in fixed:
        torch.testing.assert_close(fixed[name], free[name])
