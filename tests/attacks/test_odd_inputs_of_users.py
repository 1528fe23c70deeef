"""Inputs that end in a message, and neither in a traceback nor in hours of work: long numbers, patterns that name too
much, deep folders, names that are no UTF-8, closed streams, users without a home."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tasso.cli.exit_codes import MOST, exit_on_error
from tasso.data.images.files import find_images
from tasso.data.images.unreadable import CheckedImages
from tasso.data.readers.folder import read_folder
from tasso.data.readers.names import natural_order
from tasso.data.readers.split import split_class
from tasso.data.readers.table import read_table
from tasso.data.readers.webdataset import read_shards
from tasso.errors import DataError, RunError
from tasso.files import user_path
from tasso.progress import progress
from tasso.report import read_runs
from tasso.training.checkpoints import _find_task
from tasso.training.run_folder import RunFolder, saving

DIGITS = "1" * 5000


def test_numbers_of_thousands_of_digits(tmp_path: Path) -> None:
    assert natural_order([f"a{DIGITS}1", f"a{DIGITS}", "a10", "a9"]) == ["a9", "a10", f"a{DIGITS}", f"a{DIGITS}1"]
    with pytest.raises(Exception, match=r"after: .* no task '111") as error:
        _find_task(DIGITS, ["pets", "food"], RunFolder(tmp_path))
    assert len(str(error.value)) < 1000
    assert _find_task("2", ["pets", "food"], RunFolder(tmp_path)) == 1


@pytest.mark.parametrize("pattern", ["d-{0..1}{x}.tar", "{0..99999999999}.tar", "{0..999}{0..999}.tar"])
def test_patterns_of_shards(pattern: str) -> None:
    with pytest.raises(DataError, match="shard"):
        read_shards(pattern)


def test_a_message_about_many_columns_is_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.csv"
    file.write_text(",".join(f"c{index}" for index in range(100_000)))
    with pytest.raises(DataError, match="no column 'path'") as error:
        read_table(file)
    assert len(str(error.value)) < 1000
    with pytest.raises(SystemExit), exit_on_error():
        raise DataError("x" * 10 * MOST)
    assert len(capsys.readouterr().err) < 2 * MOST


def test_folders_1500_deep(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("a", dir_fd=here)
        here, above = os.open("a", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    try:
        for read in (read_folder, lambda path: find_images([path]), lambda path: read_runs([path])):
            with pytest.raises(DataError, match="nested too deeply"):
                read(tmp_path)
    finally:
        subprocess.run(["rm", "-r", str(tmp_path / "a")], check=True)  # pytest could not


def test_names_that_are_no_utf_8() -> None:
    assert len(split_class(["a", "b\udcfe", "c"], "x\udcff", 0.4, 1)[1]) == 1


def test_names_in_brackets_are_no_markup(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tasso")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress("x[/]", 2) as advance:
        advance(1, "[/red] y")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed: str, tmp_path: Path) -> None:
    code = "from tasso.cli import main; main(['methods'])"
    assert subprocess.run(["sh", "-c", f'exec {sys.executable} -c "{code}" {closed}'], check=False).returncode == 0


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    checked = CheckedImages()
    checked.add("digest")
    assert user_path("~/x") == Path("~/x")
    assert user_path("~nobody-here/x") == Path("~nobody-here/x")


def test_a_run_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "run" / "state.safetensors"
    file.parent.mkdir()
    shutil.rmtree(file.parent)
    with pytest.raises(RunError, match="folder was removed") as error, saving(file):
        file.write_bytes(b"")
    assert "still there" not in str(error.value)


def test_a_full_disk_is_no_fault_of_tasso(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, exit_on_error():
        raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert ended.value.code == 2
    assert "disk is full" in capsys.readouterr().err
