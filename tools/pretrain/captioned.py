"""Captioned drawings for contrastive pretraining of a small CLIP that the benchmark then tests zero-shot.

They teach the benchmark's vocabulary in another world: clean styles, upright poses, plain named backgrounds,
pairs of things, things the benchmark lacks. A quarter of each domain's classes is never shown or named. The
constants set the gap between this world and the benchmark's: raise the first three to narrow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from tasso.data.atlas import DOMAINS
from tasso.data.atlas.canvas import (
    BLACK,
    NAMED_COLORS,
    Camera,
    Canvas,
    Color,
    Dice,
    ImageArray,
    Look,
    develop,
    lighter,
    luma,
    mix,
)
from tasso.data.atlas.registry import Pose
from tasso.data.atlas.subjects import Subject, any_subject

SCENE_SHARE = 0.25  # images whose subject stands in its domain's own scene instead of on a plain ground
CAMERA_SHARE = 0.20  # images seen through a mild version of the benchmark's camera
FREE_POSE_SHARE = 0.20  # images whose subject is posed as freely as in the benchmark
PAIR_SHARE = 0.25  # images of two things
COLOR_SHARE = 0.45  # images whose caption names the subject's colour, where the style shows it

STYLES = ("flat", "flat", "outline", "outline", "poster", "silhouette", "sketch")
STYLE_WORDS = {
    "flat": "drawing",
    "outline": "cartoon",
    "poster": "poster",
    "silhouette": "silhouette",
    "sketch": "sketch",
    "photo": "image",
}
CALM_POSE = Pose(scale=(0.72, 0.95), turn=0.02, shift=0.08, squeeze=0.05, shear=0.0)
MILD_CAMERA = Camera(light=0.2, cast=0.08, gain=0.15, noise=20.0, blur=0.6, blur_share=0.25)


def held_out_names() -> tuple[str, ...]:
    """The classes of all domains that captions neither show nor name."""
    return tuple(name for domain in DOMAINS.values() for name in domain.class_names if name in domain.held_out)


def names_held_out(caption: str) -> bool:
    """Whether a caption has all the words of a held-out class's name, in whatever order."""
    words = set(caption.replace(".", "").split())
    return any(words.issuperset(name.split()) for name in held_out_names())


