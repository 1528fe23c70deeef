"""Orders of tasks: the paper's rotations S1 … S8, those with a name of their own, or any list of names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tasso.errors import ConfigError, no_such


def rotation(names: Sequence[str], number: int) -> list[str]:
    """S^number: the original order rotated left by number − 1."""
    return [*names[number - 1 :], *names[: number - 1]]


def order(
    names: Sequence[str],
    sequence: str,
    limit: int | None = None,
    named: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[str]:
    """The task names of a sequence, in order.

    Args:
        names: the benchmark's tasks in its original order.
        sequence: `S1` … `SK`, or names separated by commas.
        limit: keep only the first tasks.
        named: other orders by their names.
    """
    if sequence.strip() in named:
        chosen = list(named[sequence.strip()])
    elif match := re.fullmatch(r"[Ss](\d+)", sequence.strip()):
        number = int(match[1])
        if not 1 <= number <= len(names):
            raise ConfigError(f"sequence: {sequence} does not exist, there are S1 … S{len(names)}")
        chosen = rotation(names, number)
    else:
        orders = ", ".join([f"S1 … S{len(names)}", *named])
        chosen = [name.strip() for name in sequence.split(",")]
        for name in chosen:
            if name not in names:
                raise ConfigError(f"sequence: {no_such('task', name, names)}; or {orders}")
            if chosen.count(name) > 1:
                raise ConfigError(f"sequence: {name!r} is given more than once")
    return chosen[:limit] if limit else chosen
