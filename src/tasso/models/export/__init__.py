"""Export models as folders that other libraries load without tasso."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasso.errors import ConfigError, no_such
from tasso.models.clip import Clip
from tasso.models.export.folder import new_folder
from tasso.models.export.to_onnx import to_onnx
from tasso.models.export.to_open_clip import to_open_clip
from tasso.models.export.to_torchscript import to_torchscript
from tasso.models.export.to_transformers import to_transformers

__all__ = ["ALIASES", "FORMATS", "Format", "Source", "export_model", "export_open_clip"]

log = logging.getLogger("tasso")


@dataclass(frozen=True)
class Format:
    """A format to export to.

    Attributes:
        title: name of the library that loads it.
        usage: how to load it, in one line.
        write: writes a model into a temporary folder, given the final folder too; returns usage for the README.
    """

    title: str
    usage: str
    write: Callable[[Clip, Path, Path], str]


FORMATS = {
    "open_clip": Format(
        "open_clip", 'open_clip.create_model_and_transforms("local-dir:FOLDER")', to_open_clip
    ),
    "hf": Format("Hugging Face transformers", 'transformers.AutoModel.from_pretrained("FOLDER")', to_transformers),
    "torchscript": Format("TorchScript", 'torch.jit.load("FOLDER/image_encoder.pt")', to_torchscript),
    "onnx": Format("ONNX", 'onnxruntime.InferenceSession("FOLDER/image_encoder.onnx")', to_onnx),
}  # fmt: skip
ALIASES = {"transformers": "hf"}


@dataclass(frozen=True)
class Source:
    """A model to export.

    Attributes:
        clip: the model.
        name: part of the default folder name.
        description: where the model comes from, for the README.
        not_exported: what the run uses for classification besides the model, such as class means; empty if nothing.
    """

    clip: Clip
    name: str
    description: str
    not_exported: str = ""


def export_model(source: Source, to: str, folder: Path | None = None) -> Path:
    """Write a model to a new folder, which appears complete or not at all."""
    if to not in FORMATS:
        raise ConfigError(f"to: {no_such('format', to, FORMATS)}")
    folder = folder or Path("exported") / f"{source.name}-{to}"
    with new_folder(folder) as temporary:
        usage = FORMATS[to].write(source.clip, temporary, folder)
        (temporary / "README.md").write_text(_readme(source, to, usage), encoding="utf-8")
    if source.not_exported:
        log.warning("%s is not part of the exported model, which compares images with texts", source.not_exported)
    return folder


def export_open_clip(clip: Clip, folder: Path) -> Path:
    """Write a model for `open_clip.create_model_and_transforms("local-dir:…")`."""
    return export_model(Source(clip, folder.name, str(clip.spec)), "open_clip", folder)


def _readme(source: Source, to: str, usage: str) -> str:
    restriction = (
        f"\n**Not exported:** {source.not_exported}. The model alone compares images with the texts of classes, so its "
        "predictions\nmay differ from those of the run.\n"
        if source.not_exported
        else ""
    )
    return f"""# A CLIP model for {FORMATS[to].title}

Model: {source.description}. Exported by tasso.
{restriction}
Replace FOLDER by the path of this folder, IMAGE by the path of an image, and TEXTS by a list of texts such as
`["a photo of a cat.", "a photo of a dog."]`.
{usage}"""
