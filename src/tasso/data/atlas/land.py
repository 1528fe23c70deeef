"""Land seen from above, as in tiles of aerial images. Drawings fill the frame."""

from __future__ import annotations

from itertools import pairwise

from .canvas import Camera, Canvas, Color, Point, bezier, darker, lighter, mix
from .registry import Domain, Pose, register

REACH = 1.7
GREENS: tuple[Color, ...] = ((95, 135, 70), (120, 140, 80), (75, 115, 65), (140, 150, 95))
EARTHS: tuple[Color, ...] = ((165, 140, 105), (140, 115, 85), (185, 165, 125))
ROOFS: tuple[Color, ...] = ((165, 85, 65), (140, 75, 60), (120, 115, 115), (190, 120, 85), (90, 90, 98))


def meadow(c: Canvas) -> None:
    """Blotchy open ground behind every class."""
    dice = c.dice
    base = dice.near(dice.pick(GREENS + EARTHS), 20)
    c.mottle(darker(base, 0.25), lighter(base, 0.15), dice.whole(5, 14))


land = Domain(
    "land",
    meadow,
    Pose((0.85, 1.3), 0.5, 0.2, 0.15, 0.15),
    Camera(light=0.25, gain=0.2, noise=36, blur=0.9, blur_share=0.4),
    occluded=0.0,
    fills_frame=True,
    tinted=False,
)


def tree(c: Canvas, x: float, y: float, r: float, color: Color) -> None:
    if not c.sees(x, y, r):
        return
    c.dot(x + r * 0.3, y + r * 0.3, r, darker(color, 0.55))
    c.dot(x, y, r, color)


def leaf(c: Canvas) -> Color:
    return c.main((55, 95, 50), (70, 110, 55), (45, 85, 60), (110, 110, 50), (125, 85, 45))


def wandering(c: Canvas, bend: float) -> list[Point]:
    """A path right through the frame."""
    dice = c.dice
    x, y, pull = dice.off(0.2), dice.off(0.3), dice.off(bend)
    # Both halves leave the middle along one line, so that the path has no kink.
    return [
        *bezier((-REACH, dice.off(0.7)), (x - 0.6, y + pull), (x, y), 8),
        *bezier((x, y), (x + 0.6, y - pull), (REACH, dice.off(0.7)), 8)[1:],
    ]


def some_trees(c: Canvas, count: int) -> None:
    """Trees that stand about in any class, so that a tree is no cue."""
    if c.dice.chance(0.5):
        color = leaf(c)
        for _ in range(count):
            tree(c, c.dice.off(1.3), c.dice.off(1.3), c.dice.span(0.05, 0.12), color)


@land.add("dense forest")
def forest(c: Canvas) -> None:
    color, size = leaf(c), c.dice.span(0.1, 0.2)
    n = 65 if size > 0.14 else 95
    for _ in range(n):
        tree(c, c.dice.off(1.4), c.dice.off(1.4), size * c.dice.span(0.6, 1.1), c.dice.near(color, 22))
    if c.dice.chance(0.25):
        c.stroke(wandering(c, 0.5), 0.07, c.dice.pick(EARTHS))


@land.add("tree orchard", held_out=True)
def orchard(c: Canvas) -> None:
    color, pitch = leaf(c), c.dice.span(0.26, 0.38)
    n, r = int(1.5 / pitch), pitch * c.dice.span(0.26, 0.36)
    for i in range(-n, n + 1):
        for j in range(-n, n + 1):
            if c.dice.chance(0.94):
                tree(c, i * pitch + c.dice.off(0.02), j * pitch + c.dice.off(0.02), r, c.dice.near(color, 12))


@land.add("winding river")
def river(c: Canvas) -> None:
    water = c.main((70, 105, 130), (60, 90, 95), (100, 125, 120), (45, 75, 110))
    path, width = wandering(c, 1.3), c.dice.span(0.16, 0.38)
    some_trees(c, 14)
    c.limb(path, width + 0.09, c.dice.pick(EARTHS + GREENS))
    c.limb(path, width, water)


@land.add("round lake")
def lake(c: Canvas) -> None:
    water = c.main((70, 105, 130), (60, 90, 95), (100, 125, 120), (45, 75, 110))
    some_trees(c, 16)
    x, y, r, k = c.dice.off(0.25), c.dice.off(0.25), c.dice.span(0.35, 0.65), c.dice.span(0.7, 1.1)
    c.blob(x, y, r + 0.07, (r + 0.07) * k, c.dice.pick(EARTHS + GREENS), 0.1)
    c.blob(x, y, r, r * k, water, 0.1)
    if c.dice.chance(0.3):
        c.blob(x + 0.1, y, 0.12, 0.1, c.dice.pick(GREENS))


