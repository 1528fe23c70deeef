"""Options of a run as keywords, for editors: written by `python tools/options_page.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from tasso.config.run import EvaluatedSplit, HeadName, OptimizerName, Protocol, StepRule, Tracker

if TYPE_CHECKING:
    from torch import nn

# A model, its tokenizer and its preprocessing, as open_clip or transformers make them.
ModelObject: TypeAlias = "tuple[nn.Module, Callable[..., Any], Any]"


class RunOptions(TypedDict, total=False):
    """Options of `tasso run`: what `RunConfig` declares, and what is converted to it."""

    benchmark: str
    tasks: Mapping[str, Any] | Sequence[str] | Sequence[Mapping[str, Any]] | None
    data_root: str | Path | None
    sequence: str
    limit_tasks: int | None
    split_classes: str | None
    class_order: str | None
    score_seen: bool
    same_names: Literal["one", "apart"] | None
    evaluate_on: EvaluatedSplit
    evaluate_every: int
    test_per_class: int | None
    check_counts: bool
    shots: int | None
    test_share: float
    val_share: float
    split_seed: int
    reference: str | None
    reference_images: int
    reference_seed: int
    reference_texts: str | Path | None
    pack_dir: str | Path | None
    pack_size: int
    corrupt: Literal["error", "skip"]
    model: str | ModelObject
    pretrained: str | None
    template: str | None
    head: HeadName | None
    method: str | Mapping[str, Any]
    protocol: Protocol
    steps: int | None
    step_rule: StepRule | None
    batch_size: int
    reference_batch_size: int
    accumulate: int
    lr: float | Literal["auto"]
    weight_decay: float | None
    optimizer: OptimizerName
    tune: str
    lora_rank: int
    lora_alpha: float
    lora_lr_factor: float
    betas: tuple[float, float]
    warmup: int
    seed: int
    device: str
    precision: Literal["auto", "float32", "bfloat16", "fp8"]
    teacher_precision: Literal["auto", "bfloat16", "fp8"]
    optimizer_precision: Literal["float32", "bfloat16"]
    compile: Literal["auto", "on", "off"]
    cuda_graphs: bool
    checkpoint_activations: bool
    eval_batch_size: int | None
    workers: int
    cache_gib: float
    out: str | Path
    label: str | None
    save_minutes: float
    save_every: int | None
    overwrite: bool
    track: Tracker | None
