"""Long tridiagonal systems, or few periodic ones: how to cut them, their lengths, refinement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.threads import launch
from rlcpu.scan.tridiagonal.input import is_same
from rlcpu.scan.tridiagonal.memory import contiguous
from rlcpu.scan.tridiagonal.partition import Cut, expanders, reducers
from rlcpu.scan.tridiagonal.plan import (
    INNER,
    OUTER,
    REFINED,
    Array,
    Arrays,
    Extras,
    batch_order,
    make_plans,
)
from rlcpu.scan.tridiagonal.residual import residual
from rlcpu.scan.tridiagonal.ring_steps import DOUBTFUL

LONGEST = 2**15  # unknowns from which pivots of whole systems leave the second cache for good
_SHORTEST = 256  # unknowns from which cutting one system pays for its two passes
_CHUNK = 1000  # equations of a chunk: 500 take 10 % longer, 2,000 as long
_LEAST = 32
_CHUNKS = 64  # that there should be, for full registers on several cores
_STEPS = 3  # of refinement at most; one leaves 1e-14


class How(NamedTuple):
    """How to solve systems.

    Attributes:
        eagerness: see `steps.eliminate`.
        periodic: whether lower[0] is the coefficient of x[n-1], and upper[n-1] that of x[0].
        num_threads: of the kernels; None for all.
        spare: whether to write nothing if a system is singular or holds NaN or infinity.
    """

    eagerness: float
    periodic: bool
    num_threads: int | None
    spare: bool = False


def is_long(out: Array) -> bool:
    """Whether systems (batch..., n) are so few or so long that they are better cut."""
    n, count = out.shape[-1], out.size // max(out.shape[-1], 1)
    return n >= LONGEST or (n >= _SHORTEST and count < VECTOR_BYTES // out.itemsize)


def solve_long(
    arrays: Arrays,
    extras: Extras,
    eagerness: float,
    limit: float,
    periodic: bool,
    num_threads: int | None = None,
) -> bool:
    """Solve systems in chunks; see `drive.solve_arrays`, `solve_cut` and `How`."""
    return bool(solve_cut(arrays, extras, limit, How(eagerness, periodic, num_threads)))


def solve_cut(arrays: Arrays, extras: Extras, limit: float, how: How) -> bool | None:
    """Solve systems in chunks.

    Args:
        arrays: (batch..., n), n > 0, any strides; out is overwritten.
        extras: what goes with each system.
        limit: backward error from which checked solutions are refined.
        how: how to solve.

    Returns:
        Whether all solutions are finite; None if nothing was written.
    """
    if extras.lengths is not None:
        return _solve_each_length(arrays, extras, limit, how)
    result = arrays.out
    if result.shape[-1] == 1:
        arrays, how = _padded(arrays, how.periodic), how._replace(periodic=False)
    fitted = Arrays(*(contiguous(array, -1) for array in arrays))
    if extras.errors is None:
        limit = REFINED * float(np.finfo(result.dtype).eps)
    well = _solve_accurately(fitted, extras.errors, limit, how)
    if fitted.out is not result and well is not None:
        result[...] = fitted.out[..., : result.shape[-1]]
    return well


def _padded(arrays: Arrays, periodic: bool) -> Arrays:
    """Systems of one unknown with another one, zero: a chunk has a first and a last unknown."""
    padded = [np.concatenate([a, np.zeros_like(a)], -1) for a in arrays]
    if periodic:
        padded[1][..., 0] += padded[0][..., 0] + padded[2][..., 0]
    padded[0][...] = padded[2][...] = 0
    padded[1][..., 1] = 1
    return Arrays(*padded)


def _solve_each_length(arrays: Arrays, extras: Extras, limit: float, how: How) -> bool | None:
    """Systems of one length at a time: few are long, and a ring has no end to be cut off."""
    order = batch_order(arrays.out.shape, arrays.out.strides)
    lengths = extras.lengths.transpose(np.argsort(order))
    x, errors = np.zeros_like(arrays.out), np.zeros(lengths.shape, arrays.out.dtype)
    wells = []
    for length in np.unique(lengths[lengths > 0]):
        some = lengths == length
        lower, diagonal, upper, rhs = (np.array(a[some][:, :length]) for a in arrays[:4])
        part = Arrays(lower, diagonal, upper, rhs, np.zeros_like(rhs))
        mine = Extras(None, None if extras.errors is None else np.zeros(len(part.out), x.dtype))
        wells.append(solve_cut(part, mine, limit, how))
        x[some, :length] = part.out
        errors[some] = 0 if mine.errors is None else mine.errors
    if None in wells:
        return None
    arrays.out[...] = x
    if extras.errors is not None:
        extras.errors[...] = errors.transpose(order)
    return all(wells)


def _solve_accurately(arrays: Arrays, errors: Array | None, limit: float, how: How) -> bool | None:
    """Solve systems, numbers of each next to each other, and refine what is not accurate.

    Args:
        arrays: (batch..., n), n > 1.
        errors: overwritten with backward errors, in the order of `batch_order`; None for no check.
        limit: backward error from which solutions are refined.
        how: how to solve.
    """
    passes = [_Passes(plan, arrays.out, how) for plan in make_plans(arrays)]
    largest = max(one.reduce() for one in passes)
    if how.spare and not all(np.isfinite(one.ends).all() for one in passes):
        return None
    doubtful = errors is not None or (largest > DOUBTFUL and how.eagerness > 0)
    if doubtful and is_same(arrays.out, arrays.rhs):
        arrays = arrays._replace(rhs=arrays.rhs.copy())
    wells = [one.expand() for one in passes]
    if doubtful:

        def solve(own: Arrays) -> None:
            for one in [_Passes(plan, own.out, how) for plan in make_plans(own)]:
                one.reduce()
                one.expand()

        found = refine(arrays, limit, how.periodic, how.num_threads, solve)
        if errors is not None:
            errors[...] = found.transpose(batch_order(arrays.out.shape, arrays.out.strides))
    return all(wells)


class _Passes:
    """The two passes over the systems of one plan."""

    def __init__(self, plan: Array, out: Array, how: How) -> None:
        cut, systems = cut_systems(out, how.periodic), int(plan[OUTER] * plan[INNER])
        self.ends = np.empty((systems, cut.count + (cut.rest > 0), 2))
        self._work, self._num_threads = systems * out.shape[-1], how.num_threads
        self._arguments = plan, np.array(cut, np.int64), out.dtype.type(how.eagerness), self.ends

    def reduce(self) -> float:
        """Find the ends of all chunks; one over the smallest pivot."""
        return float(launch(reducers(), self._work, self._num_threads, *self._arguments))

    def expand(self) -> bool:
        """Write the solutions; whether all are finite."""
        return bool(launch(expanders(), self._work, self._num_threads, *self._arguments))


def refine(
    arrays: Arrays,
    limit: float,
    periodic: bool,
    num_threads: int | None,
    solve: Callable[[Arrays], object],
) -> Array:
    """Refine solutions whose backward error is above the limit; the errors of all (batch...).

    Args:
        arrays: (batch..., n), numbers of a system next to each other; out is overwritten.
        limit: backward error.
        periodic: whether systems are.
        num_threads: of the kernels; None for all.
        solve: writes to out the solutions of some systems, in C order.
    """
    lacking, errors = residual(arrays, periodic, num_threads)
    for _ in range(_STEPS):
        again = errors > limit
        if not again.any():
            break
        some: Any = ... if again.all() else again
        lower, diagonal, upper, rhs = (array[some] for array in (*arrays[:3], lacking))
        own = Arrays(lower, diagonal, upper, rhs, np.zeros_like(rhs))
        solve(own)
        arrays.out[some] += np.where(np.isfinite(own.out), own.out, 0)
        lacking, errors = residual(arrays, periodic, num_threads)
    return errors


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
