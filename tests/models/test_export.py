"""Exported models load in other libraries without tasso and give the same embeddings."""

from __future__ import annotations

import builtins
import json
import re
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from PIL import Image
from torch import Tensor

import tasso
from fences import code_in
from model_families import write_hf_siglip
from tasso.cli import main
from tasso.data import atlas
from tasso.data.images.transforms import normalise, resize_and_centre
from tasso.errors import ConfigError, ModelError, RunError, install
from tasso.models.clip import Clip
from tasso.models.export import FORMATS, Source, export_model, export_open_clip
from tasso.models.export.folder import new_folder
from tasso.models.loading import load_clip

TEXTS = ["a photo of a biplane", "two dogs run through the grass"]


def check_same_embeddings(clip: Clip, folder: Path) -> None:
    """open_clip's model, transform and tokenizer against ours."""
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    image = atlas.render("flowers", 3, 0)
    pixels = torch.from_numpy(image.copy()).permute(2, 0, 1)[None]
    with torch.no_grad():
        ours = clip.encode_images(normalise(resize_and_centre(pixels, clip.preprocess), clip.preprocess))
        theirs = model.eval().encode_image(preprocess(Image.fromarray(image))[None], normalize=True)
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=2e-3)  # Pillow rounds resized images to bytes
        torch.testing.assert_close(clip.encode_texts(TEXTS), model.encode_text(tokenizer(TEXTS), normalize=True))


def follow_readme(folder: Path, image: Path) -> dict[str, Any]:
    """Execute the code for any texts in the folder's README; returns its variables."""
    code = code_in((folder / "README.md").read_text(encoding="utf-8"), "python")[-1]
    assert "tasso" not in code
    variables: dict[str, Any] = {}
    exec(code.replace("FOLDER", str(folder)).replace("IMAGE", str(image)).replace("TEXTS", repr(TEXTS)), variables)
    return variables


def image_of_input_size(clip: Clip, folder: Path) -> tuple[Path, Tensor]:
    """An image file that no library resizes, and its normalised pixels."""
    array = atlas.render("pets", 2, 1, size=clip.preprocess.size)
    Image.fromarray(array).save(folder / "image.png")
    return folder / "image.png", normalise(
        torch.from_numpy(array.copy()).permute(2, 0, 1)[None].float() / 255, clip.preprocess
    )


@pytest.fixture(scope="module")
def quick_gelu(tiny_name: str, tmp_path_factory: pytest.TempPathFactory) -> Clip:
    """A random model with OpenAI's activation."""
    torch.manual_seed(0)
    weights = tmp_path_factory.mktemp("weights") / "weights.pt"
    torch.save(open_clip.create_model(f"{tiny_name}-quickgelu").state_dict(), weights)
    return load_clip(f"{tiny_name}-quickgelu", str(weights))


# Exporting nano to ONNX takes half a minute and tests nothing else.
CASES = [(to, name) for to in FORMATS for name in ("nano", "quick_gelu") if (to, name) != ("onnx", "nano")]
CASES.append(("hf", "siglip"))


@pytest.mark.slow
@pytest.mark.parametrize(("to", "name"), CASES)
def test_the_code_of_the_readme_gives_the_same_embeddings(to: str, name: str, quick_gelu: Clip, tmp_path: Path) -> None:
    if to == "hf":
        transformers = pytest.importorskip("transformers", reason="no transformers here: pip install 'tasso[hf]'")
    if to == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package, reason=f"no {package} here: pip install 'tasso[onnx]'")
    if name == "siglip":
        clip = load_clip(write_hf_siglip(tmp_path / name))
    else:
        clip = load_clip("nano") if name == "nano" else quick_gelu
    path, pixels = image_of_input_size(clip, tmp_path)
    export_model(Source(clip, name, "a test"), to, tmp_path / "out")
    found = follow_readme(tmp_path / "out", path)
    if to == "hf":
        line = FORMATS[to].usage.replace("FOLDER", str(tmp_path / "out"))
        assert type(eval(line, {"transformers": transformers})) is type(found["model"])
    with torch.no_grad():
        images, texts = clip.encode_images(pixels), clip.encode_texts(TEXTS)
    for ours, theirs in ((images, found["image_embedding"]), (texts, found["text_embeddings"])):
        torch.testing.assert_close(ours, torch.as_tensor(theirs), rtol=0, atol=1e-5)
    expected = (clip.logit_scale * images @ texts.mT).softmax(-1)
    torch.testing.assert_close(expected, torch.as_tensor(found["probabilities"]), rtol=0, atol=1e-5)
    if to == "onnx":
        several = pixels.expand(3, -1, -1, -1).contiguous()
        [batch] = found["image_encoder"].run(None, {"pixels": several.numpy()})
        torch.testing.assert_close(torch.as_tensor(batch), images.expand(3, -1), rtol=0, atol=1e-5)
        metadata = json.loads((tmp_path / "out" / "metadata.json").read_text())
        assert (metadata["size"], metadata["embed_dim"]) == (clip.preprocess.size, clip.dim)
        files = [file.stat().st_size for file in (tmp_path / "out").glob("*_encoder.*")]
        parameters = clip.count_parameters()["total"]
        assert sum(files) < 4 * parameters * 1.25, "each file has one tower only"


