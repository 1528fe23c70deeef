"""LwF and ZSCL: who teaches on what, and what becomes of the weights."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from method_runs import copied, learn_first_task, learner_for, same
from slow_losses import slow_d
from tasso.config import from_dict
from tasso.errors import ConfigError, DataError
from tasso.methods import build_method
from tasso.methods.losses import cross_entropy
from tasso.methods.lwf import LearningWithoutForgetting
from tasso.methods.zscl import ZeroShotContinualLearning
from tasso.models.clip import Clip, FrozenImageEncoder
from tasso.models.loading import load_clip
from tasso.training.learner import learn


def embedded(clip: Clip, pixels: Tensor) -> Tensor:
    with torch.no_grad():
        return clip.encode_images(pixels).double()


@pytest.mark.usefixtures("float32")
def test_lwf_is_taught_by_the_previous_model_on_the_task_s_own_images(quick: dict[str, Any]) -> None:
    learn_first_task(quick, method="lwf")
    learner = learner_for(quick, method="lwf")
    training = learner.begin(1)
    method = training.method
    assert isinstance(method, LearningWithoutForgetting)
    previous = load_clip(str(quick["model"]))
    previous.load_state(copied(learner.clip.state("both")), "previous")
    for _ in range(2):
        training.advance()
    batch = training.batch()
    current, task = batch.others["current"], learner.sequence.tasks[1]
    pixels = learner.data.pixels(task.train, "task")
    assert torch.equal(current.pixels, pixels.eval_view(current.indices.numpy())), "the evaluation view"
    assert not torch.equal(current.indices, batch.task.indices), "a shuffle of its own"
    texts = previous.class_embeddings(task.class_names, learner.templates).double()
    old, new = (embedded(clip, current.pixels) for clip in (previous, learner.clip))
    scale = learner.clip.logit_scale
    teacher, student = scale * old @ texts.T, scale * new @ texts.T
    terms = {name: float(term.detach()) for name, term in method.loss(batch).items()}
    assert terms["kd"] == pytest.approx(slow_d(teacher.tolist(), student.tolist(), 2.0), rel=1e-4)
    assert terms["kd_transposed"] == pytest.approx(slow_d(teacher.T.tolist(), student.T.tolist(), 2.0), rel=1e-4)
    own = learner.clip.encode_classes(task.class_names, learner.templates)
    assert not torch.allclose(own.double(), texts, atol=1e-4), "the text tower learns"
    ce = cross_entropy(embedded(learner.clip, batch.task.pixels).float(), own, batch.task.labels, scale, 0.2)
    assert terms["ce"] == pytest.approx(float(ce), rel=1e-4)


@pytest.mark.parametrize("name", ["lwf", "zscl", "icarl"])
def test_distillation_leaves_the_text_tower_alone(quick: dict[str, Any], name: str) -> None:
    learn_first_task(quick, method=name)
    training = learner_for(quick, method=name).begin(1)
    terms = training.method.loss(training.batch())
    (terms["kd"] + terms["kd_transposed"]).backward()
    named = training.clip.parameters_of("both")
    assert not [n for n, p in named.items() if p.grad is not None and not n.startswith("visual.") and p.grad.any()]
    terms = training.method.loss(training.batch())
    terms["ce"].backward()
    assert [n for n, p in named.items() if p.grad is not None and not n.startswith("visual.") and p.grad.any()]


# -- ZSCL ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float32")
def test_zscl_is_taught_by_the_pretrained_model_on_reference_images_and_texts(
    quick: dict[str, Any], tmp_path: Path
) -> None:
    captions = tmp_path / "captions.txt"
    captions.write_text("two dogs run\n\na red car on a road\na plate of food\nsomething else\n")
    options = {"method": "zscl", "reference_texts": str(captions)}
    learn_first_task(quick, **options)
    learner = learner_for(quick, **options)
    training = learner.begin(1)
    before = copied(learner.clip.parameters_of("both"))
    for _ in range(2):
        training.advance()
    pretrained = load_clip(str(quick["model"]))
    batch = training.batch()
    reference = batch.others["reference"]
    assert training.streams["reference"].view == "eval"
    texts = pretrained.encode_texts(captions.read_text().replace("\n\n", "\n").strip().split("\n")).double()
    assert len(texts) == 4
    old, new = (embedded(clip, reference.pixels) for clip in (pretrained, learner.clip))
    scale = learner.clip.logit_scale
    teacher, student = scale * old @ texts.T, scale * new @ texts.T
    terms = {name: float(term.detach()) for name, term in training.method.loss(batch).items()}
    assert terms["kd"] == pytest.approx(slow_d(teacher.tolist(), student.tolist(), 2.0), rel=1e-4)
    assert terms["kd_transposed"] == pytest.approx(slow_d(teacher.T.tolist(), student.T.tolist(), 2.0), rel=1e-4)
    shift = sum(
        float((p.detach().double() - before[n].double()).square().sum())
        for n, p in learner.clip.parameters_of("both").items()
    )
    assert terms["anchor"] == pytest.approx(shift, rel=1e-4)


@pytest.mark.parametrize(
    ("steps", "every", "taken"), [(7, 3, [0, 3, 6]), (8, 3, [0, 3, 6, 7]), (5, 2, [0, 2, 4]), (3, 100, [0, 2])]
)
def test_ensemble_is_the_mean_of_start_and_snapshots(
    quick: dict[str, Any], steps: int, every: int, taken: list[int]
) -> None:
    learner = learner_for(quick, method={"name": "zscl", "average_every": every}, steps=steps)
    training = learner.begin(0)
    models = [copied(learner.clip.parameters_of("both"))]
    for step in range(steps):
        training.advance()
        if step in taken:
            models.append(copied(learner.clip.parameters_of("both")))
    training.close()
    learner.method.end_task()
    for name, weight in learner.clip.parameters_of("both").items():
        expected = torch.stack([model[name].double() for model in models]).mean(0)
        torch.testing.assert_close(weight.detach().double(), expected, rtol=1e-5, atol=1e-6, msg=name)
        assert not torch.equal(weight.detach(), models[-1][name]) or not weight.any()


def test_ensemble_is_saved_evaluated_and_passed_on(quick: dict[str, Any]) -> None:
    method = {"name": "zscl", "average_every": 2}
    learner = learner_for(quick, method=method)
    learner._learn_task(0)
    mean = copied(learner.clip.model.state_dict())
    saved = learner.folder.read_checkpoint(0, "dtd")
    assert saved is not None
    assert same(saved[0], mean)
    again = learner_for(quick, method=method)
    again.begin(1)
    assert same(copied(again.clip.model.state_dict()), mean)
    plain = learner_for(quick, method={"name": "zscl", "average_every": 0}, out=f"{quick['out']}-plain")
    plain._learn_task(0)
    assert not same(copied(plain.clip.model.state_dict()), mean), "without the mean, the last weights"


def test_cached_teacher_embeddings_change_nothing(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    losses = []
    encode = FrozenImageEncoder.encode_images  # a teacher may differ from the model, as one of less precision does
    monkeypatch.setattr(FrozenImageEncoder, "encode_images", lambda teacher, pixels: encode(teacher, pixels.flip(-1)))
    for cached in (False, True):
        learner = learner_for(quick, method={"name": "zscl", "cache_teacher": cached})
        training = learner.begin(0)
        assert isinstance(training.method, ZeroShotContinualLearning)
        assert (training.method.cached_features is not None) == cached
        losses.append([{n: float(v) for n, v in training.advance().items()} for _ in range(3)])
    for one, other in zip(*losses, strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    with pytest.raises(ConfigError, match=r"method\.cache_teacher: needs reference_view eval"):
        build_method({"name": "zscl", "cache_teacher": True, "reference_view": "train"})


def test_without_captions_class_names_are_used_and_the_log_says_so(
    quick: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="tasso"):
        method = learner_for(quick, method="zscl").method
    assert isinstance(method, ZeroShotContinualLearning)
    assert "the 3 class names of the reference set are used" in caplog.text
    expected = method.clip.encode_texts([f"a photo of a imagenet kind {i}." for i in range(3)])
    assert torch.equal(method.texts, expected)


@pytest.mark.parametrize(("content", "message"), [(None, "no such file"), ("\n \n", "the list is empty")])
def test_captions_that_cannot_be_read_are_named(
    quick: dict[str, Any], tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "captions.txt"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match=f"reference_texts: .*captions.txt.*{message}"):
        learn(from_dict({**quick, "method": "zscl", "reference_texts": str(file)}))
