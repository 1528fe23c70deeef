"""An open_clip model seen as an image encoder, a text encoder and cached class embeddings."""

from __future__ import annotations

import copy
import logging
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasso.data.images.transforms import Preprocess
from tasso.distributed import SINGLE_PROCESS, Distributed
from tasso.errors import ModelError
from tasso.files import parse_json
from tasso.models.mixed_precision import Forward, cast, run_in
from tasso.models.towers import embed_images, embed_tokens, without_padding

log = logging.getLogger("tasso")

NANO = Path(__file__).parent / "nano"
LOCAL = "local-dir:"
CONFIG_NAME = "open_clip_config.json"
TEXT_CHUNK = 512


@dataclass(frozen=True)
class ModelSpec:
    """How to build the model again: a name and where its weights come from."""

    model: str
    pretrained: str | None = None

    def __str__(self) -> str:
        return self.model + (f" ({self.pretrained})" if self.pretrained else "")


class Clip:
    """A CLIP model with what is needed to look at images and to name classes.

    All embeddings it returns are float32 and of unit length. While training, towers may run in bfloat16 (`precision`);
    texts that are encoded once and then kept are encoded in float32.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        preprocess: Preprocess,
        spec: ModelSpec,
        architecture: dict[str, Any],
        vocabulary: Path | None = None,
    ) -> None:
        """`architecture` is open_clip's model config; `vocabulary` a tokenizer file that belongs to this model."""
        self.model, self.tokenizer, self.preprocess, self.spec = model, tokenizer, preprocess, spec
        self.architecture, self.vocabulary = architecture, vocabulary
        self.precision = torch.float32
        # While training only: evaluation has batches of any size, each of which would be compiled anew.
        self.compiled = False
        self.distributed = SINGLE_PROCESS  # those that share a batch with this one while training
        self._class_embeddings: dict[tuple[tuple[str, ...], tuple[str, ...]], Tensor] = {}

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def visual(self) -> nn.Module:
        """The image tower."""
        tower = self.model.visual
        assert isinstance(tower, nn.Module)
        return tower

    @property
    def logit_scale(self) -> float:
        """The factor on cosines before the softmax; learned in pretraining, never trained here."""
        scale = self.model.logit_scale
        assert isinstance(scale, Tensor)
        return float(scale.exp())

    @cached_property
    def dim(self) -> int:
        """Length of an embedding."""
        return int(self.encode_texts(["a"]).shape[-1])

    def to(self, device: torch.device | str, precision: torch.dtype | None = None) -> Clip:
        """Move the model; optionally set the precision of the image tower."""
        self.model.to(device)
        self.precision = precision or self.precision
        self.clear_text_cache()
        return self

    def parameters_of(self, towers: str) -> dict[str, nn.Parameter]:
        """Named parameters of `visual`, `both` or `none` of the towers; the logit scale and bias belong to neither."""
        named = {n: p for n, p in self.model.named_parameters() if n not in ("logit_scale", "logit_bias")}
        return {name: parameter for name, parameter in named.items() if _belongs(name, towers)}

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit embeddings of normalised images; while training, of those of all processes that share a batch."""
        features = self._encode_own_images(pixels)
        return self.distributed.gather(features) if torch.is_grad_enabled() else features

    def encode_together(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Unit embeddings of two sets of images from one forward pass, for training."""
        both = self._encode_own_images(torch.cat([first, second]))
        return self.distributed.gather(both[: len(first)]), self.distributed.gather(both[len(first) :])

    def _encode_own_images(self, pixels: Tensor) -> Tensor:
        compiled = self.compiled and torch.is_grad_enabled()
        return encode(embed_images, self.visual, pixels, self.precision, compiled)

    def accelerated(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of tensors of changing shapes, compiled where the towers are."""
        return compiled_once(function, dynamic=None) if self.compiled else function

    def frozen_image_encoder(self) -> FrozenImageEncoder:
        """A copy of the image tower as it is now, for use as a teacher."""
        return FrozenImageEncoder(self.visual, self.precision, self.compiled, self.distributed)

    def copy(self) -> Clip:
        """The model as it is now, for use while this one changes."""
        twin = Clip(
            copy.deepcopy(self.model), self.tokenizer, self.preprocess, self.spec, self.architecture, self.vocabulary
        )
        twin.precision = self.precision
        return twin

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Unit embeddings of texts in float32, without gradient."""
        training = self.model.training
        self.model.eval()
        with torch.no_grad():
            tokens = self.tokenise(texts)
            chunks = torch.split(tokens, TEXT_CHUNK)
            parts = [encode(embed_tokens, self.model, chunk, torch.float32) for chunk in chunks]
        self.model.train(training)
        return torch.cat(parts)

    def tokenise(self, texts: Sequence[str]) -> Tensor:
        """Tokens of texts, on the model's device, without padding that no text needs."""
        return without_padding(self.model, self.tokenizer(list(texts))).to(self.device)

    def encode_tokens(self, tokens: Tensor) -> Tensor:
        """Unit embeddings of tokenised texts, with gradient and at the model's precision: for training."""
        return encode(embed_tokens, self.model, tokens, self.precision, self.compiled and torch.is_grad_enabled())

    def class_embeddings(self, class_names: Sequence[str], templates: Sequence[str]) -> Tensor:
        """One unit embedding a class: the mean over the templates. Computed once, until `clear_text_cache`."""
        key = (tuple(class_names), tuple(templates))
        if key not in self._class_embeddings:
            self._class_embeddings[key] = self.encode_classes(class_names, templates)
        return self._class_embeddings[key]

    def encode_classes(self, class_names: Sequence[str], templates: Sequence[str]) -> Tensor:
        """As `class_embeddings`, computed now."""
        return mean_of_templates(self.encode_texts(prompts(class_names, templates)), len(templates))

    def clear_text_cache(self) -> None:
        """Drop kept class embeddings: the text tower has changed or moved."""
        self._class_embeddings.clear()

    def state(self, towers: str) -> dict[str, Tensor]:
        """The towers' tensors (parameters and buffers), as they are."""
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items() if _belongs(name, towers)}

    def load_state(self, state: dict[str, Tensor], where: str) -> None:
        """Put back what `state` gave; every tensor must belong to the model and have its shape."""
        own = self.model.state_dict()
        for name, tensor in state.items():
            if name not in own:
                raise ModelError(f"{where}: tensor {name!r} does not belong to {self.spec}")
            if own[name].shape != tensor.shape:
                shapes = f"{tuple(tensor.shape)} instead of {tuple(own[name].shape)}"
                raise ModelError(f"{where}: tensor {name!r} has shape {shapes}: not a checkpoint of {self.spec}")
            if own[name].is_floating_point() != tensor.is_floating_point():
                raise ModelError(f"{where}: tensor {name!r} has numbers of another type: {tensor.dtype}")
        check_finite(state, where)
        self.model.load_state_dict(state, strict=False)
        if not all(name.startswith("visual.") for name in state):
            self.clear_text_cache()

    def count_parameters(self) -> dict[str, int]:
        """How many numbers the model is made of."""
        image = sum(p.numel() for p in self.visual.parameters())
        total = sum(p.numel() for p in self.model.parameters())
        return {"total": total, "image_tower": image, "text_tower": total - image}


