"""The paper's ranks, as a share of the embedding's length."""

from __future__ import annotations

from dataclasses import dataclass

PAPER_WIDTH = 512  # length of ViT-B/16's embeddings, of which the paper's ranks are a part


@dataclass(frozen=True)
class OfWidth:
    """A rank as the paper has it, of 512 dimensions; a model with another width gets the same share."""

    rank: int

    def scaled(self, width: int) -> int:
        """The rank for embeddings of this length."""
        return max(1, round(self.rank * width / PAPER_WIDTH))


PAPER_RANK = OfWidth(144)
