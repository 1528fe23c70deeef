"""People doing things, facing right. A pose is joint angles in turns: 0 hangs down, forward is positive."""

from __future__ import annotations

from dataclasses import dataclass

from .canvas import BLACK, Canvas, Color, Point, clutter, darker, lighter, polar
from .registry import Domain, Pose, register

SKINS: tuple[Color, ...] = ((235, 195, 165), (205, 155, 115), (145, 100, 70), (95, 65, 48))
CLOTHES: tuple[Color, ...] = (
    (200, 50, 50),
    (50, 90, 170),
    (60, 140, 80),
    (235, 200, 60),
    (70, 70, 78),
    (235, 235, 232),
    (150, 80, 150),
    (225, 130, 60),
)
WOOD: Color = (150, 105, 65)
STEEL: Color = (165, 168, 174)


def outdoors(c: Canvas) -> None:
    dice = c.dice
    wall = dice.near(dice.pick(((170, 200, 225), (205, 195, 180), (130, 150, 120), (90, 95, 110), (190, 160, 150))), 30)
    c.wash(lighter(wall, dice.span(0, 0.4)), wall)
    clutter(c, dice.whole(1, 5), ((110, 140, 90), (160, 150, 140), (120, 90, 80), (210, 205, 195), wall))
    y = dice.span(0.55, 0.9)
    c.box(
        -1.2,
        y,
        1.2,
        1.2,
        dice.near(dice.pick(((100, 140, 75), (160, 150, 135), (185, 165, 120), (110, 110, 115))), 25),
    )


actions = Domain("actions", outdoors, Pose((0.66, 1.0), 0.03, 0.18, 0.12, 0.1), tinted=False)

Angles = tuple[float, float]  # of the upper and the lower part of a limb


@dataclass
class Joints:
    """Where a drawn figure's parts ended up, for whatever it holds."""

    head: Point
    near_hand: Point
    far_hand: Point
    near_foot: Point
    far_foot: Point
    hip: Point
    chest: Point


def figure(
    c: Canvas, near_arm: Angles, far_arm: Angles, near_leg: Angles, far_leg: Angles, *,
    lean: float = 0.0, hip: Point = (0.0, 0.15), loose: float = 0.016,
) -> Joints:  # fmt: skip
    """Draw a person; every joint strays by up to ``loose`` turns."""
    dice = c.dice
    top = c.main(*CLOTHES)
    trousers, skin = dice.near(dice.pick(CLOTHES), 25), dice.near(dice.pick(SKINS), 10)
    build, bare = dice.span(0.85, 1.2), dice.chance(0.4)
    neck = polar(0.5, 0.5 - lean - dice.off(loose), *hip)
    head = polar(0.19, 0.5 - lean * 0.5 + dice.off(loose), *neck)

    def limb(root: Point, angles: Angles, reach: float, width: float, color: Color, end: Color) -> Point:
        joint = polar(reach, angles[0] + dice.off(loose), *root)
        tip = polar(reach, angles[1] + dice.off(loose), *joint)
        c.limb((root, joint), width * build, color)
        c.limb((joint, tip), width * build * 0.85, end)
        return tip

    sleeve = skin if bare else top
    far_hand = limb(neck, far_arm, 0.27, 0.1, darker(top, 0.25), darker(sleeve, 0.25))
    far_foot = limb(hip, far_leg, 0.37, 0.13, darker(trousers, 0.25), darker(trousers, 0.25))
    c.dot(*far_foot, 0.075, BLACK)
    near_foot = limb(hip, near_leg, 0.37, 0.14, trousers, trousers)
    c.dot(*near_foot, 0.075, BLACK)
    c.limb((hip, neck), 0.24 * build, top)
    c.oval(*head, 0.145, 0.165, skin)
    hair = dice.near(dice.pick(((50, 38, 30), (120, 80, 45), (215, 180, 100), (130, 130, 130))), 12)
    away = (head[0] * 2 - neck[0], head[1] * 2 - neck[1])
    c.dot(head[0] + (away[0] - head[0]) * 0.45 - 0.02, head[1] + (away[1] - head[1]) * 0.45, 0.12, hair)
    near_hand = limb(neck, near_arm, 0.27, 0.1, top, sleeve)
    c.dot(*near_hand, 0.055, skin)
    c.dot(*far_hand, 0.05, darker(skin, 0.15))
    chest = ((hip[0] + neck[0]) / 2, (hip[1] + neck[1]) / 2)
    return Joints(head, near_hand, far_hand, near_foot, far_foot, hip, chest)


