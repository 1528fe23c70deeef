"""How a task is optimised: gradients, optimiser, schedule, precision, what is kept when a task is stopped."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from axis_clip import Vectors
from conftest import in_memory
from method_runs import REPEATABLE, copied, learner_for, options_for, same
from tasso.config import from_dict
from tasso.data.images import Stream
from tasso.errors import ConfigError
from tasso.methods import METHODS, Batch, Group, Method, TaskInfo
from tasso.methods.base import Towers
from tasso.methods.finetune import FineTune
from tasso.methods.tasso import Tasso
from tasso.models.clip import Clip, FrozenImageEncoder
from tasso.models.inference import Inference
from tasso.models.towers import embed_images, repeats_itself
from tasso.training import engine
from tasso.training.checkpoints import save_checkpoint
from tasso.training.engine import Training, choose_precision, cpu_has_bfloat16
from tasso.training.resolve import resolve
from tasso.training.run_folder import read_tensors

EACH = pytest.mark.parametrize("name", REPEATABLE)


def advanced(training: Training, steps: int) -> Training:
    for _ in range(steps):
        training.advance()
    return training


# -- gradients -------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.usefixtures("float32")
def test_accumulated_gradients_equal_those_of_one_pass(quick: dict[str, Any], name: str) -> None:
    """Gradients, because the first step of Adam is the same for a gradient four times as large."""
    gradients, moves = [], []
    for accumulate in (1, 4):
        training = learner_for(quick, method=options_for(name), accumulate=accumulate).begin(0)
        named = {n: p for group in training.groups for n, p in group.parameters.items()}
        start = copied(dict(named))
        training.advance()
        gradients.append({n: p.grad.clone() for n, p in named.items() if p.grad is not None})
        advanced(training, 2)
        moves.append(torch.cat([(p.detach() - start[n]).flatten() for n, p in named.items()]))
    assert gradients[0].keys() == gradients[1].keys()
    assert len(gradients[0]) > 10
    for key, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][key], gradient, rtol=1e-3, atol=1e-5, msg=key)
    # Adam makes steps out of the rounding errors of gradients that are zero (those of the attention's key biases), so
    # three steps are compared as a whole.
    assert float((moves[0] - moves[1]).norm() / moves[0].norm()) < 0.05


# -- optimiser and schedule ------------------------------------------------------------------------------------


class Bowl(Method):
    """½ Σ c·w² for each of two groups in float64: the gradients c·w are known at every step."""

    name = "bowl"
    group_names = ("plain", "own")
    curvature: ClassVar[tuple[float, ...]] = (1.0, 0.02, 3.0)
    start: ClassVar[tuple[float, ...]] = (1.0, -2.0, 0.3)
    own: ClassVar[dict[str, float]] = {"lr": 0.2, "weight_decay": 0.7}

    @property
    def towers(self) -> Towers:
        return "none"

    def begin_task(self, task: TaskInfo) -> None:
        self.weights = {n: nn.Parameter(torch.tensor(self.start, dtype=torch.float64)) for n in self.group_names}

    def groups(self) -> list[Group]:
        return [
            Group("plain", {"w": self.weights["plain"]}),
            Group("own", {"w": self.weights["own"]}, self.own["lr"], self.own["weight_decay"]),
        ]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        curvature = torch.tensor(self.curvature, dtype=torch.float64)
        return {n: 0.5 * (curvature * w**2).sum() for n, w in self.weights.items()}


def adamw(rates: Sequence[float], weight_decay: float, betas: tuple[float, float]) -> np.ndarray:
    """Where AdamW (Loshchilov and Hutter, algorithm 2) goes in the bowl."""
    w, c = np.array(Bowl.start), np.array(Bowl.curvature)
    m, v = np.zeros(3), np.zeros(3)
    for t, rate in enumerate(rates, 1):
        g = c * w
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        w = w - rate * (m / (1 - betas[0] ** t) / (np.sqrt(v / (1 - betas[1] ** t)) + 1e-8) + weight_decay * w)
    return w


def authors_schedule(count: int, steps: int, warmup: int) -> list[float]:
    """The first factors on the learning rate in the code of ZSCL and its successors."""
    factors = []
    for step in range(count):
        if step < warmup:
            factors.append((step + 1) / warmup)
        else:
            factors.append(0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))))
    return factors


@pytest.mark.parametrize("warmup", [0, 2])
def test_steps_are_those_of_adamw(tiny_clip: Clip, warmup: int) -> None:
    """Cosine, warm-up, both betas, decoupled weight decay, and a group's own values."""
    config = from_dict({"lr": 0.1, "weight_decay": 0.3, "betas": [0.8, 0.95], "warmup": warmup})
    pixels = in_memory(torch.zeros(4, 3, 16, 16, dtype=torch.uint8), tiny_clip.preprocess)
    stream = Stream("task", pixels, np.zeros(4, np.int64), 2, (0,), torch.device("cpu"))
    method = Bowl()
    method.begin_task(TaskInfo(0, "bowl", (), (), 0))
    training = advanced(Training(tiny_clip, method, {"task": stream}, config, steps=4), 3)
    factors = authors_schedule(3, 4, warmup)
    for name, lr, weight_decay in (("plain", 0.1, 0.3), ("own", Bowl.own["lr"], Bowl.own["weight_decay"])):
        expected = adamw([lr * factor for factor in factors], weight_decay, config.betas)
        np.testing.assert_allclose(method.weights[name].detach().numpy(), expected, rtol=1e-12, err_msg=name)
    assert training.step == 3


