"""Many runs: names, grids, workers that die, sweeps that are killed or stopped, and clusters."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from conftest import as_words
from tasso.cli import main
from tasso.config import RunConfig, from_dict, options_of
from tasso.data.annotated import FolderSource
from tasso.data.images.shared import place_for_images
from tasso.errors import ConfigError, RunError, install
from tasso.experiments.sweep import Grid, Job, make_grid, on_ray, parse_for, parse_values, read_grid
from tasso.experiments.sweep import mps as mps_module
from tasso.experiments.sweep.devices import devices_for, fitting, run_bytes
from tasso.experiments.sweep.jobs import distinct, resolved_identity
from tasso.experiments.sweep.mps import mps
from tasso.experiments.sweep.run_jobs import Execution, check, is_finished, log_file, run_jobs
from tasso.experiments.sweep.work import Outcome, Work, perform
from tasso.models.loading import CONFIG_NAME, NANO
from tasso.training.evaluator import evaluate
from tasso.training.learner import learn
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder

TESTS = Path(__file__).parents[1]

# -- names -------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "benchmark": st.sampled_from(["atlas", "mtil-mini"]),
    "sequence": st.sampled_from(["S1", "s1", "S2", "dtd,eurosat", "dtd, eurosat"]),
    "seed": st.sampled_from([1102, 1, 2]),
    "lr": st.sampled_from([None, 1e-5, "1e-5", 1e-4, 1, 1.0]),
    "steps": st.sampled_from([None, 1, 300]),
    "betas": st.sampled_from([[0.9, 0.999], [0.9, 0.98], (0.9, 0.98)]),
    "protocol": st.sampled_from(["code", "paper"]),
    "template": st.sampled_from([None, "a photo of a {}.", "The photo of {}", "x={}"]),
    "pretrained": st.sampled_from([None, "a/b", "a=b", "true"]),
    "precision": st.sampled_from(["auto", "float32"]),
    "workers": st.sampled_from([0, 3]),
    "data_root": st.sampled_from([None, "here", "there"]),
    "device": st.sampled_from(["auto", "cpu"]),
}
HYPER: dict[str, st.SearchStrategy[Any]] = {
    "rank": st.sampled_from([144, 72]),
    "alpha": st.sampled_from([0.5, 0, 0.0, 1]),
    "angle": st.sampled_from([None, "clamped", "exact"]),
    "train_projector": st.booleans(),
    "projector_lr": st.sampled_from([None, 1e-3]),
    "kd_whole": st.sampled_from(["none", "l2"]),
}
METHOD = st.one_of(
    st.sampled_from(["tasso", "snd", "lwf"]).map(lambda name: {"name": name}),
    st.fixed_dictionaries({"name": st.just("tasso")}, optional=HYPER),
)
RUNS = st.fixed_dictionaries({"method": METHOD}, optional=OPTIONS)


@pytest.mark.slow
@given(RUNS, RUNS, st.sampled_from(["", "timed"]), st.sampled_from(["", "timed"]))
def test_names_are_equal_exactly_where_runs_are(
    one: dict[str, Any], other: dict[str, Any], tag: str, other_tag: str
) -> None:
    same = (resolved_identity(one), tag) == (resolved_identity(other), other_tag)
    assert (Job(one, tag).name == Job(other, other_tag).name) == same
    assert (Job(one, tag) == Job(other, other_tag)) == same


@pytest.mark.slow
@given(RUNS, st.sampled_from(sorted(OPTIONS)), st.data())
def test_one_option_more_changes_the_name_only_if_it_changes_the_run(
    options: dict[str, Any], key: str, data: st.DataObject
) -> None:
    changed = {**options, key: data.draw(OPTIONS[key])}
    same = resolved_identity(options) == resolved_identity(changed)
    assert (Job(options).name == Job(changed).name) == same
    if key in options_of(RunConfig, identity=False):
        assert same


@pytest.mark.slow
@given(RUNS)
def test_names_are_file_names_and_configs_that_learn_accepts(options: dict[str, Any]) -> None:
    name = Job(options).name
    assert name == Path(name).name
    assert len(name) < 120
    assert not set(name) & set(" /\\'\"*?[]{}()$&;|<>!,")
    assert Job(options).config(Path("runs")).out == Path("runs") / name


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "tasso-S1-1102-rank=72-lr=0.0001"),  # those of nano
        ({"model": "ViT-B-16"}, "tasso-S1-1102-model=ViT-B-16"),
        ({"method": "moe-adapters", "sequence": "s3", "seed": 1}, "moe-adapters-S3-1-lr=0.003"),
        ({"method": {"name": "tasso", "rank": 144, "alpha": 0.5}, "lr": 1e-5}, "tasso-S1-1102"),
        ({"method": {"name": "tasso", "rank": 72}, "steps": 300}, "tasso-S1-1102-rank=72-steps=300-lr=0.0001"),
        ({"method": {"name": "snd"}, "lr": 1e-5, "check_counts": False}, "snd-S1-1102-check_counts=false"),
        ({"data_root": "x", "workers": 3, "device": "cpu", "save_every": 1}, "tasso-S1-1102-rank=72-lr=0.0001"),
    ],
)
def test_names_are_readable(options: dict[str, Any], name: str) -> None:
    assert Job(options).name == name


def test_a_job_leaves_folder_label_and_overwriting_to_the_sweep() -> None:
    for key, value in (("out", "x"), ("label", "mine"), ("overwrite", True)):
        with pytest.raises(ConfigError, match=f"{key}: is not for runs of a sweep"):
            Job({key: value})
    assert Job({}, "timed").name == "tasso-S1-1102@timed-rank=72-lr=0.0001"
    with pytest.raises(ConfigError, match="tag: must be small letters"):
        Job({}, "a/b")


@pytest.mark.parametrize(
    ("options", "moved", "name"),
    [
        ({"data_root": "/a/data"}, {"data_root": "/b"}, "tasso-S1-1102-rank=72-lr=0.0001"),
        ({"method": "zscl", "reference_texts": "/a/x.txt"}, {"reference_texts": "x.txt"},
         "zscl-S1-1102-reference_texts=x.txt-lr=3e-05"),
        ({"method": {"name": "gift", "generator": "retrieval", "generator_source": "/a/images"}},
         {"method": {"name": "gift", "generator": "retrieval", "generator_source": "other/images"}},
         "gift-S1-1102-generator=retrieval-generator_source=images-lr=0.001"),
        ({"pack_dir": "/a/packs"}, {"pack_dir": "packs"}, "tasso-S1-1102-rank=72-pack_dir=given-lr=0.0001"),
        ({"model": "ViT-B-16", "pretrained": "/a/mine.pt"}, {"pretrained": "/b/mine.pt"},
         "tasso-S1-1102-model=ViT-B-16-pretrained=mine.pt"),
        ({"template": "/a/prompts.txt"}, {"template": "b/prompts.txt"},
         "tasso-S1-1102-rank=72-template=prompts.txt-lr=0.0001"),
    ],
)  # fmt: skip
def test_names_do_not_say_where_files_lie(options: dict[str, Any], moved: dict[str, Any], name: str | None) -> None:
    here, there = Job(options), Job({**options, **moved})
    assert here.name == there.name == (name or here.name)
    if "data_root" in options:
        assert distinct([here, there]) == [here]
    else:  # two files in one sweep are two runs, and must not become one in silence
        with pytest.raises(ConfigError, match=r"would be one run, .* \(--out\)"):
            distinct([here, there])


def test_other_models_have_other_names(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a/tiny", "b/c/tiny", "a/small")]
    for folder in folders:
        folder.mkdir(parents=True)
        shutil.copy(NANO / CONFIG_NAME, folder)
    one, moved, other = (Job({"model": f"local-dir:{folder}"}) for folder in folders)
    assert one.name == moved.name != other.name
    with pytest.raises(ConfigError, match=r"would be one run, .* \(--out\)"):
        distinct([one, moved])
    assert Job({"template": "a {}"}).name != Job({"template": "the {}"}).name


# -- grids -------------------------------------------------------------------------------------------------------


def test_grid_multiplies_and_gives_each_method_what_it_has() -> None:
    grid = Grid(
        ("tasso", "snd"), ("S1", "S2"), (1102, 1), {"steps": 3}, {"method.rank": (8, 16)}, {"snd": {"lr": 1e-4}}
    )
    jobs = grid.jobs()
    assert len(jobs) == 2 * 2 * 2 + 2 * 2
    assert all(job.options["steps"] == 3 for job in jobs)
    for job in jobs:
        method = job.options["method"]
        assert ("rank" in method) == (method["name"] == "tasso")
        assert job.options.get("lr") == (1e-4 if method["name"] == "snd" else None)


def test_what_is_set_wins_over_what_is_for_a_method_and_that_over_what_is_common() -> None:
    common, own = {"lr": 1.0, "steps": 1, "batch_size": 8}, {"tasso": {"lr": 2.0, "steps": 2}}
    [job] = Grid(common=common, by_method=own, overrides={"lr": (3.0,)}).jobs()
    assert (job.options["lr"], job.options["steps"], job.options["batch_size"]) == (3.0, 2, 8)


def test_rates_as_multiples_of_the_methods_own() -> None:
    grid = Grid(("tasso", "zscl", "snd"), overrides={"lr": ("x0.3", "x3")}, by_method={"snd": {"lr": 2e-4}})
    rates = [(job.options["method"]["name"], job.options["lr"]) for job in grid.jobs()]
    assert rates == [
        ("tasso", 3e-5), ("tasso", 3e-4), ("zscl", 9e-6), ("zscl", 9e-5), ("snd", 6e-5), ("snd", 6e-4)
    ]  # fmt: skip
    grid = Grid(("tasso",), overrides={"lr": ("x3",), "model": ("nano", "ViT-B-16-quickgelu")})
    assert [job.options["lr"] for job in grid.jobs()] == [3e-4, 3e-5], "of the model that the run has"


@pytest.mark.slow
def test_words_and_file_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "methods: [tasso, snd]\nsequences: [S1, S2]\nseeds: 7\nsteps: 5\nset:\n  method.rank: [8, 16]\n"
        "  betas: [[0.9, 0.98], [0.9, 0.99]]\nfor:\n  snd: {lr: 1e-4, weight-decay: 0}\n"
    )
    words = ["--methods", "tasso,snd", "--sequences", "S1,S2", "--seeds", "7", "--steps", "5", "--set"]
    words += ["method.rank=8,16", "betas=[0.9,0.98],[0.9,0.99]", "--for", "snd", "lr=1e-4", "weight-decay=0"]
    listed = []
    for more in (words, ["--config", str(file)], ["--config", str(file), "--seeds", "8"]):
        main(["sweep", "--out", str(tmp_path / "runs"), "--dry-run", *more])
        listed.append(capsys.readouterr().out.splitlines())
    assert listed[0] == listed[1]
    assert len(listed[0]) == 2 * 2 * 2 + 2 * 2
    assert listed[2] != listed[1]
    assert len(listed[2]) == len(listed[1])
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--methods", "tasso,magic"], "methods: no method 'magic'"),
        (["--methods", "snd", "--set", "method.rank=3"], "method.rank: none of snd has such an option"),
        (["--set", "method.rank"], "set: expected KEY=VALUE, not 'method.rank'"),
        (["--set", "sequence=S1,S2"], "sequence: in a sweep these are sequences"),
        (["--set", "lr=["], "set: 'lr=[': the value cannot be parsed"),
        (["--for", "snd", "lr=1"], "for: snd is not among the methods"),
        (["--for", "tasso", "lr=1,2"], "for tasso: lr has several values"),
        (["--for", "tasso"], "for tasso: expected KEY=VALUE"),
        (["--set", "stps=3"], "unknown key 'stps'"),
        (["--set", "method.rank=0"], "method.rank: must be at least 1"),
        (["--seeds", "a"], "seeds: expected whole numbers"),
        (["--sequences", "S9"], "sequence: S9 does not exist"),
        (["--benchmark", "mtil"], "data_root: benchmark mtil needs --data-root"),
        (["--gpus", "0", "--device", "cpu"], "gpus: the device is cpu"),
        (["--jobs", "0"], "jobs: must be at least 1, not 0"),
    ],
)
def test_what_cannot_be_meant_is_named_before_anything_runs(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["sweep", "--out", str(tmp_path / "runs"), *words])
    assert stop.value.code == 2
    assert complaint in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*/*"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("method: tasso\n", "method: in a sweep these are methods"),
        ("stps: 3\n", "unknown key 'stps'"),
        ("out: here\n", "unknown key 'out'"),
        ("set: 3\n", "set: expected 'key: value' lines"),
        ("for: {snd: 3}\n", "for: snd: expected 'key: value' lines"),
    ],
)
def test_bad_sweep_files_are_named(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=complaint) as error:
        read_grid(file)
    assert "sweep.yaml" in str(error.value)


def test_shipped_sweeps_are_understood() -> None:
    for name, count in (("sweep-atlas", 12), ("sweep-growth-rates", 36)):
        jobs = make_grid(read_grid(TESTS.parent / "examples" / f"{name}.yaml"), {}).jobs()
        check(jobs)
        assert len(jobs) == count


def test_command_line_wins_over_the_file() -> None:
    file = {"seeds": (1,), "common": {"steps": 1, "lr": 1.0}, "by_method": {"tasso": {"warmup": 1, "lr": 2.0}}}
    own = {"seeds": (2, 3), "methods": None, "common": {"steps": 9}, "by_method": {"tasso": {"lr": 3.0}}}
    grid = make_grid(file, own)
    assert grid.seeds == (2, 3)
    assert grid.common == {"steps": 9, "lr": 1.0}
    assert grid.by_method == {"tasso": {"warmup": 1, "lr": 3.0}}
    assert parse_values(["a=1,x", "b=true"], "set") == {"a": (1, "x"), "b": (True,)}
    assert parse_for([["gift", "method.generator-source=a/b"]]) == {"gift": {"method.generator_source": "a/b"}}


# -- how many at once --------------------------------------------------------------------------------------------


def test_runs_that_share_a_gpu_fit_into_it() -> None:
    nano, large = Job({}), Job({"model": "ViT-B-16-quickgelu"})
    each = run_bytes(from_dict({}))
    jobs = [Job({"seed": seed}) for seed in range(40)]
    assert fitting(jobs, 5 * each, 16) == 5
    assert fitting(jobs, 5 * each - 1, 16) == 4
    assert fitting(jobs, 10**15, 16) == 16
    assert fitting(jobs[:2], 10**15, 16) == 2
    assert fitting([nano, large], 5 * each, 16) == 1
    assert fitting([Job({"model": "RN50"})], 10**12, 16) == 1
    assert run_bytes(from_dict({"batch_size": 64})) > each
    # What was measured on an H200 (results/, docs/performance.md), and CUDA's own half GiB or so.
    assert each > (1.34 + 0.5) * 2**30
    assert run_bytes(from_dict({"model": "ViT-B-16-quickgelu"})) > (10.96 + 0.5) * 2**30


def test_slots_on_a_cpu() -> None:
    assert devices_for([Job({})], Execution(device="cpu")) == ["cpu"]
    assert devices_for([Job({})], Execution(at_once=3, device="cpu")) == ["cpu"] * 3


def test_slots_on_gpus_fill_them_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (3 * run_bytes(from_dict({})), 0))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    jobs = [Job({"seed": seed}) for seed in range(9)]
    assert devices_for(jobs, Execution(at_once=2, gpus=(0, 2))) == ["cuda:0", "cuda:2", "cuda:0", "cuda:2"]
    assert devices_for(jobs, Execution(at_once=1)) == ["cuda:0", "cuda:1", "cuda:2"]
    assert devices_for(jobs, Execution(at_once=1, device="cuda:1")) == ["cuda:1"]
    assert len(devices_for(jobs, Execution(gpus=(1,)))) == 3  # three fit
    assert len(devices_for(jobs, Execution())) == 3 * 2  # eight cores for three of them
    with pytest.raises(ConfigError, match="gpus: there is no GPU 3"):
        devices_for(jobs, Execution(gpus=(3,)))


def test_timed_runs_come_last_and_have_the_machine_to_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tasso")
    calls = []

    def record(works: list[Work], devices: list[str], stop: Any, report: Any, fresh: bool = False) -> None:
        calls.append(([work.name for work in works], devices, fresh))
        report(Outcome(works[0].name, "failed", "no such folder"))

    monkeypatch.setattr("tasso.experiments.sweep.run_jobs.run_local", record)
    jobs = [Job({}, "timed"), Job({"seed": 1}), Job({"seed": 2}), Job({"seed": 1}, "timed")]
    summary = run_jobs(jobs, tmp_path, Execution(at_once=2, device="cpu"))
    assert calls == [
        ([f"tasso-S1-{seed}-rank=72-lr=0.0001" for seed in (1, 2)], ["cpu", "cpu"], False),
        ([f"tasso-S1-{seed}@timed-rank=72-lr=0.0001" for seed in (1102, 1)], ["cpu"], True),
    ]
    assert "2 failed, 2 left; the same command goes on" in summary.lines()[0]
    assert f"0 of 4 runs finished, 4 left; logs of single runs: {tmp_path / 'logs'}" in caplog.text
    assert "failed: no such folder; 0 of 4 runs finished, 2 failed, 2 left" in caplog.text


# -- one run -----------------------------------------------------------------------------------------------------


@pytest.fixture
def common(quick: dict[str, Any]) -> dict[str, Any]:
    """Options of runs that take a second, without those that a sweep gives."""
    return {key: value for key, value in quick.items() if key not in ("out", "method", "sequence")} | {
        "save_every": 2, "steps": 6,
    }  # fmt: skip


def job_of(common: Mapping[str, Any], seed: int = 1102, **method: Any) -> Job:
    return Job({**common, "sequence": "dtd,eurosat", "seed": seed, "method": {"name": "tasso", "rank": 6, **method}})


def work_of(job: Job, folder: Path, **more: Any) -> Work:
    return Work(job.name, job.config(folder).to_dict(), str(log_file(folder, job.name)), **more)


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "left"), [("all", 2), ("last", 1), ("none", 0)])
def test_checkpoints_that_are_kept(common: dict[str, Any], tmp_path: Path, keep: Any, left: int) -> None:
    job = job_of(common)
    assert perform(work_of(job, tmp_path, keep=keep)).status == "finished"
    folder = tmp_path / job.name
    assert len(list((folder / "checkpoints").iterdir())) == left
    config = from_dict({key: value for key, value in common.items() if key not in ("steps", "save_every")} |
                       {"sequence": "dtd,eurosat"})  # fmt: skip
    if left:
        assert evaluate(config, folder)["checkpoint"] == "eurosat"
    for after, there in ((None, left > 0), ("dtd", left > 1)):
        if not there:
            with pytest.raises(RunError, match=r"is missing; sweeps remove checkpoints.*--keep-checkpoints"):
                evaluate(config, folder, after)
    assert perform(work_of(job, tmp_path, keep=keep)).status == "finished"  # and is not learned again


def test_an_unfinished_run_loses_no_checkpoint(common: dict[str, Any], tmp_path: Path) -> None:
    job = job_of(common)
    learn(job.config(tmp_path))
    folder = RunFolder(tmp_path / job.name)
    results = folder.read_results()
    assert results
    folder.write_results({**results, "finished": False})
    folder.keep_checkpoints("none")
    assert len(list(folder.checkpoints.iterdir())) == 2


@pytest.mark.slow
def test_outcomes_are_told_and_logged(
    common: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = job_of(common, rank=99)
    outcome = perform(work_of(bad, tmp_path))
    assert (outcome.status, outcome.unexpected) == ("failed", False)
    assert "method.rank: must be below the embedding's length 24, not 99" in outcome.error
    assert not (tmp_path / bad.name).exists()
    job = job_of(common)
    folder, (config, _) = RunFolder(tmp_path / job.name), resolve(job.config(tmp_path))
    with folder.opened(config):
        assert perform(work_of(job, tmp_path)).status == "busy"
    for error, status, unexpected in (
        (MemoryError("no room\nat all"), "failed", True),
        (KeyboardInterrupt("enough"), "stopped", False),
    ):

        def fail(_: Any, error: BaseException = error) -> None:
            print("a last word")
            raise error

        monkeypatch.setattr("tasso.training.learner.learn", fail)
        outcome = perform(work_of(job, tmp_path))
        assert (outcome.status, outcome.unexpected) == (status, unexpected)
    text = log_file(tmp_path, job.name).read_text()
    assert "MemoryError: no room" in text
    assert "Traceback" in text
    assert text.count("a last word") == 2
    assert capfd.readouterr().out == ""
    outcome = perform(work_of(job, tmp_path, directory=str(tmp_path / "absent")))
    assert outcome.status == "failed"
    assert "absent" in outcome.error


# -- processes that die ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that tells child processes when to die, see dying/sitecustomize.py."""
    folder = tmp_path_factory.mktemp("deaths")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASSO_TEST_DEATHS", str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS / "dying"), *sys.path[1:]]))
        patch.setenv("TASSO_TEST_DRIVER", str(os.getpid()))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield folder


