"""A small world in which all is well: a model, data, own images, a finished run and one that was stopped."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import open_clip
import torch
from PIL import Image
from safetensors.torch import save_file

from bad_inputs.case import plain_logging
from conftest import TINY_CONFIG, draw, write_data_set
from tasso.cli import parse_run_config
from tasso.models.loading import NANO
from tasso.training import learner
from tasso.training.engine import Training

# The tests' tiny CLIP with the vocabulary of nano, which is small: open_clip's own takes a tenth of a second to read.
NANO_TEXTS = json.loads((NANO / "open_clip_config.json").read_text())["model_cfg"]["text_cfg"]
VOCABULARY = NANO_TEXTS["tokenizer_kwargs"]["bpe_path"]
_texts = {key: NANO_TEXTS[key] for key in ("vocab_size", "tokenizer_kwargs")}
_tiny: dict[str, Any] = TINY_CONFIG["model_cfg"]  # type: ignore[assignment]
CONFIG: dict[str, Any] = {**TINY_CONFIG, "model_cfg": {**_tiny, "text_cfg": {**_tiny["text_cfg"], **_texts}}}

MODEL = ("--model", "local-dir:model")
QUICK = ("--steps", "2", "--batch-size", "4", "--reference-batch-size", "4", "--lr", "1e-3", "--device", "cpu")
DATA = ("--benchmark", "mtil-mini", "--data-root", "data", "--no-check-counts", "--sequence", "dtd,eurosat")
LEARN = (*DATA, *MODEL, *QUICK, "--method", "tasso", "--method.rank", "6")
# A run that works. What is added afterwards wins.
RUN = ("run", *LEARN, "--out", "out")
# On own images, without reference images.
OWN = ("run", *MODEL, *QUICK, "--method", "finetune", "--out", "out")


def build(place: Path) -> Path:
    """Make it in an empty folder. All paths in it are relative, so that its parts can be copied elsewhere."""
    write_model(place / "model")
    for name in ("dtd", "eurosat", "imagenet"):
        write_data_set(place / "data", name, name, classes=2, train=4, test=2)
    write_images(place / "birds")
    with contextlib.chdir(place), plain_logging(), quiet():
        learner.learn(parse_run_config("tasso run", [*LEARN, "--out", "run"]))
        for name, more in (("half", ()), ("half-finetune", ("--method", "finetune"))):
            words = [*LEARN[:-2], "--steps", "3", "--out", name, *(more or LEARN[-2:])]
            with stopped_after(4), contextlib.suppress(KeyboardInterrupt):
                learner.learn(parse_run_config("tasso run", words))
            assert Path(name, "state.safetensors").is_file()
    return place


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with (
        Path("/dev/null").open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield


@contextlib.contextmanager
def stopped_after(steps: int) -> Iterator[None]:
    """Ctrl-C in this step, counted over all tasks."""
    advance, done = Training.advance, 0

    def counted(training: Training) -> Any:
        nonlocal done
        terms = advance(training)
        done += 1
        if done == steps:
            signal.raise_signal(signal.SIGINT)
        return terms

    with mock.patch.object(Training, "advance", counted):
        yield


def write_model(folder: Path) -> None:
    """A tiny CLIP as open_clip's local-dir."""
    folder.mkdir(parents=True)
    (folder / "open_clip_config.json").write_text(json.dumps(CONFIG))
    shutil.copyfile(NANO / VOCABULARY, folder / VOCABULARY)
    torch.manual_seed(0)
    model = open_clip.CLIP(**without_tokenizer(CONFIG["model_cfg"]))
    state = {key: value.contiguous().clone() for key, value in model.state_dict().items()}
    save_file(state, folder / "open_clip_model.safetensors")


def without_tokenizer(config: dict[str, Any]) -> dict[str, Any]:
    """What open_clip's class takes: the tokenizer is not its business."""
    texts = {key: value for key, value in config["text_cfg"].items() if key != "tokenizer_kwargs"}
    return {**config, "text_cfg": texts}


def write_images(folder: Path, classes: tuple[str, ...] = ("jay", "owl"), images: int = 3) -> Path:
    """Own images: a folder for each class."""
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(images):
            draw(label, number).save(folder / name / f"{number}.png")
    return folder


def image(size: int = 16) -> Image.Image:
    """Any image."""
    return draw(1, 7, size)


def noise(*shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Pixels that do not compress."""
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def rewrite(file: Path, change: Any) -> None:
    """Read JSON, let `change` alter it, write it."""
    document = json.loads(file.read_text())
    changed = change(document)
    file.write_text(json.dumps(document if changed is None else changed))


def cut(file: Path, keep: float = 0.5) -> None:
    """Only the first part of a file."""
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])


def replace_by_folder(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.mkdir()


def copy_over(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