def test_nano_with_its_own_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["export", "--model", "nano", "--out", "exported"])
    monkeypatch.chdir("/")  # the vocabulary must be found from anywhere
    check_same_embeddings(load_clip("nano"), tmp_path / "exported")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["exported"]


@pytest.mark.slow
@pytest.mark.usefixtures("float32")
def test_a_run_is_exported_with_what_it_learned(
    quick: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tasso.learn(**quick)
    main(["export", str(quick["out"]), "--out", str(tmp_path / "exported")])
    check_same_embeddings(run.clip, tmp_path / "exported")
    start = load_clip(str(quick["model"]))
    assert not torch.equal(start.state("visual")["visual.proj"], run.clip.state("visual")["visual.proj"])
    # --after exports an earlier model; the default folder has the run's name.
    monkeypatch.chdir(tmp_path)
    main(["export", str(quick["out"]), "--after", "dtd"])
    assert "local-dir:exported/run-open_clip" in capsys.readouterr().out
    earlier = tasso.load(str(quick["out"]), after="dtd").clip
    path, pixels = image_of_input_size(earlier, tmp_path)
    found = follow_readme(tmp_path / "exported" / "run-open_clip", path)["image_embedding"]
    torch.testing.assert_close(found, earlier.encode_images(pixels), rtol=0, atol=1e-5)
    assert not torch.allclose(found, run.clip.encode_images(pixels), rtol=0, atol=1e-4)
    assert "after dtd" in (tmp_path / "exported" / "run-open_clip" / "README.md").read_text()


def test_transformers_is_another_name_of_hf(tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("tasso.models.export.export_model", lambda source, to, out: asked.append(to) or out)
    main(["export", "--model", tiny_model, "--to", "transformers", "--out", str(tmp_path / "exported")])
    assert asked == ["hf"]


def test_the_activation_is_exported(tmp_path: Path, quick_gelu: Clip) -> None:
    check_same_embeddings(quick_gelu, export_open_clip(quick_gelu, tmp_path / "exported"))
    again = load_clip(f"local-dir:{tmp_path / 'exported'}")
    assert any(isinstance(m, open_clip.transformer.QuickGELU) for m in again.model.modules())


def test_transformers_tokenises_texts_alike(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="no transformers here: pip install 'tasso[hf]'")
    clip = load_clip("nano")
    export_model(Source(clip, "nano", "a test"), "hf", tmp_path / "out")
    tokenizer = transformers.CLIPTokenizer.from_pretrained(tmp_path / "out")
    names = [name for domain in atlas.DOMAINS.values() for name in domain.class_names]
    texts = [f"a photo of a {name}." for name in names] + ["It's 10,000  km — très loin!", "A Boeing 737-800's wing"]
    for text, ours in zip(texts, clip.tokenizer(texts).tolist(), strict=True):
        end = ours.index(clip.tokenizer.eot_token_id) + 1
        assert tokenizer(text)["input_ids"] == ours[:end], text


@pytest.mark.parametrize(
    ("part", "key", "value", "complaint"),
    [
        ("vision_cfg", "pool_type", "avg", "vision_cfg.pool_type = 'avg'"),
        ("vision_cfg", "ls_init_value", 0.1, "vision_cfg.ls_init_value = 0.1"),
        ("vision_cfg", "timm_model_name", "convnext", "vision_cfg.timm_model_name = 'convnext'"),
        ("text_cfg", "act_kwargs", {"approximate": "x"}, "text_cfg.act_kwargs = {'approximate': 'x'}"),
        ("vision_cfg", "layers", [2, 2, 2, 2], "a convolutional image tower"),
    ],
)
def test_what_transformers_does_not_support_is_named(
    tiny_clip: Clip, tmp_path: Path, part: str, key: str, value: Any, complaint: str
) -> None:
    pytest.importorskip("transformers", reason="no transformers here: pip install 'tasso[hf]'")
    tiny_clip.architecture[part][key] = value
    with pytest.raises(ModelError, match=re.escape(complaint)):
        export_model(Source(tiny_clip, "x", "x"), "hf", tmp_path / "out")
    assert not list(tmp_path.iterdir()), "no folder is created"


def test_missing_packages_are_named(tiny_clip: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def failing_import(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] in ("transformers", "onnx"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", failing_import)
    for to in ("hf", "onnx"):
        with pytest.raises(ModelError, match=re.escape(install(to))):
            export_model(Source(tiny_clip, "x", "x"), to, tmp_path / "out")
    with pytest.raises(ConfigError, match="no format 'gguf'"):
        export_model(Source(tiny_clip, "x", "x"), "gguf", tmp_path / "out")


def test_folders_with_content_are_refused(tiny_clip: Clip, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(RunError, match="exists and is not empty"):
            export_open_clip(tiny_clip, folder)
    with pytest.raises(RunError, match="cannot make the folder"):
        export_open_clip(tiny_clip, tmp_path / "mine.txt" / "below" / "x")
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    for args in ([], ["x", "--model", "nano"]):
        with pytest.raises(SystemExit):
            main(["export", *args, "--out", str(tmp_path / "x")])
        assert "give either RUN or --model" in capsys.readouterr().err


def test_exported_weights_are_as_readable_as_other_files(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with new_folder(tmp_path / "exported") as temporary:
        (temporary / "weights.safetensors").touch(mode=0o600)
    assert (tmp_path / "exported" / "weights.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode
