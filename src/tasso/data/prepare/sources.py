"""What each of the paper's data sets is made of: files, where they come from, what is taken from them.

Addresses and checksums are those of torchvision's data set classes (0.29; Stanford Cars: those of 0.16, the last one
that had them). They are private there, so they are repeated here and a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tasso.data.benchmarks import MTIL, DataSet
from tasso.data.readers.coop import COOP_PAGE

# official: the lists say train, val and test. resplit: 50/20/30 of each class. hold-out: official test, and 80/20 of
# each class of the rest. reference: unlabelled images.
Rule = Literal["official", "resplit", "hold-out", "reference"]

REFERENCE = "imagenet"


@dataclass(frozen=True)
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
    picks: tuple[tuple[str, str], ...]
    url: str | None = None
    md5: str | None = None

    def feeds(self, tree: str) -> bool:
        """Does anything of it go to this folder?"""
        return any(target.startswith(f"{tree}/") for _, target in self.picks)


@dataclass(frozen=True)
class Recipe:
    """One data set: its archives, how it is split, and the split file that CoOp's authors publish for it, if any."""

    name: str
    rule: Rule
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

_ALL = (
    Recipe(
        "fgvc-aircraft",
        "official",
        (
            Archive(
                "fgvc-aircraft-2013b.tar.gz",
                f"{_OXFORD}/fgvc-aircraft/",
                (("fgvc-aircraft-2013b/data/images/", "images/"), ("fgvc-aircraft-2013b/data/", "lists/")),
                url=f"{_OXFORD}/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",
            ),
        ),
    ),
    Recipe(
        "dtd",
        "resplit",
        (
            Archive(
                "dtd-r1.0.1.tar.gz",
                f"{_OXFORD}/dtd/",
                (("dtd/images/", "images/"), ("dtd/labels/", "lists/")),
                url=f"{_OXFORD}/dtd/download/dtd-r1.0.1.tar.gz",
                md5="fff73e5086ae6bdbea199a49dfb8a4c1",
            ),
        ),
        "split_zhou_DescribableTextures.json",
    ),
    Recipe(
        "eurosat",
        "resplit",
        (
            Archive(
                "EuroSAT.zip",
                "https://github.com/phelber/eurosat",
                (("2750/", "images/"),),
                url=(
                    "https://huggingface.co/datasets/torchgeo/eurosat/resolve/"
                    "c877bcd43f099cd0196738f714544e355477f3fd/EuroSAT.zip"
                ),
                md5="c8fa014336c82ac7804f0398fcb19387",
            ),
        ),
        "split_zhou_EuroSAT.json",
    ),
    Recipe(
        "flowers-102",
        "resplit",
        (
            Archive(
                "102flowers.tgz",
                f"{_OXFORD}/flowers/102/",
                (("jpg/", "images/"),),
                url=f"{_OXFORD}/flowers/102/102flowers.tgz",
                md5="52808999861908f626f3c1f4e79d11fa",
            ),
            Archive(
                "imagelabels.mat",
                f"{_OXFORD}/flowers/102/",
                (("imagelabels.mat", "lists/imagelabels.mat"),),
                url=f"{_OXFORD}/flowers/102/imagelabels.mat",
                md5="e0620be6f572b9609742df49c70aed4d",
            ),
        ),
        "split_zhou_OxfordFlowers.json",
    ),
    Recipe(
        "food-101",
        "resplit",
        (
            Archive(
                "food-101.tar.gz",
                "https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/",
                (("food-101/images/", "images/"), ("food-101/meta/", "lists/")),
                url="http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz",
                md5="85eeb15f3717b99a5da872d97d918f87",
            ),
        ),
        "split_zhou_Food101.json",
    ),
    Recipe(
        "oxford-pets",
        "hold-out",
        (
            Archive(
                "images.tar.gz",
                f"{_OXFORD}/pets/",
                (("images/", "images/"),),
                url=f"{_OXFORD}/pets/data/images.tar.gz",
                md5="5c4f3ee8e5d25df40f4fd59a7f44e54c",
            ),
            Archive(
                "annotations.tar.gz",
                f"{_OXFORD}/pets/",
                (
                    ("annotations/trainval.txt", "lists/trainval.txt"),
                    ("annotations/test.txt", "lists/test.txt"),
                ),
                url=f"{_OXFORD}/pets/data/annotations.tar.gz",
                md5="95a8c909bbe2e81eed6a22bccdf3f68f",
            ),
        ),
        "split_zhou_OxfordPets.json",
    ),
    Recipe(
        "stanford-cars",
        "hold-out",
        (
            # CoOp's split file names images from here on: cars_train/00001.jpg.
            Archive(
                "cars_train.tgz",
                _CARS,
                (("cars_train/", "images/cars_train/"),),
                md5="065e5b463ae28d29e77c1b4b166cfe61",
            ),
            Archive(
                "cars_test.tgz",
                _CARS,
                (("cars_test/", "images/cars_test/"),),
                md5="4ce7ebf6a94d07f1952d94dd34c4d501",
            ),
            Archive("car_devkit.tgz", _CARS, (("devkit/", "lists/"),), md5="c3b158d763b6e2245038c8ad08e45376"),
            Archive(
                "cars_test_annos_withlabels.mat",
                _CARS,
                (("cars_test_annos_withlabels.mat", "lists/cars_test_annos_withlabels.mat"),),
                md5="b0a2b23655a3edd16d84508592a98d10",
            ),
        ),
        "split_zhou_StanfordCars.json",
    ),
    Recipe(
        "ucf-101",
        "hold-out",
        (
            Archive("UCF-101-midframes.zip", COOP_PAGE, (("UCF-101-midframes/", "images/"),)),
            Archive("UCF101TrainTestSplits-RecognitionTask.zip", _UCF, (("ucfTrainTestlist/", "lists/"),)),
        ),
        "split_zhou_UCF101.json",
    ),
    Recipe(
        REFERENCE,
        "reference",
        (
            # A tar with one tar per class, see nested.py.
            Archive(
                "ILSVRC2012_img_train.tar",
                "https://image-net.org/challenges/LSVRC/2012/2012-downloads.php",
                (("", "images/train/"),),
                md5="1d675b47d978889d74fa0da5fadfb00e",
            ),
        ),
    ),
)

RECIPES = {recipe.name: recipe for recipe in _ALL}
