"""Results as one tidy table: each accuracy, metric, cost and distance of each run is a row.

A row says which run it belongs to (`run`, `method`, `label`, `model`, `benchmark`, `split`, `sequence`, `order`,
`seed`, `finished`), what was measured (on the images of `split`, test or val: `setting`, `step`, `task`, `metric`) and
the `value`:

- accuracy in percent of one task: `setting` mtil, mcil or seen, `step` 0 (zero-shot) to the number of learned tasks;
- metrics of a run (`METRICS`; of `seen` also `SEEN_METRICS`): the same, with an empty `task`; `step` is the number of
  tasks;
- accuracy over all classes learned so far (`STEPS`), and that of the pretrained model: `setting` seen, an empty `task`;
- costs of learning a task (`COSTS`): `setting` is empty, `step` is the number of the task, counted from 1;
- `classes` of each task, at step 0;
- distances between images and class texts (`DISTANCES`), at step 0 and after the last task.

An unknown value is NaN. Distributions (quantiles, histograms, distances of classes) have their numbers in the
tuple `values`, which is empty elsewhere: with one row per bin, nine of ten rows would be bins.

A study is this table as one CSV file: `study.write_study`, `study.read_study`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

import pandas as pd

Setting = Literal["mtil", "mcil", "seen"]
SETTINGS: tuple[Setting, ...] = ("mtil", "mcil")  # of every run
SEEN: Setting = "seen"  # of those that score against the classes learned so far, too
SPLITS = ("test", "val")
METRICS = ("accuracy", "forgetting", "zero_shot_degradation", "transfer", "average", "last")
SEEN_METRICS = ("seen_average", "incremental_average", "incremental_last")
STEPS = ("steps_accuracy", "steps_zero_shot")
COSTS = (
    "steps", "seconds", "images_per_second", "peak_memory_bytes", "process_peak_memory_bytes", "trainable_parameters",
    "preparing_seconds", "evaluation_seconds",
)  # fmt: skip
# Of one task: number of images, mean, five quantiles, histogram (`value`: its first bin), one distance per class.
DISTANCES = ("distance_count", "distance_mean", "distance_quantiles", "distance_histogram", "distance_classes")

RUN_COLUMNS = ["run", "method", "label", "model", "benchmark", "split", "sequence", "order", "seed", "finished"]
COLUMNS = [*RUN_COLUMNS, "setting", "step", "task", "metric", "value", "values"]
TYPES = {"seed": "int64", "finished": "bool", "step": "int64", "value": "float64"}


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the columns their types. Texts stay objects, whichever version of pandas reads them."""
    return frame.astype(TYPES)


