"""`Clip`: an open_clip model as an image encoder, a text encoder and cached class embeddings."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from tasso.decoding.views import Preprocess
from tasso.distributed import SINGLE_PROCESS
from tasso.errors import ConfigError, ModelError
from tasso.models import fp8
from tasso.models.blocks import Linear
from tasso.models.streams import Pending, SideStream
from tasso.models.towers import embed_images, embed_tokens, is_plain_vit, repeats_itself, without_padding
from tasso.models.tuning import tuned
from tasso.models.unit import unit

TEXT_CHUNK = 512
CACHED_CLASS_LISTS, CACHED_TOKENS = 64, 2**15  # bounds, since a server answers requests for any class names
COMPARED_CALLS, NEAR = 8, 0.1  # of compiled code, and how far its embeddings may be off: bfloat16 gives 0.02, fp8 0.05
OUTSIDE_TOWERS = ("logit_scale", "logit_bias", "text_decoder.")  # the last writes CoCa's captions

log = logging.getLogger("tasso")

Forward = Callable[[nn.Module, Tensor, Linear], Tensor]


@dataclass(frozen=True)
class ModelSpec:
    """What it takes to build the model again: its name and where its weights come from."""

    model: str
    pretrained: str | None = None

    def __str__(self) -> str:
        return self.model + (f" ({self.pretrained})" if self.pretrained else "")


class Clip:
    """A CLIP model with its tokenizer and preprocessing.

    All embeddings are float32 and of unit length, shape (N, D). Towers may run in bfloat16 (`precision`), or in
    fp8 (`fp8.FP8`): bfloat16 but for the linear layers of blocks. Class embeddings, which are cached, are always
    computed in float32.
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
        self.teacher_precision: torch.dtype | None = None  # None: as `precision`
        # Used in training only: compiled for evaluation, too, a run would take longer (docs/performance.md).
        self.compiled = False
        self.checkpointing = False  # are activations within blocks computed again in the backward pass?
        self.tune = "full"  # which weights of the towers are trained: `tuning.py`
        self.distributed = SINGLE_PROCESS  # those that share a batch with this one while training
        # What a method attached to this model beside its own modules, if anything: `Method.attach`.
        self.attached: Callable[[], nn.Module | None] = lambda: None
        self._class_embeddings: OrderedDict[tuple[tuple[str, ...], tuple[str, ...]], Tensor] = OrderedDict()
        self._cached_version: tuple[object, ...] = ()
        self._tokens = lru_cache(CACHED_TOKENS)(lambda text: tokenizer([text])[0])  # (context length,) of a text

    @property
    def device(self) -> torch.device:
        """The device of the model's parameters."""
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
        """D, the length of an embedding."""
        return int(self.encode_texts(["a"]).shape[-1])

    def to(
        self,
        device: torch.device | str,
        precision: torch.dtype | None = None,
        teacher_precision: torch.dtype | None = None,
    ) -> Clip:
        """Move the model to a device; optionally set the precision in which its towers run, and that of teachers."""
        for option, chosen in (("precision", precision), ("teacher_precision", teacher_precision)):
            if chosen == fp8.FP8 and not is_plain_vit(self.visual):
                raise ConfigError(
                    f"{option}: fp8 is for open_clip's own ViT; {self.spec} has another image tower. Use auto"
                )
        self.model.to(device)
        self.precision = precision or self.precision
        self.teacher_precision = teacher_precision or self.teacher_precision
        return self

    def parameters_of(self, towers: str) -> dict[str, nn.Parameter]:
        """Named parameters of `visual`, `text`, `both` or `none` of the towers; not what embeds nothing."""
        named = {n: p for n, p in self.model.named_parameters() if not n.startswith(OUTSIDE_TOWERS)}
        return {name: parameter for name, parameter in named.items() if _belongs(name, towers)}

    def tuned_parameters(self, towers: str) -> dict[str, nn.Parameter]:
        """Those of `parameters_of` that training changes: all of them, unless `tune` says otherwise."""
        return tuned(self.model, self.parameters_of(towers), self.tune)

    def checkpoint_activations(self, enable: bool = True) -> None:
        """While training, keep the inputs of blocks only, and compute the blocks again in the backward pass."""
        self.checkpointing = enable
        model: Any = self.model
        if hasattr(model, "set_grad_checkpointing"):
            model.set_grad_checkpointing(enable)
        for module in model.modules():
            if not enable and hasattr(module, "gradient_checkpointing"):  # open_clip does not switch off transformers'
                module.gradient_checkpointing = False
        flags = ("grad_checkpointing", "gradient_checkpointing")
        if enable and not any(getattr(module, flag, False) for module in self.visual.modules() for flag in flags):
            raise ConfigError(f"checkpoint_activations: the image tower of {self.spec} cannot do this")

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit embeddings (B, D) of normalised images (B, 3, H, W); nothing is gathered from other processes."""
        compiled = self.compiled and torch.is_grad_enabled()
        return encode(embed_images, self.visual, pixels, self.precision, compiled)

    def encode_together(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Unit embeddings (B₁, D) and (B₂, D) of two batches of images from one forward pass."""
        both = self.encode_images(torch.cat([first, second]))
        one, other = torch.split(both, [len(first), len(second)])
        return one, other

    def accelerated(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, compiled for dynamic shapes if the towers are compiled."""
        return compiled_once(function, dynamic=None) if self.compiled else function

    def frozen_image_encoder(self) -> FrozenImageEncoder:
        """A copy of the image tower as it is now, for use as a teacher."""
        return FrozenImageEncoder(self.visual, self.teacher_precision or self.precision, self.compiled)

    def copy(self) -> Clip:
        """A deep copy of the model with its current weights, in its precision. Options of training are not copied, nor
        is what a method attached."""
        clone = Clip(
            copy.deepcopy(self.model), self.tokenizer, self.preprocess, self.spec, self.architecture, self.vocabulary
        )
        clone.precision = self.precision
        return clone

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Unit embeddings of N texts, (N, D), computed in float32 without gradient."""
        with torch.no_grad(), self._text_tower_in_eval_mode():
            tokens = self.tokenise(texts)
            chunks = torch.split(tokens, TEXT_CHUNK)
            parts = [encode(embed_tokens, self.model, chunk, torch.float32) for chunk in chunks]
        return torch.cat(parts)

    @contextlib.contextmanager
    def _text_tower_in_eval_mode(self) -> Iterator[None]:
        """All modules but those of the image tower; each is left in the mode it was in."""
        training = [module for module in self._text_modules() if module.training]
        for module in training:
            module.training = False
        try:
            yield
        finally:
            for module in training:
                module.training = True

    def _text_modules(self) -> Iterator[nn.Module]:
        """All modules of the model that are not in the image tower."""
        visual, found = self.visual, [self.model]
        while found:
            module = found.pop()
            yield module
            found += [child for child in module._modules.values() if child is not None and child is not visual]

    def tokenise(self, texts: Sequence[str]) -> Tensor:
        """Token ids of N texts, (N, L), on the model's device; padding behind the longest text is cut off.

        Texts that come again, as class names and anchors do in every task, are not tokenised again.
        """
        each = [*map(self._tokens, texts)]
        one_length = len({len(ids) for ids in each}) == 1  # else the tokenizer pads to the longest text of a call
        tokens = torch.stack(each) if one_length else self.tokenizer(list(texts))
        return without_padding(self.model, tokens).to(self.device)

    def encode_tokens(self, tokens: Tensor) -> Tensor:
        """Unit embeddings, (N, D), of token ids (N, L), with gradient and in the model's precision: for training."""
        compiled = self.compiled and torch.is_grad_enabled()
        # N and L change from task to task: compiled for any.
        return encode(embed_tokens, self.model, tokens, self.precision, compiled, dynamic=None)

    def class_embeddings(self, class_names: Sequence[str], templates: Sequence[str]) -> Tensor:
        """One unit embedding per class, (C, D): the mean over the templates.

        The last few lists of classes are cached for as long as the text encoder does not change: its tensors, modules
        and hooks. With hooks, the tensors of the method's `state` count too. Values that torch does not count (Python
        attributes, changes in place through `.data`) need `clear_text_cache`.
        """
        version = self._text_version()
        if version != self._cached_version:
            self.clear_text_cache()
            self._cached_version = version
        key = (tuple(class_names), tuple(templates))
        if key not in self._class_embeddings:
            self._class_embeddings[key] = self.encode_classes(class_names, templates)
            if len(self._class_embeddings) > CACHED_CLASS_LISTS:
                self._class_embeddings.popitem(last=False)
        self._class_embeddings.move_to_end(key)
        return self._class_embeddings[key]

    def _text_version(self) -> tuple[object, ...]:
        """Differs whenever the text encoder may give other embeddings; nothing is read from the device."""
        modules = list(self._text_modules())
        hooks = tuple(key for m in modules for key in (*m._forward_hooks, *m._forward_pre_hooks))
        attached = self.attached() if hooks else None
        if attached is not None:  # what hooks compute with is not in the model
            modules += attached.modules()
        tensors = (t for m in modules for t in (*m._parameters.values(), *m._buffers.values()) if t is not None)
        return (*map(id, modules), *hooks, *((t.data_ptr(), t._version) for t in tensors))

    def encode_classes(self, class_names: Sequence[str], templates: Sequence[str]) -> Tensor:
        """As `class_embeddings`, without the cache."""
        return mean_of_templates(self.encode_texts(prompts(class_names, templates)), len(templates))

    def clear_text_cache(self) -> None:
        """Drop cached class embeddings."""
        self._class_embeddings.clear()

    def state(self, towers: str) -> dict[str, Tensor]:
        """Parameters and buffers of the towers (`visual`, `both` or `none`); not copied."""
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items() if _belongs(name, towers)}

    def load_state(self, state: dict[str, Tensor], where: str) -> None:
        """Load what `state` returned.

        Raises:
            ModelError: a tensor does not belong to the model, has another shape or kind, or contains inf or NaN.
        """
        own = self.model.state_dict()
        for name, tensor in state.items():
            if name not in own:
                raise ModelError(f"{where}: tensor {name!r} does not belong to {self.spec}")
            if own[name].shape != tensor.shape:
                shapes = f"{tuple(tensor.shape)} instead of {tuple(own[name].shape)}"
                raise ModelError(f"{where}: tensor {name!r} has shape {shapes}: not a checkpoint of {self.spec}")
            if own[name].is_floating_point() != tensor.is_floating_point():
                raise ModelError(f"{where}: tensor {name!r} is {tensor.dtype} instead of {own[name].dtype}")
        check_finite(state, where)
        self.model.load_state_dict(state, strict=False)

    def weights_checksum(self) -> str:
        """SHA-256 of names, types and values of all parameters and buffers."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    @property
    def has_batch_norm(self) -> bool:
        """Does training change buffers, beside parameters?"""
        return any(isinstance(module, _BatchNorm) and module.track_running_stats for module in self.model.modules())

    def count_parameters(self) -> dict[str, int]:
        """Number of parameters: `total`, `image_tower`, `text_tower`."""
        image = sum(p.numel() for p in self.visual.parameters())
        total = sum(p.numel() for p in self.model.parameters())
        return {"total": total, "image_tower": image, "text_tower": total - image}


class FrozenImageEncoder:
    """An image tower that never changes."""

    def __init__(self, tower: nn.Module, precision: torch.dtype, compiled: bool = False) -> None:
        self.tower = copy.deepcopy(tower).eval().requires_grad_(False)
        self.precision, self.compiled = precision, compiled
        self.side = SideStream()
        if precision != torch.float32:
            cast_weights(self.tower, stored_in(precision))  # once, instead of by autocast in every step

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit embeddings (B, D) of normalised images (B, 3, H, W), without gradient."""
        with torch.no_grad():
            return encode(embed_images, self.tower, pixels, self.precision, self.compiled)

    def encode_async(self, pixels: Tensor) -> Pending:
        """As `encode_images`, on a side stream of the GPU: it overlaps with what is launched before `wait`."""
        return self.side.run(lambda: self.encode_images(pixels), pixels.device)


