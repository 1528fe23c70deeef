"""What only a GPU can show. Skipped where there is none."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from method_runs import LEARNING, learn_first_task, learner_for, options_for, same
from tasso.config import from_dict
from tasso.data.images import OneSizePixels
from tasso.decoding.views import crop_draws
from tasso.errors import RunError
from tasso.methods import METHODS, Batch
from tasso.methods.finetune import FineTune
from tasso.models.clip import encode
from tasso.models.fp8 import has_fp8
from tasso.models.loading import load_clip
from tasso.models.towers import embed_images
from tasso.training.engine import Training
from tasso.training.learner import Learner, learn
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@pytest.fixture
def on_gpu(quick: dict[str, Any]) -> dict[str, Any]:
    return {**quick, "device": "cuda", "steps": 12}


# What saves memory. On a GPU a run is in bfloat16 by itself, and so are its teachers.
SAVINGS: list[dict[str, Any]] = [
    {"tune": "lora"},
    {"tune": "last:1"},
    {"tune": "norms"},
    {"precision": "float32", "teacher_precision": "bfloat16"},
    {"optimizer_precision": "bfloat16"},
    {"checkpoint_activations": True},
    {"tune": "lora", "checkpoint_activations": True},
]
SAVED = [(options_for(name), more) for name in ("tasso", "tasso-both") for more in SAVINGS]
EACH = [options_for(name) for name in LEARNING]


def losses(training: Training, steps: int = 12) -> list[dict[str, float]]:
    return [{key: float(term) for key, term in training.advance().items()} for _ in range(steps)]


@pytest.mark.parametrize(
    ("method", "more"),
    [(method, {"tune": tune}) for method in EACH for tune in ("full", "lora") if method["name"] != "moe-adapters"]
    + [(method, more) for method, more in SAVED if more != {"tune": "lora"}],
    ids=str,
)
def test_recorded_steps_are_the_same_steps(
    on_gpu: dict[str, Any], method: dict[str, Any], more: dict[str, Any]
) -> None:
    """Bit for bit, in the second task. (MoE-Adapters draws other random numbers when it is recorded.)"""
    learn_first_task(on_gpu, method=method, **more)
    curves = []
    for recorded in (False, True):
        training = learner_for(on_gpu, method=method, cuda_graphs=recorded, **more).begin(1)
        curves.append(losses(training))
        assert (training.captured is not None) == (recorded and "checkpoint_activations" not in more)
        if training.captured:
            assert len(training.captured.captures) == 1
        training.close()
    assert curves[0] == curves[1]


@pytest.mark.parametrize("name", LEARNING)
def test_a_run_is_finished(on_gpu: dict[str, Any], name: str) -> None:
    for more in ({}, {"cache_gib": 0.0, "workers": 2}):  # images in memory; images read ahead by threads
        out = f"{on_gpu['out']}-{len(more)}"
        results = learn(from_dict({**on_gpu, **more, "method": options_for(name), "out": out}))
        assert results["finished"]


def test_what_is_needed_is_announced(on_gpu: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "tasso"):
        learn_first_task(on_gpu)
    assert "this GPU has" in caplog.text


@pytest.mark.parametrize("tune", ["full", "lora", "last:1", "norms"])
@pytest.mark.parametrize("name", ["tasso", "tasso-both"])
def test_checkpointed_steps_have_about_the_same_gradients(on_gpu: dict[str, Any], name: str, tune: str) -> None:
    """Sums of gradients between blocks are rounded once more, so they are about as near to float32 as the others."""
    options = {**on_gpu, "method": options_for(name), "tune": tune, "cuda_graphs": False}
    exact, plain, checkpointed = (
        first_step(learner_for(options, precision=precision, checkpoint_activations=saves).begin(0))
        for precision, saves in (("float32", False), ("bfloat16", False), ("bfloat16", True))
    )
    assert checkpointed[0] == pytest.approx(plain[0], rel=1e-3)
    away, expected = ((found[1] - exact[1]).norm() for found in (checkpointed, plain))
    assert away <= 1.5 * expected + 0.01 * exact[1].norm()


def first_step(training: Training) -> tuple[dict[str, float], Tensor]:
    """Losses, and all gradients in one row."""
    terms = training.method.loss(training.batch())
    torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
    gradients = torch.cat([p.grad.flatten() for p in training.trained if p.grad is not None])
    training.close()
    return {name: float(term.detach()) for name, term in terms.items()}, gradients


def test_checkpointed_activations_take_less(on_gpu: dict[str, Any]) -> None:
    """Peak memory of a step, on top of what is held before it."""
    taken = []
    for checkpointed in (False, True):
        more = {"batch_size": 32, "reference_batch_size": 32, "model": "nano", "method": "finetune", "tune": "lora"}
        training = learner_for(on_gpu, cuda_graphs=False, checkpoint_activations=checkpointed, **more).begin(0)
        losses(training, 1)
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        losses(training, 1)
        taken.append(torch.cuda.max_memory_allocated() - held)
        training.close()
    assert taken[1] < 0.7 * taken[0]


def test_images_have_the_same_bits_on_the_gpu_and_read_when_needed(on_gpu: dict[str, Any]) -> None:
    indices, draws = np.array([7, 2, 2, 30]), crop_draws(np.random.default_rng(0), 4)
    views = []
    for gib in (8.0, 0.0):
        learner = learner_for(on_gpu, cache_gib=gib)
        pixels = learner.data.pixels(learner.sequence.tasks[0].train, "train")
        assert isinstance(pixels, OneSizePixels)
        assert (pixels.stack is not None and pixels.stack.is_cuda) == (gib > 0)
        views.append((pixels.train_view(indices, draws), pixels.eval_view(indices)))
    assert all(torch.equal(kept, read) for kept, read in zip(*views, strict=True))


HEADS = [({"name": "finetune"}, {"head": "lda"}), ({"name": "icarl", "memory": 20}, {"head": "nearest-mean"})]


@pytest.mark.parametrize(("method", "more"), [*((method, {}) for method in EACH), *HEADS, *SAVED], ids=str)
@pytest.mark.parametrize("recorded", [False, True], ids=["eager", "graph"])
def test_two_runs_of_one_seed_end_with_the_same_bits(
    on_gpu: dict[str, Any], method: dict[str, Any], more: dict[str, Any], recorded: bool
) -> None:
    """Two tasks, with what a method keeps after a task: experts, selector, memory, means."""
    runs = []
    for number in range(2):
        out = Path(f"{on_gpu['out']}-{number}")
        options = {**on_gpu, **more, "method": method, "cuda_graphs": recorded, "out": str(out)}
        results = learn(from_dict(options))
        tensors = {file.name: load_file(file) for file in sorted((out / "checkpoints").iterdir())}
        runs.append(({key: results[key] for key in ("mtil", "mcil", "alignment")}, tensors))
    assert runs[0][0] == runs[1][0]
    assert runs[0][1].keys() == runs[1][1].keys() != set()
    for name, tensors in runs[0][1].items():
        assert same(tensors, runs[1][1][name]), name


def test_projector_from_texts_is_recorded_like_any_other(on_gpu: dict[str, Any]) -> None:
    method = {**options_for("tasso"), "projector_init": "texts"}
    curves = []
    for recorded in (False, True):
        training = learner_for(on_gpu, method=method, cuda_graphs=recorded).begin(0)
        curves.append(losses(training))
        training.close()
    assert curves[0] == curves[1]


@pytest.mark.parametrize("optimise", ["alternate", "projector-first"])
def test_groups_that_rest_have_recordings_of_their_own(on_gpu: dict[str, Any], optimise: str) -> None:
    method = {**options_for("tasso"), "optimise": optimise}
    curves = []
    for recorded in (False, True):
        training = learner_for(on_gpu, method=method, cuda_graphs=recorded, steps=24).begin(0)
        curves.append(losses(training, 24))
        if training.captured:
            assert len(training.captured.captures) == 2
        training.close()
    assert curves[0] == curves[1]


@pytest.mark.parametrize("more", [{}, {"tune": "lora"}, {"optimizer_precision": "bfloat16"}], ids=str)
def test_resumed_run_goes_on_nearly_the_same(on_gpu: dict[str, Any], more: dict[str, Any]) -> None:
    whole = losses(learner_for(on_gpu, **more).begin(0))
    part = learner_for(on_gpu, **more).begin(0)
    losses(part, 6)
    state = {key: tensor.detach().clone().cpu() for key, tensor in part.state_dict().items()}
    again = learner_for(on_gpu, **more).begin(0)
    again.load_state_dict(state, "state")
    for resumed, expected in zip(losses(again, 6), whole[6:], strict=True):
        assert resumed == pytest.approx(expected, rel=1e-3)


class Waiting(FineTune):
    """A method that reads a number back in every step."""

    name = "waiting"

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        terms = super().loss(batch)
        return {"ce": terms["ce"] * (1 + 0 * float(terms["ce"].detach()))}


def test_a_step_that_waits_is_refused_with_advice(on_gpu: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "waiting", Waiting)
    with pytest.raises(RunError, match=r"cannot be captured as a CUDA graph.*--no-cuda-graphs"):
        learn(from_dict({**on_gpu, "method": {"name": "waiting"}}))
    out = f"{on_gpu['out']}-plain"
    assert learn(from_dict({**on_gpu, "method": {"name": "waiting"}, "cuda_graphs": False, "out": out}))["finished"]


def test_memory_of_a_task_is_given_back(on_gpu: dict[str, Any]) -> None:
    learner = learner_for({**on_gpu, "sequence": "dtd,eurosat,food-101"}, method="finetune")
    held = []
    for index in range(3):
        learner._learn_task(index)
        torch.cuda.synchronize()
        held.append(torch.cuda.memory_allocated())
    assert held[2] <= 1.02 * held[1], held


@pytest.mark.parametrize("grad", [False, True])
def test_compiled_encoders_give_the_same_embeddings_every_time(grad: bool) -> None:
    """With cuDNN's attention they did not, from the second call on, with nano and many images."""
    clip = load_clip("nano", None).to("cuda", torch.bfloat16)
    batches = [torch.randn(1024, 3, 64, 64, device="cuda") for _ in range(2)]

    def embeddings(compiled: bool) -> list[Tensor]:
        with torch.set_grad_enabled(grad):
            return [encode(embed_images, clip.visual, batches[i % 2], clip.precision, compiled) for i in range(12)]

    plain, compiled = embeddings(False), embeddings(True)
    for index, found in enumerate(compiled):
        assert torch.equal(found, compiled[index % 2])
        assert not torch.equal(found, plain[index]), "is it compiled?"
        assert float((found - plain[index]).norm(dim=-1).max()) < 0.05


