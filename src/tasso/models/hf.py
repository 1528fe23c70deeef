"""Hugging Face checkpoints: CLIP is converted onto open_clip's modules, SigLIP keeps transformers' own.

transformers' CLIPModel and open_clip's CLIP are one network under different names, so a converted CLIP has what
open_clip's have: lean forward passes, every method, every export. Of SigLIP, open_clip builds the published sizes only,
some with another activation than transformers; there the two towers are wrapped.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tasso.config.paths import HF, LOCAL
from tasso.decoding.views import Preprocess
from tasso.errors import ModelError, install
from tasso.files import user_path

SUPPORTED = {"clip": "CLIP", "siglip": "Siglip"}  # `model_type` in config.json: how transformers' classes begin
TEXT_FILES = ("*.json", "*.txt", "*.model")  # configs and tokenizers
# What a folder must have, as patterns. Each suffices; the first that exists is read.
FILES = {
    "config": ("config.json",),
    "weights": ("model*.safetensors", "pytorch_model*.bin"),
    "tokenizer": ("tokenizer.json", "merges.txt", "spiece.model", "tokenizer.model"),
    "preprocessing": ("preprocessor_config.json", "processor_config.json"),
}
OPEN_CLIP_CONFIG = "open_clip_config.json"
ACTIVATIONS = {"quick_gelu": None, "gelu": {}, "gelu_pytorch_tanh": {"approximate": "tanh"}}


@dataclass(frozen=True)
class Parts:
    """A model in the shape of open_clip's, with its tokenizer, preprocessing and (nearly) open_clip's model config."""

    model: nn.Module
    tokenizer: Any
    preprocess: Preprocess
    architecture: dict[str, Any]


def load(place: str) -> Parts:
    """A checkpoint, from a folder or from the hub (OWNER/NAME)."""
    folder = folder_of(place, FILES)
    config = _read_config(folder)
    _check_files(folder)
    transformers, kind = import_transformers(), SUPPORTED[config.model_type]
    processor = getattr(transformers, f"{kind}ImageProcessor").from_pretrained(folder, local_files_only=True)
    architecture = _architecture(config, place)
    with without_bars():
        tokenizer = tokenizer_of(folder, architecture["text_cfg"])
        model, found = getattr(transformers, f"{kind}Model").from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True, weights_only=True,
            ignore_mismatched_sizes=True,
        )  # fmt: skip
    shapes = [name for name, *_ in found["mismatched_keys"]]  # transformers would go on with random weights
    check_fit(
        found["missing_keys"], found["unexpected_keys"], shapes, f"model: {HF}{place} does not fit its config.json"
    )
    return _parts(model, tokenizer, processor, architecture, place)


def adopt(model: Any, tokenizer: Any, processor: Any) -> Parts:
    """transformers' objects as open_clip's."""
    name = type(model).__name__
    if (kind := model.config.model_type) not in SUPPORTED:
        raise ModelError(f"model: {name} is {kind!r}; supported are {', '.join(SUPPORTED)}")
    for what, part, attribute in (("tokenizer", tokenizer, "get_vocab"), ("image processor", processor, "image_mean")):
        if not hasattr(part, attribute):
            raise ModelError(f"model: {name} needs the {what} of transformers, not {type(part).__name__}")
    architecture = _architecture(model.config, name)
    return _parts(model, HFTokenizer(tokenizer, architecture["text_cfg"]), processor, architecture, name)


def _parts(model: Any, tokenizer: Any, processor: Any, architecture: dict[str, Any], name: str) -> Parts:
    if (tokens := len(tokenizer.tokenizer)) > (known := architecture["text_cfg"]["vocab_size"]):
        raise ModelError(
            f"model: {name}: its tokenizer has {tokens} tokens, its text tower {known}; they do not belong together"
        )
    preprocess = preprocess_of(processor, architecture["vision_cfg"]["image_size"], name)
    converted = to_open_clip(model, architecture) if model.config.model_type == "clip" else SiglipTowers(model)
    return Parts(converted, tokenizer, preprocess, architecture)


def architecture_of(place: str) -> dict[str, Any]:
    """The sizes of a checkpoint, without loading it, in the words of open_clip's model config."""
    return _architecture(_read_config(folder_of(place, {"config": FILES["config"]})), place)


