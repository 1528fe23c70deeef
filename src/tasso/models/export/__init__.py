"""Models as folders that other libraries load, with nothing of tasso in them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasso.errors import ConfigError
from tasso.models.clip import Clip
from tasso.models.export.folder import new_folder
from tasso.models.export.to_onnx import write_onnx
from tasso.models.export.to_open_clip import write_open_clip
from tasso.models.export.to_torchscript import write_torchscript
from tasso.models.export.to_transformers import write_transformers

__all__ = ["FORMATS", "Format", "Source", "export_model", "export_open_clip"]

log = logging.getLogger("tasso")


@dataclass(frozen=True)
class Format:
    """A library that can load models."""

    title: str
    usage: str  # in one line
    write: Callable[[Clip, Path, Path], str]  # fills a place that is going to be a folder; returns how to use it


FORMATS = {
    "open_clip": Format(
        "open_clip", 'open_clip.create_model_and_transforms("local-dir:FOLDER")', write_open_clip
    ),
    "hf": Format("Hugging Face transformers", 'transformers.CLIPModel.from_pretrained("FOLDER")', write_transformers),
    "torchscript": Format("TorchScript", 'torch.jit.load("FOLDER/image_encoder.pt")', write_torchscript),
    "onnx": Format("ONNX", 'onnxruntime.InferenceSession("FOLDER/image_encoder.onnx")', write_onnx),
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A model and where it comes from."""

    clip: Clip
    name: str
    story: str
    # What it takes beside the model to classify as the run does.
    left_behind: str = ""


def export_model(source: Source, to: str, folder: Path | None = None) -> Path:
    """Write a model to a new folder, which appears whole or not at all."""
    if to not in FORMATS:
        raise ConfigError(f"to: no format {to!r}. There are: {', '.join(FORMATS)}")
    folder = folder or Path("exported") / f"{source.name}-{to}"
    with new_folder(folder) as place:
        usage = FORMATS[to].write(source.clip, place, folder)
        (place / "README.md").write_text(_readme(source, to, usage), encoding="utf-8")
    if source.left_behind:
        log.warning("%s is not part of the exported model, which compares images with texts", source.left_behind)
    return folder


def export_open_clip(clip: Clip, folder: Path) -> Path:
    """Write a model for `open_clip.create_model_and_transforms("local-dir:…")`."""
    return export_model(Source(clip, folder.name, str(clip.spec)), "open_clip", folder)


def _readme(source: Source, to: str, usage: str) -> str:
    restriction = (
        f"\n**Not in here:** {source.left_behind}. The model alone compares images with the texts of classes, so it "
        "may decide\notherwise than the run's own evaluation did.\n"
        if source.left_behind
        else ""
    )
    return f"""# A CLIP model for {FORMATS[to].title}

Model: {source.story}. Exported by tasso.
{restriction}
Put the path of this folder in the place of FOLDER, an image's in that of IMAGE and a list of texts, such as
`["a photo of a cat.", "a photo of a dog."]`, in that of TEXTS.
{usage}"""
