"""Exact derivatives of scalar functions: `numbers` in Python, `compiled` in kernels."""
