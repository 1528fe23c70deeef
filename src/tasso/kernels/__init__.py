"""Triton kernels for GPUs: several operations of PyTorch in one launch, with one pass over memory.

All arithmetic is in float32, but for products of attention, which multiply bfloat16 and add in float32. Sums are made
in a fixed order, so two runs give the same bits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pkgutil
import threading
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

CAPABILITY = (8, 0)  # of a GPU that multiplies bfloat16
SWITCH = "TASSO_KERNELS"  # an environment variable; 0: PyTorch's operations instead

log = logging.getLogger("tasso")

_off = False
_trying, _launching = threading.Lock(), threading.Lock()


def has_kernels(device: torch.device) -> bool:
    """Can the kernels run on this device, and may they?"""
    if _off or device.type != "cuda" or os.environ.get(SWITCH) == "0":
        return False
    if device == torch.device("cuda"):
        device = torch.device("cuda", torch.cuda.current_device())
    with _trying:
        return _can_run(device)


@cache
def _can_run(device: torch.device) -> bool:
    """Triton needs more than a GPU: a C compiler, Python's headers, a folder to write to. So one kernel is tried."""
    if torch.version.hip or find_spec("triton") is None or torch.cuda.get_device_capability(device) < CAPABILITY:
        return False
    try:
        from tasso.kernels.sums import column_sums

        column_sums(torch.ones(1, 1, device=device))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[-1]
        log.warning("Triton cannot run here (%s); PyTorch's operations do without it, but take longer", reason)
        return False
    return True


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """In here PyTorch's operations are used, in all threads."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


@contextlib.contextmanager
def launching(tensor: Tensor) -> Iterator[None]:
    """Around a launch, on the device of a tensor. One thread at a time: a kernel that another thread is still loading
    cannot be launched."""
    with _launching, torch.cuda.device_of(tensor):
        yield


def import_meanwhile(device: torch.device) -> None:
    """Import the kernels in a thread. Triton takes two seconds for that, most of it outside Python."""
    if device.type == "cuda":
        threading.Thread(target=_import, args=(device,)).start()  # a daemon could not end safely while it launches


def _import(device: torch.device) -> None:
    with contextlib.suppress(Exception):  # the main thread will meet and tell it
        if not has_kernels(device):
            return
        for module in pkgutil.iter_modules(__path__):
            import_module(f"{__name__}.{module.name}")
