"""A sweep on a real Slurm of one machine: from Debian's packages, unpacked into a temporary folder, on loopback.

Nothing is installed. Whoever is not root, or cannot get the packages, skips this.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import as_words

pytest.importorskip("submitit")
pytestmark = pytest.mark.slow

PACKAGES = (
    "munge", "libmunge2", "libhwloc15", "liblua5.1-0", "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins",
)  # fmt: skip
CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={home}/munge.socket
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.log
PluginDir={lib}/slurm-wlm
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=10
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def wait_for(what: Callable[[], Any], seconds: float = 120.0) -> Any:
    """What it returns, once that is true."""
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def commands() -> Iterator[dict[str, str]]:
    """An environment in which the commands of Slurm are found, and work."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a Slurm is started by root, on Linux")
    if not shutil.which("apt-get"):
        pytest.skip("no apt-get: the packages of Slurm are Debian's")
    home = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # the path of a socket must be short
    got = subprocess.run(["apt-get", "download", *PACKAGES], cwd=home, capture_output=True, timeout=300, check=False)
    if got.returncode:
        shutil.rmtree(home)
        pytest.skip(f"the packages of Slurm cannot be got: {got.stderr.decode().strip()[-200:]}")
    for package in home.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, home], check=True)
    lib, programs = home / "usr/lib/x86_64-linux-gnu", home / "usr/sbin"
    (home / "state").mkdir()
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        ports = [free.getsockname()[1] for free in (one, other)]
    host = socket.gethostname().partition(".")[0]
    (home / "slurm.conf").write_text(CONF.format(host=host, home=home, lib=lib, ports=ports))
    (home / "key").write_bytes(os.urandom(128))
    (home / "key").chmod(0o600)
    paths = {"LD_LIBRARY_PATH": f"{lib}:{lib}/slurm-wlm", "SLURM_CONF": str(home / "slurm.conf")}
    environment = {**os.environ, **paths, "PATH": f"{home}/usr/bin:{os.environ['PATH']}"}
    munge = {"socket": "munge.socket", "key-file": "key", "pid-file": "munged.pid", "log-file": "munged.log",
             "seed-file": "seed"}  # fmt: skip
    starts = [
        [programs / "munged", "--force", *(f"--{option}={home / name}" for option, name in munge.items())],
        [programs / "slurmctld-wlm"],
        [programs / "slurmd-wlm", "-N", host, "-d", programs / "slurmstepd-wlm"],
    ]
    try:
        for start in starts:
            subprocess.run(start, env=environment, check=True, timeout=60)
        said = lambda: subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, check=False)  # noqa: E731
        wait_for(lambda: b"idle" in said().stdout)
        yield environment
    finally:
        for name in ("slurmd", "slurmctld", "munged"):
            if (home / f"{name}.pid").exists():
                os.kill(int((home / f"{name}.pid").read_text()), signal.SIGTERM)
        time.sleep(2)
        shutil.rmtree(home, ignore_errors=True)


def test_a_sweep_goes_on_whatever_happens_to_its_jobs_and_itself(
    quick: dict[str, Any], tmp_path: Path, commands: dict[str, str]
) -> None:
    """scancel, a killed worker, a killed sweep, the signal before the end of the time, and SIGTERM to the sweep."""
    left_out = ("out", "method", "sequence", "steps")
    options = as_words({key: value for key, value in quick.items() if key not in left_out})
    words = ["--methods", "finetune", "--sequences", "S1", "--steps", "1000000", "--save-every", "500", "--out", "runs"]
    command = [
        sys.executable,
        "-m",
        "tasso",
        "sweep",
        *words,
        *options,
        "--engine",
        "slurm",
        "--slurm",
        "cpus_per_task=1",
    ]
    said = tmp_path / "said.txt"

    def sweep() -> subprocess.Popen[bytes]:
        with said.open("ab") as file:
            return subprocess.Popen(command, cwd=tmp_path, env=commands, stdout=file, stderr=file)

    def log() -> str:
        return "".join(file.read_text() for file in (tmp_path / "runs" / "logs").glob("*.log"))

    def learning(times: int) -> int:
        """Wait until a run has begun so often and saved something since; returns its process."""

        def saved() -> bool:
            begun = [*(tmp_path / "runs" / "logs").glob("*.log")]
            states = [*tmp_path.glob("runs/*/state.safetensors")]
            return bool(
                begun and states and log().count(" begins ") == times
                and states[0].stat().st_mtime > started + 1 and time.time() - started > 3
            )  # fmt: skip

        wait_for(lambda: (tmp_path / "runs" / "logs").exists() and log().count(" begins ") == times)
        started = time.time()
        wait_for(saved)
        return int(re.findall(r"process (\d+) begins", log())[-1])

    def job() -> str:
        shown = subprocess.run(["squeue", "-h", "-o", "%i"], env=commands, capture_output=True, text=True, check=True)
        return shown.stdout.split()[0]

    running = sweep()
    try:
        learning(1)
        subprocess.run(["scancel", job()], env=commands, check=True)
        process = learning(2)
        assert log().count("stopped at step") == 1
        os.kill(process, signal.SIGKILL)
        learning(3)
        running.kill()
        running.wait()
        before = job()
        running = sweep()
        wait_for(lambda: f"is job {before} already" in said.read_text())
        subprocess.run(["scancel", "--signal=USR2", before], env=commands, check=True)
        wait_for(lambda: log().count("stopped at step") == 2)
        shown = ["squeue", "-h", "-o", "%i %T"]
        queued = f"{before} PENDING"
        wait_for(
            lambda: queued in subprocess.run(shown, env=commands, capture_output=True, text=True, check=True).stdout
        )
        running.terminate()
        assert running.wait(60) == 130
        wait_for(lambda: not subprocess.run(shown, env=commands, capture_output=True, check=True).stdout)
        assert len(re.findall(r"resuming [\w-]+ at step [1-9]", log())) == 2
        [file] = (tmp_path / "runs" / "logs" / "slurm").glob("*.outcome")
        assert json.loads(file.read_text())["status"] == "stopped"
    finally:
        running.kill()
        for name in subprocess.run(
            ["squeue", "-h", "-o", "%i"], env=commands, capture_output=True, check=False
        ).stdout.split():
            subprocess.run(["scancel", name], env=commands, check=False)
