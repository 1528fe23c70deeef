"""The weights between two models, (1 − α)·A + α·B (WiSE-FT), and the accuracy along the way."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tasso.clip import LOCAL, Clip, load_clip
from tasso.config import from_dict
from tasso.errors import ConfigError, ModelError, RunError
from tasso.export import Source, export_model, open_source
from tasso.export.folder import check_new, new_folder
from tasso.files import write_text
from tasso.inference import Inference
from tasso.learner import EVALUATION_OPTIONS, Evaluator
from tasso.report.figures.style import colour, drawing, marker, new_figure, require_matplotlib, save
from tasso.runs import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger("tasso")

SETTINGS = {"mtil": "MTIL", "mcil": "MCIL"}


def open_model(word: str) -> tuple[Clip, str]:
    """The model that a word means, and how to name it to a person.

    Args:
        word: a run folder (its latest model), a checkpoint file of a run, a model name, or MODEL:PRETRAINED.
    """
    path = Path(word)
    if path.suffix == ".safetensors" and path.parent.name == "checkpoints":
        return _named(_checkpoint_source(path))
    if (path / "results.json").is_file():
        return _named(open_source(path))
    if path.is_dir():
        hint = f"; for an open_clip folder write {LOCAL}{word}" if (path / "open_clip_config.json").is_file() else ""
        raise RunError(f"merge: {word} is a folder without results.json, so not a run folder{hint}")
    if word.startswith(LOCAL):
        model, pretrained = word, ""
    else:
        model, _, pretrained = word.partition(":")
    if "/" in model and not model.startswith(LOCAL):
        raise RunError(f"merge: {word}: no such run folder or checkpoint")
    clip = load_clip(model, pretrained or None)
    return clip, str(clip.spec)


def _named(source: Source) -> tuple[Clip, str]:
    if source.left_behind:
        log.warning("%s is not merged: the result compares pictures with texts", source.left_behind)
    return source.clip, source.story


def _checkpoint_source(file: Path) -> Source:
    folder = RunFolder(file.parent.parent)
    number = file.name.partition("-")[0]
    tasks = (folder.read_results() or {"tasks": []})["tasks"]
    index = int(number) - 1 if number.isdecimal() else -1
    if not file.is_file() or not 0 <= index < len(tasks) or folder.checkpoint_file(index, tasks[index]) != file:
        raise RunError(f"merge: {file} is not a checkpoint of the run in {folder.path}")
    return open_source(folder.path, str(index + 1))


def check_same_kind(a: Clip, b: Clip) -> None:
    """Raise a ModelError unless both models mean the same by each of their weights."""

    def refuse(what: str) -> ModelError:
        return ModelError(f"merge: {a.spec} and {b.spec} cannot be merged: {what}")

    shapes = [{name: tuple(tensor.shape) for name, tensor in clip.model.state_dict().items()} for clip in (a, b)]
    for name in sorted(shapes[0].keys() | shapes[1].keys()):
        first, second = (own.get(name) for own in shapes)
        if first is None or second is None:
            raise refuse(f"only {'the second' if first is None else 'the first'} has a tensor {name!r}")
        if first != second:
            raise refuse(f"tensor {name!r} has shape {first} in the one and {second} in the other")
    for part in ("", "vision_cfg", "text_cfg"):
        settings = [_settings(clip.architecture, part) for clip in (a, b)]
        for key in sorted(settings[0].keys() | settings[1].keys()):
            first, second = (own.get(key, default_of(key)) for own in settings)
            if first != second:
                raise refuse(f"{key} is {first} in the one and {second} in the other")
    if a.preprocess != b.preprocess:
        raise refuse(f"they look at pictures differently ({a.preprocess} and {b.preprocess})")
    words = [clip.vocabulary.read_bytes() if clip.vocabulary else b"" for clip in (a, b)]
    if words[0] != words[1]:
        raise refuse("they have different vocabularies")


def _settings(architecture: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Plain values of a config; where a vocabulary lies does not matter, what is in it is compared."""
    values = architecture.get(part, {}) if part else architecture
    return {key: v for key, v in values.items() if not isinstance(v, dict) and key != "init_logit_scale"}


def default_of(key: str) -> Any:
    """What a config means by leaving a key out, for the one key that changes no shape and is often left out."""
    return False if key == "quick_gelu" else None


def merged(a: Clip, b: Clip, alpha: float) -> Clip:
    """A model with the weights (1 − α)·A + α·B; for 0 and 1 the bits are those of A and B."""
    _check_alpha(alpha)
    check_same_kind(a, b)
    result = a.copy()
    other = b.model.state_dict()
    mixed = {}
    for name, tensor in a.model.state_dict().items():
        second = other[name].to(tensor.device)
        counts = not tensor.is_floating_point()  # such as the batches a normalisation has seen
        mixed[name] = (second if alpha >= 0.5 else tensor) if counts else torch.lerp(tensor, second, alpha)
    result.model.load_state_dict(mixed)
    result.forget_texts()
    return result


