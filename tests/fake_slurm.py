"""A Slurm on this machine. The first argument is the command: sbatch, srun, squeue, scancel or scontrol.

FAKE_SLURM is a folder: `jobs/ID` has a job's state, process and script; `refused` is what sbatch says instead of taking
a job; with `held` no job is started, and the test writes what becomes of them. `calls` lists all calls.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

HOME = Path(os.environ["FAKE_SLURM"])
JOBS = HOME / "jobs"


def write(job, state, process, script):
    (JOBS / f".{job}").write_text(f"{state}\n{process}\n{script}")
    (JOBS / f".{job}").rename(JOBS / job)


def sbatch(script):
    if (HOME / "refused").exists():
        sys.exit((HOME / "refused").read_text())
    number = 1 + max([int(path.name.split("_")[0]) for path in JOBS.iterdir()], default=0)
    array = re.search(r"--array=0-(\d+)", Path(script).read_text())
    for job in [f"{number}_{index}" for index in range(int(array[1]) + 1)] if array else [str(number)]:
        write(job, "RUNNING", 0, script)
        if not (HOME / "held").exists():
            runner = [sys.executable, __file__, "runner", job, script]
            subprocess.Popen(runner, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    print(f"Submitted batch job {number}")


def runner(job, script):
    first, _, index = job.partition("_")
    ids = {"SLURM_ARRAY_JOB_ID": first, "SLURM_ARRAY_TASK_ID": index} if index else {}
    process = subprocess.Popen(["bash", script], env={**os.environ, **ids, "SLURM_JOB_ID": first})
    write(job, "RUNNING", process.pid, script)
    code = process.wait()
    if (JOBS / job).read_text().startswith("RUNNING"):
        write(job, "COMPLETED" if code == 0 else "FAILED", 0, script)


def srun(*words):
    words = list(words)
    while words[0].startswith("--"):
        del words[: 1 if words[0] == "--unbuffered" else 2]
    os.execvp(words[0], words)


def squeue(*_):
    for job in sorted(path.name for path in JOBS.iterdir()):
        if not job.startswith("."):
            state, _, script = (JOBS / job).read_text().split("\n")
            print(job, state, "PartitionConfig", script, sep="|")


def scancel(*jobs):
    for job in jobs:
        _, process, script = (JOBS / job).read_text().split("\n")
        write(job, "CANCELLED", 0, script)
        if int(process):
            os.killpg(os.getpgid(int(process)), signal.SIGTERM)


def scontrol(*_):
    pass


name, *args = sys.argv[1:]
with (HOME / "calls").open("a") as calls:
    print(name, *args, file=calls)
globals()[name](*args)
