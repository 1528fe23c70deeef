"""The classifier of a run beside its model: arrays, class names, and the code that turns them into probabilities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tasso.models.classifier import Classifier, LinearHead
from tasso.models.clip import Clip

CLASSES, EMBEDDINGS, HEAD = "classes.json", "class_embeddings.safetensors", "head.safetensors"

HEADING = """
## The classes of the run

"""
SAME = "The probabilities of all classes of the run, as `tasso classify` gives them."
ROUNDING = """
`preprocess` resizes numbers, as tasso does. Pillow, and so other libraries' preprocessing, rounds what it resizes to
bytes, which changes probabilities a little.
"""
OTHER_TEXTS = """
## Any other texts
"""
IMPORTS = (
    "import numpy as np",
    "import torch",
    "import torchvision.transforms as T",
    "from PIL import Image, ImageOps",
    "from safetensors.numpy import load_file",
)

ARRAYS = """
answers = json.load(open("FOLDER/classes.json", encoding="utf-8"))["answers"]
classes = load_file("FOLDER/class_embeddings.safetensors")  # texts (C, D), members (A, K)
cosines = image_embedding @ classes["texts"].T
logits = classes["logit_scale"] * cosines"""

UNIT = """

def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)

"""
OF_HEAD = """
head = load_file("FOLDER/head.safetensors")
x = JOINED
linear = FEATURES @ head["weight"] + head["bias"]
scores = head["temperature"] * (linear + head["text"] * cosines)
# Texts decide between learned and other classes, the head among the learned.
best = logits.max(-1, keepdims=True, where=head["learned"], initial=-np.inf)
logits = np.where(head["learned"], best + scores - scores.max(-1, keepdims=True), logits)"""

SOFTMAX = """
logits = logits[:, classes["members"]].max(-1)  # a class of several tasks has several columns
probabilities = np.exp(logits - logits.max(-1, keepdims=True))
probabilities /= probabilities.sum(-1, keepdims=True)
for index in probabilities[0].argsort()[::-1][:5]:
    print(f"{100 * probabilities[0, index]:5.1f} %  {answers[index]['class']}  ({answers[index]['task']})")"""


def description(classifier: Classifier) -> dict[str, Any]:
    """What `classes.json` has."""
    learned = classifier.learned.tolist()

    def entry(task: str, name: str, columns: tuple[int, ...]) -> dict[str, Any]:
        return {"class": name, "task": task, "learned": any(learned[column] for column in columns)}

    return {
        "answers": [entry(answer.task, answer.class_name, answer.columns) for answer in classifier.answers],
        "columns": [entry(*names, (column,)) for column, names in enumerate(classifier.columns)],
        "merged_names": classifier.merge_names,
        "templates": {task: list(own) for task, own in classifier.templates.items()},
        "head": classifier.head.name if classifier.head else None,
    }


def write_names(classifier: Classifier, folder: Path) -> None:
    """Write `classes.json`."""
    text = json.dumps(description(classifier), indent=2, ensure_ascii=False)
    (folder / CLASSES).write_text(text + "\n", encoding="utf-8")


def write_classes(classifier: Classifier, folder: Path) -> None:
    """Write class names, the embeddings of their texts, and the head if there is one."""
    write_names(classifier, folder)
    scale = torch.tensor(classifier.logit_scale)
    embeddings = {"texts": classifier.texts, "members": classifier.members, "logit_scale": scale}
    _save(embeddings, folder / EMBEDDINGS, {})
    if head := classifier.head:
        numbers = {"text": torch.tensor(head.text), "temperature": torch.tensor(head.temperature)}
        arrays = {"weight": head.weight, "bias": head.bias, "learned": classifier.learned, **numbers}
        if head.projection.numel():
            arrays["projection"] = head.projection
        _save(arrays, folder / HEAD, {"head": head.name, "features": ", ".join(_parts(head))})


def classes_code(classifier: Classifier, clip: Clip, library: str, embedding: str, tokens: str) -> str:
    """Part of the README: code from an image to the probabilities of the run's classes.

    Args:
        library: the line that imports what the model needs.
        embedding: code that sets `image_embedding` (1, D) from `pixels`.
        tokens: in its place, code that also sets `tokens` (1, L, width), as the last block reads them.
    """
    head = classifier.head
    loading = tokens.replace("NORM", head.tokens.name) if head and head.tokens else embedding
    imports = sorted([*IMPORTS, library], key=lambda line: (line.startswith("from"), line))
    parts, applied = ["\n".join(["import json", "", *imports, ""]), exact_preprocessing(clip), loading], ""
    if head:
        joined = "image_embedding"
        if head.tokens:
            pooled = ["unit(tokens[:, 0])"] if head.tokens.prefix else []
            pooled.append(f"unit(tokens[:, {head.tokens.prefix}:].mean(1))")
            joined = f"unit(np.hstack([image_embedding, {', '.join(pooled)}]))"
            parts.insert(1, UNIT)
        count = head.projection.shape[-1]
        random = f'np.hstack([x, np.maximum(x @ head["projection"], 0) / np.sqrt({count})])' if count else "x"
        applied = OF_HEAD.replace("JOINED", joined).replace("FEATURES", random)
    code = "".join([*parts, "\n\n", ARRAYS.strip(), applied, SOFTMAX]).strip()
    return f"{HEADING}{SAME}\n\n```python\n{code}\n```\n{ROUNDING}{OTHER_TEXTS}"


def exact_preprocessing(clip: Clip) -> str:
    """Python code that makes `pixels` (1, 3, size, size) of an image as tasso does: nothing is rounded to bytes."""
    p = clip.preprocess
    size = p.size if p.resize_mode == "shortest" else (p.size, p.size)
    return f"""
preprocess = T.Compose([
    T.ToTensor(),
    T.Resize({size}, T.InterpolationMode.{p.interpolation.upper()}, antialias=True),
    T.Lambda(lambda image: image.clamp(0, 1)),
    T.CenterCrop({p.size}),
    T.Normalize({p.mean}, {p.std}),
])
pixels = preprocess(ImageOps.exif_transpose(Image.open("IMAGE")).convert("RGB"))[None]"""


def _parts(head: LinearHead) -> list[str]:
    """What its features are, in words."""
    parts = ["embedding"]
    if head.tokens:
        parts += [*(["class token"] if head.tokens.prefix else []), "mean patch token"]
    return [*parts, *(["random"] if head.projection.numel() else [])]


def _save(tensors: dict[str, Tensor], file: Path, metadata: dict[str, str]) -> None:
    save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, file, metadata)
