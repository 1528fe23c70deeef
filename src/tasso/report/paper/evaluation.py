"""What has been measured, by plan and row: the record of an evaluation joined with the table of its results."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median

import pandas as pd

from tasso.experiments.plans import GROUPS, PLANS, SND, TASSO, Plan, PlanRow, chosen
from tasso.experiments.record import RECORD, Record, read_record
from tasso.files import RESULTS
from tasso.report.frame import COLUMNS, SETTINGS, Setting, benchmark_name, run_table, steps_in_words
from tasso.report.frame import distances as distances_of
from tasso.report.looks import parts
from tasso.report.reader import ReportError
from tasso.report.results import read_run
from tasso.report.study import STUDY_ENDINGS, read_study
from tasso.report.tables import count_of

LEVELS = ("classes", "images")  # of distances: class means, as the paper draws it, and single images
NO_VALUES = pd.Series(dtype=float, index=pd.MultiIndex.from_arrays([[], []], names=["sequence", "seed"]))


@dataclass(frozen=True)
class Evaluation:
    """Finished runs and what they are. `frame` is the tidy table (`report.frame`), `run` is a name of the record."""

    record: Record
    frame: pd.DataFrame

    @cached_property
    def index(self) -> pd.DataFrame:
        """One line per plan, row, sequence and seed that has a finished run: `run`."""
        finished = set(self.frame["run"])
        lines = [
            (plan, row, *key, name)
            for (plan, row), names in self.record.names.items()
            for key, name in names.items()
            if name in finished
        ]
        return pd.DataFrame(lines, columns=["plan", "row", "sequence", "seed", "run"])

    @cached_property
    def _values(self) -> dict[tuple[str, str, str, str], pd.Series[float]]:
        metrics = self.frame[(self.frame["task"] == "") & self.frame["setting"].isin(SETTINGS)]
        joined = self.index.merge(metrics[["run", "setting", "metric", "value"]], on="run").dropna(subset="value")
        groups = joined.groupby(["plan", "row", "setting", "metric"], sort=False)
        return {key: rows.set_index(["sequence", "seed"])["value"] for key, rows in groups}

    def values(self, plan: str, row: str, setting: Setting, metric: str) -> pd.Series[float]:
        """A metric of the finished runs of a row, by sequence and seed."""
        return self._values.get((plan, row, setting, metric), NO_VALUES)

    def runs(self, plan: str, row: str | None = None) -> pd.DataFrame:
        """Lines of `index` of a plan, or of one of its rows."""
        found = self.index[self.index["plan"] == plan]
        return found if row is None else found[found["row"] == row]

    def rows_of(self, runs: Sequence[str]) -> pd.DataFrame:
        """The tidy table of these runs, in this order."""
        places = {run: place for place, run in enumerate(runs)}
        found = self.frame[self.frame["run"].isin(places)]
        return found.sort_values("run", key=lambda column: column.map(places), kind="stable", ignore_index=True)

    @cached_property
    def run_table(self) -> pd.DataFrame:
        """One line per run: method, label, model, order, …"""
        return run_table(self.frame)

    @property
    def model(self) -> str | None:
        """Known once a run is there."""
        return next(iter(self.frame["model"]), None)

    def of(self, plans: Container[str]) -> Evaluation:
        """The runs of these plans alone."""
        names = {key: runs for key, runs in self.record.names.items() if key[0] in plans}
        kept = {run for runs in names.values() for run in runs.values()}
        return Evaluation(replace(self.record, names=names), self.frame[self.frame["run"].isin(kept)])

    @property
    def where(self) -> str:
        """Benchmark with the conditions of its runs, model and steps."""
        setup = self.record.setup
        name = benchmark_name(next(iter(self.frame["benchmark"]), setup.benchmark), setup.split)
        return ", ".join(filter(None, [name, self.model, steps_in_words(self.frame)]))

    def missing(self, plan: str) -> tuple[int, int]:
        """How many runs of a plan's rows are missing, and how many there should be."""
        wanted = sum(len(names) for (name, _), names in self.record.names.items() if name == plan)
        return wanted - len(self.runs(plan)), wanted

    def complete_plans(self) -> list[Plan]:
        """The paper's plans with all their runs; not those that the record does not know."""
        counts = [(plan, *self.missing(plan.name)) for plan in PLANS.values()]
        return [plan for plan, missing, wanted in counts if not missing and bool(wanted) == bool(plan.rows)]

    def missing_note(self, plan: str) -> str:
        """Why a claim on this plan is not tested."""
        missing, wanted = self.missing(plan)
        if not wanted:
            return f"the plan {plan} was not run"
        if not missing:  # of fewer sequences, data sets or steps than the claim is about, or without distances
            return f"the runs of the plan {plan} do not cover what the claim is about"
        return f"{missing} of {count_of(wanted, 'run')} of the plan {plan} missing"

    def stand_in(self, plan: Plan, row: PlanRow) -> str:
        """What stands in for a part of a row's method, as its runs say: `retrieved images`; "" for nothing."""
        labels = self.run_table.loc[self.runs(plan.name, row.label)["run"], "label"]
        return next((stand_in for label in labels if (stand_in := parts(label)[2])), "")

    def name_of(self, plan: Plan, row: PlanRow) -> str:
        """A row's label, with what stands in for a part of its method: `GIFT, retrieved images`."""
        return ", ".join(filter(None, [row.label_at(self.record.setup), self.stand_in(plan, row)]))

    def labelled(self, plan: Plan) -> pd.DataFrame:
        """The tidy table of a plan's runs, sequence by sequence, labelled with the names of its rows."""
        names = {row.label: self.name_of(plan, row) for row in plan.rows}
        places = {sequence: place for place, sequence in enumerate(self.record.sequences(plan.name))}
        runs = self.runs(plan.name).sort_values("sequence", key=lambda column: column.map(places), kind="stable")
        frame = self.rows_of(list(runs["run"]))
        return frame.assign(label=frame["run"].map(dict(zip(runs["run"], runs["row"].map(names), strict=True))))

    def shows_replay(self, plan: Plan, row: PlanRow) -> bool:
        """Do GIFT's images come from the code that draws the tasks? Then its row is not what the method would do."""
        setup = plan.setup_at(self.record.setup)
        generator = row.options.get("generator", setup.by_method.get(row.method, {}).get("method.generator"))
        return row.method == "gift" and generator == "atlas" and setup.benchmark.startswith("atlas")

    def replays(self, plans: Iterable[Plan]) -> set[str]:
        """Names of the rows of these plans that show replay, where they have runs."""
        rows = [(plan, row) for plan in plans for row in plan.rows if self.shows_replay(plan, row)]
        return {self.name_of(plan, row) for plan, row in rows if len(self.runs(plan.name, row.label))}

    def without_replays(self, frame: pd.DataFrame, plans: Iterable[Plan]) -> pd.DataFrame:
        """A labelled table of these plans without rows that show replay, unless it has no others."""
        others = frame[~frame["label"].isin(self.replays(plans))]
        return frame if others.empty else others

    @cached_property
    def _spreads(self) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], pd.Series[float]] = {}
        for (_, row, setting, metric), values in self._values.items():
            for _, seeds in values.groupby(level="sequence", sort=False) if row == TASSO.label else ():
                if len(seeds) > max(2, len(found.get((setting, metric), ()))):
                    found[setting, metric] = seeds
        return {key: float(seeds.std()) for key, seeds in found.items()}

    def spread(self, setting: Setting, metric: str) -> float | None:
        """Sample standard deviation over seeds of TASSO on one sequence, from the plan with most seeds.

        None with fewer than three: two seeds say next to nothing about a spread.
        """
        return self._spreads.get((setting, metric))

    def seconds(self, row: str) -> list[float]:
        """Training times, all tasks, of the timed runs in which every task was measured."""
        times = []
        for run in self.runs("compute", row)["run"]:
            seconds = self.frame[(self.frame["run"] == run) & (self.frame["metric"] == "seconds")]["value"]
            if len(seconds) and seconds.notna().all():
                times.append(float(seconds.sum()))
        return times

    @cached_property
    def texts(self) -> pd.DataFrame:
        """Median distances between images and class texts on S1, TASSO and SnD, from the plans alignment and seeds.

        Columns run, row, seed, task, step (0: the starting model), classes, images.
        """
        runs = self.index[self.index["plan"].isin(["alignment", "seeds"]) & (self.index["sequence"] == "S1")]
        runs = runs[runs["row"].isin([TASSO.label, SND.label])].drop_duplicates(["row", "seed"], keep="last")
        found = distances_of(self.rows_of(list(runs["run"])))
        found = found[found["run"].isin(found.loc[found["step"] > 0, "run"])].copy()
        found["classes"] = [median(values) if values else None for values in found["classes"]]
        found["images"] = [quantiles[2] for quantiles in found["quantiles"]]
        return runs.merge(found, on="run")[["run", "row", "seed", "task", "step", "classes", "images"]]

    @property
    def text_tasks(self) -> list[str]:
        """Data sets of `texts`, in the order of S1."""
        return list(self.run_table.loc[self.texts["run"].iloc[0], "order"]) if len(self.texts) else []

    def closer(self, level: str) -> pd.DataFrame:
        """How much closer to the class texts TASSO is than SnD after the last task: seeds by data sets."""
        last = self.texts[self.texts["step"] > 0]
        by_row = last.pivot(index=["row", "seed"], columns="task", values=level).reindex(columns=self.text_tasks)
        if not {TASSO.label, SND.label} <= set(last["row"]):
            return by_row.iloc[:0]
        return (by_row.loc[SND.label] - by_row.loc[TASSO.label]).dropna(how="all").dropna(axis=1, how="all")


