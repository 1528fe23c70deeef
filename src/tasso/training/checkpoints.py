"""The model and the method's state after each task, saved and put back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasso.errors import ConfigError, RunError
from tasso.methods import Method, build_method
from tasso.models.clip import Clip, check_finite
from tasso.models.inference import Inference
from tasso.training.run_folder import RunFolder

WEIGHTS = "the weights"  # in messages
METHOD_PREFIX = "method/"  # of a method's own tensors in a checkpoint; all others are the model's


def load_checkpoint(clip: Clip, folder: RunFolder, after: str | None = None) -> tuple[str, Inference]:
    """Put a checkpoint of a run, the newest by default, into the pretrained model.

    Returns the name of the task after which it was saved, and how it compares images with classes.
    """
    results, config = folder.read_results(), folder.read_config()
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
    restore_checkpoint(clip, method, folder, index, learned[index])
    return str(learned[index]), method.inference([names[name] for name in results["tasks"]])


def _find_task(after: str, learned: Sequence[str], folder: RunFolder) -> int:
    if after in learned:
        return learned.index(after)
    if after.isdecimal() and 1 <= int(after) <= len(learned):
        return int(after) - 1
    raise ConfigError(f"after: {folder.path} has learned no task {after!r}. Learned: {', '.join(learned)}")


def save_checkpoint(
    clip: Clip, method: Method, folder: RunFolder, index: int, name: str, about: Mapping[str, Any]
) -> None:
    """Save model and method as they are after task `index`. Raises a ModelError if they contain inf or NaN."""
    lasting = {f"{METHOD_PREFIX}{key}": tensor for key, tensor in method.lasting_state().items()}
    tensors = clip.state(method.towers) | lasting
    check_finite(tensors, WEIGHTS)
    folder.write_checkpoint(index, name, tensors, {**about, "task": name, "method": method.name})


def restore_checkpoint(clip: Clip, method: Method, folder: RunFolder, index: int, name: str) -> dict[str, Any]:
    """Model and method as task `index` left them; returns what was measured then."""
    file = folder.checkpoint_file(index, name)
    loaded = folder.read_checkpoint(index, name)
    if loaded is None:
        raise RunError(f"{file} is missing, so the run cannot go on; use --overwrite to start afresh")
    tensors, about = loaded
    # Checkpoints of earlier versions do not tell their method.
    told = {"task": about.get("task", name), "method": about.pop("method", method.name)}
    for key, expected in (("task", name), ("method", method.name)):
        if told[key] != expected:
            raise RunError(
                f"{file}: this is the model of {key} {told[key]!r}, not of {expected!r}; was it copied from elsewhere?"
            )
    lasting = {key.removeprefix(METHOD_PREFIX): t for key, t in tensors.items() if key.startswith(METHOD_PREFIX)}
    clip.load_state({key: t for key, t in tensors.items() if not key.startswith(METHOD_PREFIX)}, str(file))
    if missing := [key for key in clip.state(method.towers) if key not in tensors]:
        raise RunError(f"{file}: incomplete, {missing[0]!r} is missing; use --overwrite to start afresh")
    method.load_lasting_state(lasting, str(file))
    return about
