"""What a run folder holds cannot make tasso write elsewhere, and what is printed cannot steer a terminal."""

from __future__ import annotations

import errno
import fcntl
import logging
from pathlib import Path
from typing import Any

import pytest

import tasso
from tasso.cli import main
from tasso.errors import BusyError, RunError, TassoError
from tasso.files import locked, write_text
from tasso.training.run_folder import RunFolder


@pytest.mark.parametrize("name", [".lock", "log.jsonl"])
@pytest.mark.parametrize("exists", [True, False], ids=["file", "nothing"])
def test_links_in_a_run_folder_are_not_written_to(
    name: str, exists: bool, quick: dict[str, Any], tmp_path: Path
) -> None:
    target = tmp_path / "elsewhere"
    if exists:
        target.write_text("precious")
    run = tasso.learn(**{**quick, "sequence": "dtd", "steps": 1})
    (run.folder.path / "results.json").unlink()
    (run.folder.path / name).unlink()
    (run.folder.path / name).symlink_to(target)
    with pytest.raises((TassoError, OSError), match=r"a link"):
        tasso.learn(**{**quick, "sequence": "dtd", "steps": 1})
    assert (target.read_text() if target.exists() else None) == ("precious" if exists else None)


def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("precious")
    monkeypatch.setattr("os.getpid", lambda: 7)
    (tmp_path / ".a.json.7.tmp").symlink_to(target)
    write_text(tmp_path / "a.json", "{}")
    assert (target.read_text(), (tmp_path / "a.json").read_text()) == ("precious", "{}")


@pytest.mark.parametrize(("number", "error"), [(errno.ENOLCK, RunError), (errno.EWOULDBLOCK, BusyError)])
def test_a_file_system_without_locks_is_not_called_busy(
    number: int, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: Any) -> None:
        raise OSError(number, "no")

    def busy() -> None:
        raise BusyError("busy")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(error) as raised, locked(tmp_path, busy):
        pass
    assert type(raised.value) is error
    assert number != errno.ENOLCK or str(tmp_path) in str(raised.value)


def test_escape_sequences_in_names_are_not_printed(
    quick: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "red\x1b[31m\rtitle\x1b]0;x\x07\x9b2J.png"
    with pytest.raises(SystemExit):
        main(["eval", str(tmp_path / name)])
    tasso.learn(**{**quick, "sequence": "dtd", "steps": 1})
    (tmp_path / name).write_bytes(b"no image")
    with pytest.raises(SystemExit):
        main(["classify", str(quick["out"]), str(tmp_path / name)])
    out, err = capsys.readouterr()
    for text in (out, err):
        assert r"red\x1b[31m\rtitle" in text, "it is named"
        assert not {"\x1b", "\r", "\x07", "\x9b"} & set(text)


def test_escape_sequences_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    from tasso.cli import Formatter

    record = logging.LogRecord("tasso", logging.INFO, "", 0, "%s: read", ("a\x1b[2J",), None)
    assert Formatter("%(message)s").format(record) == r"a\x1b[2J: read"


def test_no_cell_of_a_table_is_a_formula() -> None:
    from tasso.report.formats import csv_text

    for text in ("=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3+cmd", "\t=1"):
        assert csv_text(text) == f"'{text}"
    for text in ("-", "-3.5", "+2", "birds", "a=b", ""):
        assert csv_text(text) == text


def test_checkpoints_of_an_extended_run_are_links(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
    one, two = RunFolder(tmp_path / "one"), RunFolder(tmp_path / "two")
    one.checkpoint_file(0, "pets").write_bytes(b"weights")
    one.checkpoint_file(0, "pets").chmod(0o400)
    two.take_checkpoint(0, "pets", one)
    assert two.checkpoint_file(0, "pets").samefile(one.checkpoint_file(0, "pets"))
    assert one.checkpoint_file(0, "pets").stat().st_mode & 0o777 == 0o400
