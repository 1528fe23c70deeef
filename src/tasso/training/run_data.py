"""The images of a run: decoded once, kept while they are needed, and handed out in batches."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tasso.config import RunConfig, unwrap
from tasso.data import ImageSet, Task, TaskSequence
from tasso.data.images import Pixels, Preprocess, Stream, load_pixels, open_packs, thread_pool
from tasso.distributed import Distributed
from tasso.methods import Method
from tasso.progress import progress


class RunData:
    """Tasks and reference images of one run, as pixels on its device."""

    def __init__(
        self,
        config: RunConfig,
        sequence: TaskSequence,
        preprocess: Preprocess,
        device: torch.device,
        distributed: Distributed,
    ) -> None:
        """Images are packed now if the configuration asks for it."""
        self.config, self.preprocess, self.device, self.distributed = config, preprocess, device, distributed
        self.pool = thread_pool(config.workers)
        self.packs = packs = open_packs(config, self.pool, preprocess)
        self.sequence = distributed.main_first(lambda: packs.packed(sequence)) if packs else sequence
        self._cache: dict[str, Pixels] = {}

    def pixels(self, images: ImageSet, what: str) -> Pixels:
        """Read images; `what` names them on the progress bar."""
        with progress(f"reading {what}", len(images)) as advance:
            return load_pixels(
                images,
                self.preprocess,
                self.device,
                self.pool,
                self.config.cache_gib,
                lambda n: advance(n, ""),
                self.packs,
            )

    def cached(self, images: ImageSet, what: str) -> Pixels:
        """As `pixels`, for images that are needed again and again: they are read once."""
        if what not in self._cache:
            self._cache[what] = self.pixels(images, what)
        return self._cache[what]

    def streams(
        self, index: int, task: Task, train: Pixels, method: Method, extra: Mapping[str, ImageSet]
    ) -> dict[str, Stream]:
        """Batches of the task's images, and of those the method asks for in each step.

        Args:
            index: of the task, from 0; part of the seed.
            train: the task's training images.
            extra: image sets that the method brings itself, by name.
        """
        c, seed = self.config, (self.config.seed, index)
        streams = {
            "task": Stream(
                "task", train, task.train.labels, c.batch_size, seed, self.device, distributed=self.distributed
            )
        }
        for name, view in ((request.name, request.view) for request in method.image_requests() if request.each_step):
            if name == "current":
                images, pixels = task.train, train
            elif name == "reference":
                images = unwrap(self.sequence.reference)
                pixels = self.cached(images, "reference")
            elif name in extra:
                images, pixels = extra[name], self.pixels(extra[name], f"{task.name} {name}")
            else:  # its own to leave out: a memory is empty in the first task
                continue
            streams[name] = Stream(
                name, pixels, images.labels, c.reference_batch_size, seed, self.device, view, self.distributed
            )
        return streams
