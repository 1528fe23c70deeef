"""Write the tables of the documentation from the results: `python tools/results_page.py`.

In the pages listed as PAGES, text between the markers `<!-- table NAME -->` and `<!-- end -->` is replaced; everything
else is kept. `--check` only says which page is not up to date. `--figures` also draws the figures that
docs/results/index.md and README.md show. Whole reports are built with the site (`make docs`).
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean

import pandas as pd

import growth_page
from tasso.experiments.plans import BEYOND, BOTH_TOWERS, PLANS, SEQUENCES
from tasso.report.figures.write import save_figures, task_curves
from tasso.report.formats import to_markdown
from tasso.report.frame import SETTINGS, Setting, accuracies, by_tasks, compare, metrics, run_table
from tasso.report.looks import looks
from tasso.report.paper.claims import verdicts
from tasso.report.paper.evaluation import Evaluation, read_evaluation
from tasso.report.paper.figures import FOLDER, draw_figures
from tasso.report.paper.report import verdict_table
from tasso.report.paper.tables import tables_of
from tasso.report.significance import holm, paired_differences, sign_flip_p
from tasso.report.study import STUDY_ENDINGS, read_study
from tasso.report.tables import ZERO_SHOT, combined_table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PAGE = ROOT / "docs" / "results" / "index.md"
PAGES = (
    RESULTS / "README.md",
    ROOT / "README.md",
    PAGE,
    growth_page.PAGE,
    ROOT / "docs" / "guide" / "models-and-prompts.md",
    ROOT / "docs" / "methods" / "tasso-both.md",
)
FIGURES = ("trade-off-mtil-mini-mtil", "curves-mtil-mini-s1-mtil", "boxes-classes-mtil-mini-s1")
CURVES = ROOT / "docs" / "images" / "curves-atlas.png"  # of the README: what fine-tuning forgets, and others keep
APART = (ZERO_SHOT, "GIFT, drawn images")  # rows that are not compared with the others
METRICS = {"accuracy": "↑", "forgetting": "↓", "zero_shot_degradation": "↓"}
COLUMNS = [(setting, metric, better) for setting, (metric, better) in product(SETTINGS, METRICS.items())]
MARKED = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def study_file(name: str) -> Path:
    """The file of a study."""
    return next(file for ending in STUDY_ENDINGS if (file := RESULTS / f"{name}{ending}").is_file())


def read(name: str) -> pd.DataFrame:
    """The results of a study."""
    return read_study(study_file(name))


def runs(name: str) -> str:
    """The paper's three metrics in both settings, mean ± std over seeds, by accuracy."""
    frame = read(name)
    ranked = metrics(frame, "mtil")["accuracy"].sort_values(kind="stable").index
    table = combined_table(pd.concat([frame[frame["run"] == run] for run in ranked]))
    return to_markdown(replace(table, title=by_tasks(compare(frame))[0].name))  # the text above says how it was made


def zero_shot(part: str) -> str:
    """Zero-shot accuracy of the shipped model and of the one it started from."""
    found = json.loads((RESULTS / "nano-zero-shot.json").read_text(encoding="utf-8"))[part]
    tasks = [task for task in next(iter(found.values())) if task != "mean"]
    rows = []
    for (model, measured), setting in product(found.items(), SETTINGS):
        values = [measured[task][setting] for task in tasks]
        rows.append([f"{model}, {setting.upper()}", *(f"{value:.1f}" for value in (*values, fmean(values)))])
    return markdown(["model, setting", *tasks, "mean"], rows)


def single() -> str:
    """Zero-shot and fine-tuned accuracy of each drawn domain on its own."""
    frame = read("atlas-single")
    columns = {}
    for run, line in run_table(frame).iterrows():
        column = accuracies(frame[frame["run"] == run], "mtil").iloc[:, 0]
        columns[line["order"][0]] = {"zero-shot": column.iloc[0], "fine-tuned": column.iloc[-1]}
    table = pd.DataFrame(columns)
    table["mean"] = table.mean(axis=1)
    rows = [[str(title), *(f"{value:.1f}" for value in line)] for title, line in table.iterrows()]
    return markdown(["", *table.columns], rows)


def learning_rates(name: str) -> str:
    """MTIL accuracy on S2 at each learning rate tried; the best of each method in bold."""
    table = pd.read_csv(RESULTS / f"{name}.csv").pivot(index="label", columns="lr", values="mtil_accuracy")
    rows = [
        [str(label), *("" if pd.isna(value) else cell(value, line.max()) for value in line)]
        for label, line in table.sort_index().iterrows()
    ]
    return markdown(["method", *(f"{rate:.0e}".replace("e-0", "e-") for rate in table.columns)], rows)


