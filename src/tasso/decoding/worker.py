"""Decodes images, one request after another; `python -m tasso.decoding.worker` does so for another process.

Requests come through standard input and replies go through standard output, both pickled. When its parent has gone, the
process reads the end of its input and exits: nothing is left behind, however the parent ended.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tasso.decoding.pillow import Array, decode_bytes
from tasso.decoding.views import Decoded
from tasso.errors import DataError

View = Callable[[Decoded, Any], Any]  # of an image, with an argument of its own


class Stored(NamedTuple):
    """One image as a source has it.

    Attributes:
        content: encoded, its pixels, or what draws them.
        upright: is it turned upright, or left as stored?
        where: names it in messages.
    """

    content: bytes | Array | Callable[[], Array]
    upright: bool
    where: str


Item = tuple[Stored | DataError, Any]  # an image, or why it cannot be read, and the argument of its view


def view_all(view: View, items: Sequence[Item]) -> list[Any]:
    """The view of each image, or the DataError of one that cannot be read or decoded."""

    def view_of(stored: Stored | DataError, argument: Any) -> Any:
        try:
            return view(_decoded(stored), argument)
        except DataError as error:
            return error

    return [view_of(*item) for item in items]


def _decoded(stored: Stored | DataError) -> Decoded:
    if isinstance(stored, DataError):
        raise stored
    content, upright, where = stored
    if isinstance(content, bytes):
        return decode_bytes(content, upright, where)
    return content if isinstance(content, np.ndarray) else content()


Reply = tuple[list[Any] | Exception, list[tuple[str, type[Warning]]]]  # and the warnings, for the parent to give


def reply_to(view: View, items: Sequence[Item]) -> Reply:
    """What the parent would have got from `view_all`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result: list[Any] | Exception = view_all(view, items)
        except Exception as error:
            result = error
    return result, [(str(warning.message), warning.category) for warning in caught]


def main() -> None:
    """Answer requests until there are no more."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the replies
    try:
        while True:
            pickle.dump(reply_to(*pickle.load(requests)), replies, pickle.HIGHEST_PROTOCOL)
            replies.flush()
    except (EOFError, pickle.UnpicklingError, BrokenPipeError):
        os._exit(0)  # without trying to write what is left


if __name__ == "__main__":
    main()
