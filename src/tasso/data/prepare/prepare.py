"""From archives to a data set that a run can read: found or downloaded, unpacked, annotated.

What is unpacked lies under its name only when it is whole: it is unpacked beside it, then renamed. A folder that
tasso made has a file that says from which archives; one without it is the user's own and is never changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tasso.config import require
from tasso.data.annotated import check_files, read_annotated
from tasso.data.prepare.archives import (
    ARCHIVES,
    DOWNLOADING,
    MissingArchiveError,
    check,
    download,
    find,
    from_record,
    how_to_get,
    identify,
    places,
    to_record,
)
from tasso.data.prepare.layouts import DRAWN_LIST, LAYOUTS
from tasso.data.prepare.nested import unpack_reference
from tasso.data.prepare.sources import COOP_PAGE, RECIPES, REFERENCE, Archive, Recipe, Rule
from tasso.data.prepare.splits import Listing, apply, read_coop_split
from tasso.data.prepare.unpack import BadArchiveError, unpack
from tasso.errors import ConfigError, DataError, TassoError
from tasso.files import locked, write_text

log = logging.getLogger("tasso")

IMAGES, LISTS = "images", "lists"
MARKER = ".tasso.json"  # in a folder that was unpacked here
RECORD = "prepared.json"
BESIDE, OLD = ".unpacking-", ".old-"
Names = Literal["spaces", "coop"]
# How the sets came about, for the record.
HOW: dict[Rule, str] = {
    "official": "official",
    "resplit": "drawn",
    "hold-out": "official test, validation drawn",
    "reference": "reference",
}


@dataclass(frozen=True)
class Options:
    """How to prepare.

    `names`: `spaces` puts spaces where CoOp's class names have underscores, as it does itself in prompts; `coop` leaves
    them. `reference_images` 0 means all of ImageNet.
    """

    archives: Path | None = None
    download: bool = True
    check_archives: bool = True
    check_counts: bool = True
    split_seed: int = 1102
    names: Names = "spaces"
    reference_images: int = 100_000
    reference_seed: int = 1102
    overwrite: bool = False

    def __post_init__(self) -> None:
        for key in ("split_seed", "reference_images", "reference_seed"):
            require(self, key, getattr(self, key) >= 0, "must not be negative")


@dataclass(frozen=True)
class Outcome:
    """What became of one data set; `problem` is None if it can be used now."""

    name: str
    did: tuple[str, ...] = ()
    split: str = ""
    counts: dict[str, int] | None = None
    problem: str | None = None


def chosen(names: Sequence[str]) -> list[str]:
    """The data sets that these words mean."""
    for name in names:
        if name != "all" and name not in RECIPES:
            raise ConfigError(f"data prepare: no data set {name!r}. There are: all, {', '.join(RECIPES)}")
    return list(RECIPES) if "all" in names else list(dict.fromkeys(names))


def prepare(names: Sequence[str], root: Path, options: Options) -> list[Outcome]:
    """Prepare these data sets below `root`. What is wrong with one does not stop the others."""
    outcomes = []
    for name in chosen(names):
        try:
            outcomes.append(prepare_one(RECIPES[name], root, options))
        except TassoError as error:
            outcomes.append(Outcome(name, problem=str(error)))
        except OSError as error:
            outcomes.append(Outcome(name, problem=f"{error.filename or root}: {error.strerror or error}"))
    return outcomes


def plan(names: Sequence[str], root: Path, options: Options) -> list[str]:
    """What there is, what would be downloaded, what somebody has to get; nothing is done."""
    said = []
    for recipe in (RECIPES[name] for name in chosen(names)):
        folder = root / recipe.name
        where = places(folder, options.archives)
        if _given_zip(recipe, root):
            said.append(f"{recipe.name}: {_given_zip(recipe, root)} is there already")
            continue
        own = _own_annotation(recipe, folder) and not options.overwrite
        missing = _missing_trees(recipe, folder, _coop_split(recipe, where), own=own)
        archives = [a for a in recipe.archives if any(a.feeds(tree) for tree in missing)]
        if not archives:
            said.append(f"{recipe.name}: images are there")
        for archive in archives:
            if path := find(archive, where):
                said.append(f"{recipe.name}: {path} would be unpacked")
            elif archive.url and options.download:
                said.append(f"{recipe.name}: {archive.url} would be downloaded")
            else:
                said.append(f"{recipe.name}: {how_to_get(archive, folder)}")
    return said


def prepare_one(recipe: Recipe, root: Path, options: Options) -> Outcome:
    """One data set, ready to be read, or an error that says what is missing."""
    folder = root / recipe.name
    if packed := _given_zip(recipe, root):
        return Outcome(recipe.name, (f"{packed} is there already",), "as given", _counts(root, recipe))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made: {error.strerror}") from None
    with locked(folder, lambda: log.info("%s: another process is preparing it; waiting", recipe.name)):
        _clear(folder)
        own = _own_annotation(recipe, folder) and not options.overwrite
        split = None if own else _coop_split(recipe, places(folder, options.archives))
        did = _bring_trees(recipe, folder, options, split, own)
        if own:
            how = "as given"
            check_given(root, recipe)
            did.append(f"{recipe.annotation_file} was there and is not changed")
        else:
            how, written = _annotate(recipe, folder, options, split)
            did += [f"wrote {recipe.annotation_file}"] if written else []
    return Outcome(recipe.name, tuple(did) or ("nothing to do",), how, _counts(root, recipe))


def _given_zip(recipe: Recipe, root: Path) -> Path | None:
    """The whole data set as a zip in the authors' layout, which is read as it is."""
    packed = root / f"{recipe.name}.zip"
    return packed if packed.is_file() and not (root / recipe.name).exists() else None


