"""Flowers, mostly a single bloom. Colours overlap between classes; the form of the bloom tells them apart."""

from __future__ import annotations

from collections.abc import Sequence

from .canvas import Canvas, Color, Point, clutter, cos_turn, darker, lighter, mix, polar, sin_turn
from .registry import Domain, Pose, register

STEM: Color = (75, 130, 60)
WARM: tuple[Color, ...] = (
    (205, 40, 45),
    (235, 120, 50),
    (245, 205, 60),
    (235, 130, 170),
    (240, 235, 225),
    (150, 70, 150),
)
YELLOWS: tuple[Color, ...] = ((250, 205, 40), (245, 170, 30))


def garden(c: Canvas) -> None:
    dice = c.dice
    base = dice.near(
        dice.pick(((80, 120, 65), (60, 85, 50), (150, 175, 200), (140, 115, 90), (40, 45, 45), (190, 190, 170))),
        25,
    )
    c.mottle(darker(base, 0.3), lighter(base, 0.2), dice.whole(3, 9))
    clutter(c, dice.whole(1, 5), ((90, 140, 70), (60, 100, 60), (170, 190, 120), base))


flowers = Domain("flowers", garden, Pose((0.6, 1.0), 0.09, 0.22, 0.2, 0.15))


def stem(c: Canvas, top: float = 0.0, leaves: bool = True) -> None:
    lean = c.dice.off(0.15)
    c.curve((0, top), (lean, 0.6), (lean * 0.6, 1.4), 0.07, STEM)
    if leaves and c.dice.chance(0.7):
        side = c.dice.pick((-1, 1))
        c.poly(((0, 1.0), (side * 0.25, 0.62), (side * 0.5, 0.5), (side * 0.3, 0.8)), c.dice.near(STEM, 20))


ROUND: tuple[Point, ...] = ((0.0, 0.12), (0.4, 0.75), (0.75, 1.0), (0.95, 0.7), (1.0, 0.0))
POINTED: tuple[Point, ...] = ((0.0, 0.3), (0.3, 0.9), (0.6, 0.8), (1.0, 0.0))
THIN: tuple[Point, ...] = ((0.0, 0.5), (0.5, 1.0), (0.9, 0.8), (1.0, 0.0))
HEART: tuple[Point, ...] = ((0.0, 0.1), (0.45, 0.75), (0.8, 1.0), (1.0, 0.55), (0.86, 0.0))


def ring(
    c: Canvas,
    count: int,
    length: float,
    width: float,
    form: Sequence[Point],
    color: Color,
    start: float = 0.0,
) -> None:
    """Petals around the centre. A form gives (distance, half width) pairs from base to tip."""
    outline = [(d, w) for d, w in form] + [(d, -w) for d, w in reversed(form)]
    for i in range(count):
        turn = start + i / count + c.dice.off(0.012)
        reach = length * c.dice.span(0.9, 1.06)
        cos, sin = cos_turn(turn), sin_turn(turn)
        c.poly(
            [(d * reach * cos - w * width * sin, d * reach * sin + w * width * cos) for d, w in outline],
            color if i % 2 else darker(color, 0.1),
        )


def tilted(c: Canvas) -> float:
    """Squeeze of a bloom that is not seen straight from the front."""
    return c.dice.span(0.55, 1.0)


@flowers.add("tulip")
def tulip(c: Canvas) -> None:
    color, k = c.main(*WARM), c.dice.span(0.85, 1.15)
    stem(c, 0.2, leaves=False)
    for side in (-1, 1):
        if c.dice.chance(0.8):
            c.poly(((0, 1.2), (side * 0.2, 0.6), (side * 0.42, 0.25), (side * 0.34, 0.75)), c.dice.near(STEM, 20))
    w = 0.46 * k
    c.poly(((-w * 0.5, -0.2), (0, -0.78), (w * 0.5, -0.2)), darker(color, 0.25))
    for side in (-1, 1):
        c.poly(
            (
                (0, 0.28),
                (side * w * 0.8, 0.14),
                (side * w, -0.25),
                (side * w * 0.85, -0.72),
                (side * w * 0.3, -0.3),
                (0, 0.0),
            ),
            darker(color, 0.12),
        )
    c.poly(
        ((0, 0.3), (-w * 0.55, 0.02), (-w * 0.5, -0.35), (0, -0.68), (w * 0.5, -0.35), (w * 0.55, 0.02)),
        color,
    )


