"""The tensors of a TorchScript archive, such as OpenAI's.

`torch.jit.load` runs what an archive says, which may write any file. Here nothing is run: only the pickle of the
modules is read, by an unpickler that makes tensors, lists and empty modules and nothing else.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

MAX_PICKLE = 8 * 2**20  # bytes; those of OpenAI's models have less than 1 MB
MAX_NAME = 1000  # characters of a tensor's name


class TorchScriptError(Exception):
    """The archive is damaged, or holds more than tensors in modules."""


def is_torchscript(path: Path) -> bool:
    """Is this file a TorchScript archive? Those of `torch.save` are zips, too, but without constants."""
    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("constants.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError):
        return False


def read_torchscript(path: Path) -> dict[str, Tensor]:
    """Parameters and buffers by name, without running anything."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _tensors(_Unpickler(archive, path.stat().st_size).load())
    except TorchScriptError:
        raise
    except Exception as error:  # of zipfile, pickle and torch, of many kinds
        raise TorchScriptError(f"it is damaged: {type(error).__name__}: {error}") from None


class _Module:
    """In the place of a scripted module: its attributes, and no code."""

    attributes: dict[str, Any]

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise TorchScriptError("a module in it makes its weights with code")
        self.attributes = state


def _rebuilt(storage: Tensor, offset: int, size: Sequence[int], stride: Sequence[int], *_: Any) -> Tensor:
    view = storage.as_strided(size, stride, offset)
    if view.numel() > storage.numel():  # a few bytes would stand for many
        raise TorchScriptError("a tensor in it is larger than its storage")
    return view


STORAGES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip
# What the pickle of an archive calls. Types of lists and dicts do not matter here.
CALLED = {
    ("torch._utils", "_rebuild_tensor_v2"): _rebuilt,
    ("collections", "OrderedDict"): dict,
    ("torch.jit._pickle", "restore_type_tag"): lambda value, _: value,
} | {("torch.jit._pickle", f"build_{kind}list"): lambda values: values for kind in ("int", "double", "bool", "tensor")}


class _Unpickler(pickle._Unpickler):  # Python's own: that in C makes room for as many objects as the file says
    """Finds nothing but what is above; everything else is refused."""

    def __init__(self, archive: zipfile.ZipFile, total: int) -> None:
        self.archive, self.left = archive, total
        [place] = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
        self.folder = place.removesuffix(".pkl")
        if archive.getinfo(place).file_size > MAX_PICKLE:
            raise TorchScriptError(f"{place} has more than {MAX_PICKLE // 2**20} MiB")
        self.storages: dict[str, Tensor] = {}
        super().__init__(io.BytesIO(self._read(place)))

    def _read(self, name: str) -> bytearray:
        """A record. Together they have no more bytes than the file: nothing is compressed, and nothing stands twice."""
        info = self.archive.getinfo(name)
        self.left -= info.file_size
        if info.compress_type != zipfile.ZIP_STORED or self.left < 0:
            raise TorchScriptError(f"{name} is compressed, or overlaps with others")
        return bytearray(self.archive.read(info))

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "__torch__":
            return _Module
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        if (module, name) not in CALLED:
            raise TorchScriptError(f"it calls {module}.{name}")
        return CALLED[module, name]

    def load_build(self) -> None:
        """Tensors and functions could be changed in this way, too."""
        if not isinstance(self.stack[-2], _Module):  # type: ignore[attr-defined]
            raise TorchScriptError("it changes more than modules")
        super().load_build()  # type: ignore[misc]

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}

    def persistent_load(self, saved: Any) -> Tensor:
        _, dtype, key, *_ = saved
        if key not in self.storages:
            content = self._read(f"{self.folder}/{key}")
            self.storages[key] = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
        return self.storages[key]


def _tensors(root: Any) -> dict[str, Tensor]:
    """As `state_dict` names them."""
    found: dict[str, Tensor] = {}
    waiting, seen = [("", root)], set[int]()
    while waiting:
        prefix, module = waiting.pop()
        if id(module) in seen or len(prefix) > MAX_NAME:  # it could stand for any number of tensors
            raise TorchScriptError(f"module {prefix[:40]} is in it twice, or too deep")
        seen.add(id(module))
        for name, value in module.attributes.items():
            if isinstance(value, Tensor):
                found[f"{prefix}{name}"] = value
            elif isinstance(value, _Module):
                waiting.append((f"{prefix}{name}.", value))
    return found
