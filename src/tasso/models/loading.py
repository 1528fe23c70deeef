"""Load models: the shipped `nano`, open_clip names and tags, folders, weight files, Hugging Face's, model objects."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import open_clip
import torch
from torch import Tensor, nn

from tasso.config.paths import HF, HUB, LOCAL, OBJECT, SCHEMES
from tasso.decoding.views import Preprocess
from tasso.errors import ModelError, did_you_mean
from tasso.files import parse_json, read_text
from tasso.models import hf, objects
from tasso.models.clip import Clip, ModelSpec, check_finite
from tasso.models.torchscript import TorchScriptError, is_torchscript, read_torchscript

log = logging.getLogger("tasso")

NANO = Path(__file__).parent / "nano"
CONFIG_NAME = hf.OPEN_CLIP_CONFIG
HUB_FILES = {"config": (CONFIG_NAME,), "weights": ("open_clip_*.safetensors", "open_clip_*.bin")}
SIGLIP_PROMPT = "This is a photo of {}."


def load_clip(model: str, pretrained: str | None = None) -> Clip:
    """Build a model on the CPU in float32.

    Args:
        model: `nano`, an open_clip name, `local-dir:FOLDER`, `hf:FOLDER`, `hf:OWNER/NAME`, `hf-hub:OWNER/NAME`, or
            the name of a model object.
        pretrained: an open_clip tag or a `.pt` or `.safetensors` state dict, for open_clip names only.
    """
    spec = ModelSpec(model, pretrained)
    if has_own_weights(model):
        if pretrained:
            raise ModelError(f"pretrained: {model} has its own weights; leave --pretrained out")
        return _load_parts(spec)
    config = architecture_of(model)
    if pretrained is None:
        raise ModelError(f"pretrained: {model} needs weights: an open_clip tag ({_tags(model)}) or a state dict file")
    if Path(pretrained).suffix in (".pt", ".pth", ".bin", ".safetensors"):
        return _load_file(model, config, Path(pretrained), spec)
    return _load_tag(model, config, pretrained, spec)


def architecture_of(model: str) -> dict[str, Any]:
    """open_clip's model config (`embed_dim`, `vision_cfg`, `text_cfg`) without building the model."""
    if model.startswith(OBJECT):
        return objects.find(model).architecture
    if model.startswith(HF):
        with _loading(ModelSpec(model)):
            return hf.architecture_of(model.removeprefix(HF))
    if folder := _open_clip_folder(model, {"config": HUB_FILES["config"]}):
        return _read_config(folder)
    config = open_clip.get_model_config(model)
    if config is None:
        close = did_you_mean(model, open_clip.list_models())
        raise ModelError(f"model: open_clip knows no model {model!r}.{close} open_clip.list_models() lists them")
    return dict(config)


def embedding_width(model: str) -> int:
    """Length of a model's embeddings, without building the model."""
    return int(architecture_of(model)["embed_dim"])


def usual_prompt(model: str) -> str | None:
    """The prompt of models that were trained with a sigmoid loss, which are those with a logit bias; else None."""
    return SIGLIP_PROMPT if architecture_of(model).get("init_logit_bias") is not None else None


def random_clip(model: str) -> Clip:
    """A model with random weights, for measuring speed; some have their own weights."""
    if has_own_weights(model):
        return load_clip(model)
    config = architecture_of(model)
    spec = ModelSpec(model, "random weights")
    needs_hub = "hf_tokenizer_name" in config["text_cfg"]
    tokenizer = _any_tokens(config) if needs_hub else _tokenizer(model, config, spec)
    with _loading(spec):
        created = open_clip.create_model(model, pretrained_text=False)
    return _wrap(created, tokenizer, spec, config)


def _any_tokens(config: dict[str, Any]) -> Callable[[list[str]], Tensor]:
    """In the place of a tokenizer that would have to be downloaded: tokens of the right shape that mean nothing."""
    text, drawn = config["text_cfg"], torch.Generator().manual_seed(0)
    return lambda texts: torch.randint(text["vocab_size"], (len(texts), text["context_length"]), generator=drawn)


def has_own_weights(model: str) -> bool:
    """Does a model's name say where its weights are?"""
    return model == "nano" or model.startswith(SCHEMES)


def _load_parts(spec: ModelSpec) -> Clip:
    """A model whose weights, tokenizer and preprocessing belong together."""
    if spec.model.startswith(OBJECT):
        return _checked(objects.find(spec.model).copy().to("cpu"))
    if spec.model.startswith(HF):
        with _loading(spec):
            found = hf.load(spec.model.removeprefix(HF))
        return _checked(Clip(found.model, found.tokenizer, found.preprocess, spec, found.architecture))
    folder = _open_clip_folder(spec.model)
    assert folder is not None
    config = _read_config(folder)
    name = f"{LOCAL}{folder}"
    # open_clip would look for a relative bpe_path in the working directory, not next to the weights.
    bpe_path = config["text_cfg"].get("tokenizer_kwargs", {}).get("bpe_path")
    vocabulary = folder / bpe_path if bpe_path else None
    if vocabulary and not vocabulary.is_file():
        raise ModelError(f"model: {folder / CONFIG_NAME} names a vocabulary that does not exist: {vocabulary}")
    tokenizer = _tokenizer(name, config, spec, vocabulary)
    with _loading(spec):
        model = open_clip.create_model(name, require_pretrained=True)
    return _wrap(model, tokenizer, spec, config, vocabulary)


