"""GIFT: what its images are asked for, what they teach, and which weights are held back."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from conftest import draw
from method_runs import copied, learn_first_task, learner_for
from slow_losses import slow_d, softmax
from tasso.config import from_dict
from tasso.errors import ConfigError, DataError
from tasso.methods import RunInfo, build_method
from tasso.methods.gift import Gift
from tasso.models.loading import load_clip
from tasso.training.learner import learn
from tasso.training.resolve import resolve

SMALL = {"name": "gift", "generator": "atlas", "images": 24}


def began(quick: dict[str, Any], **options: Any) -> Any:
    """A second task, two steps in."""
    learn_first_task(quick, method={**SMALL, **options})
    training = learner_for(quick, method={**SMALL, **options}).begin(1)
    return training


def test_the_copy_for_retrieval_is_whole(quick: dict[str, Any]) -> None:
    clip = load_clip(str(quick["model"]))
    clip.tune = "lora"
    usual, retrieval = (build_method({**SMALL, "generator": g}).cost(clip).training for g in ("atlas", "retrieval"))
    assert retrieval - usual == sum(parameter.numel() for parameter in clip.copy().model.parameters())


def test_prompts_are_drawn_from_reference_and_earlier_classes(
    quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    training = began(quick, images=90)
    method = training.method
    assert isinstance(method, Gift)
    asked: list[tuple[list[str], list[int], Path]] = []
    pairs = method.pairs.pairs

    def spy(prompts: list[str], seeds: list[int], folder: Path, on_progress: Any) -> Any:
        asked.append((prompts, seeds, folder))
        return pairs(prompts, seeds, folder, on_progress)

    monkeypatch.setattr(method.pairs, "pairs", spy)
    images = method.extra_images(method.task)["synthetic"]
    assert len(images) == 90
    prompts, seeds, folder = asked[0]
    pool = {f"a photo of a {name} kind {i}." for name in ("imagenet", "dtd") for i in range(3)}
    assert set(prompts) == pool, "90 draws from six prompts"
    assert len(set(seeds)) == 90
    assert folder.name == "synthetic-02"
    assert folder.parent == Path(str(quick["out"])) / "files"
    first = method.task.__class__(**{**vars(method.task), "index": 0, "tasks": method.task.tasks[:1]})
    method.extra_images(first)
    assert set(asked[1][0]) <= {f"a photo of a imagenet kind {i}." for i in range(3)}, "no earlier task, no class of it"
    assert not set(asked[1][1]) & set(seeds), "each task has images of its own"


@pytest.mark.usefixtures("float32")
def test_terms_are_those_of_the_formulas(quick: dict[str, Any]) -> None:
    training = began(quick)
    method, clip = training.method, training.clip
    start = load_clip(str(quick["model"]))
    start.load_state(copied(clip.state("both")), "previous")
    for _ in range(2):
        training.advance()
    batch = training.batch()
    pairs = batch.others["synthetic"]
    assert training.streams["synthetic"].view == "eval"
    texts = [f"{t}" for t in method_texts(method, pairs.labels)]
    scale = clip.logit_scale

    def logits(model: Any) -> Tensor:
        with torch.no_grad():
            return scale * model.encode_images(pairs.pixels).double() @ model.encode_texts(texts).double().T

    teacher, student = logits(start), logits(clip)
    kd = slow_d(teacher.tolist(), student.tolist(), 2.0) + slow_d(teacher.T.tolist(), student.T.tolist(), 2.0)
    aligned = 0.0
    for table in (student, student.T):
        for i, row in enumerate(table.tolist()):
            same = [float(other == texts[i]) for other in texts]
            target = [0.8 * s / sum(same) + 0.2 / len(row) for s in same]
            aligned -= sum(a * math.log(b) for a, b in zip(target, softmax(row), strict=True)) / len(row)
    terms = {name: float(term.detach()) for name, term in method.loss(batch).items()}
    assert terms["kd"] == pytest.approx(kd, rel=1e-4)
    assert terms["alignment"] == pytest.approx(0.25 * aligned, rel=1e-4)


def method_texts(method: Any, labels: Tensor) -> list[str]:
    """The prompts of these pairs, found again by their tokens."""
    names = [*(f"imagenet kind {label}" for label in range(3)), *method.task.earlier[0].class_names]
    prompts = [f"a photo of a {name}." for name in names]
    tokens = {tuple(row): prompt for row, prompt in zip(method.clip.tokenise(prompts).tolist(), prompts, strict=True)}
    return [tokens[tuple(row)] for row in method.pair_tokens[labels].tolist()]


def test_consolidation_weighs_by_the_fisher_information_of_this_very_step(quick: dict[str, Any]) -> None:
    """The gradients of a step against those of a plain second computation in float64."""
    training = began(quick, consolidation=0.7)
    method, clip = training.method, training.clip
    before = copied(clip.parameters_of("both"))
    for _ in range(2):
        training.advance()
    batch = training.batch()
    named = clip.parameters_of("both")
    for parameter in named.values():
        parameter.grad = None
    terms = method.loss(batch)
    sum(terms.values()).backward()
    given = {name: p.grad.clone() for name, p in named.items()}

    plain = copy.copy(method)
    plain.consolidation = 0.0
    parts = plain.loss(batch)
    g = torch.autograd.grad(parts["kd"] + parts["alignment"], list(named.values()), retain_graph=True)
    ce = torch.autograd.grad(parts["ce"], list(named.values()), materialize_grads=True)
    penalty = 0.0
    for (name, parameter), gradient, own in zip(named.items(), g, ce, strict=True):
        fisher = gradient.double().square() / gradient.double().square().mean()
        shift = parameter.detach().double() - before[name].double()
        penalty += 0.7 * float((fisher * shift.square()).sum())
        expected = own.double() + gradient.double() + 2 * 0.7 * fisher * shift
        torch.testing.assert_close(given[name].double(), expected, rtol=2e-3, atol=1e-5, msg=name)
    assert float(terms["consolidation"].detach()) == pytest.approx(penalty, rel=1e-3)
    assert penalty > 0


def test_tables_say_what_stands_in_for_the_generator(quick: dict[str, Any]) -> None:
    labels = {}
    for generator in ("atlas", "retrieval", "diffusers", "folder"):
        for label in (None, "my run"):
            config, _ = resolve(
                from_dict({**quick, "method": {"name": "gift", "generator": generator}, "label": label})
            )
            labels[generator, label] = config.label
    assert labels["atlas", "my run"] == "my run, drawn images"
    assert labels["retrieval", "my run"] == "my run, retrieved images"
    assert labels["diffusers", "my run"] == labels["folder", "my run"] == "my run"
    assert labels["retrieval", None] == "GIFT (generator retrieval), retrieved images"
    assert labels["diffusers", None] == "GIFT"


def test_the_generator_follows_the_benchmark_unless_it_is_given(quick: dict[str, Any]) -> None:
    def taken(**options: Any) -> tuple[Any, str | None]:
        config, _ = resolve(from_dict({**quick, "method": "gift", **options}))
        return config.method["generator"], config.label

    assert taken(benchmark="atlas") == ("atlas", "GIFT, drawn images")
    assert taken() == ("diffusers", "GIFT")
    assert taken(tasks={"pets": "./pets"}, benchmark="atlas") == ("diffusers", "GIFT")
    assert taken(benchmark="atlas", method={"name": "gift", "generator": "diffusers"})[0] == "diffusers"
    assert taken(benchmark="atlas", method={"name": "gift", "generator_source": "a/model"})[0] == "diffusers"


def test_the_log_says_where_images_come_from(quick: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="tasso")
    learn_first_task(quick, method=SMALL)
    assert "gift: images by --method.generator atlas (drawn images)" in caplog.text


def test_retrieval_sees_texts_as_the_pretrained_model_does(quick: dict[str, Any], tmp_path: Path) -> None:
    """A resumed run must find the same images, although the text tower has been trained since."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    lines = []
    for number in range(40):
        draw(number % 4, number).save(corpus / f"{number}.png")
        lines.append({"file": f"{number}.png", "caption": f"image of kind {number % 7} in room {number}"})
    (corpus / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = {"name": "gift", "generator": "retrieval", "generator_source": str(corpus), "images": 16}
    whole = learner_for(quick, method=options, lr=1e-2)
    whole._learn_task(0)
    keys = whole.begin(1).streams["synthetic"].pixels
    again = learner_for(quick, method=options, lr=1e-2).begin(1).streams["synthetic"].pixels
    assert torch.equal(keys.eval_view(np.arange(16)), again.eval_view(np.arange(16)))


def test_images_of_a_folder(quick: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    lines = []
    for number in range(12):
        Image.fromarray(np.asarray(draw(number % 3, number))).save(folder / f"{number}.png")
        lines.append({"file": f"{number}.png", "prompt": f"a photo of a imagenet kind {number % 3}.", "seed": number})
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = {"name": "gift", "generator": "folder", "generator_source": str(folder), "images": 30}
    assert learn(from_dict({**quick, "method": options}))["finished"]


def test_what_cannot_work_is_said_before_anything_is_made(quick: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"method\.generator: expected one of auto, diffusers, folder, atlas, retrieval"
    ):
        build_method({"name": "gift", "generator": "magic"})
    with pytest.raises(ConfigError, match=r"method\.images: must be at least 1"):
        build_method({"name": "gift", "images": 0})
    for options, message in (
        ({"generator": "folder"}, "generator_source"),
        ({"generator": "retrieval", "generator_source": str(tmp_path / "nowhere")}, "nowhere"),
        ({"generator": "atlas", "generator_source": "x"}, "generator_source"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            learn(from_dict({**quick, "method": {"name": "gift", **options}}))
        assert not Path(str(quick["out"])).exists()


def test_no_names_no_prompts(quick: dict[str, Any]) -> None:
    method = learner_for(quick, method=SMALL).method
    assert isinstance(method, Gift)
    with pytest.raises(ConfigError, match="gift needs the class names of a reference set"):
        method.begin_run(RunInfo(tasks=learner_for(quick).sequence.tasks))


def test_images_that_a_later_task_needs_are_missed_before_the_first_is_trained(
    quick: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "images" / "synthetic-01"
    folder.mkdir(parents=True)
    draw(0, 0).save(folder / "0.png")
    line = {"file": "0.png", "prompt": "a photo of a imagenet kind 0.", "seed": 0}
    (folder / "pairs.jsonl").write_text(json.dumps(line))
    options = {"name": "gift", "generator": "folder", "generator_source": str(tmp_path / "images"), "images": 30}
    with pytest.raises(DataError, match="images"):
        learn(from_dict({**quick, "method": options}))
    assert not Path(str(quick["out"])).exists()


def test_seeds_are_those_of_the_authors_code(quick: dict[str, Any]) -> None:
    method = learner_for(quick, method=SMALL, seed=42).method
    assert isinstance(method, Gift)
    first, second = method.requests
    assert first.seeds == tuple(range(419_900_000, 419_900_024))
    assert second.seeds == tuple(range(420_000_000, 420_000_024))


def test_seeds_fit_a_generator_however_large_the_run_s_is(quick: dict[str, Any]) -> None:
    for run_seed in (0, 2**47):
        method = learner_for(quick, method=SMALL, seed=run_seed).method
        assert isinstance(method, Gift)
        for seed in (seed for request in method.requests for seed in request.seeds):
            assert seed >= 0
            torch.Generator().manual_seed(seed)
