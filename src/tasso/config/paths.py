"""Paths in options, made absolute when a run begins: it may be resumed and used from another folder."""

from __future__ import annotations

import re
import typing
from collections.abc import Container
from pathlib import Path
from typing import Any

from tasso.config.fields import Option, alternatives, options_of
from tasso.config.task_specs import absolute
from tasso.files import user_path

# Models by where they are from; all others are names of open_clip.
LOCAL, HF, HUB, OBJECT = "local-dir:", "hf:", "hf-hub:", "object:"
SCHEMES = (LOCAL, HF, HUB, OBJECT)


def absolute_paths(owner: Any, names: Container[str] = ()) -> dict[str, Any]:
    """The options of a dataclass whose values name files or folders, with absolute paths.

    These follow from what options declare: their type is a path, or the content of what they name is part of a run.
    Where a run is written to is not among them.

    Args:
        names: values that are not paths, even if there is a folder of that name.
    """
    hints = typing.get_type_hints(type(owner))
    found: dict[str, Any] = {}
    for key, option in options_of(type(owner)).items():
        value = getattr(owner, key)
        is_path = Path in alternatives(hints[key])
        if value is None or option.scope == "output" or not (is_path or option.content):
            continue
        if is_path:
            found[key] = Path(_absolute(str(value)))
        else:
            found[key] = absolute(value) if isinstance(value, list) else _absolute_text(value, option, names)
    return found


def is_name(text: str) -> bool:
    """Is this a prompt or a name on a hub, not a path?"""
    return "{}" in text or (re.match(r"[a-z-]+:", text) is not None and not folder_scheme(text))


def folder_scheme(model: str) -> str:
    """The scheme of a model that is read from a folder, or nothing. `hf:a/b` may be a folder or a name on the hub."""
    if model.startswith(HF):
        path = user_path(model.removeprefix(HF))
        return HF if path.is_absolute() or path.is_dir() else ""
    return LOCAL if model.startswith(LOCAL) else ""


def _absolute_text(text: str, option: Option, names: Container[str]) -> str:
    """Texts may be names, too: of a model, of weights to download. Only what exists is a path."""
    if option.content == "model":
        scheme = folder_scheme(text)
        return scheme + _absolute(text.removeprefix(scheme)) if scheme else text
    if is_name(text) or text in names:
        return text
    path = user_path(text)
    exists = path.is_file() if option.content == "file" else path.exists()
    return _absolute(text) if exists else text


def _absolute(text: str) -> str:
    return str(Path.cwd() / user_path(text))
