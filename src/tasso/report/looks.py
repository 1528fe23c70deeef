"""How each method is shown: its colour, mark, dash and short name, the same in every figure and on every page.

A colour is a pair: on a light page or on paper, and on a dark page. The nine were chosen to stay apart for normal
sight and under simulated protan-, deuter- and tritanopia, with a contrast of at least 3:1 with the page. Each method
also has its own mark, so that no reader depends on colour alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

SOLID, LONG, DOTTED = "solid", (0, (6, 1.5)), (0, (3, 1, 1, 1))
DASHES: tuple[Any, ...] = (SOLID, LONG, DOTTED)
# Method -> (colours, matplotlib's mark, dash). A method keeps its place when others are added.
PLACES: dict[str, tuple[tuple[str, str], str, Any]] = {
    "finetune": (("#191417", "#fbf3f6"), "X", SOLID),
    "lwf": (("#922bb4", "#ac86fb"), ">", LONG),
    "icarl": (("#483300", "#676906"), "<", DOTTED),
    "zscl": (("#0e7959", "#a5fa66"), "v", SOLID),
    "moe-adapters": (("#af83a4", "#b64087"), "^", LONG),
    "gift": (("#d12207", "#f9a2a5"), "P", DOTTED),
    "snd": (("#da7a03", "#c18813"), "s", SOLID),
    "tasso": (("#4d7cf9", "#5360de"), "o", SOLID),
    "tasso-both": (("#004d6a", "#74d0fc"), "D", LONG),
}
MARKERS = tuple(marker for _, marker, _ in PLACES.values())
SHADES = (0.0, 0.4, 0.65)  # of variants of one method: how far towards black, on a dark page towards white

# What a run's label says of a part that stands in for the authors' -> the footnote.
STAND_INS = {
    "retrieved images": "retrieved images stand in for Stable Diffusion",
    "drawn images": "images drawn by the tasks' own code stand in for Stable Diffusion",
    "selector on CLIP features": "CLIP's features stand in for AlexNet's in its selector",
}
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Look:
    """How a label is shown.

    Attributes:
        number: of the label on the page.
        name: short; `sign` is that of its footnote, "" where `note` is.
        colours: light, dark.
    """

    number: int
    name: str
    sign: str
    note: str
    colours: tuple[str, str]
    marker: str
    dash: Any

    @property
    def colour(self) -> str:
        """On paper."""
        return self.colours[0]

    @property
    def variable(self) -> str:
        """The CSS variable of the colour."""
        return variable(self.colour)

    @property
    def text(self) -> str:
        """The short name with the sign of its footnote."""
        return self.name + self.sign

    @property
    def line(self) -> dict[str, Any]:
        """Of a line, for matplotlib."""
        return {"color": self.colour, "linestyle": self.dash}


def variable(colour: str) -> str:
    """The name of the CSS variable of a colour on paper."""
    return f"--c{colour.removeprefix('#')}"


def looks(frame: pd.DataFrame) -> dict[str, Look]:
    """The look of every label, in the order of the frame.

    The shortest label of a method has the method's colour and mark; two variants have darker shades and other marks.
    Further ones, and a method without a place in the table, take places that no method of the frame has.
    """
    methods = frame.drop_duplicates("label").set_index("label")["method"]
    known = set(methods)
    free = [name for name in PLACES if name not in known] or list(PLACES)
    unknown = [method for method in dict.fromkeys(methods) if method not in PLACES]
    taken = {method: free[number % len(free)] for number, method in enumerate(unknown)}
    again = {method: number // len(free) for number, method in enumerate(unknown)}
    spare = [name for name in free if name not in taken.values()]
    names, further = short_names(list(methods.index)), 0
    found = {}
    for number, (label, method) in enumerate(methods.items()):
        variants = sorted(methods.index[methods == method], key=len)
        variant = variants.index(label) + again.get(method, 0)
        place = taken.get(method, method)
        if variant >= len(SHADES) and spare:
            variant, at = divmod(further, len(spare))
            place, further = spare[at], further + 1
        pair, marker, dash = PLACES[place]
        shade = SHADES[variant % len(SHADES)]
        light, dark = (mix(colour, ink, shade) for colour, ink in zip(pair, ("#000000", "#ffffff"), strict=True))
        if variant:
            marker = MARKERS[(MARKERS.index(marker) + variant) % len(MARKERS)]
            dash = DASHES[(DASHES.index(dash) + variant) % len(DASHES)]
        found[str(label)] = Look(number, *names[str(label)], (light, dark), marker, dash)
    return found


def mix(colour: str, other: str, share: float) -> str:
    """A colour on the way from one to the other."""
    pairs = ((int(one[at : at + 2], 16) for one in (colour, other)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


# -- names -------------------------------------------------------------------------------------------------------------


def parts(label: str) -> tuple[str, str, str]:
    """Method, options and stand-in: `GIFT (images 8), retrieved images`."""
    whole, _, stand_in = label.rpartition(", ")
    if stand_in not in STAND_INS:
        whole, stand_in = label, ""
    found = re.fullmatch(r"([^(]*[^(\s])\s*\((.*)\)", whole, re.DOTALL)
    return (found[1], found[2], stand_in) if found else (whole, "", stand_in)


def short_names(labels: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """The short name of each label, the sign of its footnote and the footnote ("" and "" without one).

    What tells two labels apart stays in the name.
    """
    forms = {label: _forms(label) for label in labels}
    counts = [Counter(form[level][0] for form in forms.values()) for level in range(3)]
    found, signs = {}, 0
    for label, form in forms.items():
        name, note = next((one for one, count in zip(form, counts, strict=True) if count[one[0]] == 1), form[2])
        signs += bool(note)
        found[label] = (name, str(signs).translate(_SUPERSCRIPTS) if note else "", note)
    return found


def _forms(label: str) -> list[tuple[str, str]]:
    """Names of a label with what they leave to a footnote, the shortest first."""
    name, options, stand_in = parts(label)
    words = STAND_INS.get(stand_in, "")
    with_options = f"{name} ({options})" if options else name
    return [(name, "; ".join(filter(None, (options, words)))), (with_options, words), (label, "")]
