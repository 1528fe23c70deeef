"""Tables of the plans: ours on the benchmark at hand, and the paper's numbers in columns of their own.

The paper's numbers were measured with its model on its data. They are never compared with ours by a mark or a
difference, unless the benchmark is `mtil` and the model is the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, pstdev

import pandas as pd

from tasso.data.benchmarks import BENCHMARKS
from tasso.data.sequences import rotation
from tasso.experiments.plans import DISTANCES, SND, TASSO, Plan
from tasso.report.frame import SETTINGS, Setting, costs
from tasso.report.paper.evaluation import LEVELS, Evaluation
from tasso.report.paper.published import (
    CORE,
    PublishedRow,
    PublishedTable,
    printed_row,
    printed_tables,
    published,
)
from tasso.report.paper.verdict import pair
from tasso.report.significance import sign_flip_p
from tasso.report.tables import (
    CORE_METRICS,
    SETTING_MEANINGS,
    SETTING_NAMES,
    ZERO_SHOT,
    Cell,
    Column,
    Direction,
    Metric,
    Row,
    Table,
    count_of,
    fixed,
    matrix_table,
    mean_cell,
    method_rows,
    or_none,
    seed_notes,
)
from tasso.report.templates import slug

PAPER = "paper, its own data"
PAPER_BENCHMARK, PAPER_MODEL = "mtil", "ViT-B-16-quickgelu (openai)"
Tables = dict[str, Table]  # by a name that a file can have


def tables_of(plan: Plan, evaluation: Evaluation) -> Tables:
    """All tables of a plan; ours say how many runs are missing."""
    makers: dict[str, Callable[[Plan, Evaluation], Tables]] = {
        "main": main_tables,
        "distances": grid_tables,
        "seeds": seed_tables,
        "compute": compute_tables,
        "matrices": matrix_tables,
        "alignment": alignment_tables,
        "datasets": data_set_tables,
        "sequences": sequence_tables,
    }
    tables = makers.get(plan.name, ablation_tables)(plan, evaluation)
    missing, wanted = evaluation.missing(plan.name)
    if not missing:
        return tables
    note = f"{missing} of {count_of(wanted, 'run')} missing; a dash stands for what is not there yet."
    ours = {name: table for name, table in tables.items() if not name.startswith("paper-")}
    return tables | {name: replace(table, notes=(*table.notes, note)) for name, table in ours.items()}


# -- the main tables: eight methods, eight sequences ---------------------------------------------------------------


def main_tables(plan: Plan, evaluation: Evaluation) -> Tables:
    """One table per setting and metric, then the paper's own two."""
    tables = {
        f"main-{setting}-{slug(metric.key)}": _main_table(plan, evaluation, setting, metric)
        for setting in SETTINGS
        for metric in CORE_METRICS
    }
    return tables | {f"paper-main-{setting}": as_printed(published().tables[f"main-{setting}"]) for setting in SETTINGS}


