"""When kernels are used, and what is prepared for them. No GPU is needed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from method_runs import learner_for, options_for
from tasso import kernels
from tasso.kernels import SWITCH, has_kernels, without_kernels
from tasso.methods import METHODS
from tasso.models import towers
from tasso.models.clip import Clip
from tasso.training import learner as learner_module

pytest.importorskip("triton")

from tasso.models import fused

CUDA = torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_can_run", lambda device: device.type == "cuda")


def test_a_cpu_has_no_kernels() -> None:
    assert not has_kernels(torch.device("cpu"))


@pytest.mark.usefixtures("gpu")
def test_they_can_be_switched_off() -> None:
    assert has_kernels(CUDA)
    with without_kernels():
        assert not has_kernels(CUDA)
        with without_kernels():
            pass
        assert not has_kernels(CUDA)
    assert has_kernels(CUDA)
    code = f"import os; os.environ['{SWITCH}'] = '0'; from tasso import kernels; assert kernels._off"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_old_gpus_and_machines_without_triton_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, triton, expected in (((8, 0), True, True), ((7, 5), True, False), ((9, 0), False, False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, c=capability: c)
        monkeypatch.setattr(kernels, "find_spec", lambda name, there=triton: there or None)
        assert kernels._can_run.__wrapped__(CUDA) is expected


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
        "image": (model.visual.transformer, len(model.visual.positional_embedding), torch.bfloat16, False),
        "text": (model.transformer, len(model.positional_embedding), torch.float32, True),
    }
    assert prepared == [of[name] for name in expected]


def test_a_rehearsal_leaves_the_model_as_it_is(tiny_clip: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes with a copy of a block, and a failure is nobody's concern."""
    before = tiny_clip.weights_checksum()
    blocks = list(tiny_clip.model.visual.transformer.resblocks)
    fused.rehearse(tiny_clip.model.visual.transformer, 5, torch.bfloat16)  # fails: there is no GPU
    assert tiny_clip.weights_checksum() == before
    assert list(tiny_clip.model.visual.transformer.resblocks) == blocks
    assert all(p.grad is None for p in tiny_clip.model.parameters())


@pytest.mark.parametrize("name", ["tasso", "moe-adapters"])
@pytest.mark.parametrize("kernels_there", [True, False])
def test_what_is_compiled_without_being_asked(
    quick: dict[str, Any], name: str, kernels_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long runs of large models on a GPU, unless kernels do it: adapters have none."""
    assert name in METHODS
    learner = learner_for({**quick, "steps": 5000}, method=options_for(name))
    assert not learner._pays_to_compile(), "on a CPU"
    learner.device = CUDA
    monkeypatch.setattr(learner_module, "has_kernels", lambda device: kernels_there)
    assert not learner._pays_to_compile(), "small"
    monkeypatch.setattr(learner_module, "COMPILE_PARAMETERS", 1)
    assert learner._pays_to_compile() == (not kernels_there or name == "moe-adapters")
    monkeypatch.setattr(learner_module, "COMPILE_STEPS", 10**9)
    assert not learner._pays_to_compile(), "short"
