"""Dishes from above or from the side, on tables, boards and plates."""

from __future__ import annotations

from .canvas import BLACK, WHITE, Canvas, Color, clutter, cos_turn, darker, lighter, polar, sin_turn
from .registry import Domain, Pose, register

CRUST: Color = (200, 145, 80)
BREAD: Color = (215, 160, 95)
CHEESE: Color = (245, 205, 90)
SWEETS: tuple[Color, ...] = (
    (240, 150, 180),
    (110, 65, 40),
    (245, 235, 215),
    (170, 215, 170),
    (190, 60, 80),
    (150, 120, 190),
)


def table(c: Canvas) -> None:
    dice = c.dice
    base = dice.near(
        dice.pick(((150, 105, 70), (200, 195, 190), (90, 110, 130), (190, 80, 75), (70, 65, 62), (170, 190, 170))),
        25,
    )
    c.mottle(darker(base, 0.15), lighter(base, 0.12), dice.whole(2, 8))
    if dice.chance(0.4):
        pitch, line = dice.span(0.25, 0.5), darker(base, 0.25)
        for i in range(9):
            c.stroke(((-1, -1.2 + i * pitch), (1, -1.2 + i * pitch)), 0.02, line)
    clutter(c, dice.whole(0, 3), ((230, 225, 215), (190, 60, 50), (120, 150, 70), base))
    if dice.chance(0.5):  # a plate under anything
        x, y, r = dice.off(0.2), dice.off(0.2), dice.span(0.75, 1.0)
        plate = dice.near(dice.pick((WHITE, (190, 205, 220), (70, 75, 85))), 10)
        c.oval(x, y, r, r * dice.span(0.7, 1), darker(plate, 0.12))
        c.oval(x, y, r * 0.75, r * 0.6, plate)


food = Domain("food", table, Pose((0.58, 0.95), 0.06, 0.22, 0.18, 0.12))


def scatter(c: Canvas, count: int, reach: float, size: float, *colors: Color) -> None:
    for _ in range(count):
        x, y = polar(reach * c.dice.span(0.1, 1), c.dice.unit())
        c.dot(x, y, size * c.dice.span(0.7, 1.2), c.dice.pick(colors))


@food.add("pizza")
def pizza(c: Canvas) -> None:
    with c.at(turn=c.dice.unit()):
        c.oval(0, 0, 0.9, 0.9, c.dice.near(CRUST, 18))
        c.oval(0, 0, 0.76, 0.76, (200, 70, 40))
        c.blob(0, 0, 0.7, 0.7, c.dice.near(CHEESE, 18), 0.06)
        topping = c.dice.pick(((185, 50, 40), (90, 120, 50), (240, 235, 220), (70, 50, 50), (200, 60, 50)))
        for i in range(c.dice.whole(5, 8)):
            c.dot(*polar(c.dice.span(0.2, 0.58), i / 7 + c.dice.off(0.04)), c.dice.span(0.09, 0.14), topping)
        scatter(c, 6, 0.6, 0.05, (80, 120, 50), (60, 50, 45))
        if c.dice.chance(0.5):
            cut = c.dice.near((215, 210, 200), 12)
            if c.dice.chance(0.5):  # a slice is gone
                c.poly(((0, 0), polar(1.0, 0.06), polar(1.0, -0.06)), cut)
            for t in (0.06, 0.19, 0.31, 0.44):
                c.stroke((polar(0.85, t), polar(-0.85, t)), 0.03, darker(CRUST, 0.2))


@food.add("fruit pie", held_out=True)
def fruit_pie(c: Canvas) -> None:
    fruit = c.main((150, 30, 50), (90, 40, 100), (215, 120, 50), (190, 50, 60))
    crust = c.dice.near(CRUST, 18)
    with c.at(turn=c.dice.unit()):
        c.oval(0, 0, 0.9, 0.9, crust)
        for i in range(18):
            c.dot(*polar(0.84, i / 18), 0.1, darker(crust, 0.12 * (i % 2)))
        c.oval(0, 0, 0.74, 0.74, fruit)
        scatter(c, 8, 0.65, 0.06, lighter(fruit, 0.25))
        for v in (-0.48, -0.16, 0.16, 0.48):  # lattice
            half = 0.72 if abs(v) < 0.3 else 0.55
            c.stroke(((-half, v), (half, v)), 0.11, crust)
            c.stroke(((v, -half), (v, half)), 0.11, lighter(crust, 0.15))


@food.add("doughnut")
def doughnut(c: Canvas) -> None:
    glaze = c.main(*SWEETS)
    c.oval(0, 0, 0.82, 0.82, c.dice.near(BREAD, 15))
    c.blob(0, 0, 0.74, 0.74, glaze, 0.06)
    if c.dice.chance(0.7):
        for i in range(14):
            x, y = polar(c.dice.span(0.42, 0.64), i / 14)
            c.stroke(((x, y), (x + c.dice.off(0.09), y + c.dice.off(0.09))), 0.05, c.dice.any_color())
    c.oval(0, 0, 0.33, 0.33, darker(BREAD, 0.1))
    c.oval(0.02, 0.02, 0.26, 0.26, c.dice.near((210, 205, 195), 30))


