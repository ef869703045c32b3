"""Gradients of tridiagonal solves, by the implicit function theorem."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.threads import check_num_threads, launch
from rlcpu.scan.checks import check_axis, check_broadcast, check_out, check_real, check_shape
from rlcpu.scan.device import is_on_device, on_device
from rlcpu.scan.tridiagonal.drive import solve_transposed
from rlcpu.scan.tridiagonal.plan import Array, Arrays
from rlcpu.scan.tridiagonal.products import product_kernels
from rlcpu.scan.tridiagonal.solve import solve_tridiagonal


class TridiagonalGradients(NamedTuple):
    """What `tridiagonal_vjp` returns: gradients, each of its argument's shape.

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
    """Gradients of a scalar with respect to the arguments of `solve_tridiagonal`.

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
        SingularSystemError: a transposed system has no finite solution.

    Example:
        >>> tridiagonal_vjp([0.0, 1.0], [2.0, 2.0], [1.0, 0.0], [1.0, 1.0], [3.0, 3.0]).rhs
        array([1., 1.])
    """
    if is_on_device(x) or is_on_device(grad):
        return on_device("tridiagonal_vjp", locals())
    x = check_real("x", x)
    grad = check_shape("grad", check_real("grad", grad, x.dtype), x.shape)
    axis = check_axis(axis, x.shape, "x")
    num_threads = check_num_threads(num_threads)
    names = ("lower", "diagonal", "upper")
    given = [
        check_broadcast(name, check_real(name, array, x.dtype), x.shape)
        for name, array in zip(names, (lower, diagonal, upper), strict=True)
    ]
    arrays = (*given, x, grad)
    results = _new(given, x) if out is None else _check_results(out, arrays)
    if x.size:
        _overwrite(results, arrays, axis, num_threads)
    else:
        for result in results:
            result[...] = 0
    return results


def _overwrite(
    results: TridiagonalGradients, arrays: Any, axis: int, num_threads: int | None
) -> None:
    """The gradients of arguments that have been checked."""
    *given, x, grad = arrays
    # Kernels write whole contiguous arrays; what was repeated is added up, what is not is copied.
    full = [r if r.flags.c_contiguous and r.shape == x.shape else _like(x) for r in results]
    whole = [np.broadcast_to(a, x.shape) for a in given]
    _solve_transposed(whole, np.ascontiguousarray(grad), full[3], axis, num_threads)
    flat = [a.reshape(-1) for a in (full[3], np.ascontiguousarray(x), *full[:3])]
    inner = math.prod(x.shape[axis + 1 :])
    launch(product_kernels(), x.size, num_threads, *flat, x.shape[axis], inner)
    for result, computed in zip(results, full, strict=True):
        if result is not computed:
            np.copyto(result, summed_to(computed, result.shape))


# ---------------------------------------------------------------- results


def _like(array: Array) -> Array:
    return np.empty(array.shape, array.dtype)


def _new(given: list[Array], x: Array) -> TridiagonalGradients:
    lower, diagonal, upper = map(_like, given)
    return TridiagonalGradients(lower, diagonal, upper, _like(x))


def _check_results(out: Any, arrays: Any) -> TridiagonalGradients:
    if not isinstance(out, TridiagonalGradients):
        found = type(out).__name__
        raise TypeError(f"out: expected TridiagonalGradients, got {found}")
    taken = list(arrays)
    for name, result, like in zip(out._fields, out, arrays, strict=False):
        check_out(f"out.{name}", result, like, taken)
        taken.append(result)
    return out


# ---------------------------------------------------------------- the transposed systems


def transposed(lower: Array, upper: Array, axis: int) -> tuple[Array, Array]:
    """Lower and upper coefficients of the transposed systems, new arrays."""
    below, above = np.empty_like(upper), np.empty_like(lower)
    views = [np.moveaxis(a, axis, 0) for a in (lower, upper, below, above)]
    views[2][1:], views[3][:-1] = views[1][:-1], views[0][1:]
    views[2][:1], views[3][-1:] = 0, 0
    return below, above


def _solve_transposed(
    whole: list[Array], grad: Array, out: Array, axis: int, num_threads: int | None
) -> None:
    lower, diagonal, upper = whole
    arrays = Arrays(*(np.moveaxis(a, axis, -1) for a in (*whole, grad, out)))
    if solve_transposed(arrays, num_threads):
        return
    below, above = transposed(lower, upper, axis)
    options: dict[str, Any] = {"axis": axis, "num_threads": num_threads}
    solve_tridiagonal(below, diagonal, above, grad, out=out, **options)


def summed_to(array: Array, shape: tuple[int, ...]) -> Array:
    """The sums over the axes along which an array of the shape was repeated."""
    array = array.sum(axis=tuple(range(array.ndim - len(shape))))
    repeated = [i for i, n in enumerate(shape) if n == 1 and array.shape[i] != 1]
    return np.asarray(array.sum(axis=tuple(repeated), keepdims=True) if repeated else array)
