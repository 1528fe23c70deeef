"""Heads of the literature against their authors' released code, in float64 (tests/golden/rivals)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tasso.heads import fecam, rail, ranpac, slda
from tasso.heads.base import ClassKey, Head, Moments
from tasso.heads.ridge import ridge_losses, ridge_weight
from tasso.models.inference import Embedded

RIVALS = Path(__file__).parents[1] / "golden" / "rivals"
CLOSE = 1e-9  # largest difference over the largest number of an array

Case = dict[str, Tensor]


def load(name: str) -> Case:
    return {key: torch.from_numpy(value) for key, value in np.load(RIVALS / f"{name}.npz").items()}


def assert_close(found: Tensor, expected: Tensor, what: str, close: float = CLOSE) -> None:
    assert found.dtype == expected.dtype == torch.float64, what
    assert found.shape == expected.shape, what
    error = float((found - expected).abs().max() / expected.abs().max())
    assert error < close, f"{what}: relative error {error}"


def sums(features: Tensor, labels: Tensor, classes: int, head: type[Head]) -> Moments:
    """What a head keeps of these images, in float64."""
    found = Moments(classes, features.shape[1], head.second, torch.device("cpu"))
    found.add(features, labels)
    return found


def tasks(case: Case, count: int) -> tuple[Tensor, Tensor]:
    """Features and labels of the first tasks together."""
    parts = [(case[f"features_{task}"], case[f"labels_{task}"]) for task in range(count)]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def small(kind: type[Head], projection: Tensor, monkeypatch: pytest.MonkeyPatch) -> Head:
    """A head with these random features (P, m), in float64 as far as it is not sums."""
    monkeypatch.setattr(kind, "random", projection.shape[1])
    head = kind(len(projection), 100.0)
    head.projection = projection.clone()
    return head


# -- RanPAC --------------------------------------------------------------------------------------------------------


@pytest.fixture
def ranpac_case() -> Case:
    return load("ranpac")


@pytest.mark.parametrize("task", range(3))
def test_ranpac(ranpac_case: Case, task: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case, head = ranpac_case, small(ranpac.RanPAC, ranpac_case["projection"], monkeypatch)
    hidden = [head.expand(case[f"features_{number}"]) for number in range(task + 1)]
    labels = [case[f"labels_{number}"] for number in range(task + 1)]
    assert_close(hidden[task], case[f"hidden_{task}"], "hidden")
    whole = sums(torch.cat(hidden), torch.cat(labels), 7, ranpac.RanPAC)
    assert_close(whole.gram, case[f"gram_{task}"], "gram")
    assert_close(whole.sums.mT, case[f"cross_{task}"], "cross")

    rows = int(0.8 * len(labels[task]))
    fitted = sums(hidden[task][:rows], labels[task][:rows], 7, ranpac.RanPAC)
    targets = F.one_hot(labels[task][rows:], 7).double()
    torch.testing.assert_close(torch.tensor(ranpac.GRID, dtype=torch.float64), case["grid"], rtol=1e-15, atol=0)
    losses = ridge_losses(fitted.gram, fitted.sums.mT, hidden[task][rows:], targets, ranpac.GRID)
    solid = case["grid"] >= 0.01
    assert_close(losses[solid], case["losses"][task][solid], "losses")
    assert bool(((losses - case["losses"][task]).abs() < 1e-3 * case["losses"][task]).all())

    head.add_classes([ClassKey("", str(number)) for number in range(7)])
    head.choose(fitted, hidden[task][rows:], labels[task][rows:], torch.empty(0))
    assert float(head.ridge) == float(case["ridge"][task])

    known = len(case[f"weight_{task}"])
    weight = ridge_weight(whole.gram, whole.sums.mT, float(case["ridge"][task]))[:, :known]
    assert_close(weight.mT, case[f"weight_{task}"], "weight")
    assert_close(head.expand(case["queries"]) @ weight, case[f"scores_{task}"], "scores")


def test_ranpac_keeps_to_them_as_a_head(ranpac_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sums in float32: the same decisions among the classes seen."""
    case, head = ranpac_case, small(ranpac.RanPAC, ranpac_case["projection"], monkeypatch)
    columns = head.add_classes([ClassKey("", str(number)) for number in range(7)])
    for task in range(3):
        hidden, labels = head.expand(case[f"features_{task}"]), case[f"labels_{task}"]
        rows = int(0.8 * len(labels))
        head.choose(sums(hidden[:rows], labels[:rows], 7, ranpac.RanPAC), hidden[rows:], labels[rows:], torch.empty(0))
        head.add(sums(hidden, labels, 7, ranpac.RanPAC))
        expected = case[f"scores_{task}"]
        queries = head.expand(case["queries"]).float()
        found = head.logits(queries, columns[: expected.shape[1]], torch.empty(0), torch.empty(0))
        torch.testing.assert_close(found, 100 * expected.float(), rtol=1e-3, atol=1e-3)
        assert found.argmax(1).equal(expected.argmax(1))


