"""The catalogue of benchmarks."""

from tasso.data.benchmarks.base import Benchmark, DataSet, annotated_benchmark
from tasso.data.benchmarks.class_incremental import CLASS_INCREMENTAL
from tasso.data.benchmarks.field import FIELD
from tasso.data.benchmarks.paper import ATLAS, MTIL, MTIL_DATA_SETS, MTIL_MINI
from tasso.data.benchmarks.stand_ins import STAND_INS

BENCHMARKS = {
    benchmark.name: benchmark for benchmark in (MTIL, MTIL_MINI, ATLAS, *STAND_INS, *FIELD, *CLASS_INCREMENTAL)
}

__all__ = [
    "ATLAS",
    "BENCHMARKS",
    "MTIL",
    "MTIL_DATA_SETS",
    "MTIL_MINI",
    "Benchmark",
    "DataSet",
    "annotated_benchmark",
]
