"""Colours and marks. Every pair is (on a light page or on paper, on a dark page).

The eight method colours were chosen to stay apart under simulated protan-, deuter- and tritanopia and to
have a contrast of at least 3:1 with the page. Each method also has its own mark, so that no reader
depends on colour alone.
"""

from __future__ import annotations

import numpy as np
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path

METHOD_COLOURS = (
    ("#1480dc", "#4f8ff7"),
    ("#c47c0a", "#f09a2a"),
    ("#0e5f50", "#b8f0d0"),
    ("#8f2a96", "#c889b8"),
    ("#4a2206", "#f7dc55"),
    ("#142c52", "#7d5fb8"),
    ("#d43a22", "#86d2ff"),
    ("#e06aa6", "#d9482f"),
)
# matplotlib's names. Seven of them, so that colour and mark together repeat only after 56.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# Accuracy 0 to 100 percent: from nearly the page's own colour to a strong blue.
_HEAT_ENDS = (((0xF3, 0xF7, 0xFB), (0x0A, 0x4C, 0x86)), ((0x17, 0x1F, 0x2A), (0x8F, 0xCB, 0xFF)))
HEAT_LEVELS = 50
_INKS = ("#000000", "#ffffff")


def colour(index: int) -> str:
    """A method's colour on paper."""
    return METHOD_COLOURS[index % len(METHOD_COLOURS)][0]


def marker(index: int) -> str:
    """A method's mark."""
    return MARKERS[index % len(MARKERS)]


def mark_outlines() -> list[str]:
    """The marks as SVG paths in a box from -1 to 1, for legends outside of figures."""
    letters = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE4: "C", Path.CLOSEPOLY: "z"}
    outlines = []
    for name in MARKERS:
        style = MarkerStyle(name)
        path = style.get_path().transformed(style.get_transform())
        size = 1 / np.abs(np.asarray(path.vertices)).max()
        parts = []
        for points, code in path.iter_segments():
            # Upwards is negative in SVG.
            places = [f"{value * size * (-1 if i % 2 else 1):.2f}" for i, value in enumerate(points)]
            parts.append(letters[code] + ("" if code == Path.CLOSEPOLY else " ".join(places)))
        outlines.append("".join(parts))
    return outlines


def heat_level(percent: float) -> int:
    return round(min(max(percent, 0.0), 100.0) / 100 * HEAT_LEVELS)


def heat_colour(level: int, mode: int = 0) -> str:
    low, high = _HEAT_ENDS[mode]
    mixed = (round(a + (b - a) * level / HEAT_LEVELS) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def ink(fill: str) -> str:
    """Black or white, whichever reads better on `fill` (one of the two always has a contrast over 4.5)."""
    return max(_INKS, key=lambda candidate: contrast(candidate, fill))


def contrast(first: str, second: str) -> float:
    """The WCAG contrast ratio of two `#rrggbb` colours."""
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def colour_rules() -> str:
    """All colours as CSS variables, light first, then dark under its media query: `--m2` is that of the third method,
    `--h12` and `--i12` are fill and ink of a level of heat."""
    blocks = []
    for mode in (0, 1):
        rules = [f"--m{index}:{pair[mode]}" for index, pair in enumerate(METHOD_COLOURS)]
        for level in range(HEAT_LEVELS + 1):
            fill = heat_colour(level, mode)
            rules.append(f"--h{level}:{fill};--i{level}:{ink(fill)}")
        blocks.append(f":root{{{';'.join(rules)}}}")
    marks = "".join(f".m{index}{{fill:var(--m{index})}}" for index in range(len(METHOD_COLOURS)))
    return f"{blocks[0]}\n@media (prefers-color-scheme:dark){{{blocks[1]}}}\n{marks}\n"
