"""Shared drawing primitives: dice, colours, looks, a posed canvas, backgrounds and camera effects.

Everything here is plain arithmetic on integers and IEEE floats, so that an image depends on its key alone:
sines come from a rounded table (the last bit of libm's differs between platforms) and random numbers from
PCG64's uniform stream only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

Point = tuple[float, float]
Color = tuple[int, int, int]
ImageArray = npt.NDArray[np.uint8]
T = TypeVar("T")

SUPERSAMPLE = 2  # images are drawn this much larger, then averaged down: that is the antialiasing

_STEPS = 4096
_SINES = tuple(round(math.sin(2 * math.pi * i / _STEPS), 9) for i in range(_STEPS))


def sin_turn(turn: float) -> float:
    """Sine of an angle given in whole turns."""
    return _SINES[int(turn * _STEPS // 1) % _STEPS]


def cos_turn(turn: float) -> float:
    """Cosine of an angle given in whole turns."""
    return _SINES[int(turn * _STEPS // 1 + _STEPS // 4) % _STEPS]


def polar(radius: float, turn: float, x: float = 0.0, y: float = 0.0) -> Point:
    """The point at ``radius`` from (x, y); turn 0 points down the page, a quarter turn to the right."""
    return x + radius * sin_turn(turn), y + radius * cos_turn(turn)


@cache
def _circle(n: int) -> tuple[Point, ...]:
    return tuple((cos_turn(i / n), sin_turn(i / n)) for i in range(n))


# ---------------------------------------------------------------------------------------------- colours

WHITE: Color = (245, 245, 242)
BLACK: Color = (24, 24, 28)
NAMED_COLORS: dict[str, Color] = {
    "red": (214, 40, 40),
    "orange": (240, 130, 30),
    "yellow": (245, 210, 50),
    "green": (50, 160, 70),
    "blue": (45, 95, 205),
    "purple": (130, 60, 170),
    "pink": (240, 130, 180),
    "brown": (130, 80, 45),
    "white": (245, 245, 242),
    "black": (30, 30, 34),
    "grey": (140, 140, 145),
}


def mix(a: Color, b: Color, t: float) -> Color:
    """The colour a share ``t`` of the way from ``a`` to ``b``."""
    return (
        int(a[0] + (b[0] - a[0]) * t),
        int(a[1] + (b[1] - a[1]) * t),
        int(a[2] + (b[2] - a[2]) * t),
    )


def darker(color: Color, t: float = 0.35) -> Color:
    return mix(color, (0, 0, 0), t)


def lighter(color: Color, t: float = 0.4) -> Color:
    return mix(color, (255, 255, 255), t)


def luma(color: Color) -> int:
    return (color[0] * 3 + color[1] * 6 + color[2]) // 10


# ------------------------------------------------------------------------------------------------- dice


def _byte(v: int) -> int:
    return 0 if v < 0 else 255 if v > 255 else v


class Dice:
    """Uniform random numbers for one image, drawn in blocks because single draws are slow."""

    def __init__(self, *key: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
        self._pool: list[float] = []

    def unit(self) -> float:
        try:
            return self._pool.pop()
        except IndexError:
            self._pool = self.rng.random(192).tolist()
            return self._pool.pop()

    def span(self, low: float, high: float) -> float:
        return low + (high - low) * self.unit()

    def off(self, reach: float) -> float:
        """A number within ``reach`` of zero."""
        return reach * (2 * self.unit() - 1)

    def whole(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return low + int(self.unit() * (high - low + 1))

    def chance(self, share: float) -> bool:
        return self.unit() < share

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.unit() * len(items))]

    def any_color(self) -> Color:
        return int(self.span(20, 240)), int(self.span(20, 240)), int(self.span(20, 240))

    def near(self, color: Color, reach: int) -> Color:
        """A colour near ``color``."""
        unit = self.unit
        common = reach * (2 * unit() - 1.5)  # most variation is in brightness: the channels move together
        r, g, b = (
            color[0] + int(common + reach * unit()),
            color[1] + int(common + reach * unit()),
            color[2] + int(common + reach * unit()),
        )
        return (
            r if 0 <= r < 256 else _byte(r),
            g if 0 <= g < 256 else _byte(g),
            b if 0 <= b < 256 else _byte(b),
        )

    def dimmed(self, color: Color, reach: int) -> Color:
        """A little brighter or darker: `near` for the many small parts, where its cost would show."""
        shift = int((2 * self.unit() - 1) * reach)
        r, g, b = color[0] + shift, color[1] + shift, color[2] + shift
        return (
            r if 0 <= r < 256 else _byte(r),
            g if 0 <= g < 256 else _byte(g),
            b if 0 <= b < 256 else _byte(b),
        )

    def octets(self, n: int) -> ImageArray:
        return np.frombuffer(self.rng.bytes(n), dtype=np.uint8)


# ------------------------------------------------------------------------------------------------- look


@dataclass(frozen=True)
class Look:
    """How things are drawn. One domain's drawing code serves all looks.

    ``photo`` is the benchmark's own look; the others are for captioned drawings.
    """

    style: str = "photo"  # photo, flat, outline, sketch, silhouette or poster
    ink: Color = BLACK
    paper: Color = WHITE
    main: Color | None = None  # the colour a caption speaks of
    outline: float = 0.0  # width of outlines, in object units; 0 draws none
    jitter: int = 0  # how far each painted part's colour strays


def _poster(v: int) -> int:
    return 30 if v < 90 else 140 if v < 170 else 240


class Canvas:
    """A square image in unit coordinates: x to the right and y down, both from -1 to 1 in the pose."""

    def __init__(self, size: int, dice: Dice, look: Look) -> None:
        self.size = size
        self.dice = dice
        self.look = look
        self.named_main = False  # whether a drawing has used the colour its caption names
        self.pixels = size * SUPERSAMPLE
        half = self.pixels / 2
        self.matrix = (half, 0.0, half, 0.0, half, half)
        self.unit = half  # pixels per object unit, for line widths
        self.image = Image.new("RGB", (self.pixels, self.pixels), look.paper)
        self.draw = ImageDraw.Draw(self.image)

    def replace(self, image: Image.Image) -> None:
        self.image = image
        self.draw = ImageDraw.Draw(image)

    # -- pose

    @contextmanager
    def at(
        self,
        x: float = 0.0,
        y: float = 0.0,
        scale: float = 1.0,
        turn: float = 0.0,
        *,
        flip: bool = False,
        squeeze: float = 1.0,
        shear: float = 0.0,
    ) -> Iterator[None]:
        """Draw in a frame moved, turned and scaled against the current one (squeeze acts on its height)."""
        before = self.matrix, self.unit
        a, b, e, c, d, f = self.matrix
        cos, sin = cos_turn(turn) * scale, sin_turn(turn) * scale
        sx = -1.0 if flip else 1.0
        p, q, r, s = cos * sx, (cos * shear - sin) * squeeze, sin * sx, (sin * shear + cos) * squeeze
        self.matrix = (
            a * p + b * r,
            a * q + b * s,
            a * x + b * y + e,
            c * p + d * r,
            c * q + d * s,
            c * x + d * y + f,
        )
        self.unit *= scale
        yield
        self.matrix, self.unit = before

    def project(self, points: Sequence[Point]) -> list[float]:
        a, b, e, c, d, f = self.matrix
        return [v for x, y in points for v in (a * x + b * y + e, c * x + d * y + f)]

    def sees(self, x: float, y: float, reach: float) -> bool:
        """Whether something of that reach around (x, y) can show. Patterns skip what cannot, for speed."""
        a, b, e, c, d, f = self.matrix
        pr, n = reach * self.unit * 1.5, self.pixels
        return -pr < a * x + b * y + e < n + pr and -pr < c * x + d * y + f < n + pr

    def width(self, width: float) -> int:
        return max(1, int(width * self.unit + 0.5))

    # -- paint

    def main(self, *palette: Color) -> Color:
        """The main colour of a thing: the caption's where it names one, else one of the palette."""
        if self.look.main is not None:
            self.named_main = True
            return self.look.main
        return self.dice.near(self.dice.pick(palette), 22) if palette else self.dice.any_color()

    def tone(self, color: Color) -> Color:
        """What the look makes of a filled part's colour."""
        look = self.look
        if look.style == "sketch":
            return look.paper
        if look.style == "silhouette":
            return mix(look.ink, look.paper, 0.55) if luma(color) > 165 else look.ink
        if look.style == "poster":
            return _poster(color[0]), _poster(color[1]), _poster(color[2])
        if look.jitter:
            return self.dice.dimmed(color, look.jitter)
        return color

    def line_tone(self, color: Color) -> Color:
        return self.look.ink if self.look.style == "sketch" else self.tone(color)

    # -- shapes

    def poly(self, points: Sequence[Point], fill: Color) -> None:
        flat = self.project(points)
        self.draw.polygon(flat, fill=self.tone(fill))
        if self.look.outline:
            self.draw.line(flat + flat[:2], fill=self.look.ink, width=self.width(self.look.outline))

    def box(self, x0: float, y0: float, x1: float, y1: float, fill: Color) -> None:
        self.poly(((x0, y0), (x1, y0), (x1, y1), (x0, y1)), fill)

    def oval(self, x: float, y: float, rx: float, ry: float, fill: Color, turn: float = 0.0) -> None:
        ring = _circle(18 if max(rx, ry) > 0.15 else 10)
        if turn:
            cos, sin = cos_turn(turn), sin_turn(turn)
            points = [(x + rx * u * cos - ry * v * sin, y + rx * u * sin + ry * v * cos) for u, v in ring]
        else:
            points = [(x + rx * u, y + ry * v) for u, v in ring]
        self.poly(points, fill)

    def dot(self, x: float, y: float, r: float, fill: Color) -> None:
        """A small disc that is never outlined: eyes, seeds, spots."""
        a, b, e, c, d, f = self.matrix
        px, py, pr = a * x + b * y + e, c * x + d * y + f, max(0.8, r * self.unit)
        if not (-pr < px < self.pixels + pr and -pr < py < self.pixels + pr):
            return
        self.draw.ellipse((px - pr, py - pr, px + pr, py + pr), fill=self.line_tone(fill))

    def blob(self, x: float, y: float, rx: float, ry: float, fill: Color, wobble: float = 0.2) -> None:
        """An uneven oval."""
        span = self.dice.span
        self.poly(
            [(x + rx * u * k, y + ry * v * k) for u, v in _circle(12) for k in (span(1 - wobble, 1 + wobble),)],
            fill,
        )

    def stroke(self, points: Sequence[Point], width: float, fill: Color) -> None:
        """A polyline. Sketches thin it, because there it stands for an outlined strip."""
        thin = 0.5 if self.look.style == "sketch" else 1.0
        self.draw.line(self.project(points), fill=self.line_tone(fill), width=self.width(width * thin))

    def limb(self, points: Sequence[Point], width: float, fill: Color) -> None:
        """A polyline with round joints and ends."""
        color = self.line_tone(fill)
        flat = self.project(points)
        w = self.width(width * (0.5 if self.look.style == "sketch" else 1.0))
        self.draw.line(flat, fill=color, width=w)
        if w > 2:
            r = w / 2
            for i in range(0, len(flat), 2):
                x, y = flat[i], flat[i + 1]
                self.draw.ellipse((x - r, y - r, x + r, y + r), fill=color)

    def ribbon(self, points: Sequence[Point], height: float, fill: Color) -> None:
        """A strip along points that run from left to right, of equal height everywhere and without gaps."""
        points = [p for p in points if self.sees(*p, 0.35)]  # long outlines are slow to fill
        if len(points) < 2:
            return
        h = height / 2
        self.poly([*((x, y - h) for x, y in points), *((x, y + h) for x, y in reversed(points))], fill)

    def curve(self, p: Point, q: Point, r: Point, width: float, fill: Color, n: int = 7) -> None:
        """A quadratic Bezier stroke from p to r, drawn towards q."""
        self.stroke(bezier(p, q, r, n), width, fill)

    def arc(
        self, x: float, y: float, rx: float, ry: float, start: float, stop: float, width: float, fill: Color
    ) -> None:
        """Part of an oval's rim; turn 0 is to the right, a quarter turn is down."""
        steps = [start + (stop - start) * i / 10 for i in range(11)]
        self.stroke([(x + rx * cos_turn(t), y + ry * sin_turn(t)) for t in steps], width, fill)

    # -- backgrounds, in frame coordinates

    def wash(self, top: Color, bottom: Color) -> None:
        """Paint the whole frame with a vertical gradient."""
        strip = Image.new("RGB", (1, 2), top)
        strip.putpixel((0, 1), bottom)
        # Interpolate one column and repeat it: resampling the whole frame costs as much as a subject.
        column = strip.resize((1, self.pixels), Image.Resampling.BILINEAR)
        self.replace(column.resize((self.pixels, self.pixels), Image.Resampling.NEAREST))

    def mottle(self, a: Color, b: Color, cells: int) -> None:
        """Paint the whole frame with soft blotches between two colours."""
        shares = self.dice.octets(cells * cells).astype(np.float32).reshape(cells, cells, 1) / 255
        low, high = np.array(a, np.float32), np.array(b, np.float32)
        small = Image.fromarray((low + (high - low) * shares).astype(np.uint8))
        # Soft blotches need no supersampling, and interpolating fewer pixels is faster.
        small = small.resize((self.size, self.size), Image.Resampling.BILINEAR)
        self.replace(small.resize((self.pixels, self.pixels), Image.Resampling.NEAREST))


