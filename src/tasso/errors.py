"""Errors a user can act on. The command line prints their message and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

AFRESH = "the tasso run command with --overwrite starts afresh"  # advice of every command that reads a run
REDO_TASK = f"remove this file to begin the task once more; {AFRESH}"
LESS_MEMORY = (
    "Less is needed with --tune lora, --checkpoint-activations, --accumulate, or a smaller --cache-gib, --batch-size "
    "or --eval-batch-size"
)


class TassoError(Exception):
    """Something the user gave cannot work; the message names it and says what to do."""


class ConfigError(TassoError):
    """A configuration key is unknown, ill-typed or out of range."""


class DataError(TassoError):
    """A file, an annotation entry or an image is missing or malformed."""


class ModelError(TassoError):
    """A model cannot be built or its weights cannot be loaded."""


class RunError(TassoError):
    """A run folder cannot be used as asked."""


class BusyError(RunError):
    """Another process is working in the run folder; later it may be free."""


def printable(text: str) -> str:
    """Without characters that a terminal obeys, but for line breaks and tabs: names of files may have any."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", lambda one: ascii(one[0])[1:-1], text)


def shortened(text: str, most: int = 200) -> str:
    """The text, without its middle if it is long: a message is read by people."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 :]}"


def no_such(what: str, name: object, known: Iterable[str]) -> str:
    """`no method 'zcsl'. Did you mean 'zscl'? There are: …`"""
    names = list(known)
    return f"no {what} {name!r}.{did_you_mean(name, names)} There are: {', '.join(names)}"


def unknown_key(key: object, known: Iterable[str]) -> str:
    """`unknown key 'stpes'. Did you mean 'steps'? Known keys: …`"""
    keys = list(known)
    return f"unknown key {key!r}.{did_you_mean(key, keys)} Known keys: {', '.join(keys)}"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """` Did you mean 'zscl'?`, or nothing if no known name is similar. Case does not count."""
    by_folded = {one.casefold(): one for one in known}
    close = get_close_matches(str(name).casefold(), by_folded, n=1)
    return f" Did you mean {by_folded[close[0]]!r}?" if close else ""


def install(extra: str) -> str:
    """`pip install 'starlette>=0.40' 'uvicorn>=0.30'`: the packages of an optional part that are missing.

    They are named themselves, which works wherever this package was installed from.
    """
    from importlib.metadata import PackageNotFoundError, distribution, requires

    def is_missing(requirement: str) -> bool:
        try:
            distribution(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
        except PackageNotFoundError:
            return True
        return False

    try:
        lines = [line.partition(";") for line in requires("tasso") or ()]
    except PackageNotFoundError:  # a checkout that was not installed
        lines = []
    of_extra = [name.strip() for name, _, marker in lines if re.search(rf"extra == ['\"]{extra}['\"]", marker)]
    if not of_extra:
        return f"pip install '.[{extra}]' in a clone of tasso"
    return "pip install " + " ".join(f"'{name}'" for name in [n for n in of_extra if is_missing(n)] or of_extra)
