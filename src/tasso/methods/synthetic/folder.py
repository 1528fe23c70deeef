"""Images that were made elsewhere, in a folder with a list of their prompts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tasso.data.annotated import FolderSource
from tasso.errors import ConfigError, DataError
from tasso.methods.synthetic.generator import OnProgress, Pairs, Request, collect, silent
from tasso.methods.synthetic.listing import Row, find_listing, read_listing, require_files

log = logging.getLogger("tasso")
LAYOUT = "pairs.jsonl (what the generator diffusers writes) or pairs.csv (header file,prompt), with the images beside"


class FolderGenerator:
    """SOURCE/<request>/ if it has a list, else SOURCE itself; so what `diffusers` wrote can be moved and used."""

    stand_in: str = ""

    def __init__(self, source: Path) -> None:
        self.source = source

    def check(self, requests: Sequence[Request] = ()) -> None:
        if not self.source.is_dir():
            raise ConfigError(f"source: no such folder: {self.source}. There must lie {LAYOUT}")
        folders = [self.source, *sorted(path for path in self.source.iterdir() if path.is_dir())]
        listings = [listing for folder in folders if (listing := find_listing(folder, "pairs"))]
        if not listings:
            raise ConfigError(f"source: nothing to use in {self.source} or a folder in it. There must lie {LAYOUT}")
        for listing in listings:
            _read(listing)
        for request in requests:
            self.pairs(request.prompts, request.seeds, request.folder)

    def pairs(
        self, prompts: Sequence[str], seeds: Sequence[int], folder: Path, on_progress: OnProgress = silent
    ) -> Pairs:
        """All pairs whose prompt is wanted, in file order, at most as many per prompt as there are requests for it."""
        own = self.source / folder.name
        listing = find_listing(own, "pairs") or find_listing(self.source, "pairs")
        if listing is None:
            raise DataError(f"neither {own} nor {self.source} holds a list of images: {LAYOUT}")
        wanted = Counter(prompts)
        left = wanted.copy()
        chosen = []
        for row in _read(listing):
            if row.file is not None and left[row.text] > 0:
                left[row.text] -= 1
                chosen.append((row.file, row.text))
        pairs = collect(FolderSource(listing.parent), chosen)
        without = [prompt for prompt in wanted if left[prompt] == wanted[prompt]]
        if not chosen:
            raise DataError(
                f"{listing}: no image for any of the {len(wanted)} prompts, such as {_some(without)}. "
                "A prompt must be the same to the letter"
            )
        if without:
            log.warning(
                "%s: images for %d of %d prompts only (%d of %d images); none for %s",
                *(listing, len(pairs.texts), len(wanted), len(chosen), len(prompts), _some(without)),
            )
        on_progress(len(prompts))
        return pairs


def _read(listing: Path) -> list[Row]:
    rows = read_listing(listing, "prompt")
    require_files(rows, listing.parent)
    return rows


def _some(prompts: Sequence[str]) -> str:
    return ", ".join(map(repr, prompts[:3])) + (" …" if len(prompts) > 3 else "")