def reasons() -> str:
    """What might explain a method's row of the main tables, taken away or changed: means over the sequences."""
    main, changed = read_evaluation(study_file("paper-mtil-mini")), read("paper-reasons")
    before = partial(row_means, main, "main")

    def after(folder: str) -> list[float]:
        frame = changed[changed["run"].str.startswith(f"{folder}/")]
        assert sorted(run_table(frame)["sequence"]) == list(SEQUENCES)
        return [float(metrics(frame, setting)[metric].mean()) for setting, metric, _ in COLUMNS]

    rows = {
        "iCaRL, memory of 10,000 images": before("iCaRL"),
        "iCaRL, memory of 3,307": after("icarl-smaller-memory"),
        "GIFT, images from all of the corpus": before("GIFT"),
        "GIFT, none from sources named like the tasks": after("gift-other-images"),
        "ZSCL, learning rate 3e-5": before("ZSCL"),
        "ZSCL, learning rate 1e-5": after("zscl-smaller-rate"),
    }
    cells = [[name, *(f"{value:.2f}" for value in values)] for name, values in rows.items()]
    return markdown(["", *(heading(*column) for column in COLUMNS)], cells)


def row_means(evaluation: Evaluation, plan: str, row: str) -> list[float]:
    """Means of a row over its sequences, one per column; NaN if one is missing."""
    return [float(evaluation.values(plan, row, setting, metric).mean(skipna=False)) for setting, metric, _ in COLUMNS]


def with_both_towers(study: str) -> str:
    """The main tables of a study, and TASSO on both towers."""
    evaluation = read_evaluation(study_file(study))
    label = BOTH_TOWERS.label
    return best_in_bold({**main_rows(evaluation), label: row_means(evaluation, "both-towers", label)})


def parts() -> str:
    """What each part of TASSO on both towers contributes: means over sequences and seeds."""
    evaluation = read_evaluation(study_file("both-parts"))
    labels = [row.label for row in BEYOND["both-parts"].rows]
    return best_in_bold({label: row_means(evaluation, "both-parts", label) for label in labels})