def _clear(folder: Path) -> None:
    """Remove what a killed process left behind."""
    for pattern in (f"{BESIDE}*", f"{OLD}*", ".*.tmp", f"{ARCHIVES}/{DOWNLOADING}*"):
        for left in folder.glob(pattern):
            _remove(left)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# -- images and lists --------------------------------------------------------------------------------------------


def _missing_trees(recipe: Recipe, folder: Path, split: Path | None, *, own: bool) -> list[str]:
    """Folders that have to be unpacked. With CoOp's split file or a given annotation file, lists are not needed."""
    needed = [IMAGES] if split or own else [IMAGES, LISTS]
    return [
        tree for tree in needed
        if not (folder / tree).exists() and any(archive.feeds(tree) for archive in recipe.archives)
    ]  # fmt: skip


def _bring_trees(recipe: Recipe, folder: Path, options: Options, split: Path | None, own: bool) -> list[str]:
    """Unpack what is missing or was unpacked from other archives; returns what was done."""
    where = places(folder, options.archives)
    missing = _missing_trees(recipe, folder, split, own=own)
    for tree in (IMAGES, LISTS):
        if tree not in missing and _outdated(recipe, folder / tree, where, options):
            missing.append(tree)
    if not missing:
        return []
    archives = [archive for archive in recipe.archives if any(archive.feeds(tree) for tree in missing)]
    did = []
    found = {archive: path for archive in archives if (path := find(archive, where))}
    if lacking := [a for a in archives if a not in found and not (a.url and options.download)]:
        raise MissingArchiveError("\n".join(_what_to_do(recipe, lacking, folder, split)))
    fresh = [archive for archive in archives if archive not in found]
    refused: dict[Archive, str] = {}
    for archive in fresh:
        try:
            found[archive] = download(archive, folder)
            did.append(f"downloaded {archive.file}")
        except MissingArchiveError as error:  # the others are tried too, so that all are named at once
            refused[archive] = str(error)
    if refused:
        steps = _what_to_do(recipe, list(refused), folder, split)
        raise MissingArchiveError("\n".join([*refused.values(), *steps]))
    identities = {archive.file: identify(path) for archive, path in found.items()}
    if options.check_archives:
        for archive, path in found.items():
            check(archive, path, identities[archive.file])
    beside = folder / f"{BESIDE}{os.getpid()}"
    try:
        for archive, path in found.items():
            try:
                _unpack(recipe, archive, path, beside, missing, options)
            except BadArchiveError:
                if archive in fresh:  # one that we fetched broken shall be fetched again, not found again
                    path.unlink(missing_ok=True)
                raise
        # Images last: whoever finds them finds the lists, too.
        for tree in sorted(missing, reverse=True):
            record: dict[str, Any] = {
                "archives": to_record({a.file: identities[a.file] for a in found if a.feeds(tree)})
            }
            if recipe.name == REFERENCE:
                record["drawn"] = [options.reference_images, options.reference_seed]
            (beside / tree).mkdir(parents=True, exist_ok=True)
            write_text(beside / tree / MARKER, json.dumps(record, indent=1) + "\n")
            _put_in_place(beside / tree, folder / tree)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return [*did, f"unpacked {', '.join(archive.file for archive in found)}"]