def plan_death(deaths: Path, how: str, step: int, *more: tuple[str, int, int, int], seed: int, times: int = 1) -> None:
    """Whoever learns the run with this seed dies at this step; `more` are other steps, seeds and times."""
    plans = [(how, step, seed, times), *more]
    for file in deaths.iterdir():
        file.unlink()
    keys = ("how", "step", "run", "times")
    document = [dict(zip(keys, (how, step, f"custom-{seed}-", times), strict=True)) for how, step, seed, times in plans]
    (deaths / "plan.json").write_text(json.dumps(document))


def came(deaths: Path) -> int:
    """How often someone died as planned."""
    return len(list(deaths.iterdir())) - 1


def left_alone(jobs: list[Job], folder: Path) -> Path:
    """The same runs, with nothing that disturbs them."""
    for job in jobs:
        learn(job.config(folder))
    return folder


def same_results(jobs: list[Job], one: Path, other: Path) -> None:
    for job in jobs:
        results = [json.loads((folder / job.name / "results.json").read_text()) for folder in (one, other)]
        assert results[0]["finished"]
        for setting in ("mtil", "mcil"):
            assert results[0][setting] == results[1][setting]
        name = "checkpoints/02-eurosat.safetensors"
        tensors, expected = (load_file(folder / job.name / name) for folder in (one, other))
        assert all(torch.equal(tensor, expected[key]) for key, tensor in tensors.items())
        assert not list((one / job.name).rglob("*.tmp"))


