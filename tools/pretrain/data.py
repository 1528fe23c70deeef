"""Everything that is decoded, drawn or tokenised once, before a device is touched.

A prepared folder holds

* ``images.npy``: uint8, N x size x size x 3; labelled images, then unlabelled ones, then drawings,
* ``arrays.npz``: the tokenised texts and which of them belong to which image (see `Prepared`),
* ``bpe_nano.txt.gz``: the merges of the student's tokenizer,
* ``prepared.json``: counts and settings, ``texts.json``: the texts in the order of the token tables.

Worker processes import this module, so PyTorch is imported only where it is needed.
"""

from __future__ import annotations

import importlib
import io
import itertools
import json
import multiprocessing
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

TEMPLATES = (
    "a photo of a {}.",
    "a photo of the {}.",
    "an image of a {}.",
    "an image of {}.",
    "a small photo of a {}.",
    "a close-up photo of a {}.",
    "a blurry photo of a {}.",
    "a photo of {}.",
    "{}.",
    "{}",
)
NAME, CAPTION, DRAWN, MIX = 0, 1, 2, 3  # what kind of text a row holds
PAD = -2  # no text has this group
DEFAULT_RENDERER = "pretrain.captioned:render_captioned"

Pixels = NDArray[np.uint8]
Render = Callable[..., tuple[Pixels, tuple[str, ...]]]
T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True)
class Sources:
    """What to learn from.

    Attributes:
        corpora: ``corpus.npz`` files (``bytes`` and ``offsets``), each with a ``corpus.json`` beside it.
        zips: Annotated zips; their training images are used.
        zip_labels: Use the zips' class names too. Without it the images only serve distillation.
        caption_sources: Corpus sources whose texts are whole sentences and take no template.
        drawn: Number of drawings.
        renderer: ``module:function`` that draws image `index` and returns it with its captions.
        seed: Seed of the drawings and of the word mixes.
        size: Side of the square images.
    """

    corpora: tuple[Path, ...] = ()
    zips: tuple[Path, ...] = ()
    zip_labels: bool = False
    caption_sources: tuple[str, ...] = ("flickr8k", "pacs")
    drawn: int = 0
    renderer: str = DEFAULT_RENDERER
    seed: int = 0
    size: int = 64


@dataclass(frozen=True)
class Prepared:
    """A prepared folder in memory.

    Attributes:
        images: All images: `labelled`, then `unlabelled`, then `drawn` of them.
        tokens: Texts for the student, one row per text.
        teacher_tokens: The same texts for the teacher.
        kind: NAME (in a template), CAPTION, DRAWN (a drawing's caption) or MIX for each text.
        group: What each text says, whatever the template; -1 for word mixes.
        rows: Rows of the texts, image by image.
        start: Where in `rows` the texts of a labelled or drawn image begin.
        count: How many texts it has.
        meanings: The distinct groups of its texts, padded with PAD.
    """

    images: Pixels
    tokens: NDArray[np.int32]
    teacher_tokens: NDArray[np.int32]
    kind: NDArray[np.uint8]
    group: NDArray[np.int32]
    rows: NDArray[np.int32]
    start: NDArray[np.int32]
    count: NDArray[np.int32]
    meanings: NDArray[np.int32]
    labelled: int
    unlabelled: int
    drawn: int
    merges: Path

    @classmethod
    def load(cls, folder: Path) -> Prepared:
        """Read a prepared folder."""
        info = json.loads((folder / "prepared.json").read_text(encoding="utf-8"))
        with np.load(folder / "arrays.npz") as arrays:
            tables = {name: arrays[name] for name in arrays.files}
        return cls(
            images=np.load(folder / "images.npy", mmap_mode="r"),
            labelled=info["labelled"],
            unlabelled=info["unlabelled"],
            drawn=info["drawn"],
            merges=folder / "bpe_nano.txt.gz",
            **tables,
        )


