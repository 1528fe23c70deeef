"""Atomic writes, locked folders, YAML and JSON."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import stat
from collections.abc import Callable, Hashable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from tasso.errors import ConfigError, DataError, RunError, did_you_mean

RESULTS, CONFIG = "results.json", "config.yaml"  # of a run folder
MAX_YAML_VALUES = 100_000  # per file
TOO_LARGE = f"too large: more than {MAX_YAML_VALUES:,} values once aliases are filled in"
MERGE = "tag:yaml.org,2002:merge"
BOOL = "tag:yaml.org,2002:bool"


@contextlib.contextmanager
def locked(folder: Path, on_busy: Callable[[], Any]) -> Iterator[None]:
    """One process at a time in this folder. If another has the lock, `on_busy` may raise; if it does not, we wait.

    The system releases the lock when a process dies.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with open_to_append(folder / ".lock") as lock:
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                on_busy()
                fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise RunError(
                f"{folder}: cannot be locked against other processes, its file system may have no locks: "
                f"{error.strerror}. Use a folder on another one"
            ) from None
        yield


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it. See `is_temporary` for what a kill leaves."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # it could be a link
        temporary.touch()
        mode = temporary.stat().st_mode
        write(temporary)
        with contextlib.suppress(OSError):  # not every file system has modes
            temporary.chmod(mode)  # safetensors lets its owner alone read what it writes
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a text file."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _only_regular(name: str, flags: int) -> int:
    """As `os.open`, for regular files only: a pipe may never begin, and a device never end."""
    file = os.open(name, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    kind = os.fstat(file).st_mode
    if stat.S_ISREG(kind):
        return file
    os.close(file)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    raise OSError(errno.EINVAL, "not a regular file", name)


def _no_link(name: str, flags: int) -> int:
    """As `os.open`, for regular files that are no links: what a folder has may lie anywhere else."""
    if Path(name).is_symlink():
        raise OSError(errno.ELOOP, "a link, which is not written to; remove it", name)
    return _only_regular(name, flags | getattr(os, "O_NOFOLLOW", 0))


def open_to_append(path: Path) -> FileIO:
    """Open a file to write at its end, unbuffered. An OSError if it is a link."""
    return open(path, "ab", buffering=0, opener=_no_link)


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read its bytes. An OSError if it is a pipe or a device."""
    return open(path, "rb", opener=_only_regular)


def read_bytes(path: Path, most: int = -1) -> bytes:
    """The content of a regular file, or its first bytes."""
    with open_regular(path) as file:
        return file.read(most)


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The text of a regular file."""
    with open_regular(path) as file, io.TextIOWrapper(file, encoding) as text:
        return text.read()


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping, or an error that names the file."""
    try:
        values = parse_yaml(read_text(path, "utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a readable text file: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected 'key: value' lines")
    return values


class _Loader(yaml.SafeLoader):
    """Plain values only, and no key twice: YAML would silently take the last."""

    merged = 0  # pairs of mappings that `<<` has put into others

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """A few merges of merges may stand for millions of pairs."""
        for key_node, value_node in node.value:
            if key_node.tag == MERGE:
                parts = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                for part in parts:
                    if isinstance(part, yaml.MappingNode):
                        self.flatten_mapping(part)
                        self.merged += len(part.value)
                        if self.merged > MAX_YAML_VALUES:
                            raise ValueError(TOO_LARGE)
        super().flatten_mapping(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:  # it merges other keys, which may be given once more
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):  # the others are refused below
                if key in keys:
                    line = key_node.start_mark.line + 1
                    raise ValueError(f"line {line}: the key {key!r} appears twice; keep one of them")
                keys.add(key)
        return super().construct_mapping(node, deep=deep)


# As in YAML 1.2: yes, no, on and off are words, such as the name of a class or `compile: on`.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def parse_yaml(text: str) -> Any:
    """The value of a YAML text, or a ValueError."""
    try:
        value = yaml.load(text, _Loader)  # derives from SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (LookupError, AttributeError, TypeError, ArithmeticError) as error:  # tags with values that do not fit
        raise ValueError(f"a value that does not fit its tag ({type(error).__name__}: {error})") from None
    # A few aliases may stand for millions of values (a YAML bomb).
    if _exceeds(value, MAX_YAML_VALUES):
        raise ValueError(TOO_LARGE)
    return value


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text, or a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _exceeds(value: Any, most: int) -> bool:
    waiting, count = [value], 0
    while waiting and count <= most:
        item = waiting.pop()
        count += 1
        if isinstance(item, dict | list | tuple | set):
            waiting += item.values() if isinstance(item, dict) else item
    return count > most


def user_path(text: Path | str) -> Path:
    """A path as a user writes it, with `~` for the home folder; as it is where there is none of that name."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


@contextlib.contextmanager
def not_too_deep(folder: Path) -> Iterator[None]:
    """Around code that looks through folders: a DataError where Python cannot follow them."""
    try:
        yield
    except RecursionError:
        raise DataError(f"{folder}: has folders that are nested too deeply") from None


def is_temporary(path: Path) -> bool:
    """Was this file being written by `write_atomically`?"""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def json_lines(text: str, file: Path, expected: str = "an object") -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects and the numbers of their lines; empty lines are left out. An error names file and line."""
    # Not splitlines: it also splits at characters that JSON allows in strings.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            raise DataError(f"{file}, line {number}: not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise DataError(f"{file}, line {number}: expected {expected}, found {line.strip()[:60]}")
        yield number, value


def no_run(path: Path) -> str:
    """Why this path is no run folder with results, in words: one wording for all commands."""
    if not path.exists():
        names = [str(one.parent) for one in path.parent.glob(f"*/{RESULTS}")] if path.parent.is_dir() else []
        return f"{path}: no such run folder.{did_you_mean(str(path), names)}".removesuffix(".")
    if not path.is_dir():
        return f"{path}: a file, not a run folder"
    if (path / CONFIG).is_file():
        return f"{path}: this run has no {RESULTS} yet; the command that started it goes on with it"
    inside = sorted(str(file.parent) for file in path.glob(f"*/{RESULTS}"))
    some = ", ".join(inside[:3]) + (" …" if len(inside) > 3 else "")
    return f"{path}: not a run folder, it has no {RESULTS}" + (f". There are runs in it: {some}" if inside else "")
