"""TASSO: cross-entropy in the whole space and in a learned subspace, geodesic distillation in both parts.

L = CE + α·L_sub + β·L_KD, image tower only, teacher = the model before this task, reference images unlabelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from tasso.config import option, require, unwrap
from tasso.config.ranks import PAPER_RANK
from tasso.errors import ConfigError
from tasso.methods.base import Batch, Cost, Group, ImageRequest, Method, TaskInfo, Teacher, cosine
from tasso.methods.losses import Angle, Distance, cross_entropy, distances
from tasso.methods.registry import register
from tasso.methods.subspace import (
    Orthonormalisation,
    energy_rank,
    orthogonal_component,
    orthonormal,
    principal_basis,
    subspace_coordinates,
)
from tasso.models.clip import Clip
from tasso.models.streams import SideStream

# Weight, and the student's and the teacher's embeddings (N, D) of the same inputs.
Compared = tuple[float, Tensor, Tensor]


class Projector(nn.Module):
    """The free matrix A (D, rank) that spans the task's subspace."""

    def __init__(self, A: Tensor, trainable: bool) -> None:
        super().__init__()
        self.A = nn.Parameter(A, requires_grad=trainable)


@register("tasso")
@dataclass
class Tasso(Method):
    """Hyper-parameters; None is filled in from the protocol, the rank from the model."""

    rank: int | None = option(
        "rank r of the subspace (paper and code: 144 of 512)", None, unset="the same share of the model's width", ge=1
    )
    rank_energy: float = option(
        "adapt the rank to each task: the least that holds this share of the energy of its class texts, at most `rank` "
        "if that is given; 0: `rank`",
        0.0, ge=0, lt=1,
    )  # fmt: skip
    alpha: float = option("weight α of the subspace cross-entropy; 0 switches it off (paper and code)", 0.5, ge=0)
    beta: float = option("weight β of the distillation (paper and code)", 3.0, ge=0)
    kd_parallel: Distance = option("distillation distance inside the subspace", "geodesic")
    kd_perpendicular: Distance = option("distillation distance outside the subspace", "geodesic")
    kd_whole: Distance = option("distillation distance on the undivided embedding (ablation)", "none")
    angle: Angle | None = option("clamped: arccosine within ±(1 − 1e-6) (code); exact: atan2 (paper)", None)
    ce_scale: float | None = option(
        "factor on cosines in the full CE; 0: the model's own (code); 1 (paper)", None, ge=0
    )
    subspace_scale: float | None = option("factor on cosines in the subspace CE: 10 (code), 1 (paper)", None, ge=0)
    subspace_gradient: Literal["both", "projector"] = option(
        "what the subspace CE trains: both image tower and projector, or the projector only", "both"
    )
    kd_trains_projector: bool = option("let the distillation train the projector too (code)", True)
    train_projector: bool = option("train the projector after it was drawn", True)
    optimise: Literal["joint", "projector-first", "alternate"] = option(
        "when image tower and projector are updated", "joint"
    )
    projector_init: Literal["random", "texts"] = option(
        "A at the start of a task: random (code), or texts: the main directions of the task's class texts", "random"
    )
    init_std: float = option("standard deviation of the fresh projector matrix A (code)", 0.02, gt=0)
    projector_lr: float | None = option("learning rate of A (code: the run's)", None, unset="the run's", gt=0)
    projector_weight_decay: float | None = option("weight decay of A", None, unset="the run's", ge=0)
    orthonormalisation: Orthonormalisation = option(
        "how U is made from A, which is the same U; auto: cholesky on a GPU, else qr", "auto"
    )
    fix_signs: bool = option("turn U's columns so that R has a positive diagonal (code; no effect on any loss)", True)

    title: ClassVar[str] = "TASSO"
    summary: ClassVar[str] = "subspace cross-entropy and geodesic distillation in both subspaces"
    source: ClassVar[str] = "paper; defaults of its authors' single-GPU configuration"
    verified: ClassVar[str] = "losses and gradients against the authors' code in float64 (golden cases)"
    cuda_graphs: ClassVar[bool] = True
    group_names: ClassVar[tuple[str, ...]] = ("encoder", "projector")
    protocols: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "code": {"angle": "clamped", "ce_scale": 0.0, "subspace_scale": 10.0},
        # The paper's formulas have no factor on the cosines and no clamp.
        "paper": {"angle": "exact", "ce_scale": 1.0, "subspace_scale": 1.0},
    }

    def validate(self) -> None:
        rule = "must be joint when there is no projector to train"
        require(self, "optimise", self.optimise == "joint" or self.trains_projector, rule)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.side = SideStream()

    def resolve_width(self, width: int) -> None:
        self.rank = self.rank or (width - 1 if self.rank_energy else PAPER_RANK.scaled(width))

    @property
    def has_distance(self) -> bool:
        """Whether any distillation distance is chosen."""
        return self.divides or self.kd_whole != "none"

    @property
    def divides(self) -> bool:
        """Whether the distillation divides embeddings into a part inside the subspace and one outside."""
        return {self.kd_parallel, self.kd_perpendicular} != {"none"}

    @property
    def uses_distillation(self) -> bool:
        """Whether reference images are distilled."""
        return self.beta > 0 and self.has_distance

    @property
    def uses_subspace(self) -> bool:
        """Whether the subspace is used at all."""
        return self.alpha > 0 or (self.beta > 0 and self.divides)

    @property
    def trains_projector(self) -> bool:
        """Whether there is a projector to train."""
        return self.uses_subspace and self.train_projector

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        return ("previous",) if self.uses_distillation else ()

    def image_requests(self) -> tuple[ImageRequest, ...]:
        return (ImageRequest("reference"),) if self.uses_distillation else ()

    def check(self, clip: Clip) -> None:
        if self.uses_subspace and unwrap(self.rank) >= clip.dim:
            raise ConfigError(f"method.rank: must be below the embedding's length {clip.dim}, not {self.rank}")

    def cost(self, clip: Clip) -> Cost:
        projector = clip.dim * unwrap(self.rank) if self.trains_projector else 0
        note = "rank depends on the task, this is the most" if self.rank_energy and projector else ""
        return Cost(trainable=projector, training=self.teacher_size(clip), note=note)

    def begin_task(self, task: TaskInfo) -> None:
        super().begin_task(task)
        clip = self.clip
        self.scale = self.ce_scale or self.scale
        # Drawn on the CPU, so that a seed means the same projector on every device.
        generator = torch.Generator().manual_seed(task.seed * 1000 + task.index)
        texts = self.class_embeddings.cpu()
        rank = unwrap(self.rank)
        if self.rank_energy:
            rank = min(rank, energy_rank(texts, self.rank_energy))
        A = self.init_std * torch.randn(clip.dim, rank, generator=generator)
        if self.projector_init == "texts":
            # As long as the drawn columns are on average, so that a learning rate means the same.
            A = self.init_std * clip.dim**0.5 * principal_basis(texts, A)
        self.state = self.projector = Projector(A.to(clip.device), self.train_projector)

    def groups(self) -> list[Group]:
        groups = super().groups()
        if self.trains_projector:
            groups.append(Group("projector", {"A": self.projector.A}, self.projector_lr, self.projector_weight_decay))
        return groups

    def lr_factors(self, step: int, total: int) -> dict[str, float]:
        if self.optimise == "alternate":  # odd steps (counted from one) move the projector, even ones the encoder
            moving, factor = ("projector", "encoder")[step % 2], cosine(step, total)
            return {name: factor * (name == moving) for name in ("encoder", "projector")}
        if self.optimise == "projector-first":  # half of the steps each, each half with its own cosine
            half = total // 2
            if step < half:
                return {"encoder": 0.0, "projector": cosine(step, half)}
            return {"encoder": cosine(step - half, total - half), "projector": 0.0}
        return super().lr_factors(step, total)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        # Many small operations that wait for one another: the GPU does them beside the encoders.
        basis = self.side.run(self._basis, self.projector.A.device) if self.uses_subspace else None
        if self.uses_distillation:  # one forward pass of the student over task and reference images
            reference = batch.others["reference"].pixels
            pending = self.teacher_encoders["previous"].encode_async(reference)
            features, student = map(self.gather, self.clip.encode_together(batch.task.pixels, reference))
            texts, compared = self.texts(batch)
            compared = {"kd": (self.beta, student, self.gather(pending.wait())), **compared}
        else:
            features = self.gather(self.clip.encode_images(batch.task.pixels))
            texts, compared = self.texts(batch)
        # About a hundred tiny operations; the number of classes changes from task to task.
        compute = self.clip.accelerated(type(self)._terms)
        terms: dict[str, Tensor] = compute(
            self, features, texts, batch.task.labels, compared, None if basis is None else basis.wait()
        )
        return terms

    def _basis(self) -> Tensor:
        """Orthonormal columns (D, r) that span the subspace."""
        return orthonormal(self.projector.A, self.orthonormalisation, self.fix_signs)

    def texts(self, batch: Batch) -> tuple[Tensor, dict[str, Compared]]:
        """The class texts (C, D), and texts that are distilled, by the names of their terms."""
        return self.class_texts(), {}

    def _terms(
        self, features: Tensor, texts: Tensor, labels: Tensor, compared: Mapping[str, Compared], U: Tensor | None
    ) -> dict[str, Tensor]:
        """Weighted loss terms, each a scalar.

        Args:
            features: (B, D) of the task's images; labels: (B,).
            texts: (C, D) of the task's classes.
            compared: what is distilled, by the names of the terms.
            U: (D, r), if the subspace is used.
        """
        terms = {"ce": cross_entropy(features, texts, labels, self.scale)}
        if U is not None and self.alpha > 0:
            terms["subspace"] = self.alpha * self._subspace_loss(features, texts, U, labels)
        if compared:
            weights, students, teachers = zip(*compared.values(), strict=True)
            rows = self._distances(torch.cat(students), torch.cat(teachers), U)
            parts = torch.split(rows, [*map(len, students)])
            terms |= {name: w * part.mean() for name, w, part in zip(compared, weights, parts, strict=True)}
        return terms

    def _subspace_loss(self, features: Tensor, texts: Tensor, U: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of features (B, D) and class texts (C, D), both projected onto U (D, r)."""
        if self.subspace_gradient == "projector":
            features, texts = features.detach(), texts.detach()
        texts = subspace_coordinates(texts, U)
        return cross_entropy(subspace_coordinates(features, U), texts, labels, unwrap(self.subspace_scale))

    def _distances(self, student: Tensor, teacher: Tensor, U: Tensor | None) -> Tensor:
        """Distances (N,) of the rows of student and teacher, (N, D) each: undivided, inside span(U) and orthogonal to
        it, added up."""
        parts = [(self.kd_whole, student, teacher)]
        if U is not None:
            U = U if self.kd_trains_projector else U.detach()
            parts += [
                (self.kd_parallel, subspace_coordinates(student, U), subspace_coordinates(teacher, U)),
                (self.kd_perpendicular, orthogonal_component(student, U), orthogonal_component(teacher, U)),
            ]
        angle: Angle = unwrap(self.angle)
        return reduce(torch.add, [distances(x, y, kind, angle) for kind, x, y in parts if kind != "none"])

    def end_task(self) -> None:
        super().end_task()
        self.state = None  # the next task has a projector of its own
