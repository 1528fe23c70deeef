"""Models as users name them: a run folder, a checkpoint file, a model name."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from tasso.config.paths import HF, LOCAL, SCHEMES
from tasso.errors import ConfigError, RunError
from tasso.files import RESULTS, no_run
from tasso.models.clip import Clip
from tasso.models.export import Source
from tasso.models.loading import load_clip
from tasso.training.run import Run
from tasso.training.run_folder import RunFolder

log = logging.getLogger("tasso")


def open_source(
    run: Path | None = None, after: str | None = None, model: str | None = None, pretrained: str | None = None
) -> Source:
    """A run's model or a pretrained one, for export. Models with modules of their own are refused."""
    if run is None:
        if after is not None:
            raise ConfigError("after: needs a run")
        clip = load_clip(model or "nano", pretrained)
        name = re.sub(f"^({'|'.join(SCHEMES)})", "", clip.spec.model)
        return Source(clip, name.replace("/", "-").strip("-"), f"{clip.spec}")
    trained = Run(run, after=after, device="cpu")
    clip, results = trained.plain_clip(), trained.results
    description = f"{results['model']}, {trained.stage} ({results['label']}, tasks {', '.join(trained.tasks)})"
    return Source(clip, run.resolve().name, description, trained.beside, trained.classifier)


def open_model(name: str) -> tuple[Clip, str]:
    """A model to merge, and its description.

    Args:
        name: a run folder (its latest model), a checkpoint file of a run, a model name, or MODEL:PRETRAINED.
    """
    path = Path(name)
    if path.suffix == ".safetensors" and path.parent.name == "checkpoints":
        return _described(_checkpoint_source(path))
    if (path / RESULTS).is_file():
        return _described(open_source(path))
    if path.is_dir():
        schemes = {"open_clip_config.json": LOCAL, "config.json": HF}
        found = [scheme for file, scheme in schemes.items() if (path / file).is_file()]
        hint = f"; for a model's folder write {found[0]}{name}" if found else ""
        raise RunError(f"merge: {no_run(path)}{hint}")
    has_scheme = name.startswith(SCHEMES)
    model, _, pretrained = (name, "", "") if has_scheme else name.partition(":")
    if "/" in model and not has_scheme:
        raise RunError(f"merge: {no_run(path)}")
    clip = load_clip(model, pretrained or None)
    return clip, str(clip.spec)


def _described(source: Source) -> tuple[Clip, str]:
    if source.beside:
        log.warning("%s is not merged: the result compares images with texts", source.beside)
    return source.clip, source.description


def _checkpoint_source(file: Path) -> Source:
    folder = RunFolder(file.parent.parent)
    number = file.name.partition("-")[0]
    tasks = (folder.read_results() or {"tasks": []})["tasks"]
    index = int(number) - 1 if number.isdecimal() and len(number) < 10 else -1
    if not file.is_file() or not 0 <= index < len(tasks) or folder.checkpoint_file(index, tasks[index]) != file:
        raise RunError(f"merge: {file} is not a checkpoint of the run in {folder.path}")
    return open_source(folder.path, str(index + 1))
