"""A sheet of SVG: lines, shapes and words in a few named colours, which have a light and a dark value each."""

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


class Sheet:
    """What is drawn later lies above. Everything is rounded, so that the file is the same on every machine."""

    def __init__(self, name: str, width: int, height: int) -> None:
        self.name, self.width, self.height = name, width, height
        self.parts: list[str] = []

    def line(
        self, points: Sequence[Point], colour: str = "ink", width: float = 1.6, dash: str = "", arrow: bool = False
    ) -> None:
        """Through these points, perhaps with a tip at the last."""
        places = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        more = f' stroke-dasharray="{dash}"' if dash else ""
        if arrow:
            more += f' marker-end="url(#{self.name}-{colour})"'
        self.parts.append(
            f'<polyline points="{places}" fill="none" stroke="var(--{colour})" stroke-width="{_n(width)}"'
            f' stroke-linejoin="round" stroke-linecap="round"{more}/>'
        )

    def dot(self, at: Point, radius: float, fill: str = "ink", edge: str = "", opacity: float = 1) -> None:
        """A circle."""
        self._shape(f'<circle cx="{_n(at[0])}" cy="{_n(at[1])}" r="{_n(radius)}"', fill, edge, opacity)

    def oval(
        self, at: Point, radii: Point, fill: str = "", edge: str = "", turn: float = 0, opacity: float = 1
    ) -> None:
        """An ellipse, turned by some degrees."""
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
        inside = f"var(--{fill})" if fill else "none"
        outline = f' stroke="var(--{edge})" stroke-width="1.4"' if edge else ""
        faint = f' fill-opacity="{opacity:.2f}"' if opacity != 1 else ""
        self.parts.append(f'{start} fill="{inside}"{outline}{faint}/>')

    def words(
        self, at: Point, text: str, colour: str = "ink", size: float = 14, anchor: str = "start", bold: bool = False
    ) -> None:
        """One line of text; `_{…}` is set lower and smaller, `^{…}` higher."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{_n(at[0])}" y="{_n(at[1])}" fill="var(--{colour})" font-size="{_n(size)}"'
            f' text-anchor="{anchor}"{weight}>{_spans(text, size)}</text>'
        )

    def svg(self) -> str:
        """The whole file."""
        tips = "".join(
            f'<marker id="{self.name}-{colour}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7"'
            f' orient="auto-start-reverse"><path d="M0 1 10 5 0 9z" fill="var(--{colour})"/></marker>\n'
            for colour in LIGHT
            if f"url(#{self.name}-{colour})" in "".join(self.parts)
        )
        light, dark = (" ".join(f"--{name}: {value};" for name, value in each.items()) for each in (LIGHT, DARK))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
            f' font-family="system-ui, sans-serif">\n'
            f"<style>\nsvg {{ {light} }}\n"
            f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}\n</style>\n"
            f"<defs>\n{tips}</defs>\n" + "\n".join(self.parts) + "\n</svg>\n"
        )


def _spans(text: str, size: float) -> str:
    """Lowered and raised parts as spans; the next part goes back to the line."""
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
