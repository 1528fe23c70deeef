"""The paired test, against counting all signs by hand, and where tables show it."""

from __future__ import annotations

import csv
import io
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from run_results import TASKS, results
from runs_on_disk import several, write_runs
from tasso.report import order_table, paired_test, sign_flip_p, summary_table, to_csv, to_latex, to_markdown
from tasso.report.frame import compare, several_orders
from tasso.report.significance import FEWEST, LEVEL, MOST_EXACT, holm, paired_differences

differences = st.lists(st.integers(-50, 50).map(lambda number: number / 10), min_size=1, max_size=9)


@settings(deadline=None)
@given(differences)
def test_exact_p_equals_counting_all_signs(values: list[float]) -> None:
    tenths = [round(10 * value) for value in values]  # whole numbers: sums without rounding
    sums = [
        abs(sum(s * t for s, t in zip(signs, tenths, strict=True))) for signs in product((1, -1), repeat=len(values))
    ]
    expected = sum(total >= abs(sum(tenths)) for total in sums) / len(sums)
    assert sign_flip_p(values) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(differences, st.floats(0.01, 100))
def test_p_knows_neither_scale_nor_side(values: list[float], scale: float) -> None:
    p = sign_flip_p(values)
    assert 0 < p <= 1
    assert sign_flip_p([-value for value in values]) == p
    assert sign_flip_p([scale * value for value in values]) == p
    assert p >= 2 / 2 ** len(values) or len(values) == 1


def test_six_pairs_are_the_fewest_that_can_tell() -> None:
    assert sign_flip_p([1.0] * (FEWEST - 1)) > LEVEL >= sign_flip_p([1.0] * FEWEST) == 2 / 64
    sample = {("S1", seed): 1.0 + seed for seed in range(FEWEST)}
    worse = {key: value - 1 for key, value in sample.items()}
    assert paired_test("A", sample, "B", worse).significant
    del worse["S1", 0]
    few = paired_test("A", sample, "B", worse)
    assert (few.pairs, few.p, few.significant) == (5, None, False)


def test_behind_on_the_pairs_is_never_marked(tmp_path: Path) -> None:
    """The best mean may come from runs that the other method does not have."""
    pairs = {("S1", seed): float(seed) for seed in range(7)}
    better = {key: value + 1 for key, value in pairs.items()}
    assert paired_test("A", pairs, "B", better).p == 2 / 2**7
    assert not paired_test("A", pairs, "B", better).significant
    assert paired_test("A", pairs, "B", better, "down").significant
    contents = [results("A", seed, shift=4.0) for seed in range(1, 8)] + [
        results("B", s, shift=3.0) for s in range(1, 8)
    ]
    contents += [results("A", 20 + seed, shift=-10.0) for seed in range(7)]
    table = summary_table(write_runs(tmp_path, contents), "mtil")
    assert table.rows[1].cells[5].best
    assert not any(cell.significant for row in table.rows for cell in row.cells)


def test_holm() -> None:
    assert holm([]) == []
    assert holm([0.03]) == [0.03]
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.6, 0.01, 0.01]) == pytest.approx([0.8, 0.8, 0.04, 0.04]), "ties alike, never above 1"


@settings(deadline=None)
@given(differences)
def test_one_side_is_half_of_both(values: list[float]) -> None:
    both = sign_flip_p(values)
    assert sign_flip_p(values, one_sided=True) == (1.0 if abs(sum(values)) < 1e-9 else both / 2)


def test_pairs_of_several_orders_are_their_means() -> None:
    first = {("S1", 1): 3.0, ("S1", 2): 5.0, ("S2", 1): 1.0, ("S3", 1): 9.0}
    second = {("S1", 1): 2.0, ("S1", 2): 5.5, ("S2", 1): 0.0}
    assert paired_differences(first, second) == ("order", [0.25, 1.0])
    del second["S2", 1]
    assert paired_differences(first, second) == ("seed", [1.0, -0.5])


def test_known_cases() -> None:
    assert sign_flip_p([0.3] * 8) == 2 / 2**8
    assert sign_flip_p([5.0, 0.1, 0.2, 0.3, 0.4, 0.5]) == 2 / 2**6, "sizes do not matter if all signs agree"
    assert sign_flip_p([0.4]) == 1.0
    assert sign_flip_p([0.0, 0.0]) == 1.0
    assert sign_flip_p([0.1 * k for k in range(1, 31)]) == 2 / 2**30, "many pairs are still counted exactly"


