"""Every command of the guide is run. In a file of its own, so that two processes share the pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from documented import GUIDE, Reader, commands, laid_out, reader, why_not  # noqa: F401


@pytest.mark.parametrize("page", [page for page in GUIDE if commands(page)], ids=lambda page: page.stem)
def test_commands_of_the_guide(page: Path, reader: Reader) -> None:  # noqa: F811
    carried_out = reader.follow(page)
    assert len(carried_out) == sum(why_not(" ".join(words)) is None for words in commands(page))
