"""Write what the documentation shows from the results: `python tools/results_page.py`.

In results/README.md, README.md and docs/results/index.md, text between the markers `<!-- table NAME -->` and
`<!-- end -->` is replaced; everything else is kept. Of every folder in results/paper (see tools/keep_results.py) the
report is written to docs/results, with the plans that have all their runs; `<!-- table main-FOLDER -->` are the means
of its main tables, if they are among them, and `<!-- table verdict-FOLDER -->` is its verdict. `--check` only says what
is not up to date. It leaves out the figures, whose bytes depend on the version of matplotlib.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from tasso.experiments.plans import PLANS, SEQUENCES, Plan
from tasso.report import combined_table, read_runs, to_markdown
from tasso.report.collect import SETTINGS, RunResult, Setting
from tasso.report.paper.evidence import Evidence, gather
from tasso.report.paper.figures import FOLDER, draw_figures
from tasso.report.paper.record import read_record
from tasso.report.paper.report import verdict_table, write_again
from tasso.report.tables import ZERO_SHOT

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
EVALUATIONS, REPORTS = RESULTS / "paper", ROOT / "docs" / "results"
PAGES = (RESULTS / "README.md", ROOT / "README.md", REPORTS / "index.md")
METRICS = {"accuracy": "↑", "forgetting": "↓", "zero-shot-degradation": "↓"}
COLUMNS = [(setting, metric, better) for setting, (metric, better) in product(SETTINGS, METRICS.items())]
MARKED = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def runs(folder: str) -> str:
    """The paper's three metrics in both settings, mean ± std over seeds."""
    found = sorted(read_runs([RESULTS / folder]), key=lambda run: run.setting("mtil").metrics["accuracy"] or 0)
    return to_markdown(combined_table(found))


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
    found = {run.tasks[0]: run.setting("mtil") for run in read_runs([RESULTS / "atlas-single"])}
    measured = {
        "zero-shot": [part.zero_shot[0] for part in found.values()],
        "fine-tuned": [part.matrix[0][0] for part in found.values()],
    }
    rows = [[title, *(f"{value:.1f}" for value in (*values, fmean(values)))] for title, values in measured.items()]
    return markdown(["", *found, "mean"], rows)


def learning_rates(file: str) -> str:
    """MTIL accuracy on S2 at each learning rate tried; the best of each method in bold."""
    found: list[dict[str, Any]] = json.loads((RESULTS / file).read_text(encoding="utf-8"))
    rates = sorted({run["lr"] for run in found})
    rows = []
    for label in sorted({run["label"] for run in found}):
        values = {run["lr"]: run["mtil"]["accuracy"] for run in found if run["label"] == label}
        best = max(values.values())
        rows.append([label, *("" if rate not in values else cell(values[rate], best) for rate in rates)])
    return markdown(["method", *(f"{rate:.0e}".replace("e-0", "e-") for rate in rates)], rows)


def reasons() -> str:
    """What might explain a method's row of the main tables, taken away or changed: means over the sequences."""
    main, changed = EVALUATIONS / "mtil-mini", RESULTS / "paper-reasons"
    rows = {
        "iCaRL, memory of 10,000 images": main.glob("icarl-S*"),
        "iCaRL, memory of 3,307": (changed / "icarl-smaller-memory").iterdir(),
        "GIFT, images from all of the corpus": main.glob("gift-S*"),
        "GIFT, none from sources named like the tasks": (changed / "gift-other-images").iterdir(),
        "ZSCL, learning rate 3e-5": main.glob("zscl-S*"),
        "ZSCL, learning rate 1e-5": (changed / "zscl-smaller-rate").iterdir(),
    }
    cells = [[name, *(f"{value:.2f}" for value in mean_metrics(folders))] for name, folders in rows.items()]
    return markdown(["", *(heading(*column) for column in COLUMNS)], cells)


def mean_metrics(folders: Iterable[Path]) -> list[float]:
    """The six metrics of the main tables, in the mean over runs with one seed on all eight sequences."""
    found = read_runs(sorted(folders))
    assert sorted(run.sequence for run in found) == list(SEQUENCES)

    def measured(run: RunResult, setting: Setting, metric: str) -> float:
        value = run.setting(setting).metrics[metric.replace("-", "_")]
        assert value is not None, f"{run.path} is finished"
        return value

    return [fmean(measured(run, setting, metric) for run in found) for setting, metric, _ in COLUMNS]


