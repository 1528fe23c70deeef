"""How a model sees an image: crops, resizing and normalisation, on the device of the batch.

Resizing is separable and linear, so a crop followed by an antialiased resize is one matrix product per side:
`rows @ image @ columnsᵀ`. The weights are those of Pillow's (and torchvision's) antialiased filters. Pillow rounds to
bytes after each pass. Here a CPU rounds nothing; a GPU multiplies in float16, which represents bytes exactly and is, on
average, a tenth as far from the unrounded result as Pillow is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasso.decoding.views import Boxes, Indices, Interpolation, Numbers, Preprocess, centre_offset, resized
from tasso.kernels import has_kernels

FILTER_WIDTH = {"bicubic": 2.0, "bilinear": 1.0}  # how far a filter reaches on both sides, unstretched
BAND = 56  # samples that a CPU computes at once


@dataclass(frozen=True)
class Sizes:
    """Heights and widths of images, each `(B,)`."""

    height: Indices
    width: Indices


@dataclass(frozen=True)
class Span:
    """What a view takes from each image along one side, in pixels of the stored image; each field but `size` is `(B,)`.

    The pixels from `start` to `start + length` are resized to `whole` samples, and the view shows `size` of these from
    `offset` on. Positions may lie between pixels: the stored image may be smaller than the original, for which the crop
    was drawn.
    """

    start: Numbers
    length: Numbers
    whole: Numbers
    offset: Numbers
    size: int

    @property
    def scale(self) -> npt.NDArray[np.float64]:
        """Pixels per sample, `(B,)`."""
        return np.asarray(self.length / self.whole, dtype=np.float64)

    def __getitem__(self, part: slice) -> Span:
        """The spans of some of the images."""
        return Span(self.start[part], self.length[part], self.whole[part], self.offset[part], self.size)

    @property
    def numbers(self) -> npt.NDArray[np.float64]:
        """All that differs from image to image, `(4, B)`."""
        return np.stack([self.start, self.length, self.whole, self.offset]).astype(np.float64)

    def shifted(self, by: Indices) -> Span:
        """The same after the first `by` pixels of each image were cut off."""
        return Span(self.start - by, self.length, self.whole, self.offset, self.size)

    def reach(
        self, source: int | Indices, interpolation: Interpolation, first: int = 0, count: int | None = None
    ) -> tuple[Indices, Indices]:
        """The first and the end of the pixels that `count` samples of the view from `first` on depend on, each `(B,)`.

        One pixel more than the filter's width on both sides, so that what rounding adds are still real pixels.

        Args:
            source: pixels of the stored images along this side.
        """
        margin = FILTER_WIDTH[interpolation] * np.maximum(self.scale, 1) + 1
        begin = self.start + (self.offset + first) * self.scale
        end = begin + (self.size - first if count is None else count) * self.scale
        low = np.floor(np.maximum(begin - margin, self.start)).astype(np.int64)
        high = np.ceil(np.minimum(end + margin, self.start + self.length)).astype(np.int64)
        return np.clip(low, 0, source), np.clip(high, 0, source)


def crop_spans(boxes: Boxes, preprocess: Preprocess) -> tuple[Span, Span]:
    """Rows and columns of the training view: each image's box becomes the whole view."""
    whole, none = np.full(len(boxes), preprocess.size), np.zeros(len(boxes), dtype=np.int64)
    return (
        Span(boxes.top, boxes.height, whole, none, preprocess.size),
        Span(boxes.left, boxes.width, whole, none, preprocess.size),
    )


def centre_spans(stored: Sizes, original: Sizes, preprocess: Preprocess) -> tuple[Span, Span]:
    """Rows and columns of the evaluation view of images that are stored smaller than their original size."""
    sides = zip(original.height.tolist(), original.width.tolist(), strict=True)
    target = np.array([resized(height, width, preprocess) for height, width in sides], dtype=np.int64).reshape(-1, 2)

    def span(length: Indices, whole: Indices) -> Span:
        offset = np.array([centre_offset(side, preprocess.size) for side in whole.tolist()], dtype=np.int64)
        return Span(np.zeros(len(length), dtype=np.int64), length, whole, offset, preprocess.size)

    return span(stored.height, target[:, 0]), span(stored.width, target[:, 1])


def as_tensor(rows: Span, columns: Span) -> Tensor:
    """All that a view takes from each image, `(2, 4, B)` float64, for `resample`: see `Span.numbers`."""
    return torch.from_numpy(np.stack([rows.numbers, columns.numbers]))


def _filter(t: Tensor, interpolation: Interpolation) -> Tensor:
    """Filter values at distances t."""
    t = t.abs()
    if interpolation == "bilinear":
        return (1 - t).clamp(min=0)
    a = -0.5
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = (((t - 5) * t + 8) * t - 4) * a
    return torch.where(t < 1, near, torch.where(t < 2, far, torch.zeros_like(t)))