@pytest.mark.parametrize("warmup", [0, 1, 3, 8, 20])
def test_learning_rates_follow_the_cosine_after_the_warm_up(quick: dict[str, Any], warmup: int) -> None:
    method = {**options_for("tasso"), "projector_lr": 0.02}
    training = learner_for(quick, method=method, steps=8, warmup=warmup).begin(0)
    rates: list[list[float]] = []
    training.optimizers[0].register_step_pre_hook(lambda o, *_: rates.append([float(g["lr"]) for g in o.param_groups]))
    advanced(training, 8)
    expected = [[lr * factor for lr in (1e-3, 0.02)] for factor in authors_schedule(8, 8, warmup)]
    np.testing.assert_allclose(rates, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("optimise", "encoder", "projector"),
    [
        ("alternate", [0, 2 / 3, 0, 0, 0.75, 0], [1 / 3, 0, 1, 1, 0, 0.25]),
        ("projector-first", [0, 0, 0, 0, 1, 0.5], [1 / 3, 2 / 3, 1, 1, 0, 0]),
    ],
)
def test_a_group_that_rests_does_so_while_rates_rise(
    quick: dict[str, Any], optimise: str, encoder: list[float], projector: list[float]
) -> None:
    method = {**options_for("tasso"), "optimise": optimise}
    training = learner_for(quick, method=method, steps=6, warmup=3, lr=1.0).begin(0)
    rates = []
    for training.step in range(6):
        training._set_learning_rates()
        rates.append({g["name"]: g["lr"] for g in training.optimizers[0].param_groups})
    assert [rate["encoder"] for rate in rates] == pytest.approx(encoder, abs=1e-12)
    assert [rate["projector"] for rate in rates] == pytest.approx(projector, abs=1e-12)


def test_options_of_the_optimiser_arrive(quick: dict[str, Any]) -> None:
    def groups(**options: Any) -> list[tuple[float, float, tuple[float, float]]]:
        settings = learner_for(quick, **options).begin(0).optimizers[0].param_groups
        return [(g["lr"], g["weight_decay"], tuple(g["betas"])) for g in settings]

    assert groups() == [(1e-3, 5e-4, (0.9, 0.999))] * 2, "as the authors' code"
    options = {"lr": 0.01, "weight_decay": 0.3, "betas": [0.8, 0.95]}
    assert groups(**options) == [(0.01, 0.3, (0.8, 0.95))] * 2, "the projector takes the run's values"
    method = {**options_for("tasso"), "projector_lr": 0.02, "projector_weight_decay": 0.0}
    assert groups(**options, method=method) == [(0.01, 0.3, (0.8, 0.95)), (0.02, 0.0, (0.8, 0.95))]


