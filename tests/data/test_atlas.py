"""The drawn benchmark: all classes render, and keys alone decide."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from tasso.config import from_dict
from tasso.data import atlas, load_sequence, with_benchmark_options
from tasso.data.atlas.extras import EXTRAS
from tasso.data.atlas.registry import Domain, register

CLASSES = [(domain.name, label) for domain in atlas.DOMAINS.values() for label in range(len(domain.class_names))]

CHECKSUM = """
import zlib
from tasso.data import atlas
total = 0
for name, domain in atlas.DOMAINS.items():
    for label in range(len(domain.class_names)):
        total = zlib.crc32(atlas.render(name, label, 3, seed=5, split="val").tobytes(), total)
for index in range(20):
    total = zlib.crc32(atlas.render_reference(index).tobytes(), total)
print(total)
"""


def checksum(hash_seed: str) -> int:
    """The checksum of some images, computed in a fresh process."""
    source = Path(atlas.__file__).parents[3]
    env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(source)}
    run = subprocess.run([sys.executable, "-c", CHECKSUM], env=env, capture_output=True, text=True, check=True)
    return int(run.stdout)


def test_size_of_the_benchmark() -> None:
    assert list(atlas.DOMAINS) == [
        "aircraft",
        "textures",
        "land",
        "flowers",
        "food",
        "pets",
        "vehicles",
        "actions",
    ]
    assert all(8 <= len(domain.class_names) <= 12 for domain in atlas.DOMAINS.values())
    assert len(CLASSES) >= 80


def test_class_names_are_unique() -> None:
    names = [name for domain in atlas.DOMAINS.values() for name in domain.class_names]
    assert len(set(names)) == len(names)
    assert not set(names) & set(EXTRAS)


@pytest.mark.parametrize("size", [64, 32, 96])
def test_every_class_renders(size: int) -> None:
    for domain, label in CLASSES:
        image = atlas.render(domain, label, 0, size=size)
        assert image.shape == (size, size, 3)
        assert image.dtype == np.uint8
        assert image.std() > 4, (domain, label)


def test_images_do_not_depend_on_the_process() -> None:
    assert checksum("1") == checksum("2")


def test_rendering_is_repeatable() -> None:
    for domain, label in CLASSES[::7]:
        first = atlas.render(domain, label, 2)
        atlas.render(domain, label, 9)  # what is drawn in between must not matter
        assert np.array_equal(first, atlas.render(domain, label, 2))


def test_every_part_of_the_key_matters() -> None:
    for domain in atlas.DOMAINS:
        images = [
            atlas.render(domain, 0, 0),
            atlas.render(domain, 0, 1),
            atlas.render(domain, 1, 0),
            atlas.render(domain, 0, 0, seed=1),
            atlas.render(domain, 0, 0, split="val"),
            atlas.render(domain, 0, 0, split="test"),
        ]
        assert len({image.tobytes() for image in images}) == len(images)


def test_splits_share_no_image() -> None:
    sums = {
        split: {zlib.crc32(atlas.render("food", 0, index, split=split).tobytes()) for index in range(40)}
        for split in atlas.SPLITS
    }
    assert all(len(found) == 40 for found in sums.values())
    assert not sums["train"] & sums["test"]
    assert not sums["train"] & sums["val"]


def test_wrong_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="split"):
        atlas.render("food", 0, 0, split="dev")
    with pytest.raises(KeyError):
        atlas.render("minerals", 0, 0)
    with pytest.raises(IndexError):
        atlas.render("food", 99, 0)


def test_a_domain_registers_once_and_names_clash() -> None:
    with pytest.raises(ValueError, match="already"):
        register(atlas.DOMAINS["food"])
    rival = Domain("rival", scene=lambda c: None)
    rival.add("pizza")(lambda c: None)
    with pytest.raises(ValueError, match="unique"):
        register(rival)
    assert "rival" not in atlas.DOMAINS


def test_reference_scenes_differ() -> None:
    scenes = [atlas.render_reference(index, size=size) for index in range(60) for size in (32, 64)]
    assert all(scene.dtype == np.uint8 and scene.shape in ((32, 32, 3), (64, 64, 3)) for scene in scenes)
    assert len({scene.tobytes() for scene in scenes}) == len(scenes)
    assert atlas.render_reference(0, seed=1).tobytes() != atlas.render_reference(0).tobytes()


def test_a_quarter_of_each_domain_is_held_out() -> None:
    for domain in atlas.DOMAINS.values():
        assert 0.2 <= len(domain.held_out) / len(domain.class_names) <= 0.3
        assert not set(domain.taught) & domain.held_out


def test_styles_are_other_images_of_the_same_class() -> None:
    images = {style: atlas.render("pets", 0, 3, split="test", style=style) for style in atlas.STYLES}
    assert np.array_equal(images["photo"], atlas.render("pets", 0, 3, split="test"))
    assert images["night"].mean() < 0.5 * images["photo"].mean()
    assert len({image.tobytes() for image in images.values()}) == len(atlas.STYLES)
    for style, image in images.items():
        assert np.array_equal(image, atlas.render("pets", 0, 3, split="test", style=style))
        assert image.shape == (64, 64, 3)


@pytest.mark.parametrize(
    ("name", "steps"), [("atlas-classes-8", 8), ("atlas-classes-12", 12), ("atlas-classes-24", 24)]
)
def test_all_classes_in_equal_steps(name: str, steps: int) -> None:
    tasks = load_sequence(from_dict({"benchmark": name}), with_reference=False).tasks
    assert [len(task.class_names) for task in tasks] == [96 // steps] * steps
    assert {one for task in tasks for one in task.class_names} == {
        one for domain in atlas.DOMAINS.values() for one in domain.class_names
    }


def test_the_same_classes_in_five_styles() -> None:
    config = with_benchmark_options(from_dict({"benchmark": "atlas-styles"}))
    tasks = load_sequence(config, with_reference=False).tasks
    assert [task.name for task in tasks] == list(atlas.STYLES)
    assert {task.class_names for task in tasks} == {tasks[0].class_names}
    assert len(tasks[0].class_names) == 24
    assert config.merges_names
    read = [task.test.source.read(task.test.keys[0]) for task in tasks]
    assert len({np.asarray(image).tobytes() for image in read}) == 5


def test_fifty_tasks_of_four_classes_each_in_a_style_of_its_own() -> None:
    tasks = load_sequence(from_dict({"benchmark": "atlas-50"}), with_reference=False).tasks
    assert len(tasks) == 50
    assert {len(task.class_names) for task in tasks} == {4}
    keys = [key for task in tasks for key in task.train.keys]
    assert len(set(keys)) == len(keys), "no image is in two tasks"
