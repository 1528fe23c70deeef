"""Is the data what it should be? Sizes, files, class names, and what a known model makes of it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from tasso.config import RunConfig, from_dict
from tasso.data import BENCHMARKS, Benchmark, ImageSet, Task, order
from tasso.data.catalogue import DataSet, data_root, subset
from tasso.data.images import thread_pool
from tasso.data.prepare.layouts import EUROSAT_NAMES, flower_names
from tasso.data.prepare.prepare import read_record
from tasso.data.prepare.unreadable import Memory, unreadable
from tasso.errors import ConfigError, DataError
from tasso.report.fingerprint import TEMPLATE, Fingerprint, differences, known_fingerprint
from tasso.training.evaluator import evaluate
from tasso.training.resolve import resolve

What = Literal["data", "counts", "images", "class names", "sets", "fingerprint"]
SPLITS = ("train", "val", "test")


@dataclass
class Checked:
    """One data set. `wrong` are faults, `notes` are things to know."""

    name: str
    expected: dict[str, int]
    found: dict[str, int] = field(default_factory=dict)
    read: int = 0
    wrong: list[tuple[What, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ok": not self.wrong,
            "expected": self.expected,
            "found": self.found,
            "images_read": self.read,
            "wrong": [{"what": what, "message": message} for what, message in self.wrong],
            "notes": self.notes,
        }


def check(config: RunConfig, *, quick: bool, with_model: bool, tolerance: float) -> dict[str, Any]:
    """Look through a benchmark's data.

    Args:
        quick: do not decode images.
        with_model: compare the zero-shot accuracy of the configuration's model with what is known of it.
        tolerance: points that an accuracy may be off.
    """
    if not 0 <= tolerance < math.inf:
        raise ConfigError(f"tolerance: must be a number of points, 0 or more, not {tolerance}")
    if config.benchmark not in BENCHMARKS:
        raise ConfigError(f"benchmark: no {config.benchmark!r}. There are: {', '.join(BENCHMARKS)}")
    benchmark = BENCHMARKS[config.benchmark]
    root = data_root(config, benchmark)
    names = order(benchmark.tasks, config.sequence, config.limit_tasks)
    pool, memory = thread_pool(config.workers), Memory()
    sizes = {data_set.name: data_set for data_set in benchmark.data_sets}

    def look_at(name: str) -> Checked:
        checked = Checked(name, _sizes(sizes[name]))
        task = _loaded(checked, lambda: benchmark.load_task(name, root, False))
        if task:
            _check_task(checked, task, benchmark.name)
            if not quick:
                for split in SPLITS:
                    _read(checked, getattr(task, split), f"{name} {split}", pool, memory)
        return checked

    results = [look_at(name) for name in names]
    reference = _reference(benchmark, root, config)
    if not quick and reference[1] is not None:
        _read(reference[0], reference[1], "reference images", pool, memory)
    report: dict[str, Any] = {"benchmark": benchmark.name, "data_root": str(root), "fingerprint": None}
    if with_model:
        report["fingerprint"] = _fingerprint(config, results, root, tolerance)
    report["data_sets"] = [checked.to_dict() for checked in (*results, reference[0])]
    report["ok"] = all(one["ok"] for one in report["data_sets"])
    return report


def _sizes(data_set: DataSet) -> dict[str, int]:
    return {"classes": data_set.classes, "train": data_set.train, "test": data_set.test}


def _loaded(checked: Checked, load: Callable[[], Task]) -> Task | None:
    try:
        return load()
    except DataError as error:
        checked.wrong.append(("data", str(error)))
        return None


def _check_task(checked: Checked, task: Task, benchmark: str) -> None:
    sets: dict[str, ImageSet] = {split: getattr(task, split) for split in SPLITS}
    checked.found = {"classes": len(task.class_names), **{split: len(images) for split, images in sets.items()}}
    off = [f"{checked.found[key]} {key}, not {n}" for key, n in checked.expected.items() if checked.found[key] != n]
    if off:
        checked.wrong.append(("counts", "; ".join(off)))
    for split, images in sets.items():
        if missing := images.source.missing(images.keys):
            first = images.source.describe(missing[0])
            checked.wrong.append(("images", f"{len(missing)} {split} images are missing, the first: {first}"))
    _check_sets(checked, sets)
    _check_labels(checked, task, sets)
    _check_names(checked, task.class_names, benchmark)


def _check_sets(checked: Checked, sets: dict[str, ImageSet]) -> None:
    """No image is in two sets, and none stands twice in one."""
    where: dict[str, str] = {}
    doubled: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for split, images in sets.items():
        for key in images.keys:
            if (before := where.setdefault(key, split)) != split or (split, key) in first:
                doubled[before, split] += 1
            first.setdefault((split, key), key)
    for (one, other), count in doubled.items():
        text = f"stand twice in {one}" if one == other else f"are in both {one} and {other}"
        checked.wrong.append(("sets", f"{count} images {text}"))


def _check_labels(checked: Checked, task: Task, sets: dict[str, ImageSet]) -> None:
    """Every class can be tested; where images lie in one folder a class, folders and labels agree."""
    folders: dict[str, set[int]] = defaultdict(set)
    for images in sets.values():
        for key, label in zip(images.keys, images.labels.tolist(), strict=True):
            folders[PurePosixPath(key).parent.as_posix()].add(label)
    for split in ("train", "test"):
        labels = set(sets[split].labels.tolist())
        empty = [name for label, name in enumerate(task.class_names) if label not in labels]
        if empty:
            checked.wrong.append(("class names", f"no {split} image of {empty[0]!r} ({len(empty)} such classes)"))
    if len(folders) != len(task.class_names):
        return
    for folder, labels in folders.items():
        if len(labels) > 1:
            several = ", ".join(repr(task.class_names[label]) for label in sorted(labels)[:3])
            checked.wrong.append(("class names", f"the folder {folder} has images of several classes: {several}"))
            return


def _check_names(checked: Checked, names: Sequence[str], benchmark: str) -> None:
    """CLIP's vocabulary knows no capitals, so they do not count."""
    plain = [name.casefold() for name in names]
    if benchmark == "mtil" and checked.name == "eurosat":
        _compare_names(checked, plain, [name.casefold() for name in EUROSAT_NAMES.values()])
    if benchmark in ("mtil", "mtil-mini") and checked.name == "flowers-102":
        _compare_names(checked, plain, list(flower_names()))
    late = [name for name in names if not name[:4].isdecimal()]
    if benchmark == "mtil" and checked.name == "stanford-cars" and late:
        checked.notes.append(f"{len(late)} class names do not begin with the year, such as {late[0]!r}")
    if joined := [name for name in names if "_" in name]:
        checked.notes.append(f"{len(joined)} class names have underscores, such as {joined[0]!r}; prompts keep them")


