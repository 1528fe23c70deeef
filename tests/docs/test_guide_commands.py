"""Every command of the guide is run. A separate file, so that two processes can share the pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from documented import GUIDE, Reader, commands, laid_out, reader, why_not  # noqa: F401

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", [page for page in GUIDE if commands(page)], ids=lambda page: page.stem)
def test_commands_of_the_guide(page: Path, reader: Reader) -> None:  # noqa: F811
    executed = reader.follow(page)
    assert len(executed) == sum(why_not(" ".join(args)) is None for args in commands(page))
