"""Many runs: sweeps, the plans of the paper, benchmarks of speed."""
