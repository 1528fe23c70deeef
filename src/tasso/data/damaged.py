"""Images that cannot be read: found before anything is trained, all named in one message, or left out on request."""

from __future__ import annotations

import contextlib
import logging
import shlex
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tasso.config import RunConfig
from tasso.data.annotated import FolderSource
from tasso.data.task import ImageSet
from tasso.decoding.pillow import NOT_READABLE, CorruptImageError
from tasso.decoding.whole import problem_of
from tasso.errors import DataError

log = logging.getLogger("tasso")

NAMED = 10  # images in a message; the others are counted
CHUNK = 64  # images that a thread looks at in one go
THREADS = 8  # they wait for the disk
DECODED = 2**26  # bytes of files that are all decoded, in about a second on a core; of more only the ends are read


def check_whole(sets: Sequence[ImageSet]) -> None:
    """Raise an error that names the image files that cannot be read.

    If there are many, only those that are empty, cut short or no images: damage inside a file is then found when it is
    decoded. What is not in files of its own, such as a zip's images, is not looked at.
    """
    found = [(images.source.root, images.keys) for images in sets if isinstance(images.source, FolderSource)]
    files = list(dict.fromkeys(root / key for root, keys in found for key in keys))
    thorough = sum(file.stat().st_size for file in files) <= DECODED

    def errors_of(part: Sequence[Path]) -> list[DataError]:
        return [error for file in part if (error := problem_of(file, thorough=thorough))]

    with ThreadPoolExecutor(THREADS) as pool:
        parts = [files[start : start + CHUNK] for start in range(0, len(files), CHUNK)]
        errors = [error for part in pool.map(errors_of, parts) for error in part]
    if errors:
        raise CorruptImageError(listed(errors, len(files)))


def readable(images: ImageSet, title: str, workers: int) -> tuple[ImageSet, list[str]]:
    """The images of a set that can be decoded, and the keys of the others, which are logged. Decodes all of them."""
    from tasso.data.images.decode import thread_pool  # needs torch
    from tasso.data.images.unreadable import CheckedImages, unreadable

    with thread_pool(workers) as pool:
        errors = unreadable(images, title, pool, CheckedImages())
    missing = set(images.source.missing(images.keys)) if errors else ()
    for index, error in errors.items():
        if images.keys[index] in missing:
            errors[index] = missing_image(images, images.keys[index])
        elif not isinstance(error, CorruptImageError):  # no permission, no memory: the image itself may be fine
            raise error
    if errors:
        log.warning("%s: %s. They are left out", title, listed(errors.values(), len(images)))
    return images.subset(np.delete(np.arange(len(images)), list(errors))), [images.keys[index] for index in errors]


def missing_image(images: ImageSet, key: str) -> CorruptImageError:
    """The error about a listed image, or a link, without a file."""
    where = images.source.describe(key)
    dangling = isinstance(images.source, FolderSource) and (images.source.root / key).is_symlink()
    return CorruptImageError(f"{where}: " + ("a link to a file that is not there" if dangling else "no such file"))


def listed(errors: Collection[DataError | str], total: int, most: int = NAMED) -> str:
    """How many images cannot be read, and which; `most` of them are named."""
    named = [str(error).replace(f"{NOT_READABLE}: ", "", 1) for error in list(errors)[:most]]
    more = [f"and {len(errors) - most} more"] if len(errors) > most else []
    return f"{len(errors)} of {total} images cannot be read: {'; '.join([*named, *more])}"


@contextlib.contextmanager
def advice_on_unreadable(config: RunConfig, run: Path | None = None) -> Iterator[None]:
    """Add to an error about unreadable images what to do about them.

    Args:
        run: the run's `config.yaml`, which is there once the run has begun.
    """
    try:
        yield
    except CorruptImageError as error:
        skip = ", or leave them out with --corrupt skip" if config.tasks and config.corrupt == "error" else ""
        check = f"{check_command(config)} decodes all images and names each that is damaged"
        advice = f"Replace or remove them{skip}; {check}"
        if run and run.exists():
            advice += (
                ". This run has begun: the same command goes on once they are replaced by images of the same names; "
                "without them it is another run, for which add --overwrite (starts afresh) or another --out"
            )
        raise DataError(f"{error}. {advice}") from None


def check_command(config: RunConfig) -> str:
    """`tasso data check` for the images of a run."""
    if config.tasks:
        tasks = shlex.join(f"{spec['name']}={spec['from']}" for spec in config.tasks)
        return f"tasso data check --tasks {tasks}"
    root = f" --data-root {config.data_root}" if config.data_root else ""
    return f"tasso data check --benchmark {config.benchmark}{root}"