def bezier(p: Point, q: Point, r: Point, n: int = 7) -> list[Point]:
    points = []
    for i in range(n + 1):
        t = i / n
        u = 1 - t
        a, b, c = u * u, 2 * u * t, t * t
        points.append((a * p[0] + b * q[0] + c * r[0], a * p[1] + b * q[1] + c * r[1]))
    return points


def clutter(c: Canvas, count: int, colors: Sequence[Color]) -> None:
    """Soft unrelated things behind the subject, so that the background is no cue and no constant."""
    dice = c.dice
    for _ in range(count):
        x, y, r = dice.off(1.1), dice.off(1.1), dice.span(0.08, 0.4)
        color = dice.near(dice.pick(colors), 40)
        kind = dice.unit()
        if kind < 0.4:
            c.blob(x, y, r, r * dice.span(0.5, 1.2), color)
        elif kind < 0.7:
            c.box(x, y, x + r * dice.span(0.5, 2.5), y + r * dice.span(0.3, 1.5), color)
        else:
            c.stroke(((x, y), (x + dice.off(1.2), y + dice.off(1.2))), dice.span(0.02, 0.1), color)


def occlude(c: Canvas) -> None:
    """One or two things in front of the subject, in frame coordinates."""
    dice = c.dice
    for _ in range(dice.whole(1, 2)):
        color = dice.any_color()
        kind = dice.unit()
        if kind < 0.4:  # a twig or wire right across the frame
            y = dice.off(0.9)
            c.curve((-1.1, y), (dice.off(0.5), dice.off(1)), (1.1, dice.off(0.9)), dice.span(0.03, 0.09), color)
        elif kind < 0.7:  # a leaf or a finger from an edge
            side = dice.pick((-1, 1))
            c.oval(side * dice.span(0.8, 1.1), dice.off(0.9), dice.span(0.2, 0.45), 0.16, color, dice.off(0.2))
        else:  # a sticker somewhere
            x, y, r = dice.off(0.8), dice.off(0.8), dice.span(0.08, 0.2)
            c.box(x - r, y - r, x + r, y + r * dice.span(0.3, 1), color)


