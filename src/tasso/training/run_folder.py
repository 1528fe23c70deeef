"""The run folder. Only this module knows its layout. Every file is written atomically."""

from __future__ import annotations

import contextlib
import json
import platform
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import yaml
from safetensors import SafetensorError
from torch import Tensor

from tasso.config import TEXTS, RunConfig, from_dict
from tasso.data import TASK_IMAGES
from tasso.errors import AFRESH, REDO_TASK, BusyError, ConfigError, RunError
from tasso.files import (
    CONFIG,
    RESULTS,
    is_temporary,
    locked,
    open_to_append,
    parse_json,
    read_text,
    read_yaml,
    write_atomically,
    write_text,
)
from tasso.methods import build_method
from tasso.training.identity import identity, portable
from tasso.training.results import check_results, to_json
from tasso.training.tensor_files import read_tensors, write_tensors
from tasso.version import __version__

STATE_VERSION = 2
MAY_MOVE = ("tasks", "reference", "model", "pretrained")  # when a run is resumed; their content may not change


class RunFolder:
    """config.yaml, results.json, checkpoints/, state.safetensors, log.jsonl."""

    def __init__(self, path: Path, writes: bool = True) -> None:
        """`writes`: False on all ranks but the first, where methods that write do nothing."""
        self.path, self.writes = path, writes
        self.config_file = path / CONFIG
        self.results_file = path / RESULTS
        self.state_file = path / "state.safetensors"
        self.log_file = path / "log.jsonl"
        self.checkpoints = path / "checkpoints"
        self.frozen_head_file = self.checkpoints / "frozen.safetensors"
        self.method_files = path / "files"
        self.tracking_files = path / "tracking"

    def checkpoint_file(self, index: int, task: str) -> Path:
        """Path of the checkpoint after task `index` (from 0)."""
        return self.checkpoints / f"{index + 1:02d}-{task}.safetensors"

    # -- opening ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def opened(self, config: RunConfig) -> Iterator[None]:
        """Lock the folder, after creating it for this config or checking it against this config."""
        self.check_usable(config)
        if not self.writes:
            yield
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"out: cannot make the run folder {self.path}: {error.strerror}") from None
        with locked(self.path, self._raise_busy):
            self.check_usable(config)  # again: another process may have used it in between
            for file in (*self.path.glob(".*.tmp"), *self.checkpoints.glob(".*.tmp")):  # of a killed process
                file.unlink(missing_ok=True)
            if config.overwrite:
                self._clear()
            if not self.config_file.exists():
                # Without `overwrite`: using this file as --config must resume the run.
                self._write_config({**config.to_dict(), "overwrite": False, "versions": versions()})
            elif not same_paths(self.read_config(), config):  # own images or weights have moved
                moved = {key: getattr(config, key) for key in MAY_MOVE}
                self._write_config({**read_yaml(self.config_file), **moved})
            self.checkpoints.mkdir(exist_ok=True)
            yield

    def check_usable(self, config: RunConfig) -> None:
        """Raise a RunError if a run of this configuration cannot use this folder. Nothing is changed."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise RunError(f"out: {self.path} is a file, not a folder")
        if self.config_file.exists():
            if not config.overwrite:
                self.check_same(config)
        elif foreign := sorted(p.name for p in self.path.iterdir() if not self._is_own(p)):
            advice = "so --overwrite does not touch it" if config.overwrite else "choose another --out"
            raise RunError(f"{self.path}: not a run folder, but not empty ({foreign[0]}), {advice}")

    @staticmethod
    def _is_own(path: Path) -> bool:
        """True for what a run leaves that was killed while it created its folder."""
        return path.name in (".lock", "checkpoints") or is_temporary(path)

    def _raise_busy(self) -> None:
        raise BusyError(f"{self.path}: another process is working in this run folder")

    def _clear(self) -> None:
        for file in (self.results_file, self.state_file, self.log_file, self.config_file):
            file.unlink(missing_ok=True)
        for folder in (self.checkpoints, self.method_files, self.tracking_files):
            shutil.rmtree(folder, ignore_errors=True)

    def check_same(self, config: RunConfig) -> None:
        """Raise a RunError if this folder holds a run of another configuration."""
        before, now = (_comparable(c) for c in (self.read_config(), config))
        for key in (*before, *now):
            if before.get(key) != now.get(key):
                raise RunError(
                    f"{self.path}: this run was started with {key} = {before.get(key)!r}, not {now.get(key)!r}. "
                    "Choose another --out, or --overwrite to start afresh"
                )

    # -- reading and writing ---------------------------------------------------------------------------------

    def _write_config(self, document: Mapping[str, Any]) -> None:
        with saving(self.config_file):
            write_text(self.config_file, yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True))

    def read_config(self) -> RunConfig:
        """The resolved configuration that the run was started with."""
        values = read_yaml(self.config_file)
        values.pop("versions", None)
        values.setdefault("head", TEXTS)  # of versions without heads
        config = from_dict(values, str(self.config_file))
        try:
            build_method(config.method, config.protocol)
        except ConfigError as error:
            raise ConfigError(f"{self.config_file}: {error}") from None
        return config

    def read_results(self) -> dict[str, Any] | None:
        """What has been measured so far, or None."""
        try:
            document = parse_json(read_text(self.results_file))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise RunError(f"{self.results_file}: not valid JSON ({error}); {AFRESH}") from None
        return check_results(document, self.results_file)

    def write_results(self, results: Mapping[str, Any]) -> None:
        """Replace results.json."""
        if self.writes:
            with saving(self.results_file):
                write_text(self.results_file, to_json(results) + "\n")

    def write_checkpoint(self, index: int, task: str, state: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        """Write the trained tensors after a task."""
        if self.writes:
            with saving(self.checkpoint_file(index, task)):
                write_tensors(self.checkpoint_file(index, task), state, metadata)

    def keep_checkpoints(self, which: Literal["last", "all", "none"]) -> None:
        """Remove checkpoints of a finished run: all but the last, none, or all."""
        results = self.read_results()
        if which == "all" or not results or not results["finished"]:
            return
        last = self.checkpoint_file(len(results["tasks"]) - 1, results["tasks"][-1])
        for file in self.checkpoints.glob("*.safetensors"):
            if which == "none" or file not in (last, self.frozen_head_file):
                file.unlink(missing_ok=True)

    def take_checkpoint(self, index: int, task: str, other: RunFolder) -> None:
        """Hard-link or copy another run's checkpoint, if it exists. Checkpoints are never changed in place."""
        source, target = other.checkpoint_file(index, task), self.checkpoint_file(index, task)
        if source.exists() and not target.exists():
            try:
                target.hardlink_to(source.resolve())
            except OSError:  # another disk, or a system without links
                write_atomically(target, lambda temporary: shutil.copyfile(source, temporary))

    def has_checkpoint(self, index: int, task: str) -> bool:
        """True if there is a checkpoint after this task."""
        return self.checkpoint_file(index, task).exists()

    def read_checkpoint(self, index: int, task: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and metadata of a checkpoint, or None if it does not exist."""
        return read_tensors(self.checkpoint_file(index, task))

    def write_frozen_head(self, state: Mapping[str, Tensor]) -> None:
        """Write the head of the model before the first task, which has seen all tasks."""
        if self.writes:
            with saving(self.frozen_head_file):
                write_tensors(self.frozen_head_file, state, {})

    def read_frozen_head(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """That head, or None if there is none."""
        return read_tensors(self.frozen_head_file)

    def write_state(self, state: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        """Write the resume state; there is one at a time."""
        if self.writes:
            with saving(self.state_file):
                write_tensors(self.state_file, state, {**metadata, "version": STATE_VERSION})

    def read_state(self, expected: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and metadata of the resume state, or None if there is none, or only that of an earlier task.

        Args:
            expected: metadata that must be equal: `index` and `task` of the task, `method`, and `data` (a hash).
        """
        saved = read_tensors(self.state_file, REDO_TASK)
        if saved is None:
            return None
        metadata = saved[1]
        if metadata.get("version") != STATE_VERSION:
            found = metadata.get("version", "none")
            raise RunError(
                f"{self.state_file}: not a resume state of version {STATE_VERSION} (found: {found}); {REDO_TASK}"
            )
        if metadata.get("index") != expected["index"]:
            return None
        for key in ("task", "method"):
            if metadata.get(key) != expected[key]:
                raise RunError(
                    f"{self.state_file}: a state of {key} {metadata.get(key)!r}, not {expected[key]!r}; {REDO_TASK}"
                )
        if metadata.get("data") != expected["data"]:
            raise RunError(f"{self.state_file}: the state of a run on other data; {REDO_TASK}")
        if not isinstance(metadata.get("seconds"), int | float):
            raise RunError(
                f"{self.state_file}: seconds: expected a number, not {metadata.get('seconds')!r}; {REDO_TASK}"
            )
        return saved

    def drop_state(self) -> None:
        """Remove the resume state of a finished task."""
        if self.writes:
            self.state_file.unlink(missing_ok=True)

    def log(self, event: str, **values: Any) -> None:
        """Append one line to log.jsonl."""
        if not self.writes:
            return
        line = json.dumps({"time": round(time.time(), 3), "event": event, **values}) + "\n"
        with saving(self.log_file), open_to_append(self.log_file) as file:
            end = file.tell()
            remaining = line.encode()
            try:
                while remaining:  # on a nearly full disk a write is partial, and only the next one fails
                    remaining = remaining[file.write(remaining) :]
            except OSError:
                file.truncate(end)  # a partial line would corrupt the next one, too
                raise


@contextlib.contextmanager
def saving(file: Path) -> Iterator[None]:
    """Turn a failed write (full disk, no permission) into a RunError that names the file."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        # safetensors: "Error while serializing: I/O error: No space left on device (os error 28)"
        reason = error.strerror if isinstance(error, OSError) else re.sub(r"^.*I/O error: | \(os.*$", "", str(error))
        if not file.parent.is_dir():
            raise RunError(f"{file}: its folder was removed while the run was working in it") from None
        raise RunError(
            f"{file}: cannot be written: {reason or error}. What was saved before is still there; when the cause is "
            "removed, the same command goes on from it"
        ) from None


def same_paths(one: RunConfig, other: RunConfig) -> bool:
    """Are own tasks, reference images and pretrained weights read from the same places?"""
    return all(getattr(one, key) == getattr(other, key) for key in MAY_MOVE)


def _comparable(config: RunConfig) -> dict[str, Any]:
    """What must not change when a run is resumed.

    Own images and weights may have moved: `check_data` and `check_weights` compare what they are.
    """
    names = [place["name"] for place in config.tasks] if config.tasks else None
    weights = portable({"model": config.model, "pretrained": config.pretrained})
    reference = TASK_IMAGES if config.reference == TASK_IMAGES else None
    return {**identity(config), **weights, "tasks": names, "reference": reference}


def versions() -> dict[str, str]:
    """Versions of the packages that determine a run's results."""
    found = {"tasso": __version__, "python": platform.python_version()}
    for package in ("torch", "torchvision", "open_clip_torch"):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
