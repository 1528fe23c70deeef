"""Evaluation of a pretrained model or of a run's checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasso.config import RunConfig, from_dict, options_of, read_templates, unwrap
from tasso.data import BENCHMARKS, TaskSequence, load_sequence
from tasso.data.damaged import advice_on_unreadable
from tasso.data.images import PixelCache, open_packs, thread_pool
from tasso.errors import ConfigError, RunError
from tasso.evaluation.accuracy import AccuracyRows, accuracy_rows
from tasso.files import no_run
from tasso.kernels import import_meanwhile
from tasso.models.clip import Clip
from tasso.models.inference import Inference
from tasso.models.loading import load_clip
from tasso.progress import progress
from tasso.training.checkpoints import load_checkpoint
from tasso.training.engine import choose_device, choose_precision, keep_freed_memory
from tasso.training.resolve import resolve
from tasso.training.run_data import check_weights_of
from tasso.training.run_folder import RunFolder

log = logging.getLogger("tasso")


def evaluation_config(given: Mapping[str, Any], run: Path | None, where: str) -> RunConfig:
    """Options of an evaluation. With a run, what is not given is as it was in that run, except for the machine."""
    if unknown := sorted(set(given) - set(options_of(RunConfig, command="eval"))):
        raise ConfigError(f"{where}: {unknown[0]!r} is not an option of an evaluation")
    if run and not RunFolder(run).results_file.exists():
        raise RunError(no_run(run))
    recorded = evaluation_of_run(RunFolder(run)) if run else {}
    if given.keys() & {"benchmark", "tasks"} and given.get("benchmark") != recorded.get("benchmark"):
        dropped = {"split_classes", "class_order", "same_names"}  # these belong to the run's tasks
        if given.get("benchmark") in BENCHMARKS:
            dropped |= BENCHMARKS[given["benchmark"]].options.keys()
        if recorded.get("tasks"):
            dropped |= {"benchmark", "tasks", "sequence", "limit_tasks", "corrupt"}
        recorded = {key: value for key, value in recorded.items() if key not in dropped}
    return from_dict({**recorded, **given}, where)


def evaluation_of_run(run: RunFolder, command: str = "eval") -> dict[str, Any]:
    """How a run was evaluated: the options of this command. Device and precision depend on the machine at hand."""
    taken = options_of(RunConfig, command=command).keys() - {"device", "precision"}
    return {key: value for key, value in run.read_config().to_dict().items() if key in taken}


def check_split(run: RunFolder, config: RunConfig) -> None:
    """Raise a ConfigError if this evaluation holds back images that the run may have learned from."""
    recorded = run.read_config()
    learned_from = [place["from"] for place in recorded.tasks or ()]
    keys: tuple[str, ...] = ()
    if config.evaluate_on == "val":
        keys, images, judges = ("evaluate_on", "val_share", "split_seed"), "validation", "the test images"
    elif any(place["from"] in learned_from for place in config.tasks or ()):
        keys, images, judges = ("test_share", "split_seed"), "test", "those that it did not learn from"
    for key in keys:
        if getattr(config, key) != getattr(recorded, key):
            raise ConfigError(
                f"{key}: {run.path} was trained with {getattr(recorded, key)}, not {getattr(config, key)}, so its "
                f"training images may be among the {images} images; only {judges} can judge it"
            )


def evaluate(config: RunConfig, run: Path | None = None, after: str | None = None) -> dict[str, Any]:
    """Accuracy of a pretrained model, or of a run's checkpoint, in all settings.

    Args:
        run: evaluate a checkpoint of this run, by default the latest.
        after: the task (its name, or its number from 1) after which that checkpoint was saved; 0: before all tasks.
    """
    config, _ = resolve(config)
    clip = load_clip(config.model, config.pretrained)
    if run:
        check_split(RunFolder(run), config)
        check_weights_of(RunFolder(run), clip)
    with advice_on_unreadable(config):
        evaluator = Evaluator(config, clip)
        checkpoint, inference = load_checkpoint(clip, RunFolder(run), after) if run else (None, Inference(clip))
        learned = _count_learned(RunFolder(run), checkpoint, evaluator.sequence) if run and checkpoint else 0
        rows = evaluator.rows(inference, learned=learned)
    return {
        "model": str(clip.spec),
        "checkpoint": checkpoint,
        "benchmark": config.benchmark,
        "split": config.evaluate_on,
        "tasks": evaluator.sequence.names,
        **rows.settings(),
    }


def _count_learned(run: RunFolder, checkpoint: str, sequence: TaskSequence) -> int | None:
    """How many tasks a run had learned when this checkpoint was saved; None if the sequence does not begin with them,
    with the same classes."""
    results = run.read_results() or {}
    tasks = results["tasks"]
    learned = tasks[: tasks.index(checkpoint) + 1] if checkpoint in tasks else tasks  # the frozen model has seen all
    classes = [(name, results["class_names"][name]) for name in learned]
    evaluated = [(task.name, list(task.class_names)) for task in sequence.tasks]
    return len(learned) if evaluated[: len(learned)] == classes else None


class Evaluator:
    """The images to evaluate on, loaded once, for any number of models with the same preprocessing."""

    def __init__(self, config: RunConfig, clip: Clip) -> None:
        """Moves `clip` to the device of the evaluation; its preprocessing is used for all models."""
        config, _ = resolve(config)
        self.config, device = config, choose_device(config.device)
        import_meanwhile(device)
        keep_freed_memory(device)
        clip.to(device, choose_precision(config.precision, device))
        self.sequence = load_sequence(config, with_reference=False)
        pool = thread_pool(config.workers)
        packs = open_packs(config, pool, clip.preprocess)
        if packs:
            self.sequence = packs.packed(self.sequence, train=False)
        cache = PixelCache(clip.preprocess, device, pool, config.cache_gib, packs)
        self.pixels = [cache.pixels(task.evaluated, f"{task.name} {task.split}") for task in self.sequence.tasks]

    def rows(self, inference: Inference, what: str = "", learned: int | None = 0) -> AccuracyRows:
        """Accuracy on every task in all settings.

        Args:
            what: for the progress bar.
            learned: how many of the tasks, the first ones, the model has learned. None: others, so what it has seen
                is not scored.
        """
        if learned is None and self.config.scores_seen:
            log.info("Seen is left out: the tasks do not begin with those that were learned, with their classes")
        counts = [learned] if learned is not None and self.config.scores_seen else []
        with progress(f"evaluating {what}".rstrip(), sum(map(len, self.pixels))) as advance:
            return accuracy_rows(
                inference, self.sequence.tasks, self.pixels, read_templates(unwrap(self.config.template)),
                self.config.eval_batch_size, lambda n: advance(n, ""),
                learned=counts, merge_names=self.config.merges_names,
            )  # fmt: skip
