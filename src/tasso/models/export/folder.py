"""Folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tasso.errors import RunError


def check_new(folder: Path, what: str = "export") -> None:
    """Raise a RunError if there is something already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{what}: {folder} exists and is not empty")


@contextlib.contextmanager
def new_folder(folder: Path, what: str = "export") -> Iterator[Path]:
    """A place to write into, which becomes `folder` in the end. A folder with something in it is left alone."""
    check_new(folder, what)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{what}: cannot make the folder {folder}: {error.strerror}") from None
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        place = Path(temporary) / "model"
        place.mkdir()
        yield place
        if folder.exists():
            folder.rmdir()
        place.rename(folder)