def _main_table(plan: Plan, evaluation: Evaluation, setting: Setting, metric: Metric) -> Table:
    """One metric in one setting: methods in rows, sequences in columns, then their mean and the paper's.

    A single sequence needs no mean, and stands beside the same one of the paper, if the paper has it.
    """
    (printed,) = printed_tables("main", setting)
    sequences = evaluation.record.sequences(plan.name)
    values = [evaluation.values(plan.name, row.label, setting, metric.key) for row in plan.rows]
    ours = [
        _best_marked([mean_cell(row[row.index.get_level_values("sequence") == name]) for row in values], metric.better)
        for name in sequences
    ]
    means = _best_marked([_over_sequences(row, sequences) for row in values], metric.better)
    several = len(sequences) > 1
    ours += [means] if several else []
    theirs = sequences[0] if len(sequences) == 1 and sequences[0] in printed.columns else "Mean"
    heading = theirs.replace("Mean", "mean")
    paper = [_printed_cell(printed.find(row.printed, metric.key), printed.columns.index(theirs)) for row in plan.rows]
    columns = [Column(name, metric.better) for name in (*sequences, *(["Mean"] if several else []))]
    columns += [Column(f"{PAPER}: {heading}", metric.better, apart=True)]
    grid = [*ours, paper]
    if comparable(evaluation):
        columns.append(Column(f"ours less paper: {heading}"))
        grid.append(_differences(means, paper))
    rows = []
    if metric.key == "accuracy" and len(evaluation.runs(plan.name)):
        zero_shot = Cell(_zero_shot(evaluation, plan, setting))
        rows.append(Row((Cell(ZERO_SHOT), *[zero_shot] * len(ours), *[Cell(None)] * (len(columns) - len(ours)))))
    rows += _rows(plan, evaluation, grid)
    notes = [f"{SETTING_NAMES[setting]}: {SETTING_MEANINGS[setting]}. {metric.name}: {metric.meaning}. In percent."]
    notes += _seed_notes(values) + _runner_up(plan, evaluation, setting, metric, means)
    notes += _paper_notes(evaluation, printed)
    title = f"{SETTING_NAMES[setting]} {metric.name.lower()} on {evaluation.where}"
    return Table(title, (Column("Method", numeric=False), *columns), tuple(rows), tuple(notes))


def _rows(plan: Plan, evaluation: Evaluation, grid: Sequence[list[Cell]]) -> list[Row]:
    """The rows of a plan, from columns of cells."""
    return method_rows([evaluation.name_of(plan, row) for row in plan.rows], grid)


def _zero_shot(evaluation: Evaluation, plan: Plan, setting: Setting) -> float:
    """Accuracy of the starting model; the order of the tasks does not change it."""
    frame = evaluation.frame[evaluation.frame["run"].isin(evaluation.runs(plan.name)["run"])]
    rows = frame[(frame["setting"] == setting) & (frame["step"] == 0) & (frame["metric"] == "accuracy")]
    return float(rows.groupby("run")["value"].mean().mean())


def _runner_up(
    plan: Plan, evaluation: Evaluation, setting: Setting, metric: Metric, means: Sequence[Cell]
) -> list[str]:
    """The best mean against the second best, pair by pair."""
    numbers = {row.label: cell.value for row, cell in zip(plan.rows, means, strict=True)}
    measured = {label: value for label, value in numbers.items() if isinstance(value, int | float)}
    ranked = sorted(measured, key=lambda label: measured[label], reverse=metric.better == "up")
    if len(ranked) < 2:
        return []
    first, second = (evaluation.values(plan.name, label, setting, metric.key) for label in ranked[:2])
    paired = pair(first, second, metric.key)
    if paired is None or len(paired.leads) < 2:
        return []
    gap = fixed(paired.mean, 2)
    words = f"level with {ranked[1]}" if float(gap) == 0 else f"better than {ranked[1]} by {gap}"
    pairs = count_of(len(paired.leads), paired.unit)
    return [
        f"Best mean against runner-up: {ranked[0]} is {words} on average and better in {paired.ahead} of {pairs} "
        f"(sign-flip test, two-sided: p = {fixed(sign_flip_p(paired.leads), 3)})."
    ]


# -- ablations, the grid of distances, seeds -----------------------------------------------------------------------


def ablation_tables(plan: Plan, evaluation: Evaluation) -> Tables:
    """One table per setting."""
    return {f"{plan.name}-{setting}": _ablation_table(plan, evaluation, setting) for setting in SETTINGS}


