"""Where GIFT's synthetic pairs come from: a diffusion model, a folder, the atlas, a corpus."""

from __future__ import annotations

import csv
import io
import json
import logging
import pickle
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from conftest import draw
from tasso.data import atlas
from tasso.data.images.decode import decode
from tasso.errors import ConfigError, DataError, ModelError
from tasso.methods.synthetic import GENERATORS, STAND_INS, Generator, Pairs, build_generator
from tasso.methods.synthetic.diffusion import DiffusionGenerator
from tasso.methods.synthetic.drawn import subject
from tasso.methods.synthetic.retrieval import as_prompt

PROMPTS = ["a photo of a cat.", "a photo of a dog.", "a photo of a cat.", "a photo of a cow.", "a photo of a dog."]
SEEDS = [420000001, 420000002, 420000003, 420000004, 420000005]


def bag_of_words(texts: Sequence[str]) -> Tensor:
    """Texts that share words are near each other."""
    rows = torch.zeros(len(texts), 512)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().replace(".", "").split():
            row[crc32(word.encode()) % 512] += 1
    return rows


def build(kind: str, **options: Any) -> Generator:
    return build_generator(kind, **{"device": torch.device("cpu"), "encode_texts": bag_of_words, **options})


def told(pairs: Pairs) -> list[str]:
    """The prompt of each image."""
    return [pairs.texts[label] for label in pairs.images.labels]


def pixels(pairs: Pairs) -> list[np.ndarray]:
    return [decode(pairs.images, index) for index in range(len(pairs.images))]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def index_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]


# -- choosing one --------------------------------------------------------------------------------------------------


