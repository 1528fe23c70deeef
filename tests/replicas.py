"""Small replicas of the paper's data sets as their authors publish them: the same folders and list formats, with a
few images that are drawn here. Each function writes the archives of one data set into a folder."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from scipy.io import savemat

from conftest import draw

Files = dict[str, bytes]


def image(label: int, index: int, kind: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    draw(label, index).save(buffer, kind)
    return buffer.getvalue()


def text(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def mat(**variables: object) -> bytes:
    buffer = io.BytesIO()
    savemat(buffer, variables)
    return buffer.getvalue()


def tar(file: Path, files: Mapping[str, bytes], mode: str = "w:gz") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def zipped(file: Path, files: Mapping[str, bytes]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def aircraft_files() -> Files:
    variants = ["A300B4", "Boeing 717", "DC-8"]
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    files: Files = {"fgvc-aircraft-2013b/README.md": b"read me", "fgvc-aircraft-2013b/vl_argparse.m": b"%"}
    for number in range(18):
        split = ("train", "val", "test")[number % 3]
        label = number // 3 % 3
        lists[split].append(f"{number:07d} {variants[label]}")
        files[f"fgvc-aircraft-2013b/data/images/{number:07d}.jpg"] = image(label, number)
    base = "fgvc-aircraft-2013b/data"
    files |= {f"{base}/images_variant_{split}.txt": text(*entries) for split, entries in lists.items()}
    files[f"{base}/variants.txt"] = text(*variants)
    files[f"{base}/families.txt"] = text("A300", "Boeing 717", "DC-8")
    return files


def aircraft(into: Path) -> None:
    tar(into / "fgvc-aircraft-2013b.tar.gz", aircraft_files())


def folders(base: str, classes: list[str], count: int, ending: str = ".jpg") -> Files:
    return {
        f"{base}/{name}/{name}_{number:04d}{ending}": image(label, number)
        for label, name in enumerate(classes)
        for number in range(count)
    }


def dtd_files() -> Files:
    classes = ["banded", "blotchy", "zigzagged"]
    files = folders("dtd/images", classes, 10)
    files["dtd/images/banded/.directory"] = b"[Dolphin]"
    files["dtd/labels/train1.txt"] = text(*(f"{name}/{name}_0001.jpg" for name in classes))
    files["dtd/labels/labels_joint_anno.txt"] = text("banded/banded_0001.jpg banded ")
    files["dtd/imdb/imdb.mat"] = b"not needed"
    return files


def dtd(into: Path) -> None:
    tar(into / "dtd-r1.0.1.tar.gz", dtd_files())


EUROSAT = ["AnnualCrop", "Forest", "HerbaceousVegetation", "Highway", "Industrial", "Pasture", "PermanentCrop",
           "Residential", "River", "SeaLake"]  # fmt: skip


def eurosat(into: Path) -> None:
    zipped(into / "EuroSAT.zip", {"2750/": b"", **folders("2750", EUROSAT, 10)})


def flowers(into: Path) -> None:
    labels = [1 + number // 10 for number in range(30)]
    tar(
        into / "102flowers.tgz",
        {f"jpg/image_{number + 1:05d}.jpg": image(label, number) for number, label in enumerate(labels)},
    )
    (into / "imagelabels.mat").write_bytes(mat(labels=np.asarray([labels], dtype=np.uint8)))


def food_files() -> Files:
    classes = ["apple_pie", "baby_back_ribs", "waffles"]
    files = folders("food-101/images", classes, 10)
    files["food-101/meta/classes.txt"] = text(*classes)
    files["food-101/meta/train.json"] = json.dumps({name: [f"{name}/{name}_0000"] for name in classes}).encode()
    files["food-101/README.txt"] = b"read me"
    return files


def food(into: Path) -> None:
    tar(into / "food-101.tar.gz", food_files())


def pets_files() -> tuple[Files, Files]:
    breeds = ["Abyssinian", "american_bulldog", "Yorkshire_Terrier"]
    images: Files = {"images/Abyssinian_100.mat": b"left behind by its authors"}
    lists: dict[str, list[str]] = {"trainval": [], "test": []}
    for label, breed in enumerate(breeds, start=1):
        for number in range(15):
            images[f"images/{breed}_{number}.jpg"] = image(label, number)
            lists["trainval" if number < 10 else "test"].append(f"{breed}_{number} {label} 1 1")
    annotations = {f"annotations/{name}.txt": text(*entries) for name, entries in lists.items()}
    annotations |= {
        "annotations/list.txt": text("#Image CLASS-ID SPECIES BREED ID", *lists["trainval"]),
        "annotations/._trimaps": b"mac",
        "annotations/trimaps/Abyssinian_0.png": image(0, 0, "PNG"),
    }
    return images, annotations


def pets(into: Path) -> None:
    images, annotations = pets_files()
    tar(into / "images.tar.gz", images)
    tar(into / "annotations.tar.gz", annotations)


CARS = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012", "smart fortwo Convertible 2012"]


def cars_annotations(count: int, *, labelled: bool = True) -> bytes:
    fields: list[tuple[str, type]] = [("bbox_x1", object), ("class", object), ("fname", object)]
    rows = np.zeros((1, count), dtype=[field for field in fields if labelled or field[0] != "class"])
    for number in range(count):
        rows[0, number]["bbox_x1"] = 1
        rows[0, number]["fname"] = f"{number + 1:05d}.jpg"
        if labelled:
            rows[0, number]["class"] = 1 + number % 3
    return mat(annotations=rows)


def cars(into: Path) -> None:
    for split, count in (("train", 30), ("test", 9)):
        files = {f"cars_{split}/{number + 1:05d}.jpg": image(number % 3, number) for number in range(count)}
        tar(into / f"cars_{split}.tgz", files)
    names = np.asarray(CARS, dtype=object).reshape(1, -1)
    tar(
        into / "car_devkit.tgz",
        {
            "devkit/cars_meta.mat": mat(class_names=names),
            "devkit/cars_train_annos.mat": cars_annotations(30),
            "devkit/cars_test_annos.mat": cars_annotations(9, labelled=False),
        },
    )
    (into / "cars_test_annos_withlabels.mat").write_bytes(cars_annotations(9))


ACTIONS = ["ApplyEyeMakeup", "HandstandPushups", "YoYo"]


def frames() -> Files:
    renamed = ["Apply_Eye_Makeup", "Handstand_Pushups", "Yo_Yo"]
    return {
        f"UCF-101-midframes/{folder}/v_{action}_g{number:02d}_c01.jpg": image(label, number)
        for label, (folder, action) in enumerate(zip(renamed, ACTIONS, strict=True))
        for number in range(13)
    }


def ucf(into: Path) -> None:
    zipped(into / "UCF-101-midframes.zip", frames())
    videos = [[f"{action}/v_{action}_g{number:02d}_c01.avi" for number in range(13)] for action in ACTIONS]
    train = [f"{video} {label}" for label, group in enumerate(videos, start=1) for video in group[3:]]
    zipped(
        into / "UCF101TrainTestSplits-RecognitionTask.zip",
        {
            "ucfTrainTestlist/classInd.txt": text(*(f"{i} {action}" for i, action in enumerate(ACTIONS, start=1))),
            "ucfTrainTestlist/trainlist01.txt": text(*train).replace(b"\n", b"\r\n"),
            "ucfTrainTestlist/testlist01.txt": text(*(video for group in videos for video in group[:3])),
        },
    )


SYNSETS = ["n01440764", "n01443537", "n04008634"]


def imagenet(into: Path) -> None:
    classes: Files = {}
    for label, synset in enumerate(SYNSETS):
        inner = io.BytesIO()
        with tarfile.open(fileobj=inner, mode="w") as archive:
            for number in (7, 3, 11, 5):  # not sorted, as in the original
                member = tarfile.TarInfo(f"{synset}_{number}.JPEG")
                content = image(label, number)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        classes[f"{synset}.tar"] = inner.getvalue()
    tar(into / "ILSVRC2012_img_train.tar", classes, "w")


REPLICAS: dict[str, Callable[[Path], None]] = {
    "fgvc-aircraft": aircraft,
    "dtd": dtd,
    "eurosat": eurosat,
    "flowers-102": flowers,
    "food-101": food,
    "oxford-pets": pets,
    "stanford-cars": cars,
    "ucf-101": ucf,
    "imagenet": imagenet,
}


def write(root: Path, name: str) -> Path:
    """The archives of a data set where tasso looks for them; returns its folder."""
    into = root / name / "archives"
    into.mkdir(parents=True, exist_ok=True)
    REPLICAS[name](into)
    return root / name
