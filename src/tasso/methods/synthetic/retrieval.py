"""The nearest images of a captioned corpus, instead of generated ones."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasso.data.annotated import FolderSource
from tasso.data.task import Source
from tasso.errors import ConfigError, DataError
from tasso.files import parse_json, read_bytes
from tasso.methods.synthetic.generator import OnProgress, Pairs, Request, collect, silent
from tasso.methods.synthetic.listing import find_listing, read_listing, require_files

log = logging.getLogger("tasso")
CORPUS = (
    'parts NAME.npz (bytes: all images end to end; offsets) with NAME.json (a list of {"text": [texts]}) each, or '
    "captions.jsonl or captions.csv (header file,caption) with the images beside"
)
TEMPLATE = "a photo of a {}."
NAME_WORDS = 4  # a text of at most this many words and without a full stop is taken for a class name
CHUNK = 256  # texts to encode, or prompts to compare with all texts, at a time

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Part:
    """Encoded images end to end, and where each of them begins."""

    path: Path
    content: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]


class PackedSource(Source):
    """Keys are `<part>/<index>`."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = {part.path.stem: part for part in parts}

    def read(self, key: str) -> bytes:
        name, _, index = key.rpartition("/")
        part = self.parts[name]
        start, end = part.offsets[int(index) : int(index) + 2]
        return part.content[start:end].tobytes()

    def describe(self, key: str) -> str:
        name, _, index = key.rpartition("/")
        return f"{self.parts[name].path}[{index}]"


@dataclass(frozen=True)
class Corpus:
    """Images with one or more texts each."""

    source: Source
    keys: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]


class RetrievalGenerator:
    """Ranks the corpus for each prompt by the cosine of the prompt's embedding with that of an entry's best text.

    Class names stand alone in a corpus, prompts are sentences: short names are put into a sentence of their own before
    they are encoded (see `as_prompt`). Hundreds of entries may have one name and so one rank; then the seed chooses.
    Requests are served in their order, and no entry is used twice as long as there are others.
    """

    stand_in: str = "retrieved images"

    def __init__(self, source: Path, encode_texts: Callable[[Sequence[str]], Tensor]) -> None:
        self.path, self.encode_texts = source, encode_texts

    def check(self, requests: Sequence[Request] = ()) -> None:
        if not self.path.is_dir():
            raise ConfigError(f"source: no such folder: {self.path}. There must lie {CORPUS}")
        _ = self.corpus

    def pairs(
        self, prompts: Sequence[str], seeds: Sequence[int], folder: Path, on_progress: OnProgress = silent
    ) -> Pairs:
        numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
        embeddings = self._encode(list(numbers))
        free = np.ones(len(self.corpus.keys), dtype=np.bool_)
        taken: dict[str, list[int]] = {prompt: [] for prompt in numbers}
        chosen: list[tuple[str, str]] = []
        for start in range(0, len(prompts), CHUNK):
            chunk = prompts[start : start + CHUNK]
            similarities = embeddings[[numbers[prompt] for prompt in chunk]] @ self._embeddings.T
            for prompt, seed, similarity in zip(chunk, seeds[start : start + CHUNK], similarities.numpy(), strict=True):
                pick = nearest(self._scores(similarity), seed, free, taken[prompt])
                taken[prompt].append(pick)
                chosen.append((self.corpus.keys[pick], prompt))
            on_progress(len(chunk))
        return collect(self.corpus.source, chosen)

    @cached_property
    def corpus(self) -> Corpus:
        """Read once; images of a packed corpus stay in memory, encoded."""
        return read_corpus(self.path)

    @cached_property
    def _texts(self) -> tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The different texts; the numbers of all entries' texts end to end; where each entry's begin."""
        numbers: dict[str, int] = {}
        flat = [numbers.setdefault(as_prompt(text), len(numbers)) for texts in self.corpus.texts for text in texts]
        counts = [len(texts) for texts in self.corpus.texts]
        begins = np.concatenate([[0], np.cumsum(counts)[:-1]])
        return list(numbers), np.asarray(flat, dtype=np.int64), begins.astype(np.int64)

    @cached_property
    def _embeddings(self) -> Tensor:
        texts = self._texts[0]
        log.info("%s: encoding %d different texts of %d images", self.path, len(texts), len(self.corpus.keys))
        return self._encode(texts)

    @torch.no_grad()
    def _encode(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors, on the CPU: the device's memory is for training.

        They are copied into one tensor: small tensors between large temporary ones would keep the allocator from
        returning memory.
        """
        first = self.encode_texts(texts[:CHUNK])
        embeddings = torch.empty(len(texts), first.shape[-1])
        embeddings[: len(first)] = first.cpu()
        for start in range(CHUNK, len(texts), CHUNK):
            embeddings[start : start + CHUNK] = self.encode_texts(texts[start : start + CHUNK]).cpu()
        return torch.nn.functional.normalize(embeddings, dim=-1)

    def _scores(self, similarity: Floats) -> Floats:
        """Of each entry: the similarity of its best text, from those of all different texts."""
        _, flat, begins = self._texts
        return np.maximum.reduceat(similarity[flat], begins)


