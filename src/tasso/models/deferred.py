"""Packages that are imported when something of them is first used, not when another package imports them.

open_clip imports timm and transformers for a few of its models, and torchvision imports torch's compiler for one of its
functions. Together they take longer than torch, and classifying an image needs none of them. PyTorch's optimisers
import its compiler, too, although nothing is compiled.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

Kind = TypeVar("Kind", bound=Optimizer)


@contextlib.contextmanager
def deferred(*packages: str) -> Iterator[None]:
    """Imports of these packages within the block get placeholders, unless they are imported already or not installed.

    A placeholder's attributes can be called, asked for attributes, and given to `isinstance`: this imports the package.
    Imports after the block are not affected.
    """
    finder = _Finder([name for name in packages if name not in sys.modules and find_spec(name)])
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.end()


class _Finder(MetaPathFinder, Loader):
    """Finds placeholders for some packages and all modules in them."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        inside = any(f"{fullname}.".startswith(f"{name}.") for name in self.packages)
        return ModuleSpec(fullname, self, is_package=True) if inside else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Placeholder(spec.name, self)

    def exec_module(self, module: ModuleType) -> None:
        """A placeholder has nothing to execute."""

    def end(self) -> None:
        """From now on imports find the packages themselves."""
        with contextlib.suppress(ValueError):  # ended before
            sys.meta_path.remove(self)
        for name, module in list(sys.modules.items()):
            if isinstance(module, _Placeholder):
                del sys.modules[name]
                parent, _, child = name.rpartition(".")
                if parent in sys.modules:
                    delattr(sys.modules[parent], child)


class _Placeholder(ModuleType):
    """Stands for a module."""

    def __init__(self, name: str, finder: _Finder) -> None:
        super().__init__(name)
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Attribute(self, name)


class _Attribute:
    """Stands for an attribute of a module."""

    def __init__(self, module: _Placeholder, name: str) -> None:
        self._module, self._name = module, name

    def _found(self) -> Any:
        self._module._finder.end()
        return getattr(importlib.import_module(self._module.__name__), self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._found()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found(), name)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self._found())


def without_compiler(optimizer: type[Kind]) -> type[Kind]:
    """The same optimiser, with the same bits, that does not import PyTorch's compiler.

    PyTorch wraps some methods so that its compiler leaves them alone, and imports it for that. These are the methods
    without such wrappers, for optimisers that nobody compiles and that are not `differentiable`.
    """
    methods = ("add_param_group", "zero_grad", "step")
    return type(optimizer.__name__, (optimizer,), {name: _unwrapped(getattr(optimizer, name)) for name in methods})


def _unwrapped(method: Any) -> Any:
    """A method without PyTorch's wrappers; one that is wrapped in a way that is not known here stays as it is."""
    if not (inspect.isfunction(method) and hasattr(method, "__wrapped__")):
        return method
    where = (method.__globals__["__name__"], method.__code__.co_name)
    if where in (("torch._compile", "inner"), ("torch.optim.optimizer", "wrapper")):  # the latter is put on anew
        return _unwrapped(method.__wrapped__)
    if where == ("torch.optim.optimizer", "_use_grad"):
        return torch.no_grad()(method.__wrapped__)
    return method
