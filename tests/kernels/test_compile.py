"""The kernels are compiled for GPUs of several kinds, none of which need be there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SHARED_KIB = {86: 99, 90: 227, 100: 227, 120: 99}  # by capability, for one program; 8.9 has as much as 8.6
KERNELS = {
    "_add_norm", "_add_norm_backward", "_attention", "_column_sums", "_gelu", "_gelu_backward", "_of_keys",
    "_of_queries", "_rounded", "_unit", "_unit_backward", "_weights",
}  # fmt: skip
NEEDS_FP8 = {"_rounded"}


@pytest.mark.slow
@pytest.mark.parametrize("capability", SHARED_KIB)
def test_kernels_fit_a_multiprocessor(capability: int) -> None:
    """In a process of its own: in this one they are interpreted."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(Path(__file__).with_name("compile_kernels.py")), str(capability)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    launches = [line.split() for line in done.stdout.splitlines()]
    assert {kernel for _, kernel, _ in launches} == KERNELS - (NEEDS_FP8 if capability < 89 else set())
    for _, kernel, shared in launches:
        assert int(shared) <= 1024 * SHARED_KIB[capability], kernel
