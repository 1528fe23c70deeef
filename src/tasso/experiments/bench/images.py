"""Images per second from files, decoded or packed, and training steps that read from packs."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image

from tasso.data import ImageSet
from tasso.data.annotated import FolderSource
from tasso.data.images import Packs, PixelCache, Pixels, Stream
from tasso.data.images.decode import ImagePool
from tasso.experiments.bench.random_tasks import bench_learner, random_learner, two_tasks
from tasso.experiments.bench.step import time_steps
from tasso.experiments.bench.timing import describe_machine, synchronise
from tasso.progress import progress

SIZES = ((500, 375), (375, 500), (640, 480), (400, 400))  # width and height of common photographs
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
    """Images per second from JPEG files of mixed sizes, decoded ("exact") and packed; decoding in processes against
    threads, also of small images; then training steps from packs against those with images on the device.

    The files have just been written, so they are read from the system's cache, as in all epochs but the first.

    Args:
        images: number of JPEG files, and of small images.
        batches: timed batches of `BATCH` images.
        rounds, calls: as in `time_calls`.
    """
    learner = random_learner(options, classes=classes)
    device, preprocess, pool = learner.device, learner.clip.preprocess, learner.data.pool
    on_device = time_steps(learner, rounds, calls)
    with tempfile.TemporaryDirectory(prefix="tasso-bench-") as folder:
        photographs = draw_photographs(Path(folder) / "photographs", images, classes)
        started = time.perf_counter()
        packs = Packs(Path(folder) / "packs", learner.config.pack_size, False, pool)
        packed_images = packs.add(photographs, "photographs", may_skip=False)
        packing_seconds = time.perf_counter() - started
        # Alternating, since other load on the machine comes and goes.
        pools = {"processes": ImagePool(pool.workers, 0), "threads": ImagePool(pool.workers, math.inf)}
        rates: dict[str, list[float]] = {f"{what}_{how}": [] for what in ("photographs", "icons") for how in pools}
        icons = draw_icons(Path(folder) / "icons", images)
        for _ in range(rounds):
            for how, own in pools.items():
                decoded_pixels = PixelCache(preprocess, device, own, 0.0).pixels(photographs, "photographs")
                rates[f"photographs_{how}"].append(images_per_second(decoded_pixels, device, batches))
                rates[f"icons_{how}"].append(images / seconds_to_read(icons, PixelCache(preprocess, device, own, 8.0)))
        decoding = {f"{name}_per_second": round(median(of_rounds), 1) for name, of_rounds in rates.items()}
        exact = decoding["photographs_processes_per_second"]
        packed_pixels = PixelCache(preprocess, device, pool, 0.0, packs).pixels(packed_images, "photographs")
        packed = images_per_second(packed_pixels, device, batches)
        from_packs = time_steps(  # without a cache in memory, however few the images are
            bench_learner(
                {**options, "cache_gib": 0.0, "pack_dir": str(packs.folder)},
                lambda size: two_tasks(classes, photographs, photographs.subset(np.arange(8)), photographs),
            ),
            rounds,
            calls,
        )
    packed = round(packed, 1)  # so that ratios are those of the printed rates
    return {
        "what": "images",
        **describe_machine(device),
        "cores": os.cpu_count(),
        "model": str(learner.clip.spec),
        "method": learner.config.method,
        "images": images,
        "packing_images_per_second": round(images / packing_seconds, 1),
        **decoding,
        "photographs_against_threads": round(exact / decoding["photographs_threads_per_second"], 2),
        "icons_against_threads": round(
            decoding["icons_processes_per_second"] / decoding["icons_threads_per_second"], 2
        ),
        "exact_images_per_second": exact,
        "packed_images_per_second": packed,
        "packed_against_exact": round(packed / exact, 2),
        "step_on_device": on_device.to_dict(),
        "step_from_packs": from_packs.to_dict(),
        "share_of_device_rate": round(on_device.seconds / from_packs.seconds, 4),
    }


def draw_photographs(folder: Path, count: int, classes: int) -> ImageSet:
    """JPEG files of the size of photographs: smooth colours with a little noise."""
    folder.mkdir(parents=True)

    def draw(number: int) -> str:
        rng = np.random.default_rng(number)
        width, height = SIZES[number % len(SIZES)]
        colours = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        smooth = np.asarray(colours.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
        noise = rng.integers(-12, 13, smooth.shape, dtype=np.int16)
        name = f"{number}.jpg"
        Image.fromarray(np.clip(smooth + noise, 0, 255).astype(np.uint8)).save(folder / name, quality=90)
        return name

    with progress("drawing photographs", count) as advance, ThreadPoolExecutor(os.cpu_count()) as pool:
        names = []
        for name in pool.map(draw, range(count)):
            names.append(name)
            advance(1, "")
    return ImageSet(FolderSource(folder), tuple(names), np.arange(count, dtype=np.int64) % classes)


def draw_icons(folder: Path, count: int) -> ImageSet:
    """WebP files of 64 × 64 pixels, as in mtil-mini."""
    folder.mkdir(parents=True)
    for number in range(count):
        colours = np.random.default_rng(number).integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(colours).resize((64, 64), Image.Resampling.BICUBIC).save(folder / f"{number}.webp", quality=80)
    names = tuple(f"{number}.webp" for number in range(count))
    return ImageSet(FolderSource(folder), names, np.zeros(count, dtype=np.int64))


def seconds_to_read(images: ImageSet, cache: PixelCache) -> float:
    """From files into memory on the device."""
    started = time.perf_counter()
    cache.pixels(images, "icons")
    synchronise(cache.device)
    return time.perf_counter() - started


def images_per_second(pixels: Pixels, device: torch.device, batches: int) -> float:
    """Images per second from a stream of training views, without training."""
    stream = Stream("speed", pixels, np.zeros(len(pixels), dtype=np.int64), BATCH, (0,), device)
    try:
        stream.batch(0)  # starts threads, opens files
        synchronise(device)
        started = time.perf_counter()
        for step in range(1, batches + 1):
            stream.batch(step)
        synchronise(device)
        return batches * BATCH / (time.perf_counter() - started)
    finally:
        stream.close()
