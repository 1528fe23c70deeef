"""Data parallelism over the processes of one run, as torchrun starts them.

Every rank encodes its shard of each batch. Features are then gathered, so that every rank has those of the whole batch
and computes the same loss as a single process would, also for methods that compare images of a batch with each other.
In the backward pass each rank follows its own shard, and gradients are averaged over ranks.
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
    """Rank and collective operations of this process. With a world size of 1 all of them are no-ops."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """True for rank 0, the only rank that writes files and logs."""
        return self.rank == 0

    def shard(self, length: int) -> slice:
        """The rows of a batch of `length` images that this rank encodes."""
        size = length // self.world_size
        return slice(self.rank * size, (self.rank + 1) * size)

    def gather(self, features: Tensor) -> Tensor:
        """Concatenate the features of all ranks, in the order of ranks. Gradients flow to the rank's own rows.

        Args:
            features: (B / world_size, D), the same shape on all ranks.

        Returns:
            (B, D), the same values on all ranks.
        """
        if self.world_size == 1:
            return features
        gathered: Tensor = _Gather.apply(features, self)
        return gathered

    def all_reduce_sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors in place by their sum over all ranks, with one all-reduce per dtype."""
        if self.world_size == 1:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):  # in the same order on all ranks
            some = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in some])
            dist.all_reduce(flat)
            for tensor, total in zip(some, torch.split(flat, [t.numel() for t in some]), strict=True):
                tensor.copy_(total.view_as(tensor))

    def all_reduce_mean(self, tensors: Sequence[Tensor]) -> None:
        """As `all_reduce_sum`, the mean."""
        self.all_reduce_sum(tensors)
        if self.world_size > 1:
            torch._foreach_div_(list(tensors), self.world_size)

    def broadcast(self, tensor: Tensor, src: int) -> Tensor:
        """Fill `tensor` in place with the values of rank `src`. It has the same shape on all ranks."""
        if self.world_size > 1:
            dist.broadcast(tensor, src)
        return tensor

    def any(self, flag: bool, device: torch.device) -> bool:
        """True if the flag is set on any rank."""
        if self.world_size == 1:
            return flag
        reduced = torch.tensor(float(flag), device=device)
        dist.all_reduce(reduced, dist.ReduceOp.MAX)
        return bool(reduced)

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self.world_size > 1:
            dist.barrier()

    def main_first(self, call: Callable[[], T]) -> T:
        """Call a function on rank 0, then on the others, which find the files that rank 0 wrote."""
        if not self.is_main:
            self.barrier()
        result = call()
        if self.is_main:
            self.barrier()
        return result

    def check_equal(self, tensors: Mapping[str, Tensor], when: str) -> None:
        """Raise a RunError unless these tensors (compared by their sums) are equal on all ranks."""
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
    """Join the process group if torchrun started this process; otherwise a world size of 1."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return SINGLE_PROCESS
    if not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)  # else its threads abort the process at exit
    return Distributed(dist.get_rank(), dist.get_world_size())


def check_divisible(sizes: Mapping[str, int], distributed: Distributed) -> None:
    """Raise a ConfigError unless every rank gets a shard of the same size; else the mean over ranks would be wrong."""
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
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        # All ranks compute the same loss and gradients are averaged, so each rank's share counts world_size times.
        distributed: Distributed = ctx.distributed
        return distributed.world_size * grad_outputs[0][distributed.shard(len(grad_outputs[0]))], None
