"""The paper's numbers, tables beside ours, and the verdict on its claims."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from statistics import fmean, pstdev

import pytest

from tasso.errors import DataError
from tasso.metrics import metrics
from tasso.paper.published import PublishedTable, published
from tasso.report import SETTINGS, Setting
from tasso.tasks import BENCHMARKS

CORE = ("accuracy", "forgetting", "zero_shot_degradation")
CONTRADICTIONS = {item.key: item for item in published().contradictions}


def rounded(value: float | Decimal, digits: int = 2) -> str:
    return str(Decimal(str(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


# -- the paper's own numbers -------------------------------------------------------------------------------------


def test_means_of_the_main_tables() -> None:
    """All 45 printed means but one, which is 3.00 where the printed sequences give 3.00625."""
    wrong = {}
    for setting in SETTINGS:
        table = published().table(f"main-{setting}")
        assert table.columns == (*(f"S{k}" for k in range(1, 9)), "Mean")
        for row in table.rows:
            mean = sum(map(Decimal, row.values[:8])) / 8
            if abs(mean - Decimal(row.values[8])) > Decimal("0.005"):
                wrong[setting, row.key, row.metric] = (row.values[8], rounded(mean))
    exception = CONTRADICTIONS["zscl-mean"]
    assert wrong == {("mtil", "zscl", "zero_shot_degradation"): (exception.says, exception.shows)} != {}
    assert (exception.says, exception.shows) == ("3.00", "3.01")


@pytest.mark.parametrize("setting", SETTINGS)
def test_s1_is_what_the_printed_matrix_gives(setting: Setting) -> None:
    matrix, main = published().table(f"matrix-{setting}"), published().table(f"main-{setting}")
    assert [row.key for row in matrix.rows] == ["zero-shot", *matrix.columns]
    rows = [[float(value) for value in row.values] for row in matrix.rows]
    found = metrics(rows[0], rows[1:])
    for metric in CORE:
        value = found[metric]
        assert value is not None
        # Accuracies are printed with two decimals, so a metric of them is known to about 0.01.
        assert abs(value - float(main.text("tasso", "S1", metric) or "nan")) <= 0.00501, metric


def test_rows_that_stand_in_several_tables_agree() -> None:
    by_setting: dict[Setting, list[PublishedTable]] = {"mtil": [], "mcil": []}
    for table in published().tables:
        if table.setting and table.columns == CORE:
            by_setting[table.setting].append(table)
    assert [len(tables) for tables in by_setting.values()] == [7, 4]
    for setting, tables in by_setting.items():
        main = published().table(f"main-{setting}")
        expected = tuple(main.text("tasso", "S1", metric) for metric in CORE)
        repeated = [row.values for table in tables for row in table.rows if row.key in ("tasso", "1102")]
        assert len(repeated) == {"mtil": 6, "mcil": 4}[setting]
        assert set(repeated) == {expected}


def test_grid_repeats_the_component_table() -> None:
    components = published().table("components-mtil")
    corners = {("none", "none"): "sub", ("l2", "l2"): "sub-l2", ("geodesic", "geodesic"): "tasso"}
    for metric in CORE:
        grid = published().table(f"kd-grid-{metric}")
        assert grid.metric == metric
        for (perpendicular, parallel), key in corners.items():
            assert grid.text(perpendicular, parallel) == components.text(key, metric)


def test_printed_bold_is_the_best() -> None:
    tables = [published().table(f"{kind}-{setting}") for kind in ("main", "components") for setting in SETTINGS]
    for table in tables:
        blocks = (
            [(table.rows, [max, min, min])]
            if table.columns == CORE
            else [
                ([r for r in table.rows if r.metric == metric], [max if metric == "accuracy" else min] * 9)
                for metric in CORE
            ]
        )
        for rows, better in blocks:
            for index, best_of in enumerate(better):
                best = best_of(float(row.values[index]) for row in rows)
                assert [index in row.bold for row in rows] == [float(row.values[index]) == best for row in rows]


def test_seeds_have_the_printed_mean_and_population_std() -> None:
    table = published().table("seeds")
    seeds = [row for row in table.rows if row.key.isdigit()]
    assert len(seeds) == 7
    for index, metric in enumerate(CORE):
        values = [float(row.values[index]) for row in seeds]
        assert (rounded(fmean(values)), rounded(pstdev(values))) == (
            table.text("mean", metric),
            table.text("std", metric),
        )


def test_sizes_and_orders_are_those_of_the_benchmark() -> None:
    datasets, sequences = published().table("datasets"), published().table("sequences")
    tasks = BENCHMARKS["mtil"].tasks
    assert tuple(row.key for row in datasets.rows) == (*tasks, "imagenet")
    assert sum(datasets.number_of(task, "Classes") or 0 for task in tasks) == 694
    assert datasets.number_of("imagenet", "Train") == 100_000
    printed = dict(zip(sequences.rows[0].values, tasks, strict=True))  # "FVGC Aircraft" is the paper's spelling
    for k, row in enumerate(sequences.rows):
        assert tuple(printed[name] for name in row.values) == (*tasks[k:], *tasks[:k])


def test_where_the_text_contradicts_the_tables() -> None:
    """Each with both values; a new one must be added by hand, none goes unsaid."""
    main, components = published().table("main-mtil"), published().table("components-mcil")
    lowest = min(main.find("tasso", "zero_shot_degradation").values[:8], key=float)  # type: ignore[union-attr]
    saved = Decimal(components.text("l2", "forgetting") or 0) - Decimal(components.text("geo", "forgetting") or 0)
    sizes = published().table("datasets")
    steps = sum(min(1000, 10 * (int(sizes.number_of(task, "Train") or 0) // 32)) for task in BENCHMARKS["mtil"].tasks)
    shown = {"zscl-mean": "3.01", "degradation-range": lowest, "mcil-geodesic-forgetting": str(saved)}
    shown["iterations"] = str(steps)
    assert {key: item.shows for key, item in CONTRADICTIONS.items()} == shown
    assert {key: item.says for key, item in CONTRADICTIONS.items()} == {
        "zscl-mean": "3.00", "degradation-range": "0.19", "mcil-geodesic-forgetting": "1.80", "iterations": "80000",
    }  # fmt: skip


def test_values_are_kept_as_printed() -> None:
    assert published().table("main-mtil").text("finetune", "S2", "forgetting") == "10.60"
    assert published().table("compute").text("snd", "Wall-clock time") == "1h 50m 12s"
    assert published().table("datasets").text("imagenet", "Train") == "100,000*"
    assert published().table("main-mcil").find("moe-adapters") is None, "the paper has no such row in MCIL"
    assert {row.key for row in published().table("rank-mtil").rows if row.bold_name} == {"tasso"}
    with pytest.raises(DataError, match="table-99: not a table of the paper"):
        published().table("table-99")
