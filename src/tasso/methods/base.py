"""The contract that every method keeps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from tasso.config import RunConfig, check_options
from tasso.data import ImageSet, Task
from tasso.data.images import ImageBatch, Pixels, View
from tasso.models.clip import Clip, FrozenImageEncoder, mean_of_templates, prompts
from tasso.models.inference import Inference

Towers = Literal["visual", "both", "none"]
Teacher = Literal["previous", "pretrained"]


@dataclass(frozen=True)
class RunInfo:
    """The run that a method is part of.

    Attributes:
        reference: reads the reference images; None if the run has none.
        reference_names: class names of the reference images' data set.
        reference_texts: texts that the user gives for the reference images.
        templates: prompts of tasks that have none of their own.
        tasks: all tasks of the sequence, in order.
        seed: the run's seed.
        folder: a folder for files of the method's own.
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
    """The current task.

    Attributes:
        index: its index in the sequence, from 0.
        name: its name.
        class_names: its classes, in the order of their labels.
        templates: prompts with `{}` for a class name.
        seed: the run's seed.
        steps: number of optimiser steps.
        train: its training images, without labels; `tasks[-1].train.labels` has these, in the same order.
        read: reads other images; the second argument names them on the progress bar.
        tasks: all tasks up to and including this one, in order.
    """

    index: int
    name: str
    class_names: tuple[str, ...]
    templates: tuple[str, ...]
    seed: int
    steps: int = 0
    train: Pixels | None = None
    read: Callable[[ImageSet, str], Pixels] | None = None
    tasks: tuple[Task, ...] = ()

    @property
    def earlier(self) -> tuple[Task, ...]:
        """The tasks learned before."""
        return self.tasks[:-1]


@dataclass(frozen=True)
class ImageRequest:
    """Images that a method asks for beside the task's own.

    Attributes:
        name: `reference`: the run's reference images; `current`: the task's training images once more; any other name
            is filled by the method's `extra_images`.
        view: `train`: random crops; `eval`: as in evaluation.
        each_step: put them into every batch.
    """

    name: str
    view: View = "train"
    each_step: bool = True


@dataclass(frozen=True)
class Batch:
    """The images of one step, and what else the method asked for.

    With several processes (world size W), `pixels` holds this process's B / W images and `labels` those of all B: see
    `Method.gather`.

    Attributes:
        task: the task's images: pixels (B / W, 3, H, W), labels (B,).
        others: the images that the method asked for, by name; the same shapes.
        inputs: the method's own `step_inputs`, by name; the same in every process and every chunk.
    """

    task: ImageBatch
    others: Mapping[str, ImageBatch] = field(default_factory=dict)
    inputs: Mapping[str, Tensor] = field(default_factory=dict)

    def chunk(self, number: int, count: int) -> Batch:
        """The number-th of `count` equal parts, for gradient accumulation."""
        if count == 1:
            return self
        others = {name: images.chunk(number, count) for name, images in self.others.items()}
        return Batch(self.task.chunk(number, count), others, self.inputs)


@dataclass(frozen=True)
class Group:
    """Parameters that are optimised together.

    Attributes:
        name: one of the method's `group_names`.
        parameters: by name.
        lr: learning rate; None: the run's.
        weight_decay: None: the run's.
        lr_factor: factor on the learning rate, the run's or its own.
    """

    name: str
    parameters: Mapping[str, nn.Parameter]
    lr: float | None = None
    weight_decay: float | None = None
    lr_factor: float = 1.0


@dataclass(frozen=True)
class Cost:
    """What a method adds to the model and its gradients, in numbers (four bytes each in float32).

    Attributes:
        trainable: trainable parameters beside the towers it declares.
        training: held in memory while it trains: teachers, anchors, averages.
        checkpoint: saved with the model and needed to use it.
        note: what cannot be said in numbers.
    """

    trainable: int = 0
    training: int = 0
    checkpoint: int = 0
    note: str = ""


