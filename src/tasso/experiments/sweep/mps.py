"""CUDA's MPS: kernels of several processes run on one GPU at the same time, not in turns."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

log = logging.getLogger("tasso")

CONTROL = "nvidia-cuda-mps-control"
SECONDS = 60  # for an answer
# Reads until nobody can write any more, then stops the daemon and removes its folders.
STOP = f'cat; echo quit | timeout {SECONDS} "$0"; rm -rf "$1"'
CLIENTS = 48  # per GPU, at most; one more process could not use it
# Makes a context on the first GPU, as every process that uses it does.
PROBE = """
import ctypes
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
assert not cuda.cuInit(0)
assert not cuda.cuDeviceGet(ctypes.byref(device), 0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
"""


@contextlib.contextmanager
def mps(devices: Sequence[str]) -> Iterator[bool]:
    """MPS for the processes started meanwhile, if several of them share a GPU, but not too many, and it can be started.

    One that somebody else has started is used and left alone. Our own has its own folders and is stopped at the end,
    also if this process is killed. Yields whether the processes use MPS, as far as this can be told.

    Args:
        devices: one per process.
    """
    most = max(Counter(device for device in devices if device != "cpu").values(), default=0)
    wanted = 1 < most <= CLIENTS and bool(shutil.which(CONTROL))
    if not wanted or _is_running():
        yield wanted
        return
    folder = tempfile.mkdtemp(prefix="tasso-mps-")
    environment = {f"CUDA_MPS_{name}_DIRECTORY": str(Path(folder) / name.lower()) for name in ("PIPE", "LOG")}
    for path in environment.values():
        Path(path).mkdir()
    before = {name: os.environ.get(name) for name in environment}
    own = {**os.environ, **environment}
    with _stopped_at_the_end(folder, own):
        try:
            if started := _started(own):
                log.info("started CUDA's MPS, which is stopped when the runs have ended")
                os.environ.update(environment)
            yield started
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


@contextlib.contextmanager
def _stopped_at_the_end(folder: str, environment: Mapping[str, str]) -> Iterator[None]:
    """A process of its own stops the daemon and removes its folder: when this block or this process ends, their pipe is
    closed."""
    waiting = subprocess.Popen(
        ["sh", "-c", STOP, CONTROL, folder], env=environment, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        waiting.communicate()


def _started(environment: Mapping[str, str]) -> bool:
    """Start the daemon; True if processes can use it. In some containers it starts, but does not serve."""
    # It would number the GPUs that it sees anew, and so would its clients.
    all_gpus = {name: value for name, value in environment.items() if name != "CUDA_VISIBLE_DEVICES"}
    if not _succeeds([CONTROL, "-d"], all_gpus):
        return False
    if _succeeds([sys.executable, "-c", PROBE], environment):
        return True
    log.info("CUDA's MPS cannot be used here; the runs take turns on the GPU")
    return False


def _is_running() -> bool:
    return _succeeds([CONTROL], os.environ, "get_server_list\n")


def _succeeds(command: Sequence[str], environment: Mapping[str, str], text: str = "") -> bool:
    try:
        done = subprocess.run(
            command, input=text, env=environment, text=True, timeout=SECONDS, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
