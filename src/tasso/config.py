"""What a run is made of: one flat dataclass, checked when made, the same from YAML, command line and Python."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from tasso.errors import ConfigError
from tasso.files import read_yaml as read_yaml
from tasso.task_specs import parse_tasks

Protocol = Literal["code", "paper"]
Tracker = Literal["tensorboard", "wandb", "mlflow"]
OptimizerName = Literal["adamw", "sgd", "muon"]
T = TypeVar("T")
MOST = {
    "steps": 2**31 - 1, "warmup": 2**31 - 1, "batch_size": 2**20, "reference_batch_size": 2**20,
    "eval_batch_size": 2**20, "workers": 1024,
}  # fmt: skip
WITHOUT_END = ("save_minutes", "cache_gib")  # may be infinite: never, and no limit
OWN = "own"  # benchmark of runs on a user's own tasks, unless they call it otherwise

# Where the paper's text and its authors' code differ, each side has its name. These are the differences that
# belong to the run; those inside the loss are in methods/tasso.py.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "code": {"template": "a photo of a {}.", "step_rule": "code"},
    "paper": {"template": "The photo of {}", "step_rule": "paper"},
}


def option(help: str, default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """A dataclass field with the help text that the command line shows."""
    return field(default=default, metadata={"help": help}, **kwargs)


@dataclass(kw_only=True)
class RunConfig:
    """One method on one sequence with one seed. `None` means: as the protocol, the method or the data say."""

    benchmark: str = option(
        "benchmark from the catalogue: mtil, mtil-mini or atlas; with tasks: what to call them [own]", "atlas"
    )
    tasks: list[Any] | None = option(
        "tasks of your own: NAME=PLACE …, where a place is a folder, a table, shards or hf:DATASET; or .yaml files",
        None,
    )
    data_root: Path | None = option("folder that holds the benchmark's data sets, unpacked or as zips", None)
    sequence: str = option("S1 … S8, or task names in order, separated by commas", "S1")
    limit_tasks: int | None = option("learn only the first N tasks of the sequence", None)
    test_per_class: int | None = option("evaluate on the first N test images of each class only", None)
    check_counts: bool = option("refuse data sets whose sizes differ from the benchmark's", True)
    shots: int | None = option("learn from N images of each class only, drawn by seed", None)
    test_share: float = option("own tasks without test images: share of each class held back for testing", 0.2)
    split_seed: int = option("seed of that choice, the same for all runs", 1102)
    reference: str | None = option(
        "reference images: a folder of any images, or those of a benchmark (default: the benchmark's own)", None
    )
    reference_images: int = option("how many reference images to use at most", 100_000)
    reference_seed: int = option("seed of the reference subset (the same for all tasks)", 1102)
    reference_texts: Path | None = option("file with one text a line, for methods that compare with texts", None)

    model: str = option("'nano', an open_clip model name, or local-dir:FOLDER", "nano")
    pretrained: str | None = option("open_clip tag, or a .pt or .safetensors state dict", None)
    template: str | None = option("prompt with {} for the class name, or a text file with one prompt a line", None)

    method: dict[str, Any] = field(
        default_factory=lambda: {"name": "tasso"}, metadata={"help": "method and its hyper-parameters"}
    )
    protocol: Protocol = option("follow the authors' code or the paper's text where they differ", "code")
    label: str | None = option("name of this run in tables", None)

    steps: int | None = option("optimiser steps a task (default: the step rule)", None)
    step_rule: Protocol | None = option("code: min(10E, max(1000, 2E)); paper: min(1000, 10E); E = epoch", None)
    batch_size: int = option("task images a step", 32)
    reference_batch_size: int = option("reference images a step", 64)
    accumulate: int = option("split every batch into N passes to save memory", 1)
    lr: float | None = option("peak learning rate", None)
    weight_decay: float | None = option("weight decay", None)
    optimizer: OptimizerName = option("adamw, sgd, or muon (for matrices, with adamw for the rest)", "adamw")
    betas: tuple[float, float] = option("AdamW betas; the first is also the momentum of sgd", (0.9, 0.999))
    warmup: int = option("warm-up steps", 0)
    seed: int = option("seed of everything random in the run", 1102)

    device: str = option("auto, cpu, cuda or cuda:N", "auto")
    precision: Literal["auto", "float32", "bfloat16"] = option("auto: bfloat16 on CUDA, float32 on CPU", "auto")
    compile: Literal["auto", "on", "off"] = option(
        "let the towers be compiled; auto: on CUDA where a large model trains long enough to make up for it", "auto"
    )
    cuda_graphs: bool = option("capture the training step once per task as a CUDA graph, if the method allows it", True)
    eval_batch_size: int = option("images a forward pass in evaluation", 256)
    workers: int = option("threads that decode images (0: as many as cores)", 0)
    cache_gib: float = option("keep decoded images of one size in memory up to this many GiB a set", 8.0)
    pack_dir: Path | None = option("folder in which images are packed once, so that no run decodes them again", None)
    pack_size: int = option("short side of packed images; smaller ones are kept as they are", 256)
    corrupt: Literal["error", "skip"] = option(
        "error, or skip: leave out training and reference images that cannot be decoded (needs pack_dir)", "error"
    )

    out: Path = option("run folder", Path("runs/tasso"))
    save_minutes: float = option("save a resume state this often", 5.0)
    save_every: int | None = option("save a resume state every N steps instead", None)
    overwrite: bool = option("throw away what is in the run folder and start afresh", False)
    track: Tracker | None = option("tell a tracker, too: tensorboard, wandb or mlflow", None)

    def __post_init__(self) -> None:
        check_types(self)
        if not isinstance(self.method.get("name"), str):
            raise ConfigError("method: needs a name, as in method: {name: tasso, rank: 144}")
        for key in (
            "batch_size",
            "reference_batch_size",
            "accumulate",
            "eval_batch_size",
            "reference_images",
            "pack_size",
        ):
            require(self, key, getattr(self, key) >= 1, "must be at least 1")
        for key in ("steps", "limit_tasks", "test_per_class", "save_every", "shots"):
            require(self, key, getattr(self, key) is None or getattr(self, key) >= 1, "must be at least 1")
        for key in ("warmup", "workers", "seed", "reference_seed", "split_seed", "save_minutes", "cache_gib"):
            require(self, key, getattr(self, key) >= 0, "must not be negative")
        # Beyond these nothing would ever come to an end, or to a beginning.
        for key, most in MOST.items():
            require(self, key, (getattr(self, key) or 0) <= most, f"must be at most {most}")
        # Seeds are multiplied and handed to torch, which takes 64 bits.
        for key in ("seed", "reference_seed", "split_seed"):
            require(self, key, getattr(self, key) < 2**48, "must be below 2^48")
        require(self, "test_share", 0 < self.test_share < 1, "must lie between 0 and 1")
        require(self, "lr", self.lr is None or self.lr > 0, "must be positive")
        require(self, "weight_decay", self.weight_decay is None or self.weight_decay >= 0, "must not be negative")
        packed = self.corrupt == "error" or self.pack_dir is not None
        require(self, "corrupt", packed, "needs --pack-dir, since images are looked through when they are packed")
        require(self, "betas", all(0 <= beta < 1 for beta in self.betas), "must lie in [0, 1)")
        for key in ("batch_size", "reference_batch_size"):
            require(
                self,
                key,
                getattr(self, key) % self.accumulate == 0,
                f"must be a multiple of accumulate ({self.accumulate})",
            )

    def resolved(self, method_defaults: Mapping[str, Any]) -> RunConfig:
        """The same run with nothing left open: protocol first, then the method's own defaults."""
        filled = {**method_defaults, **PROTOCOLS[self.protocol]}
        open_keys = {key: value for key, value in filled.items() if getattr(self, key) is None}
        return dataclasses.replace(self, **open_keys)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that YAML and JSON can hold."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}