def test_fp8_steps_are_near_those_of_bfloat16(on_gpu: dict[str, Any]) -> None:
    """Recorded as a CUDA graph or not, they are the same steps."""
    if not has_fp8(torch.device("cuda")):
        pytest.skip("this GPU has no products in fp8")
    options = {**on_gpu, "model": "nano", "method": {"name": "tasso", "rank": 72}, "batch_size": 8}
    learn_first_task(options)
    curves = []
    ways = (("bfloat16", True, "off"), ("fp8", False, "off"), ("fp8", True, "off"), ("fp8", True, "on"))
    for precision, recorded, compiled in ways:
        training = learner_for(options, precision=precision, cuda_graphs=recorded, compile=compiled).begin(1)
        curves.append(losses(training, 6))
        training.close()
    assert curves[1] == curves[2]
    for name, curve in product(("ce", "subspace"), curves[1:]):
        assert curve[0][name] == pytest.approx(curves[0][0][name], rel=0.05)


def test_bfloat16_learns_what_float32_learns(tmp_path: Path) -> None:
    """After 100 steps from one start. What another seed changes in float32 is the yardstick."""

    def learned(precision: str, seed: int) -> tuple[dict[str, Tensor], Tensor]:
        options = {
            "benchmark": "atlas", "sequence": "pets", "model": "nano", "method": {"name": "tasso", "rank": 72},
            "steps": 100, "lr": 1e-4, "device": "cuda", "precision": precision, "seed": seed,
            "out": str(tmp_path / f"{precision}-{seed}"),
        }  # fmt: skip
        config, method = resolve(from_dict(options))
        folder = RunFolder(config.out)
        folder.checkpoints.mkdir(parents=True)
        learner = Learner(config, method, folder)
        training = learner.begin(0)
        steps = [training.advance() for _ in range(100)]
        training.close()
        curves = {name: torch.stack([step[name] for step in steps]).cpu() for name in steps[0]}
        images = learner.data.cached(learner.sequence.tasks[0].test, "test")
        return curves, method.inference({"first": learner.sequence.tasks[0].class_names}).embed_all(
            images
        ).features.cpu()

    losses, features = learned("float32", 1102)

    def apart(other: tuple[dict[str, Tensor], Tensor]) -> tuple[dict[str, float], float]:
        relative = {name: float(((other[0][name] - c).abs() / c.abs()).mean()) for name, c in losses.items()}
        return relative, float((1 - (other[1] * features).sum(-1)).mean())

    (by_precision, features_by_precision), (by_seed, features_by_seed) = (
        apart(learned(*which)) for which in (("bfloat16", 1102), ("float32", 1))
    )
    for name, difference in by_precision.items():
        assert difference < 0.5 * by_seed[name], name
    assert features_by_precision < 0.1 * features_by_seed
