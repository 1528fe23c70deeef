"""Export models as folders that other libraries load without tasso."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasso.errors import ConfigError, no_such
from tasso.models.classifier import Classifier
from tasso.models.clip import Clip
from tasso.models.export.folder import new_folder
from tasso.models.export.to_onnx import to_onnx
from tasso.models.export.to_open_clip import to_open_clip
from tasso.models.export.to_transformers import to_transformers

__all__ = ["ALIASES", "FORMATS", "Format", "Source", "export_model", "export_open_clip"]


@dataclass(frozen=True)
class Format:
    """A format to export to.

    Attributes:
        title: name of the library that loads it.
        usage: how to load it, in one line.
        write: writes a model, and a run's classifier if there is one, into a temporary folder, given the final folder
            too; returns usage for the README.
        of_run: as `usage`, where there is a classifier.
    """

    title: str
    usage: str
    write: Callable[[Clip, Classifier | None, Path, Path], str]
    of_run: str = ""


FORMATS = {
    "open_clip": Format(
        "open_clip", 'open_clip.create_model_and_transforms("local-dir:FOLDER")', to_open_clip
    ),
    "hf": Format("Hugging Face transformers", 'transformers.AutoModel.from_pretrained("FOLDER")', to_transformers),
    "onnx": Format(
        "ONNX", 'onnxruntime.InferenceSession("FOLDER/image_encoder.onnx")', to_onnx,
        'onnxruntime.InferenceSession("FOLDER/classifier.onnx")',
    ),
}  # fmt: skip
ALIASES = {"transformers": "hf"}


@dataclass(frozen=True)
class Source:
    """A model to export.

    Attributes:
        clip: the model.
        name: part of the default folder name.
        description: where the model comes from, for the README.
        beside: what the run classifies with beside the model's texts, such as a head; empty if nothing.
        classifier: of the run; called where it is exported, for it takes a while.
    """

    clip: Clip
    name: str
    description: str
    beside: str = ""
    classifier: Callable[[], Classifier | None] = lambda: None


def export_model(source: Source, to: str, folder: Path | None = None) -> Path:
    """Write a model to a new folder, which appears complete or not at all."""
    if to not in FORMATS:
        raise ConfigError(f"to: {no_such('format', to, FORMATS)}")
    folder = folder or Path("exported") / f"{source.name}-{to}"
    with new_folder(folder) as temporary:
        usage = FORMATS[to].write(source.clip, source.classifier(), temporary, folder)
        (temporary / "README.md").write_text(_readme(source, to, usage), encoding="utf-8")
    return folder


def export_open_clip(clip: Clip, folder: Path) -> Path:
    """Write a model for `open_clip.create_model_and_transforms("local-dir:…")`."""
    return export_model(Source(clip, folder.name, str(clip.spec)), "open_clip", folder)


def _readme(source: Source, to: str, usage: str) -> str:
    return f"""# A CLIP model for {FORMATS[to].title}

Model: {source.description}. Exported by tasso.

Replace FOLDER by the path of this folder, IMAGE by the path of an image, and TEXTS by a list of texts such as
`["a photo of a cat.", "a photo of a dog."]`.
{usage}"""
