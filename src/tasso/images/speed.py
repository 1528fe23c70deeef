"""How fast pictures come."""

from __future__ import annotations

import time

import numpy as np
import torch

from tasso.images.batches import Stream, View
from tasso.images.pixels import Pixels


def pictures_per_second(
    pixels: Pixels, device: torch.device, batch_size: int = 96, batches: int = 10, view: View = "train"
) -> float:
    """Pictures that a stream of these pixels delivers a second when nobody else needs the machine."""
    stream = Stream("speed", pixels, np.zeros(len(pixels), dtype=np.int64), batch_size, (0,), device, view)
    try:
        stream.batch(0)  # threads are started, files opened
        _wait(device)
        started = time.perf_counter()
        for step in range(1, batches + 1):
            stream.batch(step)
        _wait(device)
        return batches * batch_size / (time.perf_counter() - started)
    finally:
        stream.close()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
