"""Logarithms of cumulative sums of exponentials.

A state stands for the numbers so far, by a maximum m and a sum s: log(exp(x_0) + ... + exp(x_t)) =
m + log(s); of no numbers it is -inf and 0. Lanes are computed in tiles of a few steps, those of a
lane side by side. All exponentials of a lane in a tile are relative to one maximum, so that each
number takes one exponential and one logarithm, both in vectors; only the sum goes step by step.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import prange

from rlcpu.kernels.compiler.compile import EXACT, inline
from rlcpu.kernels.compiler.maths import exp64, log64
from rlcpu.kernels.machine.memory import pointer_to, shifted
from rlcpu.kernels.machine.threads import Kernels, check_num_threads, for_cores, launch
from rlcpu.scan.arguments import (
    backend_of,
    check_axis,
    check_out,
    check_real,
    check_shape,
    multiply_gradients,
)
from rlcpu.scan.layout import AxesOrder, layout_of
from rlcpu.scan.recurrences.linear import linear_scan

Array = npt.NDArray[Any]

STEPS = 256  # of a tile: 2 KB stay in the first cache
LANES = 8  # of a tile: a cache line of float64
LONG = 2**15  # steps of a lone row from which two passes in parallel take less time than one
SEGMENT = 2**13  # steps of a part of such a row
GRAIN = 2**14  # numbers, 40 us, from which a second core is worth waking
#: How far the first sum of a tile may lie below its maximum: x - m is rounded to 2**-50 then.
SPREAD = 8.0


# ---------------------------------------------------------------- public functions


def logcumsumexp(
    x: npt.ArrayLike,
    *,
    axis: int = -1,
    reverse: bool = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Return y_t = log(exp(x_0) + ... + exp(x_t)) along an axis; in reverse, of x_t and later ones.

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
    backend = backend_of("recurrences", x)
    array = check_real("x", x, backend=backend)
    axis, num_threads = check_axis(axis, array.shape, "x"), check_num_threads(num_threads)
    layout = layout_of(array, axis, backend)
    if out is None:
        result = layout.empty(array.dtype)
    else:
        result = check_out("out", out, array, [array], array, backend)
    if array.size:
        compute = run_log_sums if backend is None else backend.run_log_sums
        compute(layout, array, result, reverse, num_threads)
    return result if out is None else out


def logcumsumexp_vjp(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    grad: npt.ArrayLike,
    *,
    axis: int = -1,
    reverse: bool = False,
    num_threads: int | None = None,
) -> Array:
    """Return the gradient with respect to x of a sum over y, weighted by `grad`.

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
        Like x; 0 where x is -inf or all gradients of the sums that it is part of are 0, else NaN
        where x is +inf or one of these sums is NaN.

    Raises:
        TypeError, ValueError: see `logcumsumexp`; or a shape is another.

    Example:
        >>> x = np.log([1.0, 3.0])
        >>> logcumsumexp_vjp(x, logcumsumexp(x), np.ones(2))
        array([1.25, 0.75])
    """
    backend = backend_of("recurrences", x, grad)
    x = check_real("x", x, backend=backend)
    y = check_shape("y", check_real("y", y, x.dtype, backend=backend), x.shape)
    grad = check_shape("grad", check_real("grad", grad, x.dtype, backend=backend), x.shape)
    axis, num_threads = check_axis(axis, x.shape, "x"), check_num_threads(num_threads)
    xp = np if backend is None else backend.xp
    # Sums of finite numbers, and of none, need no care; a device is not waited for.
    is_plain = backend is None and not (y.size and not y.max() < np.inf)
    if not is_plain:  # where y is NaN a gradient is NaN, unless it is 0: then x has none by this y
        grad = xp.where(xp.isnan(y) & (grad != 0.0), y, grad)
    decay = xp.zeros_like(x)
    parts: Any = slice(None, -1), slice(1, None)
    here, after = ((slice(None),) * axis + (part,) for part in (parts[::-1] if reverse else parts))
    decay[here] = _exp_difference(y[here], y[after], xp)
    if not is_plain:
        decay[xp.isnan(decay)] = 1.0  # of two infinities, or up to a NaN
    h = linear_scan(decay, grad, axis=axis, reverse=not reverse, num_threads=num_threads)
    result = _exp_difference(x, y, xp)
    if is_plain:
        result *= h
    else:
        multiply_gradients(h, result, result, xp)
        result[x == -np.inf] = 0.0
    return result


def _exp_difference(smaller: Array, larger: Array, xp: Any) -> Any:
    """Return exp(smaller - larger), 0 where the smaller one is -inf."""
    with np.errstate(invalid="ignore"):
        return xp.exp(xp.where(smaller == -np.inf, smaller, smaller - larger))


# ---------------------------------------------------------------- states, in plain Python


def add_number(m: float, s: float, x: float) -> tuple[float, float]:
    """Return the state (m, s) after one more number, which may be NaN or infinite."""
    if math.isnan(x) or math.isnan(m):
        return math.nan, 1.0
    if x == -math.inf:
        return m, s
    if x > m:
        return x, 1.0 if x == math.inf or s == 0.0 else s * math.exp(m - x) + 1.0
    return m, s if m == math.inf else s + math.exp(x - m)


def merge_states(m: float, s: float, n: float, t: float) -> tuple[float, float]:
    """Return the state of the numbers of two states, (m, s) and (n, t), together."""
    if math.isnan(m) or math.isnan(n):
        return math.nan, 1.0
    if t == 0.0 or m == math.inf:
        return m, s
    if s == 0.0 or n == math.inf:
        return n, t
    return (m, s + t * math.exp(n - m)) if m >= n else (n, s * math.exp(m - n) + t)


def log_of_state(m: float, s: float) -> float:
    """Return the logarithm of the sum that a state stands for: m + log(s)."""
    return m + math.log(s) if s > 0.0 else m


_add_number, _log_of_state = inline(add_number, exact=True), inline(log_of_state, exact=True)


# ---------------------------------------------------------------- a lane of a tile


@inline(exact=True)
def _highest(numbers, count):
    """Return the largest of the first `count` numbers; +inf if any is NaN."""
    highest, num_nan = -np.inf, 0
    for i in range(count):
        highest = max(highest, numbers[i])
        num_nan += numbers[i] != numbers[i]
    return np.inf if num_nan else highest


@inline(exact=True)
def _scan_lane(numbers, count, m, s, is_total):
    """Return the state after `count` numbers of a lane, from the state (m, s) before them.

    Results overwrite the numbers, unless `is_total`: only the state is wanted.
    """
    highest = max(_highest(numbers, count), m)
    # The maximum of the numbers in the first result, the smallest sum: if it is not far below the
    # lane's, all results are accurate. A total alone always is.
    first_highest = highest if is_total else max(m, numbers[0])
    is_finite = -np.inf < highest < np.inf  # False where a number or m is NaN, too
    if not (is_finite and first_highest >= highest - SPREAD):
        for i in range(count):
            m, s = _add_number(m, s, numbers[i])
            numbers[i] = _log_of_state(m, s)
        return m, s
    s = s * math.exp(m - highest) if s > 0.0 else 0.0
    for i in range(count):
        numbers[i] = exp64(numbers[i] - highest)
    for i in range(count):
        s += numbers[i]
        numbers[i] = s
    if not is_total:
        for i in range(count):
            numbers[i] = highest + log64(numbers[i])
    return highest, s


# ---------------------------------------------------------------- the driver


@inline(exact=True)
def _scan_unit(sizes, x, out, is_total, states, like, number):
    """Compute all steps of a few lanes, or of a part of them, in tiles.

    `number` is that of the unit; the other arguments are those of `drivers`.
    """
    _, num_steps, inner, parts, part_steps = sizes
    x_address, x_outer, x_time, x_lane = x
    out_address, out_outer, out_time, out_lane = out
    groups = (inner + LANES - 1) // LANES
    lane, part, outer = number % groups * LANES, number // groups % parts, number // groups // parts
    lanes, stop = min(LANES, inner - lane), min((part + 1) * part_steps, num_steps)
    source = shifted(pointer_to(x_address, like), outer * x_outer + lane * x_lane)
    target = shifted(pointer_to(out_address, like), outer * out_outer + lane * out_lane)
    tile = np.empty((LANES, STEPS))
    for begin in range(part * part_steps, stop, STEPS):
        count = min(STEPS, stop - begin)
        # Lanes in the inner loop: steps may be so far apart that each is a line of its own.
        for k in range(count):
            memory = shifted(source, (begin + k) * x_time)
            for i in range(lanes):
                tile[i, k] = memory[i * x_lane]
        for i in range(lanes):
            state = states[outer, part, lane + i]
            state[0], state[1] = _scan_lane(tile[i], count, state[0], state[1], is_total)
        if not is_total:
            for k in range(count):
                memory = shifted(target, (begin + k) * out_time)
                for i in range(lanes):
                    memory[i * out_lane] = tile[i, k]


@functools.cache
def drivers() -> Kernels:
    """Return kernels (sizes, x, out, is_total, states, like), for one core and for all.

    `sizes` are outer, num_steps and inner of the arrays, the number of parts that time is cut into,
    and the steps of one; `x` and `out` an address and the strides of the three axes. `states`
    float64 (outer, parts, inner, 2) has the state before each part of each lane, and is overwritten
    with that after it; with `is_total` nothing else is written. `like` is a number of the arrays'
    dtype. A unit of work is one part of LANES lanes.
    """

    def scan(sizes, x, out, is_total, states, like):
        outer, _, inner, parts, _ = sizes
        for unit in prange(outer * parts * ((inner + LANES - 1) // LANES)):
            _scan_unit(sizes, x, out, is_total, states, like, np.int64(unit))

    return for_cores(scan, GRAIN, fastmath=EXACT)


def run_log_sums(
    layout: AxesOrder, x: Array, result: Array, reverse: bool, num_threads: int | None
) -> None:
    """Overwrite `result` with the logarithms of x's sums; both are of the layout's shape.

    They may be the same array. A lone long row is passed twice, in parts that wait for no other:
    for the state of each part alone, then with the state of all parts before it.
    """
    target = layout.target(result)
    written = result if target else layout.empty(result.dtype)
    outer, num_steps, inner = layout.outer, layout.num_steps, layout.inner
    is_long = outer * -(-inner // LANES) < 2 and num_steps >= LONG
    part_steps = SEGMENT if is_long else num_steps
    parts = -(-num_steps // part_steps)
    places = [layout.place(x), target or layout.place(written)]  # hold copies, which have to live
    strided = []
    for place in places:
        address, time = place.address, place.time
        if reverse:  # begin at the last step
            address, time = address + (num_steps - 1) * time * x.itemsize, -time
        strided.append((address, place.outer, time, place.lane))
    states = np.empty((outer, parts, inner, 2))
    states[...] = -math.inf, 0.0
    sizes, like = (outer, num_steps, inner, parts, part_steps), x.dtype.type(0)
    for is_total in (True, False) if parts > 1 else (False,):
        arguments = (sizes, *strided, is_total, states, like)
        launch(drivers(), outer * num_steps * inner, num_threads, *arguments)
        if is_total:
            _merge_parts(states)
    if written is not result:
        np.copyto(result, written)


def _merge_parts(states: Array) -> None:
    """Replace the state of each part alone by that of all parts before it; see `drivers`."""
    for lanes in states.transpose(0, 2, 1, 3):
        for lane in lanes:
            before = (-math.inf, 0.0)
            for part, state in enumerate(lane.tolist()):
                lane[part] = before
                before = merge_states(*before, *state)
