"""Domain-incremental learning: tasks that share their classes are scored, replayed and named against one list."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tasso
from method_runs import learner_for, options_for
from own_images import image, write_folder
from tasso.config import from_dict
from tasso.data import load_sequence
from tasso.errors import DataError
from tasso.methods import METHODS, TaskInfo
from tasso.methods.anchors import anchor_prompts
from tasso.models.class_overlap import warn_of_similar_classes
from tasso.models.loading import load_clip
from tasso.report import read_run, write_page
from tasso.training.learner import learn


@pytest.fixture
def domains(quick: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Options of a run over the same three classes, seen by two cameras."""
    tasks = {
        "photos": write_folder(tmp_path / "photos", "pets"),
        "night": write_folder(tmp_path / "night", "pets", images=4),
    }
    own = {key: quick[key] for key in ("model", "steps", "batch_size", "reference_batch_size", "lr", "device", "out")}
    return {**own, "steps": 2, "reference_images": 16, "tasks": {name: str(place) for name, place in tasks.items()}}


def test_shared_classes_are_recognised(domains: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        photos, night = load_sequence(from_dict(domains), with_reference=False).tasks
    assert photos.class_names == night.class_names
    assert "photos: classes shared with night (3); each is scored as one class" in caplog.text
    assert not warn_of_similar_classes(load_clip(domains["model"]), (photos, night), ("{}",), merge_names=True)


def test_names_that_differ_only_in_case_are_refused(domains: dict[str, Any], tmp_path: Path) -> None:
    name = next(path.name for path in sorted((tmp_path / "night").iterdir()))
    (tmp_path / "night" / name).rename(tmp_path / "night" / name.upper())
    with pytest.raises(
        DataError, match=r"'photos' and 'night': the classes .* differ only in case.*--same-names apart"
    ):
        load_sequence(from_dict(domains))
    load_sequence(from_dict({**domains, "same_names": "apart"}), with_reference=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_scores_against_one_list(name: str, domains: dict[str, Any], tmp_path: Path) -> None:
    results = learn(from_dict({**domains, "method": options_for(name), "score_seen": True}))
    mtil, mcil, seen = (results[setting]["matrix"] for setting in ("mtil", "mcil", "seen"))
    assert mcil == mtil, "the same three classes"
    assert seen[-1] == mcil[-1]
    run = tasso.load(str(domains["out"]), device="cpu")
    (found,) = run.classify(np.asarray(image("pets", 0, 0)), top=9)
    assert len(found) == 3
    assert {prediction.task for prediction in found} == {"photos, night"}
    assert sum(prediction.probability for prediction in found) == pytest.approx(1)


@pytest.mark.slow
def test_the_page_has_one_curve_per_domain(domains: dict[str, Any], tmp_path: Path) -> None:
    learn(from_dict({**domains, "method": "finetune"}))
    page = write_page(read_run(str(domains["out"])), tmp_path / "page.html", title="domains", intro="").read_text()
    for domain in ("photos", "night"):
        assert f'data-name="{domain}"' in page


def test_replayed_labels_name_a_class_once(domains: dict[str, Any]) -> None:
    """iCaRL's labelled replay: a class that tasks share must not compete with itself."""
    learner = learner_for(domains, method={**options_for("icarl"), "labelled_replay": True})
    learner._learn_task(0)
    training = learner.begin(1)
    method: Any = learner.method
    assert len(method._all_class_texts()) == 3
    assert training.streams["exemplars"].labels.max() == 2


@pytest.mark.parametrize(
    ("options", "held"), [({}, True), ({"anchors": "earlier"}, True), ({"anchors": "generic"}, False)]
)
def test_the_text_of_a_class_that_was_learned_before_is_held(
    options: dict[str, Any], held: bool, domains: dict[str, Any]
) -> None:
    """With `earlier` there is no anchor at all: both tasks have the same three classes."""
    learner = learner_for(domains, method={**options_for("tasso-both"), **options})
    training = learner.begin(0)
    assert "kd_relearned" not in training.advance()
    training.close()
    learner._learn_task(0)
    method: Any = learner.method
    training = learner.begin(1)
    first, second = training.advance(), training.advance()
    assert ("kd_relearned" in first) == held
    if held:
        assert method.relearned[0].tolist() == [0, 1, 2]
        assert float(first["kd_relearned"]) < 0.05 < float(second["kd_relearned"]), "it has not moved yet, then it has"


def test_anchors_name_a_class_once_and_none_of_the_current_task() -> None:
    info = TaskInfo(2, "snow", ("cat", "dog"), ("a photo of a {}.",), 0)
    names = [
        (("cat", "dog"), ("a photo of a {}.",)),
        (("dog", "cow"), ("a photo of a {}.",)),
        (("cow",), ("a photo of a {}.",)),
    ]
    assert anchor_prompts(names, info) == ["a photo of a cow."]
