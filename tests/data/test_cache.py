"""Which image sets are in memory: one budget for all, eviction, free memory, and the same bits in every case."""

from __future__ import annotations

import logging
import shutil
import tracemalloc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from method_runs import options_for, same
from tasso.config import from_dict
from tasso.data.images import DecodedPixels, OneSizePixels, PixelCache, Preprocess, thread_pool
from tasso.data.images import cache as cache_module
from tasso.data.images import decode as decode_module
from tasso.data.images import pixels as pixels_module
from tasso.data.images import shared as shared_module
from tasso.data.images.cache import free_memory
from tasso.data.images.shared import shared_images, sharing
from tasso.data.task import Array, ImageSet
from tasso.decoding.views import crop_draws
from tasso.errors import DataError, RunError
from tasso.training.learner import Learner, learn
from tasso.training.loop import TaskLoop
from tasso.training.run_data import RunData
from tasso.training.run_folder import RunFolder

CPU = torch.device("cpu")
POOL = thread_pool(2)
SIDE = 16
SET_BYTES = 10 * 3 * SIDE * SIDE
PREPROCESS = Preprocess(8, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))


class Noise:
    """Random images; counts what is read."""

    def __init__(self, height: Callable[[int], int] = lambda index: SIDE) -> None:
        self.height, self.reads = height, 0

    def read(self, key: str) -> Array:
        self.reads += 1
        shape = (self.height(int(key)), SIDE, 3)
        return np.random.default_rng(int(key)).integers(0, 256, shape, dtype=np.uint8)

    def missing(self, keys: object) -> list[str]:
        return []

    def describe(self, key: str) -> str:
        return f"image {key}"


def image_set(count: int = 10, source: Noise | None = None) -> ImageSet:
    return ImageSet(source or Noise(), tuple(map(str, range(count))), np.zeros(count, dtype=np.int64))


def cache_of(sets: float) -> PixelCache:
    """A cache with room for this many sets."""
    return PixelCache(PREPROCESS, CPU, POOL, sets * SET_BYTES / 2**30)


def in_memory(cache: PixelCache, *sets: ImageSet) -> list[bool]:
    """Which of the sets that were asked for are in memory."""
    pixels = [cache._sets.get((images.source, images.keys)) for images in sets]
    return [isinstance(found, OneSizePixels) and found.stack is not None for found in pixels]


def test_a_set_takes_the_room_of_the_least_recently_used() -> None:
    cache, (a, b, c) = cache_of(2.5), (image_set() for _ in range(3))
    for images in (a, b, a):
        cache.begin_phase()
        cache.pixels(images, "set")
    assert in_memory(cache, a, b) == [True, True]
    cache.begin_phase()
    cache.pixels(c, "set")
    assert in_memory(cache, a, b, c) == [True, False, True]
    cache.begin_phase()
    cache.pixels(b, "set")
    assert in_memory(cache, a, b, c) == [False, True, True], "read again"


def test_sets_in_use_are_not_evicted(caplog: pytest.LogCaptureFixture) -> None:
    cache, (old, a, b) = cache_of(2.5), (image_set(), image_set(), image_set(20))
    cache.pixels(old, "old")
    cache.begin_phase()
    with caplog.at_level(logging.INFO, "tasso"):
        for _ in range(2):
            cache.pixels(a, "a")
            cache.pixels(b, "b")
    assert in_memory(cache, old, a, b) == [True, True, False], "nor others in vain"
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("b: not kept in memory, read when needed")
    assert "--cache-gib" in line


def test_sets_of_one_phase_leave_memory_with_it() -> None:
    cache, (train, test) = cache_of(2.5), (image_set(), image_set())
    pixels = cache.pixels(train, "train", keep=False)
    cache.pixels(test, "test")
    views = pixels.eval_view(np.arange(10))
    cache.begin_phase()
    assert in_memory(cache, train, test) == [False, True]
    assert torch.equal(pixels.eval_view(np.arange(10)), views), "whoever still has them can read them"


def test_a_set_that_is_kept_stays_when_it_is_asked_for_once_more() -> None:
    cache, images = cache_of(2), image_set()
    cache.pixels(images, "set")
    cache.begin_phase()
    cache.pixels(images, "set", keep=False)
    cache.begin_phase()
    assert in_memory(cache, images) == [True]