class TextTable:
    """Collects texts: each distinct one gets a row, each distinct meaning a group."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.kind: list[int] = []
        self.group: list[int] = []
        self._row: dict[str, int] = {}
        self._group: dict[str, int] = {}

    def add(self, text: str, meaning: str | None, kind: int) -> int:
        """Row of the text. The first one to add a text decides its kind."""
        if text not in self._row:
            self._row[text] = len(self.texts)
            self.texts.append(text)
            self.kind.append(kind)
            self.group.append(-1 if meaning is None else self._group.setdefault(meaning.lower(), len(self._group)))
        return self._row[text]


def decode(content: bytes, size: int) -> Pixels:
    """Decode one image; one of another size is resized by its short side and cropped at the centre."""
    with Image.open(io.BytesIO(content)) as opened:
        image = opened.convert("RGB")
    if image.size != (size, size):
        scale = size / min(image.size)
        width, height = (max(size, round(side * scale)) for side in image.size)
        left, top = (width - size) // 2, (height - size) // 2
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        image = image.crop((left, top, left + size, top + size))
    return np.asarray(image, dtype=np.uint8)


def decode_chunk(contents: Sequence[bytes], size: int) -> Pixels:
    """Decode several images (one piece of work for a process)."""
    return np.stack([decode(content, size) for content in contents])


def render_chunk(indices: range, renderer: str, seed: int, size: int) -> tuple[Pixels, list[tuple[str, ...]]]:
    """Draw several images (one piece of work for a process)."""
    module, _, name = renderer.partition(":")
    render: Render = getattr(importlib.import_module(module), name)
    drawings = [render(index, seed=seed, size=size) for index in indices]
    return np.stack([pixels for pixels, _ in drawings]), [captions for _, captions in drawings]


def tokenise_chunk(texts: Sequence[str], merges: str, context_length: int) -> NDArray[np.int32]:
    """Tokenise several texts (one piece of work for a process)."""
    tokens = _tokenizer(merges, context_length)(list(texts))
    return np.asarray(tokens.numpy(), dtype=np.int32)


@lru_cache(maxsize=4)
def _tokenizer(merges: str, context_length: int) -> Any:
    from open_clip.tokenizer import SimpleTokenizer

    return SimpleTokenizer(merges, context_length=context_length)


def in_parallel(function: Callable[[T], S], items: Iterable[T], workers: int) -> Iterator[S]:
    """Results in order. Processes are spawned, not forked: a fork would inherit PyTorch's threads."""
    if workers <= 1:
        yield from map(function, items)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(function, items)


def chunks(items: Sequence[T], length: int = 512) -> Iterator[Sequence[T]]:
    """The items in runs of the given length."""
    for begin in range(0, len(items), length):
        yield items[begin : begin + length]


def read_corpus(path: Path) -> tuple[list[bytes], list[dict[str, Any]]]:
    """Encoded images and their entries (`text`, `source`)."""
    with np.load(path) as stored:
        content, offsets = stored["bytes"].tobytes(), stored["offsets"].tolist()
    entries: list[dict[str, Any]] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    images = [content[a:b] for a, b in itertools.pairwise(offsets)]
    if len(images) != len(entries):
        raise ValueError(f"{path.name}: {len(images)} images but {len(entries)} entries")
    return images, entries


def read_zip(path: Path, split: str) -> tuple[list[bytes], list[int], list[str]]:
    """Encoded images, labels and class names of one split of an annotated zip."""
    with zipfile.ZipFile(path) as stored:
        annotation = next(name for name in stored.namelist() if name.endswith("_annotations.json"))
        content = json.loads(stored.read(annotation))
        folder = annotation.rpartition("/")[0]
        samples = content["data"][split]
        images = [stored.read(f"{folder}/images/{name}") for name, _ in samples]
    return images, [int(label) for _, label in samples], content["class_names"]


def word_mixes(texts: Sequence[str], number: int, seed: int) -> list[str]:
    """Short phrases of random words of the texts: what a user may ask for and no caption says."""
    words = sorted({word for text in texts for word in text.lower().split() if word.isalpha()})
    if not words:
        return []
    random = np.random.default_rng(seed)
    mixes = []
    for length in random.integers(1, 4, size=number):
        template = TEMPLATES[random.integers(len(TEMPLATES))]
        mixes.append(template.format(" ".join(words[index] for index in random.integers(len(words), size=length))))
    return mixes


