"""How a run's sequence is loaded: from a benchmark or from own tasks, checked, cut into steps."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tasso.config import TASK_TEMPLATES, RunConfig, read_templates
from tasso.config.task_specs import TaskSpec, names_catalogue
from tasso.data.annotated import PREPARE, check_files
from tasso.data.benchmarks import ATLAS, BENCHMARKS, Benchmark
from tasso.data.benchmarks.base import Reference
from tasso.data.damaged import check_whole, readable
from tasso.data.readers import find_all_images, load_own
from tasso.data.readers.labelled import lines
from tasso.data.readers.split import draw, few_shot, first_of_each, hold_back
from tasso.data.sequences import order
from tasso.data.steps import WHOLE, class_order_text, named_classes, parse_split, split_task
from tasso.data.task import AsStored, ImageSet, Stamped, Task, TaskSequence
from tasso.decoding.pillow import CorruptImageError
from tasso.errors import ConfigError, DataError, no_such

log = logging.getLogger("tasso")

DRAWN_REFERENCE = (
    "reference images: scenes drawn by code (atlas). With a folder of varied photographs, which need no labels, less "
    "is forgotten (0.7 instead of 1.4 points in one study): --reference FOLDER"
)

OPTIONS = sorted({key for benchmark in BENCHMARKS.values() for key in benchmark.options})  # that benchmarks have
MOST_LISTED = 5  # tasks that share classes with others, in the log
TASK_IMAGES = "task"  # as `--reference`: the training images of the task that is being learned


def load_sequence(config: RunConfig, *, with_reference: bool = True) -> TaskSequence:
    """Load and check all data that a run needs, before anything is trained."""
    config = with_benchmark_options(config)
    tasks = tuple(_steps(config))[: config.limit_tasks]
    for task in tasks:
        needed = {"train": task.train} if config.test_share < 1 else {}  # with 1, all own images are for testing
        for split, images in {**needed, task.split: task.evaluated}.items():
            if not len(images):
                raise DataError(f"task {task.name!r} has no {split} images")
            check_files(images, f"task {task.name!r}, {split}", _missing(config))
    if config.merges_names:
        _check_shared_names(tasks)
    left_out = {task.name: task.left_out for task in tasks if task.left_out}
    sequence = TaskSequence(config.benchmark, config.sequence, tasks, left_out=left_out)
    sequence = _with_reference(sequence, config) if with_reference else sequence
    if config.corrupt == "error":  # else all have been decoded
        own = [images for task in tasks if config.tasks for images in (task.train, task.evaluated)]
        named = [sequence.reference] if sequence.reference and config.reference not in (None, *BENCHMARKS) else []
        check_whole([*own, *named])
    return sequence


def _with_reference(sequence: TaskSequence, config: RunConfig) -> TaskSequence:
    """The sequence with its reference images and texts."""
    if config.reference_texts:
        try:
            sequence = dataclasses.replace(sequence, reference_texts=tuple(lines(config.reference_texts)))
        except DataError as error:
            raise DataError(f"reference_texts: {error}") from None
    if config.reference == TASK_IMAGES:
        return sequence
    reference, class_names = load_reference(config)
    reference = subset(reference, config)
    left_out = dict(sequence.left_out)
    if config.corrupt == "skip" and config.pack_dir is None:  # packs leave them out themselves
        reference, unreadable = readable(reference, "reference images", config.workers)
        left_out |= {"reference": unreadable} if unreadable else {}
    check_files(reference, "reference images", _missing(config))
    return dataclasses.replace(sequence, reference=reference, reference_names=class_names, left_out=left_out)


def _missing(config: RunConfig) -> type[DataError]:
    """The error about a file that is not there: own images can be left out, as those that cannot be read."""
    return CorruptImageError if config.tasks else DataError


def _check_shared_names(tasks: Sequence[Task]) -> None:
    """Say which tasks share classes, which are scored as one; refuse names that differ only in case."""
    first: dict[str, tuple[str, Task]] = {}
    shared: dict[str, Counter[str]] = {}
    for task in tasks:
        for name in task.class_names:
            other, where = first.setdefault(name.casefold(), (name, task))
            if other != name:
                raise DataError(
                    f"tasks {where.name!r} and {task.name!r}: the classes {other!r} and {name!r} differ only in case. "
                    "If they are one class, give them one name in a names file; if not, use --same-names apart"
                )
            if where is not task:
                shared.setdefault(where.name, Counter())[task.name] += 1
    listed = {earlier: ", ".join(f"{name} ({n})" for name, n in others.items()) for earlier, others in shared.items()}
    if len(listed) > MOST_LISTED:
        listed = {f"{len(listed)} of {len(tasks)} tasks": "later ones"}
    for earlier, others in listed.items():
        log.info("%s: classes shared with %s; each is scored as one class, whatever task it is from", earlier, others)


def with_benchmark_options(config: RunConfig) -> RunConfig:
    """The run with the options of its benchmark where it says nothing, its class order written out, and the name that
    the benchmark has for its order."""
    filled = _options_of_benchmarks(config)
    if classes := filled.get("class_order", config.class_order):
        filled["class_order"] = class_order_text(classes)
    if not config.tasks and config.benchmark in BENCHMARKS:
        benchmark = BENCHMARKS[config.benchmark]
        for name, tasks in benchmark.sequences.items():
            if order(benchmark.tasks, config.sequence, None, benchmark.sequences) == list(tasks):
                filled["sequence"] = name
    return dataclasses.replace(config, **filled)


def _options_of_benchmarks(config: RunConfig) -> dict[str, Any]:
    """What the benchmark of a run says, or that of single tasks, where the run says nothing."""
    specs = task_specs(config)
    known = sorted(BENCHMARKS.keys() & _benchmarks_of(specs))
    protocols = {BENCHMARKS[name].protocol: name for name in known if BENCHMARKS[name].protocol}
    if len(protocols) > 1:
        raise ConfigError(
            f"tasks: {' and '.join(protocols.values())} are of two protocols, with other splits, class names and "
            "prompts; a sequence has tasks of one"
        )
    open_keys = [key for key in OPTIONS if getattr(config, key) is None]
    if config.split_classes == WHOLE or any("classes" in spec for spec in specs):
        open_keys = [key for key in open_keys if key not in ("split_classes", "class_order")]  # not cut, or already
    found = [{key: BENCHMARKS[name].options.get(key) for key in open_keys} for name in known]
    for key in open_keys:
        if len({options[key] for options in found}) > 1:
            raise ConfigError(
                f"tasks: {' and '.join(known)} have options of their own, which differ in {key}. Give one for all "
                f"tasks with --{key.replace('_', '-')}, or take tasks of one of them"
            )
    return {key: value for key, value in found[0].items() if value is not None} if found else {}


def task_specs(config: RunConfig) -> list[TaskSpec]:
    """The tasks of a run as users write own tasks; those of a benchmark are such as `atlas:food`."""
    if config.tasks or config.benchmark not in BENCHMARKS:
        return config.tasks or []
    return [{"name": task, "from": f"{config.benchmark}:{task}"} for task in BENCHMARKS[config.benchmark].tasks]


def _benchmarks_of(specs: Sequence[TaskSpec]) -> set[str]:
    """The benchmarks that tasks are from; the empty text stands for own images."""
    return {spec["from"].partition(":")[0] if names_catalogue(spec["from"]) else "" for spec in specs}


def _steps(config: RunConfig) -> Iterator[Task]:
    """The tasks in the order of learning, each in the steps that the run cuts it into.

    Images are drawn and held back before: a class has the same ones in whatever step it is learned.
    """
    specs = {spec["name"]: spec for spec in task_specs(config)}
    for name in task_order(config):
        task = load_task(specs[name], config)
        if config.evaluate_on == "val":
            task = for_validation(task, config)
        if count := config.test_per_class:
            task = task.with_evaluated(first_of_each(task.evaluated, count))
        if config.shots:
            task = dataclasses.replace(task, train=few_shot(task.train, config.shots, config.seed))
        if classes := specs[name].get("classes"):
            task = named_classes(task, classes)
        yield from split_task(task, config.split_classes, config.class_order) if config.split_classes else [task]


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
    return dataclasses.replace(task, train=train, val=val, test=ImageSet.of(task.test.source, []), split="val")


def task_order(config: RunConfig) -> list[str]:
    """Names of the tasks in the order of learning. Checks the configuration, but reads no data.

    Where they are learned in steps of classes, `limit_tasks` is the number of steps, and all tasks are named.
    """
    config = with_benchmark_options(config)
    limit = None if config.split_classes else config.limit_tasks
    if config.split_classes not in (None, WHOLE):
        parse_split(config.split_classes)
    if config.class_order and config.split_classes in (None, WHOLE):
        raise ConfigError("class_order: needs --split-classes, the number of classes per step")
    if config.tasks:
        if config.benchmark in BENCHMARKS:
            raise ConfigError(
                f"benchmark: {config.benchmark} has tasks of its own. Leave it out, or give yours another name; single "
                f"tasks of it may be among yours, as in --tasks NAME={config.benchmark}:TASK"
            )
        for source in (spec["from"] for spec in config.tasks if names_catalogue(spec["from"])):
            _catalogue_task(source, config)
        return order([spec["name"] for spec in config.tasks], config.sequence, limit)
    benchmark = find_benchmark(config.benchmark, "benchmark")
    if benchmark.needs_root and config.data_root is None:
        raise ConfigError(f"data_root: benchmark {benchmark.name} needs --data-root, the folder with its data sets")
    return order(benchmark.tasks, config.sequence, limit, benchmark.sequences)


def load_task(spec: TaskSpec, config: RunConfig) -> Task:
    """A task as this run reads it."""
    if not names_catalogue(spec["from"]):
        return load_own(spec, config)
    benchmark, name = _catalogue_task(spec["from"], config)
    task = benchmark.load_task(name, data_root(config, benchmark), config.check_counts)
    task = task.with_sets(lambda images: _oriented(images, benchmark, config))
    if "template" in spec:
        task = task.with_templates(read_templates(spec["template"]))
    elif config.template not in (None, TASK_TEMPLATES):
        task = task.with_templates(())
    return dataclasses.replace(task, name=spec["name"])


def _oriented(images: ImageSet, benchmark: Benchmark, config: RunConfig) -> ImageSet:
    """The loader of the paper's authors does not turn images upright, so `--protocol code` does not either.

    A user's own images, which do not come through here, are always turned.
    """
    is_file = isinstance(images.source, Stamped)
    as_stored = benchmark.needs_root and is_file and config.protocol == "code"
    return dataclasses.replace(images, source=AsStored(images.source)) if as_stored else images


def _catalogue_task(source: str, config: RunConfig) -> tuple[Benchmark, str]:
    """Benchmark and task of a name such as `atlas:food`."""
    name, _, task = source.partition(":")
    benchmark = find_benchmark(name, "tasks")
    if task not in benchmark.tasks:
        raise ConfigError(f"tasks: {name} has {no_such('task', task, benchmark.tasks)}")
    if benchmark.needs_root and config.data_root is None:
        raise ConfigError(f"data_root: {source} needs --data-root, the folder with the data sets of {name}")
    return benchmark, task


def find_benchmark(name: str, key: str) -> Benchmark:
    if name not in BENCHMARKS:
        raise ConfigError(f"{key}: {no_such('benchmark', name, BENCHMARKS)}")
    return BENCHMARKS[name]


def load_reference(config: RunConfig) -> Reference:
    """Images, and the class names of their data set if it has any."""
    name = config.reference or (ATLAS.name if config.tasks else config.benchmark)
    if name in BENCHMARKS:
        benchmark = BENCHMARKS[name]
        photographs = any(not one or BENCHMARKS[one].needs_root for one in _benchmarks_of(task_specs(config)))
        if benchmark.reference is ATLAS.reference and photographs:
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
        return find_all_images(folder), ()
    except DataError as error:
        raise DataError(f"reference: {error}") from None


def subset(images: ImageSet, config: RunConfig) -> ImageSet:
    """The reference images that a run uses."""
    return images.subset(draw(len(images), config.reference_images, config.reference_seed))


def data_root(config: RunConfig, benchmark: Benchmark) -> Path:
    """The folder with a benchmark's data sets; the current folder if it needs none."""
    if not benchmark.needs_root:
        return Path()
    if config.data_root is None:
        raise ConfigError(f"data_root: benchmark {benchmark.name} needs --data-root, the folder with its data sets")
    if not config.data_root.is_dir():
        raise ConfigError(f"data_root: no such folder: {config.data_root}. {PREPARE} {config.data_root}")
    return config.data_root
