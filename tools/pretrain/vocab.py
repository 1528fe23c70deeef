"""A smaller vocabulary for CLIP's byte-pair tokenizer, and the folder layout that carries it.

Half of a small CLIP is its token table, and most rows of that table belong to words its corpus never
contained. `cut_merges` keeps the merges that the corpus needs. A word all of whose merges are kept is
split exactly as before: at every step the pair that the full tokenizer merges next is still on the list,
and taking other pairs off the list cannot put one ahead of it. Words that lose a merge fall apart into
smaller pieces, and the text tower has to learn those again (text distillation, see `train`).
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from open_clip.tokenizer import SimpleTokenizer, default_bpe
from torch import Tensor

CONFIG_NAME = "open_clip_config.json"
WEIGHTS_NAME = "open_clip_model.safetensors"
MERGES_NAME = "bpe_nano.txt.gz"

Merge = tuple[str, str]


def merges_of(tokenizer: Any) -> list[Merge]:
    """The tokenizer's merges, first one first."""
    return sorted(tokenizer.bpe_ranks, key=tokenizer.bpe_ranks.__getitem__)


def cut_merges(tokenizer: Any, wanted: Sequence[Counter[str]], vocab_size: int) -> tuple[list[Merge], int]:
    """Choose the merges of a tokenizer with at most `vocab_size` tokens.

    Args:
        tokenizer: The full tokenizer.
        wanted: Token counts, most important group first; inside a group frequent tokens come first.
        vocab_size: Size of the new vocabulary; 512 byte tokens and the two special ones are part of it.

    Returns:
        The merges in their old order, and how many tokens of the first group found no room.
    """
    room = vocab_size - 2 * len(tokenizer.byte_encoder) - 2
    if room < 0:
        raise ValueError(f"a vocabulary of {vocab_size} has no room for the bytes and the special tokens")
    source = {"".join(merge): merge for merge in tokenizer.bpe_ranks}
    kept: set[str] = set()
    missing = 0
    for place, counts in enumerate(wanted):
        # Ties are broken by name, so that the result does not depend on the order of the corpus.
        for token, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            needed = _parts(token, source) - kept
            if len(kept) + len(needed) <= room:
                kept |= needed
            elif place == 0:
                missing += 1
    for merge in merges_of(tokenizer):  # what room is left goes to the most common English pieces
        needed = _parts("".join(merge), source) - kept
        if len(kept) + len(needed) <= room:
            kept |= needed
    return [merge for merge in merges_of(tokenizer) if "".join(merge) in kept], missing


def _parts(token: str, source: dict[str, Merge]) -> set[str]:
    """The token and every shorter token that its merges pass through, single bytes left out."""
    found: set[str] = set()
    pending = [token]
    while pending:
        part = pending.pop()
        if part in source and part not in found:
            found.add(part)
            pending.extend(source[part])
    return found


def write_merges(path: Path, merges: Sequence[Merge]) -> None:
    """Write the merges in the format `SimpleTokenizer` reads.

    There is no newline at the end: the reader would take the empty last line for one more merge. The time
    stamp is zero, so that equal merges give equal files.
    """
    text = "\n".join(["#version: 0.2", *(f"{first} {second}" for first, second in merges)])
    write_atomically(path, gzip.compress(text.encode("utf-8"), mtime=0))


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader sees the old content or the new, never a part."""
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    temporary.replace(path)


def read_config(folder: Path) -> dict[str, Any]:
    """The `open_clip_config.json` of a model folder."""
    config: dict[str, Any] = json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8"))
    return config


def merges_path(folder: Path) -> Path:
    """The merges file that a model folder's texts are split with: its own, or CLIP's."""
    text_cfg = read_config(folder)["model_cfg"]["text_cfg"]
    name = (text_cfg.get("tokenizer_kwargs") or {}).get("bpe_path")
    return folder / name if name else Path(default_bpe())


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model folder.

    `open_clip.get_tokenizer` takes `bpe_path` from the config as it stands, that is relative to the working
    directory; this resolves it relative to the folder. `open_clip.get_tokenizer("local-dir:" + folder,
    bpe_path=str(merges_path(folder)))` gives the same tokenizer.
    """
    text_cfg = read_config(folder)["model_cfg"]["text_cfg"]
    return SimpleTokenizer(str(merges_path(folder)), context_length=text_cfg["context_length"])


def cut_config(config: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    """The config with a vocabulary of that size, read from the merges file beside it."""
    cut: dict[str, Any] = json.loads(json.dumps(config))
    text_cfg = cut["model_cfg"]["text_cfg"]
    text_cfg["vocab_size"] = vocab_size
    text_cfg["tokenizer_kwargs"] = {"bpe_path": MERGES_NAME}
    return cut


def cut_table(table: Tensor, old: Any, new: Any) -> Tensor:
    """The rows of a token table, in the order of another tokenizer that knows a part of its tokens."""
    rows = [old.encoder[new.decoder[index]] for index in range(new.vocab_size)]
    return table[torch.tensor(rows)].clone()
