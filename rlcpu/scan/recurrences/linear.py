"""The first-order linear recurrence, of which filters and moving averages are cases."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.scan.arguments import (
    axis_last,
    backend_of,
    check_alike,
    check_axis,
    check_broadcast,
    check_out,
    check_real,
    common_shape,
    multiply_gradients,
    repeated,
    sum_to_shape,
)
from rlcpu.scan.layout import layout_of
from rlcpu.scan.recurrences.driver import UNUSED, Array, RecurrenceProblem, run
from rlcpu.scan.recurrences.rules import LINEAR, LINEAR_GRADIENTS, Rule
from rlcpu.scan.recurrences.steps import lanes_of

MANY = 16  # rows from which there are enough for vectors across them
LONG = 2**15  # steps from which two passes take less time than one that waits for every step


class LinearGradients(NamedTuple):
    """Gradients that `linear_scan_vjp` returns.

    Attributes:
        a: gradient with respect to a, of its shape: summed where a was repeated.
        b: with respect to b, of the result's shape.
        initial: with respect to the initial value, the result's shape without the axis.
    """

    a: Any
    b: Any
    initial: Any


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
    """Return y_t = a_t * y_{t-1} + b_t along an axis, or y_t = a_t * y_{t+1} + b_t in reverse.

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
    whole = [array for array in (b, target, a) if array is not None and array.shape == shape]
    # The order of the axes is that of an array that is not broadcast, if there is one.
    layout = layout_of(whole[0] if whole else repeated(b, shape, backend), axis, backend)
    target = layout.empty(b.dtype) if target is None else target
    if backend is None and layout.inner == 1 and layout.outer < MANY and shape[axis] >= LONG:
        a, b, y = (axis_last(repeated(array, shape), axis) for array in (a, b, target))
        starts = repeated(start, y.shape[:-1])
        for i in np.ndindex(starts.shape):
            _scan_long(a[i], b[i], y[i], starts[i], reverse, num_threads)
    else:
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
    """Return gradients of a scalar with respect to the arguments of `linear_scan`.

    With g its gradient with respect to y, h_t = g_t + a_{t+1} * h_{t+1} is that with respect to
    b_t, h_t * y_{t-1} that with respect to a_t, and a_0 * h_0 that with respect to the initial
    value; in reverse the other way round. A gradient of 0 stays 0, whatever it is multiplied by.

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
    y = check_real("y", y, backend=backend)
    grad = check_real("grad", grad, y.dtype, backend=backend)
    a = check_real("a", a, y.dtype, backend=backend)
    axis = check_axis(axis, y.shape, "y")
    check_broadcast("grad", grad, y.shape)
    check_broadcast("a", a, y.shape)
    ends = y.shape[:axis] + y.shape[axis + 1 :]
    start = repeated(_check_initial(initial, y.shape, axis, y.dtype, backend), ends, backend)
    xp, asarray = (np, np.asarray) if backend is None else (backend.xp, backend.asarray)
    if not y.size:
        return LinearGradients(xp.zeros(a.shape, y.dtype), xp.zeros_like(y), xp.zeros_like(start))
    h, products = xp.empty_like(y), xp.empty_like(y)  # gradients of b, and of a where it varies
    grad, factor = repeated(grad, y.shape, backend), repeated(a, y.shape, backend)
    # Indices of the first step and the last, of all but the last and all but the first step, in the
    # order of the scan.
    along_axis: Any = (0, -1, slice(None, -1), slice(1, None))
    if reverse:
        along_axis = (-1, 0, slice(1, None), slice(None, -1))
    first, last, head, tail = ((slice(None),) * axis + (index, ...) for index in along_axis)
    starts = xp.empty_like(products[first])  # gradients of the initial values
    # The plain rule takes 0.8 of the time, and gives NaN where a zero meets an infinity.
    for rule in (LINEAR, LINEAR_GRADIENTS) if backend is None else (LINEAR_GRADIENTS,):
        h[last] = grad[last]
        if y.shape[axis] > 1:
            layout = layout_of(grad[head], axis, backend)
            inputs = factor[tail], grad[head], grad[last]  # h begins with h[last], which is grad's
            _scan(backend, layout, inputs, not reverse, h[head], num_threads, rule=rule)
        multiply = np.multiply if rule is LINEAR else functools.partial(multiply_gradients, xp=xp)
        with np.errstate(invalid="ignore"):
            multiply(h[tail], y[head], products[tail])
            multiply(h[first], asarray(start), products[first])
            multiply(h[first], factor[first], starts)
        if rule is LINEAR and not (np.isnan(products.min()) or np.isnan(starts.min())):
            break
    return LinearGradients(sum_to_shape(products, a.shape), h, starts)


# ---------------------------------------------------------------- rows of any length


def _scan(
    backend: Any,
    layout: Any,
    inputs: tuple[Array, Array, Array],
    reverse: bool,
    out: Array,
    num_threads: int | None,
    ends: Array | None = None,
    rule: Rule = LINEAR,
) -> None:
    """Overwrite `out` with y of `linear_scan`, or `ends`, if given: see `RecurrenceProblem`.

    `layout` is the order of the axes, `inputs` are a, b and the initial values, all checked.
    """
    a, b, start = inputs
    steps = UNUSED._replace(reward=b, gamma=a)
    problem = RecurrenceProblem(steps, initial=start, direction=1 if reverse else -1, ends=ends)
    compute = run if backend is None else backend.run
    compute(rule, layout, problem, (out,), num_threads)


def _scan_long(
    a: Array, b: Array, y: Array, start: Any, reverse: bool, num_threads: int | None
) -> None:
    """Scan a long row, cut into segments that are rows of their own.

    Segments are passed twice: for what each makes of any y before it, which is product * y + final,
    where the product is that of its a, and final its last y from 0; and, once these have been put
    together, from the right y before each.

    `a`, `b` and `y`, which is overwritten, are (n,); `start` is the initial value.
    """

    def scan(arrays: list[Array], start: Any, ends: Array | None = None) -> None:
        """Scan [a, b, y] along their last axis from one initial value or one for each row."""
        a, b, y = arrays
        inputs = a, b, np.asarray(start, y.dtype)
        _scan(None, layout_of(y, y.ndim - 1), inputs, reverse, y, num_threads, ends)

    row, size, dtype = [a, b, y], y.size, y.dtype
    # An odd number of vectors: segments whose distance is a power of two would meet in the same
    # few lines of the cache.
    num_segments, vector_lanes = 64 if size < 2**20 else 256, lanes_of(dtype)
    length = ((size // (num_segments * vector_lanes) + 1) // 2 * 2 - 1) * vector_lanes
    # What does not fit into segments comes first, in the order of the scan.
    num_first = size - num_segments * length
    first, others = slice(num_first), slice(num_first, None)
    if reverse:
        first, others = slice(size - num_first, None), slice(size - num_first)
    if num_first:
        scan([array[first] for array in row], start)
        start = y[first][0 if reverse else -1]
    remaining = [array[others] for array in row]
    segments = [array.reshape(num_segments, length) for array in remaining]
    ends = np.empty((2, num_segments), dtype)
    scan(segments, 0.0, ends)
    order = slice(None, None, -1 if reverse else 1)  # of the scan
    finals, products = ends[:, order].tolist()
    starts = [float(start)]  # y before each segment
    for final, product in zip(finals[:-1], products[:-1], strict=True):
        starts.append(final + product * starts[-1])
    if np.isfinite(products).all() and np.isfinite(starts).all():
        scan(segments, starts[order])
    else:  # an infinity or NaN would spread to steps that it does not reach
        scan(remaining, start)


# ---------------------------------------------------------------- arguments


def _check_initial(
    initial: npt.ArrayLike | None, shape: tuple[int, ...], axis: int, dtype: Any, backend: Any
) -> Array:
    """Return initial values, 0 for None, that broadcast to `shape` without `axis`."""
    numbers = check_real("initial", 0.0 if initial is None else initial, dtype, backend=backend)
    return check_broadcast("initial", numbers, shape[:axis] + shape[axis + 1 :])
