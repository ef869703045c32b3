"""Benchmarks: `benchmarks/` is our own kernels' history (asv), `peers/` sets us beside others.

`history` measures what has no results yet.
"""
