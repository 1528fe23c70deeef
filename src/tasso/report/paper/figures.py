"""The paper's figures, and a few more of the same runs: not one for every run, of which there may be hundreds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasso.experiments.plans import SND, TASSO, Plan
from tasso.report.collect import RunResult
from tasso.report.distances import measured
from tasso.report.figures.write import Figure, of_comparison, of_distances, of_run, save_figures
from tasso.report.groups import compare
from tasso.report.markup import slug
from tasso.report.paper.evidence import Evidence
from tasso.report.paper.shown import closely, shown_runs
from tasso.report.paper.texts import gathered

FOLDER = "figures"


@dataclass(frozen=True)
class Drawn:
    """A figure that belongs to a plan; the files are `name` with .png and .pdf in the folder of figures."""

    plan: str
    name: str
    caption: str


def draw_figures(plans: Sequence[Plan], evidence: Evidence, out: Path) -> list[Drawn]:
    """Draw what these plans show into `figures`; one that belongs to two plans is drawn once."""
    planned = [(plan.name, figure) for plan in plans for figure in _figures(plan, evidence)]
    written = {path.stem for path in save_figures(_each_once(planned), out / FOLDER)}
    return [Drawn(plan, figure.name, figure.caption) for plan, figure in planned if figure.name in written]


def _each_once(planned: Sequence[tuple[str, Figure]]) -> list[Figure]:
    return list({figure.name: figure for _, figure in planned}.values())


def _figures(plan: Plan, evidence: Evidence) -> list[Figure]:
    runs = shown_runs(evidence)
    if plan.name == "main" and evidence.every_run([plan]):
        return _main(closely(runs), _colours(runs))
    if plan.name == "matrices":
        return [_matrix(replace(run, label=TASSO.label)) for run in evidence.of(plan.name, TASSO.label).values()]
    return _alignment(evidence, _colours(runs)) if plan.name == "alignment" else []


def _colours(runs: Sequence[RunResult]) -> Mapping[str, int]:
    """Numbers of colours by label, the same as on the page."""
    return {label: number for number, label in enumerate(dict.fromkeys(run.label for run in runs))}


def _main(runs: Sequence[RunResult], colours: Mapping[str, int]) -> list[Figure]:
    """Of the first sequence: accuracies over it, the trade-off, and one matrix a method."""
    (comparison,) = compare(runs)
    first = {run.label: run for run in reversed(runs)}
    drawn = list(of_comparison(comparison, slug(f"{comparison.benchmark} {comparison.order}"), colours))
    return drawn + [_matrix(first[group.label]) for group in comparison.groups]


def _matrix(run: RunResult) -> Figure:
    return of_run(run, f"matrix-{slug(run.label)}-{slug(run.order)}-{run.seed}")


def _alignment(evidence: Evidence, colours: Mapping[str, int]) -> list[Figure]:
    """TASSO against SnD after the last task of S1."""
    texts = gathered(evidence)
    runs = [
        replace(run, label=row.label)
        for row, by_seed in ((TASSO, texts.ours), (SND, texts.theirs))
        for seed, run in by_seed.items()
        if seed in texts.seeds
    ]
    if not runs:
        return []
    (comparison,) = compare(runs)
    found = measured(comparison)
    if found is None:
        return []
    pair = (TASSO.label, SND.label)
    known = {label: colours.get(label, number) for number, label in enumerate(pair)}
    if known[pair[0]] == known[pair[1]]:
        known = {label: number for number, label in enumerate(pair)}
    return list(of_distances(comparison, found, pair, slug(f"{comparison.benchmark} {comparison.order}"), known))