@flowers.add("poppy")
def poppy(c: Canvas) -> None:
    color, dark = c.main(*WARM), c.dice.near((45, 30, 40), 12)
    stem(c, 0.1)
    if c.dice.chance(0.45):  # from the side: a wide crumpled bowl
        c.blob(0, -0.38, 0.5, 0.26, darker(color, 0.25), 0.12)
        c.blob(0, -0.36, 0.16, 0.1, dark)
        c.poly(
            (
                (0, 0.26),
                (-0.4, 0.14),
                (-0.68, -0.18),
                (-0.62, -0.45),
                (-0.3, -0.3),
                (0, -0.38),
                (0.3, -0.28),
                (0.62, -0.46),
                (0.68, -0.18),
                (0.4, 0.14),
            ),
            color,
        )
        return
    with c.at(0, -0.15, turn=c.dice.unit(), squeeze=tilted(c)):
        for i in range(4):
            x, y = polar(0.32, i / 4)
            c.blob(x, y, 0.42, 0.4, darker(color, 0.12 * (i % 2)), 0.1)
        for i in range(4):
            c.dot(*polar(0.17, i / 4), 0.09, dark)
        c.dot(0, 0, 0.11, (110, 125, 70))


@flowers.add("daisy")
def daisy(c: Canvas) -> None:
    color = c.main((245, 245, 240), (245, 245, 240), (240, 170, 190), (250, 220, 90), (190, 160, 215))
    stem(c)
    with c.at(0, -0.15, turn=c.dice.unit(), squeeze=tilted(c)):
        ring(c, c.dice.whole(13, 18), 0.72, 0.075, THIN, color)
        r = c.dice.span(0.16, 0.23)
        c.oval(0, 0, r, r, c.dice.pick(YELLOWS))


@flowers.add("sunflower")
def sunflower(c: Canvas) -> None:
    color = c.main(*YELLOWS, (225, 120, 30), (160, 60, 30))
    stem(c)
    with c.at(0, -0.15, turn=c.dice.unit(), squeeze=tilted(c)):
        n = c.dice.whole(13, 18)
        ring(c, n, 0.82, 0.12, POINTED, darker(color, 0.15), 0.5 / n)
        ring(c, n, 0.74, 0.11, POINTED, color)
        r, heart = c.dice.span(0.3, 0.42), c.dice.near((85, 55, 30), 18)
        c.oval(0, 0, r, r, heart)
        for i in range(10):
            c.dot(*polar(r * (0.35 + 0.3 * (i % 2)), i / 10), 0.035, lighter(heart, 0.35))


@flowers.add("garden rose")
def garden_rose(c: Canvas) -> None:
    """Petals folded over one another in a spiral."""
    color = c.main(*WARM)
    stem(c)
    with c.at(0, -0.15, turn=c.dice.unit(), squeeze=tilted(c)):
        for radius, n, k in ((0.44, 5, 0.3), (0.3, 5, 0.12), (0.18, 4, 0.24)):
            for i in range(n):
                x, y = polar(radius, i / n + radius)
                c.blob(x, y, radius * 0.72, radius * 0.72, darker(color, k + 0.12 * (i % 2)), 0.08)
        c.oval(0, 0, 0.2, 0.2, color)
        for i in range(3):
            c.arc(0, 0, 0.07 + 0.1 * i, 0.07 + 0.1 * i, i * 0.4, i * 0.4 + 0.65, 0.035, darker(color, 0.45))


@flowers.add("wild rose", held_out=True)
def wild_rose(c: Canvas) -> None:
    """Five open heart-shaped petals."""
    color = c.main(*WARM)
    stem(c)
    with c.at(0, -0.15, turn=c.dice.unit(), squeeze=tilted(c)):
        ring(c, 5, 0.72, 0.36, HEART, color)
        c.oval(0, 0, 0.14, 0.14, c.dice.pick(YELLOWS))
        for i in range(10):
            c.dot(*polar(0.21, i / 10), 0.035, (215, 165, 40))


@flowers.add("daffodil")
def daffodil(c: Canvas) -> None:
    """Six petals behind a trumpet."""
    color = c.main((250, 215, 60), (245, 240, 215), (250, 235, 130), (240, 190, 170))
    cup = c.dice.pick((mix(color, (235, 120, 20), 0.5), (245, 165, 30), (235, 110, 40)))
    stem(c)
    with c.at(0, -0.15, turn=c.dice.unit(), squeeze=tilted(c)):
        ring(c, 6, 0.75, 0.22, ROUND, color)
        x, y = c.dice.off(0.12), c.dice.off(0.12)
        c.oval(x * 0.5, y * 0.5, 0.24, 0.24, darker(cup, 0.2))
        c.blob(x, y, 0.3, 0.3, cup, 0.12)
        c.oval(x, y, 0.17, 0.17, darker(cup, 0.4))