def as_prompt(text: str) -> str:
    """A bare class name as a sentence; anything longer, or with a full stop at its end, as it is."""
    text = text.strip()
    return text if text.endswith(".") or len(text.split()) > NAME_WORDS else TEMPLATE.format(text)


def nearest(scores: Floats, seed: int, free: npt.NDArray[np.bool_], own: Sequence[int]) -> int:
    """The free entry with the highest score, which is free no more; of those equally near, the seed takes one.

    When none is free, all are again, but for those that the prompt has got itself (`own`), if there are any others.
    """
    if not free.any():
        free[:] = True
        if len(set(own)) < len(free):
            free[list(own)] = False
    candidates = np.flatnonzero(free & (scores == scores[free].max()))
    # A hash, as seeds that follow each other should not walk through the corpus in its order.
    number = int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:8], "big")
    pick = int(candidates[number % len(candidates)])
    free[pick] = False
    return pick


def read_corpus(folder: Path) -> Corpus:
    """A corpus in packed parts, or a folder of images with captions."""
    packed = sorted(folder.glob("*.npz"))
    corpus = _read_packed(packed) if packed else _read_captioned(folder)
    if not corpus.keys:
        raise DataError(f"{folder}: no images with texts")
    return corpus


def _read_captioned(folder: Path) -> Corpus:
    listing = find_listing(folder, "captions")
    if listing is None:
        raise DataError(f"{folder}: no corpus found. There must lie {CORPUS}")
    rows = read_listing(listing, "caption")
    require_files(rows, folder)
    texts: dict[str, list[str]] = {}  # lines with the same file are texts of one image
    for row in rows:
        if row.file is not None:
            texts.setdefault(row.file, []).append(row.text)
    return Corpus(FolderSource(folder), tuple(texts), tuple(map(tuple, texts.values())))


def _read_packed(files: Sequence[Path]) -> Corpus:
    parts: list[Part] = []
    keys: list[str] = []
    texts: list[tuple[str, ...]] = []
    for file in files:
        part = _read_part(file)
        count = len(part.offsets) - 1
        parts.append(part)
        keys += [f"{file.stem}/{index}" for index in range(count)]
        texts += _read_texts(file.with_suffix(".json"), count, file)
    return Corpus(PackedSource(parts), tuple(keys), tuple(texts))


def _read_part(file: Path) -> Part:
    try:
        with np.load(file, allow_pickle=False) as arrays:  # a pickle would run what others wrote
            content, offsets = arrays["bytes"], arrays["offsets"]
    except Exception as error:  # numpy and zipfile raise errors of many kinds for a damaged file
        raise DataError(f"{file}: cannot be read as arrays 'bytes' and 'offsets': {error}") from None
    if content.dtype != np.uint8 or content.ndim != 1:
        raise DataError(f"{file}: 'bytes' must be one row of uint8, not {content.dtype} of shape {content.shape}")
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or not len(offsets):
        raise DataError(f"{file}: 'offsets' must be one row of whole numbers, not {offsets.dtype} of {offsets.shape}")
    offsets = offsets.astype(np.int64)
    if offsets[0] != 0 or offsets[-1] != len(content) or (np.diff(offsets) < 0).any():
        raise DataError(f"{file}: 'offsets' must rise from 0 to the length of 'bytes' ({len(content)})")
    return Part(file, content, offsets)


def _read_texts(file: Path, count: int, images: Path) -> list[tuple[str, ...]]:
    try:
        entries: Any = parse_json(read_bytes(file))
    except FileNotFoundError:
        raise DataError(f"{file}: missing; it holds the texts of the images in {images.name}") from None
    except ValueError as error:
        raise DataError(f"{file}: not valid JSON: {error}") from None
    if not isinstance(entries, list) or len(entries) != count:
        found = f"{len(entries)} entries" if isinstance(entries, list) else "no list"
        raise DataError(f"{file}: expected a list of {count} entries, one per image in {images.name}, found {found}")
    return [_entry_texts(entry, f"{file}: [{index}]") for index, entry in enumerate(entries)]


def _entry_texts(entry: Any, where: str) -> tuple[str, ...]:
    texts = entry.get("text") if isinstance(entry, dict) else None
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise DataError(f"{where}: 'text' must be one or more texts, found {str(entry)[:80]}")
    return tuple(texts)