def _unpack(recipe: Recipe, archive: Archive, path: Path, beside: Path, trees: Sequence[str], options: Options) -> None:
    if recipe.name == REFERENCE:
        target = beside / IMAGES / "train"
        order = unpack_reference(path, target, options.reference_images, options.reference_seed)
        # It belongs to these images, so it lies with them.
        write_text(beside / IMAGES / DRAWN_LIST, "".join(f"train/{name}\n" for name in order))
        return
    # What goes to a folder that is not wanted must not fall to a later, shorter pick: it is picked for nowhere.
    picks = [(begin, target if target.partition("/")[0] in trees else None) for begin, target in archive.picks]
    unpack(path, picks, beside)


def _put_in_place(new: Path, target: Path) -> None:
    """Rename; an older folder of ours makes room first."""
    if target.exists():
        target.rename(target.with_name(f"{OLD}{target.name}-{os.getpid()}"))
    new.rename(target)
    for old in target.parent.glob(f"{OLD}*"):
        _remove(old)


def _outdated(recipe: Recipe, tree: Path, where: Sequence[Path], options: Options) -> bool:
    """Was this folder unpacked here, and from an archive that is now another, or with another draw?"""
    if not (tree / MARKER).is_file():
        return False
    try:
        record = json.loads((tree / MARKER).read_text(encoding="utf-8"))
    except ValueError:
        return True
    if not isinstance(record, dict):
        return True
    if recipe.name == REFERENCE and record.get("drawn") != [options.reference_images, options.reference_seed]:
        return True
    before = from_record(record.get("archives"))
    for archive in recipe.archives:
        path = find(archive, where)
        then = before.get(archive.file) if archive.feeds(tree.name) else None
        if path and then and identify(path, then).md5 != then.md5:
            log.info("%s: %s is another file now", recipe.name, path)
            return True
    return False


def _what_to_do(recipe: Recipe, lacking: Sequence[Archive], folder: Path, split: Path | None) -> list[str]:
    """One step a line. The folder to put files into is made, so that nobody has to."""
    (folder / ARCHIVES).mkdir(exist_ok=True)
    steps = [how_to_get(archive, folder) for archive in lacking]
    needless = [archive.file for archive in lacking if not archive.feeds(IMAGES)]
    if needless and recipe.coop_split and not split:
        steps.append(f"{' and '.join(needless)}: not needed with CoOp's {recipe.coop_split} ({COOP_PAGE})")
    steps.append(f"If the images are unpacked somewhere, put or link that folder to {folder / IMAGES} instead")
    return steps


# -- annotations ---------------------------------------------------------------------------------------------------


def _coop_split(recipe: Recipe, where: Sequence[Path]) -> Path | None:
    if not recipe.coop_split:
        return None
    return next((place / recipe.coop_split for place in where if (place / recipe.coop_split).is_file()), None)


