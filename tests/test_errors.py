"""What messages share: how a missing package is installed."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from tasso.errors import install

EXTRAS = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
REQUIRES = [f'{name}; extra == "{extra}"' for extra, names in EXTRAS.items() for name in names]


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of packages that are missing; tasso is installed with the extras of pyproject.toml."""
    missing: set[str] = set()

    def find(name: str) -> None:
        if name in missing:
            raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["torch>=2", *REQUIRES])
    monkeypatch.setattr(importlib.metadata, "distribution", find)
    return missing


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"dev", "docs"}))
def test_the_packages_of_an_extra_are_named(extra: str, absent: set[str]) -> None:
    """Not `tasso[extra]`, which no package index has."""
    assert install(extra) == "pip install " + " ".join(f"'{name}'" for name in EXTRAS[extra])


def test_only_those_that_are_missing_are_named(absent: set[str]) -> None:
    absent.add("uvicorn")
    assert install("serve") == "pip install 'uvicorn>=0.30'"


def test_a_checkout_that_was_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", fail)
    assert install("serve") == "pip install '.[serve]' in a clone of tasso"