def _check_alpha(alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha: must lie in 0 … 1, not {alpha}")


def merge_into(first: str, second: str, alpha: float, folder: Path) -> Path:
    """Write the model between two others to a new folder, for open_clip and for `--model local-dir:FOLDER`."""
    _check_alpha(alpha)
    check_new(folder, "merge")
    (a, a_name), (b, b_name) = open_model(first), open_model(second)
    clip = merged(a, b, alpha)
    story = f"{1 - alpha:g} × ({a_name}) + {alpha:g} × ({b_name})"
    return export_model(Source(clip, folder.name, story), "open_clip", folder)


def sweep_between(first: str, second: str, alphas: str, options: Mapping[str, Any], folder: Path) -> list[str]:
    """Evaluate the models at each α and write `curve.json`, `curve.csv` and the figure; returns a table in lines.

    Args:
        alphas: numbers from 0 to 1, with commas.
        options: of the evaluation; what is left open is as in the run that B, else A, comes from.
    """
    values = _parse(alphas)
    check_new(folder, "merge")
    require_matplotlib()
    (a, a_name), (b, b_name) = open_model(first), open_model(second)
    check_same_kind(a, b)
    config = from_dict({**_options_of_run(first), **_options_of_run(second), **options}, "merge")
    evaluator = Evaluator(config, a)  # moves A to the device
    b.to(a.device)
    rows = []
    for alpha in values:
        found = evaluator.rows(Inference(merged(a, b, alpha)), f"alpha {alpha:g}")
        rows.append({"alpha": alpha, **found.settings()})
    about = {"a": a_name, "b": b_name, "benchmark": config.benchmark, "tasks": evaluator.sequence.names}
    curve = {**about, "rows": rows}
    with new_folder(folder, "merge") as place, drawing():
        write_text(place / "curve.json", json.dumps(curve, indent=1) + "\n")
        write_text(place / "curve.csv", _csv(curve))
        save(draw(curve), place, "curve")
    return _table(curve)


def _parse(alphas: str) -> list[float]:
    try:
        values = [float(word) for word in alphas.split(",") if word.strip()]
    except ValueError:
        raise ConfigError(f"sweep: expected numbers with commas, such as 0,0.25,0.5,0.75,1, not {alphas!r}") from None
    if not values:
        raise ConfigError("sweep: give at least one value of alpha")
    for value in values:
        _check_alpha(value)
    return sorted(set(values))


def _options_of_run(word: str) -> dict[str, Any]:
    """How a run was evaluated, but for model and machine; nothing for what is no run."""
    path = Path(word)
    folder = RunFolder(path.parent.parent if path.suffix == ".safetensors" else path)
    if not folder.results_file.is_file():
        return {}
    kept = EVALUATION_OPTIONS - {"model", "pretrained", "device", "precision"}
    return {key: value for key, value in folder.read_config().to_dict().items() if key in kept}


def means(curve: Mapping[str, Any], setting: str) -> list[float]:
    """Mean accuracy over the tasks at each α."""
    return [sum(row[setting]) / len(row[setting]) for row in curve["rows"]]


def _table(curve: Mapping[str, Any]) -> list[str]:
    mtil, mcil = means(curve, "mtil"), means(curve, "mcil")
    best = {"MTIL": mtil.index(max(mtil)), "MCIL": mcil.index(max(mcil))}
    lines = ["alpha    MTIL    MCIL"]
    lines += [f"{row['alpha']:5.3g}  {x:6.2f}  {y:6.2f}" for row, x, y in zip(curve["rows"], mtil, mcil, strict=True)]
    return [*lines, *(f"best mean {name}: alpha {curve['rows'][place]['alpha']:g}" for name, place in best.items())]


def _csv(curve: Mapping[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["alpha", "setting", "mean", *curve["tasks"]])
    for setting in SETTINGS:
        for row, mean in zip(curve["rows"], means(curve, setting), strict=True):
            writer.writerow([row["alpha"], setting, mean, *row[setting]])
    return text.getvalue()


def draw(curve: Mapping[str, Any]) -> Figure:
    """Accuracy over α: the mean of all tasks, and each task by itself, faintly."""
    figure = new_figure(2.7)
    alphas = [row["alpha"] for row in curve["rows"]]
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (setting, title) in zip(panels, SETTINGS.items(), strict=True):
        for number, task in enumerate(curve["tasks"]):
            values = [row[setting][number] for row in curve["rows"]]
            panel.plot(alphas, values, color=colour(number + 1), marker=marker(number + 1), markersize=2.5,
                       linewidth=0.8, alpha=0.75, label=task)  # fmt: skip
        panel.plot(alphas, means(curve, setting), color="black", linewidth=2, marker="o", markersize=3.5, label="mean")
        panel.set_title(title)
        panel.set_xlabel("α: 0 is A, 1 is B")
    panels[0].set_ylabel("accuracy (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center")
    return figure
