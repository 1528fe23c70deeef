"""Views against torchvision and Pillow; batches that depend on nothing but their numbers."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.functional import InterpolationMode

from conftest import in_memory
from replayed_step import Recorder
from tasso.data.images import DecodedPixels, OneSizePixels, PixelCache, Preprocess, Stream, View, thread_pool
from tasso.data.images.decode import decode
from tasso.data.images.transforms import as_tensor, crop_spans, resample, resize_and_centre
from tasso.data.task import Array, ImageSet
from tasso.decoding.pillow import CorruptImageError, to_rgb
from tasso.decoding.views import CROP_AREA, CROP_RATIO, Boxes, crop_draws, random_boxes
from tasso.errors import DataError
from tasso.training.cuda_graphs import copy_into, own_copy

CPU = torch.device("cpu")


class ArraySource:
    """Images given as arrays, or as bytes that are no image."""

    def __init__(self, images: list[Array | bytes]) -> None:
        self.images = images

    def read(self, key: str) -> Array | bytes:
        return self.images[int(key)]

    def missing(self, keys: Sequence[str]) -> list[str]:
        return []

    def describe(self, key: str) -> str:
        return f"image {key}"


def image_set(images: list[Array | bytes]) -> ImageSet:
    keys = tuple(str(i) for i in range(len(images)))
    return ImageSet(ArraySource(images), keys, np.arange(len(keys), dtype=np.int64))


def photo(height: int, width: int, seed: int = 0) -> Array:
    """Smooth structure with some noise, as photographs have."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [128 + 90 * np.sin(x / (5 + c) + y / (9 - c) + c) for c in range(3)]
    return np.clip(np.stack(waves, -1) + rng.normal(0, 8, (height, width, 3)), 0, 255).astype(np.uint8)


def as_batch(image: Array) -> torch.Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)[None]


@pytest.mark.parametrize(("height", "width", "size"), [(64, 64, 64), (100, 80, 32), (48, 90, 64), (300, 224, 224)])
def test_a_crop_equals_torchvision_on_pillow(height: int, width: int, size: int) -> None:
    image = photo(height, width)
    box = Boxes(*(np.array([v]) for v in (3, 2, height - 6, width - 5)))
    preprocess = Preprocess(size, (0, 0, 0), (1, 1, 1))
    ours = resample(as_batch(image), as_tensor(*crop_spans(box, preprocess)), preprocess)[0]
    theirs = v2.functional.resized_crop(
        Image.fromarray(image), 3, 2, height - 6, width - 5, [size, size], InterpolationMode.BICUBIC
    )
    error = (ours * 255 - torch.from_numpy(np.array(theirs)).permute(2, 0, 1)).abs()
    assert float(error.max()) <= 1.6  # Pillow rounds to bytes twice
    assert float(error.mean()) <= 0.5


@pytest.mark.parametrize(("height", "width", "size"), [(64, 64, 64), (100, 80, 32), (48, 91, 64), (301, 224, 224)])
def test_evaluation_view_equals_torchvision_on_pillow(height: int, width: int, size: int) -> None:
    image = photo(height, width)
    preprocess = Preprocess(size, (0, 0, 0), (1, 1, 1))
    theirs = v2.Compose([v2.Resize(size, InterpolationMode.BICUBIC), v2.CenterCrop(size)])(Image.fromarray(image))
    expected = torch.from_numpy(np.array(theirs)).permute(2, 0, 1)
    batched = resize_and_centre(as_batch(image), preprocess)[0] * 255
    assert float((batched - expected).abs().max()) <= 1.6
    stored = DecodedPixels(image_set([image]), preprocess, CPU, thread_pool(1)).eval_view(np.array([0]))[0] * 255
    torch.testing.assert_close(stored.round().to(torch.uint8), expected)


