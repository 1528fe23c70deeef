"""The tokens that the last block of an image tower reads, averaged: what a head sees beside the embedding.

The last block computes the embedding's token only, so they cost nothing to have. They are read by a hook on the first
norm of that block, which every forward pass calls: tasso's own, open_clip's, timm's and transformers'.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasso.models.tuning import find_blocks


class LastTokens:
    """Reads them from one tower. Towers without tokens (convolutional ones) have none: `width` is 0."""

    def __init__(self, visual: nn.Module, pixels: Tensor) -> None:
        """`pixels`: any normalised images (B, 3, H, W), to see what there is."""
        self.name, self.prefix = _first_norm_of_last_block(visual), _prefix_tokens(visual)
        self.norm = visual.get_submodule(self.name) if self.name else None
        self.width = 0
        if self.norm is not None:
            with self.read() as found, torch.no_grad():
                visual(pixels)
            if len(found) == 1 and found[0].ndim == 3 and found[0].shape[1] > self.prefix:
                self.width = self.pool(found[0]).shape[-1]

    @contextlib.contextmanager
    def read(self) -> Iterator[list[Tensor]]:
        """Collects the tokens (B, L, width) of each forward pass meanwhile."""
        found: list[Tensor] = []

        def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            found.append(inputs[0])

        hook = self.norm.register_forward_pre_hook(keep) if self.norm is not None else None
        try:
            yield found
        finally:
            if hook is not None:
                hook.remove()

    def pool(self, tokens: Tensor) -> Tensor:
        """The class token, if there is one, and the mean of all patches, each of unit length: (B, width)."""
        parts = [tokens[:, 0]] if self.prefix else []
        parts.append(tokens[:, self.prefix :].float().mean(1))
        return torch.cat([F.normalize(part.float(), dim=-1) for part in parts], dim=-1)


def _first_norm_of_last_block(visual: nn.Module) -> str:
    """Its name; empty if there is none."""
    blocks = list(find_blocks(visual))
    children = visual.get_submodule(blocks[-1].removesuffix(".")).named_children() if blocks else ()
    return next((f"{blocks[-1]}{name}" for name, child in children if "norm" in type(child).__name__.lower()), "")


def _prefix_tokens(visual: nn.Module) -> int:
    """How many tokens come before those of the patches: a class token, registers."""
    for module in visual.modules():
        if isinstance(count := getattr(module, "num_prefix_tokens", None), int):  # timm's
            return count
        if isinstance(getattr(module, "class_embedding", None), Tensor):
            return 1
    return 0
