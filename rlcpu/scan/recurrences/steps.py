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
    lead: Any  # lanes or steps by which the first block or piece is shorter: others are aligned
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
    """Make `load_numbers` and `load_flags`, both (pointer, position, count) -> vector.

    The vector has `count` numbers or flags, uint8 in memory, from a position on, and then 0.
    """
    vector_lanes, zero = lanes_of(dtype), dtype(0.0)

    @inline(exact=True)
    def load_numbers(pointer, position, count):
        if count < vector_lanes:
            return load(pointer, position, 1, count, zero)
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


# ---------------------------------------------------------------- fields of a step


def make_step_readers(rule: Rule, dtype: Any) -> tuple[Any, Any, Any]:
    """Make three functions that read the arrays of a rule's steps.

    Returns:
        `pointers_at(plan, outer, step, lane)` -> a `Step` of pointers to these numbers.
        `read_step(pointers, position, count)` -> a `Step` of vectors of `count` numbers, that many
        behind the pointers. Fields that no rule uses are read nowhere: LLVM drops their loads.
        `prefetch_step(pointers, position)` asks for the cache lines of the fields that are used.
    """
    load_numbers, load_flags = make_loads(dtype)
    number, flag, is_read = dtype(0.0), np.uint8(0), is_among(rule.reads)

    @inline(exact=True)
    def pointers_at(plan, outer, step, lane):
        """Return pointers to the numbers of one step of a lane."""
        x = plan.arrays
        return Step(
            reward=pointer_into(x.reward, outer, step, lane, number),
            value=pointer_into(x.value, outer, step, lane, number),
            terminated=pointer_into(x.terminated, outer, step, lane, flag),
            truncated=pointer_into(x.truncated, outer, step, lane, flag),
            final_value=pointer_into(x.final_value, outer, step, lane, number),
            gamma=pointer_into(x.gamma, outer, step, lane, number),
            lambda_=pointer_into(x.lambda_, outer, step, lane, number),
            ratio=pointer_into(x.ratio, outer, step, lane, number),
            action_value=pointer_into(x.action_value, outer, step, lane, number),
        )

    @inline(exact=True)
    def read_step(pointers, position, count):
        """Return the vectors of a step, of `count` numbers from a position on."""
        return Step(
            reward=load_numbers(pointers.reward, position, count),
            value=load_numbers(pointers.value, position, count),
            terminated=load_flags(pointers.terminated, position, count),
            truncated=load_flags(pointers.truncated, position, count),
            final_value=load_numbers(pointers.final_value, position, count),
            gamma=load_numbers(pointers.gamma, position, count),
            lambda_=load_numbers(pointers.lambda_, position, count),
            ratio=load_numbers(pointers.ratio, position, count),
            action_value=load_numbers(pointers.action_value, position, count),
        )

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

    return pointers_at, read_step, prefetch_step


def is_among(fields: tuple[str, ...]) -> Step:
    """Return a `Step` of bools: whether each field is one of these names."""
    return Step._make(field in fields for field in Step._fields)


def positions_of(fields: tuple[str, ...]) -> Step:
    """Return a `Step` of the positions of its fields among these names; 0 for all others."""
    return Step._make(fields.index(f) if f in fields else 0 for f in Step._fields)


# ---------------------------------------------------------------- from step to step


class Carried(NamedTuple):
    """Scratch memory with what each lane of a block takes from one step to the next.

    Row 0 has y of the step computed before, the rows after it the fields `rule.reads_after` of the
    next step in time, one number for each lane.
    """

    memory: Any  # pointer to row 0
    row_stride: Any  # numbers from one row to the next


def make_read_after(rule: Rule) -> Any:
    """Make `read_after(memory, lane, row_stride)` -> a `Step` of the next step in time.

    Its fields lie in rows of lanes, in the order of `rule.reads_after`: `memory` points to the
    first row, `row_stride` numbers lie between rows, and a vector begins at `lane` in each. Other
    fields are placeholders, 0 or numbers of the first row: no rule uses them, and LLVM drops the
    loads.
    """
    row = positions_of(rule.reads_after)

    @inline(exact=True)
    def read_after(memory, lane, row_stride):
        """Return the fields of the next step in time that the rule reads."""
        return Step(
            reward=0,
            value=load(memory, lane + row.value * row_stride, 1),
            terminated=0,
            truncated=0,
            final_value=0,
            gamma=0,
            lambda_=load(memory, lane + row.lambda_ * row_stride, 1),
            ratio=load(memory, lane + row.ratio * row_stride, 1),
            action_value=load(memory, lane + row.action_value * row_stride, 1),
        )

    return read_after


def make_set_initial(rule: Rule, dtype: Any, is_rows: bool) -> Any:
    """Make `set_initial(plan, outer, lane, width, carried)`, for the step that is computed first.

    It overwrites a `Carried` of `width` lanes: with `plan.initial`, and with `plan.last_values` if
    the rule reads the next value. The lanes begin at (outer, lane), and are rows or columns.
    """
    reads_value = len(rule.reads_after) > 0  # the value is the first of them, see `Rule`
    zero = dtype(0.0)

    @inline(exact=True)
    def set_initial(plan, outer, lane, width, carried):
        """Overwrite `carried` with what lanes have before the step that is computed first."""
        initial = pointer_into(plan.initial, outer, 0, lane, zero)
        last = pointer_into(plan.last_values, outer, 0, lane, zero)
        for i in range(width):
            stride = plan.initial.outer if is_rows else plan.initial.lane
            carried.memory[i] = initial[i * stride]
            if reads_value:
                stride = plan.last_values.outer if is_rows else plan.last_values.lane
                carried.memory[carried.row_stride + i] = last[i * stride]

    return set_initial
