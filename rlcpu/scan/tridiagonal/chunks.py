"""Tridiagonal systems of any number and length: whole or in chunks, refined where that is needed.

Systems that are long, or few, are cut into chunks, which are lanes like systems. There are two
passes over them: the first reduces chunks to two equations each, which are solved system by system,
and the second solves chunks whose outer unknowns are known. The equations are read twice.

Systems (outer, n, inner) of a layout are rows where `inner` is 1, else columns, side by side in
memory. A `Cut` says into how many chunks they are cut, and of how many rows at most.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.kernels.compiler.compile import EXACT
from rlcpu.kernels.machine.threads import for_cores, launch
from rlcpu.scan.arguments import Array, is_same
from rlcpu.scan.layout import AxesOrder, layout_of
from rlcpu.scan.tridiagonal import lanes
from rlcpu.scan.tridiagonal.blocks import ROW_BYTES, LaneInput
from rlcpu.scan.tridiagonal.equations import EQUATION_NUMBERS, RING_COLUMNS, solve_chunk_ends
from rlcpu.scan.tridiagonal.panels import GRAIN, count_chunks
from rlcpu.scan.tridiagonal.plans import Cut, LaneArguments, cut_systems, even, run
from rlcpu.scan.tridiagonal.status import REFINED

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

    pivoting: bool = True  # whether to exchange equations
    periodic: bool = False  # whether lower[0] belongs to x[n-1], and upper[n-1] to x[0]
    transposed: bool = False  # whether to solve the transposed systems, which are not periodic
    num_threads: int | None = None  # at most so many; None for all


def solve_arrays(
    arrays: Arrays, lengths: Array | None, mode: Mode, check: bool = False
) -> tuple[bool, Array | None]:
    """Solve systems (batch..., n), all checked; overwrites out, which may be rhs.

    Each system has the first of `lengths` (batch...,) unknowns, None for n. With `check` all
    solutions that are not accurate are refined; else chunks if a pivot is small, since they have
    less choice of them.

    Returns:
        Whether all solutions are finite; with `check` backward errors (batch...,), else None.
    """
    result = arrays.out
    if result.size == 0:
        return True, np.zeros(result.shape[:-1], result.dtype) if check else None
    layout = layout_of_systems(result, in_rows=lengths is not None)
    # Where kernels cannot write the result in its place, they write another array.
    target = result if layout.target(result) else layout.empty(result.dtype)
    repeats = repeats_of(layout, result.dtype)
    inputs = [layout.arranged(array, repeats) for array in arrays[:4]]
    systems = Arrays._make([*inputs, layout.flat(target)])
    ends = None if lengths is None else np.ravel(lengths)
    cut = _cut(systems.out)
    may_refine = check or (mode.pivoting and (cut is not None or mode.periodic))
    if may_refine and is_same(systems.out, systems.rhs):  # residuals need rhs
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
    """Return the layout in which systems are computed whose unknowns are written to `out`.

    `out` is (batch..., n). Columns where systems are side by side there, and fill a line; rows
    elsewhere, and with `in_rows`.
    """
    layout: AxesOrder = layout_of(out, out.ndim - 1)
    if in_rows or 1 < layout.inner < ROW_BYTES // out.itemsize:
        layout = layout_of(np.empty(out.shape, out.dtype), out.ndim - 1)  # never written
    return layout


def repeats_of(layout: AxesOrder, dtype: Any) -> int:
    """Return how many numbers stand for a row that repeats one: all, of columns a line."""
    return layout.num_steps if layout.inner == 1 else ROW_BYTES // dtype.itemsize


def _solve(arrays: Arrays, lengths: Array | None, mode: Mode, cut: Cut | None) -> tuple[bool, bool]:
    """Solve systems once, without refining the solutions.

    Returns:
        Whether all solutions are finite, and whether a pivot of a chunk was small.
    """
    out = arrays.out
    outer, n, inner = out.shape
    inputs = lanes.inputs_of(arrays, mode.transposed)
    cut = cut or (Cut(1, even(n)) if mode.periodic else None)
    arguments = LaneArguments(
        cut, mode.periodic, mode.pivoting, lengths, num_threads=mode.num_threads
    )
    is_doubtful = False
    if cut is None:
        is_finite = run(lanes.SOLVE, inputs, out, arguments)
    else:
        equations = np.empty((outer * inner, cut.chunks, 2 * EQUATION_NUMBERS + 1))
        run(lanes.REDUCE, inputs, out, arguments._replace(extra_outputs=equations))
        counts = np.maximum(count_chunks(_lengths(lengths, out).ravel(), cut.rows), 1)
        ends = np.zeros((outer * inner, cut.chunks, 4))
        launch(SOLVE_ENDS, out.size, mode.num_threads, equations, counts, ends)
        is_finite = run(lanes.EXPAND, inputs, out, arguments._replace(extra_inputs=ends))
        # One over the smallest pivot of each chunk; NaN of those that fail is passed over.
        is_doubtful = bool(np.fmax.reduce(equations[..., -1], None) > DOUBTFUL)
    if lengths is not None:
        out[np.arange(n) >= lengths[:, None]] = 0
    return is_finite, is_doubtful


def _lengths(lengths: Array | None, out: Array) -> Array:
    """Return the unknowns of each system, (outer, inner); `lengths` is (outer,) or None."""
    if lengths is None:
        return np.full((out.shape[0], out.shape[2]), out.shape[1])
    return lengths[:, None]


def _cut(out: Array) -> Cut | None:
    return cut_systems(out.shape[0] * out.shape[2], out.shape[1], out.dtype)


def solve_all_ends(equations, counts, ends):
    """Overwrite `ends` with the outer unknowns of all chunks.

    `equations` (systems, chunks, 13) are the extra outputs of `lanes.REDUCE`, `ends` (systems,
    chunks, 4) the extra inputs of `lanes.EXPAND`, `counts` (systems,) the chunks of each system.
    """
    for system in prange(len(counts)):
        count = counts[system]
        pivots = np.empty((count, 2 * RING_COLUMNS))
        solve_chunk_ends(equations[system, :count], pivots, ends[system, :count])


SOLVE_ENDS = for_cores(solve_all_ends, GRAIN, fastmath=EXACT)


# ---------------------------------------------------------------- refinement


def backward_errors(
    arrays: Arrays, lengths: Array | None, mode: Mode, residuals: Array | None = None
) -> Array:
    """Return the backward errors (outer, inner) of the solutions in `arrays.out`.

    That is the smallest relative change of single numbers of each system that makes its solution
    exact (Oettli and Prager 1964, see `equations.backward_error`), NaN where there is no solution,
    or none whose error can be computed without overflow. Arrays are (outer, n, inner), `lengths`
    (outer,) or None. `residuals`, if given, is overwritten with the residual of each equation.
    """
    out, cut = arrays.out, _cut(arrays.out)
    outer, n, inner = out.shape
    inputs = [*lanes.inputs_of(arrays, mode.transposed), LaneInput(out)]
    chunks = cut.chunks if cut else 1
    around, errors = np.zeros((outer, inner, chunks, 2)), np.empty((outer, inner, chunks))
    if mode.periodic or cut is not None:
        ends = _lengths(lengths, out)
        _read_neighbours(np.moveaxis(out, 1, 2), ends, mode.periodic, cut or Cut(1, n), around)
    kind, target = (lanes.ERRORS, out) if residuals is None else (lanes.RESIDUALS, residuals)
    arguments = LaneArguments(
        cut,
        mode.periodic,
        lengths=lengths,
        extra_inputs=around,
        extra_outputs=errors,
        num_threads=mode.num_threads,
    )
    run(kind, inputs, target, arguments)
    worst: Array = errors.max(-1).astype(out.dtype)
    return worst


def _read_neighbours(x: Array, lengths: Array, periodic: bool, cut: Cut, around: Array) -> None:
    """Overwrite `around` with the unknowns before and after each chunk; 0 where there is none.

    `around` is (outer, inner, chunks, 2), `x` has the unknowns (outer, inner, n), of which each
    system has `lengths` (outer, inner); if `periodic`, the last is next to the first.
    """
    num_chunks = np.maximum(count_chunks(lengths, cut.rows), 1)[..., None]  # of each system
    ends, chunk = lengths[..., None], np.arange(cut.chunks)
    for side in range(2):  # before and after; chunk c begins at unknown ends * c // num_chunks
        border = ends * (chunk + side) // num_chunks
        has_neighbour = periodic | ((border > 0) & (border < ends))
        is_there = (ends > 0) & (chunk < num_chunks) & has_neighbour
        at = (border - 1 + side) % np.maximum(ends, 1)
        around[..., side] = np.where(is_there, np.take_along_axis(x, at, -1), 0)


def refine(arrays: Arrays, lengths: Array | None, mode: Mode, errors: Array) -> None:
    """Refine solutions that are not accurate, and overwrite their errors with the new ones.

    `arrays` are systems (outer, n, inner), whose solutions, in `out`, are overwritten; `lengths`
    (outer,) are their unknowns, None for n. Those whose backward `errors` (outer, inner) are above
    `REFINED` epsilons are refined.
    """
    limit = REFINED * float(np.finfo(errors.dtype).eps)
    is_inaccurate = errors > limit
    if not is_inaccurate.any():
        return
    # Those that are refined become rows, (count, n, 1).
    rows = [np.moveaxis(array, 1, 2)[is_inaccurate][..., None] for array in arrays]
    systems = Arrays(*rows)
    # Systems of different lengths are rows already: `inner` is 1.
    row_lengths = None if lengths is None else lengths[is_inaccurate[:, 0]]
    change = np.empty_like(rows[4])  # residuals, and then the corrections that solve for them
    new_errors = backward_errors(systems, row_lengths, mode, change)
    for _ in range(STEPS):
        is_wrong = new_errors > limit
        if not is_wrong.any():
            break
        _solve(systems._replace(rhs=change, out=change), row_lengths, mode, _cut(change))
        systems.out[...] += np.where(np.isfinite(change) & is_wrong[:, None], change, 0)
        new_errors = backward_errors(systems, row_lengths, mode, change)
    errors[is_inaccurate] = new_errors[:, 0]
    np.moveaxis(arrays.out, 1, 2)[is_inaccurate] = systems.out[..., 0]
