"""iCaRL: which images are kept, who teaches on them, and how classes are found by the means of their exemplars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tasso
from axis_clip import AxisClip
from method_runs import copied, learn_first_task, learner_for
from slow_losses import slow_d
from tasso.config import from_dict
from tasso.errors import ConfigError, RunError
from tasso.methods import build_method
from tasso.methods.icarl import ICaRL, NearestMean, TaskMemory, choose_exemplars, herd
from tasso.models.inference import Embedded
from tasso.models.loading import load_clip
from tasso.training.learner import learn
from tasso.training.tensor_files import read_tensors, write_tensors


def unit(*rows: list[float]) -> Tensor:
    return torch.nn.functional.normalize(torch.tensor(rows, dtype=torch.float64), dim=-1)


def directions(count: int, dimensions: int, seed: int) -> Tensor:
    points = np.random.default_rng(seed).normal(size=(count, dimensions))
    return torch.nn.functional.normalize(torch.from_numpy(points), dim=-1)


def slow_herding(features: Tensor, count: int) -> list[int]:
    """At each step, the vector that brings the mean of the chosen closest to the mean of all: tried one by one."""
    points, chosen = features.double().numpy(), []
    for _ in range(min(count, len(points))):

        def gap(candidate: int) -> float:
            return float(np.linalg.norm(points.mean(0) - points[[*chosen, candidate]].mean(0)))

        chosen.append(min((i for i in range(len(points)) if i not in chosen), key=gap))
    return chosen


def test_herding_on_known_points() -> None:
    # The mean points along the diagonal: the vector nearest to it first, then the one that mends what that left over.
    points = unit([1, 0], [0, 1], [1, 0.9], [0.1, 1])
    assert herd(points, 4).tolist() == slow_herding(points, 4)
    assert herd(points, 1).tolist() == [2]
    assert herd(points, 0).tolist() == []
    assert sorted(herd(points, 99).tolist()) == [0, 1, 2, 3]


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 999))
def test_herding_is_greedy(points: int, count: int, seed: int) -> None:
    features = directions(points, 3, seed)
    chosen, mean = herd(features, count).tolist(), features.mean(0)
    assert len(chosen) == len(set(chosen)) == min(points, count)
    for taken in range(len(chosen)):

        def gap(candidate: int, before: list[int] = chosen[:taken]) -> float:
            return float((mean - features[[*before, candidate]].mean(0)).norm())

        least = min(gap(other) for other in range(points) if other not in chosen[:taken])
        assert gap(chosen[taken]) == pytest.approx(least, abs=1e-9), "ties may go either way"


def test_classes_take_turns_and_a_shorter_memory_is_the_beginning_of_a_longer_one() -> None:
    features = directions(20, 4, 0)
    groups = torch.tensor([0] * 12 + [1] * 3 + [2] * 5)
    chosen = choose_exemplars(features, groups, 15)
    assert groups[chosen][:9].tolist() == [0, 1, 2] * 3
    assert groups[chosen][9:].tolist() == [0, 2, 0, 2, 0, 0], "a class that has no more is passed over"
    for length in range(1, 10):
        assert choose_exemplars(features, groups, length).tolist() == chosen[:length].tolist()
    within = [place for place in chosen.tolist() if place < 12]
    assert within == slow_herding(features[:12], len(within))


def test_memory_is_shared_evenly_and_never_grows(quick: dict[str, Any]) -> None:
    options = {**quick, "sequence": "dtd,eurosat,food-101", "method": {"name": "icarl", "memory": 20}}
    assert learn(from_dict(options))["finished"]
    sizes, first = [], []
    for file in sorted((Path(str(quick["out"])) / "checkpoints").iterdir()):
        loaded = read_tensors(file)
        assert loaded is not None
        memory = {key: tensor for key, tensor in loaded[0].items() if key.endswith(".exemplars")}
        sizes.append([len(memory[f"method/{index}.exemplars"]) for index in range(len(memory))])
        first.append(memory["method/0.exemplars"].tolist())
    assert sizes == [[20], [10, 10], [6, 6, 6]]
    assert first[1] == first[0][:10]
    assert first[2] == first[0][:6], "what was chosen last goes first"


def test_exemplars_come_from_earlier_tasks_with_labels_that_count_on(quick: dict[str, Any]) -> None:
    learn_first_task(quick, method={"name": "icarl", "memory": 9})
    learner = learner_for(quick, method={"name": "icarl", "memory": 9, "labelled_replay": True})
    training = learner.begin(1)
    method = training.method
    assert isinstance(method, ICaRL)
    stream = training.streams["exemplars"]
    train = learner.sequence.tasks[0].train
    chosen = method.memory_of(0).exemplars.numpy()
    assert sorted(np.bincount(train.labels[chosen])) == [3, 3, 3], "three per class"
    assert stream.labels.tolist() == train.labels[chosen].tolist(), "the first task's classes come first"
    expected = learner.data.pixels(train, "dtd").eval_view(chosen)
    assert torch.equal(stream.pixels.eval_view(np.arange(9)), expected)


def test_labels_of_the_memory_count_through_the_classes_of_all_tasks(quick: dict[str, Any]) -> None:
    options = {"sequence": "dtd,eurosat,food-101", "method": {"name": "icarl", "memory": 18}}
    learner = learner_for(quick, **options)
    for index in range(2):
        learner._learn_task(index)
    training = learner.begin(2)
    labels, method = training.streams["exemplars"].labels, training.method
    assert isinstance(method, ICaRL)
    own = [
        learner.sequence.tasks[number].train.labels[method.memory_of(number).exemplars.numpy()] for number in range(2)
    ]
    assert labels.tolist() == [*own[0].tolist(), *(3 + own[1]).tolist()]
    assert set(labels.tolist()) == set(range(6))


@pytest.mark.slow
@pytest.mark.usefixtures("float32")
def test_previous_model_teaches_on_exemplars_with_the_current_texts(quick: dict[str, Any]) -> None:
    learn_first_task(quick, method={"name": "icarl", "memory": 20})
    for teacher in ("previous", "pretrained"):
        options = {"name": "icarl", "memory": 20, "labelled_replay": True, "teacher": teacher}
        learner = learner_for(quick, method=options)
        training = learner.begin(1)
        old = load_clip(str(quick["model"]))
        start = load_clip(str(quick["model"]))
        start.load_state(copied(learner.clip.state("both")), "previous")
        if teacher == "previous":
            old = start
        for _ in range(2):
            training.advance()
        batch = training.batch()
        seen = batch.others["exemplars"]
        tasks = learner.sequence.tasks
        texts = old.class_embeddings(tasks[1].class_names, learner.templates).double()
        with torch.no_grad():
            features = [clip.encode_images(seen.pixels).double() for clip in (old, learner.clip)]
        scale = learner.clip.logit_scale
        logits = [(scale * f @ texts.T) for f in features]
        terms = {name: float(term.detach()) for name, term in training.method.loss(batch).items()}
        assert terms["kd"] == pytest.approx(slow_d(*(x.tolist() for x in logits), 2.0), rel=1e-4)
        assert terms["kd_transposed"] == pytest.approx(slow_d(*(x.T.tolist() for x in logits), 2.0), rel=1e-4)
        every = learner.clip.encode_classes([*tasks[0].class_names, *tasks[1].class_names], learner.templates).double()
        log_odds = (scale * features[1] @ every.T).log_softmax(-1)
        replay = -(0.8 * log_odds.gather(1, seen.labels[:, None])[:, 0] + 0.2 * log_odds.mean(-1)).mean()
        assert terms["replay"] == pytest.approx(float(replay), rel=1e-4)


def test_first_task_is_fine_tuning(quick: dict[str, Any]) -> None:
    ends = []
    for method in ({"name": "icarl"}, {"name": "finetune", "trainable": "both", "label_smoothing": 0.2}):
        training = learner_for(quick, method=method, weight_decay=0.0).begin(0)
        for _ in range(3):
            training.advance()
        ends.append(copied(training.clip.model.state_dict()))
    for key, tensor in ends[0].items():
        assert torch.equal(tensor, ends[1][key]), key


# -- the nearest mean ------------------------------------------------------------------------------------------


def test_texts_decide_whether_and_means_decide_which() -> None:
    x, y, z, u, v = torch.eye(5)
    # The means of the first task's classes x, y, z are swapped against the texts, so that the two can be told apart.
    means = NearestMean(AxisClip(), {("first", ("x", "y", "z")): torch.stack([y, z, x])})  # type: ignore[arg-type]
    images = Embedded(torch.stack([x, y, u, 0.8 * v + 0.6 * x]))
    scores = means.scores(images, [("x", "y", "z"), ("u", "v")], ("{}",), ["first", "second"])
    assert scores.argmax(-1).tolist() == [2, 0, 3, 4]
    assert scores[:, :3].argmax(-1).tolist() == [2, 0, 0, 2], "among its own classes the means decide alone"
    assert means.scores(images, [("x", "y")], ("{}",)).argmax(-1).tolist()[:2] == [0, 1], "classes of nobody's task"


def test_means_of_two_tasks_with_the_same_classes_are_kept_apart() -> None:
    x, y = torch.eye(5)[:2]
    photos, sketches = torch.stack([x, y]), torch.stack([y, x])
    names = ("x", "y")
    method = ICaRL(classifier="nearest-mean")
    method.attach(AxisClip())  # type: ignore[arg-type]
    method.memories.extend(TaskMemory(torch.arange(2), means) for means in (photos, sketches))
    inference = method.inference({"photos": names, "sketches": names, "later": names})
    images = Embedded(torch.stack([x, y]))
    for task, expected in (("photos", [0, 1]), ("sketches", [1, 0]), ("later", [0, 1])):
        assert inference.scores(images, [names], ("{}",), [task]).argmax(-1).tolist() == expected, task


@pytest.mark.slow
@pytest.mark.usefixtures("float32")
def test_means_are_those_of_the_exemplars_as_the_model_sees_them_now(quick: dict[str, Any]) -> None:
    method = {"name": "icarl", "memory": 12, "classifier": "nearest-mean"}
    results = learn(from_dict({**quick, "method": method}))
    run = tasso.load(str(quick["out"]))
    learner = learner_for(quick, method=method)
    loaded = read_tensors(Path(str(quick["out"])) / "checkpoints" / "02-eurosat.safetensors")
    assert loaded is not None
    for index, task in enumerate(learner.sequence.tasks):
        chosen = loaded[0][f"method/{index}.exemplars"].numpy()
        with torch.no_grad():
            features = run.clip.encode_images(learner.data.pixels(task.train, "task").eval_view(chosen)).cpu().double()
        for label in range(3):
            mean = features[torch.from_numpy(task.train.labels[chosen] == label)].mean(0)
            torch.testing.assert_close(
                loaded[0][f"method/{index}.means"][label].double(), mean / mean.norm(), rtol=1e-4, atol=1e-5
            )
    again = tasso.evaluate(str(quick["out"]), device="cpu")
    assert again["mtil"] == results["mtil"]["matrix"][-1]
    plain = learn(from_dict({**quick, "method": {**method, "classifier": "text"}, "out": f"{quick['out']}-text"}))
    assert results["mtil"]["matrix"] != plain["mtil"]["matrix"]


# -- what can go wrong -----------------------------------------------------------------------------------------


def test_a_memory_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"method\.memory: must be at least 1, not 0"):
        build_method({"name": "icarl", "memory": 0})


def test_damaged_memory_is_named(quick: dict[str, Any]) -> None:
    learn_first_task(quick, method={"name": "icarl", "memory": 20})
    file = Path(str(quick["out"])) / "checkpoints" / "01-dtd.safetensors"
    loaded = read_tensors(file)
    assert loaded is not None
    write_tensors(file, {**loaded[0], "method/0.exemplars": torch.tensor([3, 99999])}, loaded[1])
    with pytest.raises(RunError, match="task 'dtd': the memory names images that its training set of 36 does not have"):
        learner_for(quick, method={"name": "icarl", "memory": 20}).begin(1)
    tensors = {key: tensor for key, tensor in loaded[0].items() if not key.startswith("method/")}
    write_tensors(file, tensors, loaded[1])
    with pytest.raises(RunError, match=r"01-dtd\.safetensors: incomplete, 'method/0\.exemplars' is missing.*icarl"):
        learner_for(quick, method={"name": "icarl", "memory": 20}).begin(1)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(RunError, match=r"01-dtd\.safetensors: damaged"):
        learner_for(quick, method={"name": "icarl", "memory": 20}).begin(1)