def test_the_generators_and_what_tables_say_of_them(tmp_path: Path) -> None:
    assert list(GENERATORS) == ["diffusers", "folder", "atlas", "retrieval"]
    sources = {"folder": str(tmp_path), "retrieval": str(tmp_path)}
    said = {kind: build(kind, source=sources.get(kind)).stand_in for kind in GENERATORS}
    assert said == {"diffusers": "", "folder": "", "atlas": "drawn images", "retrieval": "retrieved images"}
    assert said == {kind: STAND_INS.get(kind, "") for kind in GENERATORS}
    assert build("diffusers").model == "stable-diffusion-v1-5/stable-diffusion-v1-5"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("dalle", {}, "generator: no generator 'dalle'. There are: diffusers, folder, atlas, retrieval"),
        ("folder", {}, "source: the generator folder needs the path of a folder. There must lie pairs.jsonl"),
        ("retrieval", {}, "source: the generator retrieval needs the path of a folder. There must lie parts NAME.npz"),
        ("atlas", {"source": "x"}, "source: the generator atlas draws by code and takes none, not 'x'"),
        ("diffusers", {"steps": 0}, "steps: must be at least 1, not 0"),
        ("diffusers", {"batch_size": 0}, "batch_size: must be at least 1, not 0"),
        ("diffusers", {"guidance": -1.0}, "guidance: must not be negative, not -1.0"),
    ],
)
def test_wrong_options_are_named(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(kind, **options)
    assert str(caught.value).startswith(message)


# -- diffusers: the real path, with a model of a few thousand weights ----------------------------------------------


@pytest.fixture(scope="session")
def tiny_diffusion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Stable Diffusion model as diffusers saves it: images of 16 × 16. Do not write into it."""
    from diffusers import AutoencoderKL, PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    folder = tmp_path_factory.mktemp("diffusion")
    letters = "abcdefghijklmnopqrstuvwxyz."
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    torch.manual_seed(0)
    pipeline = StableDiffusionPipeline(
        vae=AutoencoderKL(
            block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, norm_num_groups=4, sample_size=16,
        ),
        text_encoder=CLIPTextModel(CLIPTextConfig(
            vocab_size=len(words), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            max_position_embeddings=24, bos_token_id=0, eos_token_id=1, pad_token_id=1,
        )),
        tokenizer=CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=24),
        unet=UNet2DConditionModel(
            sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8, 16), layers_per_block=1,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=4, cross_attention_dim=16, attention_head_dim=4,
        ),
        scheduler=PNDMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1
        ),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip
    pipeline.save_pretrained(folder / "model")
    return folder / "model"


def diffusion(model: Path, **options: Any) -> DiffusionGenerator:
    generator = build("diffusers", **{"source": str(model), "steps": 3, "batch_size": 2, **options})
    assert isinstance(generator, DiffusionGenerator)
    return generator


@pytest.mark.slow
def test_a_request_of_a_diffusion_model(tiny_diffusion: Path, tmp_path: Path) -> None:
    generator, folder, counts = diffusion(tiny_diffusion), tmp_path / "synthetic" / "01", list[int]()
    generator.check()
    pairs = generator.pairs(PROMPTS, SEEDS, folder, counts.append)

    assert pairs.texts == ("a photo of a cat.", "a photo of a dog.", "a photo of a cow.")
    assert told(pairs) == PROMPTS
    assert sum(counts) == len(PROMPTS)
    assert sorted(content(folder)) == [*(f"00000{i}.png" for i in range(5)), "generator.json", "pairs.jsonl"]
    assert index_of(folder) == [
        {"file": f"00000{i}.png", "prompt": prompt, "seed": seed}
        for i, (prompt, seed) in enumerate(zip(PROMPTS, SEEDS, strict=True))
    ]
    assert json.loads((folder / "generator.json").read_text()) == {
        "model": str(tiny_diffusion), "steps": 3, "guidance": 7.5,
    }  # fmt: skip
    images = pixels(pairs)
    assert {image.shape for image in images} == {(16, 16, 3)}
    assert len({image.tobytes() for image in images}) == 5


def test_a_image_follows_from_prompt_seed_steps_and_guidance(tiny_diffusion: Path, tmp_path: Path) -> None:
    def make(name: str, prompts: Sequence[str], seeds: Sequence[int], **options: Any) -> list[np.ndarray]:
        generator = diffusion(tiny_diffusion, **options)
        return [image.astype(int) for image in pixels(generator.pairs(prompts, seeds, tmp_path / name))]

    one = make("one", PROMPTS, SEEDS, batch_size=1)
    # Larger batches may round differently, no more.
    for name, images in (
        ("together", make("together", PROMPTS, SEEDS, batch_size=5)),
        ("reversed", make("reversed", PROMPTS[::-1], SEEDS[::-1], batch_size=3)[::-1]),
    ):
        assert max(abs(a - b).max() for a, b in zip(one, images, strict=True)) <= 2, name
    other = {
        "prompt": make("prompt", ["a zebra."], SEEDS[:1], batch_size=1),
        "seed": make("seed", PROMPTS[:1], [1], batch_size=1),
        "steps": make("steps", PROMPTS[:1], SEEDS[:1], batch_size=1, steps=4),
        "guidance": make("guidance", PROMPTS[:1], SEEDS[:1], batch_size=1, guidance=2.0),
    }
    for name, images in other.items():
        assert abs(one[0] - images[0]).max() > 2, name


def test_the_scheduler_of_the_authors(tiny_diffusion: Path) -> None:
    assert type(diffusion(tiny_diffusion, steps=50)._load().scheduler).__name__ == "PNDMScheduler"
    pipeline = diffusion(tiny_diffusion, steps=49)._load()
    assert type(pipeline.scheduler).__name__ == "DPMSolverMultistepScheduler"
    assert pipeline.scheduler.config.beta_end == 0.012  # the model's own noise, another solver
    assert {pipeline.unet.dtype, pipeline.vae.dtype, pipeline.text_encoder.dtype} == {torch.float32}


def test_a_request_goes_on_where_it_stopped(
    tiny_diffusion: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    expected = diffusion(tiny_diffusion).pairs(PROMPTS, SEEDS, whole)
    original = DiffusionGenerator._make
    made: list[int] = []

    def make(self: DiffusionGenerator, pipeline: Any, requests: Any) -> Any:
        made.append(len(requests))
        return original(self, pipeline, requests)

    def fail(image: Image.Image, path: Path, **options: Any) -> None:
        path.write_bytes(b"half a pic")
        raise KeyboardInterrupt

    monkeypatch.setattr(DiffusionGenerator, "_make", make)
    with monkeypatch.context() as patch:

        def stop(count: int) -> None:
            """The first batch is done and told of; the second will be made but not written."""
            if count:
                patch.setattr(Image.Image, "save", fail)

        with pytest.raises(KeyboardInterrupt):
            diffusion(tiny_diffusion).pairs(PROMPTS, SEEDS, stopped, stop)
    assert made == [2, 2]
    assert sorted(content(stopped)) == ["000000.png", "000001.png", "generator.json", "pairs.jsonl"]

    counts: list[int] = []
    pairs = diffusion(tiny_diffusion).pairs(PROMPTS, SEEDS, stopped, counts.append)
    assert made == [2, 2, 2, 1]
    assert counts == [2, 2, 1]
    assert content(stopped) == content(whole)
    assert pairs.texts == expected.texts
    assert told(pairs) == told(expected)


def test_a_pickle_is_never_opened(tiny_diffusion: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "opened",)

    for part, weights in (("unet", "diffusion_pytorch_model"), ("text_encoder", "model")):
        model = tmp_path / part
        shutil.copytree(tiny_diffusion, model)
        tensors = load_file(model / part / f"{weights}.safetensors")
        (model / part / f"{weights}.safetensors").unlink()
        old_form = model / part / f"{'pytorch_model' if weights == 'model' else weights}.bin"
        for what in (Trap(), tensors):  # one without harm is refused too
            torch.save(what, old_form)
            with pytest.raises(ModelError, match=f"{model}: cannot be loaded .* with safetensors weights"):
                diffusion(model).pairs(PROMPTS, SEEDS, tmp_path / "images")
    assert not content(tmp_path / "images")  # a model that can be loaded may use the folder
    assert not (tmp_path / "opened").exists()


def test_a_models_own_safety_checker_is_heard(tiny_diffusion: Path, tmp_path: Path) -> None:
    from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPImageProcessor

    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 16, "patch_size": 8}  # fmt: skip
    checker = StableDiffusionSafetyChecker(CLIPConfig(vision_config=vision, projection_dim=4))
    checker.concept_embeds_weights.data.fill_(-2.0)  # no cosine is below -1: everything is flagged
    model = tmp_path / "model"
    shutil.copytree(tiny_diffusion, model)
    checker.save_pretrained(model / "safety_checker")
    processor = CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    processor.save_pretrained(model / "feature_extractor")
    index = json.loads((model / "model_index.json").read_text())
    index["safety_checker"] = ["stable_diffusion", "StableDiffusionSafetyChecker"]
    index["feature_extractor"] = ["transformers", "CLIPImageProcessor"]
    (model / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match="none of the 3 images can be used: all are black or flagged"):
        diffusion(model).pairs(PROMPTS[:3], SEEDS[:3], tmp_path / "images")
    assert [(row["file"], row["dropped"]) for row in index_of(tmp_path / "images")] == [(None, "safety checker")] * 3


# -- diffusers: the folder, with a pipeline that is quick ----------------------------------------------------------


class QuickPipeline:
    """Noise that follows from prompt and seed. Prompts with 'nude' are flagged, those with 'night' are black."""

    made: int = 0

    def __call__(self, prompts: list[str], *, generator: list[torch.Generator], **options: Any) -> Any:
        type(self).made += len(prompts)
        torch.rand(1)  # some code of others may draw without asking
        images = []
        for prompt, seeded in zip(prompts, generator, strict=True):
            noise = torch.randint(0, 200, (8, 8, 3), generator=seeded, dtype=torch.uint8)
            dark = "night" in prompt or "nude" in prompt
            images.append(Image.fromarray((noise * (not dark) + (crc32(prompt.encode()) % 50) * (not dark)).numpy()))
        return SimpleNamespace(images=images, nsfw_content_detected=["nude" in prompt for prompt in prompts])


@pytest.fixture
def quick_pipeline(monkeypatch: pytest.MonkeyPatch) -> type[QuickPipeline]:
    monkeypatch.setattr(DiffusionGenerator, "_load", lambda self: QuickPipeline())
    monkeypatch.setattr(QuickPipeline, "made", 0)
    return QuickPipeline


CHILD = """
import os, signal, sys
from pathlib import Path
from PIL import Image
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]  # this file, and what it imports
from test_synthetic import PROMPTS, SEEDS, DiffusionGenerator, QuickPipeline, diffusion
DiffusionGenerator._load = lambda self: QuickPipeline()
place, number = sys.argv[3], int(sys.argv[4])
calls = 0
def die():
    global calls
    calls += 1
    if calls == number:
        os.kill(os.getpid(), signal.SIGKILL)
