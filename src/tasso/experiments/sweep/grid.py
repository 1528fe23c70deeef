"""Methods × sequences × seeds × other options, from a command line or a YAML file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tasso.config import DEFAULT_METHOD, METHOD, RunConfig, default_method, from_dict, options_of
from tasso.errors import ConfigError, did_you_mean, unknown_key
from tasso.experiments.sweep.jobs import AXES, Job, distinct
from tasso.files import parse_yaml, read_yaml

Options = Mapping[str, Any]
FACTOR = re.compile(r"x(\d+(?:\.\d*)?)")  # a rate as a multiple of the method's own: x3


@dataclass(frozen=True)
class Grid:
    """A sweep. Keys are options of a run; `method.NAME` is a hyper-parameter, for the methods that have it.

    `common` holds for all runs, `overrides` (several values each) multiply them, `by_method` are for single methods.
    An option in several of them: overrides win over by_method, by_method over common.
    """

    methods: tuple[str, ...] = (DEFAULT_METHOD,)
    sequences: tuple[str, ...] = ("S1",)
    seeds: tuple[int, ...] = (1102,)
    common: Options = field(default_factory=dict)
    overrides: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    by_method: Mapping[str, Options] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from tasso.methods import find_method

        for axis in AXES.values():
            if not getattr(self, axis):
                raise ConfigError(f"{axis}: name at least one")
        for name in (*self.methods, *self.by_method):
            try:
                find_method(name)
            except ConfigError as error:
                reason = str(error).removeprefix("method: ").replace("--method ", "--methods ")
                raise ConfigError(f"methods: {reason}") from None
        for name in self.by_method:
            if name not in self.methods:
                raise ConfigError(f"for: {name} is not among the methods of this sweep ({', '.join(self.methods)})")
        known = [f"{METHOD}{option}" for name in self.methods for option in options_of(find_method(name))]
        for key in (*self.common, *self.overrides):
            if key.startswith(METHOD) and key not in known:
                close = did_you_mean(key, known)
                raise ConfigError(f"{key}: none of {', '.join(self.methods)} has such an option.{close}")
        for key in itertools.chain(self.common, self.overrides, *self.by_method.values()):
            if key in AXES:
                raise ConfigError(f"{key}: in a sweep these are {AXES[key]}")

    def with_rates(self, rates: Mapping[str, Options]) -> Grid:
        """The sweep with these options by method, where it does not say otherwise."""
        given = {name: {**rates.get(name, {}), **self.by_method.get(name, {})} for name in self.methods}
        return replace(self, by_method=given)

    def jobs(self) -> list[Job]:
        """All runs, each once; those that differ in nothing (SnD has no rank) are one."""
        found = []
        values = [[(key, value) for value in values] for key, values in self.overrides.items()]
        for method, sequence, seed, *changes in itertools.product(self.methods, self.sequences, self.seeds, *values):
            sources = self.common, self.by_method.get(method, {})
            options = combined(method, *sources, dict(changes))
            if factor := FACTOR.fullmatch(str(options.get("lr"))):
                others = {key: value for key, value in changes if key != "lr"}
                options["lr"] = _times_rate(float(factor[1]), combined(method, *sources, others))
            found.append(Job({**options, "sequence": sequence, "seed": seed}))
        return distinct(found)


def combined(method: str, *sources: Options) -> dict[str, Any]:
    """Options of one run of this method; later sources win, and hyper-parameters of other methods are left out."""
    from tasso.methods import find_method

    given = {key: value for source in sources for key, value in source.items()}
    own = options_of(find_method(method))
    run = {key: value for key, value in given.items() if not key.startswith(METHOD)}
    hyper = {name: given[f"{METHOD}{name}"] for name in own if f"{METHOD}{name}" in given}
    return {**run, "method": {"name": method, **hyper}}


def _times_rate(factor: float, options: Options) -> float:
    """A multiple of the rate that a run with these options has, with two digits."""
    from tasso.methods.defaults import with_defaults

    config, _ = with_defaults(from_dict(options, "run"))
    return float(f"{factor * float(config.lr):.1e}")


# -- from arguments and files ------------------------------------------------------------------------------------


def parse_values(args: Iterable[str], where: str) -> dict[str, tuple[Any, ...]]:
    """`key=a,b,c` as the key's values; each is parsed as YAML, so lists stand in brackets."""
    found: dict[str, tuple[Any, ...]] = {}
    for arg in args:
        key, sign, text = arg.partition("=")
        if not sign or not key or not text:
            raise ConfigError(f"{where}: expected KEY=VALUE, not {arg!r}")
        try:
            values = parse_yaml(f"[{text}]")
        except ValueError:
            raise ConfigError(f"{where}: {arg!r}: the value cannot be parsed") from None
        found[_key(key)] = tuple(values)
    return found


