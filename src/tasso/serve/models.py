"""The models of a run side by side."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasso.data.task import Array
from tasso.evaluation.predict import MEANING, Candidates, Prediction, Predictor, candidates
from tasso.progress import progress
from tasso.training.run import Run


@dataclass(frozen=True)
class Stage:
    """One model: the one before all tasks, or that after the task named."""

    task: str | None
    number: int
    predictor: Predictor

    @property
    def title(self) -> str:
        """The head of its column."""
        return f"after {self.number}. {self.task}" if self.task is not None else "before all tasks"


class Models:
    """All models of a run that are there, each held in memory."""

    def __init__(self, stages: Sequence[Stage], run: Run) -> None:
        self.stages, self.class_names = tuple(stages), run.class_names
        learned = run.tasks[: len(run.results["per_task"])]
        there = {stage.task for stage in stages}
        self.about: dict[str, Any] = {
            "run": run.folder.path.resolve().name,
            "label": run.results["label"],
            "model": run.results["model"],
            "tasks": [{"name": task, "classes": len(names)} for task, names in self.class_names.items()],
            "stages": [stage.title for stage in stages],
            "gone": [task for task in learned if task not in there],
            "meaning": MEANING,
        }
        self._one_at_a_time = threading.Lock()  # models keep what they last encoded

    def candidates(self, task: str | None, classes: Sequence[str] | None) -> Candidates:
        """The classes to choose from."""
        return candidates(self.class_names, task, classes)

    def predict(self, image: Array, among: Candidates, top: int) -> list[list[Prediction]]:
        """What each model says, in the order of the stages."""
        with self._one_at_a_time:
            return [stage.predictor.predict([image], among, top)[0] for stage in self.stages]


def load_models(run: Run) -> Models:
    """Every model of a run whose checkpoint is there."""
    stages = []
    with progress("loading models", 1 + len(run.checkpoints)) as advance:
        for task, predictor in run.stages():
            stages.append(Stage(task, run.tasks.index(task) + 1 if task is not None else 0, predictor))
            advance(1, stages[-1].title)
    return Models(stages, run)