def read_record(folder: Path) -> dict[str, Any]:
    """What is known of how a data set was prepared; nothing of one that was not prepared here."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _own_annotation(recipe: Recipe, folder: Path) -> bool:
    """Is there an annotation file that was not written here, or was changed since?"""
    file = folder / recipe.annotation_file
    known = {"annotation": None, "replaces": None, **read_record(folder)}
    return file.is_file() and _digest(file.read_bytes()) not in (known["annotation"], known["replaces"])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _annotate(recipe: Recipe, folder: Path, options: Options, split: Path | None) -> tuple[str, bool]:
    """Write the annotation file if it is not there as it should be. Returns how the sets came about, and whether."""
    if split:
        listing, how = read_coop_split(split), "coop"
    else:
        images = folder / IMAGES
        lists = images if recipe.name == REFERENCE else folder / LISTS
        listing = apply(recipe.rule, LAYOUTS[recipe.name](images, lists), options.split_seed)
        how = HOW[recipe.rule]
    if options.names == "spaces":
        spaced = tuple(name.replace("_", " ") for name in listing.class_names)
        listing = Listing(spaced, listing.train, listing.val, listing.test)
    _check_counts(recipe, listing, options)
    sets = {"train": listing.train, "val": listing.val, "test": listing.test}
    document = {"data": sets, "class_names": listing.class_names}
    text = json.dumps(document, ensure_ascii=False) + "\n"
    file, before = folder / recipe.annotation_file, read_record(folder)
    record = {
        "version": 1,
        "annotation": _digest(text.encode()),
        "replaces": _digest(file.read_bytes()) if file.is_file() else None,
        "split": how,
        "split_file": _digest(split.read_bytes()) if split else None,
        "split_seed": options.split_seed if "drawn" in how else None,
        "names": options.names,
    }
    if record["replaces"] == record["annotation"] and {**before, "replaces": None} == {**record, "replaces": None}:
        return how, False
    _try(recipe, folder, text)
    # The record goes first and knows the file that it replaces: whenever we are killed, the file is one of ours.
    write_text(folder / RECORD, json.dumps(record, indent=1) + "\n")
    write_text(file, text)
    return how, True


def _try(recipe: Recipe, folder: Path, text: str) -> None:
    """Read the annotation file under another name: one that cannot be used is never put in place."""
    trial = folder / f"{BESIDE}annotations"
    try:
        trial.mkdir()
        (trial / recipe.annotation_file).write_text(text, encoding="utf-8")
        (trial / IMAGES).symlink_to(folder.absolute() / IMAGES)
        check_given(folder, recipe, trial.name)
    except DataError as error:
        raise DataError(str(error).replace(str(trial), str(folder))) from None
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def check_given(root: Path, recipe: Recipe, name: str | None = None) -> None:
    """An annotation file can be read, and all its images are there."""
    task = read_annotated(root, name or recipe.name, recipe.sizes.prefix)
    for split in ("train", "val", "test"):
        check_files(getattr(task, split), f"{recipe.name}, {split}")


def _check_counts(recipe: Recipe, listing: Listing, options: Options) -> None:
    sizes, reference = recipe.sizes, recipe.name == REFERENCE
    expected = (sizes.classes, sizes.train, sizes.test)
    found = (len(listing.class_names), len(listing.train), len(listing.test))
    if reference:  # a subset of any size
        expected, found = (sizes.classes, 0, 0), (found[0], 0, 0)
    if options.check_counts and found != expected:
        raise DataError(
            f"{recipe.name}: expected {expected[0]} classes, {expected[1]} train and {expected[2]} test images, "
            f"found {found[0]}, {found[1]} and {found[2]}. Use --check-counts false to go on with these"
        )


def _counts(root: Path, recipe: Recipe) -> dict[str, int]:
    task = read_annotated(root, recipe.name, recipe.sizes.prefix)
    return {
        "classes": len(task.class_names),
        "train": len(task.train),
        "val": len(task.val),
        "test": len(task.test),
    }


def outcome_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """What was done, data set by data set."""
    width = max(len(outcome.name) for outcome in outcomes)
    said = []
    for o in outcomes:
        if o.problem:
            said += [f"{o.name:{width}}  NOT READY", *(f"  {line}" for line in o.problem.splitlines())]
        else:
            numbers = ", ".join(f"{count} {what}" for what, count in (o.counts or {}).items())
            said.append(f"{o.name:{width}}  {numbers}; {'; '.join(o.did)}; split: {o.split}")
    ready = sum(not outcome.problem for outcome in outcomes)
    if ready < len(outcomes):
        said.append(f"{ready} of {len(outcomes)} ready. When the rest is mended, the same command goes on from there")
    return said


def outcome_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [asdict(outcome) for outcome in outcomes]