class FrozenImageEncoder:
    """An image tower that never changes."""

    def __init__(
        self,
        tower: nn.Module,
        precision: torch.dtype,
        compiled: bool = False,
        distributed: Distributed = SINGLE_PROCESS,
    ) -> None:
        self.tower = copy.deepcopy(tower).eval().requires_grad_(False)
        self.precision, self.compiled, self.distributed = precision, compiled, distributed
        self.stream: torch.cuda.Stream | None = None
        if precision != torch.float32:
            cast(self.tower, precision)  # what autocast would make of these weights in every step, made once

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit embeddings of normalised images, without gradient; of those of all processes that share a batch."""
        with torch.no_grad():
            return self.distributed.gather(encode(embed_images, self.tower, pixels, self.precision, self.compiled))

    def encode_async(self, pixels: Tensor) -> Callable[[], Tensor]:
        """Start embedding beside what comes next on a GPU; call what is returned when the embeddings are needed."""
        if not pixels.is_cuda or self.distributed.world_size > 1:  # processes talk to each other in one order
            features = self.encode_images(pixels)
            return lambda: features
        main = torch.cuda.current_stream()
        if self.stream is None:
            self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side = self.stream
        side.wait_stream(main)
        with torch.cuda.stream(side):
            features = self.encode_images(pixels)

        def wait() -> Tensor:
            main.wait_stream(side)
            features.record_stream(main)  # else the side stream might write there before this one has read
            return features

        return wait


@cache
def compiled_once(function: Callable[..., Any], dynamic: bool | None = False) -> Callable[..., Any]:
    """One compiled function for all inputs of one shape: a new task's teacher needs no compilation of its own.

    Made when it is first wanted: the compiler takes seconds to import.
    """
    return torch.compile(function, dynamic=dynamic)


def prompts(class_names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Every class name in every template, the templates of one class side by side."""
    return [template.replace("{}", name) for name in class_names for template in templates]


