"""What a model sees of an image: boxes of crops and sizes, and views made with Pillow. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from tasso.decoding.pillow import Array

Interpolation = Literal["bicubic", "bilinear"]
ResizeMode = Literal["shortest", "squash"]
Indices = npt.NDArray[np.int64]
Numbers = Indices | npt.NDArray[np.float64]

# RandomResizedCrop of the authors: area 0.9–1.0, torchvision's default aspect ratios, ten attempts.
CROP_AREA = (0.9, 1.0)
CROP_RATIO = (3 / 4, 4 / 3)
CROP_ATTEMPTS = 10


@dataclass(frozen=True)
class Preprocess:
    """What a model expects of its input: images of `size` × `size` pixels, normalised by mean and std."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: Interpolation = "bicubic"
    resize_mode: ResizeMode = "shortest"


@dataclass(frozen=True)
class Boxes:
    """One region per image, in pixels; each field is `(B,)`."""

    top: Numbers
    left: Numbers
    height: Numbers
    width: Numbers

    def __len__(self) -> int:
        return len(self.top)


def crop_draws(rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
    """The random numbers of `count` crops, `(count, attempts, 4)`.

    They do not depend on the images' sizes, so that they can be drawn before the images are read.
    """
    return rng.random((count, CROP_ATTEMPTS, 4))


def random_boxes(draws: npt.NDArray[np.float64], height: Indices, width: Indices) -> Boxes:
    """torchvision's RandomResizedCrop: the first of ten attempts that fits, else the centre.

    Args:
        draws: `(B, attempts, 4)`.
        height: `(B,)`.
        width: `(B,)`.
    """
    area = (height * width)[:, None] * (CROP_AREA[0] + draws[..., 0] * (CROP_AREA[1] - CROP_AREA[0]))
    low, high = np.log(CROP_RATIO[0]), np.log(CROP_RATIO[1])
    ratio = np.exp(low + draws[..., 1] * (high - low))
    w, h = np.rint(np.sqrt(area * ratio)).astype(np.int64), np.rint(np.sqrt(area / ratio)).astype(np.int64)
    fits = (w > 0) & (w <= width[:, None]) & (h > 0) & (h <= height[:, None])
    row, first = np.arange(len(draws)), fits.argmax(axis=1)
    w, h = w[row, first], h[row, first]
    top = (draws[row, first, 2] * (height - h + 1)).astype(np.int64)
    left = (draws[row, first, 3] * (width - w + 1)).astype(np.int64)
    fallback = _centre_boxes(height, width)
    ok = fits.any(axis=1)
    return Boxes(
        np.where(ok, top, fallback.top),
        np.where(ok, left, fallback.left),
        np.where(ok, h, fallback.height),
        np.where(ok, w, fallback.width),
    )


def _centre_boxes(height: Indices, width: Indices) -> Boxes:
    ratio = width / height
    w = np.where(ratio > CROP_RATIO[1], np.rint(height * CROP_RATIO[1]).astype(np.int64), width)
    h = np.where(ratio < CROP_RATIO[0], np.rint(width / CROP_RATIO[0]).astype(np.int64), height)
    return Boxes((height - h) // 2, (width - w) // 2, h, w)


def centre_offset(length: int, size: int) -> int:
    """Where torchvision's centre crop begins; it rounds half to even."""
    return round((length - size) / 2.0)


def resized(height: int, width: int, preprocess: Preprocess) -> tuple[int, int]:
    """Size after torchvision's Resize, before the centre crop."""
    size = preprocess.size
    if preprocess.resize_mode == "squash":
        return size, size
    if height <= width:
        return size, int(size * width / height)
    return int(size * height / width), size


# -- views of one image, made with Pillow as torchvision does -------------------------------------------------------

Decoded = Image.Image | Array  # RGB, or (H, W, 3) uint8
PIL_FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


def _image(decoded: Decoded) -> Image.Image:
    return decoded if isinstance(decoded, Image.Image) else Image.fromarray(decoded)


def nothing(decoded: Decoded, _: None = None) -> None:
    """Where all there is to know is whether an image can be decoded."""


def planes(decoded: Decoded, _: None = None) -> Array:
    """The image itself, `(3, H, W)`."""
    return np.ascontiguousarray(np.asarray(decoded).transpose(2, 0, 1))


def random_crop(preprocess: Preprocess, decoded: Decoded, draws: npt.NDArray[np.float64]) -> Array:
    """The training view, `(size, size, 3)`; draws: `(attempts, 4)`, see `crop_draws`."""
    image = _image(decoded)
    box = random_boxes(draws[None], np.array([image.height]), np.array([image.width]))
    top, left, height, width = (int(v[0]) for v in (box.top, box.left, box.height, box.width))
    region = image.crop((left, top, left + width, top + height))
    size = (preprocess.size, preprocess.size)
    return np.asarray(region.resize(size, PIL_FILTERS[preprocess.interpolation]))


def centre_crop(preprocess: Preprocess, decoded: Decoded, _: None = None) -> Array:
    """The view of evaluation, `(size, size, 3)`."""
    image = _image(decoded)
    height, width = resized(image.height, image.width, preprocess)
    small = image.resize((width, height), PIL_FILTERS[preprocess.interpolation])
    size = preprocess.size
    top, left = centre_offset(height, size), centre_offset(width, size)
    return np.asarray(small.crop((left, top, left + size, top + size)))


def shrunk(size: int, decoded: Decoded, _: None = None) -> tuple[tuple[int, int, int, int], Array]:
    """What a pack stores: height and width as packed and of the original, and the pixels, `(3, H, W)`.

    The short side is brought down to `size`, bicubic and antialiased, as the models' own preprocessing shrinks images.
    Smaller images stay as they are.
    """
    image = _image(decoded)
    width, height = image.size
    short = min(image.size)
    if short > size:
        image = image.resize((round(width * size / short), round(height * size / short)), Image.Resampling.BICUBIC)
    return (image.height, image.width, height, width), planes(image)
