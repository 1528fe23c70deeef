"""Options are declared at the field, and everything else follows from there."""

from __future__ import annotations

import math
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from tasso.config import RunConfig, check_options, choices_of, from_dict, option, options_of
from tasso.errors import ConfigError
from tasso.methods import METHODS
from tasso.training.identity import identity, portable


@dataclass
class Declared:
    """One option of each kind."""

    count: int = option("how many", 3, ge=1, le=9, scope="data", commands="run eval")
    seed: int = option("a seed", 0, ge=0, lt=2**48)
    steps: int | None = option("steps", None, ge=1, unset="all")
    rate: float = option("a rate", 0.1, gt=0)
    share: float = option("a share", 0.5, ge=0, lt=1)
    limit: float = option("a limit", 1.0, ge=0, allow_inf=True)
    pair: tuple[float, float] = option("two numbers", (0.0, 0.5), ge=0, lt=1)
    mode: Literal["a", "b"] | None = option("a mode", None, identity=False)
    name: str = option("a name", "x")

    def __post_init__(self) -> None:
        check_options(self)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "count: must be at least 1, not 0"),
        ({"count": 10}, "count: must be at most 9, not 10"),
        ({"count": 2.0}, "count: expected a whole number, not 2.0"),
        ({"count": True}, "count: expected a whole number, not True"),
        ({"seed": -1}, "seed: must not be negative, not -1"),
        ({"seed": 2**48}, "seed: must be below 2^48, not 281474976710656"),
        ({"steps": 0}, "steps: must be at least 1, not 0"),
        ({"steps": 2**31}, "steps: must be below 2^31, not 2147483648"),
        ({"rate": 0}, "rate: must be positive, not 0"),
        ({"rate": math.nan}, "rate: must be a finite number, not nan"),
        ({"rate": math.inf}, "rate: must be a finite number, not inf"),
        ({"rate": 10**400}, "rate: must be a finite number, not 1000"),
        ({"share": 1}, "share: must lie in [0, 1), not 1"),
        ({"limit": -math.inf}, "limit: must be a finite number, not -inf"),
        ({"limit": -1}, "limit: must not be negative, not -1"),
        ({"pair": (0.5, 1.0)}, "pair: must lie in [0, 1), not 1.0"),
        ({"pair": (0.5,)}, "pair: expected 2 values, not (0.5,)"),
        ({"mode": "c"}, "mode: expected one of a, b or nothing, not 'c'"),
        ({"name": "a\0b"}, "name: 'a\\x00b' contains a null character"),
    ],
)
def test_types_and_ranges_are_checked_as_declared(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Declared(**values)
    assert str(error.value).startswith(message)


def test_what_is_in_range_is_taken() -> None:
    Declared(count=9, seed=2**48 - 1, steps=1, rate=5, share=0, limit=math.inf, pair=(0, 0.99), mode="b")


def test_options_are_found_by_what_they_declare() -> None:
    assert list(options_of(Declared, command="eval")) == ["count"]
    assert list(options_of(Declared, scope="data")) == ["count"]
    assert list(options_of(Declared, identity=False)) == ["mode"]
    assert len(options_of(Declared)) == 9
    declared = options_of(Declared)
    assert [declared[name].range for name in ("count", "rate", "share", "name")] == ["[1, 9]", "> 0", "[0, 1)", ""]
    hints = typing.get_type_hints(Declared)
    assert choices_of(hints["mode"]) == ("a", "b")
    assert choices_of(hints["count"]) == ()


def test_every_option_says_what_it_does_and_who_takes_it() -> None:
    commands = {
        "run",
        "sweep",
        "paper",
        "eval",
        "merge",
        "check",
        "pack",
        "bench",
        "extend",
        "export",
        "classify",
        "serve",
    }
    for name, declared in options_of(RunConfig).items():
        assert declared.help, name
        assert "run" in declared.commands <= commands, name
    for method in METHODS.values():
        assert all(declared.help for declared in options_of(method).values()), method


def test_no_path_of_this_machine_makes_a_run_another_one() -> None:
    hints = typing.get_type_hints(RunConfig)
    paths = {name for name, hint in hints.items() if Path in (hint, *typing.get_args(hint))}
    assert {"out", "data_root", "pack_dir", "reference_texts"} <= paths
    declared = options_of(RunConfig)
    assert all(declared[name].identity in (False, "given") or declared[name].content for name in paths)
    here = {
        "data_root": "/a",
        "out": "/a/r",
        "pack_dir": "/a/p",
        "reference_texts": "/a/t.txt",
        "model": "local-dir:/a/m",
    }
    there = {key: value.replace("/a", "/b/c") for key, value in here.items()}
    found = [portable(identity(from_dict({**options, "tasks": {"birds": f"/{n}/birds"}}))) for n, options in
             enumerate((here, there))]  # fmt: skip
    assert found[0] == found[1]
    assert found[0]["model"] == "local-dir:m"
    assert found[0]["pack_dir"] == "given"
    assert found[0]["reference_texts"] == "t.txt"
    assert not [key for key in ("data_root", "out") if key in found[0]]


def test_names_that_are_no_paths_stay_whole() -> None:
    options = {"model": "hf-hub:a/b", "template": "a {} / the {}", "pretrained": "laion/tag", "reference": "mtil-mini"}
    assert portable(options) == {**options, "pretrained": "tag"}
