"""The eleven data sets that most others report: MTIL as ZSCL and as DIKI define it, and X-TAIL.

Two protocols carry the name MTIL: ZSCL's (torchvision's splits and class names, all prompt templates in evaluation,
the first in training) and DIKI's (CoOp's splits and names, the first template only). Each has a name of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tasso.config import TASK_TEMPLATES
from tasso.data.annotated import FolderSource
from tasso.data.benchmarks.base import Benchmark, DataSet
from tasso.data.benchmarks.class_incremental import cifar100
from tasso.data.benchmarks.paper import MTIL
from tasso.data.readers import hold_back
from tasso.data.readers.coop import find_images, parse_coop
from tasso.data.readers.from_torchvision import read_torchvision
from tasso.data.readers.labelled import SPLITS
from tasso.data.task import ImageSet, Task
from tasso.errors import DataError

ORDER_I = (
    "aircraft", "caltech101", "cifar100", "dtd", "eurosat", "flowers", "food", "mnist", "pets", "cars", "sun397",
)  # fmt: skip
ORDER_II = (
    "cars", "food", "mnist", "pets", "flowers", "sun397", "aircraft", "caltech101", "dtd", "eurosat", "cifar100",
)  # fmt: skip
SHARE, SEED = 0.8, 42  # of the random splits in ZSCL's code
COOP_PAGE = "https://github.com/KaiyangZhou/CoOp/blob/main/DATASETS.md"


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
        train, test: the arguments that choose these parts; none: a random split of the whole.
        names: class names that differ from torchvision's.
        forms: prompt templates; the first one is that of training.
    """

    data_set: DataSet
    kind: str
    forms: tuple[str, ...]
    train: Mapping[str, Any] = field(default_factory=dict)
    test: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def load(self, root: Path) -> Task:
        train, names = read_torchvision(self.kind, root, **self.train)
        if self.test:
            test, _ = read_torchvision(self.kind, root, **self.test)
        else:
            train, test = random_split(train)
        spaced = tuple(self.names.get(name, name.replace("_", " ")) for name in names)
        nothing = train.subset(np.empty(0, dtype=np.int64))
        return Task(self.data_set.name, spaced, train, nothing, test, self.forms, train_templates=self.forms[:1])


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


def _peer(name: str, sizes: tuple[int, int, int], kind: str, forms: tuple[str, ...], *parts: Any, **names: Any) -> Peer:
    return Peer(DataSet(name, "", *sizes), kind, forms, *parts, **names)


def _split(train: str, test: str = "test") -> tuple[dict[str, str], dict[str, str]]:
    return {"split": train}, {"split": test}


BOOL = ({"train": True}, {"train": False})
PEERS = {
    peer.data_set.name: peer
    for peer in (
        _peer("aircraft", (100, 3334, 3333), "FGVCAircraft", AIRCRAFT_FORMS, *_split("train")),
        _peer("caltech101", (101, 6941, 1736), "Caltech101", CALTECH_FORMS, names=CALTECH_NAMES),
        _peer("cifar100", (100, 50_000, 10_000), "CIFAR100", CIFAR_FORMS, *BOOL),
        _peer("dtd", (47, 1880, 1880), "DTD", DTD_FORMS, *_split("train")),
        _peer("eurosat", (10, 21_600, 5400), "EuroSAT", EUROSAT_FORMS, names=EUROSAT_NAMES),
        _peer("flowers", (102, 1020, 6149), "Flowers102", ("a photo of a {}, a type of flower.",), *_split("train"),
              names=FLOWER_NAMES),
        _peer("food", (101, 75_750, 25_250), "Food101", ("a photo of a {}, a type of food.",), *_split("train")),
        _peer("mnist", (10, 60_000, 10_000), "MNIST", ('a photo of the number: "{}".',), *BOOL),
        _peer("pets", (37, 3680, 3669), "OxfordIIITPet", ("a photo of a {}, a type of pet.",), *_split("trainval")),
        _peer("cars", (196, 8144, 8041), "StanfordCars", CARS_FORMS, *_split("train")),
        _peer("sun397", (397, 87_003, 21_751), "SUN397", _forms("a photo of @ {}.")),
    )
}  # fmt: skip


# -- CoOp's splits -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CoopSet:
    """A data set in the folders of CoOp's data; `split` is its split file there, none for official lists."""

    data_set: DataSet
    folder: str
    split: str = ""

    def load(self, root: Path) -> Task:
        folder, name = root / self.folder, self.data_set.name
        file = folder / (self.split or "variants.txt")
        if not file.is_file():
            raise DataError(f"{file} is missing: CoOp's split of {name}. Its folders, and where to get it: {COOP_PAGE}")
        if not self.split:
            return official_aircraft(folder, name)
        names, items = parse_coop(file)
        if sorted(names) != list(range(len(names))):
            raise DataError(f"{file}: labels must be 0 … {len(names) - 1} without a gap")
        source = FolderSource(find_images(file, next(path for part in items.values() for path, _ in part)))
        spaced = tuple(names[label].replace("_", " ") for label in range(len(names)))
        train, val, test = (ImageSet.of(source, items[part]) for part in SPLITS)
        return Task(name, spaced, train, val, test)

    def checked(self, task: Task, root: Path, check_counts: bool) -> Task:
        if check_counts and self.split and len(task.class_names) != self.data_set.classes:
            raise DataError(
                f"{root / self.folder / self.split}: {len(task.class_names)} classes, but {self.data_set.name} has "
                f"{self.data_set.classes}: the split file of another data set? Its classes begin with "
                f"{', '.join(task.class_names[:3])}"
            )
        return self.data_set.checked(task, root, check_counts)


