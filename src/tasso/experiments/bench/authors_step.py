"""Our re-creation of a training step of the authors' code, to time it in the same run as ours.

float32 throughout, prompts encoded again in each of three forward passes, the student run twice, a second teacher that
is loaded and not used, an unfused optimiser, and five losses read back from the device in every step. The loss is the
same as ours.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from tasso.methods.losses import cross_entropy, distances
from tasso.methods.subspace import orthogonal_component, orthonormal, subspace_coordinates
from tasso.models.clip import Clip, prompts
from tasso.training.learner import Learner


class AuthorsStep:
    """One TASSO step as the authors' code does it, on the images of a learner's streams."""

    def __init__(self, learner: Learner, rank: int) -> None:
        clip = learner.clip
        clip.precision, clip.compiled = torch.float32, False
        self.clip: Clip = clip
        self.training = learner.begin(0)
        texts = prompts(learner.sequence.tasks[0].class_names, learner.templates)
        self.prompts = clip.tokenizer(texts).to(clip.device)  # padded to the context length
        self.teacher = copy.deepcopy(clip.model).eval().requires_grad_(False)
        self.unused_teacher = copy.deepcopy(clip.model).eval().requires_grad_(False)
        self.A = torch.nn.Parameter(0.02 * torch.randn(clip.dim, rank, device=clip.device))
        self.optimiser = torch.optim.AdamW([*clip.visual.parameters(), self.A], lr=1e-5, weight_decay=5e-4)
        self.step = 0

    def __call__(self) -> None:
        """Forward, backward, update, and losses read for the log."""
        task, reference = (self.training.streams[name].batch(self.step) for name in ("task", "reference"))
        features, texts = self._encode(self.clip.model, task.pixels)
        student, _ = self._encode(self.clip.model, reference.pixels)
        with torch.no_grad():
            teacher, _ = self._encode(self.teacher, reference.pixels)
        U = orthonormal(self.A, "qr")
        ce = cross_entropy(features, texts, task.labels, self.clip.logit_scale)
        subspace = cross_entropy(subspace_coordinates(features, U), subspace_coordinates(texts, U), task.labels, 10.0)
        inside = distances(subspace_coordinates(student, U), subspace_coordinates(teacher, U), "geodesic").mean()
        outside = distances(orthogonal_component(student, U), orthogonal_component(teacher, U), "geodesic").mean()
        total = ce + 0.5 * subspace + 3.0 * (inside + outside)
        self.optimiser.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.losses = [value.item() for value in (total, ce, subspace, inside, outside)]
        self.step += 1

    def _encode(self, model: torch.nn.Module, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """open_clip's forward passes of both towers: images (B, D), prompts (C, D)."""
        images: Tensor = model.encode_image(pixels, normalize=True)  # type: ignore[operator]
        with torch.no_grad():
            texts: Tensor = model.encode_text(self.prompts, normalize=True)  # type: ignore[operator]
        return images, texts

    def close(self) -> None:
        self.training.close()