def a(words: str) -> str:
    """The words with their indefinite article."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


# ------------------------------------------------------------------------------------------ looks and grounds


def _look(dice: Dice, style: str, ground: Color, main: Color | None) -> Look:
    dark = luma(ground) < 110
    if style == "sketch":
        ink = dice.near((235, 235, 225), 15) if dark else dice.near((45, 45, 55), 30)
        return Look(style, ink, ground, outline=dice.span(0.02, 0.05))
    if style == "silhouette":
        ink = (
            dice.near((235, 232, 222), 12)
            if dark
            else dice.near(dice.pick((BLACK, BLACK, (60, 40, 80), (110, 30, 30))), 12)
        )
        return Look(style, ink, ground)
    outline = dice.span(0.02, 0.05) if style == "outline" else 0.0
    return Look(style, dice.near(BLACK, 12), ground, main=main, outline=outline)


def _ground(c: Canvas, color: Color) -> None:
    """A plain ground of a colour, with a little of the variety that paper and walls have."""
    kind = c.dice.unit()
    if kind < 0.5:
        c.wash(color, color)
    elif kind < 0.7:
        c.wash(color, mix(color, c.look.ink, 0.2))
    elif kind < 0.85:
        c.wash(color, color)
        c.draw.ellipse((0.06 * c.pixels,) * 2 + (0.94 * c.pixels,) * 2, fill=lighter(color, 0.25))
    else:
        c.wash(color, color)
        line, pitch = mix(color, (128, 128, 128), 0.25), c.pixels // 8
        for i in range(1, 8):
            c.draw.line((0, i * pitch, c.pixels, i * pitch), fill=line)


def _ground_color(dice: Dice, avoid: str | None) -> tuple[str, Color]:
    name = dice.pick([n for n in NAMED_COLORS if n != avoid])
    color = NAMED_COLORS[name]
    if name not in ("white", "black", "grey") and dice.chance(0.6):
        color = lighter(color, 0.45)
    return name, dice.near(color, 10)


def _swatch(c: Canvas, subject: Subject) -> None:
    """Something that fills a frame, cut out in a simple shape and laid on the ground."""
    ground = c.image.copy()
    _fill(c, subject)
    inset = int(c.pixels * c.dice.span(0.08, 0.2))
    box = (inset, inset, c.pixels - inset, c.pixels - inset)
    ground.paste(c.image.crop(box), box[:2])
    c.replace(ground)


def _fill(c: Canvas, subject: Subject) -> None:
    assert subject.domain is not None
    subject.domain.scene(c)
    with subject.domain.pose.applied(c):
        subject.drawing(c)


def _place(c: Canvas, subject: Subject, x: float, y: float, scale: float) -> None:
    with c.at(x, y, scale), CALM_POSE.applied(c):
        subject.drawing(c)


# --------------------------------------------------------------------------------------------------- images


def render_captioned(index: int, *, seed: int = 0, size: int = 64) -> tuple[ImageArray, tuple[str, ...]]:
    """Drawing ``index`` and its captions, the most precise one first."""
    dice = Dice(seed, crc32(b"captioned"), index)
    pair = dice.chance(PAIR_SHARE)
    subject = any_subject(dice, solid=pair)
    in_scene = not pair and not subject.fills_frame and subject.domain is not None and dice.chance(SCENE_SHARE)
    styles = [s for s in STYLES if s != "sketch"] if pair or subject.fills_frame else STYLES
    style = "photo" if in_scene else dice.pick(styles)
    tinted = subject.domain is None or subject.domain.tinted
    colored = tinted and style not in ("sketch", "silhouette") and dice.chance(COLOR_SHARE)
    color_name = dice.pick(tuple(NAMED_COLORS)) if colored else None
    ground_name, ground = _ground_color(dice, color_name)
    main = dice.near(NAMED_COLORS[color_name], 12) if color_name else None
    c = Canvas(size, dice, _look(dice, style, ground, main))
    camera = MILD_CAMERA if dice.chance(CAMERA_SHARE) else None
    if pair:
        captions = _draw_pair(c, subject, ground)
    else:
        captions = _draw_single(c, subject, color_name, ground_name, ground, in_scene=in_scene)
    return develop(c, camera), captions


def _draw_single(
    c: Canvas, subject: Subject, color_name: str | None, ground_name: str, ground: Color, *, in_scene: bool
) -> tuple[str, ...]:
    dice = c.dice
    where = f" on {a(ground_name)} background"
    if in_scene:
        assert subject.domain is not None
        subject.domain.scene(c)
        where = ""
    elif not subject.fills_frame:
        _ground(c, ground)
    if subject.fills_frame:
        _ground(c, ground)
        if dice.chance(0.4):
            _swatch(c, subject)
        else:
            _fill(c, subject)
            where = ""
    else:
        free = subject.domain is not None and dice.chance(FREE_POSE_SHARE)
        pose = subject.domain.pose if free and subject.domain else CALM_POSE
        with pose.applied(c):
            subject.drawing(c)
    name = subject.name
    colored = f"{color_name} {name}" if color_name and c.named_main else name
    word = STYLE_WORDS[c.look.style]
    if in_scene:
        return _unique((f"a photo of {a(colored)}", a(colored), a(name)))
    return _unique((f"{a(word)} of {a(colored)}{where}", f"{a(word)} of {a(name)}", a(colored)))


def _draw_pair(c: Canvas, first: Subject, ground: Color) -> tuple[str, ...]:
    """Two things side by side or one over the other, or one thing in front of land or a texture."""
    dice = c.dice
    word = STYLE_WORDS[c.look.style]
    for _ in range(8):  # some pairs would spell a held-out name, "a siamese cat on a striped texture" one of them
        other = any_subject(dice)
        x, y = a(first.name), a(other.name)
        if other.name == first.name:
            continue
        if other.fills_frame:
            link = "above" if other.domain is DOMAINS["land"] else "on"
            captions = (f"{a(word)} of {x} {link} {y}", f"{x} {link} {y}", f"{x} and {y}")
        elif dice.chance(0.5):
            captions = (f"{a(word)} of {x} next to {y}", f"{x} and {y}", f"{y} and {x}")
        else:
            captions = (f"{a(word)} of {x} above {y}", f"{x} above {y}", f"{x} and {y}")
        if not any(names_held_out(caption) for caption in captions):
            break
    else:
        _ground(c, ground)
        _place(c, first, 0, 0, 1.0)
        return (f"{a(word)} of {a(first.name)}", a(first.name))
    if other.fills_frame:
        _fill(c, other)
        _place(c, first, 0, -0.05, dice.span(0.65, 0.85))
        return captions
    _ground(c, ground)
    s = dice.span(0.5, 0.58)
    if "above" in captions[0]:
        spots = ((0.0, -0.48), (0.0, 0.48))
    else:
        spots = ((-0.48, 0.0), (0.48, 0.0)) if dice.chance(0.5) else ((0.48, 0.0), (-0.48, 0.0))
    for thing, (px, py) in zip((first, other), spots, strict=True):
        _place(c, thing, px + dice.off(0.05), py + dice.off(0.05), s)
    return captions


def _unique(captions: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(captions))
