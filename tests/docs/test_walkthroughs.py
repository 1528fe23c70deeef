"""What the walk-throughs quote was printed: it stands in results/walkthroughs, which the commands of the page made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documented import ROOT, commands
from fences import code_in

PAGES = sorted((ROOT / "docs").glob("walkthrough-*.md"))
TYPED = re.compile(r"^(torchrun|pets/)")  # what is typed in, or lies there, was not printed


def transcript(page: Path) -> str:
    name = page.stem.removeprefix("walkthrough-")
    return (ROOT / "results" / "walkthroughs" / f"{name}.txt").read_text(encoding="utf-8")


def quoted(page: Path) -> list[str]:
    """Pieces of output: blocks of text, divided where lines were left out (a line with … alone)."""
    blocks = code_in(page.read_text(encoding="utf-8"), "text")
    return [part for block in blocks if not TYPED.match(block) for part in re.split(r"^…\n", block, flags=re.M) if part]


def bare(text: str) -> str:
    """Without blanks at the ends of lines, which nobody sees."""
    return re.sub(r" +$", "", text, flags=re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_quoted_was_printed(page: Path) -> None:
    printed, parts = bare(transcript(page)), quoted(page)
    assert len(parts) > 4
    for part in parts:
        assert bare(part) in printed, f"{page.name}: not in its transcript:\n{part}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_transcript_is_of_these_commands(page: Path) -> None:
    typed = [line.removeprefix("$ ") for line in transcript(page).splitlines() if line.startswith("$ ")]
    expected = ["python -" if words[:2] == ["python", "-c"] else " ".join(words) for words in commands(page)]
    assert [line.replace('"', "").replace(" <<'END'", "") for line in typed] == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_machine_is_told_of(page: Path) -> None:
    assert not re.findall(r"(?<![\w.~])/(?:home|root|tmp|work|usr)/\S*", transcript(page))
