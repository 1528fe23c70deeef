"""The paper's eight data sets, and the two benchmarks that stand for them where they are not at hand."""

from __future__ import annotations

from tasso.data import drawn
from tasso.data.benchmarks.base import SCENES, Benchmark, DataSet, annotated_benchmark, load_scenes

# Sizes: the paper's table of data sets.
MTIL_DATA_SETS = [
    DataSet("fgvc-aircraft", "aircraft", 100, 3334, 3333),
    DataSet("dtd", "dtd", 47, 2820, 1692),
    DataSet("eurosat", "eurosat", 10, 13500, 8100),
    DataSet("flowers-102", "flowers102", 102, 4093, 2463),
    DataSet("food-101", "food101", 101, 50500, 30300),
    DataSet("oxford-pets", "oxfordpets", 37, 2944, 3669),
    DataSet("stanford-cars", "stanfordcars", 196, 6509, 8041),
    DataSet("ucf-101", "ucf101", 101, 7639, 3783),
]
MTIL = annotated_benchmark(
    "mtil",
    "the paper's eight data sets, ImageNet as reference",
    MTIL_DATA_SETS,
    DataSet("imagenet", "imagenet", 1000, 1_281_167, 50_000),
    exact=False,
)

MTIL_MINI = annotated_benchmark(
    "mtil-mini",
    "the same domains at 64 × 64, actions in the place of UCF-101, Tiny-ImageNet as reference",
    [
        DataSet("fgvc-aircraft", "aircraft", 100, 3334, 3333),
        DataSet("dtd", "dtd", 10, 600, 360),
        DataSet("eurosat", "eurosat", 10, 5000, 3000),
        DataSet("flowers-102", "flowers102", 102, 4091, 2454),
        DataSet("food-101", "food101", 101, 6060, 3030),
        DataSet("oxford-pets", "oxfordpets", 37, 2944, 3669),
        DataSet("stanford-cars", "stanfordcars", 196, 4481, 2844),
        DataSet("actions", "actions", 37, 3700, 1850),
    ],
    DataSet("imagenet", "imagenet", 200, 10_000, 0),
    exact=True,
)

ATLAS = Benchmark(
    "atlas",
    "eight domains drawn by code: nothing to download",
    tuple(DataSet(name, "", *drawn.sizes(name)) for name in drawn.task_names()),
    SCENES,
    False,
    lambda name, root, check: drawn.load_task(name),
    load_scenes,
)
