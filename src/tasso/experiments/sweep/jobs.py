"""A job is one run of a sweep: its options, and a folder name that depends on nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tasso.config import METHOD, RunConfig, from_dict, options_of
from tasso.errors import ConfigError
from tasso.training.identity import identity, portable

# Options that a sweep varies under names of its own.
AXES = {"method": "methods", "sequence": "sequences", "seed": "seeds"}
PAPER_MODEL = "ViT-B-16-quickgelu"
READABLE = 64  # characters of a name that show options; what does not fit goes into a checksum
PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")


@dataclass(frozen=True, eq=False)
class Job:
    """Options of one `tasso run`. Two jobs are equal if they are the same run, however their options are written.

    `options` are those of `RunConfig` without `out`. `tag` distinguishes runs with the same options: one whose time is
    measured has the machine to itself.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    tag: str = ""

    def __post_init__(self) -> None:
        for key in options_of(RunConfig).keys() - options_of(RunConfig, command="sweep").keys() - AXES.keys():
            if key in self.options:
                raise ConfigError(f"{key}: is not for runs of a sweep, which have folders and labels of their own")
        if self.tag and not re.fullmatch("[a-z]+", self.tag):
            raise ConfigError(f"tag: must be small letters, not {self.tag!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def name(self) -> str:
        """Name of the run's folder: method, sequence and seed, then what differs from the method's defaults.

        The same for the same run on every machine: paths, spelling and what may change on resume do not count.
        """
        options = resolved_identity(self.options)
        defaults = _defaults(options["method.name"], options["protocol"])
        changed = {key: value for key, value in options.items() if value != defaults.get(key) and key != "seed"}
        if options["protocol"] != "code":
            changed["protocol"] = options["protocol"]
        sequence = "custom"
        if re.fullmatch(r"S\d+", options["sequence"]):
            sequence = options["sequence"]
            changed.pop("sequence", None)
        tag = f"@{self.tag}" if self.tag else ""
        return f"{options['method.name']}-{sequence}-{options['seed']}{tag}{_suffix(changed)}"

    def config(self, folder: Path, **more: Any) -> RunConfig:
        """The run in its folder under `folder`; `more` are options that are not part of its identity."""
        options = {**self.options, **more, "out": str(folder / self.name)}
        if "sequence" in options:
            options["sequence"] = _sequence(options["sequence"])
        return from_dict(options, f"run {self.name}")


def resolved_identity(options: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run this run, with the defaults of protocol and method filled in and without paths.

    `auto` stays as it is: a name is the same where a run is planned, where it is learned and where it is read.
    """
    return portable(full_identity(options))


def distinct(jobs: Iterable[Job]) -> list[Job]:
    """Each job once. Raises a ConfigError where two would share a folder and differ in a path."""
    found: dict[Job, Job] = {}
    for job in jobs:
        first = found.setdefault(job, job)
        if first is job:
            continue
        before, now = full_identity(first.options), full_identity(job.options)
        for key in {**before, **now}:
            one, other = before.get(key), now.get(key)
            if one != other:
                raise ConfigError(
                    f"{key}: {one} and {other} would be one run, {job.name}, because a name does not "
                    "contain paths; give each a sweep of its own (--out)"
                )
    return list(found)


def full_identity(options: Mapping[str, Any]) -> dict[str, Any]:
    """As `resolved_identity`, with paths."""
    from tasso.methods.defaults import with_defaults

    config, method = with_defaults(from_dict(options, "run"))
    resolved = dataclasses.replace(config, method=method.hyper_parameters(), sequence=_sequence(config.sequence))
    return {key: _canonical(value) for key, value in identity(resolved).items()}


@cache
def _defaults(method: str, protocol: str) -> dict[str, Any]:
    """A run in which nothing but the method and the protocol is chosen, with the rate and rank of the paper's model.

    So a name shows those of other models, and does not change when others are chosen for these.
    """
    published = resolved_identity({"method": method, "protocol": protocol, "model": PAPER_MODEL})
    return {**published, "model": RunConfig().model}


def _sequence(sequence: str) -> str:
    """`s1` is S1."""
    return sequence.strip().upper() if re.fullmatch(r"\s*[Ss]\d+\s*", sequence) else sequence


def _canonical(value: Any) -> Any:
    """1 and 1.0 are the same learning rate."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return value


def _suffix(changed: Mapping[str, Any]) -> str:
    """`-key=value` per changed option, the method's own first; a checksum of all of them where they do not fit."""
    in_order = sorted(changed, key=lambda key: not key.startswith(METHOD))
    parts = [_part(_short(key), changed[key]) for key in in_order]
    plain = [f"-{part}" for part in parts if part]
    if len(plain) == len(parts) and len("".join(plain)) <= READABLE:
        return "".join(plain)
    suffix = ""
    for part in plain:
        if len(suffix + part) > READABLE:
            break
        suffix += part
    return f"{suffix}~{hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:10]}"


def _short(key: str) -> str:
    """`rank` for `method.rank`, unless the run itself has such an option."""
    short = key.removeprefix(METHOD)
    return key if short in options_of(RunConfig) else short


def _part(key: str, value: Any) -> str | None:
    """`key=value`, or None where the value is not plain text."""
    if isinstance(value, bool):
        return f"{key}={str(value).lower()}"
    if isinstance(value, int | float):
        return f"{key}={value!r}"
    return f"{key}={value}" if isinstance(value, str) and PLAIN.fullmatch(value) else None
