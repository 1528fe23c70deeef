"""tasso: teach a CLIP model one image-classification task after another.

>>> import tasso
>>> run = tasso.learn(benchmark="atlas", model="nano", method="tasso", steps=60, lr=1e-4, out="runs/first")
>>> run.metrics["mtil"]["accuracy"], run.classify("picture.png")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasso.errors import TassoError
from tasso.version import __version__

if TYPE_CHECKING:
    from tasso.trained import Run

__all__ = ["TassoError", "__version__", "evaluate", "extend", "learn", "load"]


def learn(**options: Any) -> Run:
    """Learn a sequence of tasks; options are those of `tasso run`. Finished runs are not repeated.

    `method` may be a name or a dict of a name and hyper-parameters: method={"name": "tasso", "rank": 72}.
    """
    from tasso.config import from_dict
    from tasso.learner import learn as learn_sequence
    from tasso.trained import Run

    config = from_dict(options, "learn")
    learn_sequence(config)
    return Run(config.out)


def extend(run: str | Path, tasks: Any, out: str | Path | None = None, **options: Any) -> Run:
    """Learn more tasks after those of a finished run, in a folder of its own; the finished run stays as it is.

    `tasks` and `options` are those of `tasso extend`. The same call goes on with what was stopped.
    """
    from tasso.extension import extend as extend_run
    from tasso.trained import Run

    return Run(extend_run(Path(run), tasks, Path(out) if out else None, options))


def evaluate(run: str | Path | None = None, after: str | None = None, **options: Any) -> dict[str, Any]:
    """Accuracy of a model, or of a run's latest checkpoint, on every task of a benchmark, in both settings.

    `after` names a task of the run whose checkpoint is meant instead. Options are those of `tasso eval`; with a run,
    what is not given is as it was in that run.
    """
    from tasso.learner import evaluate as evaluate_model
    from tasso.learner import evaluation_config

    folder = Path(run) if run else None
    return evaluate_model(evaluation_config(options, folder, "evaluate"), folder, after)


def load(run: str | Path, *, after: str | None = None, device: str = "auto") -> Run:
    """A run folder: its results and its model, the latest one or that after the task named (`0`: before all tasks)."""
    from tasso.trained import Run

    return Run(run, after=after, device=device)
