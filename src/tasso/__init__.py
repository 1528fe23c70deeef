"""tasso: teach a CLIP model one image-classification task after another.

>>> import tasso
>>> run = tasso.learn(benchmark="atlas", model="nano", method="tasso", steps=60, lr=1e-4, out="runs/first")
>>> run.metrics["mtil"]["accuracy"], run.classify("image.png")
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from tasso.errors import TassoError
from tasso.version import __version__

if TYPE_CHECKING:
    from tasso.config import RunConfig
    from tasso.config.keywords import ModelObject, RunOptions
    from tasso.training.run import Run

# Threads that wait for each other spin for a few microseconds, not for milliseconds as by default: where other programs
# run, they would keep the core from the thread that they wait for. OpenMP (libgomp) reads it when torch is imported.
if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "3000"

__all__ = ["TassoError", "__version__", "evaluate", "extend", "learn", "load"]


@overload
def learn(config: RunConfig, /) -> Run: ...
@overload
def learn(**options: Unpack[RunOptions]) -> Run: ...
def learn(config: RunConfig | None = None, /, **options: Any) -> Run:
    """Learn a sequence of tasks. A finished run is only read; one that was stopped goes on.

    Args:
        config: all options in one object, instead of keywords.
        **options: those of `tasso run`, with underscores. `method` may be a name, or a dict of a name and
            hyper-parameters: `method={"name": "tasso", "rank": 72}`. `model` may be a name, or a tuple of a model
            object, its tokenizer and its preprocessing: the object is copied, and the run folder does not hold it.

    Returns:
        The run in the folder `out`, with its numbers and its model.

    Raises:
        TassoError: an option, a file or a run folder cannot be used as asked, or a loss is no longer finite.
    """
    from tasso.config import from_dict
    from tasso.errors import ConfigError
    from tasso.methods import import_method
    from tasso.training.learner import learn as learn_sequence
    from tasso.training.run import Run

    if config is not None and options:
        raise ConfigError(f"learn: {next(iter(options))}: give a configuration or keywords, not both")
    config = from_dict(config.to_dict() if config else _with_named_model(options), "learn")
    import_method(config.method["name"])
    learn_sequence(config)
    return Run(config.out)


def _with_named_model(options: dict[str, Any]) -> dict[str, Any]:
    """Options in which a model object is replaced by its name."""
    if isinstance(options.get("model", ""), str):
        return options
    from tasso.models.objects import name_of

    return {**options, "model": name_of(options["model"])}


def _import_own(method: str | None) -> None:
    """Import the method of a run that is to be opened: what files name is not imported."""
    if method is not None:
        from tasso.methods import import_method

        import_method(method)


def extend(
    run: str | Path, tasks: Any, out: str | Path | None = None, *, method: str | None = None, **options: Any
) -> Run:
    """Learn more tasks after those of a finished run, which stays as it is. The same call goes on after a stop.

    Args:
        run: folder of the finished run.
        tasks: where the new tasks lie, as in `tasso run --tasks`: a mapping, or a list of `NAME=PLACE`.
        out: folder of the longer run; by default that of the finished one with the names of the new tasks.
        method: as in `load`.
        **options: those of `tasso extend`. All others are as they were in the finished run.

    Returns:
        The run over all tasks, earlier and new.
    """
    from tasso.training.extend import extend as extend_run
    from tasso.training.run import Run

    _import_own(method)
    return Run(extend_run(Path(run), tasks, Path(out) if out else None, options))


def evaluate(
    run: str | Path | None = None, after: str | None = None, *, method: str | None = None, **options: Any
) -> dict[str, Any]:
    """Accuracy of a model, or of a run's latest checkpoint, on every task of a benchmark, in both settings.

    Args:
        run: a run folder; without it, the model that the options name is evaluated as it is.
        after: the task of the run whose checkpoint is meant instead of the latest.
        method: as in `load`.
        **options: those of `tasso eval`; `model` may be an object, as in `learn`. With a run, what is not given is as
            it was in that run.

    Returns:
        A dict with `tasks`, and the rows `mtil` and `mcil` in percent.
    """
    from tasso.training.evaluator import evaluate as evaluate_model
    from tasso.training.evaluator import evaluation_config

    _import_own(method)
    folder = Path(run) if run else None
    return evaluate_model(evaluation_config(_with_named_model(options), folder, "evaluate"), folder, after)


def load(
    run: str | Path,
    *,
    after: str | None = None,
    device: str = "auto",
    model: ModelObject | None = None,
    method: str | None = None,
) -> Run:
    """A run folder, finished or not: its results and one of its models.

    Args:
        run: the folder.
        after: the task (name or number) after which the model was saved; `"0"` is the model before all tasks. By
            default the latest.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        model: the object that the run was given to learn on, if it was one and is not known to this process.
        method: `package.module:Class`, if the run was learned by a method of your own and that module is not imported
            yet. tasso imports no code because a run names it.
    """
    from tasso.training.run import Run

    _import_own(method)
    _with_named_model({} if model is None else {"model": model})
    return Run(run, after=after, device=device)
