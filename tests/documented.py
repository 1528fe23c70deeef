"""The commands of the documentation, carried out by the real program on drawn images.

A page's `sh` blocks are run from top to bottom, in a folder that holds what the pages speak of (`lay_out`). What would
take long is made small by one table (`SMALLER`); what cannot be run here stands in another, with the reason
(`NOT_RUN`). A command that is neither is a failure.
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
from fences import fenced
from own_images import write_folder
from tasso.cli import main
from tasso.data import atlas, drawn

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDE = [page for page in PAGES if "guide" in page.relative_to(ROOT).as_posix()]

# Option by option, what is given instead, or beside, for a command to take a second: two steps of the tests' tiny model
# on few images. TINY is its folder, WEIGHTS its state dict for a name that open_clip knows. None: leave it out.
DATA = {"--test-per-class": "1", "--check-counts": "false", "--limit-tasks": "2", "--device": "cpu"}
MODEL = {"--model": "tiny-quickgelu", "--pretrained": "WEIGHTS"}
FOLDER = {"--model": "local-dir:TINY", "--pretrained": None}
LEARN = {"--steps": "2", "--batch-size": "2", "--reference-batch-size": "2", "--reference-images": "8"}
FEWER = {"--shots": "2", "--sequences": "S1", "--seeds": "1102", "--set": "method.rank=4,6"}
SMALLER: dict[str, dict[str, str | None]] = {
    "run": {**DATA, **MODEL, **LEARN, "--method.rank": "6"},
    "eval": {**DATA, **MODEL},
    "eval --run": {"--device": "cpu"},
    "extend": {"--device": "cpu"},
    "sweep": {**DATA, **FOLDER, **LEARN, **FEWER},
    "paper": {**DATA, **FOLDER, **LEARN, "--seeds": None, "--figures": "false"},
    "paper --runs": {"--figures": "false"},
    "data prepare": {"--download": "false", "--check-archives": "false", "--check-counts": "false"},
    "data check": {"--device": "cpu", **FOLDER, "--limit-tasks": "2", "--tolerance": "100"},
    "data pack": {"--check-counts": "false", "--limit-tasks": "2", "--reference-images": "8"},
    "bench": {**FOLDER, "--quick": "true", "--method": "finetune", "--batch-size": "2", "--device": "cpu"},
    "classify": {"--device": "cpu"},
    "serve": {"--device": "cpu", "--port": "0"},
    "export --model": FOLDER,
    "report --figures": {},
    "report --out": {},
    "merge --sweep": {"--device": "cpu", "--test-per-class": "1", "--check-counts": "false"},
}
# Words of single commands that stand for something smaller. All plans are 104 runs, `alpha` is three of them; figures
# of all runs of a page take long.
INSTEAD = {
    ("merge", "nano"): "tiny-quickgelu:WEIGHTS",
    ("paper", "all"): "alpha",
    ("paper --runs", "all"): "alpha",
    ("report --figures", "runs"): "runs/mini",
    ("report --out", "runs"): "runs/mini",
}
# How a command may end other than well: replicas do not have the numbers of images of what they stand for.
ENDS = {"data check": 1}

# Why a command is not run. With True it is at least planned: `--dry-run` is put behind it.
NOT_RUN: dict[str, tuple[str, bool]] = {
    "make": ("sets up the checkout; tests/docs/test_docs.py looks for its targets", False),
    "pip install": ("needs the package registry; continuous integration installs", False),
    "tasso sweep .* --engine (ray|slurm)": ("a cluster; tests/experiments/test_sweep.py starts both engines", True),
    "tasso demo --full": ("hours on a CPU; tests/cli/test_demo.py runs it with fewer steps and tasks", False),
    "tasso bench (step|--check)": (
        "a larger model; tests/experiments/test_bench.py runs its parts",
        False,
    ),
}
EXIT_WELL = (None, 0)


def commands(page: Path) -> list[list[str]]:
    """Words of every line of the page's shell blocks. A Python block of a walk-through is a command, too."""
    found = []
    walk = page.name.startswith("walkthrough")
    for language, text in fenced(page.read_text(encoding="utf-8"), "sh", "bash", "console", "python"):
        if language == "python":
            found += [["python", "-c", text]] if walk else []
            continue
        lines = text.replace("\\\n", " ").splitlines()
        found += [words for line in lines if (words := shlex.split(line, comments=True))]
    return found


def kind(words: Sequence[str]) -> str:
    """Which row of the tables a command of tasso belongs to."""
    name = " ".join(words[:2]) if words[0] == "data" else words[0]
    variants = [f"{name} {word}" for word in words if f"{name} {word}" in SMALLER]
    return variants[0] if variants else name


def smaller(words: Sequence[str], tiny: Path) -> list[str]:
    """The words with what the tables say."""
    row = kind(words)
    options: list[list[str]] = [[]]  # what stands before the first option, then each option with its values
    for word in words:
        if word.startswith("--"):
            options.append([word])
        else:
            options[-1].append(INSTEAD.get((row, word), INSTEAD.get((words[0], word), word)))
    table = dict(SMALLER.get(row, {}))
    if value_of(words, "--method") not in (None, "tasso"):
        table.pop("--method.rank", None)
    options = [option for option in options if not option or option[0] not in table]
    options += [[name, value] for name, value in table.items() if value is not None]
    places = {"TINY": str(tiny), "WEIGHTS": str(tiny / "open_clip_model.safetensors")}
    put = re.compile("TINY|WEIGHTS")
    return [put.sub(lambda found: places[found[0]], word) for option in options for word in option]


def value_of(words: Sequence[str], option: str) -> str | None:
    return words[words.index(option) + 1] if option in words else None


