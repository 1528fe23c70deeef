"""Packs that were damaged. What can be made again is made again; these cannot be mended."""

from __future__ import annotations

import json
from pathlib import Path

from bad_inputs.case import Bad, carried_out

PACK = ("data", "pack", "--tasks", "birds=birds", "--pack-dir", "packs")


def packed(place: Path) -> Path:
    """The packs of the own images; returns the folder of one."""
    carried_out(PACK, place)
    return next(folder for folder in sorted((place / "packs").iterdir()) if "train" in folder.name)


def flipped(place: Path) -> None:
    folder = packed(place)
    index = json.loads((folder / "index.json").read_text())
    file = folder / index["pixels"]
    content = bytearray(file.read_bytes())
    content[7] ^= 0xFF
    file.write_bytes(content)


def index_is_folder(place: Path) -> None:
    folder = packed(place)
    (folder / "index.json").unlink()
    (folder / "index.json").mkdir()


def taken(place: Path) -> None:
    (place / "packs").write_text("mine")


CASES = [
    Bad("pack/flipped", "a changed byte in the pixels, looked for with --verify", (*PACK, "--verify"),
        r"packs/.*damaged: the pixels of 1 of .*Remove the folder", flipped, ("birds",), varies=r"(?<=pixels-)\w+(?=\.u8)"),
    Bad("pack/folder-is-file", "a file in the place of the packs' folder", PACK, r"pack_dir: cannot pack .*packs", taken, ("birds",)),
    Bad("pack/index-is-folder", "a folder in the place of an index", PACK, r"packs/.*index\.json", index_is_folder, ("birds",), leaves=("packs",),
        varies=r"(?<=json\.)\d+(?=\.tmp)"),
    Bad("pack/nowhere-to", "no folder to pack into", ("data", "pack", "--tasks", "birds=birds"), r"pack_dir: where", needs=("birds",)),
    Bad("pack/size", "images of no size", (*PACK, "--pack-size", "0"), r"pack_size: must be at least 1", needs=("birds",)),
]  # fmt: skip
