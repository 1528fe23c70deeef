"""Options of a run without what belongs to one machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from tasso.config.fields import Option
from tasso.config.paths import folder_scheme, is_name
from tasso.config.task_specs import without_folders

GIVEN = "given"


def portable_options(options: Mapping[str, Any], declared: Mapping[str, Option]) -> dict[str, Any]:
    """Those of these options that make a run another one, without paths of this machine.

    Of a file or folder whose content counts only the last part of the path is left, of one that is merely used only
    that it is given.
    """
    found = {key: value for key, value in options.items() if key not in declared or declared[key].identity}
    return {key: _without_path(key, value, declared.get(key)) for key, value in found.items()}


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