def _compare_names(checked: Checked, found: Sequence[str], expected: Sequence[str]) -> None:
    if len(found) != len(expected):
        return  # the counts say so already
    for label, (name, known) in enumerate(zip(found, expected, strict=True)):
        if name.replace("_", " ") != known.casefold():
            checked.wrong.append(("class names", f"class {label} is {name!r}, not {known!r}"))
            return


def _read(checked: Checked, images: ImageSet, title: str, pool: ThreadPoolExecutor, memory: Memory) -> None:
    wrong = unreadable(images, title, pool, memory)
    checked.read += len(images) - len(wrong)
    if wrong:
        message = f"{len(wrong)} of {len(images)} images cannot be read ({title}), the first: {wrong[0]}"
        checked.wrong.append(("images", message))


def _reference(benchmark: Benchmark, root: Path, config: RunConfig) -> tuple[Checked, ImageSet | None]:
    """The reference images that a run would use."""
    data_set = benchmark.reference
    exact = benchmark.name != "mtil"  # of ImageNet, any list will do that is long enough
    expected = {"train": data_set.train} if exact else {}
    checked = Checked(data_set.name, expected)
    try:
        images, class_names = benchmark.load_reference(root, False)
    except DataError as error:
        checked.wrong.append(("data", str(error)))
        return checked, None
    checked.found = {"classes": len(class_names), "train": len(images)}
    if exact and len(images) != data_set.train:
        checked.wrong.append(("counts", f"{len(images)} images, not {data_set.train}"))
    if not exact and len(images) < config.reference_images:
        checked.wrong.append(("counts", f"{len(images)} images, fewer than {config.reference_images}"))
    images = subset(images, config)
    if missing := images.source.missing(images.keys):
        first = images.source.describe(missing[0])
        checked.wrong.append(("images", f"{len(missing)} reference images are missing, the first: {first}"))
    return checked, images


