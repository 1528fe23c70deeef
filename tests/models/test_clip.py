"""Loading models, cached class embeddings, and the right activation."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from safetensors.torch import save_file

from tasso.config import read_templates
from tasso.errors import ConfigError, ModelError
from tasso.models.clip import Clip, cast_weights, encode
from tasso.models.loading import load_clip
from tasso.models.towers import embed_images
from tasso.training.engine import cpu_has_bfloat16

NAMES = ("cat", "a dog with spots", "tram")


def test_cached_class_embeddings_are_bit_equal_to_recomputed(tiny_clip: Clip) -> None:
    templates = ("a photo of a {}.",)
    cached = tiny_clip.class_embeddings(NAMES, templates)
    assert tiny_clip.class_embeddings(NAMES, templates) is cached
    assert torch.equal(cached, tiny_clip.encode_classes(NAMES, templates))
    direct = tiny_clip.model.encode_text(tiny_clip.tokenizer([f"a photo of a {n}." for n in NAMES]), normalize=True)
    torch.testing.assert_close(cached, direct)


def test_mean_over_templates_has_unit_length(tiny_clip: Clip) -> None:
    one, two = (tiny_clip.class_embeddings(NAMES, (t,)) for t in ("a {}.", "the {}!"))
    both = tiny_clip.class_embeddings(NAMES, ("a {}.", "the {}!"))
    torch.testing.assert_close(both, torch.nn.functional.normalize((one + two) / 2, dim=-1))


def _changes() -> dict[str, Callable[[Any], object]]:
    def in_place(model: Any) -> None:
        with torch.no_grad():
            model.token_embedding.weight.mul_(-1)

    def loaded(model: Any) -> None:
        model.load_state_dict({"ln_final.weight": -model.ln_final.weight}, strict=False)

    def assigned(model: Any) -> None:
        model.ln_final.weight.data = -model.ln_final.weight.data

    def replaced(model: Any) -> None:
        model.ln_final = torch.nn.LayerNorm(16, elementwise_affine=False)

    def hooked(model: Any) -> None:
        model.ln_final.register_forward_hook(lambda module, args, output: -output)

    return {f.__name__: f for f in (in_place, loaded, assigned, replaced, hooked)}


@pytest.mark.parametrize("change", _changes().values(), ids=_changes())
def test_class_embeddings_are_never_stale(tiny_clip: Clip, change: Callable[[Any], object]) -> None:
    before = tiny_clip.class_embeddings(NAMES, ("{}",))
    tiny_clip.visual.requires_grad_(True)
    with torch.no_grad():
        next(tiny_clip.visual.parameters()).add_(1)
    assert tiny_clip.class_embeddings(NAMES, ("{}",)) is before, "the image tower does not matter"
    with torch.no_grad():
        tiny_clip.model.text_projection.add_(0.1 * torch.randn_like(tiny_clip.model.text_projection))
    tiny_clip.class_embeddings(NAMES, ("{}",))
    change(tiny_clip.model)
    now = tiny_clip.class_embeddings(NAMES, ("{}",))
    assert torch.equal(now, tiny_clip.encode_classes(NAMES, ("{}",)))


def test_cached_class_embeddings_have_a_bound(tiny_clip: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.models.clip.CACHED_CLASS_LISTS", 3)
    first = tiny_clip.class_embeddings(["first"], ("{}",))
    for number in range(9):
        tiny_clip.class_embeddings([f"class {number}"], ("{}",))
        assert tiny_clip.class_embeddings(["first"], ("{}",)) is first, "used often, so it stays"
    assert len(tiny_clip._class_embeddings) == 3


@pytest.mark.parametrize("training", [True, False])
def test_encoding_texts_leaves_every_module_in_its_mode(tiny_clip: Clip, training: bool) -> None:
    model = tiny_clip.model
    model.train(training)
    tiny_clip.visual.train(not training)
    before = {name: module.training for name, module in model.named_modules()}
    tiny_clip.encode_texts(["a"])
    assert {name: module.training for name, module in model.named_modules()} == before


def test_each_text_is_tokenised_once(tiny_clip: Clip) -> None:
    calls: list[str] = []

    def tokenizer(texts: list[str], length: int | None = None) -> torch.Tensor:
        calls.extend(texts)
        tokens: torch.Tensor = tiny_clip.tokenizer(texts)
        return tokens[:, : length or tokens.shape[1]]

    def clip(tokenizer: Any) -> Clip:
        return Clip(tiny_clip.model, tokenizer, tiny_clip.preprocess, tiny_clip.spec, tiny_clip.architecture)

    ours = clip(tokenizer)
    for texts in (NAMES, ("a bus", *NAMES[::-1]), NAMES):
        assert torch.equal(ours.tokenise(texts), tiny_clip.tokenise(texts))
    assert calls == [*NAMES, "a bus"]
    to_the_longest = clip(lambda texts: tokenizer(texts, int(tiny_clip.tokenizer(texts).argmax(-1).max()) + 1))
    assert torch.equal(to_the_longest.tokenise(NAMES), tiny_clip.tokenise(NAMES))


def test_checksum_of_weights(tiny_clip: Clip, tiny_model: str) -> None:
    assert tiny_clip.weights_checksum() == load_clip(tiny_model).weights_checksum()
    before = tiny_clip.weights_checksum()
    with torch.no_grad():
        tiny_clip.model.ln_final.bias[3] += 1e-7
    assert tiny_clip.weights_checksum() != before


def test_one_forward_equals_two_and_teacher_equals_student(tiny_clip: Clip) -> None:
    pixels = torch.randn(6, 3, 16, 16)
    together = tiny_clip.encode_images(pixels)
    apart = torch.cat([tiny_clip.encode_images(pixels[:2]), tiny_clip.encode_images(pixels[2:])])
    torch.testing.assert_close(together, apart, rtol=1e-5, atol=1e-6)
    teacher = tiny_clip.frozen_image_encoder()
    assert torch.equal(teacher.encode_images(pixels), together)
    torch.testing.assert_close(together.norm(dim=-1), torch.ones(6))
    with torch.no_grad():
        for parameter in tiny_clip.visual.parameters():
            parameter.add_(0.1)
    assert torch.equal(teacher.encode_images(pixels), together)


def test_parameters_of_towers(tiny_clip: Clip) -> None:
    visual, both = tiny_clip.parameters_of("visual"), tiny_clip.parameters_of("both")
    assert all(name.startswith("visual.") for name in visual)
    assert set(visual) < set(both)
    assert "logit_scale" not in both


@pytest.mark.parametrize("kind", ["safetensors", "pt", "wrapped.pt", "jit.pt"])
def test_state_dicts_of_every_kind_load(tmp_path: Path, tiny_name: str, kind: str) -> None:
    torch.manual_seed(1)
    model = open_clip.create_model(tiny_name)
    path = tmp_path / f"weights.{kind}"
    state = model.state_dict()
    if kind == "safetensors":
        save_file({k: v.contiguous() for k, v in state.items()}, path)
    elif kind == "wrapped.pt":
        torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}, "epoch": 3}, path)
    elif kind == "jit.pt":
        torch.jit.save(torch.jit.script(Holder(state)), path)
    else:
        torch.save(state, path)
    loaded = load_clip(tiny_name, str(path))
    for name, tensor in loaded.model.state_dict().items():
        assert torch.equal(tensor, state[name]), name


class Holder(torch.nn.Module):
    """A scripted module with a given state dict, as OpenAI's archives are."""

    def __init__(self, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        for name, tensor in state.items():
            owner: torch.nn.Module = self
            *path, last = name.split(".")
            for part in path:
                if not hasattr(owner, part):
                    owner.add_module(part, torch.nn.Module())
                owner = getattr(owner, part)
            owner.register_buffer(last, tensor)

    def forward(self) -> int:
        return 0


def test_openai_archive_is_recognised_and_needs_quick_gelu(tmp_path: Path, tiny_name: str) -> None:
    torch.manual_seed(1)
    state = open_clip.create_model("tiny-quickgelu").state_dict()
    extra = {"input_resolution": torch.tensor(224), "context_length": torch.tensor(77), "vocab_size": torch.tensor(1)}
    path = tmp_path / "openai.pt"
    torch.jit.save(torch.jit.script(Holder({**state, **extra})), path)
    with pytest.raises(ModelError, match=r"trained with QuickGELU.*--model tiny-quickgelu"):
        load_clip(tiny_name, str(path))
    assert load_clip("tiny-quickgelu", str(path)).logit_scale == pytest.approx(1 / 0.07, rel=1e-4)


@pytest.mark.slow
def test_the_papers_model_is_built_with_quick_gelu_from_a_state_dict(tmp_path: Path) -> None:
    torch.manual_seed(2)
    model = open_clip.create_model("ViT-B-16-quickgelu")
    path = tmp_path / "vit.safetensors"
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, path)
    clip = load_clip("ViT-B-16-quickgelu", str(path))
    assert any(isinstance(m, open_clip.transformer.QuickGELU) for m in clip.model.modules())
    assert clip.dim == 512
    assert clip.preprocess.size == 224
    pixels = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(clip.encode_images(pixels), model.eval().encode_image(pixels, normalize=True))


