"""Drivers of what gradients take beside scans and solves: a thread for each number.

Arrays are (outer, num_steps, inner) and C-contiguous but where strides are said to be given.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda


@functools.cache
def fold_kernel(dtype: Any) -> Any:
    """Driver: (source, size, parts, out): every `parts`-th number of each `size`, added up.

    `out` has `parts` sums in place of `size` numbers, of all of which `source` is full.
    """

    @kernel(dtype=dtype, exact=True)
    def fold(source, size, parts, out):
        number = cuda.grid(1)
        if number < out.size:
            group, first = number // parts, number % parts
            total = source[group * size + first]
            for k in range(first + parts, size, parts):
                total += source[group * size + k]
            out[number] = total

    return fold


@functools.cache
def shift_kernel(dtype: Any) -> Any:
    """Driver: (source, num_steps, inner, strides, by, out): the step `by` steps later, 0 beyond.

    `strides` are those of the source, of outer indices, steps and lanes, as int64.
    """
    zero = dtype(0.0)

    @kernel(dtype=dtype, exact=True)
    def shift(source, steps, inner, strides, by, out):
        number = cuda.grid(1)
        if number < out.size:
            row, lane = number // inner, number % inner
            outer, k = row // steps, row % steps + by
            found = zero
            if 0 <= k < steps:
                found = source[outer * strides[0] + k * strides[1] + lane * strides[2]]
            out[number] = found

    return shift


@functools.cache
def tridiagonal_kernel(dtype: Any) -> Any:
    """Driver: (multipliers, x, num_steps, inner, lower, diagonal, upper), the gradients last."""
    zero = dtype(0.0)

    @kernel(dtype=dtype, exact=True)
    def products(multipliers, x, steps, inner, lower, diagonal, upper):
        number = cuda.grid(1)
        if number < x.size:
            k, factor = number // inner % steps, -multipliers[number]
            diagonal[number] = factor * x[number]
            lower[number] = factor * x[number - inner] if k > 0 else zero
            upper[number] = factor * x[number + inner] if k + 1 < steps else zero

    return products


@functools.cache
def linear_kernel(dtype: Any) -> Any:
    """Driver: (h, y, a, initial, num_steps, inner, strides, back, products, firsts).

    Gradients of a linear scan, of all a and of the initial values, from those of b and from y.
    `strides` are a's over outer indices, steps and lanes, then the initial values' over outer
    indices and lanes; `back` is 1 if the first step comes first, else -1.
    """

    @kernel(dtype=dtype, exact=True)
    def multiply(h, y, a, initial, steps, inner, strides, back, products, firsts):
        number = cuda.grid(1)
        if number < h.size:
            row, lane = number // inner, number % inner
            outer, k = row // steps, row % steps
            if 0 <= k - back < steps:
                products[number] = h[number] * y[number - back * inner]
            else:
                start = initial[outer * strides[3] + lane * strides[4]]
                factor = a[outer * strides[0] + k * strides[1] + lane * strides[2]]
                products[number] = h[number] * start
                firsts[outer * inner + lane] = factor * h[number]

    return multiply


def _make_ratio(dtype: Any) -> Any:
    """Function: exp(smaller - larger), 0 where the smaller one is -inf."""
    nothing, zero = dtype(-math.inf), dtype(0.0)

    def ratio(smaller: Any, larger: Any) -> Any:
        return zero if smaller == nothing else dtype(math.exp(smaller - larger))

    return ratio


@functools.cache
def decay_kernel(dtype: Any) -> Any:
    """Driver: (y, num_steps, inner, by, decay): exp of y less the y `by` steps later, 0 beyond."""
    ratio, zero = _make_ratio(dtype), dtype(0.0)

    @kernel(dtype=dtype, exact=True)
    def fall(y, steps, inner, by, decay):
        number = cuda.grid(1)
        if number < y.size:
            k = number // inner % steps + by
            inside = 0 <= k < steps
            decay[number] = ratio(y[number], y[number + by * inner]) if inside else zero

    return fall


@functools.cache
def weigh_kernel(dtype: Any) -> Any:
    """Driver: (x, y, h): multiplies h by exp(x - y)."""
    ratio = _make_ratio(dtype)

    @kernel(dtype=dtype, exact=True)
    def weigh(x, y, h):
        number = cuda.grid(1)
        if number < x.size:
            h[number] *= ratio(x[number], y[number])

    return weigh
