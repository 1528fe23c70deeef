"""Methods of other packages: by reference, through entry points, and what is said when one of them is wrong."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasso.errors import ConfigError
from tasso.methods import METHODS, build_method, find_method, import_method, method_names

PLUGIN = '''
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from tasso.config import option
from tasso.methods import Method
from tasso.methods.losses import cross_entropy


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))


@dataclass
class Shrink(Method):
    """Fine-tuning with a weight on the loss; counts its steps over all tasks."""

    weight: float = option("weight of the cross-entropy", 1.0)

    title: ClassVar[str] = "shrunk fine-tuning"
    summary: ClassVar[str] = "cross-entropy with a weight"
    source: ClassVar[str] = "this test"
    verified: ClassVar[str] = "nothing"

    def attach(self, clip):
        super().attach(clip)
        self.state = Counter()

    def loss(self, batch):
        features = self.gather(self.clip.encode_images(batch.task.pixels))
        return {"ce": self.weight * cross_entropy(features, self.class_embeddings, batch.task.labels, self.scale)}

    def after_step(self, step):
        self.state.steps += 1


NOT_A_METHOD = 3


@dataclass
class Untitled(Method):
    pass


@dataclass
class Unhelpful(Shrink):
    speed: float = 1.0


class Undecorated(Shrink):
    speed: float = option("speed", 1.0)
'''


def install(folder: Path, entry_points: dict[str, str], package: str = "shrink_plugin", source: str = PLUGIN) -> Path:
    """A package with metadata, as pip leaves it in site-packages."""
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text("")
    (folder / package / "methods.py").write_text(source)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entry_points.items())
    (info / "entry_points.txt").write_text(f"[tasso.methods]\n{lines}")
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for packages on the path of this process; what they register is forgotten afterwards."""
    before = dict(METHODS)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield tmp_path / "site"
    METHODS.clear()
    METHODS.update(before)
    for name in [name for name in sys.modules if name.startswith(("shrink_plugin", "other_plugin"))]:
        del sys.modules[name]
    importlib.invalidate_caches()


# -- through the command line, in processes of their own -----------------------------------------------------------