def mean_of_templates(embeddings: Tensor, templates: int) -> Tensor:
    """One unit embedding a class from those of its prompts."""
    if templates == 1:
        return embeddings
    return F.normalize(embeddings.view(-1, templates, embeddings.shape[-1]).mean(1), dim=-1)


def _belongs(name: str, towers: str) -> bool:
    return towers == "both" or (towers == "visual" and name.startswith("visual."))


def encode(
    forward: Forward, module: nn.Module, inputs: Tensor, precision: torch.dtype, compiled: bool = False
) -> Tensor:
    """Embeddings from a tower, under autocast where asked, then float32 and of unit length."""
    run: Forward = compiled_once(forward) if compiled else forward
    features = run(module, inputs) if precision == torch.float32 else run_in(precision, run, module, inputs)
    return F.normalize(features.float(), dim=-1)


def load_clip(model: str, pretrained: str | None = None) -> Clip:
    """Build a model on the CPU in float32.

    Args:
        model: `nano`, an open_clip name, or `local-dir:FOLDER`.
        pretrained: an open_clip tag, a `.pt` or `.safetensors` state dict, or None for `nano` and `local-dir:`.
    """
    spec = ModelSpec(model, pretrained)
    if model == "nano" or model.startswith(LOCAL):
        return _load_folder(NANO if model == "nano" else Path(model.removeprefix(LOCAL)), spec)
    config = open_clip.get_model_config(model)
    if config is None:
        raise ModelError(f"model: open_clip knows no model {model!r}; open_clip.list_models() lists them")
    if pretrained is None:
        raise ModelError(f"pretrained: {model} needs weights: an open_clip tag ({_tags(model)}) or a state dict file")
    if Path(pretrained).suffix in (".pt", ".pth", ".bin", ".safetensors"):
        return _load_file(model, config, Path(pretrained), spec)
    return _load_tag(model, config, pretrained, spec)


def architecture_of(model: str) -> dict[str, Any]:
    """open_clip's model config (`embed_dim`, `vision_cfg`, `text_cfg`) without building the model."""
    if model == "nano" or model.startswith(LOCAL):
        return _read_config(NANO if model == "nano" else Path(model.removeprefix(LOCAL)))
    config = open_clip.get_model_config(model)
    if config is None:
        raise ModelError(f"model: open_clip knows no model {model!r}; open_clip.list_models() lists them")
    return dict(config)


def random_clip(model: str) -> Clip:
    """A model with random weights: for measuring speed."""
    if model == "nano" or model.startswith(LOCAL):
        return load_clip(model)
    config = open_clip.get_model_config(model)
    if config is None:
        raise ModelError(f"model: open_clip knows no model {model!r}; open_clip.list_models() lists them")
    spec = ModelSpec(model, "random weights")
    created = _quietly(lambda: open_clip.create_model(model, pretrained_text=False), spec)
    return _wrap(created, open_clip.get_tokenizer(model), spec, config)


