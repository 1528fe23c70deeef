"""Time of a training step, and its share of the machine's matmul rate."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from tasso.experiments.bench.authors_step import AuthorsStep
from tasso.experiments.bench.random_tasks import random_learner
from tasso.experiments.bench.timing import Timing, describe_machine, matmul_rate, reset_peak_memory, time_calls
from tasso.kernels import without_kernels
from tasso.models.clip import stored_in
from tasso.training.checkpoints import save_checkpoint
from tasso.training.engine import Training, peak_memory_gib
from tasso.training.learner import Learner

RANK = 144  # the paper's; works for nano too


def bench_step(
    options: Mapping[str, Any],
    *,
    classes: int = 100,
    rounds: int = 5,
    calls: int | None = None,
    reference: bool = False,
    eager: bool = False,
) -> dict[str, Any]:
    """Time steps of one method.

    Args:
        options: options of a run: model, method, batch sizes, device, precision, compile, cuda_graphs.
        classes: classes per task; methods that train the text tower encode their prompts in every step.
        rounds, calls: as in `time_calls`.
        reference: also time our re-creation of the authors' step.
        eager: also time the same step without compilation and CUDA graphs.
    """
    learner = random_learner(options, classes=classes)
    device = learner.device
    result: dict[str, Any] = {"what": "step", **describe_step(learner, classes)}
    result["matmul_tflops"] = round(matmul_rate(device, stored_in(learner.clip.precision)), 2)
    started = time.perf_counter()
    training = begin_second_task(learner)
    training.advance()
    result["cuda_graphs"] = training.captured is not None
    result["seconds_to_first_step"] = round(time.perf_counter() - started, 2)
    reset_peak_memory(device)
    timing = time_calls(training.advance, device, rounds=rounds, calls=calls)
    images = sum(stream.batch_size for stream in training.streams.values())
    rate = {"images_per_second": round(images / timing.seconds, 1)}
    result |= {**timing.to_dict(), **rate, **peak_memory_gib(device)}
    training.close()
    del training, learner  # free their memory before the next measurement
    work = count_work(options, classes)
    result |= {"operations": work.operations, "tflop": round(work.tflop, 4)}
    result["tflops"] = round(result["tflop"] / timing.seconds, 2)
    result["share_of_matmul"] = round(result["tflops"] / result["matmul_tflops"], 4)
    if eager:
        result["eager"] = bench_eager(options, classes, rounds, calls)
        result["times_faster_than_eager"] = round(result["eager"]["seconds_ms"] / result["seconds_ms"], 2)
    if reference:
        result["reference"] = bench_reference(options, classes, rounds, calls)
        result["times_faster"] = round(result["reference"]["seconds_ms"] / result["seconds_ms"], 2)
    return result


def describe_step(learner: Learner, classes: int) -> dict[str, Any]:
    """The machine, and what a step computes."""
    return {
        **describe_machine(learner.device),
        "model": str(learner.clip.spec),
        "method": learner.config.method,
        "batch": [learner.config.batch_size, learner.config.reference_batch_size],
        "classes": classes,
        "precision": learner.config.precision,
        "compile": learner.clip.compiled,
    }


def begin_second_task(learner: Learner) -> Training:
    """Prepare the second task up to its first step, as if the first had been learned."""
    learner.begin(0).close()
    learner.method.end_task()
    save_checkpoint(learner.clip, learner.method, learner.folder, 0, "first", {})
    return learner.begin(1)


def time_steps(learner: Learner, rounds: int, calls: int | None) -> Timing:
    """Time steps of the learner's second task, after resetting peak memory."""
    training = begin_second_task(learner)
    try:
        reset_peak_memory(learner.device)
        return time_calls(training.advance, learner.device, rounds=rounds, calls=calls)
    finally:
        training.close()


def eager_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without compilation and CUDA graphs."""
    return {**options, "compile": "off", "cuda_graphs": False}


def full_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with all weights trained."""
    return {**{key: value for key, value in options.items() if not key.startswith("lora_")}, "tune": "full"}


class Work(NamedTuple):
    """What one step computes, not compiled: arithmetic, and PyTorch's operations that it takes (views are none)."""

    tflop: float
    operations: int


def count_work(options: Mapping[str, Any], classes: int) -> Work:
    """What a step of our forward passes computes, counted while it runs."""
    training = begin_second_task(random_learner(eager_options(options), classes=classes))
    training.advance()
    with OperationCounter() as counter:
        training.advance()
    with FlopCounterMode(display=False) as flops, without_kernels():  # it does not see into kernels of ours
        training.advance()
    training.close()
    return Work(float(flops.get_total_flops()) / 1e12, counter.operations)


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations of PyTorch that compute something. On a GPU each is a kernel or a few."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += not (func.is_view or "empty" in func.__name__)
        return func(*args, **(kwargs or {}))


def bench_eager(options: Mapping[str, Any], classes: int, rounds: int, calls: int | None) -> dict[str, Any]:
    learner = random_learner(eager_options(options), classes=classes)
    timing = time_steps(learner, rounds, calls)
    return {**timing.to_dict(), **peak_memory_gib(learner.device)}


def bench_reference(options: Mapping[str, Any], classes: int, rounds: int, calls: int | None) -> dict[str, Any]:
    """Time of the authors' step in float32, with TF32 off as by default in PyTorch; all weights are trained."""
    plain = {"precision": "float32", "teacher_precision": "auto", "checkpoint_activations": False}
    chosen = {**full_options(options), **plain, "method": {"name": "tasso", "rank": RANK}}
    learner = random_learner(chosen, classes=classes)
    step = AuthorsStep(learner, RANK)
    reset_peak_memory(learner.device)
    timing = time_calls(step, learner.device, warm_up=2, rounds=rounds, calls=calls and max(1, calls // 3))
    step.close()
    return {**timing.to_dict(), **peak_memory_gib(learner.device)}
