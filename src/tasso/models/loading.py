"""Load models: the shipped `nano`, open_clip names and tags, open_clip folders, weight files."""

from __future__ import annotations

import logging
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import torch
from torch import Tensor, nn

from tasso.config.paths import LOCAL
from tasso.data.images.transforms import Preprocess
from tasso.errors import ModelError, did_you_mean
from tasso.files import parse_json
from tasso.models.clip import Clip, ModelSpec, check_finite

log = logging.getLogger("tasso")

NANO = Path(__file__).parent / "nano"
CONFIG_NAME = "open_clip_config.json"


def load_clip(model: str, pretrained: str | None = None) -> Clip:
    """Build a model on the CPU in float32.

    Args:
        model: `nano`, an open_clip name, or `local-dir:FOLDER`.
        pretrained: an open_clip tag, a `.pt` or `.safetensors` state dict, or None for `nano` and `local-dir:`.
    """
    spec = ModelSpec(model, pretrained)
    if folder := _local_folder(model):
        return _load_folder(folder, spec)
    config = architecture_of(model)
    if pretrained is None:
        raise ModelError(f"pretrained: {model} needs weights: an open_clip tag ({_tags(model)}) or a state dict file")
    if Path(pretrained).suffix in (".pt", ".pth", ".bin", ".safetensors"):
        return _load_file(model, config, Path(pretrained), spec)
    return _load_tag(model, config, pretrained, spec)


def architecture_of(model: str) -> dict[str, Any]:
    """open_clip's model config (`embed_dim`, `vision_cfg`, `text_cfg`) without building the model."""
    if folder := _local_folder(model):
        return _read_config(folder)
    config = open_clip.get_model_config(model)
    if config is None:
        close = did_you_mean(model, open_clip.list_models())
        raise ModelError(f"model: open_clip knows no model {model!r}.{close} open_clip.list_models() lists them")
    return dict(config)


def embedding_width(model: str) -> int:
    """Length of a model's embeddings, without building the model."""
    return int(architecture_of(model)["embed_dim"])


def random_clip(model: str) -> Clip:
    """A model with random weights, for measuring speed; folders have their own weights."""
    if _local_folder(model):
        return load_clip(model)
    config = architecture_of(model)
    spec = ModelSpec(model, "random weights")
    created = _quietly(lambda: open_clip.create_model(model, pretrained_text=False), spec)
    needs_hub = "hf_tokenizer_name" in config["text_cfg"]
    return _wrap(created, _any_tokens(config) if needs_hub else open_clip.get_tokenizer(model), spec, config)


def _any_tokens(config: dict[str, Any]) -> Callable[[list[str]], Tensor]:
    """In the place of a tokenizer that would have to be downloaded: tokens of the right shape that mean nothing."""
    text, drawn = config["text_cfg"], torch.Generator().manual_seed(0)
    return lambda texts: torch.randint(text["vocab_size"], (len(texts), text["context_length"]), generator=drawn)


def _local_folder(model: str) -> Path | None:
    """The folder that `nano` or `local-dir:FOLDER` stands for; None for open_clip names."""
    if model == "nano":
        return NANO
    return Path(model.removeprefix(LOCAL)) if model.startswith(LOCAL) else None


def _load_folder(folder: Path, spec: ModelSpec) -> Clip:
    if spec.pretrained:
        raise ModelError(f"pretrained: {spec.model} has its own weights; leave --pretrained out")
    config = _read_config(folder)
    name = f"{LOCAL}{folder}"
    model = _quietly(lambda: open_clip.create_model(name, require_pretrained=True), spec)
    # open_clip would look for a relative bpe_path in the working directory, not next to the weights.
    bpe_path = config["text_cfg"].get("tokenizer_kwargs", {}).get("bpe_path")
    vocabulary = folder / bpe_path if bpe_path else None
    if vocabulary and not vocabulary.is_file():
        raise ModelError(f"model: {folder / CONFIG_NAME} names a vocabulary that does not exist: {vocabulary}")
    tokenizer = open_clip.get_tokenizer(name, **({"bpe_path": str(vocabulary)} if vocabulary else {}))
    return _wrap(model, tokenizer, spec, config, vocabulary)


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / CONFIG_NAME
    try:
        config: dict[str, Any] = parse_json(file.read_text(encoding="utf-8"))["model_cfg"]
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
    model = _quietly(lambda: open_clip.create_model(name, tag), spec)
    return _wrap(model, open_clip.get_tokenizer(name), spec, config)


def _load_file(name: str, config: dict[str, Any], path: Path, spec: ModelSpec) -> Clip:
    if not path.is_file():
        raise ModelError(f"pretrained: no such file: {path}")
    state, quick_gelu = _read_state_dict(path)
    if quick_gelu is not None:
        _check_activation(name, config, quick_gelu, str(path))
    elif not config.get("quick_gelu", False) and open_clip.get_model_config(f"{name}-quickgelu"):
        log.warning("%s does not say which activation it was trained with; OpenAI's need %s-quickgelu", path, name)
    model = _quietly(lambda: open_clip.create_model(name, pretrained_text=False), spec)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).split("\n")[1].strip() if "\n" in str(error) else str(error)
        raise ModelError(f"pretrained: {path} does not fit {name}: {reason}") from None
    return _wrap(model, open_clip.get_tokenizer(name), spec, config)


