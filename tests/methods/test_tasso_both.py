"""TASSO on both towers: its loss against a separate computation, its anchors, and what it is without its parts."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conftest import all_captions
from method_runs import copied, learn_first_task, learner_for, options_for
from tasso.config import from_dict
from tasso.data import ImageSet, Task
from tasso.data.atlas import DOMAINS
from tasso.data.images import ImageBatch
from tasso.distributed import SINGLE_PROCESS
from tasso.errors import ConfigError, RunError
from tasso.methods import Batch, RunInfo, TaskInfo, build_method, generic
from tasso.methods.anchors import AnchorTable, anchor_prompts, generic_names
from tasso.methods.tasso_both import TassoBoth
from tasso.models.clip import Clip
from tasso.models.loading import load_clip
from tasso.training.learner import Learner, learn

# -- the loss ----------------------------------------------------------------------------------------------------


class Given(Clip):
    """Encoders whose embeddings are given: images are theirs, tokens are rows of `texts`."""

    def __init__(self, texts: Tensor) -> None:
        self.distributed, self.compiled, self.texts_of_tokens = SINGLE_PROCESS, False, texts

    def encode_images(self, pixels: Tensor) -> Tensor:
        return pixels

    def encode_tokens(self, tokens: Tensor) -> Tensor:
        return self.texts_of_tokens[tokens[:, 0]]


CLASSES, ANCHORS, DIM, RANK = 4, 6, 10, 3
RELEARNED = [2, 0]  # classes that an earlier task has, too
PARTS = ("images", "reference", "texts", "A")


def drawn() -> dict[str, Tensor]:
    """Images of the task, reference images, texts (classes, then anchors), those of the teacher, earlier classes, and a
    projector."""
    generator = torch.Generator().manual_seed(3)
    shapes = {
        "images": 5, "reference": 7, "texts": CLASSES + ANCHORS, "old_reference": 7, "old_texts": ANCHORS, "earlier": 3,
    }  # fmt: skip
    case = {
        name: F.normalize(torch.randn(rows, DIM, dtype=torch.float64, generator=generator), dim=-1)
        for name, rows in shapes.items()
    }
    case["A"] = torch.randn(DIM, RANK, dtype=torch.float64, generator=generator)
    return case


def method_of(case: dict[str, Tensor], **options: Any) -> tuple[TassoBoth, Batch]:
    """The method on these embeddings; the batch has the anchors 1, 4 and 3."""
    method = build_method({"name": "tasso-both", "rank": RANK, "anchors_per_step": 3, **options})
    assert isinstance(method, TassoBoth)
    method.clip, method.scale = Given(case["texts"]), 7.0
    method.projector = SimpleNamespace(A=case["A"])  # type: ignore[assignment]
    pending = SimpleNamespace(wait=lambda: case["old_reference"])
    method.teacher_encoders["previous"] = SimpleNamespace(encode_async=lambda _: pending)  # type: ignore[assignment]
    method.task = TaskInfo(1, "task", ("a",) * CLASSES, ("{}",), 1)
    method.class_tokens = torch.arange(CLASSES)[:, None]
    if method.uses_anchors:
        method.table = SimpleNamespace(  # type: ignore[assignment]
            tokens=torch.arange(CLASSES, CLASSES + ANCHORS)[:, None], embeddings=case["old_texts"]
        )
        method.relearned = torch.tensor(RELEARNED), case["old_texts"][RELEARNED]
    method.earlier_texts = case["earlier"] if method.delta else None
    labels = torch.tensor([0, 3, 1, 1, 2])
    images = ImageBatch(case["images"], labels, torch.arange(5))
    reference = ImageBatch(case["reference"], torch.zeros(7), torch.arange(7))
    return method, Batch(images, {"reference": reference}, {"anchors": torch.tensor([1, 4, 3])})


def plain_terms(case: dict[str, Tensor], alpha: float, beta: float, gamma: float, delta: float) -> dict[str, Tensor]:
    """The formulas as they are written, with the projection P = A(AᵀA)⁻¹Aᵀ in the place of U."""
    A, labels, rows = case["A"], [0, 3, 1, 1, 2], [1, 4, 3]
    P = A @ torch.linalg.inv(A.T @ A) @ A.T
    classes = case["texts"][:CLASSES]

    def cosine(x: Tensor, y: Tensor) -> Tensor:
        return (x @ y) / (x @ x).sqrt() / (y @ y).sqrt()

    def ce(images: Tensor, texts: Tensor, project: Tensor, scale: float) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for image, label in zip(images, labels, strict=True):
            logits = torch.stack([scale * cosine(project @ image, project @ text) for text in texts])
            total = total + logits.exp().sum().log() - logits[label]
        return total / len(labels)

    def kd(new: Tensor, old: Tensor) -> Tensor:
        outside = torch.eye(DIM, dtype=torch.float64) - P
        angles = [torch.acos(cosine(M @ x, M @ y)) for x, y in zip(new, old, strict=True) for M in (P, outside)]
        return torch.stack(angles).sum() / len(new)

    anchors = torch.stack([case["texts"][CLASSES + row] for row in rows])
    whole, seen = torch.eye(DIM, dtype=torch.float64), torch.cat([classes, case["earlier"]])
    return {
        "ce": ce(case["images"], classes, whole, 7.0),
        "subspace": alpha * ce(case["images"], classes, P, 10.0),
        "kd": beta * kd(case["reference"], case["old_reference"]),
        "kd_text": gamma * kd(anchors, case["old_texts"][rows]),
        "kd_relearned": gamma * kd(classes[RELEARNED], case["old_texts"][RELEARNED]),
        "seen": delta * ce(case["images"].detach(), seen, whole, 7.0),
    }


def with_gradients(case: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone().requires_grad_(name in PARTS) for name, tensor in case.items()}


def test_terms_and_gradients_are_those_of_the_formulas() -> None:
    ours, plain = with_gradients(drawn()), with_gradients(drawn())
    method, batch = method_of(ours, alpha=0.7, beta=2.0, gamma=5.0, delta=0.3)
    terms, expected = method.loss(batch), plain_terms(plain, 0.7, 2.0, 5.0, 0.3)
    assert list(terms) == list(expected)
    for name, term in terms.items():
        torch.testing.assert_close(term, expected[name], rtol=1e-10, atol=1e-12)
    torch.stack(list(terms.values())).sum().backward()
    torch.stack(list(expected.values())).sum().backward()
    for name in PARTS:
        torch.testing.assert_close(ours[name].grad, plain[name].grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("term", "reached"),
    [
        ("ce", {"images", "texts"}),
        ("subspace", {"images", "texts", "A"}),
        ("kd", {"reference", "A"}),
        ("kd_text", {"texts", "A"}),
        ("kd_relearned", {"texts", "A"}),
        ("seen", {"texts"}),
    ],
)
def test_each_term_trains_what_it_should(term: str, reached: set[str]) -> None:
    case = with_gradients(drawn())
    method, batch = method_of(case, delta=0.3)
    method.loss(batch)[term].backward()
    assert {name for name in PARTS if case[name].grad is not None and bool(case[name].grad.any())} == reached
    if term in ("ce", "subspace", "seen"):
        assert not case["texts"].grad[CLASSES:].any(), "anchors are no classes"
    if term == "kd_text":
        assert case["texts"].grad.any(-1).nonzero().flatten().tolist() == [CLASSES + row for row in (1, 3, 4)]
    if term == "kd_relearned":
        assert case["texts"].grad.any(-1).nonzero().flatten().tolist() == sorted(RELEARNED)


def test_control_without_subspaces() -> None:
    case = drawn()
    method, batch = method_of(case, alpha=0.0, kd_parallel="none", kd_perpendicular="none", kd_whole="geodesic")
    assert not method.uses_subspace
    terms = method.loss(batch)
    angles = torch.acos((case["texts"][CLASSES:] * case["old_texts"]).sum(-1))[[1, 4, 3]]
    assert list(terms) == ["ce", "kd", "kd_text", "kd_relearned"]
    torch.testing.assert_close(terms["kd_text"], 10 * angles.mean())


# -- without its parts -------------------------------------------------------------------------------------------


def weights_after(quick: dict[str, Any], method: dict[str, Any], towers: str, steps: int = 3) -> dict[str, Tensor]:
    training = learner_for(quick, method=method).begin(0)
    for _ in range(steps):
        training.advance()
    return copied(training.clip.state(towers))


@pytest.mark.usefixtures("float32")
def test_with_a_resting_text_tower_it_is_tasso(quick: dict[str, Any]) -> None:
    still = {**options_for("tasso-both"), "gamma": 0.0, "text_lr_factor": 0.0, "beta": 3.0, "ce_scale": 0.0}
    ours, theirs = weights_after(quick, still, "both"), weights_after(quick, options_for("tasso"), "both")
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def test_without_its_terms_it_is_fine_tuning_of_both_towers(quick: dict[str, Any]) -> None:
    off = {"alpha": 0.0, "kd_parallel": "none", "kd_perpendicular": "none"}
    bare = {"name": "tasso-both", "text_lr_factor": 1.0, "ce_scale": 0.0, **off}
    training = learner_for(quick, method=bare).begin(0)
    assert list(training.streams) == ["task"]
    assert not training.batch().inputs
    ours, theirs = (
        weights_after(quick, method, "both") for method in (bare, {"name": "finetune", "trainable": "both"})
    )
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def test_anchors_hold(quick: dict[str, Any]) -> None:
    """What the text tower says of the first task's classes moves less, the larger γ is."""
    learn_first_task(quick, method=options_for("tasso-both"))
    moved = []
    for gamma in (0.0, 300.0):
        method = {**options_for("tasso-both"), "gamma": gamma, "anchors_per_step": 0}
        learner = learner_for(quick, method=method, steps=20)
        training = learner.begin(1)
        names = learner.sequence.tasks[0].class_names
        before = learner.clip.encode_classes(names, learner.templates)
        for _ in range(20):
            training.advance()
        moved.append(float((learner.clip.encode_classes(names, learner.templates) - before).norm()))
    assert moved[1] < 0.3 * moved[0]