def run_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per run, indexed by `run` in the order of the frame; `learned` counts the tasks learned so far."""
    runs = frame.drop_duplicates("run").set_index("run")[RUN_COLUMNS[1:]]
    return runs.assign(learned=_accuracy_rows(frame).groupby("run")["step"].max())


def settings_of(frame: pd.DataFrame) -> tuple[Setting, ...]:
    """The settings that all of these runs were scored in."""
    scored = frame[frame["setting"] == SEEN]["run"].nunique()
    return (*SETTINGS, SEEN) if scored and scored == frame["run"].nunique() else SETTINGS


def by_setting(frame: pd.DataFrame) -> dict[Setting, pd.DataFrame]:
    """For each setting that any of these runs was scored in, the rows of those that were."""
    seen = frame[frame["run"].isin(frame[frame["setting"] == SEEN]["run"])]
    return {**dict.fromkeys(SETTINGS, frame), **({} if seen.empty else {SEEN: seen})}


def labels(frame: pd.DataFrame) -> list[str]:
    """Labels of the methods, in the order of the frame."""
    return list(dict.fromkeys(frame["label"]))


def accuracies(frame: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """Accuracy by (run, step) and task; for runs that share one order of tasks. Step 0 is zero-shot."""
    rows = _accuracy_rows(frame)
    wide = rows[rows["setting"] == setting].pivot(index=["run", "step"], columns="task", values="value")
    order = frame["order"].iloc[0]
    return wide.reindex(columns=list(order)).reindex(list(dict.fromkeys(rows["run"])), level="run")


def zero_shot(frame: pd.DataFrame, setting: Setting) -> pd.Series:
    """Accuracy of the pretrained model by task: the mean over the runs, which nearly always agree."""
    return accuracies(frame, setting).xs(0, level="step").agg(fmean)


def zero_shot_accuracy(frame: pd.DataFrame, setting: Setting) -> float:
    """Mean accuracy of the pretrained model, to compare with that after the last task: all classes are seen then."""
    return fmean(zero_shot(frame, "mcil" if setting == SEEN else setting))


def metrics(frame: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """Metrics (columns) of every run; NaN where a run does not have one."""
    names = metric_names(setting)
    rows = frame[(frame["task"] == "") & (frame["setting"] == setting) & frame["metric"].isin(names)]
    wide = rows.pivot(index="run", columns="metric", values="value")
    return wide.reindex(index=list(dict.fromkeys(frame["run"])), columns=names)


def metric_names(setting: Setting) -> list[str]:
    """The metrics of a setting."""
    return [*METRICS, *(SEEN_METRICS if setting == SEEN else ())]


def step_accuracies(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracy over all classes learned so far (columns `STEPS`) by run and step; empty where it was not measured."""
    rows = frame[(frame["setting"] == SEEN) & frame["metric"].isin(STEPS)]
    return rows.pivot(index=["run", "step"], columns="metric", values="value").reindex(columns=list(STEPS))


