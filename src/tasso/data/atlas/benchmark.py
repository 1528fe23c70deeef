"""The labelled images: every domain in its own scenes, seen through a bad camera."""

from __future__ import annotations

from zlib import crc32

from .canvas import Canvas, Dice, ImageArray, Look, develop, occlude
from .registry import DOMAINS
from .styles import STYLES

PHOTO = "photo"
SPLITS = ("train", "val", "test")
OUTLINED = 0.15  # share of images whose parts have dark outlines


def render(
    domain: str, label: int, index: int, *, seed: int = 0, split: str = "train", size: int = 64, style: str = PHOTO
) -> ImageArray:
    """Image ``index`` of a class, `(size, size, 3)` uint8. The splits' streams of images are disjoint, as are those of
    the styles."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}, not {split!r}")
    kind = DOMAINS[domain]
    name = kind.class_names[label]
    # Names, not positions, enter the key: a new class or domain leaves the others' images alone.
    other = [crc32(style.encode())] if style != PHOTO else []
    dice = Dice(seed, crc32(domain.encode()), crc32(name.encode()), SPLITS.index(split), index, *other)
    drawn = STYLES[style].look
    outlined = dice.chance(OUTLINED) or drawn == "sketch"
    look = Look(drawn, jitter=9, outline=0.03 if outlined else 0.0, ink=dice.near((40, 36, 36), 25))
    c = Canvas(size, dice, look)
    kind.scene(c)
    with kind.pose.applied(c):
        kind.drawings[name](c)
    if dice.chance(kind.occluded):
        occlude(c)
    return STYLES[style].finish(develop(c, kind.camera))