def from_dict(values: Mapping[str, Any], where: str = "configuration") -> RunConfig:
    """A RunConfig from plain values; errors name the place and the key."""
    known = {f.name: f for f in dataclasses.fields(RunConfig)}
    unknown = sorted(set(values) - set(known), key=str)
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}. Known keys: {', '.join(known)}")
    hints = typing.get_type_hints(RunConfig)
    if isinstance(values.get("method"), str):  # `method: tasso` reads better than `method: {name: tasso}`
        values = {**values, "method": {"name": values["method"]}}
    try:
        if values.get("tasks") is not None:
            # The catalogue's default is not meant then; a name that was given is the name of these tasks.
            values = {"benchmark": OWN, **values, "tasks": parse_tasks(values["tasks"])}
        return RunConfig(**{key: coerce(value, hints[key]) for key, value in values.items()})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def read_templates(template: str) -> tuple[str, ...]:
    """Prompt templates from an option: one prompt with {}, or a file with one prompt a line."""
    if "{}" in template:
        return (template,)
    path = Path(template)
    if not path.is_file():
        raise ConfigError(f"template: {template!r} has no {{}} for the class name and is not a file of prompts")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"template: {path}: not a readable text file: {error}") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        if "{}" not in line:
            raise ConfigError(f"template: {path}, prompt {number} has no {{}} for the class name: {line!r}")
    if not lines:
        raise ConfigError(f"template: {path} is empty")
    return tuple(lines)


