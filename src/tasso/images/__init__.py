"""Pixels: decoding, holding, cropping and batching pictures."""

from tasso.images.batches import Seen, Stream
from tasso.images.pixels import Pixels, StackedPixels, StoredPixels, load_pixels, thread_pool
from tasso.images.views import Preprocess

__all__ = [
    "Pixels",
    "Preprocess",
    "Seen",
    "StackedPixels",
    "StoredPixels",
    "Stream",
    "load_pixels",
    "thread_pool",
]
