"""Colours and marks. Every pair is (on a light page, on a dark page).

The eight method colours were chosen to stay apart under simulated protan-, deuter- and tritanopia and to
have a contrast of at least 3:1 with the page. Each method also has its own mark, so that no reader
depends on colour alone.
"""

from __future__ import annotations

from tasso.report.markup import Html, element, short

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

# Outlines in a box from -1 to 1; on a page each is defined once (`mark_shapes`) and used by its number. Seven of
# them, so that colour and mark together repeat only after 56.
MARKS = (
    "M-.9 0a.9 .9 0 1 0 1.8 0a.9 .9 0 1 0 -1.8 0z",  # circle
    "M-.8 -.8H.8V.8H-.8z",  # square
    "M0 -1L1 .8H-1z",  # triangle
    "M0 -1.15L1.15 0L0 1.15L-1.15 0z",  # diamond
    "M0 1L1 -.8H-1z",  # triangle, point down
    "M-.35 -1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35z",  # plus
    "M-1 -.5L-.5 -1L0 -.5L.5 -1L1 -.5L.5 0L1 .5L.5 1L0 .5L-.5 1L-1 .5L-.5 0z",  # cross
)

# Accuracy 0 to 100 percent: from nearly the page's own colour to a strong blue.
_HEAT_ENDS = (((0xF3, 0xF7, 0xFB), (0x0A, 0x4C, 0x86)), ((0x17, 0x1F, 0x2A), (0x8F, 0xCB, 0xFF)))
HEAT_LEVELS = 50
_INKS = ("#000000", "#ffffff")


def method_class(index: int) -> str:
    """The CSS class that sets a method's colour."""
    return f"m{index % len(METHOD_COLOURS)}"


def mark(index: int, x: float, y: float, size: float) -> Html:
    """The method's mark as an SVG path in its colour."""
    return _use(index, transform=f"translate({short(x)} {short(y)}) scale({size})")


def _use(index: int, transform: str | None = None) -> Html:
    shape = index % len(MARKS)
    return element("use", class_=f"mark {method_class(index)}", href=f"#shape-{shape}", transform=transform)


def mark_shapes() -> Html:
    """The definitions that all marks of a page point to."""
    shapes = [element("path", id=f"shape-{number}", d=outline) for number, outline in enumerate(MARKS)]
    return element("svg", element("defs", *shapes), class_="shapes", aria_hidden="true")


def legend_mark(index: int) -> Html:
    """The mark as a small image to stand next to the method's name."""
    return element("svg", _use(index), class_="key", viewBox="-1.6 -1.6 3.2 3.2", aria_hidden="true")


def heat_class(percent: float) -> str:
    level = round(min(max(percent, 0.0), 100.0) / 100 * HEAT_LEVELS)
    return f"h{level}"


def colour_rules() -> str:
    """The CSS rules of all colours, light first, then dark under its media query."""
    blocks = []
    for mode in (0, 1):
        rules = [f".m{index}{{--c:{pair[mode]}}}" for index, pair in enumerate(METHOD_COLOURS)]
        for level in range(HEAT_LEVELS + 1):
            fill = heat_colour(level / HEAT_LEVELS, mode)
            rules.append(f".h{level}{{background:{fill};color:{ink(fill)}}}")
        blocks.append("\n".join(rules))
    return f"{blocks[0]}\n@media (prefers-color-scheme:dark){{\n{blocks[1]}\n}}"


def heat_colour(share: float, mode: int) -> str:
    low, high = _HEAT_ENDS[mode]
    mixed = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
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