@pytest.mark.parametrize("model", ["ViT-B-16", "ViT-B-32", "RN50"])
def test_openai_weights_with_plain_gelu_are_refused_before_any_download(model: str) -> None:
    with pytest.raises(ModelError, match=f"Use --model {model}-quickgelu"):
        load_clip(model, "openai")


def test_the_right_activation_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> str:
        raise OSError("no route to host")

    monkeypatch.setattr("open_clip.factory.download_pretrained", no_network)
    with pytest.raises(ModelError, match=r"cannot load ViT-B-16-quickgelu \(openai\).*no route.*local file"):
        load_clip("ViT-B-16-quickgelu", "openai")


def test_pickles_are_not_executed(tmp_path: Path, tiny_name: str) -> None:
    target = tmp_path / "executed"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return Path.touch, (target,)

    path = tmp_path / "evil.pt"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ModelError, match="pickle can run code"):
        load_clip(tiny_name, str(path))
    assert not target.exists()


def test_bad_models_are_named(tmp_path: Path, tiny_model: str, tiny_name: str) -> None:
    with pytest.raises(ModelError, match="knows no model 'ViT-Q'"):
        load_clip("ViT-Q", "openai")
    with pytest.raises(ModelError, match="needs weights"):
        load_clip("ViT-B-32")
    with pytest.raises(ModelError, match="no tag 'laion9b'"):
        load_clip("ViT-B-32", "laion9b")
    with pytest.raises(ModelError, match="no such file"):
        load_clip("ViT-B-32", str(tmp_path / "absent.pt"))
    with pytest.raises(ModelError, match="has its own weights"):
        load_clip(tiny_model, "openai")
    with pytest.raises(ModelError, match=r"no such file: .*open_clip_config\.json$"):
        load_clip(f"local-dir:{tmp_path}")
    wrong = tmp_path / "wrong.safetensors"
    save_file({"a": torch.zeros(1)}, wrong)
    with pytest.raises(ModelError, match=r"wrong\.safetensors does not fit tiny\S*: it has no tensor '[\w.]+'$"):
        load_clip(tiny_name, str(wrong))
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"xxxx")
    with pytest.raises(ModelError, match="not a readable safetensors"):
        load_clip(tiny_name, str(broken))


