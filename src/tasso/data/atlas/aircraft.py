"""Things that fly, nose to the right: mostly side views, some from above or the front."""

from __future__ import annotations

from .canvas import BLACK, WHITE, Canvas, Color, darker, lighter, mix
from .registry import Domain, Pose, register

GLASS: Color = (120, 170, 205)
STEEL: Color = (150, 155, 162)
PAINTS: tuple[Color, ...] = (
    (235, 235, 232),
    (200, 50, 45),
    (40, 85, 165),
    (230, 180, 40),
    (90, 100, 80),
    STEEL,
    (60, 62, 70),
)


def sky(c: Canvas) -> None:
    dice = c.dice
    blue = dice.near(dice.pick(((110, 165, 225), (170, 195, 215), (235, 180, 140), (70, 95, 150))), 25)
    c.wash(darker(blue, dice.span(0, 0.3)), lighter(blue, dice.span(0, 0.5)))
    for _ in range(dice.whole(0, 4)):
        x, y, r = dice.off(1), dice.off(0.9), dice.span(0.12, 0.4)
        white = mix(blue, WHITE, dice.span(0.3, 0.9))
        c.blob(x, y, r, r * 0.45, white)
        c.blob(x + r * 0.6, y + 0.05, r * 0.7, r * 0.4, white)
    if dice.chance(0.5):  # hills, a runway or the sea
        y = dice.span(0.45, 0.95)
        land = dice.near(dice.pick(((90, 120, 70), (130, 130, 125), (60, 100, 130), (160, 140, 100))), 25)
        c.poly(
            (
                (-1.1, y),
                (-0.4, y + dice.off(0.12)),
                (0.3, y + dice.off(0.12)),
                (1.1, y),
                (1.1, 1.1),
                (-1.1, 1.1),
            ),
            land,
        )


aircraft = Domain("aircraft", sky, Pose(scale=(0.68, 1.0), turn=0.07, shift=0.18))


def body(c: Canvas, tail: float, nose: float, height: float, color: Color, droop: float = 0.0) -> None:
    """A fuselage that tapers towards the tail."""
    h = height
    c.poly(
        (
            (tail, -h * 0.35),
            (tail * 0.3, -h * 0.8),
            (nose * 0.55, -h),
            (nose * 0.88, -h * 0.6),
            (nose, h * 0.1 + droop),
            (nose * 0.85, h * 0.7),
            (nose * 0.3, h),
            (tail * 0.4, h * 0.6),
            (tail, -h * 0.05),
        ),
        color,
    )


def fin(c: Canvas, x: float, y: float, height: float, chord: float, color: Color) -> None:
    c.poly(((x, y), (x - chord * 0.5, y - height), (x + chord * 0.2, y - height), (x + chord, y)), color)


def wing(c: Canvas, x: float, y: float, chord: float, span: float, sweep: float, color: Color) -> None:
    """The near wing as a slanting board; negative spans give the far wing."""
    c.poly(((x, y), (x - sweep, y + span), (x - sweep - chord * 0.6, y + span), (x - chord, y)), color)


def propeller(c: Canvas, x: float, y: float, reach: float) -> None:
    lean = c.dice.off(0.06)
    c.stroke(((x - lean, y - reach), (x + lean, y + reach)), 0.05, BLACK)
    c.dot(x, y, 0.05, STEEL)


def top_view(c: Canvas, paint: Color, span: float, chord: float, sweep: float, width: float, tip: float) -> None:
    """A plane seen from above: swept wings, tailplane, thin body."""
    dim = darker(paint, 0.18)
    for side in (-1.0, 1.0):
        c.poly(
            (
                (0.15 + chord / 2, 0),
                (0.15 - sweep + tip, side * span),
                (0.15 - sweep - tip * 0.4, side * span),
                (0.15 - chord / 2, 0),
            ),
            dim,
        )
        c.poly(((-0.62, 0), (-0.8 - sweep * 0.3, side * 0.3), (-0.92 - sweep * 0.3, side * 0.3), (-0.85, 0)), dim)
    c.oval(0, 0, 0.92, width, paint)
    c.oval(0.6, 0, 0.12, width * 0.6, GLASS)


def light_plane(c: Canvas, paint: Color) -> None:
    body(c, -0.9, 0.75, 0.2, paint)
    fin(c, -0.85, -0.06, 0.32, 0.24, paint)
    c.poly(((0.1, -0.18), (0.2, -0.33), (0.42, -0.33), (0.55, -0.14)), GLASS)