def _read_state_dict(path: Path) -> tuple[dict[str, Tensor], bool | None]:
    """Tensors of a state dict, and whether they need QuickGELU (None if unknown). No pickle is executed."""
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                quick_gelu = (file.metadata() or {}).get("quick_gelu")  # written by tasso, not by open_clip
        except (SafetensorError, OSError) as error:
            raise ModelError(f"pretrained: {path}: not a readable safetensors file: {error}") from None
        return _clean(state), None if quick_gelu is None else quick_gelu == "true"
    if _is_torchscript(path):
        # OpenAI's files are TorchScript archives with three extra buffers. Only their tensors are used.
        try:
            state = torch.jit.load(path, map_location="cpu").state_dict()  # type: ignore[no-untyped-call]
        except (RuntimeError, ValueError, OSError) as error:
            raise ModelError(f"pretrained: {path}: a damaged TorchScript file: {_first_line(error)}") from None
        openai = {"input_resolution", "context_length", "vocab_size"} & set(state)
        return _clean({k: v for k, v in state.items() if k not in openai}), True if openai else None
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ModelError(
            f"pretrained: {path} is not a plain state dict and is not opened, because a pickle can run code. "
            f"Save it as safetensors or as torch.save(model.state_dict(), …). ({_first_line(error)})"
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


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("constants.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError):
        return False


def _reason(error: Exception, spec: ModelSpec) -> str:
    """Why open_clip could not load a model, and what to do."""
    if "weights_only" in str(error):
        return "its weights are a pickle that would run code, so they are not opened. Save them as safetensors"
    if spec.model.startswith(LOCAL):
        return " ".join(str(error).split())
    return f"{error}. Without network access, give --pretrained a local file"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _check_activation(name: str, config: dict[str, Any], needs_quick_gelu: bool, weights: str) -> None:
    """Raise a ModelError if weights and model have different activations: open_clip would only warn."""
    has_quick_gelu = bool(config.get("quick_gelu", False))
    if has_quick_gelu == needs_quick_gelu:
        return
    other = name.removesuffix("-quickgelu") if has_quick_gelu else f"{name}-quickgelu"
    hint = f" Use --model {other}." if open_clip.get_model_config(other) else ""
    trained, built = ("QuickGELU", "plain GELU") if needs_quick_gelu else ("plain GELU", "QuickGELU")
    raise ModelError(f"model: {weights} were trained with {trained}, but {name} is built with {built}.{hint}")


def _quietly(create: Any, spec: ModelSpec) -> nn.Module:
    """Run open_clip's factory without its log; a QuickGELU mismatch is an error, and errors name the model."""
    level = logging.root.level
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*QuickGELU mismatch.*")
            logging.root.setLevel(logging.CRITICAL)
            model = create()
    except (ModelError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise ModelError(f"model: cannot load {spec}: {_reason(error, spec)}") from None
    finally:
        logging.root.setLevel(level)
    assert isinstance(model, nn.Module)
    return model.float().eval().requires_grad_(False)


def _wrap(
    model: nn.Module, tokenizer: Any, spec: ModelSpec, architecture: dict[str, Any], vocabulary: Path | None = None
) -> Clip:
    """A `Clip` of open_clip's model, if its preprocessing is supported and its weights are finite."""
    config = open_clip.get_model_preprocess_cfg(model)
    size = config["size"][0] if isinstance(config["size"], (tuple, list)) else config["size"]
    interpolation, mode = config.get("interpolation", "bicubic"), config.get("resize_mode", "shortest")
    if interpolation not in ("bicubic", "bilinear") or mode not in ("shortest", "squash"):
        raise ModelError(f"model: {spec} needs {interpolation} resizing with mode {mode!r}, which is not supported")
    if not _is_triple(config["mean"]) or not _is_triple(config["std"]) or 0 in config["std"]:
        raise ModelError(f"model: {spec}: preprocess_cfg: mean and std must be three numbers each, std not 0")
    check_finite(model.state_dict(), f"{'pretrained' if spec.pretrained else 'model'}: {spec}")
    preprocess = Preprocess(int(size), tuple(config["mean"]), tuple(config["std"]), interpolation, mode)
    return Clip(model, tokenizer, preprocess, spec, architecture, vocabulary)


def _is_triple(values: Any) -> bool:
    return isinstance(values, list | tuple) and len(values) == 3 and all(isinstance(v, int | float) for v in values)


def _tags(model: str) -> str:
    return ", ".join(open_clip.list_pretrained_tags_by_model(model)) or "none"