@pytest.mark.slow
def test_a_sweep_survives_dying_workers_and_failing_runs(
    common: dict[str, Any], tmp_path: Path, deaths: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasso.experiments.sweep.local.ATTEMPTS", 2)
    good = [job_of(common, seed) for seed in (1, 2)]
    failing, dying = job_of(common, rank=99), job_of(common, 13)
    plan_death(deaths, "worker", 9, ("worker", 1, 13, 9), ("politely", 3, 2, 1), seed=1)
    summary = run_jobs([failing, *good, dying, failing], tmp_path / "runs", Execution(at_once=2, device="cpu"))
    assert came(deaths) == 1 + 2 + 1
    assert not summary.stopped
    assert (summary.total, summary.finished, set(summary.failed)) == (4, 2, {failing.name, dying.name})
    assert summary.failed[dying.name] == "its process was killed by SIGKILL, 2 times in a row"
    said = "\n".join(summary.lines())
    assert "2 finished, 2 failed" in said
    assert "must be below the embedding's length" in said
    assert str(log_file(tmp_path / "runs", failing.name)) in said
    assert "resuming eurosat at step 2" in log_file(tmp_path / "runs", good[0].name).read_text()
    same_results(good, tmp_path / "runs", left_alone(good, tmp_path / "alone"))
    monkeypatch.setattr("tasso.experiments.sweep.run_jobs.run_local", None)  # nobody is called for what is finished
    again = run_jobs(good, tmp_path / "runs", Execution(device="cpu"))
    assert (again.before, again.finished, again.failed) == (2, 0, {})


def sweep_command(common: dict[str, Any], out: Path) -> list[str]:
    """Two runs after each other, as a user types it."""
    words = ["--methods", "tasso", "--seeds", "1,2", "--set", "method.rank=6", "--jobs", "1", "--out", str(out)]
    file = out.parent / "sweep.yaml"
    file.write_text("sequences: ['dtd,eurosat']\n")
    options = as_words(common)
    return [sys.executable, "-m", "tasso", "sweep", "--config", str(file), *words, *options]


def run_sweep(command: list[str], out: Path) -> tuple[int, str]:
    """Its exit status and what it says. Not through a pipe, which a child that lives on would keep open."""
    said = out.parent / "said.txt"
    with said.open("w") as file:
        done = subprocess.run(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, timeout=300, check=False
        )
    return done.returncode, said.read_text()


@pytest.mark.slow
def test_a_sweep_that_is_stopped_and_killed_ends_like_one_left_alone(
    common: dict[str, Any], tmp_path: Path, deaths: Path
) -> None:
    """The same command again and again: stopped by Ctrl-C, killed alone, killed with all its processes, finished."""
    common = {**common, "steps": 60, "save_every": 4}
    jobs, out = [job_of(common, seed) for seed in (1, 2)], tmp_path / "runs"
    command, first_log = sweep_command(common, out), log_file(out, jobs[0].name)

    plan_death(deaths, "ctrl-c", 3, seed=1)
    status, said = run_sweep(command, out)
    assert (status, came(deaths)) == (130, 1), said
    assert "2 left; the same command goes on" in said
    assert "Traceback" not in said
    assert "stopped at step 3 of 60 of dtd" in first_log.read_text()

    plan_death(deaths, "sweep", 2, seed=1)
    status, said = run_sweep(command, out)
    assert (status, came(deaths)) == (-signal.SIGKILL, 1), said
    assert "resuming dtd at step 3\n" in first_log.read_text()

    # It waits for the worker that lost its sweep, finishes that run, and is killed in the second task of the next.
    plan_death(deaths, "everyone", 71, seed=2)
    status, said = run_sweep(command, out)
    assert (status, came(deaths)) == (-signal.SIGKILL, 1), said
    assert first_log.read_text().count("--- stopped") == 2
    assert [is_finished(out / job.name) for job in jobs] == [True, False]

    main(command[3:])
    assert "resuming eurosat at step 8\n" in log_file(out, jobs[1].name).read_text()
    same_results(jobs, out, left_alone(jobs, tmp_path / "alone"))


# -- clusters ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(deaths: Path) -> Iterator[Any]:
    """A real Ray cluster on this machine, whose workers know of planned deaths."""
    ray = pytest.importorskip("ray")
    from tasso.experiments.sweep.on_ray import connected

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield connected()
    ray.shutdown()


@pytest.mark.slow
def test_ray_brings_back_a_run_whose_worker_is_killed(
    common: dict[str, Any], tmp_path: Path, deaths: Path, cluster: Any
) -> None:
    good, failing = [job_of(common, seed) for seed in (1, 2)], job_of(common, rank=99)
    plan_death(deaths, "worker", 9, seed=1)
    summary = run_jobs([*good, failing], tmp_path / "runs", Execution(engine="ray", device="cpu"))
    assert came(deaths) == 1
    assert (summary.finished, list(summary.failed)) == (2, [failing.name])
    assert "must be below the embedding's length" in summary.failed[failing.name]
    assert "resuming eurosat at step 2" in log_file(tmp_path / "runs", good[0].name).read_text()
    same_results(good, tmp_path / "runs", left_alone(good, tmp_path / "alone"))


@pytest.mark.slow
def test_ctrl_c_reaches_runs_on_ray(common: dict[str, Any], tmp_path: Path, deaths: Path, cluster: Any) -> None:
    job = job_of({**common, "steps": 100_000, "save_every": 1_000_000}, 1)
    plan_death(deaths, "driver", 3, seed=1)
    summary = run_jobs([job], tmp_path, Execution(engine="ray", device="cpu"))
    assert came(deaths) == 1
    assert summary.stopped
    assert "of 100000 of dtd. The same command resumes it" in log_file(tmp_path, job.name).read_text()
    assert (tmp_path / job.name / "state.safetensors").exists()


def test_a_run_on_ray_that_is_asked_to_stop_by_others_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three ends by SIGTERM none is the user's; a locked folder is waited for."""
    ends = iter(["stopped", "busy", "stopped", "stopped", "finished"])

    class FakeRay:
        exceptions = SimpleNamespace(TaskCancelledError=KeyError, GetTimeoutError=KeyError, RayError=ValueError)

        def remote(self, **_: Any) -> Any:
            return lambda _: SimpleNamespace(options=lambda name: SimpleNamespace(remote=lambda work: object()))

        def wait(self, references: list[object], timeout: float) -> tuple[list[object], list[object]]:
            return references, []

        def get(self, reference: object, timeout: float) -> Outcome:
            return Outcome("one", next(ends))  # type: ignore[arg-type]

    monkeypatch.setattr(on_ray, "connected", FakeRay)
    monkeypatch.setattr(on_ray, "POLL_SECONDS", 0.001)
    reported: list[Outcome] = []
    on_ray.run_on_ray([Work("one", {}, "log")], 1, threading.Event(), reported.append, "cpu")
    assert [outcome.status for outcome in reported] == ["finished"]


def test_an_address_at_which_no_ray_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConfigError, match=f"engine: ray: .*{address}.*RAY_ADDRESS"):
            on_ray.connected()


