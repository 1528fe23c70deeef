"""Experts attached to both towers of a CLIP model.

They stand outside the model's modules, so that its state dict stays open_clip's own, and reach into it by hooks:
x ← x + MLP(LN₂ x) + y(x), where x is what the attention left. While no route is set the hooks do nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from open_clip.transformer import CustomResidualAttentionBlock, ResidualAttentionBlock
from torch import Tensor, nn

from tasso.distributed import SINGLE_PROCESS, Distributed
from tasso.errors import ConfigError, RunError
from tasso.methods.moe.experts import choose_experts, draw_experts, expert_shapes, mix_experts, most_chosen
from tasso.models.clip import Clip

PLAIN = -1  # the route of a sample that meets no experts

# The number of a task for all samples of a forward pass, or one number a sample.
Route = int | Tensor


@dataclass(frozen=True)
class Site:
    """A residual block of a tower: a place for experts."""

    name: str
    block: Any  # one of open_clip's
    batch_first: bool

    @property
    def width(self) -> int:
        """Length of a token."""
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
    """How many experts there are, and what they are like."""

    experts: int
    hidden: int
    top: int
    scale: float
    dropout: float


class Beside:
    """The experts beside one block, and its part of every task's router."""

    def __init__(self, width: int, design: Design, device: torch.device) -> None:
        self.width, self.design, self.device = width, design, device
        self.weights: dict[str, Tensor] = {}  # one row an expert
        self.frozen = torch.zeros(design.experts, dtype=torch.bool)
        # One matrix a task. That of the noise has served when the task is learned.
        self.gates: list[Tensor] = []
        self._forget_task()

    def _forget_task(self) -> None:
        self.trained: dict[str, nn.Parameter] = {}
        self.counts = torch.zeros(self.design.experts, dtype=torch.int64, device=self.device)

    def draw(self, generator: torch.Generator) -> None:
        """Fresh experts, and no task learned."""
        drawn = draw_experts(self.design.experts, self.design.hidden, self.width, generator)
        self.weights = {name: weight.to(self.device) for name, weight in drawn.items()}
        self.frozen.zero_()
        self.gates = []
        self._forget_task()

    def begin_task(self) -> None:
        """Make what the next task trains: a router, and those experts that are free.

        Frozen rows are not in the trained tensors at all, so neither weight decay nor the moments of AdamW can move
        them. A free expert that no sample of a batch chooses has gradient zero, not none: which ones these are is known
        on the device only.
        """
        self._forget_task()
        self.free = (~self.frozen).nonzero().squeeze(-1).to(self.device)
        rows = {name: weight[self.free] for name, weight in self.weights.items()} if len(self.free) else {}
        for name in ("gate", "noise"):
            rows[name] = torch.zeros(self.width, self.design.experts, device=self.device)
        self.trained = {name: nn.Parameter(tensor) for name, tensor in rows.items()}

    def end_task(self, freeze: int, distributed: Distributed) -> None:
        """Keep what was trained; the experts chosen most often never change again."""
        self.weights = {name: self.weight(name).detach() for name in self.weights}
        self.gates.append(self.trained["gate"].detach())
        counts = self.counts.double()
        distributed.all_reduce_mean([counts])  # every process counts its own images; only the order matters
        self.frozen[most_chosen(counts.cpu(), freeze)] = True
        self._forget_task()

    def weight(self, name: str) -> Tensor:
        """All rows as they are now, frozen and trained."""
        if name not in self.trained:
            return self.weights[name]
        return self.weights[name].index_copy(0, self.free, self.trained[name])

    def mixed(self, tokens: Tensor, route: Route, learning: bool) -> Tensor:
        """What the experts add to tokens (samples × tokens × width). Rows of samples without a route mean nothing."""
        gate, noise = self._router(route, learning)
        chosen, shares = choose_experts(tokens[:, 0], gate, noise, self.design.top)
        if learning:  # counted on the device: reading the counts would wait for it
            numbers = torch.arange(self.design.experts, device=chosen.device)
            self.counts += (chosen.flatten()[:, None] == numbers).sum(0)
        weights = {name: self.weight(name) for name in self.weights}
        dropout = self.design.dropout if learning else 0.0
        return mix_experts(tokens, weights, chosen, shares, self.design.scale, dropout)

    def _router(self, route: Route, learning: bool) -> tuple[Tensor, Tensor | None]:
        if learning:
            return self.trained["gate"], self.trained["noise"]
        if isinstance(route, int):
            return self.gates[route], None
        return torch.stack(self.gates)[route.clamp(min=0)], None


