"""Gradients of tridiagonal solves, by the implicit function theorem."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import prange

from rlcpu.kernels.compiler.compile import EXACT, inline
from rlcpu.kernels.machine.threads import check_num_threads, for_cores, launch
from rlcpu.scan.arguments import (
    Array,
    axis_last,
    backend_of,
    check_alike,
    check_axis,
    check_broadcast,
    check_out,
    check_shape,
    check_unknowns,
    repeated,
    sum_to_shape,
)
from rlcpu.scan.tridiagonal.chunks import Arrays, Mode, solve_arrays
from rlcpu.scan.tridiagonal.status import SingularSystemError, status_of


class TridiagonalGradients(NamedTuple):
    """Gradients from `tridiagonal_vjp`, each of its argument's shape.

    Attributes:
        lower: zero where the coefficient is ignored; summed where it was repeated, as all are.
        diagonal: with respect to the diagonal.
        upper: zero where the coefficient is ignored.
        rhs: with respect to the right-hand sides, of x's shape.
    """

    lower: Any
    diagonal: Any
    upper: Any
    rhs: Any


def tridiagonal_vjp(
    lower: npt.ArrayLike,
    diagonal: npt.ArrayLike,
    upper: npt.ArrayLike,
    x: npt.ArrayLike,
    grad: npt.ArrayLike,
    *,
    axis: int = -1,
    out: TridiagonalGradients | None = None,
    num_threads: int | None = None,
) -> TridiagonalGradients:
    """Return gradients of a scalar with respect to the arguments of `solve_tridiagonal`.

    With g its gradient with respect to x, lambda solves the transposed systems with g on the right:
    it is the gradient with respect to the right-hand sides, -lambda[k] * x[k] that with respect to
    diagonal[k], -lambda[k] * x[k-1] to lower[k], and -lambda[k] * x[k+1] to upper[k].

    Args:
        lower: as it was given to `solve_tridiagonal`.
        diagonal: as it was given.
        upper: as it was given.
        x: what it returned.
        grad: of x's shape and dtype, gradient with respect to it.
        axis: of the unknowns, as it was given.
        out: arrays of the gradients' shapes and dtype, overwritten with them; none may overlap
            another one or an argument. New memory takes 100,000 x 100 float64 from 27 to 41 ms.
        num_threads: at most so many threads.

    Returns:
        Gradients with respect to lower, diagonal, upper and the right-hand sides; `out` if given.

    Raises:
        TypeError: an array is of another dtype than x, or out is no `TridiagonalGradients`.
        ValueError: a shape does not broadcast to x's, or an argument is out of range.
        SingularSystemError: a transposed system has no finite solution; the content of `out` is
            undefined then.

    Example:
        >>> tridiagonal_vjp([0.0, 1.0], [2.0, 2.0], [1.0, 0.0], [1.0, 1.0], [3.0, 3.0]).rhs
        array([1., 1.])
    """
    backend = backend_of("tridiagonal", x, grad)
    named = {"x": x, "grad": grad, "lower": lower, "diagonal": diagonal, "upper": upper}
    x, grad, *others = check_alike(named, backend)
    check_shape("grad", grad, x.shape)
    check_unknowns({"x": x, **dict(zip(("lower", "diagonal", "upper"), others, strict=True))}, axis)
    axis = check_axis(axis, x.shape, "x")
    num_threads = check_num_threads(num_threads)
    for name, array in zip(("lower", "diagonal", "upper"), others, strict=True):
        check_broadcast(name, array, x.shape)
    arrays = [*others, x, grad]
    results = _results(out, arrays, backend)
    if x.size:
        _overwrite(results, arrays, axis, num_threads, backend)
    else:
        for result in results:
            result[...] = 0
    return results if out is None else out


def _overwrite(
    results: TridiagonalGradients, arrays: Any, axis: int, num_threads: int | None, backend: Any
) -> None:
    """Overwrite `results` with the gradients; `arrays` are lower, diagonal, upper, x and grad."""
    *coefficients, x, grad = arrays
    # Kernels write contiguous arrays of x's shape: others are computed apart, and summed or copied.
    full = TridiagonalGradients(
        *(r if r.flags.c_contiguous and r.shape == x.shape else _like(x, backend) for r in results)
    )
    multipliers = full.rhs
    whole = [repeated(array, x.shape, backend) for array in coefficients]
    systems = Arrays(*(axis_last(array, axis) for array in (*whole, grad, multipliers)))
    if backend is None:
        is_finite, _ = solve_arrays(systems, None, Mode(transposed=True, num_threads=num_threads))
        if not is_finite:
            raise SingularSystemError(status_of(systems, lengths=None, periodic=False))
        arrays = multipliers, np.ascontiguousarray(x), full.lower, full.diagonal, full.upper
        flat = [array.reshape(-1) for array in arrays]
        launch(PRODUCTS, x.size, num_threads, *flat, math.prod(x.shape[axis + 1 :]))
    else:
        backend.solve_transposed(systems, axis)
        backend.multiply(full, x, axis)
    before = (slice(None),) * axis
    full.lower[(*before, 0)] = full.upper[(*before, -1)] = 0
    for result, computed in zip(results, full, strict=True):
        if result is not computed:
            result[...] = sum_to_shape(computed, result.shape)


# ---------------------------------------------------------------- products

_PART = 4096  # numbers that a core takes at a time: seven arrays of them fit the second cache


@inline(exact=True)
def _multiply(multipliers, x, result):
    """Overwrite a part of a gradient with -multipliers * x, of one size; a multiplier 0 gives 0."""
    for i in range(result.size):
        product = -multipliers[i] * x[i]
        result[i] = product if multipliers[i] != 0.0 else 0.0


def _products(multipliers, x, lower, diagonal, upper, inner):
    """Overwrite the gradients of coefficients with -multipliers times x and its neighbours.

    All arrays are flat; neighbours are `inner` numbers apart. Numbers of `lower` and `upper` whose
    neighbour is in another system are wrong, or not written.
    """
    size = x.size
    for part in prange((size + _PART - 1) // _PART):
        begin, end = part * _PART, min(size, part * _PART + _PART)
        _multiply(multipliers[begin:end], x[begin:end], diagonal[begin:end])
        first, last = max(begin, inner), min(end, size - inner)
        if first < end:
            _multiply(multipliers[first:end], x[first - inner : end - inner], lower[first:end])
        if begin < last:
            _multiply(multipliers[begin:last], x[begin + inner : last + inner], upper[begin:last])


_GRAIN = 2**15  # numbers from which a second core is worth waking
PRODUCTS = for_cores(_products, _GRAIN, fastmath=EXACT)


# ---------------------------------------------------------------- results


def _like(array: Array, backend: Any) -> Any:
    new = np.empty if backend is None else backend.empty
    return new(array.shape, array.dtype)


def _results(out: Any, arrays: list[Array], backend: Any) -> TridiagonalGradients:
    """Return arrays for the gradients: new ones, or those of `out`, checked."""
    if out is None:
        return TridiagonalGradients(*(_like(array, backend) for array in arrays[:4]))
    if not isinstance(out, TridiagonalGradients):
        raise TypeError(f"out: expected TridiagonalGradients, got {type(out).__name__}")
    taken = list(arrays)
    for name, result, like in zip(out._fields, out, arrays, strict=False):
        taken.append(check_out(f"out.{name}", result, like, taken, backend=backend))
    return TridiagonalGradients(*taken[len(arrays) :])