def test_a_machine_without_slurm_and_wrong_parameters_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    how = Execution(engine="slurm", slurm={"colour": "red"})
    for complaint in ("srun", "colour"):
        with pytest.raises(ConfigError, match=f"(?s)engine: slurm:.*{complaint}"):
            run_jobs([Job({"limit_tasks": 1})], tmp_path / "runs", how)
        (tmp_path / "srun").touch(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.slow
def test_missing_engines_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for engine, package in (("ray", "ray"), ("slurm", "submitit")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ConfigError, match=re.escape(install(engine))):
            run_jobs([Job({})], tmp_path / "runs", Execution(engine=engine))  # type: ignore[arg-type]


# -- what runs on one machine share ---------------------------------------------------------------------------------


def test_runs_of_a_sweep_decode_an_image_once_and_end_with_the_same_bits(
    common: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = FolderSource.read, list[str]()

    def counted(source: FolderSource, key: str) -> bytes:
        reads.append(key)
        return read(source, key)

    monkeypatch.setattr(FolderSource, "read", counted)
    jobs = [job_of(common, seed) for seed in (1, 2)]
    alone, together = tmp_path / "alone", tmp_path / "together"
    for job in jobs:
        assert perform(work_of(job, alone)).status == "finished"
    each = len(reads) // 2
    reads.clear()
    left = together / f".images-{platform.node()}-killed" / "sets" / "of-a-killed-sweep.u8"
    left.parent.mkdir(parents=True)
    left.touch()
    with place_for_images(together) as place:
        works = [replace(work_of(job, together), shared=str(place)) for job in jobs]
        assert not left.exists()
        for work in works:
            assert perform(work).status == "finished"
        with place_for_images(together) as other:
            assert other != place
        assert list(together.glob(".images-*")) == [place.parent]
    assert len(reads) < each + 10, "of the second run only the first image of each set"
    assert not list(together.glob(".images-*"))
    same_results(jobs, alone, together)


# Answers as NVIDIA's program does: it finds its daemon by a file in the folder of its pipes.
MPS_CONTROL = """#!/bin/sh
pipes=${CUDA_MPS_PIPE_DIRECTORY:-$DEFAULT_PIPES}
if [ "$1" = -d ]; then
    echo "start ${CUDA_VISIBLE_DEVICES-all}" >> "$CALLS"
    [ -z "$NO_DAEMON" ] && : > "$pipes/daemon"
    exit
fi
read -r command
[ -e "$pipes/daemon" ] || exit 1
echo "$command" >> "$CALLS"
[ "$command" != quit ] || rm "$pipes/daemon"
"""


@pytest.fixture
def mps_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a fake MPS was asked for, line by line."""
    program = tmp_path / "bin" / mps_module.CONTROL
    program.parent.mkdir()
    program.write_text(MPS_CONTROL)
    program.chmod(0o755)
    calls, default = tmp_path / "calls", tmp_path / "default"
    calls.write_text("")
    default.mkdir()
    values = {"PATH": f"{program.parent}:{os.environ['PATH']}", "CALLS": calls, "DEFAULT_PIPES": default}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    monkeypatch.setattr(mps_module, "PROBE", "")
    return calls


@pytest.mark.parametrize("fails", [False, True])
def test_mps_is_started_for_runs_that_share_a_gpu_and_stopped_after_them(
    mps_calls: Path, tmp_path: Path, fails: bool
) -> None:
    expected = pytest.raises(KeyboardInterrupt) if fails else contextlib.nullcontext()
    with expected, mps(["cuda:0", "cuda:1", "cuda:0"]) as started:
        assert started
        pipes = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
        assert (pipes / "daemon").exists()
        if fails:
            raise KeyboardInterrupt
    assert mps_calls.read_text().split("\n") == ["start all", "quit", ""]
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert not pipes.exists()


KILLED = """
import os, signal
from tasso.experiments.sweep import mps
mps.PROBE = ""
with mps.mps(["cuda:0", "cuda:0"]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_mps_of_a_killed_sweep_is_stopped(mps_calls: Path) -> None:
    mps_calls.unlink()
    os.mkfifo(mps_calls)
    reader = os.open(mps_calls, os.O_RDWR)  # also a writer, so that there is no end between two others
    try:
        assert subprocess.run([sys.executable, "-c", KILLED], check=False).returncode == -signal.SIGKILL
        told = b""
        while told.count(b"\n") < 2 and select.select([reader], [], [], 30)[0]:
            told += os.read(reader, 100)
    finally:
        os.close(reader)
    assert told.decode() == "start all\nquit\n"


@pytest.mark.parametrize("devices", [["cuda:0"], ["cuda:0", "cuda:1"], ["cpu", "cpu"], ["cuda:0"] * 49])
def test_mps_is_not_started_for_runs_that_share_no_gpu_nor_for_too_many(mps_calls: Path, devices: list[str]) -> None:
    with mps(devices) as started:
        assert not started
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert mps_calls.read_text() == ""


def test_mps_of_somebody_else_is_used_and_left_alone(mps_calls: Path, tmp_path: Path) -> None:
    (tmp_path / "default" / "daemon").touch()
    with mps(["cuda:0", "cuda:0"]) as used:
        assert used
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert mps_calls.read_text() == "get_server_list\n"


@pytest.mark.parametrize(("probe", "no_daemon", "end"), [("1 / 0", "", "quit\n"), ("", "1", "")])
def test_mps_that_does_not_serve_is_not_used(
    mps_calls: Path, monkeypatch: pytest.MonkeyPatch, probe: str, no_daemon: str, end: str
) -> None:
    monkeypatch.setattr(mps_module, "PROBE", probe)
    monkeypatch.setenv("NO_DAEMON", no_daemon)
    with mps(["cuda:0", "cuda:0"]) as used:
        assert not used
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert mps_calls.read_text() == f"start all\n{end}"


def test_without_the_program_there_is_no_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with mps(["cuda:0", "cuda:0"]):
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
