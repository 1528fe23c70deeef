"""The model and the method's state after each task, saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from tasso.errors import AFRESH, ConfigError, RunError, did_you_mean, shortened
from tasso.methods import Method, build_method
from tasso.models.clip import Clip, check_finite
from tasso.models.inference import Inference
from tasso.training.run_folder import RunFolder
from tasso.training.task_head import TaskHead

WEIGHTS = "the weights"  # in messages
PRETRAINED = "0"  # as `after`: the model before the first task
METHOD_PREFIX = "method/"  # of the tensors of a method's state in a checkpoint
HEAD_PREFIX = "head/"  # of those of the head's; all others are the model's
FROZEN = "frozen"  # as `after`: the model before the first task, with a head that has seen all tasks


def load_checkpoint(clip: Clip, folder: RunFolder, after: str | None = None) -> tuple[str | None, Inference]:
    """Load a checkpoint of a run, the newest by default, into the pretrained model.

    Returns the name of the task after which it was saved (None: before all tasks, nothing was loaded; `FROZEN`: the
    same with a head of all tasks), and how it compares images with classes.
    """
    results, config = folder.read_results(), folder.read_config()
    tasks = (results or {"tasks": ()})["tasks"]
    if after == PRETRAINED and PRETRAINED not in tasks:
        return None, Inference(clip)
    head = TaskHead.of_run(config, clip)
    if after == FROZEN and FROZEN not in tasks and results:
        return FROZEN, _load_frozen(head, folder, results, clip)
    learned = results["tasks"][: len(results["per_task"])] if results else []
    if not results or not learned:
        raise RunError(f"{folder.path}: no task has been learned in this run")
    index = len(learned) - 1 if after is None else _find_task(after, learned, folder)
    if not folder.has_checkpoint(index, learned[index]):
        file = folder.checkpoint_file(index, learned[index])
        raise RunError(f"{file} is missing; sweeps remove checkpoints of finished runs (--keep-checkpoints)")
    method = build_method(config.method, config.protocol)
    names = results.get("class_names", {})
    if unnamed := [name for name in results["tasks"] if name not in names]:
        raise RunError(f"{folder.results_file}: class_names: nothing about task {unnamed[0]!r}")
    method.attach(clip)
    if head:
        head.prepare({name: names[name] for name in learned[: index + 1]})
    restore_checkpoint(clip, method, folder, index, learned[index], head)
    inference = method.inference({name: names[name] for name in results["tasks"]})
    return str(learned[index]), head.inference(inference) if head else inference


def _load_frozen(head: TaskHead | None, folder: RunFolder, results: Mapping[str, Any], clip: Clip) -> Inference:
    """The pretrained model with the head that the run made before it began to train."""
    loaded = folder.read_frozen_head()
    if head is None or loaded is None:
        raise RunError(f"{folder.path}: this run has no frozen model with a head; runs on own tasks make one")
    head.prepare({name: results["class_names"][name] for name in results["tasks"]})
    load_head(head, loaded[0], str(folder.frozen_head_file))
    return head.inference(Inference(clip))


def _find_task(after: str, learned: Sequence[str], folder: RunFolder) -> int:
    if after in learned:
        return learned.index(after)
    numbers = [str(number) for number in range(1, len(learned) + 1)]
    if after in numbers:
        return numbers.index(after)
    close = did_you_mean(after, learned)
    raise ConfigError(
        f"after: {folder.path} has learned no task {shortened(after)!r}.{close} Learned: {', '.join(learned)}"
    )


def save_checkpoint(
    clip: Clip,
    method: Method,
    folder: RunFolder,
    index: int,
    name: str,
    metadata: Mapping[str, Any],
    head: TaskHead | None = None,
) -> None:
    """Save model, method and head as they are after task `index`. Raises a ModelError if they contain inf or NaN."""
    tensors = clip.state(method.towers) | method_tensors(method) | head_tensors(head)
    check_finite(tensors, WEIGHTS)
    folder.write_checkpoint(index, name, tensors, {**metadata, "task": name, "method": method.name})


def restore_checkpoint(
    clip: Clip, method: Method, folder: RunFolder, index: int, name: str, head: TaskHead | None = None
) -> dict[str, Any]:
    """Load model, method and head, which knows its classes, as task `index` left them; returns the metadata saved with
    them."""
    file = folder.checkpoint_file(index, name)
    loaded = folder.read_checkpoint(index, name)
    if loaded is None:
        raise RunError(f"{file} is missing, so the run cannot go on; {AFRESH}")
    tensors, metadata = loaded
    for key, expected in (("task", name), ("method", method.name)):
        if (found := metadata.get(key)) != expected:
            raise RunError(
                f"{file}: this is the model of {key} {found!r}, not of {expected!r}; was it copied from elsewhere?"
            )
    del metadata["method"]
    model = {key: t for key, t in tensors.items() if not key.startswith((METHOD_PREFIX, HEAD_PREFIX))}
    clip.load_state(model, str(file))
    if missing := [key for key in clip.state(method.towers) if key not in tensors]:
        raise RunError(f"{file}: incomplete, {missing[0]!r} is missing; {AFRESH}")
    load_method(method, index + 1, part(tensors, METHOD_PREFIX), str(file))
    if head:
        load_head(head, tensors, str(file))
    return metadata


# -- the state of a head -------------------------------------------------------------------------------------------


def head_tensors(head: TaskHead | None) -> dict[str, Tensor]:
    """The tensors of a head's state, as they are called in files."""
    return {f"{HEAD_PREFIX}{name}": tensor for name, tensor in head.tensors().items()} if head else {}


