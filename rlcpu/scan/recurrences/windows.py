"""Recurrences over windows of n steps: y of each step is that of the n steps from it on alone.

y is b + a * (b' + a' * (...)), where the innermost y is the value after the window's last step. So
a, b and the value after each step are written to scratch memory, once for all windows that share
the step, and each window is then computed from its last step to its first. Beyond the last step of
an array, a is 1 and b is 0, which changes nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcpu.kernels.compiler.compile import inline, prefer_small_code
from rlcpu.kernels.machine.memory import address, load, shifted, store
from rlcpu.scan.recurrences.rows import PIECE
from rlcpu.scan.recurrences.rules import Rule, Step, next_y_or_cut
from rlcpu.scan.recurrences.steps import (
    lanes_of,
    load_numbers,
    pointer_into,
    pointers_at,
    read_step,
    write_numbers,
)

WIDE = 4  # registers of lanes in a block of columns


class WindowBlock(NamedTuple):
    """Windows that are computed together: those of some lanes that begin with some steps."""

    outer: Any  # indices of the first lane
    lane: Any
    width: Any  # number of lanes; 1 in rows
    begin: Any  # first step of the first window
    stop: Any  # first step of the last window, exclusive
    end: Any  # last step of the last window, exclusive; it may be beyond the arrays


class WindowScratch(NamedTuple):
    """Pointers to what windows are made of: `row_stride` numbers for each step of a block.

    In rows a row has one number, so that vectors are made of steps.
    """

    a: Any
    b: Any
    next_values: Any  # value after each step
    row_stride: Any


def make_windows(rule: Rule, dtype: Any, is_rows: bool) -> Any:
    """Make `windows(plan, clips, outer, lane, width, begin)`: the windows of one block.

    It writes the output of `width` lanes from (outer, lane) on, for `plan.block_windows` steps from
    `begin` on; a window has `plan.window_steps`, and beyond the last step the value is one of
    `plan.last_values`. The rule reads nothing of the step after but its value. `plan` is a view of
    a `RecurrencePlan`, `clips` are those of `Rule`.
    """
    vector_lanes, coefficients, is_streamed = lanes_of(dtype), rule.coefficients, False

    @inline(exact=True)
    def compute_coefficients(plan, clips, block, scratch):
        """Fill a `WindowScratch` with a, b and next values of all steps of a block."""
        outer, lane, width, begin, _, end = block
        row_stride, last = scratch.row_stride, plan.num_steps - 1
        last_values = pointer_into(plan.last_values, outer, 0, lane)
        step = begin
        while step < min(end, last + 1):
            here, after_here = pointers_at(plan, outer, step, lane), last_values
            # Numbers: the lanes of a step or, in rows, some steps; of rows (`width` 1) the last
            # step is alone, since the value after it lies elsewhere.
            side_by_side = width
            if step < last:
                after_here = pointer_into(plan.inputs.value, outer, step + 1, lane)
                side_by_side = min(PIECE, min(end, last) - step) if is_rows else width
            for k in range(0, side_by_side, vector_lanes):
                count = min(vector_lanes, side_by_side - k)
                at = (step - begin) * row_stride + k
                next_value = load_numbers(after_here, k, count)
                after = Step(0, next_value, 0, 0, 0, 0, 0, 0, 0)
                factor, addend = coefficients(read_step(here, k, count), after, clips)
                store(factor, scratch.a, at)
                store(addend, scratch.b, at)
                store(next_value, scratch.next_values, at)
            step += side_by_side if is_rows else 1
        # Steps beyond the last one change nothing, see above; lanes beyond the last repeat it.
        for at in range((step - begin) * row_stride, (end - begin) * row_stride):
            scratch.a[at], scratch.b[at] = 1.0, 0.0
            value = last_values[min(at % row_stride, width - 1) * plan.last_values.lane]
            scratch.next_values[at] = value

    @inline(exact=True)
    def slide(plan, block, scratch):
        """Compute and write y of each window of a block."""
        outer, lane, width, begin, stop, _ = block
        row_stride, num_steps = scratch.row_stride, plan.window_steps
        side_by_side = stop - begin if is_rows else width  # windows
        for step in range(begin, stop, side_by_side if is_rows else 1):
            target = pointer_into(plan.first_output, outer, step, lane)
            for k in range(0, side_by_side, vector_lanes):
                # The last step of the windows, from where they go back to their first.
                at = (step - begin + num_steps - 1) * row_stride + k
                y = load(scratch.next_values, at, 1)
                for _ in range(num_steps):
                    y = next_y_or_cut(load(scratch.a, at, 1), load(scratch.b, at, 1), y)
                    at -= row_stride
                write_numbers(y, target, k, min(vector_lanes, side_by_side - k), is_streamed)

    @inline(exact=True)
    def windows(plan, clips, outer, lane, width, begin):
        """Compute the windows of `width` lanes that begin from step `begin` on."""
        prefer_small_code()
        stop = min(begin + plan.block_windows, plan.num_steps)
        end = stop - 1 + plan.window_steps  # of the last window
        row_stride = 1 if is_rows else WIDE * vector_lanes
        size = (end - begin) * row_stride + vector_lanes  # to load a whole vector at the end
        memory = np.empty(3 * size, dtype)  # a, b and next values
        a = address(memory)
        scratch = WindowScratch(a, shifted(a, size), shifted(a, 2 * size), row_stride)
        block = WindowBlock(outer, lane, width, begin, stop, end)
        compute_coefficients(plan, clips, block, scratch)
        slide(plan, block, scratch)
        return memory.size  # keeps it alive until now: pointers do not

    return windows
