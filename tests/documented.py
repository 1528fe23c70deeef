"""Runs the commands of the documentation on drawn images.

A page's `sh` blocks are run from top to bottom, in a folder with the files that the pages name (`lay_out`). `SMALLER`
replaces options so that a command is fast; `NOT_RUN` lists what cannot be run here, with the reason. Any other command
must succeed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from PIL import Image

import replicas
from conftest import few_images, write_data_set
from fences import code_in
from own_images import write_folder
from tasso.cli import main
from tasso.data import atlas, drawn

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDE = [page for page in PAGES if "guide" in page.relative_to(ROOT).as_posix()]

# Options that are replaced or added, so that a command takes a second: two steps of the tests' tiny model on few
# images. TINY is its folder, WEIGHTS its state dict for a name that open_clip knows. None: remove the option; "": it is
# a flag.
DATA = {"--test-per-class": "1", "--no-check-counts": "", "--limit-tasks": "2", "--device": "cpu"}
MODEL = {"--model": "tiny-quickgelu", "--pretrained": "WEIGHTS"}
FOLDER = {"--model": "local-dir:TINY", "--pretrained": None}
LEARN = {"--steps": "2", "--batch-size": "2", "--reference-batch-size": "2", "--reference-images": "8"}
FEWER = {"--shots": "2", "--sequences": "S1", "--seeds": "1102", "--set": "method.rank=4,6"}
RUN = {**DATA, **MODEL, **LEARN, "--method.rank": "6"}
SMALLER: dict[str, dict[str, str | None]] = {
    "run": RUN,
    "tune": {**DATA, **FOLDER, **LEARN, "--method.rank": "6"},
    "eval": {**DATA, **MODEL},
    "eval RUN": {"--device": "cpu"},
    "extend": {"--device": "cpu"},
    "sweep": {**DATA, **FOLDER, **LEARN, **FEWER},
    "paper": {**DATA, **FOLDER, **LEARN, "--seeds": None, "--tables-only": ""},
    "paper --runs": {"--tables-only": ""},
    "data prepare": {"--no-download": "", "--no-check-archives": "", "--no-check-counts": ""},
    "data check": {"--device": "cpu", **FOLDER, "--limit-tasks": "2", "--tolerance": "100"},
    "data pack": {"--no-check-counts": "", "--limit-tasks": "2", "--reference-images": "8"},
    "bench": {**FOLDER, "--quick": "", "--method": "finetune", "--batch-size": "2", "--device": "cpu"},
    "classify": {"--device": "cpu"},
    "serve": {"--device": "cpu", "--port": "0"},
    "export --model": FOLDER,
    "report --figures": {},
    "report --out": {},
    "merge --sweep": {"--device": "cpu", "--test-per-class": "1", "--no-check-counts": ""},
}
# Arguments of single commands that are replaced. All plans are 112 runs, `alpha` is three of them; figures of all runs
# of a page take long.
INSTEAD = {
    ("merge", "nano"): "tiny-quickgelu:WEIGHTS",
    ("paper", "all"): "alpha",
    ("paper --runs", "all"): "alpha",
    ("report --figures", "runs"): "runs/mini",
    ("report --out", "runs"): "runs/mini",
}
# Other exit codes that are accepted: the replicas have fewer images than the data sets.
EXIT_CODES = {"data check": 1}

# Why a command is not run. With True it is at least planned, with `--dry-run`.
NOT_RUN: dict[str, tuple[str, bool]] = {
    "make": ("sets up the checkout; tests/docs/test_docs.py checks its targets", False),
    "tasso data (prepare|check) .*mtil-11": ("torchvision's data sets; tests/data/test_field.py has replicas", False),
    "pip install": ("needs the package index; continuous integration installs", False),
    "tasso sweep .* --engine (ray|slurm)": ("a cluster; tests/experiments/test_sweep.py starts both engines", True),
    "tasso demo --full": ("hours on a CPU; tests/cli/test_demo.py runs it with fewer steps and tasks", True),
    "tasso bench (step|--check)": ("a larger model; tests/experiments/test_bench.py runs its parts", False),
}


def commands(page: Path) -> list[list[str]]:
    """Arguments of every line of the page's shell blocks."""
    blocks = code_in(page.read_text(encoding="utf-8"), "sh", "bash", "console")
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [args for line in lines if (args := shlex.split(line, comments=True))]


