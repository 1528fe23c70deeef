"""What is optimised: one file per method. Importing this package registers them."""

from tasso.methods import (  # noqa: F401  (each registers itself)
    finetune,
    frozen,
    gift,
    icarl,
    lwf,
    moe_adapters,
    snd,
    tasso,
    tasso_both,
    zscl,
)
from tasso.methods.base import Batch, Cost, Group, ImageRequest, Method, RunInfo, TaskInfo, Teacher
from tasso.methods.registry import METHODS, build_method, find_method, import_method, method_names, register

__all__ = [
    "METHODS",
    "Batch",
    "Cost",
    "Group",
    "ImageRequest",
    "Method",
    "RunInfo",
    "TaskInfo",
    "Teacher",
    "build_method",
    "find_method",
    "import_method",
    "method_names",
    "register",
]