@cache
def compiled_once(function: Callable[..., Any], dynamic: bool | None = False) -> Callable[..., Any]:
    """`torch.compile`, once per function: the teachers of later tasks share the compiled code of the first.

    Compiled when first needed, because importing the compiler takes seconds.
    """
    return torch.compile(function, dynamic=dynamic)


def prompts(class_names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Every class name in every template: C × T texts, those of one class next to each other."""
    return [template.replace("{}", name) for name in class_names for template in templates]


def mean_of_templates(embeddings: Tensor, templates: int) -> Tensor:
    """One unit embedding per class, (C, D), from those of its prompts, (C × templates, D)."""
    if templates == 1:
        return embeddings
    return unit(embeddings.view(-1, templates, embeddings.shape[-1]).mean(1))


def _belongs(name: str, towers: str) -> bool:
    return towers == "both" or towers == ("visual" if name.startswith("visual.") else "text")


def encode(
    forward: Forward,
    module: nn.Module,
    inputs: Tensor,
    precision: torch.dtype,
    compiled: bool = False,
    dynamic: bool | None = False,
) -> Tensor:
    """Run a tower in the given precision; returns unit embeddings in float32, (N, D)."""
    linear = fp8.linear if precision == fp8.FP8 else F.linear

    def embed(run: Forward) -> Tensor:
        low = precision != torch.float32
        with torch.autocast(inputs.device.type, stored_in(precision)) if low else contextlib.nullcontext():
            features = run(module, inputs, linear)
        return unit(features.float())

    if not compiled:
        return embed(forward)
    fast, use = compiled_once(forward, dynamic), (forward, torch.is_grad_enabled(), precision, inputs.shape)
    with without_cudnn_attention():
        if use not in _trusted and repeats_itself(module):
            _trusted[use] = agree(lambda: embed(fast), lambda: embed(forward))
        return embed(fast if _trusted.get(use, True) else forward)


_trusted: dict[tuple[object, ...], bool] = {}  # compiled forward passes, by their use


def without_cudnn_attention() -> contextlib.AbstractContextManager[None]:
    """What is compiled meanwhile uses other kernels: called by compiled code, cuDNN's were wrong from the second call
    on (docs/performance.md)."""
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def agree(compiled: Callable[[], Tensor], plain: Callable[[], Tensor]) -> bool:
    """Does a compiled forward pass give the same unit embeddings every time, and nearly those of the plain one?

    Compiled code was seen to give others from its second call on, when one call followed the other at once: see
    docs/performance.md. Weights that are not finite are no fault of it.
    """
    first, *others = [compiled().detach() for _ in range(COMPARED_CALLS)]
    same = all(torch.equal(other, first) for other in others)
    with torch.no_grad():
        expected = plain()
    near = bool((first - expected).norm(dim=-1).max() < NEAR)
    if not bool(torch.isfinite(expected).all()):
        return True
    if not (same and near):
        log.warning(
            "compile: compiled by PyTorch %s, a tower does not give the embeddings that it should; it runs as it is",
            torch.__version__,
        )
    return same and near


def stored_in(precision: torch.dtype) -> torch.dtype:
    """In what tensors are kept that are computed in this precision: nothing is kept in fp8."""
    return torch.bfloat16 if precision == fp8.FP8 else precision


def cast_weights(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast in place the weights that autocast would cast: for modules that are never trained."""
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d, nn.MultiheadAttention)):
            for weight in layer.parameters(recurse=False):
                weight.data = weight.data.to(dtype)


def check_finite(state: Mapping[str, Tensor], where: str) -> None:
    """Raise a ModelError that names the first tensor that contains inf or NaN."""
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{where}: tensor {name!r} contains inf or NaN")
