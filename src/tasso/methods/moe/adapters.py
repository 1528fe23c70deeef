"""Experts attached to both towers of a CLIP model.

They are not submodules of the model, so that its state dict stays open_clip's own; forward hooks add their output:
x ← x + MLP(LN₂ x) + y(x), where x is the output of the attention. While no route is set the hooks do nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from open_clip.transformer import CustomResidualAttentionBlock, ResidualAttentionBlock
from torch import Tensor, nn

from tasso.distributed import SINGLE_PROCESS, Distributed
from tasso.errors import ConfigError
from tasso.methods.moe.experts import choose_experts, draw_experts, expert_shapes, mix_experts, most_chosen
from tasso.models.clip import Clip

PLAIN = -1  # the route of a sample that goes through plain CLIP

# The index of a task for all samples of a forward pass, or one index per sample (B,).
Route = int | Tensor


@dataclass(frozen=True)
class Site:
    """A residual block of a tower, which experts can be attached to."""

    name: str
    block: Any  # one of open_clip's
    batch_first: bool

    @property
    def width(self) -> int:
        """Width of a token."""
        return int(self.block.ln_2.normalized_shape[0])


def find_sites(clip: Clip) -> list[Site]:
    """The residual blocks of both towers."""
    text = getattr(clip.model, "text", clip.model)  # open_clip.CLIP has its text tower unpacked
    sites = []
    for name, tower in (("visual", clip.visual), ("text", text)):
        transformer = getattr(tower, "transformer", None)
        blocks = list(getattr(transformer, "resblocks", ()))
        if not blocks or not all(isinstance(b, ResidualAttentionBlock | CustomResidualAttentionBlock) for b in blocks):
            raise ConfigError(
                f"model: moe-adapters needs towers of open_clip's own residual attention blocks, and the "
                f"{'image' if name == 'visual' else 'text'} tower of {clip.spec} has none"
            )
        batch_first = bool(getattr(transformer, "batch_first", True))
        sites += [Site(f"{name}.{number}", block, batch_first) for number, block in enumerate(blocks)]
    return sites


@dataclass(frozen=True)
class Design:
    """Number and kind of the experts of each block."""

    experts: int
    hidden: int
    top: int
    scale: float
    dropout: float


class BlockExperts(nn.Module):
    """The experts of one block, and its part of every task's router.

    Attributes:
        down, down_bias, up, up_bias: weights of all experts, one row per expert.
        frozen: (experts,) which of them are frozen.
        gates: (tasks, width, experts), the routers of the tasks learned. Their noise is not needed any more.
        trained: what the current task trains: rows of experts that are not frozen, and `gate` and `noise`.
        counts: (experts,) how often each was chosen in this task.
    """

    frozen: Tensor
    gates: Tensor
    counts: Tensor

    def __init__(self, width: int, design: Design, device: torch.device) -> None:
        super().__init__()
        self.width, self.design = width, design
        self.shapes = expert_shapes(design.experts, design.hidden, width)
        for name, shape in self.shapes.items():
            self.register_buffer(name, torch.zeros(shape, device=device))
        self.register_buffer("frozen", torch.zeros(design.experts, dtype=torch.bool, device=device))
        self.register_buffer("gates", torch.zeros(0, width, design.experts, device=device))
        self.register_buffer("counts", torch.zeros(design.experts, dtype=torch.int64, device=device))
        self.trained = nn.ParameterDict()

    def draw(self, generator: torch.Generator) -> None:
        """Fresh experts, and no task learned."""
        self.set_tasks(0)
        self.frozen.zero_()
        for name, weight in draw_experts(self.design.experts, self.design.hidden, self.width, generator).items():
            self.get_buffer(name).copy_(weight)

    def set_tasks(self, count: int) -> None:
        """Give `gates` the shape it has after this many tasks, and forget the current task."""
        self.gates = self.gates.new_zeros(count, *self.gates.shape[1:])
        self.counts.zero_()
        self.trained = nn.ParameterDict()

    def begin_task(self) -> None:
        """Make what the next task trains: a router, and the experts that are not frozen.

        Frozen rows are not in the trained tensors at all, so neither weight decay nor momentum can move them. An expert
        that no sample of a batch chooses has gradient zero, not None: which ones these are is known on the device only.
        """
        self.counts.zero_()
        self.free_rows: list[int] = (~self.frozen).nonzero().squeeze(-1).tolist()
        rows = {name: self.get_buffer(name)[self.free_rows] for name in self.shapes} if self.free_rows else {}
        for name in ("gate", "noise"):
            rows[name] = self.gates.new_zeros(self.gates.shape[1:])
        self.trained = nn.ParameterDict({name: nn.Parameter(tensor) for name, tensor in rows.items()})

    def end_task(self, freeze: int, distributed: Distributed) -> None:
        """Keep what was trained, and freeze the experts chosen most often."""
        for name in self.shapes:
            setattr(self, name, self.weight(name).detach())
        self.gates = torch.cat([self.gates, self.trained["gate"].detach()[None]])
        counts = self.counts.double()
        distributed.all_reduce_mean([counts])  # every process counts its own images; only the order matters
        self.frozen[most_chosen(counts, freeze)] = True
        self.counts.zero_()
        self.trained = nn.ParameterDict()

    def weight(self, name: str) -> Tensor:
        """All rows as they are now, frozen and trained."""
        if name not in self.trained:
            return self.get_buffer(name)
        trained: Tensor = self.trained[name]
        if len(trained) == self.design.experts:
            return trained
        rows = list(self.get_buffer(name).unbind())
        for expert, row in zip(self.free_rows, trained.unbind(), strict=True):
            rows[expert] = row
        return torch.stack(rows)

    def forward(self, tokens: Tensor, route: Route, learning: bool) -> Tensor:
        """What the experts add to tokens (B, length, width). Rows of samples with the route PLAIN mean nothing."""
        gate, noise = self._router(route, learning)
        shares = choose_experts(tokens[:, 0], gate, noise, self.design.top)
        if learning:  # counted on the device: reading the counts would wait for it
            self.counts += (shares > 0).sum(0)
        weights = {name: self.weight(name) for name in self.shapes}
        dropout = self.design.dropout if learning else 0.0
        return mix_experts(tokens, weights, self.design.scale * shares, dropout)

    def _router(self, route: Route, learning: bool) -> tuple[Tensor, Tensor | None]:
        if learning:
            return self.trained["gate"], self.trained["noise"]
        return self.gates[route if isinstance(route, int) else route.clamp(min=0)], None


class Adapters(nn.Module):
    """Experts at every block of both towers, and the route that samples take now."""

    def __init__(self, clip: Clip, design: Design) -> None:
        super().__init__()
        sites = find_sites(clip)
        self.visual, self.text = (
            nn.ModuleList(
                BlockExperts(site.width, design, clip.device) for site in sites if site.name.startswith(tower)
            )
            for tower in ("visual", "text")
        )
        self.blocks = dict(zip([site.name for site in sites], [*self.visual, *self.text], strict=True))
        self.version = 0  # changes whenever the same inputs may give other outputs
        self.register_load_state_dict_post_hook(lambda *_: self._changed())  # type: ignore[no-untyped-call]
        self._route: Route | None = None
        self._learning = False
        self._residuals: dict[str, Tensor] = {}
        self._hooks = [hook for site in sites for hook in self._hooked(site)]

    def _changed(self) -> None:
        self.version += 1

    def detach(self) -> None:
        """Take the hooks out of the model."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # -- forward passes --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def routed(self, route: Route) -> Iterator[None]:
        """Samples of forward passes in here go through the routers of these tasks."""
        if not (isinstance(route, int) and route == PLAIN):
            self._route = route
        try:
            yield
        finally:
            self._route = None
            self._residuals.clear()

    @contextlib.contextmanager
    def learning(self) -> Iterator[None]:
        """All samples go through the new task's router, with noise and dropout, and choices are counted."""
        self._learning = True
        self._changed()  # an optimiser step follows
        try:
            with self.routed(self.learned):
                yield
        finally:
            self._learning = False

    def _hooked(self, site: Site) -> Iterator[Any]:
        def store_residual(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            if self._route is not None:
                self._residuals[site.name] = args[0]

        def add_experts(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            if self._route is None:
                return None
            residual = self._residuals.pop(site.name)
            tokens = residual if site.batch_first else residual.transpose(0, 1)
            extra: Tensor = self.blocks[site.name](tokens, self._route, self._learning)
            if not site.batch_first:
                extra = extra.transpose(0, 1)
            together = output + extra.to(output.dtype)
            if isinstance(self._route, int):
                return together
            samples = self._route[:, None, None] if site.batch_first else self._route[None, :, None]
            return torch.where(samples >= 0, together, output)

        yield site.block.ln_2.register_forward_pre_hook(store_residual)
        # After the MLP and its layer scale, where a model has one: experts are not scaled with it.
        yield site.block.ls_2.register_forward_hook(add_experts)

    # -- tasks -----------------------------------------------------------------------------------------------

    @property
    def learned(self) -> int:
        """How many tasks have a router."""
        return len(next(iter(self.blocks.values())).gates)

    @property
    def free(self) -> int:
        """How many experts are not frozen, in all blocks together."""
        return sum(int((~block.frozen).sum()) for block in self.blocks.values())

    def draw(self, generator: torch.Generator) -> None:
        """Fresh experts everywhere, and no task learned."""
        for block in self.blocks.values():
            block.draw(generator)
        self._changed()

    def set_tasks(self, count: int) -> None:
        """Give the routers the shape they have after this many tasks."""
        for block in self.blocks.values():
            block.set_tasks(count)
        self._changed()

    def begin_task(self) -> None:
        """Make what the next task trains."""
        for block in self.blocks.values():
            block.begin_task()
        self._changed()

    def end_task(self, freeze: int, distributed: Distributed = SINGLE_PROCESS) -> None:
        """Keep what was trained, and freeze this many experts in each block."""
        for block in self.blocks.values():
            block.end_task(freeze, distributed)
        self._changed()

    def trained(self) -> dict[str, nn.Parameter]:
        """What the current task trains."""
        return {f"{name}.{key}": p for name, block in self.blocks.items() for key, p in block.trained.items()}