def resize_weights(spans: Tensor, size: int, source: int, interpolation: Interpolation) -> Tensor:
    """Antialiased weights `(B, size, source)` that turn `source` pixels into the view; zero outside each span.

    Only the weights of the few pixels that a sample depends on are computed, then scattered into the zeros. No shape
    depends on the values of `spans`, so that a CUDA graph can contain this.

    Args:
        spans: `(4, B)`, see `Span.numbers`.
    """
    start, length, whole, offset = spans.float()[:, :, None, None]
    scale = length / whole  # at most source / size
    stretch = scale.clamp(min=1)  # a filter is widened to shrink an image, never narrowed
    centre = start + (torch.arange(size, device=spans.device)[None, :, None] + offset + 0.5) * scale
    taps = 3 + math.ceil(2 * FILTER_WIDTH[interpolation] * max(1.0, source / size))
    first = (centre - FILTER_WIDTH[interpolation] * stretch - 0.5).floor()
    position = first + torch.arange(taps, device=spans.device)
    weights = _filter((position + 0.5 - centre) / stretch, interpolation)
    inside = (position + 0.5 >= start) & (position + 0.5 < start + length)
    columns = position.clamp(0, source - 1).long()  # where there are no pixels, weights are zero
    zeros = torch.zeros(spans.shape[1], size, source, device=spans.device)
    weights = zeros.scatter_add_(-1, columns, weights * inside)
    return weights.div_(weights.sum(-1, keepdim=True))


def resize_and_centre(pixels: Tensor, preprocess: Preprocess) -> Tensor:
    """The evaluation view: resize (shortest side, or both when squashing), then cut out the centre.

    Args:
        pixels: `(B, 3, H, W)`, uint8.

    Returns:
        `(B, 3, size, size)`, values in 0 … 1.
    """
    height, width = pixels.shape[-2:]
    return resample(pixels, centre(height, width, preprocess), preprocess)


def centre(height: int, width: int, preprocess: Preprocess) -> Tensor | None:
    """What `resize_and_centre` takes from images of one size, `(2, 4, 1)`; None: all of it, as it is."""
    if (height, width) == (preprocess.size, preprocess.size):
        return None
    one = Sizes(np.array([height]), np.array([width]))
    return as_tensor(*centre_spans(one, one, preprocess))


def resample(pixels: Tensor, spans: Tensor | None, preprocess: Preprocess) -> Tensor:
    """What the spans take from each image `(B, 3, H, W)` uint8: `(B, 3, size, size)`, values in 0 … 1; on a CPU it need
    not be contiguous.

    Images of different sizes are padded at the right and at the bottom; the padding has no influence.

    Args:
        spans: rows and columns, `(2, 4, B)` as from `as_tensor`, or `(2, 4, 1)` for all images; None: the images as
            they are.
    """
    if spans is None:
        return pixels.float() / 255
    height, width, size, filter_ = *pixels.shape[-2:], preprocess.size, preprocess.interpolation
    kind = torch.float16 if pixels.is_cuda else torch.float32
    spans = spans.to(pixels.device, non_blocking=True)
    if height == width:  # half as many launches
        of_rows, of_columns = _weights(torch.cat([*spans], 1), size, width, filter_).chunk(2)
    else:
        of_rows, of_columns = _weights(spans[0], size, height, filter_), _weights(spans[1], size, width, filter_)
    # Channels within rows, so that both products are of matrices, one per image.
    image = pixels.transpose(1, 2).to(kind, memory_format=torch.contiguous_format).flatten(1, 2)
    parts = [image[..., band] @ of_columns.mT[:, band, at] for at, band in _bands(spans[1], size, width, filter_)]
    image = _cat(parts, -1).view(len(pixels), height, -1)
    parts = [of_rows[:, at, band] @ image[:, band] for at, band in _bands(spans[0], size, height, filter_)]
    view = _cat(parts, -2).view(len(pixels), size, 3, size).transpose(1, 2)
    layout = torch.contiguous_format if pixels.is_cuda else torch.preserve_format  # a GPU copies here anyway
    return view.clamp_(0, 255).to(torch.float32, memory_format=layout).div_(255)


def _weights(spans: Tensor, size: int, source: int, interpolation: Interpolation) -> Tensor:
    """`resize_weights` in the numbers that images are multiplied in."""
    if not spans.is_cuda:
        return resize_weights(spans, size, source, interpolation)
    if has_kernels(spans.device):
        from tasso.kernels import crops

        if source <= crops.WIDEST:
            return crops.resize_weights(spans, size, source, FILTER_WIDTH[interpolation])
    return resize_weights(spans, size, source, interpolation).half()


def _bands(spans: Tensor, size: int, source: int, interpolation: Interpolation) -> Iterator[tuple[slice, slice]]:
    """Samples of the view, and the pixels that they depend on.

    The weights are zero but for a band along the diagonal: a CPU gains by leaving out most of the zeros, a GPU by one
    large product.
    """
    if spans.device.type != "cpu" or size < 2 * BAND:
        yield slice(0, size), slice(0, source)
        return
    start, length, whole, offset = spans.numpy()
    span = Span(start, length, whole, offset, size)
    for first in range(0, size, BAND):
        count = min(BAND, size - first)
        low, high = span.reach(source, interpolation, first, count)
        yield slice(first, first + count), slice(int(low.min()), int(high.max()))


def _cat(parts: list[Tensor], side: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, side)


def normalise(images: Tensor, preprocess: Preprocess) -> Tensor:
    """Subtract the model's mean and divide by its std per channel; images `(B, 3, H, W)` with values in 0 … 1."""
    offset, factor = _statistics(preprocess, images.device)
    return torch.addcmul(offset, images, factor)


@cache
def _statistics(preprocess: Preprocess, device: torch.device) -> tuple[Tensor, Tensor]:
    """Offset and factor of `normalise`, each `(3, 1, 1)`; cached, since a copy to the device waits for it."""
    mean, std = (
        torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (preprocess.mean, preprocess.std)
    )
    return (-mean / std).float().to(device), (1 / std).float().to(device)
