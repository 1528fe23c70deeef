"""Every baseline against its authors' released code: values and gradients in float64 (tests/golden/baselines)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasso.data import ImageSet, Task
from tasso.data.images import ImageBatch
from tasso.distributed import SINGLE_PROCESS
from tasso.heads.base import ClassKey, Moments
from tasso.heads.nearest_mean import NearestMean
from tasso.methods import Batch, RunInfo, TaskInfo
from tasso.methods.finetune import FineTune
from tasso.methods.gift import Gift
from tasso.methods.icarl import ICaRL
from tasso.methods.losses import (
    distillation_both_ways,
    matching_targets,
    over_rms,
    selected_distances,
    teacher_preference,
)
from tasso.methods.lwf import LearningWithoutForgetting
from tasso.methods.moe import adapters as adapters_module
from tasso.methods.moe.adapters import Site
from tasso.methods.moe.features import Features
from tasso.methods.moe_adapters import MoEAdapters
from tasso.methods.snd import SelectAndDistill
from tasso.methods.zscl import ZeroShotContinualLearning
from tasso.models.clip import Clip

BASELINES = Path(__file__).parents[1] / "golden" / "baselines"
CLOSE = 1e-9  # largest difference over the largest number of an array

Case = dict[str, Tensor]


def load(name: str) -> Case:
    return {key: torch.from_numpy(value) for key, value in np.load(BASELINES / f"{name}.npz").items()}


def assert_close(found: Tensor, expected: Tensor, what: str) -> None:
    assert found.dtype == expected.dtype == torch.float64, what
    assert found.shape == expected.shape, what
    error = float((found.detach() - expected).abs().max() / expected.abs().max())
    assert error < CLOSE, f"{what}: relative error {error}"


def leaf(tensor: Tensor) -> Tensor:
    return tensor.clone().requires_grad_()


def gradients(value: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, leaves, retain_graph=True, materialize_grads=True)


def total(terms: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(terms.values())).sum()  # as the training loop adds them up


def images(rows: Tensor, labels: Tensor | None = None) -> ImageBatch:
    return ImageBatch(rows, torch.zeros(len(rows)) if labels is None else labels, torch.arange(len(rows)))


class Rows(Clip):
    """A CLIP whose embeddings are its inputs at unit length, as those of `Clip` are."""

    dim = 0

    def __init__(
        self,
        case: Case,
        tokens: Tensor | None = None,
        texts: Tensor | None = None,
        teachers: Sequence[Tensor] = (),
        weights: Mapping[str, Tensor] | None = None,
    ) -> None:
        """
        Args:
            tokens: what `tokenise` returns: embeddings of the student's class texts.
            texts: embeddings of the texts as the model at the start of the task has them.
            teachers: embeddings by the frozen encoders, in the order in which a method asks for encoders.
            weights: what is trained.
        """
        self.distributed, self.compiled = SINGLE_PROCESS, False
        self.model = SimpleNamespace(eval=lambda: None)  # type: ignore[assignment]
        self.scale = float(case.get("logit_scale", 100.0))
        self.tokens, self.texts, self.teachers, self.weights = tokens, texts, iter(teachers), weights or {}

    @property
    def logit_scale(self) -> float:
        return self.scale

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def encode_images(self, pixels: Tensor) -> Tensor:
        self.encoded = F.normalize(pixels, dim=-1)
        return self.encoded

    def encode_tokens(self, tokens: Tensor) -> Tensor:
        return F.normalize(tokens, dim=-1)

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        assert self.texts is not None
        return F.normalize(self.texts, dim=-1)

    def class_embeddings(self, class_names: Sequence[str], templates: Sequence[str]) -> Tensor:
        return self.encode_texts(class_names)

    def tokenise(self, texts: Sequence[str]) -> Tensor:
        return torch.empty(0) if self.tokens is None else self.tokens

    def frozen_image_encoder(self) -> Any:
        return Teacher(next(self.teachers))

    def tuned_parameters(self, towers: str) -> Any:
        return self.weights


class Teacher:
    """A frozen encoder with given embeddings."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = F.normalize(rows, dim=-1)

    def encode_images(self, pixels: Tensor) -> Tensor:
        return self.rows

    def encode_async(self, pixels: Tensor) -> Any:
        return SimpleNamespace(wait=lambda: self.rows)


