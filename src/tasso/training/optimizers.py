"""The optimisers: a small table by name, and what they accumulate per parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from tasso.config import OptimizerName
from tasso.errors import ConfigError

ParamGroups = list[dict[str, Any]]
CAPTURABLE: tuple[OptimizerName, ...] = ("adamw", "sgd")  # take learning rates as tensors, as CUDA graphs need them


def build_optimizers(
    name: OptimizerName, groups: ParamGroups, betas: tuple[float, float], capturable: bool = False
) -> list[Optimizer]:
    """Optimisers of parameter groups; each group has its `lr` and `weight_decay`.

    Args:
        betas: those of AdamW; the first is also the momentum of SGD.
        capturable: whether steps are captured as CUDA graphs.
    """
    return OPTIMIZERS[name](groups, betas, capturable)


def _adamw(groups: ParamGroups, betas: tuple[float, float], capturable: bool) -> list[Optimizer]:
    return [AdamW(groups, betas=betas, fused=True, capturable=capturable)]


def _sgd(groups: ParamGroups, betas: tuple[float, float], capturable: bool) -> list[Optimizer]:
    return [SGD(groups, momentum=betas[0], fused=True)]


def _muon(groups: ParamGroups, betas: tuple[float, float], capturable: bool) -> list[Optimizer]:
    """Muon for matrices, with steps as large as AdamW's, so that one learning rate fits both; AdamW for the rest."""
    if not hasattr(torch.optim, "Muon"):
        raise ConfigError(f"optimizer: muon needs torch.optim.Muon, which PyTorch {torch.__version__} does not have")
    matrices, rest = (_select(groups, is_matrix) for is_matrix in (True, False))
    optimizers: list[Optimizer] = []
    if matrices:
        optimizers.append(torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw"))
    return optimizers + (_adamw(rest, betas, capturable) if rest else [])


OPTIMIZERS: dict[OptimizerName, Callable[[ParamGroups, tuple[float, float], bool], list[Optimizer]]] = {
    "adamw": _adamw,
    "sgd": _sgd,
    "muon": _muon,
}


def _select(groups: ParamGroups, is_matrix: bool) -> ParamGroups:
    """The groups with their matrices only, or without them; empty groups are left out."""
    selected = [{**group, "params": [p for p in group["params"] if (p.ndim == 2) == is_matrix]} for group in groups]
    return [group for group in selected if group["params"]]


def optimizer_state(optimizers: Sequence[Optimizer], parameter: nn.Parameter) -> dict[str, Tensor]:
    """What the optimisers have accumulated for a parameter, by name."""
    states = [optimizer.state[parameter] for optimizer in optimizers if parameter in optimizer.state]
    return {key: value for state in states for key, value in state.items() if isinstance(value, Tensor)}


def load_optimizer_state(optimizers: Sequence[Optimizer], parameter: nn.Parameter, state: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_state` gave."""
    for optimizer in optimizers:
        if any(parameter is other for group in optimizer.param_groups for other in group["params"]):
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in state.items()}


def expected_state(optimizers: Sequence[Optimizer]) -> dict[nn.Parameter, dict[str, Tensor]]:
    """What each parameter has accumulated after its first step: the right names, shapes and types, but no values.

    Found by one step of an optimiser of the same kind on a small matrix.
    """
    expected: dict[nn.Parameter, dict[str, Tensor]] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            first = group["params"][0]
            probe = nn.Parameter(torch.zeros(2, 3, dtype=first.dtype, device=first.device))
            probe.grad = torch.zeros_like(probe)
            kind: Callable[[ParamGroups], Optimizer] = type(optimizer)
            trial = kind([{**group, "params": [probe]}])
            trial.step()
            found = optimizer_state([trial], probe)
            for parameter in group["params"]:
                expected[parameter] = {
                    key: torch.empty_like(parameter) if value.shape == probe.shape else value
                    for key, value in found.items()
                }
    return expected
