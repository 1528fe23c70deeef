"""Every input of the catalogue ends in a clear error, exit code 2 and an untouched disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bad_inputs import CASES, GROUPS, world
from bad_inputs.case import Bad, Outcome, carried_out, faults, portable_message, prepared

Outcomes = Callable[[Bad], tuple[Outcome, Path]]


@pytest.fixture(scope="module")
def outcome_of(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Carries a case out, once."""
    base = tmp_path_factory.mktemp("bad")
    well = world.build(base / "world")
    outcomes: dict[str, tuple[Outcome, Path]] = {}

    def find(case: Bad) -> tuple[Outcome, Path]:
        if case.name not in outcomes:
            place = prepared(case, well, base / case.name)
            outcomes[case.name] = carried_out(case.args, place), place
        return outcomes[case.name]

    return find


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input(case: Bad, outcome_of: Outcomes) -> None:
    if case.only_users and os.geteuid() == 0:
        pytest.skip("nothing is forbidden to root")
    outcome, place = outcome_of(case)
    assert not faults(case, outcome, place), outcome.said[-2000:]


def test_the_catalogue_is_large_and_without_repetition() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert len(names) >= 560
    assert all(GROUPS.values())
    assert not [case.name for case in CASES if not case.says or not case.what]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arguments/command", "use/metrics-empty", "weights/code"])
def test_a_process_of_its_own_says_the_same(name: str, outcome_of: Outcomes, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == name)
    expected, first = outcome_of(case)
    place = prepared(case, first.parents[1] / "world", tmp_path / "place")
    before = sorted(place.rglob("*"))
    command = [sys.executable, "-m", "tasso", *case.args]
    if name == "weights/code":  # open_clip's list of models lives in a process
        learn = "import open_clip, sys, tasso.cli as c; open_clip.add_model_config('configs'); c.main(sys.argv[1:])"
        command = [sys.executable, "-c", learn, *case.args]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    outcome = Outcome(done.returncode, done.stdout, done.stderr)
    assert done.returncode == 2
    assert portable_message(case, outcome, place) == portable_message(case, expected, first)
    assert "Traceback" not in done.stderr
    assert sorted(place.rglob("*")) == before
