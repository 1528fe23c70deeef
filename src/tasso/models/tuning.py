"""Which weights of the towers are trained: all of them, or the few that `--tune` names.

The command `tasso tune` is another thing: it chooses a learning rate (`experiments/sweep/tune.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import nn

from tasso.errors import ConfigError

Named = Mapping[str, nn.Parameter]


def tuned(model: nn.Module, named: Named, tune: str) -> dict[str, nn.Parameter]:
    """Those of the named tower parameters that training changes.

    Args:
        named: parameters of one tower or both, by their names in the model.
        tune: `full`; `lora`: the matrices of all blocks, which are those of attention and MLP; `last:N`: the last N
            blocks of each tower and what comes after them; `norms`: gains and biases of normalisation layers.

    Raises:
        ConfigError: a tower has no such weights.
    """
    if tune == "full":
        return dict(named)
    found: dict[str, nn.Parameter] = {}
    for is_visual in sorted({name.startswith("visual.") for name in named}):
        tower = {name: p for name, p in named.items() if name.startswith("visual.") == is_visual}
        blocks = blocks_of(model, tower)
        if tune == "norms":
            chosen = {name: p for name, p in tower.items() if name.startswith(tuple(_norms(model)))}
        elif tune == "lora":
            chosen = {name: p for name, p in tower.items() if name.startswith(tuple(blocks)) and _is_matrix(p)}
        elif (count := int(tune.removeprefix("last:"))) <= len(blocks):
            chosen = _last(tower, blocks, count)
        else:
            chosen = {}
        if not chosen:
            title = "image" if is_visual else "text"
            raise ConfigError(f"tune: the {title} tower of this model has {len(blocks)} blocks, and nothing for {tune}")
        found |= chosen
    return found


def blocks_of(model: nn.Module, tower: Named) -> list[str]:
    """Those of `find_blocks` that have parameters of this tower."""
    return [block for block in find_blocks(model) if any(name.startswith(block) for name in tower)]


def find_blocks(model: nn.Module, name: str = "") -> Iterator[str]:
    """Names of the blocks of both towers, in the order of the model's modules, each with a dot behind it.

    Towers of any architecture have them: the members of the outermost lists of modules of one kind.
    """
    children = dict(model.named_children())
    of_one_kind = len({type(child) for child in children.values()}) == 1
    composite = all(list(child.children()) for child in children.values())
    if isinstance(model, nn.ModuleList | nn.Sequential) and of_one_kind and composite:
        yield from (f"{name}{key}." for key in children)
    else:
        for key, child in children.items():
            yield from find_blocks(child, f"{name}{key}.")


def _is_matrix(parameter: nn.Parameter) -> bool:
    return parameter.ndim >= 2 and parameter[0].numel() > 1


def _norms(model: nn.Module) -> Iterator[str]:
    return (f"{name}." for name, module in model.named_modules() if "norm" in type(module).__name__.lower())


def _last(tower: Named, blocks: list[str], count: int) -> dict[str, nn.Parameter]:
    """The last blocks, and what is listed behind the first one and in no block.

    A module's own parameters are listed before those of its children, so projections go by their names; and open_clip
    lists the token embedding behind the blocks.
    """
    names = list(tower)
    behind = names[next(i for i, name in enumerate(names) if name.startswith(blocks[0])) :]
    return {
        name: p
        for name, p in tower.items()
        if name.startswith(tuple(blocks[-count:]))
        or (not name.startswith(tuple(blocks)) and "embed" not in name and (name in behind or "proj" in name))
    }
