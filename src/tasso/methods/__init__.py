"""What is optimised: one file a method, registered by name. Importing this package fills the table."""

from tasso.methods import finetune, snd, tasso  # noqa: F401  (each registers itself)
from tasso.methods.base import METHODS, Batch, Group, Method, TaskInfo, Wanted, build_method, register

__all__ = ["METHODS", "Batch", "Group", "Method", "TaskInfo", "Wanted", "build_method", "register"]