# -- RAIL ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", range(3))
def test_rail(task: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = load("rail_primal")
    assert float(case["ridge"]) == rail.RIDGE
    assert float(case["fusion_weight"]) == rail.FUSION
    head = small(rail.RAIL, case["expansion"], monkeypatch)
    features, labels = tasks(case, task + 1)
    whole = sums(head.features(Embedded(features)), labels, 9, rail.RAIL)
    known = case[f"weight_{task}"].shape[1]
    inverse = torch.linalg.inv(whole.gram + rail.RIDGE * torch.eye(24, dtype=torch.float64))
    assert_close(inverse, case[f"inverse_{task}"], "inverse")
    weight = ridge_weight(whole.gram, whole.sums.mT, rail.RIDGE)[:, :known]
    assert_close(weight, case[f"weight_{task}"], "weight")
    scores = head.features(Embedded(case["queries"])) @ weight
    assert_close(scores, case[f"scores_{task}"], "scores")
    assert rail.routed(case["zero_shot"], known).equal(case[f"routed_{task}"])
    assert_close(rail.fuse(case["zero_shot"], scores), case[f"fused_{task}"], "fused")

    # The head itself, with sums in float32, for the queries that are routed to it.
    columns = head.add_classes([ClassKey("", str(number)) for number in range(9)])
    head.add(whole)
    head.projection = head.projection.float()
    cosines = case["zero_shot"].float() / 100
    queries = head.features(Embedded(case["queries"].float()))
    found = head.logits(queries, columns[:known], cosines[:, :known], cosines[:, known:])
    torch.testing.assert_close(found, 100 * case[f"fused_{task}"][:, :known].float(), rtol=1e-4, atol=1e-3)


# -- Deep SLDA -----------------------------------------------------------------------------------------------------


def streamed(case: Case, means: Tensor, counts: Tensor, covariance: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    """The authors' update of Σ, image by image; `means` and `counts` follow in place."""
    for x, label in zip(rows, labels.tolist(), strict=True):
        n, away = float(counts.sum()), x - means[label]
        covariance = (n * covariance + away.outer(away) * n / (n + 1)) / (n + 1)
        means[label] += away / (counts[label] + 1)
        counts[label] += 1
    return covariance


def test_slda() -> None:
    case = load("deep_slda")
    assert float(case["shrinkage"]) == slda.SHRINKAGE
    base = sums(case["base"], case["base_labels"], 6, slda.SLDA)
    every = (torch.cat([case["base"], case["stream"]]), torch.cat([case["base_labels"], case["stream_labels"]]))
    whole = sums(*every, 6, slda.SLDA)
    assert_close(slda.covariance(base), case["base_covariance"], "covariance")
    for name, moments in (("base", base), ("after", whole), ("nobase", whole), ("frozen", whole)):
        assert moments.counts.equal(case[f"{name}_counts"].double())
        means = slda.class_means(moments)
        assert_close(means, case[f"{name}_means"], f"{name} means")
        weight, bias = slda.classifier(means, case[f"{name}_covariance"])
        assert_close(case["queries"] @ weight + bias, case[f"{name}_scores"], f"{name} scores")
    weight, bias = slda.classifier(slda.class_means(base), slda.covariance(base))
    assert_close(case["queries"] @ weight + bias, case["base_scores"], "scores")


def test_what_slda_leaves_out_is_the_stream() -> None:
    """Their streamed Σ depends on the order and, with new classes, is not the covariance within classes; the batch form
    is what it would be with exact weights."""
    case = load("deep_slda")
    means, counts = case["base_means"].clone(), case["base_counts"].clone()
    after = streamed(case, means, counts, case["base_covariance"], case["stream"], case["stream_labels"])
    assert_close(after, case["after_covariance"], "after")
    assert_close(means, case["after_means"], "means")
    backwards = streamed(
        case, case["base_means"].clone(), case["base_counts"].clone(), case["base_covariance"],
        case["stream"].flip(0), case["stream_labels"].flip(0),
    )  # fmt: skip
    assert not torch.allclose(backwards, after, rtol=1e-3)
    rows = torch.cat([case["base"], case["stream"]])
    labels = torch.cat([case["base_labels"], case["stream_labels"]])
    nobase = streamed(
        case, torch.zeros(6, 10).double(), torch.zeros(6).long(), torch.ones(10, 10).double(), rows, labels
    )
    assert_close(nobase, case["nobase_covariance"], "nobase")
    within = torch.zeros(10, 10, dtype=torch.float64)
    for x, label, place in zip(rows, labels.tolist(), range(len(rows)), strict=True):
        before = rows[:place][labels[:place] == label]
        if len(before):
            away = x - before.mean(0)
            within += away.outer(away) * len(before) / (len(before) + 1)
    whole = sums(rows, labels, 6, slda.SLDA)
    s = (whole.gram - slda.class_means(whole).mT @ whole.sums) / len(rows)
    assert_close(within / len(rows), s, "with the weights of each class")


# -- FeCAM ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("cifar", fecam.FeCAM), ("imagenetr", fecam.StrongFeCAM)])
def test_fecam(name: str, kind: type[fecam.FeCAM]) -> None:
    case = load("fecam")
    assert kind.alphas == tuple(case[f"{name}_alphas"].tolist())
    head = kind(12, 100.0)
    unit, queries = head.features(Embedded(case["features"])), head.features(Embedded(case["queries"]))
    assert_close(unit, case["unit"], "unit")
    assert_close(queries, case["unit_queries"], "unit queries")
    moments = sums(unit, case["labels"], 5, kind)
    found: dict[str, list[Tensor]] = {}
    for column in range(5):
        gram = fecam.from_upper_half(moments.gram[column], 12)
        count, total = float(moments.counts[column]), moments.sums[column]
        mean, covariance = fecam.class_covariance(count, total, gram)
        shrunk = fecam.shrunk(covariance, *kind.alphas)
        away = fecam.distances(queries, *fecam.metric(count, total, gram, kind.alphas))
        parts = {"means": mean, "covariances": covariance, f"{name}_shrunk": shrunk}
        for key, value in {**parts, f"{name}_normalised": fecam.correlations(shrunk), "distances": away}.items():
            found.setdefault(key, []).append(value)
    distances = torch.stack(found.pop("distances"), dim=1)
    for key, values in found.items():
        assert_close(torch.stack(values), case[key], key)
    assert_close(distances, case[f"{name}_distances"], "distances")
    assert distances.argmin(1).equal(case[f"{name}_decisions"])

    columns = head.add_classes([ClassKey("", str(number)) for number in range(5)])
    head.add(moments)
    logits = head.logits(queries.float(), columns, torch.empty(0), torch.empty(0))
    torch.testing.assert_close(logits, -50 * case[f"{name}_distances"].float(), rtol=1e-3, atol=1e-2)
    assert logits.argmax(1).equal(case[f"{name}_decisions"])
