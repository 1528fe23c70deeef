"""What training needs of a GPU's memory, told before the first step.

Activations are not guessed: forward passes over one and two images say how many bytes an image keeps for the backward
pass, whatever the architecture, the precision and the weights that are trained.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from tasso.config import OptimizerName
from tasso.errors import LESS_MEMORY
from tasso.methods.base import numel
from tasso.models.clip import Clip, encode, stored_in
from tasso.models.towers import embed_images, embed_tokens
from tasso.models.tuning import blocks_of
from tasso.training.engine import Training

log = logging.getLogger("tasso")

STATE: dict[OptimizerName, int] = {"adamw": 2, "sgd": 1, "muon": 2}  # numbers per trained parameter, at most
GIB = 2**30
BESIDE = GIB  # images on the device, CUDA and its libraries: what measured peaks were higher on average


@dataclass(frozen=True)
class Memory:
    """Bytes.

    Attributes:
        held: the model, teachers and copies of weights, which are there before the first step.
        trained: gradients and optimiser state.
        activations: what a forward pass keeps for the backward pass.
    """

    held: int
    trained: int
    activations: int

    @property
    def total(self) -> int:
        """All of it, and what CUDA and the images take."""
        return self.held + self.trained + self.activations + BESIDE


def memory_needed(training: Training) -> Memory:
    """What the steps of a task need, without the images kept in memory. Methods' own modules are not counted."""
    clip, method, config = training.clip, training.method, training.config
    size, images = clip.preprocess.size, training.images_per_step // config.accumulate // clip.distributed.world_size
    pixels = torch.zeros(2, 3, size, size, device=clip.device)
    kept = _kept(clip, True, lambda n: encode(embed_images, clip.visual, pixels[:n], clip.precision), images)
    for texts in method.trained_texts({name: stream.batch_size for name, stream in training.streams.items()}):
        kept += _kept(clip, False, partial(_encode_texts, clip, texts[:1].repeat(2, 1)), len(texts))
    teachers = method.teacher_size(clip)
    copies = method.cost(clip).training - teachers
    of_a_teacher = stored_in(clip.teacher_precision or clip.precision).itemsize
    of_state = 2 if config.optimizer_precision == "bfloat16" else 4
    return Memory(
        held=4 * (numel(clip.model.parameters()) + copies) + of_a_teacher * teachers,
        trained=training.trainable_parameters * (4 + STATE[config.optimizer] * of_state),
        activations=kept,
    )


def _encode_texts(clip: Clip, tokens: Tensor, count: int) -> Tensor:
    return encode(embed_tokens, clip.model, tokens[:count], clip.precision)


def tell_memory(training: Training) -> None:
    """Log what is needed and what the GPU has, and warn if less is free."""
    device = training.clip.device
    if device.type != "cuda" or training.method.towers == "none":
        return
    needed = memory_needed(training)
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    log.info("needs about %.1f GiB; this GPU has %.1f", needed.total / GIB, total / GIB)
    more = needed.total - needed.held
    if more > free:
        log.warning("the steps need about %.1f GiB more and %.1f are free. %s", more / GIB, free / GIB, LESS_MEMORY)


def _kept(clip: Clip, is_visual: bool, forward: Callable[[int], Tensor], count: int) -> int:
    """Bytes that a tower's forward pass over `count` samples keeps."""
    clip.visual.eval()  # statistics of batch norm must not change
    one, two = saved_bytes(clip.model, forward, 1), saved_bytes(clip.model, forward, 2)
    kept = one + (count - 1) * (two - one)
    if clip.checkpointing:  # one block at a time is computed again
        blocks = len(blocks_of(clip.model, clip.parameters_of("visual" if is_visual else "text")))
        clip.checkpoint_activations(False)
        one, two = saved_bytes(clip.model, forward, 1), saved_bytes(clip.model, forward, 2)
        clip.checkpoint_activations()
        kept += count * (two - one) // max(1, blocks)
    clip.visual.train()
    return kept


def saved_bytes(model: nn.Module, forward: Callable[[int], Tensor], count: int) -> int:
    """Bytes that a forward pass over `count` samples keeps for its backward pass, beside the model itself."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor.detach()  # an output that its own graph holds would never be freed, nor would the graph

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = forward(count)  # while it is held, no memory is used twice
    del output
    return sum(size for place, size in sizes.items() if place not in own)
