"""What all figures share: the colours and marks of the page, sizes for print, files without a time in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasso.files import write_atomically
from tasso.report.colours import HEAT_LEVELS, METHOD_COLOURS, heat_colour
from tasso.report.reader import ReportError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

WIDTH = 7.2  # inches: the text width of a page
DPI = 200
# In the order of the page's marks: circle, square, triangle, diamond, triangle down, plus, cross.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
QUIET, LINE, TEXT = "#56616e", "#d9dee5", "#1a2028"
ZERO_SHOT_STYLE: dict[str, Any] = {"color": QUIET, "linestyle": (0, (4, 3)), "linewidth": 1.0}

RULES: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 8,
    "axes.edgecolor": LINE,
    "axes.labelcolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "text.color": TEXT,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.4,
    "pdf.fonttype": 42,  # letters stay letters: they can be searched and edited
}

# Nothing that changes from one time to the next, or tells about the machine.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None, "ModDate": None},
}


def require_matplotlib() -> None:
    """Raise a ReportError that says what to install."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ReportError("figures need matplotlib, which is not installed: pip install matplotlib") from None


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Our rules, and none of the user's."""
    import matplotlib.style

    with matplotlib.style.context(["default", RULES]):
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty one; no window and no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def colour(index: int) -> str:
    """A method's colour on white paper; the same as on the page."""
    return METHOD_COLOURS[index % len(METHOD_COLOURS)][0]


def marker(index: int) -> str:
    """A method's mark; the same as on the page."""
    return MARKERS[index % len(MARKERS)]


def heat_colours() -> ListedColormap:
    """Accuracy from 0 to 100 percent, as on the page."""
    from matplotlib.colors import ListedColormap

    return ListedColormap([heat_colour(level / HEAT_LEVELS, 0) for level in range(HEAT_LEVELS + 1)])


def grid_of(figure: Figure, count: int, columns: int, *, own_levels: bool = False) -> list[Axes]:
    """As many panels, all with the same scales, or with levels of their own; unused places stay empty."""
    rows = -(-count // columns)
    axes = figure.subplots(rows, columns, sharex=True, sharey=not own_levels, squeeze=False)
    panels = list(axes.flat)
    for unused in panels[count:]:
        unused.set_visible(False)
    for panel in panels[max(0, count - columns) : count]:  # the lowest of each column has the numbers
        panel.tick_params(labelbottom=True)
    return panels[:count]


def equal_spans(panels: Sequence[Axes]) -> None:
    """Make all panels as high as the one that needs most, each around its own middle."""
    limits = [panel.get_ylim() for panel in panels]
    span = max(high - low for low, high in limits)
    for panel, (low, high) in zip(panels, limits, strict=True):
        bottom = (low + high - span) / 2
        # Accuracies near zero: no room below what cannot be.
        bottom = max(bottom, 0.0) if low >= 0 else bottom
        panel.set_ylim(bottom, bottom + span)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Both files of a figure."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the places are found, and finding them again for each file takes longest
    paths = []
    for kind, metadata in _METADATA.items():
        path = folder / f"{name}.{kind}"

        def write(part: Path, kind: str = kind, metadata: dict[str, Any] = metadata) -> None:
            figure.savefig(part, format=kind, dpi=DPI, metadata=metadata)

        write_atomically(path, write)
        paths.append(path)
    return paths
