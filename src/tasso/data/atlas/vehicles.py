"""Road vehicles from the side, front to the right."""

from __future__ import annotations

from .canvas import BLACK, WHITE, Canvas, Color, clutter, darker, lighter
from .registry import Domain, Pose, register

GLASS: Color = (150, 190, 210)
TYRE: Color = (35, 35, 38)
STEEL: Color = (165, 168, 172)
PAINTS: tuple[Color, ...] = (
    (200, 40, 40),
    (40, 80, 165),
    (235, 235, 232),
    (60, 62, 66),
    (235, 185, 40),
    (60, 130, 80),
    (160, 165, 170),
)


def street(c: Canvas) -> None:
    dice = c.dice
    wall = dice.near(dice.pick(((190, 205, 220), (170, 150, 130), (120, 140, 110), (90, 95, 110))), 35)
    c.wash(lighter(wall, dice.span(0, 0.4)), wall)
    clutter(c, dice.whole(1, 5), ((150, 140, 130), (90, 120, 80), (200, 195, 185), (120, 70, 60)))
    y = dice.span(0.2, 0.6)
    c.box(-1.2, y, 1.2, 1.2, dice.near(dice.pick(((105, 105, 108), (150, 140, 120), (110, 130, 85))), 25))
    if dice.chance(0.5):
        c.box(-1.2, y + 0.3, 1.2, y + 0.34, (220, 220, 210))


vehicles = Domain("vehicles", street, Pose(scale=(0.58, 0.95), turn=0.025, shift=0.2, shear=0.12))


def wheel(c: Canvas, x: float, y: float, r: float) -> None:
    c.oval(x, y, r, r, TYRE)
    c.dot(x, y, r * 0.5, STEEL)


def wheels(c: Canvas, y: float, r: float, *xs: float) -> None:
    for x in xs:
        wheel(c, x, y, r)


def lamps(c: Canvas, x0: float, x1: float, y: float) -> None:
    c.dot(x0 + 0.04, y, 0.05, (190, 30, 30))
    c.dot(x1 - 0.04, y, 0.05, (250, 230, 150))


@vehicles.add("sedan car")
def sedan(c: Canvas) -> None:
    paint, k = c.main(*PAINTS), c.dice.off(0.05)
    c.poly(((-0.6, 0), (-0.38, -0.34 + k), (0.22, -0.34 + k), (0.52, 0)), paint)
    c.poly(((-0.5, 0), (-0.34, -0.27 + k), (-0.1, -0.27 + k), (-0.1, 0)), GLASS)
    c.poly(((-0.04, 0), (-0.04, -0.27 + k), (0.18, -0.27 + k), (0.42, 0)), GLASS)
    c.poly(((-0.98, 0.02), (-0.6, -0.04), (0.5, -0.04), (0.92, 0.04), (0.98, 0.28), (-0.98, 0.28)), paint)
    lamps(c, -0.98, 0.98, 0.12)
    wheels(c, 0.29, 0.18, -0.58, 0.58)


@vehicles.add("hatchback car")
def hatchback(c: Canvas) -> None:
    paint, k = c.main(*PAINTS), c.dice.off(0.05)
    c.poly(((-0.82, 0), (-0.7, -0.4 + k), (0.15, -0.4 + k), (0.45, 0)), paint)
    c.poly(((-0.7, 0), (-0.62, -0.33 + k), (-0.28, -0.33 + k), (-0.28, 0)), GLASS)
    c.poly(((-0.22, 0), (-0.22, -0.33 + k), (0.1, -0.33 + k), (0.35, 0)), GLASS)
    c.poly(((-0.84, -0.02), (0.45, -0.04), (0.8, 0.05), (0.84, 0.28), (-0.84, 0.28)), paint)
    lamps(c, -0.84, 0.84, 0.1)
    wheels(c, 0.29, 0.18, -0.5, 0.5)


