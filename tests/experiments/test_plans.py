"""The paper's tables as plans: what is in them, which runs they share, and what they cost."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import as_words
from method_runs import BEYOND_THE_PAPER, LEARNING
from tasso.cli import main
from tasso.config import from_dict
from tasso.errors import ConfigError
from tasso.experiments.paper import cost_of, make_setup, read_rates, run_plans, steps_of
from tasso.experiments.plans import BEYOND, GROWTH, PLANS, SEED, TIMED, OfWidth, Plan, Setup, all_jobs, chosen
from tasso.experiments.record import make_record
from tasso.experiments.sweep import Job
from tasso.experiments.sweep.run_jobs import Execution
from tasso.methods import METHODS
from tasso.methods.defaults import NANO_RATES
from tasso.training.resolve import resolve

PAPER = Setup(common={"benchmark": "mtil", "data_root": "DATA", "model": "ViT-B-16-quickgelu"})
NANO = make_setup({"benchmark": "mtil-mini", "data_root": "DATA", "steps": 300})

# Runs of each plan with one seed, from the paper's tables.
COUNTS = {
    "main": 64, "components": 6, "rank": 3, "alpha": 3, "beta": 3, "whole-kd": 2, "optimisation": 4, "distances": 9,
    "seeds": 14, "compute": 3, "matrices": 1, "alignment": 2, "datasets": 0, "sequences": 0, "projector": 5,
    "both-towers": 16,
}  # fmt: skip


def only(plan: str, label: str, setup: Setup = PAPER) -> Job:
    """The run behind a row that has one."""
    [row] = [row for row in PLANS[plan].rows if row.label == label]
    [job] = PLANS[plan].jobs_of(row, setup).values()
    return job


def hyper(job: Job) -> dict[str, Any]:
    return resolve(job.config(Path()))[1].hyper_parameters()


@pytest.mark.slow
@pytest.mark.parametrize("setup", [PAPER, NANO, make_setup({})], ids=["paper", "nano", "atlas"])
def test_every_plan_has_the_papers_runs_and_all_are_understood(setup: Setup) -> None:
    assert {name: len(plan.jobs(setup)) for name, plan in PLANS.items()} == COUNTS
    assert {name: len(plan.jobs(setup)) for name, plan in BEYOND.items()} == {
        "both-parts": 14 * 2 * 3, "open-directions": 4 * 2 * 3,
    }  # fmt: skip
    for job in all_jobs([*PLANS.values(), *BEYOND.values()], setup):
        config, method = resolve(job.config(Path("runs"), precision="auto"))
        assert config.method["name"] == method.name


@pytest.mark.slow
def test_plans_share_runs() -> None:
    tasso = PLANS["matrices"].jobs(PAPER)[0]
    assert tasso == Job(PAPER.common)  # the paper's setting is the default, however it is written
    for name in ("main", "components", "rank", "alpha", "beta", "whole-kd", "optimisation", "distances", "seeds",
                 "alignment", "projector"):  # fmt: skip
        assert tasso in PLANS[name].jobs(PAPER), name
    assert only("distances", "f⊥ ✗, f∥ ✗") == only("components", "no KD, subspace")
    assert only("distances", "f⊥ L2, f∥ L2") == only("components", "L2, subspace")
    assert len(all_jobs(list(PLANS.values()), PAPER)) == 112 < sum(COUNTS.values())
    # Timed runs have the machine to themselves, so they are other runs, and come last.
    assert not set(PLANS["compute"].jobs(PAPER)) & set(PLANS["components"].jobs(PAPER))
    assert [job.tag for job in all_jobs(list(PLANS.values()), PAPER)][-4:] == ["", TIMED, TIMED, TIMED]


def test_the_first_seed_of_all_rows_comes_first() -> None:
    seeds = [job.options["seed"] for job in all_jobs([BEYOND["both-parts"]], PAPER)]
    assert seeds == [1102] * 28 + [1] * 28 + [2] * 28


def test_ranks_are_the_papers_share_of_the_embedding() -> None:
    ranks = [[hyper(job)["rank"] for job in PLANS["rank"].jobs(setup)] for setup in (PAPER, NANO)]
    assert ranks == [[72, 144, 288], [36, 72, 144]]
    assert {hyper(job)["rank"] for job in PLANS["components"].jobs(NANO)} == {72}
    row = PLANS["rank"].rows[0]
    assert row.label_at(PAPER) == "r = 72"
    assert row.label_at(NANO) == "r = 36 of 256 (paper: 72 of 512)"
    assert OfWidth(1).scaled(64) == 1


def test_rows_are_those_of_the_paper() -> None:
    assert [row.method for row in PLANS["main"].rows] == [
        "finetune", "lwf", "icarl", "zscl", "moe-adapters", "gift", "snd", "tasso",
    ]  # fmt: skip
    assert set(METHODS) - BEYOND_THE_PAPER == {row.method for row in PLANS["main"].rows}
    assert [tuple(row.cells.values()) for row in PLANS["components"].rows] == [
        ("✗", "✗"), ("L2", "✗"), ("geo", "✗"), ("✗", "✓"), ("L2", "✓"), ("geo", "✓"),
    ]  # fmt: skip
    assert sorted(seed for _, seed in PLANS["seeds"].jobs_of(PLANS["seeds"].rows[0], PAPER)) == [
        42, 123, 1102, 1234, 12345, 123456, 1234567,
    ]  # fmt: skip
    for plan, key, values in (("alpha", "alpha", [0.1, 0.5, 1.0]), ("beta", "beta", [1.5, 3.0, 6.0])):
        assert [hyper(job)[key] for job in PLANS[plan].jobs(PAPER)] == values
    for name in ("components", "rank", "alpha", "beta", "distances"):
        [ours] = [row for row in PLANS[name].rows if row.ours]
        assert PLANS[name].jobs_of(ours, PAPER)["S1", SEED] == Job(PAPER.common), name


def test_ablations_do_what_their_labels_say() -> None:
    plain = hyper(only("components", "no KD, no subspace"))
    assert (plain["alpha"], plain["beta"]) == (0, 0)
    l2 = hyper(only("components", "L2, no subspace"))
    assert (l2["alpha"], l2["kd_parallel"], l2["kd_perpendicular"], l2["kd_whole"]) == (0, "none", "none", "l2")
    whole = hyper(only("whole-kd", "KD on the undivided embedding"))
    assert (whole["alpha"], whole["kd_parallel"], whole["kd_whole"]) == (0.5, "none", "geodesic")
    mixed = hyper(only("distances", "f⊥ L2, f∥ geo"))
    assert (mixed["kd_perpendicular"], mixed["kd_parallel"]) == ("l2", "geodesic")
    assert hyper(only("optimisation", "TASSO (no L_sub sup.)"))["subspace_gradient"] == "projector"
    assert hyper(only("optimisation", "TASSO (proj-dec)"))["optimise"] == "projector-first"
    assert hyper(only("optimisation", "TASSO (alt)"))["optimise"] == "alternate"
    assert hyper(only("projector", "frozen random projector"))["train_projector"] is False
    assert hyper(only("projector", "projector started from the class texts"))["projector_init"] == "texts"
    assert hyper(only("projector", "exact angle"))["angle"] == "exact"
    for setup, rate in ((PAPER, 1e-5), (NANO, 1e-4)):
        fast = hyper(only("projector", "projector learning rate × 100", setup))
        assert fast["projector_lr"] == pytest.approx(100 * rate)
    without = hyper(only("compute", "TASSO without subspace learning"))
    assert (without["alpha"], without["kd_whole"]) == (0, "geodesic")


def test_seeds_and_sequences_can_be_asked_for() -> None:
    setup = make_setup({}, seeds=(1, 2, 3), main_seeds=(4, 5), sequences=("S1", "S2"))
    assert PLANS["main"].seeds_at(setup) == (4, 5)
    assert PLANS["components"].seeds_at(setup) == (1, 2, 3)
    assert len(PLANS["seeds"].seeds_at(setup)) == 7
    assert PLANS["matrices"].seeds_at(setup) == (SEED,)
    assert len(PLANS["main"].jobs(setup)) == 8 * 2 * 2
    assert PLANS["components"].sequences_at(setup) == ("S1",)


@pytest.mark.slow
def test_rates_are_those_of_the_model() -> None:
    rates = {name: float(options["lr"]) for name, options in read_rates(NANO_RATES).items()}
    assert set(rates) == set(LEARNING)
    for job in PLANS["main"].jobs(NANO):
        assert job.config(Path()).lr == rates[job.options["method"]["name"]]
    openai = make_setup({"model": "ViT-B-16-quickgelu", "pretrained": "openai"})
    assert openai.width == 512
    assert all("lr" not in job.options for job in PLANS["main"].jobs(openai))


@pytest.mark.slow
def test_rates_and_options_of_methods_may_be_given(tmp_path: Path) -> None:
    file = tmp_path / "rates.yaml"
    file.write_text("tasso: 1e-3\nsnd: {lr: 2e-3, weight-decay: 0}\n")
    setup = make_setup({}, rates=file, by_method={"snd": {"lr": 3e-3}})
    by_method = {job.options["method"]["name"]: job.config(Path()) for job in PLANS["seeds"].jobs(setup)}
    assert (by_method["tasso"].lr, by_method["snd"].lr, by_method["snd"].weight_decay) == (1e-3, 3e-3, 0)
    assert only("projector", "exact angle", setup).config(Path()).lr == 1e-3
    assert PLANS["main"].jobs(setup)[40].options["method"] == {"name": "gift", "generator": "atlas"}
    with pytest.raises(ConfigError, match="lr: every method has a rate of its own"):
        make_setup({"lr": 1e-4})
    with pytest.raises(ConfigError, match="for: no method 'magic'"):
        make_setup({}, by_method={"magic": {}})
    file.write_text("magic: 1\n")
    with pytest.raises(ConfigError, match=r"rates\.yaml: no method 'magic'"):
        make_setup({}, rates=file)


def test_steps_are_those_of_the_step_rule() -> None:
    job = PLANS["matrices"].jobs(PAPER)[0]
    assert steps_of(job) == 9956
    assert steps_of(Job({**job.options, "protocol": "paper"})) == 7800
    assert steps_of(Job({**job.options, "steps": 300, "limit_tasks": 3})) == 900
    assert steps_of(Job({})) == 8 * 10 * (12 * 64 // 32)
    in_steps = {"benchmark": "atlas-classes-24"}
    assert steps_of(Job(in_steps)) == 24 * 10 * (4 * 64 // 32)
    assert steps_of(Job({**in_steps, "steps": 7, "limit_tasks": 3})) == 21


def test_plans_are_chosen_by_name() -> None:
    assert [plan.name for plan in chosen(["rank", "main", "rank"])] == ["main", "rank"]
    assert len(chosen(["all"])) == len(PLANS)
    with pytest.raises(ConfigError, match=r"no plan 'magic'\. Did you mean 'main'\? There are: main, components"):
        chosen(["magic"])


def test_plans_of_growth_have_benchmarks_of_their_own() -> None:
    plans = chosen(["growth"])
    assert [plan.name for plan in plans] == list(GROWTH)
    for plan in plans:
        assert {row.method for row in plan.rows} == set(LEARNING)
        assert plan.setup_at(NANO).benchmark == plan.name, "whatever is asked"
        assert plan.setup_at(NANO).common["steps"] == 300, "what is asked"
        assert plan.seeds_at(NANO) == (SEED, 1, 2)
    [job] = GROWTH["atlas-styles"].jobs(make_setup({}, main_seeds=(3,)))[5:6]
    assert job.options["method"] == {"name": "gift", "generator": "atlas"}
    assert (job.options["steps"], job.options["seed"]) == (120, 3)


def test_timed_runs_need_a_machine_to_themselves(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plan compute.*local"):
        run_plans(chosen(["compute"]), PAPER, tmp_path, Execution(engine="ray"))


# -- the command -------------------------------------------------------------------------------------------------


def test_list_and_what_is_missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["paper", "--list"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [*PLANS, *BEYOND, *GROWTH]
    for words in (["main"], ["--out", str(tmp_path)]):
        with pytest.raises(SystemExit) as stop:
            main(["paper", *words])
        assert stop.value.code == 2
        assert "name one plan or more" in capsys.readouterr().err


def test_the_record_has_all_plans_that_may_share_runs() -> None:
    """What was run for other plans in the same folder is still known."""
    recorded = {plan for plan, _ in make_record(NANO, chosen(["beyond"])).names}
    assert recorded == {name for name, plan in {**PLANS, **BEYOND}.items() if plan.rows}


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Setup, Path, list[Plan]]]:
    """Calls of the report, which others test."""
    calls: list[tuple[Setup, Path, list[Plan]]] = []
    monkeypatch.setattr(
        "tasso.report.paper.report.write_evaluation",
        lambda evaluation, out, plans, **_: calls.append((evaluation.record.setup, out, plans)),
    )
    return calls


@pytest.mark.slow
def test_paper_counts_learns_and_reports(
    quick: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], reports: list[Any]
) -> None:
    out = tmp_path / "paper"
    common = {key: value for key, value in quick.items() if key not in ("out", "method", "sequence", "lr")}
    words = ["paper", "matrices", "alignment", "datasets", "--out", str(out), *as_words({**common, "limit_tasks": 2})]
    words += ["--for", "tasso", "method.rank=6", "lr=1e-3", "--for", "snd", "lr=1e-3"]
    main([*words, "--dry-run"])
    said = capsys.readouterr().out
    assert "matrices: 1 run\nalignment: 2 runs\ndatasets: needs no runs\n" in said
    assert "together: 2 runs (1 shared between plans)\nfinished already: 0; left: 2 runs, 16 steps" in said
    assert "time: not known" in said
    assert not out.exists()
    assert not reports
    main(words)
    said = capsys.readouterr().out
    assert "2 finished" in said
    [(recorded, folder, plans)] = reports
    assert folder == out
    assert (recorded.benchmark, recorded.width) == (common["benchmark"], 24)
    by_method = {"tasso": {"method.rank": 6, "lr": 1e-3}, "snd": {"lr": 1e-3}}
    setup = make_setup({**common, "limit_tasks": 2}, by_method=by_method)
    for plan in plans:
        for job in plan.jobs(setup):
            results = json.loads((out / "runs" / job.name / "results.json").read_text())
            assert results["finished"]
    main([*words, "--dry-run", "--seeds", "1,2"])
    assert "finished already: 2; left: 0 runs, 0 steps\n" in capsys.readouterr().out
    cost = cost_of(chosen(["matrices", "seeds"]), setup, out, Execution(device="cpu"))
    assert (cost.runs, cost.finished, cost.measured) == (14, 2, 2)
    assert cost.seconds is not None
    assert cost.seconds > 0
    assert "estimate, from the speed of 2 runs in this folder" in cost.lines()[-1]
    file = out / "runs" / plans[0].jobs(setup)[0].name / "results.json"
    results = json.loads(file.read_text())
    results["per_task"][0]["preparing_seconds"] += 1e6
    file.write_text(json.dumps(results))
    slower = cost_of(chosen(["matrices", "seeds"]), setup, out, Execution(device="cpu"))
    assert slower.seconds is not None
    assert slower.seconds > 1e6, "time before the first step counts"


def test_a_dry_run_lists_runs_and_missing_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    main(
        ["paper", "matrices", "--benchmark", "mtil-mini", "--data-root", str(tmp_path), "--out", str(out), "--dry-run"]
    )
    said = capsys.readouterr().out
    assert "\n  tasso-S1-1102-rank=72-benchmark=mtil-mini" in said
    assert len(re.findall("missing data: data set '.*' not found", said)) == 8
    short = ["--steps", "3", "--limit-tasks", "2", "--out", str(out), "--dry-run"]
    main(["demo", "--full", *short])
    said = capsys.readouterr().out
    assert "left: 9 runs, 54 steps" in said
    assert "time: not known" in said
    assert len(re.findall(r"^  \w.*-S1-1102", said, re.MULTILINE)) == 9
    assert "missing data: none" in said
    main(["demo", *short])
    assert f"{out / 'tasso'}: 2 tasks, 3 steps per task" in capsys.readouterr().out
    assert not out.exists()


def test_options_of_plans_reach_the_runs() -> None:
    job = only("rank", "r = 288", NANO)
    assert from_dict({**job.options, "out": "x"}).method == {"name": "tasso", "rank": 144}
