"""What the commands say to someone who has not used them before."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import replicas
from own_images import write_folder
from run_results import TASKS, results
from runs_on_disk import write_runs
from tasso.cli import main
from tasso.cli.run import SMALL_MODEL
from tasso.report import read_runs, run_table, summary_table


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="tasso")
    return caplog


def test_a_run_on_folders_says_what_it_does(tmp_path: Path, tiny_model: str, said: pytest.LogCaptureFixture) -> None:
    tasks = [f"{name}={write_folder(tmp_path / name, name)}" for name in ("pets", "food")]
    out = tmp_path / "run"
    options = ["--model", tiny_model, "--steps", "3", "--batch-size", "4", "--device", "cpu", "--out", str(out)]
    main(["run", "--tasks", *tasks, "--method", "finetune", *options])
    text = said.text
    assert "pets: 3 classes, 15 images; none are for testing, so 20 % of each class are held back (3)" in text
    assert "on cpu; steps: pets 3, food 3" in text, "how much there is to do"
    assert "zero-shot, accuracy (%), MTIL: pets " in text, "which number is which"
    assert "after food, accuracy (%), MTIL: pets " in text
    assert f"next: tasso classify {out} IMAGE" in text
    longer = f"land={write_folder(tmp_path / 'land', 'land')}"
    said.clear()
    main(["extend", str(out), "--tasks", longer, "--device", "cpu", "--out", str(tmp_path / "longer")])
    assert "steps: land 3; learned already, evaluated again: pets, food" in said.text
    said.clear()
    main(["run", "--tasks", *tasks, "--method", "finetune", *options])
    assert "steps:" not in said.text, "there is nothing left to do"
    main(["eval", str(out)])
    assert "MTIL: among the classes of the image's own task" in said.text
    more = f"pets={write_folder(tmp_path / 'more', 'pets')}"
    main(["eval", str(out), "--tasks", more, "--test-share", "1"])
    assert "pets: 3 classes, 15 images, all for testing" in said.text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tasks", "pets=./pets"], True),
        (["--tasks", "pets=./pets", "--out", "run"], False),  # it has begun
        (["--tasks", "pets=./pets", "--model", "nano"], False),
        (["--tasks", "pets=./pets", "--model=nano"], False),
        (["--tasks", "pets=./pets", "--config", "model.yaml"], False),
        (["--benchmark", "atlas"], False),
    ],
)
def test_who_names_no_model_is_told_that_it_is_small(
    words: list[str], told: bool, tmp_path: Path, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "pets", "pets")
    (tmp_path / "run").mkdir()
    (tmp_path / "model.yaml").write_text("model: nano\n")
    monkeypatch.setattr("tasso.training.learner.learn", lambda config: None)
    monkeypatch.setattr("tasso.cli.run._print_run", lambda folder: None)
    main(["run", *words])
    assert (SMALL_MODEL in said.text) == told


def test_a_run_is_not_judged_by_images_it_learned_from(
    tmp_path: Path, tiny_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = f"pets={write_folder(tmp_path / 'pets', 'pets')}"
    out = str(tmp_path / "run")
    options = ["--model", tiny_model, "--steps", "1", "--batch-size", "4", "--device", "cpu", "--out", out]
    main(["run", "--tasks", task, "--method", "finetune", *options])
    for option, value in (("--test-share", "1"), ("--split-seed", "7")):
        for given in ([], ["--tasks", task]):
            with pytest.raises(SystemExit):
                main(["eval", out, *given, option, value])
            assert "its training images may be among the test images" in capsys.readouterr().err


def test_missing_data_lead_to_the_command_that_gets_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "DATA" / "dtd").mkdir(parents=True)
    for root in ("nowhere", "DATA"):
        with pytest.raises(SystemExit):
            main(["eval", "--benchmark", "mtil", "--sequence", "dtd", "--data-root", str(tmp_path / root)])
        assert "tasso data prepare" in capsys.readouterr().err


def test_all_that_is_missing_is_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replicas.write(tmp_path, "dtd")
    options = ["--no-download", "--no-check-archives", "--no-check-counts"]
    with pytest.raises(SystemExit):
        main(["data", "prepare", "dtd", "flowers-102", "--root", str(tmp_path), *options])
    lines = capsys.readouterr().out.splitlines()
    assert "flowers-102  NOT READY" in lines
    steps = [line for line in lines if line.startswith("  Get ")]
    assert [line.split()[1] for line in steps] == ["102flowers.tgz", "imagelabels.mat"], "a line for each"
    assert lines[-1].startswith("1 of 2 ready")
    assert (tmp_path / "flowers-102" / "archives").is_dir(), "nobody has to make it"


def test_a_run_and_its_extension_can_be_told_apart(tmp_path: Path) -> None:
    runs = write_runs(tmp_path, [results(tasks=TASKS[:2], sequence="S1"), results(tasks=TASKS, sequence="S1")])
    assert list(run_table(runs)["sequence"]) == ["S1: 2 tasks", "S1: 3 tasks"]
    shown = summary_table(runs, "mtil").shown()
    assert "Order" in [column.name for column in shown.columns], "else there were rows of one name"
    assert list(run_table(read_runs(tmp_path / "run-01"))["sequence"]) == ["S1"], "alone it needs no more words"


def test_orders_over_other_tasks_name_them(tmp_path: Path) -> None:
    runs = write_runs(tmp_path, [results(tasks=TASKS[:2], sequence="S1"), results(tasks=TASKS[1:], sequence="S1")])
    assert list(run_table(runs)["sequence"]) == ["S1: aircraft, textures", "S1: textures, flowers"]