@vehicles.add("sports car", held_out=True)
def sports_car(c: Canvas) -> None:
    paint, k = c.main((215, 35, 35), (240, 195, 30), *PAINTS), c.dice.off(0.03)
    c.poly(((-0.62, 0.04), (-0.3, -0.2 + k), (0.02, -0.2 + k), (0.42, 0.05)), paint)
    c.poly(((-0.3, 0.04), (-0.18, -0.14 + k), (0.0, -0.14 + k), (0.3, 0.04)), (60, 75, 90))
    c.poly(((-1.0, 0.0), (-0.6, -0.02), (0.4, 0.02), (1.02, 0.18), (1.0, 0.3), (-0.98, 0.3)), paint)
    if c.dice.chance(0.6):
        c.stroke(((-0.92, 0.02), (-0.95, -0.14)), 0.04, paint)
        c.box(-1.06, -0.18, -0.78, -0.13, darker(paint))
    lamps(c, -0.98, 0.94, 0.16)
    wheels(c, 0.29, 0.19, -0.6, 0.6)


@vehicles.add("delivery van")
def van(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    c.poly(((-0.92, -0.48), (0.35, -0.48), (0.68, -0.08), (0.94, 0.0), (0.96, 0.3), (-0.92, 0.3)), paint)
    c.poly(((0.2, -0.08), (0.2, -0.38), (0.32, -0.38), (0.56, -0.08)), GLASS)
    c.stroke(((0.12, -0.44), (0.12, 0.28)), 0.025, darker(paint))
    if c.dice.chance(0.6):
        c.blob(-0.4, -0.12, 0.24, 0.14, c.dice.any_color())
    lamps(c, -0.92, 0.96, 0.12)
    wheels(c, 0.3, 0.18, -0.55, 0.58)


@vehicles.add("pickup truck")
def pickup(c: Canvas) -> None:
    paint, k = c.main(*PAINTS), c.dice.off(0.05)
    c.poly(((-0.1, 0), (-0.06, -0.42 + k), (0.32, -0.42 + k), (0.54, 0)), paint)
    c.poly(((-0.02, -0.02), (0.0, -0.34 + k), (0.28, -0.34 + k), (0.44, -0.02)), GLASS)
    if c.dice.chance(0.4):
        c.blob(-0.5, -0.08, 0.28, 0.18, c.dice.any_color())
    c.poly(((-0.98, -0.06), (0.5, -0.06), (0.94, 0.0), (0.98, 0.26), (-0.98, 0.26)), paint)
    c.stroke(((-0.13, -0.06), (-0.13, 0.24)), 0.03, darker(paint, 0.5))
    lamps(c, -0.98, 0.98, 0.08)
    wheels(c, 0.3, 0.2, -0.6, 0.6)


def truck_cab(c: Canvas, paint: Color) -> None:
    c.poly(((0.48, -0.42), (0.82, -0.42), (0.96, -0.06), (0.96, 0.3), (0.48, 0.3)), paint)
    c.poly(((0.62, -0.34), (0.78, -0.34), (0.9, -0.06), (0.62, -0.06)), GLASS)
    c.box(-0.98, 0.2, 0.5, 0.3, (60, 60, 62))
    c.dot(0.93, 0.16, 0.05, (250, 230, 150))


@vehicles.add("tanker truck", held_out=True)
def tanker(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    tank = c.dice.pick((STEEL, WHITE, paint))
    truck_cab(c, paint)
    c.poly(((-0.98, -0.1), (-0.9, -0.3), (0.32, -0.3), (0.42, -0.1), (0.32, 0.18), (-0.9, 0.18)), tank)
    c.box(-0.96, -0.12, 0.4, -0.02, c.dice.any_color())
    c.box(-0.4, -0.37, -0.2, -0.3, darker(tank))
    wheels(c, 0.33, 0.15, -0.78, -0.44, 0.7)


@vehicles.add("dump truck")
def dump_truck(c: Canvas) -> None:
    paint = c.main((240, 180, 40), (225, 120, 40), *PAINTS)
    bed = c.dice.pick((paint, darker(paint), STEEL))
    truck_cab(c, paint)
    if c.dice.chance(0.6):
        c.blob(-0.3, -0.36, 0.5, 0.2, c.dice.pick(((120, 90, 60), (150, 150, 150), (200, 170, 110))))
    tilt = c.dice.pick((0.0, 0.0, 0.0, 0.06))
    with c.at(-0.9, 0.18, turn=-tilt):
        c.poly(((-0.1, -0.55), (1.3, -0.52), (1.18, 0.0), (0.1, 0.0)), bed)
        for x in (0.25, 0.6, 0.95):
            c.stroke(((x, -0.5), (x, -0.02)), 0.03, darker(bed))
    wheels(c, 0.33, 0.17, -0.72, -0.34, 0.7)


@vehicles.add("city bus")
def city_bus(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    c.box(-1.0, -0.42, 1.0, 0.3, paint)
    c.box(-0.94, -0.32, 0.94, -0.04, GLASS)
    for i in range(6):
        c.box(-0.64 + i * 0.28, -0.32, -0.6 + i * 0.28, -0.04, paint)
    c.box(0.6, -0.3, 0.8, 0.26, darker(GLASS, 0.3))
    if c.dice.chance(0.6):
        c.box(-1.0, 0.06, 0.58, 0.14, c.dice.any_color())
    lamps(c, -1.0, 1.0, 0.2)
    wheels(c, 0.31, 0.15, -0.6, 0.42)


@vehicles.add("double-decker bus", held_out=True)
def double_decker(c: Canvas) -> None:
    paint = c.main((205, 35, 40), *PAINTS)
    c.box(-0.88, -0.72, 0.88, 0.36, paint)
    for y in (-0.6, -0.12):
        c.box(-0.8, y, 0.8, y + 0.24, GLASS)
        for i in range(5):
            c.box(-0.55 + i * 0.26, y, -0.51 + i * 0.26, y + 0.24, paint)
    if c.dice.chance(0.6):
        c.box(-0.7, -0.32, 0.5, -0.16, c.dice.any_color())
    lamps(c, -0.88, 0.88, 0.24)
    wheels(c, 0.37, 0.16, -0.52, 0.5)


@vehicles.add("motorcycle")
def motorcycle(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    wheels(c, 0.3, 0.3, -0.58, 0.6)
    c.stroke(((0.6, 0.3), (0.36, -0.34), (0.22, -0.38)), 0.07, STEEL)
    c.poly(((-0.3, 0.3), (-0.25, 0.02), (0.25, 0.02), (0.2, 0.34)), STEEL)
    c.stroke(((-0.2, 0.34), (-0.75, 0.36)), 0.08, STEEL)
    c.oval(0.12, -0.08, 0.28, 0.14, paint)
    c.poly(((-0.75, -0.14), (-0.1, -0.08), (-0.14, 0.04), (-0.6, 0.0)), BLACK)
    c.dot(0.42, -0.24, 0.09, (250, 235, 170))
    c.arc(0.6, 0.3, 0.36, 0.36, 0.6, 0.9, 0.06, paint)


@vehicles.add("bicycle")
def bicycle(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    for x in (-0.55, 0.55):
        c.arc(x, 0.3, 0.36, 0.36, 0, 1, 0.05, TYRE)
        if c.dice.chance(0.5):
            for t in (-0.3, 0.0, 0.3):
                c.stroke(((x - 0.3, 0.3 + t), (x + 0.3, 0.3 - t)), 0.012, STEEL)
    c.stroke(((-0.55, 0.3), (-0.05, 0.32), (0.38, -0.2), (-0.2, -0.18), (-0.55, 0.3)), 0.06, paint)
    c.stroke(((-0.05, 0.32), (-0.24, -0.32)), 0.06, paint)
    c.stroke(((0.55, 0.3), (0.34, -0.42), (0.5, -0.48)), 0.06, paint)
    c.stroke(((-0.38, -0.34), (-0.1, -0.34)), 0.09, BLACK)


@vehicles.add("tractor")
def tractor(c: Canvas) -> None:
    paint = c.main((60, 140, 60), (205, 50, 40), *PAINTS[:5])
    c.box(0.0, -0.14, 0.82, 0.2, paint)
    c.poly(((-0.62, -0.14), (-0.56, -0.66), (0.0, -0.66), (0.08, -0.14)), GLASS)
    c.box(-0.66, -0.74, 0.08, -0.64, paint)
    c.stroke(((-0.26, -0.66), (-0.26, -0.14)), 0.05, paint)
    c.poly(((-0.75, -0.14), (0.05, -0.14), (0.05, 0.2), (-0.6, 0.2)), darker(paint, 0.15))
    c.stroke(((0.5, -0.14), (0.5, -0.5)), 0.07, BLACK)
    wheel(c, -0.46, 0.2, 0.4)
    wheel(c, 0.62, 0.36, 0.23)


register(vehicles)
