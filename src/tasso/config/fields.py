"""Options are dataclass fields. A field declares everything about its option; command line, checks, names of runs and
the options page of the docs are derived from it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union

from tasso.errors import ConfigError

Scope = Literal["data", "model", "method", "optimisation", "machine", "output"]
SCOPES: tuple[Scope, ...] = typing.get_args(Scope)
AUTO = "auto"  # the value of an option that the run decides itself
WHOLE_NUMBERS = 2**31  # every whole number is below this, unless its option says otherwise


@dataclass(frozen=True)
class Option:
    """What a field declares beside its type and its default.

    Attributes:
        help: what it does, in a line. Of what is true or false, what it does where it is true.
        unset: what holds where it is None.
        metavar: its value in `--help`, where its type says too little.
        scope: group in `--help` and in the docs.
        ge, gt, le, lt: range of a number: at least, above, at most, below.
        allow_inf: may a number be infinite?
        identity: part of the run's identity: resuming with another value is an error. `given`: only whether it is
            given counts, not the path.
        content: the option names a file or folder; the run is identified by its content, not by its path. `file`: it
            never names a folder; `model`: a name, or a scheme such as `local-dir:` before a path.
        commands: those that take this option.
    """

    help: str
    unset: str = ""
    metavar: str = ""
    scope: Scope = "method"
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    allow_inf: bool = False
    identity: bool | Literal["given"] = True
    content: bool | Literal["file", "model"] = False
    commands: frozenset[str] = frozenset()

    def broken_rule(self, value: float, whole: bool) -> str | None:
        """The rule that a number breaks, or None."""
        lt = WHOLE_NUMBERS if whole and self.le is None and self.lt is None else self.lt
        rules = [
            (self.ge is None or value >= self.ge, f"must be at least {self.ge}" if self.ge else "must not be negative"),
            (self.gt is None or value > self.gt, f"must be above {self.gt}" if self.gt else "must be positive"),
            (self.le is None or value <= self.le, f"must be at most {self.le}"),
            (lt is None or value < lt, f"must be below {_number(lt)}"),
        ]
        broken = next((rule for holds, rule in rules if not holds), None)
        # The upper bound of a whole number is large: report only the violated bound.
        return f"must lie in {self.interval}" if broken and self.interval and not whole else broken

    @property
    def interval(self) -> str:
        """`[0, 1)` where both ends are declared, else nothing."""
        lower = f"[{self.ge}" if self.ge is not None else f"({self.gt}" if self.gt is not None else ""
        upper = f"{self.le}]" if self.le is not None else f"{_number(self.lt)})" if self.lt is not None else ""
        return f"{lower}, {upper}" if lower and upper else ""

    @property
    def range(self) -> str:
        """The declared range, for people."""
        bounds = {"≥": self.ge, ">": self.gt, "≤": self.le, "<": self.lt}
        return self.interval or ", ".join(f"{sign} {bound}" for sign, bound in bounds.items() if bound is not None)


def option(help: str, default: Any = dataclasses.MISSING, *, commands: str = "", **declared: Any) -> Any:
    """A dataclass field that is an option; see `Option` for what can be declared.

    Args:
        commands: names with blanks between them.
    """
    metadata = vars(Option(help, commands=frozenset(commands.split()), **declared))
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def options_of(owner: type, command: str | None = None, **declared: Any) -> dict[str, Option]:
    """Options of a dataclass by name: those that a command takes, those that declare these values, or all.

    >>> options_of(RunConfig, command="eval"), options_of(RunConfig, scope="data"), options_of(RunConfig, content=True)
    """
    found = {f.name: Option(**{"help": "", **f.metadata}) for f in dataclasses.fields(owner)}
    return {
        name: about
        for name, about in found.items()
        if (command is None or command in about.commands) and all(getattr(about, k) == v for k, v in declared.items())
    }


def choices_of(hint: Any) -> tuple[str, ...]:
    """The values that a type allows, if it lists them."""
    return tuple(
        str(choice)
        for part in alternatives(hint)
        if typing.get_origin(part) is Literal
        for choice in typing.get_args(part)
    )


# -- checks ------------------------------------------------------------------------------------------------------


def check_options(owner: Any) -> None:
    """Every field of a dataclass has the type and the range that it declares; the error names the option."""
    hints = typing.get_type_hints(type(owner))
    for name, about in options_of(type(owner)).items():
        value, hint = getattr(owner, name), hints[name]
        if not _fits(value, hint):
            raise ConfigError(f"{name}: expected {_describe(hint)}, not {_shown(value)}")
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, int | float) and not isinstance(item, bool):
                if not _is_finite(item) and not (about.allow_inf and item == math.inf):
                    raise ConfigError(f"{name}: must be a finite number, not {_shown(item)}")
                if rule := about.broken_rule(item, whole=int in alternatives(hint)):
                    raise ConfigError(f"{name}: {rule}, not {_shown(item)}")
            if isinstance(item, str | Path) and "\0" in str(item):
                raise ConfigError(f"{name}: {str(item)!r} contains a null character")


def require(owner: Any, key: str, holds: bool, rule: str) -> None:
    """Raise an error that names the option and its value unless the rule holds; for rules about several options."""
    if not holds:
        raise ConfigError(f"{key}: {rule}, not {_shown(getattr(owner, key))}")


def coerce(value: Any, hint: Any) -> Any:
    """YAML has no paths, no tuples, and reads 1e-4 as text. Its null is `auto`, where an option has that."""
    choices = alternatives(hint)
    if value is None and AUTO in choices_of(hint):
        return AUTO
    if isinstance(value, str) and Path in choices:
        return Path(value)
    for choice in choices:
        if isinstance(value, list) and typing.get_origin(choice) is tuple:
            kinds = [*typing.get_args(choice), *[Any] * len(value)]
            return tuple(coerce(item, kind) for item, kind in zip(value, kinds, strict=False))
    if isinstance(value, str) and float in choices:
        try:
            return float(value)
        except ValueError:
            return value
    return value


def parse_text(text: str, hint: Any) -> Any:
    """A value as it is typed on the command line, where None cannot be given.

    Raises:
        ConfigError: says what was expected.
    """
    kinds = [kind for kind in alternatives(hint) if kind is not types.NoneType]
    for kind in kinds:
        with contextlib.suppress(ValueError):
            return _read(text, kind)
    raise ConfigError(f"expected {' or '.join(map(_describe, kinds))}, not {_shown(text)}")


def _read(text: str, kind: Any) -> Any:
    """A value of one type, or a ValueError."""
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)[choices_of(kind).index(text)]
    if typing.get_origin(kind) is tuple:  # with or without brackets
        parts = text.strip("[]()").split(",")
        return tuple(_read(part, each) for part, each in zip(parts, typing.get_args(kind), strict=True))
    value = kind(text)
    if value != value:
        raise ValueError("NaN")
    return value


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The parts of a union; a plain type is the only one."""
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number too large for a float
        return False


def _number(number: float | None) -> str:
    """Large powers of two are written as such."""
    power = round(math.log2(number)) if number and number >= 2**20 else 0
    return f"2^{power}" if power and number == 2**power else str(number)


def _shown(value: Any) -> str:
    """A value in a message; of a long one the beginning."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if origin is Literal:
        return value in arguments and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(arguments) and all(map(_fits, value, arguments))
    if origin in (dict, list):
        return isinstance(value, origin)
    if hint in (float, int):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint)


NAMES = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path", dict: "a mapping",
    list: "a list", types.NoneType: "nothing",
}  # fmt: skip


def _describe(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(argument) for argument in arguments)
    if origin is Literal:
        return ("one of " if len(arguments) > 1 else "") + ", ".join(map(str, arguments))
    if origin is tuple:
        return f"{len(arguments)} values"
    return NAMES.get(origin or hint, str(hint))
