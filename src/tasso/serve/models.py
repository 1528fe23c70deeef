"""All models of a run, for comparison."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasso.data.task import Array
from tasso.evaluation.predict import PROBABILITY_NOTE, Candidates, Prediction, Predictor
from tasso.progress import progress
from tasso.training.run import Run


@dataclass(frozen=True)
class Stage:
    """One model of the run: that after `task`, or the pretrained one (None)."""

    task: str | None
    number: int
    predictor: Predictor

    @property
    def title(self) -> str:
        """Title of its column."""
        return f"after {self.number}. {self.task}" if self.task is not None else "before all tasks"


class Models:
    """All models of a run whose checkpoints exist, in memory."""

    def __init__(self, stages: Sequence[Stage], run: Run) -> None:
        self.stages, self.candidates = tuple(stages), run.candidates
        learned = run.tasks[: len(run.results["per_task"])]
        loaded = {stage.task for stage in stages}
        self.metadata: dict[str, Any] = {
            "run": run.folder.path.resolve().name,
            "label": run.results["label"],
            "model": run.results["model"],
            "tasks": [{"name": task, "classes": len(names)} for task, names in run.class_names.items()],
            "stages": [stage.title for stage in stages],
            "removed": [task for task in learned if task not in loaded],
            "probability_note": PROBABILITY_NOTE,
        }
        self._lock = threading.Lock()  # models cache class embeddings

    def predict(self, image: Array, candidates: Candidates, top: int) -> list[list[Prediction]]:
        """Predictions of each model, in the order of the stages."""
        with self._lock:
            return [stage.predictor.predict([image], candidates, top)[0] for stage in self.stages]


def load_models(run: Run) -> Models:
    """Load every model of a run whose checkpoint exists."""
    stages = []
    with progress("loading models", 1 + len(run.checkpoints)) as advance:
        for task, predictor in run.stages():
            stages.append(Stage(task, run.tasks.index(task) + 1 if task is not None else 0, predictor))
            advance(1, stages[-1].title)
    return Models(stages, run)