def record_file(runs: Path) -> Path:
    """Where the record of a folder of runs, or of a study's CSV file, lies."""
    for ending in STUDY_ENDINGS:
        if runs.name.endswith(ending):
            return runs.with_name(runs.name.removesuffix(ending) + ".json")
    return runs / RECORD


def read_evaluation(runs: Path, record: Record | None = None) -> Evaluation:
    """Read the finished runs in a folder, or in a study's CSV file.

    Args:
        runs: folder that holds the runs, each under its name in the record; or the file of a study.
        record: what the runs are; by default it is read from the file beside them.
    """
    record = record or read_record(record_file(runs))
    if record is None:
        raise ReportError(
            f"{record_file(runs)}: not found. tasso paper writes it into its folder of runs; without it, give the "
            "options with which the runs were made"
        )
    names = dict.fromkeys(name for row in record.names.values() for name in row.values())
    if runs.name.endswith(STUDY_ENDINGS):
        frame = read_study(runs)
    else:
        parts = [read_run(runs / name) for name in names if (runs / name / RESULTS).is_file()]
        frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)
    frame = frame.assign(run=frame["run"].map({run: Path(run).name for run in frame["run"].unique()}).astype(object))
    evaluation = Evaluation(record, frame[frame["finished"].astype(bool) & frame["run"].isin(names)])
    _check(evaluation, runs)
    return evaluation


