"""The paper's eight data sets, and small images of the same domains. Both are in the layout of the paper's authors."""

from __future__ import annotations

from functools import partial

from tasso.data.annotated import read_annotated
from tasso.data.benchmarks.base import Benchmark, DataSet

PREFIXES = {"fgvc-aircraft": "aircraft"}


def annotated(name: str, classes: int, train: int, test: int, any_length: bool = False) -> DataSet:
    """A data set in that layout, whose annotation file begins with its name without hyphens, or as in `PREFIXES`."""
    prefix = PREFIXES.get(name, name.replace("-", ""))
    load = partial(read_annotated, name=name, prefix=prefix)
    return DataSet(name, classes, train, test, load, prefix, any_length=any_length)


# Sizes: the paper's table of data sets.
MTIL = Benchmark(
    "mtil",
    "the paper's eight data sets, ImageNet as reference",
    (
        annotated("fgvc-aircraft", 100, 3334, 3333),
        annotated("dtd", 47, 2820, 1692),
        annotated("eurosat", 10, 13500, 8100),
        annotated("flowers-102", 102, 4093, 2463),
        annotated("food-101", 101, 50500, 30300),
        annotated("oxford-pets", 37, 2944, 3669),
        annotated("stanford-cars", 196, 6509, 8041),
        annotated("ucf-101", 101, 7639, 3783),
    ),
    annotated("imagenet", 1000, 1_281_167, 50_000, any_length=True),
    "paper",
)

MTIL_MINI = Benchmark(
    "mtil-mini",
    "the same domains at 64 × 64, actions in the place of UCF-101, Tiny-ImageNet as reference",
    (
        annotated("fgvc-aircraft", 100, 3334, 3333),
        annotated("dtd", 10, 600, 360),
        annotated("eurosat", 10, 5000, 3000),
        annotated("flowers-102", 102, 4091, 2454),
        annotated("food-101", 101, 6060, 3030),
        annotated("oxford-pets", 37, 2944, 3669),
        annotated("stanford-cars", 196, 4481, 2844),
        annotated("actions", 37, 3700, 1850),
    ),
    annotated("imagenet", 200, 10_000, 0),
    "paper",
)
