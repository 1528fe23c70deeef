"""Pixels: decoding, holding, cropping and batching pictures."""

from tasso.images.batches import Seen, Stream, View
from tasso.images.packed import PackedPixels
from tasso.images.packs import Packs, open_packs
from tasso.images.pixels import Pixels, StackedPixels, StoredPixels, load_pixels, thread_pool
from tasso.images.views import Indices, Preprocess

__all__ = [
    "Indices",
    "PackedPixels",
    "Packs",
    "Pixels",
    "Preprocess",
    "Seen",
    "StackedPixels",
    "StoredPixels",
    "Stream",
    "View",
    "load_pixels",
    "open_packs",
    "thread_pool",
]