def parse_for(groups: Iterable[Sequence[str]]) -> dict[str, dict[str, Any]]:
    """`[method, key=value, …]` as options by method."""
    found: dict[str, dict[str, Any]] = {}
    for method, *args in groups:
        values = parse_values(args, f"for {method}")
        if not values:
            raise ConfigError(f"for {method}: expected KEY=VALUE after it")
        for key, several in values.items():
            if len(several) != 1:
                raise ConfigError(f"for {method}: {key} has several values; --set takes these")
            found.setdefault(method, {})[key] = several[0]
    return found


def read_grid(path: Path) -> dict[str, Any]:
    """A YAML file of a sweep as arguments of `Grid`: methods, sequences, seeds, set, for, and options of a run."""
    values = read_yaml(path)
    found: dict[str, Any] = {}
    for axis in AXES.values():
        if axis in values:
            kind, kinds = (int, "whole numbers") if axis == "seeds" else (str, "names")
            several = _several(values.pop(axis))
            if not several or not all(isinstance(v, kind) and not isinstance(v, bool) for v in several):
                raise ConfigError(f"{path}: {axis}: expected {kinds}, not {several!r}")
            found[axis] = tuple(several)
    found["overrides"] = {_key(k): tuple(_several(v)) for k, v in _mapping(values.pop("set", {}), path, "set").items()}
    by_method = _mapping(values.pop("for", {}), path, "for")
    found["by_method"] = {
        name: {_key(k): v for k, v in _mapping(some, path, f"for: {name}").items()} for name, some in by_method.items()
    }
    found["common"] = {_key(str(key)): value for key, value in values.items()}
    options = options_of(RunConfig, command="sweep")
    for key in found["common"]:
        if key in AXES:
            raise ConfigError(f"{path}: {key}: in a sweep these are {AXES[key]}")
        if key not in options and not key.startswith(METHOD):
            raise ConfigError(f"{path}: {unknown_key(key, [*AXES.values(), 'set', 'for', *options])}")
    return found


def make_grid(file: Mapping[str, Any], given: Mapping[str, Any]) -> Grid:
    """A grid from a file's arguments and those of the command line, which win."""
    common, overrides = ({**file.get(key, {}), **given.get(key, {})} for key in ("common", "overrides"))
    first, last = file.get("by_method", {}), given.get("by_method", {})
    by_method = {name: {**first.get(name, {}), **last.get(name, {})} for name in sorted({*first, *last})}
    axes = {"methods": (default_method(common),), **file, **{k: v for k, v in given.items() if v is not None}}
    named = {axis: tuple(axes[axis]) for axis in AXES.values() if axis in axes}
    return Grid(**named, common=common, overrides=overrides, by_method=by_method)


def _key(text: str) -> str:
    """Options are written with dashes or underscores."""
    return text.strip().replace("-", "_")


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _mapping(value: Any, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: {where}: expected 'key: value' lines, not {value!r}")
    return {str(key): item for key, item in value.items()}
