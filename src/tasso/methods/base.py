"""The contract every method keeps, and the table of methods."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from torch import Tensor, nn

from tasso.config import Protocol, check_options, coerce
from tasso.data import ImageSet, Task
from tasso.data.images import ImageBatch, Pixels, View
from tasso.errors import ConfigError
from tasso.models.clip import Clip, mean_of_templates, prompts
from tasso.models.inference import Inference

Towers = Literal["visual", "both", "none"]


@dataclass(frozen=True)
class RunInfo:
    """The run that a method is part of, as the method sees it.

    Attributes:
        reference: the reference images, read when asked for.
        reference_names: class names of the reference images' data set.
        reference_texts: texts that the user gives for the reference images.
        templates: prompts of tasks that have none of their own.
        tasks: all tasks that are to be learned, in their order.
        seed: the run's.
        folder: a place for files of the method's own.
    """

    reference: Callable[[], Pixels] | None = None
    reference_names: tuple[str, ...] = ()
    reference_texts: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = ()
    seed: int = 0
    folder: Path | None = None


@dataclass(frozen=True)
class TaskInfo:
    """The task at hand, as a method sees it.

    Attributes:
        index: its place in the sequence, from 0.
        name: its name.
        class_names: its classes, in the order of their labels.
        templates: prompts with `{}` for a class name.
        seed: the run's.
        steps: how many it is learned for.
        train: its training images.
        read: reads other images; the second argument says to people what they are.
        seen: all tasks up to this one, in their order.
    """

    index: int
    name: str
    class_names: tuple[str, ...]
    templates: tuple[str, ...]
    seed: int
    steps: int = 0
    train: Pixels | None = None
    read: Callable[[ImageSet, str], Pixels] | None = None
    seen: tuple[Task, ...] = ()

    @property
    def earlier(self) -> tuple[Task, ...]:
        """The tasks learned before."""
        return self.seen[:-1]


@dataclass(frozen=True)
class Wanted:
    """Images a method asks for beside the task's own.

    Attributes:
        name: `reference` are the run's reference images, `current` the task's training images once more; every other
            name is one that the method's `extra_images` fills.
        view: `train`: random crops; `eval`: as in evaluation.
        each_step: put them into every batch.
    """

    name: str
    view: View = "train"
    each_step: bool = True


@dataclass(frozen=True)
class Batch:
    """What one step sees.

    Attributes:
        task: the task's images and labels.
        others: those that the method asked for, by name.
    """

    task: ImageBatch
    others: Mapping[str, ImageBatch] = field(default_factory=dict)

    def chunk(self, number: int, count: int) -> Batch:
        """The number-th of `count` equal parts, for gradient accumulation."""
        if count == 1:
            return self
        others = {name: seen.chunk(number, count) for name, seen in self.others.items()}
        return Batch(self.task.chunk(number, count), others)


@dataclass(frozen=True)
class Group:
    """Parameters that are optimised together.

    Attributes:
        name: one of the method's `group_names`.
        parameters: by name.
        lr: learning rate; None is the run's.
        weight_decay: None is the run's.
    """

    name: str
    parameters: Mapping[str, nn.Parameter]
    lr: float | None = None
    weight_decay: float | None = None


@dataclass(frozen=True)
class Extras:
    """What a method costs beside the model and its gradients, in numbers (four bytes each in float32).

    Attributes:
        trained: of its own, trained beside the towers it declares.
        held: teachers, anchors, averages: in memory while it trains.
        kept: saved beside the model and needed to use it.
        remark: what cannot be said in numbers.
    """

    trained: int = 0
    held: int = 0
    kept: int = 0
    remark: str = ""


@dataclass
class Method:
    """A way to learn one task after another. Dataclass fields are its hyper-parameters.

    Life of a method: `attach` to the pretrained model. To learn: `begin_run`; for each task `begin_task`, then `loss`
    and `after_step` for every step, then `end_task`. The teacher and everything else that follows from the model at
    the start of the task is made in `begin_task`; what changes with the steps goes into `state_dict`, so that a
    stopped run can go on; what later tasks or later users need beside the model goes into `lasting_state`. To use what
    was learned: `load_lasting_state`, then `inference`.

    Attributes:
        name: what `--method` calls it; `register` sets it.
        title: its name in tables.
        summary: what it does, in a line.
        source: the paper or code that it follows.
        verified: against what it has been checked.
        teachers: who teaches, in words.
        group_names: what `groups` calls its groups.
        run_defaults: values of the run's own options where the user leaves them open.
        protocols: hyper-parameters that are None until a protocol is chosen.
        plain_model: is the result a CLIP model like any other, which open_clip can load?
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    verified: ClassVar[str]
    teachers: ClassVar[str] = "none"
    group_names: ClassVar[tuple[str, ...]] = ("encoder",)
    run_defaults: ClassVar[Mapping[str, Any]] = {"lr": 1e-5, "weight_decay": 5e-4}
    protocols: ClassVar[Mapping[str, Mapping[str, Any]]] = {"code": {}, "paper": {}}
    plain_model: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_options(self)
        self.validate()

    def validate(self) -> None:
        """Raise a ConfigError if hyper-parameters do not fit together; types and ranges are checked already."""

    @property
    def towers(self) -> Towers:
        """Which towers it trains."""
        return "visual"

    @property
    def whole_batch(self) -> bool:
        """Is a batch more than the sum of its images? Then it cannot be learned in parts."""
        return False

    @property
    def stand_in(self) -> str:
        """Words that tables must show, when something stands in for what the method's authors use."""
        return ""

    def resolve_auto(self) -> None:
        """Replace hyper-parameters that say `auto` by what that means on this machine."""

    def wants(self) -> tuple[Wanted, ...]:
        """Images beside the task's own."""
        return ()

    def check(self, clip: Clip) -> None:
        """Raise a ConfigError if the hyper-parameters do not fit the model."""

    def extras(self, clip: Clip) -> Extras:
        """What it costs with this model, whose tensors may be without values."""
        return Extras()

    def attach(self, clip: Clip) -> None:
        """Called first, with the pretrained model."""
        self.clip = clip

    def begin_run(self, run: RunInfo) -> None:
        """Called once, before the first task or when a run goes on: the model is the pretrained one."""

    def begin_task(self, task: TaskInfo) -> None:
        """Get ready: the model is as the previous task left it. Every cross-entropy needs what is set here."""
        self.task = task
        self.scale = self.clip.logit_scale
        # Of the model as it is now: a teacher's texts if the text tower is trained, the student's own if it is not.
        self.class_embeddings = self.clip.class_embeddings(task.class_names, task.templates)
        self.class_tokens = self.clip.tokenise(prompts(task.class_names, task.templates))

    def extra_images(self, task: TaskInfo) -> dict[str, ImageSet]:
        """Sets of its own that it wants to see in this task, by the names in `wants`; after `begin_task`."""
        return {}

    def groups(self) -> list[Group]:
        """What is optimised in this task. By default the declared towers."""
        return [Group("encoder", self.clip.parameters_of(self.towers))]

    def class_texts(self) -> Tensor:
        """The student's class embeddings: kept while the text tower rests, else encoded now, with gradient."""
        return self.encode_classes(self.class_tokens) if self.towers == "both" else self.class_embeddings

    def encode_classes(self, tokens: Tensor) -> Tensor:
        """One embedding a class from the tokens of all its prompts, with gradient."""
        return mean_of_templates(self.clip.encode_tokens(tokens), len(self.task.templates))

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Named terms, weights included: their sum is minimised."""
        raise NotImplementedError

    def lr_factors(self, step: int, total: int) -> dict[str, float]:
        """Factor on the learning rate of each group; a group with factor 0 rests in this step."""
        return dict.fromkeys(self.group_names, cosine(step, total))

    def after_step(self, step: int) -> None:
        """Called after the optimiser has moved."""

    def end_task(self) -> None:
        """Finish: what this leaves in the model is saved, tested and passed on."""

    def leave_task(self) -> None:
        """Let go of the task's images, after what lasts has been saved."""
        self.task = dataclasses.replace(self.task, train=None, read=None)

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors that change with the steps of a task."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state_dict` gave, after `begin_task`."""

    def lasting_state(self) -> dict[str, Tensor]:
        """Tensors beside the model that the next task needs, or whoever uses the result; after `end_task`."""
        return {}

    def load_lasting_state(self, state: Mapping[str, Tensor], where: str) -> None:
        """Put back what `lasting_state` gave, after `attach`."""

    def inference(self, tasks: Sequence[Sequence[str]]) -> Inference:
        """How images are compared with classes, with the model as it is now. `tasks`: the run's class names."""
        return Inference(self.clip)

    def hyper_parameters(self) -> dict[str, Any]:
        """Name and hyper-parameters, as plain values."""
        return {"name": self.name, **dataclasses.asdict(self)}


def cosine(step: int, total: int) -> float:
    """½(1 + cos(πt/T)) for t = 0 … T − 1."""
    return 0.5 * (1 + math.cos(math.pi * step / total))


def numbers(tensors: Mapping[str, Tensor]) -> int:
    """How many numbers these are."""
    return sum(tensor.numel() for tensor in tensors.values())


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