@dataclass
class Method:
    """A way to learn one task after another. Dataclass fields are its hyper-parameters.

    Order of calls: `attach` with the pretrained model, `begin_run`, then for each task `begin_task`, `loss` and
    `after_step` in every step, and `end_task`. To use what was learned: `attach`, then `inference`. Methods that
    override `attach`, `begin_run`, `begin_task` or `end_task` call `super()` first.

    State: what follows from the model at the start of a task (an anchor, class embeddings) is made in `begin_task` and
    is a plain attribute; it is made again on resume. Everything else that a method must remember is in `state`, one
    `nn.Module` of parameters and buffers (counters are integer buffers). It is moved to the model's device, saved
    during a task so that a stopped run can go on, and saved as `end_task` leaves it with the model's checkpoint. So
    what matters within a task only is made in `begin_task`, and `end_task` sets `state` to None; what lasts is made in
    `attach`.

    Attributes:
        name: what `--method` calls it; set by the registry.
        title: its name in tables.
        summary: what it does, in a line.
        source: the paper or code that it follows.
        verified: against what it has been checked.
        group_names: names of its parameter groups.
        run_defaults: values of the run's own options where the user leaves them open; `defaults.py` has others for
            small models.
        protocols: hyper-parameters that are None until a protocol is chosen.
        learns: whether it trains anything.
        plain_model: whether the result is a CLIP model that open_clip can load.
        cuda_graphs: whether `loss` may be captured as a CUDA graph. Python inside a captured step runs once: later
            steps repeat its GPU kernels on new batches. So `loss` must not depend on Python values that change from
            step to step, must do the same operations in every step and must not read values back from the GPU.
        state: the method's own module, or None.
        teacher_encoders: frozen image encoders of the declared `teachers`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    verified: ClassVar[str]
    group_names: ClassVar[tuple[str, ...]] = ("encoder",)
    run_defaults: ClassVar[Mapping[str, Any]] = {"lr": 1e-5, "weight_decay": 5e-4}
    protocols: ClassVar[Mapping[str, Mapping[str, Any]]] = {"code": {}, "paper": {}}
    learns: ClassVar[bool] = True
    plain_model: ClassVar[bool] = True
    cuda_graphs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_options(self)
        self.validate()
        self.state: nn.Module | None = None
        self.teacher_encoders: dict[Teacher, FrozenImageEncoder] = {}

    # -- what it declares ------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise a ConfigError if a hyper-parameter is out of range; types have been checked."""

    def check(self, clip: Clip) -> None:
        """Raise a ConfigError if the hyper-parameters do not fit the model."""

    def resolve_width(self, width: int) -> None:
        """Fill in hyper-parameters that depend on the length of the model's embeddings."""

    def resolve_auto(self, config: RunConfig) -> None:
        """Replace hyper-parameters that are `auto` by what that means on this machine, for this run."""

    @property
    def towers(self) -> Towers:
        """The towers that it trains."""
        return "visual"

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        """Earlier models that teach: `previous`: the model before this task; `pretrained`: before all tasks."""
        return ()

    @property
    def whole_batch(self) -> bool:
        """Whether the loss compares images of a batch with each other; then gradients cannot be accumulated."""
        return False

    @property
    def stand_in(self) -> str:
        """A label that tables must show when something stands in for what the method's authors use."""
        return ""

    def image_requests(self) -> tuple[ImageRequest, ...]:
        """Images beside the task's own."""
        return ()

    def cost(self, clip: Clip) -> Cost:
        """What it costs with this model, whose tensors may be on the meta device. By default its teachers."""
        return Cost(training=self.teacher_size(clip))

    def teacher_size(self, clip: Clip) -> int:
        """Parameters of its teachers."""
        return len(self.teachers) * numel(clip.parameters_of("visual").values())

    def hyper_parameters(self) -> dict[str, Any]:
        """Name and hyper-parameters, as plain values."""
        return {"name": self.name, **dataclasses.asdict(self)}

    # -- run and task ----------------------------------------------------------------------------------------

    def attach(self, clip: Clip) -> None:
        """Called first, with the pretrained model. Persistent state is made here.

        Draw random numbers in `begin_task`, not here: only there the generator is seeded by run and task.
        """
        self.clip = clip
        clip.attached = lambda: self.state
        self.state = None
        self.teacher_encoders = {}

    def prepare_state(self, tasks: int, tensors: Mapping[str, Tensor]) -> None:
        """Give `state` the shape it has in a checkpoint, before the checkpoint is loaded into it.

        Needed only where the shape depends on the tasks learned. Afterwards names, shapes and types of all tensors are
        checked, so this need not. Errors that it raises get the checkpoint's file name put in front.

        Args:
            tasks: how many tasks had been learned.
            tensors: the checkpoint's tensors, by their names in `state`; they may be incomplete.
        """

    def begin_run(self, run: RunInfo) -> None:
        """Called once, before the first task or when a run resumes: the model is the pretrained one."""
        if "pretrained" in self.teachers:
            self.teacher_encoders["pretrained"] = self.clip.frozen_image_encoder()

    def begin_task(self, task: TaskInfo) -> None:
        """Prepare a task: the model is as the previous task left it.

        Sets `task`, `scale` (the factor on cosines), `class_tokens` (C × T, L) of the prompts, and the encoder of the
        previous model if it is a teacher. Sets `class_embeddings` (C, D), computed once at the start of the task: if
        the text tower is trained they are the teacher's, and `class_texts()` has the student's.
        """
        self.task = task
        self.scale = self.clip.logit_scale
        self.class_embeddings = self.clip.class_embeddings(task.class_names, task.templates)
        self.class_tokens = self.clip.tokenise(prompts(task.class_names, task.templates))
        if "previous" in self.teachers:
            # In the first task the previous model is the pretrained one: one copy is enough.
            first = self.teacher_encoders.get("pretrained") if task.index == 0 else None
            self.teacher_encoders["previous"] = first or self.clip.frozen_image_encoder()

    def extra_images(self, task: TaskInfo) -> dict[str, ImageSet]:
        """Image sets of its own for this task, by their names in `image_requests`; called after `begin_task`."""
        return {}

    def groups(self) -> list[Group]:
        """What is optimised in this task. By default the declared towers."""
        return [Group("encoder", self.clip.parameters_of(self.towers))]

    def lr_factors(self, step: int, total: int) -> dict[str, float]:
        """Factor on the learning rate of each group; a group with factor 0 is not updated in this step."""
        return dict.fromkeys(self.group_names, cosine(step, total))

    def step_inputs(self, step: int) -> dict[str, Tensor]:
        """Tensors that change from step to step, for `batch.inputs`: a function of the task and the step alone.

        Their shapes are the same in every step of a task. A captured CUDA graph gets the new values, too.
        """
        return {}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Named terms (scalars, weights included); their sum is minimised.

        Image encoders return features of this process's images; `gather` makes them those of the whole batch, which
        `batch.task.labels` (B,) belong to.
        """
        raise NotImplementedError

    def trained_texts(self, images: Mapping[str, int]) -> list[Tensor]:
        """Token ids (n, L) of as many texts as `loss` encodes with gradient, so that their memory can be told.

        Args:
            images: number of images per step, by request; the task's own are `task`.
        """
        return [self.class_tokens] if self.towers == "both" else []

    def after_step(self, step: int) -> None:
        """Called after every optimiser step, outside of a captured CUDA graph."""

    def end_task(self) -> None:
        """Finish a task: the model and `state` as this leaves them are saved, evaluated and passed on.

        The model is in evaluation mode and all its parameters have `requires_grad` False by then.
        """
        self.teacher_encoders.pop("previous", None)

    def release_images(self) -> None:
        """Drop the task's images, after its checkpoint has been saved."""
        self.task = dataclasses.replace(self.task, train=None, read=None)

    def inference(self, tasks: Mapping[str, Sequence[str]]) -> Inference:
        """How images are compared with classes, with the model as it is now. `tasks`: class names by task, in order."""
        return Inference(self.clip)

    # -- helpers for losses ----------------------------------------------------------------------------------

    def gather(self, features: Tensor) -> Tensor:
        """Features (B / W, D) of all W processes as one tensor (B, D); gradients flow back to this process's rows."""
        return self.clip.distributed.gather(features)

    def class_texts(self) -> Tensor:
        """The student's class embeddings (C, D): cached while the text tower is frozen, else encoded with gradient."""
        return self.encode_classes(self.class_tokens) if self.towers == "both" else self.class_embeddings

    def encode_classes(self, tokens: Tensor) -> Tensor:
        """Class embeddings (C, D) from the tokens (C · templates, length) of all prompts, with gradient."""
        return mean_of_templates(self.clip.encode_tokens(tokens), len(self.task.templates))


def cosine(step: int, total: int) -> float:
    """½(1 + cos(πt/T)) for t = 0 … T − 1."""
    return 0.5 * (1 + math.cos(math.pi * step / total))


def numel(tensors: Iterable[Tensor]) -> int:
    """Number of elements of all tensors together."""
    return sum(tensor.numel() for tensor in tensors)
