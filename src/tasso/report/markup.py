"""Build HTML from elements, so that every piece of text is escaped unless it was built here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from typing import Any

_VOID = frozenset({"meta", "img", "br", "hr"})
# Parts of drawings close themselves.
_DRAWN = frozenset({"circle", "line", "path", "polygon", "polyline", "rect", "use"})
Attribute = str | float | bool | None


class Html(str):
    """Text that is HTML already and must not be escaped again."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: Attribute) -> Html:
    """`<tag attributes>children</tag>`. Plain strings are escaped; `Html` is taken as it is.

    Attribute names: `class_` is class, `aria_label` is aria-label; None and False leave one out.
    """
    parts = [tag]
    for name, value in attributes.items():
        name = name.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(name)
        elif value is not None and value is not False:
            parts.append(f'{name}="{escape(str(value))}"')
    if tag in _DRAWN and not children:
        return Html(f"<{' '.join(parts)}/>")
    opening = f"<{' '.join(parts)}>"
    return Html(opening if tag in _VOID else f"{opening}{join(children)}</{tag}>")


def join(children: Iterable[str]) -> Html:
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


def raw(tag: str, content: str) -> Html:
    """A `style` or `script` element, whose content HTML does not unescape."""
    if f"</{tag}" in content.lower():
        raise ValueError(f"the content would close its own <{tag}> element")
    return Html(f"<{tag}>{content}</{tag}>")


def data(name: str, content: Any) -> Html:
    """Values for the script, as JSON in an element that the browser does not run."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{escape(name)}">{text}</script>')


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Html:
    """A line of a drawing; the style sheet knows its kind."""
    return element("line", class_=kind, x1=short(x1), y1=short(y1), x2=short(x2), y2=short(y2))


def label(content: str, x: float, y: float, anchor: str) -> Html:
    """Words in a drawing."""
    return element("text", content, x=short(x), y=short(y), text_anchor=anchor)


def points(places: Iterable[tuple[float, float]]) -> str:
    """Places as polylines and polygons want them."""
    return " ".join(f"{short(x)},{short(y)}" for x, y in places)


def short(value: float) -> str:
    """A place in a drawing: tenths are enough, and whole numbers need none."""
    return f"{value:.1f}".removesuffix(".0")


def slug(text: str) -> str:
    """Safe for an id or a file name; different texts may share one, so add a number where it matters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "x"
