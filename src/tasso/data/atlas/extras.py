"""Things the benchmark lacks, for reference scenes and captioned drawings.

Many are relatives of held-out classes: the plaid shirt, the spotted cow or the tanker ship teach a word and a
look that a held-out class's name is made of, without showing or naming that class.
"""

from __future__ import annotations

from collections.abc import Callable

from .actions import ball, figure, standing, umbrella
from .canvas import BLACK, WHITE, Canvas, Color, cos_turn, darker, lighter, polar, sin_turn
from .registry import Drawing
from .vehicles import GLASS, PAINTS, wheels

EXTRAS: dict[str, Drawing] = {}
GREEN: Color = (70, 135, 65)
WOOD: Color = (140, 95, 55)
SEA: Color = (60, 110, 165)


def extra(name: str) -> Callable[[Drawing], Drawing]:
    def keep(drawing: Drawing) -> Drawing:
        EXTRAS[name] = drawing
        return drawing

    return keep


# -- shapes


@extra("circle")
def circle(c: Canvas) -> None:
    c.oval(0, 0, 0.75, 0.75, c.main())


@extra("square")
def square(c: Canvas) -> None:
    c.box(-0.65, -0.65, 0.65, 0.65, c.main())


@extra("triangle")
def triangle(c: Canvas) -> None:
    c.poly(((0, -0.75), (0.75, 0.6), (-0.75, 0.6)), c.main())


@extra("star")
def star(c: Canvas) -> None:
    c.poly([polar(0.85 if i % 2 == 0 else 0.36, 0.5 + i / 10) for i in range(10)], c.main())


@extra("heart")
def heart(c: Canvas) -> None:
    c.poly(
        (
            (0, 0.8),
            (-0.7, 0.05),
            (-0.75, -0.35),
            (-0.5, -0.62),
            (-0.2, -0.58),
            (0, -0.3),
            (0.2, -0.58),
            (0.5, -0.62),
            (0.75, -0.35),
            (0.7, 0.05),
        ),
        c.main(),
    )


@extra("cross")
def cross(c: Canvas) -> None:
    k, color = c.dice.span(0.15, 0.28), c.main()
    c.poly(
        (
            (-k, -0.8),
            (k, -0.8),
            (k, -k),
            (0.8, -k),
            (0.8, k),
            (k, k),
            (k, 0.8),
            (-k, 0.8),
            (-k, k),
            (-0.8, k),
            (-0.8, -k),
            (-k, -k),
        ),
        color,
    )


@extra("arrow")
def arrow(c: Canvas) -> None:
    c.poly(
        ((-0.85, -0.18), (0.2, -0.18), (0.2, -0.5), (0.85, 0), (0.2, 0.5), (0.2, 0.18), (-0.85, 0.18)),
        c.main(),
    )


@extra("crescent moon")
def crescent(c: Canvas) -> None:
    outer = [(0.75 * cos_turn(t), 0.75 * sin_turn(t)) for t in [0.15 + 0.7 * i / 14 for i in range(15)]]
    inner = [(0.25 + 0.55 * cos_turn(t), 0.6 * sin_turn(t)) for t in [0.8 - 0.6 * i / 10 for i in range(11)]]
    c.poly(outer + inner, c.main((240, 225, 150), (230, 230, 235)))


# -- fruit and other food


@extra("apple")
def apple(c: Canvas) -> None:
    color = c.main((200, 40, 45), (120, 170, 60), (230, 190, 60))
    c.oval(-0.25, 0.1, 0.42, 0.56, color)
    c.oval(0.25, 0.1, 0.42, 0.56, color)
    c.stroke(((0, -0.35), (0.08, -0.72)), 0.07, WOOD)
    c.oval(0.26, -0.6, 0.2, 0.09, GREEN, -0.06)


@extra("banana")
def banana(c: Canvas) -> None:
    outer = [(0.85 * cos_turn(t), -0.25 + 0.75 * sin_turn(t)) for t in [0.02 + i * 0.046 for i in range(11)]]
    inner = [(0.6 * cos_turn(t), -0.3 + 0.4 * sin_turn(t)) for t in [0.48 - i * 0.046 for i in range(11)]]
    c.poly(outer + inner, c.main((245, 215, 70), (235, 200, 60)))


