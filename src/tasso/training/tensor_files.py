"""Checkpoints and resume states on disk: safetensors files with metadata as JSON in the header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tasso.errors import AFRESH, RunError
from tasso.files import open_regular, parse_json, write_atomically

HEADER_KEY = "tasso"  # of the metadata in the header


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write a file, or replace it atomically."""
    on_cpu = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(on_cpu, temporary, {HEADER_KEY: json.dumps(metadata)}))


def read_tensors(path: Path, advice: str = AFRESH) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Tensors and metadata of a file, or None if it does not exist.

    Raises:
        RunError: the file is damaged, or not one that this version of tasso wrote. Ends with `advice`.
    """
    if not path.exists():
        return None
    try:
        open_regular(path).close()
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = file.metadata() or {}
            metadata = parse_json(header.get(HEADER_KEY, "null"))
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(f"{path}: damaged ({error}); {advice}") from None
    if not isinstance(metadata, dict):
        raise RunError(f"{path}: has no metadata of this version of tasso; {advice}")
    return tensors, metadata
