"""Pixels: decoding, caching, cropping and batching images. Needs torch; `tasso.data` itself does not."""

from tasso.data.images.batches import ImageBatch, ShuffledEpochs, Stream, View
from tasso.data.images.packed import PackedPixels
from tasso.data.images.packs import Packs, open_packs
from tasso.data.images.pixels import DecodedPixels, InMemoryPixels, Pixels, load_pixels, thread_pool
from tasso.data.images.transforms import Indices, Preprocess

__all__ = [
    "DecodedPixels",
    "ImageBatch",
    "InMemoryPixels",
    "Indices",
    "PackedPixels",
    "Packs",
    "Pixels",
    "Preprocess",
    "ShuffledEpochs",
    "Stream",
    "View",
    "load_pixels",
    "open_packs",
    "thread_pool",
]