def kind(args: Sequence[str]) -> str:
    """The key of a tasso command in the tables."""
    name = " ".join(args[:2]) if args[0] == "data" else args[0]
    if name == "eval" and len(args) > 1 and not args[1].startswith("--"):
        return "eval RUN"
    variants = [f"{name} {arg}" for arg in args if f"{name} {arg}" in SMALLER]
    return variants[0] if variants else name


def smaller(args: Sequence[str], tiny: Path) -> list[str]:
    """The arguments with the replacements of the tables."""
    row = kind(args)
    options: list[list[str]] = [[]]  # positional arguments, then each option with its values
    for arg in args:
        if arg.startswith("--"):
            options.append([arg])
        else:
            options[-1].append(INSTEAD.get((row, arg), INSTEAD.get((args[0], arg), arg)))
    table = dict(SMALLER.get(row, {}))
    if value_of(args, "--method") not in (None, "tasso"):
        table.pop("--method.rank", None)
    options = [option for option in options if not option or option[0] not in table]
    options += [[name, *filter(None, [value])] for name, value in table.items() if value is not None]
    paths = {"TINY": str(tiny), "WEIGHTS": str(tiny / "open_clip_model.safetensors")}
    return [re.sub("TINY|WEIGHTS", lambda name: paths[name[0]], arg) for option in options for arg in option]


def value_of(args: Sequence[str], option: str) -> str | None:
    return args[args.index(option) + 1] if option in args else None


def why_not(line: str) -> tuple[str, bool] | None:
    """The entry of NOT_RUN for this line."""
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(rf"(^|\s){pattern}(\s|$)", line)), None)


# -- the reader's folder -------------------------------------------------------------------------------------------


def lay_out(folder: Path, archives: Path) -> None:
    """Write the files that the pages name; `archives` becomes the folder DATA before `tasso data prepare`."""
    for name in ("examples", "tools"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "results", folder / "results")  # commands read it and write there
    for name in replicas.REPLICAS:
        replicas.write(archives, name)
    write_data_set(archives, "actions", "actions")
    shutil.copytree(archives, folder / "DATA")
    with quiet():
        main(smaller(["data", "prepare", "all", "--root", str(folder / "DATA")], folder))
    (folder / "MINI").symlink_to("DATA")
    own = {"pets": "pets", "food": "food", "flowers": "flowers", "textures": "textures", "sports": "actions",
           "land": "land", "trash": "vehicles", "objects": "aircraft"}  # fmt: skip
    for name, domain in own.items():
        write_folder(folder / name, domain)
    for pattern in ("photos/{}.png", "images/{}.png", "more/{}.png", "new/000{}.jpg", "CORPUS/{}.png"):
        for index in range(1, 7):
            save(folder / pattern.format(index), index)
    for name in ("photo.jpg", "image.png", "one.png", "two.jpg"):
        save(folder / name, 0)
    (folder / "CAPTIONS").write_text("a dog\na red car\n")
    matrix = {"zero_shot": [50.0, 60.0], "matrix": [[80.0, 61.0], [75.0, 90.0]]}
    (folder / "matrix.json").write_text(json.dumps(matrix))


