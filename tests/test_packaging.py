"""What is installed: the wheel, its base dependencies, tools/install.sh, and the version that others cite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from short_demo import short_demo
from tasso.version import __version__

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tasso"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


# -- the wheel -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.slow
def test_wheel_has_every_file_of_the_package_and_no_others(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist() if ".dist-info/" not in info.filename}
    files = {path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert set(sizes) == {path.relative_to(SOURCE.parent).as_posix() for path in files}
    for name in ("py.typed", "models/nano/bpe_nano.txt.gz", "report/page.css", "report/templates/page.html"):
        assert f"tasso/{name}" in sizes
    assert sizes["tasso/models/nano/open_clip_model.safetensors"] <= 16_000_000
    assert not [name for name in sizes if name.endswith((".webp", ".jpg", ".jpeg", ".png", ".npz"))]


def with_dependencies(names: list[str]) -> set[str]:
    """The distributions that pip would install for the requirements: those they need, and so on."""
    found, todo = set[tuple[str, str]](), [Requirement(name) for name in names]
    while todo:
        wanted = todo.pop()
        for extra in {"", *wanted.extras}:
            if (key := (canonicalize_name(wanted.name), extra)) in found:
                continue
            found.add(key)
            needs = map(Requirement, distribution(wanted.name).requires or [])
            todo += [need for need in needs if not need.marker or need.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment outside the checkout with the wheel and its base dependencies, and nothing else.

    The dependencies are links to those of this environment, since fetching torch takes minutes: this shows that the
    base is enough and that the wheel is complete, not that an index has the versions.
    """
    root = tmp_path_factory.mktemp("clean")
    venv.create(root, symlinks=True)
    python = root / "bin" / "python"
    (site,) = root.glob("lib/python*/site-packages")
    for name in with_dependencies(PROJECT["dependencies"]):
        files = distribution(name)
        for top in {file.parts[0] for file in files.files or []} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(files.locate_file(top))))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    return python


@pytest.mark.slow
def test_wheel_runs_its_demo_in_a_clean_environment(installed: Path, tmp_path: Path) -> None:
    """With nothing on the path but the environment's own packages and the patch that makes the demo short."""
    out = tmp_path / "demo"
    printed = short_demo(out, python=installed, PYTHONPATH=str(ROOT / "tests" / "dying"))
    assert "After 2 tasks" in printed
    assert (out / "report.html").stat().st_size > 50_000

    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    code = "import tasso, sys; print(tasso.__file__); print(*sys.path, sep='\\n')"
    where = subprocess.run([installed, "-c", code], check=True, capture_output=True, text=True, env=environment).stdout
    assert where.startswith(str(installed.parents[1]))
    assert str(ROOT) not in where
    program = [installed.with_name("tasso"), "metrics", str(out / "tasso")]
    shown = subprocess.run(program, check=True, capture_output=True, text=True, env=environment).stdout
    assert "zero_shot_degradation" in shown


# -- tools/install.sh ------------------------------------------------------------------------------------------

CPU = "https://download.pytorch.org/whl/cpu"
FAKE = """#!/bin/sh
echo "$@" >> calls
case "$*" in *index-url*) exit {unreachable};; esac
"""


@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("unreachable", [0, 1])
@pytest.mark.parametrize("extra", ["", "dev"])
def test_install_script(tmp_path: Path, installer: str, gpu: bool, unreachable: int, extra: str) -> None:
    """What it asks of pip or uv, both replaced: the CPU build first where there is no GPU, and then everything else."""
    programs = [".venv/bin/python", *(["bin/uv"] if installer == "uv" else []), *(["bin/nvidia-smi"] if gpu else [])]
    for name in programs:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(FAKE.format(unreachable=unreachable))
        (tmp_path / name).chmod(0o755)
    command = [str(ROOT / "tools" / "install.sh"), *([extra] if extra else [])]
    subprocess.run(command, cwd=tmp_path, check=True, env={"PATH": str(tmp_path / "bin"), "PYTHON": sys.executable})
    calls = (tmp_path / "calls").read_text().splitlines()
    assert all("pip install" in call and "--constraint constraints.txt" in call for call in calls)
    assert ["--python .venv" in call for call in calls] == [installer == "uv"] * len(calls)
    assert calls[-1].endswith("--editable .[dev]" if extra else "--editable .")
    assert [f"--index-url {CPU} torch torchvision" in call for call in calls] == ([False] if gpu else [True, False])


# -- CITATION.cff ----------------------------------------------------------------------------------------------


def test_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["license"]
    assert citation["title"] == PROJECT["name"]
    assert citation["abstract"] == PROJECT["description"]
    paper = citation["preferred-citation"]
    published = json.loads((SOURCE / "report" / "paper" / "published.json").read_text(encoding="utf-8"))["paper"]
    assert published == f"{paper['title']} ({', '.join(author['family-names'] for author in paper['authors'])})"
