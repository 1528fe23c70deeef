"""What LwF, iCaRL, ZSCL and GIFT share: both towers are trained, a teacher's softened logits are matched both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from tasso.config import option
from tasso.methods.base import Method, Towers
from tasso.methods.losses import cross_entropy, distillation_both_ways


@dataclass
class LogitDistillation(Method):
    """Defaults: ZSCL's code, which has all of these methods but GIFT, and GIFT's code, which began as a copy of it."""

    weight: float = option("weight of each direction of the distillation (ZSCL's code, GIFT's code)", 1.0, ge=0)
    temperature: float = option("temperature of the distillation (ZSCL's code, GIFT's code)", 2.0, gt=0)
    label_smoothing: float = option("label smoothing (ZSCL's code, GIFT's code)", 0.2, ge=0, lt=1)

    # lr and no weight decay: the same code. Batches, steps, schedule and prompts are those of the common protocol.
    run_defaults: ClassVar[Mapping[str, Any]] = {"lr": 1e-5, "weight_decay": 0.0}
    cuda_graphs: ClassVar[bool] = True

    @property
    def towers(self) -> Towers:
        return "both"

    @property
    def whole_batch(self) -> bool:
        return True  # the transposed logits compare the images of a batch with each other

    def task_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of the task's image features (B, D) with the student's class texts."""
        return cross_entropy(features, self.class_texts(), labels, self.scale, self.label_smoothing)

    def distil(self, teacher: Tensor, student: Tensor, texts: Tensor) -> dict[str, Tensor]:
        """Both directions, for image features (B, D) of both models and text embeddings (N, D) of the teacher."""
        columns = self.scale * texts.mT
        forth, back = distillation_both_ways(teacher @ columns, student @ columns, self.temperature)
        return {"kd": self.weight * forth, "kd_transposed": self.weight * back}