def _open_clip_folder(model: str, needed: Mapping[str, Sequence[str]] = HUB_FILES) -> Path | None:
    """The folder of `nano`, `local-dir:FOLDER` or `hf-hub:OWNER/NAME` (in the hub's cache, with what is needed of it);
    else None."""
    if model == "nano":
        return NANO
    if model.startswith(HUB):
        with _loading(ModelSpec(model)):
            return hf.folder_of(model.removeprefix(HUB), needed)
    return Path(model.removeprefix(LOCAL)) if model.startswith(LOCAL) else None


def _tokenizer(name: str, config: dict[str, Any], spec: ModelSpec, vocabulary: Path | None = None) -> Any:
    """open_clip's tokenizer of a model; one of transformers is in the model's folder, else on the hub."""
    in_folder, source = name.startswith(LOCAL), config["text_cfg"].get("hf_tokenizer_name")
    if not source:
        return open_clip.get_tokenizer(name, **({"bpe_path": str(vocabulary)} if vocabulary else {}))
    try:
        with _loading(spec), hf.without_bars():
            return hf.tokenizer_of(name.removeprefix(LOCAL) if in_folder else source, config["text_cfg"])
    except ModelError as error:
        if in_folder:
            raise
        raise ModelError(
            f"{error}. This is the tokenizer of {spec}; a folder with {CONFIG_NAME}, weights and tokenizer files can "
            f"be given as --model {LOCAL}FOLDER"
        ) from None


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / CONFIG_NAME
    if not file.is_file():
        hint = f". It is a folder of transformers: {HF}{folder}" if (folder / "config.json").is_file() else ""
        raise ModelError(f"model: no such file: {file}{hint}")
    try:
        config: dict[str, Any] = parse_json(read_text(file))["model_cfg"]
        if not isinstance(config["text_cfg"], dict) or not isinstance(config["embed_dim"], int):
            raise ValueError("text_cfg must be an object and embed_dim a whole number")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"model: {file}: not an open_clip config ({error.__class__.__name__}: {error})") from None
    return config


def _load_tag(name: str, config: dict[str, Any], tag: str, spec: ModelSpec) -> Clip:
    tag_config = open_clip.get_pretrained_cfg(name, tag)
    if not tag_config:
        raise ModelError(f"pretrained: {name} has no tag {tag!r}. Tags: {_tags(name)}; or give a state dict file")
    if tag_config.get("quick_gelu", False):  # tags without this key may have either activation
        _check_activation(name, config, True, f"the weights {tag!r}")
    tokenizer = _tokenizer(name, config, spec)
    with _loading(spec):
        model = open_clip.create_model(name, tag)
    return _wrap(model, tokenizer, spec, config)


def _load_file(name: str, config: dict[str, Any], path: Path, spec: ModelSpec) -> Clip:
    if not path.is_file():
        raise ModelError(f"pretrained: no such file: {path}")
    state, quick_gelu = _read_state_dict(path)
    if quick_gelu is not None:
        _check_activation(name, config, quick_gelu, str(path))
    elif not config.get("quick_gelu", False) and open_clip.get_model_config(f"{name}-quickgelu"):
        log.warning("%s does not say which activation it was trained with; OpenAI's need %s-quickgelu", path, name)
    tokenizer = _tokenizer(name, config, spec)
    with _loading(spec):
        model = open_clip.create_model(name, pretrained_text=False)
    own = model.state_dict()
    shapes = {key for key, tensor in state.items() if key in own and tensor.shape != own[key].shape}
    found = model.load_state_dict({key: tensor for key, tensor in state.items() if key not in shapes}, strict=False)
    of_transformers = any(key.startswith("vision_model.") for key in state)
    theirs = " (a checkpoint of transformers; give its folder: --model hf:FOLDER)" if of_transformers else ""
    missing = set(found.missing_keys) - shapes
    hf.check_fit(missing, found.unexpected_keys, shapes, f"pretrained: {path} does not fit {name}{theirs}")
    return _wrap(model, tokenizer, spec, config)


