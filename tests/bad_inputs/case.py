"""One bad input: what is made, which command gets it, what its message must name; and how to run it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tasso.cli import main
from tasso.files import is_temporary

Make = Callable[[Path], object]


@dataclass(frozen=True)
class Bad:
    """An input that cannot work."""

    name: str
    what: str  # in words
    args: tuple[str, ...]  # of the command
    says: str  # a pattern that the message matches; it names the file, key or task
    make: Make = lambda place: None  # damages or adds something in the case's own folder
    needs: tuple[str, ...] = ()  # parts of the world that are copied there first
    leaves: tuple[str, ...] = ()  # folders that may appear: found only while the command was at work in them
    only_users: bool = False  # nothing is forbidden to root
    varies: str = ""  # a pattern for the part of the message that depends on the machine


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    printed: str
    said: str  # on standard error
    changed: list[str] = field(default_factory=list)  # files that are new, gone or not as before

    @property
    def message(self) -> str:
        """Its message, without the usage."""
        lines = [*self.printed.splitlines(), *self.said.splitlines()]
        starts = [n for n, line in enumerate(lines) if re.match(r"tasso\b.*?: |error: ", line)]
        said = lines[starts[-1] :] if starts else lines
        usage = next((n for n, line in enumerate(said) if line.startswith("usage: ")), len(said))
        return "\n".join(said[:usage]).strip()


def prepared(case: Bad, world: Path, place: Path) -> Path:
    """The folder of a case, ready for its command."""
    place.mkdir(parents=True)
    for name in case.needs:
        if name == "model":  # large, and nobody writes there
            (place / name).symlink_to(world / name)
        else:
            shutil.copytree(world / name.split("=")[-1], place / name.split("=")[0], symlinks=True)
    relocate(world, place)
    case.make(place)
    return place


def relocate(world: Path, place: Path) -> None:
    """Let the copied runs name their own place: they record absolute paths."""
    for config in place.glob("*/config.yaml"):
        config.write_text(config.read_text(encoding="utf-8").replace(str(world), str(place)), encoding="utf-8")


def carried_out(args: tuple[str, ...] | list[str], place: Path) -> Outcome:
    """Run a command in a folder, in this process, as a user would."""
    before = contents(place)
    printed, said = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.chdir(place), plain_logging(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
            try:
                main(list(args))
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
                if isinstance(end.code, str):
                    print(end.code, file=said)
    after = contents(place)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return Outcome(code, printed.getvalue(), said.getvalue(), changed)


@contextlib.contextmanager
def plain_logging() -> Iterator[None]:
    """`main` sets logging up for a process that it has for itself."""
    root, own = logging.getLogger(), logging.getLogger("tasso")
    before, level = root.handlers[:], own.level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = before
        own.setLevel(level)


def contents(place: Path) -> dict[str, str]:
    """Every file and folder below, links as links."""
    found = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def portable_message(case: Bad, outcome: Outcome, place: Path) -> str:
    """The message on one line, without what differs from machine to machine."""
    text = " ".join(outcome.message.replace(str(place.resolve()), "HERE").replace(str(place), "HERE").split())
    return re.sub(case.varies, "…", text) if case.varies else text


def faults(case: Bad, outcome: Outcome, place: Path) -> list[str]:
    """What is not as promised."""
    found = []
    if outcome.code != 2:
        found.append(f"exit code {outcome.code}, not 2")
    if "Traceback" in outcome.said:
        found.append("a traceback")
    if not re.search(case.says, outcome.message, re.DOTALL):
        found.append(f"the message does not match {case.says!r}")
    if strange := [name for name in outcome.changed if name.split("/")[0] not in case.leaves]:
        found.append(f"changed: {', '.join(strange)}")
    if left := [path for path in place.rglob("*") if is_temporary(path)]:
        found.append(f"left behind: {', '.join(map(str, left))}")
    return found
