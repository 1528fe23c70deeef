"""Domains and their register. A new domain is one file that builds a Domain, adds classes and registers it,
and a line in domains.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .canvas import Camera, Canvas

Drawing = Callable[[Canvas], None]


@dataclass(frozen=True)
class Pose:
    """How far a subject strays from upright, centred and full size."""

    scale: tuple[float, float] = (0.6, 0.95)
    turn: float = 0.05  # in whole turns, to either side
    shift: float = 0.22
    squeeze: float = 0.15
    shear: float = 0.15
    flip: bool = True

    @contextmanager
    def applied(self, c: Canvas) -> Iterator[None]:
        dice = c.dice
        with c.at(
            dice.off(self.shift),
            dice.off(self.shift),
            dice.span(*self.scale),
            dice.off(self.turn),
            flip=self.flip and dice.chance(0.5),
            squeeze=1 + dice.off(self.squeeze),
            shear=dice.off(self.shear),
        ):
            yield


@dataclass
class Domain:
    """A group of classes that share a setting. Drawings paint the subject, ``scene`` what is behind it."""

    name: str
    scene: Drawing
    pose: Pose = field(default_factory=Pose)
    camera: Camera = field(default_factory=Camera)
    occluded: float = 0.35  # share of images with something in front of the subject
    fills_frame: bool = False  # textures and land: the subject has no outside
    tinted: bool = True  # whether a drawing's main colour is what "a red ..." would mean
    drawings: dict[str, Drawing] = field(default_factory=dict)
    held_out: frozenset[str] = frozenset()

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.drawings)

    @property
    def taught(self) -> tuple[str, ...]:
        """The classes that captioned drawings may show and name."""
        return tuple(name for name in self.drawings if name not in self.held_out)

    def add(self, name: str, *, held_out: bool = False) -> Callable[[Drawing], Drawing]:
        """Register a class's drawing function; captioned drawings never show or name held-out classes."""

        def keep(drawing: Drawing) -> Drawing:
            self.drawings[name] = drawing
            if held_out:
                self.held_out |= {name}
            return drawing

        return keep


DOMAINS: dict[str, Domain] = {}


def register(domain: Domain) -> Domain:
    if domain.name in DOMAINS:
        raise ValueError(f"there is already a domain called {domain.name!r}")
    taken = {name for other in DOMAINS.values() for name in other.drawings}
    if clash := taken & set(domain.drawings):
        raise ValueError(f"class names must be unique over all domains, {sorted(clash)} are not")
    DOMAINS[domain.name] = domain
    return domain
