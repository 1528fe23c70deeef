"""Speed, as ratios within one run: steps, evaluation, pictures, and what they add up to."""

from tasso.bench.evaluation import bench_eval
from tasso.bench.step import bench_step
from tasso.bench.whole import bench_run

__all__ = ["bench_eval", "bench_run", "bench_step"]