SECOND = TaskInfo(1, "second", (), ("{}",), seed=0)  # the previous model is not the pretrained one
RUN = RunInfo(reference_texts=("given",), templates=("{}",))


def begin(method: Any, clip: Clip, task: TaskInfo = SECOND) -> None:
    method.attach(clip)
    method.begin_run(RUN)
    method.begin_task(task)


# -- fine-tuning -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["smooth", "hard"])
def test_finetune(kind: str) -> None:
    case = load("finetune")
    rows, texts = leaf(case["images"]), leaf(case["texts"])
    method = FineTune(trainable="both", label_smoothing=float(case[f"{kind}_label_smoothing"]))
    begin(method, Rows(case, tokens=texts, texts=case["texts"]))
    terms = method.loss(Batch(images(rows, case["labels"])))
    total(terms).backward()
    assert_close(terms["ce"], case[f"{kind}_ce"], "ce")
    for tensor, name in ((rows, "images"), (texts, "texts")):
        assert tensor.grad is not None
        assert_close(tensor.grad, case[f"{kind}_grad_{name}"], name)


# -- SnD -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("selection", "prefix"), [("batch_mean", ""), ("per_sample", "per_sample_")])
def test_snd(selection: Any, prefix: str) -> None:
    case = load("snd")
    method = SelectAndDistill(selection=selection)
    for name in ("previous_weight", "pretrained_weight", "sharpness", "threshold"):
        assert getattr(method, name) == float(case[name])
    clip = Rows(case, texts=case["texts"], teachers=[case["pretrained"], case["previous"]])
    begin(method, clip)
    rows, student = leaf(case["images"]), leaf(case["student"])
    terms = method.loss(Batch(images(rows, case["labels"]), {"reference": images(student)}))
    assert_close(terms["ce"], case["ce"], "ce")
    assert_close(terms["kd_previous"], 9 * case[f"{prefix}kd_previous"], "kd_previous")
    assert_close(terms["kd_pretrained"], 0.5 * case[f"{prefix}kd_pretrained"], "kd_pretrained")
    assert_close(total(terms), case[f"{prefix}total"], "total")
    by_images, by_student, by_unit = gradients(total(terms), rows, student, clip.encoded)
    assert_close(by_images, case["grad_images"], "images")
    assert_close(by_student, case[f"{prefix}grad_student"], "student")
    assert_close(by_unit[len(rows) :], case[f"{prefix}grad_unit_student"], "unit student")
    if selection == "batch_mean":
        for name, weight in (("kd_previous", 9), ("kd_pretrained", 0.5)):
            assert_close(gradients(terms[name], student)[0], weight * case[f"grad_{name}"], name)


def test_snd_preference_of_each_image() -> None:
    case = load("snd")
    student, previous, pretrained = (F.normalize(case[name]) for name in ("student", "previous", "pretrained"))
    preference = teacher_preference(previous, pretrained, float(case["sharpness"]), float(case["threshold"]))
    assert_close(preference, case["preference"], "preference")
    for n in range(12):
        row = slice(n, n + 1)
        each = selected_distances(student[row], previous[row], pretrained[row], preference[row])
        for found, name in zip(each, ("kd_previous", "kd_pretrained"), strict=True):
            assert_close(found, case[f"per_sample_each_{name}"][n], f"{name} of {n}")


# -- LwF, iCaRL and ZSCL: the distillation of logits -----------------------------------------------------------


