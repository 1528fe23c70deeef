"""The eleven data sets that most others report: MTIL as ZSCL and as DIKI define it, and X-TAIL.

Two protocols carry the name MTIL: ZSCL's (torchvision's splits and class names, all prompt templates in evaluation,
the first in training) and DIKI's (CoOp's splits and names, the first template only). Each has a name of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tasso.config import TASK_TEMPLATES
from tasso.data.benchmarks.base import Benchmark, DataSet
from tasso.data.benchmarks.paper import MTIL
from tasso.data.prepare.layouts import aircraft
from tasso.data.readers.coop import COOP_PAGE, find_images, read_coop_split
from tasso.data.readers.from_torchvision import read_torchvision
from tasso.data.readers.split import hold_back
from tasso.data.task import ImageSet, Task
from tasso.errors import DataError

ORDER_I = (
    "aircraft", "caltech101", "cifar100", "dtd", "eurosat", "flowers", "food", "mnist", "pets", "cars", "sun397",
)  # fmt: skip
ORDER_II = (
    "cars", "food", "mnist", "pets", "flowers", "sun397", "aircraft", "caltech101", "dtd", "eurosat", "cifar100",
)  # fmt: skip
SHARE, SEED = 0.8, 42  # of the random splits in ZSCL's code

Parts = tuple[Mapping[str, Any], ...]


def _forms(text: str, articles: str = "a the") -> tuple[str, ...]:
    """Templates of CLIP's authors: all forms with one article, then all with the next; `@` is the article."""
    return tuple(line.strip().replace("@", article) for article in articles.split() for line in text.strip().split("/"))


AIRCRAFT_FORMS = _forms("a photo of @ {}, a type of aircraft.")
CALTECH_FORMS = _forms(
    "a photo of @ {}. / a painting of @ {}. / @ plastic {}. / a sculpture of @ {}. / a sketch of @ {}. / "
    "a tattoo of @ {}. / @ toy {}. / a rendition of @ {}. / @ embroidered {}. / @ cartoon {}. / "
    "@ {} in a video game. / @ plushie {}. / @ origami {}. / art of @ {}. / graffiti of @ {}. / a drawing of @ {}. / "
    "a doodle of @ {}."
)
CIFAR_FORMS = _forms(
    "a photo of @ {}. / a blurry photo of @ {}. / a black and white photo of @ {}. / a low contrast photo of @ {}. / "
    "a high contrast photo of @ {}. / a bad photo of @ {}. / a good photo of @ {}. / a photo of @ small {}. / "
    "a photo of @ big {}."
)
DTD_FORMS = tuple(
    f"a photo of {a} {{}} {what}." for a in ("a", "the") for what in ["texture", "pattern", "thing", "object"]
)
EUROSAT_FORMS = tuple(f"a centered satellite photo of {article}{{}}." for article in ("", "a ", "the "))
CARS_FORMS = (
    "a photo of a {}, a type of car.", *(f"a photo of {a} {{}}." for a in ("a", "the", "my")), "i love my {}!",
    *(f"a photo of my {kind} {{}}." for kind in ("dirty", "clean", "new", "old")),
)  # fmt: skip

CALTECH_NAMES = {
    "Faces": "off-center face", "Faces_easy": "centered face", "Leopards": "leopard", "Motorbikes": "motorbike",
    "airplanes": "airplane", "car_side": "side of a car", "cougar_body": "body of a cougar cat",
    "cougar_face": "face of a cougar cat", "crocodile_head": "head of a crocodile",
    "flamingo_head": "head of a flamingo", "snoopy": "snoopy (cartoon beagle)", "yin_yang": "yin and yang symbol",
}  # fmt: skip
EUROSAT_NAMES = {
    "AnnualCrop": "annual crop land", "Forest": "forest", "HerbaceousVegetation": "brushland or shrubland",
    "Highway": "highway or road", "Industrial": "industrial buildings or commercial buildings",
    "Pasture": "pasture land", "PermanentCrop": "permanent crop land",
    "Residential": "residential buildings or homes or apartments", "River": "river", "SeaLake": "lake or sea",
}  # fmt: skip
FLOWER_NAMES = {"pink-yellow dahlia?": "pink and yellow dahlia"}  # of OpenAI's list, from memory


