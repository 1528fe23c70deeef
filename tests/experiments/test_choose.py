"""`tasso sweep --choose`: options by method with the best accuracy on validation images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from conftest import as_words
from run_results import results
from tasso.cli import main
from tasso.errors import ConfigError
from tasso.experiments.sweep import Grid, Job
from tasso.experiments.sweep.choose import Choice, Tried, choices, for_choice, read_rates, write_chosen
from tasso.experiments.sweep.jobs import full_identity
from tasso.methods.defaults import NANO_RATES
from tasso.report.choice import choice_table, tried_runs
from tasso.report.formats import to_markdown
from tasso.training.run_folder import RunFolder

ROOT = Path(__file__).parents[2]


def write_sweep(jobs: list[Job], folder: Path, accuracy: Callable[[dict[str, Any]], float | None]) -> None:
    """The run folders of a sweep; `accuracy` is that of a run in MTIL, None: it has failed."""
    for job in jobs:
        options = full_identity(job.options)
        found, method = accuracy(options), options["method.name"]
        (folder / job.name).mkdir(parents=True)
        content = results(method.upper(), options["seed"], sequence=options["sequence"], method=method, split="val")
        if found is None:
            content = content | {"finished": False}
        else:
            content["mtil"]["metrics"]["accuracy"] = found
            content["mcil"]["metrics"]["accuracy"] = 100 - found
        (folder / job.name / "results.json").write_text(json.dumps(content))


GRID = Grid(methods=("tasso", "snd"), seeds=(1, 2), overrides={"lr": ("1e-5", "1e-4", "1e-3"), "method.rank": (6, 12)})


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    return GRID.jobs()


MEANS = {1e-5: 41.0, 1e-4: 48.0, 1e-3: 36.0}


def test_the_best_mean_over_seeds_decides(jobs: list[Job], tmp_path: Path) -> None:
    def accuracy(options: dict[str, Any]) -> float:
        lucky = 30 if (options["lr"], options["seed"]) == (1e-3, 2) and options["method.name"] == "snd" else 0
        return MEANS[options["lr"]] + (options["seed"] == 2) + 0.1 * (options.get("method.rank") == 12) + lucky

    write_sweep(jobs, tmp_path, accuracy)
    chosen = choices(jobs, GRID.overrides, tmp_path, "mtil")
    assert [(one.method, one.best and one.best.options) for one in chosen] == [
        ("tasso", {"lr": 1e-4, "method.rank": 12}), ("snd", {"lr": 1e-3}),
    ]  # fmt: skip
    assert [len(one.tried) for one in chosen] == [6, 3], "SnD has no rank"
    assert [one.at_end for one in chosen] == [["method.rank"], ["lr"]]
    file = tmp_path / "chosen.json"
    write_chosen(chosen, file)
    assert read_rates(file) == {"tasso": {"lr": 1e-4, "method.rank": 12}, "snd": {"lr": 1e-3}}
    text = to_markdown(choice_table(chosen, "mtil"))
    assert "lr at the end of the values tried" in text
    assert "Accuracy in percent on validation images" in text
    by_mcil = choices(jobs, GRID.overrides, tmp_path, "mcil")
    assert by_mcil[0].best is not None
    assert by_mcil[0].best.options == {"lr": 1e-3, "method.rank": 6}, "the setting matters"
    means = [one.mean for one in choices(jobs, GRID.overrides, tmp_path, "mean")[0].tried]
    assert means == pytest.approx([50.0] * 6)


def test_a_combination_with_a_failed_run_is_not_chosen(jobs: list[Job], tmp_path: Path) -> None:
    def accuracy(options: dict[str, Any]) -> float | None:
        failed = (options["lr"], options["seed"]) == (1e-3, 2) or options["method.name"] == "snd"
        return None if failed else 1e5 * options["lr"]

    write_sweep(jobs, tmp_path, accuracy)
    tasso, snd = choices(jobs, GRID.overrides, tmp_path, "mtil")
    assert tasso.best is not None
    assert tasso.best.options["lr"] == 1e-4
    assert "lr" not in tasso.at_end, "a larger one was tried"
    assert snd.best is None
    assert "2 of 6 combinations not finished" in to_markdown(choice_table([tasso, snd], "mtil"))
    table = tried_runs(jobs, list(GRID.overrides), tmp_path)
    assert set(table["method"]) == {"tasso"}
    assert list(zip(table["lr"], table["seed"], table["mtil_accuracy"], strict=True))[-2:] == [
        (1e-3, 1, 100.0), (1e-3, 1, 100.0),
    ]  # fmt: skip
    recorded = pd.read_csv(ROOT / "results" / "paper-learning-rates.csv").columns
    assert set(recorded) <= set(table.columns), "what draws that table can draw this one"


def test_of_equal_combinations_the_smaller_rate_is_chosen() -> None:
    tried = [Tried({"lr": lr}, [accuracy]) for lr, accuracy in ((3e-4, 50.0), (1e-4, 50.0), (1e-5, 49.0))]
    best = Choice("tasso", tried).best
    assert best is not None
    assert best.options == {"lr": 1e-4}


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"common": {"evaluate_on": "test"}}, "by the images that judge them"),
        ({"by_method": {"tasso": {"evaluate_on": "test"}}}, "by the images that judge them"),
        ({"overrides": {}}, "choose: needs --set"),
    ],
)
def test_nothing_is_chosen_by_test_images(more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        for_choice(Grid(**{"overrides": {"lr": (1e-4,)}, **more}))


def test_shipped_rates_are_the_best_of_the_study() -> None:
    best = {}
    for tasks in (4, 8):  # on eight tasks, or else on four
        tried = pd.read_csv(ROOT / "results" / f"validation-rates-{tasks}-tasks.csv")
        assert set(tried["split"]) == {"val"}
        rows = tried.loc[tried.groupby("method")["mtil_accuracy"].idxmax()]
        best |= {row["method"]: (row["lr"], row["method.text_lr_factor"]) for _, row in rows.iterrows()}
    shipped = read_rates(NANO_RATES)
    assert {name: float(options["lr"]) for name, options in shipped.items()} == {
        name: lr for name, (lr, _) in best.items()
    }
    assert shipped["tasso-both"]["method.text_lr_factor"] == best["tasso-both"][1]


@pytest.mark.slow
def test_from_a_sweep_to_runs_with_what_was_chosen(
    quick: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = as_words({key: value for key, value in quick.items() if key not in ("method", "out", "lr", "sequence")})
    sweep = ["sweep", *common, "--methods", "finetune", "--sequences", "S2", "--limit-tasks", "1", "--jobs", "1"]
    out = tmp_path / "rates"
    main([*sweep, "--set", "lr=1e-5,1e-3,1e30", "--choose", "mtil", "--out", str(out)])  # the last one diverges
    said = capsys.readouterr().out
    assert "2 finished, 1 failed" in said
    chosen = json.loads((out / "chosen.json").read_text())
    assert chosen["finetune"]["lr"] in (1e-5, 1e-3)
    assert pd.read_csv(out / "tried.csv")["split"].tolist() == ["val", "val"]
    main([*sweep, "--rates", str(out / "chosen.json"), "--out", str(tmp_path / "final")])
    [run] = (tmp_path / "final").glob("finetune-*/results.json")
    assert json.loads(run.read_text())["split"] == "test"
    assert RunFolder(run.parent).read_config().lr == chosen["finetune"]["lr"]
