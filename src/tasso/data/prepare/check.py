"""Is the data what it should be? Sizes, files, class names, unreadable images, and a model's zero-shot accuracy."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from tasso.config import RunConfig, from_dict
from tasso.config.task_specs import absolute
from tasso.data import BENCHMARKS, TASK_IMAGES, Benchmark, ImageSet, Task, order, task_order
from tasso.data.annotated import FolderSource
from tasso.data.benchmarks import MTIL
from tasso.data.catalogue import data_root, find_benchmark, load_reference, load_task, subset, task_specs
from tasso.data.damaged import listed
from tasso.data.images.decode import ImagePool, thread_pool
from tasso.data.images.unreadable import CheckedImages, unreadable
from tasso.data.prepare.annotations import read_record
from tasso.data.prepare.fingerprint import ZeroShot, differences
from tasso.data.prepare.layouts import EUROSAT_NAMES, flower_names
from tasso.data.steps import WHOLE
from tasso.data.task import SPLITS
from tasso.errors import ConfigError, DataError

FEW = 10  # images of a class

Kind = Literal["data", "counts", "images", "class names", "sets", "fingerprint"]
# Class names of data sets, by benchmark and name.
KNOWN_NAMES: dict[tuple[str, str], Callable[[], Sequence[str]]] = {
    ("mtil", "eurosat"): lambda: tuple(EUROSAT_NAMES.values()),
    ("mtil", "flowers-102"): flower_names,
    ("mtil-mini", "flowers-102"): flower_names,
}


@dataclass
class DataSetReport:
    """What was found about one data set; `notes` are no problems, but worth knowing."""

    name: str
    expected: dict[str, int]
    found: dict[str, int] = field(default_factory=dict)
    images_read: int = 0
    problems: list[tuple[Kind, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        problems = [{"what": kind, "message": message} for kind, message in self.problems]
        return {**vars(self), "ok": not problems, "problems": problems}


def check(
    config: RunConfig, *, quick: bool, tolerance: float, zero_shot: Callable[[RunConfig], ZeroShot] | None = None
) -> dict[str, Any]:
    """Check the data of a benchmark, or of own tasks.

    Args:
        quick: do not decode images.
        tolerance: points that an accuracy may be off.
        zero_shot: evaluates the configuration's model on the usable data sets; None leaves the model out.
    """
    if not 0 <= tolerance < math.inf:
        raise ConfigError(f"tolerance: must be a number of points, 0 or more, not {tolerance}")
    if config.tasks:
        config, root, sizes = replace(config, tasks=absolute(config.tasks), check_counts=False), None, {}
        specs = {spec["name"]: spec for spec in task_specs(config)}
        names = task_order(config)
    else:
        benchmark = find_benchmark(config.benchmark, "benchmark")
        root = data_root(config, benchmark)
        sizes = {data_set.name: data_set.sizes for data_set in benchmark.data_sets}
        names = order(benchmark.tasks, config.sequence, config.limit_tasks, benchmark.sequences)
    pool, cache = thread_pool(config.workers), CheckedImages()

    def check_data_set(name: str) -> DataSetReport:
        report = DataSetReport(name, sizes.get(name, {}))
        try:
            task = load_task(specs[name], config) if root is None else benchmark.load_task(name, root, False)
        except DataError as error:
            report.problems.append(("data", str(error)))
            return report
        _check_task(report, task, config.benchmark)
        if config.tasks:
            _check_copies(report, task)
            _note_small_classes(report, task)
        if not quick:
            for split, images in task.sets.items():
                _read(report, images, f"{name} {split}", pool, cache)
        return report

    reports = [check_data_set(name) for name in names]
    checked = list(reports)
    named = config.reference not in (None, TASK_IMAGES)
    if named or root is not None:
        reference, images = _check_named(config) if named or not root else _check_reference(benchmark, root, config)
        checked.append(reference)
        if not quick and images is not None:
            _read(reference, images, "reference images", pool, cache)
    fingerprint = _compare(config, reports, root, tolerance, zero_shot) if zero_shot else None
    data_sets = [report.to_dict() for report in checked]
    return {
        "benchmark": config.benchmark,
        "data_root": str(root) if root is not None else None,
        "fingerprint": fingerprint,
        "data_sets": data_sets,
        "ok": all(data_set["ok"] for data_set in data_sets),
    }


def _check_task(report: DataSetReport, task: Task, benchmark: str) -> None:
    report.found = task.counts
    off = [f"{report.found[key]} {key}, not {n}" for key, n in report.expected.items() if report.found[key] != n]
    if off:
        report.problems.append(("counts", "; ".join(off)))
    for split, images in task.sets.items():
        _check_files(report, images, split)
    _check_sets(report, task)
    _check_labels(report, task)
    _check_names(report, task.class_names, benchmark)


def _check_files(report: DataSetReport, images: ImageSet, what: str) -> None:
    if missing := images.source.missing(images.keys):
        first = images.source.describe(missing[0])
        report.problems.append(("images", f"{len(missing)} {what} images are missing, the first: {first}"))


def _check_sets(report: DataSetReport, task: Task) -> None:
    """No image is in two sets, or twice in one."""
    first_split: dict[str, str] = {}
    duplicates: Counter[tuple[str, str]] = Counter()
    for split, images in task.sets.items():
        listed: set[str] = set()
        for key in images.keys:
            if (earlier := first_split.setdefault(key, split)) != split or key in listed:
                duplicates[earlier, split] += 1
            listed.add(key)
    for (one, other), count in duplicates.items():
        text = f"are listed twice in {one}" if one == other else f"are in both {one} and {other}"
        report.problems.append(("sets", f"{count} images {text}"))


def _check_labels(report: DataSetReport, task: Task) -> None:
    """Every class has training and test images; if there is one folder per class, folders and labels agree."""
    folders: dict[str, set[int]] = defaultdict(set)
    for images in task.sets.values():
        for key, label in zip(images.keys, images.labels.tolist(), strict=True):
            folders[PurePosixPath(key).parent.as_posix()].add(label)
    for split, images in (("train", task.train), ("test", task.test)):
        labels = set(images.labels.tolist())
        empty = [name for label, name in enumerate(task.class_names) if label not in labels]
        if empty:
            report.problems.append(("class names", f"no {split} image of {empty[0]!r} ({len(empty)} such classes)"))
    if len(folders) != len(task.class_names):
        return
    for folder, labels in folders.items():
        if len(labels) > 1:
            several = ", ".join(repr(task.class_names[label]) for label in sorted(labels)[:3])
            report.problems.append(("class names", f"the folder {folder} has images of several classes: {several}"))
            return


def _check_names(report: DataSetReport, names: Sequence[str], benchmark: str) -> None:
    """Compare with the benchmark's names where they are known. CLIP's tokenizer ignores case, and so does this."""
    known = KNOWN_NAMES.get((benchmark, report.name), lambda: ())()
    if len(names) == len(known):  # else it is reported as a wrong count
        for label, (name, right) in enumerate(zip(names, known, strict=True)):
            if name.casefold().replace("_", " ") != right.casefold():
                report.problems.append(("class names", f"class {label} is {name!r}, not {right!r}"))
                break
    without_year = [name for name in names if not name[:4].isdecimal()]
    if benchmark == "mtil" and report.name == "stanford-cars" and without_year:
        report.notes.append(f"{len(without_year)} class names do not begin with the year, such as {without_year[0]!r}")
    if joined := [name for name in names if "_" in name]:
        report.notes.append(f"{len(joined)} class names have underscores, such as {joined[0]!r}; prompts keep them")


def _read(report: DataSetReport, images: ImageSet, title: str, pool: ImagePool, cache: CheckedImages) -> None:
    errors = unreadable(images, title, pool, cache)
    report.images_read += len(images) - len(errors)
    if errors:
        report.problems.append(("images", f"{title}: {listed(errors.values(), len(images), most=len(errors))}"))


def _check_copies(report: DataSetReport, task: Task) -> None:
    """Files of equal content: of training and test images, or of several classes."""
    files: dict[int, list[tuple[Path, str, str]]] = defaultdict(list)  # by size: others need not be read
    for split, images in task.sets.items():
        if isinstance(images.source, FolderSource):
            for key, label in zip(images.keys, images.labels.tolist(), strict=True):
                file = images.source.root / key
                with contextlib.suppress(OSError):  # reported already
                    files[file.stat().st_size].append((file, split, task.class_names[label]))
    copies: dict[bytes, list[tuple[Path, str, str]]] = defaultdict(list)
    for candidates in (group for group in files.values() if len(group) > 1):
        for one in candidates:
            with contextlib.suppress(OSError):
                copies[hashlib.sha256(one[0].read_bytes()).digest()].append(one)
    groups = [group for group in copies.values() if len(group) > 1]
    faults = {
        "both in training and test images": [g for g in groups if {"train", "test"} <= {split for _, split, _ in g}],
        "in several classes": [g for g in groups if len({name for *_, name in g}) > 1],
    }
    for where, found in faults.items():
        if found:
            first = " = ".join(str(file) for file, *_ in found[0][:2])
            report.problems.append(("sets", f"{len(found)} images of equal content are {where}, the first: {first}"))


def _note_small_classes(report: DataSetReport, task: Task) -> None:
    counts = Counter(label for images in task.sets.values() for label in images.labels.tolist())
    small = sorted((counts[label], name) for label, name in enumerate(task.class_names) if counts[label] < FEW)
    if small:
        fewest = ", ".join(f"{name} ({count})" for count, name in small[:3])
        report.notes.append(f"{len(small)} classes have fewer than {FEW} images, the fewest: {fewest}")


def _check_named(config: RunConfig) -> tuple[DataSetReport, ImageSet | None]:
    """The reference images that --reference names."""
    report = DataSetReport("reference", {})
    try:
        images, class_names = load_reference(config)
    except DataError as error:
        report.problems.append(("data", str(error)))
        return report, None
    report.found = {"train": len(images), **({"classes": len(class_names)} if class_names else {})}
    images = subset(images, config)
    _check_files(report, images, "reference")
    return report, images


def _check_reference(benchmark: Benchmark, root: Path, config: RunConfig) -> tuple[DataSetReport, ImageSet | None]:
    """The reference images that a run would use."""
    data_set = benchmark.reference
    exact = not data_set.any_length  # of ImageNet, any list will do that is long enough
    report = DataSetReport(data_set.name, {"train": data_set.train} if exact else {})
    try:
        images, class_names = benchmark.load_reference(root, False)
    except DataError as error:
        if benchmark.protocol == MTIL.protocol:
            report.problems.append(("data", str(error)))
        else:
            how = f"To get them: tasso data prepare {data_set.name} --root {root}; or --reference FOLDER"
            report.notes.append(f"no reference images there, which most methods need. {how}")
        return report, None
    report.found = {"classes": len(class_names), "train": len(images)}
    if exact and len(images) != data_set.train:
        report.problems.append(("counts", f"{len(images)} images, not {data_set.train}"))
    if not exact and len(images) < config.reference_images:
        report.problems.append(("counts", f"{len(images)} images, fewer than {config.reference_images}"))
    images = subset(images, config)
    _check_files(report, images, "reference")
    return report, images


# -- zero-shot accuracy --------------------------------------------------------------------------------------------


def _compare(
    config: RunConfig,
    reports: list[DataSetReport],
    root: Path | None,
    tolerance: float,
    zero_shot: Callable[[RunConfig], ZeroShot],
) -> dict[str, Any]:
    """Zero-shot rows of the usable data sets; those that are off become problems of their reports."""
    unusable = [r.name for r in reports if any(kind in ("data", "images") for kind, _ in r.problems)]
    usable = {r.name: r for r in reports if r.name not in unusable}
    document: dict[str, Any] = {"left_out": unusable, "compared_with": None, "rows": {}}
    if not usable:
        return document
    # Whatever is wrong with the sizes is reported already, and no reason not to evaluate.
    whole = {"split_classes": WHOLE, "limit_tasks": None, "check_counts": False}
    values = {**config.to_dict(), "sequence": ",".join(usable), **whole}
    result = zero_shot(from_dict(values, "data check"))
    known = result.expected
    document |= {"model": result.model, "compared_with": known.source if known else None}
    images = {name: r.found["test"] for name, r in usable.items()}
    drawn = [name for name in usable if root and read_record(root / name).get("split") == "drawn"]
    complete = len(usable) == len(reports) and (not root or set(usable) == set(BENCHMARKS[config.benchmark].tasks))
    for setting in ("mtil", "mcil"):
        row = getattr(result, setting)
        cells = document["rows"][setting] = {name: {"found": round(value, 2)} for name, value in row.items()}
        # Among the classes of fewer tasks, MCIL is another measure.
        if not known or (setting == "mcil" and not complete):
            continue
        expected = getattr(known, setting)
        for name, (off, limit) in differences(expected, row, tolerance, images, drawn).items():
            cells[name] |= {"expected": expected[name], "allowed": round(limit, 2)}
            if abs(off) > limit:
                text = (
                    f"zero-shot {setting.upper()} accuracy is {row[name]:.2f}, {abs(off):.2f} points "
                    f"{'above' if off > 0 else 'below'} {expected[name]:.2f} ({known.source}; {limit:.2f} allowed): "
                    "other class names, prompts or images?"
                )
                usable[name].problems.append(("fingerprint", text))
    return document


# -- text ----------------------------------------------------------------------------------------------------------


def report_lines(report: dict[str, Any]) -> list[str]:
    width = max(len(data_set["name"]) for data_set in report["data_sets"])
    lines = [f"{'data set':{width}}  classes   train     val    test    read"]
    for one in report["data_sets"]:
        numbers = "  ".join(f"{one['found'].get(key, '–'):>6}" for key in ("classes", *SPLITS))
        status = "" if one["ok"] else "OFF"
        lines.append(f"{one['name']:{width}}   {numbers}  {one['images_read']:>6}  {status}".rstrip())
    if report["fingerprint"]:
        lines += _fingerprint_lines(report["fingerprint"], width)
    for one in report["data_sets"]:
        lines += [f"{one['name']}: {problem['what']}: {problem['message']}" for problem in one["problems"]]
        lines += [f"{one['name']}: note: {note}" for note in one["notes"]]
    lines.append("all as it should be" if report["ok"] else "something is off")
    return lines


def _fingerprint_lines(document: dict[str, Any], width: int) -> list[str]:
    source = document["compared_with"]
    lines = ["", "zero-shot accuracy" + (f", compared with {source}" if source else "; nothing to compare it with")]
    for setting, row in document["rows"].items():
        for name, cell in row.items():
            expected = f"  expected {cell['expected']:6.2f} ± {cell['allowed']:.2f}" if "expected" in cell else ""
            lines.append(f"{name:{width}}  {setting.upper()}  {cell['found']:6.2f}{expected}")
    lines += [f"{name}: left out, since its data cannot be used" for name in document["left_out"]]
    return [*lines, ""]
