"""From archives to a data set that a run can read: found or downloaded, unpacked, annotated."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasso.data.annotated import check_files
from tasso.data.benchmarks.class_incremental import CLASS_INCREMENTAL
from tasso.data.benchmarks.field import FIELD, PEERS, ZSCL
from tasso.data.prepare.annotations import annotate, check_annotations, counts, find_coop_split, has_own_annotations
from tasso.data.prepare.archives import archive_folders, find, how_to_get
from tasso.data.prepare.options import Options
from tasso.data.prepare.sources import RECIPES, Recipe
from tasso.data.prepare.trees import missing_trees, remove_leftovers, unpack_trees
from tasso.data.readers.from_torchvision import read_torchvision
from tasso.errors import ConfigError, DataError, TassoError, no_such
from tasso.files import locked

log = logging.getLogger("tasso")


OTHERS = (*FIELD, *CLASS_INCREMENTAL)
IN_TORCHVISION = {peer.kind: name for name, peer in PEERS.items()}
# In the folders that others make of them: found and checked, or said where they are.
GIVEN = {f"{one.name}:{data_set.name}": data_set for one in OTHERS for data_set in one.data_sets if not data_set.kind}
GROUPS = {
    "all": [*RECIPES],
    **{one.name: [data_set.kind or f"{one.name}:{data_set.name}" for data_set in one.data_sets] for one in OTHERS},
}
DEAD = {
    "StanfordCars": "Its address is dead since 2023: github.com/pytorch/vision/issues/7545 says how to get it",
    "SUN397": "Its address is dead (github.com/pytorch/vision/issues/9348): unpack a copy of SUN397.tar.gz there",
}


@dataclass(frozen=True)
class Outcome:
    """The result for one data set; `problem` is None if it can be used now."""

    name: str
    did: tuple[str, ...] = ()
    split: str = ""
    counts: dict[str, int] | None = None
    problem: str | None = None


def chosen(names: Sequence[str]) -> list[str]:
    """The data sets that these names select: the paper's, torchvision's by the names of its classes, those that others
    make as BENCHMARK:TASK, or groups."""
    known = [*GROUPS, *RECIPES, *IN_TORCHVISION]
    for name in names:
        if name not in (*known, *GIVEN):
            raise ConfigError(f"data prepare: {no_such('data set', name, known)}")
    return list(dict.fromkeys(one for name in names for one in GROUPS.get(name, [name])))


def prepare(names: Sequence[str], root: Path, options: Options) -> list[Outcome]:
    """Prepare these data sets below `root`. A problem with one does not stop the others."""
    outcomes = []
    for name in chosen(names):
        try:
            outcomes.append(_prepare(name, root, options))
        except TassoError as error:
            outcomes.append(Outcome(name, problem=str(error)))
        except OSError as error:
            outcomes.append(Outcome(name, problem=f"{error.filename or root}: {error.strerror or error}"))
    return outcomes


def _prepare(name: str, root: Path, options: Options) -> Outcome:
    if name in RECIPES:
        return prepare_one(RECIPES[name], root, options)
    return (find_given if name in GIVEN else prepare_torchvision)(name, root, options)


def plan(names: Sequence[str], root: Path, options: Options) -> list[str]:
    """What exists, what would be downloaded and what the user has to get. Nothing is done."""
    lines = []
    names = chosen(names)
    for name in names:
        if name in IN_TORCHVISION:
            lines.append(f"{name}: torchvision would download what is missing" + _remark(name))
        elif name in GIVEN:
            lines.append(f"{name}: would be checked; if it is missing, where to get it would be said")
    for recipe in (RECIPES[name] for name in names if name in RECIPES):
        folder = root / recipe.name
        folders = archive_folders(folder, options.archives)
        if zipped := _zip_of(recipe, root):
            lines.append(f"{recipe.name}: {zipped} is there already")
            continue
        own = has_own_annotations(recipe, folder) and not options.overwrite
        missing = missing_trees(recipe, folder, lists=not own and not find_coop_split(recipe, folders))
        archives = [a for a in recipe.archives if any(a.feeds(tree) for tree in missing)]
        if not archives:
            lines.append(f"{recipe.name}: images are there")
        for archive in archives:
            if path := find(archive, folders):
                lines.append(f"{recipe.name}: {path} would be unpacked")
            elif archive.url and options.download:
                lines.append(f"{recipe.name}: {archive.url} would be downloaded")
            else:
                lines.append(f"{recipe.name}: {how_to_get(archive, folder)}")
    return lines


def prepare_one(recipe: Recipe, root: Path, options: Options) -> Outcome:
    """Prepare one data set, or raise an error that says what is missing."""
    folder = root / recipe.name
    if zipped := _zip_of(recipe, root):
        return Outcome(recipe.name, (f"{zipped} is there already",), "as given", counts(root, recipe))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made: {error.strerror}") from None
    with locked(folder, lambda: log.info("%s: another process is preparing it; waiting", recipe.name)):
        remove_leftovers(folder)
        own = has_own_annotations(recipe, folder) and not options.overwrite
        split = None if own else find_coop_split(recipe, archive_folders(folder, options.archives))
        did = unpack_trees(recipe, folder, options, lists=not own and not split, has_split=bool(split))
        if own:
            origin = "as given"
            check_annotations(root, recipe)
            did.append(f"{recipe.annotation_file} was there and is not changed")
        else:
            origin, written = annotate(recipe, folder, options, split)
            did += [f"wrote {recipe.annotation_file}"] if written else []
    return Outcome(recipe.name, tuple(did) or ("nothing to do",), origin, counts(root, recipe))


def prepare_torchvision(kind: str, root: Path, options: Options) -> Outcome:
    """Prepare a data set that torchvision's own class downloads and reads, or raise an error that says what to do."""
    name, did = IN_TORCHVISION[kind], "is there"
    peer = PEERS[name]
    try:
        try:
            task = peer.load(root)
        except DataError:
            if not options.download:
                raise
            for part in peer.parts:
                read_torchvision(kind, root, download=True, **part)
            task, did = peer.load(root), "downloaded by torchvision"
    except DataError as error:
        raise DataError(f"{error}{_remark(kind)}") from None
    if options.check_counts:
        ZSCL[name].check(task, f" in {root}")
    return Outcome(kind, (did,), "official" if len(peer.parts) == 2 else "drawn as ZSCL's code does", task.counts)