@food.add("fried egg")
def fried_egg(c: Canvas) -> None:
    c.blob(0, 0, 0.84, 0.78, (215, 195, 160), 0.12)
    c.blob(0, 0, 0.78, 0.72, (250, 248, 242), 0.14)
    x, y, r = c.dice.off(0.18), c.dice.off(0.18), c.dice.span(0.24, 0.36)
    yolk = c.main((250, 190, 40), (245, 150, 30), (250, 210, 70))
    c.oval(x, y, r, r, yolk)
    c.dot(x - r * 0.35, y - r * 0.35, r * 0.25, lighter(yolk, 0.6))
    scatter(c, c.dice.whole(0, 8), 0.6, 0.025, BLACK)


@food.add("hamburger")
def hamburger(c: Canvas) -> None:
    bun = c.main((200, 135, 65), (215, 160, 90), (170, 105, 50))
    c.poly(((-0.78, 0.4), (0.78, 0.4), (0.7, 0.68), (-0.7, 0.68)), bun)
    layers = [((105, 60, 40), 0.2), ((245, 190, 50), 0.07), ((110, 165, 60), 0.09), ((200, 55, 45), 0.1)]
    y = 0.42
    for color, thick in layers[: c.dice.whole(2, 4)]:
        wide = c.dice.span(0.76, 0.9)
        c.box(-wide, y - thick, wide, y, color)
        y -= thick
    dome = [(-0.8 * cos_turn(i / 20), y - 0.55 * sin_turn(i / 20)) for i in range(11)]
    c.poly(dome, bun)
    if c.dice.chance(0.7):
        for _ in range(7):
            c.dot(c.dice.off(0.5), y - c.dice.span(0.18, 0.42), 0.03, (245, 230, 190))


@food.add("cheese sandwich", held_out=True)
def cheese_sandwich(c: Canvas) -> None:
    crumb, crust = c.dice.near((240, 220, 180), 10), c.main((185, 125, 65), (150, 95, 50))
    if c.dice.chance(0.5):  # a cut half, from the cut side
        c.poly(((-0.9, 0.5), (0.9, 0.5), (0.9, 0.28), (-0.9, 0.28)), crumb)
        c.box(-0.95, 0.16, 0.95, 0.28, CHEESE)
        c.poly(((-0.95, 0.27), (0.2, 0.27), (-0.3, 0.46)), CHEESE)
        c.box(-0.92, 0.06, 0.92, 0.16, c.dice.pick(((110, 165, 60), (230, 150, 140))))
        c.poly(((-0.9, 0.06), (0.9, 0.06), (0.86, -0.16), (-0.86, -0.16)), crumb)
        c.poly(((-0.86, -0.16), (0.86, -0.16), (0.0, -0.6)), crust)
        return
    for dy, color in ((0.22, crust), (0.12, CHEESE), (0.06, (110, 165, 60)), (0.0, crust)):
        k = 0.06 if color == CHEESE else 0.0
        c.poly(((-0.85 - k, 0.55 + dy), (0.85 + k, 0.55 + dy), (0.0, -0.7 + dy)), color)
    c.poly(((-0.68, 0.47), (0.68, 0.47), (0.0, -0.56)), crumb)


@food.add("hot dog")
def hot_dog(c: Canvas) -> None:
    bun, meat = c.dice.near(BREAD, 18), c.main((185, 80, 55), (160, 65, 45), (205, 110, 80))
    with c.at(turn=c.dice.off(0.12)):
        c.oval(0, 0.12, 0.9, 0.36, bun)
        c.limb(((-0.8, 0), (0.8, 0)), 0.3, meat)
        c.oval(0, 0.26, 0.86, 0.22, lighter(bun, 0.12))
        if c.dice.chance(0.85):
            sauce = c.dice.pick(((250, 210, 40), (200, 40, 35)))
            c.stroke([(-0.66 + i * 0.12, -0.02 + (0.06 if i % 2 else -0.06)) for i in range(12)], 0.05, sauce)


@food.add("taco")
def taco(c: Canvas) -> None:
    shell = c.main((240, 195, 90), (225, 175, 100), (215, 150, 60))
    for i in range(12):
        t = 0.5 + i / 24
        x, y = 0.78 * cos_turn(t), 0.35 + 0.78 * sin_turn(t)
        fill = c.dice.pick(((110, 165, 60), (200, 55, 45), (120, 70, 45), (245, 205, 90)))
        c.blob(x, y, 0.15, 0.13, fill)
    c.poly(
        [(0.86 * cos_turn(0.5 + i / 24) - 0.03, 0.46 + 0.82 * sin_turn(0.5 + i / 24)) for i in range(13)],
        shell,
    )
    for _ in range(5):
        c.dot(c.dice.off(0.5), c.dice.span(-0.1, 0.35), 0.035, darker(shell, 0.2))


