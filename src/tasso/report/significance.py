"""Is one method ahead of another by more than chance? Paired tests on runs of the same order and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np
import numpy.typing as npt

LEVEL = 0.05
MOST_EXACT = 36  # pairs; two times 2¹⁸ sums take a few hundredths of a second
DRAWS = 100_000
# With n pairs no two-sided p is below 2 / 2ⁿ, and 2 / 2⁵ is 0.0625.
FEWEST = 6

Key = tuple[str, int]  # order of the tasks, seed


@dataclass(frozen=True)
class PairedTest:
    """The best method against the runner-up. `p` is None where too few pairs could never reach the level.

    `ahead`: is the best one also better on the pairs? Where a method has more runs than the pairs, it need not be.
    """

    best: str
    second: str
    pairs: int
    p: float | None
    ahead: bool = True

    @property
    def significant(self) -> bool:
        return self.ahead and self.p is not None and self.p < LEVEL

    @property
    def exact(self) -> bool:
        return self.pairs <= MOST_EXACT


def sign_flip_p(differences: Sequence[float], *, one_sided: bool = False) -> float:
    """p of the sign-flip permutation test on the mean of paired differences. No distribution is assumed.

    If the two methods were alike, each difference might as well have the other sign. p is the share of all 2ⁿ ways to
    choose the signs whose mean is at least as far from 0 as the one found; `one_sided`: and on the same side. Beyond 36
    pairs the ways are drawn, with a fixed seed, and the one found counts among them.
    """
    if not differences:
        raise ValueError("a paired test needs at least one pair")
    values = np.asarray(differences, dtype=np.float64)
    found = abs(values.sum()) - 1e-9 * np.abs(values).sum()  # equal sums must not be told apart by rounding
    if found <= 0:
        return 1.0
    if len(values) > MOST_EXACT:
        signs = np.random.default_rng(0).integers(0, 2, (DRAWS, len(values))) * 2 - 1
        sums = signs @ values * np.sign(values.sum())
        return float((1 + np.count_nonzero((sums if one_sided else np.abs(sums)) >= found)) / (1 + DRAWS))
    # Every way is one of the first half and one of the second: for each of the first, those of the second are counted.
    half = len(values) // 2
    first, second = _sums(values[:half]), np.sort(_sums(values[half:]))
    above = len(second) - np.searchsorted(second, found - first, "left")
    return float((1 if one_sided else 2) * above.sum() / 2 ** len(values))  # as many ways lie below -found


def _sums(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The sums of all ways to choose the signs."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number by Holm's method: at 5 %, one false discovery or more in 1 of 20 families."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def paired_differences(
    first: Mapping[Key, float], second: Mapping[Key, float]
) -> tuple[Literal["order", "seed"], list[float]]:
    """Differences on the orders and seeds that both have, and what a pair is.

    With several orders it is an order, with the mean over its seeds: runs of one order are not independent. With a
    single one it is a seed.
    """
    by_order: dict[str, list[float]] = {}
    for order, seed in first:
        if (order, seed) in second:
            by_order.setdefault(order, []).append(first[order, seed] - second[order, seed])
    if len(by_order) > 1:
        return "order", [fmean(differences) for differences in by_order.values()]
    return "seed", [difference for differences in by_order.values() for difference in differences]


def paired_test(
    best: str,
    first: Mapping[Key, float],
    second_name: str,
    second: Mapping[Key, float],
    better: Literal["up", "down"] = "up",
) -> PairedTest:
    """Compare two methods on the orders and seeds that both have."""
    _, differences = paired_differences(first, second)
    if len(differences) < FEWEST:
        return PairedTest(best, second_name, len(differences), None)
    ahead = sum(differences) > 0 if better == "up" else sum(differences) < 0
    return PairedTest(best, second_name, len(differences), sign_flip_p(differences), ahead)


def describe_tests(tests: Sequence[tuple[str, PairedTest]]) -> list[str]:
    """Notes under a table. Each test comes with the words that say where it belongs, such as its column."""
    notes = []
    done = [(where, test) for where, test in tests if test.p is not None]
    if done:
        results = "; ".join(
            f"{where}: {test.best} against {test.second}, {test.pairs} pairs, p = {_p_text(test.p)}"
            + (" †" if test.significant else "")
            for where, test in done
            if test.p is not None
        )
        how = "exact" if all(test.exact for _, test in done) else f"exact up to {MOST_EXACT} pairs, else {DRAWS} draws"
        notes.append(
            f"† better than the runner-up with p < {LEVEL} in a two-sided sign-flip permutation test ({how}) on the "
            f"differences of runs with the same order and seed, with several orders on their means over seeds; not "
            f"corrected for the number of tests. {results}."
        )
    few = sorted({test.pairs for _, test in tests if test.p is None})
    if few:
        counts = " or ".join(map(str, few))
        rest = " the other columns or blocks" if done else ""
        notes.append(
            f"Best against runner-up: not tested{' in' + rest if rest else ''}, with {counts} "
            f"{'pair' if few == [1] else 'pairs'} of runs with the same order and seed; p < {LEVEL} needs at least "
            f"{FEWEST}."
        )
    return notes


def _p_text(p: float) -> str:
    return f"{p:.4f}" if p < 0.01 else f"{p:.3f}"
