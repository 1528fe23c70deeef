"""The optimisers: a small table by name, AdamW with moments in bfloat16, and what they accumulate per parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tasso.config import OptimizerName
from tasso.errors import ConfigError
from tasso.models.deferred import without_compiler

ParamGroups = list[dict[str, Any]]
CAPTURABLE: tuple[OptimizerName, ...] = ("adamw", "sgd")  # take learning rates as tensors, as CUDA graphs need them
AdamW, SGD = without_compiler(torch.optim.AdamW), without_compiler(torch.optim.SGD)


def build_optimizers(
    name: OptimizerName,
    groups: ParamGroups,
    betas: tuple[float, float],
    capturable: bool = False,
    precision: str = "float32",
) -> list[Optimizer]:
    """Optimisers of parameter groups; each group has its `lr` and `weight_decay`.

    Args:
        betas: those of AdamW; the first is also the momentum of SGD.
        capturable: whether steps are captured as CUDA graphs.
        precision: bfloat16: of AdamW only.
    """
    if precision == "bfloat16":
        return [RoundedAdamW(groups, betas)]
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
        optimizers.append(without_compiler(torch.optim.Muon)(matrices, adjust_lr_fn="match_rms_adamw"))
    return optimizers + (_adamw(rest, betas, capturable) if rest else [])


OPTIMIZERS: dict[OptimizerName, Callable[[ParamGroups, tuple[float, float], bool], list[Optimizer]]] = {
    "adamw": _adamw,
    "sgd": _sgd,
    "muon": _muon,
}


@without_compiler
class RoundedAdamW(Optimizer):
    """AdamW whose moments are kept in bfloat16, in half the memory, and rounded at random with the right mean.

    Rounded to the nearest number, a second moment v would never fall: 0.999 v is nearer to v than to the number below.
    The random bits follow from the parameter, the place in it and its step, so that runs which are resumed, captured or
    spread over processes have the same ones.
    """

    def __init__(self, groups: ParamGroups, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        super().__init__(groups, {"betas": betas, "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        number = 0
        for group in self.param_groups:
            for parameter in group["params"]:
                number += 1
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group, number)

    def _update(self, parameter: nn.Parameter, gradient: Tensor, group: dict[str, Any], number: int) -> None:
        state, (beta1, beta2), lr = self.state[parameter], group["betas"], group["lr"]
        if not isinstance(lr, Tensor):  # in float32 as where a step is captured: the same bits
            lr = torch.full((), lr, device=parameter.device)
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state |= {key: torch.zeros_like(parameter, dtype=torch.bfloat16) for key in ("exp_avg", "exp_avg_sq")}
        step = state["step"].add_(1)
        mean = state["exp_avg"].float().lerp_(gradient, 1 - beta1)
        square = state["exp_avg_sq"].float().mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        bits = random_bits(parameter, step, number)
        state["exp_avg"].copy_(rounded(mean, bits))
        state["exp_avg_sq"].copy_(rounded(square, bits >> 16))
        scale = square.div_(1 - beta2**step).sqrt_().add_(group["eps"])
        parameter.mul_(1 - lr * group["weight_decay"]).sub_(mean.div_(scale).mul_(lr / (1 - beta1**step)))


def rounded(values: Tensor, bits: Tensor) -> Tensor:
    """float32 rounded up or down to what bfloat16 can hold; the mean over all of the 16 lowest bits is the value."""
    return (values.view(torch.int32) + (bits & 0xFFFF) & -0x10000).view(torch.float32)


def random_bits(like: Tensor, step: Tensor, number: int) -> Tensor:
    """Hashes, int32, of this number, this step and the places in a tensor: Wellons' lowbias32 of their sum."""
    places = torch.arange(like.numel(), dtype=torch.int32, device=like.device).view(like.shape)
    x = places * 0x1E3779B1 + (step.int() * 0x1B873593 + number) * 0x2545F491
    x = (x ^ x >> 16 & 0xFFFF) * 0x7FEB352D  # the mask, since negative numbers are shifted with their sign
    x = (x ^ x >> 15 & 0x1FFFF) * -0x7B935975
    return x ^ x >> 16 & 0xFFFF


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
                    key: torch.empty_like(parameter, dtype=value.dtype) if value.shape == probe.shape else value
                    for key, value in found.items()
                }
    return expected