def load_head(head: TaskHead, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load the state of a head, which knows its classes; errors name the file and the tensor."""
    found = {name: tensor for name, tensor in tensors.items() if name.startswith(HEAD_PREFIX)}
    check_tensors(found, head_tensors(head), where, f"its head is not that of --head {head.name}; {AFRESH}")
    check_finite(found, where)
    if bool((found[f"{HEAD_PREFIX}counts"] < 0).any()):
        raise RunError(f"{where}: '{HEAD_PREFIX}counts' has negative numbers; {AFRESH}")
    head.load(part(found, HEAD_PREFIX))


# -- the state of a method -----------------------------------------------------------------------------------------


def method_tensors(method: Method) -> dict[str, Tensor]:
    """The tensors of a method's state, as they are called in files."""
    state = method.state.state_dict() if method.state is not None else {}
    return {f"{METHOD_PREFIX}{name}": tensor for name, tensor in state.items()}


def load_method(method: Method, tasks: int, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load the state that a method had after this many tasks; errors name the file and the tensor."""
    try:
        method.prepare_state(tasks, tensors)
    except RunError as error:
        raise RunError(f"{where}: {error}") from None
    found = {f"{METHOD_PREFIX}{name}": tensor for name, tensor in tensors.items()}
    check_tensors(found, method_tensors(method), where, f"not a checkpoint of {method.name} with these options")
    check_finite(found, where)
    copy_into_state(method, tensors)


def copy_into_state(method: Method, tensors: Mapping[str, Tensor]) -> None:
    """Load tensors that have been checked, on the model's device."""
    if method.state is not None:
        method.state.to(method.clip.device).load_state_dict(dict(tensors))


def check_tensors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str, advice: str) -> None:
    """Names, shapes and types are those expected; else a RunError names the first tensor that is not."""
    for name, tensor in expected.items():
        if name not in found:
            raise RunError(f"{where}: incomplete, {name!r} is missing; {advice}")
        if found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            shapes = [f"{tuple(t.shape)} of {t.dtype}" for t in (found[name], tensor)]
            raise RunError(f"{where}: {name!r} has shape {shapes[0]} instead of {shapes[1]}; {advice}")
    if unknown := [name for name in found if name not in expected]:
        raise RunError(f"{where}: {unknown[0]!r} does not belong here; {advice}")


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
