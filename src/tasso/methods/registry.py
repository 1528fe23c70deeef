"""Methods by name: those of this package, `package.module:Class`, and entry points of the group `tasso.methods`.

A file may name any module, so what a file names is never imported: only the user's own words are (`import_method`).
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
import traceback
import typing
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from tasso.config import METHOD_GROUP, Protocol, coerce
from tasso.errors import ConfigError, did_you_mean, no_such
from tasso.methods.base import Method

REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")  # package.module:Class

METHODS: dict[str, type[Method]] = {}  # those imported so far
M = TypeVar("M", bound=type[Method])


def register(name: str) -> Callable[[M], M]:
    """Give a method a name under which this process finds it."""

    def enter(cls: M) -> M:
        cls.name = name
        METHODS[name] = cls
        return cls

    return enter


def method_names() -> list[str]:
    """Names of all methods, including those of installed packages that have not been imported."""
    return list(dict.fromkeys([*METHODS, *(entry.name for entry in _installed(tuple(sys.path)))]))


def find_method(name: Any) -> type[Method]:
    """The class of a method: of this package, of an installed one (imported if need be), or of a module that has been
    imported. Errors name the entry point and what is wrong with it."""
    found = [entry for entry in _installed(tuple(sys.path)) if entry.name == name]
    if len({entry.value for entry in found}) > 1:
        raise ConfigError(
            f"method: several packages have an entry point {name!r} of the group {METHOD_GROUP}: "
            f"{', '.join(map(_described, found))}; uninstall one of them or use package.module:Class"
        )
    if found:
        return _imported(name, found[0].value, f"entry point {_described(found[0])}")
    if name in METHODS:
        return METHODS[name]
    if isinstance(name, str) and ":" in name:
        if _module_of(name, name) in sys.modules:
            return _imported(name, name, name)
        raise ConfigError(
            f"method: {name} is no method of tasso or of an installed package, and code that a file names is not "
            f"imported. If you trust it, name it, too: --method {name}, in Python method={name!r}"
        )
    raise ConfigError(f"method: {no_such('method', name, method_names())}")


def import_method(name: Any) -> type[Method]:
    """As `find_method`, for a name that the user gives: `package.module:Class` is imported, as `python -m` would, in
    the working directory, too. What is installed comes first, so nothing is shadowed."""
    if isinstance(name, str) and ":" in name and name not in METHODS:
        _module_of(name, name)
        if not {"", (here := str(Path.cwd()))} & set(sys.path):
            sys.path.append(here)  # it stays there: the module may import others later
        importlib.invalidate_caches()  # the file may be new
        return _imported(name, name, name)
    return find_method(name)


def build_method(options: Mapping[str, Any], protocol: Protocol = "code") -> Method:
    """The method that `options` describe: its name and hyper-parameters; None is filled in from the protocol."""
    options = dict(options)
    name = options.pop("name", None)
    cls = find_method(name)
    fields = [f.name for f in dataclasses.fields(cls)]
    if unknown := sorted(set(options) - set(fields)):
        close = did_you_mean(unknown[0], fields)
        listed = ", ".join(fields) or "none"
        raise ConfigError(f"method.{unknown[0]}: {name} has no such option.{close} Options: {listed}")
    hints = typing.get_type_hints(cls)
    options = {key: coerce(value, hints[key]) for key, value in options.items()}
    filled = {key: value for key, value in cls.protocols[protocol].items() if options.get(key) is None}
    try:
        return cls(**{**options, **filled})
    except ConfigError as error:
        raise ConfigError(f"method.{error}") from None


@cache
def _installed(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Entry points of the packages on Python's path; looking through these takes milliseconds."""
    return tuple(entry_points(group=METHOD_GROUP))


def _described(entry: EntryPoint) -> str:
    package = f" of {entry.dist.name}" if entry.dist else ""
    return f"{entry.name} = {entry.value}{package}"


def _imported(name: str, reference: str, where: str) -> type[Method]:
    """Import `package.module:Class` and register it as `name`; `where` is for messages."""
    module, attribute = _module_of(reference, where), reference.partition(":")[2]
    before = dict(METHODS)
    try:
        cls = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # whatever a package raises while it is imported
        raise ConfigError(f"method: {where}: {_why_not(module, error, name == reference)}") from None
    if cls is None:
        found = sys.modules[module]
        classes = [key for key, value in vars(found).items() if isinstance(value, type)]
        raise ConfigError(
            f"method: {where}: module {module} has no {attribute!r} ({getattr(found, '__file__', 'built in')})."
            f"{did_you_mean(attribute, classes)}"
        )
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise ConfigError(f"method: {where}: not a subclass of tasso.methods.Method")
    if taken := [key for key, other in before.items() if (cls if key == name else METHODS[key]) is not other]:
        METHODS.update(before)
        other = before[taken[0]]
        raise ConfigError(f"method: {where}: the name {taken[0]!r} is taken by {other.__module__}:{other.__qualname__}")
    if options := [key for key, value in vars(cls).items() if isinstance(value, dataclasses.Field)]:
        raise ConfigError(
            f"method: {where}: {options[0]!r} is no option yet, because the class is not a dataclass: write @dataclass "
            "above it (from dataclasses import dataclass)"
        )
    if missing := [key for key in ("title", "summary", "source", "verified") if not hasattr(cls, key)]:
        raise ConfigError(f"method: {where}: has no {missing[0]!r}")
    for field in dataclasses.fields(cls):
        if "help" not in field.metadata or field.default is dataclasses.MISSING:
            raise ConfigError(f"method: {where}: declare {field.name!r} as option(help, default) of tasso.config")
    return register(name)(cls)


def _module_of(reference: str, where: str) -> str:
    """The module of `package.module:Class`."""
    if not REFERENCE.fullmatch(reference):
        raise ConfigError(f"method: {where}: expected package.module:Class, as in my_method:MyMethod (my_method.py)")
    return reference.partition(":")[0]


def _why_not(module: str, error: Exception, here: bool) -> str:
    """Is there no such module, or is something wrong in it? And where. `here`: the working directory counts, too."""
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        if not here:
            return f"no module {error.name!r} where Python looks for packages; install its package again"
        return (
            f"no module {error.name!r}, neither in the working directory ({Path.cwd()}) nor where Python looks for "
            "packages; start the command in its folder, or name that folder in PYTHONPATH"
        )
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    place = f" in {frames[-1].filename}, line {frames[-1].lineno}" if len(frames) > 1 else ""
    return f"cannot be imported, there is an error{place}: {type(error).__name__}: {error}"
