"""Pixels: decoding, holding, cropping and batching images."""

from tasso.data.images.batches import ImageBatch, Stream, View
from tasso.data.images.packed import PackedPixels
from tasso.data.images.packs import Packs, open_packs
from tasso.data.images.pixels import Pixels, StackedPixels, StoredPixels, load_pixels, thread_pool
from tasso.data.images.transforms import Indices, Preprocess

__all__ = [
    "ImageBatch",
    "Indices",
    "PackedPixels",
    "Packs",
    "Pixels",
    "Preprocess",
    "StackedPixels",
    "StoredPixels",
    "Stream",
    "View",
    "load_pixels",
    "open_packs",
    "thread_pool",
]
