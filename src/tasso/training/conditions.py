"""Options with which tasks of the same names are other tasks. Only runs that agree in them are compared."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from tasso.config import RunConfig
from tasso.data import with_benchmark_options
from tasso.methods.defaults import with_defaults

CONDITIONS: dict[str, Any] = dict.fromkeys(
    ("limit_tasks", "split_classes", "class_order", "shots", "test_per_class", "same_names", "template")
)
LONGEST = 30  # letters of a value that is written out


def conditions(config: RunConfig) -> str:
    """In which of these options a resolved run differs from its benchmark, in words: `class order 7, shots 5`."""
    usual = dataclasses.replace(config, **CONDITIONS)
    usual, _ = with_defaults(usual if config.tasks else with_benchmark_options(usual))
    ours, theirs = _values(config), _values(usual)
    return ", ".join(f"{key.replace('_', ' ')} {_in_short(ours[key])}" for key in ours if ours[key] != theirs[key])


def _values(config: RunConfig) -> dict[str, Any]:
    given = {key: getattr(config, key) or "all" for key in CONDITIONS}
    return {**given, "same_names": "one" if config.merges_names else "apart"}


def _in_short(value: Any) -> str:
    """A value for the name of a benchmark; of a long list or text, its checksum."""
    text = str(value)
    return text if len(text) <= LONGEST and "\n" not in text else hashlib.sha256(text.encode()).hexdigest()[:8]