def unwrap(value: T | None) -> T:
    """A value that `RunConfig.resolved` has filled in."""
    assert value is not None, "the configuration has not been resolved"
    return value


def require(owner: Any, key: str, holds: bool, rule: str) -> None:
    """Raise an error that names the key and its value unless the rule holds."""
    if not holds:
        raise ConfigError(f"{key}: {rule}, not {_shown(getattr(owner, key))}")


def check_types(owner: Any) -> None:
    """Every field of a dataclass holds what its annotation says; the error names the key."""
    hints = typing.get_type_hints(type(owner))
    for f in dataclasses.fields(owner):
        value = getattr(owner, f.name)
        if not _fits(value, hints[f.name]):
            raise ConfigError(f"{f.name}: expected {_describe(hints[f.name])}, not {_shown(value)}")
        for item in value if isinstance(value, tuple) else (value,):
            # A whole number may be larger than any fraction, and then cannot be computed with.
            if item == math.inf and f.name in WITHOUT_END:
                continue
            if (isinstance(item, float) and not math.isfinite(item)) or (isinstance(item, int) and abs(item) > 1e300):
                raise ConfigError(f"{f.name}: must be a finite number, not {_shown(item)}")
            if isinstance(item, str | Path) and "\0" in str(item):
                raise ConfigError(f"{f.name}: {str(item)!r} has a null character in it")


def _shown(value: Any) -> str:
    """A value in a message; who gave a long one knows it by its beginning."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if origin is Literal:
        return value in arguments and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(arguments) and all(map(_fits, value, arguments))
    if origin in (dict, list):
        return isinstance(value, origin)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(argument) for argument in arguments)
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is tuple:
        return f"{len(arguments)} values"
    if origin in (dict, list):
        return "a mapping" if origin is dict else "a list"
    return (
        "nothing"
        if hint is type(None)
        else {
            "str": "text",
            "int": "a whole number",
            "float": "a number",
            "bool": "true or false",
            "Path": "a path",
        }.get(getattr(hint, "__name__", ""), str(hint))
    )


def coerce(value: Any, hint: Any) -> Any:
    """YAML has no paths, no tuples, and reads 1e-4 as text."""
    choices = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
    if isinstance(value, str) and Path in choices:
        return Path(value)
    for choice in choices:
        if isinstance(value, list) and typing.get_origin(choice) is tuple:
            kinds = [*typing.get_args(choice), *[Any] * len(value)]
            return tuple(coerce(item, kind) for item, kind in zip(value, kinds, strict=False))
    if isinstance(value, str) and float in choices:
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