def leads() -> str:
    """How far TASSO on both towers is ahead in accuracy; a pair is a sequence, with the mean over its seeds."""
    evaluation = read_evaluation(study_file("main-validated"))
    lines, p_values = [], []
    for row in PLANS["main"].rows:
        line = [evaluation.name_of(PLANS["main"], row)]
        for setting in SETTINGS:
            ours = evaluation.values("both-towers", BOTH_TOWERS.label, setting, "accuracy").to_dict()
            other = evaluation.values("main", row.label, setting, "accuracy").to_dict()
            _, found = paired_differences(ours, other)
            line += [f"{fmean(found):+.2f}", f"{sum(lead > 0 for lead in found)} of {len(found)}", ""]
            p_values.append(sign_flip_p(found, one_sided=True))
        lines.append(line)
    for number, p in enumerate(holm(p_values)):
        lines[number // 2][3 + 3 * (number % 2)] = f"{p:.3f}"
    columns = [f"{setting.upper()} {what}" for setting in SETTINGS for what in ("lead", "sequences", "p (Holm)")]
    return markdown(["against", *columns], lines)


def with_kernels() -> str:
    """Runs with Triton's kernels beside those of the main tables before: means over sequences and the same seeds."""
    before, after = read_evaluation(study_file("main-validated")), read("kernels")
    lines = []
    for label, plan in (("TASSO", "main"), (BOTH_TOWERS.label, "both-towers")):
        frame = after[(after["label"] == label) & (after["seed"] != 3)]  # the main tables have no such seed
        assert len(run_table(frame)) == 24
        means = [float(metrics(frame, setting)[metric].mean()) for setting, metric, _ in COLUMNS]
        for when, values in (("PyTorch's operations", row_means(before, plan, label)), ("kernels", means)):
            lines.append([f"{label}, {when}", *(f"{value:.2f}" for value in values)])
    columns = [f"{setting.upper()} {metric.replace('_', ' ')} {better}" for setting, metric, better in COLUMNS]
    return markdown(["", *(column.replace("zero shot", "zero-shot") for column in columns)], lines)


def own_folders() -> str:
    """Two own folders, accuracy on validation images, by the options that were tried."""
    tried = pd.read_csv(RESULTS / "own-folders-validation.csv")
    options = ["lr", "steps", "reference_batch_size"]
    lines = []
    for _, row in tried.iterrows():
        label = f"{row.label}, mirrored images" if row.mirrored else row.label
        accuracy = [f"{row[f'{setting}_accuracy']:.2f}" for setting in SETTINGS]
        lines.append([label, *(f"{row[key]:g}" for key in options), *accuracy])
    return markdown(["method", "rate", "steps", "reference images per step", "MTIL accuracy", "MCIL accuracy"], lines)


def own_folders_test() -> str:
    """What the bare command gains on two own folders: images that runs hold back, and images that none has seen."""
    found = pd.read_csv(RESULTS / "own-folders-test.csv", index_col="split_seed")
    found.loc["mean"] = found.mean()
    gains = (found["learned"] - found["zero_shot"], found["learned_further"] - found["zero_shot_further"])
    columns = (found["zero_shot"], found["learned"], gains[0], found["learned_further"], gains[1])
    headings = ["zero-shot, held back", "learned, held back", "gain", "learned, 1,880 further images", "gain"]
    lines = [[str(seed), *(f"{column[seed]:.2f}" for column in columns)] for seed in found.index]
    return markdown(["split seed", *headings], lines)


def trials(study: str) -> str:
    """Forms that were tried, each a mean over its runs: those with most runs first, by the sum of both accuracies."""
    rows = pd.read_csv(RESULTS / "trials.csv")
    rows = rows[rows["study"] == study]
    sums = rows.assign(both=rows["mtil_accuracy"] + rows["mcil_accuracy"]).groupby("form")["both"].agg(["size", "mean"])
    columns = {f"{setting}_{metric}": heading(setting, metric, better) for setting, metric, better in COLUMNS}
    if rows["incremental_average"].notna().all():
        columns["incremental_average"] = "incremental average\u00a0↑"
    lines = []
    for form in sums.sort_values(["size", "mean"], ascending=False, kind="stable").index:
        runs = rows[rows["form"] == form]
        tried = ", ".join(sorted(set(runs["sequence"]) - {"given"}))
        means = [f"{runs[column].mean():.2f}" for column in columns]
        lines.append([str(form), f"{tried} ({len(runs)})" if tried else str(len(runs)), *means])
    return markdown(["form", "runs", *columns.values()], lines)


def sizes(method: str) -> str:
    """Peak memory (and what a run announces) and time of a step, by model and what saves memory."""
    ways = {
        ("full", False): "full",
        ("full", True): "full, checkpointed",
        ("lora", False): "LoRA",
        ("lora", True): "LoRA, checkpointed",
    }
    setup = {"what": "sizes", "method": {"name": method}, "optimizer_precision": "float32"}
    models: dict[str, dict[tuple[str, bool], str]] = {}
    for entry in json.loads((RESULTS / "bench.json").read_text(encoding="utf-8")).values():
        if isinstance(entry, dict) and all(entry.get(key) == value for key, value in setup.items()):
            for row in (row for row in entry["rows"] if "error" not in row):
                models.setdefault(row["model"], {})[row["tune"], row["checkpoint_activations"]] = (
                    f"{row['peak_memory_gib']:.1f} ({row['estimated_gib']:.1f}) GiB, {row['seconds_ms']:.0f} ms"
                )
    rows = ([model, *(models[model].get(way, "not measured") for way in ways)] for model in sorted(models))
    return markdown(["model", *ways.values()], rows) if models else growth_page.NOT_RUN


def main_means(evaluation: Evaluation) -> str:
    """The main tables, in short."""
    return best_in_bold(main_rows(evaluation))


def main_rows(evaluation: Evaluation) -> dict[str, list[float | None]]:
    """Means over the sequences of the six main tables, or the values of the only one, by label."""
    tables = tables_of(PLANS["main"], evaluation)
    columns: list[dict[str, float | None]] = []
    for setting, metric, _ in COLUMNS:
        table = tables[f"main-{setting}-{metric.replace('_', '-')}"]
        names = [column.name for column in table.columns]
        ours = names.index("Mean") if "Mean" in names else 1  # the only sequence stands next to the names
        values = {row.cells[0].text: row.cells[ours].value for row in table.rows}
        columns.append({name: None if value is None else float(value) for name, value in values.items()})
    return {method: [column.get(method) for column in columns] for method in columns[0]}


def best_in_bold(rows: Mapping[str, Sequence[float | None]]) -> str:
    """One row per method with the values of COLUMNS; the best of each column in bold, but for what stands apart."""
    best = []
    for number, (_, _, better) in enumerate(COLUMNS):
        learned = [values[number] for name, values in rows.items() if name not in APART]
        best.append((max if better == "↑" else min)(value for value in learned if value is not None))
    lines = [
        [name, *("–" if value is None else cell(value, top) for value, top in zip(values, best, strict=True))]
        for name, values in rows.items()
    ]
    return markdown(["method", *(heading(*column) for column in COLUMNS)], lines)


def heading(setting: Setting, metric: str, better: str) -> str:
    """Of a column with one metric in one setting; the arrow stays on the line of the last word."""
    return f"{setting.upper()} {metric.replace('zero_shot', 'zero-shot').replace('_', ' ')}\u00a0{better}"


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with names in the first column and numbers in the others."""
    rule = "|---|" + "--:|" * (len(headings) - 1)
    first, *others = ("| " + " | ".join(cells) + " |" for cells in (headings, *rows))
    return "\n".join([first, rule, *others])


def cell(value: float, best: float) -> str:
    """A number, the best one in bold."""
    return f"**{value:.2f}**" if value == best else f"{value:.2f}"


STUDIES = (
    "mtil-mini-nano-clip", "mtil-mini-nano", "baselines-s1", "mtil-mini-cpu", "atlas-s1", "demo-learning-rates", "demo",
)  # fmt: skip
RATES = (
    "baselines-learning-rates", "paper-learning-rates", "zscl-mean-every-30", "validation-rates-4-tasks",
    "validation-rates-8-tasks",
)  # fmt: skip
# Studies of trials.csv
TRIALS = (
    "forms", "forms-after", "forms-before", "anchors", "open-directions", "references", "own-splits", "lora-rates",
    "lora", "moments", "fp8", "relearned", "new-classes", "new-classes-test", "weights", "weights-drawn",
    "weights-own", "domains", "domains-test", "own-steps", "heads-main", "heads-main-s1", "heads-domains",
    "heads-atlas", "heads-atlas-classes-12", "heads-atlas-styles", "heads-atlas-50", "heads-forms-mini",
    "heads-forms-domains",
)  # fmt: skip
EVALUATIONS = ("mtil-mini", "atlas")


def tables() -> dict[str, Callable[[], str]]:
    """What can stand between the markers, by name."""

    def of_evaluation(name: str, make: Callable[[Evaluation], str]) -> Callable[[], str]:
        return lambda: make(read_evaluation(study_file(f"paper-{name}")))

    found: dict[str, Callable[[], str]] = {
        "paper-reasons": reasons,
        "main-validated": partial(with_both_towers, "main-validated"),
        "main-validated-leads": leads,
        "both-parts": parts,
        "kernels": with_kernels,
        "own-folders": own_folders,
        "own-folders-test": own_folders_test,
        "sizes": lambda: sizes("tasso"),
        "sizes-both": lambda: sizes("tasso-both"),
        "nano-zips": lambda: zero_shot("zips"),
        "nano-drawn": lambda: zero_shot("drawn"),
        "atlas-single": single,
    }
    found |= {f"trials-{name}": lambda name=name: trials(name) for name in TRIALS}  # type: ignore[misc]
    found |= {name: lambda name=name: runs(name) for name in STUDIES}  # type: ignore[misc]
    found |= {name: lambda name=name: learning_rates(name) for name in RATES}  # type: ignore[misc]
    found["main-mtil-mini"] = of_evaluation("mtil-mini", main_means)
    found["main-atlas"] = partial(with_both_towers, "paper-atlas")
    for name in EVALUATIONS:
        found[f"verdict-{name}"] = of_evaluation(name, lambda one: to_markdown(verdict_table(verdicts(one))))
    return found


def render(text: str, known: Mapping[str, Callable[[], str]]) -> str:
    """The page with every table made anew."""
    return MARKED.sub(lambda found: f"{found[1]}{known[found['name']]().strip()}\n{found[3]}", text)


def write_figures() -> None:
    """The figures that the pages show."""
    growth_page.write_figures()
    with tempfile.TemporaryDirectory() as place:
        draw_figures(list(PLANS.values()), read_evaluation(study_file("paper-mtil-mini")), Path(place))
        for name in FIGURES:
            shutil.copyfile(Path(place) / FOLDER / f"{name}.png", PAGE.with_name(f"{name}.png"))
        shown = read("paper-atlas")
        [few] = compare(shown[shown["method"].isin(("finetune", "tasso", "tasso-both"))])
        save_figures(list(task_curves(few, "atlas", looks(shown))), Path(place))
        shutil.copyfile(Path(place) / "curves-atlas-mtil.png", CURVES)


def main() -> None:
    """Rewrite the pages, or with --check only say which is not up to date."""
    known = {**tables(), **growth_page.tables()}
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = render(before, known)
        if before == after:
            continue
        if "--check" in sys.argv[1:]:
            sys.exit(f"{page.relative_to(ROOT)} is not what the results say: run tools/results_page.py")
        page.write_text(after, encoding="utf-8")
    if "--figures" in sys.argv[1:]:
        write_figures()


if __name__ == "__main__":
    main()