def _ablation_table(plan: Plan, evaluation: Evaluation, setting: Setting) -> Table:
    """Three metrics of every row, and the same three as the paper prints them."""
    values = {
        metric.key: [evaluation.values(plan.name, row.label, setting, metric.key) for row in plan.rows]
        for metric in CORE_METRICS
    }
    sequences = evaluation.record.sequences(plan.name)
    ours = [
        _best_marked([_over_sequences(row, sequences) for row in values[metric.key]], metric.better)
        for metric in CORE_METRICS
    ]
    columns = [Column("Row", numeric=False), Column("Runs")]
    columns += [Column(metric.name, metric.better) for metric in CORE_METRICS]
    grid = [[Cell(len(evaluation.runs(plan.name, row.label)), digits=0) for row in plan.rows], *ours]
    printed = [printed_row(plan.name, row, setting) for row in plan.rows]
    shows_paper = sum(row is not None for row in printed) > 1
    if shows_paper:
        paper = [[_printed_cell(row, index) for row in printed] for index in range(len(CORE))]
        columns += [Column(f"{PAPER}: {metric.name.lower()}", metric.better, apart=True) for metric in CORE_METRICS]
        grid += paper
        if comparable(evaluation):
            columns += [Column(f"ours less paper: {metric.name.lower()}") for metric in CORE_METRICS]
            grid += [_differences(*both) for both in zip(ours, paper, strict=True)]
    notes = [_where_note(plan, evaluation, setting), *_seed_notes(values["accuracy"])]
    notes += _paper_notes(evaluation, printed_tables(plan.name, setting)[0]) if shows_paper else []
    return Table(_titled(plan, evaluation, setting), tuple(columns), tuple(_rows(plan, evaluation, grid)), tuple(notes))


def grid_tables(plan: Plan, evaluation: Evaluation) -> Tables:
    """Distance outside (rows) by distance inside the subspace (columns), one table per metric and setting."""
    names = {sign: "none" if sign == "✗" else sign for sign in DISTANCES}
    tables: Tables = {}
    for setting in SETTINGS:
        for metric in CORE_METRICS:
            values = [evaluation.values(plan.name, row.label, setting, metric.key) for row in plan.rows]
            cells = _best_marked(list(map(mean_cell, values)), metric.better)
            at = {(row.cells["f⊥"], row.cells["f∥"]): cell for row, cell in zip(plan.rows, cells, strict=True)}
            columns = [Column("Outside", numeric=False), *(Column(f"inside {name}") for name in names.values())]
            printed = published().tables[f"kd-grid-{metric.key}"] if setting == "mtil" else None
            columns += [Column(f"{PAPER}: inside {name}", apart=True) for name in names.values()] if printed else []
            rows = [
                Row((Cell(f"outside {name}"), *(at[sign, inside] for inside in names),
                     *_printed_cells(printed, DISTANCES[sign])))
                for sign, name in names.items()
            ]  # fmt: skip
            what = f"{SETTING_NAMES[setting]} {metric.name.lower()}"
            better = "higher is better" if metric.better == "up" else "lower is better"
            notes = [f"{what} in percent, {better}; the best of the nine is marked.", *_seed_notes(values)]
            notes += _paper_notes(evaluation, printed) if printed else []
            title = f"{plan.title}: {what} on {evaluation.where}"
            table = Table(title, tuple(columns), tuple(rows), tuple(notes))
            tables[f"distances-{setting}-{slug(metric.key)}"] = table
    return tables


def seed_tables(plan: Plan, evaluation: Evaluation) -> Tables:
    """Seed by seed, then mean and standard deviation, for each row of the plan."""
    tables: Tables = {}
    for setting in SETTINGS:
        printed = published().tables["seeds"] if setting == "mtil" else None
        shown = [(row.label, metric) for row in plan.rows for metric in CORE_METRICS]
        columns = [Column(f"{label}: {metric.name.lower()}", metric.better) for label, metric in shown]
        if printed:
            columns += [Column(f"{PAPER}: TASSO {m.name.lower()}", m.better, apart=True) for m in CORE_METRICS]
        found = [
            evaluation.values(plan.name, label, setting, metric.key).droplevel("sequence") for label, metric in shown
        ]
        rows = [
            Row((Cell(str(seed)), *(Cell(values.get(seed)) for values in found), *_printed_cells(printed, str(seed))))
            for seed in evaluation.record.seeds(plan.name)
        ]
        for key, of in (("mean", fmean), ("std", pstdev)):
            cells = [Cell(of(values) if len(values) > 1 else None) for values in found]
            line = (Cell(key.capitalize()), *cells, *_printed_cells(printed, key))
            rows.append(Row(line, starts_block=key == "mean"))
        notes = [
            f"{_where_note(plan, evaluation, setting)} "
            "The standard deviation is the paper's, with n in the denominator; other tables have n - 1."
        ]
        notes += _paper_notes(evaluation, printed) if printed else []
        title = _titled(plan, evaluation, setting)
        columns = [Column("Seed", numeric=False), *columns]
        tables[f"seeds-{setting}"] = Table(title, tuple(columns), tuple(rows), tuple(notes))
    return tables


