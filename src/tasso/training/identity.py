"""What makes a run this run and no other, from what its options declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasso.config import METHOD, Option, RunConfig, options_of
from tasso.config.portable import portable_options


def identity(config: RunConfig) -> dict[str, Any]:
    """Options that make a run another one; hyper-parameters of the method are keys of their own, `method.rank`.

    The other options may change when a run is resumed. A different device may round differently, so the bits are the
    same only where the device is.
    """
    options = config.to_dict()
    hyper = {f"{METHOD}{key}": value for key, value in options.pop("method").items()}
    declared = options_of(RunConfig)
    return {**{key: value for key, value in options.items() if declared[key].identity}, **hyper}


def portable(options: Mapping[str, Any]) -> dict[str, Any]:
    """As `portable_options`, of options of a run and of any method."""
    declared = _declared(hyper_parameters=any(key.startswith(METHOD) for key in options))
    return portable_options(options, declared)


def _declared(hyper_parameters: bool) -> dict[str, Option]:
    if not hyper_parameters:
        return options_of(RunConfig)
    from tasso.methods import METHODS  # torch, which reports do without

    hyper = {f"{METHOD}{key}": option for cls in METHODS.values() for key, option in options_of(cls).items()}
    return {**options_of(RunConfig), **hyper}
