"""A job is one run of many: its options, and a folder name that follows from them and from nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path, PurePath
from typing import Any

from tasso.config import RunConfig, from_dict
from tasso.errors import ConfigError

# What a sweep decides itself: where a run lies, what it is called, and that nothing is thrown away.
NOT_FOR_JOBS = ("out", "label", "overwrite")
READABLE = 64  # characters of a name that tell options; what does not fit is in a checksum
PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")
# Files and folders that a run is given. Where they lie is not part of its identity, only that they were given.
PLACES = ("reference_texts", "pack_dir", "method.generator_source")
GIVEN = "given"
LOCAL = "local-dir:"


@dataclass(frozen=True, eq=False)
class Job:
    """Options of one `tasso run`. Two jobs are equal if they are the same run, however their options are written.

    `options` are those of `RunConfig` without `out`. `tag` sets a run apart from another with the same options: one
    whose time is measured has the machine to itself and is not the one that shared it with others.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    tag: str = ""

    def __post_init__(self) -> None:
        for key in NOT_FOR_JOBS:
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

        The same for the same run on every machine; where files lie on the disk, how options were written and what may
        change while a run goes on do not enter.
        """
        known = resolved_identity(self.options)
        usual = _usual(known["method.name"], known["protocol"])
        changed = {key: value for key, value in known.items() if value != usual.get(key) and key != "seed"}
        if known["protocol"] != "code":
            changed["protocol"] = known["protocol"]
        sequence = "custom"
        if re.fullmatch(r"S\d+", known["sequence"]):
            sequence = known["sequence"]
            changed.pop("sequence", None)
        start = f"{known['method.name']}-{sequence}-{known['seed']}" + (f"@{self.tag}" if self.tag else "")
        return start + _told(changed, {**known, "tag": self.tag})

    def config(self, folder: Path, **more: Any) -> RunConfig:
        """The run in its folder under `folder`; `more` are options that do not belong to its identity."""
        options = {**self.options, **more, "out": str(folder / self.name)}
        if "sequence" in options:
            options["sequence"] = _sequence(options["sequence"])
        return from_dict(options, f"run {self.name}")


def resolved_identity(options: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run this run, with protocol and method's defaults filled in.

    What depends on the machine (`auto`) is left as it stands: a name is the same where a run is planned, where it is
    learned and where it is read. For the same reason paths are not in it, see `without_paths`.
    """
    return without_paths(_full_identity(options))


def distinct(jobs: Iterable[Job]) -> list[Job]:
    """Each job once. Raises a ConfigError where two would share a folder and differ in what they are given."""
    found: dict[Job, Job] = {}
    for job in jobs:
        first = found.setdefault(job, job)
        if first is job:
            continue
        before, now = _full_identity(first.options), _full_identity(job.options)
        for key in {**before, **now}:
            one, other = before.get(key), now.get(key)
            if one != other:
                raise ConfigError(
                    f"{key}: {one} and {other} would be one run, {job.name}, because a name says what is "
                    "given and not where it lies; learn them into folders of their own (--out)"
                )
    return list(found)


def without_paths(known: Mapping[str, Any]) -> dict[str, Any]:
    """Options with no place of this machine in them: of what is only read it counts that it is given, of models and
    prompts what their file or folder is called."""
    plain = {str(key): str(value) if isinstance(value, Path) else value for key, value in known.items()}
    for key in PLACES:
        if plain.get(key) is not None:
            plain[key] = GIVEN
    if plain.get("method.generator") == "diffusers" and known.get("method.generator_source"):
        plain["method.generator_source"] = _last(str(known["method.generator_source"]))
    if str(plain.get("model")).startswith(LOCAL):
        plain["model"] = LOCAL + _last(plain["model"].removeprefix(LOCAL))
    if plain.get("pretrained"):
        plain["pretrained"] = _last(plain["pretrained"])
    if plain.get("template") and "{}" not in plain["template"]:
        plain["template"] = _last(plain["template"])
    return plain


def _last(path: str) -> str:
    return PurePath(path).name or path


def _full_identity(options: Mapping[str, Any]) -> dict[str, Any]:
    from tasso.methods import build_method
    from tasso.training.run_folder import identity

    config = from_dict(options, "run")
    method = build_method(config.method, config.protocol)
    resolved = dataclasses.replace(
        config.resolved(method.run_defaults), method=method.hyper_parameters(), sequence=_sequence(config.sequence)
    )
    return {key: _canonical(value) for key, value in identity(resolved).items()}


@cache
def _usual(method: str, protocol: str) -> dict[str, Any]:
    """A run in which nothing but the method is chosen."""
    return resolved_identity({"method": method, "protocol": protocol})


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


def _told(changed: Mapping[str, Any], everything: Mapping[str, Any]) -> str:
    """Changed options in words, the method's own first; in full if they are short and plain, else with a checksum."""
    in_order = sorted(changed, key=lambda key: not key.startswith("method."))
    words = [_word(_short(key), changed[key]) for key in in_order]
    plain = [f"-{word}" for word in words if word]
    if len(plain) == len(words) and len("".join(plain)) <= READABLE:
        return "".join(plain)
    told = ""
    for word in plain:
        if len(told + word) > READABLE:
            break
        told += word
    return f"{told}~{hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:10]}"


def _short(key: str) -> str:
    """`rank` for `method.rank`, unless the run itself has such an option."""
    short = key.removeprefix("method.")
    return key if short in {f.name for f in dataclasses.fields(RunConfig)} else short


def _word(key: str, value: Any) -> str | None:
    """`key=value`, or None where the value has no plain words."""
    if isinstance(value, bool):
        return f"{key}={str(value).lower()}"
    if isinstance(value, int | float):
        return f"{key}={value!r}"
    return f"{key}={value}" if isinstance(value, str) and PLAIN.fullmatch(value) else None
