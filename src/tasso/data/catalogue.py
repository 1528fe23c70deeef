"""The benchmarks: their data sets, how large they must be, and how a run's sequence is loaded from them."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasso.config import RunConfig, read_templates
from tasso.config.task_specs import names_catalogue
from tasso.data import drawn
from tasso.data.annotated import PREPARE, check_files, read_annotated
from tasso.data.readers import few_shot, find_all_images, hold_back, load_own
from tasso.data.sequences import order
from tasso.data.task import AsStored, ImageSet, Task, TaskSequence
from tasso.errors import ConfigError, DataError, no_such

log = logging.getLogger("tasso")

DRAWN_REFERENCE = (
    "reference images: scenes drawn by code (atlas), which look like no photograph. The model is kept close to its "
    "teacher on reference images, so expect more forgetting than with photographs; how much has not been measured. "
    "Any folder of varied photographs is better: --reference FOLDER"
)


@dataclass(frozen=True)
class DataSet:
    """One data set of a benchmark in the authors' layout, with the sizes it must have."""

    name: str
    prefix: str
    classes: int
    train: int
    test: int

    def load(self, root: Path, check_counts: bool) -> Task:
        """Read and check it."""
        task = read_annotated(root, self.name, self.prefix)
        found = (len(task.class_names), len(task.train), len(task.test))
        expected = (self.classes, self.train, self.test)
        if check_counts and found != expected:
            raise DataError(
                f"{self.name}: expected {expected[0]} classes, {expected[1]} train and {expected[2]} test images, "
                f"found {found[0]}, {found[1]} and {found[2]} in {root}. Use --no-check-counts to go on with these"
            )
        return task


@dataclass(frozen=True)
class Benchmark:
    """A catalogue entry.

    Attributes:
        data_sets: of the tasks, in the benchmark's order, with their sizes.
        reference: the data set of the reference images.
        needs_root: must the user give a folder with the data sets? Else its images are drawn by code.
        load_task: (task name, data root, check counts?) → task.
        load_reference: (data root, check counts?) → images, and the class names of their data set.
    """

    name: str
    summary: str
    data_sets: tuple[DataSet, ...]
    reference: DataSet
    needs_root: bool
    load_task: Callable[[str, Path, bool], Task]
    load_reference: Callable[[Path, bool], tuple[ImageSet, tuple[str, ...]]]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(data_set.name for data_set in self.data_sets)


def annotated_benchmark(
    name: str, summary: str, data_sets: list[DataSet], reference: DataSet, exact: bool
) -> Benchmark:
    """A benchmark in the authors' layout; `exact` says whether the size of the reference set is checked."""
    by_name = {data_set.name: data_set for data_set in data_sets}

    def load_task(task: str, root: Path, check_counts: bool) -> Task:
        return by_name[task].load(root, check_counts)

    def load_reference(root: Path, check_counts: bool) -> tuple[ImageSet, tuple[str, ...]]:
        # ImageNet's list may have any length: a subset of it is drawn.
        task = reference.load(root, check_counts and exact)
        return task.train, task.class_names

    return Benchmark(name, summary, tuple(data_sets), reference, True, load_task, load_reference)


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
    DataSet("scenes", "", 0, drawn.REFERENCE_IMAGES, 0),
    False,
    lambda name, root, check: drawn.load_task(name),
    lambda root, check: drawn.load_reference(),
)

BENCHMARKS = {benchmark.name: benchmark for benchmark in (MTIL, MTIL_MINI, ATLAS)}
TASK_IMAGES = "task"  # as `--reference`: the training images of the task that is being learned


def load_sequence(config: RunConfig, *, with_reference: bool = True) -> TaskSequence:
    """Load and check all data that a run needs, before anything is trained."""
    tasks = tuple(_load_task(name, config) for name in task_order(config))
    if config.evaluate_on == "val":
        tasks = tuple(for_validation(task, config) for task in tasks)
    if count := config.test_per_class:
        tasks = tuple(task.with_evaluated(first_of_each(task.evaluated, count)) for task in tasks)
    if config.shots:
        tasks = tuple(dataclasses.replace(t, train=few_shot(t.train, config.shots, config.seed)) for t in tasks)
    for task in tasks:
        for split, images in (("train", task.train), (task.split, task.evaluated)):
            if not len(images):
                raise DataError(f"task {task.name!r} has no {split} images")
            check_files(images, f"task {task.name!r}, {split}")
    sequence = TaskSequence(config.benchmark, config.sequence, tasks)
    if not with_reference:
        return sequence
    texts = read_texts(config.reference_texts) if config.reference_texts else ()
    sequence = dataclasses.replace(sequence, reference_texts=texts)
    if config.reference == TASK_IMAGES:
        return sequence
    reference, class_names = _load_reference(config)
    reference = subset(reference, config)
    check_files(reference, "reference images")
    return dataclasses.replace(sequence, reference=reference, reference_names=class_names)


def for_validation(task: Task, config: RunConfig) -> Task:
    """The task evaluated on its validation images; without any, on a share of its training images that is held back.

    It has no test images: nothing can read them.
    """
    train, val = task.train, task.val
    if not len(val):
        train, val = hold_back(train, config.val_share, config.split_seed)
        if not len(val):
            raise DataError(
                f"task {task.name!r} has no validation images, and no class has two images to hold one back"
            )
        log.info(
            "%s: no validation images, so %g %% of each class's training images are held back (%d of %d)",
            task.name, 100 * config.val_share, len(val), len(task.train),
        )  # fmt: skip
    nothing = task.test.subset(np.empty(0, dtype=np.int64))
    return dataclasses.replace(task, train=train, val=val, test=nothing, split="val")


