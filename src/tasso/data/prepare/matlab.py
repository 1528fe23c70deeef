"""Lists that some data sets keep in MATLAB's format. scipy reads it and runs nothing that is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasso.errors import DataError


def read_mat(file: Path, key: str) -> Any:
    """The variable `key` of a .mat file, without needless dimensions."""
    try:
        from scipy.io import loadmat
    except ImportError:
        raise DataError(f"{file}: scipy is needed to read it: pip install 'tasso[data]'") from None
    if not file.is_file():
        raise DataError(f"{file} is missing")
    try:
        content = loadmat(file, squeeze_me=True, variable_names=[key])
    except Exception as error:  # scipy raises errors of many kinds for a damaged file
        raise DataError(f"{file}: not a readable MATLAB file: {error}") from None
    if key not in content:
        raise DataError(f"{file}: holds no variable {key!r}")
    return content[key]
