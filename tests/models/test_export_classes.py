"""The exports of a run give the probabilities of `tasso classify`, class by class, without tasso."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import tasso
from fences import code_in
from model_families import write_hf_siglip
from own_images import write_folder
from tasso.cli import main
from tasso.data import atlas
from tasso.data.images.transforms import normalise, resize_and_centre
from tasso.errors import ModelError
from tasso.heads.base import Head
from tasso.models.export import FORMATS, export_model
from tasso.training.run import Run
from tasso.training.source import open_source

PACKAGES = {"open_clip": (), "hf": ("transformers",), "onnx": ("onnx", "onnxscript", "onnxruntime")}
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Images of several sizes and forms, larger and smaller than the model's."""
    folder, files = tmp_path_factory.mktemp("images"), []
    for number, (width, height) in enumerate([(64, 64), (40, 29), (29, 50), (11, 13), (16, 16)]):
        image = Image.fromarray(atlas.render("pets", number, 3, size=64)).resize((width, height))
        files.append(folder / f"{number}.{'jpg' if number % 2 else 'png'}")
        image.save(files[-1])
    return files


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Three tasks; the last has two classes of the first, and one of its own."""
    folder = tmp_path_factory.mktemp("data")
    write_folder(folder / "pets", "pets", 3)
    write_folder(folder / "food", "food", 3)
    write_folder(folder / "more", "pets", 4)
    return {name: str(folder / name) for name in ("pets", "food", "more")}


def learn(places: dict[str, str], model: str, out: Path, **options: Any) -> Path:
    """A run that trains nothing, unless another method is given."""
    given: dict[str, Any] = {
        "tasks": places, "model": model, "method": {"name": "frozen"}, "device": "cpu", "out": str(out),
        "template": "a photo of a {}.\na drawing of a {}.",
    }  # fmt: skip
    tasso.learn(**given | options)
    return out


@pytest.fixture(scope="module")
def run(places: dict[str, str], tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learn(places, tiny_model, tmp_path_factory.mktemp("runs") / "lda")


def check_same_as_classify(run: Path, after: str | None, to: str, images: list[Path], folder: Path) -> dict[str, Any]:
    """Follow the README for each image, and compare all probabilities; returns the variables of its code."""
    for package in PACKAGES[to]:
        pytest.importorskip(package, reason=f"no {package} here: pip install 'tasso[{to}]'")
    after_words = ["--after", after] if after else []
    main(["export", str(run), *after_words, "--to", to, "--out", str(folder)])
    code = code_in((folder / "README.md").read_text(encoding="utf-8"), "python")[0]
    assert "tasso" not in code
    for image, predictions in zip(images, Run(run, after=after).classify(images, top=99), strict=True):
        found: dict[str, Any] = {}
        exec(code.replace("FOLDER", str(folder)).replace("IMAGE", str(image)), found)
        names = [(answer["class"], answer["task"]) for answer in found["answers"]]
        expected = {(each.class_name, each.task): each.probability for each in predictions}
        assert len(names) == len(predictions) == len(set(names))
        probabilities = found["probabilities"][0]
        np.testing.assert_allclose(probabilities, [expected[name] for name in names], rtol=0, atol=TOLERANCE)
        assert names[probabilities.argmax()] == (predictions[0].class_name, predictions[0].task)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("after", [None, "food"])
@pytest.mark.parametrize("to", FORMATS)
def test_probabilities_are_those_of_classify(
    to: str, after: str | None, run: Path, images: list[Path], tmp_path: Path
) -> None:
    found = check_same_as_classify(run, after, to, images, tmp_path / "out")
    classes = json.loads((tmp_path / "out" / "classes.json").read_text(encoding="utf-8"))
    assert len(classes["columns"]) == 10
    assert len(classes["answers"]) == 7, "classes of the same name are one"
    assert classes["answers"][0]["task"] == "pets, more"
    assert sum(answer["learned"] for answer in classes["answers"]) == (7 if after is None else 6)
    assert classes["templates"]["food"] == ["a photo of a {}.", "a drawing of a {}."]
    if to == "onnx":
        metadata = found["classifier"].get_modelmeta().custom_metadata_map
        assert {key: json.loads(value) for key, value in metadata.items()} == classes
        several = found["pixels"].expand(3, -1, -1, -1).numpy()
        [batch] = found["classifier"].run(["probabilities"], {"pixels": several})
        np.testing.assert_allclose(batch, np.repeat(found["probabilities"], 3, 0), rtol=0, atol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"head": "nearest-mean"},
        {"head": "texts"},
        {"head": "lda", "same_names": "apart", "limit_tasks": 2},
    ],
    ids=["nearest-mean", "texts", "names-apart"],
)  # fmt: skip
def test_other_ways_to_classify(
    options: dict[str, Any], places: dict[str, str], tiny_model: str, images: list[Path], tmp_path: Path
) -> None:
    run = learn(places, tiny_model, tmp_path / "run", **options)
    check_same_as_classify(run, None, "open_clip", images, tmp_path / "open_clip")
    has_head = (tmp_path / "open_clip" / "head.safetensors").is_file()
    assert has_head == (options["head"] != "texts")
    check_same_as_classify(run, None, "onnx", images, tmp_path / "onnx")


@pytest.mark.slow
@pytest.mark.parametrize("to", ["hf", "onnx"])
def test_a_tower_without_class_token(to: str, places: dict[str, str], images: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="no transformers here: pip install 'tasso[hf]'")
    run = learn(places, write_hf_siglip(tmp_path / "siglip"), tmp_path / "run")
    check_same_as_classify(run, None, to, images, tmp_path / "out")


def test_classes_without_images_are_compared_with_their_texts(run: Path, images: list[Path]) -> None:
    loaded = Run(run, device="cpu")
    head: Head = loaded.inference.head
    head.counts[1], head.sums[1] = 0, 0
    head.forget_classifier()
    classifier = loaded.classifier()
    [unseen] = [key.name for key, column in head.classes.items() if column == 1]
    assert classifier.learned.tolist() == [name != unseen for _, name in classifier.columns]
    preprocess = loaded.clip.preprocess
    for image in images:
        array = np.array(Image.open(image).convert("RGB"))
        pixels = resize_and_centre(torch.from_numpy(array).permute(2, 0, 1)[None], preprocess)
        found = classifier.probabilities(loaded.inference.embed(normalise(pixels, preprocess)))[0]
        expected = {each.class_name: each.probability for each in loaded.classify(image, top=99)[0]}
        wanted = torch.tensor([expected[answer.class_name] for answer in classifier.answers])
        torch.testing.assert_close(found, wanted, rtol=0, atol=TOLERANCE)


def test_heads_that_are_not_linear_are_refused(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasso.heads.lda import LDA

    monkeypatch.setattr(LDA, "linear", Head.linear)
    with pytest.raises(ModelError, match=r"scores of LDA are not linear.*tasso\.load"):
        export_model(open_source(run), "open_clip", tmp_path / "out")
    assert not list(tmp_path.iterdir())
