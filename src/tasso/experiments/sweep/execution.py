"""How the runs of a sweep are executed: what the command line asks for. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tasso.errors import ConfigError

Engine = Literal["local", "ray", "slurm"]
Keep = Literal["last", "all", "none"]


@dataclass(frozen=True)
class Execution:
    """How runs are executed.

    Attributes:
        engine: what runs them.
        at_once: runs in parallel per GPU, or on the CPU; None: as many as fit.
        gpus: numbers of the GPUs; None: all.
        device: as in `RunConfig`.
        keep: which checkpoints of a finished run stay.
        slurm: parameters of submitit, for the engine slurm.
    """

    engine: Engine = "local"
    at_once: int | None = None
    gpus: tuple[int, ...] | None = None
    device: str = "auto"
    keep: Keep = "last"
    slurm: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.at_once is not None and self.at_once < 1:
            raise ConfigError(f"jobs: must be at least 1, not {self.at_once}")
