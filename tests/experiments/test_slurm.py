"""Sweeps on Slurm: jobs that are stopped, preempted, refused, forgotten, or left by a sweep that was killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tasso.data.images import cache
from tasso.errors import ConfigError
from tasso.experiments.sweep import on_slurm
from tasso.experiments.sweep.jobs import Job
from tasso.experiments.sweep.on_slurm import Submission, parse_slurm, run_on_slurm
from tasso.experiments.sweep.run_jobs import log_file
from tasso.experiments.sweep.work import Outcome, Work

TESTS = Path(__file__).parents[1]

pytest.importorskip("submitit")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a fake Slurm whose jobs are not started, see fake_slurm.py."""
    home, commands = tmp_path / "fake", tmp_path / "bin"
    (home / "jobs").mkdir(parents=True)
    (home / "held").touch()
    commands.mkdir()
    for name in ("sbatch", "srun", "squeue", "scancel", "scontrol"):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} -S {TESTS / "fake_slurm.py"} {name} "$@"\n')
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(home))
    for name in ("POLL_SECONDS", "ASK_SECONDS", "SETTLE_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(on_slurm, name, 0.0)
    return home


class Steps(threading.Event):
    """Does the next step whenever it is waited for, and is set when there is none."""

    def __init__(self, *steps: Callable[[], Any]) -> None:
        super().__init__()
        self.steps = iter(steps)

    def wait(self, timeout: float | None = None) -> bool:
        step = next(self.steps, self.set)
        step()
        return self.is_set()


class Forever(threading.Event):
    """Does the same whenever it is waited for."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__()
        self.act = act

    def wait(self, timeout: float | None = None) -> bool:
        self.act()
        return self.is_set()


def nothing() -> None:
    """A step in which nothing happens."""


class Sweep:
    """A sweep of one run or more, and what becomes of its jobs."""

    def __init__(self, slurm: Path, tmp_path: Path, *names: str) -> None:
        self.home, self.folder = slurm, tmp_path / "sweep" / "logs" / "slurm"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.works = [Work(name, {"out": str(tmp_path / "sweep" / name)}, str(tmp_path / "log")) for name in names]
        self.reported: list[Outcome] = []

    def run(self, *steps: Callable[[], Any], at_once: int | None = None, **parameters: Any) -> list[tuple[str, str]]:
        run_on_slurm(self.works, self.folder, at_once, Steps(*steps), self.reported.append, parameters)
        return [(outcome.name, outcome.status) for outcome in self.reported]

    def becomes(self, job: str, state: str, status: str = "", name: str = "one", error: str = "") -> Callable[[], None]:
        """A step: the job has this state, and has written this outcome."""

        def step() -> None:
            file = self.home / "jobs" / job
            _, *rest = file.read_text().split("\n")
            file.write_text("\n".join([state, *rest]))
            if status:
                document = {"job": job, "name": name, "status": status, "error": error, "unexpected": False}
                (self.folder / f"{name}.outcome").write_text(json.dumps(document))

        return step

    def saves(self, name: str = "one") -> Callable[[], None]:
        state = self.folder.parents[1] / name / "state.safetensors"

        def step() -> None:
            state.parent.mkdir(exist_ok=True)
            state.write_bytes(b"more" + (state.read_bytes() if state.exists() else b""))
            os.utime(state, ns=(0, state.stat().st_size))

        return step

    def calls(self, command: str) -> list[str]:
        lines = (self.home / "calls").read_text().splitlines()
        return [line.partition(" ")[2] for line in lines if line.startswith(command)]


@pytest.fixture
def sweep(slurm: Path, tmp_path: Path) -> Sweep:
    return Sweep(slurm, tmp_path, "one")


def test_a_job_that_is_stopped_goes_on_in_another_one(sweep: Sweep) -> None:
    preempted = [sweep.becomes(str(number), "PREEMPTED", "stopped") for number in range(1, 6)]
    cancelled = [sweep.becomes("6", "CANCELLED"), nothing]
    finished = sweep.becomes("7", "COMPLETED", "finished")
    assert sweep.run(*preempted, *cancelled, finished) == [("one", "finished")]
    assert len(sweep.calls("sbatch")) == 7


def test_a_job_that_is_queued_again_is_waited_for(sweep: Sweep, caplog: pytest.LogCaptureFixture) -> None:
    steps = [sweep.becomes("1", state, "stopped") for state in ("RUNNING", "COMPLETING", "PENDING", "RUNNING")]
    assert sweep.run(*steps, sweep.becomes("1", "COMPLETED", "finished")) == [("one", "finished")]
    assert len(sweep.calls("sbatch")) == 1
    assert caplog.text.count("PartitionConfig") == 1, "why it waits"


def test_a_run_fails_when_its_jobs_end_and_have_saved_nothing(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    died = [step for number in range(1, 9) for step in (sweep.becomes(str(number), "OUT_OF_MEMORY"), nothing)]
    some = [step for number in range(5) for step in (sweep.saves(), *died[2 * number : 2 * number + 2])]
    monkeypatch.setattr(on_slurm, "FULL", 2**80)
    assert sweep.run(*some, *died[10:]) == [("one", "failed")]
    for part in ("job 8: OUT_OF_MEMORY", "no room", str(sweep.folder)):
        assert part in sweep.reported[0].error
    assert len(sweep.calls("sbatch")) == 8


def test_what_sbatch_says_is_an_error_of_the_user(sweep: Sweep) -> None:
    (sweep.home / "refused").write_text("sbatch: error: invalid partition specified: fast")
    with pytest.raises(ConfigError, match=r"(?s)engine: slurm: .*partition specified: fast.*cpus_per_task=4.*--slurm"):
        sweep.run()


def test_while_slurm_does_not_answer_the_other_jobs_go_on(
    slurm: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = Sweep(slurm, tmp_path, "one", "two")
    refused = slurm / "refused"
    steps = [
        lambda: refused.write_text("sbatch: error: Unable to contact slurm controller"),
        sweep.becomes("1_0", "NODE_FAIL", "stopped"),
        sweep.becomes("1_1", "COMPLETED", "finished", "two"),
        lambda: refused.unlink(),
        sweep.becomes("1_1", "COMPLETED"),
    ]
    assert sweep.run(*steps, lambda: sweep.becomes("2", "COMPLETED", "finished")()) == [
        ("two", "finished"),
        ("one", "finished"),
    ]
    assert "Unable to contact slurm controller" in caplog.text


def test_while_squeue_does_not_answer_nothing_is_submitted_again(sweep: Sweep, tmp_path: Path) -> None:
    squeue = tmp_path / "bin" / "squeue"
    steps = [lambda: squeue.write_text("#!/bin/sh\nexit 1\n"), sweep.becomes("1", "CANCELLED"), nothing, nothing]
    assert sweep.run(*steps) == [("one", "stopped")]
    assert len(sweep.calls("sbatch")) == 1


def test_jobs_of_a_killed_sweep_are_taken_over(slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    first, second = Sweep(slurm, tmp_path, "one", "two", "three"), Sweep(slurm, tmp_path, "one", "two", "three")
    with monkeypatch.context() as patch:
        patch.setattr(on_slurm._Jobs, "cancel", lambda _: None)
        with pytest.raises(Killed):
            first.run(kill)
    first.becomes("1_1", "CANCELLED")()
    (first.folder / "three.job").write_text("77")  # a number of another folder's job
    shutil.copy(slurm / "jobs" / "1_0", slurm / "jobs" / "77")
    (slurm / "jobs" / "77").write_text("RUNNING\n0\n/elsewhere/script.sh")
    ends = [second.becomes("1_0", "COMPLETED", "finished")]
    ends += [second.becomes(f"78_{i}", "COMPLETED", "finished", name) for i, name in enumerate(("two", "three"))]
    assert second.run(*ends) == [("one", "finished"), ("two", "finished"), ("three", "finished")]
    assert len(second.calls("sbatch")) == 2
    assert not second.calls("scancel")


def test_no_more_jobs_than_at_once_when_some_are_submitted_again(slurm: Path, tmp_path: Path) -> None:
    sweep = Sweep(slurm, tmp_path, "one", "two", "three")
    sizes = []

    def counted() -> None:
        sizes.append(len(sweep.calls("sbatch")))

    stopped = sweep.becomes("1_0", "PREEMPTED", "stopped")
    others = [sweep.becomes(f"1_{i}", "COMPLETED", "finished", name) for i, name in ((1, "two"), (2, "three"))]
    sweep.run(stopped, nothing, counted, others[0], nothing, counted, others[1], nothing, counted, at_once=2)
    assert sizes == [1, 2, 2], "the second array of jobs waits until one of two has ended"
    [script] = [file for file in sweep.folder.iterdir() if file.name == "1_submission.sh"]
    assert "#SBATCH --array=0-2%2" in script.read_text()
    assert "#SBATCH --job-name=tasso-sweep" in script.read_text()


def test_stopping_the_sweep_cancels_its_jobs(slurm: Path, tmp_path: Path) -> None:
    sweep = Sweep(slurm, tmp_path, "one", "two")
    assert sweep.run() == [("one", "stopped"), ("two", "stopped")]
    assert sweep.calls("scancel") == ["1_0 1_1"]


@pytest.mark.slow
def test_jobs_go_on_after_signals_and_kills(quick: dict[str, Any], tmp_path: Path, slurm: Path) -> None:
    """Real processes: cancelled by somebody else in the first task, then warned of the end of their time."""
    left_out = ("out", "method", "sequence")
    options = {k: v for k, v in quick.items() if k not in left_out} | {"steps": 100_000, "save_every": 1_000_000}
    job = Job({**options, "sequence": "dtd,eurosat", "method": {"name": "tasso", "rank": 6}})
    (slurm / "held").unlink()
    folder, log_of_run = tmp_path / "runs", log_file(tmp_path / "runs", job.name)
    begun, signals = [0], iter(["SIGTERM", "SIGTERM", "SIGUSR2", "SIGKILL", ""])
    said = []

    def act() -> None:
        """When another process trains the run, send it the next signal; with none left, stop the sweep."""
        time.sleep(0.1)
        text = log_of_run.read_text() if log_of_run.exists() else ""
        if text.count("steps: dtd") <= begun[0] or " process " not in text or not (folder / job.name).exists():
            return
        begun[0] += 1
        time.sleep(1.5)
        process = int(re.findall(r"process (\d+) begins", text)[-1])
        name = next(signals)
        said.append(name)
        if name:
            os.kill(process, getattr(signal, name))
        else:
            stop.set()

    stop = Forever(act)
    work = Work(job.name, job.config(folder).to_dict(), str(log_of_run))
    reported: list[Outcome] = []
    (folder / "logs" / "slurm").mkdir(parents=True)
    run_on_slurm([work], folder / "logs" / "slurm", None, stop, reported.append, {"timeout_min": 10})
    text = log_of_run.read_text()
    assert said == ["SIGTERM", "SIGTERM", "SIGUSR2", "SIGKILL", ""]
    assert [outcome.status for outcome in reported] == ["stopped"]
    assert text.count("stopped at step") >= 3
    assert len(re.findall(r"resuming dtd at step [1-9]", text)) == 4
    assert "scontrol requeue" in (slurm / "calls").read_text()
    for file in (folder / "logs" / "slurm").glob("*.err"):
        assert "Traceback" not in file.read_text()


# -- in the job --------------------------------------------------------------------------------------------------


@pytest.fixture
def in_job(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sweep]:
    for key, value in {"SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "5", "SUBMITIT_FOLDER": "x"}.items():
        monkeypatch.setenv(key, value)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    yield sweep
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "saves", "requeued"),
    [(signal.SIGTERM, True, 0), (signal.SIGUSR2, True, 1), (signal.SIGUSR2, False, 0)],
)
def test_a_job_that_is_asked_to_end_saves_and_says_so(
    in_job: Sweep, monkeypatch: pytest.MonkeyPatch, number: int, saves: bool, requeued: int
) -> None:
    def stopped(work: Work) -> Outcome:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            if saves:
                in_job.saves()()
            return Outcome(work.name, "stopped")
        return Outcome(work.name, "finished")

    monkeypatch.setattr(on_slurm, "perform", stopped)
    outcome = in_job.folder / "one.outcome"
    with pytest.raises(SystemExit) as ended:
        Submission(in_job.works[0], outcome)()
    assert ended.value.code == 143
    assert json.loads(outcome.read_text()) == {
        "name": "one", "status": "stopped", "error": "", "unexpected": False, "job": "5",
    }  # fmt: skip
    (in_job.home / "calls").open("a").close()
    assert in_job.calls("scontrol") == ["requeue 5"] * requeued


@pytest.mark.parametrize(
    ("own", "group", "names"),
    [
        ("0::/slurm/job_3/step_0", "slurm/job_3", ("memory.max", "memory.current", "file")),
        ("4:cpu,memory:/slurm/uid_0/job_3\n0::/x", "memory/slurm/uid_0/job_3",
         ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")),
    ],
)  # fmt: skip
def test_the_memory_of_a_job_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, group: str, names: tuple[str, str, str]
) -> None:
    (tmp_path / group).mkdir(parents=True)
    (tmp_path / "own").write_text(f"{own}\n")
    limit, used, cached = names
    for name, text in ((limit, "5000000"), (used, "4000000"), ("memory.stat", f"anon 1\n{cached} 1000000\n")):
        (tmp_path / group / name).write_text(text)
    monkeypatch.setattr(cache, "CGROUP", tmp_path)
    monkeypatch.setattr(cache, "OWN_CGROUPS", tmp_path / "own")
    assert cache.free_memory(torch.device("cpu")) == 2_000_000


# -- parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("slurm_partition=low,high", "low,high"),
        ("slurm_nodelist=n[1-3],m4", "n[1-3],m4"),
        ("slurm_time=1:30:00", "1:30:00"),
        ("slurm_account=007", "007"),
        ("slurm_exclude=n1,n2", "n1,n2"),
        ("slurm_exclusive=true", True),
        ("slurm_gpus_per_node=a100:2", "a100:2"),
        ("gpus-per-node=2", 2),
        ("mem_gb=1.5", 1.5),
        ("slurm_setup=module load cuda", ["module load cuda"]),
        ("slurm_setup=[a, b]", ["a", "b"]),
        ("slurm_additional_parameters={mail-user: me}", {"mail-user": "me"}),
    ],
)
def test_parameters_of_slurm_are_text_where_slurm_reads_them(words: str, value: Any) -> None:
    [found] = parse_slurm([words]).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "words",
    ["gpus_per_node=1,2", "timeout_min=1:30", "slurm_partition=[a,b]", "slurm_additional_parameters=a", "nodes", "=3",
     "slurm_setup=[", "cpus_per_task="],
)  # fmt: skip
def test_parameters_with_several_values_are_refused(words: str) -> None:
    with pytest.raises(ConfigError, match=f"slurm: .*{words.partition('=')[0]}"):
        parse_slurm([words])
    with pytest.raises(ConfigError, match="slurm: mem_gb is given twice"):
        parse_slurm(["mem_gb=1", "mem-gb=2"])


@pytest.mark.parametrize("key", ["nodes", "tasks_per_node", "slurm_ntasks_per_node"])
def test_a_run_is_one_process(sweep: Sweep, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: .*must be 1"):
        sweep.run(**{key: 2})
