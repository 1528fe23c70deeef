"""The zero-shot accuracy of a known model shows whether data and class names are those of the benchmark."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

# Share of a class that `resplit` tests on, and how many standard deviations two draws may differ.
TEST_SHARE, DEVIATIONS = 0.3, 3.0

Row = dict[str, float]  # accuracy in percent by task


@dataclass(frozen=True)
class Fingerprint:
    """Rows to compare with, and whose they are."""

    source: str
    mtil: Row
    mcil: Row


@dataclass(frozen=True)
class ZeroShot:
    """Rows of a model on the data at hand, and those they are compared with, if any are known."""

    model: str
    mtil: Row
    mcil: Row
    expected: Fingerprint | None = None


def measured_fingerprint(benchmark: str, model: str) -> Fingerprint | None:
    """The rows that were measured with tasso for this benchmark and model, or None."""
    text = (files("tasso.data.prepare") / "fingerprints.json").read_text(encoding="utf-8")
    found = json.loads(text)["rows"].get(benchmark, {}).get(model)  # its row by setting
    return Fingerprint(f"tasso's own measurement with {model}", found["mtil"], found["mcil"]) if found else None


def allowed(tolerance: float, expected: float, images: int, drawn: bool) -> float:
    """How far an accuracy may be off, in points.

    A test set that was drawn here differs from the paper's. Both are samples of the same images, so their accuracies
    also differ by chance.
    """
    if not drawn or not images:
        return tolerance
    share = expected / 100
    variance = 2 * share * (1 - share) / images * (1 - TEST_SHARE)
    return tolerance + DEVIATIONS * 100 * math.sqrt(variance)


def differences(
    expected: Row, found: Row, tolerance: float, images: Mapping[str, int], drawn: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Difference (found − expected) and what is allowed, for each task that both rows have."""
    return {
        name: (found[name] - value, allowed(tolerance, value, images.get(name, 0), name in drawn))
        for name, value in expected.items()
        if name in found
    }