@land.add("sandy coast")
def coast(c: Canvas) -> None:
    water = c.main((60, 110, 140), (50, 130, 140), (45, 80, 115))
    sand = c.dice.near((220, 200, 155), 20)
    edge = wandering(c, 0.5)
    wide, lift = c.dice.span(0.15, 0.45), c.dice.span(-0.5, 0.2)
    some_trees(c, 18)
    for shift, color in ((-wide, sand), (0.0, (225, 235, 235)), (0.05, water)):
        top = [(x, y + lift + shift + c.dice.off(0.02)) for x, y in edge]
        c.poly([*top, (REACH, 2.5), (-REACH, 2.5)], color)
    for _ in range(c.dice.whole(1, 4)):
        x, y = c.dice.off(1.0), c.dice.span(0.4, 1.3)
        c.stroke(((x, y), (x + 0.4, y + 0.03)), 0.025, lighter(water, 0.3))


@land.add("highway")
def highway(c: Canvas) -> None:
    tar = c.main((110, 110, 112), (90, 90, 94), (140, 138, 132))
    path, width = wandering(c, 0.35), c.dice.span(0.3, 0.46)
    some_trees(c, 14)
    c.limb(path, width + 0.06, (195, 190, 180))
    c.limb(path, width, tar)
    if c.dice.chance(0.35):
        x = c.dice.off(0.6)
        c.stroke(((x - 0.4, -2), (x + 0.4, 2)), 0.18, tar)
    c.stroke(path, 0.03, c.dice.pick(((235, 235, 230), (235, 200, 80))))
    for k in range(c.dice.whole(2, 6)):  # cars keep to their lane
        x, y = path[c.dice.whole(3, 13)]
        side = width * 0.24 * (1 if k % 2 else -1)
        c.box(x - 0.07, y + side - 0.035, x + 0.07, y + side + 0.035, c.dice.any_color())


@land.add("railway line", held_out=True)
def railway(c: Canvas) -> None:
    path, tracks = wandering(c, 0.3), c.dice.whole(1, 3)
    pitch = 0.3
    bed = c.main((120, 110, 100), (140, 130, 118), (100, 92, 86))
    some_trees(c, 14)
    c.limb(path, pitch * tracks + 0.1, bed)
    for t in range(tracks):
        lift = (t - (tracks - 1) / 2) * pitch
        for (x0, y0), (x1, y1) in pairwise(path):
            for k in (0.0, 0.5):
                x, y = x0 + (x1 - x0) * k, y0 + (y1 - y0) * k + lift
                c.stroke(((x, y - 0.1), (x, y + 0.1)), 0.045, (75, 55, 42))
        for rail in (-0.055, 0.055):
            c.stroke([(x, y + lift + rail) for x, y in path], 0.024, (205, 205, 210))


def house(c: Canvas, x: float, y: float, w: float, h: float, roof: Color) -> None:
    if not c.sees(x, y, w):
        return
    c.box(x + 0.04, y + 0.04, x + w + 0.04, y + h + 0.04, (60, 62, 55))
    c.box(x, y, x + w, y + h, roof)
    c.box(x, y + h / 2, x + w, y + h, darker(roof, 0.25))


@land.add("residential area")
def residential(c: Canvas) -> None:
    road = c.main((140, 138, 135), (165, 160, 150))
    pitch, side = c.dice.span(0.36, 0.48), c.dice.off(0.1)
    color, roof = leaf(c), c.dice.pick(ROOFS)
    for y in (-1.1, 0.0, 1.1):
        c.stroke(((-2, y + side), (2, y + side)), 0.13, road)
    c.stroke(((side * 3, -2), (side * 3, 2)), 0.13, road)
    n = int(1.5 / pitch)
    for row in (-0.82, -0.32, 0.28, 0.78):
        for i in range(-n, n + 1):
            x, y = i * pitch + c.dice.off(0.05), row + side + c.dice.off(0.06) - 0.1
            if c.dice.chance(0.82):
                house(c, x, y, pitch * 0.55, c.dice.span(0.16, 0.24), c.dice.near(roof, 28))
            if c.dice.chance(0.5):
                tree(c, x - 0.05, y + 0.2, 0.06, color)


