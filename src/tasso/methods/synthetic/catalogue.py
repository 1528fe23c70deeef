"""The generators by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tasso.config import require
from tasso.errors import ConfigError, no_such
from tasso.methods.synthetic.diffusion import DEFAULT_MODEL, DiffusionGenerator
from tasso.methods.synthetic.drawn import AtlasGenerator
from tasso.methods.synthetic.folder import LAYOUT, FolderGenerator
from tasso.methods.synthetic.generator import Generator
from tasso.methods.synthetic.retrieval import CORPUS, RetrievalGenerator


@dataclass(frozen=True)
class Settings:
    """Settings of all generators."""

    source: str | None
    steps: int
    guidance: float
    batch_size: int
    device: torch.device
    encode_texts: Callable[[Sequence[str]], Tensor]


def _diffusers(settings: Settings) -> Generator:
    return DiffusionGenerator(
        settings.source or DEFAULT_MODEL, settings.steps, settings.guidance, settings.batch_size, settings.device
    )


def _folder(settings: Settings) -> Generator:
    return FolderGenerator(_path(settings, "folder", LAYOUT))


def _atlas(settings: Settings) -> Generator:
    if settings.source is not None:
        raise ConfigError(f"source: the generator atlas draws by code and takes none, not {settings.source!r}")
    return AtlasGenerator()


def _retrieval(settings: Settings) -> Generator:
    return RetrievalGenerator(_path(settings, "retrieval", CORPUS), settings.encode_texts)


GENERATORS: dict[str, Callable[[Settings], Generator]] = {
    "diffusers": _diffusers,
    "folder": _folder,
    "atlas": _atlas,
    "retrieval": _retrieval,
}

# What tables must say of images that no generative model has made, by the generator's name.
STAND_INS = {"atlas": AtlasGenerator.stand_in, "retrieval": RetrievalGenerator.stand_in}


def build_generator(
    kind: str,
    *,
    source: str | None = None,
    steps: int = 50,
    guidance: float = 7.5,
    batch_size: int = 8,
    device: torch.device,
    encode_texts: Callable[[Sequence[str]], Tensor],
) -> Generator:
    """A generator by name; nothing is read yet.

    Args:
        kind: one of GENERATORS.
        source: diffusers: a model name or a local folder; folder and retrieval: a folder; atlas: nothing.
        steps: denoising steps (diffusers).
        guidance: guidance scale (diffusers).
        batch_size: images made at a time (diffusers).
        device: where images are made (diffusers).
        encode_texts: texts to embeddings (N, D) (retrieval). It must give the same for the same text throughout a
            run, so it should be that of the pretrained model.
    """
    if kind not in GENERATORS:
        raise ConfigError(f"generator: {no_such('generator', kind, GENERATORS)}")
    settings = Settings(source, steps, guidance, batch_size, device, encode_texts)
    for key in ("steps", "batch_size"):
        require(settings, key, getattr(settings, key) >= 1, "must be at least 1")
    require(settings, "guidance", guidance >= 0, "must not be negative")
    return GENERATORS[kind](settings)


def _path(settings: Settings, kind: str, layout: str) -> Path:
    if not settings.source:
        raise ConfigError(f"source: the generator {kind} needs the path of a folder. There must lie {layout}")
    return Path(settings.source)