def why_not(line: str) -> tuple[str, bool] | None:
    """The row of NOT_RUN for this line."""
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(rf"(^|\s){pattern}(\s|$)", line)), None)


# -- the folder that the reader stands in --------------------------------------------------------------------------


def lay_out(folder: Path, archives: Path) -> None:
    """What the pages take for granted; `archives` is going to be the folder DATA as it was in the beginning."""
    for name in ("examples", "tools"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "results" / "paper", folder / "results" / "paper")  # commands write there
    for name in replicas.REPLICAS:
        replicas.write(archives, name)
    write_data_set(archives, "actions", "actions")
    shutil.copytree(archives, folder / "DATA")
    with quiet():
        main(smaller(["data", "prepare", "all", "--root", str(folder / "DATA")], folder))
    (folder / "MINI").symlink_to("DATA")
    own = {"pets": "pets", "food": "food", "flowers": "flowers", "textures": "textures", "sports": "actions",
           "land": "land"}  # fmt: skip
    for name, domain in own.items():
        write_folder(folder / name, domain)
    for place in ("photos/{}.png", "images/{}.png", "more/{}.png", "new/000{}.jpg", "CORPUS/{}.png"):
        for index in range(1, 7):
            save(folder / place.format(index), index)
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
    """Someone who types in what a page says, in a folder of their own."""

    def __init__(self, tiny: Path, archives: Path) -> None:
        """`archives`: the folder DATA before anything was unpacked."""
        self.tiny, self.archives = tiny, archives
        self.outs = {out: words for page in PAGES for words in commands(page) if (out := made_by(words))}

    def follow(self, page: Path) -> list[str]:
        """Run all commands of a page, in order; returns those that were carried out."""
        return [" ".join(words) for words in commands(page) if self.type_in(words, page.name)]

    def type_in(self, words: list[str], where: str) -> bool:
        line = " ".join(words)
        reason = why_not(line)
        if reason:
            if reason[1]:
                self.run([*words[1:], "--dry-run"], f"{where}: {line}")
            return False
        assert words[0] in ("tasso", "python"), f"{where}: {line}: is neither run nor listed in NOT_RUN"
        self.fetch(words, where)
        if words[1:3] == ["data", "prepare"]:  # else there were nothing to do
            shutil.rmtree("DATA")
            shutil.copytree(self.archives, "DATA")
        if words[:2] == ["python", "-c"]:
            with quiet():
                exec(compile(words[2], where, "exec"), {})
        elif words[0] == "python":
            run_script(words[1:])
        elif words[1] == "serve":
            visit(smaller(words[1:], self.tiny))
        else:
            self.run(words[1:], f"{where}: {line}")
        return True

    def run(self, words: list[str], where: str) -> None:
        given = smaller(words, self.tiny)
        output = io.StringIO()
        code: object = None
        try:
            with quiet(output):
                main(given)
        except SystemExit as stop:
            code = stop.code
        expected = (*EXIT_WELL, ENDS.get(kind(words)))
        assert code in expected, f"{where}\nas: tasso {shlex.join(given)}\n{output.getvalue()}"

    def fetch(self, words: list[str], where: str) -> None:
        """A run that the reader made with a command of another page."""
        made = made_by(words)
        for word in words[2:]:
            if not re.match(r"runs(/|$)", word) or Path(word).exists() or word == made or Path(word).suffix == ".html":
                continue
            if words[words.index(word) - 1] in ("--out", "--figures", "--html"):
                continue
            there = [out for out in self.outs if f"{word}/".startswith(f"{out}/") or f"{out}/".startswith(f"{word}/")]
            assert there, f"{where}: {' '.join(words)}: no page makes {word}"
            if not Path(there[0]).exists():
                self.type_in(self.outs[there[0]], f"{where}, for {word}")


def made_by(words: Sequence[str]) -> str | None:
    """The run folder that a command makes."""
    learns = words[0] == "tasso" and len(words) > 1 and words[1] in ("run", "extend", "sweep", "paper")
    return value_of(words, "--out") if learns and not {"--dry-run", "--runs"} & set(words) else None


@contextlib.contextmanager
def quiet(into: io.StringIO | None = None) -> Iterator[None]:
    into = into or io.StringIO()
    with contextlib.redirect_stdout(into), contextlib.redirect_stderr(into):
        yield


def run_script(words: list[str]) -> None:
    """A script of the checkout."""
    before = sys.argv
    sys.argv = words
    try:
        with quiet():
            runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.argv = before


class Heard(io.StringIO):
    """Standard output to which somebody listens."""

    def __init__(self) -> None:
        super().__init__()
        self.said = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        if "http://" in text:
            self.said.set()
        return count


def visit(words: list[str]) -> None:
    """`tasso serve`: open its page and press Ctrl-C."""
    heard, seen = Heard(), []

    def go() -> None:
        heard.said.wait(60)
        try:
            url = heard.getvalue().split()[0]
            for part in ("", "run.json"):
                with urllib.request.urlopen(url + part, timeout=60) as answer:
                    seen.append(answer.status)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    visitor = threading.Thread(target=go)
    visitor.start()
    try:
        with quiet(heard):
            main(words)
    finally:
        heard.said.set()
        visitor.join()
    assert seen == [200, 200]


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The reader's folder, which is copied for each page, and the archives of the paper's data."""
    folders = tmp_path_factory.mktemp("reader"), tmp_path_factory.mktemp("archives")
    lay_out(*folders)
    return folders


@pytest.fixture
def reader(
    tiny_model: str, tiny_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, laid_out: tuple[Path, Path]
) -> Reader:
    """Stands in a fresh folder."""
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
