"""What drivers of recurrences are told of arrays, and how they read and write steps of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from rlcpu.kernels.calls import kind_of
from rlcpu.kernels.compile import inline
from rlcpu.kernels.memory import load, load_mask, pointer_to, prefetch, shifted, store, stream
from rlcpu.kernels.vectors import VECTOR_BYTES, fill
from rlcpu.kernels.vectors import width as width_of
from rlcpu.scan.recurrences.rules import Rule, Step


class Strided(NamedTuple):
    """Place of an array (outer, num_steps, inner), strides in numbers; see `layout.Place`."""

    address: Any
    outer: Any
    time: Any
    lane: Any


class RecurrencePlan(NamedTuple):
    """One call, for kernels: whole numbers."""

    outer: Any  # sizes of the arrays
    num_steps: Any
    inner: Any
    width: Any  # lanes of a block, or steps of a piece of rows
    offset: Any  # by how many the first block or piece is shorter
    streamed: Any  # how many outputs are written past the caches
    direction: Any  # 1 if the last step is computed first, else -1
    ends: Any  # address of `Problem.ends`, or 0
    window: Any  # steps of a window
    span: Any  # windows of a lane that a block has
    steps: Any  # a `Step` of where its arrays are
    last: Any  # values after the last step
    initial: Any  # what is carried into the step that is computed first
    first: Any  # first output
    second: Any  # second output; the first one again if there is none


_STRIDED = kind_of(Strided._make([types.int64] * 4))
PLAN: Any = kind_of(
    RecurrencePlan._make(
        [types.int64] * 10 + [kind_of(Step._make([_STRIDED] * len(Step._fields)))] + [_STRIDED] * 4
    )
)


def lanes_of(dtype: Any) -> int:
    """Return how many numbers a register holds."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


# ---------------------------------------------------------------- from a plan to vectors


@inline(exact=True)
def place(array, outer, step, lane, like):
    """Return a pointer to a number of an array, a view of `Strided`."""
    by = outer * array.outer + step * array.time + lane * array.lane
    return shifted(pointer_to(array.address, like), by)


def make_loads(dtype: Any) -> tuple[Any, Any]:
    """Return functions (pointer, by, count) of the first `count` numbers or flags, then 0."""
    full, zero = lanes_of(dtype), dtype(0.0)

    @inline(exact=True)
    def numbers(pointer, by, count):
        if count < full:
            return load(pointer, by, 1, count, zero)
        return load(pointer, by, 1)

    @inline(exact=True)
    def flags(pointer, by, count):
        if count < full:
            return load_mask(pointer, by, fill(zero, 1), count)
        return load_mask(pointer, by, fill(zero, 1))

    return numbers, flags


@inline(exact=True)
def write(vector, pointer, by, count, streamed):
    """Write the first `count` numbers of a vector; `streamed`, past the caches."""
    if count < width_of(pointer, 1):
        store(vector, pointer, by, count)
    elif streamed:
        stream(vector, pointer, by)
    else:
        store(vector, pointer, by)


def make_readers(rule: Rule, dtype: Any) -> tuple[Any, Any, Any]:
    """Return functions: pointers to the arrays of steps; their vectors; `prefetch_arrays`.

    Their arguments are (plan, outer, step, lane), (pointers, by, count) and (pointers, by). What a
    rule does not use is read nowhere: LLVM removes it.
    """
    numbers, flags = make_loads(dtype)
    number, flag, is_read = dtype(0.0), np.uint8(0), used(rule.reads)

    @inline(exact=True)
    def arrays_at(plan, outer, step, lane):
        """Return the places of all arrays at one step of a lane."""
        x = plan.steps
        return Step(
            reward=place(x.reward, outer, step, lane, number),
            value=place(x.value, outer, step, lane, number),
            terminated=place(x.terminated, outer, step, lane, flag),
            truncated=place(x.truncated, outer, step, lane, flag),
            final_value=place(x.final_value, outer, step, lane, number),
            gamma=place(x.gamma, outer, step, lane, number),
            lambda_=place(x.lambda_, outer, step, lane, number),
            ratio=place(x.ratio, outer, step, lane, number),
            action_value=place(x.action_value, outer, step, lane, number),
        )

    @inline(exact=True)
    def read(x, by, count):
        """Load the numbers of a step for `count` lanes."""
        return Step(
            reward=numbers(x.reward, by, count),
            value=numbers(x.value, by, count),
            terminated=flags(x.terminated, by, count),
            truncated=flags(x.truncated, by, count),
            final_value=numbers(x.final_value, by, count),
            gamma=numbers(x.gamma, by, count),
            lambda_=numbers(x.lambda_, by, count),
            ratio=numbers(x.ratio, by, count),
            action_value=numbers(x.action_value, by, count),
        )

    @inline(exact=True)
    def prefetch_arrays(x, by):
        """Prefetch the lines of all arrays at a step."""
        if is_read.reward:
            prefetch(x.reward, by)
        if is_read.value:
            prefetch(x.value, by)
        if is_read.terminated:
            prefetch(x.terminated, by)
        if is_read.truncated:
            prefetch(x.truncated, by)
        if is_read.final_value:
            prefetch(x.final_value, by)
        if is_read.gamma:
            prefetch(x.gamma, by)
        if is_read.lambda_:
            prefetch(x.lambda_, by)
        if is_read.ratio:
            prefetch(x.ratio, by)
        if is_read.action_value:
            prefetch(x.action_value, by)

    return arrays_at, read, prefetch_arrays


def used(fields: tuple[str, ...]) -> Step:
    """Return for each field of a step whether it is one of these."""
    return Step._make(field in fields for field in Step._fields)


def rows_of(fields: tuple[str, ...]) -> Step:
    """Return the number of each of these fields among them; 0 for all others."""
    return Step._make(fields.index(f) if f in fields else 0 for f in Step._fields)


def make_read_after(rule: Rule) -> Any:
    """Make `read_after(memory, lane, row_stride)`: loads the fields `rule.sees` of the next step.

    They lie in rows of lanes, in the order of `rule.sees`: `memory` points to the first row,
    `row_stride` numbers lie between rows, and `lane` is the position of the lanes in each. Other
    fields are placeholders, 0 or a number of the first row: no rule uses them, and LLVM drops
    the loads.
    """
    row = rows_of(rule.sees)

    @inline(exact=True)
    def read_after(memory, lane, row_stride):
        """Load the fields of the step after this one in time that the rule reads."""
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


class CarriedValues(NamedTuple):
    """Hold what lanes carry from step to step: rows of `room` numbers, y and values rules see."""

    memory: Any  # pointer
    room: Any


def make_begin(rule: Rule, dtype: Any, is_rows: bool) -> Any:
    """Return a function: the state of lanes before the step that is computed first."""
    sees, zero = len(rule.sees) > 0, dtype(0.0)

    @inline(exact=True)
    def begin(plan, outer, lane, width, state):
        initial = place(plan.initial, outer, 0, lane, zero)
        last = place(plan.last, outer, 0, lane, zero)
        for i in range(width):
            state.memory[i] = initial[i * (plan.initial.outer if is_rows else plan.initial.lane)]
            if sees:
                by = i * (plan.last.outer if is_rows else plan.last.lane)
                state.memory[state.room + i] = last[by]

    return begin