@extra("bunch of cherries")
def cherries(c: Canvas) -> None:
    for x in (-0.35, 0.38):
        c.curve((x, 0.3), (x * 0.6, -0.3), (0.05, -0.75), 0.05, GREEN)
        c.oval(x, 0.42, 0.28, 0.28, c.main((190, 25, 45), (120, 20, 50)))


@extra("pear")
def pear(c: Canvas) -> None:
    color = c.main((175, 190, 70), (220, 190, 80), (190, 120, 60))
    c.oval(0, 0.3, 0.48, 0.46, color)
    c.oval(0, -0.22, 0.28, 0.4, color)
    c.stroke(((0, -0.55), (0.06, -0.82)), 0.06, WOOD)


@extra("bunch of grapes")
def grapes(c: Canvas) -> None:
    color = c.main((110, 50, 130), (150, 180, 80), (70, 40, 90))
    c.stroke(((0, -0.5), (0, -0.85)), 0.07, WOOD)
    for j, n in enumerate((4, 3, 3, 2, 1)):
        for i in range(n):
            c.oval((i - (n - 1) / 2) * 0.3, -0.45 + j * 0.27, 0.18, 0.18, c.dice.near(color, 15))


@extra("slice of watermelon")
def watermelon(c: Canvas) -> None:
    for r, color in ((0.9, (60, 130, 60)), (0.78, (235, 240, 215)), (0.72, (225, 60, 70))):
        c.poly([(r * cos_turn(i / 24), -0.4 + r * sin_turn(i / 24)) for i in range(13)], color)
    for i in range(6):
        c.dot(*polar(0.45, (i - 2.5) * 0.07, 0, -0.4), 0.05, BLACK)


@extra("cupcake")
def cupcake(c: Canvas) -> None:
    cup = c.dice.any_color()
    c.poly(((-0.5, 0.1), (0.5, 0.1), (0.36, 0.8), (-0.36, 0.8)), cup)
    for x in (-0.25, 0.0, 0.25):
        c.stroke(((x * 1.3, 0.1), (x, 0.8)), 0.04, darker(cup))
    icing = c.main((240, 150, 180), (245, 240, 230), (110, 65, 40))
    for k, (y, r) in enumerate(((0.0, 0.58), (-0.25, 0.42), (-0.48, 0.24))):
        c.oval(0, y, r, 0.2, darker(icing, 0.08 * (k % 2)))


@extra("wedge of cheese")
def cheese(c: Canvas) -> None:
    color = c.main((245, 205, 80), (240, 180, 60))
    c.poly(((-0.85, 0.1), (0.5, -0.5), (0.85, 0.0)), lighter(color, 0.3))
    c.poly(((-0.85, 0.1), (0.85, 0.0), (0.85, 0.5), (-0.85, 0.6)), color)
    for x, y in ((-0.4, 0.35), (0.1, 0.2), (0.5, 0.35)):
        c.oval(x, y, 0.13, 0.09, darker(color, 0.25))


@extra("fruit bowl")
def fruit_bowl(c: Canvas) -> None:
    for x, color in ((-0.42, (200, 40, 45)), (0.05, (240, 150, 40)), (0.45, (120, 170, 60))):
        c.oval(x, -0.12, 0.28, 0.28, color)
    c.poly([(0.85 * cos_turn(i / 20), 0.05 + 0.65 * sin_turn(i / 20)) for i in range(11)], c.main())


# -- animals


@extra("fish")
def fish(c: Canvas) -> None:
    color = c.main()
    c.poly(((-0.45, 0), (-0.9, -0.4), (-0.9, 0.4)), darker(color, 0.2))
    c.oval(0.1, 0, 0.65, 0.36, color)
    c.poly(((-0.1, -0.3), (0.1, -0.6), (0.35, -0.28)), darker(color, 0.2))
    c.dot(0.5, -0.08, 0.07, BLACK)


@extra("bird")
def bird(c: Canvas) -> None:
    color = c.main()
    c.poly(((-0.4, 0.05), (-0.95, -0.1), (-0.9, 0.2)), darker(color))
    c.oval(0, 0.1, 0.5, 0.34, color)
    c.oval(0.42, -0.25, 0.24, 0.24, color)
    c.poly(((0.62, -0.32), (0.9, -0.22), (0.62, -0.14)), (240, 170, 40))
    c.oval(-0.05, 0.08, 0.32, 0.16, darker(color, 0.25), 0.03)
    c.dot(0.48, -0.3, 0.05, BLACK)
    for x in (-0.05, 0.15):
        c.stroke(((x, 0.42), (x, 0.75)), 0.05, (200, 130, 40))