def import_transformers(purpose: str = "model: a checkpoint or tokenizer of Hugging Face") -> Any:
    """The module, or a ModelError that says how to install it."""
    try:
        import transformers
    except ImportError:
        raise ModelError(f"{purpose} needs transformers: {install('hf')}") from None
    return transformers


# -- files ---------------------------------------------------------------------------------------------------------


def folder_of(place: str, files: Mapping[str, Sequence[str]]) -> Path:
    """A folder, or the hub's OWNER/NAME as a folder of its cache, into which what is not there is downloaded.

    Args:
        files: what the folder must have, by what it is for, as patterns; of weights the first that the hub has are
            downloaded.
    """
    folder = user_path(place)
    if folder.is_dir():
        return folder
    if not re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*", place):  # early ones have no owner, such as roberta-base
        raise ModelError(f"model: no such folder: {place}")
    from huggingface_hub import snapshot_download

    with contextlib.suppress(OSError):
        cached = Path(snapshot_download(place, local_files_only=True))
        if not missing_files(cached, files):
            return cached
    try:
        for pattern in files.get("weights", ("",)):
            cached = Path(snapshot_download(place, allow_patterns=[*TEXT_FILES, pattern]))
            if not pattern or any(cached.glob(pattern)):
                break
    except Exception as error:
        raise ModelError(
            f"model: {place} is neither a folder here nor complete in the cache of the Hugging Face hub, and it cannot "
            f"be downloaded ({first_line(error)}). Copy the whole repository to a folder and name that"
        ) from None
    return cached


def _check_files(folder: Path) -> None:
    """Raise a ModelError that names what is missing or damaged."""
    if missing := missing_files(folder, FILES):
        raise ModelError(f"model: {folder} has no {missing}")
    for file in sorted(folder.glob(FILES["weights"][0])):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise ModelError(f"model: {file}: damaged, or only a part of the file: {first_line(error)}") from None


def missing_files(folder: Path, files: Mapping[str, Sequence[str]]) -> str:
    """What a folder lacks first, in words; nothing if it is complete."""
    for what, patterns in files.items():
        if not any(path.is_file() for pattern in patterns for path in folder.glob(pattern)):
            return f"{what}: none of {', '.join(patterns)}"
    return ""


def check_fit(missing: Collection[str], unexpected: Collection[str], shapes: Collection[str], where: str) -> None:
    """Raise a ModelError that names a tensor which weights lack, have beside the model's, or have in another shape."""
    faults = {
        "it has no tensor": missing,
        "it has a tensor of another model,": unexpected,
        "of another shape is": shapes,
    }
    for what, names in faults.items():
        for name in sorted(names):
            raise ModelError(f"{where}: {what} {name!r}")


def first_line(error: Exception) -> str:
    """What an error says, without the rest."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _read_config(folder: Path) -> Any:
    if missing := missing_files(folder, {"config": FILES["config"]}):
        hint = f". It is a folder of open_clip: {LOCAL}{folder}" if (folder / OPEN_CLIP_CONFIG).is_file() else ""
        raise ModelError(f"model: {folder} has no {missing}{hint}")
    transformers = import_transformers()
    values, _ = transformers.PreTrainedConfig.get_config_dict(folder, local_files_only=True)
    kind = values.get("model_type")
    if kind not in SUPPORTED:
        raise ModelError(f"model: {folder / 'config.json'}: model_type {kind!r}; supported are {', '.join(SUPPORTED)}")
    with without_bars():  # SigLIP's own defaults are worth a warning to transformers
        return getattr(transformers, f"{SUPPORTED[kind]}Config").from_dict(values)


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Without the progress bar that transformers shows for reading or writing a single file, and its warnings."""
    logging = import_transformers().utils.logging
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


# -- architecture --------------------------------------------------------------------------------------------------


