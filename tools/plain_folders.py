"""Turn data sets of the authors' layout into folders as a user has them: `python tools/plain_folders.py DATA WHERE`.

Makes the images of docs/guide/own-images.md from mtil-mini. Of each data set there is a folder with a plain
name, in it one directory per class, and in that `0001.jpg` and so on. Nothing tells where the images are from or
how they were divided: training and test images are shuffled together. Class names stay, because CLIP reads them.
`new/` has one image of each data set that is in no folder, and `photos/` images without labels.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from pathlib import Path

from PIL import Image

from tasso.config import from_dict
from tasso.data import ImageSet, load_sequence
from tasso.data.images.decode import decode

# What a user would call them, and the data sets of mtil-mini that they are.
FOLDERS = {
    "pets": "oxford-pets",
    "food": "food-101",
    "flowers": "flowers-102",
    "textures": "dtd",
    "sports": "actions",
    "land": "eurosat",
}
REFERENCE, NEW = "photos", "new"


def write_classes(
    sets: list[ImageSet], names: tuple[str, ...], folder: Path, classes: int, per_class: int, new: Path
) -> str:
    """A directory for each of the first classes, and one more image; returns what was written."""
    by_class: dict[int, list[tuple[ImageSet, int]]] = defaultdict(list)
    for images in sets:
        for index, label in enumerate(images.labels):
            by_class[int(label)].append((images, index))
    written, left = 0, []
    for label, name in enumerate(names[:classes]):
        found = by_class[label]
        random.Random(f"{folder.name}/{name}").shuffle(found)
        for number, (images, index) in enumerate(found[:per_class], start=1):
            save(images, index, folder / name.replace(" ", "_") / f"{number:04}.jpg")
            written += 1
        left += [(name, image) for image in found[per_class : per_class + 1]]
    if not left:
        sys.exit(f"{folder.name}: no class has more than {per_class} images, so none is left to ask about")
    shows, (images, index) = random.Random(folder.name).choice(left)
    save(images, index, new)
    return f"{written} images; {new.name} shows {shows}"


def save(images: ImageSet, index: int, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(decode(images, index)).save(file, quality=95)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder of mtil-mini")
    parser.add_argument("where", type=Path, help="folder to write into")
    parser.add_argument("--classes", type=int, default=40, help="classes per folder at most [40]")
    parser.add_argument("--per-class", type=int, default=80, help="images per class at most [80]")
    parser.add_argument("--reference", type=int, default=4000, help="images without labels [4000]")
    options = parser.parse_args()
    asked = {
        "benchmark": "mtil-mini",
        "data_root": options.data,
        "sequence": ",".join(FOLDERS.values()),
        "reference_images": options.reference,
    }
    sequence = load_sequence(from_dict(asked))
    photos = sequence.reference
    assert photos is not None, "mtil-mini has reference images"
    for number, (folder, task) in enumerate(zip(FOLDERS, sequence.tasks, strict=True), start=1):
        sets, new = [task.train, task.test], options.where / NEW / f"{number:04}.jpg"
        where = options.where / folder
        print(folder, write_classes(sets, task.class_names, where, options.classes, options.per_class, new))
    for index in range(len(photos)):
        save(photos, index, options.where / REFERENCE / f"{index + 1:04}.jpg")
    print(REFERENCE, len(photos))


if __name__ == "__main__":
    main()
