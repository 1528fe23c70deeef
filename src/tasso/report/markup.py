"""Build HTML from elements, so that every piece of text is escaped unless it was built here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from urllib.parse import quote

_VOID = frozenset({"meta", "img", "br", "hr"})


class Html(str):
    """Text that is HTML already and must not be escaped again."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str | float | bool | None) -> Html:
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
    opening = f"<{' '.join(parts)}>"
    return Html(opening if tag in _VOID else f"{opening}{join(children)}</{tag}>")


def join(children: Iterable[str]) -> Html:
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


def raw(tag: str, content: str) -> Html:
    """A `style` or `script` element, whose content HTML does not unescape."""
    if f"</{tag}" in content.lower():
        raise ValueError(f"the content would close its own <{tag}> element")
    return Html(f"<{tag}>{content}</{tag}>")


def slug(text: str) -> str:
    """Safe for an id or a file name; different texts may share one, so add a number where it matters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "x"


def csv_link(content: str, file_name: str, of: str) -> Html:
    """A download link that needs neither network nor script: the file is in the address."""
    href = "data:text/csv;charset=utf-8," + quote(content, errors="replace")
    label = f"Download as CSV: {of}"
    return element("a", "Download CSV", class_="download", href=href, download=file_name, aria_label=label)