def _read_state_dict(path: Path) -> tuple[dict[str, Tensor], bool | None]:
    """Tensors of a state dict, and whether they need QuickGELU (None if unknown). Nothing in it is executed."""
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                quick_gelu = (file.metadata() or {}).get("quick_gelu")  # written by tasso, not by open_clip
        except (SafetensorError, OSError) as error:
            raise ModelError(f"pretrained: {path}: not a readable safetensors file: {error}") from None
        return _clean(state), None if quick_gelu is None else quick_gelu == "true"
    if is_torchscript(path):
        # OpenAI's files are TorchScript archives with three extra buffers.
        try:
            state = read_torchscript(path)
        except TorchScriptError as error:
            raise ModelError(
                f"pretrained: {path} is a TorchScript archive whose weights cannot be read without running it "
                f"({hf.first_line(error)}). If you trust it, give what this writes instead: "
                f"torch.save(torch.jit.load(FILE).state_dict(), NEW)"
            ) from None
        openai = {"input_resolution", "context_length", "vocab_size"} & set(state)
        return _clean({k: v for k, v in state.items() if k not in openai}), True if openai else None
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ModelError(
            f"pretrained: {path} is not a plain state dict and is not opened, because a pickle can run code. "
            f"Save it as safetensors or as torch.save(model.state_dict(), …). ({hf.first_line(error)})"
        ) from None
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise ModelError(f"pretrained: {path} does not hold a state dict (names and tensors)")
    return _clean(loaded), None


def _clean(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove prefixes that wrappers (DDP, torch.compile) add to names; convert to float32."""
    for prefix in ("module.", "_orig_mod."):
        if state and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return {name: value.float() if value.is_floating_point() else value for name, value in state.items()}


def _reason(error: Exception, spec: ModelSpec) -> str:
    """Why a library could not load a model, and what to do."""
    if "weights_only" in str(error):
        return "its weights are a pickle that would run code, so they are not opened. Save them as safetensors"
    if has_own_weights(spec.model):
        return " ".join(str(error).split())
    return f"{error}. Without network access, give --pretrained a local file"


def _check_activation(name: str, config: dict[str, Any], needs_quick_gelu: bool, weights: str) -> None:
    """Raise a ModelError if weights and model have different activations: open_clip would only warn."""
    has_quick_gelu = bool(config.get("quick_gelu", False))
    if has_quick_gelu == needs_quick_gelu:
        return
    other = name.removesuffix("-quickgelu") if has_quick_gelu else f"{name}-quickgelu"
    hint = f" Use --model {other}." if open_clip.get_model_config(other) else ""
    trained, built = ("QuickGELU", "plain GELU") if needs_quick_gelu else ("plain GELU", "QuickGELU")
    raise ModelError(f"model: {weights} were trained with {trained}, but {name} is built with {built}.{hint}")


@contextlib.contextmanager
def _loading(spec: ModelSpec) -> Iterator[None]:
    """Without the libraries' log; a QuickGELU mismatch is an error, and errors name the model."""
    level = logging.root.level
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*QuickGELU mismatch.*")
            logging.root.setLevel(logging.CRITICAL)
            yield
    except (ModelError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise ModelError(f"model: cannot load {spec}: {_reason(error, spec)}") from None
    finally:
        logging.root.setLevel(level)


def _wrap(
    model: nn.Module, tokenizer: Any, spec: ModelSpec, architecture: dict[str, Any], vocabulary: Path | None = None
) -> Clip:
    """A `Clip` of open_clip's model, if its preprocessing is supported."""
    config = open_clip.get_model_preprocess_cfg(model)
    sizes = set(config["size"]) if isinstance(config["size"], (tuple, list)) else {config["size"]}
    if len(sizes) > 1:
        raise ModelError(
            f"model: {spec} needs images of {' × '.join(map(str, config['size']))}; only squares are supported"
        )
    interpolation, mode = config.get("interpolation", "bicubic"), config.get("resize_mode", "shortest")
    if interpolation not in ("bicubic", "bilinear") or mode not in ("shortest", "squash"):
        raise ModelError(f"model: {spec} needs {interpolation} resizing with mode {mode!r}, which is not supported")
    if not _is_triple(config["mean"]) or not _is_triple(config["std"]) or 0 in config["std"]:
        raise ModelError(f"model: {spec}: preprocess_cfg: mean and std must be three numbers each, std not 0")
    preprocess = Preprocess(int(sizes.pop()), tuple(config["mean"]), tuple(config["std"]), interpolation, mode)
    return _checked(Clip(model, tokenizer, preprocess, spec, architecture, vocabulary))


def _checked(clip: Clip) -> Clip:
    """The model in float32 and frozen, if its weights are finite."""
    clip.model.float().eval().requires_grad_(False)
    check_finite(clip.model.state_dict(), f"{'pretrained' if clip.spec.pretrained else 'model'}: {clip.spec}")
    return clip


def _is_triple(values: Any) -> bool:
    return isinstance(values, list | tuple) and len(values) == 3 and all(isinstance(v, int | float) for v in values)


def _tags(model: str) -> str:
    return ", ".join(open_clip.list_pretrained_tags_by_model(model)) or "none"