def grazer(c: Canvas, coat: Color) -> None:
    """A hoofed animal from the side."""
    for x in (-0.5, -0.32, 0.25, 0.42):
        c.limb(((x, 0.2), (x, 0.8)), 0.12, darker(coat, 0.1))
    c.oval(-0.04, 0.08, 0.64, 0.32, coat)
    c.poly(((0.3, -0.1), (0.55, -0.55), (0.8, -0.4), (0.55, 0.15)), coat)
    c.oval(0.72, -0.45, 0.25, 0.15, coat, 0.08)
    c.stroke(((-0.65, 0.0), (-0.78, 0.45)), 0.06, darker(coat))
    c.dot(0.7, -0.5, 0.045, BLACK)


@extra("spotted cow")
def cow(c: Canvas) -> None:
    grazer(c, WHITE)
    mark = c.dice.pick((BLACK, (120, 75, 45)))
    for _ in range(7):
        c.blob(c.dice.off(0.5), 0.06 + c.dice.off(0.2), c.dice.span(0.06, 0.14), 0.09, mark)
    c.oval(0.86, -0.38, 0.1, 0.09, (230, 165, 160))


@extra("striped zebra")
def zebra(c: Canvas) -> None:
    grazer(c, WHITE)
    for i in range(8):
        x = -0.55 + i * 0.15
        c.curve((x, -0.2), (x - 0.07, 0.05), (x, 0.34), 0.06, BLACK)
    for x in (0.5, 0.6, 0.7):
        c.stroke(((x - 0.1, -0.2), (x, -0.52)), 0.045, BLACK)


@extra("fluffy sheep")
def sheep(c: Canvas) -> None:
    wool = c.dice.near((238, 234, 224), 8)
    for x in (-0.35, -0.2, 0.2, 0.35):
        c.limb(((x, 0.3), (x, 0.78)), 0.1, (60, 55, 55))
    points = []
    for i in range(28):
        x, y = polar(0.62 if i % 2 else 0.74, i / 28)
        points.append((x, 0.05 + y * 0.7))
    c.poly(points, wool)
    c.oval(0.66, -0.15, 0.2, 0.26, (70, 62, 60))
    c.dot(0.7, -0.2, 0.04, WHITE)


@extra("snake")
def snake(c: Canvas) -> None:
    color = c.main((90, 150, 60), (170, 140, 60), (150, 60, 50))
    c.limb([(-0.85 + i * 0.13, 0.35 * sin_turn(i / 6)) for i in range(13)], 0.2, color)
    c.oval(0.75, 0.02, 0.2, 0.14, darker(color, 0.1))
    c.dot(0.8, -0.03, 0.04, BLACK)


@extra("butterfly")
def butterfly(c: Canvas) -> None:
    color = c.main()
    for side in (-1, 1):
        c.oval(side * 0.45, -0.3, 0.42, 0.32, color, side * 0.08)
        c.oval(side * 0.35, 0.3, 0.3, 0.28, darker(color, 0.2))
        c.dot(side * 0.48, -0.3, 0.12, lighter(color, 0.6))
    c.oval(0, 0, 0.08, 0.5, BLACK)


@extra("turtle")
def turtle(c: Canvas) -> None:
    shell = c.main((90, 120, 60), (120, 90, 60))
    for x in (-0.45, 0.4):
        c.oval(x, 0.35, 0.14, 0.2, (140, 165, 90))
    c.oval(0.78, 0.05, 0.2, 0.16, (140, 165, 90))
    c.poly([(0.7 * cos_turn(0.5 + i / 20), 0.3 + 0.7 * sin_turn(0.5 + i / 20)) for i in range(11)], shell)
    for x in (-0.3, 0.0, 0.3):
        c.oval(x, 0.0, 0.12, 0.14, darker(shell, 0.25))


# -- buildings and landscape


@extra("house")
def house(c: Canvas) -> None:
    wall = c.main((235, 215, 180), (200, 120, 90), (190, 205, 215))
    c.box(-0.6, -0.1, 0.6, 0.75, wall)
    c.poly(((-0.78, -0.08), (0, -0.75), (0.78, -0.08)), c.dice.pick(((165, 70, 55), (90, 90, 100))))
    c.box(-0.12, 0.3, 0.14, 0.75, WOOD)
    for x in (-0.45, 0.28):
        c.box(x, 0.1, x + 0.2, 0.32, GLASS)