@dataclass(frozen=True)
class Peer:
    """One of the data sets as ZSCL's code reads it through torchvision.

    Attributes:
        sizes: classes, training and test images.
        kind: the name of torchvision's class.
        forms: prompt templates; the first one is that of training.
        parts: the arguments that choose the training and the test images; a single part is split at random.
        names: class names that differ from torchvision's.
    """

    sizes: tuple[int, int, int]
    kind: str
    forms: tuple[str, ...]
    parts: Parts = ({},)
    names: Mapping[str, str] = field(default_factory=dict)

    def load(self, root: Path) -> Task:
        (train, names), *rest = (read_torchvision(self.kind, root, **part) for part in self.parts)
        train, test = (train, rest[0][0]) if rest else random_split(train)
        spaced = tuple(self.names.get(name, name.replace("_", " ")) for name in names)
        nothing = ImageSet.of(train.source, [])
        return Task(self.kind, spaced, train, nothing, test, self.forms, train_templates=self.forms[:1])


def random_split(images: ImageSet) -> tuple[ImageSet, ImageSet]:
    """80 and 20 percent by a permutation of torch with seed 42. Not stratified, as in ZSCL's code.

    Files are sorted first. torchvision lists those of SUN397 in the order of the file system, so the split of the
    authors' machine cannot be repeated.
    """
    import torch

    order = np.argsort(np.asarray(images.keys)) if images.keys[0].startswith("SUN397/") else np.arange(len(images))
    drawn = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED)).numpy()
    count = int(SHARE * len(images))
    return images.subset(order[drawn[:count]]), images.subset(order[drawn[count:]])


def _split(train: str) -> Parts:
    return {"split": train}, {"split": "test"}


BOOL: Parts = ({"train": True}, {"train": False})
PEERS = {
    "aircraft": Peer((100, 3334, 3333), "FGVCAircraft", AIRCRAFT_FORMS, _split("train")),
    "caltech101": Peer((101, 6941, 1736), "Caltech101", CALTECH_FORMS, names=CALTECH_NAMES),
    "cifar100": Peer((100, 50_000, 10_000), "CIFAR100", CIFAR_FORMS, BOOL),
    "dtd": Peer((47, 1880, 1880), "DTD", DTD_FORMS, _split("train")),
    "eurosat": Peer((10, 21_600, 5400), "EuroSAT", EUROSAT_FORMS, names=EUROSAT_NAMES),
    "flowers": Peer(
        (102, 1020, 6149), "Flowers102", ("a photo of a {}, a type of flower.",), _split("train"), FLOWER_NAMES
    ),
    "food": Peer((101, 75_750, 25_250), "Food101", ("a photo of a {}, a type of food.",), _split("train")),
    "mnist": Peer((10, 60_000, 10_000), "MNIST", ('a photo of the number: "{}".',), BOOL),
    "pets": Peer((37, 3680, 3669), "OxfordIIITPet", ("a photo of a {}, a type of pet.",), _split("trainval")),
    "cars": Peer((196, 8144, 8041), "StanfordCars", CARS_FORMS, _split("train")),
    "sun397": Peer((397, 87_003, 21_751), "SUN397", _forms("a photo of @ {}.")),
}


# -- CoOp's splits -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CoopSet:
    """A data set in the folders of CoOp's data.

    Attributes:
        sizes: classes, training and test images.
        split: its split file in this folder; empty: it has official lists.
    """

    sizes: tuple[int, int, int]
    folder: str
    split: str = ""

    @property
    def place(self) -> str:
        return f"{self.folder}/{self.split or 'variants.txt'}"

    def load(self, root: Path) -> Task:
        file = root / self.place
        if not file.is_file():
            raise DataError(f"{file} is missing: CoOp's folder and split. Where to get them: {COOP_PAGE}")
        if not self.split:
            return aircraft(file.parent / "images", file.parent).task(file.parent / "images")
        listing = read_coop_split(file).spaced()
        return listing.task(find_images(file, next(path for pairs in listing.sets.values() for path, _ in pairs)))


