"""Arrays of a recurrence in kernels: where they lie, and how their vectors are read and written.

Arrays are (outer, num_steps, inner), see `rlcpu.scan.layout`. A lane is one recurrence: a pair of
indices (outer, inner). A vector is one register of numbers, of so many lanes or of so many steps of
one lane. Functions `make_...` return functions that kernels inline, for one rule or dtype.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from rlcpu.kernels.calls import kind_of
from rlcpu.kernels.compile import inline
from rlcpu.kernels.memory import load, load_mask, pointer_to, prefetch, shifted, store, stream
from rlcpu.kernels.vectors import VECTOR_BYTES, fill, width
from rlcpu.scan.recurrences.rules import Rule, Step


class Strided(NamedTuple):
    """An array (outer, num_steps, inner) in memory; strides are in numbers, see `layout.Place`."""

    address: Any  # of the first number
    outer: Any
    time: Any
    lane: Any  # stride along `inner`


class RecurrencePlan(NamedTuple):
    """One call of a recurrence as kernels read it: whole numbers alone.

    Work is cut into blocks, which cores take in turn: lanes side by side (columns), some rows, or
    windows that begin at neighbouring steps.
    """

    outer: Any  # sizes of the arrays
    num_steps: Any
    inner: Any
    block_lanes: Any  # lanes of a block of columns, or of one of windows
    shorter_by: Any  # lanes or steps that the first block or piece lacks: others are aligned
    num_streamed: Any  # how many of the outputs are written past the caches
    direction: Any  # 1 if the last step is computed first, else -1
    ends_address: Any  # address of `RecurrenceProblem.ends`, or 0
    window_steps: Any  # steps of a window
    block_windows: Any  # windows of a lane in a block
    arrays: Any  # a `Step` of `Strided`: the inputs
    last_values: Any  # `Strided`, of one step, as `initial`: values after the last step
    initial: Any  # y before the step that is computed first
    first_output: Any  # `Strided`, of all steps
    second_output: Any  # the first one again if there is none


_STRIDED = kind_of(Strided._make([types.int64] * 4))
#: Numba's type of a `RecurrencePlan`.
PLAN: Any = kind_of(
    RecurrencePlan._make(
        [types.int64] * 10 + [kind_of(Step._make([_STRIDED] * len(Step._fields)))] + [_STRIDED] * 4
    )
)


def lanes_of(dtype: Any) -> int:
    """Return how many numbers of a NumPy dtype a vector holds."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


# ---------------------------------------------------------------- numbers in memory


@inline(exact=True)
def pointer_into(array, outer, step, lane, like):
    """Return a pointer to a number of a `Strided`, whose numbers are of the type of `like`."""
    position = outer * array.outer + step * array.time + lane * array.lane
    return shifted(pointer_to(array.address, like), position)


def make_loads(dtype: Any) -> tuple[Any, Any]:
    """Make functions that load a vector of `count` numbers or flags, or a full one, from memory.

    Returns:
        `load_numbers(pointer, position, count, other)` -> a vector; `other` stands behind `count`
        numbers.
        `load_flags(pointer, position, count)` -> a mask of uint8 flags; those behind are unset.
    """
    vector_lanes, zero = lanes_of(dtype), dtype(0.0)

    @inline(exact=True)
    def load_numbers(pointer, position, count, other):
        if count < vector_lanes:
            return load(pointer, position, 1, count, other)
        return load(pointer, position, 1)

    @inline(exact=True)
    def load_flags(pointer, position, count):
        if count < vector_lanes:
            return load_mask(pointer, position, fill(zero, 1), count)
        return load_mask(pointer, position, fill(zero, 1))

    return load_numbers, load_flags


@inline(exact=True)
def write_numbers(vector, pointer, position, count, is_streamed):
    """Write the first `count` numbers of a vector, past the caches if `is_streamed` and all."""
    if count < width(pointer, 1):
        store(vector, pointer, position, count)
    elif is_streamed:
        stream(vector, pointer, position)
    else:
        store(vector, pointer, position)


@inline(exact=True)
def read_initial(plan, outer, lane, stride, num_lanes, y):
    """Overwrite y of `num_lanes` lanes with what they begin with: the plan's `initial`.

    The first one is (outer, lane), and `stride` leads to the next in `plan.initial`.
    """
    initial = pointer_into(plan.initial, outer, 0, lane, y[0])
    for i in range(num_lanes):
        y[i] = initial[i * stride]


# ---------------------------------------------------------------- fields of a step


