"""Between two models: the weights, what may be merged, and the curve."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tasso
from runs_on_disk import draw_coarsely
from tasso.cli import main
from tasso.errors import ConfigError, ModelError, RunError
from tasso.models.clip import Clip
from tasso.models.loading import load_clip
from tasso.models.merge import check_mergeable, merged
from tasso.training.source import open_model


def altered(clip: Clip, amount: float = 0.1) -> Clip:
    other = clip.copy()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.add_(amount * torch.randn_like(parameter))
    return other


@cache
def two_models(model: str) -> tuple[Clip, Clip]:
    clip = load_clip(model)
    return clip, altered(clip)


@settings(max_examples=20, deadline=None)
@given(alpha=st.floats(0, 1))
def test_every_weight_lies_between(tiny_model: str, alpha: float) -> None:
    a, b = two_models(tiny_model)
    between = merged(a, b, alpha).model.state_dict()
    for name, first in a.model.state_dict().items():
        second = b.model.state_dict()[name].double()
        expected = (1 - alpha) * first.double() + alpha * second
        torch.testing.assert_close(between[name].double(), expected, rtol=1e-5, atol=1e-6)


def test_ends_are_the_models_themselves(tiny_clip: Clip) -> None:
    other = altered(tiny_clip)
    for alpha, end in ((0.0, tiny_clip), (1.0, other)):
        found = merged(tiny_clip, other, alpha)
        assert all(torch.equal(found.model.state_dict()[name], t) for name, t in end.model.state_dict().items())
    texts = tiny_clip.class_embeddings(["a"], ["{}"])
    assert not torch.equal(merged(tiny_clip, other, 0.5).class_embeddings(["a"], ["{}"]), texts), "texts are new"
    with pytest.raises(ConfigError, match=r"alpha: must lie in 0 … 1, not 1.5"):
        merged(tiny_clip, other, 1.5)


def test_models_of_another_kind_are_refused(tiny_clip: Clip) -> None:
    with pytest.raises(ModelError, match=r"cannot be merged: tensor 'logit_scale|only the second|has shape"):
        merged(tiny_clip, load_clip("nano"), 0.5)
    other = tiny_clip.copy()
    other.architecture = {**tiny_clip.architecture, "quick_gelu": True}
    with pytest.raises(ModelError, match="quick_gelu is False in the first and True in the second"):
        check_mergeable(tiny_clip, other)
    other = tiny_clip.copy()
    vision = {**tiny_clip.architecture["vision_cfg"], "head_width": 8}
    other.architecture = {**tiny_clip.architecture, "vision_cfg": vision}
    with pytest.raises(ModelError, match="head_width is 16 in the first and 8 in the second"):
        check_mergeable(tiny_clip, other)


def test_what_a_word_means(quick: dict[str, Any], tmp_path: Path) -> None:
    run = tasso.learn(**quick)
    checkpoints = run.folder.checkpoints
    last, _ = open_model(str(quick["out"]))
    first, name = open_model(str(checkpoints / "01-dtd.safetensors"))
    again, _ = open_model(str(checkpoints / "02-eurosat.safetensors"))
    start, _ = open_model(str(quick["model"]))
    states = [clip.state("visual")["visual.proj"] for clip in (start, first, last)]
    assert not any(torch.equal(states[i], states[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert torch.equal(again.state("visual")["visual.proj"], states[2])
    assert "after dtd" in name
    (checkpoints / "07-other.safetensors").write_bytes(b"")
    for word in ("07-other.safetensors", "09-absent.safetensors"):
        with pytest.raises(RunError, match="is not a checkpoint of the run"):
            open_model(str(checkpoints / word))
    with pytest.raises(RunError, match=r"not a run folder, .*; for a model's folder write local-dir:"):
        open_model(str(quick["model"]).removeprefix("local-dir:"))
    with pytest.raises(RunError, match=r"no such run folder"):
        open_model("runs/absent")
    with pytest.raises(ModelError, match="knows no model 'gigantic'"):
        open_model("gigantic:openai")


def test_merged_folder_is_a_model(quick: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tasso.learn(**quick)
    main(["merge", str(quick["model"]), str(quick["out"]), "--alpha", "0.25", "--out", str(tmp_path / "mixed")])
    assert str(tmp_path / "mixed") in capsys.readouterr().out
    start, mixed = load_clip(str(quick["model"])), load_clip(f"local-dir:{tmp_path / 'mixed'}")
    for name, tensor in mixed.state("both").items():
        expected = 0.75 * start.state("both")[name] + 0.25 * run.clip.state("both")[name]
        torch.testing.assert_close(tensor, expected)
    assert "0.75 × (" in (tmp_path / "mixed" / "README.md").read_text()


def test_sweep_draws_the_curve(
    quick: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_coarsely(monkeypatch)
    results = tasso.learn(**quick).results
    out = tmp_path / "curve"
    words = ["merge", str(quick["model"]), str(quick["out"]), "--out", str(out)]
    main([*words, "--sweep", "1,0,0.5", "--device", "cpu"])
    printed = capsys.readouterr().out
    assert printed.startswith("alpha    MTIL    MCIL")
    curve = json.loads((out / "curve.json").read_text())
    assert [row["alpha"] for row in curve["rows"]] == [0, 0.5, 1]
    for setting in ("mtil", "mcil"):
        assert curve["rows"][0][setting] == results[setting]["zero_shot"]
        assert curve["rows"][2][setting] == results[setting]["matrix"][-1]
    assert {path.name for path in out.iterdir()} == {"curve.json", "curve.csv", "curve.png", "curve.pdf", "curve.svg"}
    assert (out / "curve.csv").read_text().splitlines()[0] == "alpha,setting,mean,dtd,eurosat"
    for bad, complaint in ((["--sweep", "0,x"], "expected numbers"), (["--sweep", "2"], "must lie in 0 … 1"),
                           (["--sweep", ","], "at least one value"), (["--sweep", "0", "--alpha", "1"], "either"),
                           (["--benchmark", "atlas"], "belongs to --sweep"), (["--alpha", "-1"], "must lie in"),
                           (["--sweep", "0"], "exists and is not empty")):  # fmt: skip
        with pytest.raises(SystemExit) as stop:
            main([*words, *bad])
        assert stop.value.code == 2
        assert complaint in capsys.readouterr().err