def test_very_many_pairs_are_drawn_and_stay_the_same() -> None:
    values = [0.3, -0.1] * 20
    assert sign_flip_p(values) == sign_flip_p(values)
    assert sign_flip_p([1.0] * (MOST_EXACT + 1)) == pytest.approx(1e-5, rel=0.01)
    # Close to the exact one, on numbers for which both can be had.
    exact = sign_flip_p(values[:MOST_EXACT])
    assert sign_flip_p([*values[:MOST_EXACT], 0.0]) == pytest.approx(exact, abs=0.005)


def test_table_marks_the_best_where_seven_seeds_agree(tmp_path: Path) -> None:
    table = summary_table(write_runs(tmp_path, several(seeds=7)), "mtil")
    names = [column.name for column in table.columns]
    _, _, snd, tasso = table.rows
    best = tasso.cells[names.index("Accuracy")]
    assert best.best
    assert best.p == 2 / 2**7
    assert best.significant
    assert best.text.endswith("†")
    assert snd.cells[names.index("Accuracy")].second
    assert not snd.cells[names.index("Accuracy")].significant
    (note,) = [note for note in table.notes if note.startswith("†")]
    for words in (
        "sign-flip permutation test (exact)",
        "Accuracy: TASSO against SnD, 7 pairs, p = 0.016 †",
        "not corrected",
    ):
        assert words in note
    assert r"\pm" in to_latex(table)
    assert r"^{\dagger}$" in to_latex(table)
    assert r"$\dagger$ better than" in to_latex(table)
    assert "** ± " in to_markdown(table)
    assert " †" in to_markdown(table)
    assert r"\underline{" in to_latex(table)
    assert "<u>" in to_markdown(table)
    row = list(csv.DictReader(io.StringIO(to_csv(table))))[3]
    assert float(row["Accuracy p"]) == 2 / 2**7


def test_few_seeds_are_not_tested_and_the_table_says_so(tmp_path: Path) -> None:
    table = summary_table(write_runs(tmp_path, several(seeds=3)), "mcil")
    assert not any(cell.significant for row in table.rows for cell in row.cells)
    assert any("not tested, with 3 pairs" in note and "at least 6" in note for note in table.notes)
    assert "†" not in to_markdown(table)


def test_no_difference_is_no_discovery(tmp_path: Path) -> None:
    """Seven seeds, each method ahead in some of them."""
    contents = [
        results(label, seed, shift=2.0 + (seed + place) % 2 + 0.02 * place)
        for seed in range(1, 8)
        for place, label in enumerate(("A", "B"))
    ]
    table = summary_table(write_runs(tmp_path, contents), "mtil")
    assert any(cell.best for row in table.rows for cell in row.cells)
    assert not any(cell.significant for row in table.rows for cell in row.cells)
    assert any("7 pairs, p = " in note for note in table.notes)


def test_orders_pair_the_same_order_and_seed(tmp_path: Path) -> None:
    contents = several(seeds=2, orders=7)
    runs = write_runs(tmp_path, [*contents, results("lonely", 1, tasks=list(TASKS), sequence="S1")])
    (orders,) = several_orders(compare(runs))
    table = order_table(orders, "mtil", "accuracy")
    assert [column.name for column in table.columns] == ["Method", *(f"S{k}" for k in range(1, 8)), "Mean"]
    by_name = {row.label: row.cells for row in table.rows}
    for label in ("TASSO", "SnD"):
        mine = [content["mtil"]["metrics"]["accuracy"] for content in contents if content["label"] == label]
        assert by_name[label][-1].value == pytest.approx(sum(mine) / 14)
    assert by_name["TASSO"][-1].p == 2 / 2**7, "a pair is an order: runs of one order are not independent"
    assert by_name["TASSO"][-1].significant
    assert by_name["lonely"][-1].value is None
    assert any("No mean, because a finished run of an order is missing: lonely." in note for note in table.notes)
    assert any("mean: TASSO against SnD, 7 pairs, p = 0.016 †" in note for note in table.notes)
    assert not several_orders(compare(runs[runs["sequence"] == "S1"]))
