"""The metrics reproduce the paper's numbers from the paper's own matrices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasso.errors import DataError
from tasso.evaluation.metrics import metrics, metrics_of_file, step_accuracies

# The supplement's S1 matrices: rows after each task, columns fgvc-aircraft … ucf-101.
MTIL_ZERO_SHOT = [23.91, 44.39, 42.22, 67.40, 83.69, 87.27, 65.51, 64.26]
MTIL = [
    [53.74, 44.56, 42.74, 66.95, 83.58, 86.92, 65.32, 64.10],
    [53.98, 80.14, 45.65, 66.83, 83.39, 87.30, 64.97, 64.21],
    [53.86, 80.08, 98.80, 67.15, 83.31, 86.97, 64.83, 64.00],
    [53.95, 80.26, 98.72, 99.07, 83.25, 87.05, 64.71, 63.89],
    [53.35, 79.14, 98.64, 98.58, 90.64, 86.97, 64.53, 63.73],
    [53.20, 78.90, 98.64, 98.54, 90.54, 95.45, 64.31, 63.86],
    [51.25, 79.31, 98.64, 98.25, 90.52, 95.48, 84.34, 63.60],
    [50.83, 78.96, 98.60, 98.34, 90.37, 95.48, 84.09, 89.24],
]
MCIL_ZERO_SHOT = [23.91, 36.52, 32.80, 67.40, 83.15, 87.05, 65.51, 63.68]
MCIL = [
    [52.84, 36.94, 33.05, 66.91, 83.06, 86.70, 65.32, 63.55],
    [52.69, 78.31, 34.30, 66.42, 82.40, 87.11, 64.97, 63.63],
    [52.51, 78.07, 98.31, 66.71, 82.32, 86.84, 64.83, 63.49],
    [52.72, 77.96, 98.17, 98.94, 82.26, 86.86, 64.71, 63.34],
    [52.27, 76.00, 98.26, 98.42, 90.22, 86.75, 64.53, 63.28],
    [52.09, 75.71, 98.31, 98.38, 90.12, 95.31, 64.31, 63.44],
    [50.17, 76.00, 98.40, 98.09, 90.01, 95.34, 84.34, 63.15],
    [49.80, 75.59, 98.37, 98.17, 89.84, 95.42, 84.09, 88.69],
]


@pytest.mark.parametrize(
    ("zero_shot", "matrix", "reported"),
    [(MTIL_ZERO_SHOT, MTIL, (85.74, 0.81, 0.36)), (MCIL_ZERO_SHOT, MCIL, (85.00, 1.05, 0.47))],
    ids=["mtil", "mcil"],
)
def test_the_papers_matrices_give_the_papers_metrics(
    zero_shot: list[float], matrix: list[list[float]], reported: tuple[float, float, float]
) -> None:
    found = metrics(zero_shot, matrix)
    names = ("accuracy", "forgetting", "zero_shot_degradation")
    # Half of the last printed digit, since the matrices are rounded.
    assert [found[name] for name in names] == pytest.approx(reported, abs=0.0051)


def test_zscl_metrics_of_the_papers_matrix() -> None:
    found = metrics(MTIL_ZERO_SHOT, MTIL)
    assert found["transfer"] == pytest.approx(64.98, abs=0.005)
    assert found["average"] == pytest.approx(76.73, abs=0.005)
    assert found["last"] == found["accuracy"]


def test_negative_values_are_not_clipped() -> None:
    improving = [[50.0, 40.0], [60.0, 70.0]]
    found = metrics([30.0, 35.0], improving)
    assert found["forgetting"] == -10
    assert found["zero_shot_degradation"] == -5


def test_the_worst_later_row_counts() -> None:
    matrix = [[80.0, 10.0, 10.0], [60.0, 50.0, 5.0], [75.0, 50.0, 90.0]]
    found = metrics([0.0, 10.0, 10.0], matrix)
    assert found["forgetting"] == pytest.approx(((80 - 60) + (50 - 50)) / 2)
    assert found["zero_shot_degradation"] == pytest.approx(((10 - 10) + (10 - 5)) / 2)


def test_a_single_task_has_no_forgetting() -> None:
    assert metrics([10.0], [[50.0]]) == {
        "accuracy": 50.0, "forgetting": None, "zero_shot_degradation": None, "transfer": None, "average": 50.0,
        "last": 50.0,
    }  # fmt: skip


@given(shift=st.floats(-20, 20))
def test_shifting_all_accuracies_changes_accuracy_only(shift: float) -> None:
    moved = metrics([b + shift for b in MTIL_ZERO_SHOT], [[v + shift for v in row] for row in MTIL])
    before = metrics(MTIL_ZERO_SHOT, MTIL)
    assert moved["accuracy"] == pytest.approx(before["accuracy"] + shift, abs=1e-9)  # type: ignore[operator]
    assert moved["forgetting"] == pytest.approx(before["forgetting"], abs=1e-9)
    assert moved["zero_shot_degradation"] == pytest.approx(before["zero_shot_degradation"], abs=1e-9)


def test_plain_matrix_file(tmp_path: Path) -> None:
    file = tmp_path / "matrix.json"
    file.write_text(json.dumps({"zero_shot": MTIL_ZERO_SHOT, "matrix": MTIL}))
    assert metrics_of_file(file)["accuracy"] == pytest.approx(85.74, abs=0.005)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected an object"),
        ("{}", "neither 'matrix' nor"),
        ('{"matrix": [[1]]}', "zero_shot must be"),
        ('{"zero_shot": [1, 2], "matrix": [[1, 2]]}', "matrix has 1 rows"),
        ('{"zero_shot": [1, 2], "matrix": [[1, 2], [3]]}', r"matrix\[1\] must be 2 numbers"),
        ('{"zero_shot": [1, 2], "matrix": [[1, 2], [3, "x"]]}', r"matrix\[1\] must be"),
        ('{"mtil": {"zero_shot": [1], "matrix": []}}', "mtil: no task has been learned yet"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(content)
    with pytest.raises(DataError, match=message) as error:
        metrics_of_file(file)
    assert "bad.json" in str(error.value)


def test_class_incremental_metrics_count_images_not_steps() -> None:
    matrix = [[80.0, 10.0], [60.0, 30.0]]
    assert step_accuracies(matrix, [3, 1]) == [80.0, 52.5]
    found = metrics([50.0, 50.0], matrix, [3, 1])
    assert (found["incremental_average"], found["incremental_last"]) == (66.25, 52.5)
    assert found["seen_average"] == 50.0  # (80 + 60) / 2 of the first task, 30 of the second
    assert not {"incremental_average", "seen_average"} & metrics([50.0, 50.0], matrix).keys()
    assert step_accuracies([[None, None], [60.0, 30.0]], [3, 1]) == [None, 52.5]


def test_transfer_average_and_last_are_zscls_to_the_printed_digit() -> None:
    """The authors' matrices of seven methods in order I of the eleven tasks."""
    document = json.loads((Path(__file__).parents[1] / "golden" / "zscl_mtil11.json").read_text())
    assert len(document["methods"]) == 7
    for name, method in document["methods"].items():
        found = metrics(document["zero_shot"], method["matrix"])
        for key, printed in method["published"].items():
            assert found[key.lower()] == pytest.approx(printed, abs=0.0501), (name, key)
