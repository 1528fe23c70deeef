"""When kernels are used, and what is prepared for them. No GPU is needed."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from method_runs import learner_for, options_for
from tasso import kernels
from tasso.kernels import SWITCH, has_kernels, without_kernels
from tasso.methods import METHODS
from tasso.models import blocks, towers
from tasso.models.blocks import Operations, Residual
from tasso.models.clip import Clip
from tasso.training import learner as learner_module

pytest.importorskip("triton")

from tasso.kernels import rounding, sums
from tasso.models import fp8, fused

CUDA = torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_can_run", lambda device: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


def test_a_cpu_has_no_kernels() -> None:
    assert not has_kernels(torch.device("cpu"))


@pytest.mark.usefixtures("gpu")
def test_they_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_kernels(CUDA)
    with without_kernels():
        assert not has_kernels(CUDA)
        with without_kernels():
            pass
        assert not has_kernels(CUDA)
    assert has_kernels(CUDA)
    monkeypatch.setenv(SWITCH, "0")
    assert not has_kernels(CUDA)


def test_rows_are_rounded_to_fp8_by_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are too wide for it, or compiled code does it."""
    calls: list[int] = []

    def by_kernel(rows: Tensor, dtype: torch.dtype, tiny: float) -> tuple[Tensor, Tensor]:
        calls.append(rows.shape[1])
        return rows.to(dtype), torch.ones(len(rows), 1)

    monkeypatch.setattr(rounding, "rounded", by_kernel)
    fp8.rounded(torch.ones(2, 16))
    assert not calls, "a CPU"
    monkeypatch.setattr(fp8, "has_kernels", lambda device: True)
    for width in (16, rounding.WIDEST, rounding.WIDEST + 1):
        fp8.rounded(torch.ones(2, width))
    with monkeypatch.context() as compiling:
        compiling.setattr(torch.compiler, "is_compiling", lambda: True)
        fp8.rounded(torch.ones(2, 16))
    assert calls == [16, rounding.WIDEST]


