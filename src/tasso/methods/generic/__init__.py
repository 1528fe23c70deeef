"""Generic texts, written for this package: common names, and captions, which stand for all that a model knows."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import numpy as np

COMPOSED = 4000  # captions made of names, attributes and places, beside the written ones


def names() -> tuple[str, ...]:
    """About 400 common nouns; none is a class of atlas."""
    return _lines("names")


@cache
def captions() -> tuple[str, ...]:
    """The written captions, and as many composed ones as there are to be, the same on every machine."""
    rng = np.random.default_rng(0)

    def one_of(texts: tuple[str, ...]) -> str:
        return texts[rng.integers(len(texts))]  # as `rng.choice`, which makes an array of all of them each time

    words = {"name": names(), "attribute": _lines("attributes"), "place": _lines("places")}
    composed = dict.fromkeys(_lines("captions"))
    target = len(composed) + COMPOSED
    while len(composed) < target:
        pattern = one_of(_lines("patterns"))
        text = re.sub(r"\{(\w+)\}", lambda found: one_of(words[found[1]]), pattern)
        composed[re.sub(r"\ba (?=[aeiou])", "an ", text)] = None
    return tuple(composed)


@cache
def _lines(name: str) -> tuple[str, ...]:
    return tuple((files(__name__) / f"{name}.txt").read_text(encoding="utf-8").splitlines())
