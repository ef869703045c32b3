"""Tridiagonal systems of any number and length: whole or in chunks, refined where that is needed.

Systems that are long, or few, are cut into chunks, which are lanes like systems. Two passes over
them: chunks are reduced to two equations each, these are solved system by system, and the chunks
are expanded. The equations are read twice.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT
from rlcpu.kernels.memory import VECTOR_BYTES
from rlcpu.kernels.threads import launch
from rlcpu.scan.arguments import Array, is_same
from rlcpu.scan.blocks import GRAIN, run
from rlcpu.scan.device import for_cores
from rlcpu.scan.plans import Cut, Input, batch_order, even, fitted, make_plan, parts_of
from rlcpu.scan.tridiagonal import lanes
from rlcpu.scan.tridiagonal.equations import REST, WIDTH, join
from rlcpu.scan.tridiagonal.status import REFINED

#: Unknowns from which systems are cut. Of 10,000 side by side, whole ones take 0.6 of the time of
#: chunks, though their pivots leave the second cache.
LONG = 2**15
#: The same of so few systems that they do not fill a register.
SHORT = 2**11
#: Equations of a chunk at least and at most, and chunks that there should be, for full registers on
#: several cores.
LEAST, MOST, CHUNKS = 32, 250, 64
#: One over the smallest pivot, of equations of the size 2 to 4, from which solutions are looked at:
#: of 768,000 equations with dominant diagonals it is 3.8, of 1,000 random ones 17.
DOUBTFUL = 4
STEPS = 3  # of refinement at most; one leaves 1e-14


class Arrays(NamedTuple):
    """Arrays (batch..., n) of one dtype."""

    lower: Array
    diagonal: Array
    upper: Array
    rhs: Array
    out: Array


class Mode(NamedTuple):
    """How to solve."""

    pivoting: float = 1.0  # 0 for none
    periodic: bool = False  # whether lower[0] is about x[n-1], and upper[n-1] about x[0]
    transposed: bool = False  # whether to solve the transposed systems, which are not periodic
    num_threads: int | None = None


def solve_arrays(
    arrays: Arrays, lengths: Array | None, mode: Mode, check: bool = False
) -> tuple[bool, Array | None]:
    """Solve systems, all checked.

    Args:
        arrays: any strides; out, which may be rhs, is overwritten.
        lengths: (batch...,) int64, unknowns of each system; None for n.
        mode: how to solve.
        check: whether to refine all solutions that are not accurate; else chunks are refined if a
            pivot is small, since they have less choice of them.

    Returns:
        Whether all solutions are finite; with `check` backward errors (batch...,), else None.
    """
    result = arrays.out
    if result.size == 0:
        return True, np.zeros(result.shape[:-1], result.dtype)
    arrays = Arrays(*map(fitted, arrays))
    cut = cut_systems(result)
    may_refine = check or (mode.pivoting > 0 and (cut is not None or mode.periodic))
    if may_refine and is_same(arrays.out, arrays.rhs):
        arrays = arrays._replace(rhs=arrays.rhs.copy("K"))
    is_finite, is_doubtful = _solve(arrays, lengths, mode, cut)
    errors = None
    if check or (may_refine and is_doubtful):
        errors = backward_errors(arrays, lengths, mode)
        refine(arrays, lengths, mode, errors)
    if arrays.out is not result:
        result[...] = arrays.out
    return is_finite, errors if check else None


def _solve(arrays: Arrays, lengths: Array | None, mode: Mode, cut: Cut | None) -> tuple[bool, bool]:
    """Solve systems once; whether all solutions are finite, and whether a pivot was small."""
    out = arrays.out
    cut = cut or (Cut(1, even(out.shape[-1])) if mode.periodic else None)
    options: Any = {"cut": cut, "periodic": mode.periodic, "lengths": lengths}
    plan = make_plan(lanes.inputs_of(arrays, mode.transposed), out, **options)
    work = plan, out.dtype, mode.pivoting, out.size, mode.num_threads
    if cut is None:
        return run(lanes.SOLVE, *work), False
    systems = out.size // out.shape[-1]
    rests = np.empty((systems, cut.chunks, 2 * REST + 1))
    run(lanes.REDUCE, *work, None, rests)
    parts = np.maximum(parts_of(_ends(lengths, out).reshape(-1), cut.rows), 1)
    ends = np.zeros((systems, cut.chunks, 4))
    launch(JOIN, out.size, mode.num_threads, rests, parts, ends)
    is_finite = run(lanes.EXPAND, *work, ends)
    if lengths is not None:
        out[np.arange(out.shape[-1]) >= lengths[..., None]] = 0
    return is_finite, bool(np.fmax.reduce(rests[..., -1], None) > DOUBTFUL)


def _ends(lengths: Array | None, out: Array) -> Array:
    """Unknowns of each system (batch...,), batch axes in the order of a driver."""
    ends = np.full(out.shape[:-1], out.shape[-1]) if lengths is None else lengths
    return ends.transpose(batch_order(out))


def _by_system(errors: Array, out: Array) -> Array:
    """Return the largest error of each system (batch...,) from those of its chunks."""
    order = batch_order(out)
    shape = [out.shape[i] for i in order]
    return errors.max(-1).reshape(shape).transpose(np.argsort(order)).astype(out.dtype)


def cut_systems(out: Array) -> Cut | None:
    """Return how to cut systems (batch..., n); None for whole ones."""
    n, systems = out.shape[-1], math.prod(out.shape[:-1])
    if n < LONG and (systems >= VECTOR_BYTES // out.itemsize or n < SHORT):
        return None
    rows = min(max(systems * n // CHUNKS, LEAST), MOST)
    return Cut(parts_of(n, rows), rows)


def join_all(rests, parts, ends):
    """Overwrite `ends` with the outer unknowns of all chunks.

    Args:
        rests: (systems, chunks, 13) what `reduce` reports.
        parts: (systems,) chunks of each system.
        ends: (systems, chunks, 4) overwritten with the numbers that `expand` starts from.
    """
    for system in prange(len(parts)):
        count = parts[system]
        pivots = np.empty((count, 2, WIDTH))
        join(rests[system, :count], pivots, ends[system, :count])


JOIN = for_cores(join_all, GRAIN, fastmath=EXACT)


# ---------------------------------------------------------------- refinement


def backward_errors(
    arrays: Arrays, lengths: Array | None, mode: Mode, residuals: Array | None = None
) -> Array:
    """Measure how exact solutions are.

    Args:
        arrays: systems, and their solutions in `out`.
        lengths: (batch...,) int64, unknowns of each system; None for n.
        mode: how they were solved.
        residuals: (batch..., n), overwritten with the residual of each equation; None if nobody
            needs them.

    Returns:
        (batch...,) of the systems' dtype: the smallest relative change of single numbers of each
        system that makes its solution exact (Oettli and Prager 1964, see
        `equations.backward_error`), NaN where there is no solution, or none whose error can be
        computed without overflow.
    """
    out, cut = arrays.out, cut_systems(arrays.out)
    like = out if residuals is None else residuals
    chunks, order = cut.chunks if cut else 1, batch_order(like)
    inputs = [*lanes.inputs_of(arrays, mode.transposed), Input(out)]
    plan = make_plan(inputs, like, cut=cut, periodic=mode.periodic, lengths=lengths)
    around = np.zeros((math.prod(out.shape[:-1]), chunks, 2))
    if mode.periodic or cut is not None:
        ends = _ends(lengths, like)
        _look_around(out.transpose(*order, -1), ends, mode.periodic, cut, around)
    errors = np.empty((math.prod(out.shape[:-1]), chunks))
    kind = lanes.ERRORS if residuals is None else lanes.RESIDUALS
    run(kind, plan, out.dtype, 0.0, out.size, mode.num_threads, around, errors)
    return _by_system(errors, like)


def _look_around(x: Array, lengths: Array, periodic: bool, cut: Cut | None, around: Array) -> None:
    """Overwrite (systems, chunks, 2) with the unknowns before and after each chunk, zero if none.

    x is (batch..., n) and lengths (batch...,), with batch axes in the order of a driver.
    """
    cut = cut or Cut(1, x.shape[-1])
    parts = np.maximum(parts_of(lengths, cut.rows), 1)[..., None]
    ends, chunk = lengths[..., None], np.arange(cut.chunks)
    for side in range(2):
        border = ends * (chunk + side) // parts
        inside = (ends > 0) & (chunk < parts) & (periodic | ((border > 0) & (border < ends)))
        at = (border - 1 + side) % np.maximum(ends, 1)
        numbers = np.take_along_axis(x, at, -1)
        around[..., side] = np.where(inside, numbers, 0).reshape(around.shape[:-1])


def refine(arrays: Arrays, lengths: Array | None, mode: Mode, errors: Array) -> None:
    """Refine solutions whose backward errors (batch...,) are above `REFINED`; overwrites both."""
    limit = REFINED * float(np.finfo(errors.dtype).eps)
    inaccurate = errors > limit
    if not inaccurate.any():
        return
    part: Any = ... if inaccurate.all() else inaccurate
    systems = Arrays(*(array[part] for array in arrays))
    ends, change = None if lengths is None else lengths[part], np.empty_like(systems.out)
    left = backward_errors(systems, ends, mode, change)
    for _ in range(STEPS):
        wrong = left > limit
        if not wrong.any():
            break
        _solve(systems._replace(rhs=change, out=change), ends, mode, cut_systems(change))
        systems.out[...] += np.where(np.isfinite(change) & wrong[..., None], change, 0)
        left = backward_errors(systems, ends, mode, change)
    errors[part] = left
    if part is not ...:
        arrays.out[part] = systems.out
