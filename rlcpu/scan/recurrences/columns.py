"""Recurrences over columns: lanes side by side in memory go through time together.

A block of lanes is computed one step after the other, a vector of lanes at a time. What the lanes
carry from step to step stays in the first cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.kernels.compile import compact, inline
from rlcpu.kernels.memory import address, load, shifted, store, to_line
from rlcpu.scan.recurrences.rules import Rule, next_y, next_y_or_cut
from rlcpu.scan.recurrences.steps import (
    Carried,
    is_among,
    lanes_of,
    make_read_after,
    make_set_initial,
    make_step_readers,
    pointer_into,
    positions_of,
    write_numbers,
)


def make_columns(rule: Rule, dtype: Any) -> Any:
    """Make `columns(plan, options, outer, lane, width)`: all steps of a block.

    It writes the outputs of `width` lanes from (outer, lane) on. `plan` is a view of a
    `RecurrencePlan`, `options` the rule's three numbers.
    """
    vector_lanes, num_rows, zero = lanes_of(dtype), 1 + len(rule.reads_after), dtype(0.0)
    pointers_at, read_step, prefetch_step = make_step_readers(rule, dtype)
    set_initial = make_set_initial(rule, dtype, is_rows=False)
    compute_step = _make_compute_step(rule, dtype, read_step, prefetch_step)

    @inline(exact=True)
    def columns(plan, options, outer, lane, width):
        """Compute all steps of `width` lanes from (outer, lane) on."""
        compact()
        num_steps, direction, num_streamed = plan.num_steps, plan.direction, plan.num_streamed
        row_stride = (width + vector_lanes - 1) // vector_lanes * vector_lanes
        memory = np.zeros(num_rows * row_stride + vector_lanes, dtype)
        carried = Carried(shifted(address(memory), to_line(address(memory), 0)), row_stride)
        set_initial(plan, outer, lane, width, carried)
        for i in range(num_steps):
            step = num_steps - 1 - i if direction > 0 else i
            here = pointers_at(plan, outer, step, lane)
            ahead = pointers_at(plan, outer, step - direction, lane)
            first = pointer_into(plan.first_output, outer, step, lane, zero)
            second = pointer_into(plan.second_output, outer, step, lane, zero)
            compute_step(here, ahead, (first, second, num_streamed), carried, width, options)
        return memory.size  # keeps it alive until now: pointers do not

    return columns


def _make_compute_step(rule: Rule, dtype: Any, read_step: Any, prefetch_step: Any) -> Any:
    """Make `compute_step(here, ahead, outputs, carried, width, options)`: one step of a block.

    It writes the step's outputs and overwrites `carried`. `here` and `ahead` are `Step`s of
    pointers to the first lane at this step and at the one that is computed next; `outputs` has
    pointers to both outputs and the number of those that are streamed.
    """
    vector_lanes, has_second = lanes_of(dtype), rule.outputs == 2
    coefficients, results = rule.coefficients, rule.results
    continue_y = next_y_or_cut if rule.cuts_at_zero else next_y
    read_after, is_kept = make_read_after(rule), is_among(rule.reads_after)
    row = positions_of(rule.reads_after)

    @inline(exact=True)
    def keep_fields(step, carried, lane):
        """Store the fields of this step that the rule reads as those of the step after."""
        rows, row_stride = shifted(carried.memory, carried.row_stride), carried.row_stride
        if is_kept.value:
            store(step.value, rows, lane + row.value * row_stride)
        if is_kept.lambda_:
            store(step.lambda_, rows, lane + row.lambda_ * row_stride)
        if is_kept.ratio:
            store(step.ratio, rows, lane + row.ratio * row_stride)
        if is_kept.action_value:
            store(step.action_value, rows, lane + row.action_value * row_stride)

    @inline(exact=True)
    def compute_vector(here, outputs, carried, lane, count, options):
        """Compute and write the `count` lanes of one vector, from `lane` of the block on."""
        step, previous_y = read_step(here, lane, count), load(carried.memory, lane, 1)
        after = read_after(shifted(carried.memory, carried.row_stride), lane, carried.row_stride)
        a, b = coefficients(step, after, options)
        y = continue_y(a, b, previous_y)
        # All lanes: a load of what has just been written to some of them waits for the store.
        store(y, carried.memory, lane)
        keep_fields(step, carried, lane)
        computed = results(y, previous_y, step, after, options)
        first, second, num_streamed = outputs
        write_numbers(computed[0], first, lane, count, num_streamed > 0)
        if has_second:
            write_numbers(computed[1], second, lane, count, num_streamed > 1)

    @inline(exact=True)
    def compute_step(here, ahead, outputs, carried, width, options):
        """Compute one step of `width` lanes, and prefetch the next."""
        compact()
        # Whole vectors apart: a mask in the loop takes 1.5x as long where few arrays are read.
        for i in range(width // vector_lanes):
            prefetch_step(ahead, i * vector_lanes)
            compute_vector(here, outputs, carried, i * vector_lanes, vector_lanes, options)
        whole = width // vector_lanes * vector_lanes
        if whole < width:
            prefetch_step(ahead, whole)
            compute_vector(here, outputs, carried, whole, width - whole, options)

    return compute_step