save, replace = Image.Image.save, Path.replace
def half(image, path, **options):
    path.write_bytes(b"half a pic")
    if place == "in-image": die()
    save(image, path, **options)
def rename(path, target):
    if place == "before-index" and target.name == "pairs.jsonl": die()
    if place == "before-settings" and target.name == "generator.json": die()
    return replace(path, target)
Image.Image.save, Path.replace = half, rename
diffusion(Path("quick")).pairs(PROMPTS, SEEDS, Path(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "number", "left"),
    [("in-image", 4, 2), ("before-index", 2, 2), ("before-settings", 1, 0)],
)
def test_a_process_that_is_killed_leaves_nothing_that_counts(
    place: str, number: int, left: int, quick_pipeline: type[QuickPipeline], tmp_path: Path
) -> None:
    folder, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(folder), place, str(number)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert list(folder.glob(".*.tmp"))  # what was being written
    diffusion(Path("quick")).pairs(PROMPTS, SEEDS, whole)
    quick_pipeline.made = 0
    pairs = diffusion(Path("quick")).pairs(PROMPTS, SEEDS, folder)
    assert quick_pipeline.made == len(PROMPTS) - left
    assert content(folder) == content(whole)
    assert told(pairs) == PROMPTS


def test_flagged_and_black_images_are_dropped_and_not_made_again(
    quick_pipeline: type[QuickPipeline], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = ["a cat", "a nude", "a night", "a cat", "a dog"]
    with caplog.at_level(logging.INFO, "tasso"):
        pairs = diffusion(Path("quick")).pairs(prompts, SEEDS, tmp_path / "x")
    assert "2 of 5 images are black or were flagged" in caplog.text
    assert pairs.texts == ("a cat", "a dog")
    assert told(pairs) == ["a cat", "a cat", "a dog"]
    assert pairs.images.keys == ("000000.png", "000003.png", "000004.png")
    lines = index_of(tmp_path / "x")
    assert [line["file"] for line in lines] == ["000000.png", None, None, "000003.png", "000004.png"]
    assert [line.get("dropped") for line in lines] == [None, "safety checker", "black", None, None]
    assert len(list((tmp_path / "x").glob("*.png"))) == 3

    before = content(tmp_path / "x")
    again = diffusion(Path("quick")).pairs(prompts, list(np.array(SEEDS)), tmp_path / "x")
    assert quick_pipeline.made == 5
    assert again.images.keys == pairs.images.keys
    assert content(tmp_path / "x") == before
    diffusion(Path("quick")).pairs([*prompts, "a cow"], list(np.array([*SEEDS, 6])), tmp_path / "x")
    assert quick_pipeline.made == 6
    assert index_of(tmp_path / "x")[:5] == lines  # with why they were dropped


def test_a_complete_request_needs_no_diffusers(
    quick_pipeline: type[QuickPipeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = torch.get_rng_state()
    expected = diffusion(Path("quick")).pairs(PROMPTS, SEEDS, tmp_path / "x")
    assert torch.equal(torch.get_rng_state(), state)  # so a run that makes no images again goes on with the same bits
    monkeypatch.undo()
    for package in ("diffusers", "transformers"):
        monkeypatch.setitem(sys.modules, package, None)  # an import fails now
    counts: list[int] = []
    pairs = diffusion(Path("quick")).pairs(PROMPTS, SEEDS, tmp_path / "x", counts.append)
    assert (pairs.texts, pairs.images.keys, counts) == (expected.texts, expected.images.keys, [5])
    fewer = diffusion(Path("quick")).pairs(PROMPTS[:3], SEEDS[:3], tmp_path / "x")
    assert told(fewer) == PROMPTS[:3]

    message = r"generator: diffusers needs the package 'diffusers'. Install it with pip install '"
    with pytest.raises(ConfigError, match=message):
        diffusion(Path("quick")).check()
    with pytest.raises(ConfigError, match=message):
        diffusion(Path("quick")).pairs(PROMPTS, SEEDS, tmp_path / "y")


def test_a_image_that_was_deleted_is_made_again(quick_pipeline: type[QuickPipeline], tmp_path: Path) -> None:
    diffusion(Path("quick")).pairs(PROMPTS, SEEDS, tmp_path / "x")
    before = content(tmp_path / "x")
    (tmp_path / "x" / "000001.png").unlink()
    diffusion(Path("quick")).pairs(PROMPTS, SEEDS, tmp_path / "x")
    assert quick_pipeline.made == 6
    assert content(tmp_path / "x") == before


def test_a_folder_of_something_else_is_left_alone(quick_pipeline: type[QuickPipeline], tmp_path: Path) -> None:
    folder = tmp_path / "x"
    diffusion(Path("quick")).pairs(PROMPTS[:2], SEEDS[:2], folder)
    before = content(folder)
    cases: list[tuple[DiffusionGenerator, list[str], list[int], str]] = [
        (diffusion(Path("quick"), steps=4), PROMPTS, SEEDS, "its images were made with steps = 3, not 4"),
        (diffusion(Path("quick"), guidance=2), PROMPTS, SEEDS, "its images were made with guidance = 7.5, not 2"),
        (diffusion(Path("other")), PROMPTS, SEEDS, "its images were made with model = 'quick', not 'other'"),
        (diffusion(Path("quick")), PROMPTS, [SEEDS[0], 9, 8, 7, 6], "line 2: the image of another request"),
        (diffusion(Path("quick")), ["a cow", *PROMPTS[1:]], SEEDS, "line 1: the image of another request"),
    ]
    for generator, prompts, seeds, message in cases:
        with pytest.raises(DataError, match=message) as caught:
            generator.pairs(prompts, seeds, folder)
        assert str(caught.value).endswith("Choose another folder or delete this one")
    assert content(folder) == before

    (folder / "generator.json").write_text("{")
    with pytest.raises(DataError, match=r"generator.json: not valid JSON"):
        diffusion(Path("quick")).pairs(PROMPTS, SEEDS, folder)
    (folder / "generator.json").unlink()
    with pytest.raises(DataError, match=r"holds no generator.json, but is not empty \(000000.png\)"):
        diffusion(Path("quick")).pairs(PROMPTS, SEEDS, folder)


def test_two_processes_do_not_fill_one_folder(quick_pipeline: type[QuickPipeline], tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    diffusion(Path("quick")).pairs(PROMPTS[:2], SEEDS[:2], tmp_path)
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        diffusion(Path("quick")).pairs(PROMPTS[:2], SEEDS[:2], tmp_path)  # reading is free
        with pytest.raises(DataError, match="another process is making images in this folder"):
            diffusion(Path("quick")).pairs(PROMPTS, SEEDS, tmp_path)
    assert len(diffusion(Path("quick")).pairs(PROMPTS, SEEDS, tmp_path).images) == 5


def test_a_model_that_is_not_there_is_named_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"source: no model_index.json in {tmp_path}. A Stable Diffusion model"):
        diffusion(tmp_path).check()
    with pytest.raises(ConfigError, match="source: neither a folder nor a model name such as stable-diffusion-v1-5/"):
        diffusion(tmp_path / "nothing").check()

    asked: list[tuple[str, str]] = []

    def fetch(name: str, file: str) -> str:
        asked.append((name, file))
        if name == "no/such-model":
            raise OSError("no connection\nand a long explanation")
        return file

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fetch)
    build("diffusers").check()
    with pytest.raises(ConfigError, match="source: the model no/such-model is neither here nor can it be") as error:
        build("diffusers", source="no/such-model").check()
    assert "no connection" not in str(error.value)
    assert "--method.generator atlas (images drawn by code), folder (made elsewhere) or retrieval" in str(error.value)
    assert [file for _, file in asked] == ["model_index.json"] * 2


# -- folder --------------------------------------------------------------------------------------------------------


def write_images(folder: Path, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        draw(number, number).save(folder / name)


def write_pairs(folder: Path, rows: Sequence[tuple[str, str]]) -> None:
    write_images(folder, [file for file, _ in rows])
    lines = [json.dumps({"file": file, "prompt": prompt}) for file, prompt in rows]
    (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n")


def test_what_diffusers_wrote_can_be_moved_and_used(quick_pipeline: type[QuickPipeline], tmp_path: Path) -> None:
    prompts = ["a cat", "a night", "a dog", "a cat"]
    made = diffusion(Path("quick")).pairs(prompts, SEEDS[:4], tmp_path / "run" / "01-pets")
    expected = pixels(made)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    for source in (tmp_path / "moved", tmp_path / "moved" / "01-pets"):
        generator = build("folder", source=str(source))
        generator.check()
        pairs = generator.pairs(prompts, SEEDS[:4], tmp_path / "other" / "01-pets")
        assert (pairs.texts, told(pairs)) == (made.texts, told(made))
        assert all(map(np.array_equal, pixels(pairs), expected))
    assert not (tmp_path / "other").exists()


def test_a_folder_gives_what_was_asked_for_in_its_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [("3.png", "dog"), ("1.png", "cat"), ("2.png", "bird"), ("a/4.png", "cat"), ("5.png", "cat")]
    write_pairs(tmp_path, rows)
    generator = build("folder", source=str(tmp_path))
    counts: list[int] = []
    with caplog.at_level(logging.WARNING, "tasso"):
        pairs = generator.pairs(["cat", "dog", "cat", "dog"], [1, 2, 3, 4], tmp_path / "x", counts.append)
    assert pairs.images.keys == ("3.png", "1.png", "a/4.png")
    assert (pairs.texts, told(pairs), sum(counts)) == (("dog", "cat"), ["dog", "cat", "cat"], 4)
    assert not caplog.records  # every prompt has an image
    with caplog.at_level(logging.WARNING, "tasso"):
        pairs = generator.pairs(["cow", "cat", "elk", "dog"], [1, 2, 3, 4], tmp_path / "x")
    assert told(pairs) == ["dog", "cat"]
    assert "images for 2 of 4 prompts only (2 of 4 images); none for 'cow', 'elk'" in caplog.text
    with pytest.raises(DataError, match=r"no image for any of the 4 prompts, such as 'p', 'q', 'r' …"):
        generator.pairs(["p", "q", "r", "s"], [1, 2, 3, 4], tmp_path / "x")


def test_pairs_as_csv(tmp_path: Path) -> None:
    write_images(tmp_path, ["images/1.png", "images/2.png"])
    text = '\ufeffprompt,file,note\r\n"a cat, asleep",images/1.png,x\r\n\r\na dog,images/2.png,\r\n'
    (tmp_path / "pairs.csv").write_bytes(text.encode())
    generator = build("folder", source=str(tmp_path))
    generator.check()
    pairs = generator.pairs(["a dog", "a cat, asleep"], [1, 2], tmp_path / "x")
    assert (pairs.texts, pairs.images.keys) == (("a cat, asleep", "a dog"), ("images/1.png", "images/2.png"))
    assert pixels(pairs)[0].shape == (16, 16, 3)
    write_pairs(tmp_path, [("3.png", "a dog")])  # pairs.jsonl goes before pairs.csv
    assert generator.pairs(["a dog"], [1], tmp_path / "x").images.keys == ("3.png",)


def test_a_folder_of_the_requests_name_goes_first(tmp_path: Path) -> None:
    write_pairs(tmp_path, [("1.png", "cat"), ("2.png", "dog")])
    write_pairs(tmp_path / "02-pets", [("3.png", "cat")])
    generator = build("folder", source=str(tmp_path))
    assert generator.pairs(["cat"], [1], Path("run/01-food")).images.keys == ("1.png",)
    own = generator.pairs(["cat"], [1], Path("run/02-pets"))
    assert own.images.keys == ("3.png",)
    assert np.array_equal(pixels(own)[0], np.asarray(draw(0, 0)))
    (tmp_path / "pairs.jsonl").unlink()
    generator.check()
    with pytest.raises(DataError, match=r"neither .*01-food nor .* holds a list of images"):
        generator.pairs(["cat"], [1], Path("run/01-food"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("pairs.jsonl", '{"file": "1.png", "prompt": "x"}\n{"file": ', "pairs.jsonl, line 2: not valid JSON"),
        ("pairs.jsonl", "[1]", "pairs.jsonl, line 1: expected an object"),
        ("pairs.jsonl", '{"file": "1.png"}', "pairs.jsonl, line 1: no 'prompt'"),
        ("pairs.jsonl", '{"prompt": "x"}', "pairs.jsonl, line 1: no 'file'"),
        ("pairs.jsonl", '{"file": "1.png", "prompt": " "}', "line 1: prompt is empty or not text: ' '"),
        ("pairs.jsonl", '{"file": "1.png", "prompt": "x", "seed": "1"}', "line 1: seed '1' is not a whole number"),
        ("pairs.jsonl", '{"file": "../1.png", "prompt": "x"}', "line 1: path '../1.png' does not lie in the folder"),
        ("pairs.jsonl", '\n{"file": "/1.png", "prompt": "x"}', "line 2: path '/1.png' does not lie in the folder"),
        ("pairs.jsonl", '{"file": "C:/1.png", "prompt": "x"}', "line 1: path 'C:/1.png' does not lie in the folder"),
        ("pairs.jsonl", '{"file": "a\\\\..\\\\..\\\\1.png", "prompt": "x"}', "does not lie in the folder"),
        ("pairs.jsonl", '{"file": 1, "prompt": "x"}', "line 1: path 1 does not lie in the folder"),
        ("pairs.jsonl", '{"file": "2.png", "prompt": "x"}\n' * 2, "line 1: image missing: .*2.png and 1 more"),
        ("pairs.csv", "image,prompt\n1.png,x\n", "line 1: no column 'file'; the header must be file,prompt"),
        ("pairs.csv", "", "pairs.csv: empty; the first line must be file,prompt"),
        ("pairs.csv", "file,prompt\n1.png,x\n1.png\n", "line 3: 1 cells under 2 columns"),
        ("pairs.csv", 'file,prompt\n1.png,"x\n', "not valid CSV"),
        ("pairs.csv", "file,prompt\n,x\n", "line 2: path '' does not lie in the folder"),
        ("pairs.csv", b"file,prompt\n1.png,\xff\n", "pairs.csv: not UTF-8 text"),
    ],
)
def test_a_damaged_list_is_named_with_its_line(name: str, text: str | bytes, message: str, tmp_path: Path) -> None:
    write_images(tmp_path, ["1.png"])
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    generator = build("folder", source=str(tmp_path))
    with pytest.raises(DataError, match=message):
        generator.check()
    with pytest.raises(DataError, match=message):
        generator.pairs(["x"], [1], tmp_path / "x")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"source: no such folder: .*nowhere. There must lie pairs.jsonl"):
        build("folder", source=str(tmp_path / "nowhere")).check()
    with pytest.raises(ConfigError, match=r"source: nothing to use in .* There must lie pairs.jsonl"):
        build("folder", source=str(tmp_path)).check()


# -- atlas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("a photo of a tulip.", "tulip"),
        ("A Photo Of A TULIP!", "tulip"),
        ("person walking a dog", "person walking a dog"),
        ("a person walking down a road", "person walking"),
        ("a double-decker bus", "double-decker bus"),
        ("a photo of a bell flower.", "bell flower"),
        ("a photo of a Bell.", "bell"),  # no class
        ("a photo of tulips", None),  # whole words only
        ("a wild rosebush", None),
        ("a photo of an axolotl.", None),
    ],
)
def test_a_prompt_names_the_longest_class_it_contains(prompt: str, name: str | None) -> None:
    places = {
        name: f"{domain.name}/{label}"
        for domain in atlas.DOMAINS.values()
        for label, name in enumerate(domain.class_names)
    }
    assert subject(prompt) == (places.get(name, f"thing/{name}") if name else "scene")


def test_drawn_images_follow_from_class_and_seed(tmp_path: Path) -> None:
    generator = build("atlas")
    generator.check()
    prompts = ["a photo of a tulip.", "a bell", "a photo of a tulip.", "an axolotl", "a bell"]
    counts: list[int] = []
    pairs = generator.pairs(prompts, SEEDS, tmp_path / "x", counts.append)
    assert (pairs.texts, told(pairs), sum(counts)) == (("a photo of a tulip.", "a bell", "an axolotl"), prompts, 5)
    images = pixels(pairs)
    assert {image.shape for image in images} == {(64, 64, 3)}
    assert len({image.tobytes() for image in images}) == 5
    again = generator.pairs(prompts[::-1], SEEDS[::-1], tmp_path / "y")
    assert all(map(np.array_equal, pixels(again)[::-1], images))
    assert not list(tmp_path.iterdir())  # nothing is written
    # They show the class: the same drawing as an image of the benchmark with the same dice.
    label = atlas.DOMAINS["flowers"].class_names.index("tulip")
    stream = crc32(b"synthetic")
    assert np.array_equal(images[0], atlas.render("flowers", label, SEEDS[0], seed=stream, size=64))


def test_a_thing_that_is_no_class_is_drawn_as_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[str] = []
    for name, drawing in atlas.EXTRAS.items():
        spy = lambda c, name=name, drawing=drawing: (drawn.append(name), drawing(c))  # noqa: E731
        monkeypatch.setitem(atlas.EXTRAS, name, spy)
    pixels(build("atlas").pairs(["a bell", "a photo of a paper kite."], [1, 2], tmp_path))
    assert drawn == ["bell", "paper kite"]
    names = list(atlas.EXTRAS)
    images = pixels(build("atlas").pairs(names, [7] * len(names), tmp_path))
    assert len({image.tobytes() for image in images}) == len(names)
    assert min(image.std() for image in images) > 5  # there is something on each


def test_drawn_images_are_never_the_benchmarks(tmp_path: Path) -> None:
    count = 12
    drawn = build("atlas").pairs(["a tulip", "an axolotl"] * count, [i // 2 for i in range(2 * count)], tmp_path)
    label = atlas.DOMAINS["flowers"].class_names.index("tulip")
    benchmark = {
        atlas.render("flowers", label, index, split=split, size=64).tobytes()
        for split in atlas.SPLITS
        for index in range(count)
    } | {atlas.render_reference(index, size=64).tobytes() for index in range(count)}
    assert len(benchmark) == 4 * count
    assert not benchmark & {image.tobytes() for image in pixels(drawn)}


# -- retrieval -----------------------------------------------------------------------------------------------------


def encoded(number: int) -> bytes:
    stream = io.BytesIO()
    draw(number, number).save(stream, format="WEBP", lossless=True)
    return stream.getvalue()


def write_part(folder: Path, name: str, texts: Sequence[Any], first: int = 0) -> None:
    """Images `first`, `first` + 1, … with these texts."""
    folder.mkdir(exist_ok=True)
    images = [encoded(first + place) for place in range(len(texts))]
    offsets = np.cumsum([0, *map(len, images)])
    np.savez(folder / f"{name}.npz", bytes=np.frombuffer(b"".join(images), dtype=np.uint8), offsets=offsets)
    (folder / f"{name}.json").write_text(json.dumps([{"text": text, "source": "drawn"} for text in texts]))


def retrieve(folder: Path, prompts: Sequence[str], seeds: Sequence[int] | None = None, **options: Any) -> Pairs:
    generator = build("retrieval", source=str(folder), **options)
    generator.check()
    return generator.pairs(prompts, seeds if seeds is not None else range(len(prompts)), folder / "unused")


def test_the_nearest_images_of_a_packed_corpus(tmp_path: Path) -> None:
    write_part(tmp_path, "part-0", [["a red ball on a table"], ["cat"], ["two dogs"]])
    write_part(tmp_path, "part-1", [["sheep by a lake", "a small cat on a roof"], "a green tree in a garden."], first=3)
    prompts = ["a photo of a cat.", "a small cat on a roof", "a photo of a cat."]
    pairs = retrieve(tmp_path, prompts)
    # The first of a prompt gets the nearest, by the best of an entry's texts; no image comes twice.
    assert pairs.images.keys[:2] == ("part-0/1", "part-1/0")
    assert pairs.images.keys[2] not in pairs.images.keys[:2]
    assert pairs.texts == ("a photo of a cat.", "a small cat on a roof")
    assert told(pairs) == prompts
    assert np.array_equal(pixels(pairs)[0], np.asarray(draw(1, 1)))
    assert np.array_equal(pixels(pairs)[1], np.asarray(draw(3, 3)))
    assert pairs.images.source.missing(pairs.images.keys) == []
    assert pairs.images.source.describe("part-1/0") == f"{tmp_path / 'part-1.npz'}[0]"
    assert not (tmp_path / "unused").exists()
    assert retrieve(tmp_path, ["a green tree in a garden."]).images.keys == ("part-1/1",)


def test_seeds_choose_among_images_with_one_caption(tmp_path: Path) -> None:
    write_part(tmp_path, "corpus", [["dog"]] * 40 + [["cat"]] * 40)
    prompts = ["a photo of a cat."] * 20

    def picks(seeds: Sequence[int]) -> tuple[str, ...]:
        return retrieve(tmp_path, prompts, seeds).images.keys

    one, other = picks(range(20)), picks(range(100, 120))
    assert one == picks(range(20))
    assert one != other
    for keys in (one, other):
        places = [int(key.split("/")[1]) for key in keys]
        assert len(set(places)) == 20
        assert min(places) >= 40  # cats before any dog
        assert places != sorted(places)
    # All the cats, then dogs.
    places = [int(key.split("/")[1]) for key in retrieve(tmp_path, prompts * 3).images.keys]
    assert min(places[:40]) >= 40
    assert max(places[40:]) < 40
    assert len(set(places)) == 60


def test_a_small_corpus_starts_over(tmp_path: Path) -> None:
    write_part(tmp_path, "corpus", [["cat"], ["dog"], ["cow"], ["elk"]])
    prompts = ["a photo of a cat."] * 3 + ["a photo of a cow."] * 3
    keys = retrieve(tmp_path, prompts).images.keys
    assert len(set(keys[:4])) == 4  # all are used before any comes again
    assert len(set(keys[3:])) == 3  # and none twice for one prompt
    counts = Counter(retrieve(tmp_path, ["a photo of a cat."] * 10).images.keys)
    assert set(counts.values()) == {2, 3}


def test_texts_are_encoded_once_and_names_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.methods.synthetic.retrieval.CHUNK", 2)
    write_part(tmp_path, "corpus", [["cat"], ["cat"], ["dog.", "a dog runs over the grass"], ["cat", "hot dog"]])
    seen: list[Sequence[str]] = []

    def encode(texts: Sequence[str]) -> Tensor:
        seen.append(texts)
        return 3 * bag_of_words(texts).double()  # neither unit length nor float32

    generator = build("retrieval", source=str(tmp_path), encode_texts=encode)
    generator.check()
    assert not seen
    generator.pairs(["p", "q", "r", "q"], range(4), tmp_path / "x")
    assert Counter(text for texts in seen for text in texts) == Counter(
        ["a photo of a cat.", "dog.", "a dog runs over the grass", "a photo of a hot dog.", "p", "q", "r"]
    )
    assert max(map(len, seen)) == 2
    seen.clear()
    generator.pairs(["s"], [1], tmp_path / "y")
    assert seen == [["s"]]
    assert as_prompt("one two three four") == "a photo of a one two three four."
    assert as_prompt("one two three four five") == "one two three four five"


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_folder_of_images_with_captions(form: str, tmp_path: Path) -> None:
    rows = [("a/0.png", "a ball on a table"), ("1.png", "two sheep, and a lake"), ("1.png", "cat")]
    write_images(tmp_path, ["a/0.png", "1.png"])
    with (tmp_path / f"captions.{form}").open("w", newline="") as file:
        if form == "csv":
            csv.writer(file).writerows([("file", "caption"), *rows])
        else:
            file.writelines(json.dumps({"file": name, "caption": text}) + "\n" for name, text in rows)
    pairs = retrieve(tmp_path, ["a photo of a cat.", "some ball"])
    assert pairs.images.keys == ("1.png", "a/0.png")
    assert np.array_equal(pixels(pairs)[0], np.asarray(draw(1, 1)))
    (tmp_path / "1.png").unlink()
    with pytest.raises(DataError, match=rf"captions.{form}, line \d: image missing: .*1.png and 1 more"):
        retrieve(tmp_path, ["x"])


def test_a_damaged_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"source: no such folder: .*nowhere. There must lie parts NAME.npz"):
        retrieve(tmp_path / "nowhere", ["x"])
    with pytest.raises(DataError, match=r"no corpus found. There must lie parts NAME.npz"):
        retrieve(tmp_path, ["x"])

    def refused(message: str, **arrays: Any) -> None:
        np.savez(tmp_path / "c.npz", **arrays)
        with pytest.raises(DataError, match=message):
            retrieve(tmp_path, ["x"])

    flat = np.zeros(4, np.uint8)
    refused("c.npz: cannot be read as arrays 'bytes' and 'offsets'", bytes=flat)
    refused("c.npz: 'bytes' must be one row of uint8", bytes=flat.astype(float), offsets=np.array([0, 4]))
    refused("c.npz: 'offsets' must be one row of whole numbers", bytes=flat, offsets=np.array([0.0, 4.0]))
    for offsets in ([0, 3], [1, 4], [0, 4, 2, 4]):
        refused("c.npz: 'offsets' must rise from 0 to the length of 'bytes'", bytes=flat, offsets=np.array(offsets))
    refused("c.json: missing; it holds the texts of the images in c.npz", bytes=flat, offsets=np.array([0, 2, 4]))
    for text, message in (
        ("[", "c.json: not valid JSON"),
        ("{}", "c.json: expected a list of 2 entries, one per image in c.npz, found no list"),
        ('[{"text": ["a"]}]', "c.json: expected a list of 2 entries, one per image in c.npz, found 1 entries"),
        ('[{"text": ["a"]}, {"text": []}]', r"c.json: \[1\]: 'text' must be one or more texts"),
        ('[{"text": ["a", " "]}, {"text": "b"}]', r"c.json: \[0\]: 'text' must be one or more texts"),
    ):
        (tmp_path / "c.json").write_text(text)
        refused(message, bytes=flat, offsets=np.array([0, 2, 4]))
    (tmp_path / "c.npz").write_bytes(b"not a zip")
    with pytest.raises(DataError, match=r"c.npz: cannot be read"):
        retrieve(tmp_path, ["x"])


def test_a_pickle_in_a_corpus_is_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "opened",)

    (tmp_path / "c.json").write_text('[{"text": ["a"]}]')
    np.savez(tmp_path / "c.npz", bytes=np.array([Trap()], dtype=object), offsets=np.array([0, 1]))
    with pytest.raises(DataError, match=r"c.npz: cannot be read"):
        retrieve(tmp_path, ["x"])
    (tmp_path / "c.npz").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match=r"c.npz: cannot be read"):
        retrieve(tmp_path, ["x"])
    assert not (tmp_path / "opened").exists()
