"""Recurrences over an axis of arrays on a CUDA device, by the rules of `rlcpu.scan`.

A thread takes one lane through all steps. Threads of a warp take lanes that are next to each other,
so that the numbers of a step are read and written in whole lines. Few rows of linear recurrences
and of sums of exponentials are scanned by a block each.

The public functions are those of `rlcpu.scan`: what they ask of a backend is here, under the names
that the CPU's has.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.device import SIMULATED, asarray, cuda, empty, launch, xp, zeros
from rlcpu.kernels.compiler.compile import define, source_of_tuple, specialise
from rlcpu.scan.recurrences import log_sums
from rlcpu.scan.recurrences.driver import RecurrenceProblem
from rlcpu.scan.recurrences.rules import (
    FLAGS,
    LINEAR,
    LINEAR_GRADIENTS,
    Rule,
    Step,
    next_y_or_cut,
)

__all__ = ["asarray", "layout_of", "run", "run_log_sums", "xp"]

# ---------------------------------------------------------------- arrays


class DeviceStrided(NamedTuple):
    """An array as kernels take it, whatever its layout: machine code is the same for all."""

    memory: Any  # all its numbers, and perhaps more, of one dimension and contiguous
    # Numbers from one index to the next, of the axes that `LaneSizes` names.
    outer_stride: int
    step_stride: int
    inner_stride: int


class LaneSizes(NamedTuple):
    """Numbers of indices of an array of lanes."""

    outer: int  # before the axis of steps
    num_steps: int  # along it
    inner: int  # after it


class StepsAxis(NamedTuple):
    """A shape and its axis of steps, seen as (outer, num_steps, inner)."""

    shape: tuple[int, ...]  # of the arrays
    axis: int  # of the steps, counted from the first

    @property
    def num_steps(self) -> int:
        """Return the length of the axis."""
        return self.shape[self.axis]

    @property
    def sizes(self) -> LaneSizes:
        """Return the sizes around the axis."""
        shape, axis = self.shape, self.axis
        return LaneSizes(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))

    def empty(self, dtype: Any) -> Any:
        """Return a new array of the shape."""
        return empty(self.shape, dtype)

    def strided(self, array: Any) -> DeviceStrided:
        """Return the array broadcast to the shape, copied if three strides cannot describe it.

        ValueError for a stride of steps that 32 bits do not count.
        """
        if array.ndim == 0 and type(array) is np.ndarray:
            return DeviceStrided(constant(array.item(), array.dtype), 0, 0, 0)
        whole, (_, num_steps, inner) = asarray(array), self.sizes
        if whole.shape == self.shape and whole.flags.c_contiguous and inner < 2**31:
            return DeviceStrided(whole.reshape(-1), num_steps * inner, inner, 1)
        if whole.shape != self.shape:
            whole = xp.broadcast_to(whole, self.shape)
        whole = whole.reshape(self.sizes)
        if any(stride < 0 or stride % whole.itemsize for stride in whole.strides):
            whole = xp.ascontiguousarray(whole)
        strides = [stride // whole.itemsize for stride in whole.strides]
        if strides[1] >= 2**31:
            raise ValueError(
                f"shape {self.shape}: expected fewer than 2**31 numbers from a step to the next, "
                f"got {strides[1]}"
            )
        # Numbers from the first to the last one, whatever lies between.
        size = 1 + sum((n - 1) * stride for n, stride in zip(whole.shape, strides, strict=True))
        as_strided = xp.lib.stride_tricks.as_strided
        return DeviceStrided(as_strided(whole, (size,), (whole.itemsize,)), *strides)

    def strided_ends(self, array: Any, dtype: Any) -> DeviceStrided:
        """Return an array without the axis of steps as one of a single step, see `strided`."""
        array = array.astype(dtype, copy=False)
        array = xp.expand_dims(asarray(array), self.axis) if array.ndim else array
        shape = (*self.shape[: self.axis], 1, *self.shape[self.axis + 1 :])
        return StepsAxis(shape, self.axis).strided(array)

    def finish(self, out: Any, written: DeviceStrided) -> None:
        """Copy a result to its array, if `strided` had to copy that."""
        if not xp.may_share_memory(out, written.memory):
            out[...] = written.memory.reshape(self.shape)


def layout_of(array: Any, axis: int) -> StepsAxis:
    """Return how an array lies; ValueError for more steps than 32 bits count."""
    if array.shape[axis] >= 2**31:
        raise ValueError(f"shape {array.shape}: expected fewer than 2**31 steps on a device")
    return StepsAxis(array.shape, axis)


def constant(number: float, dtype: Any) -> Any:
    """Return (1,) on the device; the same number is copied there once."""
    return _constant(number, np.dtype(dtype), 0 if SIMULATED else xp.cuda.Device().id)


@functools.lru_cache(maxsize=256)
def _constant(number: float, dtype: Any, device: int) -> Any:
    array = asarray(np.array([number], dtype))
    if not SIMULATED:  # a stream that uses it later does not wait for this one
        xp.cuda.get_current_stream().synchronize()
    return array


class ThreadLane(NamedTuple):
    """The lane of a thread: its index before the axis of steps, and the one after it."""

    outer: Any
    inner: Any


def lane_of(sizes, number):
    """Return lane `number`; lanes that follow each other are neighbours in memory."""
    outer = number // sizes.inner
    return ThreadLane(outer, number - outer * sizes.inner)


def nth_step(sizes, direction, i):
    """Return which step is computed as number i: from the last one on if `direction` is 1."""
    return sizes.num_steps - 1 - i if direction > 0 else i


def position_of(array, lane, k):
    """Return the position of step k of a lane in a `DeviceStrided`, unsigned.

    As an index it needs no look at its sign, which would count from the end.
    """
    # As an index of 64 bits the compiler would keep one for each array and step that is read ahead,
    # in more registers than there are; of two numbers of 32 bits the product is one instruction.
    steps = np.int64(np.int32(k)) * np.int64(np.int32(array.step_stride))
    return np.uint64(lane.outer * array.outer_stride + steps + lane.inner * array.inner_stride)


def number_at(array, lane, k):
    """Return the number of step k of a lane in a `DeviceStrided`."""
    return array.memory[position_of(array, lane, k)]


# ---------------------------------------------------------------- one thread for each lane

#: Steps that a thread reads together, while it computes those before them. By Little's law 65,536
#: lanes of generalised advantages, 14 bytes a step, then ask an H200 for 4 TB/s of reads, of which
#: it has 2.7 beside the writes; of 8 steps, registers would leave room for fewer lanes.
AHEAD = 4
#: Threads of a block: few lanes are spread over more multiprocessors that way.
BLOCK = 64


def places_of(steps, lane, k):
    """Return where step k of a lane is in each array: a `Step` of uint64."""
    return Step(
        position_of(steps.reward, lane, k),
        position_of(steps.value, lane, k),
        position_of(steps.terminated, lane, k),
        position_of(steps.truncated, lane, k),
        position_of(steps.final_value, lane, k),
        position_of(steps.gamma, lane, k),
        position_of(steps.lambda_, lane, k),
        position_of(steps.ratio, lane, k),
        position_of(steps.action_value, lane, k),
    )


def read_step(steps, places):
    """Return a step; `steps` is a `Step` of `DeviceStrided`, flags as uint8.

    Fields that a rule does not use are not read: the compiler drops the loads.
    """
    return Step(
        steps.reward.memory[places.reward],
        steps.value.memory[places.value],
        steps.terminated.memory[places.terminated] != 0,
        steps.truncated.memory[places.truncated] != 0,
        steps.final_value.memory[places.final_value],
        steps.gamma.memory[places.gamma],
        steps.lambda_.memory[places.lambda_],
        steps.ratio.memory[places.ratio],
        steps.action_value.memory[places.action_value],
    )


def next_places(steps, places, direction):
    """Return the places of the step that is computed next."""
    return Step(
        next_place(steps.reward, places.reward, direction),
        next_place(steps.value, places.value, direction),
        next_place(steps.terminated, places.terminated, direction),
        next_place(steps.truncated, places.truncated, direction),
        next_place(steps.final_value, places.final_value, direction),
        next_place(steps.gamma, places.gamma, direction),
        next_place(steps.lambda_, places.lambda_, direction),
        next_place(steps.ratio, places.ratio, direction),
        next_place(steps.action_value, places.action_value, direction),
    )


def next_place(array, place, direction):
    """Return where the step is that is computed after the one at a place; numbers wrap around."""
    distance = np.uint64(array.step_stride)
    return place + (np.uint64(0) - distance if direction > 0 else distance)


def step_after(zero, value, lambda_, ratio, action_value):
    """Return what rules read of the step after, and zeros: whole steps would fill registers."""
    return Step(zero, value, False, False, zero, zero, lambda_, ratio, action_value)


def device_rule(function: Callable[..., Any], dtype: Any) -> Any:
    """Return a function of a rule for kernels, in IEEE arithmetic of one dtype."""
    return specialise(function, dtype, exact=True)


class LaneInputs(NamedTuple):
    """Inputs of a recurrence."""

    steps: Step  # of `DeviceStrided`, flags as uint8
    last: DeviceStrided  # values after the last steps, of one step
    initial: DeviceStrided  # y before the step that is computed first, of one step
    clips: Any  # the three of `Rule`


@functools.cache
def lane_kernel(rule: Rule, dtype: Any, ahead: int) -> Any:
    """Return the driver (inputs, sizes, direction, chosen, first, second).

    `inputs` are `LaneInputs`, `sizes` those of `StepsAxis`, `first` and `second` the outputs,
    `DeviceStrided`, the same for a rule of one; `direction` is 1 to go from the last step to the
    first, -1 the other way. Lanes whose number in `chosen`, int32, is 0 are left out; a single
    number is for all.
    """
    coefficients, results = device_rule(rule.coefficients, dtype), device_rule(rule.results, dtype)
    continue_y = device_rule(rule.continue_y, dtype)
    has_second, zero = rule.outputs == 2, dtype(0.0)

    def advance(step, state, clips, at, first, second):
        """Compute and write a step, and return the state for the next one.

        That is y, and the fields of this step that are read as those of the step after. `at` are
        the places of the two outputs.
        """
        previous_y, after = state
        a, b = coefficients(step, after, clips)
        y = continue_y(a, b, previous_y)
        computed = results(y, previous_y, step, after, clips)
        first.memory[at[0]] = computed[0]
        if has_second:
            second.memory[at[1]] = computed[1]
        return y, step_after(zero, step.value, step.lambda_, step.ratio, step.action_value)

    read_some, advance_some = _make_read_some(ahead), _make_advance_some(ahead, advance)

    @kernel(exact=True)
    def scan(inputs, sizes, direction, chosen, first, second):
        """Scan one lane, backward or forward, a thread each; `ahead` steps are read together."""
        number, steps, clips = cuda.grid(1), inputs.steps, inputs.clips
        if number >= sizes.outer * sizes.inner or chosen[min(number, chosen.size - 1)] == 0:
            return
        lane = lane_of(sizes, number)
        after = step_after(zero, number_at(inputs.last, lane, 0), zero, zero, zero)
        state = number_at(inputs.initial, lane, 0), after
        k = nth_step(sizes, direction, 0)
        places = places_of(steps, lane, k)
        at = position_of(first, lane, k), position_of(second, lane, k)
        batches = sizes.num_steps // ahead
        if batches > 0:
            places, batch = read_some(steps, places, direction)
            for _ in range(batches - 1):
                places, following = read_some(steps, places, direction)
                at, state = advance_some(batch, at, state, clips, first, second, direction)
                batch = following
            at, state = advance_some(batch, at, state, clips, first, second, direction)
        for _ in range(sizes.num_steps % ahead):
            step = read_step(steps, places)
            state = advance(step, state, clips, at, first, second)
            places = next_places(steps, places, direction)
            at = next_outputs(first, second, at, direction)

    return scan


def next_outputs(first, second, at, direction):
    """Return the places of the two outputs of the step that is computed next."""
    return next_place(first, at[0], direction), next_place(second, at[1], direction)


def _make_read_some(count: int) -> Callable[..., Any]:
    """Make (steps, places, direction) -> (places, `count` steps), in a line for each."""
    lines = [
        line.format(k)
        for k in range(count)
        for line in (
            "step{} = read_step(steps, places)",
            "places = next_places(steps, places, direction)",
        )
    ]
    lines.append(f"return places, {source_of_tuple(f'step{k}' for k in range(count))}")
    source = "def read_some(steps, places, direction):" + "".join(f"\n    {each}" for each in lines)
    return define(source, read_step=read_step, next_places=next_places)


def _make_advance_some(count: int, advance: Callable[..., Any]) -> Callable[..., Any]:
    """Make (batch, at, state, clips, first, second, direction) -> (at, state), of `count` steps."""
    lines = [
        line.format(k)
        for k in range(count)
        for line in (
            "state = advance(batch[{}], state, clips, at, first, second)",
            "at = next_outputs(first, second, at, direction)",
        )
    ]
    body = "".join(f"\n    {line}" for line in [*lines, "return at, state"])
    source = f"def advance_some(batch, at, state, clips, first, second, direction):{body}"
    return define(source, advance=advance, next_outputs=next_outputs)


@functools.cache
def window_kernel(rule: Rule, dtype: Any) -> Any:
    """Return the driver (inputs, sizes, window, first): a thread for each window.

    y of a step is b + a * (b' + a' * (...)) over the `window` steps from it on, and the innermost
    y is the value after the last of them. Time runs backward, and there is no initial y. What a
    thread reads its neighbours read too, so that n steps cost n reads of the first cache.
    """
    coefficients, zero = device_rule(rule.coefficients, dtype), dtype(0.0)
    continue_y = device_rule(next_y_or_cut, dtype)

    @kernel(exact=True)
    def slide(inputs, sizes, window, first):
        """Compute y of one window, from its last step to its first."""
        number, steps, num_steps = cuda.grid(1), inputs.steps, sizes.num_steps
        if number < sizes.outer * num_steps * sizes.inner:
            row, inner = number // sizes.inner, number % sizes.inner
            lane, begin = ThreadLane(row // num_steps, inner), row % num_steps
            stop = min(begin + window, num_steps)
            after = step_after(zero, number_at(inputs.last, lane, 0), zero, zero, zero)
            if stop < num_steps:
                step = read_step(steps, places_of(steps, lane, stop))
                after = step_after(zero, step.value, step.lambda_, step.ratio, step.action_value)
            y = after.value
            for i in range(begin, stop):
                step = read_step(steps, places_of(steps, lane, stop - 1 - (i - begin)))
                a, b = coefficients(step, after, inputs.clips)
                y = continue_y(a, b, y)
                after = step_after(zero, step.value, step.lambda_, step.ratio, step.action_value)
            first.memory[position_of(first, lane, begin)] = y

    return slide


def run(
    rule: Rule,
    layout: StepsAxis,
    problem: RecurrenceProblem,
    outs: tuple[Any, ...],
    num_threads: int | None = None,
) -> None:
    """Compute a recurrence: `run` of `rlcpu.scan.recurrences.driver`, of arrays on the device.

    Returns before the outputs have been overwritten. `num_threads` is not used. `problem.window` is
    0 where all steps count, and steps have None for what the rule does not read.
    """
    dtype, sizes, direction = outs[0].dtype.type, layout.sizes, problem.direction
    if outs[0].size == 0:
        return
    steps = []
    for name, array in problem.steps._asdict().items():
        unused = np.zeros((), np.uint8 if name in FLAGS else dtype)
        steps.append(layout.strided(unused if array is None else array))
    last, initial = (layout.strided_ends(x, dtype) for x in (problem.last, problem.initial))
    outputs = [layout.strided(out) for out in outs]
    first, second = outputs[0], outputs[-1]
    clips = tuple(map(dtype, problem.clips or (0.0, 0.0, 0.0)))
    inputs = LaneInputs(Step(*steps), last, initial, clips)
    if problem.window:
        launch(window_kernel(rule, dtype), outs[0].size, inputs, sizes, problem.window, first)
    else:
        chosen = constant(1, np.int32)
        is_linear = rule in (LINEAR, LINEAR_GRADIENTS)
        if is_linear and sizes.inner == 1 and sizes.outer < MANY and sizes.num_steps > 1:
            inputs, chosen = _scan_linear_rows(inputs, sizes, direction, first)
        arguments = inputs, sizes, direction, chosen, first, second
        launch(lane_kernel(rule, dtype, AHEAD), sizes.outer * sizes.inner, *arguments, block=BLOCK)
    for out, written in zip(outs, outputs, strict=True):
        layout.finish(out, written)


# ---------------------------------------------------------------- a block for each row

#: Rows from which each has a thread of its own: the lines that a warp reads a number of stay in the
#: first cache until it has read them all.
MANY = 2**12
#: Threads of a block; the simulator starts them one by one.
THREADS = 4 if SIMULATED else 256


class RowRule(NamedTuple):
    """Functions by which rows are scanned.

    A state (m, s), two numbers, stands for some steps that follow each other.
    """

    load: Callable[..., Any]  # (x, y) -> state of one step, from its two numbers
    start: Callable[..., Any]  # (number) -> state before a row, from its initial number
    #: (m, s, n, t) -> state of the steps of two states, (m, s) the earlier one.
    merge: Callable[..., Any]
    value: Callable[..., Any]  # (m, s) -> result of a step, from the state of all steps up to it
    empty: tuple[float, float]  # state of no steps


def row_kernel(rule: RowRule, dtype: Any) -> Any:
    """Make the driver (x, y, initial, sizes, direction, is_broken, out): a block scans a row.

    x and y have the two numbers of each step, `direction` is as in `lane_kernel`. `is_broken` int32
    (rows,) is set to 1 where a state, of two numbers of `dtype`, is not finite.
    """
    load, start, merge, value, (empty_m, empty_s) = rule

    def prefix(m, s, shared):
        """Return the state of the steps of all threads up to this one, and of the whole block.

        (m, s) is the state of this thread's step, `shared` memory (2, THREADS). In log2(THREADS)
        rounds each state is merged with the one 1, 2, 4, ... threads before.
        """
        thread, distance = cuda.threadIdx.x, 1
        shared[0, thread], shared[1, thread] = m, s
        cuda.syncthreads()
        while distance < THREADS:
            if thread >= distance:
                m, s = merge(shared[0, thread - distance], shared[1, thread - distance], m, s)
            cuda.syncthreads()
            shared[0, thread], shared[1, thread] = m, s
            cuda.syncthreads()
            distance *= 2
        last = shared[0, THREADS - 1], shared[1, THREADS - 1]
        cuda.syncthreads()
        return (m, s), last

    @kernel(exact=True)
    def scan_rows(x, y, initial, sizes, direction, is_broken, out):
        """Scan one row, tile by tile of `THREADS` steps, a block each."""
        shared = cuda.shared.array((2, THREADS), dtype)
        thread, lane = cuda.threadIdx.x, ThreadLane(cuda.blockIdx.x, 0)
        before = start(number_at(initial, lane, 0))
        for begin in range(0, sizes.num_steps, THREADS):
            at, m, s = begin + thread, empty_m, empty_s
            k = nth_step(sizes, direction, at)
            if at < sizes.num_steps:
                m, s = load(number_at(x, lane, k), number_at(y, lane, k))
            total, last = prefix(m, s, shared)
            if at < sizes.num_steps:
                m, s = merge(before[0], before[1], total[0], total[1])
                out.memory[position_of(out, lane, k)] = value(m, s)
                if (m - m) + (s - s) != 0:  # as NaN is
                    is_broken[lane.outer] = 1
            before = merge(before[0], before[1], last[0], last[1])

    return scan_rows


def _scan_rows(driver: Any, arrays: Any, sizes: LaneSizes, direction: int, out: Any) -> Any:
    """Run a driver of `row_kernel` on (x, y, initial), `DeviceStrided`; return `is_broken`."""
    is_broken = zeros(sizes.outer, np.int32)
    arguments = *arrays, sizes, direction, is_broken, out
    launch(driver, sizes.outer, *arguments, block=THREADS, grid=sizes.outer)
    return is_broken


@functools.cache
def linear_kernel(dtype: Any) -> Any:
    """Make the kernel of y = a * y' + b, see `row_kernel`.

    The state (m, s) of some steps says that y after them is m * y' + s, where y' is that before.
    """
    zero, one = dtype(0.0), dtype(1.0)
    rule = RowRule(
        load=lambda a, b: (a, b),
        start=lambda initial: (zero, initial),  # whatever was before
        merge=lambda m, s, n, t: (m * n, s * n + t),  # n * (m * y' + s) + t
        value=lambda m, s: s,
        empty=(one, zero),
    )
    return row_kernel(rule, dtype)


def _scan_linear_rows(
    inputs: LaneInputs, sizes: LaneSizes, direction: int, out: DeviceStrided
) -> tuple[LaneInputs, Any]:
    """Scan rows of a linear recurrence, a block each, and return which have to be computed again.

    Those are the rows where a product of coefficients overflowed: its infinity or NaN would spread
    to steps that it does not reach. A thread for each takes them step by step. It reads the inputs
    that are returned too, with a copy of b where that is in the memory of `out`.
    """
    a, b = inputs.steps.gamma, inputs.steps.reward
    if xp.may_share_memory(b.memory, out.memory):
        b = b._replace(memory=b.memory.copy())
    driver = linear_kernel(out.memory.dtype.type)
    chosen = _scan_rows(driver, (a, b, inputs.initial), sizes, direction, out)
    return inputs._replace(steps=inputs.steps._replace(reward=b)), chosen


# ---------------------------------------------------------------- logarithms of sums


@functools.cache
def sums_kernel() -> Any:
    """Make the kernel of logarithms of cumulative sums, see `row_kernel` and `log_sums`.

    The state (m, s) of some steps is a maximum and a sum relative to it.
    """
    nothing, zero, one = -np.inf, 0.0, 1.0
    rule = RowRule(
        load=lambda x, _: (np.float64(x), zero if x == nothing else one),
        start=lambda _: (nothing, zero),
        merge=log_sums.merge_states,
        value=log_sums.log_of_state,
        empty=(nothing, zero),
    )
    return row_kernel(rule, np.float64)


@functools.cache
def sums_lane_kernel() -> Any:
    """Return the driver (x, sizes, direction, out), with a thread for each lane."""
    add_number, log_of_state = log_sums.add_number, log_sums.log_of_state

    @kernel(exact=True)
    def scan(x, sizes, direction, out):
        """Scan one lane, forward or backward, a thread each."""
        number = cuda.grid(1)
        if number < sizes.outer * sizes.inner:
            lane, m, s = lane_of(sizes, number), -np.inf, 0.0
            for i in range(sizes.num_steps):
                k = nth_step(sizes, direction, i)
                m, s = add_number(m, s, np.float64(number_at(x, lane, k)))
                out.memory[position_of(out, lane, k)] = log_of_state(m, s)

    return scan


def run_log_sums(
    layout: StepsAxis, x: Any, out: Any, reverse: bool, num_threads: int | None = None
) -> None:
    """Overwrite `out`, which may be x, with logarithms of cumulative sums of exponentials of x.

    Computed in float64, whatever the dtype; returns before that has happened.
    """
    sizes, direction = layout.sizes, 1 if reverse else -1
    array, target = layout.strided(x), layout.strided(out)
    if sizes.inner == 1 and sizes.outer < MANY:
        # There is no second array, and no initial number.
        _scan_rows(sums_kernel(), (array, array, array), sizes, direction, target)
    else:
        arguments = array, sizes, direction, target
        launch(sums_lane_kernel(), sizes.outer * sizes.inner, *arguments, block=BLOCK)
    layout.finish(out, target)
