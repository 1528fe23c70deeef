"""Own tasks as users write them: `NAME=PLACE` arguments, mappings and YAML files, parsed into one form.

In that form a task is a mapping with `name`, `from` and, where they are given, `names`, `template`, `images`,
`columns`, `subset` and `classes`. The order of the list is the order of learning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from tasso.errors import ConfigError, unknown_key
from tasso.files import read_yaml, user_path

TaskSpec = dict[str, Any]

HUB = "hf:"
FILES = ("names", "template", "images")  # beside `from`, these may be paths
KEYS = ("name", "from", *FILES, "columns", "subset", "classes")
COLUMNS = ("path", "label", "split")
NAME = re.compile(r"\w[\w.+-]{0,63}")
ROTATION = re.compile(r"[Ss]\d+")
HOW = "expected NAME=PLACE (a folder, a table, shards or hf:DATASET), or a .yaml file of them"


def parse_tasks(value: Any) -> list[TaskSpec]:
    """Own tasks from arguments, a mapping of names to places, or a list of either.

    Raises:
        ConfigError: names the task and the key.
    """
    places = _parsed(value, Path())
    if not places:
        raise ConfigError(f"tasks: none given; {HOW}")
    by_name: dict[str, TaskSpec] = {}
    for place in places:
        # Checkpoint files have the names of tasks, and some file systems ignore case.
        name = place["name"].casefold()
        if name in by_name:
            raise ConfigError(
                f"tasks: two tasks are called {place['name']!r} ({by_name[name]['from']} and {place['from']}); "
                "rename one, as in NEW=PLACE"
            )
        by_name[name] = place
    return places


def absolute(places: Sequence[TaskSpec]) -> list[TaskSpec]:
    """The same with absolute paths: the run may be resumed from another folder."""
    return [_moved(place, Path.cwd()) for place in places]


def without_folders(places: Sequence[TaskSpec]) -> list[TaskSpec]:
    """The same with the last part of each path, which does not depend on the machine."""
    return [
        {key: PurePath(value).name if _is_path(key, value) else value for key, value in place.items()}
        for place in places
    ]


def names_catalogue(source: str) -> bool:
    """Is this a task of the catalogue (`atlas:food`), not a path?"""
    return bool(re.fullmatch(r"[a-z][a-z\d-]+:[\w.-]+", source)) and not source.startswith(HUB)


def _parsed(value: Any, base: Path) -> list[TaskSpec]:
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, str):
        return _argument(value, base)
    if isinstance(value, Mapping):
        if "from" in value and "name" in value:
            return [_place(value.get("name"), value, base)]
        return [_place(name, place, base) for name, place in value.items()]
    if isinstance(value, list | tuple):
        return [place for item in value for place in _parsed(item, base)]
    raise ConfigError(f"tasks: {HOW}, not {value!r}")


def _argument(arg: str, base: Path) -> list[TaskSpec]:
    """`name=place`, a YAML file of tasks, or a place alone, whose name is that of its folder or file."""
    name, sign, place = arg.partition("=")
    if sign and (NAME.fullmatch(name) or not re.search(r"[/\\]", name)):
        return [_place(name, place, base)]
    if arg.endswith((".yaml", ".yml")):
        file = base / user_path(arg)
        return _parsed(read_yaml(file), file.parent)
    name = Path(arg.removeprefix(HUB).rstrip("/")).name.split(".")[0]
    if problem := _problem_of_name(name):
        raise ConfigError(f'tasks: {problem}. Give the task another name: NAME="{arg}"')
    return [_place(name, arg, base)]


def _problem_of_name(name: Any) -> str:
    """Why this cannot be the name of a task, or nothing."""
    if isinstance(name, str) and NAME.fullmatch(name) and not ROTATION.fullmatch(name):
        return ""
    odd = re.search(r"[^\w.+-]", name) if isinstance(name, str) else None
    has = f" (it has {'a space' if odd[0].isspace() else repr(odd[0])})" if odd else ""
    return f"{name!r} cannot be the name of a task{has}: letters, digits, _ . + and -, 64 at most, and not S1, S2 …"


def _place(name: Any, value: Any, base: Path) -> TaskSpec:
    if problem := _problem_of_name(name):
        raise ConfigError(f"tasks: {problem}")
    if isinstance(value, str | Path):
        value = {"from": str(value)}
    if not isinstance(value, Mapping):
        raise ConfigError(f"tasks: {name}: expected a place, or a mapping with 'from', not {value!r}")
    place: TaskSpec = {"name": name, **{key: v for key, v in value.items() if key != "name" and v is not None}}
    if unknown := sorted(set(place) - set(KEYS), key=str):
        raise ConfigError(f"tasks: {name}: {unknown_key(unknown[0], KEYS[1:])}")
    for key in ("from", *FILES, "subset"):
        if key not in place and key != "from":
            continue
        if isinstance(place.get(key), Path):
            place[key] = str(place[key])
        if not isinstance(place.get(key), str) or not place[key].strip():
            raise ConfigError(f"tasks: {name}: {key}: expected a path or name, not {place.get(key)!r}")
        if "\0" in place[key]:
            raise ConfigError(f"tasks: {name}: {key}: {place[key]!r} contains a null character")
    columns = place.get("columns", {})
    if not isinstance(columns, Mapping) or not set(columns) <= set(COLUMNS) or not _texts(columns.values()):
        raise ConfigError(f"tasks: {name}: columns: expected a mapping of {', '.join(COLUMNS)} to names of columns")
    if "columns" in place:
        place["columns"] = dict(columns)
    classes = place.get("classes", ["all"])
    if not isinstance(classes, list) or not classes or not _texts(classes):
        raise ConfigError(f"tasks: {name}: classes: expected a list of class names, not {classes!r}")
    if repeated := [one for one in classes if classes.count(one) > 1]:
        raise ConfigError(f"tasks: {name}: classes: {repeated[0]!r} is given more than once")
    return _moved(place, base)


def _texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _moved(place: TaskSpec, base: Path) -> TaskSpec:
    """Relative paths are relative to `base`."""
    moved = dict(place)
    for key, text in place.items():
        if _is_path(key, text):
            prefix = HUB if text.startswith(HUB) else ""
            moved[key] = prefix + str(base / user_path(text.removeprefix(prefix)))
    return moved


def _is_path(key: str, text: Any) -> bool:
    if key not in ("from", *FILES) or (key == "template" and "{}" in text):
        return False
    if key == "from" and text.startswith(HUB):  # a data set on the hub is a name, ./saved is a folder
        return bool(text.removeprefix(HUB).startswith((".", "~", "/")))
    return not (key == "from" and names_catalogue(text))
