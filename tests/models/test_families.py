"""Models of every family run, stop and go on, are exported and loaded again, and train in two processes as in one."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import open_clip
import pytest
import torch
from safetensors.torch import load_file

import tasso
from bad_inputs.world import stopped_after
from model_families import WRITERS, cached_on_hub, model_object, write_hf_clip, write_hf_siglip, write_open_clip
from tasso.cli import main
from tasso.config import from_dict
from tasso.data import atlas
from tasso.data.images.transforms import normalise, resize_and_centre
from tasso.distributed import Distributed
from tasso.errors import ConfigError, ModelError
from tasso.models.clip import Clip
from tasso.models.export import Source, export_model
from tasso.models.loading import SIGLIP_PROMPT, embedding_width, load_clip, usual_prompt
from tasso.report.merging import merge_into
from tasso.training.identity import portable
from tasso.training.learner import Learner
from tasso.training.resolve import resolve
from tasso.training.run_folder import RunFolder
from tasso.training.source import open_model

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="no transformers here: pip install 'tasso[hf]'"
)

BATCH_NORM = ("rn50", "mobileclip")
TEXTS = ["a photo of dtd kind 0", "this is eurosat kind 2"]
LAST = "checkpoints/02-eurosat.safetensors"


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    torch.manual_seed(0)
    return {name: write(tmp_path_factory.mktemp("families") / name) for name, write in WRITERS.items()}


@pytest.fixture
def options(quick: dict[str, Any]) -> dict[str, Any]:
    """Steps that are linear in the gradients, so that two processes can be compared with one."""
    return {**quick, "steps": 2, "batch_size": 4, "reference_batch_size": 4, "optimizer": "sgd", "lr": 0.01}


def embeddings(clip: Clip) -> tuple[torch.Tensor, torch.Tensor]:
    image = torch.from_numpy(atlas.render("flowers", 3, 0).copy()).permute(2, 0, 1)[None]
    clip.model.eval()
    with torch.no_grad():
        images = clip.encode_images(normalise(resize_and_centre(image, clip.preprocess), clip.preprocess))
    return images, clip.encode_texts(TEXTS)


def check_same(one: Clip, other: Clip) -> None:
    for ours, theirs in zip(embeddings(one), embeddings(other), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("family", WRITERS)
@pytest.mark.usefixtures("float32")
def test_a_run_is_stopped_resumed_exported_and_loaded(
    family: str, families: dict[str, str], options: dict[str, Any], tmp_path: Path
) -> None:
    options["model"] = families[family]
    whole = tasso.learn(**options)
    with stopped_after(3), contextlib.suppress(KeyboardInterrupt):
        tasso.learn(**{**options, "out": str(tmp_path / "stopped")})
    assert (tmp_path / "stopped" / "state.safetensors").exists()
    resumed = tasso.learn(**{**options, "out": str(tmp_path / "stopped")})
    assert resumed.results["mtil"]["matrix"] == whole.results["mtil"]["matrix"]
    states = [load_file(folder / LAST) for folder in (whole.folder.path, resumed.folder.path)]
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
    start = load_clip(families[family]).state("visual")
    assert any(not torch.equal(tensor, start[name]) for name, tensor in whole.clip.state("visual").items())
    formats = {"hf-clip": ("hf", "open_clip"), "hf-siglip": ("hf",)}.get(family, ("open_clip",))
    for to in formats:
        folder = export_model(Source(whole.clip, family, "a test"), to, tmp_path / to)
        check_same(load_clip(f"{'hf' if to == 'hf' else 'local-dir'}:{folder}"), whole.clip)


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(families: dict[str, str], options: dict[str, Any], tmp_path: Path) -> None:
    """All families in one pair of processes, which take long to start."""
    script, configs = tmp_path / "child.py", {}
    for name in [name for name in families if name not in BATCH_NORM]:
        configs[name] = {
            **options,
            "precision": "float32",
            "model": families[name],
            "out": str(tmp_path / "two" / name),
        }
        tasso.learn(**{**configs[name], "out": str(tmp_path / "one" / name)})
    script.write_text(
        "import json, sys, torch\n"
        "torch.set_num_threads(1)\n"
        "from tasso.config import from_dict\n"
        "from tasso.training.learner import learn\n"
        "for options in json.load(open(sys.argv[1])).values():\n"
        "    learn(from_dict(options))\n"
    )
    (tmp_path / "configs.json").write_text(json.dumps(configs))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*command, str(script), str(tmp_path / "configs.json")], capture_output=True, text=True, env=environment
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    for name in configs:
        one, two = (load_file(tmp_path / place / name / LAST) for place in ("one", "two"))
        start = load_clip(families[name]).state("visual")
        learned = sum(float((one[key] - tensor).pow(2).sum()) for key, tensor in start.items()) ** 0.5
        differing = sum(float((one[key] - two[key]).pow(2).sum()) for key in start) ** 0.5
        assert differing < 0.01 * learned, name


@pytest.mark.parametrize("family", BATCH_NORM)
def test_batch_norm_needs_a_single_process(family: str, families: dict[str, str], options: dict[str, Any]) -> None:
    config, method = resolve(from_dict({**options, "model": families[family]}))
    with pytest.raises(ConfigError, match="has batch norm, whose statistics would differ between processes"):
        Learner(config, method, RunFolder(config.out), distributed=Distributed(0, 2))


# -- the libraries' own embeddings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["hf-clip", "hf-siglip"])
def test_embeddings_are_those_of_transformers(family: str, families: dict[str, str]) -> None:
    from transformers import AutoModel, AutoTokenizer

    clip, folder = load_clip(families[family]), families[family].removeprefix("hf:")
    model = AutoModel.from_pretrained(folder)
    pixels = torch.randn(2, 3, clip.preprocess.size, clip.preprocess.size)
    with torch.no_grad():
        torch.testing.assert_close(
            clip.encode_images(pixels),
            torch.nn.functional.normalize(model.get_image_features(pixels).pooler_output, dim=-1),
        )
        tokens = AutoTokenizer.from_pretrained(folder)(
            TEXTS, padding="max_length", max_length=48, return_tensors="pt"
        ).input_ids
        texts = model.get_text_features(tokens).pooler_output
    torch.testing.assert_close(clip.encode_texts(TEXTS), torch.nn.functional.normalize(texts, dim=-1))


def test_siglip_of_transformers_checkpoints_activations(
    families: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """The same gradients to the last bit, fewer tensors kept; copies, such as teachers, have weights of their own."""
    clip = load_clip(families["hf-siglip"])
    assert not capfd.readouterr().err, "transformers warns of SigLIP's defaults"
    model = clip.model.requires_grad_()
    weights = [*clip.parameters_of("both").values()]
    pixels, tokens = torch.randn(2, 3, 16, 16), clip.tokenise(TEXTS)
    found = []
    for enabled in (False, True):
        clip.checkpoint_activations(enabled)
        kept: list[torch.Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, kept=kept: kept.append(t) or t, lambda t: t):
            embedded = torch.cat([clip.encode_images(pixels), clip.encode_tokens(tokens)])
        found.append((embedded, torch.autograd.grad(embedded[:, 0].sum(), weights), len(kept)))
    (one, expected, many), (other, actual, few) = found
    assert few < many / 2
    assert torch.equal(one, other)
    assert all(map(torch.equal, expected, actual))
    teacher = clip.frozen_image_encoder()
    with torch.no_grad():
        model.visual.tower.encoder.layers[0].mlp.fc1.weight.zero_()
    torch.testing.assert_close(teacher.encode_images(pixels), one[:2].detach())
    assert not torch.allclose(clip.encode_images(pixels), one[:2])
    clip.checkpoint_activations(False)
    assert "forward" not in vars(model.visual.tower.encoder.layers[0])


def test_sentencepiece_of_siglip(tmp_path: Path) -> None:
    spm = pytest.importorskip("sentencepiece", reason="no sentencepiece here: pip install 'tasso[hf]'")
    from transformers import SiglipTokenizer

    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 20), model_prefix=str(tmp_path / "sp"), vocab_size=23, pad_id=0, eos_id=1,
        bos_id=-1, unk_id=2, minloglevel=2,
    )  # fmt: skip
    clip = load_clip(write_hf_siglip(tmp_path / "model", lambda: SiglipTokenizer(str(tmp_path / "sp.model"))))
    tokens = clip.tokenizer(["A photo of dtd, kind 0!", "a photo of dtd kind 0"])
    assert torch.equal(tokens[0], tokens[1]), "in lower case, without punctuation"


def test_siglip_has_its_own_prompt(families: dict[str, str], options: dict[str, Any]) -> None:
    for family, model in families.items():
        expected = SIGLIP_PROMPT if "siglip" in family else None
        assert usual_prompt(model) == expected
    config, _ = resolve(from_dict({**options, "model": families["siglip"]}))
    assert config.template == SIGLIP_PROMPT
    assert usual_prompt("ViT-B-16-SigLIP2-256") == SIGLIP_PROMPT
    assert usual_prompt("ViT-B-16-quickgelu") is None


@pytest.mark.slow
def test_nano_comes_back_from_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same embeddings and the same predictions, of every image."""
    monkeypatch.chdir(tmp_path)
    main(["export", "--model", "nano", "--to", "hf", "--out", "exported"])
    there, back = load_clip("nano"), load_clip("hf:exported")
    assert there.weights_checksum() == back.weights_checksum()
    names = [name for domain in ("pets", "food") for name in atlas.DOMAINS[domain].class_names]
    texts = [clip.class_embeddings(names, ("a photo of a {}.",)) for clip in (there, back)]
    assert torch.equal(*texts)
    images = np.stack([atlas.render(domain, label, 0) for domain in ("pets", "food") for label in range(12)])
    pixels = normalise(
        resize_and_centre(torch.from_numpy(images).permute(0, 3, 1, 2), there.preprocess), back.preprocess
    )
    with torch.no_grad():
        scores = [clip.encode_images(pixels) @ texts[0].mT for clip in (there, back)]
    assert torch.equal(*scores)
    accuracies = [
        tasso.evaluate(benchmark="atlas", model=model, limit_tasks=1, device="cpu")["mtil"]
        for model in ("nano", "hf:exported")
    ]
    assert accuracies[0] == accuracies[1]