# -- time and memory, single domains, data sets, sequences ---------------------------------------------------------


def compute_tables(plan: Plan, evaluation: Evaluation) -> Tables:
    """Training time, speed and memory of the timed runs, and the arithmetic of a step."""
    printed, arithmetic = published().tables["compute"], evaluation.record.arithmetic
    columns = [Column("Row", numeric=False), Column("Training (s)", "down"), Column("Images per second", "up")]
    columns += [Column("Peak memory (GiB)", "down"), Column("TFLOP per step", "down")]
    columns += [Column(f"{PAPER}: {name}", numeric=False, apart=True) for name in printed.columns]
    rows = []
    classes = set()
    for row in plan.rows:
        run = next(iter(evaluation.runs(plan.name, row.label)["run"]), None)
        paper = printed.find(row.printed)
        texts = [None] * len(printed.columns) if paper is None else paper.values
        counted = arithmetic.get(next(iter(evaluation.record.names.get((plan.name, row.label), {}).values()), ""))
        classes |= {counted.classes} if counted else set()
        tflop = Cell(None if counted is None else counted.tflop, digits=4)
        cells = (*_costs(evaluation, run), tflop, *(Cell(text) for text in texts))
        rows.append(Row((Cell(row.label), *cells), label=row.label))
    sequences = ", ".join(evaluation.record.sequences(plan.name))
    notes = [f"One run each that had the machine to itself: all tasks of {sequences}, training only."]
    if classes:
        notes.append(
            "TFLOP per step: 10¹² multiplications and additions, counted in one step of the second of two tasks with "
            f"{' or '.join(map(str, sorted(classes)))} classes, teachers included. The paper does not say what its "
            "TFLOPs are of."
        )
    notes += _paper_notes(evaluation, printed)
    return {"compute": Table(f"Time and memory on {evaluation.where}", tuple(columns), tuple(rows), tuple(notes))}


def _costs(evaluation: Evaluation, run: str | None) -> tuple[Cell, Cell, Cell]:
    """Seconds, images per second and GiB; a sum over tasks needs all of them."""
    found = costs(evaluation.frame[evaluation.frame["run"] == run])
    seconds = found["seconds"].sum(skipna=False) if len(found) else None
    images = (found["seconds"] * found["images_per_second"]).sum(skipna=False)
    memory = found["peak_memory_bytes"].max() / 2**30
    speed = None if seconds is None else images / seconds
    return Cell(or_none(seconds), digits=1), Cell(or_none(speed), digits=0), Cell(or_none(memory))


def matrix_tables(plan: Plan, evaluation: Evaluation) -> Tables:
    """Our matrix of each row in each setting, and the paper's: the domains differ, so they are tables of their own."""
    tables: Tables = {}
    for setting in SETTINGS:
        for line in evaluation.runs(plan.name).itertuples():
            table = matrix_table(evaluation.rows_of([line.run]), setting)
            what = f"{line.row}, {line.sequence}, seed {line.seed}"
            title = f"{what}: {SETTING_NAMES[setting]} accuracy on {evaluation.where}"
            name = f"matrix-{setting}-{slug(line.row)}-{line.sequence}-{line.seed}"
            tables[name] = replace(table, title=title)
        tables[f"paper-matrix-{setting}"] = as_printed(published().tables[f"matrix-{setting}"])
    return tables


