"""Files that are there whole or not at all, folders that one process has for itself, YAML and JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tasso.errors import ConfigError, DataError


@contextlib.contextmanager
def locked(folder: Path, on_busy: Callable[[], Any]) -> Iterator[None]:
    """One process at a time in this folder. If another is there, `on_busy` may raise; if it does not, we wait.

    The system lets go of the lock when a process dies.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            on_busy()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary neighbour, then put it in place. `is_temporary` knows what a kill leaves behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a text file."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping, or an error that names the file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a readable text file: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected 'key: value' lines")
    return values


def is_temporary(path: Path) -> bool:
    """Was this file being written by `write_atomically`?"""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def json_lines(text: str, file: Path, expected: str = "an object") -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects and the numbers of their lines; empty lines are left out. An error names file and line."""
    # Not splitlines: JSON may hold characters that Python takes for the end of a line.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise DataError(f"{file}, line {number}: not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise DataError(f"{file}, line {number}: expected {expected}, found {line.strip()[:60]}")
        yield number, value
