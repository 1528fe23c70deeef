"""docs/guide/options.md, the types of keywords and what `tasso methods` prints are what the declarations give."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import options_page


def test_the_page_is_what_the_declarations_give() -> None:
    assert options_page.PAGE.read_text(encoding="utf-8") == options_page.page(), "run python tools/options_page.py"


def test_the_keywords_are_what_the_declarations_give() -> None:
    assert options_page.KEYWORDS.read_text(encoding="utf-8") == options_page.keywords(), (
        "run python tools/options_page.py"
    )


def test_the_facts_about_methods_are_what_they_say_of_themselves() -> None:
    assert options_page.METHOD_FACTS.read_text(encoding="utf-8") == options_page.facts(), (
        "run python tools/options_page.py"
    )
