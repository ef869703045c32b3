"""Where the steps of a batch are in memory: pointers, positions and strides of all arrays at once.

Every array is seen as (outer, num_steps, inner), the axes before and after time, and passed as all
its numbers in a row and three strides: from one outer index, step and lane to the next. A stride of
0 repeats numbers. Lanes are next to each other, or the array repeats one number as often as a
kernel reads at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.compile import inline_exact
from rlcpu.kernels.simd import address
from rlcpu.scan.recurrences.steps import After, Step


class Places(NamedTuple):
    """One of something for each array: a pointer, a position, a stride or an index.

    Attributes:
        steps: of the arrays that hold a number for every step.
        last: of the values after the last steps, (outer, inner).
        initial: of what is carried into the step that is computed first, (outer, inner).
        first: of the first output.
        second: of the second output.
    """

    steps: Step
    last: Any
    initial: Any
    first: Any
    second: Any


class Plan(NamedTuple):
    """What a kernel has to know beside the arrays, in the order of the integers that it is passed.

    Attributes:
        outer: number of indices of the axes before time.
        num_steps: length of the time axis.
        inner: number of lanes, of the axes after time.
        width: number of lanes that a core takes at a time, or of steps of a row.
        head: lanes (steps where there is one lane) before the first output's first aligned vector.
        direction: 1 if the last step is computed first, -1 if the first is.
        streamed: how many outputs are written past the caches, the first one or both.
        window: number of steps that a window holds.
    """

    outer: int
    num_steps: int
    inner: int
    width: int
    head: int
    direction: int
    streamed: int
    window: int


ARRAYS = len(Step._fields) + 4
_FIRST = len(Plan._fields)
#: Integers of a plan: `Plan`, then a stride of every array over outer indices, steps and lanes.
PLAN_SIZE = _FIRST + 3 * ARRAYS
#: The positions of index 0.
ORIGIN = Places(Step(0, 0, 0, 0, 0, 0, 0, 0, 0), 0, 0, 0, 0)


@inline_exact
def read_plan(plan):  # type: ignore[no-untyped-def]
    """The integers as a `Plan`."""
    return Plan(plan[0], plan[1], plan[2], plan[3], plan[4], plan[5], plan[6], plan[7])


@inline_exact
def read_strides(plan, axis):  # type: ignore[no-untyped-def]
    """Strides over outer indices (0), steps (1) or lanes (2)."""
    k = _FIRST + axis * ARRAYS
    steps = Step(
        *(plan[k], plan[k + 1], plan[k + 2], plan[k + 3], plan[k + 4]),
        *(plan[k + 5], plan[k + 6], plan[k + 7], plan[k + 8]),
    )
    return Places(steps, plan[k + 9], plan[k + 10], plan[k + 11], plan[k + 12])


@inline_exact
def pointers(inputs, ends, outputs):  # type: ignore[no-untyped-def]
    """Pointers of all arrays: nine inputs, last and initial, and two outputs."""
    i = inputs
    steps = Step(
        *(address(i[0]), address(i[1]), address(i[2]), address(i[3]), address(i[4])),
        *(address(i[5]), address(i[6]), address(i[7]), address(i[8])),
    )
    last, initial = address(ends[0]), address(ends[1])
    return Places(steps, last, initial, address(outputs[0]), address(outputs[1]))


@inline_exact
def moved(at, strides, count):  # type: ignore[no-untyped-def]
    """Positions `count` indices further."""
    a, s, n = at.steps, strides.steps, count
    steps = Step(
        a.reward + n * s.reward,
        a.value + n * s.value,
        a.terminated + n * s.terminated,
        a.truncated + n * s.truncated,
        a.final_value + n * s.final_value,
        a.gamma + n * s.gamma,
        a.lambda_ + n * s.lambda_,
        a.ratio + n * s.ratio,
        a.action_value + n * s.action_value,
    )
    return Places(
        steps,
        at.last + n * strides.last,
        at.initial + n * strides.initial,
        at.first + n * strides.first,
        at.second + n * strides.second,
    )


@inline_exact
def following(steps):  # type: ignore[no-untyped-def]
    """The fields of `After`."""
    return After(steps.value, steps.lambda_, steps.ratio, steps.action_value)
