"""What the task selector sees of an image: features of a network that never changes, squeezed into 0 … 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasso.data.images import Indices, Pixels
from tasso.errors import ModelError
from tasso.methods.moe.adapters import fitting
from tasso.models.clip import Clip
from tasso.models.inference import EMBED_BATCH

Kind = Literal["alexnet", "clip"]

ALEXNET_SIZE = 224
ALEXNET_DIM = 256 * 13 * 13
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
KEEP_BYTES = 2**30  # features of a set up to this size are computed once and kept


class Features:
    """Features of images, before (`raw`) and after (`squeezed`) a sigmoid."""

    kind: ClassVar[Kind]
    dim: int
    ready = True  # or does it have to see some images first?

    def raw(self, pixels: Tensor) -> Tensor:
        """One row an image (normalised pixels of the CLIP model); no gradient."""
        raise NotImplementedError

    def squeezed(self, raw: Tensor) -> Tensor:
        """The same in 0 … 1, as auto-encoders take it."""
        return torch.sigmoid(raw)

    def fit(self, raw: Tensor) -> None:
        """Get ready, from the raw features of some images."""

    def state(self) -> dict[str, Tensor]:
        """What is needed beside the network to see the same again."""
        return {}

    def load_state(self, state: Mapping[str, Tensor], where: str) -> None:
        """Put back what `state` gave."""


class AlexNetFeatures(Features):
    """The last convolution of ImageNet's AlexNet, without its ReLU and pooling, as in the authors' code.

    Their code shows it images with CLIP's mean and deviation; here it sees those it was trained with.
    """

    kind: ClassVar[Kind] = "alexnet"
    dim = ALEXNET_DIM

    def __init__(self, clip: Clip) -> None:
        self.network = load_alexnet(alexnet_file()).to(clip.device)

        def channels(values: tuple[float, ...]) -> Tensor:
            return torch.tensor(values, device=clip.device)[:, None, None]

        # From the CLIP model's normalisation to ImageNet's, in one go.
        mean, std = channels(clip.preprocess.mean), channels(clip.preprocess.std)
        self.factor = std / channels(IMAGENET_STD)
        self.shift = (mean - channels(IMAGENET_MEAN)) / channels(IMAGENET_STD)

    def raw(self, pixels: Tensor) -> Tensor:
        size = (ALEXNET_SIZE, ALEXNET_SIZE)
        with torch.no_grad():
            if tuple(pixels.shape[-2:]) != size:  # linear, so it may come before the other normalisation
                pixels = F.interpolate(pixels, size, mode="bilinear", align_corners=False, antialias=True)
            features: Tensor = self.network(pixels * self.factor + self.shift)
        return features.flatten(1)


class ClipFeatures(Features):
    """The pretrained image embedding, each of its numbers standardised, where AlexNet is not at hand [ours].

    A unit vector of length 512 has numbers around ±0.04, which a sigmoid would make all the same.
    """

    kind: ClassVar[Kind] = "clip"

    def __init__(self, clip: Clip) -> None:
        self.clip, self.dim = clip, clip.dim
        self.mean = torch.zeros(self.dim, device=clip.device)
        self.std = torch.ones(self.dim, device=clip.device)
        self.ready = False

    def raw(self, pixels: Tensor) -> Tensor:
        self.clip.model.eval()
        with torch.no_grad():
            return self.clip.encode_images(pixels)

    def squeezed(self, raw: Tensor) -> Tensor:
        return torch.sigmoid((raw - self.mean) / self.std)

    def fit(self, raw: Tensor) -> None:
        raw = raw.double()
        self.mean = raw.mean(0).float()
        self.std = raw.std(0, correction=0).clamp(min=1e-6).float()
        self.ready = True

    def state(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "std": self.std}

    def load_state(self, state: Mapping[str, Tensor], where: str) -> None:
        mean, std = (fitting(state, name, (self.dim,), where) for name in ("mean", "std"))
        self.mean, self.std = mean.to(self.mean.device, copy=True), std.to(self.std.device, copy=True)
        self.ready = True


def alexnet_file() -> Path:
    """Where torchvision keeps the weights of ImageNet's AlexNet once they have been downloaded."""
    from torchvision.models import AlexNet_Weights

    return Path(torch.hub.get_dir()) / "checkpoints" / str(AlexNet_Weights.IMAGENET1K_V1.url).rpartition("/")[-1]


def load_alexnet(file: Path) -> nn.Module:
    """The convolutions from that file; nothing is ever downloaded."""
    from torchvision.models import alexnet

    with torch.device("meta"):  # the file has the values, and drawing others would take random numbers
        network: nn.Module = alexnet(weights=None).features[:-2]
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        own = {key: state[f"features.{key}"].float() for key in network.state_dict()}
        network.load_state_dict(own, assign=True)
    except Exception as error:  # whatever a damaged file brings about
        raise ModelError(f"{file}: not the weights of torchvision's AlexNet ({str(error).splitlines()[0]})") from None
    return network.eval().requires_grad_(False)


class FeatureReader:
    """Features of some images of a set, kept where they are not too large."""

    def __init__(self, features: Features, pixels: Pixels, places: Indices, on_progress: Callable[[int], None]) -> None:
        """`places`: all images that will be asked for."""
        self.features, self.pixels, self.places = features, pixels, np.unique(places)
        self.kept: Tensor | None = None
        if len(self.places) * features.dim * 4 <= KEEP_BYTES:
            parts = []
            for chunk in self._chunks():
                parts.append(features.raw(pixels.eval_view(chunk)))
                on_progress(len(chunk))
            self.kept = torch.cat(parts)
        if not features.ready:
            features.fit(torch.cat([self._raw(chunk) for chunk in self._chunks()]))

    def _chunks(self) -> list[Indices]:
        return [self.places[start : start + EMBED_BATCH] for start in range(0, len(self.places), EMBED_BATCH)]

    def _raw(self, places: Indices) -> Tensor:
        if self.kept is None:
            return self.features.raw(self.pixels.eval_view(places))
        rows = torch.from_numpy(np.searchsorted(self.places, places))
        return self.kept[rows.to(self.kept.device, non_blocking=True)]

    def __call__(self, places: Indices) -> Tensor:
        """Squeezed features of the images at these places."""
        return self.features.squeezed(self._raw(places))

    def over_all(self, measure: Callable[[Tensor], Tensor]) -> Tensor:
        """A measure of every image, in chunks."""
        return torch.cat([measure(self(chunk)) for chunk in self._chunks()])
