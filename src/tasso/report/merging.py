"""The accuracy along the way from one model to another, as weights are merged."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tasso.config import TEXTS, from_dict
from tasso.data.damaged import advice_on_unreadable
from tasso.errors import ConfigError
from tasso.files import write_text
from tasso.models.export import Source, export_model
from tasso.models.export.folder import check_new, new_folder
from tasso.models.hf import SiglipTowers
from tasso.models.inference import Inference
from tasso.models.merge import check_alpha, check_mergeable, merged
from tasso.report.figures.style import MARK, drawing, new_panels, save
from tasso.report.formats import csv_text
from tasso.report.frame import SETTINGS
from tasso.report.looks import PLACES
from tasso.report.tables import SETTING_NAMES
from tasso.training.evaluator import Evaluator, check_split, evaluation_of_run
from tasso.training.run_folder import RunFolder
from tasso.training.source import open_model

log = logging.getLogger("tasso")


def merge_into(first: str, second: str, alpha: float, folder: Path) -> Path:
    """Write the model between two others to a new folder, for open_clip and for `--model local-dir:FOLDER`.

    SigLIP of transformers, which open_clip does not build, is written for transformers and `--model hf:FOLDER`.
    """
    check_alpha(alpha)
    check_new(folder, "merge")
    _tell_of_heads(first, second)
    (a, a_name), (b, b_name) = open_model(first), open_model(second)
    clip = merged(a, b, alpha)
    story = f"{1 - alpha:g} × ({a_name}) + {alpha:g} × ({b_name})"
    to = "hf" if isinstance(clip.model, SiglipTowers) else "open_clip"
    return export_model(Source(clip, folder.name, story), to, folder)


def sweep_between(first: str, second: str, alphas: str, options: Mapping[str, Any], folder: Path) -> list[str]:
    """Evaluate the models at each α and write `curve.json`, `curve.csv` and the figure; returns a table in lines.

    Args:
        alphas: numbers from 0 to 1, with commas.
        options: of the evaluation; what is left open is as in the run that B, else A, comes from.
    """
    values = _parse(alphas)
    check_new(folder, "merge")
    _tell_of_heads(first, second)
    (a, a_name), (b, b_name) = open_model(first), open_model(second)
    check_mergeable(a, b)
    config = from_dict({**_options_of_run(first), **_options_of_run(second), **options}, "merge")
    for run in filter(None, map(_run_of, (first, second))):
        check_split(run, config)
    rows = []
    with advice_on_unreadable(config):
        evaluator = Evaluator(config, a)  # moves A to the device
        b.to(a.device)
        for alpha in values:
            found = evaluator.rows(Inference(merged(a, b, alpha)), f"alpha {alpha:g}")
            rows.append({"alpha": alpha, **found.settings()})
    what = {"a": a_name, "b": b_name, "benchmark": config.benchmark, "split": config.evaluate_on}
    curve = {**what, "tasks": evaluator.sequence.names, "rows": rows}
    with new_folder(folder, "merge") as target, drawing():
        write_text(target / "curve.json", json.dumps(curve, indent=1) + "\n")
        write_text(target / "curve.csv", _csv(curve))
        save(draw(curve), target, "curve")
    return _table(curve)


def _parse(alphas: str) -> list[float]:
    try:
        values = [float(word) for word in alphas.split(",") if word.strip()]
    except ValueError:
        raise ConfigError(f"sweep: expected numbers with commas, such as 0,0.25,0.5,0.75,1, not {alphas!r}") from None
    if not values:
        raise ConfigError("sweep: give at least one value of alpha")
    for value in values:
        check_alpha(value)
    return sorted(set(values))


def _tell_of_heads(*models: str) -> None:
    """A head belongs to the features of one model."""
    runs = filter(None, map(_run_of, models))
    if with_head := [run.path for run in runs if run.read_config().head not in (None, TEXTS)]:
        log.info("%s: its head is left out: merged models compare images with texts", with_head[0])


def _run_of(word: str) -> RunFolder | None:
    """The run that a model comes from; None for what is no run."""
    path = Path(word)
    folder = RunFolder(path.parent.parent if path.suffix == ".safetensors" else path)
    return folder if folder.results_file.is_file() else None


def _options_of_run(word: str) -> dict[str, Any]:
    """How a run was evaluated, but for model and machine; nothing for what is no run."""
    run = _run_of(word)
    return evaluation_of_run(run, command="merge") if run else {}


def means(curve: Mapping[str, Any], setting: str) -> list[float]:
    """Mean accuracy over the tasks at each α."""
    return [sum(row[setting]) / len(row[setting]) for row in curve["rows"]]


def _table(curve: Mapping[str, Any]) -> list[str]:
    mtil, mcil = means(curve, "mtil"), means(curve, "mcil")
    best = {"MTIL": mtil.index(max(mtil)), "MCIL": mcil.index(max(mcil))}
    lines = ["alpha    MTIL    MCIL" + ("  (validation images)" if curve["split"] == "val" else "")]
    lines += [f"{row['alpha']:5.3g}  {x:6.2f}  {y:6.2f}" for row, x, y in zip(curve["rows"], mtil, mcil, strict=True)]
    return [*lines, *(f"best mean {name}: alpha {curve['rows'][index]['alpha']:g}" for name, index in best.items())]


def _csv(curve: Mapping[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["alpha", "setting", "mean", *map(csv_text, curve["tasks"])])
    for setting in SETTINGS:
        for row, mean in zip(curve["rows"], means(curve, setting), strict=True):
            writer.writerow([row["alpha"], setting, mean, *row[setting]])
    return text.getvalue()


def draw(curve: Mapping[str, Any]) -> Figure:
    """Accuracy over α: the mean of all tasks, and each task by itself, faintly."""
    alphas = [row["alpha"] for row in curve["rows"]]
    figure, panels = new_panels(2, 2, 2.7, (3.5, 2.2), sharey=True)
    for panel, setting in zip(panels, SETTINGS, strict=True):
        for number, (task, ((shade, _), marker, dash)) in enumerate(zip(curve["tasks"], cycle(PLACES.values()))):
            values = [row[setting][number] for row in curve["rows"]]
            panel.plot(alphas, values, color=shade, marker=marker, linestyle=dash, markersize=2.5, linewidth=0.8,
                       alpha=0.75, label=task)  # fmt: skip
        panel.plot(alphas, means(curve, setting), color=MARK, linewidth=2, marker="o", markersize=3.5, label="mean")
        panel.set_title(SETTING_NAMES[setting])
        panel.set_xlabel("α: 0 is A, 1 is B")
    panels[0].set_ylabel("accuracy (%)" + (", validation images" if curve["split"] == "val" else ""))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center")
    return figure
