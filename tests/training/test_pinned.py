"""A run is pinned by content: texts, prompts and weights that have changed are refused, and no folder matters."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import nn

import tasso
from conftest import TINY_CONFIG, draw
from method_runs import learn_first_task, learner_for
from own_images import write_folder
from tasso.config import absolute_paths, from_dict
from tasso.distributed import Distributed
from tasso.errors import ConfigError, RunError
from tasso.methods import import_method
from tasso.training.learner import Learner, learn
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder


@pytest.mark.parametrize("method", ["Wrapped", "Hooked"])
def test_a_text_adapter_that_declares_no_tower_is_evaluated_with_its_own_texts(
    quick: dict[str, Any], method: str
) -> None:
    import_method(f"text_adapters:{method}")
    options = {**quick, "method": {"name": f"text_adapters:{method}"}, "lr": 0.5, "steps": 6}
    results = learn(from_dict(options))
    assert results["mtil"]["zero_shot"] != results["mtil"]["matrix"][0], "texts have changed"
    for number, row in enumerate(results["mtil"]["matrix"], 1):
        assert tasso.evaluate(str(quick["out"]), after=str(number), device="cpu")["mtil"] == row


@pytest.fixture
def own_model(tiny_model: str, tmp_path: Path) -> Path:
    """A model that may be overwritten."""
    return shutil.copytree(tiny_model.removeprefix("local-dir:"), tmp_path / "model")


def test_replaced_weights_are_refused(quick: dict[str, Any], own_model: Path) -> None:
    options = {**quick, "model": f"local-dir:{own_model}"}
    learn_first_task(options)
    shutil.rmtree(str(quick["out"]))
    results = learn(from_dict({**options, "limit_tasks": 1}))
    assert len(results["weights"]) == 64
    file = own_model / "open_clip_model.safetensors"
    before, weights = file.read_bytes(), load_file(file)
    save_file({**weights, "ln_final.bias": weights["ln_final.bias"] + 1e-3}, file)
    message = r"run: the weights of local-dir:.*model are not those this run was started with \(SHA-256 .*Put back"
    with pytest.raises(RunError, match=message):
        assert tasso.load(str(quick["out"])).clip
    with pytest.raises(RunError, match=message):
        assert tasso.load(str(quick["out"]), after="0").clip
    with pytest.raises(RunError, match=message):
        tasso.evaluate(str(quick["out"]), device="cpu")
    with pytest.raises(RunError, match=message):
        learner_for({**options, "limit_tasks": 1})
    file.write_bytes(before)
    assert tasso.load(str(quick["out"])).classify(draw(1, 1))


def test_an_edited_template_file_is_refused_and_not_needed(quick: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("a photo of a {}.\nthe {}!\n")
    options = {**quick, "template": str(file)}
    results = learn(from_dict(options))
    file.write_text("a {}.\n")
    with pytest.raises(RunError, match=r"this run was started with template = 'a photo of a \{\}.\\nthe \{\}!'"):
        learn(from_dict(options))
    file.unlink()
    assert tasso.load(str(quick["out"])).templates == ("a photo of a {}.", "the {}!")
    assert tasso.evaluate(str(quick["out"]), device="cpu")["mtil"] == results["mtil"]["matrix"][-1]


def test_edited_prompts_of_an_own_task_are_refused(quick: dict[str, Any], tmp_path: Path) -> None:
    write_folder(tmp_path / "birds", "pets", classes=2)
    file = tmp_path / "birds.txt"
    file.write_text("a photo of a {}, a bird.\n")
    own = {key: value for key, value in quick.items() if key not in ("benchmark", "data_root", "sequence")}
    options = {**own, "method": "finetune", "tasks": [{"name": "birds", "from": str(tmp_path / "birds"),
               "template": str(file)}]}  # fmt: skip
    learn(from_dict(options))
    learn(from_dict(options))
    file.write_text("a bird: {}\n")
    with pytest.raises(RunError, match=r"data of task 'birds' have changed.*prompts"):
        learn(from_dict(options))


def test_new_images_for_a_finished_run_are_told(
    quick: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_folder(tmp_path / "birds", "pets", classes=2)
    own = {key: value for key, value in quick.items() if key not in ("benchmark", "data_root", "sequence")}
    options = {**own, "method": "finetune", "tasks": [{"name": "birds", "from": str(folder)}]}
    results = learn(from_dict(options))
    assert learn(from_dict(options)) == results
    image = next(folder.glob("*/0.png"))
    shutil.copy(image, image.with_name("new.png"))
    with pytest.raises(RunError, match=r"data of task 'birds' have changed: 2 classes, 8 training .* now 2 classes, 9"):
        learn(from_dict(options))
    shutil.rmtree(folder)
    assert learn(from_dict(options)) == results, "its images are not needed any more"
    assert "not compared with the images as they are now: task 'birds': no such file or folder" in caplog.text


def test_edited_reference_texts_are_refused(quick: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("a cat\na dog\n")
    options = {**quick, "method": {"name": "zscl", "average_every": 2}, "reference_texts": str(file)}
    learner_for(options).run()
    learner_for(options)
    file.write_text("a cat\na cow\n")
    with pytest.raises(RunError, match=r"the reference texts are not those this run was started with\. Put back"):
        learner_for(options)


def test_a_run_with_relative_paths_works_from_any_folder(
    quick: dict[str, Any], own_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = learn(from_dict({**quick, "model": "local-dir:model", "pack_dir": "packs"}))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert tasso.load(str(quick["out"])).classify(draw(1, 1))
    assert tasso.evaluate(str(quick["out"]), device="cpu")["mtil"] == results["mtil"]["matrix"][-1]
    recorded = yaml.safe_load((Path(str(quick["out"])) / "config.yaml").read_text())
    assert recorded["model"] == f"local-dir:{own_model}"
    assert recorded["pack_dir"] == str(tmp_path / "packs")


def test_paths_follow_from_what_options_declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("openai", "nano", "atlas", "photos", "corpus"):
        (tmp_path / name).mkdir()
    for name in ("weights.pt", "prompts.txt"):
        (tmp_path / name).write_text("")
    relative = {
        "data_root": "data", "pack_dir": "packs", "reference": "photos", "reference_texts": "texts.txt",
        "template": "prompts.txt", "model": "local-dir:model", "pretrained": "weights.pt",
    }  # fmt: skip
    found = absolute_paths(from_dict({**relative, "tasks": {"birds": "birds"}}), names=("atlas",))
    here = {key: str(tmp_path / value) for key, value in relative.items()}
    assert {key: str(value) for key, value in found.items() if key != "tasks"} == {
        **here, "model": f"local-dir:{tmp_path / 'model'}",
    }  # fmt: skip
    assert found["tasks"][0]["from"] == str(tmp_path / "birds")
    names = {"model": "nano", "pretrained": "openai", "reference": "atlas", "template": "a {}"}
    assert absolute_paths(from_dict(names), names=("atlas",)) == names, "no folders of the same name"
    gift = {"name": "gift", "generator": "retrieval", "generator_source": "corpus"}
    config, method = resolve(from_dict({"method": gift}))
    assert config.method["generator_source"] == vars(method)["generator_source"] == str(tmp_path / "corpus")


# -- numbers that are what they say --------------------------------------------------------------------------------


def test_the_last_of_more_than_a_hundred_checkpoints_is_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.checkpoints.mkdir()
    tasks = [f"t{number}" for number in range(101)]
    for index, task in enumerate(tasks):
        folder.checkpoint_file(index, task).write_text("")
    part = {"zero_shot": [], "matrix": []}
    results = {"version": 1, "finished": True, "tasks": tasks, "per_task": [], "mtil": part, "mcil": part}
    folder.results_file.write_text(json.dumps(results))
    folder.keep_checkpoints("last")
    assert [file.name for file in folder.checkpoints.iterdir()] == ["101-t100.safetensors"]


@pytest.fixture
def resnet(tmp_path: Path) -> str:
    """A tiny CLIP whose image tower has batch norm."""
    model = dict(TINY_CONFIG["model_cfg"])
    model["vision_cfg"] = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
    folder = tmp_path / "resnet"
    folder.mkdir()
    (folder / "open_clip_config.json").write_text(json.dumps({**TINY_CONFIG, "model_cfg": model}))
    torch.manual_seed(0)
    built = open_clip.CLIP(**model)
    assert any(isinstance(module, nn.BatchNorm2d) for module in built.modules())
    save_file({k: v.contiguous().clone() for k, v in built.state_dict().items()},
              folder / "open_clip_model.safetensors")  # fmt: skip
    return f"local-dir:{folder}"


def test_batch_norm_is_refused_where_its_statistics_would_be_wrong(quick: dict[str, Any], resnet: str) -> None:
    options = {**quick, "model": resnet, "method": {"name": "finetune"}}
    config, method = resolve(from_dict(options))
    with pytest.raises(ConfigError, match=r"model: .*resnet has batch norm, whose statistics would differ"):
        Learner(config, method, RunFolder(config.out), distributed=Distributed(0, 2))
    with pytest.raises(ConfigError, match=r"method\.average_every: .*resnet has batch norm"):
        learner_for(options, method={"name": "zscl"})
    learner_for(options, method={"name": "zscl", "average_every": 0})
    assert learn(from_dict(options | {"out": f"{quick['out']}-one"}))["finished"], "one process, no mean"


def test_memory_on_a_cpu_is_called_that_of_the_process(quick: dict[str, Any]) -> None:
    per_task = learn(from_dict(quick))["per_task"]
    assert all("peak_memory_bytes" not in row and row["process_peak_memory_bytes"] > 2**20 for row in per_task)
