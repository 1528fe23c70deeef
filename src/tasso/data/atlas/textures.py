"""Surfaces that fill the frame. Colours, scale and direction are free: only the pattern tells the class."""

from __future__ import annotations

from .canvas import Camera, Canvas, Color, Point, cos_turn, darker, lighter, luma, mix, sin_turn
from .registry import Domain, Pose, register

REACH = 1.75  # patterns are drawn this far out, so that a turned and shifted frame is still covered


def nothing(c: Canvas) -> None:
    """Textures are their own background."""


textures = Domain(
    "textures",
    nothing,
    Pose(scale=(0.85, 1.25), turn=0.5, shift=0.3, squeeze=0.12, shear=0.12),
    Camera(noise=32, blur=0.7),  # fine patterns drown in what other subjects bear
    occluded=0.35,
    fills_frame=True,
)


def pair(c: Canvas) -> tuple[Color, Color]:
    """Two colours that can be told apart."""
    a, b = c.main(), c.dice.any_color()
    if abs(luma(a) - luma(b)) < 60:
        b = darker(b, 0.6) if luma(a) > 120 else lighter(b, 0.65)
    return a, b


def ground(c: Canvas, color: Color) -> None:
    c.box(-2, -2, 2, 2, color)


def steps(pitch: float) -> list[float]:
    n = int(REACH / pitch)
    return [i * pitch for i in range(-n, n + 1)]


@textures.add("striped texture")
def striped(c: Canvas) -> None:
    a, b = pair(c)
    ground(c, b)
    pitch = c.dice.span(0.2, 0.5)
    half = pitch * c.dice.span(0.15, 0.32)
    for x in steps(pitch):
        shift = c.dice.off(0.02)
        c.poly(((x - half + shift, -2), (x + half + shift, -2), (x + half - shift, 2), (x - half - shift, 2)), a)


def rippled(c: Canvas, wave: tuple[float, ...], shortest: float) -> None:
    """Parallel lines that follow one period of ``wave`` over and over."""
    a, b = pair(c)
    ground(c, b)
    pitch, length, height = c.dice.span(0.32, 0.5), c.dice.span(shortest, 0.95), c.dice.span(0.1, 0.15)
    width = pitch * c.dice.span(0.25, 0.5)
    n = len(wave)
    xs = [-REACH + i * length / n for i in range(int(2 * REACH * n / length) + 1)]
    for y in steps(pitch):
        c.ribbon([(x, y + height * wave[i % n]) for i, x in enumerate(xs)], width, a)


@textures.add("zigzag texture")
def zigzag(c: Canvas) -> None:
    rippled(c, (-1.0, 1.0), 0.45)


@textures.add("wavy texture", held_out=True)
def wavy(c: Canvas) -> None:
    # Short waves cannot be told from zigzags at 64 pixels.
    rippled(c, tuple(sin_turn(i / 8) for i in range(8)), 0.7)


@textures.add("chequered texture")
def chequered(c: Canvas) -> None:
    a, b = pair(c)
    ground(c, b)
    pitch = c.dice.span(0.28, 0.45)
    line = steps(pitch)
    for i, x in enumerate(line):
        for y in line[i % 2 :: 2]:
            if c.sees(x, y, pitch):
                c.box(x, y, x + pitch, y + pitch, a)


@textures.add("plaid texture", held_out=True)
def plaid(c: Canvas) -> None:
    a, b = pair(c)
    ground(c, b)
    pitch = c.dice.span(0.4, 0.75)
    half, third = pitch * c.dice.span(0.18, 0.28), c.dice.any_color()
    line = steps(pitch)
    for x in line:
        c.box(x - half, -2, x + half, 2, mix(a, b, 0.5))
    for y in line:
        c.box(-2, y - half, 2, y + half, mix(a, b, 0.5))
        for x in line:  # where the bands cross they are darker
            c.box(x - half, y - half, x + half, y + half, a)
    for v in line:
        v += pitch / 2
        c.stroke(((v, -2), (v, 2)), 0.04, third)
        c.stroke(((-2, v), (2, v)), 0.04, third)


@textures.add("dotted texture")
def dotted(c: Canvas) -> None:
    a, b = pair(c)
    ground(c, b)
    pitch = c.dice.span(0.3, 0.5)
    r = pitch * c.dice.span(0.22, 0.36)
    stagger = c.dice.pick((0.0, 0.5)) * pitch
    for j, y in enumerate(steps(pitch)):
        for x in steps(pitch):
            c.dot(x + stagger * (j % 2), y, r, a)