def scoop(c: Canvas, x: float, y: float, r: float) -> None:
    color = c.main(*SWEETS)
    c.blob(x, y, r, r * 0.95, color, 0.05)
    c.dot(x - r * 0.3, y - r * 0.35, r * 0.22, lighter(color, 0.4))


@food.add("ice cream cone")
def ice_cream_cone(c: Canvas) -> None:
    wafer = c.dice.near((215, 160, 90), 18)
    c.poly(((-0.34, -0.02), (0.34, -0.02), (0, 0.95)), wafer)
    for k in (-0.2, 0.0, 0.2):
        c.stroke(((k - 0.14, 0.0), (k * 0.4 + 0.1, 0.6)), 0.025, darker(wafer, 0.3))
        c.stroke(((k + 0.14, 0.0), (k * 0.4 - 0.1, 0.6)), 0.025, darker(wafer, 0.3))
    n = c.dice.whole(1, 3)
    if n == 3:
        scoop(c, -0.2, -0.16, 0.28)
        scoop(c, 0.22, -0.16, 0.28)
        scoop(c, 0, -0.5, 0.3)
    else:
        for i in range(n):
            scoop(c, 0, -0.2 - 0.4 * i, 0.38 - 0.05 * i)


@food.add("ice cream sundae", held_out=True)
def ice_cream_sundae(c: Canvas) -> None:
    glass = c.dice.near((190, 210, 220), 15)
    scoop(c, -0.28, -0.22, 0.3)
    scoop(c, 0.28, -0.22, 0.3)
    scoop(c, 0, -0.46, 0.3)
    if c.dice.chance(0.6):
        c.stroke(((0.3, -0.3), (0.62, -0.85)), 0.1, BREAD)
    if c.dice.chance(0.7):
        c.dot(0, -0.8, 0.1, (200, 30, 45))
    c.poly(((-0.62, -0.12), (0.62, -0.12), (0.2, 0.5), (-0.2, 0.5)), glass)
    c.poly(((-0.48, 0.0), (0.48, 0.0), (0.2, 0.4), (-0.2, 0.4)), c.main(*SWEETS))
    c.box(-0.06, 0.5, 0.06, 0.76, glass)
    c.oval(0, 0.82, 0.36, 0.09, glass)


@food.add("sushi roll")
def sushi_roll(c: Canvas) -> None:
    core = c.main((240, 130, 90), (110, 160, 70), (250, 205, 70), (205, 60, 60))
    spots = ((-0.42, 0.05, 0.62), (0.45, 0.12, 0.62), (0.02, -0.45, 0.58))[: c.dice.whole(1, 3)]
    for x, y, s in spots if len(spots) > 1 else ((0.0, 0.0, 0.95),):
        with c.at(x, y, s):
            h = c.dice.span(0.3, 0.6)
            c.oval(0, h, 0.72, 0.5, (30, 40, 36))
            c.box(-0.72, 0, 0.72, h, (30, 40, 36))
            c.oval(0, 0, 0.72, 0.52, (42, 52, 46))
            c.oval(0, 0, 0.6, 0.42, (245, 243, 236))
            c.oval(0.02, 0, 0.26, 0.2, core)
            c.dot(0.14, 0.06, 0.1, c.dice.pick(((110, 160, 70), (250, 205, 70))))


@food.add("noodle soup")
def noodle_soup(c: Canvas) -> None:
    bowl = c.dice.any_color()
    broth, noodle = c.main((190, 130, 60), (165, 95, 45), (215, 165, 90)), c.dice.near((245, 220, 150), 12)
    side = c.dice.chance(0.5)  # seen at a slant, the bowl shows its wall
    flat = 0.5 if side else 1.0
    if side:
        c.poly(
            ((-0.9, -0.1), (0.9, -0.1), (0.66, 0.5), (0.35, 0.72), (-0.35, 0.72), (-0.66, 0.5)),
            darker(bowl, 0.2),
        )
    with c.at(0, -0.12 if side else 0.0, squeeze=flat):
        c.oval(0, 0, 0.92, 0.92, bowl)
        c.oval(0, 0, 0.8, 0.8, broth)
        for i in range(7):
            y = -0.42 + i * 0.14
            c.stroke([(-0.55 + k * 0.16, y + 0.05 * sin_turn(k * 0.3 + i * 0.2)) for k in range(8)], 0.06, noodle)
        c.oval(0.34, -0.28, 0.22, 0.2, (250, 248, 240))
        c.dot(0.34, -0.28, 0.1, (250, 180, 40))
        scatter(c, 6, 0.6, 0.06, (90, 150, 60), (190, 60, 50))


register(food)
