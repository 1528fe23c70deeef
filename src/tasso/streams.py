"""CUDA streams beside the current one."""

from __future__ import annotations

from functools import cache

import torch


def side_stream(purpose: str) -> torch.cuda.Stream:
    """The stream of a purpose on the current device, always the same one.

    PyTorch keeps freed memory by stream: a new stream for each task would get all of its memory from the driver again,
    which takes longer than twenty steps of a small model.
    """
    return _stream(purpose, torch.cuda.current_device())


@cache
def _stream(purpose: str, device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