def test_old_gpus_and_machines_without_triton_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "column_sums", lambda parts: parts)
    monkeypatch.setattr(torch, "ones", lambda *shape, device: None)
    for capability, triton, expected in (((8, 0), True, True), ((7, 5), True, False), ((9, 0), False, False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, c=capability: c)
        monkeypatch.setattr(kernels, "find_spec", lambda name, there=triton: there or None)
        assert kernels._can_run.__wrapped__(CUDA) is expected


def test_where_triton_fails_there_are_none(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It needs a C compiler, for instance. The run goes on without kernels, and says so once."""

    def fail(parts: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch, "ones", lambda *shape, device: None)
    monkeypatch.setattr(sums, "column_sums", fail)
    kernels._can_run.cache_clear()
    assert not has_kernels(CUDA)
    assert not has_kernels(torch.device("cuda:0"))
    kernels._can_run.cache_clear()
    assert caplog.text.count("Failed to find C compiler") == 1


def test_a_device_without_a_number_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is tried once."""
    tried: list[torch.device] = []
    monkeypatch.setattr(kernels, "_can_run", lambda device: tried.append(device) or True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert has_kernels(CUDA)
    assert has_kernels(torch.device("cuda:1"))
    assert tried == [torch.device("cuda:3"), torch.device("cuda:1")]


@pytest.mark.usefixtures("gpu")
def test_kernels_are_imported_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(kernels, "import_module", imported.append)
    kernels.import_meanwhile(torch.device("cpu"))
    assert not imported
    for fails in (False, True):
        if fails:  # what uses the kernels will meet and tell it
            monkeypatch.setattr(kernels, "has_kernels", lambda device: 1 / 0)
        before = set(threading.enumerate())
        kernels.import_meanwhile(CUDA)
        for thread in set(threading.enumerate()) - before:
            assert not thread.daemon, "ended while it launches, it would abort the process"
            thread.join()
    folder = Path(kernels.__file__).parent
    assert sorted(imported) == [f"tasso.kernels.{path.stem}" for path in sorted(folder.glob("[!_]*.py"))]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("trained", "expected"), [("visual", ["image"]), ("both", ["image", "text"]), ("none", [])])
def test_kernels_of_the_towers_that_train_are_prepared(
    tiny_clip: Clip, trained: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[tuple[Any, ...]] = []
    monkeypatch.setattr(fused, "rehearse", lambda *args, **more: prepared.append((*args, more.get("causal", False))))
    model = tiny_clip.model
    for low in (torch.float32, torch.bfloat16):
        towers.prepare(model, trained, low)
        assert not prepared, "on a CPU there is nothing to prepare"
    monkeypatch.setattr(towers, "has_kernels", lambda device: True)
    towers.prepare(model, trained, torch.float32)
    assert not prepared
    towers.prepare(model, trained, torch.bfloat16)
    of = {
        "image": (model.visual.transformer, [len(model.visual.positional_embedding)], torch.bfloat16, False),
        "text": (model.transformer, towers.PROMPT_LENGTHS, torch.float32, True),
    }
    assert prepared == [of[name] for name in expected]


@pytest.fixture
def streams_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())


@pytest.mark.usefixtures("streams_of_a_cpu")
@pytest.mark.parametrize("causal", [False, True])
def test_a_rehearsal_uses_the_kernels_of_a_tower_and_nothing_of_the_model(
    tiny_clip: Clip, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []

    class Counted(fused.Fused):
        def read_normed(self, residual: Residual, norm: nn.Module) -> tuple[Residual, Tensor]:
            used.append("first norm" if residual.update is None else "norm of a sum")
            return Operations.read_normed(self, residual, norm)

        def attention(self, *args: Any) -> tuple[Tensor, Tensor | None]:
            used.append("attention")
            return Operations.attention(self, *args)

        def mlp(self, *args: Any) -> tuple[Tensor, Tensor | None]:
            used.append("gelu")
            return Operations.mlp(self, *args)

    monkeypatch.setattr(blocks, "has_kernels", lambda device: True)
    monkeypatch.setattr(fused, "Fused", Counted)
    before, transformer = tiny_clip.weights_checksum(), tiny_clip.model.visual.transformer
    rehearsal = fused.rehearse(transformer, [5, 9], torch.bfloat16, causal)
    assert rehearsal is not None
    rehearsal.join()
    assert len(used) == 2 * (2 if causal else 3) * 4, "two lengths; the last block of an image tower has one query"
    assert set(used) == {"first norm", "norm of a sum", "attention", "gelu"}
    assert tiny_clip.weights_checksum() == before
    assert all(p.grad is None for p in tiny_clip.model.parameters())


def test_a_rehearsal_that_fails_says_nothing(tiny_clip: Clip, capfd: pytest.CaptureFixture[str]) -> None:
    rehearsal = fused.rehearse(tiny_clip.model.visual.transformer, [5], torch.bfloat16)  # there is no GPU
    assert rehearsal is not None
    rehearsal.join()
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("streams_of_a_cpu")
def test_hooks_are_not_called_by_a_rehearsal(tiny_clip: Clip) -> None:
    """Neither those that are there, nor those that are added while it runs."""
    transformer, calls = tiny_clip.model.visual.transformer, []
    rehearsal = fused.rehearse(transformer, [5] * 20, torch.bfloat16)
    transformer.resblocks[0].mlp.register_forward_hook(lambda module, *_: calls.append(module))
    assert rehearsal is not None
    rehearsal.join()
    assert fused.rehearse(transformer, [5], torch.bfloat16) is None
    assert not calls


@pytest.mark.parametrize(
    ("name", "precision", "with_kernels"),
    [("tasso", torch.bfloat16, True), ("tasso", torch.float32, False), ("moe-adapters", torch.bfloat16, False)],
)
@pytest.mark.parametrize("kernels_there", [True, False])
def test_what_is_compiled_without_being_asked(
    quick: dict[str, Any],
    name: str,
    precision: torch.dtype,
    with_kernels: bool,
    kernels_there: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Long runs of large models on a GPU, unless kernels do it: in bfloat16, and adapters have none."""
    assert name in METHODS
    learner = learner_for({**quick, "steps": 5000}, method=options_for(name))
    assert not learner._pays_to_compile(), "on a CPU"
    learner.device, learner.clip.precision = CUDA, precision
    monkeypatch.setattr(learner_module, "has_kernels", lambda device: kernels_there)
    assert not learner._pays_to_compile(), "small"
    monkeypatch.setattr(learner_module, "COMPILE_PARAMETERS", 1)
    assert learner._pays_to_compile() == (not kernels_there or not with_kernels)
    monkeypatch.setattr(learner_module, "COMPILE_STEPS", 10**9)
    assert not learner._pays_to_compile(), "short"
