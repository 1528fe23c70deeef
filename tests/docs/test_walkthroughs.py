"""The output that the walk-throughs quote is in results/walkthroughs, the transcripts of their commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documented import ROOT, commands
from fences import code_in

PAGES = [ROOT / "docs" / "guide" / "own-images.md", ROOT / "docs" / "walkthrough-paper.md"]
NOT_OUTPUT = re.compile(r"^(torchrun|pets/)")  # a command, a listing of files


def transcript(page: Path) -> str:
    name = page.stem.removeprefix("walkthrough-")
    return (ROOT / "results" / "walkthroughs" / f"{name}.txt").read_text(encoding="utf-8")


def quoted(page: Path) -> list[str]:
    """Pieces of output: text blocks, split where lines were left out (a line with … alone)."""
    blocks = [block for block in code_in(page.read_text(encoding="utf-8"), "text") if not NOT_OUTPUT.match(block)]
    return [part for block in blocks for part in re.split(r"^…\n", block, flags=re.M) if part]


def stripped(text: str) -> str:
    """Without trailing blanks."""
    return re.sub(r" +$", "", text, flags=re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_quotes_are_in_the_transcript(page: Path) -> None:
    printed, parts = stripped(transcript(page)), quoted(page)
    assert len(parts) > 4
    for part in parts:
        assert stripped(part) in printed, f"{page.name}: not in its transcript:\n{part}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_transcript_is_of_these_commands(page: Path) -> None:
    typed = [line.removeprefix("$ ") for line in transcript(page).splitlines() if line.startswith("$ ")]
    assert [line.replace('"', "") for line in typed] == [" ".join(args) for args in commands(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_local_paths(page: Path) -> None:
    assert not re.findall(r"(?<![\w.~])/(?:home|root|tmp|work|usr)/\S*", transcript(page))
