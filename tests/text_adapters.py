"""Two methods that change the text encoder and declare no tower; found as `text_adapters:Wrapped`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tasso.methods.base import Batch, Group, Method, Towers
from tasso.methods.losses import cross_entropy
from tasso.models.clip import Clip


class Scale(nn.Module):
    """A factor per number, from 1."""

    def __init__(self, module: nn.Module | None, width: int) -> None:
        super().__init__()
        self.module = module
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return (self.module(x) if self.module is not None else x) * self.weight


@dataclass
class Wrapped(Method):
    """A module of the text tower is wrapped."""

    title: ClassVar[str] = "wrapped"
    summary: ClassVar[str] = "a text-side adapter"
    source: ClassVar[str] = "this test"
    verified: ClassVar[str] = "nothing"

    @property
    def towers(self) -> Towers:
        return "none"

    def attach(self, clip: Clip) -> None:
        super().attach(clip)
        self.state = self.factors = self.adapter(clip.model)

    def adapter(self, model: Any) -> Scale:
        model.ln_final = Scale(model.ln_final, 16)
        wrapped: Scale = model.ln_final
        return wrapped

    def groups(self) -> list[Group]:
        return [Group("encoder", {"factors": self.factors.weight})]

    def class_texts(self) -> Tensor:
        return self.encode_classes(self.class_tokens)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        features = self.gather(self.clip.encode_images(batch.task.pixels))
        return {"ce": cross_entropy(features, self.class_texts(), batch.task.labels, self.scale)}


@dataclass
class Hooked(Wrapped):
    """The same by a hook: the adapter is not in the model at all."""

    def adapter(self, model: Any) -> Scale:
        scale = Scale(None, 16)
        model.ln_final.register_forward_hook(lambda module, args, output: scale(output))
        return scale