def find_given(name: str, root: Path, options: Options) -> Outcome:
    """Check a data set in the folders that others make of it, or raise an error that says where to get it."""
    task = GIVEN[name].read(root, options.check_counts)
    for images in task.sets.values():
        check_files(images, name)
    return Outcome(name, ("is there",), "as given", task.counts)


def _remark(kind: str) -> str:
    return f". {DEAD[kind]}" if kind in DEAD else ""


def _zip_of(recipe: Recipe, root: Path) -> Path | None:
    """The whole data set as a zip in the authors' layout, which is read as it is."""
    file = root / f"{recipe.name}.zip"
    return file if file.is_file() and not (root / recipe.name).exists() else None


def outcome_lines(outcomes: Sequence[Outcome]) -> list[str]:
    width = max(len(outcome.name) for outcome in outcomes)
    lines = []
    for o in outcomes:
        if o.problem:
            lines += [f"{o.name:{width}}  NOT READY", *(f"  {line}" for line in o.problem.splitlines())]
        else:
            numbers = ", ".join(f"{count} {what}" for what, count in (o.counts or {}).items())
            lines.append(f"{o.name:{width}}  {numbers}; {'; '.join(o.did)}; split: {o.split}")
    ready = sum(not outcome.problem for outcome in outcomes)
    if ready < len(outcomes):
        lines.append(f"{ready} of {len(outcomes)} ready. When the problems are solved, the same command continues")
    return lines
