"""The catalogue of benchmarks."""

from tasso.data.benchmarks.base import Benchmark, DataSet
from tasso.data.benchmarks.class_incremental import CLASS_INCREMENTAL
from tasso.data.benchmarks.drawn import ATLAS, STAND_INS
from tasso.data.benchmarks.field import FIELD
from tasso.data.benchmarks.paper import MTIL, MTIL_MINI

BENCHMARKS = {
    benchmark.name: benchmark for benchmark in (MTIL, MTIL_MINI, ATLAS, *STAND_INS, *FIELD, *CLASS_INCREMENTAL)
}

__all__ = ["ATLAS", "BENCHMARKS", "MTIL", "MTIL_MINI", "Benchmark", "DataSet"]
