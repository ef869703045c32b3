"""Tridiagonal systems of any number and length: whole or in chunks, refined where that is needed.

Systems that are long, or few, are cut into chunks, which are lanes like systems. Two passes over
them: chunks are reduced to two equations each, these are solved system by system, and the chunks
are expanded. The equations are read twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT
from rlcpu.kernels.memory import VECTOR_BYTES
from rlcpu.kernels.threads import launch
from rlcpu.scan.arguments import Array, is_same
from rlcpu.scan.device import for_cores
from rlcpu.scan.layout import AxesOrder, layout_of
from rlcpu.scan.tridiagonal import lanes
from rlcpu.scan.tridiagonal.blocks import LaneInput
from rlcpu.scan.tridiagonal.equations import REST, WIDTH, join
from rlcpu.scan.tridiagonal.panels import GRAIN, parts_of
from rlcpu.scan.tridiagonal.plans import Cut, LaneArguments, even, run
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
    """Arrays of one dtype: (batch..., n) where they come from, (outer, n, inner) of a layout."""

    lower: Array
    diagonal: Array
    upper: Array
    rhs: Array
    out: Array


class Mode(NamedTuple):
    """Choices of a solve."""

    pivoting: bool = True
    periodic: bool = False  # whether lower[0] is about x[n-1], and upper[n-1] about x[0]
    transposed: bool = False  # whether to solve the transposed systems, which are not periodic
    num_threads: int | None = None


def solve_arrays(
    arrays: Arrays, lengths: Array | None, mode: Mode, check: bool = False
) -> tuple[bool, Array | None]:
    """Solve systems, all checked.

    Args:
        arrays: (batch..., n) of any strides; out, which may be rhs, is overwritten.
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
    layout = layout_of_systems(result, in_rows=lengths is not None)
    target = result if layout.target(result) else layout.empty(result.dtype)
    repeats = repeats_of(layout, result.dtype)
    inputs = [layout.arranged(array, repeats) for array in arrays[:4]]
    systems = Arrays._make([*inputs, layout.flat(target)])
    ends = None if lengths is None else np.ravel(lengths)
    cut = _cut(systems.out)
    may_refine = check or (mode.pivoting and (cut is not None or mode.periodic))
    if may_refine and is_same(systems.out, systems.rhs):
        systems = systems._replace(rhs=systems.rhs.copy("K"))
    is_finite, is_doubtful = _solve(systems, ends, mode, cut)
    errors = None
    if check or (may_refine and is_doubtful):
        errors = backward_errors(systems, ends, mode)
        refine(systems, ends, mode, errors)
    if target is not result:
        result[...] = target
    return is_finite, layout.without_steps(errors) if check and errors is not None else None


def layout_of_systems(out: Array, in_rows: bool = False) -> AxesOrder:
    """Return how systems (batch..., n) are computed that are written to `out`.

    Columns where systems are side by side there, and fill a register; else, or if they have to be
    `in_rows`, rows.
    """
    layout: AxesOrder = layout_of(out, out.ndim - 1)
    if in_rows or 1 < layout.inner < VECTOR_BYTES // out.itemsize:
        layout = layout_of(np.empty(out.shape, out.dtype), out.ndim - 1)  # never written
    return layout


def repeats_of(layout: AxesOrder, dtype: Any) -> int:
    """Return how many numbers stand for a row that repeats one: all, of columns a register."""
    return layout.num_steps if layout.inner == 1 else VECTOR_BYTES // dtype.itemsize


def _solve(arrays: Arrays, lengths: Array | None, mode: Mode, cut: Cut | None) -> tuple[bool, bool]:
    """Solve systems once; whether all solutions are finite, and whether a pivot was small."""
    out = arrays.out
    outer, n, inner = out.shape
    inputs = lanes.inputs_of(arrays, mode.transposed)
    cut = cut or (Cut(1, even(n)) if mode.periodic else None)
    call = LaneArguments(cut, mode.periodic, mode.pivoting, lengths, num_threads=mode.num_threads)
    is_doubtful = False
    if cut is None:
        is_finite = run(lanes.SOLVE, inputs, out, call)
    else:
        rests = np.empty((outer * inner, cut.chunks, 2 * REST + 1))
        run(lanes.REDUCE, inputs, out, call._replace(extra_outputs=rests))
        parts = np.maximum(parts_of(_lengths(lengths, out).ravel(), cut.rows), 1)
        ends = np.zeros((outer * inner, cut.chunks, 4))
        launch(JOIN, out.size, mode.num_threads, rests, parts, ends)
        is_finite = run(lanes.EXPAND, inputs, out, call._replace(extra_inputs=ends))
        is_doubtful = bool(np.fmax.reduce(rests[..., -1], None) > DOUBTFUL)
    if lengths is not None:
        out[np.arange(n) >= lengths[:, None]] = 0
    return is_finite, is_doubtful


