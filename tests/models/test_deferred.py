"""Packages that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tasso.models.deferred import deferred

PACKAGE = "class Thing:\n    made = 'here'\n"
USER = """try:
    import heavy
    from heavy.parts import Thing
except ImportError:
    heavy = None
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on Python's path with a package, and a module that imports it."""
    (tmp_path / "heavy").mkdir()
    (tmp_path / "heavy" / "__init__.py").write_text("size = [3]\n")
    (tmp_path / "heavy" / "parts.py").write_text(PACKAGE)
    (tmp_path / "user.py").write_text(USER)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("heavy", "heavy.parts", "user"):
        sys.modules.pop(name, None)


def user() -> ModuleType:
    with deferred("heavy"):
        return importlib.import_module("user")


def test_a_package_is_imported_at_first_use(site: Path) -> None:
    found = user()
    assert not {"heavy", "heavy.parts"} & set(sys.modules)
    assert found.Thing().made == "here"
    assert isinstance(sys.modules["heavy.parts"].Thing(), found.Thing)
    assert found.Thing.made == "here"
    assert found.heavy.size.index(3) == 0


def test_use_within_the_block_imports_it(site: Path) -> None:
    (site / "user.py").write_text(f"{USER}\nmade = Thing().made\n")
    assert user().made == "here"
    assert type(sys.modules["heavy"]) is ModuleType


def test_what_was_imported_before_is_not_deferred(site: Path) -> None:
    real = importlib.import_module("heavy")
    found = user()
    assert found.heavy is real
    assert isinstance(found.Thing, type)


def test_what_is_not_installed_stays_so(site: Path) -> None:
    (site / "heavy" / "parts.py").unlink()
    (site / "heavy" / "__init__.py").unlink()
    (site / "heavy").rmdir()
    importlib.invalidate_caches()
    assert user().heavy is None
