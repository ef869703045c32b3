"""The kernel that suits the memory of some tridiagonal systems; copies of what suits none."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.threads import Kernels, launch
from rlcpu.scan.tridiagonal.columns import column_kernels
from rlcpu.scan.tridiagonal.long import is_long, solve_long
from rlcpu.scan.tridiagonal.memory import contiguous
from rlcpu.scan.tridiagonal.plan import (
    OUTERS,
    PLACES,
    Array,
    Arrays,
    Extras,
    batch_order,
    make_plans,
)
from rlcpu.scan.tridiagonal.rows import row_kernels

#: `eagerness` of each method, see `steps.eliminate`.
METHODS = {"pivot": 1.0, "thomas": 0.0}
#: Backward error, in multiples of the dtype's epsilon, from which a checked solution is refined:
#: 3 of 1,000 random systems of 100 unknowns are beyond.
REFINED = 2**7


class Mode(NamedTuple):
    """How to solve: `METHODS`' name of the elimination, and whether systems are periodic."""

    method: str
    periodic: bool = False


def solve_arrays(
    arrays: Arrays, extras: Extras, mode: Mode, num_threads: int | None = None
) -> bool:
    """Solve systems, all checked.

    Args:
        arrays: (batch..., n) of one dtype, any strides; out is overwritten.
        extras: what goes with each system.
        mode: how to solve.
        num_threads: of the kernels; None for all.

    Returns:
        Whether all solutions are finite; those that are not are NaN or infinite in out[..., 0].
    """
    if arrays.out.size == 0:
        return True
    real, eagerness = arrays.out.dtype.type, METHODS[mode.method]
    limit = REFINED * np.finfo(real).eps if extras.errors is not None else -1.0
    if mode.periodic or is_long(arrays.out):
        how = (eagerness, limit, mode.periodic)
        return solve_long(arrays, extras, *how, num_threads=num_threads)
    kernels, fitted = _fit(arrays, extras)
    settings = real(eagerness), real(limit)
    well = [
        launch(kernels, arrays.out.size, num_threads, *_arguments(kernels, plan), *settings)
        for plan in make_plans(fitted, extras)
    ]
    if fitted.out is not arrays.out and not np.may_share_memory(fitted.out, arrays.out):
        arrays.out[...] = fitted.out
    return all(well)


def _arguments(kernels: Kernels, plan: Array) -> tuple[Any, ...]:
    return (plan, *plan[PLACES:OUTERS].tolist()) if kernels is row_kernels() else (plan,)


def solve_plain(arrays: Arrays, method: str, num_threads: int | None) -> bool | None:
    """The same of C-contiguous arrays of one shape and dtype, the last axis being the systems'.

    It takes a quarter of the time of a small call, and refuses (None, with nothing written) all
    other arrays, and results that share memory with an input but rhs.
    """
    lower, diagonal, upper, rhs, out = arrays
    shape, strides, dtype = rhs.shape, rhs.strides, rhs.dtype
    for array in (lower, diagonal, upper, out):
        if array.shape != shape or array.strides != strides or array.dtype is not dtype:
            return None
    plan = _plain_plan(shape, strides, dtype)
    if plan is None or not out.flags.writeable:
        return None
    places = [array.__array_interface__["data"][0] for array in arrays]
    last, num_bytes = places[4], rhs.nbytes
    for place in places:
        apart = place == last or abs(place - last) >= num_bytes
        if place % dtype.itemsize or not apart:
            return None
    if last in places[:3]:
        return None
    settings = _SETTINGS[dtype.char, method]
    return bool(launch(row_kernels(), rhs.size, num_threads, plan, *places, *settings))


@functools.lru_cache(maxsize=256)
def _plain_plan(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Array | None:
    """A plan without addresses, None if arrays are not plain."""
    empty = np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides, writeable=False)
    real = dtype.char in "fd" and dtype.isnative and len(shape) > 0
    if (
        not real
        or not empty.flags.c_contiguous
        or 0 in shape
        or _beside(empty) is not None
        or is_long(empty)
    ):
        return None
    return next(make_plans(Arrays(*[empty] * 5)))


#: `eagerness` and the limit for no check, by dtype and method.
_SETTINGS = {
    (real.char, method): (real.type(eagerness), real.type(-1.0))
    for real in map(np.dtype, (np.float32, np.float64))
    for method, eagerness in METHODS.items()
}


def _fit(arrays: Arrays, extras: Extras) -> tuple[Kernels, Arrays]:
    """Kernels, and the arrays as they take them."""
    out = arrays.out
    beside = _beside(out)
    if beside is not None and extras.errors is None:
        return column_kernels(), Arrays(*(contiguous(array, beside) for array in arrays))
    if out.strides[-1] == -out.itemsize and extras.lengths is None:
        arrays = _turned(arrays)
    return row_kernels(), Arrays(*(contiguous(array, -1) for array in arrays))


def _beside(out: Array) -> int | None:
    """The batch axis along which systems lie next to each other, None if unknowns do."""
    order = [i for i in batch_order(out.shape, out.strides) if out.shape[i] > 1]
    if not order or out.strides[order[-1]] != out.itemsize:
        return None
    return order[-1] if out.shape[-1] == 1 or out.strides[-1] != out.itemsize else None


def _turned(arrays: Arrays) -> Arrays:
    """The systems numbered from the other end."""
    lower, diagonal, upper, rhs, out = (array[..., ::-1] for array in arrays)
    return Arrays(upper, diagonal, lower, rhs, out)
