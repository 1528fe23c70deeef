"""Several processes that learn one run together, as torchrun starts them.

Each encodes its part of a batch. Features are then gathered, so that every process has those of the whole batch and
computes the very loss that one process alone would compute: whatever a method compares, it compares all of it. On the
way back each process follows its own images, and gradients are averaged.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tasso.errors import ConfigError, RunError

T = TypeVar("T")


@dataclass(frozen=True)
class Distributed:
    """This process among its fellows. Alone, everything here does nothing."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Is this the one that writes?"""
        return self.rank == 0

    def shard(self, length: int) -> slice:
        """This process's share of a batch."""
        size = length // self.world_size
        return slice(self.rank * size, (self.rank + 1) * size)

    def gather(self, features: Tensor) -> Tensor:
        """The rows of all processes, in the order of their ranks; gradients flow back to each one's own."""
        if self.world_size == 1:
            return features
        gathered: Tensor = _Gather.apply(features, self)
        return gathered

    def all_reduce_mean(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their mean over all processes, in one message for each kind of number."""
        if self.world_size == 1:
            return
        for dtype in {tensor.dtype for tensor in tensors}:
            some = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in some])
            dist.all_reduce(flat)
            flat /= self.world_size
            for tensor, mean in zip(some, torch.split(flat, [t.numel() for t in some]), strict=True):
                tensor.copy_(mean.view_as(tensor))

    def broadcast(self, tensor: Tensor, owner: int) -> Tensor:
        """The owner's values, on all processes; the others give a tensor of the same shape."""
        if self.world_size > 1:
            dist.broadcast(tensor, owner)
        return tensor

    def any(self, flag: bool, device: torch.device) -> bool:
        """Does any process say so?"""
        if self.world_size == 1:
            return flag
        said = torch.tensor(float(flag), device=device)
        dist.all_reduce(said, dist.ReduceOp.MAX)
        return bool(said)

    def barrier(self) -> None:
        """Until all have come this far."""
        if self.world_size > 1:
            dist.barrier()

    def main_first(self, make: Callable[[], T]) -> T:
        """The main process makes files that the others then find."""
        if not self.is_main:
            self.barrier()
        made = make()
        if self.is_main:
            self.barrier()
        return made

    def check_equal(self, tensors: Mapping[str, Tensor], when: str) -> None:
        """Raise a RunError unless these tensors are the same in all processes."""
        if self.world_size == 1:
            return
        sums = torch.stack([t.detach().double().sum() for t in tensors.values()])
        low, high = sums.clone(), sums.clone()
        dist.all_reduce(low, dist.ReduceOp.MIN)
        dist.all_reduce(high, dist.ReduceOp.MAX)
        for name, same in zip(tensors, (low == high).tolist(), strict=True):
            if not same:
                raise RunError(f"{when}: {name} differs between the processes, so they would learn different models")


SINGLE_PROCESS = Distributed()


def init_distributed(device: torch.device) -> Distributed:
    """The fellows that torchrun has started with this process, or none."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return SINGLE_PROCESS
    if not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)  # threads that still talk would end the process with an abort
    return Distributed(dist.get_rank(), dist.get_world_size())


def check_divisible(sizes: Mapping[str, int], distributed: Distributed) -> None:
    """Batches must fall into equal parts, or the mean over parts would not be that of the whole."""
    for key, size in sizes.items():
        if size % distributed.world_size:
            raise ConfigError(
                f"{key}: must be a multiple of the number of processes ({distributed.world_size}), not {size}"
            )


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, distributed: Distributed) -> Tensor:
        ctx.distributed = distributed
        parts = [torch.empty_like(features) for _ in range(distributed.world_size)]
        dist.all_gather(parts, features.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None]:
        # All processes have the same loss and gradients are averaged: each must answer for its part in full.
        distributed: Distributed = ctx.distributed
        return distributed.world_size * outer[0][distributed.shard(len(outer[0]))], None
