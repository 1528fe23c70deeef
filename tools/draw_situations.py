"""Draw the four situations of docs/guide/which-benchmark.md: `python tools/draw_situations.py`.

A shape is a class, a colour a kind of image, a ground a camera. With --check nothing is written; the exit code says
whether the files are up to date.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from method_figures.pen import Point, Sheet

IMAGES = Path(__file__).parent.parent / "docs" / "images"
PANEL, GAP, TOP = (150.0, 92.0), 34.0, 30.0
CORNERS = {"triangle": 3, "square": 4, "pentagon": 5, "hexagon": 6}
# Of each situation: the shapes, the colour, the ground and the name of each task.
Scene = tuple[Sequence[str], str, str, str]
SITUATIONS: dict[str, list[Scene]] = {
    "domains": [
        (("circle", "triangle", "square"), "student", "panel", "flowers"),
        (("star", "ring", "cross"), "teacher", "panel", "food"),
        (("hexagon", "oval", "pentagon"), "third", "panel", "vehicles"),
    ],
    "classes": [
        (("circle", "triangle", "square"), "student", "panel", "birds 1 to 3"),
        (("star", "ring", "cross"), "student", "panel", "birds 4 to 6"),
        (("hexagon", "oval", "pentagon"), "student", "panel", "birds 7 to 9"),
    ],
    "cameras": [
        (("circle", "triangle", "square"), "student", "panel", "by day"),
        (("circle", "triangle", "square"), "paper", "ink", "by night"),
        (("circle", "triangle", "square"), "ink", "paper", "as drawings"),
    ],
    "mixed": [
        (("circle", "triangle", "square"), "student", "panel", "birds by day"),
        (("circle", "star", "ring"), "paper", "ink", "some by night, some new"),
        (("hexagon", "cross", "triangle"), "teacher", "paper", "food, and a bird"),
    ],
}


def shape(sheet: Sheet, kind: str, at: Point, colour: str) -> None:
    """One class."""
    x, y = at
    if kind == "circle":
        sheet.dot(at, 13, colour)
    elif kind == "ring":
        sheet.dot(at, 11, "", colour)
        sheet.dot(at, 5, "", colour)
    elif kind == "oval":
        sheet.oval(at, (16, 9), colour)
    elif kind == "cross":
        sheet.line([(x - 10, y - 10), (x + 10, y + 10)], colour, 5)
        sheet.line([(x - 10, y + 10), (x + 10, y - 10)], colour, 5)
    else:
        count = CORNERS.get(kind, 10)
        turns = [(2 * math.pi * n / count, 7 if kind == "star" and n % 2 else 14) for n in range(count)]
        corners = [(x + radius * math.sin(turn), y - radius * math.cos(turn)) for turn, radius in turns]
        sheet.line([*corners, corners[0]], colour, 3.5)


def situation(name: str) -> Sheet:
    """Three tasks, one after the other."""
    width, height = PANEL
    sheet = Sheet(f"growth-{name}", int(3 * width + 2 * GAP + 24), int(height + TOP + 14))
    for number, (shapes, colour, ground, title) in enumerate(SITUATIONS[name]):
        left = 12 + number * (width + GAP)
        sheet.text((left + width / 2, 20), title, size=13, anchor="middle")
        sheet.box((left, TOP), PANEL, ground, "soft")
        for place, kind in enumerate(shapes):
            shape(sheet, kind, (left + 30 + 45 * place, TOP + height / 2), colour)
        if number:
            sheet.line([(left - GAP + 5, TOP + height / 2), (left - 6, TOP + height / 2)], "soft", 2, arrow=True)
    return sheet


def main(args: list[str]) -> None:
    """Draw, or check."""
    for name in SITUATIONS:
        file, text = IMAGES / f"growth-{name}.svg", situation(name).svg()
        if "--check" not in args:
            file.write_text(text, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            sys.exit(f"docs/images/{file.name} is out of date: run tools/draw_situations.py")


if __name__ == "__main__":
    main(sys.argv[1:])