@extra("castle")
def castle(c: Canvas) -> None:
    stone = c.main((160, 158, 155), (190, 175, 150))
    c.box(-0.55, -0.1, 0.55, 0.75, stone)
    for x in (-0.7, 0.45):
        c.box(x, -0.6, x + 0.26, 0.75, darker(stone, 0.12))
        for k in (0.0, 0.1, 0.2):
            c.box(x + k, -0.7, x + k + 0.06, -0.58, darker(stone, 0.12))
    c.box(-0.14, 0.3, 0.14, 0.75, BLACK)


@extra("lighthouse")
def lighthouse(c: Canvas) -> None:
    color = c.main((205, 45, 45), (50, 80, 150))
    c.poly(((-0.2, -0.5), (0.2, -0.5), (0.34, 0.85), (-0.34, 0.85)), WHITE)
    for y in (-0.3, 0.15, 0.6):
        k = 0.23 + (y + 0.3) * 0.1
        c.poly(((-k, y), (k, y), (k + 0.02, y + 0.22), (-k - 0.02, y + 0.22)), color)
    c.box(-0.16, -0.74, 0.16, -0.5, (250, 225, 120))
    c.poly(((-0.22, -0.74), (0, -0.95), (0.22, -0.74)), color)


@extra("tent")
def tent(c: Canvas) -> None:
    color = c.main()
    c.poly(((-0.9, 0.6), (0, -0.6), (0.9, 0.6)), color)
    c.poly(((-0.22, 0.6), (0, -0.4), (0.22, 0.6)), darker(color, 0.5))


@extra("windmill")
def windmill(c: Canvas) -> None:
    c.poly(((-0.22, -0.35), (0.22, -0.35), (0.4, 0.85), (-0.4, 0.85)), c.main((225, 205, 170), (170, 100, 80)))
    start = c.dice.unit()
    for i in range(4):
        c.stroke(((0, -0.3), polar(0.7, start + i / 4, 0, -0.3)), 0.13, c.dice.near((120, 95, 75), 10))


@extra("railway bridge")
def railway_bridge(c: Canvas) -> None:
    stone = c.main((165, 120, 95), (150, 148, 145))
    c.box(-1.0, -0.2, 1.0, 0.05, stone)
    for x in (-0.9, -0.3, 0.3, 0.9):
        c.box(x - 0.12, 0.0, x + 0.12, 0.75, stone)
    for i in range(11):
        c.stroke(((-0.95 + i * 0.19, -0.3), (-0.95 + i * 0.19, -0.2)), 0.06, (75, 55, 42))
    c.stroke(((-1, -0.3), (1, -0.3)), 0.045, (200, 200, 205))


@extra("tree")
def tree(c: Canvas) -> None:
    c.box(-0.1, 0.2, 0.1, 0.88, WOOD)
    color = c.main((60, 125, 60), (95, 145, 60), (190, 110, 40))
    for x, y, r in ((-0.28, -0.05, 0.38), (0.3, -0.05, 0.38), (0, -0.42, 0.44)):
        c.blob(x, y, r, r, c.dice.near(color, 12), 0.08)


@extra("row of trees")
def row_of_trees(c: Canvas) -> None:
    color = c.main((60, 125, 60), (95, 145, 60))
    for x in (-0.72, -0.24, 0.24, 0.72):
        c.box(x - 0.04, 0.1, x + 0.04, 0.5, WOOD)
        c.oval(x, -0.12, 0.22, 0.3, c.dice.near(color, 12))


@extra("mountain")
def mountain(c: Canvas) -> None:
    rock = c.main((110, 115, 125), (130, 110, 95))
    c.poly(((-1, 0.7), (-0.25, -0.7), (0.15, -0.1), (0.35, -0.4), (1, 0.7)), rock)
    c.poly(((-0.45, -0.3), (-0.25, -0.7), (-0.03, -0.36), (-0.2, -0.42), (-0.32, -0.28)), WHITE)


