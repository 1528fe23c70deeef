"""How fast images come from files: decoded one by one, and from packs; and what of it is left while training."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tasso.data import ImageSet
from tasso.data.annotated import FolderSource
from tasso.data.images import Packs, Pixels, Stream, load_pixels
from tasso.experiments.bench.measure import machine, plain, synchronise
from tasso.experiments.bench.noise import bench_learner, noise_learner, two_tasks
from tasso.experiments.bench.step import IMAGES, time_steps
from tasso.progress import progress

SIDES = ((500, 375), (375, 500), (640, 480), (400, 400))  # width and height of usual photographs
BATCH = 96


def bench_images(
    options: Mapping[str, Any],
    *,
    classes: int = 100,
    images: int = 4096,
    batches: int = 20,
    rounds: int = 3,
    calls: int | None = None,
) -> dict[str, Any]:
    """Images a second from JPEG files of mixed sizes, exactly as torchvision sees them and packed; then training
    steps from packs beside those on images that lie on the device already.

    The files have just been written, so that they are read from the system's cache, as in all epochs but the first.
    """
    endless = {"steps": 10**6, **options}
    learner = noise_learner(endless, classes=classes, images=IMAGES)
    device, preprocess, pool = learner.device, learner.clip.preprocess, learner.data.pool
    held = time_steps(learner, rounds, calls)
    with tempfile.TemporaryDirectory(prefix="tasso-bench-") as place:
        photographs = draw_photographs(Path(place) / "photographs", images, classes)
        started = time.perf_counter()
        packs = Packs(Path(place) / "packs", learner.config.pack_size, False, pool)
        packed_images = packs.add(photographs, "photographs", may_skip=False)
        packing = time.perf_counter() - started
        exact = images_per_second(load_pixels(photographs, preprocess, device, pool, 0.0), device, batches)
        found = load_pixels(packed_images, preprocess, device, pool, 0.0, packs=packs)
        packed = images_per_second(found, device, batches)
        # Held nowhere: from disk means from disk, however few the images are.
        from_disk = time_steps(
            bench_learner(
                {**endless, "cache_gib": 0.0, "pack_dir": str(packs.folder)},
                lambda size: two_tasks(classes, photographs, photographs.subset(np.arange(8)), photographs),
            ),
            rounds,
            calls,
        )
    exact, packed = round(exact, 1), round(packed, 1)  # so that their ratio is that of the numbers told
    return {
        "what": "images",
        **machine(device),
        "cores": os.cpu_count(),
        "model": str(learner.clip.spec),
        "method": learner.config.method,
        "images": images,
        "packing_images_per_second": round(images / packing, 1),
        "exact_images_per_second": exact,
        "packed_images_per_second": packed,
        "packed_against_exact": round(packed / exact, 2),
        "step_on_device": plain(held),
        "step_from_packs": plain(from_disk),
        "share_of_device_rate": round(held.seconds / from_disk.seconds, 4),
    }


def draw_photographs(folder: Path, count: int, classes: int) -> ImageSet:
    """JPEG files as large as photographs: smooth colours with a little grain."""
    folder.mkdir(parents=True)

    def draw(number: int) -> str:
        rng = np.random.default_rng(number)
        width, height = SIDES[number % len(SIDES)]
        colours = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        smooth = np.asarray(colours.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
        grain = rng.integers(-12, 13, smooth.shape, dtype=np.int16)
        name = f"{number}.jpg"
        Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(folder / name, quality=90)
        return name

    with progress("drawing photographs", count) as advance, ThreadPoolExecutor(os.cpu_count()) as pool:
        names = []
        for name in pool.map(draw, range(count)):
            names.append(name)
            advance(1, "")
    return ImageSet(FolderSource(folder), tuple(names), np.arange(count, dtype=np.int64) % classes)


def images_per_second(pixels: Pixels, device: torch.device, batches: int) -> float:
    """Images that a stream of training views delivers a second when nobody else needs the machine."""
    stream = Stream("speed", pixels, np.zeros(len(pixels), dtype=np.int64), BATCH, (0,), device)
    try:
        stream.batch(0)  # threads are started, files opened
        synchronise(device)
        started = time.perf_counter()
        for step in range(1, batches + 1):
            stream.batch(step)
        synchronise(device)
        return batches * BATCH / (time.perf_counter() - started)
    finally:
        stream.close()