def data_set_tables(plan: Plan, evaluation: Evaluation) -> Tables:
    """Classes and images of the benchmark at hand, and of the paper's."""
    benchmark = BENCHMARKS[evaluation.record.setup.benchmark]
    columns = (Column("Data set", numeric=False), Column("Classes"), Column("Training"), Column("Test"))
    rows = []
    for data_set in (*benchmark.data_sets, benchmark.reference):
        is_reference = data_set is benchmark.reference
        # A benchmark's whole reference list may be longer than what is used of it; 0 classes means none are known.
        sizes = [data_set.classes or None, data_set.train, data_set.test or None]
        name = f"{data_set.name} (reference images)" if is_reference else data_set.name
        rows.append(Row((Cell(name), *(Cell(size, digits=0) for size in sizes)), starts_block=is_reference))
    note = f"{benchmark.summary[0].upper()}{benchmark.summary[1:]}."
    ours = Table(f"Data sets of {benchmark.name}", columns, tuple(rows), (note,))
    return {"datasets": ours, "paper-datasets": as_printed(published().tables["datasets"])}


def sequence_tables(plan: Plan, evaluation: Evaluation) -> Tables:
    """The rotations of the benchmark at hand, and those of the paper."""
    benchmark = evaluation.record.setup.benchmark
    tasks = BENCHMARKS[benchmark].tasks
    numbers = range(1, len(tasks) + 1)
    columns = [Column("Sequence", numeric=False), *(Column(f"Task {number}", numeric=False) for number in numbers)]
    rows = [Row((Cell(f"S{number}"), *(Cell(name) for name in rotation(tasks, number)))) for number in numbers]
    ours = Table(f"Sequences of {benchmark}", tuple(columns), tuple(rows))
    return {"sequences": ours, "paper-sequences": as_printed(published().tables["sequences"])}


# -- class texts and images ------------------------------------------------------------------------------------------


def alignment_tables(plan: Plan, evaluation: Evaluation) -> Tables:
    """Median distance of each data set, TASSO beside SnD; the paper prints no such numbers, it draws them."""
    names, digits = {"classes": "class means", "images": "images"}, 4
    texts = evaluation.texts
    tasks = evaluation.text_tasks or list(BENCHMARKS[evaluation.record.setup.benchmark].tasks)
    shown = [(level, name) for level in LEVELS for name in (ZERO_SHOT, TASSO.label, SND.label)]
    columns = [Column("Data set", numeric=False), *(Column(f"{names[level]}: {name}", "down") for level, name in shown)]
    rows = []
    for task in tasks:
        cells = [Cell(task)]
        for level in LEVELS:
            here = texts[texts["task"] == task].dropna(subset=level)
            start, last = here[here["step"] == 0][level], here[here["step"] > 0]
            cells.append(Cell(next(iter(start), None), digits=digits))
            learned = [mean_cell(last[last["row"] == row][level], digits) for row in (TASSO.label, SND.label)]
            cells += _best_marked(learned, "down")
        rows.append(Row(tuple(cells)))
    notes = [
        "Medians of 1 − cosine after the last task of S1; lower is closer. Class means: the text of a class against "
        "the mean of its images, as the paper draws it. Images: each image against the text of its class."
    ]
    counts = sorted({texts[texts["row"] == row]["seed"].nunique() for row in (TASSO.label, SND.label)})
    notes += seed_notes(counts) if counts[-1] > 1 else []
    for level in LEVELS:
        if len(leads := evaluation.closer(level).mean()):
            won = int((leads > 0).sum())
            notes.append(f"By {names[level]}, TASSO is closer on {won} of {count_of(len(leads), 'data set')}.")
    return {"alignment": Table(f"{plan.title} on {evaluation.where}", tuple(columns), tuple(rows), tuple(notes))}


# -- cells and notes -------------------------------------------------------------------------------------------------


def comparable(evaluation: Evaluation) -> bool:
    """Are these runs of the paper's whole benchmark with the paper's model? Only then is a difference shown."""
    setup = evaluation.record.setup
    cut = any(setup.common.get(key) for key in ("limit_tasks", "test_per_class"))
    whole = not cut and setup.common.get("check_counts", True) and setup.split == "test"
    return bool(whole) and (setup.benchmark, evaluation.model) == (PAPER_BENCHMARK, PAPER_MODEL)


