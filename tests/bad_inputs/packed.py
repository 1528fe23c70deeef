"""Packs that were damaged, and folders that packs cannot be written to."""

from __future__ import annotations

import os
from pathlib import Path

from bad_inputs.case import Bad, carried_out

PACK = ("data", "pack", "--tasks", "birds=birds", "--pack-dir", "packs")


def packed(place: Path) -> Path:
    """Pack the own images; returns the folder of one pack."""
    carried_out(PACK, place)
    return next(folder for folder in sorted((place / "packs").iterdir()) if "train" in folder.name)


def truncated(place: Path) -> None:
    [pixels] = packed(place).glob("*.u8")
    os.truncate(pixels, 7)


def cut_index(place: Path) -> None:
    index = packed(place) / "index.json"
    index.write_text(index.read_text()[:20])


def index_is_folder(place: Path) -> None:
    folder = packed(place)
    (folder / "index.json").unlink()
    (folder / "index.json").mkdir()


def taken(place: Path) -> None:
    (place / "packs").write_text("mine")


CASES = [
    Bad("pack/truncated", "a pixel file that is too short", PACK,
        r"packs/.*\.u8: damaged: it has 7 bytes.*Remove the folder", truncated, ("birds",), varies=r"(?<=pixels-)\w+(?=\.u8)"),
    Bad("pack/index-truncated", "the first 20 bytes of an index", PACK, r"packs/.*index\.json: damaged: .*Remove the folder", cut_index, ("birds",)),
    Bad("pack/folder-is-file", "a file in the place of the packs' folder", PACK, r"pack_dir: cannot pack .*packs", taken, ("birds",)),
    Bad("pack/index-is-folder", "a folder in the place of an index", PACK, r"packs/.*index\.json", index_is_folder, ("birds",), leaves=("packs",),
        varies=r"(?<=json\.)\d+(?=\.tmp)"),
    Bad("pack/nowhere-to", "no folder to pack into", ("data", "pack", "--tasks", "birds=birds"), r"pack_dir: where", needs=("birds",)),
    Bad("pack/size", "images of no size", (*PACK, "--pack-size", "0"), r"pack_size: must be at least 1", needs=("birds",)),
]  # fmt: skip
