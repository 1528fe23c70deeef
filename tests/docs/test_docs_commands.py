"""Every command of README, CONTRIBUTING and the pages outside the guide is run, including the walk-throughs."""

from __future__ import annotations

from pathlib import Path

import pytest

from documented import GUIDE, NOT_RUN, PAGES, Reader, commands, laid_out, reader, why_not  # noqa: F401

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p) and p not in GUIDE], ids=lambda page: page.stem)
def test_commands_of_the_page(page: Path, reader: Reader) -> None:  # noqa: F811
    executed = reader.follow(page)
    assert len(executed) == sum(why_not(" ".join(args)) is None for args in commands(page))


def test_exceptions_are_in_the_pages() -> None:
    lines = [" ".join(args) for page in PAGES for args in commands(page)]
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
def test_a_broken_command_fails(line: str, complaint: str, reader: Reader) -> None:  # noqa: F811
    with pytest.raises(AssertionError, match=complaint):
        reader.execute(line.split(), "page")