@aircraft.add("biplane")
def biplane(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    other = c.dice.pick((paint, darker(paint), WHITE))
    if c.dice.chance(0.35):  # from the front
        for y in (-0.34, 0.2):
            c.box(-0.98, y - 0.05, 0.98, y + 0.05, other)
        for x in (-0.75, -0.4, 0.4, 0.75):
            c.stroke(((x, -0.3), (x, 0.18)), 0.03, darker(other))
        c.oval(0, 0, 0.2, 0.22, paint)
        c.stroke(((-0.15, 0.2), (-0.25, 0.5)), 0.04, BLACK)
        c.stroke(((0.15, 0.2), (0.25, 0.5)), 0.04, BLACK)
        propeller(c, 0, 0, 0.4)
        return
    wing(c, 0.52, -0.42, 0.44, -0.16, 0.1, darker(other))
    body(c, -0.95, 0.74, 0.17, paint)
    fin(c, -0.92, -0.04, 0.3, 0.24, paint)
    wing(c, 0.56, 0.12, 0.48, 0.24, 0.22, other)
    for x in (0.5, 0.12, 0.28, -0.1):
        c.stroke(((x, -0.42), (x - 0.03, 0.2)), 0.025, darker(other, 0.5))
    wing(c, 0.58, -0.46, 0.5, 0.2, 0.22, other)
    propeller(c, 0.76, 0, 0.34)
    c.stroke(((0.3, 0.2), (0.38, 0.48)), 0.04, BLACK)
    c.dot(0.38, 0.5, 0.09, BLACK)


@aircraft.add("propeller plane")
def propeller_plane(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    other = c.dice.pick((paint, darker(paint), WHITE))
    view = c.dice.unit()
    if view < 0.25:
        top_view(c, paint, 0.9, 0.34, 0.0, 0.13, 0.12)
        c.stroke(((0.93, -0.22), (0.93, 0.22)), 0.05, BLACK)
        return
    if view < 0.4:
        y = c.dice.pick((-0.22, 0.08))
        c.box(-0.98, y - 0.05, 0.98, y + 0.05, other)
        c.oval(0, 0, 0.2, 0.22, paint)
        for x in (-1.0, 1.0):
            c.stroke(((x * 0.15, 0.2), (x * 0.25, 0.5)), 0.04, BLACK)
        propeller(c, 0, 0, 0.4)
        return
    light_plane(c, paint)
    wing(c, 0.45, c.dice.pick((-0.24, 0.1)), 0.42, 0.32, 0.25, other)
    propeller(c, 0.78, 0, 0.34)
    c.stroke(((0.3, 0.2), (0.36, 0.42)), 0.04, BLACK)
    c.dot(0.36, 0.46, 0.08, BLACK)
    c.stroke(((-0.8, 0), (-0.85, 0.1)), 0.04, BLACK)


@aircraft.add("seaplane")
def seaplane(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    other = c.dice.pick((paint, darker(paint), WHITE))
    light_plane(c, paint)
    wing(c, 0.45, -0.26, 0.42, 0.3, 0.2, other)
    propeller(c, 0.78, 0, 0.32)
    for x in (-0.2, 0.35):
        c.stroke(((x, 0.12), (x + 0.05, 0.5)), 0.04, darker(other, 0.5))
    c.poly(((-0.6, 0.46), (0.75, 0.46), (0.85, 0.52), (0.6, 0.66), (-0.4, 0.64)), c.dice.pick((STEEL, other)))


@aircraft.add("passenger jet")
def passenger_jet(c: Canvas) -> None:
    paint = c.main((240, 240, 238), (225, 230, 235), (200, 205, 215), *PAINTS[1:4])
    accent = c.dice.any_color()
    if c.dice.chance(0.3):
        top_view(c, paint, 0.88, 0.5, 0.42, 0.1, 0.1)
        for y in (-0.4, 0.4):
            c.oval(0.16, y, 0.12, 0.06, STEEL)
        return
    wing(c, 0.2, -0.08, 0.35, -0.3, 0.3, darker(paint))
    c.poly(
        (
            (-0.98, -0.12),
            (-0.5, -0.16),
            (0.75, -0.16),
            (0.98, 0.04),
            (0.85, 0.14),
            (-0.4, 0.14),
            (-0.98, -0.06),
        ),
        paint,
    )
    c.poly(((-0.95, -0.12), (-1.02, -0.52), (-0.84, -0.52), (-0.6, -0.14)), accent)
    for i in range(9):
        c.dot(-0.5 + i * 0.13, -0.05, 0.03, (60, 80, 110))
    c.poly(((0.8, -0.1), (0.9, -0.1), (0.93, -0.02), (0.8, -0.02)), (50, 60, 80))
    c.oval(0.2, 0.24, 0.15, 0.09, STEEL)
    wing(c, 0.25, 0.06, 0.42, 0.42, 0.5, darker(paint, 0.22))
    c.poly(((-0.75, -0.06), (-1.02, 0.06), (-0.94, -0.07)), darker(paint))


@aircraft.add("fighter jet", held_out=True)
def fighter_jet(c: Canvas) -> None:
    paint = c.main((130, 138, 145), (100, 108, 90), (85, 95, 115), *PAINTS[1:])
    if c.dice.chance(0.4):
        top_view(c, paint, 0.62, 1.05, 0.62, 0.12, 0.06)
        c.poly(((0.7, -0.09), (1.05, 0), (0.7, 0.09)), darker(paint))
        c.oval(0.35, 0, 0.2, 0.07, (60, 60, 70))
        return
    c.poly(((-0.9, -0.1), (-0.2, -0.15), (0.45, -0.12), (1.05, 0.06), (0.4, 0.13), (-0.9, 0.12)), paint)
    c.poly(((-0.9, -0.1), (-0.98, -0.5), (-0.8, -0.5), (-0.42, -0.12)), darker(paint, 0.15))
    c.poly(((0.1, -0.13), (0.25, -0.26), (0.42, -0.24), (0.62, -0.07)), (60, 70, 85))
    c.poly(((0.35, 0.06), (-0.55, 0.42), (-0.75, 0.4), (-0.6, 0.06)), darker(paint, 0.25))
    c.box(-1.0, -0.08, -0.88, 0.1, BLACK)
    for x in (-0.35, -0.05):
        c.stroke(((x, 0.3), (x + 0.35, 0.3)), 0.05, c.dice.pick((WHITE, BLACK)))


@aircraft.add("glider")
def glider(c: Canvas) -> None:
    paint = c.main((242, 242, 240), (242, 242, 240), *PAINTS[1:4])
    if c.dice.chance(0.4):
        top_view(c, paint, 1.02, 0.16, 0.0, 0.06, 0.04)
        return
    c.poly(((0.25, -0.08), (0.12, -0.62), (0.06, -0.62), (0.08, -0.08)), darker(paint, 0.25))
    c.poly(
        (
            (-1.0, -0.1),
            (-0.2, -0.1),
            (0.3, -0.17),
            (0.7, -0.1),
            (0.85, 0.04),
            (0.6, 0.13),
            (0.1, 0.1),
            (-1.0, -0.05),
        ),
        paint,
    )
    c.poly(((-0.98, -0.08), (-1.02, -0.42), (-0.86, -0.42), (-0.8, -0.08)), paint)
    c.poly(((-1.15, -0.44), (-0.75, -0.44), (-0.75, -0.38), (-1.15, -0.38)), darker(paint, 0.2))
    c.poly(((0.3, -0.14), (0.7, -0.09), (0.74, -0.01), (0.3, -0.02)), (70, 85, 105))
    c.poly(((0.25, -0.02), (0.02, 0.8), (-0.05, 0.8), (0.06, -0.02)), darker(paint, 0.1))


@aircraft.add("hang glider", held_out=True)
def hang_glider(c: Canvas) -> None:
    paint = c.main()
    other = c.dice.any_color()
    c.poly(((0.3, -0.55), (-1.0, -0.1), (-0.55, -0.12), (-0.3, -0.02)), paint)
    c.poly(((0.3, -0.55), (-0.3, -0.02), (0.2, -0.12), (0.35, 0.02)), other)
    c.poly(((0.3, -0.55), (0.35, 0.02), (0.65, -0.14), (0.98, -0.12)), darker(paint, 0.15))
    for x in (-0.05, 0.3):
        c.stroke(((0.1, -0.25), (x, 0.42)), 0.025, BLACK)
    c.stroke(((-0.05, 0.42), (0.3, 0.42)), 0.03, BLACK)
    suit = c.dice.any_color()
    c.limb(((-0.5, 0.34), (0.1, 0.3)), 0.13, suit)
    c.stroke(((0.05, 0.3), (0.2, 0.42)), 0.05, suit)
    c.dot(0.2, 0.26, 0.09, (225, 180, 150))


@aircraft.add("helicopter")
def helicopter(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    c.poly(((-0.1, -0.16), (-0.98, -0.2), (-0.98, -0.1), (-0.1, 0.14)), paint)
    c.poly(((-0.9, -0.15), (-1.04, -0.42), (-0.92, -0.42), (-0.8, -0.15)), darker(paint))
    c.stroke(((-1.1, -0.2), (-0.86, -0.38)), 0.04, BLACK)
    c.oval(0.22, 0.02, 0.46, 0.28, paint)
    c.poly(((0.3, -0.2), (0.55, -0.15), (0.68, 0.05), (0.32, 0.05)), GLASS)
    c.stroke(((0.15, -0.25), (0.15, -0.42)), 0.07, STEEL)
    reach, tilt = c.dice.span(0.75, 1.0), c.dice.off(0.05)
    c.stroke(((0.15 - reach, -0.42 - tilt), (0.15 + reach, -0.42 + tilt)), 0.05, BLACK)
    if c.dice.chance(0.75):
        c.stroke(((-0.15, 0.45), (0.6, 0.45), (0.68, 0.4)), 0.05, STEEL)
        for x in (0.05, 0.4):
            c.stroke(((x, 0.25), (x, 0.45)), 0.04, STEEL)


@aircraft.add("quadcopter drone")
def drone(c: Canvas) -> None:
    paint = c.main((60, 60, 66), (235, 235, 235), (150, 150, 155), (200, 60, 50))
    if c.dice.chance(0.5):  # from above
        for x in (-1.0, 1.0):
            for y in (-1.0, 1.0):
                c.stroke(((0, 0), (x * 0.6, y * 0.5)), 0.1, paint)
                c.oval(x * 0.6, y * 0.5, 0.3, 0.27, lighter(STEEL, c.dice.span(0.1, 0.5)))
                c.stroke(((x * 0.6 - 0.25, y * 0.5), (x * 0.6 + 0.25, y * 0.5)), 0.04, BLACK)
        c.box(-0.26, -0.2, 0.26, 0.2, paint)
        c.dot(0.14, 0, 0.07, BLACK)
        return
    for x, y in ((-0.85, -0.1), (-0.45, -0.3), (0.45, -0.3), (0.85, -0.1)):
        c.stroke(((0, 0), (x, y + 0.06)), 0.07, darker(paint, 0.2))
        c.stroke(((x, y + 0.08), (x, y - 0.08)), 0.08, paint)
        c.stroke(((x - 0.27, y - 0.1), (x + 0.27, y - 0.1)), 0.04, BLACK)
    c.oval(0, 0.02, 0.36, 0.15, paint)
    c.dot(0.05, 0.2, 0.1, BLACK)
    for x in (-0.28, 0.28):
        c.stroke(((x * 0.7, 0.1), (x * 1.2, 0.42)), 0.05, darker(paint))


@aircraft.add("hot air balloon", held_out=True)
def hot_air_balloon(c: Canvas) -> None:
    paint, other = c.main(), c.dice.any_color()
    for x in (-0.16, 0.16):
        c.stroke(((x * 2, 0.3), (x, 0.72)), 0.025, BLACK)
    c.poly(
        (
            (-0.2, 0.45),
            (-0.55, 0.1),
            (-0.66, -0.25),
            (-0.5, -0.65),
            (-0.2, -0.88),
            (0.2, -0.88),
            (0.5, -0.65),
            (0.66, -0.25),
            (0.55, 0.1),
            (0.2, 0.45),
        ),
        paint,
    )
    if c.dice.chance(0.7):
        for x in (-0.36, 0.0, 0.36):
            k = 0.1
            c.poly(
                (
                    (x * 0.3, 0.45),
                    (x - k, -0.2),
                    (x * 0.5 - k * 0.5, -0.86),
                    (x * 0.5 + k * 0.5, -0.86),
                    (x + k, -0.2),
                ),
                other,
            )
    else:
        c.poly(((-0.65, -0.3), (0.65, -0.3), (0.6, 0.0), (-0.6, 0.0)), other)
    c.box(-0.17, 0.7, 0.17, 0.94, (140, 95, 55))


@aircraft.add("airship")
def airship(c: Canvas) -> None:
    paint = c.main((190, 192, 198), (235, 232, 225), *PAINTS)
    for y in (-0.3, 0.22):
        c.poly(((-0.55, y * 0.5), (-0.95, y * 1.25), (-0.98, y * 0.4), (-0.85, 0)), darker(paint))
    c.oval(0, -0.05, 0.95, 0.33, paint)
    if c.dice.chance(0.6):
        c.poly(((-0.88, -0.02), (0.9, -0.02), (0.86, 0.1), (-0.8, 0.1)), c.dice.any_color())
    c.box(-0.16, 0.28, 0.3, 0.42, darker(paint, 0.5))


@aircraft.add("space rocket")
def rocket(c: Canvas) -> None:
    paint, trim = c.main((240, 240, 240), (200, 205, 210), *PAINTS), c.dice.any_color()
    with c.at(turn=c.dice.pick((0.0, 0.0, 0.08, -0.08, 0.16))):
        if c.dice.chance(0.6):
            c.poly(((-0.14, 0.65), (0, 1.05), (0.14, 0.65)), (250, 170, 40))
        for side in (-1, 1):
            c.poly(((side * 0.15, 0.2), (side * 0.42, 0.68), (side * 0.15, 0.62)), trim)
        c.poly(((-0.2, -0.5), (0, -0.98), (0.2, -0.5), (0.2, 0.65), (-0.2, 0.65)), paint)
        c.poly(((-0.2, -0.5), (0, -0.98), (0.2, -0.5)), trim)
        for i in range(c.dice.whole(0, 2)):
            c.dot(0, -0.3 + 0.3 * i, 0.1, GLASS)


register(aircraft)