# ------------------------------------------------------------------------------------------------ camera


@dataclass(frozen=True)
class Camera:
    """What happens to an image after it is drawn; each number is the largest strength of its effect."""

    light: float = 0.35  # slope of a linear light fall-off over the frame
    cast: float = 0.12  # change of each channel's gain
    gain: float = 0.25  # change of the common gain
    noise: float = 38.0  # noise in grey levels
    blur: float = 0.9  # radius of a box blur in pixels of a 64 px image
    blur_share: float = 0.35


@cache
def _ramps(size: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    line = (np.arange(size, dtype=np.float32) * 2 - (size - 1)) / np.float32(size)
    return line.reshape(1, size, 1), line.reshape(size, 1, 1)


def develop(c: Canvas, camera: Camera | None) -> ImageArray:
    """Average the canvas down to its size and pass it through the camera."""
    image = c.image.reduce(SUPERSAMPLE)
    if camera is None:
        return np.asarray(image)
    dice, size = c.dice, c.size
    if dice.chance(camera.blur_share):
        image = image.filter(ImageFilter.BoxBlur(dice.unit() * camera.blur * size / 64))
    along, down = _ramps(size)
    shade = along * np.float32(dice.off(camera.light)) + down * np.float32(dice.off(camera.light))
    gain = 1 + dice.off(camera.gain)
    gains = np.array([gain * (1 + dice.off(camera.cast)) for _ in range(3)], np.float32)
    strength = dice.unit() * camera.noise / 256
    grain = dice.octets(size * size * 3).view(np.int8).reshape(size, size, 3)
    developing = np.asarray(image) * ((shade + np.float32(1)) * gains)
    developing += np.multiply(grain, np.float32(strength), dtype=np.float32)
    np.maximum(developing, 0, out=developing)
    np.minimum(developing, 255, out=developing)
    developed: ImageArray = developing.astype(np.uint8)
    return developed
