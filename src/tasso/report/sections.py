"""Sections of the page: text, tables, figures, and parts that are folded away. Others may add theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

from tasso.report.frame import Setting
from tasso.report.tables import Table


@dataclass(frozen=True)
class Shown:
    """A table with the name of its files, and the setting it is about, if it is about one."""

    name: str
    table: Table
    setting: Setting | None = None


@dataclass(frozen=True)
class Block:
    """Parts that the filters show and hide together, under a heading if it has one.

    An empty name of a method, benchmark or order: the block is about all of them. `kind` is its CSS class.
    """

    parts: Sequence[Part]
    heading: str = ""
    remark: str = ""
    setting: Setting | None = None
    method: str = ""
    benchmark: str = ""
    order: str = ""
    kind: str = "block"


@dataclass(frozen=True)
class Folded:
    """Parts under a heading that opens and closes; `large` ones have a heading of their own in the outline."""

    heading: str
    parts: Sequence[Part]
    remark: str = ""
    large: bool = False
    open: bool = False
    benchmark: str = ""
    order: str = ""


# HTML is Markup; a plain str is a paragraph of text.
Part: TypeAlias = str | Markup | Shown | Block | Folded


@dataclass(frozen=True)
class Section:
    """A section of the page; `name` is where links lead, `short` stands in the contents."""

    name: str
    title: str
    parts: Sequence[Part]
    short: str = ""