def prepare(
    out: Path,
    sources: Sources,
    *,
    base_merges: Path,
    context_length: int = 32,
    vocab_size: int = 6656,
    merges: Path | None = None,
    mixes: int = 8_000,
    workers: int = 1,
) -> dict[str, Any]:
    """Decode, draw and tokenise everything into a folder.

    Args:
        out: The folder.
        sources: What to learn from.
        base_merges: Merges of the teacher's tokenizer; the student's are a part of them.
        context_length: Tokens per text.
        vocab_size: Size of the student's vocabulary.
        merges: Use this merges file for the student instead of choosing merges.
        mixes: Number of word mixes for text distillation.
        workers: Processes.

    Returns:
        What ``prepared.json`` says.
    """
    from .vocab import MERGES_NAME, write_atomically

    out.mkdir(parents=True, exist_ok=True)
    table = TextTable()
    texts_of: list[list[int]] = []  # per labelled image, then per drawing: its texts' rows
    labelled, unlabelled = _read_real(sources, table, texts_of)
    real = [*labelled, *unlabelled]
    total = len(real) + sources.drawn
    shape = (total, sources.size, sources.size, 3)
    images = np.lib.format.open_memmap(out / "images.npy", mode="w+", dtype=np.uint8, shape=shape)
    position = 0
    for block in in_parallel(partial(decode_chunk, size=sources.size), chunks(real), workers):
        images[position : position + len(block)] = block
        position += len(block)
    draw = partial(render_chunk, renderer=sources.renderer, seed=sources.seed, size=sources.size)
    pieces = [range(begin, min(begin + 512, sources.drawn)) for begin in range(0, sources.drawn, 512)]
    for block, captions in in_parallel(draw, pieces, workers):
        images[position : position + len(block)] = block
        position += len(block)
        texts_of.extend([table.add(text, text, DRAWN) for text in own] for own in captions)
    images.flush()

    real_texts = [text for text, kind in zip(table.texts, table.kind, strict=True) if kind in (NAME, CAPTION)]
    for text in word_mixes(real_texts, mixes, sources.seed):
        table.add(text, None, MIX)
    kind = np.array(table.kind, dtype=np.uint8)

    def tokenised(path: Path) -> NDArray[np.int32]:
        function = partial(tokenise_chunk, merges=str(path), context_length=context_length)
        return np.concatenate(list(in_parallel(function, chunks(table.texts, 4096), workers)))

    teacher_tokens = tokenised(base_merges)
    student_merges = out / MERGES_NAME
    missing = 0
    if merges is not None:
        write_atomically(student_merges, merges.read_bytes())
    else:
        missing = _choose_merges(student_merges, base_merges, teacher_tokens, kind, vocab_size)

    count = np.array([len(rows) for rows in texts_of], dtype=np.int32)
    np.savez(
        out / "arrays.npz",
        tokens=tokenised(student_merges),
        teacher_tokens=teacher_tokens,
        kind=kind,
        group=np.array(table.group, dtype=np.int32),
        rows=np.array([row for rows in texts_of for row in rows], dtype=np.int32),
        start=(np.cumsum(count) - count).astype(np.int32),
        count=count,
        meanings=_meanings(texts_of, table.group),
    )
    info = {
        "labelled": len(labelled),
        "unlabelled": len(unlabelled),
        "drawn": sources.drawn,
        "texts": dict(zip(("name", "caption", "drawn", "mix"), np.bincount(kind, minlength=4).tolist(), strict=True)),
        "vocab_size": _tokenizer(str(student_merges), context_length).vocab_size,
        "required_tokens_without_room": missing,
        "context_length": context_length,
        "renderer": sources.renderer if sources.drawn else None,
        "seed": sources.seed,
        "templates": TEMPLATES,
    }
    write_atomically(out / "texts.json", json.dumps(table.texts).encode())
    write_atomically(out / "prepared.json", json.dumps(info, indent=2).encode())
    return info


def _read_real(sources: Sources, table: TextTable, texts_of: list[list[int]]) -> tuple[list[bytes], list[bytes]]:
    """Encoded labelled and unlabelled images; the texts of the labelled ones are added to the table."""
    labelled: list[bytes] = []
    unlabelled: list[bytes] = []
    for path in sources.corpora:
        images, entries = read_corpus(path)
        labelled.extend(images)
        for entry in entries:
            texts_of.append(_rows(table, entry["text"], entry["source"] in sources.caption_sources))
    for path in sources.zips:
        images, labels, names = read_zip(path, "train")
        if sources.zip_labels:
            labelled.extend(images)
            texts_of.extend(_rows(table, [names[label]], caption=False) for label in labels)
        else:
            unlabelled.extend(images)
    return labelled, unlabelled


def _meanings(texts_of: Sequence[Sequence[int]], group: Sequence[int]) -> NDArray[np.int32]:
    """What the texts of each image say, each thing once."""
    distinct = [list(dict.fromkeys(group[row] for row in rows)) for rows in texts_of]
    padded = np.full((len(distinct), max(map(len, distinct), default=1)), PAD, dtype=np.int32)
    for place, own in enumerate(distinct):
        padded[place, : len(own)] = own
    return padded


def _rows(table: TextTable, texts: Sequence[str], caption: bool) -> list[int]:
    if caption:
        return [table.add(text, text, CAPTION) for text in texts]
    return [table.add(template.format(text), text, NAME) for text in texts for template in TEMPLATES]


def _choose_merges(out: Path, base: Path, tokens: NDArray[np.int32], kind: NDArray[np.uint8], vocab_size: int) -> int:
    """Write the student's merges: class names and drawings whole, captions while there is room."""
    from .vocab import cut_merges, write_merges

    tokenizer = _tokenizer(str(base), tokens.shape[1])

    def counts(chosen: NDArray[np.bool_]) -> Counter[str]:
        found, number = np.unique(tokens[chosen], return_counts=True)
        return Counter({tokenizer.decoder[int(token)]: int(n) for token, n in zip(found, number, strict=True)})

    chosen, missing = cut_merges(
        tokenizer, [counts((kind == NAME) | (kind == DRAWN)), counts(kind == CAPTION)], vocab_size
    )
    write_merges(out, chosen)
    return missing