def _check(evaluation: Evaluation, runs: Path) -> None:
    """Results must agree with the record."""
    plans = {plan.name: plan for plan in chosen([*GROUPS])}
    methods = {(plan.name, row.label): row.method for plan in plans.values() for row in plan.rows}
    if unknown := sorted(set(evaluation.index["plan"]) - plans.keys()):
        raise ReportError(f"{runs}: its runs are of the plan {unknown[0]!r}, which this version of tasso does not have")
    measured = evaluation.run_table.to_dict("index")
    for line in evaluation.index.itertuples():
        found, setup = measured[line.run], plans[line.plan].setup_at(evaluation.record.setup)
        found = {**found, "benchmark": found["benchmark"].partition(" (")[0]}  # all have the same conditions
        expected = {"benchmark": setup.benchmark, "split": setup.split, "sequence": line.sequence, "seed": line.seed}
        for key, value in {**expected, "method": methods.get((line.plan, line.row))}.items():
            if found[key] != value:
                raise ReportError(
                    f"{runs / str(line.run) / RESULTS}: {key} is {found[key]!r}, but its folder is that of a run "
                    f"with {value!r}"
                )
    models = sorted({found["model"] for found in measured.values()})
    if len(models) > 1:
        raise ReportError(f"{runs}: runs of different models ({', '.join(models)}) cannot be compared")