def _architecture(config: Any, name: str) -> dict[str, Any]:
    vision, text = config.vision_config, config.text_config
    for part in (vision, text):
        if getattr(part, "attention_dropout", 0.0):
            raise ModelError(f"model: {name}: attention_dropout = {part.attention_dropout} is not supported")
        if part.hidden_act not in ACTIVATIONS or part.hidden_act != text.hidden_act:
            raise ModelError(
                f"model: {name}: hidden_act {vision.hidden_act!r} (images) and {text.hidden_act!r} (texts): supported "
                f"are {', '.join(ACTIVATIONS)}, the same in both towers"
            )
    towers: dict[str, dict[str, Any]] = {
        key: {
            "width": part.hidden_size,
            "layers": part.num_hidden_layers,
            "mlp_ratio": part.intermediate_size / part.hidden_size,
            **({"norm_kwargs": {"eps": part.layer_norm_eps}} if part.layer_norm_eps != 1e-5 else {}),
            **({"act_kwargs": kwargs} if (kwargs := ACTIVATIONS[part.hidden_act]) else {}),
        }
        for key, part in (("vision_cfg", vision), ("text_cfg", text))
    }
    towers["vision_cfg"] |= {
        "image_size": vision.image_size,
        "patch_size": vision.patch_size,
        "head_width": vision.hidden_size // vision.num_attention_heads,
    }
    towers["text_cfg"] |= {
        "heads": text.num_attention_heads,
        "context_length": text.max_position_embeddings,
        "vocab_size": text.vocab_size,
        "hf_tokenizer_name": PurePath(name).name if PurePath(name).is_absolute() else name,
    }
    if config.model_type == "siglip":
        towers["text_cfg"]["tokenizer_kwargs"] = {"clean": "canonicalize"}  # as open_clip, and as it was trained
        return {"embed_dim": vision.hidden_size, "init_logit_bias": -10, **towers}
    # Where the end-of-text token does not have the largest id; configs of early checkpoints wrongly say 2.
    if text.eos_token_id not in (2, text.vocab_size - 1):
        towers["text_cfg"] |= {"pool_type": "eos", "eos_id": text.eos_token_id}
    quick = {"quick_gelu": True} if text.hidden_act == "quick_gelu" else {}
    return {"embed_dim": config.projection_dim, **quick, **towers}


def preprocess_of(processor: Any, image_size: int, name: str) -> Preprocess:
    """transformers' image processor as ours, or a ModelError."""
    size, crop = dict(processor.size), dict(processor.crop_size or {}) if processor.do_center_crop else None
    square = {"height": image_size, "width": image_size}
    modes = {
        "shortest": size == {"shortest_edge": image_size} and crop == square,
        "squash": size == square and crop in (None, square),
    }
    interpolation = {2: "bilinear", 3: "bicubic"}.get(int(processor.resample))
    mode = next((mode for mode, holds in modes.items() if holds), None)
    if mode is None or interpolation is None or not (processor.do_resize and processor.do_normalize):
        raise ModelError(
            f"model: {name}: images of {image_size} × {image_size} are made by size {size}, crop {crop} and resample "
            f"{processor.resample}, which is not supported"
        )
    return Preprocess(image_size, tuple(processor.image_mean), tuple(processor.image_std), interpolation, mode)  # type: ignore[arg-type]


# -- texts ---------------------------------------------------------------------------------------------------------


def tokenizer_of(place: Path | str, text: Mapping[str, Any]) -> Any:
    """open_clip's tokenizer around one of transformers, from a folder or the hub; code in it is never run.

    Args:
        text: `text_cfg` of open_clip's model config.
    """
    files = {"tokenizer": FILES["tokenizer"]}
    folder = folder_of(str(place), files)
    if missing := missing_files(folder, files):
        raise ModelError(f"model: {folder} has no {missing}")
    return open_clip.tokenizer.HFTokenizer(
        str(folder),
        context_length=text.get("context_length", open_clip.tokenizer.DEFAULT_CONTEXT_LENGTH),
        tokenizer_mode=text.get("tokenizer_mode"),
        **{**(text.get("tokenizer_kwargs") or {}), "trust_remote_code": False},
    )


class HFTokenizer(open_clip.tokenizer.HFTokenizer):  # type: ignore[misc]
    """open_clip's, around a tokenizer that is loaded already."""

    def __init__(self, tokenizer: Any, text: Mapping[str, Any]) -> None:
        self.tokenizer, self.context_length = tokenizer, text["context_length"]
        self.clean_fn = open_clip.tokenizer.get_clean_fn(text.get("tokenizer_kwargs", {}).get("clean", "whitespace"))
        self.tokenizer_mode, self.strip_sep_token = "", False


# -- SigLIP --------------------------------------------------------------------------------------------------------