def _lengths(lengths: Array | None, out: Array) -> Array:
    """Return the number of unknowns of each system (outer, inner)."""
    if lengths is None:
        return np.full((out.shape[0], out.shape[2]), out.shape[1])
    return lengths[:, None]


def cut_systems(count: int, n: int, dtype: Any) -> Cut | None:
    """Return how to cut so many systems of n unknowns; None for whole ones."""
    if n < LONG and (count >= VECTOR_BYTES // dtype.itemsize or n < SHORT):
        return None
    rows = min(max(count * n // CHUNKS, LEAST), MOST)
    return Cut(parts_of(n, rows), rows)


def _cut(out: Array) -> Cut | None:
    return cut_systems(out.shape[0] * out.shape[2], out.shape[1], out.dtype)


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
        arrays: systems (outer, n, inner), and their solutions in `out`.
        lengths: (outer,) int64, unknowns of each system; None for n.
        mode: how they were solved.
        residuals: like out, overwritten with the residual of each equation; None if nobody needs
            them.

    Returns:
        (outer, inner) of the systems' dtype: the smallest relative change of single numbers of each
        system that makes its solution exact (Oettli and Prager 1964, see
        `equations.backward_error`), NaN where there is no solution, or none whose error can be
        computed without overflow.
    """
    out, cut = arrays.out, _cut(arrays.out)
    outer, n, inner = out.shape
    inputs = [*lanes.inputs_of(arrays, mode.transposed), LaneInput(out)]
    chunks = cut.chunks if cut else 1
    around, errors = np.zeros((outer, inner, chunks, 2)), np.empty((outer, inner, chunks))
    if mode.periodic or cut is not None:
        ends = _lengths(lengths, out)
        _look_around(np.moveaxis(out, 1, 2), ends, mode.periodic, cut or Cut(1, n), around)
    kind, target = (lanes.ERRORS, out) if residuals is None else (lanes.RESIDUALS, residuals)
    call = LaneArguments(cut, mode.periodic, lengths=lengths, num_threads=mode.num_threads)
    run(kind, inputs, target, call._replace(extra_inputs=around, extra_outputs=errors))
    worst: Array = errors.max(-1).astype(out.dtype)
    return worst


def _look_around(x: Array, lengths: Array, periodic: bool, cut: Cut, around: Array) -> None:
    """Overwrite (outer, inner, chunks, 2) with the unknowns before and after each chunk, or zero.

    x is (outer, inner, n) and lengths (outer, inner).
    """
    parts = np.maximum(parts_of(lengths, cut.rows), 1)[..., None]
    ends, chunk = lengths[..., None], np.arange(cut.chunks)
    for side in range(2):
        border = ends * (chunk + side) // parts
        inside = (ends > 0) & (chunk < parts) & (periodic | ((border > 0) & (border < ends)))
        at = (border - 1 + side) % np.maximum(ends, 1)
        around[..., side] = np.where(inside, np.take_along_axis(x, at, -1), 0)


def refine(arrays: Arrays, lengths: Array | None, mode: Mode, errors: Array) -> None:
    """Refine solutions whose backward errors (outer, inner) are above `REFINED`.

    Overwrites both.
    """
    limit = REFINED * float(np.finfo(errors.dtype).eps)
    is_inaccurate = errors > limit
    if not is_inaccurate.any():
        return
    # Those that are refined become rows.
    rows = [np.moveaxis(array, 1, 2)[is_inaccurate][..., None] for array in arrays]
    systems = Arrays(*rows)
    ends, change = None if lengths is None else lengths[is_inaccurate[:, 0]], np.empty_like(rows[4])
    left = backward_errors(systems, ends, mode, change)
    for _ in range(STEPS):
        is_wrong = left > limit
        if not is_wrong.any():
            break
        _solve(systems._replace(rhs=change, out=change), ends, mode, _cut(change))
        systems.out[...] += np.where(np.isfinite(change) & is_wrong[:, None], change, 0)
        left = backward_errors(systems, ends, mode, change)
    errors[is_inaccurate] = left[:, 0]
    np.moveaxis(arrays.out, 1, 2)[is_inaccurate] = systems.out[..., 0]