class Adapters:
    """Experts beside every block of both towers, and the route that samples take now."""

    def __init__(self, clip: Clip, design: Design) -> None:
        self.sites = find_sites(clip)
        self.blocks = {site.name: Beside(site.width, design, clip.device) for site in self.sites}
        self.version = 0  # changes whenever the same inputs may give other outputs
        self._route: Route | None = None
        self._learning = False
        self._residuals: dict[str, Tensor] = {}
        self._hooks = [hook for site in self.sites for hook in self._hooked(site)]

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
        self.version += 1  # an optimiser step follows
        try:
            with self.routed(self.learned):
                yield
        finally:
            self._learning = False

    def _hooked(self, site: Site) -> Iterator[Any]:
        def remember(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            if self._route is not None:
                self._residuals[site.name] = args[0]

        def add(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            if self._route is None:
                return None
            residual = self._residuals.pop(site.name)
            tokens = residual if site.batch_first else residual.transpose(0, 1)
            extra = self.blocks[site.name].mixed(tokens, self._route, self._learning)
            if not site.batch_first:
                extra = extra.transpose(0, 1)
            together = output + extra.to(output.dtype)
            if isinstance(self._route, int):
                return together
            samples = self._route[:, None, None] if site.batch_first else self._route[None, :, None]
            return torch.where(samples >= 0, together, output)

        yield site.block.ln_2.register_forward_pre_hook(remember)
        # After the MLP and its layer scale, where a model has one: experts are not scaled with it.
        yield site.block.ls_2.register_forward_hook(add)

    # -- tasks -----------------------------------------------------------------------------------------------

    @property
    def learned(self) -> int:
        """How many tasks have a router."""
        return len(next(iter(self.blocks.values())).gates)

    @property
    def free(self) -> int:
        """How many experts may still change, in all blocks together."""
        return sum(int((~block.frozen).sum()) for block in self.blocks.values())

    def draw(self, generator: torch.Generator) -> None:
        """Fresh experts everywhere, and no task learned."""
        for block in self.blocks.values():
            block.draw(generator)
        self.version += 1

    def begin_task(self) -> None:
        """Make what the next task trains."""
        for block in self.blocks.values():
            block.begin_task()
        self.version += 1

    def end_task(self, freeze: int, distributed: Distributed = SINGLE_PROCESS) -> None:
        """Keep what was trained, and freeze this many experts in each block."""
        for block in self.blocks.values():
            block.end_task(freeze, distributed)
        self.version += 1

    def trained(self) -> dict[str, nn.Parameter]:
        """What the task at hand trains."""
        return {f"{name}.{key}": p for name, block in self.blocks.items() for key, p in block.trained.items()}

    # -- saving ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Tensors that change while a task is learned."""
        counts = {f"{name}.counts": block.counts for name, block in self.blocks.items()}
        return {**{name: parameter.detach() for name, parameter in self.trained().items()}, **counts}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state` gave, after `begin_task`."""
        with torch.no_grad():
            for name, tensor in self.state().items():
                tensor.copy_(state[name])
        self.version += 1

    def lasting_state(self) -> dict[str, Tensor]:
        """Experts, which of them are frozen, and the routers of all tasks learned."""
        state: dict[str, Tensor] = {}
        for name, block in self.blocks.items():
            state |= {f"experts/{name}/{key}": weight for key, weight in block.weights.items()}
            state[f"frozen/{name}"] = block.frozen
            state[f"routers/{name}"] = torch.stack(block.gates)
        return state

    def load_lasting_state(self, state: Mapping[str, Tensor], tasks: int, where: str) -> None:
        """Put back what `lasting_state` gave after this many tasks."""
        found: dict[str, Tensor] = {}
        for name, block in self.blocks.items():
            design = block.design
            shapes = {
                f"experts/{name}/{key}": shape
                for key, shape in expert_shapes(design.experts, design.hidden, block.width).items()
            }
            shapes |= {
                f"frozen/{name}": (design.experts,),
                f"routers/{name}": (tasks, block.width, design.experts),
            }
            found |= {key: fitting(state, key, shape, where) for key, shape in shapes.items()}
        # Only now that everything fits is anything changed.
        for name, block in self.blocks.items():
            block._forget_task()
            names = expert_shapes(1, 1, 1)
            block.weights = {key: found[f"experts/{name}/{key}"].to(block.device, copy=True) for key in names}
            block.frozen = found[f"frozen/{name}"].to("cpu", torch.bool, copy=True)
            block.gates = list(found[f"routers/{name}"].to(block.device, copy=True))
        self.version += 1


def fitting(state: Mapping[str, Tensor], name: str, shape: tuple[int, ...], where: str) -> Tensor:
    """A tensor that must be there and have this shape; −1 stands for any length."""
    if name not in state:
        raise RunError(f"{where}: tensor {name!r} is missing: not a whole checkpoint of moe-adapters")
    found = tuple(state[name].shape)
    if len(found) != len(shape) or any(want not in (-1, have) for want, have in zip(shape, found, strict=True)):
        raise RunError(
            f"{where}: tensor {name!r} has shape {found} instead of {shape}: the checkpoint of another model or of "
            "moe-adapters with other options"
        )
    return state[name]
