"""Unlabelled scenes for distillation: the same primitives and things, in combinations that are no class.

Held-out classes are left out here too, so that what a model learns about them comes from their task alone.
"""

from __future__ import annotations

from zlib import crc32

from .canvas import (
    NAMED_COLORS,
    Camera,
    Canvas,
    Dice,
    ImageArray,
    Look,
    clutter,
    darker,
    develop,
    lighter,
    occlude,
)
from .registry import DOMAINS, Pose
from .subjects import Subject, any_subject

CAMERA = Camera()
WILD_POSE = Pose(scale=(0.3, 0.8), turn=0.5, shift=0.9, squeeze=0.3, shear=0.3)
CLOSE_UP = Pose(scale=(1.3, 2.6), turn=0.2, shift=0.9, squeeze=0.2, shear=0.2)
SCENE_POSE = Pose(scale=(0.35, 0.6), turn=0.06, shift=0.55)


def render_reference(index: int, *, seed: int = 0, size: int = 64) -> ImageArray:
    """Unlabelled scene ``index``, `(size, size, 3)` uint8."""
    dice = Dice(seed, crc32(b"reference"), index)
    style = "photo" if dice.chance(0.6) else dice.pick(("flat", "outline", "poster", "sketch"))
    outline = dice.span(0.02, 0.05) if style in ("outline", "sketch") else 0.0
    look = Look(style, dice.near((45, 42, 45), 35), dice.near((225, 220, 205), 30), outline=outline, jitter=9)
    c = Canvas(size, dice, look)
    kind = dice.unit()
    if kind < 0.2:
        _shapes(c)
    elif kind < 0.35:
        _landscape(c)
    elif kind < 0.55:
        _close_up(c)
    else:
        _gathering(c)
    if dice.chance(0.25):
        occlude(c)
    return develop(c, CAMERA if dice.chance(0.8) else None)


def _backdrop(c: Canvas) -> None:
    """Any domain's scene, or for frame-filling domains one of their classes."""
    domain = c.dice.pick(tuple(DOMAINS.values()))
    domain.scene(c)
    if domain.fills_frame:
        with domain.pose.applied(c):
            domain.drawings[c.dice.pick(domain.taught)](c)


def _draw(c: Canvas, subject: Subject, pose: Pose) -> None:
    with pose.applied(c):
        subject.drawing(c)


def _shapes(c: Canvas) -> None:
    dice = c.dice
    c.mottle(dice.any_color(), dice.any_color(), dice.whole(2, 10))
    clutter(c, dice.whole(4, 14), tuple(NAMED_COLORS.values()))


def _landscape(c: Canvas) -> None:
    """Sky, ridges, ground and a few things standing about."""
    dice = c.dice
    sky = dice.near(dice.pick(((130, 175, 225), (235, 180, 140), (70, 80, 120), (190, 200, 205))), 25)
    c.wash(darker(sky, 0.15), lighter(sky, 0.35))
    soil = dice.near(dice.pick(((90, 130, 70), (165, 140, 100), (110, 115, 125), (220, 225, 230))), 25)
    for k in range(dice.whole(1, 3)):
        ridge = [(-1.1 + i * 0.275, -0.1 + 0.35 * k + dice.off(0.25)) for i in range(9)]
        c.poly([*ridge, (1.1, 1.2), (-1.1, 1.2)], darker(soil, 0.3 - 0.12 * k))
    for _ in range(dice.whole(0, 3)):
        _draw(c, any_subject(dice, solid=True), SCENE_POSE)


def _close_up(c: Canvas) -> None:
    """A part of something, too near to see the whole."""
    _backdrop(c)
    _draw(c, any_subject(c.dice, solid=True), CLOSE_UP)


def _gathering(c: Canvas) -> None:
    """Several unrelated things, some upside down, in a place where they do not belong."""
    _backdrop(c)
    pose = WILD_POSE if c.dice.chance(0.5) else SCENE_POSE
    for _ in range(c.dice.whole(2, 4)):
        _draw(c, any_subject(c.dice, solid=True), pose)