@pytest.mark.parametrize("family", ["hf-clip", "hf-siglip"])
def test_merged_models_of_transformers_can_be_loaded(family: str, families: dict[str, str], tmp_path: Path) -> None:
    folder = merge_into(families[family], families[family], 1.0, tmp_path / "merged")
    scheme = "hf" if family == "hf-siglip" else "local-dir"
    check_same(load_clip(f"{scheme}:{folder}"), load_clip(families[family]))


def test_the_end_of_a_text_may_have_any_id(tmp_path: Path) -> None:
    """In open_clip it is found by its id then, not as the largest."""
    write_hf_clip(tmp_path / "mine", end=3)
    clip = load_clip(f"hf:{tmp_path / 'mine'}")
    assert clip.architecture["text_cfg"]["eos_id"] == 3
    folder = export_model(Source(clip, "mine", "a test"), "hf", tmp_path / "again")
    check_same(load_clip(f"hf:{folder}"), clip)


# -- the hub -------------------------------------------------------------------------------------------------------


def test_models_in_the_cache_of_the_hub(
    families: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for scheme, family in (("hf", "hf-clip"), ("hf", "hf-siglip"), ("hf-hub", "siglip"), ("hf-hub", "rn50")):
        folder = Path(families[family].partition(":")[2])
        cached_on_hub(folder, tmp_path / "hub", f"owner/{family}")
        check_same(load_clip(f"{scheme}:owner/{family}"), load_clip(families[family]))


@pytest.mark.parametrize("model", ["hf:owner/hf-clip", "hf-hub:owner/rn50"])
def test_sizes_need_no_weights(
    model: str, families: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    family = model.partition("/")[2]
    folder = Path(families[family].partition(":")[2])
    shutil.copytree(folder, tmp_path / family, ignore=shutil.ignore_patterns("*.safetensors"))
    cached_on_hub(tmp_path / family, tmp_path / "hub", f"owner/{family}")
    cached = huggingface_hub.snapshot_download

    def no_download(place: str, local_files_only: bool = False, **options: Any) -> str:
        assert local_files_only
        return str(cached(place, local_files_only=True))

    monkeypatch.setattr("huggingface_hub.snapshot_download", no_download)
    assert embedding_width(model) == embedding_width(families[family])


@pytest.mark.parametrize("model", ["hf:owner/absent", "hf-hub:owner/absent"])
def test_what_cannot_be_downloaded_is_said(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: object, **kwargs: object) -> str:
        raise OSError("no route to host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", no_network)
    with pytest.raises(ModelError, match=r"owner/absent is neither a folder .* cannot be downloaded \(no route"):
        load_clip(model)
    with pytest.raises(ModelError, match=r"timm/ViT-B-16-SigLIP is neither .* tokenizer of ViT-B-16-SigLIP \(webli\)"):
        load_clip("ViT-B-16-SigLIP", "webli")
    with pytest.raises(ModelError, match=r"roberta-base is neither .* downloaded .* the tokenizer of roberta-ViT-B-32"):
        load_clip("roberta-ViT-B-32", "laion2b_s12b_b32k")


def test_the_right_way_to_name_a_folder_or_file_is_said(families: dict[str, str]) -> None:
    clip, rn50 = families["hf-clip"].removeprefix("hf:"), families["rn50"].removeprefix("local-dir:")
    with pytest.raises(ModelError, match=f"It is a folder of transformers: hf:{clip}"):
        load_clip(f"local-dir:{clip}")
    with pytest.raises(ModelError, match=f"It is a folder of open_clip: local-dir:{rn50}"):
        load_clip(f"hf:{rn50}")
    with pytest.raises(ModelError, match="a checkpoint of transformers; give its folder: --model hf:FOLDER"):
        load_clip("RN50", f"{clip}/model.safetensors")


def test_a_folder_is_absolute_in_a_run_and_may_move(
    families: dict[str, str], options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("here", "there"):
        shutil.copytree(families["hf-clip"].removeprefix("hf:"), tmp_path / place / "mine")
    monkeypatch.chdir(tmp_path)
    configs = [resolve(from_dict({**options, "model": f"hf:{place}/mine"}))[0] for place in ("here", "there")]
    assert [config.model for config in configs] == [f"hf:{tmp_path / place / 'mine'}" for place in ("here", "there")]
    assert {portable({"model": config.model})["model"] for config in configs} == {"hf:mine"}
    assert portable({"model": "hf:owner/name"}) == {"model": "hf:owner/name"}
    assert open_model("hf:here/mine")[0].weights_checksum() == load_clip(families["hf-clip"]).weights_checksum()


# -- model objects -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_object(quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    given = model_object()
    model = given[0]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run = tasso.learn(**{**quick, "model": given, "steps": 2})
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()), "it is copied"
    assert run.config.model.startswith("object:CLIP-")
    named = tasso.learn(**{**quick, "model": "nano", "steps": 2, "out": f"{quick['out']}-named"})
    assert run.results["mtil"] == named.results["mtil"]
    state = run.clip.state("visual")
    # Another process knows nothing of it, unless it gives the object again.
    monkeypatch.setattr("tasso.models.objects._given", {})
    again = tasso.load(str(quick["out"]))
    assert again.metrics == run.metrics
    with pytest.raises(ModelError, match=r"is a model object, which no run folder holds.*tasso\.load\(RUN, model="):
        again.classify(np.zeros((64, 64, 3), dtype=np.uint8))
    loaded = tasso.load(str(quick["out"]), model=model_object()).clip.state("visual")
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.items())
    for to in ("open_clip", "hf"):
        with pytest.raises(ModelError, match="was given as an object, so its config is not known"):
            export_model(Source(run.clip, "x", "x"), to, Path(str(quick["out"])) / to)


@pytest.mark.slow
def test_transformers_objects_and_a_configuration(families: dict[str, str], quick: dict[str, Any]) -> None:
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    folder = families["hf-siglip"].removeprefix("hf:")
    kinds = (AutoModel, AutoTokenizer, AutoImageProcessor)
    model, tokenizer, processor = (kind.from_pretrained(folder) for kind in kinds)
    run = tasso.learn(**{**quick, "model": (model, tokenizer, processor), "steps": 2})
    config = from_dict({**quick, "model": families["hf-siglip"], "steps": 2, "out": f"{quick['out']}-named"})
    assert tasso.learn(config).results["mtil"] == run.results["mtil"]
    with pytest.raises(ConfigError, match="learn: steps: give a configuration or keywords, not both"):
        tasso.learn(config, steps=3)  # type: ignore[call-overload]


def test_objects_that_cannot_work(families: dict[str, str]) -> None:
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer, preprocess = model_object()
    folder = families["hf-clip"].removeprefix("hf:")
    theirs, their_tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    bad: list[tuple[Any, str]] = [
        ((model, tokenizer), "expected a name, or a tuple of a model, its tokenizer and its preprocessing"),
        ((torch.nn.Linear(2, 2), tokenizer, preprocess), "Linear has no image tower `visual`"),
        ((model, lambda texts: texts, preprocess), "its tokenizer returns list"),
        ((model, "nano", preprocess), "its tokenizer is str, which cannot be called"),
        ((model, open_clip.get_tokenizer("ViT-B-32"), preprocess), "CLIP cannot encode what its tokenizer returns"),
        ((model, tokenizer, None), "its preprocessing is not supported"),
        ((theirs, tokenizer, preprocess), "CLIPModel needs the tokenizer of transformers, not SimpleTokenizer"),
        ((theirs, their_tokenizer, preprocess), "CLIPModel needs the image processor of transformers, not Compose"),
    ]
    for given, says in bad:
        with pytest.raises(ModelError, match=says):
            tasso.learn(model=given)


def test_open_clips_tokenizer_in_a_folder_runs_no_code(tmp_path: Path) -> None:
    folder = Path(write_open_clip(tmp_path / "siglip", "siglip").removeprefix("local-dir:"))
    file = folder / "open_clip_config.json"
    config = json.loads(file.read_text())
    config["model_cfg"]["text_cfg"]["tokenizer_kwargs"]["trust_remote_code"] = True
    file.write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\nclass Own: ...\n")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with contextlib.suppress(ModelError):
        load_clip(f"local-dir:{folder}")
    assert not (tmp_path / "executed").exists()