def test_which_classes_have_been_seen(tiny_clip: Clip) -> None:
    """All of earlier tasks in their prompts of training, each once; not those of the task itself, nor of later ones."""
    first = dataclasses.replace(task_of("first", "cat", "dog"), train_templates=("one {}.", "the {}."))
    tasks = first, task_of("second", "Dog", "red_fox"), task_of("third", "red fox", "cow"), task_of("last", "hen")
    method = build_method({"name": "tasso-both", "rank": 6, "delta": 0.3})
    assert isinstance(method, TassoBoth)
    method.attach(tiny_clip)
    method.begin_run(RunInfo(templates=("a {}.",), tasks=tasks))
    method.begin_task(info(*tasks[:1]))
    assert method.earlier_texts is None, "nothing is earlier than the first task"
    method.begin_task(info(*tasks[:3]))
    expected = tiny_clip.encode_classes(["cat", "dog"], ["one {}.", "the {}."])
    assert method.earlier_texts is not None
    torch.testing.assert_close(method.earlier_texts, expected)
    method.end_task()
    assert method.earlier_texts is None


@pytest.mark.parametrize("optimise", ["joint", "alternate", "projector-first"])
def test_rates_of_the_towers(quick: dict[str, Any], optimise: str) -> None:
    method = {**options_for("tasso-both"), "text_lr_factor": 3.0, "optimise": optimise}
    training = learner_for(quick, method=method, warmup=2, steps=6).begin(0)
    for _ in range(6):
        training._set_learning_rates()
        rates = {group["name"]: group["lr"] for group in training.optimizers[0].param_groups}
        assert set(rates) == {"encoder", "text", "projector"}
        assert rates["text"] == pytest.approx(3 * rates["encoder"])
        training.step += 1


