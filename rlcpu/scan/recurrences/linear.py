"""The first-order linear recurrence, of which filters and moving averages are cases."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.scan.arguments import (
    check_alike,
    check_axis,
    check_broadcast,
    check_out,
    check_real,
    common_shape,
    repeated,
    sum_to_shape,
)
from rlcpu.scan.device import backend_of
from rlcpu.scan.layout import layout_of
from rlcpu.scan.recurrences.rules import Rule, Step, inlined, itself
from rlcpu.scan.recurrences.run import UNUSED, Problem, run

Array = npt.NDArray[Any]


class LinearGradients(NamedTuple):
    """What `linear_scan_vjp` returns.

    Attributes:
        a: gradient with respect to a, of its shape: summed where a was repeated.
        b: with respect to b, of the result's shape.
        initial: with respect to the initial value, the result's shape without the axis.
    """

    a: Any
    b: Any
    initial: Any


@inlined
def linear_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """y_t = a_t * y_{t-1} + b_t."""
    return step.gamma, step.reward


LINEAR = Rule(linear_coefficients, itself, ("reward", "gamma"), cuts=False)


def linear_scan(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    axis: int = -1,
    initial: npt.ArrayLike | None = None,
    reverse: bool = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """y_t = a_t * y_{t-1} + b_t along an axis, or y_t = a_t * y_{t+1} + b_t in reverse.

    An exponential moving average of x is linear_scan(1 - alpha, alpha * x, initial=x_0);
    scipy.signal.lfilter([1], [1, -a], b) is linear_scan(a, b). A few rows longer than 32,768 are
    computed in parts, in parallel, whose rounding differs from a loop's.

    Args:
        a: float32 or float64 that broadcasts with b; whole numbers and single ones are converted
            to b's dtype.
        b: of a's dtype; broadcasts with a.
        axis: along which to scan.
        initial: what stands for the y before the first one (after the last one in reverse), of the
            result's shape without `axis`, or one number; 0 by default.
        reverse: begin at the end.
        out: of the broadcast shape of a and b, overwritten with the result; may be b itself.
        num_threads: at most so many threads; all by default.

    Returns:
        y, of the broadcast shape of a and b; `out` if given.

    Raises:
        TypeError: an array is of another dtype.
        ValueError: shapes do not broadcast, the axis or number of threads is out of range, or `out`
            has another shape, is read-only or overlaps another array.

    Example:
        >>> linear_scan(0.5, [8.0, 0.0, 0.0], initial=16.0)
        array([16.,  8.,  4.])
    """
    backend = backend_of("recurrences", b, a)
    b, a = check_alike({"b": b, "a": a}, backend)
    shape = common_shape("ab", [a, b])
    axis = check_axis(axis, shape, "a * b")
    start = _check_initial(initial, shape, axis, b.dtype, backend)
    target = out
    if out is not None:
        target = check_out("out", out, repeated(b, shape, backend), (a, b, start), b, backend)
    given = [array for array in (b, target, a) if array is not None and array.shape == shape]
    # The order of the axes is that of the largest array.
    layout = _layout_of(given[0] if given else repeated(b, shape, backend), axis, backend)
    target = layout.empty(b.dtype) if target is None else target
    _scan(backend, layout, (a, b, start), reverse, target, num_threads)
    return target if out is None else out


def linear_scan_vjp(
    a: npt.ArrayLike,
    y: npt.ArrayLike,
    grad: npt.ArrayLike,
    *,
    axis: int = -1,
    initial: npt.ArrayLike | None = None,
    reverse: bool = False,
    num_threads: int | None = None,
) -> LinearGradients:
    """Gradients of a scalar with respect to the arguments of `linear_scan`.

    With g its gradient with respect to y, h_t = g_t + a_{t+1} * h_{t+1} is that with respect to
    b_t, h_t * y_{t-1} that with respect to a_t, and a_0 * h_0 that with respect to the initial
    value; in reverse the other way round.

    Args:
        a: as it was given to `linear_scan`.
        y: what it returned.
        grad: like y, gradient with respect to it.
        axis: as it was given.
        initial: as it was given.
        reverse: as it was given.
        num_threads: at most so many threads.

    Returns:
        Gradients with respect to a, b and the initial value, new arrays.

    Raises:
        TypeError, ValueError: see `linear_scan`.

    Example:
        >>> linear_scan_vjp(0.5, [16.0, 8.0], [1.0, 1.0], initial=32.0).b
        array([1.5, 1. ])
    """
    backend = backend_of("recurrences", y, grad)
    y = check_real("y", y, None, "", backend)
    grad = check_real("grad", grad, y.dtype, "", backend)
    a = check_real("a", a, y.dtype, "", backend)
    axis = check_axis(axis, y.shape, "y")
    check_broadcast("grad", grad, y.shape)
    check_broadcast("a", a, y.shape)
    ends = y.shape[:axis] + y.shape[axis + 1 :]
    start = repeated(_check_initial(initial, y.shape, axis, y.dtype, backend), ends, backend)
    xp = np if backend is None else backend.xp
    if not y.size:
        return LinearGradients(xp.zeros(a.shape, y.dtype), xp.zeros_like(y), xp.zeros_like(start))
    h, products = xp.empty_like(y), xp.empty_like(y)
    slope, factor = repeated(grad, y.shape, backend), repeated(a, y.shape, backend)
    # The first step and the last, all but the last and all but the first, in the order of the scan.
    parts: Any = (0, -1, slice(None, -1), slice(1, None))
    if reverse:
        parts = (-1, 0, slice(1, None), slice(None, -1))
    first, last, head, tail = ((slice(None),) * axis + (part,) for part in parts)
    h[last] = slope[last]
    if y.shape[axis] > 1:
        layout = _layout_of(slope[head], axis, backend)
        inputs = factor[tail], slope[head], slope[last]
        _scan(backend, layout, inputs, not reverse, h[head], num_threads)
    xp.multiply(h[tail], y[head], out=products[tail])
    products[first] = h[first] * start
    asarray = np.asarray if backend is None else backend.asarray
    return LinearGradients(sum_to_shape(products, a.shape), h, asarray(factor[first] * h[first]))


def _scan(
    backend: Any,
    layout: Any,
    inputs: tuple[Array, Array, Array],
    reverse: bool,
    out: Array,
    num_threads: int | None,
) -> None:
    """Overwrite `out` with the scan of checked inputs: a, b and the initial values."""
    a, b, start = inputs
    steps = UNUSED._replace(reward=b, gamma=a)
    problem = Problem(steps, initial=start, direction=1 if reverse else -1)
    compute = run if backend is None else backend.run
    compute(LINEAR, layout, problem, (out,), num_threads)


# ---------------------------------------------------------------- arguments


def _check_initial(
    initial: npt.ArrayLike | None, shape: tuple[int, ...], axis: int, dtype: Any, backend: Any
) -> Array:
    found = check_real("initial", 0.0 if initial is None else initial, dtype, "", backend)
    return check_broadcast("initial", found, shape[:axis] + shape[axis + 1 :])


def _layout_of(array: Array, axis: int, backend: Any) -> Any:
    return layout_of(array, axis) if backend is None else backend.layout_of(array, axis)