def test_images_of_mixed_sizes_evict_nothing_and_are_not_read_to_the_end() -> None:
    cache, kept, mixed = cache_of(1.5), image_set(), Noise(lambda index: SIDE + index % 2)
    cache.pixels(kept, "kept")
    cache.begin_phase()
    images = image_set(5000, mixed)
    pixels = cache.pixels(images, "mixed")
    assert isinstance(pixels, DecodedPixels)
    assert mixed.reads < 300
    assert cache.pixels(images, "mixed") is pixels
    assert in_memory(cache, kept) == [True]


@pytest.mark.parametrize("sets", [0.0, 1.0])
def test_one_image_of_another_size_is_found_whether_they_fit_or_not(sets: float) -> None:
    images = image_set(10, Noise(lambda index: SIDE + (index == 9)))
    assert isinstance(cache_of(sets).pixels(images, "odd"), DecodedPixels)


@pytest.mark.parametrize("at_once", [2**28, 4 * 3 * SIDE * SIDE])  # also a few at a time, as large photographs
def test_views_have_the_same_bits_in_memory_read_and_evicted(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels_module, "CHUNK_BYTES", at_once)
    images, indices, draws = image_set(), np.array([7, 2, 2, 9, 0, 5]), crop_draws(np.random.default_rng(1), 6)
    caches = [cache_of(sets) for sets in (1, 0, 1)]
    kept, read, evicted = (cache.pixels(images, "set") for cache in caches)
    caches[-1].begin_phase()
    caches[-1].pixels(image_set(), "other")
    assert [pixels.stack is not None for pixels in (kept, read, evicted)] == [True, False, False]  # type: ignore[attr-defined]
    for pixels in (read, evicted):
        assert torch.equal(pixels.eval_view(indices), kept.eval_view(indices))
        assert torch.equal(pixels.train_view(indices, draws), kept.train_view(indices, draws))


