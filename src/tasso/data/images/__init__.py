"""Pixels: decoding, caching, cropping and batching images. Needs torch; `tasso.data` itself does not."""

from tasso.data.images.batches import ImageBatch, ShuffledEpochs, Stream, View
from tasso.data.images.cache import PixelCache
from tasso.data.images.decode import thread_pool
from tasso.data.images.packed import PackedPixels
from tasso.data.images.packs import Packs, open_packs
from tasso.data.images.pixels import DecodedPixels, OneSizePixels, Pixels
from tasso.decoding.views import Indices, Preprocess

__all__ = [
    "DecodedPixels",
    "ImageBatch",
    "Indices",
    "OneSizePixels",
    "PackedPixels",
    "Packs",
    "PixelCache",
    "Pixels",
    "Preprocess",
    "ShuffledEpochs",
    "Stream",
    "View",
    "open_packs",
    "thread_pool",
]