# -- what a model makes of it --------------------------------------------------------------------------------------


def _fingerprint(config: RunConfig, results: list[Checked], root: Path, tolerance: float) -> dict[str, Any]:
    """Zero-shot rows, and which data sets are off."""
    # Whatever is wrong with images or sizes stands in the report already, and is no reason to know less.
    unusable = [one.name for one in results if any(what in ("data", "images") for what, _ in one.wrong)]
    usable = [one for one in results if one.name not in unusable]
    document: dict[str, Any] = {"left_out": unusable, "compared_with": None, "rows": {}}
    if not usable:
        return document
    values = {
        **config.to_dict(),
        "sequence": ",".join(one.name for one in usable),
        "limit_tasks": None,
        "check_counts": False,
    }
    asked = from_dict(values, "tasso data check")
    found = evaluate(asked)
    known = _comparable(asked, known_fingerprint(asked.benchmark, asked.model))
    document |= {"model": found["model"], "compared_with": known.source if known else None}
    images = {one.name: one.found["test"] for one in usable}
    drawn = [one.name for one in usable if read_record(root / one.name).get("split") == "drawn"]
    whole = set(found["tasks"]) == set(BENCHMARKS[config.benchmark].tasks)
    for setting in ("mtil", "mcil"):
        row = dict(zip(found["tasks"], found[setting], strict=True))
        document["rows"][setting] = {name: {"found": round(value, 2)} for name, value in row.items()}
        # Among the classes of fewer tasks, accuracy is another thing.
        if not known or (setting == "mcil" and not whole):
            continue
        expected = getattr(known, setting)
        for name, (off, limit) in differences(expected, row, tolerance, images, drawn).items():
            document["rows"][setting][name] |= {"expected": expected[name], "allowed": round(limit, 2)}
            if abs(off) > limit:
                text = (
                    f"zero-shot {setting.upper()} accuracy is {row[name]:.2f}, {abs(off):.2f} points "
                    f"{'above' if off > 0 else 'below'} {expected[name]:.2f} ({known.source}; {limit:.2f} allowed)"
                )
                next(one for one in usable if one.name == name).wrong.append(("fingerprint", text))
    return document


def _comparable(config: RunConfig, known: Fingerprint | None) -> Fingerprint | None:
    """Rows hold for one prompt and for whole test sets."""
    template = resolve(config)[0].template
    return known if template == TEMPLATE and config.test_per_class is None else None


# -- for people ----------------------------------------------------------------------------------------------------


def report_lines(report: dict[str, Any]) -> list[str]:
    """The report as text."""
    width = max(len(one["name"]) for one in report["data_sets"])
    said = [f"{'data set':{width}}  classes   train     val    test    read"]
    for one in report["data_sets"]:
        numbers = "  ".join(f"{one['found'].get(key, '–'):>6}" for key in ("classes", *SPLITS))
        said.append(
            f"{one['name']:{width}}   {numbers}  {one['images_read']:>6}  {'' if one['ok'] else 'OFF'}".rstrip()
        )
    if report["fingerprint"]:
        said += _fingerprint_lines(report["fingerprint"], width)
    for one in report["data_sets"]:
        said += [f"{one['name']}: {fault['what']}: {fault['message']}" for fault in one["wrong"]]
        said += [f"{one['name']}: note: {note}" for note in one["notes"]]
    said.append("all as it should be" if report["ok"] else "something is off")
    return said


def _fingerprint_lines(document: dict[str, Any], width: int) -> list[str]:
    source = document["compared_with"]
    said = [
        "",
        f"zero-shot accuracy, compared with {source}" if source else "zero-shot accuracy; nothing to compare it with",
    ]
    for setting, row in document["rows"].items():
        for name, cell in row.items():
            beside = f"  expected {cell['expected']:6.2f} ± {cell['allowed']:.2f}" if "expected" in cell else ""
            said.append(f"{name:{width}}  {setting.upper()}  {cell['found']:6.2f}{beside}")
    said += [f"{name}: left out, since its data cannot be used" for name in document["left_out"]]
    return [*said, ""]