def check_distillation(method: Any, case: Case, name: str) -> None:
    """Terms and gradients of a method that distils on `name`, with the class texts of the teacher."""
    assert method.temperature == float(case["temperature"])
    assert method.weight == float(case["weight"])
    assert method.label_smoothing == float(case["label_smoothing"])
    rows, texts, student = leaf(case["images"]), leaf(case["texts"]), leaf(case["student"])
    begin(method, Rows(case, tokens=texts, texts=case["teacher_texts"], teachers=[case["teacher"]]))
    terms = method.loss(Batch(images(rows, case["labels"]), {name: images(student)}))
    assert list(terms) == ["ce", "kd", "kd_transposed"]
    for term, value in terms.items():
        assert_close(value, case[term], term)
    for term in ("kd", "kd_transposed"):
        assert_close(gradients(terms[term], student)[0], case[f"grad_{term}"], term)
    assert_close(total(terms), case["total"], "total")
    total(terms).backward()
    for tensor, what in ((rows, "images"), (texts, "texts"), (student, "student")):
        assert tensor.grad is not None
        assert_close(tensor.grad, case[f"grad_{what}"], what)


def test_lwf() -> None:
    check_distillation(LearningWithoutForgetting(), load("lwf"), "current")


def test_icarl_loss() -> None:
    check_distillation(ICaRL(), load("icarl_loss"), "exemplars")


@pytest.mark.parametrize("name", ["lwf", "icarl_loss", "zscl"])
def test_distillation_from_logits(name: str) -> None:
    case = load(name)
    student = leaf(case["student_logits"])
    terms = distillation_both_ways(case["teacher_logits"], student, float(case["temperature"]))
    for value, term in zip(terms, ("kd", "kd_transposed"), strict=True):
        assert_close(value, case[term], term)
        if name != "zscl":
            assert_close(gradients(value, student)[0], case[f"grad_{term}_student_logits"], term)


TABLES = ("images", "texts", "student")


def test_zscl() -> None:
    case = load("zscl")
    method = ZeroShotContinualLearning()
    assert method.anchor == float(case["anchor_weight"])
    weights = {name: leaf(case[f"start_{name}"]) for name in TABLES}
    clip = Rows(case, weights["texts"], case["teacher_texts"], [case["teacher"]], weights)
    begin(method, clip)
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(case[name])  # three steps later
    batch = Batch(images(weights["images"], case["labels"]), {"reference": images(weights["student"])})
    terms = method.loss(batch)
    assert list(terms) == ["ce", "kd", "kd_transposed", "anchor"]
    for term, value in terms.items():
        assert_close(value, case[term], term)
        for name, gradient in zip(TABLES, gradients(value, *weights.values()), strict=True):
            expected = case.get(f"grad_{term}_{name}", torch.zeros_like(gradient))
            if expected.any():
                assert_close(gradient, expected, f"{term} by {name}")
            else:
                assert not gradient.any(), f"{term} by {name}"
    assert_close(total(terms), case["total"], "total")
    total(terms).backward()
    for name, weight in weights.items():
        assert weight.grad is not None
        assert_close(weight.grad, case[f"grad_total_{name}"], name)


def test_zscl_mean_of_weights() -> None:
    case = load("zscl_mean")
    trajectory, steps = case["trajectory"], int(case["steps"])
    method = ZeroShotContinualLearning(average_every=int(case["period"]))
    weights = {"one": trajectory[0, :20].clone(), "other": trajectory[0, 20:].clone()}
    texts = torch.eye(2, dtype=torch.float64)
    task = TaskInfo(0, "first", (), ("{}",), seed=0, steps=steps)
    begin(method, Rows(case, texts=texts, teachers=[texts], weights=weights), task)
    for step in range(steps):
        weights["one"].copy_(trajectory[step + 1, :20])
        weights["other"].copy_(trajectory[step + 1, 20:])
        method.after_step(step)
    method.end_task()
    assert_close(torch.cat(list(weights.values())), case["mean"], "mean")
    assert_close(case["trajectory"][case["counted"]].mean(0), case["mean"], "what is counted")