@textures.add("speckled texture", held_out=True)
def speckled(c: Canvas) -> None:
    a, b = pair(c)
    ground(c, b)
    largest = c.dice.span(0.05, 0.12)
    for _ in range(c.dice.whole(110, 170)):
        c.dot(c.dice.off(REACH), c.dice.off(REACH), largest * c.dice.span(0.25, 1), a)


@textures.add("woven texture")
def woven(c: Canvas) -> None:
    a, b = pair(c)
    ground(c, darker(b, 0.5))
    pitch = c.dice.span(0.34, 0.5)
    long, thick = pitch * 0.95, pitch * c.dice.span(0.3, 0.4)
    line = steps(pitch)
    for i, x in enumerate(line):
        for j, y in enumerate(line):
            if not c.sees(x, y, pitch):
                continue
            if (i + j) % 2:
                c.box(x - long, y - thick, x + long, y + thick, a)
            else:
                c.box(x - thick, y - long, x + thick, y + long, b)


@textures.add("cracked texture")
def cracked(c: Canvas) -> None:
    """Straight jagged splits between uneven plates."""
    a = pair(c)[0]
    a = lighter(a, 0.45) if luma(a) < 100 else a
    b = darker(a, c.dice.span(0.55, 0.85))  # cracks are dark
    ground(c, a)
    n = c.dice.whole(4, 6)
    pitch = 2 * REACH / n
    grid = [
        [
            (-REACH + i * pitch + c.dice.off(pitch * 0.38), -REACH + j * pitch + c.dice.off(pitch * 0.38))
            for j in range(n + 1)
        ]
        for i in range(n + 1)
    ]
    width = c.dice.span(0.03, 0.07)

    def split(p: Point, q: Point) -> None:
        if not c.sees(*p, pitch):
            return
        middle = ((p[0] + q[0]) / 2 + c.dice.off(0.12), (p[1] + q[1]) / 2 + c.dice.off(0.12))
        c.stroke((p, middle, q), width * c.dice.span(0.6, 1.3), b)

    for i in range(n):
        for j in range(n):
            if c.dice.chance(0.9):
                split(grid[i][j], grid[i + 1][j])
            if c.dice.chance(0.9):
                split(grid[i][j], grid[i][j + 1])


@textures.add("marbled texture")
def marbled(c: Canvas) -> None:
    """Soft bands and thin veins that wander along one direction."""
    a, b = pair(c)
    ground(c, a)
    bend, length = c.dice.span(0.15, 0.35), c.dice.span(0.6, 1.2)
    for _ in range(c.dice.whole(9, 15)):
        y, phase, tilt = c.dice.off(REACH), c.dice.unit(), c.dice.off(0.35)
        points = [
            (x, y + x * tilt + bend * sin_turn(phase + x / length / 2.5) + c.dice.off(0.035))
            for x in [-REACH + i * 0.175 for i in range(21)]
        ]
        c.ribbon(points, c.dice.pick((0.03, 0.03, 0.05, 0.16, 0.24)), mix(a, b, c.dice.span(0.25, 1)))


@textures.add("honeycombed texture")
def honeycombed(c: Canvas) -> None:
    a, b = pair(c)
    ground(c, b)
    pitch = c.dice.span(0.4, 0.62)
    r = pitch * c.dice.span(0.44, 0.53)
    cell = [(r * sin_turn(i / 6), r * cos_turn(i / 6)) for i in range(6)]
    for j, y in enumerate(steps(pitch * 0.866)):
        for x in steps(pitch):
            x += (j % 2) * pitch / 2
            if c.sees(x, y, r):
                c.poly([(x + u, y + v) for u, v in cell], a)


@textures.add("scaly texture")
def scaly(c: Canvas) -> None:
    """Rows of rimmed half discs that overlap like roof tiles."""
    a, b = pair(c)
    ground(c, b)
    pitch = c.dice.span(0.44, 0.65)
    r, rim = pitch * 0.56, c.dice.span(0.72, 0.86)
    for j, y in enumerate(reversed(steps(pitch * 0.5))):
        for x in steps(pitch):
            x += (j % 2) * pitch / 2
            c.dot(x, y, r, b)
            c.dot(x, y, r * rim, a)


register(textures)