def test_resting_group_keeps_its_moments(quick: dict[str, Any]) -> None:
    training = learner_for(quick, method={**options_for("tasso"), "optimise": "alternate"}).begin(0)

    def moments() -> dict[str, dict[str, Tensor]]:
        return {
            group.name: copied({
                f"{name}/{key}": value
                for name, parameter in group.parameters.items()
                for key, value in training.optimizers[0].state[parameter].items()
            })
            for group in training.groups
        }  # fmt: skip

    advanced(training, 2)  # now both have moved once
    for moving, resting in (("projector", "encoder"), ("encoder", "projector")):
        before = moments()
        assert float(torch.cat([m.flatten() for m in before[resting].values()]).abs().sum()) > 0
        after = (training.advance(), moments())[1]
        assert same(after[resting], before[resting]), resting
        assert not same(after[moving], before[moving]), moving


# -- teacher and reference images ----------------------------------------------------------------------------


@pytest.mark.usefixtures("float32")
def test_teacher_is_the_model_of_the_task_before(quick: dict[str, Any]) -> None:
    learner = learner_for(quick)
    assert isinstance(learner.method, Tasso)

    def teacher() -> dict[str, Tensor]:
        assert isinstance(learner.method, Tasso)
        tower = learner.method.teacher_encoders["previous"].tower
        return {f"visual.{name}": t for name, t in copied(tower.state_dict()).items()}

    pretrained = copied(learner.clip.state("visual"))
    training = advanced(learner.begin(0), 3)
    assert same(teacher(), pretrained), "the student moves, the teacher does not"
    training.close()
    learner.method.end_task()
    after_first = copied(learner.clip.state("visual"))
    save_checkpoint(learner.clip, learner.method, learner.folder, 0, "dtd", {})
    training = learner.begin(1)
    assert same(teacher(), after_first)
    assert not same(after_first, pretrained)
    advanced(training, 2)
    assert same(teacher(), after_first)


def test_reference_images_are_cropped_anew_in_every_step(quick: dict[str, Any]) -> None:
    assert [(request.name, request.view) for request in Tasso().image_requests()] == [("reference", "train")]
    stream = learner_for(quick, reference_batch_size=36).begin(0).streams["reference"]  # all of them in each step
    views = []
    for step in (0, 1):
        seen = stream.batch(step)
        order = torch.argsort(seen.indices)
        assert seen.indices[order].tolist() == list(range(36))
        views.append(seen.pixels[order])
    views.append(stream.pixels.eval_view(np.arange(36)))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        changed = (views[one] != views[other]).flatten(1).any(1)
        assert float(changed.float().mean()) > 0.5, "some crops of images this small happen to be the same"


def test_crops_are_drawn_anew_in_every_step(tiny_clip: Clip) -> None:
    image = torch.arange(3 * 16 * 16, dtype=torch.int64).remainder(251).to(torch.uint8).view(1, 3, 16, 16)
    copies = in_memory(image.repeat(8, 1, 1, 1), tiny_clip.preprocess)
    stream = Stream("reference", copies, np.zeros(8, np.int64), 8, (0,), torch.device("cpu"))
    assert not torch.equal(stream.batch(0).pixels, stream.batch(1).pixels)