COOP_SETS = {
    "aircraft": CoopSet((100, 3334, 3333), "fgvc_aircraft"),
    "caltech101": CoopSet((100, 4128, 2465), "caltech-101", "split_zhou_Caltech101.json"),
    "dtd": CoopSet((47, 2820, 1692), "dtd", "split_zhou_DescribableTextures.json"),
    "eurosat": CoopSet((10, 13_500, 8100), "eurosat", "split_zhou_EuroSAT.json"),
    "flowers": CoopSet((102, 4093, 2463), "oxford_flowers", "split_zhou_OxfordFlowers.json"),
    "food": CoopSet((101, 50_500, 30_300), "food-101", "split_zhou_Food101.json"),
    "pets": CoopSet((37, 2944, 3669), "oxford_pets", "split_zhou_OxfordPets.json"),
    "cars": CoopSet((196, 6509, 8041), "stanford_cars", "split_zhou_StanfordCars.json"),
    "sun397": CoopSet((397, 15_880, 19_850), "sun397", "split_zhou_SUN397.json"),
}
ZSCL = {name: DataSet(name, *peer.sizes, peer.load, kind=peer.kind) for name, peer in PEERS.items()}
COOP = {name: DataSet(name, *one.sizes, one.load, place=one.place) for name, one in COOP_SETS.items()}
CUT = {"cifar100": 40_000, "mnist": 48_000}  # CoOp does not have these; the training images that DIKI leaves of them


def diki(name: str) -> DataSet:
    """CoOp's split and names, and the first of ZSCL's templates. Where CoOp has no split, a fifth of each class's
    training images is held back for validation."""
    if name in COOP:
        return COOP[name].changed(lambda task: task.with_templates(PEERS[name].forms[:1]))

    def cut(task: Task) -> Task:
        train, val = hold_back(task.train, 0.2, SEED)
        return replace(task.with_templates(PEERS[name].forms[:1]), train=train, val=val)

    return replace(ZSCL[name], train=CUT[name]).changed(cut)


def x_tail(name: str) -> DataSet:
    """CoOp's split; one template for everything, so two data sets have other class names."""
    form = {"mnist": 'number: "{}"', "eurosat": "{} satellite location"}.get(name, "{}")

    def change(task: Task) -> Task:
        return replace(task.with_templates(()), class_names=tuple(map(form.format, task.class_names)))

    return {**ZSCL, **COOP}[name].changed(change)


# -- the benchmarks ------------------------------------------------------------------------------------------------


def _benchmark(
    name: str, summary: str, tasks: Sequence[str], data_set: Callable[[str], DataSet], protocol: str, **options: Any
) -> Benchmark:
    orders = {"I": ORDER_I, "II": ORDER_II} if tasks == ORDER_I else {}
    return Benchmark(name, summary, tuple(map(data_set, tasks)), MTIL.reference, protocol, options, orders)


TEN = tuple(task for task in ORDER_I if task != "cifar100")
EIGHT = tuple(task for task in ORDER_I if task not in ("eurosat", "mnist", "pets"))
ALL = "ZSCL's eleven data sets, split and prompted as in its code"
OWN = {"template": TASK_TEMPLATES}

FIELD = (
    _benchmark("mtil-11", ALL, ORDER_I, ZSCL.__getitem__, "ZSCL", **OWN),
    _benchmark(
        "mtil-11-5shot", f"{ALL}, 5 training images per class", ORDER_I, ZSCL.__getitem__, "ZSCL", shots=5, **OWN
    ),
    _benchmark(
        "mtil-11-coop", "the eleven with CoOp's splits and names, as DIKI has them", ORDER_I, diki, "CoOp", **OWN
    ),
    _benchmark(
        "mtil-8-coop-16shot", "DIKI's eight with 16 training images per class", EIGHT, diki, "CoOp", shots=16, **OWN
    ),
    _benchmark(
        "x-tail", "RAIL's ten with 16 training images per class, scored in MCIL", TEN, x_tail, "X-TAIL", shots=16,
        template="a photo of a {}.", same_names="apart",
    ),
)  # fmt: skip