def test_the_two_kinds_of_pixels_agree_on_training_views() -> None:
    images: list[Array | bytes] = [photo(40, 56, seed) for seed in range(6)]
    preprocess = Preprocess(32, (0.48, 0.46, 0.41), (0.27, 0.26, 0.28))
    stacked = in_memory(torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2), preprocess)  # type: ignore[arg-type]
    stored = DecodedPixels(image_set(images), preprocess, CPU, thread_pool(2))
    indices, draws = np.array([4, 0, 2]), crop_draws(np.random.default_rng(5), 3)
    difference = (stacked.train_view(indices, draws) - stored.train_view(indices, draws)).abs() * 0.27 * 255
    assert float(difference.max()) <= 1.7
    assert float(difference.mean()) <= 0.5


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 9999), height=st.integers(8, 400), width=st.integers(8, 400))
def test_crops_lie_inside_and_have_the_asked_area(seed: int, height: int, width: int) -> None:
    n = 16
    boxes = random_boxes(crop_draws(np.random.default_rng(seed), n), np.full(n, height), np.full(n, width))
    assert (boxes.top >= 0).all()
    assert (boxes.left >= 0).all()
    assert (boxes.top + boxes.height <= height).all()
    assert (boxes.left + boxes.width <= width).all()
    assert (boxes.height > 0).all()
    if CROP_RATIO[0] <= width / height <= CROP_RATIO[1]:  # else the fallback cuts more away
        slack = (height + width) / (height * width)  # sides are whole numbers
        assert (boxes.height * boxes.width >= (CROP_AREA[0] - slack) * height * width).all()


def test_crop_statistics_equal_torchvisions() -> None:
    torch.manual_seed(0)
    n, side = 4000, 64
    boxes = random_boxes(crop_draws(np.random.default_rng(0), n), np.full(n, side), np.full(n, side))
    blank = torch.zeros(3, side, side)
    theirs = np.array([v2.RandomResizedCrop.make_params(v2.RandomResizedCrop(side, scale=CROP_AREA), [blank])["height"]
                       for _ in range(n)])  # fmt: skip
    assert boxes.height.mean() == pytest.approx(theirs.mean(), abs=0.15)
    assert (boxes.height == side).mean() == pytest.approx((theirs == side).mean(), abs=0.04)


def stream(count: int, batch: int, seed: tuple[int, ...] = (1, 2), name: str = "task") -> Stream:
    stack = torch.zeros(count, 3, 8, 8, dtype=torch.uint8)
    pixels = in_memory(stack, Preprocess(8, (0, 0, 0), (1, 1, 1)))
    return Stream(name, pixels, np.arange(count) % 3, batch, seed, CPU)


@pytest.mark.parametrize("view", ["train", "eval"])
@pytest.mark.parametrize("sides", [(8, 8), (20, 20), (20, 24)])
def test_images_follow_from_what_was_drawn_in_a_replay_too(view: View, sides: tuple[int, int]) -> None:
    """Of images in memory all operations depend on the numbers drawn alone, and the images stay where they are."""
    images = torch.from_numpy(np.random.default_rng(3).integers(0, 256, (11, 3, *sides), dtype=np.uint8))
    pixels = in_memory(images, Preprocess(8, (0.5, 0.4, 0.3), (0.2, 0.3, 0.2)))
    s = Stream("task", pixels, np.arange(11) % 3, 4, (1, 2), CPU, view)
    expected = [pixels.eval_view(s.indices(step)) for step in range(3)]
    if view == "train":
        draws = [crop_draws(np.random.default_rng((*s.epochs.seed, 1, step)), 4) for step in range(3)]
        expected = [pixels.train_view(s.indices(step), drawn) for step, drawn in enumerate(draws)]
    inputs = {"task": s.draw(0)}
    static, recorder = own_copy(inputs, CPU), Recorder()
    pixels.stack = None  # others do without the images
    with recorder:
        batch = s.images(static["task"])
    for step in range(3):
        copy_into(static, {"task": s.draw(step)})
        recorder.replay()
        assert torch.equal(batch.pixels, expected[step])
        assert batch.labels.tolist() == (s.indices(step) % 3).tolist()
        assert batch.indices.tolist() == s.indices(step).tolist()


def test_an_epoch_visits_no_image_twice_and_drops_the_rest() -> None:
    s = stream(23, 5)
    epoch = np.concatenate([s.indices(step) for step in range(4)])
    assert len(set(epoch)) == 20
    assert not np.array_equal(s.indices(0), s.indices(4))


def test_batches_depend_on_seed_name_and_step_alone() -> None:
    fresh, used = stream(23, 5), stream(23, 5)
    for step in range(7):
        used.batch(step)
    np.testing.assert_array_equal(fresh.indices(9), used.indices(9))
    assert not np.array_equal(fresh.indices(9), stream(23, 5, (1, 3)).indices(9))
    assert not np.array_equal(fresh.indices(9), stream(23, 5, name="reference").indices(9))