def test_student_and_teacher_see_the_same_reference_pixels(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[type, list[Tensor]] = {Clip: [], FrozenImageEncoder: []}

    def watch(cls: type, name: str) -> None:
        encode = getattr(cls, name)

        def spy(self: Any, pixels: Tensor) -> Tensor:
            seen[cls].append(pixels)
            result: Tensor = encode(self, pixels)
            return result

        monkeypatch.setattr(cls, name, spy)

    watch(Clip, "encode_images")
    watch(FrozenImageEncoder, "encode_images")
    training = learner_for(quick).begin(0)
    batches = [training.streams["reference"].batch(step).pixels for step in range(2)]
    advanced(training, 2)
    assert len(seen[Clip]) == len(seen[FrozenImageEncoder]) == 2
    for student, teacher, expected in zip(seen[Clip], seen[FrozenImageEncoder], batches, strict=True):
        assert torch.equal(teacher, expected)
        assert torch.equal(student[8:], expected)


# -- stopping and going on -------------------------------------------------------------------------------------


class Noisy(FineTune):
    """Fine-tuning that draws random numbers in every step."""

    name = "noisy"

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        terms = super().loss(batch)
        return {"ce": terms["ce"] * (0.5 + torch.rand(())), "noise": terms["ce"] * torch.rand(())}


def test_random_numbers_go_on_where_they_stopped(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "noisy", Noisy)
    options = {**quick, "method": {"name": "noisy"}, "steps": 6}
    whole = advanced(learner_for(options).begin(0), 4).state_dict()
    stopped = learner_for(options)
    training = advanced(stopped.begin(0), 2)
    stopped.folder.write_state(training.state_dict(), {})
    resumed = learner_for(options)
    training = resumed.begin(0)
    saved = read_tensors(resumed.folder.state_file)
    assert saved is not None
    training.load_state_dict(saved[0], "state")
    resumed_state = advanced(training, 2).state_dict()
    assert same(resumed_state, whole)
    plain = advanced(learner_for({**options, "method": {"name": "finetune"}}).begin(0), 4).state_dict()
    assert not all(torch.equal(plain[key], tensor) for key, tensor in whole.items() if key.startswith("model/"))


# -- precision -------------------------------------------------------------------------------------------------


def test_precision_is_chosen_by_the_device_and_recorded(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for fast, precision in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(engine, "cpu_has_fast_bfloat16", lambda fast=fast: fast)
        assert choose_precision("auto", torch.device("cpu")) == precision
    assert choose_precision("auto", torch.device("cuda")) == torch.bfloat16
    assert choose_precision("float32", torch.device("cuda")) == torch.float32
    config, _ = resolve(from_dict(quick))
    assert config.precision == "float32"
    learner = learner_for(quick)
    assert learner.clip.precision == torch.float32
    assert learner.config.precision == "float32"


@pytest.mark.usefixtures("float32")
def test_bfloat16_is_refused_where_it_fails(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "cpu_has_bfloat16", lambda: False)
    for option in ("precision", "teacher_precision"):
        with pytest.raises(ConfigError, match=f"^{option}: bfloat16 products fail on this CPU; use auto"):
            resolve(from_dict({**quick, option: "bfloat16"}))
    with pytest.raises(ConfigError, match="teacher_precision: must be auto with finetune, which has no teacher"):
        resolve(from_dict({**quick, "method": "finetune", "teacher_precision": "bfloat16"}))
    assert resolve(from_dict(quick))[0].precision == "float32", "auto does not need it"
    monkeypatch.setattr(engine, "cpu_has_bfloat16", lambda: True)
    assert resolve(from_dict({**quick, "precision": "bfloat16"}))[0].precision == "bfloat16"


def test_a_cpu_known_to_multiply_bfloat16_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    failed = SimpleNamespace(returncode=1)
    monkeypatch.setattr(engine.subprocess, "run", lambda *args, **more: tried.append(args) or failed)
    for fast in (True, False):
        monkeypatch.setattr(engine, "cpu_has_fast_bfloat16", lambda fast=fast: fast)
        assert engine.cpu_has_bfloat16.__wrapped__() is fast
    assert len(tried) == 1, "the other one"


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
@pytest.mark.skipif(HUGE_PAGES.is_file() and "[always]" in HUGE_PAGES.read_text(), reason="pages are large anyway")
def test_freed_memory_is_used_again() -> None:
    """Activations of one step would otherwise be new pages in the next."""
    code = """
import resource, torch
from tasso.training.engine import keep_freed_memory
keep_freed_memory(torch.device(DEVICE))
def step():
    return [torch.ones(3 * 2**21) for _ in range(8)]
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    faults = {}
    for device in ("cpu", "cuda"):
        run = [sys.executable, "-c", code.replace("DEVICE", repr(device))]
        faults[device] = int(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    assert faults["cpu"] < faults["cuda"] / 4, "of 245,760 pages; on a GPU nothing is changed"


def test_bfloat16_learns_nearly_the_same(quick: dict[str, Any]) -> None:
    if not cpu_has_bfloat16():
        pytest.skip("bfloat16 products fail on this CPU")
    features = {}
    for precision in ("float32", "bfloat16"):
        learner = learner_for(quick, precision=precision, lr=1e-4)
        training = learner.begin(0)
        for _ in range(2):
            assert all(math.isfinite(float(term)) for term in training.advance().values())
        with torch.no_grad():
            features[precision] = learner.clip.encode_images(training.streams["task"].pixels.eval_view(np.arange(36)))
        assert {p.dtype for p in learner.clip.model.parameters()} == {torch.float32}, "weights stay in float32"
    difference = float((features["bfloat16"] - features["float32"]).abs().max())
    assert 0 < difference < 3e-2


@pytest.mark.usefixtures("float32")
def test_teachers_may_have_a_precision_of_their_own(quick: dict[str, Any]) -> None:
    if not cpu_has_bfloat16():
        pytest.skip("bfloat16 products fail on this CPU")
    training = learner_for(quick, teacher_precision="bfloat16").begin(0)
    teacher = training.method.teacher_encoders["previous"]
    assert next(teacher.tower.transformer.parameters()).dtype == torch.float32, "layer norms stay"  # type: ignore[union-attr]
    weights = teacher.tower.get_submodule("transformer.resblocks.0.mlp.c_fc").parameters()
    assert {p.dtype for p in weights} == {torch.bfloat16}
    assert training.clip.precision == torch.float32
    assert all(math.isfinite(float(term)) for term in training.advance().values())
    usual = learner_for(quick).begin(0).method.teacher_encoders["previous"]
    assert {p.dtype for p in usual.tower.parameters()} == {torch.float32}


# -- the text tower --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["finetune", "snd", "tasso"])
def test_texts_are_encoded_once_and_their_tower_stays(
    quick: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[tuple[str, ...]] = Counter()

    def spy(
        self: Clip, texts: Sequence[str], encode: Callable[[Clip, Sequence[str]], Tensor] = Clip.encode_texts
    ) -> Tensor:
        calls[tuple(texts)] += 1
        return encode(self, texts)

    monkeypatch.setattr(Clip, "encode_texts", spy)
    learner = learner_for(quick, method=options_for(name))
    before = copied(learner.clip.model.state_dict())
    results = learner.run()
    assert results["finished"]
    projector = 24 * 6 if name == "tasso" else 0
    assert {about["trainable_parameters"] for about in results["per_task"]} == {
        results["parameters"]["image_tower"] + projector
    }
    after = learner.clip.model.state_dict()
    moved = {key for key, tensor in after.items() if not torch.equal(tensor, before[key])}
    assert moved
    assert all(key.startswith("visual.") for key in moved), "neither text tower nor logit scale"
    prompts = [tuple(f"a photo of a {c}." for c in task.class_names) for task in learner.sequence.tasks]
    del calls["a",]  # asked once to learn the length of an embedding
    assert calls == dict.fromkeys(prompts, 1)


# -- compiling -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_compiled_towers_learn_the_same(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # Traced and differentiated as always, but without the last stage, which needs a C++ compiler.
    wanted: list[object] = []

    def without_code(function: Any, dynamic: bool | None = False) -> Any:
        wanted.append(function)
        return torch.compile(function, backend="aot_eager", dynamic=dynamic)

    monkeypatch.setattr("tasso.models.clip.compiled_once", without_code)
    ends = []
    for compile in ("off", "on"):
        training = learner_for(quick, method=options_for("tasso"), compile=compile).begin(0)
        assert training.clip.compiled == (compile == "on")
        losses = [{name: float(term) for name, term in training.advance().items()} for _ in range(3)]
        ends.append(losses)
    for plain, compiled in zip(*ends, strict=True):
        assert compiled == pytest.approx(plain, rel=1e-4)
    assert len(wanted) == 3 * 3, "student, teacher and losses in each step"


@pytest.mark.parametrize("fault", ["none", "from the second call on", "always"])
def test_compiled_code_that_gives_other_embeddings_is_not_used(
    tiny_clip: Clip, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    calls = []

    def compiled(tower: Any, pixels: Tensor, linear: Any) -> Tensor:
        assert not torch.backends.cuda.cudnn_sdp_enabled(), "compiled code must not use cuDNN's attention"
        calls.append(fault)
        wrong = fault == "always" or (fault != "none" and len(calls) > 1)
        return embed_images(tower, pixels, linear).roll(int(wrong), 1)

    monkeypatch.setattr("tasso.models.clip.compiled_once", lambda function, dynamic: compiled)
    monkeypatch.setattr("tasso.models.clip._trusted", {})
    pixels = torch.randn(4, 3, 16, 16)
    expected = tiny_clip.encode_images(pixels)
    tiny_clip.compiled = True
    for _ in range(3):
        assert torch.equal(tiny_clip.encode_images(pixels), expected)
    right = fault == "none"
    assert len(caplog.records) == (0 if right else 1), "said once"
    compared = len(calls)
    tiny_clip.encode_images(pixels)
    assert len(calls) == compared + right
    assert torch.backends.cuda.cudnn_sdp_enabled(), "plain code may"


def test_what_is_random_or_counts_its_calls_is_not_compared(tiny_clip: Clip) -> None:
    assert repeats_itself(tiny_clip.visual)
    assert repeats_itself(tiny_clip.model)
    block: Any = tiny_clip.visual.transformer.resblocks[0]  # type: ignore[union-attr,index]
    hook = block.ln_2.register_forward_hook(lambda *_: None)
    assert not repeats_itself(tiny_clip.visual)
    hook.remove()
    block.mlp.append(nn.Dropout(0.1))
    assert not repeats_itself(tiny_clip.visual)


@pytest.mark.slow
def test_texts_are_compiled_twice_at_most(tiny_clip: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of texts differs from task to task, and after eight compilations PyTorch gives up."""
    counter = CompileCounter()
    monkeypatch.setattr(
        "tasso.models.clip.compiled_once",
        cache(lambda function, dynamic: torch.compile(function, backend=counter, dynamic=dynamic)),
    )
    torch.compiler.reset()
    tiny_clip.compiled = True
    for texts in (5, 6, 7, 9):
        tokens = tiny_clip.tokenise([f"a photo of {'a ' * texts}thing"] * texts)
        tiny_clip.encode_tokens(tokens)
    assert counter.frame_count == 2, "for the first shape, and for all others"


def test_a_set_is_embedded_in_evaluation_mode_which_is_set_once(
    tiny_clip: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[Any] = []
    monkeypatch.setattr(tiny_clip.model, "eval", lambda: modes.append("set") or tiny_clip.model.train(False))
    monkeypatch.setattr(tiny_clip, "encode_images", lambda pixels: modes.append(tiny_clip.visual.training) or pixels)
    tiny_clip.visual.train()
    Inference(tiny_clip).embed_all(Vectors(*torch.randn(3, 3, 16, 16)), 1)
    assert modes == ["set", False, False, False]


def test_compiling_is_left_alone_where_it_does_not_pay(quick: dict[str, Any]) -> None:
    assert not learner_for(quick).clip.compiled
    assert not learner_for(quick, steps=100_000).clip.compiled, "a small model on a CPU"
