"""What to learn: tasks, sequences, benchmarks, and readers for what lies on disk."""

from tasso.tasks.catalogue import BENCHMARKS, Benchmark, load_sequence, task_order
from tasso.tasks.sequences import order, rotation
from tasso.tasks.task import ImageSet, Source, Task, TaskSequence, joined

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