@extra("wavy sea")
def wavy_sea(c: Canvas) -> None:
    color = c.main(SEA, (50, 130, 140))
    for j in range(6):
        points = [(-1.0 + i * 0.1, -0.5 + j * 0.22 + 0.07 * sin_turn(i / 6 + j * 0.3)) for i in range(21)]
        c.ribbon(points, 0.16, darker(color, 0.12 * (j % 2)))


# -- weather


@extra("rain cloud")
def rain_cloud(c: Canvas) -> None:
    color = c.main((150, 158, 170), (110, 118, 130))
    for i in range(6):
        x = -0.5 + i * 0.2
        c.stroke(((x, 0.2), (x - 0.12, 0.7 + c.dice.off(0.1))), 0.05, (90, 140, 210))
    for x, y, r in ((-0.4, 0, 0.3), (0.4, 0, 0.32), (0, -0.18, 0.42)):
        c.oval(x, y, r, r * 0.85, color)


@extra("sun")
def sun(c: Canvas) -> None:
    color = c.main((250, 205, 50), (245, 150, 40))
    for i in range(12):
        c.stroke((polar(0.55, i / 12), polar(0.88, i / 12)), 0.08, color)
    c.oval(0, 0, 0.46, 0.46, color)


@extra("snowflake")
def snowflake(c: Canvas) -> None:
    color = c.main((200, 225, 245), (120, 170, 220))
    for i in range(6):
        c.stroke(((0, 0), polar(0.85, i / 6)), 0.07, color)
        for k in (-0.06, 0.06):
            c.stroke((polar(0.5, i / 6), polar(0.75, i / 6 + k)), 0.05, color)


@extra("rainbow")
def rainbow(c: Canvas) -> None:
    bands = ((205, 45, 45), (240, 150, 40), (245, 220, 70), (70, 160, 80), (60, 100, 200))
    for i, color in enumerate(bands):
        c.arc(0, 0.5, 0.9 - i * 0.1, 0.9 - i * 0.1, 0.5, 1.0, 0.12, color)


@extra("lightning bolt")
def lightning(c: Canvas) -> None:
    c.poly(
        ((0.1, -0.9), (-0.4, 0.1), (0.0, 0.1), (-0.2, 0.9), (0.45, -0.15), (0.05, -0.15), (0.4, -0.9)),
        c.main((250, 215, 60)),
    )


# -- objects


@extra("party balloon")
def party_balloon(c: Canvas) -> None:
    color = c.main()
    c.curve((0, 0.35), (0.15, 0.6), (-0.05, 0.95), 0.03, BLACK)
    c.oval(0, -0.25, 0.46, 0.56, color)
    c.poly(((-0.08, 0.38), (0.08, 0.38), (0, 0.28)), darker(color))
    c.dot(-0.16, -0.45, 0.1, lighter(color, 0.6))


@extra("bell")
def bell(c: Canvas) -> None:
    color = c.main((225, 180, 60), (190, 130, 60))
    c.poly(
        (
            (-0.15, -0.7),
            (0.15, -0.7),
            (0.36, -0.3),
            (0.42, 0.2),
            (0.65, 0.5),
            (-0.65, 0.5),
            (-0.42, 0.2),
            (-0.36, -0.3),
        ),
        color,
    )
    c.dot(0, 0.6, 0.13, darker(color, 0.4))


@extra("umbrella")
def plain_umbrella(c: Canvas) -> None:
    with c.at(0, 0.2, 1.4):
        c.stroke(((0, -0.4), (0, 0.35), (0.1, 0.42), (0.16, 0.34)), 0.05, WOOD)
        umbrella(c, 0, -0.35, c.main())


@extra("paper kite")
def kite(c: Canvas) -> None:
    color = c.main()
    c.curve((0, 0.5), (0.3, 0.7), (0.1, 1.0), 0.03, BLACK)
    c.poly(((0, -0.85), (0.5, -0.2), (0, 0.55), (-0.5, -0.2)), color)
    c.poly(((0, -0.85), (0.5, -0.2), (0, -0.2)), darker(color, 0.25))
    c.poly(((0, 0.55), (-0.5, -0.2), (0, -0.2)), darker(color, 0.25))


@extra("paper plane")
def paper_plane(c: Canvas) -> None:
    color = c.main(WHITE, (240, 235, 215))
    c.poly(((0.95, -0.1), (-0.85, -0.45), (-0.4, -0.02)), color)
    c.poly(((0.95, -0.1), (-0.4, -0.02), (-0.45, 0.5)), darker(color, 0.25))
    c.poly(((0.95, -0.1), (-0.35, 0.12), (-0.7, 0.45)), darker(color, 0.12))


