"""All heads alike: sums that add up, classifiers against slow ones, degenerate classes, and what texts decide."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from conftest import in_memory
from tasso.data.images import Pixels
from tasso.errors import ModelError
from tasso.heads import HEADS, ClassKey, Head, HeadInference, class_key, collect, lda
from tasso.heads.base import Moments, from_upper_half, upper_half
from tasso.heads.collect import held_out, spread
from tasso.heads.kinds import build_head
from tasso.heads.lda import LDA, SHRINKAGES, TEMPERATURES, TEXT_WEIGHTS, USUAL
from tasso.heads.ranpac import RanPAC
from tasso.models import inference as inference_module
from tasso.models.clip import Clip
from tasso.models.inference import Embedded, Inference
from tasso.models.tokens import LastTokens

NAMES = sorted(HEADS)
DIM, TOKENS, SCALE = 8, 6, 100.0
FEW = {"lda": 12, "ranpac": 40, "rail": 40}  # random features; the real numbers would make the tests slow

collect_module = sys.modules[held_out.__module__]  # `tasso.heads.collect` is the function
seeds = st.integers(0, 2**31)


@pytest.fixture(scope="module", autouse=True)
def few_random_features() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, count in FEW.items():
            patch.setattr(HEADS[name], "random", count)  # type: ignore[index]
        yield


@pytest.fixture(params=NAMES)
def head(request: pytest.FixtureRequest) -> Head:
    return build(request.param)


def build(name: str, tokens: int = TOKENS) -> Head:
    return build_head(name, DIM, tokens, SCALE)  # type: ignore[arg-type]


def keys(count: int, task: str = "t", first: int = 0) -> list[ClassKey]:
    return [ClassKey(task, f"class {number}") for number in range(first, first + count)]


def drawn(labels: Tensor, seed: int = 0, spread: float = 0.3) -> Embedded:
    """Images around a place for each class, of unit length."""
    random = torch.Generator().manual_seed(seed)
    around = torch.randn(int(labels.max()) + 1 if len(labels) else 0, DIM + TOKENS, generator=random)
    rows = around[labels] + spread * torch.randn(len(labels), DIM + TOKENS, generator=random)
    return Embedded(F.normalize(rows[:, :DIM], dim=-1), tokens=F.normalize(rows[:, DIM:], dim=-1))


def some(images: Embedded, which: Tensor) -> Embedded:
    return images.map(lambda tensor: tensor[which])


def moments(head: Head, images: Embedded, columns: Tensor) -> Moments:
    found = head.no_moments()
    found.add(head.features(images), columns)
    return found


def learn(head: Head, images: Embedded, labels: Tensor, learned: list[ClassKey] | None = None) -> Tensor:
    """Add all images; returns the columns of the classes."""
    columns = head.add_classes(learned or keys(int(labels.max()) + 1))
    head.add(moments(head, images, columns[labels]))
    return columns


def scores(head: Head, images: Embedded, columns: Tensor, cosines: Tensor | None = None) -> Tensor:
    texts = torch.zeros(len(images.features), len(columns)) if cosines is None else cosines
    return head.logits(head.features(images), columns, texts, torch.zeros(len(images.features), 0))


# -- sums ----------------------------------------------------------------------------------------------------------


def assert_same_sums(one: Head, other: Head) -> None:
    assert one.classes == other.classes
    assert one.counts.equal(other.counts)
    torch.testing.assert_close(one.sums, other.sums, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(one.gram, other.gram, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=30), cut=st.lists(st.booleans(), min_size=30), seed=seeds
)
def test_sums_of_two_parts_are_those_of_the_whole(name: str, labels: list[int], cut: list[bool], seed: int) -> None:
    which, first = torch.tensor(labels), torch.tensor(cut[: len(labels)])
    images, whole, parts = drawn(which, seed), build(name), build(name)
    learn(whole, images, which, keys(4))
    columns = parts.add_classes(keys(4))
    for part in (first, ~first):
        parts.add(moments(parts, some(images, part), columns[which[part]]))
    assert_same_sums(parts, whole)
    taken = moments(whole, images, columns[which])
    taken.add(whole.features(some(images, first)), which[first], sign=-1)
    rest = moments(whole, some(images, ~first), which[~first])
    for one, other in zip(taken.tensors(), rest.tensors(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_sums_are_what_their_names_say(head: Head) -> None:
    labels = torch.tensor([0, 2, 2, 0, 1, 2])
    images = drawn(labels)
    learn(head, images, labels)
    phi = head.features(images).double()
    assert head.counts.tolist() == [2, 1, 3]
    for column in range(3):
        torch.testing.assert_close(head.sums[column].double(), phi[labels == column].sum(0), rtol=1e-5, atol=1e-6)
    found = head.moments().gram
    if head.second == "shared":
        torch.testing.assert_close(found, phi.mT @ phi, rtol=1e-5, atol=1e-6)
    elif head.second == "each":
        each = torch.stack([phi[labels == column].mT @ phi[labels == column] for column in range(3)])
        torch.testing.assert_close(from_upper_half(found, head.width), each, rtol=1e-5, atol=1e-6)
    else:
        assert not found.numel()


def test_the_order_of_tasks_does_not_matter_to_sums(head: Head) -> None:
    labels = torch.arange(40) % 5
    images, other = drawn(labels), build(next(name for name in NAMES if HEADS[name] is type(head)))  # type: ignore[index]
    tasks = {"one": labels < 2, "two": labels >= 2}
    for learner, names in ((head, ["one", "two"]), (other, ["two", "one"])):
        for task in names:
            first = 0 if task == "one" else 2
            learn(learner, some(images, tasks[task]), labels[tasks[task]] - first, keys(2 + first // 2, task, first))
    to = [other.classes[key] for key in head.classes]
    assert head.counts.equal(other.counts[to])
    assert head.sums.equal(other.sums[to])
    gram = other.gram[to] if head.second == "each" else other.gram
    torch.testing.assert_close(head.gram, gram, rtol=1e-6, atol=1e-6)


@given(width=st.integers(1, 6), count=st.integers(0, 3), seed=seeds)
def test_upper_halves_hold_symmetric_matrices(width: int, count: int, seed: int) -> None:
    square = torch.randn(count, width, width, generator=torch.Generator().manual_seed(seed))
    symmetric = square + square.mT
    packed = upper_half(symmetric)
    assert packed.shape == (count, width * (width + 1) // 2)
    assert from_upper_half(packed, width).equal(symmetric)


# -- classifiers, slowly -------------------------------------------------------------------------------------------


def slow_means(phi: Tensor, labels: Tensor) -> list[Tensor]:
    return [sum(phi[labels == c], torch.zeros(phi.shape[1]).double()) / int((labels == c).sum()) for c in by(labels)]


def by(labels: Tensor) -> list[int]:
    return sorted(set(labels.tolist()))


def slow_within(phi: Tensor, labels: Tensor) -> Tensor:
    """The scatter of images around the means of their classes."""
    means, total = slow_means(phi, labels), torch.zeros(phi.shape[1], phi.shape[1]).double()
    for row, label in zip(phi, labels.tolist(), strict=True):
        total += torch.outer(row - means[label], row - means[label])
    return total


def slow_lda(phi: Tensor, labels: Tensor, queries: Tensor, cosines: Tensor, choice: tuple[int, int, int]) -> Tensor:
    shrinkage, text, temperature = (
        values[index] for values, index in zip((SHRINKAGES, TEXT_WEIGHTS, TEMPERATURES), choice, strict=True)
    )
    images, classes = len(phi), len(by(labels))
    within, freedom = slow_within(phi, labels), images - classes
    around = ((phi - phi.mean(0)) ** 2).sum(0) / images
    variances = (within.diagonal() + lda.PRIOR * around) / (freedom + lda.PRIOR)
    variances = variances + 1e-3 * variances.mean() + 1e-12
    inverse = torch.linalg.inv((1 - shrinkage) * within / max(freedom, 1) + shrinkage * torch.diag(variances))
    columns = []
    for c, mean in enumerate(slow_means(phi, labels)):
        columns.append(queries @ inverse @ mean - 0.5 * mean @ inverse @ mean + SCALE * text * cosines[:, c])
    return temperature * torch.stack(columns, dim=1)


def slow_nearest_mean(phi: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    return SCALE * torch.stack([F.cosine_similarity(queries, m[None]) for m in slow_means(phi, labels)], dim=1)


def slow_ridge(phi: Tensor, labels: Tensor, ridge: float) -> Tensor:
    gram, cross = ridge * torch.eye(phi.shape[1]).double(), torch.zeros(phi.shape[1], len(by(labels))).double()
    for row, label in zip(phi, labels.tolist(), strict=True):
        gram += torch.outer(row, row)
        cross[:, label] += row
    return torch.linalg.inv(gram) @ cross


def slow_rail(phi: Tensor, labels: Tensor, queries: Tensor, cosines: Tensor) -> Tensor:
    outputs = queries @ slow_ridge(phi, labels, 0.1)
    p = torch.exp(100 * cosines) / torch.exp(100 * cosines).sum(1, keepdim=True)
    return 100 * (0.2 * p + 0.8 * outputs)


def slow_slda(phi: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    n, width = phi.shape
    s = slow_within(phi, labels) / n
    m, a = s.trace() / width, (s**2).mean()
    rho = min(1.0, float((a + m**2) / ((n + 1) * (a - m**2 / width))))
    sigma = (1 - rho) * s + rho * m * torch.eye(width).double()
    inverse = torch.linalg.inv((1 - 1e-4) * sigma + 1e-4 * torch.eye(width).double())
    means = slow_means(phi, labels)
    return torch.stack([queries @ inverse @ mean - 0.5 * mean @ inverse @ mean for mean in means], dim=1)


def slow_fecam(phi: Tensor, labels: Tensor, queries: Tensor, alphas: tuple[float, float]) -> Tensor:
    columns, eye = [], torch.eye(phi.shape[1]).double()
    for c in by(labels):
        own = phi[labels == c]
        sigma = torch.from_numpy(np.cov(own.numpy().T))
        diagonal, off = sigma.diagonal().mean(), sigma[~eye.bool()].mean()
        sigma = sigma + alphas[0] * diagonal * eye + alphas[1] * off * (1 - eye)
        sigma = sigma / torch.sqrt(torch.outer(sigma.diagonal(), sigma.diagonal()))
        away = queries - own.mean(0)
        columns.append(torch.stack([row @ torch.linalg.inv(sigma) @ row for row in away]))
    return -SCALE / 2 * torch.stack(columns, dim=1)


def slow(name: str, phi: Tensor, labels: Tensor, queries: Tensor, cosines: Tensor) -> Tensor:
    classifiers: dict[str, Callable[[], Tensor]] = {
        "lda": lambda: slow_lda(phi, labels, queries, cosines, USUAL),
        "nearest-mean": lambda: slow_nearest_mean(phi, labels, queries),
        "ranpac": lambda: SCALE * queries @ slow_ridge(phi, labels, 100.0),
        "rail": lambda: slow_rail(phi, labels, queries, cosines),
        "slda": lambda: slow_slda(phi, labels, queries),
        "fecam": lambda: slow_fecam(phi, labels, queries, (1.0, 0.0)),
        "fecam-10": lambda: slow_fecam(phi, labels, queries, (10.0, 10.0)),
    }
    return classifiers[name]()


@pytest.mark.parametrize("name", NAMES)
def test_classifiers_are_those_of_the_formulas(name: str) -> None:
    head, labels = build(name), torch.arange(150) % 5
    images, queries = drawn(labels), drawn(torch.arange(20) % 7, seed=1)
    columns = learn(head, images, labels)
    cosines = 0.3 * torch.rand(20, 5, generator=torch.Generator().manual_seed(2))
    phi, asked = head.features(images).double(), head.features(queries).double()
    expected = slow(name, phi, labels, asked, cosines.double())
    found = scores(head, queries, columns, cosines)
    one = 0 if name != "lda" else 1  # LDA's leave out what all classes share, which a softmax does not see
    compared = [each - one * each.mean(1, keepdim=True) for each in (found.double(), expected)]
    torch.testing.assert_close(*compared, rtol=2e-3, atol=2e-3 * float(expected.std()))
    order = torch.tensor([3, 0, 3])  # some columns only, one of them twice
    part = scores(head, queries, columns[order], cosines[:, order])
    if name != "rail":  # its probabilities are those among the candidates
        torch.testing.assert_close(part, found[:, order], rtol=1e-5, atol=1e-5 * float(found.abs().max()))


def test_a_classifier_follows_its_sums(head: Head) -> None:
    labels = torch.arange(30) % 3
    columns = learn(head, drawn(labels), labels)
    before = scores(head, drawn(labels), columns)
    learn(head, drawn(labels, seed=5), labels)
    assert not torch.allclose(scores(head, drawn(labels), columns), before)


def test_rail_spreads_probability_over_all_candidates() -> None:
    labels, head = torch.arange(30) % 3, build("rail")
    images = drawn(labels)
    columns = learn(head, images, labels)
    cosines, others = torch.full((30, 3), 0.2), torch.full((30, 1), 0.2)
    alone = scores(head, images, columns, cosines)
    beside = head.logits(head.features(images), columns, cosines, others)
    torch.testing.assert_close(alone - beside, torch.full((30, 3), 100 * 0.2 * (1 / 3 - 1 / 4)))


# -- degenerate classes --------------------------------------------------------------------------------------------

ONE = drawn(torch.tensor([0]), seed=3)
TWO = drawn(torch.tensor([0, 1]), seed=3)
DEGENERATE: dict[str, tuple[Embedded, Tensor]] = {
    "one class, one image": (ONE, torch.tensor([0])),
    "one class, all images the same": (some(ONE, torch.zeros(9).long()), torch.zeros(9).long()),
    "two classes of one image": (TWO, torch.tensor([0, 1])),
    "two classes, the images of each the same": (some(TWO, torch.arange(20) % 2), torch.arange(20) % 2),
    "two classes": (drawn(torch.arange(40) % 2), torch.arange(40) % 2),
    "one image, and many": (
        drawn(torch.tensor([0, *[1] * 500, *[2] * 20])), torch.tensor([0, *[1] * 500, *[2] * 20])
    ),
    "all images the same, and others": (
        Embedded.cat([some(TWO, torch.zeros(9).long()), drawn(torch.zeros(20).long(), seed=4)]),
        torch.tensor([0] * 9 + [1] * 20),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_classes_are_told_apart(head: Head, case: str) -> None:
    images, labels = DEGENERATE[case]
    columns = learn(head, images, labels)
    found = scores(head, images, columns)
    assert bool(found.isfinite().all())
    for label in by(labels):
        if isinstance(head, RanPAC) and int((labels == label).sum()) == 1 < len(labels) / 10:
            continue  # every image counts the same in a ridge regression, and all but one are of other classes
        own = found[labels == label]
        assert float((own.argmax(1) == label).float().mean()) > 0.9, f"class {label}"


def test_classes_with_the_same_images_only_are_left_to_chance(head: Head) -> None:
    labels = torch.arange(400) % 2
    columns = learn(head, some(ONE, torch.zeros(400).long()), labels)
    assert bool(scores(head, ONE, columns).isfinite().all())


@pytest.mark.parametrize(("noise", "expected"), [(0.0, 1e-6), (1e-9, 1e-6), (1e-4, 1e-3)])
def test_a_covariance_of_rounding_errors_gets_as_much_on_its_diagonal_as_it_takes(
    noise: float, expected: float
) -> None:
    square = torch.randn(12, 12, generator=torch.Generator().manual_seed(0)).double()
    good = square @ square.mT
    assert lda.positive_factor(good, 1.0).equal(torch.linalg.cholesky(good))
    bad = noise * (square + square.mT) + 1e-14 * torch.eye(12).double() - 2e-14 * torch.ones(12, 12).double()
    factor = lda.positive_factor(bad, 1.0)
    added = factor @ factor.mT - bad
    much = float(added.diagonal().mean())
    torch.testing.assert_close(added, much * torch.eye(12).double(), rtol=0, atol=1e-12)
    assert much == pytest.approx(expected)


def test_classes_without_images_change_nothing(head: Head) -> None:
    labels = torch.arange(60) % 3
    images, other = drawn(labels), build(next(name for name in NAMES if HEADS[name] is type(head)))  # type: ignore[index]
    columns = learn(head, images, labels)
    other.add_classes(keys(2, "empty"))
    shifted = learn(other, images, labels)
    other.add_classes(keys(1, "empty, too"))
    assert shifted.tolist() == [2, 3, 4]
    assert inference(other, torch.zeros(3, DIM)).columns([["class 0"], ["class 0"]], ["empty", "t"]).tolist() == [-1, 2]
    torch.testing.assert_close(scores(other, images, shifted), scores(head, images, columns), rtol=1e-4, atol=1e-4)


def test_a_state_gives_the_same_scores(head: Head) -> None:
    labels = torch.arange(60) % 3
    images = drawn(labels)
    columns = learn(head, images, labels)
    if head.chooses:
        head.choose(moments(head, images, columns[labels]), head.features(images), labels, torch.rand(60, 3))
    again = build(next(name for name in NAMES if HEADS[name] is type(head)))  # type: ignore[index]
    again.add_classes(keys(3))
    again.load_state_dict(head.state_dict())
    assert scores(again, images, columns).equal(scores(head, images, columns))
    assert "projection" not in head.state_dict()  # drawn, not kept


def test_a_head_keeps_no_images(head: Head) -> None:
    """What it keeps does not grow with them."""

    def size() -> int:
        return sum(tensor.numel() for tensor in head.state_dict().values())

    learn(head, drawn(torch.arange(20) % 2), torch.arange(20) % 2)
    before = size()
    learn(head, drawn(torch.arange(500) % 2), torch.arange(500) % 2)
    assert size() == before


# -- names of classes ----------------------------------------------------------------------------------------------


def test_equal_names_are_one_class_where_names_are_merged(head: Head) -> None:
    labels = torch.arange(10) % 2
    for task in ("a", "b"):
        columns = learn(head, drawn(labels), labels, [class_key(task, name, True) for name in ("cat", f"only {task}")])
        assert columns.tolist()[0] == 0
    assert list(head.classes) == [ClassKey("", "cat"), ClassKey("", "only a"), ClassKey("", "only b")]
    assert head.counts.tolist() == [10, 5, 5]
    both = inference(head, torch.zeros(4, DIM), merge_names=True).columns(
        [["only b", "cat"], ["cat", "dog"]], ["b", "a"]
    )
    assert both.tolist() == [2, 0, 0, -1]
    assert inference(head, torch.zeros(1, DIM), merge_names=True).columns([["cat"]]).tolist() == [0]


def test_equal_names_are_several_classes_where_they_are_not(head: Head) -> None:
    labels = torch.arange(10) % 2
    for task in ("a", "b"):
        learn(head, drawn(labels), labels, [class_key(task, name, False) for name in ("cat", f"only {task}")])
    assert head.counts.tolist() == [5, 5, 5, 5]
    found = inference(head, torch.zeros(3, DIM)).columns([["only b", "cat"], ["cat"]], ["b", "a"])
    assert found.tolist() == [3, 2, 0]
    assert inference(head, torch.zeros(1, DIM)).columns([["cat"]]).tolist() == [-1], "of no task"


# -- texts decide what was learned ---------------------------------------------------------------------------------


class Texts(Inference):
    """Compares with given texts, (C, D)."""

    def __init__(self, texts: Tensor) -> None:
        super().__init__(SimpleNamespace(logit_scale=SCALE))  # type: ignore[arg-type]
        self.rows = texts

    def scores(self, images: Embedded, *rest: Any, **more: Any) -> Tensor:
        return images.features @ self.rows.mT


def inference(head: Head, texts: Tensor, merge_names: bool = False) -> HeadInference:
    return HeadInference(Texts(texts), head, SimpleNamespace(width=0), merge_names)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds, learned=st.integers(0, 4), others=st.integers(0, 4), before=st.booleans())
def test_classes_that_were_not_learned_lose_nothing(
    name: str, seed: int, learned: int, others: int, before: bool
) -> None:
    """Whether an image shows one of them, and which, is what texts alone say."""
    if not learned + others:
        return
    random = torch.Generator().manual_seed(seed)
    head, labels = build(name, tokens=0), torch.arange(12) % max(learned, 1)
    if learned:
        learn(head, Embedded(drawn(labels, seed).features), labels, keys(learned))
    names = [[key.name for key in keys(learned)], [f"other {number}" for number in range(others)]]
    tasks, known = ["t", "u"], torch.tensor([True] * learned + [False] * others)
    if before:
        names, tasks, known = names[::-1], tasks[::-1], known.flip(0)
    texts = F.normalize(torch.randn(learned + others, DIM, generator=random), dim=-1)
    images = Embedded(F.normalize(torch.randn(16, DIM, generator=random), dim=-1))
    plain = images.features @ texts.mT
    found = inference(head, texts).scores(images, names, ["{}"], tasks)
    assert found[:, ~known].equal(plain[:, ~known])
    if learned:
        assert found[:, known].amax(1).equal(plain[:, known].amax(1))
    said, decided = plain.argmax(1), found.argmax(1)
    assert known[said].equal(known[decided])
    assert said[~known[said]].equal(decided[~known[said]])
    if learned:  # among the learned, the head decides
        columns = torch.arange(learned)
        expected = head.logits(head.features(images), columns, plain[:, known], plain[:, ~known])
        best = expected.max(1).values
        torch.testing.assert_close(expected.gather(1, found[:, known].argmax(1)[:, None])[:, 0], best)


def test_probabilities_among_learned_classes_are_those_of_the_head(head: Head) -> None:
    labels = torch.arange(30) % 3
    images = Embedded(drawn(labels).features)
    head = build(next(name for name in NAMES if HEADS[name] is type(head)), tokens=0)  # type: ignore[index]
    columns = learn(head, images, labels)
    texts = F.normalize(torch.randn(3, DIM, generator=torch.Generator().manual_seed(0)), dim=-1)
    found = inference(head, texts).scores(images, [[key.name for key in keys(3)]], ["{}"], ["t"])
    logits = scores(head, images, columns, images.features @ texts.mT)
    torch.testing.assert_close((SCALE * found).softmax(1), logits.softmax(1), rtol=1e-3, atol=1e-4)


# -- random features -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first", "total"),
    [
        ("lda", [0.947867, -0.597539], -292.8302),
        ("ranpac", [0.947867, -0.597539], -8849.3116),
        ("rail", [-0.137752, 0.218514], 409.3501),
    ],
)
def test_random_features_are_the_same_in_every_process(name: str, first: list[float], total: float) -> None:
    projection = build(name, tokens=0).projection
    assert projection.shape == (DIM, FEW[name])
    assert projection.flatten()[:2].tolist() == pytest.approx(first, abs=1e-6)
    weighed = projection.flatten().double() * torch.arange(1, projection.numel() + 1)
    assert float(weighed.sum()) == pytest.approx(total, abs=1e-2)


# -- following the model -------------------------------------------------------------------------------------------


def moved(strength: float, by: float) -> tuple[float, float, LDA, Tensor]:
    """How far the means are from those of changed features, before and after the sums have followed."""
    head, labels = build("lda"), torch.arange(200) % 4
    assert isinstance(head, LDA)
    images = drawn(labels)
    old = head.features(images)
    columns = learn(head, images, labels)
    change = by * torch.randn(head.width, head.width, generator=torch.Generator().manual_seed(1)) / head.width**0.5
    now = old + old @ change
    expected = torch.stack([now[labels == label].sum(0) for label in range(4)])
    before = float((head.sums - expected).norm())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lda, "STRENGTH", strength)
        head.move([(old, now), (old[:50], now[:50])])
    gram = head.moments().gram - (now.mT @ now).double()
    assert columns.tolist() == [0, 1, 2, 3]
    return before, float((head.sums - expected).norm()), head, gram


def test_sums_follow_a_linear_change_of_features() -> None:
    before, after, _, gram = moved(strength=1e-6, by=0.2)
    assert after < 1e-3 * before
    assert float(gram.abs().max()) < 1e-2
    before, after, _, _ = moved(strength=lda.STRENGTH, by=0.2)
    assert after < 0.75 * before


def test_sums_stay_where_nothing_has_changed() -> None:
    head, labels = build("lda"), torch.arange(20) % 4
    learn(head, drawn(labels), labels)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    features = head.features(drawn(labels, seed=1))
    head.move([(features, features.clone())])
    assert all(tensor.equal(before[name]) for name, tensor in head.state_dict().items())


# -- choosing ------------------------------------------------------------------------------------------------------


def test_trials_are_the_cross_entropy_of_held_out_images() -> None:
    head, labels = build("lda"), torch.arange(100) % 4
    assert isinstance(head, LDA)
    images = drawn(labels, spread=1.0)
    first = labels < 2
    columns = head.add_classes(keys(4))
    head.add(moments(head, some(images, first), columns[labels[first]]))
    ours = torch.arange(100)[~first]
    held, fitted = ours[::5], ours[torch.arange(50) % 5 != 0]
    cosines = 0.3 * torch.rand(len(held), 4, generator=torch.Generator().manual_seed(2))
    head.choose(
        moments(head, some(images, fitted), columns[labels[fitted]]), head.features(some(images, held)), labels[held],
        cosines,
    )  # fmt: skip
    known = torch.cat([torch.arange(100)[first], fitted])
    phi, asked = head.features(images).double()[known], head.features(some(images, held)).double()
    weight = len(held) / (len(held) + lda.ENOUGH)
    for choice in ((0, 0, 0), (1, 3, 3), (2, 6, 5), (0, 2, 4)):
        logits = slow_lda(phi, labels[known], asked, cosines.double(), choice)
        expected = weight * float(F.cross_entropy(logits, labels[held]))
        assert float(head.losses[choice]) == pytest.approx(expected, rel=5e-3)
        wrong = weight * float((logits.argmax(-1) != labels[held]).double().mean())
        assert float(head.errors[choice[:2]]) == pytest.approx(wrong)
    chosen = head.weights
    s, a, t = (values.index(value) for values, value in (
        (SHRINKAGES, chosen.shrinkage),
        (TEXT_WEIGHTS, chosen.text / head.logit_scale),
        (TEMPERATURES, chosen.temperature),
    ))  # fmt: skip
    tried = head.errors + lda.LOSS_SHARE * head.losses.min(-1).values
    assert float(tried[s, a]) == float(tried.min())
    assert float(head.losses[s, a, t]) == float(head.losses[s, a].min())


def test_images_that_the_model_was_trained_on_choose_nothing() -> None:
    head, labels = build("lda"), torch.arange(40) % 4
    assert isinstance(head, LDA)
    columns, images = head.add_classes(keys(4)), drawn(labels, spread=1.0)
    usual = head.weights
    head.choose(
        moments(head, images, columns[labels]), head.features(images), labels, torch.rand(40, 4), trained=True
    )  # fmt: skip
    assert not head.losses.any()
    assert head.weights == usual


def test_where_nothing_can_be_held_out_the_usual_is_taken(head: Head) -> None:
    columns = head.add_classes(keys(2))
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    images = drawn(torch.arange(2))
    none = torch.zeros(0).long()
    head.choose(moments(head, images, columns), head.features(some(images, none)), none, torch.zeros(0, 2))
    assert all(tensor.equal(before[name]) for name, tensor in head.state_dict().items())


def test_ranpac_takes_the_ridge_that_errs_least() -> None:
    head, labels = build("ranpac"), torch.arange(200) % 4
    assert isinstance(head, RanPAC)
    images = drawn(labels, spread=1.5)
    columns = head.add_classes(keys(6))
    held, rest = torch.arange(200) % 5 == 4, torch.arange(200) % 5 != 4
    phi = head.features(images).double()
    head.choose(
        moments(head, some(images, rest), columns[labels[rest]]), phi[held].float(), labels[held], torch.empty(0)
    )
    errors = {}
    for power in range(-3, 9):
        weight = slow_ridge(phi[rest], labels[rest], 10.0**power)
        errors[10.0**power] = float((phi[held] @ weight - F.one_hot(labels[held], 4)).square().mean())
    assert float(head.ridge) == min(errors, key=errors.__getitem__)


# -- one pass over the images --------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6), most=st.integers(1, 20), seed=seeds)
def test_some_images_of_each_class_are_held_out(sizes: list[int], most: int, seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    np.random.default_rng(seed).shuffle(labels)
    chosen = held_out(labels)
    assert np.array_equal(chosen, held_out(labels.copy()))
    assert np.array_equal(chosen, np.unique(chosen))
    left = np.bincount(np.delete(labels, chosen), minlength=len(sizes))
    held = np.bincount(labels[chosen], minlength=len(sizes))
    share = 5 if min((size for size in sizes if size), default=0) >= 5 else 2
    assert held.tolist() == [size // share for size in sizes]
    assert all(left[label] > 0 for label, size in enumerate(sizes) if size), "each has some in the rest"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collect_module, "MOST_HELD_OUT", most)
        fewer = held_out(labels)
    assert len(fewer) == min(most, len(chosen))
    assert set(fewer) <= set(chosen)


@given(count=st.integers(0, 60), most=st.integers(1, 40))
def test_images_are_spread_evenly(count: int, most: int) -> None:
    indices = np.arange(count) * 3
    chosen = spread(indices, most)
    assert len(chosen) == min(count, most) == len(set(chosen))
    assert set(chosen) <= set(indices)
    if 1 < most < count:
        assert (chosen[0], chosen[-1]) == (0, indices[-1])
        assert np.ptp(np.diff(chosen)) <= 3


def seen(clip: Clip, name: str, count: int = 41) -> tuple[HeadInference, Pixels, np.ndarray[Any, Any], Tensor]:
    """A head for the tiny model, and images that it has not seen."""
    tokens = LastTokens(clip.visual, torch.zeros(1, 3, 16, 16))
    head = build_head(name, clip.dim, tokens.width, clip.logit_scale)  # type: ignore[arg-type]
    columns = head.add_classes(keys(4))
    stack = torch.randint(0, 256, (count, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    looked = HeadInference(Inference(clip), head, tokens, merge_names=False)
    return looked, in_memory(stack, clip.preprocess), np.arange(count) % 3, columns[:3].flip(0)


@pytest.mark.parametrize("name", NAMES)
def test_batches_of_any_size_give_the_same_sums(tiny_clip: Clip, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for size in (1, 7, 64):
        monkeypatch.setattr(inference_module, "usual_batch", lambda clip, size=size: size)
        found.append(collect(*seen(tiny_clip, name)))
    looked, pixels, labels, columns = seen(tiny_clip, name)
    head, whole = looked.head, looked.embed_all(pixels)
    every = moments(head, whole, columns[torch.from_numpy(labels)])
    chosen = held_out(labels) if head.chooses else np.empty(0, np.int64)
    rest = np.delete(np.arange(len(labels)), chosen)
    without = moments(head, some(whole, torch.from_numpy(rest)), columns[torch.from_numpy(labels[rest])])
    for each in found:
        for one, other in zip(each.moments.tensors(), every.tensors(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
        assert (each.rest is not None) == head.chooses
        if each.rest is not None:
            for one, other in zip(each.rest.tensors(), without.tensors(), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-6, atol=2e-6)
        assert each.held_out[1].equal(columns[torch.from_numpy(labels[chosen])])
        torch.testing.assert_close(each.held_out[0].features, whole.features[torch.from_numpy(chosen)])
    assert every.counts.tolist() == [13, 14, 14, 0]


@pytest.mark.parametrize("name", NAMES)
def test_features_that_are_no_numbers_are_refused(tiny_clip: Clip, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = tiny_clip.encode_images

    def broken(pixels: Tensor) -> Tensor:
        features = encode(pixels).clone()
        features[-1, 0] = torch.nan
        return features

    monkeypatch.setattr(tiny_clip, "encode_images", broken)
    with pytest.raises(ModelError, match="features of training images contain inf or NaN"):
        collect(*seen(tiny_clip, name))


def test_a_deep_head_sees_tokens_of_the_last_block(tiny_clip: Clip) -> None:
    looked, pixels, *_ = seen(tiny_clip, "lda")
    assert looked.head.width == 24 + 2 * 32 + FEW["lda"]
    images = looked.embed_all(pixels)
    assert images.tokens is not None
    torch.testing.assert_close(images.tokens[:, :32].norm(dim=1), torch.ones(41))
    torch.testing.assert_close(images.tokens[:, 32:].norm(dim=1), torch.ones(41))
    found: list[Tensor] = []
    norm = looked.tokens.norm
    assert norm is not None
    hook = norm.register_forward_pre_hook(lambda module, inputs: found.append(inputs[0]))
    tiny_clip.encode_images(pixels.eval_view(np.arange(41)))
    hook.remove()
    torch.testing.assert_close(images.tokens[:, :32], F.normalize(found[0][:, 0], dim=-1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        images.tokens[:, 32:], F.normalize(found[0][:, 1:].mean(1), dim=-1), rtol=1e-4, atol=1e-5
    )
    assert found[0].shape == (41, 5, 32)
