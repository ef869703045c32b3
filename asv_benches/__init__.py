"""Benchmarks: `benchmarks/` is our own kernels' history (asv), `peers/` sets us beside others."""
