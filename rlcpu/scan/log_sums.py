"""Logarithms of cumulative sums of exponentials."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.threads import check_num_threads, launch
from rlcpu.scan.checks import check_axis, check_out, check_real, check_shape
from rlcpu.scan.device import is_on_device, on_device
from rlcpu.scan.layout import Flat, Layout, layout_of
from rlcpu.scan.log_sums_kernels import LANES, LONG, SEGMENT, scan_kernels, total_kernels
from rlcpu.scan.recurrences.linear import linear_scan

Array = npt.NDArray[Any]


def logcumsumexp(
    x: npt.ArrayLike,
    *,
    axis: int = -1,
    reverse: bool = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """y_t = log(exp(x_0) + ... + exp(x_t)) along an axis, or of x_t and all after it in reverse.

    Nothing overflows: every exponential is taken relative to a maximum (Blanchard, Higham and
    Higham 2021, Accurately computing the log-sum-exp and softmax functions). Computed in float64,
    whatever the dtype. After a NaN everything is NaN, after +inf everything else +inf; -inf adds
    nothing; as in torch.

    Args:
        x: float32 or float64 of any shape; whole numbers count as float64.
        axis: along which to add up.
        reverse: begin at the end.
        out: like x, overwritten with the result; may be x itself.
        num_threads: at most so many threads; all by default.

    Returns:
        Like x; `out` if given.

    Raises:
        TypeError: an array is of another dtype, or an argument of another kind.
        ValueError: the axis or the number of threads is out of range, or `out` has another shape,
            is read-only or overlaps x without being x.

    Example:
        >>> np.exp(logcumsumexp(np.log([1.0, 2.0, 5.0]))).round(9)
        array([1., 3., 8.])
    """
    if is_on_device(x):
        return on_device("logcumsumexp", locals())
    array = check_real("x", x)
    axis, num_threads = check_axis(axis, array.shape, "x"), check_num_threads(num_threads)
    if out is not None and not _is_same(out, array):
        check_out("out", out, array, [array])
    layout = layout_of(array, axis)
    result = layout.empty(array.dtype) if out is None else out
    if array.size:
        target = layout.target(result)
        spare = result if target else layout.empty(array.dtype)
        places = layout.flat(array), target or layout.flat(spare)
        _scan(layout, places, bool(reverse), num_threads)
        if spare is not result:
            np.copyto(result, spare)
    return result


def logcumsumexp_vjp(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    grad: npt.ArrayLike,
    *,
    axis: int = -1,
    reverse: bool = False,
    num_threads: int | None = None,
) -> Array:
    """Gradient with respect to x of a sum over y, weighted by `grad`.

    dx_t is the sum of grad_s * exp(x_t - y_s) over all y_s that x_t is part of: a linear recurrence
    in h_t = grad_t + exp(y_t - y_{t+1}) * h_{t+1}, with dx_t = exp(x_t - y_t) * h_t, whose
    exponentials are at most 1.

    Args:
        x: as given to `logcumsumexp`.
        y: what it returned.
        grad: like y.
        axis: as given to it.
        reverse: as given to it.
        num_threads: at most so many threads; all by default.

    Returns:
        Like x; 0 where x is -inf.

    Raises:
        TypeError, ValueError: see `logcumsumexp`; or a shape is another.

    Example:
        >>> x = np.log([1.0, 3.0])
        >>> logcumsumexp_vjp(x, logcumsumexp(x), np.ones(2))
        array([1.25, 0.75])
    """
    if is_on_device(x) or is_on_device(grad):
        return on_device("logcumsumexp_vjp", locals())
    x = check_real("x", x)
    y = check_shape("y", check_real("y", y, x.dtype), x.shape)
    grad = check_shape("grad", check_real("grad", grad, x.dtype), x.shape)
    axis, num_threads = check_axis(axis, x.shape, "x"), check_num_threads(num_threads)
    if not x.size:
        return np.empty_like(x)
    order = slice(None, None, -1) if reverse else slice(None)
    xs, ys, grads = (np.moveaxis(array, axis, 0)[order] for array in (x, y, grad))
    decay = np.zeros(xs.shape, x.dtype)
    decay[:-1] = _exp_difference(ys[:-1], ys[1:])
    h = linear_scan(decay, grads, axis=0, reverse=True, num_threads=num_threads)
    h *= _exp_difference(xs, ys)
    return np.ascontiguousarray(np.moveaxis(h[order], 0, axis))


def _exp_difference(smaller: Array, larger: Array) -> Array:
    """exp(smaller - larger), 0 where the smaller one is -inf."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.exp(np.where(np.isneginf(smaller), -np.inf, smaller - larger)))


def _is_same(out: Any, x: Array) -> bool:
    """Whether both are the same numbers in memory."""
    return (
        isinstance(out, np.ndarray)
        and out.dtype == x.dtype
        and out.flags.writeable
        and out.shape == x.shape
        and out.strides == x.strides
        and out.__array_interface__["data"][0] == x.__array_interface__["data"][0]
    )


def _scan(
    layout: Layout, places: tuple[Flat, Flat], reverse: bool, num_threads: int | None
) -> None:
    x, out = places
    outer, num_steps, inner = layout.outer, layout.num_steps, layout.inner
    parts, length = 1, num_steps
    if outer * -(-inner // LANES) < 2 and num_steps >= LONG:
        length = SEGMENT
        parts = -(-num_steps // length)
    strides = [x.outer, x.time, x.lane, out.outer, out.time, out.lane]
    plan = np.array([outer, num_steps, inner, parts, length, reverse, *strides], np.int64)
    states = np.empty((2, outer, parts, inner))
    states[0], states[1] = -np.inf, 0.0
    if parts > 1:
        work = (x.numbers, plan, states)
        launch(total_kernels(), outer * num_steps * inner, num_threads, *work)
    arguments = (x.numbers, plan, states, out.numbers)
    launch(scan_kernels(), outer * num_steps * inner, num_threads, *arguments)
