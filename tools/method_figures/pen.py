"""A sheet of SVG: lines, shapes and text in a few named colours, with a light and a dark value each.

The file has the light colours as plain attributes, on a ground of its own, so that every program draws it. A style
sheet replaces them where the system is set to dark and the program knows CSS.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

Point = tuple[float, float]

LIGHT = {
    "ink": "#1f2933", "soft": "#7b8794", "panel": "#eaf0f2", "paper": "#ffffff",
    "student": "#00796b", "teacher": "#c2570c", "third": "#5b4bb7",
}  # fmt: skip
DARK = {
    "ink": "#e3e7ec", "soft": "#97a1ae", "panel": "#2b313d", "paper": "#1e2129",
    "student": "#4db6ac", "teacher": "#ffa65c", "third": "#b3a6ff",
}  # fmt: skip
# Rules of a style sheet win over attributes.
DARK_RULES = "\n".join(
    f'[{what}="{LIGHT[name]}"] {{ {what}: {value} }}' for name, value in DARK.items() for what in ("fill", "stroke")
)


class Sheet:
    """Later parts are drawn over earlier ones. Numbers are rounded, so that the file is the same on every machine."""

    def __init__(self, name: str, width: int, height: int) -> None:
        self.name, self.width, self.height = name, width, height
        self.parts: list[str] = []

    def line(
        self, points: Sequence[Point], colour: str = "ink", width: float = 1.6, dash: str = "", arrow: bool = False
    ) -> None:
        """A polyline, with an arrow head at its end if asked for."""
        coordinates = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        more = f' stroke-dasharray="{dash}"' if dash else ""
        if arrow:
            more += f' marker-end="url(#{self.name}-{colour})"'
        self.parts.append(
            f'<polyline points="{coordinates}" fill="none" stroke="{LIGHT[colour]}" stroke-width="{_n(width)}"'
            f' stroke-linejoin="round" stroke-linecap="round"{more}/>'
        )

    def dot(self, at: Point, radius: float, fill: str = "ink", edge: str = "", opacity: float = 1) -> None:
        """A circle."""
        self._shape(f'<circle cx="{_n(at[0])}" cy="{_n(at[1])}" r="{_n(radius)}"', fill, edge, opacity)

    def oval(
        self, at: Point, radii: Point, fill: str = "", edge: str = "", turn: float = 0, opacity: float = 1
    ) -> None:
        """An ellipse, rotated by `turn` degrees."""
        place = f'cx="{_n(at[0])}" cy="{_n(at[1])}" rx="{_n(radii[0])}" ry="{_n(radii[1])}"'
        turned = f' transform="rotate({_n(turn)} {_n(at[0])} {_n(at[1])})"' if turn else ""
        self._shape(f"<ellipse {place}{turned}", fill, edge, opacity)

    def box(
        self, at: Point, size: Point, fill: str = "panel", edge: str = "", opacity: float = 1, radius: float = 5
    ) -> None:
        """A rectangle by its upper left corner."""
        place = f'x="{_n(at[0])}" y="{_n(at[1])}" width="{_n(size[0])}" height="{_n(size[1])}" rx="{_n(radius)}"'
        self._shape(f"<rect {place}", fill, edge, opacity)

    def _shape(self, start: str, fill: str, edge: str, opacity: float) -> None:
        inside = LIGHT[fill] if fill else "none"
        outline = f' stroke="{LIGHT[edge]}" stroke-width="1.4"' if edge else ""
        faint = f' fill-opacity="{opacity:.2f}"' if opacity != 1 else ""
        self.parts.append(f'{start} fill="{inside}"{outline}{faint}/>')

    def text(
        self, at: Point, content: str, colour: str = "ink", size: float = 14, anchor: str = "start", bold: bool = False
    ) -> None:
        """One line of text; `_{…}` is a subscript, `^{…}` a superscript."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{_n(at[0])}" y="{_n(at[1])}" fill="{LIGHT[colour]}" font-size="{_n(size)}"'
            f' text-anchor="{anchor}"{weight}>{_spans(content, size)}</text>'
        )

    def svg(self) -> str:
        """The whole file."""
        arrow_heads = "".join(
            f'<marker id="{self.name}-{colour}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7"'
            f' orient="auto-start-reverse"><path d="M0 1 10 5 0 9z" fill="{LIGHT[colour]}"/></marker>\n'
            for colour in LIGHT
            if f"url(#{self.name}-{colour})" in "".join(self.parts)
        )
        ground = f'<rect width="{self.width}" height="{self.height}" rx="8" fill="{LIGHT["paper"]}"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
            f' width="{self.width}" height="{self.height}" font-family="system-ui, sans-serif">\n'
            f"<style>\n@media (prefers-color-scheme: dark) {{\n{DARK_RULES}\n}}\n</style>\n"
            f"<defs>\n{arrow_heads}</defs>\n{ground}\n" + "\n".join(self.parts) + "\n</svg>\n"
        )


def _spans(text: str, size: float) -> str:
    """Subscripts and superscripts as spans; the next part returns to the baseline."""
    parts, back = [], 0.0
    for part in re.split(r"([_^]\{[^}]*\})", text):
        if not part:
            continue
        if part[0] in "_^" and part[1:2] == "{":
            shift = (0.25 if part[0] == "_" else -0.4) * size
            parts.append(
                f'<tspan dy="{_n(shift - back)}" font-size="{_n(0.75 * size)}">{html.escape(part[2:-1])}</tspan>'
            )
            back = shift
        elif back:
            parts.append(f'<tspan dy="{_n(-back)}">{html.escape(part)}</tspan>')
            back = 0.0
        else:
            parts.append(html.escape(part))
    return "".join(parts)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
