"""What all figures share: rules of drawing for paper and for the page, sizes, files without a time in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tasso.files import write_atomically

WIDTH = 7.2  # inches: the text width of a page of paper
DPI = 200
QUIET, LINE, TEXT, MARK, PAPER = "#56616e", "#d9dee5", "#1a2028", "#111111", "#ffffff"
ZERO_SHOT_STYLE: dict[str, Any] = {"color": QUIET, "linestyle": (0, (4, 3)), "linewidth": 1.0}

RULES: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.edgecolor": LINE,
    "axes.labelcolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "text.color": TEXT,
    "text.parse_math": False,  # a name may contain dollars
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.4,
    "pdf.fonttype": 42,  # letters stay letters: they can be searched and edited
    "svg.fonttype": "none",
    "svg.hashsalt": "tasso",
}
# The page shows panels one by one: they need no layout, which takes longest, and fill their share of the figure.
PAGE_RULES: dict[str, Any] = {
    "figure.constrained_layout.use": False,
    "figure.subplot.left": 0, "figure.subplot.right": 1, "figure.subplot.bottom": 0, "figure.subplot.top": 1,
    "figure.subplot.wspace": 0, "figure.subplot.hspace": 0,
}  # fmt: skip

# Nothing that changes from one time to the next, or depends on the machine.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None, "ModDate": None},
    "svg": {"Creator": None, "Date": None},
}


@contextlib.contextmanager
def drawing(*, page: bool = False) -> Iterator[None]:
    """Our rules, and none of the user's."""
    with matplotlib.style.context(["default", RULES, PAGE_RULES if page else {}]):
        yield


def new_panels(
    count: int, columns: int, height: float, panel: tuple[float, float], width: float = WIDTH, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with as many panels; unused cells of the grid stay empty. No window and no global state.

    Args:
        height, width: of the whole figure on paper, in inches.
        panel: width and height of one panel on the page.
    """
    rows = -(-count // columns)
    figure = Figure(figsize=(width, height) if on_paper() else (panel[0] * columns, panel[1] * rows))
    panels = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for unused in panels[count:]:
        unused.remove()
    for used in panels[:count]:
        used.tick_params(labelbottom=True)
    return figure, panels[:count]


def on_paper() -> bool:
    """Is a figure being drawn for print? On the page, headings and a legend of its own say what stands around it."""
    return bool(matplotlib.rcParams["figure.constrained_layout.use"])


def span_at_least(panel: Axes, span: float) -> None:
    """Give a panel no finer scale than this, around its middle."""
    low, high = panel.get_ylim()
    if high - low < span:
        panel.set_ylim((low + high - span) / 2, (low + high + span) / 2)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG, PDF and SVG."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # positions are fixed now: working them out for each file takes longest
    paths = []
    for kind, metadata in _METADATA.items():
        path = folder / f"{name}.{kind}"

        def write(part: Path, kind: str = kind, metadata: dict[str, Any] = metadata) -> None:
            figure.savefig(part, format=kind, dpi=DPI, metadata=metadata)

        write_atomically(path, write)
        paths.append(path)
    return paths