@extra("sailing boat")
def sailing_boat(c: Canvas) -> None:
    c.stroke(((0, -0.85), (0, 0.4)), 0.05, WOOD)
    c.poly(((0.05, -0.8), (0.65, 0.25), (0.05, 0.25)), c.main())
    c.poly(((-0.05, -0.6), (-0.5, 0.25), (-0.05, 0.25)), WHITE)
    c.poly(((-0.75, 0.38), (0.8, 0.38), (0.55, 0.75), (-0.55, 0.75)), c.dice.pick(((120, 60, 45), (50, 70, 120))))


@extra("tanker ship")
def tanker_ship(c: Canvas) -> None:
    hull = c.main((160, 50, 45), (60, 70, 90), (60, 110, 80))
    c.poly(((-0.95, 0.1), (0.98, 0.05), (0.8, 0.5), (-0.85, 0.5)), hull)
    c.box(-0.85, -0.45, -0.5, 0.1, WHITE)
    for x in (-0.25, 0.15, 0.55):
        c.oval(x, 0.02, 0.18, 0.14, (185, 188, 192))


@extra("racing car")
def racing_car(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    c.poly(((-0.9, 0.0), (-0.2, -0.12), (0.3, 0.0), (1.0, 0.16), (1.0, 0.26), (-0.9, 0.28)), paint)
    c.box(-1.0, -0.3, -0.7, -0.2, darker(paint))
    c.stroke(((-0.85, -0.2), (-0.82, 0.05)), 0.05, BLACK)
    c.dot(-0.02, -0.14, 0.11, c.dice.any_color())
    wheels(c, 0.26, 0.2, -0.62, 0.6)


@extra("double-decker tram")
def double_decker_tram(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    c.stroke(((-0.2, -0.95), (0.2, -0.75)), 0.04, BLACK)
    c.poly(((-0.8, -0.7), (0.8, -0.7), (0.9, -0.5), (0.9, 0.45), (-0.9, 0.45), (-0.9, -0.5)), paint)
    for y in (-0.55, -0.05):
        for i in range(6):
            c.box(-0.8 + i * 0.27, y, -0.6 + i * 0.27, y + 0.25, GLASS)
    c.box(-0.6, 0.45, 0.6, 0.56, BLACK)


@extra("camper van")
def camper_van(c: Canvas) -> None:
    paint = c.main(*PAINTS)
    c.poly(((-0.85, -0.45), (0.6, -0.45), (0.85, -0.05), (0.88, 0.3), (-0.85, 0.3)), WHITE)
    c.poly(((-0.85, -0.05), (0.85, -0.05), (0.88, 0.3), (-0.85, 0.3)), paint)
    for x in (-0.7, -0.25, 0.2):
        c.box(x, -0.36, x + 0.34, -0.1, GLASS)
    wheels(c, 0.3, 0.17, -0.5, 0.5)


@extra("plaid shirt")
def plaid_shirt(c: Canvas) -> None:
    color = c.main()
    c.poly(
        (
            (-0.3, -0.7),
            (0.3, -0.7),
            (0.9, -0.35),
            (0.72, 0.02),
            (0.45, -0.15),
            (0.45, 0.8),
            (-0.45, 0.8),
            (-0.45, -0.15),
            (-0.72, 0.02),
            (-0.9, -0.35),
        ),
        color,
    )
    for v in (-0.28, 0.0, 0.28):
        c.stroke(((v, -0.65), (v, 0.78)), 0.09, darker(color, 0.35))
    for v in (-0.4, -0.1, 0.2, 0.5):
        c.stroke(((-0.43, v), (0.43, v)), 0.09, darker(color, 0.25))
        c.stroke(((-0.43, v + 0.14), (0.43, v + 0.14)), 0.03, lighter(color, 0.6))


@extra("speckled egg")
def speckled_egg(c: Canvas) -> None:
    shell = c.main((225, 205, 175), (190, 215, 220), (240, 235, 225))
    c.oval(0, 0.15, 0.5, 0.58, shell)
    c.oval(0, -0.15, 0.4, 0.6, shell)
    for _ in range(22):
        x, y = polar(c.dice.span(0.03, 0.55), c.dice.unit())
        c.dot(x * 0.75, y, c.dice.span(0.02, 0.055), darker(shell, 0.6))


@extra("chair")
def chair(c: Canvas) -> None:
    wood = c.main(WOOD, (90, 60, 45), (180, 60, 50))
    c.stroke(((-0.4, 0.1), (-0.48, -0.85)), 0.12, wood)
    c.box(-0.46, 0.02, 0.5, 0.18, wood)
    for x in (-0.4, 0.44):
        c.stroke(((x, 0.1), (x, 0.85)), 0.1, wood)


@extra("ladder")
def ladder(c: Canvas) -> None:
    wood = c.main(WOOD, (165, 168, 174))
    for x in (-0.3, 0.3):
        c.stroke(((x, -0.95), (x * 1.2, 0.95)), 0.1, wood)
    for i in range(6):
        c.stroke(((-0.32, -0.75 + i * 0.3), (0.32, -0.75 + i * 0.3)), 0.08, wood)


@extra("flag")
def flag(c: Canvas) -> None:
    color = c.main()
    c.stroke(((-0.6, -0.9), (-0.6, 0.9)), 0.07, WOOD)
    c.poly(((-0.58, -0.85), (-0.1, -0.75), (0.75, -0.88), (0.7, -0.2), (-0.1, -0.08), (-0.58, -0.2)), color)
    c.poly(((-0.58, -0.6), (0.74, -0.65), (0.72, -0.42), (-0.58, -0.4)), lighter(color, 0.6))


@extra("mushroom")
def mushroom(c: Canvas) -> None:
    c.poly(((-0.2, 0.0), (0.2, 0.0), (0.28, 0.8), (-0.28, 0.8)), (240, 230, 210))
    cap = c.main((200, 50, 45), (150, 100, 65))
    c.poly([(0.8 * cos_turn(0.5 + i / 20), 0.1 + 0.75 * sin_turn(0.5 + i / 20)) for i in range(11)], cap)
    for x, y in ((-0.4, -0.1), (0.05, -0.35), (0.42, -0.12)):
        c.dot(x, y, 0.1, WHITE)


@extra("cup of tea")
def cup(c: Canvas) -> None:
    color = c.main()
    c.arc(0.5, 0.1, 0.28, 0.25, -0.25, 0.25, 0.09, color)
    c.poly(((-0.55, -0.25), (0.5, -0.25), (0.4, 0.55), (-0.42, 0.55)), color)
    c.oval(-0.02, -0.25, 0.53, 0.14, (120, 70, 40))


# -- people


@extra("person holding a flag")
def flag_bearer(c: Canvas) -> None:
    near, far = standing(c)
    at = figure(c, (0.14, 0.36), (-0.05, 0.0), near, far)
    x, y = at.near_hand
    c.stroke(((x, y + 0.35), (x + 0.05, y - 0.7)), 0.045, WOOD)
    c.poly(
        ((x + 0.06, y - 0.7), (x + 0.55, y - 0.62), (x + 0.5, y - 0.3), (x + 0.04, y - 0.36)),
        c.dice.any_color(),
    )


@extra("person kicking a box")
def box_kicker(c: Canvas) -> None:
    k = c.dice.span(0.1, 0.18)
    at = figure(c, (-0.14, -0.1), (0.12, 0.2), (k, k + 0.02), (-0.03, -0.06), lean=-0.03)
    x, y = at.near_foot
    c.box(x + 0.1, y - 0.15, x + 0.4, y + 0.15, (180, 135, 85))


@extra("person catching a ball")
def catcher(c: Canvas) -> None:
    near, far = standing(c)
    at = figure(c, (0.22, 0.3), (0.2, 0.27), near, far)
    ball(c, at.near_hand[0] + 0.12, at.near_hand[1] - 0.05)


@extra("person leading a horse")
def horse_leader(c: Canvas) -> None:
    with c.at(-0.5, 0.1, 0.75):
        near, far = standing(c)
        figure(c, (0.14, 0.2), (-0.03, 0.0), near, far)
    c.stroke(((-0.2, 0.0), (0.2, -0.05)), 0.03, BLACK)
    with c.at(0.5, 0.25, 0.6, flip=True):
        grazer(c, c.dice.pick(((110, 70, 45), (60, 50, 48), (200, 185, 160))))
