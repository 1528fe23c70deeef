"""Fill in what a configuration leaves open: options of its benchmark, defaults of protocol and method, precision,
label, absolute paths."""

from __future__ import annotations

import dataclasses
from typing import Any

from tasso.config import (
    OWN_TASKS_HEAD,
    TASK_TEMPLATES,
    TEXTS,
    RunConfig,
    absolute_paths,
    read_templates,
    require,
    unwrap,
)
from tasso.data import BENCHMARKS, TASK_IMAGES, with_benchmark_options
from tasso.errors import ConfigError
from tasso.methods import Method
from tasso.methods.defaults import with_defaults
from tasso.training.engine import PRECISIONS, check_optimizer, choose_device, choose_precision


def resolve(config: RunConfig) -> tuple[RunConfig, Method]:
    """The configuration with all values filled in, and its method."""
    config = with_benchmark_options(config)
    resolved, method = with_defaults(config)
    method.resolve_auto(config)
    for key, path in absolute_paths(method).items():
        setattr(method, key, path)
    if method.whole_batch and config.accumulate > 1:
        raise ConfigError(
            f"accumulate: must be 1 with {method.name}, which compares the images of a batch with each other"
        )
    if method.towers == "none":
        own = f"with {method.name}, which trains modules of its own and no tower"
        require(config, "tune", config.tune == "full", f"must be full {own}")
        require(config, "checkpoint_activations", not config.checkpoint_activations, f"must be false {own}")
    if config.teacher_precision != "auto":
        rule = f"must be auto with {method.name}, which has no teacher"
        require(config, "teacher_precision", bool(method.teachers), rule)
    device = choose_device(config.device)
    precision = choose_precision(config.precision, device)
    choose_precision(config.teacher_precision, device, "teacher_precision")
    check_optimizer(config.optimizer, device)
    if config.tasks and config.step_rule is None and device.type == "cpu":
        resolved = dataclasses.replace(resolved, step_rule="quick")
    if resolved.head is None:
        resolved = dataclasses.replace(resolved, head=OWN_TASKS_HEAD if config.tasks else TEXTS)
    resolved = dataclasses.replace(resolved, **absolute_paths(resolved, names=(*BENCHMARKS, TASK_IMAGES)))
    return dataclasses.replace(
        resolved,
        method=method.hyper_parameters(),
        tasks=[_with_prompts(task) for task in resolved.tasks] if resolved.tasks else None,
        template=_prompts(unwrap(resolved.template)),
        label=label_of(config, method),
        precision=PRECISIONS[precision],
    ), method


def _prompts(template: str) -> str:
    """The prompts themselves, one per line: a file of them may be edited while the run is stopped."""
    return template if template == TASK_TEMPLATES else "\n".join(read_templates(template))


def _with_prompts(task: dict[str, Any]) -> dict[str, Any]:
    if "template" not in task:
        return task
    try:
        return {**task, "template": _prompts(task["template"])}
    except ConfigError as error:
        raise ConfigError(f"tasks: {task['name']}: {error}") from None


def label_of(config: RunConfig, method: Method) -> str:
    """The name in tables. It always names what stands in for a part of the method."""
    label = config.label or default_label(method, config)
    return label if method.stand_in in label else f"{label}, {method.stand_in}"


def default_label(method: Method, config: RunConfig) -> str:
    """The method's title with the hyper-parameters that are given and differ from its defaults."""
    _, default = with_defaults(dataclasses.replace(config, method={"name": method.name}))
    default.resolve_auto(config)
    defaults = default.hyper_parameters()
    changed = [
        f"{key} {value}"
        for key, value in method.hyper_parameters().items()
        if key in config.method and value != defaults[key] and not (isinstance(value, str) and "/" in value)  # no paths
    ]
    if config.head not in (None, method.run_defaults.get("head")):
        changed.append(f"head {config.head}")
    if config.tune != "full":
        changed.append(f"tune {config.tune}")
    changed += [f"{key} {value:g}" for key, value in config.lora_settings.items()]
    if config.protocol != "code":
        changed.append(f"protocol {config.protocol}")
    return method.title + (f" ({', '.join(changed)})" if changed else "")
