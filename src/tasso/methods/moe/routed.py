"""How images are compared with classes when each may be routed through another task's experts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tasso.methods.moe.adapters import PLAIN, Adapters
from tasso.methods.moe.selector import TaskSelector
from tasso.models.clip import Clip
from tasso.models.inference import Embedded, Inference, Templates, templates_per_group

Key = tuple[int, tuple[str, ...], tuple[str, ...]]


class RoutedInference(Inference):
    """An image takes the route that the selector chooses, and is compared with texts of the same route."""

    def __init__(self, clip: Clip, adapters: Adapters, selector: TaskSelector, routing_batch: int = 128) -> None:
        """`routing_batch`: how many images share a decision, where the selector decides per batch."""
        super().__init__(clip)
        self.adapters, self.selector, self.routing_batch = adapters, selector, routing_batch
        self._texts: dict[Key, Tensor] = {}
        self._version = adapters.version

    @property
    def shared_batch(self) -> int | None:
        return self.routing_batch if self.selector.whole_batch else None

    def embed(self, pixels: Tensor) -> Embedded:
        with torch.no_grad():
            routes = torch.cat([self.selector.routes(part) for part in torch.split(pixels, self.routing_batch)])
            with self.adapters.routed(routes):
                return Embedded(self.clip.encode_images(pixels), routes)

    def empty(self, count: int) -> Embedded:
        routes = torch.empty(count, dtype=torch.int64, device=self.clip.device)
        return Embedded(super().empty(count).features, routes)

    def scores(
        self,
        images: Embedded,
        groups: Sequence[Sequence[str]],
        templates: Templates,
        tasks: Sequence[str] = (),
    ) -> Tensor:
        if images.routes is None:
            return super().scores(images, groups, templates, tasks)
        scores = images.features.new_empty(len(images.features), sum(map(len, groups)))
        for route in torch.unique(images.routes).tolist():
            rows = images.routes == route
            each = zip(groups, templates_per_group(groups, templates), strict=True)
            texts = torch.cat([self._class_texts(route, names, prompts) for names, prompts in each])
            scores[rows] = images.features[rows] @ texts.mT
        return scores

    def texts(self, names: Sequence[str], templates: Sequence[str]) -> Tensor | None:
        return None  # one per route, and images of one class may take several

    def _class_texts(self, route: int, names: Sequence[str], templates: Sequence[str]) -> Tensor:
        if route == PLAIN:
            return self.clip.class_embeddings(names, templates)
        if self._version != self.adapters.version:  # later tasks change experts that earlier ones chose
            self._texts, self._version = {}, self.adapters.version
        key = (route, tuple(names), tuple(templates))
        if key not in self._texts:
            with self.adapters.routed(route):  # not through the model's own cache: that is for plain CLIP
                self._texts[key] = self.clip.encode_classes(names, templates)
        return self._texts[key]
