"""Driver of the products of unknowns that gradients of tridiagonal solves are made of."""

from __future__ import annotations

import functools
from typing import Any

from numba import prange

from rlcpu.kernels.compile import EXACT, inline_exact, kernel
from rlcpu.kernels.threads import Kernels

PART = 4096  # numbers that a core takes at a time: seven arrays of them fit the second cache
GRAIN = 2**15  # numbers from which a second core is worth waking


@inline_exact
def _multiply(multipliers, x, result):  # type: ignore[no-untyped-def]
    for i in range(result.size):
        result[i] = -multipliers[i] * x[i]


@inline_exact
def _clear(result, begin, end, period, first, inner):  # type: ignore[no-untyped-def]
    """Zeros from `first` on of every period, `inner` of them, between begin and end."""
    for start in range(begin // period * period + first, end, period):
        for i in range(max(start, begin), min(start + inner, end)):
            result[i] = 0.0


def _make(parallel: bool) -> Any:
    """Driver: (lambda, x, gradients of lower, diagonal and upper, unknowns, inner).

    All arrays are (outer * unknowns * inner,).
    """

    @kernel(parallel=parallel, fastmath=EXACT)
    def products(multipliers, x, lower, diagonal, upper, n, inner):  # type: ignore[no-untyped-def]
        size = x.size
        for part in prange((size + PART - 1) // PART):
            begin, end = part * PART, min(size, part * PART + PART)
            _multiply(multipliers[begin:end], x[begin:end], diagonal[begin:end])
            first, last = max(begin, inner), min(end, size - inner)
            if first < end:
                low = x[first - inner : end - inner]
                _multiply(multipliers[first:end], low, lower[first:end])
            if begin < last:
                high = x[begin + inner : last + inner]
                _multiply(multipliers[begin:last], high, upper[begin:last])
            _clear(lower, begin, end, n * inner, 0, inner)
            _clear(upper, begin, end, n * inner, (n - 1) * inner, inner)

    return products


@functools.cache
def product_kernels() -> Kernels:
    """Drivers of the products."""
    return Kernels(_make(False), _make(True), GRAIN)
