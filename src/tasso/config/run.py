"""What a run is made of: one flat dataclass, checked when made, the same from YAML, command line and Python.

To add an option, add a field. Nothing else has a list of them.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from tasso.config.fields import AUTO, check_options, coerce, option, require
from tasso.config.task_specs import parse_tasks
from tasso.errors import ConfigError, unknown_key
from tasso.files import read_text

Protocol = Literal["code", "paper"]
StepRule = Literal["code", "paper", "quick"]
EvaluatedSplit = Literal["val", "test"]  # images that accuracies are measured on
Tracker = Literal["tensorboard", "wandb", "mlflow"]
HeadName = Literal["texts", "lda", "nearest-mean", "ranpac", "rail", "slda", "fecam", "fecam-10"]
OptimizerName = Literal["adamw", "sgd", "muon"]
T = TypeVar("T")
METHOD = "method."  # before the name of a hyper-parameter, where options of the run stand beside it
METHOD_GROUP = "tasso.methods"  # entry points of methods in other packages
DEFAULT_METHOD = "tasso"  # the paper's
OWN_TASKS_METHOD = "tasso-both"  # more accurate on every sequence that was measured: results/README.md
TASK_TEMPLATES = "task"  # as `--template`: those that the tasks bring
TEXTS: HeadName = "texts"  # no head: class texts alone
OWN_TASKS_HEAD: HeadName = "lda"  # more accurate wherever it was measured: results/README.md
OWN = "own"  # benchmark of runs on a user's own tasks, unless they call it otherwise

# Where the paper's text and its authors' code differ, each side has its name. These are the differences that
# belong to the run; those inside the loss are in methods/tasso.py.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "code": {"template": "a photo of a {}.", "step_rule": "code"},
    "paper": {"template": "The photo of {}", "step_rule": "paper"},
}

# Commands that take an option. A sweep and the paper's plans give each run its own method, sequence and seed.
RUNS = "run sweep paper"
EVAL = "eval merge check"
SEED = 2**48  # seeds are multiplied and handed to torch, which takes 64 bits


@dataclass(kw_only=True)
class RunConfig:
    """One method on one sequence with one seed. `None` and `auto` mean: as protocol, method, data or machine say."""

    # fmt: off
    benchmark: str = option(
        "benchmark from the catalogue, such as atlas, mtil or mtil-11; with tasks: their name in tables",
        "atlas", metavar="NAME", scope="data", commands=f"{RUNS} {EVAL} pack",
    )
    tasks: list[Any] | None = option(
        "your own tasks: NAME=PLACE …, where a place is a folder, a table, shards or hf:DATASET; or YAML files; "
        "repeatable",
        None, unset="the benchmark's", metavar="NAME=PLACE", scope="data", content=True,
        commands="run sweep eval merge check pack extend",
    )
    data_root: Path | None = option(
        "folder with the benchmark's data sets, unpacked or as zips",
        None, scope="data", identity=False, content=True, commands=f"{RUNS} {EVAL} pack extend",
    )
    sequence: str = option(
        "S1 … S8, another order that the benchmark names, or task names in order, separated by commas",
        "S1", metavar="TASK,TASK", scope="data", commands=f"run {EVAL} pack",
    )
    limit_tasks: int | None = option(
        "learn only the first N tasks of the sequence",
        None, unset="all", scope="data", ge=1, commands=f"{RUNS} {EVAL} pack",
    )
    split_classes: str | None = option(
        "learn each task in steps of N classes, or of FIRST+N: 10, or 50+10 (class-incremental); all: in one step",
        None, unset="each task is one step", metavar="N", scope="data", commands="run sweep eval merge pack",
    )
    class_order: str | None = option(
        "order of the classes in these steps: a seed, a file with one class per line, classes separated by commas, or "
        "natural",
        None, unset="natural, that of the data", metavar="ORDER", scope="data",
        commands="run sweep eval merge pack",
    )
    score_seen: bool = option(
        "score images against the classes learned so far, too, and those of tasks not yet learned against their own "
        "(setting seen, or ODCL); always with --split-classes",
        False, scope="data", commands="run sweep eval",
    )
    same_names: Literal["one", "apart"] | None = option(
        "classes of the same name in several tasks: one class, or one per task",
        None, unset="one in own tasks, apart in benchmarks unless theirs say so", scope="data",
        commands="run sweep eval merge",
    )
    evaluate_on: EvaluatedSplit = option(
        "images that accuracies are measured on; val: to choose options without the test images, which are not read",
        "test", scope="data", commands=f"{RUNS} eval merge pack",
    )
    evaluate_every: int = option(
        "evaluate after every N-th task, and always after the last; metrics that need the rows between are unknown",
        1, scope="data", ge=1, commands="run sweep",
    )
    test_per_class: int | None = option(
        "evaluate on the first N of these images of each class only",
        None, unset="all", scope="data", ge=1, commands=f"{RUNS} {EVAL} pack",
    )
    check_counts: bool = option(
        "refuse data sets whose sizes differ from the benchmark's",
        True, scope="data", commands=f"{RUNS} eval merge pack",
    )
    shots: int | None = option(
        "learn from N images of each class only, drawn by seed",
        None, unset="all", scope="data", ge=1, commands=f"{RUNS} pack",
    )
    test_share: float = option(
        "own tasks without test images: share of each class that is held out for testing; 1: all, for tasso eval",
        0.2, scope="data", gt=0, le=1, commands=f"{RUNS} {EVAL} pack",
    )
    val_share: float = option(
        "--evaluate-on val, tasks without validation images: share of each class's training images that is held back",
        0.2, scope="data", gt=0, lt=1, commands=f"{RUNS} eval merge pack",
    )
    split_seed: int = option(
        "seed of both splits, the same for all runs",
        1102, scope="data", ge=0, lt=SEED, commands=f"{RUNS} {EVAL} pack",
    )
    reference: str | None = option(
        "reference images: a folder of any images, those of a benchmark, or task: the training images of each task",
        None, unset="the benchmark's own; with own tasks those of atlas", metavar="PLACE", scope="data", content=True,
        commands=f"{RUNS} check pack",
    )
    reference_images: int = option(
        "number of reference images, at most", 100_000, scope="data", ge=1, commands=f"{RUNS} check pack"
    )
    reference_seed: int = option(
        "seed of the reference subset, the same for all tasks",
        1102, scope="data", ge=0, lt=SEED, commands=f"{RUNS} check pack",
    )
    reference_texts: Path | None = option(
        "file with one text per line, for methods that use generic texts: zscl, and text anchors",
        None, scope="data", content=True, commands=RUNS,
    )
    pack_dir: Path | None = option(
        "folder in which images are packed once, so that no run decodes them again",
        None, unset="nothing is packed", scope="data", identity="given", commands=f"{RUNS} {EVAL} pack extend",
    )
    pack_size: int = option(
        "short side of packed images; smaller images stay as they are",
        256, scope="data", ge=1, commands=f"{RUNS} {EVAL} pack",
    )
    corrupt: Literal["error", "skip"] = option(
        "images that cannot be decoded: stop, or leave them out, of own tasks as if they were not there; a benchmark's "
        "images to evaluate on are never left out (and it needs --pack-dir)",
        "error", scope="data", commands=f"{RUNS} eval merge pack extend",
    )

    model: str = option(
        "nano, an open_clip model name, local-dir:FOLDER, hf:FOLDER or hf:OWNER/NAME (transformers' CLIP or SigLIP), "
        "or hf-hub:OWNER/NAME (open_clip's)",
        "nano", metavar="NAME", scope="model", content="model", commands=f"{RUNS} eval check bench export",
    )
    pretrained: str | None = option(
        "open_clip tag, or a .pt or .safetensors state dict",
        None, metavar="TAG", scope="model", content="file", commands=f"{RUNS} eval check export",
    )
    template: str | None = option(
        "prompt with {} for the class name, a text file with one prompt per line, or task: those of each task of the "
        "benchmark",
        None, unset="the benchmark's or the protocol's; SigLIP's own", metavar="PROMPT", scope="model", content="file",
        commands=f"{RUNS} {EVAL}",
    )

    head: HeadName | None = option(
        "what learned classes are told apart by: texts, their texts alone; lda, also the mean and covariance of their "
        "images' features; nearest-mean, the mean alone; ranpac, rail, slda, fecam and fecam-10, as in these papers",
        None, unset="the method's; lda for own tasks, texts for benchmarks", scope="model",
        commands="run sweep paper",
    )
    method: dict[str, Any] = option("method and its hyper-parameters", {"name": DEFAULT_METHOD}, commands="run")
    protocol: Protocol = option(
        "where the authors' code and the paper's text differ, follow this one", "code", commands=f"{RUNS} {EVAL} pack"
    )

    steps: int | None = option(
        "optimiser steps per task", None, unset="by the step rule", scope="optimisation", ge=1, commands=RUNS
    )
    step_rule: StepRule | None = option(
        "code: min(10E, max(1000, 2E)); paper: min(1000, 10E); quick: min(200, 10E); E = full batches in the training "
        "set",
        None, unset="the protocol's; quick for own tasks on a CPU", scope="optimisation", commands=RUNS,
    )
    batch_size: int = option("task images per step", 32, scope="optimisation", ge=1, commands=f"{RUNS} bench")
    reference_batch_size: int = option(
        "reference images per step", 64, scope="optimisation", ge=1, commands=f"{RUNS} bench"
    )
    accumulate: int = option(
        "split every batch into N passes to save memory; must divide both batch sizes; not for methods that compare "
        "the images of a batch with each other",
        1, scope="optimisation", ge=1, commands=RUNS,
    )
    lr: float | Literal["auto"] = option(
        "peak learning rate; falls to 0 along a cosine within each task; auto: the method's for models of this size",
        "auto", metavar="RATE", scope="optimisation", gt=0, commands=RUNS,
    )
    weight_decay: float | None = option(
        "weight decay, on every trained parameter",
        None, unset="the method's", scope="optimisation", ge=0, commands=RUNS,
    )
    optimizer: OptimizerName = option(
        "muon: for matrices, with adamw for all other parameters", "adamw", scope="optimisation", commands=RUNS
    )
    tune: str = option(
        "what is trained of a tower: full; lora: low-rank updates of attention and MLP, merged into them; last:N: the "
        "last N blocks and what follows them; norms: normalisation layers",
        "full", metavar="full|lora|last:N|norms", scope="optimisation", commands=f"{RUNS} bench",
    )
    lora_rank: int = option(
        "rank of a low-rank update", 16, scope="optimisation", ge=1, commands=f"{RUNS} bench"
    )
    lora_alpha: float = option(
        "low-rank updates count lora_alpha / lora_rank times",
        16.0, scope="optimisation", gt=0, commands=f"{RUNS} bench",
    )
    lora_lr_factor: float = option(
        "learning rate of low-rank updates, as a multiple of lr", 3.0, scope="optimisation", gt=0, commands=RUNS
    )
    betas: tuple[float, float] = option(
        "AdamW betas; the first is also the momentum of sgd",
        (0.9, 0.999), scope="optimisation", ge=0, lt=1, commands=RUNS,
    )
    warmup: int = option(
        "steps over which the learning rate rises linearly; the cosine runs over the other steps",
        0, scope="optimisation", ge=0, commands=RUNS,
    )
    seed: int = option(
        "seed of everything random in the run", 1102, scope="optimisation", ge=0, lt=SEED, commands="run pack"
    )

    device: str = option(
        "auto, cpu, cuda or cuda:N",
        "auto", metavar="DEVICE", scope="machine", identity=False,
        commands=f"{RUNS} {EVAL} bench extend classify serve",
    )
    precision: Literal["auto", "float32", "bfloat16", "fp8"] = option(
        "auto: bfloat16 on CUDA and on CPUs with AVX-512 BF16, else float32; fp8: bfloat16 with linear layers in 8 "
        "bits, on recent GPUs",
        "auto", scope="machine", commands=f"{RUNS} {EVAL} bench",
    )
    teacher_precision: Literal["auto", "bfloat16", "fp8"] = option(
        "precision of the models that teach; auto: that of the run, so that teacher and student agree at first",
        "auto", scope="machine", commands=f"{RUNS} bench",
    )
    optimizer_precision: Literal["float32", "bfloat16"] = option(
        "how the moments of adamw are kept; bfloat16: half the memory, rounded at random so that their means are right",
        "float32", scope="machine", commands=f"{RUNS} bench",
    )
    compile: Literal["auto", "on", "off"] = option(
        "compile the towers; auto: on CUDA, if a large image tower that tasso has no kernels for trains long enough "
        "to make up for the minute it takes",
        "auto", scope="machine", commands=f"{RUNS} bench",
    )
    cuda_graphs: bool = option(
        "capture the training step as a CUDA graph once per task, where the method allows it",
        True, scope="machine", identity=False, commands=f"{RUNS} bench extend",
    )
    checkpoint_activations: bool = option(
        "keep only the inputs of the towers' blocks and compute the blocks again in the backward pass: less memory, "
        "about a third more time, the same gradients up to rounding; without CUDA graphs",
        False, scope="machine", identity=False, commands=f"{RUNS} bench extend",
    )
    eval_batch_size: int | None = option(
        "images per forward pass in evaluation",
        None, unset="64 on a CPU; on a GPU 256 of 224 pixels, or as many smaller ones, at most 1024",
        scope="machine", ge=1, identity=False, commands=f"{RUNS} {EVAL} bench extend",
    )
    workers: int = option(
        "threads, for large sets processes, that decode images; 0: one per core",
        0, scope="machine", ge=0, le=1024, identity=False, commands=f"{RUNS} {EVAL} pack bench extend",
    )
    cache_gib: float = option(
        "keep decoded images of one size in memory, up to this many GiB for all sets of a run together, and never more "
        "than half of the free memory; each run of a sweep has its own; results do not depend on it",
        8.0, scope="machine", ge=0, allow_inf=True, identity=False, commands=f"{RUNS} {EVAL} extend",
    )

    out: Path = option("run folder", Path("runs/tasso"), scope="output", identity=False, commands="run")
    label: str | None = option(
        "name of this run in tables",
        None, unset="the method's title and what differs from its defaults",
        scope="output", identity=False, commands="run extend",
    )
    save_minutes: float = option(
        "minutes between two resume states",
        5.0, scope="output", ge=0, allow_inf=True, identity=False, commands=f"{RUNS} extend",
    )
    save_every: int | None = option(
        "save a resume state every N steps instead",
        None, unset="by time", scope="output", ge=1, identity=False, commands=f"{RUNS} extend",
    )
    overwrite: bool = option(
        "delete what is in the run folder and start afresh", False, scope="output", identity=False, commands="run"
    )
    track: Tracker | None = option(
        "log to a tracker, too", None, scope="output", identity=False, commands=f"{RUNS} extend"
    )
    # fmt: on

    def __post_init__(self) -> None:
        check_options(self)
        if not isinstance(self.method.get("name"), str):
            raise ConfigError("method: needs a name, as in method: {name: tasso, rank: 144}")
        checked = self.corrupt == "error" or self.tasks or self.pack_dir is not None
        require(self, "corrupt", bool(checked), "needs --pack-dir, since a benchmark's images are checked when packed")
        known = re.fullmatch(r"full|lora|norms|last:[1-9][0-9]{0,3}", self.tune) is not None
        require(self, "tune", known, "must be full, lora, norms or last:N")
        for key in self.lora_settings:
            require(self, key, self.tune == "lora", "needs --tune lora")
        rounds = self.optimizer_precision == "float32" or self.optimizer == "adamw"
        require(self, "optimizer_precision", rounds, "needs --optimizer adamw")
        for key in ("batch_size", "reference_batch_size"):
            divides = getattr(self, key) % self.accumulate == 0
            require(self, key, divides, f"must be a multiple of accumulate ({self.accumulate})")

    @property
    def lora_settings(self) -> dict[str, Any]:
        """Options of LoRA that differ from their defaults."""
        options = {field.name: field.default for field in dataclasses.fields(self) if field.name.startswith("lora_")}
        return {key: value for key, default in options.items() if (value := getattr(self, key)) != default}

    @property
    def scores_seen(self) -> bool:
        """Are images scored against the classes learned so far, too?"""
        return self.score_seen or self.split_classes not in (None, "all")

    @property
    def merges_names(self) -> bool:
        """Are classes of the same name in several tasks one class?"""
        return bool(self.tasks) if self.same_names is None else self.same_names == "one"

    def resolved(self, method_defaults: Mapping[str, Any]) -> RunConfig:
        """The same run with nothing left open: protocol first, then the method's own defaults."""
        filled = {**method_defaults, **PROTOCOLS[self.protocol]}
        open_keys = {key: value for key, value in filled.items() if getattr(self, key) in (None, AUTO)}
        return dataclasses.replace(self, **open_keys)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that YAML and JSON can hold."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}