class StepReaders(NamedTuple):
    """Functions that read the arrays of a rule's steps, for kernels.

    Fields that the rule does not use are read nowhere: LLVM drops their loads.
    """

    #: (plan, outer, step, lane) -> a `Step` of pointers to these numbers.
    pointers_at: Any
    #: The same of the next step in time; beyond the last one its value is that of `last_values`,
    #: and other fields must not be read.
    pointers_after: Any
    #: (pointers, position, count) -> a `Step` of vectors of `count` numbers, `position` behind the
    #: pointers.
    read_step: Any
    #: (pointers, position, num_values, num_others, other_value) -> the fields that rules read of
    #: the next step, a `Step`: a vector of `num_values` values, then `other_value`, and vectors of
    #: `num_others` numbers of the other fields, then 0.
    read_after: Any
    #: (pointers, position) asks for the cache lines of the fields that are used.
    prefetch_step: Any


def make_step_readers(rule: Rule, dtype: Any) -> StepReaders:
    """Make the functions that read a rule's steps, of arrays of one dtype."""
    load_numbers, load_flags = make_loads(dtype)
    zero, flag = dtype(0.0), np.uint8(0)
    is_read = Step._make(field in rule.reads for field in Step._fields)

    @inline(exact=True)
    def pointers_at(plan, outer, step, lane):
        """Return pointers to the numbers of one step of a lane."""
        x = plan.arrays
        return Step(
            reward=pointer_into(x.reward, outer, step, lane, zero),
            value=pointer_into(x.value, outer, step, lane, zero),
            terminated=pointer_into(x.terminated, outer, step, lane, flag),
            truncated=pointer_into(x.truncated, outer, step, lane, flag),
            final_value=pointer_into(x.final_value, outer, step, lane, zero),
            gamma=pointer_into(x.gamma, outer, step, lane, zero),
            lambda_=pointer_into(x.lambda_, outer, step, lane, zero),
            ratio=pointer_into(x.ratio, outer, step, lane, zero),
            action_value=pointer_into(x.action_value, outer, step, lane, zero),
        )

    @inline(exact=True)
    def pointers_after(plan, outer, step, lane):
        """Return pointers to the next step's fields that rules read, see `StepReaders`."""
        after = pointers_at(plan, outer, step + 1, lane)
        last_value = pointer_into(plan.last_values, outer, 0, lane, zero)
        value = after.value if step + 1 < plan.num_steps else last_value
        return Step(0, value, 0, 0, 0, 0, after.lambda_, after.ratio, after.action_value)

    @inline(exact=True)
    def read_step(pointers, position, count):
        """Return the vectors of a step, of `count` numbers from a position on."""
        return Step(
            reward=load_numbers(pointers.reward, position, count, zero),
            value=load_numbers(pointers.value, position, count, zero),
            terminated=load_flags(pointers.terminated, position, count),
            truncated=load_flags(pointers.truncated, position, count),
            final_value=load_numbers(pointers.final_value, position, count, zero),
            gamma=load_numbers(pointers.gamma, position, count, zero),
            lambda_=load_numbers(pointers.lambda_, position, count, zero),
            ratio=load_numbers(pointers.ratio, position, count, zero),
            action_value=load_numbers(pointers.action_value, position, count, zero),
        )

    @inline(exact=True)
    def read_after(pointers, position, num_values, num_others, other_value):
        """Return the vectors of the next step that rules read, see `StepReaders`; others are 0."""
        value = load_numbers(pointers.value, position, num_values, other_value)
        lambda_ = load_numbers(pointers.lambda_, position, num_others, zero)
        ratio = load_numbers(pointers.ratio, position, num_others, zero)
        action_value = load_numbers(pointers.action_value, position, num_others, zero)
        return Step(0, value, 0, 0, 0, 0, lambda_, ratio, action_value)

    @inline(exact=True)
    def prefetch_step(pointers, position):
        """Ask for the cache lines of the fields that the rule reads."""
        if is_read.reward:
            prefetch(pointers.reward, position)
        if is_read.value:
            prefetch(pointers.value, position)
        if is_read.terminated:
            prefetch(pointers.terminated, position)
        if is_read.truncated:
            prefetch(pointers.truncated, position)
        if is_read.final_value:
            prefetch(pointers.final_value, position)
        if is_read.gamma:
            prefetch(pointers.gamma, position)
        if is_read.lambda_:
            prefetch(pointers.lambda_, position)
        if is_read.ratio:
            prefetch(pointers.ratio, position)
        if is_read.action_value:
            prefetch(pointers.action_value, position)

    return StepReaders(pointers_at, pointers_after, read_step, read_after, prefetch_step)
