"""HTML from the files in `templates/`. Every text is escaped unless it is Markup already."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tasso.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["script_data"] = script_data
    return environment


def render(template: str, **values: Any) -> Markup:
    """Fill a file of `templates/`."""
    return Markup(_environment().get_template(template).render(**values))


def script_data(content: Any) -> Markup:
    """Values for the script, as JSON that cannot end its own element."""
    return Markup(json.dumps(content, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c"))


def slug(text: str) -> str:
    """Safe for an id or a file name; different texts may share one, so add a number where it matters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "x"
