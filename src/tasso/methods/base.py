"""The contract every method keeps, and the table of methods."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from torch import Tensor, nn

from tasso.clip import Clip
from tasso.config import Protocol, check_types, coerce
from tasso.errors import ConfigError
from tasso.images import Seen

Towers = Literal["visual", "both", "none"]


@dataclass(frozen=True)
class TaskInfo:
    """The task at hand, as a method sees it."""

    index: int
    name: str
    class_names: tuple[str, ...]
    templates: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class Wanted:
    """Pictures a method asks for beside the task's own."""

    name: str
    view: Literal["train", "eval"] = "train"


@dataclass(frozen=True)
class Batch:
    """What one step sees: the task's pictures, and those the method asked for, by name."""

    task: Seen
    others: Mapping[str, Seen] = field(default_factory=dict)

    def chunk(self, number: int, count: int) -> Batch:
        """The number-th of `count` equal parts, for gradient accumulation."""
        if count == 1:
            return self
        others = {name: seen.chunk(number, count) for name, seen in self.others.items()}
        return Batch(self.task.chunk(number, count), others)


@dataclass(frozen=True)
class Group:
    """Parameters that are optimised together; None takes the run's value."""

    name: str
    parameters: Mapping[str, nn.Parameter]
    lr: float | None = None
    weight_decay: float | None = None


@dataclass
class Method:
    """A way to learn one task after another. Dataclass fields are its hyper-parameters.

    Life of a method: `begin_run` with the pretrained model; for each task `begin_task`, then `loss` and `after_step`
    for every step, then `end_task`. The teacher and everything else that follows from the model at the start of the
    task is made in `begin_task`; what changes with the steps goes into `state_dict`, so that a stopped run can go on.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    verified: ClassVar[str]
    teachers: ClassVar[str] = "none"
    towers: ClassVar[Towers] = "visual"
    # What `groups` calls its groups.
    group_names: ClassVar[tuple[str, ...]] = ("encoder",)
    # Values of the run's own options where the user leaves them open.
    run_defaults: ClassVar[Mapping[str, Any]] = {"lr": 1e-5, "weight_decay": 5e-4}
    # Hyper-parameters that are None until a protocol is chosen.
    protocols: ClassVar[Mapping[str, Mapping[str, Any]]] = {"code": {}, "paper": {}}

    def __post_init__(self) -> None:
        check_types(self)
        self.validate()

    def validate(self) -> None:
        """Raise a ConfigError if a hyper-parameter is out of range; their types are right already."""

    def wants(self) -> tuple[Wanted, ...]:
        """Pictures beside the task's own."""
        return ()

    def check(self, clip: Clip) -> None:
        """Raise a ConfigError if the hyper-parameters do not fit the model."""

    def begin_run(self, clip: Clip) -> None:
        """Called once, before the first task or when a run goes on: the model is the pretrained one."""

    def begin_task(self, clip: Clip, task: TaskInfo) -> None:
        """Get ready: the model is as the previous task left it. Every cross-entropy needs what is set here."""
        self.clip = clip
        self.class_embeddings = clip.class_embeddings(task.class_names, task.templates)
        self.scale = clip.logit_scale

    def groups(self) -> list[Group]:
        """What is optimised in this task. By default the declared towers."""
        return [Group("encoder", self.clip.parameters_of(self.towers))]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Named terms, weights included: their sum is minimised."""
        raise NotImplementedError

    def lr_factors(self, step: int, total: int) -> dict[str, float]:
        """Factor on the learning rate of each group; a group with factor 0 rests in this step."""
        return dict.fromkeys(self.group_names, cosine(step, total))

    def after_step(self, step: int) -> None:
        """Called after the optimiser has moved."""

    def end_task(self) -> None:
        """Let go of what only this task needed."""

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors that change with the steps of a task."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state_dict` gave, after `begin_task`."""

    def hyper_parameters(self) -> dict[str, Any]:
        """Name and hyper-parameters, as plain values."""
        return {"name": self.name, **dataclasses.asdict(self)}


def cosine(step: int, total: int) -> float:
    """½(1 + cos(πt/T)) for t = 0 … T − 1."""
    return 0.5 * (1 + math.cos(math.pi * step / total))


METHODS: dict[str, type[Method]] = {}
M = TypeVar("M", bound=type[Method])


def register(name: str) -> Callable[[M], M]:
    """Put a method into the table."""

    def enter(cls: M) -> M:
        cls.name = name
        METHODS[name] = cls
        return cls

    return enter


def build_method(options: Mapping[str, Any], protocol: Protocol = "code") -> Method:
    """The method that `options` describe: its name and hyper-parameters; None is filled in from the protocol."""
    options = dict(options)
    name = options.pop("name", None)
    if name not in METHODS:
        raise ConfigError(f"method: no method {name!r}. There are: {', '.join(METHODS)}")
    cls = METHODS[name]
    known = [f.name for f in dataclasses.fields(cls)]
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError(f"method.{unknown[0]}: {name} has no such option. Options: {', '.join(known) or 'none'}")
    hints = typing.get_type_hints(cls)
    options = {key: coerce(value, hints[key]) for key, value in options.items()}
    filled = {key: value for key, value in cls.protocols[protocol].items() if options.get(key) is None}
    try:
        return cls(**{**options, **filled})
    except ConfigError as error:
        raise ConfigError(f"method.{error}") from None
