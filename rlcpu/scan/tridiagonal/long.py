"""Long or periodic tridiagonal systems: how to cut them, lengths of their own, refinement."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.threads import launch
from rlcpu.scan.tridiagonal.input import is_same
from rlcpu.scan.tridiagonal.memory import contiguous
from rlcpu.scan.tridiagonal.partition import Cut, partition_kernels
from rlcpu.scan.tridiagonal.plan import Array, Arrays, Extras, batch_order, make_plans

LONGEST = 2**15  # unknowns from which pivots of whole systems leave the second cache for good
_SHORTEST = 256  # unknowns from which cutting one system pays for its two passes
_CHUNK = 1000  # equations of a chunk: 500 take 10 % longer, 2,000 as long
_LEAST = 32
_CHUNKS = 64  # that there should be, for full registers on several cores


def is_long(out: Array) -> bool:
    """Whether systems (batch..., n) are so few or so long that they are better cut."""
    n, count = out.shape[-1], out.size // max(out.shape[-1], 1)
    return n >= LONGEST or (n >= _SHORTEST and count < VECTOR_BYTES // out.itemsize)


def solve_long(
    arrays: Arrays, extras: Extras, eagerness: float, limit: float, periodic: bool, **options: Any
) -> bool:
    """Solve systems in chunks; see `drive.solve_arrays`.

    Args:
        arrays: (batch..., n), n > 0, any strides; out is overwritten.
        extras: what goes with each system.
        eagerness: see `steps.eliminate`.
        limit: backward error from which checked solutions are refined.
        periodic: whether lower[0] is the coefficient of x[n-1], and upper[n-1] that of x[0].
        options: `num_threads`.
    """
    if extras.lengths is not None:
        return _solve_each_length(arrays, extras, eagerness, limit, periodic, **options)
    if extras.errors is None:
        return _solve_whole(arrays, eagerness, periodic, **options)
    if is_same(arrays.out, arrays.rhs):
        arrays = arrays._replace(rhs=arrays.rhs.copy())
    well = _solve_whole(arrays, eagerness, periodic, **options)
    error = backward_error(arrays, periodic)
    again = error > limit
    if again.any():
        own = [np.array(array[again]) for array in arrays]
        step = np.zeros_like(own[4])
        lacking = residual(Arrays(*own), periodic)[0]
        _solve_whole(Arrays(own[0], own[1], own[2], lacking, step), eagerness, periodic, **options)
        arrays.out[again] += np.where(np.isfinite(step), step, 0)
        error = backward_error(arrays, periodic)
    extras.errors[...] = error.transpose(batch_order(arrays.out.shape, arrays.out.strides))
    return well


def _solve_each_length(
    arrays: Arrays, extras: Extras, eagerness: float, limit: float, periodic: bool, **options: Any
) -> bool:
    """Systems of one length at a time: few are long, and a ring has no end to be cut off."""
    order = batch_order(arrays.out.shape, arrays.out.strides)
    lengths = extras.lengths.transpose(np.argsort(order))
    well, errors = True, np.zeros(lengths.shape, arrays.out.dtype)
    for length in np.unique(lengths):
        some = lengths == length
        lower, diagonal, upper, rhs = (np.array(a[some][:, :length]) for a in arrays[:4])
        x = np.zeros((len(rhs), arrays.out.shape[-1]), rhs.dtype)
        part = Arrays(lower, diagonal, upper, rhs, x[:, :length])
        mine = Extras(None, None if extras.errors is None else np.zeros(len(x), x.dtype))
        if length > 0:
            well &= solve_long(part, mine, eagerness, limit, periodic, **options)
        arrays.out[some] = x
        errors[some] = 0 if mine.errors is None else mine.errors
    if extras.errors is not None:
        extras.errors[...] = errors.transpose(order)
    return well


def _solve_whole(
    arrays: Arrays, eagerness: float, periodic: bool, num_threads: int | None = None
) -> bool:
    n, real = arrays.out.shape[-1], arrays.out.dtype.type
    if n == 1:  # a chunk has a first and a last unknown: another one, zero, is put beside
        padded = [np.concatenate([a, np.zeros_like(a)], -1) for a in arrays[:4]]
        if periodic:
            padded[1][..., 0] += padded[0][..., 0] + padded[2][..., 0]
        padded[0][...] = padded[2][...] = 0
        padded[1][..., 1] = 1
        x = np.zeros_like(padded[3])
        ring = Arrays(padded[0], padded[1], padded[2], padded[3], x)
        well = _solve_whole(ring, eagerness, False, num_threads)
        arrays.out[...] = x[..., :1]
        return well
    fitted = Arrays(*(contiguous(array, -1) for array in arrays))
    cut = np.array(cut_systems(arrays.out, periodic), np.int64)
    wells = [
        launch(partition_kernels(), arrays.out.size, num_threads, plan, cut, real(eagerness))
        for plan in make_plans(fitted)
    ]
    if fitted.out is not arrays.out:
        arrays.out[...] = fitted.out
    return all(wells)


def cut_systems(out: Array, periodic: bool) -> Cut:
    """How to cut systems (batch..., n) of n > 1 unknowns."""
    n, systems = out.shape[-1], out.size // out.shape[-1]
    chunk = min(max(systems * n // _CHUNKS, _LEAST), _CHUNK)
    full = systems >= VECTOR_BYTES // out.itemsize and n < LONGEST
    count = 1 if full else max(n // chunk, 1)
    length, rest = divmod(n, count)
    if rest == 1:
        length, rest = length - 1, rest + count
    return Cut(count, length, rest, int(periodic))


def residual(arrays: Arrays, periodic: bool) -> tuple[Array, Array]:
    """What the equations lack to hold, and the sum of the sizes of their terms."""
    lower, diagonal, upper, rhs, x = arrays
    before, after = np.roll(x, 1, -1), np.roll(x, -1, -1)
    with np.errstate(all="ignore"):
        terms = [lower * before, diagonal * x, upper * after]
        if not periodic:
            terms[0][..., 0] = terms[2][..., -1] = 0
        lacking = rhs - terms[1] - terms[0] - terms[2]
        return lacking, sum(map(np.abs, terms)) + np.abs(rhs)


def backward_error(arrays: Arrays, periodic: bool) -> Array:
    """Backward error of each system (batch...); see `steps.backward_error`."""
    lacking, size = residual(arrays, periodic)
    with np.errstate(all="ignore"):
        return np.max(np.abs(lacking) / np.where(size == 0, 1, size), -1, initial=0)
