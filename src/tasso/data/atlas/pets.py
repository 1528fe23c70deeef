"""Dogs and cats by breed-like features, as a portrait from the front or the whole animal from the side.

One skeleton serves all breeds: a Breed says how its parts differ, a marking paints what its coat shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .canvas import BLACK, WHITE, Canvas, Color, clutter, darker, lighter, mix, polar
from .registry import Domain, Drawing, Pose, register

PINK: Color = (225, 150, 150)
TAN: Color = (195, 140, 85)
GREY: Color = (125, 128, 135)
CREAM: Color = (232, 218, 190)
Coat = tuple[Color, Color]  # base and marking colour
Marking = Callable[[Canvas, Coat], None]


def room(c: Canvas) -> None:
    dice = c.dice
    wall = dice.near(dice.pick(((200, 190, 170), (150, 170, 185), (110, 140, 90), (175, 130, 110), (85, 85, 95))), 30)
    c.wash(lighter(wall, dice.span(0, 0.3)), wall)
    clutter(c, dice.whole(1, 4), ((180, 90, 80), (90, 110, 150), (210, 200, 180), (100, 140, 90), wall))
    y = dice.span(0.3, 0.8)
    c.box(
        -1.2,
        y,
        1.2,
        1.2,
        dice.near(dice.pick(((160, 120, 80), (120, 150, 90), (190, 185, 175), (120, 60, 60))), 25),
    )


pets = Domain("pets", room, Pose((0.62, 0.98), 0.045, 0.18, 0.15, 0.12))


@dataclass(frozen=True)
class Breed:
    coats: tuple[Coat, ...]
    cat: bool
    ears: str = "pricked"  # pricked, floppy, big or round
    muzzle: float = 1.0
    length: float = 1.0  # of the body
    legs: float = 1.0
    fur: float = 0.0  # how ragged the outline is
    face: Marking | None = None  # markings on the portrait, under eyes and nose
    flank: Marking | None = None  # markings on the side view, over body and head


def mass(c: Canvas, x: float, y: float, rx: float, ry: float, color: Color, fur: float) -> None:
    """A part of the body; long fur gets a spiky rim."""
    if fur:
        c.poly(
            [
                (x + dx, y + dy * ry / rx)
                for i in range(26)
                for dx, dy in (polar(rx * (1 + fur * (1.0 if i % 2 else 0.2) * c.dice.span(0.6, 1.2)), i / 26),)
            ],
            color,
        )
    else:
        c.oval(x, y, rx, ry, color)


def ear(c: Canvas, breed: Breed, x: float, y: float, side: float, color: Color, size: float) -> None:
    """One ear whose root is at (x, y); ``side`` is -1 on the left."""
    if breed.ears == "floppy":
        tilt = c.dice.span(0.02, 0.05)
        c.oval(x + side * size * 0.35, y + size * 0.62, size * 0.4, size * 0.85, color, -side * tilt)
        return
    grow = 1.55 if breed.ears == "big" else 0.75 if breed.ears == "round" else 1.0
    tip = (x + side * size * 0.35 * grow, y - size * 0.85 * grow)
    c.poly(
        (
            (x - side * size * 0.55, y + size * 0.12),
            tip,
            (x + side * size * 0.5 * min(grow, 1.2), y + size * 0.4),
        ),
        color,
    )
    c.poly(
        ((x - side * size * 0.2, y), (tip[0], tip[1] + size * 0.25), (x + side * size * 0.3, y + size * 0.2)),
        mix(color, PINK, 0.6),
    )


def portrait(c: Canvas, breed: Breed, coat: Coat, ears: Color) -> None:
    base = coat[0]
    mass(c, 0, 0.95, 0.62, 0.55, darker(base, 0.12), breed.fur)
    behind = breed.ears != "floppy"  # floppy ears hang in front of the head
    if behind:
        for side in (-1, 1):
            ear(c, breed, side * 0.42, -0.4, side, ears, 0.5)
    wide = 0.62 if breed.cat else 0.56
    mass(c, 0, 0, wide, 0.56 if breed.cat else 0.62, base, breed.fur)
    if breed.face:
        breed.face(c, coat)
    if not behind:
        for side in (-1, 1):
            ear(c, breed, side * 0.5, -0.38, side, ears, 0.55)
    iris = c.dice.pick(((120, 160, 70), (90, 140, 190), (200, 160, 50))) if breed.cat else (70, 45, 30)
    for side in (-1, 1):
        c.oval(side * 0.25, -0.1, 0.12 if breed.cat else 0.085, 0.09, iris)
        c.dot(side * 0.25, -0.1, 0.055, BLACK)
    if breed.cat:
        c.poly(((-0.08, 0.14), (0.08, 0.14), (0, 0.24)), PINK)
        c.stroke(((-0.14, 0.34), (0, 0.26), (0.14, 0.34)), 0.03, darker(base, 0.6))
        for side in (-1, 1):
            for dy in (-0.06, 0.06):
                c.stroke(((side * 0.2, 0.24), (side * 0.75, 0.22 + dy * 2)), 0.015, WHITE)
    else:
        c.oval(0, 0.2, 0.13, 0.09, BLACK)
        c.stroke(((-0.18, 0.42), (0, 0.36), (0.18, 0.42)), 0.035, BLACK)
        if c.dice.chance(0.35):
            c.oval(0, 0.52, 0.09, 0.14, (220, 110, 120))


def side_view(c: Canvas, breed: Breed, coat: Coat, ears: Color, paws: Color) -> None:
    base = coat[0]
    half, legs = 0.48 * breed.length, 0.5 * breed.legs
    dim = darker(base, 0.2)
    lift = c.dice.span(-0.25, 0.1)
    if breed.cat:
        c.curve(
            (-half, 0.0),
            (-half - 0.4, 0.1),
            (-half - 0.25, -0.5 + lift),
            0.1 + breed.fur * 0.4,
            paws if paws != WHITE else base,
        )
    else:
        c.curve((-half, -0.05), (-half - 0.25, -0.1), (-half - 0.35, -0.4 + lift), 0.09 + breed.fur * 0.3, base)
    for x, front in ((-half * 0.75, False), (-half * 0.45, True), (half * 0.5, False), (half * 0.8, True)):
        step = c.dice.off(0.1)
        c.limb(((x, 0.15), (x + step, 0.22 + legs)), 0.14 if front else 0.12, base if front else dim)
        c.dot(x + step, 0.22 + legs, 0.08, paws)
    mass(c, 0, 0.06, half + 0.12, 0.27, base, breed.fur)
    hx, hy = half + 0.16, -0.4
    if not breed.cat:
        c.poly(((half - 0.2, -0.12), (hx - 0.2, hy), (hx + 0.1, hy + 0.18), (half + 0.08, 0.12)), base)
    if breed.ears != "floppy":
        ear(c, breed, hx - 0.13, hy - 0.14, -0.4, ears, 0.3)
        ear(c, breed, hx + 0.08, hy - 0.16, 0.4, ears, 0.3)
    mass(c, hx, hy, 0.26, 0.24, base, breed.fur)
    if not breed.cat:
        c.oval(hx + 0.24 * breed.muzzle, hy + 0.08, 0.2 * breed.muzzle, 0.11, lighter(base, 0.1))
    if breed.flank:
        breed.flank(c, coat)
    if breed.ears == "floppy":
        ear(c, breed, hx - 0.08, hy - 0.18, -0.3, ears, 0.32)
    tip = hx + (0.22 if breed.cat else 0.24 + 0.2 * breed.muzzle)
    c.dot(tip, hy + 0.05, 0.05, PINK if breed.cat else BLACK)
    c.dot(hx + 0.08, hy - 0.04, 0.045, BLACK)


def pet(breed: Breed, *, dark_ears: bool = False, paws: str = "base") -> Drawing:
    """The drawing function of a breed."""

    def drawing(c: Canvas) -> None:
        base, mark = c.dice.pick(breed.coats)
        coat = (c.dice.near(base, 14), c.dice.near(mark, 14))
        ears = coat[1] if dark_ears else coat[0]
        feet = {"base": coat[0], "mark": coat[1], "white": WHITE}[paws]
        if c.dice.chance(0.5):
            portrait(c, breed, coat, ears)
        else:
            with c.at(-0.12, 0.05, 0.98):
                side_view(c, breed, coat, ears, feet)

    return drawing


# -- markings: portraits have the head at (0, 0); side views the body there and the head at about (0.64, -0.4)


def mask_face(c: Canvas, coat: Coat) -> None:
    """A white mask under a dark cap, as huskies have it."""
    c.poly(
        (
            (-0.5, 0.02),
            (-0.3, -0.2),
            (-0.12, -0.02),
            (0, -0.34),
            (0.12, -0.02),
            (0.3, -0.2),
            (0.5, 0.02),
            (0.3, 0.5),
            (-0.3, 0.5),
        ),
        WHITE,
    )
    for side in (-1, 1):
        c.dot(side * 0.24, -0.26, 0.06, WHITE)


def mask_flank(c: Canvas, coat: Coat) -> None:
    c.poly(((-0.4, 0.15), (0.45, 0.1), (0.5, 0.26), (-0.3, 0.31)), WHITE)
    c.oval(0.72, -0.3, 0.18, 0.13, WHITE)
    c.poly(((0.46, -0.2), (0.66, -0.18), (0.56, 0.14), (0.44, 0.12)), WHITE)


def shepherd_face(c: Canvas, coat: Coat) -> None:
    """A dark muzzle and forehead on tan."""
    c.oval(0, 0.28, 0.26, 0.3, coat[1])
    c.poly(((-0.12, 0.1), (0.12, 0.1), (0.2, -0.5), (-0.2, -0.5)), mix(coat[0], coat[1], 0.7))


def shepherd_flank(c: Canvas, coat: Coat) -> None:
    c.poly(
        ((-0.58, -0.02), (-0.4, -0.2), (0.3, -0.2), (0.48, -0.12), (0.3, 0.08), (-0.2, 0.12), (-0.5, 0.12)),
        coat[1],
    )
    c.oval(0.9, -0.31, 0.2, 0.1, coat[1])


def spots_face(c: Canvas, coat: Coat) -> None:
    for _ in range(c.dice.whole(8, 13)):
        x, y = polar(c.dice.span(0.1, 0.5), c.dice.unit())
        c.dot(x, y, c.dice.span(0.035, 0.085), coat[1])


def spots_flank(c: Canvas, coat: Coat) -> None:
    for _ in range(c.dice.whole(14, 20)):
        c.dot(c.dice.off(0.52), 0.06 + c.dice.off(0.2), c.dice.span(0.03, 0.065), coat[1])
    for _ in range(4):
        c.dot(0.64 + c.dice.off(0.16), -0.4 + c.dice.off(0.16), 0.04, coat[1])
    for x in (-0.36, 0.24, 0.4):
        c.dot(x + c.dice.off(0.04), c.dice.span(0.35, 0.6), 0.035, coat[1])


def beagle_face(c: Canvas, coat: Coat) -> None:
    """A white blaze and muzzle."""
    c.oval(0, 0.32, 0.28, 0.28, WHITE)
    c.poly(((-0.14, 0.2), (0.14, 0.2), (0.07, -0.55), (-0.07, -0.55)), WHITE)


def beagle_flank(c: Canvas, coat: Coat) -> None:
    c.poly(((-0.5, -0.1), (-0.3, -0.2), (0.3, -0.19), (0.4, 0.0), (0.0, 0.12), (-0.4, 0.1)), BLACK)
    c.poly(((-0.2, 0.2), (0.5, 0.02), (0.56, 0.2), (0.0, 0.32)), WHITE)
    c.oval(0.86, -0.32, 0.17, 0.1, WHITE)


def curls(c: Canvas, x: float, y: float, rx: float, ry: float, color: Color, n: int) -> None:
    for i in range(n):
        dx, dy = polar(c.dice.span(0.3, 1.05), i / n)
        c.dot(x + dx * rx, y + dy * ry, 0.12, c.dice.near(color, 20))


def poodle_face(c: Canvas, coat: Coat) -> None:
    curls(c, 0, -0.48, 0.42, 0.24, coat[0], 14)
    for side in (-1, 1):
        curls(c, side * 0.58, 0.02, 0.1, 0.34, darker(coat[0], 0.15), 8)
    c.oval(0, 0.3, 0.2, 0.26, lighter(coat[0], 0.2))


def poodle_flank(c: Canvas, coat: Coat) -> None:
    curls(c, 0.15, 0.03, 0.42, 0.22, coat[0], 18)
    curls(c, 0.56, -0.6, 0.16, 0.12, coat[0], 9)
    curls(c, -0.82, -0.42, 0.08, 0.08, coat[0], 6)
    for x in (-0.36, -0.2, 0.24, 0.4):
        curls(c, x, 0.62, 0.06, 0.05, coat[0], 4)


def dachshund_face(c: Canvas, coat: Coat) -> None:
    """A long narrow muzzle with tan brows."""
    c.oval(0, 0.3, 0.2, 0.36, coat[1])
    for side in (-1, 1):
        c.dot(side * 0.24, -0.25, 0.07, coat[1])


def dachshund_flank(c: Canvas, coat: Coat) -> None:
    c.oval(1.24, -0.31, 0.2, 0.08, coat[1])
    c.oval(0.72, 0.12, 0.12, 0.16, coat[1])


def points_face(c: Canvas, coat: Coat) -> None:
    """The dark face of a siamese."""
    c.blob(0, 0.1, 0.36, 0.4, mix(coat[0], coat[1], 0.75), 0.06)
    c.oval(0, 0.2, 0.24, 0.24, coat[1])


def points_flank(c: Canvas, coat: Coat) -> None:
    c.oval(0.72, -0.36, 0.17, 0.17, coat[1])


def stripes_face(c: Canvas, coat: Coat) -> None:
    for x in (-0.16, 0.0, 0.16):
        c.stroke(((x, -0.52), (x * 0.7, -0.24)), 0.06, coat[1])
    for side in (-1, 1):
        for y in (0.02, 0.16, 0.3):
            c.stroke(((side * 0.56, y - 0.06), (side * 0.36, y)), 0.06, coat[1])
    c.oval(0, 0.26, 0.2, 0.16, lighter(coat[0], 0.4))


def stripes_flank(c: Canvas, coat: Coat) -> None:
    for i in range(6):
        x = -0.46 + i * 0.17 + c.dice.off(0.02)
        c.curve((x, -0.2), (x - 0.1, 0), (x + 0.02, c.dice.span(0.12, 0.26)), 0.06, coat[1])
    for x in (0.54, 0.64):
        c.stroke(((x, -0.62), (x, -0.46)), 0.045, coat[1])
    for x in (-0.36, 0.4):
        for y in (0.4, 0.52):
            c.stroke(((x - 0.08, y), (x + 0.08, y)), 0.04, coat[1])


def tuxedo_face(c: Canvas, coat: Coat) -> None:
    c.poly(((0, -0.3), (0.1, 0.05), (0.34, 0.3), (0.2, 0.54), (-0.2, 0.54), (-0.34, 0.3), (-0.1, 0.05)), WHITE)
    c.poly(((-0.3, 0.62), (0.3, 0.62), (0.0, 1.4)), WHITE)


def tuxedo_flank(c: Canvas, coat: Coat) -> None:
    c.oval(0.74, -0.32, 0.13, 0.1, WHITE)
    c.poly(((0.46, -0.2), (0.64, -0.16), (0.58, 0.2), (0.4, 0.26)), WHITE)


def fluffy_face(c: Canvas, coat: Coat) -> None:
    """A flat face in a ruff of long hair."""
    for i in range(14):
        t = -0.3 + i * 0.046
        c.stroke((polar(0.42, t), polar(0.82, t)), 0.05, coat[1])
    c.oval(0, 0.2, 0.3, 0.24, lighter(coat[0], 0.25))


def fluffy_flank(c: Canvas, coat: Coat) -> None:
    for i in range(14):
        x = -0.5 + i * 0.08
        c.stroke(((x, 0.08), (x + c.dice.off(0.05), 0.42)), 0.04, coat[1])


def calico_face(c: Canvas, coat: Coat) -> None:
    side = c.dice.pick((-1, 1))
    c.blob(side * 0.32, -0.2, 0.26, 0.3, (215, 125, 50), 0.15)
    c.blob(-side * 0.34, -0.16, 0.22, 0.3, (45, 40, 42), 0.15)
    if c.dice.chance(0.5):
        c.blob(side * 0.3, 0.3, 0.14, 0.12, (45, 40, 42), 0.15)


def calico_flank(c: Canvas, coat: Coat) -> None:
    for x, color in ((-0.38, (215, 125, 50)), (-0.02, (45, 40, 42)), (0.34, (215, 125, 50))):
        c.blob(x + c.dice.off(0.06), -0.02 + c.dice.off(0.06), 0.18, 0.16, color, 0.2)
    c.blob(0.56, -0.5, 0.13, 0.11, (45, 40, 42), 0.15)
    c.blob(0.74, -0.46, 0.1, 0.1, (215, 125, 50), 0.15)


def wrinkles_face(c: Canvas, coat: Coat) -> None:
    for y in (-0.46, -0.38, -0.3):
        c.curve((-0.2, y), (0, y - 0.08), (0.2, y), 0.025, coat[1])
    for side in (-1, 1):
        c.curve((side * 0.36, 0.2), (side * 0.3, 0.34), (side * 0.14, 0.44), 0.025, coat[1])


def wrinkles_flank(c: Canvas, coat: Coat) -> None:
    for x in (-0.4, -0.3, 0.3, 0.4, 0.5):
        c.curve((x, -0.14), (x + 0.06, 0.0), (x, 0.14), 0.025, coat[1])


SHEPHERD = Breed(((TAN, (45, 38, 34)), ((170, 120, 70), (35, 32, 32))), False, face=shepherd_face, flank=shepherd_flank)
HUSKY = Breed(
    ((GREY, WHITE), ((70, 72, 80), WHITE), ((165, 115, 75), WHITE)),
    False,
    face=mask_face,
    flank=mask_flank,
    fur=0.05,
)
SPOTTED = Breed(((WHITE, BLACK), (WHITE, (95, 60, 40))), False, "floppy", face=spots_face, flank=spots_flank)
BEAGLE = Breed(((TAN, WHITE), ((165, 105, 60), WHITE)), False, "floppy", 0.9, face=beagle_face, flank=beagle_flank)
POODLE = Breed(
    ((WHITE, WHITE), ((60, 58, 62), GREY), ((175, 125, 85), TAN), (GREY, GREY)),
    False, "floppy", 1.1, 0.9, 1.05, face=poodle_face, flank=poodle_flank,
)  # fmt: skip
DACHSHUND = Breed(
    (((120, 65, 40), TAN), ((45, 38, 36), TAN), ((165, 105, 60), (190, 140, 95))),
    False, "floppy", 1.25, 1.4, 0.4, face=dachshund_face, flank=dachshund_flank,
)  # fmt: skip
SIAMESE = Breed(((CREAM, (75, 55, 48)), ((240, 232, 220), (95, 95, 110))), True, face=points_face, flank=points_flank)
STRIPED = Breed(
    ((GREY, (60, 60, 65)), ((165, 130, 90), (75, 52, 38)), ((225, 155, 80), (175, 95, 40))),
    True,
    face=stripes_face,
    flank=stripes_flank,
)
TUXEDO = Breed(
    ((BLACK, WHITE), ((58, 58, 64), WHITE), ((110, 112, 118), WHITE)),
    True,
    face=tuxedo_face,
    flank=tuxedo_flank,
)
FLUFFY = Breed(
    (
        (WHITE, (225, 222, 214)), (GREY, (105, 108, 115)),
        ((230, 190, 140), (210, 165, 110)), ((70, 66, 66), (95, 90, 90)),
    ),
    True, "round", 0.8, 0.95, 0.7, 0.3, fluffy_face, fluffy_flank,
)  # fmt: skip
CALICO = Breed(((WHITE, TAN), ((240, 236, 226), TAN)), True, face=calico_face, flank=calico_flank)
HAIRLESS = Breed(
    (
        ((225, 180, 165), (185, 135, 120)), ((165, 150, 150), (120, 105, 108)),
        ((205, 165, 140), (160, 120, 100)),
    ),
    True, "big", 1.0, 0.95, 1.1, face=wrinkles_face, flank=wrinkles_flank,
)  # fmt: skip

pets.add("husky dog")(pet(HUSKY))
pets.add("shepherd dog")(pet(SHEPHERD, dark_ears=True))
pets.add("spotted dog", held_out=True)(pet(SPOTTED, dark_ears=True))
pets.add("beagle dog")(pet(BEAGLE))
pets.add("poodle dog")(pet(POODLE))
pets.add("dachshund dog")(pet(DACHSHUND))
pets.add("siamese cat")(pet(SIAMESE, dark_ears=True, paws="mark"))
pets.add("striped cat", held_out=True)(pet(STRIPED))
pets.add("tuxedo cat")(pet(TUXEDO, paws="white"))
pets.add("fluffy cat", held_out=True)(pet(FLUFFY))
pets.add("calico cat")(pet(CALICO))
pets.add("hairless cat")(pet(HAIRLESS))

register(pets)