# -- anchors -----------------------------------------------------------------------------------------------------


def task_of(name: str, *class_names: str, templates: tuple[str, ...] = ()) -> Task:
    empty = ImageSet(None, (), np.empty(0, dtype=np.int64))  # type: ignore[arg-type]
    return Task(name, class_names, empty, empty, empty, templates)


def info(*tasks: Task, templates: tuple[str, ...] = ("a {}.",)) -> TaskInfo:
    last = tasks[-1]
    return TaskInfo(len(tasks) - 1, last.name, last.class_names, last.prompts(templates), 1, tasks=tasks)


def test_which_prompts_are_anchors() -> None:
    now = info(task_of("new", "Guinea-pig", "red fox"))
    names = [
        (("red_fox", "cat", "guinea pig"), ("a {}.", "one {}")),
        (("Cat", "dog"), ("a {}.",)),
        (("a dog.",), ("{}",)),
    ]
    assert anchor_prompts(names, now) == ["a cat.", "one cat", "a dog."], "each once, and none of the task's own"
    assert anchor_prompts([(("A red fox.", "a red fox in the snow"), ("{}",))], now) == ["a red fox in the snow"]


def test_where_generic_names_come_from() -> None:
    templates = ("a {}.", "the {}.")
    own = generic.captions(), ("{}",)
    assert generic_names(RunInfo(templates=templates)) == [((), ("{}",)), (generic.names(), templates), own]
    told = RunInfo(templates=templates, reference_names=("lynx",), reference_texts=("a {} cat",))
    assert generic_names(told) == [(("a {} cat",), ("{}",)), (("lynx", *generic.names()), templates), own]


