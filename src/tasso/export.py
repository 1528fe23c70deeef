"""A model as a folder that plain open_clip loads, with nothing of tasso in it."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from tasso.clip import Clip
from tasso.errors import ModelError, RunError


def export_open_clip(clip: Clip, folder: Path) -> Path:
    """Write config, weights and vocabulary to a new folder, for `open_clip.create_model_and_transforms("local-dir:…")`.

    The config keeps the activation and the preprocessing, so that the embeddings are the same. The folder appears
    whole or not at all.
    """
    if "hf_tokenizer_name" in clip.architecture["text_cfg"]:
        raise ModelError(
            f"export: {clip.spec} has a Hugging Face tokenizer, which open_clip does not read from a folder"
        )
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"export: {folder} exists and is not empty")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        place = Path(temporary) / "model"
        place.mkdir()
        (place / "open_clip_config.json").write_text(
            json.dumps(_config(clip, folder), indent=2) + "\n", encoding="utf-8"
        )
        state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in clip.model.state_dict().items()}
        # The weights tell their activation, for whoever loads them under the name of an architecture.
        activation = "true" if clip.architecture.get("quick_gelu", False) else "false"
        save_file(state, place / "open_clip_model.safetensors", {"format": "pt", "quick_gelu": activation})
        if clip.vocabulary:
            shutil.copyfile(clip.vocabulary, place / clip.vocabulary.name)
        if folder.exists():
            folder.rmdir()
        place.rename(folder)
    return folder


def _config(clip: Clip, folder: Path) -> dict[str, Any]:
    architecture = copy.deepcopy(clip.architecture)
    if clip.vocabulary:
        # open_clip takes a relative path from the working directory, so the path must be a full one.
        architecture["text_cfg"]["tokenizer_kwargs"] = {"bpe_path": str(folder.resolve() / clip.vocabulary.name)}
    preprocess = dataclasses.asdict(clip.preprocess)
    del preprocess["size"]  # the model's own
    return {"model_cfg": architecture, "preprocess_cfg": preprocess}