def task_order(config: RunConfig) -> list[str]:
    """Names of the tasks in the order of learning. Checks the configuration, but reads no data."""
    if config.tasks:
        if config.benchmark in BENCHMARKS:
            raise ConfigError(
                f"benchmark: {config.benchmark} has tasks of its own. Leave it out, or give yours another name; single "
                f"tasks of it may be among yours, as in --tasks NAME={config.benchmark}:TASK"
            )
        for source in (spec["from"] for spec in config.tasks):
            if names_catalogue(source):
                _catalogue_task(source, config)
        return order([spec["name"] for spec in config.tasks], config.sequence, config.limit_tasks)
    benchmark = _benchmark(config.benchmark, "benchmark")
    if benchmark.needs_root and config.data_root is None:
        raise ConfigError(f"data_root: benchmark {benchmark.name} needs --data-root, the folder with its data sets")
    return order(benchmark.tasks, config.sequence, config.limit_tasks)


def _load_task(name: str, config: RunConfig) -> Task:
    if not config.tasks:
        benchmark = BENCHMARKS[config.benchmark]
        return _read_task(benchmark, name, config)
    spec = next(spec for spec in config.tasks if spec["name"] == name)
    if not names_catalogue(spec["from"]):
        return load_own(spec, config)
    benchmark, task = _catalogue_task(spec["from"], config)
    loaded = _read_task(benchmark, task, config)
    templates = read_templates(spec["template"]) if "template" in spec else ()
    return dataclasses.replace(loaded, name=name, templates=templates)


def _read_task(benchmark: Benchmark, name: str, config: RunConfig) -> Task:
    """A task of a benchmark as this run reads it."""
    task = benchmark.load_task(name, data_root(config, benchmark), config.check_counts)
    train, val, test = (_oriented(images, benchmark, config) for images in (task.train, task.val, task.test))
    return dataclasses.replace(task, train=train, val=val, test=test)


def _oriented(images: ImageSet, benchmark: Benchmark, config: RunConfig) -> ImageSet:
    """The loader of the paper's authors does not turn images upright, so `--protocol code` does not either.

    A user's own images, which do not come through here, are always turned.
    """
    as_stored = benchmark.needs_root and config.protocol == "code"
    return dataclasses.replace(images, source=AsStored(images.source)) if as_stored else images


def _catalogue_task(source: str, config: RunConfig) -> tuple[Benchmark, str]:
    """Benchmark and task of a name such as `atlas:food`."""
    name, _, task = source.partition(":")
    benchmark = _benchmark(name, "tasks")
    if task not in benchmark.tasks:
        raise ConfigError(f"tasks: {name} has {no_such('task', task, benchmark.tasks)}")
    if benchmark.needs_root and config.data_root is None:
        raise ConfigError(f"data_root: {source} needs --data-root, the folder with the data sets of {name}")
    return benchmark, task


def _benchmark(name: str, key: str) -> Benchmark:
    if name not in BENCHMARKS:
        raise ConfigError(f"{key}: {no_such('benchmark', name, BENCHMARKS)}")
    return BENCHMARKS[name]


def _load_reference(config: RunConfig) -> tuple[ImageSet, tuple[str, ...]]:
    """Images, and the class names of their data set if it has any."""
    name = config.reference or (ATLAS.name if config.tasks else config.benchmark)
    if name in BENCHMARKS:
        benchmark = BENCHMARKS[name]
        if name == ATLAS.name and any(not spec["from"].startswith("atlas:") for spec in config.tasks or ()):
            log.warning("%s", DRAWN_REFERENCE)
        images, names = benchmark.load_reference(data_root(config, benchmark), config.check_counts)
        return _oriented(images, benchmark, config), names
    folder = Path(name)
    if not folder.exists():
        raise ConfigError(
            f"reference: {name!r} is neither a folder nor a benchmark nor {TASK_IMAGES!r}. Benchmarks: "
            f"{', '.join(BENCHMARKS)}"
        )
    try:
        source, keys = find_all_images(folder)
    except DataError as error:
        raise DataError(f"reference: {error}") from None
    return ImageSet(source, tuple(keys), np.zeros(len(keys), dtype=np.int64)), ()


def read_texts(path: Path) -> tuple[str, ...]:
    """One text per line; empty lines are skipped."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"reference_texts: {path}: not a readable text file: {error}") from None
    texts = tuple(line.strip() for line in lines if line.strip())
    if not texts:
        raise DataError(f"reference_texts: {path} has no texts")
    return texts


def first_of_each(images: ImageSet, count: int) -> ImageSet:
    """The first `count` images per class."""
    counts: Counter[int] = Counter()
    chosen = []
    for index, label in enumerate(images.labels.tolist()):
        counts[label] += 1
        if counts[label] <= count:
            chosen.append(index)
    return images.subset(np.asarray(chosen, dtype=np.int64))


def subset(images: ImageSet, config: RunConfig) -> ImageSet:
    """The subset of reference images, drawn from the annotation list as the authors do."""
    if len(images) <= config.reference_images:
        return images
    chosen = np.random.default_rng(config.reference_seed).choice(len(images), config.reference_images, replace=False)
    return images.subset(chosen.astype(np.int64))


def data_root(config: RunConfig, benchmark: Benchmark) -> Path:
    """The folder with a benchmark's data sets; the current folder if it needs none."""
    if not benchmark.needs_root:
        return Path()
    if config.data_root is None:
        raise ConfigError(f"data_root: benchmark {benchmark.name} needs --data-root, the folder with its data sets")
    if not config.data_root.is_dir():
        raise ConfigError(f"data_root: no such folder: {config.data_root}. {PREPARE} {config.data_root}")
    return config.data_root
