"""Choose options of each method from a sweep by accuracy on validation images; the file of options that are chosen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from tasso.errors import ConfigError, RunError
from tasso.experiments.sweep.grid import Grid
from tasso.experiments.sweep.jobs import Job, full_identity
from tasso.files import read_yaml, write_text
from tasso.methods import METHODS
from tasso.training.run_folder import RunFolder

CHOSEN, TRIED = "chosen.json", "tried.csv"
By = Literal["mtil", "mcil", "mean"]
RATE = "lr"


@dataclass(frozen=True)
class Tried:
    """A combination of options of one method.

    Attributes:
        options: the values of the options that the sweep varies.
        accuracies: percent after the last task, one per run over sequences and seeds; None: the run is not finished.
    """

    options: Mapping[str, Any]
    accuracies: list[float | None] = field(default_factory=list)

    @property
    def mean(self) -> float | None:
        """Over all runs; None if one of them is not finished, as with far too large a rate."""
        finished = [accuracy for accuracy in self.accuracies if accuracy is not None]
        return fmean(finished) if len(finished) == len(self.accuracies) else None


@dataclass(frozen=True)
class Choice:
    """What was tried of one method, in the order of the sweep."""

    method: str
    tried: Sequence[Tried]

    @property
    def best(self) -> Tried | None:
        """The best mean accuracy; of equal ones that with the smaller rate. None if no combination is finished."""

        def order(one: Tried) -> tuple[float, float]:
            assert one.mean is not None
            return -one.mean, float(one.options.get(RATE, 0))

        return min((one for one in self.tried if one.mean is not None), key=order, default=None)

    @property
    def at_end(self) -> list[str]:
        """Options whose best value is the smallest or the largest of those tried: a better one may lie beyond."""
        best, found = self.best, []
        for key, value in best.options.items() if best else ():
            tried = {one.options[key] for one in self.tried if _is_number(one.options[key])}
            if len(tried) > 1 and value in (min(tried), max(tried)):
                found.append(key)
        return found


def for_choice(grid: Grid) -> Grid:
    """The sweep with its runs evaluated on validation images; raises a ConfigError if it cannot be chosen from."""
    if not grid.overrides:
        raise ConfigError("choose: needs --set, the options to choose among, as in --set lr=1e-5,1e-4,1e-3")
    grid = replace(grid, common={"evaluate_on": "val", **grid.common})
    for job in grid.jobs():
        if (split := full_identity(job.options)["evaluate_on"]) != "val":
            raise ConfigError(
                f"choose: with --evaluate-on {split} the options would be chosen by the images that judge them "
                "afterwards; leave it out, and validation images are used"
            )
    return grid


def choices(jobs: Iterable[Job], varied: Iterable[str], folder: Path, by: By) -> list[Choice]:
    """What the runs of a sweep say about each method.

    Args:
        jobs: the runs, each in its folder under `folder`.
        varied: the options that the sweep varies; a method need not have all of them.
        by: the accuracy that counts: MTIL, MCIL or the mean of both.
    """
    keys = list(varied)
    found: dict[str, dict[str, Tried]] = {}
    for job in jobs:
        identity = full_identity(job.options)
        options = {key: identity[key] for key in keys if key in identity}
        tried = found.setdefault(identity["method.name"], {}).setdefault(json.dumps(options), Tried(options))
        tried.accuracies.append(_accuracy(folder / job.name, by))
    return [Choice(method, list(tried.values())) for method, tried in found.items()]


def _accuracy(folder: Path, by: By) -> float | None:
    try:
        results = RunFolder(folder).read_results()
    except RunError:
        return None
    if not results or not results["finished"]:
        return None
    return fmean(results[setting]["metrics"]["accuracy"] for setting in (("mtil", "mcil") if by == "mean" else (by,)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# -- the file ----------------------------------------------------------------------------------------------------


def write_chosen(chosen: Sequence[Choice], file: Path) -> None:
    """The best options by method, for `--rates`."""
    best = {choice.method: dict(choice.best.options) for choice in chosen if choice.best}
    lines = [f" {json.dumps(method)}: {json.dumps(options)}" for method, options in best.items()]
    write_text(file, "{\n" + ",\n".join(lines) + "\n}\n")


def read_rates(file: Path) -> dict[str, dict[str, Any]]:
    """Options by method from YAML or JSON: `tasso: {lr: 1e-4}`; a number alone is the learning rate."""
    found = {}
    for name, values in read_yaml(file).items():
        if name not in METHODS:
            raise ConfigError(f"{file}: no method {name!r}. There are: {', '.join(METHODS)}")
        options = values if isinstance(values, dict) else {RATE: values}
        found[str(name)] = {str(key).replace("-", "_"): value for key, value in options.items()}
    return found
