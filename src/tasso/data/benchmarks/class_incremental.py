"""One data set in steps of classes, as Continual-CLIP, ZSCL and MoE-Adapters learn it, and as LAMDA-PILOT does.

Class orders: the lists in the authors' code; `1993` is the seed that LAMDA-PILOT and others draw theirs with.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tasso.config import RunConfig
from tasso.data.benchmarks.base import Benchmark, DataSet
from tasso.data.benchmarks.field import ZSCL
from tasso.data.readers import load_own
from tasso.data.readers.labelled import Listing, lines
from tasso.data.task import Task
from tasso.errors import DataError

SEED = "1993"
# fmt: off
CIFAR_ORDER = (
    "87,0,52,58,44,91,68,97,51,15,94,92,10,72,49,78,61,14,8,86,84,96,18,24,32,45,88,11,4,67,69,66,77,47,79,93,29,50,57,"
    "83,17,81,41,12,37,59,25,20,80,73,1,28,6,46,62,82,53,9,31,75,38,63,33,74,27,22,36,3,16,21,60,19,70,90,89,43,5,42,"
    "65,76,40,30,23,85,2,95,56,48,71,64,98,13,99,7,34,55,54,26,35,39"
)
TINY_ORDER = (
    "131,181,22,172,144,92,97,187,58,93,6,70,106,68,153,168,179,199,29,46,9,142,134,88,193,110,26,32,117,112,17,39,166,"
    "13,94,138,109,147,51,101,59,188,116,5,170,99,100,167,180,146,65,1,104,43,38,184,123,171,137,162,71,44,95,174,12,7,"
    "54,152,21,47,28,176,34,2,132,118,42,189,150,14,165,41,192,45,82,128,63,57,197,160,53,75,108,135,121,159,183,67,"
    "169,50,87,69,89,196,115,19,148,96,86,11,8,60,33,173,78,4,119,105,182,127,177,30,186,40,49,178,76,157,161,73,164,"
    "151,31,74,191,27,125,198,81,20,155,114,139,36,61,56,145,48,16,83,62,85,126,0,102,23,3,140,15,195,133,113,190,141,"
    "52,163,156,80,111,90,175,143,120,84,18,25,79,37,154,136,64,158,24,185,72,35,129,55,149,91,122,77,103,124,130,66,"
    "10,107,194,98"
)
# fmt: on
BAD = "a bad photo of a {}."
PILOT_PAGE = "https://github.com/sun-hailong/LAMDA-PILOT"
TINY_FILE = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
SYNSET = re.compile(r"n\d{8}")


def class_folders(name: str) -> Callable[[Path], Task]:
    """ROOT/name/train and test, or train and val, with one folder per class; names.txt has the classes' names."""

    def load(root: Path) -> Task:
        folder = root / name
        if not folder.is_dir():
            raise DataError(
                f"{folder} is missing: LAMDA-PILOT's folders train and test. Where to get them: {PILOT_PAGE}"
            )
        names = folder / "names.txt"
        spec = {"name": name, "from": str(folder), **({"names": str(names)} if names.is_file() else {})}
        task = load_own(spec, RunConfig())
        if coded := [one for one in task.class_names if SYNSET.fullmatch(one)]:
            raise DataError(
                f"{folder}: {coded[0]!r} is no class name for a prompt. Write {names}: one name per line, in the order "
                "of the sorted folders"
            )
        return task

    return load


def tiny_imagenet(root: Path) -> Task:
    """tiny-imagenet-200 as it is unpacked: labels in the order of wnids.txt, names from words.txt, val for testing."""
    folder = root / "tiny-imagenet-200"
    if not folder.is_dir():
        raise DataError(f"{folder} is missing: unpack {TINY_FILE} in {root}")
    synsets = lines(folder / "wnids.txt")
    words = dict(line.split("\t", 1) for line in lines(folder / "words.txt") if "\t" in line)
    labels = {synset: label for label, synset in enumerate(synsets)}
    if unnamed := [synset for synset in synsets if synset not in words]:
        raise DataError(f"{folder / 'words.txt'}: no name for {unnamed[0]}")
    train = [
        (file.relative_to(folder).as_posix(), labels[synset])
        for synset in synsets
        for file in sorted((folder / "train" / synset / "images").glob("*.JPEG"))
    ]
    test = []
    for number, line in enumerate(lines(folder / "val" / "val_annotations.txt"), 1):
        file, synset = [*line.split("\t"), ""][:2]
        if synset not in labels:
            raise DataError(f"{folder / 'val' / 'val_annotations.txt'}: line {number}: {synset!r} is not in wnids.txt")
        test.append((f"val/images/{file}", labels[synset]))
    names = tuple(words[synset].split(",")[0].strip() for synset in synsets)
    return Listing(names, train, test=test).task(folder)


def _steps(name: str, data_set: DataSet, split: str, order: str, template: str = "") -> Benchmark:
    first, _, step = split.partition("+")
    size = f"{first} classes, then {step} per step" if step else f"{first} classes per step"
    options = {"split_classes": split, "class_order": order, **({"template": template} if template else {})}
    protocol = "Continual-CLIP" if template else "LAMDA-PILOT"
    return Benchmark(name, f"{data_set.name}: {size}", (data_set,), protocol=protocol, options=options)


CIFAR = ZSCL["cifar100"].changed(lambda task: task.with_templates(()))
TINY = DataSet("tiny-imagenet", 200, 100_000, 10_000, tiny_imagenet)
IMAGENET_R = DataSet("imagenet-r", 200, 24_000, 6_000, class_folders("imagenet-r"))
CUB = DataSet("cub", 200, 9_430, 2_358, class_folders("cub"))

CLASS_INCREMENTAL = (
    _steps("cifar100-10", CIFAR, "10", CIFAR_ORDER, BAD),
    _steps("cifar100-20", CIFAR, "5", CIFAR_ORDER, BAD),
    _steps("cifar100-50", CIFAR, "2", CIFAR_ORDER, BAD),
    _steps("tiny-imagenet-5", TINY, "100+20", TINY_ORDER, BAD),
    _steps("tiny-imagenet-10", TINY, "100+10", TINY_ORDER, BAD),
    _steps("tiny-imagenet-20", TINY, "100+5", TINY_ORDER, BAD),
    _steps("cifar100-pilot", CIFAR, "10", SEED),
    _steps("imagenet-r-pilot", IMAGENET_R, "20", SEED),
    _steps("cub-pilot", CUB, "20", SEED),
)
