"""Losses and image views. Pure functions of tensors: nothing here waits for the device."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def positives(meanings: Tensor, said: Tensor) -> Tensor:
    """Which texts are true of which images.

    Args:
        meanings: Everything the texts of an image say, one row per image, padded with a number no text has.
        said: What the text drawn for each image says.

    Returns:
        A boolean matrix, images x texts. "A city bus" is true of every city bus in the batch, also of one
        whose own text names its colour; the reverse need not hold, so the matrix is not symmetric.
    """
    return (meanings[:, None, :] == said[None, :, None]).any(dim=2)


def contrastive_loss(image: Tensor, text: Tensor, positive: Tensor, scale: Tensor) -> Tensor:
    """CLIP's loss with several positives.

    Args:
        image: Unit image features, one row a sample.
        text: Unit text features, one row a sample.
        positive: Which texts are true of which images; the diagonal always is.
        scale: Factor on the cosines.

    Returns:
        The mean of both directions' cross-entropies against targets spread evenly over the positives.
    """
    logits = scale * image @ text.T
    weight = positive.to(logits.dtype)
    rows = _cross_entropy(logits, weight)
    columns = _cross_entropy(logits.T, weight.T)
    return (rows + columns) / 2


def _cross_entropy(logits: Tensor, weight: Tensor) -> Tensor:
    target = weight / weight.sum(dim=1, keepdim=True)
    return -(target * logits.log_softmax(dim=1)).sum(dim=1).mean()


def cosine_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean of 1 - cos between unit rows."""
    return 1 - (student * teacher).sum(dim=1).mean()


def similarity_loss(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """KL divergence from the teacher's image-text similarities to the student's, in both directions."""
    rows = _kl(logits, teacher_logits)
    columns = _kl(logits.T, teacher_logits.T)
    return (rows + columns) / 2


def _kl(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    return F.kl_div(
        logits.log_softmax(dim=1), teacher_logits.log_softmax(dim=1), reduction="batchmean", log_target=True
    )


def random_views(
    images: Tensor,
    area: tuple[float, float],
    flip: bool,
    jitter: float,
    generator: torch.Generator,
) -> Tensor:
    """Random resized crops of a whole batch at once.

    Args:
        images: uint8 images, N x H x W x 3.
        area: Smallest and largest share of the image that a crop keeps; its sides differ by up to 4 : 3.
        flip: Mirror half of the images. Off where a text may say "left".
        jitter: Brightness and contrast change by up to this share. Hues stay: a text may name a colour.
        generator: Source of the randomness, on the images' device.

    Returns:
        float32 images in [0, 1], N x 3 x H x W.
    """
    count, device = len(images), images.device

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, device=device, generator=generator)

    pixels = images.permute(0, 3, 1, 2).float() / 255
    size = uniform(*area).sqrt()
    stretch = uniform(-0.5, 0.5).mul(math.log(4 / 3)).exp()
    width, height = (size * stretch).clamp(max=1), (size / stretch).clamp(max=1)
    sign = torch.where(uniform(0, 1) < 0.5, -1.0, 1.0) if flip else torch.ones(count, device=device)
    # grid_sample's coordinates run from -1 to 1: a crop of half-width w has its centre within 1 - w.
    affine = torch.zeros(count, 2, 3, device=device)
    affine[:, 0, 0], affine[:, 0, 2] = width * sign, uniform(-1, 1) * (1 - width)
    affine[:, 1, 1], affine[:, 1, 2] = height, uniform(-1, 1) * (1 - height)
    grid = F.affine_grid(affine, list(pixels.shape), align_corners=False)
    # Crops are enlarged, never reduced, so bilinear sampling does not alias.
    views = F.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False)
    if jitter:
        mean = views.mean(dim=(1, 2, 3), keepdim=True)
        contrast = uniform(1 - jitter, 1 + jitter)[:, None, None, None]
        brightness = uniform(1 - jitter, 1 + jitter)[:, None, None, None]
        views = ((views - mean) * contrast + mean * brightness).clamp(0, 1)
    return views


def blend(first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
    """Images mixed in pairs, at least half of each from the first: new inputs for distillation."""
    share = torch.rand(len(first), 1, 1, 1, device=first.device, generator=generator) / 2
    return torch.lerp(first, second, share)