@given(count=st.integers(1, 9), batch=st.integers(1, 20), step=st.integers(0, 30))
def test_small_sets_go_round_evenly(count: int, batch: int, step: int) -> None:
    indices = stream(count, batch).indices(step)
    assert len(indices) == batch
    times = np.bincount(indices, minlength=count)
    assert times.max() - times.min() <= 2


def test_labels_follow_their_images() -> None:
    batch = stream(10, 4).batch(3)
    assert torch.equal(batch.labels, batch.indices % 3)


def test_stored_images_are_read_ahead_and_come_in_order() -> None:
    images: list[Array | bytes] = [photo(20 + i, 30, i) for i in range(9)]
    preprocess = Preprocess(16, (0, 0, 0), (1, 1, 1))
    pixels = PixelCache(preprocess, CPU, thread_pool(2), 1.0).pixels(image_set(images), "photos")
    assert isinstance(pixels, DecodedPixels)  # sizes differ, so they cannot be stacked
    s = Stream("task", pixels, np.arange(9), 4, (7,), CPU)
    ahead = [s.batch(step) for step in range(4)]
    jump = s.batch(2)  # a step out of order is prepared afresh
    s.close()
    assert [len(b.pixels) for b in ahead] == [4, 4, 4, 4]
    torch.testing.assert_close(jump.pixels, ahead[2].pixels)


def test_memory_limit_decides_where_images_live() -> None:
    images: list[Array | bytes] = [photo(16, 16, i) for i in range(5)]
    preprocess = Preprocess(16, (0, 0, 0), (1, 1, 1))
    for limit, fits in ((1.0, True), (1e-9, False)):
        pixels = PixelCache(preprocess, CPU, thread_pool(1), limit).pixels(image_set(images), "photos")
        assert isinstance(pixels, OneSizePixels)
        assert (pixels.stack is not None) == fits


def test_unreadable_image_is_named() -> None:
    images: list[Array | bytes] = [photo(16, 16), b"not an image"]
    with pytest.raises(DataError, match="image 1: not a readable image"):
        PixelCache(Preprocess(16, (0, 0, 0), (1, 1, 1)), CPU, thread_pool(1), 1.0).pixels(image_set(images), "photos")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "I;16"])
def test_every_mode_becomes_rgb_bytes(mode: str) -> None:
    grey = Image.fromarray(np.tile(np.arange(0, 256, 8, dtype=np.uint8), (32, 1)))
    if mode == "I;16":
        image = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    elif mode == "PA":
        image = grey.convert("RGBA").convert("P").convert("PA")
    else:
        image = grey.convert(mode)
    pixels = to_rgb(image)
    assert pixels.shape == (32, 32, 3)
    assert pixels.dtype == np.uint8
    if mode != "1":  # black and white has lost the ramp
        np.testing.assert_allclose(pixels[..., 1], np.asarray(grey), atol=6)


def test_webp() -> None:
    buffer = io.BytesIO()
    Image.fromarray(photo(9, 7)).save(buffer, "WEBP", lossless=True)
    stored = buffer.getvalue()
    np.testing.assert_array_equal(decode(image_set([stored]), 0), photo(9, 7))
    for damaged in (stored[:12], stored[:12] + b"?" * 40, stored[:-20]):
        with pytest.raises(CorruptImageError, match="image 0: not a readable image"):
            decode(image_set([damaged]), 0)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_modes_of_unknown_range_are_refused_by_name(mode: str) -> None:
    buffer = io.BytesIO()
    Image.new(mode, (4, 4)).save(buffer, "TIFF")
    with pytest.raises(DataError, match=f"image 0: not a readable image: mode {mode} has no known range"):
        decode(image_set([buffer.getvalue()]), 0)


def test_one_pixel_is_an_image() -> None:
    cache = PixelCache(Preprocess(8, (0, 0, 0), (1, 1, 1)), CPU, thread_pool(1), 1.0)
    pixels = cache.pixels(image_set([photo(1, 1)]), "photos")
    assert pixels.eval_view(np.array([0])).shape == (1, 3, 8, 8)
    assert bool(torch.isfinite(pixels.train_view(np.array([0]), crop_draws(np.random.default_rng(0), 1))).all())
