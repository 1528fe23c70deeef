"""Every command of README, CONTRIBUTING and the pages beside the guide is run, the walk-throughs among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from documented import GUIDE, NOT_RUN, PAGES, Reader, commands, laid_out, reader, why_not  # noqa: F401


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p) and p not in GUIDE], ids=lambda page: page.stem)
def test_commands_of_the_page(page: Path, reader: Reader) -> None:  # noqa: F811
    carried_out = reader.follow(page)
    assert len(carried_out) == sum(why_not(" ".join(words)) is None for words in commands(page))


def test_what_is_not_run_is_in_the_pages() -> None:
    lines = [" ".join(words) for page in PAGES for words in commands(page)]
    reasons = {why_not(line) for line in lines}
    assert [pattern for pattern, reason in NOT_RUN.items() if reason not in reasons] == [], "no page has these"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("tasso run --benchmark atlas --stepz 60", "stepz"),
        ("tasso classify runs/nobody photo.jpg", "no page makes runs/nobody"),
        ("tasso metrics missing.json", "missing.json"),
        ("curl example.org", "neither run nor listed"),
    ],
)
def test_a_broken_command_is_noticed(line: str, complaint: str, reader: Reader) -> None:  # noqa: F811
    with pytest.raises(AssertionError, match=complaint):
        reader.type_in(line.split(), "page")
