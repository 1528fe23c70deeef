"""The table of results: what is in it, queries on it, and that a study file gives it back."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from run_results import TASKS, results
from runs_on_disk import alignment
from tasso.report import report_tables, write_page
from tasso.report.formats import to_latex, to_markdown
from tasso.report.frame import SEEN_METRICS, accuracies, compare, costs, distances, metrics, run_table, several_orders
from tasso.report.reader import ReportError
from tasso.report.results import read_runs
from tasso.report.study import read_study, write_study
from tasso.report.tables import combined_table, matrix_table, summary_table


def write(folder: Path, content: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def frame(tmp_path: Path) -> pd.DataFrame:
    write(tmp_path / "runs" / "one", results("TASSO", 1) | {"alignment": alignment()})
    strange = results('naïve 猫, "quoted"', 2, rows=2, tasks=["a, b", "c\nd", "NA"], sequence=None)
    strange["mtil"]["matrix"][0][1] = None
    write(tmp_path / "runs" / "deep" / "two", strange)
    return read_runs(tmp_path / "runs").sort_values("run", kind="stable", ignore_index=True)


def test_runs_with_other_options_are_no_repeats(tmp_path: Path) -> None:
    for folder, seed, config in (("a", 1, "lr: 1.0e-4"), ("b", 2, "lr: 1.0e-4"), ("c", 1, "lr: 3.0e-4\nsteps: 3")):
        (write(tmp_path / folder, results("LwF", seed)) / "config.yaml").write_text(config)
    assert set(read_runs([tmp_path / "a", tmp_path / "b"])["label"]) == {"LwF"}
    found = run_table(read_runs(tmp_path)).sort_index()["label"]
    assert list(found) == ["LwF (steps by default, lr 0.0001)"] * 2 + ["LwF (steps 3, lr 0.0003)"]
    for folder, images in (("a", 6), ("b", 20)):  # earlier versions did not make it a condition
        (tmp_path / folder / "config.yaml").write_text(f"test_per_class: {images}")
    found = run_table(read_runs([tmp_path / "a", tmp_path / "b"])).sort_index()["label"]
    assert list(found) == ["LwF (test_per_class 6)", "LwF (test_per_class 20)"]


def test_runs_on_other_data_are_no_repeats(tmp_path: Path) -> None:
    """Tasks of own folders may have the same names. Another split of the same images is a repeat."""

    def learned(name: str, seed: int, last_class: str = "cat", parts: tuple[int, int, int] = (6, 2, 2)) -> None:
        content = results("mine", seed, benchmark="own")
        content["class_names"] = {task: ["dog", last_class] for task in TASKS}
        sizes = dict(zip(("train", "val", "test"), parts, strict=True))
        content["data"] = {"tasks": {task: {"classes": 2, **sizes} for task in TASKS}}
        write(tmp_path / name, content)

    learned("a", 1)
    learned("b", 2, parts=(7, 1, 2))
    write(tmp_path / "c", results("mine", 3, benchmark="own"))  # of an earlier version
    assert set(read_runs(tmp_path)["benchmark"]) == {"own"}
    learned("d", 1, last_class="cow")
    learned("e", 1, parts=(8, 2, 2))
    found = run_table(read_runs(tmp_path)).sort_index()["benchmark"]
    assert list(found) == ["own (data 1)", "own (data 1)", "own", "own (data 2)", "own (data 3)"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("optimizer_precision float32", "optimizer_precision bfloat16"),
        ("teacher_precision auto", "teacher_precision bfloat16"),
        ("tune full", "tune lora"),
        ("reference here", "reference elsewhere"),
    ],
)
def test_runs_that_share_a_name_are_told_apart_by_any_option_of_training(one: str, other: str, tmp_path: Path) -> None:
    """A run that is older than an option has its default; of folders, only the name is shown."""
    (write(tmp_path / "a", results("mine", 1)) / "config.yaml").write_text("lr: 1.0e-4")
    for folder, said in (("b", one), ("c", other)):
        config = said.replace(" ", ": ").replace("reference: ", f"reference: {tmp_path}/")
        (write(tmp_path / folder, results("mine", 2)) / "config.yaml").write_text(f"lr: 1.0e-4\n{config}")
    found = run_table(read_runs([tmp_path / "b", tmp_path / "c"])).sort_index()["label"]
    assert list(found) == [f"mine ({one})", f"mine ({other})"]
    if not one.startswith("reference"):
        assert set(read_runs([tmp_path / "a", tmp_path / "b"])["label"]) == {"mine"}


def test_every_number_is_a_row(tmp_path: Path) -> None:
    content = results("TASSO", 1102) | {"alignment": alignment()}
    frame = read_runs(write(tmp_path / "run", content))
    (run,) = run_table(frame).itertuples()
    assert (run.Index, run.method, run.label, run.seed) == (str(tmp_path / "run"), "tasso", "TASSO", 1102)
    assert (run.model, run.benchmark, run.sequence, run.order) == ("nano", "atlas", "S1", tuple(TASKS))
    assert (run.finished, run.learned) == (True, 3)
    for setting in ("mtil", "mcil"):
        part = content[setting]
        assert accuracies(frame, setting).values.tolist() == [part["zero_shot"], *part["matrix"]]  # type: ignore[arg-type]
        assert metrics(frame, setting).iloc[0].to_dict() == part["metrics"]  # type: ignore[arg-type]
    found = costs(frame)
    assert list(found["task"]) == TASKS
    assert set(found["peak_memory_bytes"]) == {3 * 2**20}
    last = distances(frame).set_index(["step", "task"]).loc[3, "textures"]
    expected = content["alignment"]["last"][1]
    assert last["quantiles"] == tuple(expected["quantiles"])
    assert last["histogram"] == tuple(expected["counts"])
    assert last["classes"] == tuple(expected["prototypes"])
    assert (last["count"], last["mean"], last["first_bin"]) == (40, expected["mean"], expected["first_bin"])
    assert (last["bins"], last["range"]) == (500, 2.0)
    assert set(frame[frame["metric"] == "classes"]["value"]) == {10}


def test_what_is_not_known_is_nan(frame: pd.DataFrame) -> None:
    first, second = compare(frame)
    assert first.tasks == ("a, b", "c\nd", "NA")
    assert first.order == "a, b, c\nd, NA"
    assert math.isnan(accuracies(first.frame, "mtil").iloc[1, 1])
    assert metrics(first.frame, "mtil").isna().all(axis=None)
    assert first.runs["learned"].tolist() == [2]
    assert distances(first.frame).empty
    assert second.name == "atlas, nano, order S1"


def test_runs_on_other_tasks_of_the_same_names_are_not_averaged(tmp_path: Path) -> None:
    for seed, conditions in enumerate(["", "class order 7", "class order 7"]):
        write(tmp_path / "runs" / f"{seed}", results("TASSO", seed) | {"conditions": conditions})
    old = results("TASSO", 9)
    write(tmp_path / "runs" / "9", old)
    first, second = compare(read_runs(write_study(read_runs(tmp_path / "runs"), tmp_path / "study.csv")))
    assert (first.name, second.name) == ("atlas, nano, order S1", "atlas (class order 7), nano, order S1")
    assert (first.runs["seed"].tolist(), second.runs["seed"].tolist()) == ([0, 9], [1, 2])


def test_titles_say_how_runs_were_cut_short(tmp_path: Path) -> None:
    """Tables in all formats, and the head of the page."""
    cut = results("TASSO", 1) | {"conditions": "limit tasks 3, test per class 6"}
    write(tmp_path / "cut", cut)
    title = "atlas (limit tasks 3, test per class 6), nano, order S1, 300 steps per task"
    table = summary_table(read_runs(tmp_path), "mtil")
    assert all(f"MTIL on {title}" in write_as(table) for write_as in (to_markdown, to_latex))
    page = write_page(read_runs(tmp_path), tmp_path / "page.html", title="t", intro="").read_text()
    assert f"Runs on {title}." in page[: page.index("</header>")]

    rules = [{**task, "steps": steps} for task, steps in zip(cut["per_task"], (40, 80, 60), strict=True)]
    write(tmp_path / "whole", results("TASSO", 1, per_task=rules))
    first, second = compare(read_runs(tmp_path))
    assert (first.title, second.title) == (title, "atlas, nano, order S1, 40 to 80 steps per task")
    table = summary_table(read_runs(tmp_path), "mtil")
    assert table.title == "MTIL on nano, order S1"
    assert f"Steps differ: {first.title}; {second.title}." in table.notes

    once = [{**task, "steps": 1} for task in cut["per_task"]]
    (short,) = compare(read_runs(write(tmp_path / "once", results("TASSO", 1, per_task=once))))
    assert short.title == "atlas, nano, order S1, 1 step per task"


def test_runs_that_are_scored_in_a_third_setting_have_their_table(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "one", results("TASSO", 1))
    steps = results("TASSO", 2, benchmark="atlas-classes-8")
    extra = {"images": [5, 5, 5], "zero_shot_steps": [1.0, 2.0, 3.0]}
    metrics = dict.fromkeys((*steps["mtil"]["metrics"], *SEEN_METRICS), 7.0)
    write(tmp_path / "runs" / "two", steps | {"seen": steps["mtil"] | extra | {"metrics": metrics}})
    tables = report_tables(read_runs(tmp_path / "runs"))
    assert "atlas-classes-8" in tables["summary-seen"].title
    assert "Incremental last: " in tables["summary-seen"].notes[1], "its own metrics are explained, too"
    assert len(tables["summary-mtil"].rows) == 2 * len(tables["summary-seen"].rows)
    page = write_page(read_runs(tmp_path / "runs"), tmp_path / "page.html", title="t", intro="").read_text()
    assert "summary-seen" in page


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_study_gives_the_table_back(frame: pd.DataFrame, tmp_path: Path, ending: str) -> None:
    file = write_study(frame, tmp_path / f"study.{ending}")
    again = read_runs(file)
    assert list(dict.fromkeys(again["run"])) == ["deep/two", "one"]
    pd.testing.assert_frame_equal(again.drop(columns="run"), frame.drop(columns="run"))
    before = file.read_bytes()
    assert write_study(again, file).read_bytes() == before


def test_runs_of_different_splits_are_never_compared(tmp_path: Path) -> None:
    for seed, split in ((1, "val"), (2, "test"), (3, None)):
        write(tmp_path / f"run{seed}", results("TASSO", seed, sequence="S1") | ({"split": split} if split else {}))
    write(tmp_path / "run4", results("TASSO", 4, tasks=TASKS[::-1], sequence="S2", split="test"))
    frame = read_runs(tmp_path)
    val, test, other = compare(frame)
    assert [len(one.runs) for one in (val, test, other)] == [1, 2, 1], "without a split it is the test images"
    assert val.name == "atlas (validation images), nano, order S1"
    [orders] = several_orders([val, test, other])
    assert orders.comparisons == (test, other), "nor are their means taken over orders"
    titles = [summary_table(frame[frame["split"] == split], "mtil").title for split in ("val", "test")]
    steps = "300 steps per task"
    assert titles == [f"MTIL on atlas (validation images), nano, order S1, {steps}", f"MTIL on atlas, nano, {steps}"]
    assert "validation images" in matrix_table(val.frame, "mtil").title
    assert "atlas (validation images)" in to_markdown(summary_table(frame, "mtil"))
    with pytest.raises(ReportError, match="one benchmark, model and set of tasks"):
        combined_table(pd.concat([val.frame, test.frame]))


def test_labels_of_earlier_studies_are_those_of_today(tmp_path: Path) -> None:
    for name, label in {"one": "fine-tuning (both encoders)", "other": "my both encoders"}.items():
        write(tmp_path / "runs" / name, results(label))
    file = write_study(read_runs(tmp_path / "runs"), tmp_path / "study.csv")
    assert set(read_study(file)["label"]) == {"fine-tuning (both towers)", "my both encoders"}


def test_splits_of_results_and_studies_are_checked(tmp_path: Path) -> None:
    run = write(tmp_path / "run", results(split="train"))
    with pytest.raises(ReportError, match="split: expected test or val, found 'train'"):
        read_runs(run)
    write(tmp_path / "other", results(split="val"))
    file = write_study(read_runs(tmp_path / "other"), tmp_path / "study.csv")
    assert set(read_study(file)["split"]) == {"val"}
    table = pd.read_csv(file)
    table.drop(columns="split").to_csv(file, index=False)
    assert set(read_study(file)["split"]) == {"test"}, "studies of earlier versions have no such column"
    table.assign(split="train").to_csv(file, index=False)
    with pytest.raises(ReportError, match="line 2: split: cannot read 'train'"):
        read_study(file)


def test_bad_studies_name_the_file_and_what_is_wrong(frame: pd.DataFrame, tmp_path: Path) -> None:
    file = write_study(frame, tmp_path / "study.csv")
    lines = file.read_text().splitlines()
    for text, complaint in (
        ("", "not a CSV file of a study"),
        (lines[0].replace("metric", "measure"), "missing column 'metric'"),
        (lines[0], "no rows"),
        ("\n".join([lines[0], lines[-1].replace(",1,True", ",one,True")]), "line 2: seed: cannot read 'one'"),
        ("\n".join([lines[0], lines[-1].replace("True", "yes")]), "line 2: finished: cannot read 'yes'"),
    ):
        file.write_text(text)
        with pytest.raises(ReportError, match=complaint) as caught:
            read_study(file)
        assert str(file) in str(caught.value)
    with pytest.raises(ReportError, match=r"ends in \.csv or \.csv\.gz"):
        write_study(frame, tmp_path / "study.txt")
    with pytest.raises(ReportError, match="no such file"):
        read_study(tmp_path / "absent.csv")
