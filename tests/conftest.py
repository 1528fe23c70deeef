"""Fixtures: a tiny CLIP and small data sets that the tests draw themselves."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if not Path("/dev/nvidiactl").exists():  # Triton's kernels run in its interpreter; it reads this when it is imported
    os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tasso.data.benchmarks import MTIL_MINI
from tasso.data.images import OneSizePixels, Preprocess
from tasso.methods import METHODS, generic
from tasso.models.clip import Clip
from tasso.models.loading import load_clip
from tasso.training import engine

# Models this small gain nothing from threads, and threads that wait for each other are slow on a busy machine.
torch.set_num_threads(1)

# A slow moment of the machine is no fault of what is tested.
with contextlib.suppress(ImportError):  # tests of the GPU alone do without hypothesis
    from hypothesis import settings

    settings.register_profile("patient", deadline=None)
    settings.load_profile("patient")

TINY_CONFIG = {
    "model_cfg": {
        "embed_dim": 24,
        "vision_cfg": {"image_size": 16, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16},
        "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    },
    "preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]},
}


all_captions = generic.captions


@pytest.fixture(autouse=True)
def few_captions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task of a method with anchors would tokenise thousands."""
    monkeypatch.setattr(generic, "captions", lambda: generic._lines("captions"))


@pytest.fixture
def float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--precision auto` is float32, also on a CPU that is fast in bfloat16: for tests that compare numbers closely."""
    monkeypatch.setattr(engine, "cpu_has_fast_bfloat16", lambda: False)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Methods that a test imports are not there in the next one."""
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random CLIP of a few thousand parameters, as open_clip's local-dir."""
    folder = tmp_path_factory.mktemp("tiny-clip")
    (folder / "open_clip_config.json").write_text(json.dumps(TINY_CONFIG))
    torch.manual_seed(0)
    model = open_clip.CLIP(**TINY_CONFIG["model_cfg"])
    save_file(
        {k: v.contiguous().clone() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors"
    )
    return f"local-dir:{folder}"


@pytest.fixture(scope="session")
def tiny_name(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same architecture under a name that open_clip knows, and its QuickGELU twin."""
    folder = tmp_path_factory.mktemp("configs")
    model = TINY_CONFIG["model_cfg"]
    (folder / "tiny.json").write_text(json.dumps(model))
    (folder / "tiny-quickgelu.json").write_text(json.dumps({**model, "quick_gelu": True}))
    open_clip.add_model_config(folder)
    return "tiny"


@pytest.fixture
def tiny_clip(tiny_model: str) -> Clip:
    return load_clip(tiny_model)


def draw(label: int, index: int, size: int = 16) -> Image.Image:
    """A noisy image whose colour tells its class."""
    rng = np.random.default_rng([label, index])
    base = np.array([(60, 120, 200), (200, 60, 90), (90, 200, 60), (220, 210, 40)][label % 4])
    return Image.fromarray(np.clip(base + rng.normal(0, 25, (size, size, 3)), 0, 255).astype(np.uint8))


def write_data_set(root: Path, name: str, prefix: str, classes: int = 3, train: int = 12, test: int = 6) -> Path:
    """One data set in the authors' layout, `train` and `test` images a class."""
    folder = root / name
    data: dict[str, list[list[object]]] = {"train": [], "val": [], "test": []}
    for split, count in (("train", train), ("test", test)):
        (folder / "images" / split).mkdir(parents=True)
        for number in range(classes * count):
            label = number % classes
            path = f"{split}/{number:03d}.png"
            draw(label, number + (1000 if split == "test" else 0)).save(folder / "images" / path)
            data[split].append([path, label])
    document = {"data": data, "class_names": [f"{name} kind {i}" for i in range(classes)]}
    (folder / f"{prefix}_annotations.json").write_text(json.dumps(document))
    return folder


@pytest.fixture(scope="session")
def mini_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replica of mtil-mini's layout with a few drawn images; half of the sets are zips. Do not write into it."""
    root = tmp_path_factory.mktemp("mini")
    prefixes = {"fgvc-aircraft": "aircraft", "flowers-102": "flowers102", "food-101": "food101",
                "oxford-pets": "oxfordpets", "stanford-cars": "stanfordcars"}  # fmt: skip
    for number, name in enumerate((*MTIL_MINI.tasks, "imagenet")):
        folder = write_data_set(root, name, prefixes.get(name, name))
        if number % 2:
            with zipfile.ZipFile(root / f"{name}.zip", "w") as archive:
                for path in sorted(folder.rglob("*.*")):
                    archive.write(path, path.relative_to(root))
            shutil.rmtree(folder)
    return root


@pytest.fixture
def quick(tiny_model: str, mini_root: Path, tmp_path: Path) -> dict[str, object]:
    """Options of a run that takes a second."""
    return {
        "benchmark": "mtil-mini", "data_root": str(mini_root), "check_counts": False, "model": tiny_model,
        "sequence": "dtd,eurosat", "steps": 4, "batch_size": 8, "reference_batch_size": 8, "lr": 1e-3,
        "method": {"name": "tasso", "rank": 6}, "device": "cpu", "out": str(tmp_path / "run"),
    }  # fmt: skip


def in_memory(stack: torch.Tensor, preprocess: Preprocess) -> OneSizePixels:
    """Images `(N, 3, H, W)` uint8 as the pixels of a set in memory."""
    count, channels, height, width = stack.shape
    images = stack.numpy()
    pixels = OneSizePixels((count, channels, height, width), lambda indices: images[indices], preprocess, stack.device)
    pixels.load(lambda: True)
    return pixels


def few_images(**more: str) -> dict[str, str]:
    """An environment in which every Python process, workers of a sweep too, has few drawn images a class."""
    path = os.pathsep.join([str(Path(__file__).parent / "dying"), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TASSO_TEST_FEW": "4", **more}


CHROMIUM_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-quic", "--disable-dev-shm-usage",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Chromium for all tests of a file: starting it takes longest."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium here: pip install 'tasso[dev]'")
    from selenium.webdriver.chrome.service import Service

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no Chromium with its driver on this machine (Debian: chromium and chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*CHROMIUM_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "--window-size=1280,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chromium = webdriver.Chrome(options=options, service=Service(driver))
    yield chromium
    chromium.quit()


def as_words(options: dict[str, Any]) -> list[str]:
    """Options as command-line words, with dashes."""
    method = options.get("method", {})
    flat = {key: value for key, value in options.items() if key != "method"}
    flat |= {"method" if key == "name" else f"method.{key}": value for key, value in method.items()}
    words = []
    for key, value in flat.items():
        *place, name = key.replace("_", "-").split(".")
        if isinstance(value, bool):
            words.append("--" + ".".join([*place, name if value else f"no-{name}"]))
        else:
            words += ["--" + ".".join([*place, name]), str(value)]
    return words
