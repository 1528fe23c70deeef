"""A run folder from somebody else is data: opening it runs nothing that lies in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import tasso
from conftest import draw
from tasso.cli import main
from tasso.errors import TassoError

NAME = "run.files.payload:X"  # what the run says it was learned by
PAYLOAD = """
from dataclasses import dataclass
from pathlib import Path

from tasso.methods.tasso import Tasso

Path("executed").touch()


@dataclass
class X(Tasso):
    pass
"""


@pytest.fixture
def attack(quick: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a victim works: a run in it names a module within the run, which leaves a mark."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    tasso.learn(**quick)
    for name in ("config.yaml", "results.json"):
        values = yaml.safe_load(Path("run", name).read_text())
        method = values["method"]
        values["method"] = {**method, "name": NAME} if isinstance(method, dict) else NAME
        Path("run", name).write_text(json.dumps(values))
    Path("run/files").mkdir()
    Path("run/files/payload.py").write_text(PAYLOAD)
    draw(1, 2).save("image.png")
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "run"]:
        del sys.modules[name]


COMMANDS = (
    "classify run image.png", "eval run", "export run", "serve run --port 0", "merge run run --out merged",
    "extend run --tasks more=run", "run --config run/config.yaml", "tune --config run/config.yaml",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_no_command_imports_what_a_run_names(attack: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = list(sys.path)
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"--method {NAME}" in said, "how a method of one's own is named"
    assert not Path("executed").exists()
    assert sys.path == path


def test_python_imports_it_only_if_it_is_named(attack: Path) -> None:
    for call in (tasso.load, tasso.evaluate, lambda run: tasso.extend(run, {"more": "run"})):
        with pytest.raises(TassoError, match=NAME):
            call("run")
    assert not Path("executed").exists()
    assert tasso.load("run", method=NAME).method.__name__ == "X"
    assert Path("executed").exists()
    assert tasso.load("run").method.__name__ == "X", "it is imported now"


def test_a_method_of_ones_own_is_named_once_more(attack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in Path("run/checkpoints").iterdir():
        _rename_method(file)
    main(["classify", "run", "image.png", "--method", NAME])
    assert "image.png" in capsys.readouterr().out
    assert Path("executed").exists()
    with pytest.raises(SystemExit):
        main(["classify", "run", "image.png", "--method", "finetune"])
    assert "method: 'finetune'" in capsys.readouterr().err


def _rename_method(file: Path) -> None:
    from tasso.training.tensor_files import read_tensors, write_tensors

    tensors, metadata = read_tensors(file) or ({}, {})
    write_tensors(file, tensors, {**metadata, "method": NAME})
