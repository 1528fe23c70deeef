"""What to learn: tasks, sequences, benchmarks and readers. Imports no torch; `tasso.data.images` does."""

from tasso.data.benchmarks import BENCHMARKS, Benchmark
from tasso.data.catalogue import TASK_IMAGES, load_sequence, task_order, with_benchmark_options
from tasso.data.sequences import order, rotation
from tasso.data.task import ImageSet, Source, Task, TaskSequence, joined

__all__ = [
    "BENCHMARKS",
    "TASK_IMAGES",
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
    "with_benchmark_options",
]
