"""What is known about the methods without torch, whose import takes seconds; and the command that prints it."""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tasso.cli.parser import Parser
from tasso.config import METHOD_GROUP
from tasso.errors import ConfigError, no_such
from tasso.files import parse_json

METHOD_FACTS = Path(__file__).with_name("methods.json")  # written by `python tools/options_page.py`

Facts = dict[str, Any]  # of one method


def methods(args: list[str]) -> None:
    """tasso methods [NAME]"""
    parser = Parser("tasso methods", "What there is to choose from: what a method does, its cost, its options.")
    parser.argument("name", str, "one method; without it, all of them", count="?")
    parser.option("--json", bool, "print JSON instead of text", False)
    values = parser.parse(args)
    facts_of = method_facts()
    if name := values["name"]:
        if name not in facts_of:
            raise ConfigError(no_such("method", name, facts_of))
        facts_of = {name: facts_of[name]}
    if values["json"]:
        print(json.dumps(facts_of, indent=1))
        return
    for name, facts in facts_of.items():
        print(f"{name}: {facts['summary']}")
        for key in ("trains", "teachers", "images", "source", "verified"):
            print(f"  {key:<9} {facts[key]}")
        print(f"  {'cost':<9} at {facts['cost']['model']}: {facts['cost']['words']}")
        shown = facts["defaults"].items()
        print(f"  {'defaults':<9} " + "; ".join(f"--{key.replace('_', '-')} {text}" for key, text in shown))
        for key, value in facts["options"].items():
            print(f"  --method.{key.replace('_', '-'):<24} {value['default']!s:<10} {value['help']}")
        print()


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
