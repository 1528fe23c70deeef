"""What each of the paper's data sets is made of: files, where they come from, what is taken from them.

Addresses and checksums are those of torchvision's data set classes (0.29; Stanford Cars: those of 0.16, the last one
that had them). They are private there, so they are repeated here and a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasso.data.benchmarks import MTIL, DataSet
from tasso.data.prepare import layouts
from tasso.data.readers.coop import COOP_PAGE
from tasso.data.readers.labelled import Listing

# official: the lists say train, val and test. resplit: 50/20/30 of each class. hold-out: official test, and 80/20 of
# each class of the rest. reference: unlabelled images.
Rule = Literal["official", "resplit", "hold-out", "reference"]

REFERENCE = "imagenet"


@dataclass(frozen=True, eq=False)
class Archive:
    """One file to get.

    Attributes:
        file: its name.
        page: where the user gets it, if there is no `url`.
        picks: prefixes of names in the archive, and what replaces them: `images/…` or `lists/…`. A .mat file is picked
            under its own name.
    """

    file: str
    page: str
    picks: Mapping[str, str]
    url: str | None = None
    md5: str | None = None

    def feeds(self, tree: str) -> bool:
        """Does anything of it go to this folder?"""
        return any(target.startswith(f"{tree}/") for target in self.picks.values())


@dataclass(frozen=True)
class Recipe:
    """One data set of the paper.

    Attributes:
        rule: how it is split.
        layout: (images, lists) → what the data set's own lists say.
        archives: the files it is made of.
        coop_split: the split file that CoOp's authors publish for it, if any.
    """

    name: str
    rule: Rule
    layout: Callable[[Path, Path], Listing]
    archives: tuple[Archive, ...]
    coop_split: str | None = None

    @property
    def data_set(self) -> DataSet:
        """The benchmark's entry, with the sizes it must have."""
        return next(data_set for data_set in (*MTIL.data_sets, MTIL.reference) if data_set.name == self.name)

    @property
    def annotation_file(self) -> str:
        return f"{self.data_set.prefix}_annotations.json"


_OXFORD = "https://www.robots.ox.ac.uk/~vgg/data"
_CARS = "wherever there is a copy (the original address is dead; see torchvision.datasets.StanfordCars)"
_UCF = "https://www.crcv.ucf.edu/research/data-sets/ucf101/"
_FOOD = "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz"
_EUROSAT = (
    "https://huggingface.co/datasets/torchgeo/eurosat/resolve/c877bcd43f099cd0196738f714544e355477f3fd/EuroSAT.zip"
)


def _oxford(folder: str, address: str, picks: Mapping[str, str], md5: str | None = None) -> Archive:
    """A file of the VGG group; its address begins with the folder of its page."""
    return Archive(address.rpartition("/")[2], f"{_OXFORD}/{folder}/", picks, f"{_OXFORD}/{folder}/{address}", md5)


def _cars(file: str, source: str, target: str, md5: str) -> Archive:
    return Archive(file, _CARS, {source: target}, md5=md5)


_ALL = (
    Recipe("fgvc-aircraft", "official", layouts.aircraft, (
        _oxford("fgvc-aircraft", "archives/fgvc-aircraft-2013b.tar.gz",
                {"fgvc-aircraft-2013b/data/images/": "images/", "fgvc-aircraft-2013b/data/": "lists/"}),
    )),
    Recipe("dtd", "resplit", layouts.dtd, (
        _oxford("dtd", "download/dtd-r1.0.1.tar.gz", {"dtd/images/": "images/", "dtd/labels/": "lists/"},
                "fff73e5086ae6bdbea199a49dfb8a4c1"),
    ), "split_zhou_DescribableTextures.json"),
    Recipe("eurosat", "resplit", layouts.eurosat, (
        Archive("EuroSAT.zip", "https://github.com/phelber/eurosat", {"2750/": "images/"}, _EUROSAT,
                "c8fa014336c82ac7804f0398fcb19387"),
    ), "split_zhou_EuroSAT.json"),
    Recipe("flowers-102", "resplit", layouts.flowers, (
        _oxford("flowers/102", "102flowers.tgz", {"jpg/": "images/"}, "52808999861908f626f3c1f4e79d11fa"),
        _oxford("flowers/102", "imagelabels.mat", {"imagelabels.mat": "lists/imagelabels.mat"},
                "e0620be6f572b9609742df49c70aed4d"),
    ), "split_zhou_OxfordFlowers.json"),
    Recipe("food-101", "resplit", layouts.food, (
        Archive("food-101.tar.gz", "https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/",
                {"food-101/images/": "images/", "food-101/meta/": "lists/"}, _FOOD, "85eeb15f3717b99a5da872d97d918f87"),
    ), "split_zhou_Food101.json"),
    Recipe("oxford-pets", "hold-out", layouts.pets, (
        _oxford("pets", "data/images.tar.gz", {"images/": "images/"}, "5c4f3ee8e5d25df40f4fd59a7f44e54c"),
        _oxford("pets", "data/annotations.tar.gz",
                {f"annotations/{file}": f"lists/{file}" for file in ("trainval.txt", "test.txt")},
                "95a8c909bbe2e81eed6a22bccdf3f68f"),
    ), "split_zhou_OxfordPets.json"),
    # CoOp's split file names images from here on: cars_train/00001.jpg.
    Recipe("stanford-cars", "hold-out", layouts.cars, (
        _cars("cars_train.tgz", "cars_train/", "images/cars_train/", "065e5b463ae28d29e77c1b4b166cfe61"),
        _cars("cars_test.tgz", "cars_test/", "images/cars_test/", "4ce7ebf6a94d07f1952d94dd34c4d501"),
        _cars("car_devkit.tgz", "devkit/", "lists/", "c3b158d763b6e2245038c8ad08e45376"),
        _cars("cars_test_annos_withlabels.mat", "cars_test_annos_withlabels.mat",
              "lists/cars_test_annos_withlabels.mat", "b0a2b23655a3edd16d84508592a98d10"),
    ), "split_zhou_StanfordCars.json"),
    Recipe("ucf-101", "hold-out", layouts.ucf, (
        Archive("UCF-101-midframes.zip", COOP_PAGE, {"UCF-101-midframes/": "images/"}),
        Archive("UCF101TrainTestSplits-RecognitionTask.zip", _UCF, {"ucfTrainTestlist/": "lists/"}),
    ), "split_zhou_UCF101.json"),
    # A tar with one tar per class, see nested.py.
    Recipe(REFERENCE, "reference", layouts.imagenet, (
        Archive("ILSVRC2012_img_train.tar", "https://image-net.org/challenges/LSVRC/2012/2012-downloads.php",
                {"": "images/train/"}, md5="1d675b47d978889d74fa0da5fadfb00e"),
    )),
)  # fmt: skip

RECIPES = {recipe.name: recipe for recipe in _ALL}
