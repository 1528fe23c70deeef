"""The heads by name."""

from __future__ import annotations

from tasso.config import HeadName
from tasso.heads.base import Head
from tasso.heads.fecam import FeCAM, StrongFeCAM
from tasso.heads.lda import LDA
from tasso.heads.nearest_mean import NearestMean
from tasso.heads.rail import RAIL
from tasso.heads.ranpac import RanPAC
from tasso.heads.slda import SLDA

HEADS: dict[HeadName, type[Head]] = {
    "lda": LDA,
    "nearest-mean": NearestMean,
    "ranpac": RanPAC,
    "rail": RAIL,
    "slda": SLDA,
    "fecam": FeCAM,
    "fecam-10": StrongFeCAM,
}


def build_head(name: HeadName, dim: int, tokens: int, logit_scale: float) -> Head:
    """An empty head for a model with embeddings of length `dim` and pooled tokens of length `tokens`."""
    kind = HEADS[name]
    return kind(dim + (tokens if kind.deep else 0), logit_scale)
