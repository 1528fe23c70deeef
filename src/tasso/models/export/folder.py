"""Folders that appear complete or not at all, and what may not be written there."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tasso.errors import ModelError, RunError
from tasso.models.clip import Clip


def check_new(folder: Path, what: str = "export") -> None:
    """Raise a RunError if the folder exists and is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{what}: {folder} exists and is not empty")


@contextlib.contextmanager
def new_folder(folder: Path, what: str = "export") -> Iterator[Path]:
    """A temporary folder that is renamed to `folder` at the end. A folder that is not empty is refused."""
    check_new(folder, what)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{what}: cannot make the folder {folder}: {error.strerror}") from None
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as parent:
        temporary = Path(parent) / "model"  # not the directory itself, which is only readable for its owner
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*.safetensors"):  # which its owner alone may read, else
            with contextlib.suppress(OSError):
                file.chmod(temporary.stat().st_mode & 0o666)
        if folder.exists():
            folder.rmdir()
        temporary.rename(folder)


def check_described(clip: Clip) -> None:
    """Raise a ModelError if the model's config is not known."""
    if not clip.architecture["vision_cfg"]:
        raise ModelError(f"export: {clip.spec} was given as an object, so its config is not known; use --to onnx")