@flowers.add("tiger lily")
def tiger_lily(c: Canvas) -> None:
    """Six long pointed petals with freckles and stamens."""
    color = c.main((240, 130, 40), (235, 110, 140), (245, 240, 230), (245, 210, 70), (205, 60, 50))
    stem(c)
    with c.at(0, -0.15, turn=c.dice.unit(), squeeze=tilted(c)):
        ring(c, 3, 0.92, 0.2, POINTED, darker(color, 0.12), 1 / 6)
        ring(c, 3, 0.92, 0.22, POINTED, color)
        for i in range(6):
            for d in (0.26, 0.4):
                c.dot(*polar(d, i / 6 + 0.25 + c.dice.off(0.03)), 0.04, (90, 35, 35))
        for i in range(5):
            tip = polar(0.36, i / 5 + 0.1)
            c.stroke(((0, 0), tip), 0.025, (215, 220, 130))
            c.dot(*tip, 0.05, (130, 60, 25))


@flowers.add("water lily", held_out=True)
def water_lily(c: Canvas) -> None:
    """Tiers of pointed petals on a floating leaf."""
    color = c.main((245, 240, 240), (240, 170, 195), (245, 225, 140), (200, 140, 200))
    pad = c.dice.near((70, 125, 75), 20)
    flat = c.dice.span(0.4, 0.9)
    with c.at(0, 0.12, squeeze=flat):
        c.poly([(0.0, 0.1), *(polar(0.98, 0.06 + 0.88 * i / 14) for i in range(15))], pad)
    for k, (length, n) in enumerate(((0.72, 9), (0.54, 8), (0.36, 6))):
        with c.at(0, 0.02 - 0.08 * k, squeeze=max(flat, 0.5)):
            ring(c, n, length, 0.14, POINTED, darker(color, 0.22 - 0.1 * k), 0.05 * k)
    c.oval(0, -0.16, 0.12, 0.1, c.dice.pick(YELLOWS))


@flowers.add("lavender")
def lavender(c: Canvas) -> None:
    """Spikes of small buds."""
    color = c.main((130, 100, 190), (165, 130, 205), (110, 90, 170), (235, 225, 235), (220, 120, 170))
    for x in (0.0, -0.4, 0.42)[: c.dice.whole(1, 3)]:
        x += c.dice.off(0.08)
        top, lean = c.dice.span(-0.85, -0.6), c.dice.off(0.15)
        c.stroke(((x + lean, top), (x, 1.2)), 0.045, STEM)
        for i in range(7):
            y, k = top + i * 0.13, (i + 2) / 9
            dx = x + lean * (1 - i / 12)
            for side in (-1, 1):
                c.oval(dx + side * 0.09 * k, y, 0.11 * k + 0.02, 0.07, c.dice.near(color, 18), side * 0.08)


@flowers.add("thistle")
def thistle(c: Canvas) -> None:
    """A spiny green bulb with a tuft on top."""
    color = c.main((165, 70, 165), (190, 90, 180), (120, 90, 190), (235, 225, 235), (220, 80, 120))
    bulb = c.dice.near((95, 125, 85), 18)
    stem(c, 0.3)
    for i in range(15):
        turn = 0.5 + (i - 7) * 0.024
        c.stroke(((0, 0.0), polar(c.dice.span(0.7, 0.85), turn, 0, 0.05)), 0.055, c.dice.near(color, 25))
    c.oval(0, 0.12, 0.32, 0.3, bulb)
    for i in range(12):
        turn = 0.5 + (i - 5.5) * 0.075
        c.stroke((polar(0.25, turn, 0, 0.12), polar(0.44, turn, 0, 0.12)), 0.035, darker(bulb, 0.25))
    for y in (0.05, 0.2):
        c.stroke(((-0.22, y), (0, y + 0.08), (0.22, y)), 0.03, darker(bulb, 0.3))


@flowers.add("bell flower", held_out=True)
def bell_flower(c: Canvas) -> None:
    """Nodding bells along an arched stalk."""
    color = c.main((95, 100, 205), (140, 110, 205), (240, 240, 245), (215, 120, 180))
    c.curve((-0.35, 1.3), (-0.5, -0.9), (0.62, -0.5), 0.055, STEM)
    for x, y, s in ((0.55, -0.42, 0.9), (0.12, -0.45, 1.0), (-0.22, -0.12, 0.95))[: c.dice.whole(2, 3)]:
        with c.at(x, y, s * c.dice.span(0.85, 1.1), c.dice.off(0.05)):
            c.stroke(((0, -0.12), (0, 0.05)), 0.04, STEM)
            c.poly(
                (
                    (-0.08, 0),
                    (-0.19, 0.2),
                    (-0.2, 0.38),
                    (-0.32, 0.55),
                    (-0.1, 0.48),
                    (0, 0.58),
                    (0.1, 0.48),
                    (0.32, 0.55),
                    (0.2, 0.38),
                    (0.19, 0.2),
                    (0.08, 0),
                ),
                color,
            )
            c.stroke(((0, 0.05), (0, 0.46)), 0.03, darker(color, 0.25))


register(flowers)