def save(file: Path, index: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    domain = list(atlas.DOMAINS)[index % len(atlas.DOMAINS)]
    Image.fromarray(atlas.render(domain, index, index, split="test", size=32)).save(file)


# -- running -------------------------------------------------------------------------------------------------------


class Reader:
    """Runs the commands of a page in a folder of its own."""

    def __init__(self, tiny: Path, archives: Path) -> None:
        """`archives`: the folder DATA before anything was unpacked."""
        self.tiny, self.archives = tiny, archives
        self.outs = {out: args for page in PAGES for args in commands(page) if (out := made_by(args))}

    def follow(self, page: Path) -> list[str]:
        """Run all commands of a page, in order; returns those that were executed."""
        return [" ".join(args) for args in commands(page) if self.execute(args, page.name)]

    def execute(self, args: list[str], where: str) -> bool:
        """Run one command; False if it is in NOT_RUN."""
        line = " ".join(args)
        reason = why_not(line)
        if reason:
            if reason[1]:
                self.run([*args[1:], "--dry-run"], f"{where}: {line}")
            return False
        assert args[0] in ("tasso", "python"), f"{where}: {line}: is neither run nor listed in NOT_RUN"
        self.fetch(args, where)
        if args[1:3] == ["data", "prepare"]:  # otherwise there is nothing to do
            shutil.rmtree("DATA")
            shutil.copytree(self.archives, "DATA")
        if args[0] == "python":
            run_script(args[1:])
        elif args[1] == "serve":
            visit(smaller(args[1:], self.tiny))
        else:
            self.run(args[1:], f"{where}: {line}")
        return True

    def run(self, args: list[str], where: str) -> None:
        """Run a tasso command; its exit code must be 0, or the one in EXIT_CODES."""
        given = smaller(args, self.tiny)
        output = io.StringIO()
        code: object = None
        try:
            with quiet(output):
                main(given)
        except SystemExit as stop:
            code = stop.code
        expected = (None, 0, EXIT_CODES.get(kind(args)))
        assert code in expected, f"{where}\nas: tasso {shlex.join(given)}\n{output.getvalue()}"

    def fetch(self, args: list[str], where: str) -> None:
        """Make the runs that the command needs, by a command of any page."""
        made = made_by(args)
        for arg in args[2:]:
            if not re.match(r"runs(/|$)", arg) or Path(arg).exists() or arg == made or Path(arg).suffix == ".html":
                continue
            if args[args.index(arg) - 1] in ("--out", "--figures", "--html"):
                continue
            outs = [out for out in self.outs if f"{arg}/".startswith(f"{out}/") or f"{out}/".startswith(f"{arg}/")]
            assert outs, f"{where}: {' '.join(args)}: no page makes {arg}"
            if not Path(outs[0]).exists():
                self.execute(self.outs[outs[0]], f"{where}, for {arg}")


def made_by(args: Sequence[str]) -> str | None:
    """The run folder that a command makes."""
    trains = args[0] == "tasso" and len(args) > 1 and args[1] in ("run", "extend", "sweep", "paper")
    return value_of(args, "--out") if trains and not {"--dry-run", "--runs"} & set(args) else None


@contextlib.contextmanager
def quiet(into: io.StringIO | None = None) -> Iterator[None]:
    into = into or io.StringIO()
    with contextlib.redirect_stdout(into), contextlib.redirect_stderr(into):
        yield


def run_script(args: list[str]) -> None:
    """A script of the checkout."""
    before = sys.argv
    sys.argv = args
    try:
        with quiet():
            runpy.run_path(args[0], run_name="__main__")
    finally:
        sys.argv = before


class ServerOutput(io.StringIO):
    """Standard output that signals when the address of the server was printed."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        if "http://" in text:
            self.ready.set()
        return count


def visit(args: list[str]) -> None:
    """`tasso serve`: load its page, then press Ctrl-C."""
    output, codes = ServerOutput(), []

    def client() -> None:
        output.ready.wait(60)
        try:
            url = output.getvalue().split()[0]
            for part in ("", "run.json"):
                with urllib.request.urlopen(url + part, timeout=60) as response:
                    codes.append(response.status)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=client)
    thread.start()
    try:
        with quiet(output):
            main(args)
    finally:
        output.ready.set()
        thread.join()
    assert codes == [200, 200]


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The reader's folder, copied for each page, and the archives of the paper's data."""
    folders = tmp_path_factory.mktemp("reader"), tmp_path_factory.mktemp("archives")
    lay_out(*folders)
    return folders


@pytest.fixture
def reader(
    tiny_model: str, tiny_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, laid_out: tuple[Path, Path]
) -> Reader:
    """A reader in a new folder."""
    for split in drawn.PER_CLASS:
        monkeypatch.setitem(drawn.PER_CLASS, split, 2)
    for name, value in few_images().items():  # for workers of sweeps
        monkeypatch.setenv(name, value)
    tiny = Path(tiny_model.removeprefix("local-dir:"))
    folder = tmp_path / "folder"
    shutil.copytree(laid_out[0], folder, symlinks=True)
    shutil.copytree(tiny, folder / "my-clip")
    monkeypatch.chdir(folder)
    return Reader(tiny, laid_out[1])