@land.add("industrial area")
def industrial(c: Canvas) -> None:
    yard = c.main((150, 148, 142), (130, 128, 125), (165, 155, 140))
    c.box(-1.5, -1.5, 1.5, 1.5, yard)
    for _ in range(3):
        y = c.dice.off(1.2)
        c.stroke(((-2, y), (2, y)), 0.1, darker(yard, 0.2))
    for gx in (-0.95, 0.0, 0.95):
        for gy in (-0.9, 0.0, 0.9):
            if c.dice.chance(0.85):
                w, h = c.dice.span(0.5, 0.8), c.dice.span(0.4, 0.72)
                x, y = gx - w / 2, gy - h / 2
                roof = c.dice.near(c.dice.pick(((205, 208, 210), (150, 160, 175), (175, 110, 90), (230, 228, 220))), 15)
                c.box(x + 0.06, y + 0.06, x + w + 0.06, y + h + 0.06, (70, 70, 70))
                c.box(x, y, x + w, y + h, roof)
                for k in (0.25, 0.5, 0.75):
                    c.stroke(((x + w * k, y), (x + w * k, y + h)), 0.02, darker(roof, 0.25))
            else:
                for k in range(3):
                    c.oval(gx - 0.25 + 0.25 * k, gy, 0.11, 0.11, (225, 225, 222))


@land.add("ploughed field")
def ploughed(c: Canvas) -> None:
    """Parcels with furrows, each parcel in its own direction and colour."""
    edge, cut = c.dice.off(0.4), c.dice.off(0.4)
    base = c.main(*EARTHS, (120, 130, 70), (175, 160, 80))
    parcels = ((-REACH, -REACH, edge, cut), (edge, -REACH, REACH, cut), (-REACH, cut, REACH, REACH))
    for x0, y0, x1, y1 in parcels:
        soil = c.dice.near(base, 35)
        c.box(x0, y0, x1, y1, soil)
        pitch, dim = c.dice.span(0.09, 0.15), darker(soil, c.dice.span(0.2, 0.4))
        upright = c.dice.chance(0.5)
        low, high = (x0, x1) if upright else (y0, y1)
        for i in range(1, int((high - low) / pitch)):
            v = low + i * pitch
            c.stroke(((v, y0), (v, y1)) if upright else ((x0, v), (x1, v)), 0.04, dim)
    c.stroke(((edge, -REACH), (edge, cut)), 0.05, (195, 180, 145))
    c.stroke(((-REACH, cut), (REACH, cut)), 0.05, (195, 180, 145))


@land.add("green pasture")
def pasture(c: Canvas) -> None:
    """Plain grass parcels with hedges and a few animals."""
    edge, cut = c.dice.off(0.4), c.dice.off(0.4)
    grass = c.main(*GREENS, (130, 165, 75))
    for x0, y0, x1, y1 in ((-2, -2, edge, cut), (edge, -2, 2, cut), (-2, cut, 2, 2)):
        c.box(x0, y0, x1, y1, c.dice.near(grass, 18))
    hedge = darker(leaf(c), 0.25)
    for k in range(18):
        t = -REACH + k * 0.2
        tree(c, t, cut + c.dice.off(0.03), c.dice.span(0.05, 0.09), hedge)
        if t < cut:
            tree(c, edge + c.dice.off(0.03), t, c.dice.span(0.05, 0.09), hedge)
    for _ in range(c.dice.whole(4, 12)):
        x, y = c.dice.off(1.1), c.dice.off(1.1)
        c.oval(x, y, 0.06, 0.035, c.dice.pick(((240, 238, 230), (240, 238, 230), (95, 70, 55))), c.dice.unit())


@land.add("car park", held_out=True)
def car_park(c: Canvas) -> None:
    tar = c.main((115, 115, 118), (95, 95, 100), (140, 138, 134))
    c.box(-1.4, -1.4, 1.4, 1.4, tar)
    full, pitch = c.dice.span(0.4, 0.9), c.dice.span(0.19, 0.25)
    n = int(1.35 / pitch)
    for row in (-1.0, -0.62, 0.0, 0.38, 1.0):
        for i in range(-n, n + 1):
            x = i * pitch
            if not c.sees(x, row, 0.3):
                continue
            c.stroke(((x, row - 0.17), (x, row + 0.17)), 0.02, (230, 230, 225))
            if i < n and c.dice.chance(full):
                y, paint = row + c.dice.off(0.02), c.dice.any_color()
                c.box(x + 0.04, y - 0.13, x + pitch - 0.03, y + 0.13, paint)
                c.box(x + 0.055, y - 0.06, x + pitch - 0.045, y, mix(paint, (30, 40, 50), 0.7))


register(land)