def python(words: list[str], site: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


def tasso(words: list[str], site: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return python(["-m", "tasso", *words], site, folder)


@pytest.mark.slow
def test_a_plugin_is_run_resumed_evaluated_and_reported(quick: dict[str, Any], tmp_path: Path) -> None:
    """By its name, killed in the second task and resumed, and by a reference to its class, left alone."""
    names = {"run": "shrink", "whole": "shrink_plugin.methods:Shrink"}
    site = install(tmp_path / "site", {"shrink": names["whole"]})
    out, whole = (tmp_path / folder for folder in names)
    for folder, name in names.items():
        options = {**quick, "method": {"name": name}, "steps": 6, "save_every": 2, "out": str(tmp_path / folder)}
        (tmp_path / f"{folder}.yaml").write_text(json.dumps(options))
    run = ["run", "--method.weight", "0.5", "--config"]
    ended = tasso([*run, "whole.yaml", "--method", names["whole"]], site, tmp_path)
    assert ended.returncode == 0, ended.stderr
    dying = tmp_path / "dying.py"
    dying.write_text(
        "import os, signal, sys\n"
        "from tasso.training.run_folder import RunFolder\n"
        "write = RunFolder.write_state\n"
        "def then_die(self, state, facts):\n"
        "    write(self, state, facts)\n"
        "    if facts['index'] == 1:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "RunFolder.write_state = then_die\n"
        "from tasso.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    died = python([str(dying), *run, "run.yaml"], site, tmp_path)
    assert died.returncode == -9
    assert (out / "state.safetensors").exists()
    ended = tasso([*run, "run.yaml"], site, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "resuming eurosat at step 2" in ended.stderr + ended.stdout
    for file in ("checkpoints/01-dtd.safetensors", "checkpoints/02-eurosat.safetensors"):
        assert tensors(out / file) == tensors(whole / file), "the same bits"
    assert tensors(out / file)["method/steps"] == [12], "its state lasts over tasks and processes"
    for folder, name in names.items():
        results = json.loads((tmp_path / folder / "results.json").read_text())
        assert (results["method"], results["label"]) == (name, "shrunk fine-tuning (weight 0.5)")
        named = ["--method", name] if ":" in name else []
        again = tasso(["eval", folder, "--device", "cpu", *named], site, tmp_path)
        assert again.returncode == 0, again.stderr
        # Without the package the run says what it needs.
        gone = tasso(["eval", folder, "--device", "cpu"], tmp_path, tmp_path)
        assert gone.returncode == 2
        assert "config.yaml: method: " in gone.stderr
        assert name in gone.stderr
    report = tasso(["report", *names], site, tmp_path)
    assert report.returncode == 0, report.stderr
    assert "shrunk fine-tuning" in report.stdout
    listed = tasso(["methods", "--json"], site, tmp_path)
    assert "shrink" in json.loads(listed.stdout)
    assert names["whole"] not in json.loads(listed.stdout)
    assert "\nshrink  " in tasso(["methods"], site, tmp_path).stdout
    assert "--method.weight" in tasso(["methods", names["whole"]], site, tmp_path).stdout


def tensors(file: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return {key: tensor.flatten().tolist() for key, tensor in load_file(file).items()}


# -- names and mistakes --------------------------------------------------------------------------------------------


def test_entry_points_are_names_like_others(site: Path) -> None:
    install(site, {"shrink": "shrink_plugin.methods:Shrink"})
    assert "shrink" in method_names()
    assert "shrink_plugin" not in str(list(sys.modules)), "listing imports nothing"
    method = build_method({"name": "shrink", "weight": 0.25})
    assert method.hyper_parameters() == {"name": "shrink", "weight": 0.25}
    assert find_method("shrink") is type(method)
    with pytest.raises(ConfigError, match=r"method\.speed: shrink has no such option. Options: weight"):
        build_method({"name": "shrink", "speed": 1})


def test_packages_are_looked_through_once(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr("tasso.methods.registry.entry_points", lambda group: looked.append(group) or ())
    for name in ("tasso", "snd", "tasso"):
        find_method(name)
    assert looked == ["tasso.methods"]


def test_a_reference_is_a_name(site: Path) -> None:
    install(site, {})
    with pytest.raises(ConfigError, match="code that a file names is not imported"):
        build_method({"name": "shrink_plugin.methods:Shrink"})
    import_method("shrink_plugin.methods:Shrink")
    method = build_method({"name": "shrink_plugin.methods:Shrink"})
    assert method.name == "shrink_plugin.methods:Shrink", "so that another process finds it again"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("shrink_plugin.nothing:Shrink", r"no module 'shrink_plugin\.nothing'"),
        ("shrink_plugin.methods:Nothing", r"module shrink_plugin\.methods has no 'Nothing'"),
        ("shrink_plugin.methods:NOT_A_METHOD", r"not a subclass of tasso\.methods\.Method"),
        ("shrink_plugin.methods:Untitled", r"has no 'title'"),
        ("shrink_plugin.methods:Unhelpful", r"declare 'speed' as option\(help, default\)"),
        ("shrink_plugin.methods:Undecorated", r"'speed' is no option yet, .* write @dataclass above it"),
        ("shrink_plugin.methods", r"expected package\.module:Class"),
    ],
)
def test_what_is_wrong_with_an_entry_point_is_said(site: Path, value: str, complaint: str) -> None:
    install(site, {"mine": value})
    with pytest.raises(ConfigError, match=rf"method: entry point mine = {value} of shrink-plugin: {complaint}"):
        find_method("mine")
    if ":" in value:
        with pytest.raises(ConfigError, match=rf"method: {value}: {complaint}"):
            import_method(value)


def test_a_package_that_raises_is_named(site: Path) -> None:
    install(site, {"mine": "shrink_plugin.methods:Shrink"}, source="1 / 0")
    with pytest.raises(ConfigError, match=r"mine = .* an error in .*methods\.py, line 1: ZeroDivisionError: division"):
        find_method("mine")


def test_a_module_of_the_working_directory_is_found(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the program, unlike `python -m`, does not put it on Python's path."""
    here = tmp_path / "here"
    install(here, {})
    (here / "shrink_plugin_needs.py").write_text("import shrink_plugin_absent\n")
    (here / "shrink_plugin_odd.py").write_text("def f(:\n")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    assert import_method("shrink_plugin.methods:Shrink").title == "shrunk fine-tuning"
    for name, complaint in {
        "shrink_plugin_none:Shrink": rf"no module 'shrink_plugin_none', neither in the working directory \({here}\)",
        "shrink_plugin_needs:Shrink": r"an error in .*_needs\.py, line 1: ModuleNotFoundError: No module named "
        "'shrink_plugin_absent'",
        "shrink_plugin_odd:Shrink": r"an error: SyntaxError: .*shrink_plugin_odd\.py, line 1",
        "shrink_plugin.methods:Shrnk": r"has no 'Shrnk' \(.*methods\.py\)\. Did you mean 'Shrink'\?",
        "./shrink_plugin/methods.py:Shrink": r"expected package\.module:Class, as in my_method:MyMethod",
    }.items():
        with pytest.raises(ConfigError, match=complaint):
            import_method(name)


def test_names_that_clash_are_refused(site: Path) -> None:
    install(site, {"tasso": "shrink_plugin.methods:Shrink"})
    with pytest.raises(
        ConfigError, match=r"entry point tasso = .*: the name 'tasso' is taken by tasso\.methods\.tasso:Tasso"
    ):
        find_method("tasso")
    assert METHODS["tasso"].__name__ == "Tasso"


def test_one_name_of_two_packages_is_refused(site: Path) -> None:
    install(site, {"mine": "shrink_plugin.methods:Shrink"})
    install(site, {"mine": "other_plugin.methods:Shrink"}, package="other_plugin")
    complaint = (
        r"several packages have an entry point 'mine' of the group tasso\.methods: mine = .*, mine = .*; uninstall"
    )
    with pytest.raises(ConfigError, match=complaint) as error:
        find_method("mine")
    assert all(package in str(error.value) for package in ("shrink-plugin", "other-plugin"))


def test_a_plugin_cannot_replace_a_method_by_registering_its_name(site: Path) -> None:
    source = PLUGIN.replace("@dataclass\nclass Shrink", "@register('tasso')\n@dataclass\nclass Shrink").replace(
        "import Method\n", "import Method, register\n"
    )
    install(site, {"mine": "shrink_plugin.methods:Shrink"}, source=source)
    before = METHODS["tasso"]
    with pytest.raises(ConfigError, match="the name 'tasso' is taken by"):
        find_method("mine")
    assert METHODS["tasso"] is before


def test_words_that_are_no_reference_are_unknown_names() -> None:
    for name in ("magic", "os.path", None, 3):
        with pytest.raises(ConfigError, match=r"no method .*There are: finetune, frozen"):
            find_method(name)
    for name in ("a b:C", ":Class", "../x:Y"):
        with pytest.raises(ConfigError, match=r"expected package\.module:Class"):
            find_method(name)
