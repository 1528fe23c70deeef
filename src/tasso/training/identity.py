"""What makes a run this run and no other, from what its options declare."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from tasso.config import METHOD, Option, RunConfig, options_of
from tasso.config.paths import folder_scheme, is_name
from tasso.config.task_specs import without_folders

GIVEN = "given"


def identity(config: RunConfig) -> dict[str, Any]:
    """Options that make a run another one; hyper-parameters of the method are keys of their own, `method.rank`.

    The other options may change when a run is resumed. A different device may round differently, so the bits are the
    same only where the device is.
    """
    options = config.to_dict()
    hyper = {f"{METHOD}{key}": value for key, value in options.pop("method").items()}
    declared = options_of(RunConfig)
    return {**{key: value for key, value in options.items() if declared[key].identity}, **hyper}


def portable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of these options that make a run another one, without paths of this machine.

    Of a file or folder whose content counts only the last part of the path is left, of one that is merely used only
    that it is given.
    """
    declared = _declared(hyper_parameters=any(key.startswith(METHOD) for key in options))
    found = {key: value for key, value in options.items() if key not in declared or declared[key].identity}
    return {key: _without_path(key, value, declared.get(key)) for key, value in found.items()}


def _declared(hyper_parameters: bool) -> dict[str, Option]:
    if not hyper_parameters:
        return options_of(RunConfig)
    from tasso.methods import METHODS  # torch, which reports do without

    hyper = {f"{METHOD}{key}": option for cls in METHODS.values() for key, option in options_of(cls).items()}
    return {**options_of(RunConfig), **hyper}


def _without_path(key: str, value: Any, option: Option | None) -> Any:
    if value is None or option is None:
        return value
    if option.identity == "given":
        return GIVEN
    if key == "tasks":
        return without_folders(value)
    if option.content:
        return _last_part(str(value))
    return str(value) if isinstance(value, Path) else value


def _last_part(text: str) -> str:
    if is_name(text):
        return text
    scheme = folder_scheme(text)
    path = text.removeprefix(scheme)
    return scheme + (PurePath(path).name or path)
