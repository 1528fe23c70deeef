"""Zero-shot accuracy on annotated zips and on drawn tasks."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from .data import Pixels, chunks, decode_chunk, in_parallel, read_zip
from .train import mixed_precision
from .vocab import load_tokenizer, read_config

# The order of the tables; zips of other names follow in alphabetical order.
ORDER = (
    "fgvc-aircraft",
    "dtd",
    "eurosat",
    "flowers-102",
    "food-101",
    "oxford-pets",
    "stanford-cars",
    "actions",
)


@dataclass(frozen=True)
class Task:
    """Test images, their labels and the class names."""

    name: str
    images: Pixels
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]


def zip_tasks(folder: Path, size: int, *, limit: int | None = None, workers: int = 1) -> list[Task]:
    """The test splits of a folder's annotated zips; zips without test images are left out.

    With `limit`, every k-th image is taken so that about that many remain.
    """
    known = {name: place for place, name in enumerate(ORDER)}
    tasks = []
    for path in sorted(folder.glob("*.zip"), key=lambda p: (known.get(p.stem, len(known)), p.stem)):
        try:
            files, labels, names = read_zip(path, "test")
        except KeyError:  # no such split
            continue
        if not files:
            continue
        stride = max(1, len(files) // limit) if limit else 1
        files, labels = files[::stride], labels[::stride]
        images = np.concatenate(list(in_parallel(partial(decode_chunk, size=size), chunks(files), workers)))
        tasks.append(Task(path.stem, images, np.array(labels), tuple(names)))
    return tasks


def drawn_tasks(module: str, size: int, *, per_class: int = 10, seed: int = 0) -> list[Task]:
    """Test drawings of every domain of a drawing module."""
    atlas = importlib.import_module(module)
    tasks = []
    for name, class_names in _domains(atlas.DOMAINS):
        drawings = [
            atlas.render(name, label, index, seed=seed, split="test", size=size)
            for label in range(len(class_names))
            for index in range(per_class)
        ]
        labels = np.repeat(np.arange(len(class_names)), per_class)
        tasks.append(Task(name, np.stack(drawings), labels, class_names))
    return tasks


def _domains(domains: Any) -> list[tuple[str, tuple[str, ...]]]:
    """Names and class names of the domains."""
    return [(name, tuple(getattr(domain, "class_names", domain))) for name, domain in domains.items()]


@torch.no_grad()
def score(folder: Path, tasks: Sequence[Task], template: str, device: torch.device) -> dict[str, dict[str, float]]:
    """Zero-shot accuracy in per cent, among a task's own classes (MTIL) and among all tasks' (MCIL)."""
    model = open_clip.create_model(f"local-dir:{folder}").to(device).eval()
    tokenizer = load_tokenizer(folder)
    texts = [_text_features(model, tokenizer, task.class_names, template, device) for task in tasks]
    everything = torch.cat(texts) if texts else torch.empty(0)
    preprocess = read_config(folder).get("preprocess_cfg", {})
    mean = torch.tensor(preprocess.get("mean", open_clip.OPENAI_DATASET_MEAN), device=device).view(1, 3, 1, 1)
    std = torch.tensor(preprocess.get("std", open_clip.OPENAI_DATASET_STD), device=device).view(1, 3, 1, 1)
    first, accuracy = 0, {}
    for task, own in zip(tasks, texts, strict=True):
        features = _image_features(model, task.images, mean, std, device)
        labels = torch.from_numpy(task.labels).to(device)
        accuracy[task.name] = {
            "mtil": _per_cent(features @ own.T, labels),
            "mcil": _per_cent(features @ everything.T, labels + first),
        }
        first += len(own)
    if accuracy:
        accuracy["mean"] = {
            kind: sum(values[kind] for values in accuracy.values()) / len(tasks) for kind in ("mtil", "mcil")
        }
    return accuracy


def _text_features(model: Any, tokenizer: Any, names: Sequence[str], template: str, device: torch.device) -> Tensor:
    tokens = tokenizer([template.format(name) for name in names]).to(device)
    return F.normalize(model.encode_text(tokens).float(), dim=-1)


def _image_features(model: Any, images: Pixels, mean: Tensor, std: Tensor, device: torch.device) -> Tensor:
    features = []
    for block in chunks(range(len(images)), 256):
        pixels = torch.from_numpy(images[block[0] : block[-1] + 1]).to(device).permute(0, 3, 1, 2).float() / 255
        with mixed_precision(device):
            raw = model.encode_image((pixels - mean) / std)
        features.append(F.normalize(raw.float(), dim=-1))
    return torch.cat(features)


def _per_cent(similarity: Tensor, labels: Tensor) -> float:
    return 100 * (similarity.argmax(dim=1) == labels).float().mean().item()


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """The results of several models over the same tasks as text, one row a model and measure."""
    names = list(dict.fromkeys(name for result in results.values() for name in result))
    width = max([len(label) for label in results], default=0) + 5
    lines = [" " * width + "".join(f"{name[:13]:>14}" for name in names)]
    for label, result in results.items():
        for kind in ("mtil", "mcil"):
            cells = "".join(f"{result[name][kind]:>14.1f}" if name in result else " " * 14 for name in names)
            lines.append(f"{f'{label} {kind}':<{width}}{cells}")
    return "\n".join(lines)
