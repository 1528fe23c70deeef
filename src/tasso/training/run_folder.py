"""The run folder. The only module that knows its layout; every file is written under another name, then renamed."""

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
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tasso.config import RunConfig, from_dict
from tasso.errors import BusyError, ConfigError, RunError
from tasso.files import is_temporary, locked, parse_json, read_yaml, write_atomically, write_text
from tasso.methods import build_method
from tasso.training.identity import identity
from tasso.version import __version__

RESULTS_VERSION = 1  # of results.json
STATE_VERSION = 1  # of the resume state
AFRESH = "Use --overwrite to start afresh"
ONCE_MORE = "Remove this file to begin the task once more, or use --overwrite to start afresh"


class RunFolder:
    """config.yaml, results.json, checkpoints/, state.safetensors, log.jsonl."""

    def __init__(self, path: Path, writes: bool = True) -> None:
        """Of several processes that learn one run, only one writes; for the others writing does nothing."""
        self.path, self.writes = path, writes
        self.config_file = path / "config.yaml"
        self.results_file = path / "results.json"
        self.state_file = path / "state.safetensors"
        self.log_file = path / "log.jsonl"
        self.checkpoints = path / "checkpoints"
        self.method_files = path / "files"
        self.tracking_files = path / "tracking"

    def checkpoint_file(self, index: int, task: str) -> Path:
        """Where the model after task `index` (counted from 0) lies."""
        return self.checkpoints / f"{index + 1:02d}-{task}.safetensors"

    # -- opening ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def opened(self, config: RunConfig) -> Iterator[None]:
        """The folder, ours alone for the time being, made for this config or checked against it."""
        self.check_usable(config)
        if not self.writes:
            yield
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"out: cannot make the run folder {self.path}: {error.strerror}") from None
        with locked(self.path, self._refuse):
            self.check_usable(config)  # once more: another process may have been faster
            for left in (*self.path.glob(".*.tmp"), *self.checkpoints.glob(".*.tmp")):  # by a killed process
                left.unlink(missing_ok=True)
            if config.overwrite:
                self._clear()
            if not self.config_file.exists():
                # Overwriting was done now; whoever uses this file again must not do it once more.
                self._write_config({**config.to_dict(), "overwrite": False, "versions": versions()})
            elif not same_places(self.read_config(), config):  # own images have moved
                places = {"tasks": config.tasks, "reference": config.reference}
                self._write_config({**read_yaml(self.config_file), **places})
            self.checkpoints.mkdir(exist_ok=True)
            yield

    def check_usable(self, config: RunConfig) -> None:
        """Raise a RunError if a run of this configuration cannot live here; nothing is made or changed."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise RunError(f"out: {self.path} is a file, not a folder")
        if self.config_file.exists():
            if not config.overwrite:
                self.check_same(config)
        elif strangers := sorted(p.name for p in self.path.iterdir() if not self._is_ours(p)):
            advice = "so --overwrite does not touch it" if config.overwrite else "choose another --out"
            raise RunError(f"{self.path}: not a run folder, but not empty ({strangers[0]}), {advice}")

    @staticmethod
    def _is_ours(path: Path) -> bool:
        """Is this what a run leaves behind that was killed while it made its folder?"""
        return path.name in (".lock", "checkpoints") or is_temporary(path)

    def _refuse(self) -> None:
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
        """The resolved configuration the run was started with."""
        values = read_yaml(self.config_file)
        values.pop("versions", None)
        config = from_dict(values, str(self.config_file))
        try:
            build_method(config.method, config.protocol)
        except ConfigError as error:
            raise ConfigError(f"{self.config_file}: {error}") from None
        return config

    def read_results(self) -> dict[str, Any] | None:
        """What has been measured so far, or None."""
        try:
            document = parse_json(self.results_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise RunError(f"{self.results_file}: not valid JSON ({error}); use --overwrite to start afresh") from None
        check_results(document, self.results_file)
        results: dict[str, Any] = document
        return results

    def write_results(self, results: Mapping[str, Any]) -> None:
        """Replace results.json."""
        if self.writes:
            with saving(self.results_file):
                write_text(self.results_file, to_json(results) + "\n")

    def write_checkpoint(self, index: int, task: str, state: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """The trained tensors after a task, with what was measured while training."""
        if self.writes:
            with saving(self.checkpoint_file(index, task)):
                write_tensors(self.checkpoint_file(index, task), state, about)

    def keep_checkpoints(self, which: Literal["last", "all", "none"]) -> None:
        """Remove the checkpoints of a finished run, but for the last one or all of them."""
        results = self.read_results()
        if which == "all" or not results or not results["finished"]:
            return
        files = sorted(self.checkpoints.glob("*.safetensors"))
        for file in files[:-1] if which == "last" else files:
            file.unlink(missing_ok=True)

    def take_checkpoint(self, index: int, task: str, other: RunFolder) -> None:
        """Make another run's checkpoint ours too. Checkpoints are replaced and never changed, so a link will do."""
        theirs, ours = other.checkpoint_file(index, task), self.checkpoint_file(index, task)
        if theirs.exists() and not ours.exists():
            write_atomically(ours, lambda temporary: _link_or_copy(theirs, temporary))

    def has_checkpoint(self, index: int, task: str) -> bool:
        """Is there a model after this task?"""
        return self.checkpoint_file(index, task).exists()

    def read_checkpoint(self, index: int, task: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What `write_checkpoint` wrote, or None."""
        return read_tensors(self.checkpoint_file(index, task))

    def write_state(self, state: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """The resume state; there is one at a time."""
        if self.writes:
            with saving(self.state_file):
                write_tensors(self.state_file, state, {**about, "version": STATE_VERSION})

    def read_state(self, belongs: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The resume state of a task, or None; one that was left by an earlier task does not count.

        Args:
            belongs: what it must say about itself: the task's `index` and `task`, the `method` and the `data`.
        """
        saved = read_tensors(self.state_file, ONCE_MORE)
        if saved is None:
            return None
        about = saved[1]
        if about.get("version") != STATE_VERSION:
            told = f"version {about['version']}" if "version" in about else "an earlier version, or not a state at all"
            raise RunError(f"{self.state_file}: this is {told}; this tasso reads version {STATE_VERSION}. {ONCE_MORE}")
        if about.get("index") != belongs["index"]:
            return None
        for key in ("task", "method"):
            if about.get(key) != belongs[key]:
                raise RunError(
                    f"{self.state_file}: a state of {key} {about.get(key)!r}, not {belongs[key]!r}. {ONCE_MORE}"
                )
        if about.get("data") != belongs["data"]:
            raise RunError(f"{self.state_file}: the state of a run on other data. {ONCE_MORE}")
        if not isinstance(about.get("seconds"), int | float):
            raise RunError(f"{self.state_file}: seconds: expected a number, not {about.get('seconds')!r}. {ONCE_MORE}")
        return saved

    def drop_state(self) -> None:
        """The task is done: nothing to resume."""
        if self.writes:
            self.state_file.unlink(missing_ok=True)

    def log(self, event: str, **values: Any) -> None:
        """Append one line to log.jsonl."""
        if not self.writes:
            return
        line = json.dumps({"time": round(time.time(), 3), "event": event, **values}) + "\n"
        with saving(self.log_file), self.log_file.open("ab", buffering=0) as file:
            before = file.tell()
            left = line.encode()
            try:
                while left:  # a disk that is nearly full takes a part, and says why only when asked again
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(before)  # half a line would spoil the next one, too
                raise


@contextlib.contextmanager
def saving(file: Path) -> Iterator[None]:
    """A disk that is full, or gone, is told with the file; what was saved before is still there."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        # safetensors: "Error while serializing: I/O error: No space left on device (os error 28)"
        reason = error.strerror if isinstance(error, OSError) else re.sub(r"^.*I/O error: | \(os.*$", "", str(error))
        raise RunError(
            f"{file}: cannot be written: {reason or error}. What was saved before is still there: when there is room, "
            "or whatever was missing, the same command goes on from it"
        ) from None


def check_results(document: Any, file: Path) -> None:
    """Raise a RunError that names the key, unless this has the shape of a run's results."""
    advice = "use --overwrite to start afresh"
    if not isinstance(document, dict) or not {"finished", "tasks", "mtil", "mcil", "per_task"} <= set(document):
        raise RunError(f"{file}: not the results of a run; {advice}")
    if document.get("version", RESULTS_VERSION) != RESULTS_VERSION:
        raise RunError(f"{file}: version {document['version']}; this tasso reads version {RESULTS_VERSION}")
    rows = document["per_task"]
    names = document.get("class_names", {})
    shapes = {
        "finished": isinstance(document["finished"], bool),
        "tasks": isinstance(document["tasks"], list) and all(isinstance(name, str) for name in document["tasks"]),
        "per_task": isinstance(rows, list) and all(isinstance(row, dict) for row in rows),
        "class_names": isinstance(names, dict) and all(isinstance(some, list) for some in names.values()),
    }
    for setting in ("mtil", "mcil"):
        part = document[setting]
        lists = isinstance(part, dict) and all(isinstance(part.get(key), list) for key in ("zero_shot", "matrix"))
        shapes[setting] = lists and all(isinstance(row, list) for row in part["matrix"])
    for key, fits in shapes.items():
        if not fits:
            raise RunError(f"{file}: {key} is not as a run writes it; {advice}")


def same_places(one: RunConfig, other: RunConfig) -> bool:
    """Are own tasks and reference images read from the same places?"""
    return (one.tasks, one.reference) == (other.tasks, other.reference)


def _comparable(config: RunConfig) -> dict[str, Any]:
    """What must not change when a run is resumed. Own images may have moved: `check_data` compares what they are."""
    names = [place["name"] for place in config.tasks] if config.tasks else None
    return {**identity(config), "tasks": names, "reference": None}


def check_data(results: Mapping[str, Any], now: Mapping[str, Any], where: Path) -> None:
    """Raise a RunError if the data of a run are not those it was started with.

    Args:
        results: of the run; those of earlier versions do not tell.
        now: what `TaskSequence.contents` says of the data as they are.
    """
    advice = "Put back what it was started with, or choose another --out"
    before = results.get("data", {})
    for name, then in before.get("tasks", {}).items():
        found = now["tasks"].get(name, then)
        counts = [f"{d['classes']} classes, {d['train']} training and {d['test']} test images" for d in (then, found)]
        if counts[0] != counts[1]:
            raise RunError(
                f"{where}: the data of task {name!r} have changed: {counts[0]} when this run was started, now "
                f"{counts[1]}. {advice}"
            )
        if then != found:
            raise RunError(
                f"{where}: the data of task {name!r} have changed: as many images as when this run was started, but "
                f"other files, labels or class names. {advice}"
            )
    then, found = (d.get("reference") for d in (before, now))
    if then and found and then != found:
        raise RunError(
            f"{where}: the reference images are not those this run was started with ({then['images']} then, "
            f"{found['images']} now). {advice}"
        )


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # another disk, or a system without links
        shutil.copyfile(source, target)


def to_json(document: Mapping[str, Any]) -> str:
    """Indented, but a list of numbers on one line: a histogram would be hundreds of lines."""
    # No string is ever taken for a list: in JSON none has a line break.
    number = r"(?:null|[-+.\deE]+)"
    lists = re.compile(rf"\[\n\s+{number}(?:,\n\s+{number})*\n\s*\]")
    text = json.dumps(document, indent=1)
    return lists.sub(lambda found: "[" + ", ".join(found[0][1:-1].replace(",", " ").split()) + "]", text)


def versions() -> dict[str, str]:
    """What the run was made with."""
    found = {"tasso": __version__, "python": platform.python_version()}
    for package in ("torch", "torchvision", "open_clip_torch"):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Replace a safetensors file; `about` travels as JSON in its header."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(plain, temporary, {"about": json.dumps(about)}))


def read_tensors(path: Path, advice: str = AFRESH) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Tensors and `about`, or None if there is no such file. `advice`: what to do about a damaged one."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = parse_json((file.metadata() or {}).get("about", "{}"))
            if not isinstance(about, dict):
                raise ValueError("it says nothing about itself")
            return tensors, about
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(f"{path}: damaged ({error}). {advice}") from None
