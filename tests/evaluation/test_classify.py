"""`tasso classify` and `Run.classify`: candidates, output, unreadable files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tasso
from conftest import draw
from tasso.cli import main
from tasso.data.images.files import find_images
from tasso.errors import ConfigError, DataError, ModelError, RunError
from tasso.evaluation.predict import BATCH, select_candidates
from tasso.models.inference import Inference
from tasso.training.run import Run

CLASS_NAMES = {"birds": ["owl", "hen"], "cars": ["van"]}


@pytest.fixture(scope="module")
def run_folder(tiny_model: str, mini_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two tasks. Do not write into it."""
    out = tmp_path_factory.mktemp("classified") / "run"
    tasso.learn(
        benchmark="mtil-mini", data_root=str(mini_root), check_counts=False, model=tiny_model, sequence="dtd,eurosat",
        steps=2, batch_size=8, reference_batch_size=8, lr=1e-2, method={"name": "tasso", "rank": 6}, device="cpu",
        out=str(out),
    )  # fmt: skip
    return out


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Three images, a broken one and a text file."""
    folder = tmp_path / "images"
    (folder / "more").mkdir(parents=True)
    for name, label in (("b.png", 0), ("a[1].jpg", 1), ("more/c.PNG", 2)):
        draw(label, 7, 20 + label).save(folder / name)
    (folder / "broken.png").write_bytes(b"not an image")
    (folder / "notes.txt").write_text("ignored")
    return folder


def test_files_folders_and_patterns(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*names: str) -> list[str]:
        return [str(path.relative_to(images)) for path in find_images([str(images / name) for name in names])]

    assert found("") == ["a[1].jpg", "b.png", "broken.png", "more/c.PNG"]
    assert found("b.png", "*.png") == ["b.png", "broken.png"], "no duplicates"
    assert found("a[1].jpg") == ["a[1].jpg"], "an existing file is not a pattern"
    assert found("**/*.PNG", "notes.txt") == ["more/c.PNG", "notes.txt"]
    (images / "more" / "loop").symlink_to(images)
    assert found("more") == ["more/c.PNG"]
    (images / ".hidden").mkdir()
    for name in ("absent.png", "*.gif"):
        with pytest.raises(DataError, match="no such file or folder"):
            found(name)
    with pytest.raises(DataError, match="no images in there"):
        found(".hidden")


def test_candidates() -> None:
    assert str(select_candidates(CLASS_NAMES)) == "3 classes of 2 tasks"
    assert str(select_candidates(CLASS_NAMES, "cars")) == "1 class of task cars"
    shared = {"day": ["fox", "owl"], "night": ["owl"]}
    assert str(select_candidates(shared)) == "3 classes of 2 tasks"
    assert str(select_candidates(shared, merge_names=True)) == "2 classes of 2 tasks"
    assert select_candidates(CLASS_NAMES, classes=[" a ", "b", "a", ""]).groups == (("a", "b"),)
    assert str(select_candidates(CLASS_NAMES, classes=["a"])) == "1 class named by you"
    for args, message in (({"task": "x"}, "no task 'x'"), ({"classes": [" "]}, "at least one class name"),
                             ({"task": "cars", "classes": ["a"]}, "either classes or a task")):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            select_candidates(CLASS_NAMES, **args)  # type: ignore[arg-type]


def test_command_prints_predictions_and_unreadable_files(
    run_folder: Path, images: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["classify", str(run_folder), str(images), "--top", "2", "--device", "cpu"])
    assert stop.value.code == 1
    printed = capsys.readouterr()
    blocks = f"\n{printed.out}".split(f"\n{images}")[1:]
    assert [block.split("\n")[0] for block in blocks] == ["/a[1].jpg", "/b.png", "/broken.png", "/more/c.PNG"]
    assert "not a readable image" in blocks[2]
    assert all(block.count(" %  ") == 2 for block in (blocks[0], blocks[1], blocks[3]))
    assert "1 of 4 files could not be read as images" in printed.err
    assert "model after eurosat; 6 classes of 2 tasks" in caplog.text
    assert "softmax over these classes alone" in caplog.text
    with pytest.raises(SystemExit) as stop:
        main(["classify", str(run_folder), str(images), "--unreadable", "error"])
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert "broken.png: not a readable image" in printed.err
    assert "b.png\n" in printed.out, "files before it were classified"
    assert "c.PNG" not in printed.out


def test_json_equals_the_result_in_python(run_folder: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(images / "b.png"), str(images / "more" / "c.PNG")]
    main(["classify", str(run_folder), *files, "--json", "--task", "dtd", "--top", "9"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["image"] for line in lines] == files
    run = tasso.load(run_folder)
    for line, predictions in zip(lines, run.classify(files, task="dtd", top=9), strict=True):
        assert line["predictions"] == [prediction.to_dict() for prediction in predictions]
        assert {prediction["task"] for prediction in line["predictions"]} == {"dtd"}
        assert sum(prediction["probability"] for prediction in line["predictions"]) == pytest.approx(1, abs=1e-5)
    with pytest.raises(SystemExit):
        main(["classify", str(run_folder), str(images), "--json", "--classes", "red thing, blue thing", "--top", "1"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [set(line) for line in lines].count({"image", "error"}) == 1
    named = [line["predictions"] for line in lines if "predictions" in line]
    assert {len(predictions) for predictions in named} == {1}
    assert all(predictions[0]["task"] is None and predictions[0]["class"].endswith("thing") for predictions in named)


@pytest.mark.slow
def test_the_model_after_each_task_and_before_all(run_folder: Path, tiny_model: str) -> None:
    image = draw(1, 5)

    def probabilities(**options: Any) -> list[float]:
        predictions = tasso.load(run_folder, **options).classify(image, top=6)[0]
        return [p.probability for p in sorted(predictions, key=lambda p: (p.task, p.class_name))]

    before, first, last = probabilities(after="0"), probabilities(after="dtd"), probabilities()
    assert probabilities(after="1") == first
    assert probabilities(after="eurosat", device="cpu") == last
    assert before != first != last != before
    run = Run(run_folder)
    assert [(task, predictor.predict([_pixels(image)], run.candidates(), 6)[0][0].probability) for task, predictor
            in run.stages()] == [(None, max(before)), ("dtd", max(first)), ("eurosat", max(last))]  # fmt: skip
    with pytest.raises(ConfigError, match="learned no task 'pets'"):
        probabilities(after="pets")
    with pytest.raises(ConfigError, match="top: must be at least 1"):
        run.classify(image, top=0)


def _pixels(image: Any) -> Any:
    from tasso.data.images.files import read_image

    return read_image(image)


@pytest.mark.slow
def test_stages_of_a_method_that_adds_modules(quick: dict[str, Any]) -> None:
    from method_runs import options_for

    run = tasso.learn(**{**quick, "method": options_for("moe-adapters"), "steps": 2})
    image, candidates = _pixels(draw(1, 5)), run.candidates()
    found = {task: predictor.predict([image], candidates, 6)[0] for task, predictor in run.stages()}
    for task, predictions in found.items():
        expected = tasso.load(run.folder.path, after=task or "0").classify(image, top=6)[0]
        assert predictions == expected, task
    assert list(found) == [None, "dtd", "eurosat"]


@pytest.mark.usefixtures("float32")
def test_more_than_a_batch_is_classified_in_order(run_folder: Path) -> None:
    run = tasso.load(run_folder)
    images = [draw(number, number) for number in range(BATCH + 3)]
    together = run.classify(images)
    for index in (0, 1, BATCH - 1, BATCH, BATCH + 2):
        single = run.classify(images[index])[0][0]
        assert (single.class_name, single.task) == (together[index][0].class_name, together[index][0].task)
        assert single.probability == pytest.approx(together[index][0].probability, abs=1e-5)
    assert run.classify([]) == []


def test_batch_dependent_models_get_one_image_at_a_time(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, sizes = tasso.load(run_folder), list[int]()
    embed = Inference.embed

    def counted(self: Inference, pixels: torch.Tensor) -> Any:
        sizes.append(len(pixels))
        return embed(self, pixels)

    monkeypatch.setattr(Inference, "embed", counted)
    run.classify([draw(0, 0)] * 3)
    monkeypatch.setattr(Inference, "shared_batch", 128)
    run.classify([draw(0, 0)] * 3)
    assert sizes == [3, 1, 1, 1]


def test_damaged_weights_are_an_error(run_folder: Path) -> None:
    run = tasso.load(run_folder)
    with torch.no_grad():
        run.clip.parameters_of("visual")["visual.proj"].fill_(torch.nan)
    with pytest.raises(ModelError, match=r"scores contain inf or NaN.*weights damaged"):
        run.classify(draw(0, 0))


def test_a_folder_that_is_not_a_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunError, match=r"not a run folder, it has no results\.json"):
        tasso.load(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["classify", str(tmp_path), "x.png"])
    assert stop.value.code == 2
    assert "not a run folder, it has no results.json" in capsys.readouterr().err
