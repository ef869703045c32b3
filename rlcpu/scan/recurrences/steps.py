"""Arrays of a recurrence in kernels: where they lie, and how their vectors are read and written.

Arrays are (outer, num_steps, inner), see `rlcpu.scan.layout`. A lane is one recurrence: a pair of
indices (outer, inner). A vector is one register of numbers, of so many lanes or of so many steps of
one lane. Fields that a rule does not use are read nowhere: LLVM drops their loads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.memory import load, load_mask, prefetch, shifted, store, stream
from rlcpu.kernels.machine.structs import Array, Flag, Nested, Real, Struct, Whole
from rlcpu.kernels.machine.vectors import VECTOR_BYTES, width
from rlcpu.scan.recurrences.rules import Step


class Strided(Struct):
    """An array (outer, num_steps, inner) in memory; strides are in numbers, see `layout.Place`."""

    numbers = Array("real")  #: pointer to the first
    outer = Whole()
    time = Whole()
    lane = Whole()  #: stride along `inner`


_Flags = Strided.of(real=np.uint8)


class StepArrays(Struct):
    """The inputs of a recurrence, as `Step` names them."""

    reward = Nested(Strided)
    value = Nested(Strided)
    terminated = Nested(_Flags)
    truncated = Nested(_Flags)
    final_value = Nested(Strided)
    gamma = Nested(Strided)
    lambda_ = Nested(Strided)
    ratio = Nested(Strided)
    action_value = Nested(Strided)


class ClipNumbers(Struct):
    """V-trace's bounds of importance ratios, see `Rule`; other rules read none."""

    rho = Real()
    c = Real()
    advantages = Real()


class RecurrencePlan(Struct):
    """One call of a recurrence.

    Work is cut into blocks, which cores take in turn: lanes side by side (columns), some rows, or
    windows that begin at neighbouring steps.
    """

    outer = Whole()  #: sizes of the arrays
    num_steps = Whole()
    inner = Whole()
    block_lanes = Whole()  #: lanes of a block
    shorter_by = Whole()  #: lanes or steps that the first block or piece lacks: others are aligned
    num_streamed = Whole()  #: how many of the outputs are written past the caches
    direction = Whole()  #: 1 if the last step is computed first, else -1
    window_steps = Whole()  #: steps of a window
    block_windows = Whole()  #: windows of a lane in a block
    wants_ends = Flag()  #: whether `ends` is written in place of outputs
    #: (2, outer), the last y of each row and the product of all its a.
    ends = Array("real")
    clips = Nested(ClipNumbers)
    inputs = Nested(StepArrays)
    last_values = Nested(Strided)  #: of one step, as `initial`: values after the last step
    initial = Nested(Strided)  #: y before the step that is computed first
    first_output = Nested(Strided)
    second_output = Nested(Strided)  #: the first one again if there is none


#: Plans of arrays of a dtype, by its type.
PLANS: dict[Any, Any] = {kind: RecurrencePlan.of(real=kind) for kind in (np.float32, np.float64)}


def lanes_of(dtype: Any) -> int:
    """Return how many numbers of a NumPy dtype a vector holds."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


# ---------------------------------------------------------------- numbers in memory


@inline(exact=True)
def pointer_into(array, outer, step, lane):
    """Return a pointer to a number of a `Strided`."""
    return shifted(array.numbers, outer * array.outer + step * array.time + lane * array.lane)


@inline(exact=True)
def load_numbers(pointer, position, count, other=0.0):
    """Return a vector of `count` numbers from a position on; `other` stands behind them."""
    if count < width(pointer, 1):
        return load(pointer, position, 1, count, other)
    return load(pointer, position, 1)


@inline(exact=True)
def load_flags(pointer, position, count, like):
    """Return a mask of `count` flags from a position on, with as many as the vector `like`."""
    if count < width(like, 1):
        return load_mask(pointer, position, like, count)
    return load_mask(pointer, position, like)


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
    initial = pointer_into(plan.initial, outer, 0, lane)
    for i in range(num_lanes):
        y[i] = initial[i * stride]


# ---------------------------------------------------------------- fields of a step


@inline(exact=True)
def pointers_at(plan, outer, step, lane):
    """Return a `Step` of pointers to the numbers of one step of a lane."""
    inputs = plan.inputs
    return Step(
        reward=pointer_into(inputs.reward, outer, step, lane),
        value=pointer_into(inputs.value, outer, step, lane),
        terminated=pointer_into(inputs.terminated, outer, step, lane),
        truncated=pointer_into(inputs.truncated, outer, step, lane),
        final_value=pointer_into(inputs.final_value, outer, step, lane),
        gamma=pointer_into(inputs.gamma, outer, step, lane),
        lambda_=pointer_into(inputs.lambda_, outer, step, lane),
        ratio=pointer_into(inputs.ratio, outer, step, lane),
        action_value=pointer_into(inputs.action_value, outer, step, lane),
    )


@inline(exact=True)
def read_step(pointers, position, count):
    """Return a `Step` of vectors of `count` numbers, `position` behind the pointers."""
    reward = load_numbers(pointers.reward, position, count)
    return Step(
        reward=reward,
        value=load_numbers(pointers.value, position, count),
        terminated=load_flags(pointers.terminated, position, count, reward),
        truncated=load_flags(pointers.truncated, position, count, reward),
        final_value=load_numbers(pointers.final_value, position, count),
        gamma=load_numbers(pointers.gamma, position, count),
        lambda_=load_numbers(pointers.lambda_, position, count),
        ratio=load_numbers(pointers.ratio, position, count),
        action_value=load_numbers(pointers.action_value, position, count),
    )


@inline(exact=True)
def read_after(pointers, position, num_values, num_others, other_value):
    """Return the fields that rules read of the next step, a `Step` of vectors.

    That is `num_values` values, then `other_value`, and `num_others` numbers of the other fields,
    then 0.
    """
    value = load_numbers(pointers.value, position, num_values, other_value)
    lambda_ = load_numbers(pointers.lambda_, position, num_others)
    ratio = load_numbers(pointers.ratio, position, num_others)
    action_value = load_numbers(pointers.action_value, position, num_others)
    return Step(0, value, 0, 0, 0, 0, lambda_, ratio, action_value)


@inline(exact=True)
def prefetch_step(pointers, position, is_read):
    """Ask for the cache lines of the fields that a rule reads: those that `is_read` says."""
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
