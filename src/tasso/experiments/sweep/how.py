"""Who carries runs out, and how: what the command line asks for, without what it takes to do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tasso.errors import ConfigError

Engine = Literal["local", "ray", "slurm"]
Keep = Literal["last", "all", "none"]


@dataclass(frozen=True)
class How:
    """Who carries runs out, and how."""

    engine: Engine = "local"
    at_once: int | None = None
    gpus: tuple[int, ...] | None = None
    device: str = "auto"
    keep: Keep = "last"
    # Of submitit, for the engine slurm. `cluster` is its own word for where jobs go.
    slurm: Mapping[str, Any] = field(default_factory=dict)
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.at_once is not None and self.at_once < 1:
            raise ConfigError(f"jobs: must be at least 1, not {self.at_once}")