# -- iCaRL: memory and nearest mean ----------------------------------------------------------------------------


class RowPixels:
    """Images that are their embeddings."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def eval_view(self, indices: Any) -> Tensor:
        return self.rows[torch.from_numpy(np.asarray(indices))]


def icarl_after_a_task(case: Case, memory: int) -> tuple[ICaRL, Task]:
    keys = tuple(map(str, range(len(case["features"]))))
    train = ImageSet(None, keys, case["labels"].numpy())  # type: ignore[arg-type]
    task = Task("golden", tuple("abcde"), train, train, train)

    def read(chosen: ImageSet, what: str) -> Any:
        return RowPixels(case["features"][[int(key) for key in chosen.keys]])

    method = ICaRL(memory=memory)
    clip = Rows(case, texts=torch.eye(5, 12, dtype=torch.float64), teachers=[case["features"]])
    clip.dim = 12
    pixels: Any = RowPixels(case["features"])
    begin(method, clip, TaskInfo(0, "golden", task.class_names, ("{}",), 0, 1, pixels, read, (task,)))
    method.end_task()
    return method, task


def test_icarl_herding() -> None:
    case = load("icarl")
    classes, each = case["order"].shape
    assert each == int(case["per_class"])
    method, _ = icarl_after_a_task(case, classes * each)
    chosen = method.memory_of(0).exemplars
    assert torch.equal(chosen.view(each, classes).mT, case["order"]), "classes take turns"
    everything = icarl_after_a_task(case, len(case["features"]))[0].memory_of(0).exemplars
    by_class = everything[case["labels"][everything].argsort(stable=True)]
    assert torch.equal(by_class, case["full_order"])


def test_icarl_nearest_mean() -> None:
    case = load("icarl")
    unit, queries = (F.normalize(case[name], dim=-1) for name in ("features", "queries"))
    chosen = case["order"].mT.flatten()
    moments = Moments(len(case["order"]), unit.shape[1], second="none", device=unit.device)
    moments.add(unit[chosen], case["labels"][chosen])
    assert_close(F.normalize(moments.sums, dim=-1), case["class_means"], "class means")
    head = NearestMean(unit.shape[1], logit_scale=1.0)
    columns = head.add_classes([ClassKey("golden", name) for name in "abcde"])
    head.sums = moments.sums
    scores = head.logits(queries, columns, torch.zeros(len(queries), 5), torch.zeros(len(queries), 0))
    assert torch.equal(scores.argmax(-1), case["decisions"])
    assert_close(2 * scores - 2, case["scores"], "scores")  # of unit vectors, −‖q − μ‖² = 2⟨q, μ⟩ − 2


# -- GIFT ------------------------------------------------------------------------------------------------------


def gift(case: Case, clip: Clip, teacher_images: Tensor, teacher_texts: Tensor, consolidation: float) -> Gift:
    """GIFT within a task, with given pairs in the place of generated ones."""
    method = Gift(generator="atlas", consolidation=consolidation)
    assert method.temperature == float(case["temperature"])
    assert method.label_smoothing == float(case["label_smoothing"])
    assert method.weight == float(case["kd_weight"])
    assert method.alignment == float(case["alignment_weight"])
    method.attach(clip)
    method.begin_task(SECOND)
    method.teacher_encoders["previous"] = Teacher(teacher_images)  # type: ignore[assignment]
    method.teacher_texts = F.normalize(teacher_texts, dim=-1)
    return method


@pytest.mark.parametrize("prefix", ["", "thirds_"])
def test_gift_pairs(prefix: str) -> None:
    case = load("gift")
    prompts = case[f"{prefix}prompts"]
    assert_close(matching_targets(prompts, torch.float64), case[f"{prefix}targets"], "targets")
    rows, texts = leaf(case["images"]), leaf(case["texts"])
    clip = Rows(case, tokens=case["texts"], texts=case["texts"], teachers=[case["teacher_images"]])
    method = gift(case, clip, case["teacher_images"], case["teacher_texts"], 0.0)
    method.pair_tokens = texts
    batch = Batch(images(case["images"], prompts), {"synthetic": images(rows, prompts)})
    terms = method.loss(batch)
    del terms["ce"]
    assert list(terms) == ["kd", "alignment"]
    for term, value in terms.items():
        expected = case[f"{prefix}{term}_images"] + case[f"{prefix}{term}_texts"]
        assert_close(value, expected, term)
        by_images, by_texts = gradients(value, rows, texts)
        assert_close(by_images, case[f"{prefix}grad_{term}_images"], f"{term} by images")
        assert_close(by_texts, case[f"{prefix}grad_{term}_texts"], f"{term} by texts")
    assert_close(total(terms), case[f"{prefix}sum"], "sum")
    by_images, by_texts = gradients(total(terms), rows, texts)
    assert_close(by_images, case[f"{prefix}grad_both_images"], "images")
    assert_close(by_texts, case[f"{prefix}grad_both_texts"], "texts")


WEIGHTS = ("image_weight", "image_bias", "text_weight", "text_bias")


class Linear(Rows):
    """Each tower is one linear layer."""

    def encode_images(self, pixels: Tensor) -> Tensor:
        return super().encode_images(pixels @ self.weights["image_weight"] + self.weights["image_bias"])

    def encode_tokens(self, tokens: Tensor) -> Tensor:
        return super().encode_tokens(tokens @ self.weights["text_weight"] + self.weights["text_bias"])


def test_gift_consolidation() -> None:
    case = load("gift_consolidation")
    weights = {name: leaf(case[f"start_{name}"]) for name in WEIGHTS}
    teacher = [
        case[f"pair_{kind}s"] @ case[f"teacher_{kind}_weight"] + case[f"teacher_{kind}_bias"]
        for kind in ("image", "text")
    ]
    clip = Linear(case, case["class_texts"], case["class_texts"], [teacher[0]], weights)
    method = gift(case, clip, *teacher, float(case["consolidation_weight"]))
    method.pair_tokens = case["pair_texts"]
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(case[name])  # three steps later
    pairs = images(case["pair_images"], case["prompts"])
    terms = method.loss(Batch(images(case["images"], case["labels"]), {"synthetic": pairs}))
    assert list(terms) == ["ce", "kd", "alignment", "consolidation"]
    for term, value in terms.items():
        assert_close(value, case[term], term)
    assert_close(total(terms), case["total"], "total")
    # `kd` has the gradients of `alignment` and `consolidation` as well.
    for term, keys in (("ce", ("ce",)), ("kd", ("pairs", "consolidation"))):
        for name, gradient in zip(WEIGHTS, gradients(terms[term], *weights.values()), strict=True):
            assert_close(gradient, sum(case[f"grad_{key}_{name}"] for key in keys), f"{term} by {name}")
    for name, unit in zip(WEIGHTS, over_rms([case[f"grad_pairs_{name}"] for name in WEIGHTS]), strict=True):
        assert_close(unit.square(), case[f"fisher_{name}"], f"Fisher weights of {name}")
    total(terms).backward()
    for name, weight in weights.items():
        assert weight.grad is not None
        assert_close(weight.grad, case[f"grad_total_{name}"], name)


# -- MoE-Adapters ----------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A residual block behind its attention, with an MLP that adds nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_2, self.ls_2 = nn.LayerNorm(width).double(), nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        added: Tensor = self.ls_2(0 * self.ln_2(tokens))
        return tokens + added


def moe(monkeypatch: pytest.MonkeyPatch, blocks: Sequence[Block], **options: Any) -> MoEAdapters:
    sites = [Site(f"visual.{number}", block, batch_first=True) for number, block in enumerate(blocks)]
    monkeypatch.setattr(adapters_module, "find_sites", lambda clip: sites)
    method = MoEAdapters(selector_features="clip", **options)
    clip = Rows({})
    clip.dim = 12
    method.attach(clip)
    return method


def test_moe_routing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)  # no noise
    case = load("moe_routing")
    block = Block(12)
    method = moe(monkeypatch, [block], experts=6, hidden=6, dropout=0.0)
    assert method.top == int(case["top"])
    assert method.expert_scale == float(case["scale"])
    adapters = method.adapters.double()
    adapters.begin_task()
    trained = adapters.trained()
    # Ours keeps `up` as expert × inside × width.
    values = {**{name: case[name] for name in ("down", "down_bias", "up_bias")}, "up": case["up"].mT}
    values |= {"gate": case["router"], "noise": torch.zeros_like(case["router"])}
    with torch.no_grad():
        for name, value in values.items():
            trained[f"visual.0.{name}"].copy_(value)
    tokens = leaf(case["tokens"])
    with adapters.learning():
        mixed = block(tokens) - tokens
    assert_close(mixed, case["mixed"], "mixed")
    assert torch.equal(adapters.blocks["visual.0"].counts, case["counts"])
    (case["probe"] * mixed).sum().backward()
    grads = {name.removeprefix("visual.0."): parameter.grad for name, parameter in trained.items()}
    found = {"tokens": tokens.grad, "router": grads["gate"], "up": grads["up"].mT}  # type: ignore[union-attr]
    found |= {name: grads[name] for name in ("down", "down_bias", "up_bias")}
    for name, gradient in found.items():
        assert gradient is not None
        assert_close(gradient, case[f"grad_{name}"], name)


def test_moe_frozen_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    case = load("moe_frozen")
    method = moe(monkeypatch, [Block(4) for _ in case["block"]], experts=7, hidden=2)
    assert method.freeze == int(case["freeze"])
    for counts, frozen in zip(case["counts"], case["frozen"], strict=True):
        method.adapters.begin_task()
        for block, own in zip(method.adapters.blocks.values(), counts, strict=True):
            assert not block.counts.any(), "counts begin at zero in each task"
            block.counts.copy_(own)
        method.adapters.end_task(method.freeze)
        found = torch.stack([block.frozen for block in method.adapters.blocks.values()])
        assert torch.equal(found, frozen)


class RowFeatures(Features):
    """Features that are the pixels."""

    dim = 12

    def raw(self, pixels: Tensor) -> Tensor:
        return pixels


@pytest.mark.parametrize(("routing", "key"), [("per_sample", "image"), ("per_batch", "batch")])
def test_moe_selector(monkeypatch: pytest.MonkeyPatch, routing: Any, key: str) -> None:
    case = load("moe_selector")
    method = moe(monkeypatch, [Block(4)], experts=2, hidden=2, routing=routing, selector_hidden=4)
    selector = method._new_selector()
    selector.features = RowFeatures()
    selector.set_tasks(11, with_reference=True)
    assert selector.tasks == case["numbers"].tolist()
    selector.double()
    coders = [selector.coder(task) for task in selector.tasks]
    for number, coder in enumerate(coders):
        for layer, name in ((coder.down, "encoder"), (coder.up, "decoder")):
            layer.weight.copy_(case[f"{name}_weight"][number])
            layer.bias.copy_(case[f"{name}_bias"][number])
    inputs = selector.features.squashed(case["features"])
    errors = torch.stack([coder.errors(inputs) for coder in coders], dim=-1)
    assert_close(errors, case["image_losses"], "errors per image")
    assert_close(errors.mean(1), case["batch_losses"], "errors per batch")
    for threshold, expected in zip(case["thresholds"], case[f"{key}_routes"], strict=True):
        for coder in coders:
            coder.threshold.copy_(threshold)
        routes = torch.stack([selector.routes(batch) for batch in case["features"]])
        assert torch.equal(routes, expected if key == "image" else expected[:, None].expand_as(routes))
