"""How data sets are prepared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasso.config import check_options, option


@dataclass(frozen=True)
class Options:
    """Options of `tasso data prepare`."""

    archives: Path | None = option("look for archives here, too", None)
    download: bool = option("download what torchvision has an address for", True)
    check_archives: bool = option("refuse archives with another checksum", True)
    check_counts: bool = option("refuse data sets whose sizes differ from the paper's", True)
    split_seed: int = option("seed of splits that are drawn here", 1102, ge=0)
    # `spaces` replaces the underscores in CoOp's class names, as CoOp's own prompts do; `coop` keeps them.
    names_style: Literal["spaces", "coop"] = option("underscores in class names", "spaces")
    reference_images: int = option("number of reference images from ImageNet; 0: all", 100_000, ge=0)
    reference_seed: int = option("seed of the reference subset", 1102, ge=0)
    overwrite: bool = option("replace an annotation file that was there", False)

    def __post_init__(self) -> None:
        check_options(self)