def default_method(values: Mapping[str, Any]) -> str:
    """The method of a run that names none, from its other options."""
    return DEFAULT_METHOD if values.get("tasks") is None else OWN_TASKS_METHOD


def from_dict(values: Mapping[str, Any], where: str = "configuration") -> RunConfig:
    """A RunConfig from plain values; errors name the place and the key."""
    names = [f.name for f in dataclasses.fields(RunConfig)]
    if unknown := sorted(set(values) - set(names), key=str):
        raise ConfigError(f"{where}: {unknown_key(unknown[0], names)}")
    hints = typing.get_type_hints(RunConfig)
    if isinstance(values.get("method"), str):  # `method: tasso` reads better than `method: {name: tasso}`
        values = {**values, "method": {"name": values["method"]}}
    try:
        if values.get("tasks") is not None:
            # The catalogue's default is not meant then; a name that was given is the name of these tasks.
            own = {"benchmark": OWN, "method": {"name": default_method(values)}}
            values = {**own, **values, "tasks": parse_tasks(values["tasks"])}
        return RunConfig(**{key: coerce(value, hints[key]) for key, value in values.items()})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def read_templates(template: str) -> tuple[str, ...]:
    """Prompt templates from an option: prompts with {}, one per line, or a file of them.

    Where each task has its own, this is the prompt of all other class names, such as those of reference images.
    """
    if template == TASK_TEMPLATES:
        template = PROTOCOLS["code"]["template"]
    if "{}" in template:
        return _prompts(template, "template")
    path = Path(template)
    if not path.is_file():
        raise ConfigError(f"template: {template!r} has no {{}} for the class name and is not a file of prompts")
    try:
        return _prompts(read_text(path), f"template: {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"template: {path}: not a readable text file: {error}") from None


def _prompts(text: str, where: str) -> tuple[str, ...]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        if "{}" not in line:
            raise ConfigError(f"{where}, prompt {number} has no {{}} for the class name: {line!r}")
    if not lines:
        raise ConfigError(f"{where} is empty")
    return tuple(lines)


def unwrap(value: T | None) -> T:
    """A value that `RunConfig.resolved` has filled in."""
    assert value is not None, "the configuration has not been resolved"
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