def _load_folder(folder: Path, spec: ModelSpec) -> Clip:
    if spec.pretrained:
        raise ModelError(f"pretrained: {spec.model} brings its own weights; leave --pretrained out")
    config = _read_config(folder)
    name = f"{LOCAL}{folder}"
    model = _quietly(lambda: open_clip.create_model(name, require_pretrained=True), spec)
    # A vocabulary of its own lies beside the weights; open_clip would look for it in the working directory.
    file_name = config["text_cfg"].get("tokenizer_kwargs", {}).get("bpe_path")
    vocabulary = folder / file_name if file_name else None
    if vocabulary and not vocabulary.is_file():
        raise ModelError(f"model: {folder / CONFIG_NAME} names a vocabulary that is not there: {vocabulary}")
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
    wanted = open_clip.get_pretrained_cfg(name, tag)
    if not wanted:
        raise ModelError(f"pretrained: {name} has no tag {tag!r}. Tags: {_tags(name)}; or give a state dict file")
    if wanted.get("quick_gelu", False):  # a tag that says nothing may belong to either kind
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
    """Tensors of a state dict, and whether they need QuickGELU, where the file tells. No pickle is executed."""
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                told = (file.metadata() or {}).get("quick_gelu")  # open_clip's own files do not tell
        except (SafetensorError, OSError) as error:
            raise ModelError(f"pretrained: {path}: not a readable safetensors file: {error}") from None
        return _clean(state), None if told is None else told == "true"
    if _is_torchscript(path):
        # OpenAI's own files are TorchScript archives with three extra buffers. Only their tensors are looked at.
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
    """Names without the prefixes that wrappers add; float32 values."""
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


def check_finite(state: Mapping[str, Tensor], where: str) -> None:
    """Raise a ModelError that names the first tensor with a number that is none, or infinite."""
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{where}: tensor {name!r} is not finite: it has infinite numbers, or some that are none")


def _reason(error: Exception, spec: ModelSpec) -> str:
    if "weights_only" in str(error):
        return "its weights are a pickle that would run code, so they are not opened. Save them as safetensors"
    if spec.model.startswith(LOCAL):
        return " ".join(str(error).split())
    return f"{error}. Without network access, give --pretrained a local file"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _check_activation(name: str, config: dict[str, Any], needs_quick_gelu: bool, weights: str) -> None:
    """open_clip only warns when weights meet the wrong activation, and the accuracy quietly drops."""
    has_quick_gelu = bool(config.get("quick_gelu", False))
    if has_quick_gelu == needs_quick_gelu:
        return
    other = name.removesuffix("-quickgelu") if has_quick_gelu else f"{name}-quickgelu"
    hint = f" Ask for --model {other}." if open_clip.get_model_config(other) else ""
    trained, built = ("QuickGELU", "plain GELU") if needs_quick_gelu else ("plain GELU", "QuickGELU")
    raise ModelError(f"model: {weights} were trained with {trained}, but {name} is built with {built}.{hint}")


def _quietly(create: Any, spec: ModelSpec) -> nn.Module:
    """Run open_clip's factory; its warnings are errors here, its failures name the model."""
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
    config = open_clip.get_model_preprocess_cfg(model)
    size = config["size"][0] if isinstance(config["size"], (tuple, list)) else config["size"]
    interpolation, mode = config.get("interpolation", "bicubic"), config.get("resize_mode", "shortest")
    if interpolation not in ("bicubic", "bilinear") or mode not in ("shortest", "squash"):
        raise ModelError(f"model: {spec} wants {interpolation} resizing of mode {mode}, which is not supported")
    if not _triple(config["mean"]) or not _triple(config["std"]) or 0 in config["std"]:
        raise ModelError(f"model: {spec}: preprocess_cfg: mean and std must be three numbers each, and std not 0")
    check_finite(model.state_dict(), f"{'pretrained' if spec.pretrained else 'model'}: {spec}")
    preprocess = Preprocess(int(size), tuple(config["mean"]), tuple(config["std"]), interpolation, mode)
    return Clip(model, tokenizer, preprocess, spec, architecture, vocabulary)


def _triple(values: Any) -> bool:
    return isinstance(values, list | tuple) and len(values) == 3 and all(isinstance(v, int | float) for v in values)


def _tags(model: str) -> str:
    return ", ".join(open_clip.list_pretrained_tags_by_model(model)) or "none"