def heading(setting: str, metric: str, better: str) -> str:
    """Of a column with one metric in one setting."""
    return f"{setting.upper()} {metric.replace('-degradation', ' degradation')} {better}"


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with names in the first column and numbers in the others."""
    rule = "|---|" + "--:|" * (len(headings) - 1)
    first, *others = ("| " + " | ".join(cells) + " |" for cells in (headings, *rows))
    return "\n".join([first, rule, *others])


def cell(value: float, best: float | None) -> str:
    """A number, the best one in bold."""
    return f"**{value:.2f}**" if value == best else f"{value:.2f}"


TABLES: dict[str, Callable[[], str]] = {
    "mtil-mini-nano-clip": lambda: runs("mtil-mini-nano-clip"),
    "mtil-mini-nano": lambda: runs("mtil-mini-nano"),
    "baselines-s1": lambda: runs("baselines-s1"),
    "baselines-learning-rates": lambda: learning_rates("baselines-learning-rates.json"),
    "paper-learning-rates": lambda: learning_rates("paper-learning-rates.json"),
    "zscl-mean-every-30": lambda: learning_rates("zscl-mean-every-30.json"),
    "paper-reasons": reasons,
    "mtil-mini-cpu": lambda: runs("mtil-mini-cpu"),
    "nano-zips": lambda: zero_shot("zips"),
    "nano-drawn": lambda: zero_shot("drawn"),
    "atlas-single": single,
    "atlas-s1": lambda: runs("atlas-s1"),
    "demo-learning-rates": lambda: runs("demo-learning-rates"),
    "demo": lambda: runs("demo"),
}


def evaluations() -> list[str]:
    """Names of the committed evaluations."""
    return sorted(path.name for path in EVALUATIONS.iterdir() if path.is_dir()) if EVALUATIONS.is_dir() else []


def complete(name: str) -> tuple[list[Plan], Evidence]:
    """The plans that an evaluation has all runs of, and its runs. The verdict says what the others leave untested."""
    record = read_record(EVALUATIONS / name)
    assert record is not None, f"{EVALUATIONS / name} comes from tools/keep_results.py, which copies the record"
    setup, names = record
    evidence = gather(tuple(PLANS.values()), setup, EVALUATIONS / name, names)
    return [plan for plan in PLANS.values() if not evidence.missing(plan)[0]], evidence


def write_reports(folder: Path) -> dict[str, str]:
    """The report of every committed evaluation into `folder`; returns verdicts and means as tables, by name."""
    found = {}
    for name in evaluations():
        plans, _ = complete(name)
        if left_out := [plan.name for plan in PLANS.values() if plan not in plans]:
            print(f"{name}: runs are missing, so these plans are left out: {', '.join(left_out)}")
        shutil.rmtree(folder / name, ignore_errors=True)  # tables of plans that are no longer there
        verdicts = write_again(plans, EVALUATIONS / name, folder / name, figures=False)
        found[f"verdict-{name}"] = to_markdown(verdict_table(verdicts))
        if PLANS["main"] in plans:
            found[f"main-{name}"] = main_means(folder / name / "tables")
    return found


def main_means(tables: Path) -> str:
    """Means over the sequences of the six main tables, or the values of the only one; the best of each in bold."""
    columns: dict[str, dict[str, float]] = {}
    for setting, metric, better in COLUMNS:
        with (tables / f"main-{setting}-{metric}.csv").open(encoding="utf-8", newline="") as file:
            first, *rows = csv.reader(file)
        ours = first.index("Mean") if "Mean" in first else 1  # the only sequence stands next to the names
        columns[heading(setting, metric, better)] = {row[0]: float(row[ours]) for row in rows if row[ours]}
    lines = []
    for method in next(iter(columns.values())):
        cells = []
        for title, values in columns.items():
            learned = [value for name, value in values.items() if name != ZERO_SHOT]
            best = (max if title.endswith("↑") else min)(learned, default=None)
            cells.append(cell(values[method], best) if method in values else "–")
        lines.append([method, *cells])
    return markdown(["method", *columns], lines)


def write_figures(name: str) -> None:
    """The figures of an evaluation as PNG, for the pages that show them."""
    with tempfile.TemporaryDirectory() as place:
        draw_figures(*complete(name), Path(place))
        target = REPORTS / name / FOLDER
        target.mkdir(parents=True)
        for figure in sorted((Path(place) / FOLDER).glob("*.png")):
            shutil.copyfile(figure, target / figure.name)


def render(text: str, more: Mapping[str, str]) -> str:
    """The page with every table made anew."""

    def table(name: str) -> str:
        return more[name] if name in more else TABLES[name]()

    return MARKED.sub(lambda found: f"{found[1]}{table(found['name']).strip()}\n{found[3]}", text)


def differing(one: Path, other: Path) -> list[str]:
    """Files that are not the same in both folders."""
    files = {
        path.relative_to(folder)
        for folder in (one, other)
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != FOLDER
    }

    def content(folder: Path, file: Path) -> bytes | None:
        return (folder / file).read_bytes() if (folder / file).is_file() else None

    return [str(file) for file in sorted(files) if content(one, file) != content(other, file)]


def main() -> None:
    """Rewrite the pages and reports, or with --check only say which is not up to date."""
    check = "--check" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as place:
        tables = write_reports(Path(place) if check else REPORTS)
        for name in evaluations() if check else ():
            if wrong := differing(Path(place) / name, REPORTS / name):
                sys.exit(f"docs/results/{name}/{wrong[0]} is not what the results say: run tools/results_page.py")
    for name in () if check else evaluations():
        write_figures(name)
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = render(before, tables)
        if before == after:
            continue
        if check:
            sys.exit(f"{page.relative_to(ROOT)} is not what the results say: run tools/results_page.py")
        page.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
