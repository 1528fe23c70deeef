"""Sections that others add to the page: words, tables, and parts that are folded away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tasso.report.collect import Setting
from tasso.report.markup import Html
from tasso.report.tables import Table


@dataclass(frozen=True)
class Shown:
    """A table with the name of its files, and the setting it is about, if it is about one."""

    name: str
    table: Table
    setting: Setting | None = None


@dataclass(frozen=True)
class Folded:
    """Parts under a heading that opens and closes; `large` ones have a heading of their own in the outline."""

    heading: str
    parts: Sequence[Part]
    remark: str = ""
    large: bool = False
    open: bool = False


Part: TypeAlias = Html | Shown | Folded


@dataclass(frozen=True)
class Chapter:
    """A section of the page; `name` is where links lead, `short` stands in the contents."""

    name: str
    title: str
    parts: Sequence[Part]
    short: str = ""
