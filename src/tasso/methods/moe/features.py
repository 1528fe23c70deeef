"""Inputs of the task selector: features of a frozen network, squashed into 0 … 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasso.data.images import Indices, Pixels
from tasso.errors import ModelError
from tasso.models.clip import Clip
from tasso.models.inference import EMBED_BATCH

Kind = Literal["alexnet", "clip"]

ALEXNET_SIZE = 224
ALEXNET_DIM = 256 * 13 * 13
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CACHE_BYTES = 2**30  # features of a set up to this size are computed once and cached


class Features(nn.Module):
    """Features of images, before (`raw`) and after (`squashed`) a sigmoid. The network itself is not in its state."""

    kind: ClassVar[Kind]
    dim: int

    def raw(self, pixels: Tensor) -> Tensor:
        """Features (B, dim) of images (B, 3, H, W), normalised for the CLIP model; no gradient."""
        raise NotImplementedError

    def squashed(self, raw: Tensor) -> Tensor:
        """Features (B, dim) in 0 … 1, as auto-encoders take them."""
        return torch.sigmoid(raw)

    def fit(self, raw: Tensor) -> None:
        """Called once, with the raw features (N, dim) of the first images to be learned."""


class AlexNetFeatures(Features):
    """The last convolution of ImageNet's AlexNet, without its ReLU and pooling, as in the authors' code.

    Their code normalises its images with CLIP's mean and deviation; here with those it was trained with.
    """

    kind: ClassVar[Kind] = "alexnet"
    dim = ALEXNET_DIM

    def __init__(self, clip: Clip) -> None:
        super().__init__()
        self._network = (load_alexnet(alexnet_file()).to(clip.device),)  # in a tuple: not a submodule

        def channels(values: tuple[float, ...]) -> Tensor:
            return torch.tensor(values, device=clip.device)[:, None, None]

        # From the CLIP model's normalisation to ImageNet's in one operation.
        mean, std = channels(clip.preprocess.mean), channels(clip.preprocess.std)
        self.factor = std / channels(IMAGENET_STD)
        self.shift = (mean - channels(IMAGENET_MEAN)) / channels(IMAGENET_STD)

    def raw(self, pixels: Tensor) -> Tensor:
        size = (ALEXNET_SIZE, ALEXNET_SIZE)
        with torch.no_grad():
            if tuple(pixels.shape[-2:]) != size:  # linear, so it may come before the other normalisation
                pixels = F.interpolate(pixels, size, mode="bilinear", align_corners=False, antialias=True)
            features: Tensor = self._network[0](pixels * self.factor + self.shift)
        return features.flatten(1)


class ClipFeatures(Features):
    """The pretrained image embedding, standardised per dimension, where AlexNet is not available [ours].

    A unit vector of length 512 has entries around ±0.04, which a sigmoid would make nearly equal.
    """

    mean: Tensor
    std: Tensor

    kind: ClassVar[Kind] = "clip"

    def __init__(self, clip: Clip) -> None:
        super().__init__()
        self.clip, self.dim = clip, clip.dim
        self.register_buffer("mean", torch.zeros(self.dim, device=clip.device))
        self.register_buffer("std", torch.ones(self.dim, device=clip.device))

    def raw(self, pixels: Tensor) -> Tensor:
        self.clip.model.eval()
        with torch.no_grad():
            return self.clip.encode_images(pixels)

    def squashed(self, raw: Tensor) -> Tensor:
        return torch.sigmoid((raw - self.mean) / self.std)

    def fit(self, raw: Tensor) -> None:
        raw = raw.double()
        self.mean = raw.mean(0).float()
        self.std = raw.std(0, correction=0).clamp(min=1e-6).float()


def alexnet_file() -> Path:
    """Where torchvision caches the weights of ImageNet's AlexNet."""
    from torchvision.models import AlexNet_Weights

    return Path(torch.hub.get_dir()) / "checkpoints" / str(AlexNet_Weights.IMAGENET1K_V1.url).rpartition("/")[-1]


def load_alexnet(file: Path) -> nn.Module:
    """The convolutions from that file; nothing is downloaded."""
    from torchvision.models import alexnet

    with torch.device("meta"):  # the values come from the file, and initialising would draw random numbers
        network: nn.Module = alexnet(weights=None).features[:-2]
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        own = {key: state[f"features.{key}"].float() for key in network.state_dict()}
        network.load_state_dict(own, assign=True)
    except Exception as error:  # whatever a damaged file raises
        raise ModelError(f"{file}: not the weights of torchvision's AlexNet ({str(error).splitlines()[0]})") from None
    return network.eval().requires_grad_(False)


class FeatureReader:
    """Features of some images of a set, cached where they are not too large."""

    def __init__(
        self, features: Features, pixels: Pixels, indices: Indices, on_progress: Callable[[int], None]
    ) -> None:
        """`indices`: all images that will be asked for."""
        self.features, self.pixels, self.indices = features, pixels, np.unique(indices)
        self.cache: Tensor | None = None
        if len(self.indices) * features.dim * 4 <= CACHE_BYTES:
            parts = []
            for chunk in self._chunks():
                parts.append(features.raw(pixels.eval_view(chunk)))
                on_progress(len(chunk))
            self.cache = torch.cat(parts)

    def fit(self) -> None:
        """Fit the features to these images."""
        self.features.fit(torch.cat([self._raw(chunk) for chunk in self._chunks()]))

    def _chunks(self) -> list[Indices]:
        return [self.indices[start : start + EMBED_BATCH] for start in range(0, len(self.indices), EMBED_BATCH)]

    def _raw(self, indices: Indices) -> Tensor:
        if self.cache is None:
            return self.features.raw(self.pixels.eval_view(indices))
        rows = torch.from_numpy(np.searchsorted(self.indices, indices))
        return self.cache[rows.to(self.cache.device, non_blocking=True)]

    def __call__(self, indices: Indices) -> Tensor:
        """Squashed features (B, dim) of these images."""
        return self.features.squashed(self._raw(indices))

    def over_all(self, measure: Callable[[Tensor], Tensor]) -> Tensor:
        """A measure of every image, in chunks."""
        return torch.cat([measure(self(chunk)) for chunk in self._chunks()])