def as_printed(table: PublishedTable) -> Table:
    """A table of the paper by itself, with the paper's own marks."""
    names = {metric.key: metric.name for metric in CORE_METRICS}
    columns = [Column("Metric", numeric=False)] if any(row.metric for row in table.rows) else []
    columns.append(Column("Row", numeric=False))
    for index, name in enumerate(table.columns):
        numeric = all(row.values[index][:1].isdigit() for row in table.rows)
        columns.append(Column(names.get(name, name), numeric=numeric, apart=True))
    rows: list[Row] = []
    for row in table.rows:
        first = (Cell(names[row.metric]),) if row.metric else ()
        previous = table.rows[len(rows) - 1] if rows else row
        name = 'TASSO (printed as "Ours")' if row.name == "Ours" else row.name
        cells = (_printed_cell(row, index) for index in range(len(table.columns)))
        rows.append(Row((*first, Cell(name), *cells), starts_block=row.metric != previous.metric))
    return Table(f"Paper, its own data: {table.reference}", tuple(columns), tuple(rows), (table.caption,))


def _printed_cell(row: PublishedRow | None, index: int) -> Cell:
    """A value of the paper, with its digits and its mark; a dash where it has none."""
    if row is None:
        return Cell(None)
    text, bold = row.values[index], index in row.bold
    try:
        cell = Cell(float(text), digits=len(text.partition(".")[2]), best=bold)
    except ValueError:
        return Cell(text, best=bold)
    return cell if cell.main == text else Cell(text, best=bold)


def _printed_cells(table: PublishedTable | None, key: str) -> list[Cell]:
    return [] if table is None else [_printed_cell(table.find(key), index) for index in range(len(table.columns))]


def _over_sequences(values: pd.Series[float], sequences: Sequence[str]) -> Cell:
    """Mean over the sequences, if all are there; ± over seeds, if each seed has all of them."""
    table = values.unstack("seed").reindex(sequences)
    means = table.mean(axis=1)
    if means.isna().any() or not len(means):
        return Cell(None)
    whole = len(table.columns) > 1 and not table.isna().any(axis=None)
    return Cell(fmean(means), float(table.mean().std()) if whole else None)


def _best_marked(cells: Sequence[Cell], better: Direction) -> list[Cell]:
    """Mark the best of ours, compared as shown, where there are at least two."""
    numbers = [float(cell.main) for cell in cells if cell.value is not None]
    if len(numbers) < 2:
        return list(cells)
    best = max(numbers) if better == "up" else min(numbers)
    return [replace(cell, best=cell.value is not None and float(cell.main) == best) for cell in cells]


def _differences(ours: Sequence[Cell], paper: Sequence[Cell]) -> list[Cell]:
    """Ours less the paper's."""
    pairs = [(one.value, other.value) for one, other in zip(ours, paper, strict=True)]
    return [Cell(a - b if isinstance(a, int | float) and isinstance(b, int | float) else None) for a, b in pairs]


def _titled(plan: Plan, evaluation: Evaluation, setting: Setting) -> str:
    end = "" if plan.title.endswith("?") else ":"
    return f"{plan.title}{end} {SETTING_NAMES[setting]} on {evaluation.where}"


def _where_note(plan: Plan, evaluation: Evaluation, setting: Setting) -> str:
    return f"{SETTING_NAMES[setting]}, {', '.join(evaluation.record.sequences(plan.name))}. In percent."


def _seed_notes(values: Sequence[pd.Series[float]]) -> list[str]:
    return seed_notes(row.index.get_level_values("seed").nunique() for row in values if len(row))


def _paper_notes(evaluation: Evaluation, table: PublishedTable) -> list[str]:
    same = comparable(evaluation)
    whose = "the same benchmark and model as ours" if same else "another model and other data than ours"
    marks = "Marks are set in ours and in theirs apart."
    return [f'Columns headed "{PAPER}" are printed in {table.reference}: {whose}. {marks}']