def official_aircraft(folder: Path, name: str) -> Task:
    """CoOp's folder fgvc_aircraft: images/ and the lists images_variant_{train,val,test}.txt."""
    from tasso.data.prepare.layouts import aircraft

    listing = aircraft(folder / "images", folder)
    source = FolderSource(folder / "images")
    train, val, test = (ImageSet.of(source, getattr(listing, part)) for part in SPLITS)
    return Task(name, listing.class_names, train, val, test)


def _held_back(task: Task) -> Task:
    """A fifth of each class's training images for validation, as DIKI cuts CIFAR100 and MNIST."""
    train, val = hold_back(task.train, 0.2, SEED)
    return replace(task, train=train, val=val)


def mnist(root: Path) -> Task:
    return replace(PEERS["mnist"].load(root), templates=(), train_templates=())


COOP_SETS = {
    one.data_set.name: one
    for one in (
        CoopSet(DataSet("aircraft", "", 100, 3334, 3333), "fgvc_aircraft"),
        CoopSet(DataSet("caltech101", "", 100, 4128, 2465), "caltech-101", "split_zhou_Caltech101.json"),
        CoopSet(DataSet("dtd", "", 47, 2820, 1692), "dtd", "split_zhou_DescribableTextures.json"),
        CoopSet(DataSet("eurosat", "", 10, 13_500, 8100), "eurosat", "split_zhou_EuroSAT.json"),
        CoopSet(DataSet("flowers", "", 102, 4093, 2463), "oxford_flowers", "split_zhou_OxfordFlowers.json"),
        CoopSet(DataSet("food", "", 101, 50_500, 30_300), "food-101", "split_zhou_Food101.json"),
        CoopSet(DataSet("pets", "", 37, 2944, 3669), "oxford_pets", "split_zhou_OxfordPets.json"),
        CoopSet(DataSet("cars", "", 196, 6509, 8041), "stanford_cars", "split_zhou_StanfordCars.json"),
        CoopSet(DataSet("sun397", "", 397, 15_880, 19_850), "sun397", "split_zhou_SUN397.json"),
    )
}
CUT = {
    "cifar100": DataSet("cifar100", "", 100, 40_000, 10_000),
    "mnist": DataSet("mnist", "", 10, 48_000, 10_000),
}


def load_diki(name: str, root: Path, check_counts: bool) -> Task:
    """CoOp's split and names, and the first of ZSCL's templates."""
    forms = PEERS[name].forms[:1]
    if name in CUT:
        task = _held_back(cifar100(root) if name == "cifar100" else mnist(root))
        return replace(CUT[name].checked(task, root, check_counts), templates=forms)
    one = COOP_SETS[name]
    return replace(one.checked(one.load(root), root, check_counts), templates=forms)


def load_x_tail(name: str, root: Path, check_counts: bool) -> Task:
    """CoOp's split; one template for everything, so two data sets have other class names."""
    if name == "mnist":
        task = PEERS[name].data_set.checked(mnist(root), root, check_counts)
        return replace(task, class_names=tuple(f'number: "{one}"' for one in task.class_names))
    one = COOP_SETS[name]
    task = one.checked(one.load(root), root, check_counts)
    if name == "eurosat":
        return replace(task, class_names=tuple(f"{kind} satellite location" for kind in task.class_names))
    return task


# -- the benchmarks ------------------------------------------------------------------------------------------------


def load_zscl(name: str, root: Path, check_counts: bool) -> Task:
    return PEERS[name].data_set.checked(PEERS[name].load(root), root, check_counts)


def _benchmark(
    name: str,
    summary: str,
    data_sets: Mapping[str, DataSet],
    tasks: tuple[str, ...],
    load: Callable[[str, Path, bool], Task],
    protocol: str,
    **options: Any,
) -> Benchmark:
    orders = {"I": ORDER_I, "II": ORDER_II} if tasks == ORDER_I else {}
    chosen = tuple(data_sets[task] for task in tasks)
    return Benchmark(
        name, summary, chosen, MTIL.reference, True, load, MTIL.load_reference, options, orders, protocol
    )  # fmt: skip


_ZSCL = {name: peer.data_set for name, peer in PEERS.items()}
_DIKI = {**{name: one.data_set for name, one in COOP_SETS.items()}, **CUT}
_RAIL = {**_DIKI, "mnist": _ZSCL["mnist"]}
_TEN = tuple(task for task in ORDER_I if task != "cifar100")
_EIGHT = tuple(task for task in ORDER_I if task not in ("eurosat", "mnist", "pets"))
_ALL = "ZSCL's eleven data sets, split and prompted as in its code"
_COOP = "the eleven with CoOp's splits and names, as DIKI has them"
_OWN = {"template": TASK_TEMPLATES}
_FIVE = f"{_ALL}, 5 training images per class"
_FEW = "DIKI's eight with 16 training images per class"
_TAIL = "RAIL's ten with 16 training images per class, scored in MCIL"

FIELD = (
    _benchmark("mtil-11", _ALL, _ZSCL, ORDER_I, load_zscl, "ZSCL", **_OWN),
    _benchmark("mtil-11-5shot", _FIVE, _ZSCL, ORDER_I, load_zscl, "ZSCL", shots=5, **_OWN),
    _benchmark("mtil-11-coop", _COOP, _DIKI, ORDER_I, load_diki, "CoOp", **_OWN),
    _benchmark("mtil-8-coop-16shot", _FEW, _DIKI, _EIGHT, load_diki, "CoOp", shots=16, **_OWN),
    _benchmark(
        "x-tail", _TAIL, _RAIL, _TEN, load_x_tail, "X-TAIL", shots=16, template="a photo of a {}.", same_names="apart"
    ),
)
