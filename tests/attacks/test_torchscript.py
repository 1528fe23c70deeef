"""A TorchScript archive is a program. `--pretrained` reads its tensors and runs nothing."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch

from tasso.errors import ModelError
from tasso.models.loading import load_clip
from tasso.models.torchscript import TorchScriptError, read_torchscript

WRITTEN = "written-by-the-archive"


class Writes(torch.nn.Module):
    """TorchScript that writes a file when it is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self) -> int:
        return 0

    @torch.jit.export
    def __getstate__(self) -> tuple[torch.Tensor, bool]:
        return self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]) -> None:
        torch.save(state[0], "written-by-the-archive")
        self.weight = state[0]
        self.training = state[1]


class Plain(torch.nn.Module):
    """All that a real model has: views, half precision, buffers, modules in modules, lists."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.BatchNorm1d(3))
        self.turned = torch.nn.Parameter(torch.arange(12.0).view(3, 4).t()[1:].half())
        self.register_buffer("counts", torch.arange(3))
        self.register_buffer("none", torch.empty(0))
        self.sizes = [1, 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def scripted(module: torch.nn.Module, path: Path) -> Path:
    torch.jit.save(torch.jit.script(module), path)
    return path


def test_an_archive_with_code_is_refused_and_its_code_not_run(tmp_path: Path, tiny_name: str) -> None:
    path = scripted(Writes(), tmp_path / "evil.pt")
    Path(WRITTEN).unlink(missing_ok=True)
    torch.jit.load(path)
    assert Path(WRITTEN).exists(), "the attack works where an archive is run"
    Path(WRITTEN).unlink()
    with pytest.raises(ModelError, match=r"evil\.pt is a TorchScript archive.*state_dict"):
        load_clip(tiny_name, str(path))
    assert not Path(WRITTEN).exists()


def test_torch_is_never_asked_to_run_one(tmp_path: Path, tiny_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_clip.create_model(tiny_name)
    path = scripted(Plain(), tmp_path / "other.pt")
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("it was run"))
    with pytest.raises(ModelError, match="does not fit"):
        load_clip(tiny_name, str(path))
    assert model.visual is not None


def test_tensors_are_those_that_torch_would_read(tmp_path: Path) -> None:
    module = Plain()
    found = read_torchscript(scripted(module, tmp_path / "plain.pt"))
    expected = module.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


class Calls:
    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


def rewritten(path: Path, change: Callable[[str, bytes], bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    """The archive with other records."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in records.items():
            archive.writestr(name, change(name, content))
    return path


def with_pickle(content: bytes) -> Callable[[str, bytes], bytes]:
    return lambda name, old: content if name.endswith("data.pkl") else old


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (with_pickle(pickle.dumps(Calls(Path.touch, Path(WRITTEN)), 2)), "it calls"),
        (with_pickle(pickle.dumps(Calls(eval, "1"), 2)), "it calls .*eval"),
        (with_pickle(b"\x80\x02c__torch__\nX\n."), "damaged"),
        (with_pickle(b"\x80\x02ccollections\nOrderedDict\n}b."), "changes more than modules"),
        (with_pickle(b"\x80\x02K\x01r\xff\xff\xff\x7f."), "damaged"),  # a memo with two billion places
        (with_pickle(b"\x80\x02" + b"}" * (9 * 2**20) + b"."), "more than 8 MiB"),
        (lambda name, old: b"" if name.endswith("data/0") else old, "damaged"),
    ],
    ids=["file", "eval", "class", "build", "memo", "large", "short"],
)
def test_pickles_that_do_more_are_refused(
    tmp_path: Path, change: Callable[[str, bytes], bytes], complaint: str
) -> None:
    path = rewritten(scripted(Plain(), tmp_path / "changed.pt"), change)
    with pytest.raises(TorchScriptError, match=complaint):
        read_torchscript(path)
    assert not Path(WRITTEN).exists()


def test_few_bytes_do_not_stand_for_many(tmp_path: Path) -> None:
    path = rewritten(scripted(Plain(), tmp_path / "packed.pt"), lambda _, old: old, zipfile.ZIP_DEFLATED)
    with pytest.raises(TorchScriptError, match="compressed"):
        read_torchscript(path)
    module = Plain()
    module.counts = torch.zeros(1).expand(10)
    with pytest.raises(TorchScriptError, match="larger than its storage"):
        read_torchscript(scripted(module, tmp_path / "expanded.pt"))
