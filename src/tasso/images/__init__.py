"""Pixels: decoding, holding, cropping and batching pictures."""

from tasso.images.batches import Seen, Stream, View
from tasso.images.pixels import Indices, Pixels, StackedPixels, StoredPixels, load_pixels, thread_pool
from tasso.images.views import Preprocess

__all__ = [
    "Indices",
    "Pixels",
    "Preprocess",
    "Seen",
    "StackedPixels",
    "StoredPixels",
    "Stream",
    "View",
    "load_pixels",
    "thread_pool",
]
