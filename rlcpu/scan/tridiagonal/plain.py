"""The ordinary call, of C-contiguous arrays of one shape: 4 x 16 take 3 us in place of 28."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlcpu.kernels.compile import EXACT, kernel
from rlcpu.kernels.threads import launch
from rlcpu.scan.tridiagonal.drive import METHODS
from rlcpu.scan.tridiagonal.long import is_long
from rlcpu.scan.tridiagonal.plan import Array, Arrays, make_plans
from rlcpu.scan.tridiagonal.rows import row_kernels

#: Numbers of a result up to which it is computed beside `out`, and copied there once all of it is
#: finite. In the caches the copy takes 5 to 15 % of the time; in memory it would take 40 %, and a
#: search for NaN beforehand would read four arrays of the five once more.
SPARED = 2**14


@kernel(fastmath=EXACT)
def _look(lower, diagonal, upper, rhs, out, target):  # type: ignore[no-untyped-def]
    """Addresses of the inputs and of `target`, all 0 if one is misaligned or `out` overlaps.

    From Python, addresses take 0.9 us each; from here, all of them take 0.7.
    """
    places = (
        *(np.int64(lower.ctypes.data), np.int64(diagonal.ctypes.data)),
        *(np.int64(upper.ctypes.data), np.int64(rhs.ctypes.data), np.int64(target.ctypes.data)),
    )
    last, size = np.int64(out.ctypes.data), out.size * out.itemsize
    fits = True
    for i in range(4):
        gap = abs(places[i] - last)
        fits &= places[i] % out.itemsize == 0 and (gap >= size or (i == 3 and gap == 0))
    return places if fits else (0, 0, 0, 0, 0)


def solve_plain(
    lower: Any, diagonal: Any, upper: Any, rhs: Any, out: Any, method: str, num_threads: int | None
) -> Array | None:
    """Solve systems along the last axis of C-contiguous arrays of one shape and dtype.

    Args:
        lower: see `solve_tridiagonal`; the first five arguments may be anything.
        diagonal: coefficients on the diagonal.
        upper: coefficients above the diagonal.
        rhs: right-hand sides.
        out: overwritten with the result, or None for a new array.
        method: of `METHODS`.
        num_threads: at most so many, checked; None for all.

    Returns:
        The result, all of it finite. None if the arguments are not as above or if a system fails;
        the inputs are then as they were, and so is `out` if it is of at most `SPARED` numbers.
    """
    result = np.empty_like(rhs) if out is None and type(rhs) is np.ndarray else out
    if not _are_alike(lower, diagonal, upper, rhs, result):
        return None
    plan, target = _plan(rhs.shape, rhs.dtype), result
    if plan is None:
        return None
    if out is not None and out.size <= SPARED:
        target = np.empty_like(out)
    elif out is rhs:
        return None
    places = _look(lower, diagonal, upper, rhs, result, target)
    if not places[0]:
        return None
    settings = _SETTINGS[rhs.dtype.char, method]
    if not launch(row_kernels(), rhs.size, num_threads, plan, *places, *settings):
        return None
    if target is not result:
        result[...] = target
    return result


def _are_alike(lower: Any, diagonal: Any, upper: Any, rhs: Any, result: Any) -> bool:
    """Whether all are C-contiguous arrays of one shape and dtype, and the last one is writable."""
    return (
        type(lower) is type(diagonal) is type(upper) is type(rhs) is type(result) is np.ndarray
        and lower.shape == diagonal.shape == upper.shape == rhs.shape == result.shape
        and lower.dtype is diagonal.dtype is upper.dtype is rhs.dtype is result.dtype
        and lower.flags.c_contiguous
        and diagonal.flags.c_contiguous
        and upper.flags.c_contiguous
        and rhs.flags.c_contiguous
        and result.flags.carray
    )


@functools.lru_cache(maxsize=256)
def _plan(shape: tuple[int, ...], dtype: Any) -> Array | None:
    """A plan without addresses, None for systems that the kernels of rows do not take."""
    if dtype.char not in "fd" or not dtype.isnative or not shape or 0 in shape or shape[-1] == 1:
        return None
    like = np.empty(shape, dtype)  # memory that is not touched is not there
    return None if is_long(like) else next(make_plans(Arrays(*[like] * 5)))


#: `eagerness` and the limit for no check, by dtype and method.
_SETTINGS = {
    (real.char, method): (real.type(eagerness), real.type(-1.0))
    for real in map(np.dtype, (np.float32, np.float64))
    for method, eagerness in METHODS.items()
}
