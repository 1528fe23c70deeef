"""What is optimised: one file a method, registered by name. Importing this package fills the table."""

from tasso.methods import finetune, gift, icarl, lwf, moe_adapters, snd, tasso, zscl  # noqa: F401  (each registers itself)
from tasso.methods.base import METHODS, Batch, Extras, Group, Method, RunInfo, TaskInfo, Wanted, build_method, register

__all__ = [
    "METHODS",
    "Batch",
    "Extras",
    "Group",
    "Method",
    "RunInfo",
    "TaskInfo",
    "Wanted",
    "build_method",
    "register",
]
