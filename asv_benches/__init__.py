"""Benchmarks: `benchmarks/` is our own kernels' history (asv), `peers/` sets us beside others.

`history` measures old commits, `publish` makes the history's web pages.
"""