def finished_metrics(frame: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """Metrics of the finished runs, beside the columns of `run_table` and `order_name`."""
    runs = run_table(frame)
    names = [sequence or ", ".join(tasks) for sequence, tasks in zip(runs["sequence"], runs["order"], strict=True)]
    found = runs.assign(order_name=names).join(metrics(frame, setting))
    return found[found["finished"]]


def costs(frame: pd.DataFrame) -> pd.DataFrame:
    """Costs (columns) of every learned task, by run and step, with the columns `label`, `seed` and `task`."""
    rows = frame[frame["metric"].isin(COSTS)]
    wide = rows.pivot(index=["run", "step"], columns="metric", values="value").reindex(columns=list(COSTS))
    described = rows.drop_duplicates(["run", "step"]).set_index(["run", "step"])[["label", "seed", "task"]]
    return described.join(wide)


def steps_in_words(frame: pd.DataFrame) -> str:
    """`20 steps per task`, or `40 to 80 steps per task`; nothing where runs differ or have not recorded them."""
    by_task = frame[frame["metric"] == "steps"].dropna(subset="value").groupby("task")["value"]
    if not len(by_task) or by_task.nunique().max() > 1:
        return ""
    fewest, most = by_task.first().min(), by_task.first().max()
    if fewest == most:
        return "1 step per task" if most == 1 else f"{most:.0f} steps per task"
    return f"{fewest:.0f} to {most:.0f} steps per task"


def _with_steps(name: str, frame: pd.DataFrame) -> str:
    return ", ".join(filter(None, [name, steps_in_words(frame)]))


def distances(frame: pd.DataFrame) -> pd.DataFrame:
    """Distances by run, step and task: `count`, `mean`, `first_bin`, and tuples `quantiles`, `histogram`, `classes`.

    Bins have equal widths: `bins` of them from 0 to `range`.
    """
    rows = frame[frame["metric"].isin(DISTANCES)]
    wide = rows.pivot(index=["run", "step", "task"], columns="metric", values=["value", "values"])
    names = {"count": "value", "mean": "value", "quantiles": "values", "histogram": "values", "classes": "values"}
    if wide.empty:
        return pd.DataFrame(columns=["run", "step", "task", *names, "first_bin", "bins", "range"])
    found = pd.DataFrame({name: wide[part, f"distance_{name}"] for name, part in names.items()})
    found["first_bin"] = wide["value", "distance_histogram"].astype(int)
    found = found.reset_index()
    for name in ("bins", "range"):
        found[name] = found["run"].map(frame[frame["metric"] == f"distance_{name}"].set_index("run")["value"])
    return found


def _accuracy_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[(frame["metric"] == "accuracy") & (frame["task"] != "")]


@dataclass(frozen=True)
class Comparison:
    """Runs on the same tasks in the same order with the same model: only these are set side by side.

    The order is part of it because transfer, average and forgetting depend on it. So is the split: `benchmark` says
    where accuracies were measured on validation images.
    """

    benchmark: str
    model: str
    sequence: str
    tasks: tuple[str, ...]
    frame: pd.DataFrame

    @property
    def name(self) -> str:
        parts = [self.benchmark, self.model]
        return ", ".join(parts + ([f"order {self.sequence}"] if self.sequence else []))

    @property
    def title(self) -> str:
        """The name, with the steps: how titles and captions say what was done."""
        return _with_steps(self.name, self.frame)

    @property
    def order(self) -> str:
        """The name of the order of the tasks, or the tasks themselves."""
        return self.sequence or ", ".join(self.tasks)

    @property
    def labels(self) -> list[str]:
        return labels(self.frame)

    @property
    def runs(self) -> pd.DataFrame:
        return run_table(self.frame)

    def of(self, label: str) -> pd.DataFrame:
        """The rows of one method: its runs differ in their seed only."""
        return self.frame[self.frame["label"] == label]

    def only(self, runs: Collection[str] | None) -> Comparison:
        """The same with these runs only (values of `run`); with all for None."""
        return self if runs is None else replace(self, frame=self.frame[self.frame["run"].isin(list(runs))])


def compare(frame: pd.DataFrame) -> list[Comparison]:
    """Split runs into comparisons, in the order of the frame."""
    keys = ["benchmark", "split", "model", "sequence", "order"]
    return [
        Comparison(benchmark_name(benchmark, split), model, sequence, order, rows)
        for (benchmark, split, model, sequence, order), rows in frame.groupby(keys, sort=False)
    ]


def benchmark_name(benchmark: str, split: str) -> str:
    """How tables, figures and pages name it."""
    return f"{benchmark} (validation images)" if split == "val" else benchmark


@dataclass(frozen=True)
class Orders:
    """Comparisons that have all but the order of the tasks in common, sorted by the names of their orders."""

    benchmark: str
    model: str
    comparisons: tuple[Comparison, ...]

    @property
    def name(self) -> str:
        return self.comparisons[0].name if len(self.comparisons) == 1 else f"{self.benchmark}, {self.model}"

    @property
    def title(self) -> str:
        """The name, with the steps: how titles and captions say what was done."""
        return _with_steps(self.name, self.frame)

    @property
    def order(self) -> str:
        """The name of the only order; nothing where there are several."""
        return self.comparisons[0].order if len(self.comparisons) == 1 else ""

    @property
    def frame(self) -> pd.DataFrame:
        return pd.concat([comparison.frame for comparison in self.comparisons])

    @property
    def labels(self) -> list[str]:
        return labels(self.frame)


def by_tasks(comparisons: Sequence[Comparison]) -> list[Orders]:
    """Comparisons of the same tasks together, whatever their order."""
    found: dict[tuple[str, str, frozenset[str]], list[Comparison]] = {}
    for comparison in comparisons:
        found.setdefault((comparison.benchmark, comparison.model, frozenset(comparison.tasks)), []).append(comparison)
    return [
        Orders(benchmark, model, tuple(sorted(members, key=lambda comparison: comparison.order)))
        for (benchmark, model, _), members in found.items()
    ]


def several_orders(comparisons: Sequence[Comparison]) -> list[Orders]:
    """Where the same tasks were learned in at least two orders, these together."""
    return [orders for orders in by_tasks(comparisons) if len(orders.comparisons) > 1]
