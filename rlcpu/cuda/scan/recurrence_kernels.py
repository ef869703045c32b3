"""Driver of recurrences over time: a thread takes one lane through all steps.

Threads of a warp take lanes that are next to each other, so that a step's numbers are read and
written in whole lines if lanes are contiguous.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.scan.steps import device_step
from rlcpu.scan.recurrences.rules import Rule, Step, link, link_always

#: Integers of a plan: sizes of the axes before time, of time and after it; 1 if the last step is
#: computed first, else -1; then strides of all arrays over outer indices, over steps, over lanes.
OUTER, NUM_STEPS, INNER, DIRECTION, STRIDES = 0, 1, 2, 3, 4
#: Arrays: the fields of `Step`, last, initial, first, second.
ARRAYS = len(Step._fields) + 4
LAST, INITIAL, FIRST, SECOND = 9, 10, 11, 12
#: Steps that are read before the first of them is computed. A read takes 0.6 us: 16,384 lanes of
#: 7 numbers would otherwise ask for a sixth of what an H100 can carry meanwhile, by Little's law.
AHEAD = 4


class Lane(NamedTuple):
    """Which lane a thread has.

    Attributes:
        plan: the integers.
        outer: index of the axes before time.
        inner: index of the axes after it.
    """

    plan: Any
    outer: Any
    inner: Any


def place(lane: Any, array: Any, k: Any) -> Any:
    """Where an array has the number of step k."""
    plan, at = lane.plan, STRIDES + array
    begin = lane.outer * plan[at] + lane.inner * plan[at + 2 * ARRAYS]
    return begin + k * plan[at + ARRAYS]


def get_step(arrays: Any, lane: Any, k: Any) -> Any:
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


def last_step(value: Any, zero: Any) -> Any:
    """What stands for the step after the last one."""
    return Step(zero, value, False, False, zero, zero, zero, zero, zero)


def as_after(step: Any, zero: Any) -> Any:
    """What rules may see of the step after: whole steps would fill registers."""
    kept = step.lambda_, step.ratio, step.action_value
    return Step(zero, step.value, False, False, zero, zero, kept[0], kept[1], kept[2])


def _make_advance(rule: Rule, dtype: Any) -> Any:
    """Function: one step of a lane, written; the recurrence and the step as those before see it."""
    coefficients = device_step(rule.coefficients, dtype)
    results = device_step(rule.results, dtype)
    connect = device_step(link if rule.cuts else link_always, dtype)
    two, zero = rule.outputs == 2, dtype(0.0)

    def advance(
        step: Any, state: Any, options: Any, lane: Any, k: Any, first: Any, second: Any
    ) -> Any:
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
    """Driver: (inputs..., last, initial, options, plan, first, second), all one-dimensional.

    The first nine are the fields of `Step`, flags as uint8; `options` are three numbers, `plan`
    is int64. What the rule does not read may be anything.
    """
    advance, zero = _make_advance(rule, dtype), dtype(0.0)

    @kernel(dtype=dtype, exact=True)
    def scan(i0, i1, i2, i3, i4, i5, i6, i7, i8, last, initial, options, plan, first, second):
        number = cuda.grid(1)
        if number < plan[OUTER] * plan[INNER]:
            outer = number // plan[INNER]
            lane = Lane(plan, outer, number - outer * plan[INNER])
            arrays = Step(i0, i1, i2, i3, i4, i5, i6, i7, i8)
            settings = options[0], options[1], options[2]
            after = last_step(last[place(lane, LAST, 0)], zero)
            state = (initial[place(lane, INITIAL, 0)], after)
            steps, turn = plan[NUM_STEPS], plan[DIRECTION]
            k = steps - 1 if turn > 0 else 0
            for _ in range(steps // AHEAD):
                one, two = get_step(arrays, lane, k), get_step(arrays, lane, k - turn)
                three, four = (
                    get_step(arrays, lane, k - 2 * turn),
                    get_step(arrays, lane, k - 3 * turn),
                )
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
