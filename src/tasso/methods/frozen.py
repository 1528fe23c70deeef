"""Nothing is trained: the pretrained model, and a head that sees each task's images once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from tasso.methods.base import Batch, Group, Method, Towers
from tasso.methods.registry import register


@register("frozen")
@dataclass
class Frozen(Method):
    """What it learns is in the head. With `--head texts` it is zero-shot classification."""

    title: ClassVar[str] = "frozen"
    summary: ClassVar[str] = "nothing is trained; a head on the pretrained model, in one pass over the images"
    source: ClassVar[str] = "RanPAC, SimpleCIL and RAIL without their adapters; the head is tasso's"
    verified: ClassVar[str] = "the head, against slow re-computations in float64"
    run_defaults: ClassVar[Mapping[str, Any]] = {**Method.run_defaults, "head": "lda"}
    learns: ClassVar[bool] = False

    @property
    def towers(self) -> Towers:
        return "none"

    def groups(self) -> list[Group]:
        return []

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        raise NotImplementedError("nothing is trained")
