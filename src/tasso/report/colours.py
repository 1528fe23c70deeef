"""Colours of heat maps, contrast, and all colours of a page as CSS. Those of methods are in `looks`."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path

from tasso.report.looks import MARKERS, Look, mix

# Change against zero-shot: a loss, none, a gain; on a light page and on a dark one.
_HEAT = (("#b2331f", "#f6f6f4", "#2166ac"), ("#ff8a66", "#20262f", "#6db3f2"))
HEAT_LEVELS = 20  # on each side of none
HEAT_END = 40.0  # points, from which on the colour does not change any more
_INKS = ("#000000", "#ffffff")


def mark_outlines() -> dict[str, str]:
    """The marks as SVG paths in a box from -1 to 1, for legends outside of figures."""
    letters = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE4: "C", Path.CLOSEPOLY: "z"}
    outlines = {}
    for name in MARKERS:
        style = MarkerStyle(name)
        path = style.get_path().transformed(style.get_transform())
        size = 1 / np.abs(np.asarray(path.vertices)).max()
        parts = []
        for points, code in path.iter_segments():
            # Upwards is negative in SVG.
            places = [f"{value * size * (-1 if i % 2 else 1):.2f}" for i, value in enumerate(points)]
            parts.append(letters[code] + ("" if code == Path.CLOSEPOLY else " ".join(places)))
        outlines[name] = "".join(parts)
    return outlines


def heat_level(points: float) -> int:
    """From -HEAT_LEVELS to HEAT_LEVELS; not in proportion, so that a loss of 2 points is seen beside a gain of 30."""
    return round(math.copysign(min(abs(points) / HEAT_END, 1.0) ** 0.7, points) * HEAT_LEVELS)


def heat_colour(level: int, mode: int = 0) -> str:
    loss, none, gain = _HEAT[mode]
    return mix(none, gain if level > 0 else loss, abs(level) / HEAT_LEVELS)


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


def colour_rules(looks: Collection[Look]) -> str:
    """All colours as CSS variables, light first, then dark under its media query: `Look.variable` of a label,
    `--h-12` and `--i-12` for fill and ink of a level of heat."""
    blocks = []
    for mode in (0, 1):
        rules = [f"{look.variable}:{look.colours[mode]}" for look in looks]
        for level in range(-HEAT_LEVELS, HEAT_LEVELS + 1):
            fill = heat_colour(level, mode)
            rules.append(f"--h{level}:{fill};--i{level}:{ink(fill)}")
        blocks.append(f":root{{{';'.join(dict.fromkeys(rules))}}}")
    return f"{blocks[0]}\n@media (prefers-color-scheme:dark){{{blocks[1]}}}\n"
