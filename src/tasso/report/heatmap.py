"""The accuracy matrix of a run as a coloured table: readable as an image and by a screen reader."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from tasso.report.collect import RunResult, Setting
from tasso.report.colours import heat_class
from tasso.report.markup import Html, element, join
from tasso.report.tables import DASH, ZERO_SHOT, fixed

# Above this many letters a horizontal column heading would be wider than its numbers: turn it upright.
_WIDE_NAME = 8
_MANY_TASKS = 6


def upright_names(tasks: Sequence[str]) -> bool:
    """Do the column headings stand upright?"""
    return len(tasks) > _MANY_TASKS or max(map(len, tasks)) > _WIDE_NAME


def heatmap(run: RunResult, setting: Setting, caption: Html) -> Html:
    """One table: zero-shot row on top, one row per task, the learned task of each row outlined."""
    result = run.setting(setting)
    upright = upright_names(run.tasks)
    names = [element("th", element("span", task), scope="col") for task in run.tasks]
    head = element("tr", element("td", class_="corner"), *names, element("th", "Mean", scope="col"))
    body = [_row(run, ZERO_SHOT, result.zero_shot, None)]
    for step, task in enumerate(run.tasks):
        values = result.matrix[step] if step < len(result.matrix) else None
        body.append(_row(run, f"{step + 1}. {task}", values, step))
    return element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", *body),
        class_="heat upright" if upright else "heat",
    )


def _row(run: RunResult, name: str, values: tuple[float, ...] | None, step: int | None) -> Html:
    header = element("th", name, scope="row")
    kind = "start" if step is None else None
    if values is None:  # the run has not come this far
        missing = element("td", DASH, class_="missing", title="not learned yet")
        return element("tr", header, *[missing] * (len(run.tasks) + 1), class_=kind)
    cells = []
    for column, value in enumerate(values):
        learned = column == step
        if math.isnan(value):
            cells.append(element("td", DASH, class_="missing", title="the model of this step was gone"))
            continue
        cells.append(
            element(
                "td",
                fixed(value, 1),
                element("span", " learned here", class_="sr") if learned else "",
                class_=heat_class(value) + (" learned" if learned else ""),
                data_v=fixed(value, 2),  # the script shows it, beside what the headings say
            )
        )
    mean = fmean(values)
    known = not math.isnan(mean)
    shown, exact = (fixed(mean, 1), fixed(mean, 2)) if known else (DASH, None)
    cells.append(element("td", shown, class_="mean", data_v=exact))
    return element("tr", header, *cells, class_=kind)


def heat_legend() -> Html:
    """The colour scale and the meaning of the outline."""
    steps = [element("span", str(value), class_=heat_class(value)) for value in range(0, 101, 20)]
    return element(
        "p",
        element("span", join(steps), class_="scale", role="img", aria_label="Colour scale from 0 to 100 percent"),
        " percent correct. ",
        element("span", "outlined", class_="learned sample"),
        ": the task learned in that step. Cells to its right are tasks the model has not been taught yet.",
        class_="legend",
    )
