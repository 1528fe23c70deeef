"""Triton kernels for GPUs: several operations of PyTorch in one launch, with one pass over memory.

All arithmetic is in float32, but for products of attention, which multiply bfloat16 and add in float32. Sums are made
in a fixed order, so two runs give the same bits.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import torch

CAPABILITY = (8, 0)  # of a GPU that multiplies bfloat16
SWITCH = "TASSO_KERNELS"  # an environment variable; 0: PyTorch's operations instead

_off = os.environ.get(SWITCH) == "0"


def has_kernels(device: torch.device) -> bool:
    """Can the kernels run on this device, and may they?"""
    return not _off and _can_run(device)


@cache
def _can_run(device: torch.device) -> bool:
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= CAPABILITY


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """In here PyTorch's operations are used, in all threads."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


def import_meanwhile(device: torch.device) -> None:
    """Import the kernels in a thread. Triton takes two seconds for that, most of it outside Python."""
    if has_kernels(device):
        threading.Thread(target=_import, daemon=True).start()


def _import() -> None:
    for name in ("norm", "gelu", "attention", "unit", "crops"):
        import_module(f"tasso.kernels.{name}")
    with contextlib.suppress(ImportError, AttributeError):
        import_module("triton.runtime.cache").triton_key()  # kept; a checksum of the compiler, for its cache on disk
