"""Readers of the original folders: each returns class names and images as the data set's own lists have them.

Images are in `images/`, lists in `lists/`. Class names are those of CoOp's files, which the benchmark uses.
torchvision's data set classes read most of these lists too, but keep paths and labels private, expect other folders,
have other class names, and do not say which line of a list is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tasso.data.readers.labelled import Item, Listing, is_image, lines
from tasso.data.task import SPLITS
from tasso.errors import DataError, install

DRAWN_LIST = "reference.txt"  # the reference images that were unpacked, in the order of the draw

EUROSAT_NAMES = {
    "AnnualCrop": "Annual Crop Land",
    "Forest": "Forest",
    "HerbaceousVegetation": "Herbaceous Vegetation Land",
    "Highway": "Highway or Road",
    "Industrial": "Industrial Buildings",
    "Pasture": "Pasture Land",
    "PermanentCrop": "Permanent Crop Land",
    "Residential": "Residential Buildings",
    "River": "River",
    "SeaLake": "Sea or Lake",
}

# open_clip calls two classes each "missile" and "sunglasses"; these are WordNet's first words for the other two.
IMAGENET_NAMES = {"n04008634": "projectile", "n04355933": "sunglass"}


def aircraft(images: Path, lists: Path) -> Listing:
    """images_variant_{train,val,test}.txt: `0034309 A300B4`; labels in the order of variants.txt."""
    names = tuple(lines(lists / "variants.txt"))
    labels = {name: label for label, name in enumerate(names)}

    def item(line: str, where: str) -> Item:
        image, _, name = line.partition(" ")
        return f"{image}.jpg", _label(labels, name, where)

    return Listing(names, *(_items(lists / f"images_variant_{split}.txt", item) for split in SPLITS))


def dtd(images: Path, lists: Path) -> Listing:
    """One folder per class; labels/train1.txt names them: `banded/banded_0002.jpg`."""
    file = lists / "train1.txt"
    names = {line.partition("/")[0] for line in lines(file)} if file.is_file() else None
    return class_folders(images, names, file)


def eurosat(images: Path, lists: Path) -> Listing:
    """One folder per class; the benchmark has other names."""
    listing = class_folders(images, set(EUROSAT_NAMES), images)
    return Listing(tuple(EUROSAT_NAMES[name] for name in listing.class_names), listing.train)


def food(images: Path, lists: Path) -> Listing:
    """One folder per class; meta/classes.txt names them."""
    file = lists / "classes.txt"
    return class_folders(images, set(lines(file)) if file.is_file() else None, file)


def flowers(images: Path, lists: Path) -> Listing:
    """imagelabels.mat: the label of image_00001.jpg, image_00002.jpg, …, from 1."""
    file = lists / "imagelabels.mat"
    labels = [int(label) - 1 for label in read_mat(file, "labels").ravel()]
    names = flower_names()
    for number, label in enumerate(labels, start=1):
        if not 0 <= label < len(names):
            raise DataError(f"{file}: image {number} has label {label + 1}, which is not one of 1 … {len(names)}")
    items = [(f"image_{number:05d}.jpg", label) for number, label in enumerate(labels, start=1)]
    return Listing(names[: max(labels, default=-1) + 1], items)  # a part of the data set has fewer classes


def flower_names() -> tuple[str, ...]:
    """torchvision's list. CoOp's cat_to_name.json differs from it in two names."""
    from torchvision.datasets import Flowers102

    other = {"pink-yellow dahlia?": "pink-yellow dahlia", "lotus": "lotus lotus"}
    return tuple(other.get(name, name) for name in Flowers102.classes)


def pets(images: Path, lists: Path) -> Listing:
    """trainval.txt and test.txt: `Abyssinian_100 1 1 1`: image, label from 1, species, number of the breed."""
    names: dict[int, str] = {}

    def item(line: str, where: str) -> Item:
        found = re.fullmatch(r"(.+)_(\d+) (\d+) \d+ \d+", line)
        if not found or int(found[3]) < 1:
            raise DataError(f"{where}: expected 'Abyssinian_100 1 1 1', found {line!r}")
        name, label = found[1].lower(), int(found[3]) - 1
        if names.setdefault(label, name) != name:
            raise DataError(f"{where}: label {label + 1} is {name!r} here, {names[label]!r} before")
        return f"{found[1]}_{found[2]}.jpg", label

    trainval, test = (_items(lists / f"{split}.txt", item) for split in ("trainval", "test"))
    if sorted(names) != list(range(len(names))):
        raise DataError(f"{lists}: trainval.txt and test.txt leave out a label below {max(names) + 1}")
    return Listing(tuple(names[label] for label in range(len(names))), trainval, test=test)


def cars(images: Path, lists: Path) -> Listing:
    """cars_train_annos.mat, cars_test_annos_withlabels.mat: file name and class from 1; cars_meta.mat: names."""
    names = tuple(_year_first(str(name)) for name in read_mat(lists / "cars_meta.mat", "class_names").ravel())

    def read(file: Path, folder: str) -> list[Item]:
        rows = read_mat(file, "annotations").ravel()
        if not {"fname", "class"} <= set(rows.dtype.names or ()):
            raise DataError(f"{file}: expected 'fname' and 'class' of each image (the file with labels)")
        items = []
        for image, number in zip(rows["fname"], rows["class"], strict=True):
            label = int(number) - 1
            if not 0 <= label < len(names):
                raise DataError(f"{file}: {image} has class {label + 1}, which is not one of 1 … {len(names)}")
            items.append((f"{folder}/{image}", label))
        return items

    train = read(lists / "cars_train_annos.mat", "cars_train")
    return Listing(names, train, test=read(lists / "cars_test_annos_withlabels.mat", "cars_test"))


def _year_first(name: str) -> str:
    """`Acura RL Sedan 2012` → `2012 Acura RL Sedan`."""
    words = name.split()
    return " ".join([words[-1], *words[:-1]]) if re.fullmatch(r"\d{4}", words[-1]) else name


def ucf(images: Path, lists: Path) -> Listing:
    """trainlist01.txt, testlist01.txt: `ApplyEyeMakeup/v_ApplyEyeMakeup_g01_c01.avi`; classInd.txt: `1 ApplyEyeMakeup`.

    The images are the middle frames: `Apply_Eye_Makeup/v_ApplyEyeMakeup_g01_c01.jpg`.
    """
    file = lists / "classInd.txt"
    labels: dict[str, int] = {}
    for number, line in enumerate(lines(file), start=1):
        number_there, _, action = line.partition(" ")
        if number_there != str(number) or not action:
            raise DataError(f"{file}: line {number}: expected '{number} ClassName', found {line!r}")
        labels[action] = number - 1

    def item(line: str, where: str) -> Item:
        action, _, video = line.split(" ")[0].partition("/")
        return f"{_split_words(action)}/{video.removesuffix('.avi')}.jpg", _label(labels, action, where)

    train, test = (_items(lists / f"{split}list01.txt", item) for split in ("train", "test"))
    return Listing(tuple(_split_words(action) for action in labels), train, test=test)


def _split_words(action: str) -> str:
    """`ApplyEyeMakeup` → `Apply_Eye_Makeup`, as CoOp calls the folders of its frames."""
    return "_".join(re.findall("[A-Z][^A-Z]*", action)) or action


def imagenet(images: Path, lists: Path) -> Listing:
    """Reference images: those unpacked, in the order of the draw; or all images of one folder per class, sorted."""
    from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

    train = images / "train" if (images / "train").is_dir() else images
    prefix = "train/" if train != images else ""
    if (lists / DRAWN_LIST).is_file():  # every class has a folder, even if nothing was drawn from it
        folders = class_names(train)
        labels = {name: label for label, name in enumerate(folders)}
        drawn = lines(lists / DRAWN_LIST)
        items = [(path, _label(labels, path.split("/")[-2], f"{lists / DRAWN_LIST}: {path}")) for path in drawn]
    else:
        whole = class_folders(train, None, train)
        folders, items = whole.class_names, [(prefix + path, label) for path, label in whole.train]
    # The names are in the order of all sorted folders; for a part of them they cannot be assigned.
    names = IMAGENET_CLASSNAMES if len(folders) == len(IMAGENET_CLASSNAMES) else folders
    unique = tuple(IMAGENET_NAMES.get(folder, name) for folder, name in zip(folders, names, strict=True))
    return Listing(unique, items)


def class_folders(images: Path, names: set[str] | None, where: Path) -> Listing:
    """One folder per class, sorted by name. `names` are the classes that `where` lists, if it does."""
    folders = class_names(images)
    if names is not None:
        if extra := sorted(set(folders) - names):
            raise DataError(f"{images}: the folder {extra[0]} is no class of this data set ({where})")
        if absent := sorted(names - set(folders)):
            raise DataError(f"{images}: the folder of the class {absent[0]} is missing ({where})")
    items = []
    for label, name in enumerate(folders):
        files = sorted(f.name for f in (images / name).iterdir() if is_image(f.name) and not f.name.startswith("."))
        if not files:
            raise DataError(f"{images / name}: no images in this folder")
        items += [(f"{name}/{image}", label) for image in files]
    return Listing(folders, items)


def class_names(images: Path) -> tuple[str, ...]:
    """Folders, sorted by name."""
    return tuple(sorted(entry.name for entry in images.iterdir() if entry.is_dir() and not entry.name.startswith(".")))


def read_mat(file: Path, key: str) -> Any:
    """The variable `key` of a MATLAB file, without needless dimensions. scipy executes nothing that is in it."""
    try:
        from scipy.io import loadmat
    except ImportError:
        raise DataError(f"{file}: scipy is needed to read it: {install('data')}") from None
    if not file.is_file():
        raise DataError(f"{file} is missing")
    try:
        content = loadmat(file, squeeze_me=True, variable_names=[key])
    except Exception as error:  # scipy raises errors of many kinds for a damaged file
        raise DataError(f"{file}: not a readable MATLAB file: {error}") from None
    if key not in content:
        raise DataError(f"{file}: has no variable {key!r}")
    return content[key]


def _items(file: Path, item: Callable[[str, str], Item]) -> list[Item]:
    """`item(line, where)` of each line of a list that is no comment."""
    numbered = enumerate(lines(file), start=1)
    return [item(line, f"{file}: line {number}") for number, line in numbered if not line.startswith("#")]


def _label(labels: Mapping[str, int], name: str, where: str) -> int:
    if name not in labels:
        raise DataError(f"{where}: {name!r} is unknown")
    return labels[name]