def stride(c: Canvas) -> tuple[Angles, Angles]:
    """Legs and arms of an ordinary step."""
    k = c.dice.span(0.035, 0.075)
    return (k, k * 0.7), (-k, -k * 1.6)


def standing(c: Canvas) -> tuple[Angles, Angles]:
    k = c.dice.span(0.01, 0.04)
    return (k, k * 0.6), (-k, -k * 0.6)


def ball(c: Canvas, x: float, y: float) -> None:
    color = c.dice.near(c.dice.pick(((240, 240, 238), (220, 110, 50), (220, 200, 60), (190, 50, 50))), 15)
    c.oval(x, y, 0.13, 0.13, color)
    c.dot(x, y, 0.045, darker(color, 0.5))


@actions.add("person walking")
def walking(c: Canvas) -> None:
    near, far = stride(c)
    k = c.dice.span(0.02, 0.07)
    figure(c, (-k, -k * 0.3), (k, k * 1.8), near, far, lean=c.dice.span(0, 0.02))


@actions.add("person running")
def running(c: Canvas) -> None:
    k = c.dice.span(0.0, 0.05)
    figure(
        c, (-0.13 - k, 0.1), (0.1 + k, 0.33), (0.14 + k, -0.03), (-0.06 - k, -0.26 - k),
        lean=c.dice.span(0.02, 0.06), loose=0.025,
    )  # fmt: skip


@actions.add("person kicking a ball", held_out=True)
def kicking(c: Canvas) -> None:
    k = c.dice.span(0.1, 0.2)
    at = figure(
        c,
        (-0.14, -0.1),
        (0.12, 0.2),
        (k, k + 0.02),
        (-0.03, -0.06),
        lean=c.dice.span(-0.06, 0.0),
        loose=0.025,
    )
    ball(c, at.near_foot[0] + c.dice.span(0.12, 0.3), at.near_foot[1] - c.dice.span(-0.1, 0.15))


@actions.add("person throwing a ball")
def throwing(c: Canvas) -> None:
    near, far = stride(c)
    back = c.dice.chance(0.6)  # before or at the moment of release
    arm = (-0.33, -0.5) if back else (0.3, 0.36)
    at = figure(c, arm, (0.2, 0.26), near, far, lean=-0.03 if back else 0.04, loose=0.025)
    step = 0.06 if back else c.dice.span(0.14, 0.3)
    ball(c, at.near_hand[0] + (0 if back else step), at.near_hand[1] - step)


@actions.add("person waving")
def waving(c: Canvas) -> None:
    near, far = standing(c)
    k = c.dice.span(0.19, 0.3)
    figure(c, (k, c.dice.span(0.4, 0.53)), (-0.04, -0.02), near, far, loose=0.025)


@actions.add("person sitting on a chair")
def sitting(c: Canvas) -> None:
    wood = c.dice.near(c.dice.pick((WOOD, STEEL, (90, 60, 45), (180, 60, 50))), 15)
    c.stroke(((-0.22, 0.28), (-0.28, -0.35)), 0.07, wood)
    c.box(-0.26, 0.22, 0.3, 0.31, wood)
    for x in (-0.22, 0.26):
        c.stroke(((x, 0.3), (x, 0.86)), 0.06, wood)
    lap = c.dice.span(0.06, 0.16)
    figure(c, (0.05, lap + 0.1), (0.03, lap + 0.08), (0.23, 0.01), (0.22, -0.02), lean=-0.01)


@actions.add("person lifting a barbell")
def lifting(c: Canvas) -> None:
    k = c.dice.span(0.04, 0.1)
    high = c.dice.chance(0.65)
    up, low = (0.42, 0.5) if high else (0.1, 0.42)
    at = figure(c, (up, low), (1 - up, 1 - low), (k, k * 0.4), (-k, -k * 0.4), loose=0.012)
    y = (at.near_hand[1] + at.far_hand[1]) / 2
    c.stroke(((-0.75, y), (0.75, y)), 0.045, STEEL)
    plate, r = c.dice.near((60, 60, 66), 30), c.dice.span(0.14, 0.22)
    for x in (-0.68, 0.68):
        c.oval(x, y, 0.07, r, plate)


