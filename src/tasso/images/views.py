"""How a model sees a picture: crops, resizing and normalisation, on whatever device the batch is.

Resizing is separable and linear, so a crop followed by an antialiased resize is one matrix product per side:
`rows @ picture @ columnsᵀ`. The weights are those of Pillow's (and torchvision's) antialiased filters; Pillow
rounds to bytes after each pass, here nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Interpolation = Literal["bicubic", "bilinear"]
ResizeMode = Literal["shortest", "squash"]

# RandomResizedCrop of the authors: area 0.9–1.0, torchvision's default aspect ratios, ten attempts.
CROP_AREA = (0.9, 1.0)
CROP_RATIO = (3 / 4, 4 / 3)
CROP_ATTEMPTS = 10


@dataclass(frozen=True)
class Preprocess:
    """What a model expects of its input."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: Interpolation = "bicubic"
    resize_mode: ResizeMode = "shortest"


@dataclass(frozen=True)
class Boxes:
    """Regions of pictures, in pixels."""

    top: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    height: npt.NDArray[np.int64]
    width: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.top)


def crop_draws(rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
    """The random numbers of `count` crops. They do not depend on the pictures' sizes, so that they can be drawn
    before the pictures are read."""
    return rng.random((count, CROP_ATTEMPTS, 4))


def random_boxes(draws: npt.NDArray[np.float64], height: npt.NDArray[np.int64], width: npt.NDArray[np.int64]) -> Boxes:
    """torchvision's RandomResizedCrop: the first of ten attempts that fits, else the centre."""
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


def _centre_boxes(height: npt.NDArray[np.int64], width: npt.NDArray[np.int64]) -> Boxes:
    ratio = width / height
    w = np.where(ratio > CROP_RATIO[1], np.rint(height * CROP_RATIO[1]).astype(np.int64), width)
    h = np.where(ratio < CROP_RATIO[0], np.rint(width / CROP_RATIO[0]).astype(np.int64), height)
    return Boxes((height - h) // 2, (width - w) // 2, h, w)


def _filter(t: Tensor, interpolation: Interpolation) -> tuple[Tensor, float]:
    """Filter values at distances t, and the filter's half width."""
    t = t.abs()
    if interpolation == "bilinear":
        return (1 - t).clamp(min=0), 1.0
    a = -0.5
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = (((t - 5) * t + 8) * t - 4) * a
    return torch.where(t < 1, near, torch.where(t < 2, far, torch.zeros_like(t))), 2.0


def resize_weights(start: Tensor, length: Tensor, source: int, target: int, interpolation: Interpolation) -> Tensor:
    """Weights (n × target × source) that resize source[start : start + length] to `target` samples, antialiased.

    Args:
        start: first sample of each region, shape (n,).
        length: samples in each region, shape (n,).
    """
    start, length = start.float()[:, None, None], length.float()[:, None, None]
    scale = length / target
    centre = start + (torch.arange(target, device=start.device)[None, :, None] + 0.5) * scale
    position = torch.arange(source, device=start.device)[None, None, :]
    weights, _ = _filter((position + 0.5 - centre) / scale.clamp(min=1), interpolation)
    weights = weights * ((position >= start) & (position < start + length))
    return weights / weights.sum(-1, keepdim=True)


def crop_and_resize(pixels: Tensor, boxes: Boxes, preprocess: Preprocess) -> Tensor:
    """Cut one box out of each picture (n × 3 × height × width, uint8) and resize it; values in 0 … 1."""
    height, width, device = pixels.shape[-2], pixels.shape[-1], pixels.device

    def weights(start: npt.NDArray[np.int64], length: npt.NDArray[np.int64], source: int) -> Tensor:
        begin, size = torch.from_numpy(np.stack([start, length])).to(device, non_blocking=True)
        return resize_weights(begin, size, source, preprocess.size, preprocess.interpolation)

    rows, columns = weights(boxes.top, boxes.height, height), weights(boxes.left, boxes.width, width)
    return _resample(pixels, rows, columns)


def resize_and_centre(pixels: Tensor, preprocess: Preprocess) -> Tensor:
    """The evaluation view: resize (shortest side, or both when squashing), then cut out the centre."""
    height, width, size = pixels.shape[-2], pixels.shape[-1], preprocess.size
    if (height, width) == (size, size):
        return pixels.float() / 255
    target = resized(height, width, preprocess)

    def weights(source: int, length: int) -> Tensor:
        zero, full = (
            torch.zeros(1, device=pixels.device),
            torch.full((1,), float(source), device=pixels.device),
        )
        offset = centre_offset(length, size)
        return resize_weights(zero, full, source, length, preprocess.interpolation)[:, offset : offset + size]

    return _resample(pixels, weights(height, target[0]), weights(width, target[1]))


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


def _resample(pixels: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    picture = pixels.float() / 255
    picture = picture @ columns.transpose(1, 2)[:, None]
    return (rows[:, None] @ picture).clamp(0, 1)


def normalise(pictures: Tensor, preprocess: Preprocess) -> Tensor:
    """Subtract the model's mean and divide by its deviation, channel by channel."""
    mean, std = _statistics(preprocess, pictures.device)
    return (pictures - mean) / std


@cache
def _statistics(preprocess: Preprocess, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and deviation on the device; made once, since making them there waits for it."""
    mean, std = torch.tensor(preprocess.mean, device=device), torch.tensor(preprocess.std, device=device)
    return mean[:, None, None], std[:, None, None]
