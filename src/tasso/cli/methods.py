"""What is known about the methods without torch, whose import takes seconds; and the command that prints it."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tasso.cli.parser import Parser
from tasso.config import METHOD_GROUP
from tasso.errors import ConfigError, no_such
from tasso.files import parse_json

METHOD_FACTS = Path(__file__).with_name("methods.json")  # written by `python tools/options_page.py`

NARROW, LEAST = 110, 25  # columns of a terminal, and of the last cell of a row

Facts = dict[str, Any]  # of one method


def methods(args: list[str]) -> None:
    """tasso methods [NAME]"""
    parser = Parser("tasso methods", "The methods, one row each; of one, its cost and its options, too.")
    parser.argument("name", str, "one method, also package.module:Class; without it, all of them", count="?")
    parser.option("--json", bool, "print JSON instead of text", False)
    values = parser.parse(args)
    name = values["name"]
    facts_of = _facts_by_reference(name) if name and ":" in name else method_facts()
    if name:
        if name not in facts_of:
            raise ConfigError(no_such("method", name, facts_of))
        facts_of = {name: facts_of[name]}
    if values["json"]:
        print(json.dumps(facts_of, indent=1))
    elif name:
        print("\n".join(_details(name, facts_of[name])))
    else:
        print("\n".join(_table(facts_of, shutil.get_terminal_size((sys.maxsize, 0)).columns)))


def _table(facts_of: Mapping[str, Facts], width: int) -> list[str]:
    """One row per method. Its last cell is continued on further lines where the terminal is narrow."""
    rows: list[tuple[str, ...]] = [("method", "trains", "images", "memory", "idea")]
    for name, facts in facts_of.items():
        images = facts["images"].replace("none beside the task's", "–").replace("current", "–")
        rows.append((name, facts["trains"], images, _memory(facts), facts["summary"]))
    if narrow := width < NARROW:
        rows = [row[:2] + row[3:] for row in rows]
    widths = [max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[:-1]]
    lines = []
    for *cells, idea in rows:
        start = "".join(f"{cell:{size}}" for cell, size in zip(cells, widths, strict=True))
        first, *more = textwrap.wrap(idea, max(width - len(start), LEAST)) or [""]
        lines += [start + first, *(" " * len(start) + line for line in more)]
    model = next(iter(facts_of.values()))["cost"]["model"]
    return [
        *lines,
        "",
        *([] if narrow else ["images: those that it uses beside the task's own"]),
        f"memory: beside that of the model, while it trains and in a checkpoint, at {model} in float32",
        "tasso methods NAME: one method, with its options",
    ]


def _memory(facts: Facts) -> str:
    named = {"training": "+{} MiB", "checkpoint": "checkpoint +{} MiB"}
    found = [text.format(round(4 * count / 2**20)) for key, text in named.items() if (count := facts["cost"][key])]
    return ", ".join(found) or "–"


def _details(name: str, facts: Facts) -> list[str]:
    defaults = "; ".join(f"--{key.replace('_', '-')} {text}" for key, text in facts["defaults"].items())
    return [
        f"{name}: {facts['summary']}",
        *(f"  {key:<9} {facts[key]}" for key in ("trains", "teachers", "images", "source", "verified")),
        f"  {'cost':<9} at {facts['cost']['model']}: {facts['cost']['words']}",
        f"  {'defaults':<9} {defaults}",
        *(
            f"  --method.{key.replace('_', '-'):<24} {value['default']!s:<10} {value['help']}"
            for key, value in facts["options"].items()
        ),
    ]


def _facts_by_reference(name: str) -> dict[str, Facts]:
    """Of `package.module:Class`, which is imported."""
    from tasso.methods.describe import describe

    return {name: describe(name)}


def own_facts() -> dict[str, Facts]:
    """The facts about the methods of this package, as they are written down."""
    return dict(parse_json(METHOD_FACTS.read_text(encoding="utf-8")))


def method_facts() -> dict[str, Facts]:
    """The facts about each method. Those of other packages are asked, which takes torch."""
    if not entry_points(group=METHOD_GROUP):
        return own_facts()
    from tasso.methods.describe import describe
    from tasso.methods.registry import method_names

    return {name: describe(name) for name in method_names()}


def known_names() -> list[str]:
    """Names of all methods."""
    if "tasso.methods" in sys.modules:  # those that were registered since are there, too
        from tasso.methods import method_names

        return method_names()
    return list(dict.fromkeys([*own_facts(), *(entry.name for entry in entry_points(group=METHOD_GROUP))]))