def test_templates_from_option_and_file(tmp_path: Path) -> None:
    assert read_templates("a photo of a {}.") == ("a photo of a {}.",)
    file = tmp_path / "prompts.txt"
    file.write_text("a {}.\n\nthe {}!\n")
    assert read_templates(str(file)) == ("a {}.", "the {}!")
    with pytest.raises(ConfigError, match=r"has no {} for the class name and is not a file"):
        read_templates("a photo")
    file.write_text("a {}.\na dog\n")
    with pytest.raises(ConfigError, match=r"prompt 2 has no {}"):
        read_templates(str(file))
    file.write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        read_templates(str(file))


def test_state_of_another_model_is_refused(tiny_clip: Clip) -> None:
    with pytest.raises(ModelError, match=r"'visual\.nope' does not belong"):
        tiny_clip.load_state({"visual.nope": torch.zeros(1)}, "file")
    with pytest.raises(ModelError, match=r"has shape \(1,\) instead of"):
        tiny_clip.load_state({"visual.proj": torch.zeros(1)}, "file")


@pytest.mark.skipif(not cpu_has_bfloat16(), reason="no bfloat16 products on this CPU")
def test_a_frozen_tower_with_cast_weights_gives_the_same_embeddings(tiny_clip: Clip) -> None:
    tower, pixels = tiny_clip.visual, torch.randn(2, 3, 16, 16)
    before = encode(embed_images, tower, pixels, torch.bfloat16)
    cast_weights(tower, torch.bfloat16)
    assert {tower.conv1.weight.dtype, tower.ln_pre.weight.dtype} == {torch.bfloat16, torch.float32}  # type: ignore[union-attr]
    assert torch.equal(encode(embed_images, tower, pixels, torch.bfloat16), before)
