"""Recurrences over an axis of arrays on a CUDA device, by the rules of `rlcpu.scan`.

A thread takes one lane through all steps. Threads of a warp take lanes that are next to each other,
so that the numbers of a step are read and written in whole lines. Few rows of linear recurrences
and of sums of exponentials are scanned by whole blocks, see `Scan`.

The public functions are those of `rlcpu.scan`: what they ask of a backend is here, under the names
that the CPU's has.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.compile import device, kernel
from rlcpu.cuda.device import SIMULATED, asarray, cuda, empty, launch, xp, zeros
from rlcpu.kernels.compile import specialise
from rlcpu.scan import log_sums
from rlcpu.scan.recurrences.linear import LINEAR
from rlcpu.scan.recurrences.rules import FLAGS, Rule, Step, link, link_always
from rlcpu.scan.recurrences.run import Problem

__all__ = ["asarray", "layout_of", "run", "run_log_sums", "xp"]

# ---------------------------------------------------------------- arrays


class Flat(NamedTuple):
    """An array as kernels take it.

    Attributes:
        memory: of one dimension, contiguous.
        strides: in numbers, over the axes before the steps, the steps and the axes after them.
    """

    memory: Any
    strides: tuple[int, ...]


class Layout(NamedTuple):
    """A shape and its axis of steps, seen as (outer, num_steps, inner).

    Attributes:
        shape: of the arrays.
        axis: of the steps, counted from the first.
    """

    shape: tuple[int, ...]
    axis: int

    @property
    def num_steps(self) -> int:
        """Length of the axis."""
        return self.shape[self.axis]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of indices before the axis, its length, and number of indices after it."""
        shape, axis = self.shape, self.axis
        return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])

    def empty(self, dtype: Any) -> Any:
        """A new array of the shape."""
        return empty(self.shape, dtype)

    def flat(self, array: Any) -> Flat:
        """An array that broadcasts to the shape; copied if three strides cannot describe it."""
        if array.ndim == 0 and type(array) is np.ndarray:
            return Flat(constants((array.item(),), array.dtype), (0, 0, 0))
        whole = asarray(array)
        if whole.shape != self.shape:
            whole = xp.broadcast_to(whole, self.shape)
        whole = whole.reshape(self.sizes)
        if any(stride < 0 or stride % whole.itemsize for stride in whole.strides):
            whole = xp.ascontiguousarray(whole)
        strides = tuple(stride // whole.itemsize for stride in whole.strides)
        size = 1 + sum((n - 1) * stride for n, stride in zip(whole.shape, strides, strict=True))
        view = xp.lib.stride_tricks.as_strided
        return Flat(view(whole, (size,), (whole.itemsize,)), strides)

    def flat_ends(self, array: Any) -> Flat:
        """The same of an array that lacks the axis of steps."""
        array = xp.expand_dims(asarray(array), self.axis) if array.ndim else array
        shape = (*self.shape[: self.axis], 1, *self.shape[self.axis + 1 :])
        return Layout(shape, self.axis).flat(array)

    def finish(self, out: Any, written: Flat) -> None:
        """Copy a result to its array, if `flat` had to copy that."""
        if not xp.may_share_memory(out, written.memory):
            out[...] = written.memory.reshape(self.shape)


def layout_of(array: Any, axis: int) -> Layout:
    """How an array lies, and all that goes with it."""
    return Layout(array.shape, axis)


def constants(numbers: tuple[float, ...], dtype: Any) -> Any:
    """A few numbers on the device; the same ones are copied there once."""
    return _constants(numbers, np.dtype(dtype), 0 if SIMULATED else xp.cuda.Device().id)


@functools.lru_cache(maxsize=256)
def _constants(numbers: tuple[float, ...], dtype: Any, device: int) -> Any:
    made = asarray(np.array(numbers, dtype))
    if not SIMULATED:  # a stream that uses it later does not wait for this one
        xp.cuda.get_current_stream().synchronize()
    return made


@functools.cache
def multiprocessors() -> int:
    """How many the device has; in the simulator one, so that few threads do many turns."""
    return 1 if SIMULATED else int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


# ---------------------------------------------------------------- plans

#: Integers of a plan, what kernels take: sizes of the axes before the steps, of the steps and after
#: them; 1 if the last step is computed first, else -1; a number that a kernel gives a meaning; then
#: three strides of each array.
OUTER, NUM_STEPS, INNER, DIRECTION, OPTION, STRIDES = range(6)


def make_plan(layout: Layout, direction: int, option: int, arrays: list[Flat]) -> Any:
    """The integers of a plan on the device."""
    strides = (stride for array in arrays for stride in array.strides)
    return constants((*layout.sizes, direction, option, *strides), np.int64)


class Lane(NamedTuple):
    """Which lane a thread has: the plan, the index before the steps and the one after them."""

    plan: Any
    outer: Any
    inner: Any


def place(lane, array, k):
    """Where an array has the number of step k."""
    plan, at = lane.plan, STRIDES + 3 * array
    return lane.outer * plan[at] + k * plan[at + 1] + lane.inner * plan[at + 2]


def lane_of(plan, number):
    """The lane of a number; lanes that follow each other are next to each other in memory."""
    outer = number // plan[INNER]
    return Lane(plan, outer, number - outer * plan[INNER])


# ---------------------------------------------------------------- one thread for each lane

#: Arrays of a plan: the fields of `Step`, last, initial, first, second.
LAST, INITIAL, FIRST, SECOND = range(len(Step._fields), len(Step._fields) + 4)
#: Steps that are read before the first of them is computed. A read takes 0.6 us: 16,384 lanes of
#: 7 numbers would otherwise ask for a sixth of what an H100 can carry meanwhile, by Little's law.
AHEAD = 4
#: Threads of a block: few lanes are spread over more multiprocessors that way.
BLOCK = 64


def get_step(arrays, lane, k):
    """Step k; what a rule does not use the compiler does not read."""
    return Step(
        arrays.reward[place(lane, 0, k)],
        arrays.value[place(lane, 1, k)],
        arrays.terminated[place(lane, 2, k)] != 0,
        arrays.truncated[place(lane, 3, k)] != 0,
        arrays.final_value[place(lane, 4, k)],
        arrays.gamma[place(lane, 5, k)],
        arrays.lambda_[place(lane, 6, k)],
        arrays.ratio[place(lane, 7, k)],
        arrays.action_value[place(lane, 8, k)],
    )


def last_step(value, zero):
    """What stands for the step after the last one."""
    return Step(zero, value, False, False, zero, zero, zero, zero, zero)


def as_after(step, zero):
    """What rules may see of the step after: whole steps would fill registers."""
    kept = step.lambda_, step.ratio, step.action_value
    return Step(zero, step.value, False, False, zero, zero, kept[0], kept[1], kept[2])


def device_rule(function: Callable[..., Any], dtype: Any) -> Any:
    """A function of a rule as a device function, in IEEE arithmetic of one dtype."""
    return device(specialise(function, dtype, exact=True))


def make_advance(rule: Rule, dtype: Any) -> Any:
    """Function: one step of a lane, written; the recurrence and the step as those before see it."""
    coefficients, results = device_rule(rule.coefficients, dtype), device_rule(rule.results, dtype)
    connect = device_rule(link if rule.cuts else link_always, dtype)
    two, zero = rule.outputs == 2, dtype(0.0)

    def advance(step, state, options, lane, k, first, second):
        carried, after = state
        a, b = coefficients(step, after, options)
        y = connect(a, b, carried)
        one, other = results(y, carried, step, after, options)
        first[place(lane, FIRST, k)] = one
        if two:
            second[place(lane, SECOND, k)] = other
        return y, as_after(step, zero)

    return advance


@functools.cache
def lane_kernel(rule: Rule, dtype: Any) -> Any:
    """Driver: (inputs..., last, initial, options, plan, chosen, first, second), arrays of memory.

    The first nine are the fields of `Step`, flags as uint8; `options` are three numbers, `plan` is
    int64. Lanes whose number in `chosen`, int32, is 0 are left out; a single number is for all.
    """
    advance, zero = make_advance(rule, dtype), dtype(0.0)

    @kernel(exact=True)
    def scan(
        i0, i1, i2, i3, i4, i5, i6, i7, i8, last, initial, options, plan, chosen, first, second
    ):
        number = cuda.grid(1)
        if number < plan[OUTER] * plan[INNER] and chosen[min(number, chosen.size - 1)] != 0:
            lane, arrays = lane_of(plan, number), Step(i0, i1, i2, i3, i4, i5, i6, i7, i8)
            settings = options[0], options[1], options[2]
            after = last_step(last[place(lane, LAST, 0)], zero)
            state = (initial[place(lane, INITIAL, 0)], after)
            steps, turn = plan[NUM_STEPS], plan[DIRECTION]
            k = steps - 1 if turn > 0 else 0
            for _ in range(steps // AHEAD):
                one, two = get_step(arrays, lane, k), get_step(arrays, lane, k - turn)
                three = get_step(arrays, lane, k - 2 * turn)
                four = get_step(arrays, lane, k - 3 * turn)
                state = advance(one, state, settings, lane, k, first, second)
                state = advance(two, state, settings, lane, k - turn, first, second)
                state = advance(three, state, settings, lane, k - 2 * turn, first, second)
                state = advance(four, state, settings, lane, k - 3 * turn, first, second)
                k -= AHEAD * turn
            for _ in range(steps % AHEAD):
                step = get_step(arrays, lane, k)
                state = advance(step, state, settings, lane, k, first, second)
                k -= turn

    return scan


@functools.cache
def window_kernel(rule: Rule, dtype: Any) -> Any:
    """Driver with the arguments of `lane_kernel`, with a thread for each window of a lane.

    y of a step is b + a * (b' + a' * (...)) over the steps of its window, `OPTION` of the plan in
    number, and the innermost y is the value after the last of them. Time runs backward. What a
    thread reads its neighbours read too, so that n steps cost n reads of the first cache.
    """
    coefficients, connect = device_rule(rule.coefficients, dtype), device_rule(link, dtype)
    zero = dtype(0.0)

    @kernel(exact=True)
    def slide(
        i0, i1, i2, i3, i4, i5, i6, i7, i8, last, initial, options, plan, chosen, first, second
    ):
        number = cuda.grid(1)
        if number < plan[OUTER] * plan[NUM_STEPS] * plan[INNER]:
            row, inner = number // plan[INNER], number % plan[INNER]
            outer, begin = row // plan[NUM_STEPS], row % plan[NUM_STEPS]
            lane, arrays = Lane(plan, outer, inner), Step(i0, i1, i2, i3, i4, i5, i6, i7, i8)
            stop = min(begin + plan[OPTION], plan[NUM_STEPS])
            after = last_step(last[place(lane, LAST, 0)], zero)
            if stop < plan[NUM_STEPS]:
                after = as_after(get_step(arrays, lane, stop), zero)
            y = after.value
            for i in range(begin, stop):
                step = get_step(arrays, lane, stop - 1 - (i - begin))
                a, b = coefficients(step, after, (options[0], options[1], options[2]))
                y = connect(a, b, y)
                after = as_after(step, zero)
            first[place(lane, FIRST, begin)] = y

    return slide


def run(
    rule: Rule,
    layout: Layout,
    problem: Problem,
    outs: tuple[Any, ...],
    num_threads: int | None = None,
) -> None:
    """Overwrite the outputs, of the layout's shape; returns before that has happened.

    Takes what `rlcpu.scan.recurrences.run.run` takes; arrays are on the device, or single numbers.
    """
    dtype = outs[0].dtype.type
    if outs[0].size == 0:
        return
    arrays = []
    for name, array in zip(Step._fields, problem.steps, strict=True):
        nothing = np.zeros((), np.uint8 if name in FLAGS else dtype)
        arrays.append(layout.flat(nothing if array is None else array))
    arrays += [
        layout.flat_ends(end.astype(dtype, copy=False)) for end in (problem.last, problem.initial)
    ]
    written = [layout.flat(out) for out in outs]
    arrays += [written[0], written[-1]]
    (outer, steps, inner), chosen = layout.sizes, constants((1,), np.int32)
    if rule is LINEAR and inner == 1 and outer < MANY and steps > 1:
        chosen = _scan_linear_rows(layout, problem.direction, arrays)
    plan = make_plan(layout, problem.direction, problem.window, arrays)
    options = constants((*problem.options, 0.0, 0.0, 0.0)[:3], dtype)
    *inputs, first, second = (array.memory for array in arrays)
    arguments = (*inputs, options, plan, chosen, first, second)
    if problem.window:
        launch(window_kernel(rule, dtype), outs[0].size, *arguments)
    else:
        launch(lane_kernel(rule, dtype), outer * inner, *arguments, block=BLOCK)
    for out, target in zip(outs, written, strict=True):
        layout.finish(out, target)


# ---------------------------------------------------------------- a block for each part of a row

#: Rows from which each has a thread of its own: the lines that a warp reads a number of stay in the
#: first cache until it has read them all.
MANY = 2**12
#: Threads of a block, and most parts of a row; the simulator starts them one by one.
THREADS = 8 if SIMULATED else 256


class Scan(NamedTuple):
    """A recurrence as the merging of states, which are pairs of numbers: in any order of pairs.

    Attributes:
        load: (x, y) -> state of one step, from its two numbers.
        start: (number) -> state before a row, from its initial number.
        merge: (m, s, n, t) -> state of what two states stand for, the earlier one first.
        value: (m, s) -> result.
        empty: state of nothing.
        dtype: of the states.
    """

    load: Callable[..., Any]
    start: Callable[..., Any]
    merge: Callable[..., Any]
    value: Callable[..., Any]
    empty: tuple[float, float]
    dtype: Any


def row_kernel(scan: Scan) -> Any:
    """Driver: (x, y, initial, plan, parts, length, is_total, states, broken, out).

    A block takes one of `parts` parts of a row, each of `length` steps. With `is_total` it writes
    the part's state to `states` (rows, parts, 2), else results, from the states of the parts
    before. The arrays of the plan are x, y, initial and out. `broken` int32 (rows,) is set to 1
    where a merged state is not finite.
    """
    load, start, merge, value, (m0, s0), dtype = scan

    def prefix(m, s, shared):
        """State of the threads up to this one, and of all."""
        own, distance = cuda.threadIdx.x, 1
        shared[0, own], shared[1, own] = m, s
        cuda.syncthreads()
        while distance < THREADS:
            if own >= distance:
                m, s = merge(shared[0, own - distance], shared[1, own - distance], m, s)
            cuda.syncthreads()
            shared[0, own], shared[1, own] = m, s
            cuda.syncthreads()
            distance *= 2
        last = shared[0, THREADS - 1], shared[1, THREADS - 1]
        cuda.syncthreads()
        return (m, s), last

    @kernel(exact=True)
    def scan_rows(x, y, initial, plan, parts, length, is_total, states, broken, out):
        shared = cuda.shared.array((2, THREADS), dtype)
        own, row, part = cuda.threadIdx.x, cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        lane, m, s = Lane(plan, row, 0), m0, s0
        if own < part and not is_total:
            at = 2 * (row * parts + own)
            m, s = states[at], states[at + 1]
        _, before = prefix(m, s, shared)
        if not is_total:
            m, s = start(initial[place(lane, 2, 0)])
            before = merge(m, s, before[0], before[1])
        end = min((part + 1) * length, plan[NUM_STEPS])
        for begin in range(part * length, end, THREADS):
            k, m, s = begin + own, m0, s0
            if plan[DIRECTION] > 0:
                k = plan[NUM_STEPS] - 1 - k
            if begin + own < end:
                m, s = load(x[place(lane, 0, k)], y[place(lane, 1, k)])
            found, last = prefix(m, s, shared)
            if begin + own < end and not is_total:
                m, s = merge(before[0], before[1], found[0], found[1])
                out[place(lane, 3, k)] = value(m, s)
                if (m - m) + (s - s) != 0:  # as NaN is
                    broken[row] = 1
            before = merge(before[0], before[1], last[0], last[1])
        if is_total and own == 0:
            at = 2 * (row * parts + part)
            states[at], states[at + 1] = before

    return scan_rows


def scan_rows(driver: Any, layout: Layout, direction: int, arrays: list[Flat], dtype: Any) -> Any:
    """Overwrite rows with their scans; returns before that has happened.

    Args:
        driver: of `row_kernel`.
        layout: of the rows; the inner size is 1.
        direction: 1 to begin at the end, -1 at the beginning.
        arrays: x, y, initial, and the result.
        dtype: of the states.

    Returns:
        `broken`, int32 (rows,) on the device.
    """
    rows, steps, _ = layout.sizes
    tiles = -(-steps // THREADS)
    wanted = -(-2 * multiprocessors() // rows)
    each = -(-tiles // min(tiles, wanted, THREADS))
    parts = -(-tiles // each)
    plan, broken = make_plan(layout, direction, 0, arrays), zeros(rows, np.int32)
    states = empty(2 * rows * parts, dtype)
    *inputs, out = (array.memory for array in arrays)
    for is_total in (True, False) if parts > 1 else (False,):
        arguments = (*inputs, plan, parts, each * THREADS, is_total, states, broken, out)
        launch(driver, steps, *arguments, block=THREADS, grid=rows * parts)
    return broken


@functools.cache
def linear_kernel(dtype: Any) -> Any:
    """Rows of y = a * y' + b: states (a, b) of y as a function of an earlier y'."""
    zero, one = dtype(0.0), dtype(1.0)

    def load(a, b):
        return a, b

    def start(initial):
        return zero, initial

    def merge(m, s, n, t):
        return m * n, s * n + t

    def value(m, s):
        return s

    return row_kernel(Scan(load, start, merge, value, (one, zero), dtype))


def _scan_linear_rows(layout: Layout, direction: int, arrays: list[Flat]) -> Any:
    """Scan rows of a recurrence by blocks; which of them have to be computed step by step.

    Those are the rows where a product of coefficients overflowed: its infinity or NaN would spread
    to steps that it does not reach. They read b again, which the result may not have overwritten.
    """
    rewards, out = arrays[0], arrays[FIRST]
    if xp.may_share_memory(rewards.memory, out.memory):
        rewards = arrays[0] = rewards._replace(memory=rewards.memory.copy())
    dtype = out.memory.dtype.type
    used = [arrays[Step._fields.index("gamma")], rewards, arrays[INITIAL], out]
    return scan_rows(linear_kernel(dtype), layout, direction, used, dtype)


# ---------------------------------------------------------------- logarithms of sums


@functools.cache
def sums_kernel() -> Any:
    """Rows of logarithms of cumulative sums: states are a maximum and a sum relative to it."""
    nothing, zero, one = -np.inf, 0.0, 1.0

    def load(x, _):
        return np.float64(x), zero if x == nothing else one

    def start(_):
        return nothing, zero

    scan = Scan(load, start, log_sums.merge, log_sums.level, (nothing, zero), np.float64)
    return row_kernel(scan)


@functools.cache
def sums_lane_kernel() -> Any:
    """Driver: (x, plan, out), with a thread for each lane."""
    advance, level = log_sums.advance, log_sums.level

    @kernel(exact=True)
    def scan(x, plan, out):
        number = cuda.grid(1)
        if number < plan[OUTER] * plan[INNER]:
            lane, steps = lane_of(plan, number), plan[NUM_STEPS]
            m, s = -np.inf, 0.0
            for i in range(steps):
                k = steps - 1 - i if plan[DIRECTION] > 0 else i
                m, s = advance(m, s, np.float64(x[place(lane, 0, k)]))
                out[place(lane, 1, k)] = level(m, s)

    return scan


def run_log_sums(
    layout: Layout, x: Any, out: Any, reverse: bool, num_threads: int | None = None
) -> None:
    """Overwrite `out`, which may be x, with logarithms of cumulative sums of exponentials of x.

    Computed in float64, whatever the dtype; returns before that has happened.
    """
    (outer, _, inner), direction = layout.sizes, 1 if reverse else -1
    array, target = layout.flat(x), layout.flat(out)
    if inner == 1 and outer < MANY:
        arrays = [array, array, array, target]
        scan_rows(sums_kernel(), layout, direction, arrays, np.float64)
    else:
        plan = make_plan(layout, direction, 0, [array, target])
        arguments = array.memory, plan, target.memory
        launch(sums_lane_kernel(), outer * inner, *arguments, block=BLOCK)
    layout.finish(out, target)