@actions.add("person climbing a ladder")
def climbing(c: Canvas) -> None:
    wood = c.dice.near(c.dice.pick((WOOD, STEEL, (200, 160, 100))), 15)
    tilt = c.dice.span(0.0, 0.25)
    x0 = 0.3 - tilt * 0.4

    def rail(y: float) -> float:
        return x0 - y * tilt

    for side in (0.0, 0.3):
        c.stroke(((rail(-1.1) + side, -1.1), (rail(1.1) + side, 1.1)), 0.055, wood)
    for i in range(9):
        y = -1 + i * 0.25
        c.stroke(((rail(y), y), (rail(y) + 0.3, y)), 0.05, wood)
    figure(c, (0.28, 0.4), (0.2, 0.26), (0.19, -0.02), (0.03, 0.02), lean=0.03, hip=(-0.05, 0.2))


@actions.add("person doing a handstand")
def handstand(c: Canvas) -> None:
    k = c.dice.span(0.0, 0.07)
    with c.at(0, 0.0, turn=0.5):
        figure(c, (0.48, 0.5), (0.53, 0.51), (k, k), (-k, -k - c.dice.span(0, 0.15)), hip=(0, -0.05))


@actions.add("person walking a dog", held_out=True)
def walking_dog(c: Canvas) -> None:
    with c.at(-0.32, 0, 0.95):
        near, far = stride(c)
        at = figure(c, (0.08, 0.13), (-0.03, 0.0), near, far)
        hand = at.near_hand
    coat = c.dice.near(c.dice.pick(((120, 80, 50), (45, 42, 42), (225, 215, 195), (165, 115, 70))), 15)
    x, y = c.dice.span(0.55, 0.72), 0.62
    c.curve((hand[0] * 0.95 - 0.32, hand[1] * 0.95), (0.3, 0.6), (x + 0.15, y - 0.12), 0.03, c.dice.any_color())
    for dx in (-0.16, -0.08, 0.1, 0.17):
        c.stroke(((x + dx, y), (x + dx + c.dice.off(0.06), y + 0.26)), 0.055, coat)
    c.oval(x, y, 0.24, 0.11, coat)
    c.oval(x + 0.24, y - 0.15, 0.12, 0.1, coat)
    c.stroke(((x - 0.22, y - 0.03), (x - 0.34, y - 0.2)), 0.05, coat)
    c.oval(x + 0.34, y - 0.12, 0.07, 0.05, darker(coat, 0.2))


@actions.add("person holding an umbrella", held_out=True)
def umbrella_holder(c: Canvas) -> None:
    near, far = stride(c) if c.dice.chance(0.5) else standing(c)
    at = figure(c, (0.08, 0.34), (-0.04, 0.0), near, far)
    x, y = at.near_hand
    lean = c.dice.off(0.12)
    c.stroke(((x, y + 0.1), (x + lean, y - 0.62)), 0.035, (70, 60, 55))
    umbrella(c, x + lean, y - 0.6, c.dice.any_color())


def umbrella(c: Canvas, x: float, y: float, cloth: Color) -> None:
    rim = [(x + (i - 3) * 0.2, y + (0.22 if i % 2 else 0.28)) for i in range(6, -1, -1)]
    c.poly([(x - 0.6, y + 0.28), (x - 0.42, y + 0.02), (x, y - 0.14), (x + 0.42, y + 0.02), *rim], cloth)
    for i in (-1, 1):
        c.stroke(((x, y - 0.12), (x + i * 0.2, y + 0.24)), 0.02, darker(cloth))


@actions.add("person playing a guitar")
def guitar(c: Canvas) -> None:
    near, far = standing(c)
    at = figure(c, (-0.06, 0.2), (0.14, 0.26), near, far)
    wood = c.dice.near(c.dice.pick(((185, 120, 60), (120, 60, 35), (40, 36, 36), (190, 50, 45))), 15)
    with c.at(at.chest[0] + 0.02, at.chest[1] + 0.16, 1, -c.dice.span(0.02, 0.09)):
        c.stroke(((0.1, 0), (0.72, 0)), 0.07, darker(wood, 0.4))
        c.box(0.68, -0.06, 0.82, 0.06, darker(wood, 0.5))
        c.oval(-0.1, 0, 0.2, 0.19, wood)
        c.oval(0.12, 0, 0.14, 0.14, wood)
        c.dot(0.05, 0, 0.06, BLACK)
    c.limb((at.near_hand, (at.near_hand[0] + 0.02, at.near_hand[1])), 0.09, (215, 165, 130))


register(actions)
