"""How data sets are prepared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasso.config import require

Names = Literal["spaces", "coop"]


@dataclass(frozen=True)
class Options:
    """
    Attributes:
        archives: another folder to look for archives in.
        download: download what torchvision has an address for.
        check_archives: refuse archives with another checksum.
        check_counts: refuse sizes that differ from the paper's.
        split_seed: of splits that are drawn here.
        names: `spaces` replaces the underscores in CoOp's class names, as CoOp's own prompts do; `coop` keeps them.
        reference_images: how many of ImageNet's images are unpacked; 0: all.
        reference_seed: of the draw of these images.
        overwrite: replace an annotation file that was not written by tasso.
    """

    archives: Path | None = None
    download: bool = True
    check_archives: bool = True
    check_counts: bool = True
    split_seed: int = 1102
    names: Names = "spaces"
    reference_images: int = 100_000
    reference_seed: int = 1102
    overwrite: bool = False

    def __post_init__(self) -> None:
        for key in ("split_seed", "reference_images", "reference_seed"):
            require(self, key, getattr(self, key) >= 0, "must not be negative")
