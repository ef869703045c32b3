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
    sum_to_shape,
)
from rlcpu.scan.device import is_on_device, on_device
from rlcpu.scan.layout import Layout, layout_of
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
    if is_on_device(b) or is_on_device(a):
        return on_device("linear_scan", locals())
    b, a = check_alike({"b": b, "a": a})
    shape = common_shape("ab", [a, b])
    axis = check_axis(axis, shape, "a * b")
    start = _check_initial(initial, shape, axis, b.dtype)
    if out is not None:
        check_out("out", out, np.broadcast_to(b, shape), (a, b, start), may_be=b)
    layout, out = _layout(a, b, out, shape, axis)
    steps = UNUSED._replace(reward=b, gamma=a)
    problem = Problem(steps, initial=start, direction=1 if reverse else -1)
    run(LINEAR, layout, problem, (out,), num_threads)
    return out


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
    if is_on_device(y) or is_on_device(grad):
        return on_device("linear_scan_vjp", locals())
    y = check_real("y", y)
    grad, a = check_real("grad", grad, y.dtype), check_real("a", a, y.dtype)
    axis = check_axis(axis, y.shape, "y")
    grad = np.broadcast_to(check_broadcast("grad", grad, y.shape), y.shape)
    factors = np.broadcast_to(check_broadcast("a", a, y.shape), y.shape)
    start = np.broadcast_to(
        _check_initial(initial, y.shape, axis, y.dtype), y.shape[:axis] + y.shape[axis + 1 :]
    )
    if not y.size:
        return LinearGradients(np.zeros_like(a), np.zeros_like(y), np.zeros_like(start))
    h, products = np.empty_like(y), np.empty_like(y)
    views = (np.moveaxis(array, axis, 0) for array in (factors, y, grad, h, products))
    if reverse:
        views = (array[::-1] for array in views)
    factor, value, slope, total, product = views
    total[-1] = slope[-1]
    if len(total) > 1:
        # Views that go backward would be copied: time runs forward for the scan.
        parts = [v[::-1] if reverse else v for v in (factor[1:], slope[:-1], total[:-1])]
        options: Any = {"initial": slope[-1], "reverse": not reverse, "num_threads": num_threads}
        linear_scan(*parts[:2], axis=0, out=parts[2], **options)
    np.multiply(total[1:], value[:-1], out=product[1:])
    product[0] = total[0] * start
    first = np.asarray(factor[0] * total[0])
    return LinearGradients(sum_to_shape(products, a.shape), h, first)


# ---------------------------------------------------------------- arguments


def _check_initial(
    initial: npt.ArrayLike | None, shape: tuple[int, ...], axis: int, dtype: Any
) -> Array:
    found = check_real("initial", 0.0 if initial is None else initial, dtype)
    return check_broadcast("initial", found, shape[:axis] + shape[axis + 1 :])


def _layout(
    a: Array, b: Array, out: Array | None, shape: tuple[int, ...], axis: int
) -> tuple[Layout, Array]:
    """The order of the axes, that of the largest array, and an array for the result."""
    given = [array for array in (b, out, a) if array is not None and array.shape == shape]
    if out is None and given:
        layout = layout_of(given[0], axis)
        return layout, layout.empty(b.dtype)
    out = np.empty(shape, b.dtype) if out is None else out
    return layout_of(given[0] if given else out, axis), out