def test_half_of_the_free_memory_is_left(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    cache, (a, b, c) = cache_of(100), (image_set() for _ in range(3))
    # What is in the cache is not free, but would be if it were evicted.
    monkeypatch.setattr(
        cache_module, "free_memory", lambda device: 4 * SET_BYTES - sum(p.nbytes for p in cache._loaded().values())
    )
    with caplog.at_level(logging.INFO, "tasso"):
        for images in (a, b, c):
            cache.pixels(images, "a set")
    assert in_memory(cache, a, b, c) == [True, True, False]
    assert "half of the free memory of cpu" in caplog.text
    cache.begin_phase()
    cache.pixels(c, "a set")
    assert in_memory(cache, a, b, c) == [False, True, True]


def test_free_memory_is_that_of_the_machine_or_of_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(cache_module, "CGROUP", tmp_path)
    assert free_memory(CPU) > 2**20, "a system without /proc"
    (tmp_path / "meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:  5000 kB\nHugePages_Total:   0\n")
    assert free_memory(CPU) == 5000 * 1024
    for name, content in (("current", "3000000\n"), ("stat", "anon 1000000\nfile 2000000\n"), ("max", "max\n")):
        (tmp_path / f"memory.{name}").write_text(content)
    assert free_memory(CPU) == 5000 * 1024
    (tmp_path / "memory.max").write_text("4000000\n")
    assert free_memory(CPU) == 3000000


class LiveTensors(TorchDispatchMode):
    """Bytes of the tensors made meanwhile, at most at any one time; views share the bytes of others."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        storage = made.untyped_storage()
        if (pointer := storage.data_ptr()) not in self.live:
            self.live[pointer] = storage.nbytes()
            weakref.finalize(made, self.live.pop, pointer, None)
            self.peak = max(self.peak, sum(self.live.values()))
        return made


def test_reading_a_set_needs_little_more_than_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decode_module, pixels_module):
        monkeypatch.setattr(module, "CHUNK_BYTES", 20 * 3 * SIDE * SIDE)
    images, tensors = image_set(1000), LiveTensors()
    size = 1000 * 3 * SIDE * SIDE
    tracemalloc.start()
    with tensors:
        pixels = PixelCache(PREPROCESS, CPU, POOL, 1.0).pixels(images, "set")
    arrays = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(pixels, OneSizePixels)
    assert pixels.stack is not None
    assert size <= tensors.peak + arrays < 1.2 * size


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tasso", "icarl", "gift"])
def test_a_run_has_the_same_bits_with_and_without_eviction(
    quick: dict[str, Any], tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evicted: list[str] = []
    make_room = PixelCache._make_room

    def counted(cache: PixelCache, nbytes: int, what: str) -> bool:
        before = cache._loaded().keys()
        has_room = make_room(cache, nbytes, what)
        evicted.extend(what for _ in before - cache._loaded().keys())
        return has_room

    monkeypatch.setattr(PixelCache, "_make_room", counted)
    runs = []
    one_set = 36 * 3 * 16 * 16 / 2**30  # the training images of a task
    for name, gib in (("all", 8.0), ("some", 1.2 * one_set), ("none", 0.0)):
        evicted.clear()
        out = tmp_path / name
        results = learn(from_dict({**quick, "method": options_for(method), "cache_gib": gib, "out": str(out)}))
        assert bool(evicted) == (name == "some")
        [*_, last] = sorted((out / "checkpoints").glob("*.safetensors"))
        runs.append((results["mtil"], results["mcil"], load_file(last)))
    for mtil, mcil, weights in runs[1:]:
        assert (mtil, mcil) == runs[0][:2]
        assert same(weights, runs[0][2])


# -- read ahead --------------------------------------------------------------------------------------------------


def test_a_set_that_was_read_ahead_has_the_same_bits_and_is_not_read_again() -> None:
    images, indices = image_set(), np.array([3, 0, 9])
    expected = cache_of(1).pixels(images, "set").eval_view(indices)
    for sets in (1, 1.5):
        source = Noise()
        cache, same_images = cache_of(sets), image_set(10, source)
        if sets > 1:
            cache.pixels(image_set(), "in use")  # on the device there is no room then
        cache.read_ahead(same_images)
        cache.read_ahead(same_images)
        pixels = cache.pixels(same_images, "set")
        assert source.reads == 11, "the first one tells the size"
        assert in_memory(cache, same_images) == [sets == 1]
        assert torch.equal(pixels.eval_view(indices), expected)
        assert isinstance(pixels, OneSizePixels)
        assert pixels.ahead is None, "the copy on the host is gone"


def test_sets_without_room_or_of_mixed_sizes_are_not_read_ahead_to_the_end() -> None:
    for sets, source, kind in ((0.5, Noise(), OneSizePixels), (9e9, Noise(lambda index: 9 + index), DecodedPixels)):
        cache, images = cache_of(sets), image_set(2000, source)
        cache.read_ahead(images)
        assert type(cache._read_ahead[source, images.keys].result()) is kind
        assert source.reads < 400


def test_sets_that_are_read_ahead_share_one_budget() -> None:
    cache, sets = cache_of(2.5), [image_set(10, Noise()) for _ in range(4)]

    def held() -> list[bool]:
        futures = [cache._read_ahead[images.source, images.keys] for images in sets[1:]]
        return [pixels.ahead is not None for pixels in (future.result() for future in futures)]

    for images in sets[:3]:
        cache.read_ahead(images)
    assert cache._read_ahead[sets[2].source, sets[2].keys].result().ahead is None, "two are waiting already"
    cache.pixels(sets[0], "the first is on the device now")
    cache.read_ahead(sets[3])
    assert held() == [True, False, True]


class Failing(Noise):
    """One image cannot be read."""

    def read(self, key: str) -> Array:
        if key == "7":
            raise OSError("disk on fire")
        return super().read(key)


def test_an_error_of_a_set_that_is_read_ahead_is_raised_when_it_is_asked_for() -> None:
    cache, images = cache_of(2), image_set(10, Failing())
    cache.read_ahead(images)
    cache.pixels(image_set(), "another")
    with pytest.raises(DataError, match="image 7: not a readable image: disk on fire"):
        cache.pixels(images, "set")


def test_a_closed_cache_stops_reading_ahead() -> None:
    class Waiting(Noise):
        def read(self, key: str) -> Array:
            if int(key) >= 300:
                assert cache._closed.wait(60)
            return super().read(key)

    cache, source = cache_of(9e9), Waiting()
    cache.read_ahead(image_set(5000, source))
    cache.close()
    assert source.reads < 1000
    cache.read_ahead(image_set())
    assert len(cache._read_ahead) == 1, "nor does it begin again"


@pytest.fixture
def reading_ahead(monkeypatch: pytest.MonkeyPatch) -> list[PixelCache]:
    """As with a GPU. The caches that have read ahead."""
    caches = []

    def read_ahead(data: RunData, *sets: ImageSet | None) -> None:
        caches.append(data.cache)
        for images in filter(None, sets):
            data.cache.read_ahead(images)

    monkeypatch.setattr(RunData, "read_ahead", read_ahead)
    return caches


@pytest.mark.parametrize("method", ["tasso", "gift"])
def test_a_run_that_reads_ahead_has_the_same_bits(
    quick: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest, method: str
) -> None:
    runs = []
    for name in ("plain", "ahead"):
        caches = request.getfixturevalue("reading_ahead") if name == "ahead" else []
        results = learn(from_dict({**quick, "method": options_for(method), "out": str(tmp_path / name)}))
        [*_, last] = sorted((tmp_path / name / "checkpoints").glob("*.safetensors"))
        runs.append((results["mtil"], load_file(last)))
    assert len(caches) == 4, "before the model is on its device, before the evaluation, and in each task"
    assert not caches[0]._read_ahead, "nothing that nobody asks for; GIFT has only the names of reference images"
    assert runs[0][0] == runs[1][0]
    assert same(runs[0][1], runs[1][1])


@pytest.mark.parametrize(("place", "step"), [(Learner, "_set_up_model"), (RunFolder, "opened")])
def test_reading_ahead_stops_where_a_run_cannot_begin(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch, reading_ahead: list[PixelCache], place: type, step: str
) -> None:
    monkeypatch.setattr(place, step, lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        learn(from_dict(quick))
    [cache] = reading_ahead
    assert cache._closed.is_set()


@pytest.mark.parametrize("diverges", [True, False])
def test_an_error_in_the_next_tasks_images_hides_nothing(
    quick: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading_ahead: object, diverges: bool
) -> None:
    read_ahead, failed = PixelCache.read_ahead, []

    def failing(cache: PixelCache, images: ImageSet) -> None:
        if not cache._in_use:  # before the first task
            return
        with monkeypatch.context() as patch:
            patch.setattr(cache, "_open", lambda images: 1 / 0)
            read_ahead(cache, images)
            [future] = cache._read_ahead.values()
            failed.append(type(future.exception(60)))

    def diverging(loop: TaskLoop, stop: object) -> None:
        raise RunError("the loss is not finite")

    monkeypatch.setattr(PixelCache, "read_ahead", failing)
    if diverges:
        monkeypatch.setattr(TaskLoop, "run", diverging)
    with pytest.raises(RunError if diverges else ZeroDivisionError):
        learn(from_dict({**quick, "out": str(tmp_path / "run")}))
    assert failed == [ZeroDivisionError]
    assert len(list((tmp_path / "run" / "checkpoints").glob("*.safetensors"))) == (0 if diverges else 1)


# -- shared with other processes ---------------------------------------------------------------------------------


class StampedNoise(Noise):
    """Noise that can tell whether it has changed."""

    stamp = "as drawn"

    def stamps(self, keys: Sequence[str]) -> list[str]:
        return [self.stamp] * len(keys)


class Gone(StampedNoise):
    """One file is gone."""

    def stamps(self, keys: Sequence[str]) -> list[str]:
        raise FileNotFoundError(keys[1])


def test_shared_images_have_the_same_bits_and_are_decoded_once(tmp_path: Path) -> None:
    indices, expected = np.array([3, 0, 9]), cache_of(1).pixels(image_set(), "set").eval_view(np.array([3, 0, 9]))
    for sets, reads in ((1, 11), (1, 1), (0, 1)):  # the first image tells the size
        source = StampedNoise()
        with sharing(tmp_path / "shared"):
            pixels = cache_of(sets).pixels(image_set(10, source), "set")
        assert torch.equal(pixels.eval_view(indices), expected)
        assert source.reads == reads
    [file] = (tmp_path / "shared").glob("*.u8")
    assert file.stat().st_size == SET_BYTES
    source.stamp = "drawn again"
    with sharing(tmp_path / "shared"):
        cache_of(1).pixels(image_set(10, source), "set")
    assert source.reads == 1 + 11


def test_images_that_cannot_be_shared_are_read_by_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    mixed = StampedNoise(lambda index: SIDE + (index == 8))
    for source, folder in (
        (Noise(), tmp_path / "shared"),  # nobody knows whether it changes
        (mixed, tmp_path / "shared"),
        (Gone(), tmp_path / "shared"),
        (StampedNoise(), tmp_path / "file"),  # not a folder
    ):
        with sharing(folder):
            assert shared_images(image_set(10, source)) is None
    for module, name, value in (
        (shutil, "disk_usage", lambda path: SimpleNamespace(free=2 * SET_BYTES - 1)),
        (shared_module, "SHARED_BYTES", SET_BYTES - 1),
    ):
        with monkeypatch.context() as patch, sharing(tmp_path / "shared"):
            patch.setattr(module, name, value)
            assert shared_images(image_set(10, StampedNoise())) is None
    assert [path.name for path in (tmp_path / "shared").iterdir()] == [".lock"]