def test_the_built_in_lists_are_usable(tiny_clip: Clip) -> None:
    names, captions = generic.names(), all_captions()
    assert len(names) >= 300
    assert len(captions) >= 4000
    assert not any("{" in text or " a a" in text or " a e" in text for text in captions), "patterns are filled in"
    drawn = {name for domain in DOMAINS.values() for name in domain.class_names}
    assert drawn.isdisjoint(names), "nothing of the tasks of a benchmark"
    texts = [*names, *captions]
    assert len(set(texts)) == len(texts)
    assert all(text == " ".join(text.casefold().split()) for text in texts)
    for clip in (tiny_clip, load_clip("nano")):
        tokens = clip.tokenizer([f"a photo of a {name}." for name in names] + list(captions))
        assert bool((tokens[:, -1] == 0).all()), "none is cut off"
        assert len(set(map(tuple, tokens.tolist()))) == len(texts)


def recorded_texts(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every text that this learner's model gets from now on."""
    seen: set[str] = set()
    tokenise = learner.clip.tokenise

    def record(texts: Any) -> Tensor:
        seen.update(texts)
        return tokenise(texts)

    monkeypatch.setattr(learner.clip, "tokenise", record)
    return seen


def test_names_of_later_tasks_are_never_used(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """While a task is learned, the model gets no text with a later task's class names."""
    options = {**quick, "sequence": "dtd,eurosat,actions", "method": options_for("tasso-both")}
    for index in range(3):
        learner = learner_for(options)
        seen = recorded_texts(learner, monkeypatch)
        learner._learn_task(index)
        for number, task in enumerate(learner.sequence.tasks):
            used = [any(name in text for text in seen) for name in task.class_names]
            assert used == [number <= index] * len(used), (index, task.name)
        assert any("imagenet kind" in text for text in seen), "generic names"


@pytest.mark.parametrize("name", ["tasso-both", "icarl"])
def test_names_of_earlier_tasks_have_their_prompts_of_training(
    name: str, tiny_clip: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = {"templates": ("a {}.", "the {}."), "train_templates": ("a {}.",)}
    first, second = (dataclasses.replace(task_of(*names), **forms) for names in (("first", "cat"), ("second", "car")))
    method = build_method({"name": name, **({"rank": 6} if name == "tasso-both" else {"teacher": "pretrained"})})
    method.attach(tiny_clip)
    used: list[str] = []
    original = tiny_clip.tokenise

    def record(texts: list[str]) -> Tensor:
        used.extend(texts)
        return original(texts)

    monkeypatch.setattr(tiny_clip, "tokenise", record)
    method.begin_run(RunInfo(templates=("{}.",), tasks=(first, second)))
    method.begin_task(dataclasses.replace(info(first, second), templates=("a {}.",)))
    assert {"a cat.", "a car."} <= set(used)
    assert "the cat." not in used


def test_anchors_do_not_depend_on_later_tasks(tiny_clip: Clip) -> None:
    first, second = task_of("first", "cat", "dog"), task_of("second", "car", "bus")
    tables = []
    for later in (task_of("third", "rose"), task_of("third", "tulip", "daisy", "grass")):
        method = build_method({"name": "tasso-both", "rank": 6, "anchors_per_step": 0})
        assert isinstance(method, TassoBoth)
        method.attach(tiny_clip)
        method.begin_run(RunInfo(templates=("a {}.",), tasks=(first, second, later)))
        method.begin_task(info(first, second))
        assert method.table is not None
        tables.append(method.table.tokens)
    assert torch.equal(*tables)


OWN = len(generic.names()) + len(generic._lines("captions"))  # of the package


@pytest.mark.parametrize(
    ("anchors", "counts"), [("both", [3 + OWN, 6 + OWN]), ("generic", [3 + OWN, 3 + OWN]), ("earlier", [None, 3])]
)
def test_choice_of_anchors(quick: dict[str, Any], anchors: str, counts: list[int | None]) -> None:
    method = {**options_for("tasso-both"), "anchors": anchors}
    learn_first_task(quick, method=method)
    for index, count in enumerate(counts):
        learner = learner_for(quick, method=method)
        training = learner.begin(index)
        assert isinstance(learner.method, TassoBoth)
        table = learner.method.table
        assert (len(table.tokens) if table else None) == count
        assert ("kd_text" in training.advance()) == (count is not None)


def test_samples_follow_from_seed_task_and_step(tiny_clip: Clip) -> None:
    tokens = tiny_clip.tokenise([f"thing {number}" for number in range(7)])
    table = AnchorTable(tiny_clip, tokens, 3, (1, 2))
    again, other, later = (AnchorTable(tiny_clip, tokens, 3, seed) for seed in ((1, 2), (5, 2), (1, 3)))
    steps = [table.rows(step).tolist() for step in range(8)]
    assert [again.rows(step).tolist() for step in reversed(range(8))] == steps[::-1], "whatever came before"
    assert all(len(set(rows)) == 3 for rows in steps)
    assert set(steps[0]).isdisjoint(steps[1]), "an epoch has each anchor once"
    for different in (other, later):
        assert [different.rows(step).tolist() for step in range(8)] != steps
    whole = AnchorTable(tiny_clip, tokens, 0, (1, 2))
    assert sorted(whole.rows(4).tolist()) == list(range(7))
    torch.testing.assert_close(table.embeddings, tiny_clip.encode_texts([f"thing {number}" for number in range(7)]))


def test_anchors_of_several_templates_cost_no_more_per_step(quick: dict[str, Any]) -> None:
    options = {**quick, "template": "a {}.\nmany {}.\nthe {}.", "method": options_for("tasso-both")}
    learn_first_task(options)
    training = learner_for(options).begin(1)
    assert isinstance(training.method, TassoBoth)
    assert training.method.table is not None
    named, captions = 3 + 3 + len(generic.names()), len(generic.captions())
    assert len(training.method.table.tokens) == named * 3 + captions, "earlier and generic names in each template"
    assert len(training.batch().inputs["anchors"]) == 2
    assert "kd_text" in training.advance()


# -- the task's own images as reference ----------------------------------------------------------------------------


def test_the_tasks_own_images_as_reference(quick: dict[str, Any], tmp_path: Any) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("a photo of a dog\na photo of a cat\nsomething else\n")
    options = {
        **quick, "reference": "task", "reference_texts": str(texts), "data_root": quick["data_root"],
        "method": options_for("tasso-both"),
    }  # fmt: skip
    learner = learner_for(options)
    training = learner.begin(0)
    assert learner.sequence.reference is None
    assert training.streams["reference"].pixels is training.streams["task"].pixels
    batch = training.batch()
    assert not torch.equal(batch.others["reference"].indices, batch.task.indices)
    assert isinstance(learner.method, TassoBoth)
    assert learner.method.table is not None
    assert len(learner.method.table.tokens) == 3 + OWN
    results = learn(from_dict(options))
    assert results["finished"]
    assert "reference" not in results["data"]
    with pytest.raises(RunError, match="started with reference = 'task', not None"):
        learn(from_dict({**options, "reference": None}))
    learn(from_dict({**options, "reference": "task", "method": options_for("tasso"), "out": str(tmp_path / "plain")}))


def test_changed_texts_are_noticed_without_reference_images(quick: dict[str, Any], tmp_path: Any) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("a dog\na cat\n")
    options = {**quick, "reference": "task", "reference_texts": str(texts), "method": options_for("tasso-both")}
    learner = learner_for(options)
    learner.folder.write_results(learner.first_results())
    texts.write_text("a dog\na bird\n")
    with pytest.raises(RunError, match="the reference texts are not those this run was started with"):
        learner_for(options)


# -- controls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["finetune", "snd"])
def test_other_methods_with_text_anchors(quick: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=r"method\.gamma: needs a text tower that is trained"):
        build_method({"name": name, "gamma": 1.0})
    method = {"name": name, "trainable": "both", "gamma": 10.0, "anchors_per_step": 4}
    learn_first_task(quick, method=method)
    training = learner_for(quick, method=method).begin(1)
    names = list(training.streams)
    assert names == (["task"] if name == "finetune" else ["task", "reference"])
    terms = training.advance()
    assert float(terms["kd_text"]) == pytest.approx(10 * 1.4142e-3, rel=0.02), "a clamped angle of zero"
    assert float(training.advance()["kd_text"]) > float(terms["kd_text"])
