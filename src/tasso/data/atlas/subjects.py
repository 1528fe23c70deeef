"""What reference scenes show: taught classes of all domains, and extras that are no class of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .canvas import Dice
from .extras import EXTRAS
from .registry import DOMAINS, Domain, Drawing

EXTRA_SHARE = 0.25  # subjects that are no class of the benchmark


@dataclass(frozen=True)
class Subject:
    """Something to draw; `domain` is None for an extra."""

    name: str
    drawing: Drawing
    domain: Domain | None = None

    @property
    def fills_frame(self) -> bool:
        return self.domain is not None and self.domain.fills_frame


@cache
def _subjects(domains: tuple[str, ...]) -> tuple[tuple[Subject, ...], tuple[Subject, ...]]:
    """Taught classes of the benchmark, and extras."""
    taught = [
        Subject(name, DOMAINS[domain].drawings[name], DOMAINS[domain])
        for domain in domains
        for name in DOMAINS[domain].taught
    ]
    return tuple(taught), tuple(Subject(name, drawing) for name, drawing in EXTRAS.items())


def any_subject(dice: Dice, *, solid: bool = False) -> Subject:
    """A taught class or an extra; ``solid`` leaves out what fills the frame."""
    taught, extras = _subjects(tuple(DOMAINS))
    while True:
        subject = dice.pick(extras if dice.chance(EXTRA_SHARE) else taught)
        if not (solid and subject.fills_frame):
            return subject
