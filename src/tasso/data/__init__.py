"""What to learn: tasks, sequences, benchmarks, and readers for what lies on disk."""

from tasso.data.catalogue import BENCHMARKS, Benchmark, load_sequence, task_order
from tasso.data.sequences import order, rotation
from tasso.data.task import ImageSet, Source, Task, TaskSequence, joined

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "ImageSet",
    "Source",
    "Task",
    "TaskSequence",
    "joined",
    "load_sequence",
    "order",
    "rotation",
    "task_order",
]