class Pooled(nn.Module):
    """A tower of transformers as a function of one tensor: its pooled output, (N, D)."""

    def __init__(self, tower: Any) -> None:
        super().__init__()
        self.tower, self.grad_checkpointing = tower, False

    def forward(self, inputs: Tensor) -> Tensor:
        pooled: Tensor = self.tower(inputs).pooler_output
        return pooled

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """As open_clip's towers. transformers' own way works in training mode only, which no text tower is in."""
        self.grad_checkpointing = enable
        for layer in self.tower.encoder.layers:
            vars(layer).pop("forward", None)
            if enable:
                layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


class SiglipTowers(nn.Module):
    """transformers' SiglipModel with the names and calls of open_clip's models."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.config = model.config
        self.visual, self.text = Pooled(model.vision_model), Pooled(model.text_model)
        self.logit_scale, self.logit_bias = model.logit_scale, model.logit_bias

    def encode_image(self, pixels: Tensor, normalize: bool = False) -> Tensor:
        """Embeddings (B, D) of normalised pixels (B, 3, H, W)."""
        features: Tensor = self.visual(pixels)
        return F.normalize(features, dim=-1) if normalize else features

    def encode_text(self, tokens: Tensor, normalize: bool = False) -> Tensor:
        """Embeddings (N, D) of token ids (N, L)."""
        features: Tensor = self.text(tokens)
        return F.normalize(features, dim=-1) if normalize else features

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Of both towers, as open_clip's models."""
        self.visual.set_grad_checkpointing(enable)
        self.text.set_grad_checkpointing(enable)

    def to_transformers(self) -> Any:
        """transformers' model with these weights."""
        model = import_transformers().SiglipModel(self.config)
        names = {"visual.tower.": "vision_model.", "text.tower.": "text_model."}
        renamed = ((re.sub(r"^\w+\.tower\.", lambda m: names[m[0]], name), t) for name, t in self.state_dict().items())
        model.load_state_dict({name: tensor.detach().cpu().clone() for name, tensor in renamed})
        return model


# -- CLIP: names of tensors ----------------------------------------------------------------------------------------

_SINGLE = {
    "logit_scale": "logit_scale",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",  # spelled so in transformers
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
    "visual.proj": "visual_projection.weight",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "text_projection": "text_projection.weight",
}
_IN_BLOCKS = {
    "ln_1": "layer_norm1", "ln_2": "layer_norm2", "attn.out_proj": "self_attn.out_proj", "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}  # fmt: skip
_TRANSPOSED = ("visual.proj", "text_projection")


def to_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """open_clip's tensors under transformers' names; a KeyError names a tensor that transformers does not have."""
    mapped: dict[str, Tensor] = {}
    for name, tensor in state.items():
        names = _names(name)
        whole = tensor.detach().cpu().mT if name in _TRANSPOSED else tensor.detach().cpu()
        parts = torch.chunk(whole, len(names)) if len(names) > 1 else [whole]
        mapped |= {new: part.contiguous().clone() for new, part in zip(names, parts, strict=True)}
    return mapped


def to_open_clip(model: Any, architecture: dict[str, Any]) -> nn.Module:
    """transformers' CLIPModel as open_clip's CLIP."""
    converted: nn.Module = open_clip.CLIP(**architecture)
    theirs = model.state_dict()
    state = {}
    for name in converted.state_dict():
        parts = [theirs[part] for part in _names(name)]
        whole = torch.cat(parts) if len(parts) > 1 else parts[0]
        state[name] = whole.mT if name in _TRANSPOSED else whole
    converted.load_state_dict(state)
    return converted


def _names(name: str) -> list[str]:
    """transformers' name for a tensor of open_clip's CLIP; three for queries, keys and values, which are one there."""
    if ".resblocks." not in name:
        return [_SINGLE[name]]
    tower, _, rest = name.partition("transformer.resblocks.")
    number, _, inner = rest.partition(".")
    layer = f"{'vision' if tower else 'text'}_model.encoder.layers.{number}"
    kind = "weight" if name.endswith("weight") else "bias"
    if inner in ("attn.in_proj_weight", "attn.in_proj_bias"):
        return [f"{layer}.self_attn.{part}_proj.{kind}" for part in "qkv"]
    return [f"{layer}.{_IN_BLOCKS[inner.rpartition('.')[0]]}.{kind}"]
