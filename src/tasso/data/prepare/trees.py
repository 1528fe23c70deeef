"""The folders `images/` and `lists/` of a data set, unpacked from its archives.

A folder gets its name only when it is complete: it is unpacked under a temporary name, then renamed. A folder that
tasso unpacked has a marker file that names the archives; one without it is the user's own and is never changed.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tasso.data.prepare.archives import (
    ARCHIVES,
    DOWNLOADING,
    Identity,
    MissingArchiveError,
    archive_folders,
    check,
    download,
    find,
    how_to_get,
    identify,
)
from tasso.data.prepare.layouts import DRAWN_LIST
from tasso.data.prepare.nested import unpack_reference
from tasso.data.prepare.options import Options
from tasso.data.prepare.sources import REFERENCE, Archive, Recipe
from tasso.data.prepare.unpack import BadArchiveError, unpack
from tasso.data.readers.coop import COOP_PAGE
from tasso.files import write_text

log = logging.getLogger("tasso")

IMAGES, LISTS = "images", "lists"
MARKER = ".tasso.json"
UNPACKING, OLD = ".unpacking-", ".old-"


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left behind."""
    for pattern in (f"{UNPACKING}*", f"{OLD}*", ".*.tmp", f"{ARCHIVES}/{DOWNLOADING}*"):
        for path in folder.glob(pattern):
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def missing_trees(recipe: Recipe, folder: Path, *, lists: bool) -> list[str]:
    """Folders that have to be unpacked; `lists` says whether the data set's own lists are needed."""
    needed = [IMAGES, LISTS] if lists else [IMAGES]
    return [
        tree for tree in needed
        if not (folder / tree).exists() and any(archive.feeds(tree) for archive in recipe.archives)
    ]  # fmt: skip


def unpack_trees(recipe: Recipe, folder: Path, options: Options, *, lists: bool, has_split: bool) -> list[str]:
    """Unpack what is missing or was unpacked from other archives.

    Args:
        lists: are the data set's own lists needed?
        has_split: was CoOp's split file found?

    Returns:
        What was done.
    """
    folders = archive_folders(folder, options.archives)
    trees = missing_trees(recipe, folder, lists=lists)
    trees += [t for t in (IMAGES, LISTS) if t not in trees and _outdated(recipe, folder / t, folders, options)]
    if not trees:
        return []
    archives = [archive for archive in recipe.archives if any(archive.feeds(tree) for tree in trees)]
    found = {archive: path for archive in archives if (path := find(archive, folders))}
    downloads = [archive for archive in archives if archive not in found]
    if missing := [archive for archive in downloads if not (archive.url and options.download)]:
        raise MissingArchiveError("\n".join(_what_to_do(recipe, missing, folder, has_split)))
    failed: dict[Archive, str] = {}
    for archive in downloads:
        try:
            found[archive] = download(archive, folder)
        except MissingArchiveError as error:  # the others are tried too, so that all are named at once
            failed[archive] = str(error)
    if failed:
        raise MissingArchiveError("\n".join([*failed.values(), *_what_to_do(recipe, list(failed), folder, has_split)]))
    identities = {archive.file: identify(path) for archive, path in found.items()}
    if options.check_archives:
        for archive, path in found.items():
            check(archive, path, identities[archive.file])
    temporary = folder / f"{UNPACKING}{os.getpid()}"
    try:
        for archive, path in found.items():
            try:
                _unpack(recipe, archive, path, temporary, trees, options)
            except BadArchiveError:
                if archive in downloads:  # to be downloaded again, not found again
                    path.unlink(missing_ok=True)
                raise
        for tree in sorted(trees, reverse=True):  # images last: where they are, the lists are too
            used = {a.file: asdict(identities[a.file]) for a in found if a.feeds(tree)}
            record = {"archives": used, "drawn": _draw(options) if recipe.name == REFERENCE else None}
            (temporary / tree).mkdir(parents=True, exist_ok=True)
            write_text(temporary / tree / MARKER, json.dumps(record, indent=1) + "\n")
            put_in_place(temporary / tree, folder / tree)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    unpacked = f"unpacked {', '.join(archive.file for archive in found)}"
    return [*(f"downloaded {archive.file}" for archive in downloads), unpacked]


def _unpack(recipe: Recipe, archive: Archive, path: Path, into: Path, trees: Sequence[str], options: Options) -> None:
    if recipe.name == REFERENCE:
        order = unpack_reference(path, into / IMAGES / "train", *_draw(options))
        # The list belongs to these images, so it is stored with them.
        write_text(into / IMAGES / DRAWN_LIST, "".join(f"train/{name}\n" for name in order))
        return
    # None, not dropped: members of a folder that is not needed must not match a later, shorter prefix.
    picks = {prefix: target if target.partition("/")[0] in trees else None for prefix, target in archive.picks.items()}
    unpack(path, picks, into)


def _draw(options: Options) -> list[int]:
    """Number and seed of the reference images."""
    return [options.reference_images, options.reference_seed]


def put_in_place(new: Path, target: Path) -> None:
    """Rename a folder; an older one that tasso unpacked is moved away first."""
    if target.exists():
        target.rename(target.with_name(f"{OLD}{target.name}-{os.getpid()}"))
    new.rename(target)
    for old in target.parent.glob(f"{OLD}*"):
        _remove(old)


def _outdated(recipe: Recipe, tree: Path, folders: Sequence[Path], options: Options) -> bool:
    """Was this folder unpacked by tasso, from an archive that has changed or with another draw?"""
    if not (tree / MARKER).is_file():
        return False
    try:
        record = json.loads((tree / MARKER).read_text(encoding="utf-8"))
        drawn = record["drawn"]
        recorded = {name: Identity(**values) for name, values in record["archives"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):  # a damaged marker
        return True
    if recipe.name == REFERENCE and drawn != _draw(options):
        return True
    for archive in recipe.archives:
        path = find(archive, folders)
        before = recorded.get(archive.file) if archive.feeds(tree.name) else None
        if path and before and identify(path, before).md5 != before.md5:
            log.info("%s: %s has changed", recipe.name, path)
            return True
    return False


def _what_to_do(recipe: Recipe, missing: Sequence[Archive], folder: Path, has_split: bool) -> list[str]:
    """One step per line. Creates the folder that the files are to be put into."""
    (folder / ARCHIVES).mkdir(exist_ok=True)
    steps = [how_to_get(archive, folder) for archive in missing]
    only_lists = [archive.file for archive in missing if not archive.feeds(IMAGES)]
    if only_lists and recipe.coop_split and not has_split:
        steps.append(f"{' and '.join(only_lists)}: not needed with CoOp's {recipe.coop_split} ({COOP_PAGE})")
    steps.append(f"If the images are unpacked somewhere, put or link that folder to {folder / IMAGES} instead")
    return steps
