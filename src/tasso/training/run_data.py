"""The images of a run: decoded, cached, served in batches, and compared with those the run was started with."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tasso.config import RunConfig, unwrap
from tasso.data import TASK_IMAGES, ImageSet, Task, TaskSequence
from tasso.data.images import PixelCache, Pixels, Preprocess, Stream, open_packs, thread_pool
from tasso.distributed import Distributed
from tasso.errors import RunError
from tasso.methods import Method
from tasso.models.clip import Clip, ModelSpec
from tasso.training.results import check_complete
from tasso.training.run_folder import RunFolder

log = logging.getLogger("tasso")


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
        """Packs the images first if the configuration has a `pack_dir`."""
        self.config, self.device, self.distributed = config, device, distributed
        self.pool = thread_pool(config.workers)
        packs = open_packs(config, self.pool, preprocess)
        self.sequence = distributed.main_first(lambda: packs.packed(sequence)) if packs else sequence
        self.left_out = {**sequence.left_out, **(packs.left_out if packs else {})}
        self.cache = PixelCache(preprocess, device, self.pool, config.cache_gib, packs)

    def pixels(self, images: ImageSet, what: str) -> Pixels:
        """Images that are used in this phase only; `what` names them in messages."""
        return self.cache.pixels(images, what, keep=False)

    def cached(self, images: ImageSet, what: str) -> Pixels:
        """As `pixels`, for images that are used in several tasks."""
        return self.cache.pixels(images, what)

    def read_ahead(self, *sets: ImageSet | None) -> None:
        """Begin to read images that are used next, while a GPU starts or trains; a CPU has no time for it."""
        if self.device.type != "cpu":
            for images in filter(None, sets):
                self.cache.read_ahead(images)

    def streams(
        self, index: int, task: Task, train: Pixels, method: Method, extra: Mapping[str, ImageSet]
    ) -> dict[str, Stream]:
        """Streams of batches: the task's images, and those that the method wants in every step.

        Args:
            index: of the task, from 0; part of the seed.
            train: the task's training images.
            extra: the method's own image sets by name.
        """
        c, seed = self.config, (self.config.seed, index)
        streams = {
            "task": Stream(
                "task", train, task.train.labels, c.batch_size, seed, self.device, distributed=self.distributed
            )
        }
        for name, view in ((request.name, request.view) for request in method.image_requests() if request.each_step):
            if name == "current" or (name == "reference" and c.reference == TASK_IMAGES):
                images, pixels = task.train, train
            elif name == "reference":
                images = unwrap(self.sequence.reference)
                pixels = self.cached(images, "reference")
            elif name in extra:
                images, pixels = extra[name], self.pixels(extra[name], f"{task.name} {name}")
            else:  # the method has none in this task: a memory is empty in the first one
                continue
            streams[name] = Stream(
                name, pixels, images.labels, c.reference_batch_size, seed, self.device, view, self.distributed
            )
        return streams


ADVICE = "Put back what it was started with, or choose another --out"
EXTEND_ADVICE = "tasso extend needs the earlier data as they were: put them back, and new images into a new task"


def check_weights(results: Mapping[str, Any], weights: str, model: ModelSpec, run: Path, advice: str = ADVICE) -> None:
    """Raise a RunError if the pretrained weights (their checksum) are not those the run was started with."""
    if results["weights"] != weights:
        raise RunError(
            f"{run}: the weights of {model} are not those this run was started with (SHA-256 "
            f"{str(results['weights'])[:12]}… then, {weights[:12]}… now). {advice}"
        )


def check_weights_of(folder: RunFolder, clip: Clip) -> None:
    """As `check_weights`, for a pretrained model into which a checkpoint of this run is to be loaded."""
    if results := folder.read_results():
        check_complete(results, folder.results_file)
        check_weights(results, clip.weights_checksum(), clip.spec, folder.path)


def check_data(results: Mapping[str, Any], contents: Mapping[str, Any], run: Path, advice: str = ADVICE) -> None:
    """Raise a RunError if the data have changed since the run was started.

    Args:
        results: of the run.
        contents: `TaskSequence.contents` of the data as they are now; may have more tasks than the run.
        run: the run folder, for the message.
        advice: what to do, for the message.
    """
    recorded = results["data"]
    for name, before in recorded["tasks"].items():
        now = contents["tasks"].get(name, before)
        counts = [_counts(task) for task in (before, now)]
        if counts[0] != counts[1]:
            raise RunError(
                f"{run}: the data of task {name!r} have changed: {counts[0]} when this run was started, now "
                f"{counts[1]}. {advice}"
            )
        if before != now:
            raise RunError(
                f"{run}: the data of task {name!r} have changed: as many images as when this run was started, but "
                f"other files, labels, class names or prompts. {advice}"
            )
    before, now = (data.get("reference") for data in (recorded, contents))
    if before and now and before != now:
        raise RunError(
            f"{run}: the reference images are not those this run was started with ({before['images']} then, "
            f"{now['images']} now). {advice}"
        )
    for key, what in (("reference_texts", "reference texts"), ("reference_names", "class names of the reference set")):
        loaded = all("reference" in data or key in data for data in (recorded, contents))
        if loaded and recorded.get(key) != contents.get(key):
            raise RunError(f"{run}: the {what} are not those this run was started with. {advice}")


def tell_replaced(results: Mapping[str, Any], sequence: TaskSequence, run: Path) -> None:
    """Warn about tasks whose images have other sizes or times than when the run was started, under the same names."""
    recorded = results.get("stamps")
    now = sequence.stamps() if isinstance(recorded, dict) and recorded else {}
    if names := [name for name, stamp in now.items() if recorded and recorded.get(name, stamp) != stamp]:
        log.warning(
            "%s: images of %s have other sizes or times than when this run was started: replaced, or copied? They are "
            "used as they are now", run, ", ".join(names),
        )  # fmt: skip


def _counts(task: Mapping[str, Any]) -> str:
    """Sizes of what a run uses. One that is evaluated on validation images has no test images."""
    evaluated = f"{task['test']} test" if task["test"] else f"{task['val']} validation"
    return f"{task['classes']} classes, {task['train']} training and {evaluated} images"
