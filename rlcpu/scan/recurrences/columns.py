"""Recurrences over columns: lanes side by side in memory go through time together.

A block of lanes is computed one step after the other, a vector of lanes at a time. The y of its
lanes, which goes from step to step, stays in the first cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.kernels.compile import inline, prefer_small_code
from rlcpu.kernels.memory import address, load, shifted, store, to_line
from rlcpu.scan.recurrences.rules import Rule
from rlcpu.scan.recurrences.steps import (
    lanes_of,
    make_step_readers,
    pointer_into,
    read_initial,
    write_numbers,
)


def make_columns(rule: Rule, dtype: Any) -> Any:
    """Make `columns(plan, clips, outer, lane, width)`: all steps of a block.

    It writes the outputs of `width` lanes from (outer, lane) on. `plan` is a view of a
    `RecurrencePlan`, whose `direction` is 1 to compute the last step first, -1 the first one, and
    whose first `num_streamed` outputs are written past the caches; `clips` are those of `Rule`.
    """
    vector_lanes, zero = lanes_of(dtype), dtype(0.0)
    readers = make_step_readers(rule, dtype)
    pointers_at, pointers_after = readers.pointers_at, readers.pointers_after
    compute_step = _make_compute_step(rule, dtype)

    @inline(exact=True)
    def columns(plan, clips, outer, lane, width):
        """Compute all steps of `width` lanes from (outer, lane) on."""
        prefer_small_code()
        num_steps, direction, num_streamed = plan.num_steps, plan.direction, plan.num_streamed
        # More by two vectors: to begin at a cache line, and to load whole ones at the end.
        memory = np.zeros(width + 2 * vector_lanes, dtype)
        y = shifted(address(memory), to_line(address(memory), 0))
        read_initial(plan, outer, lane, plan.initial.lane, width, y)
        for i in range(num_steps):
            step = num_steps - 1 - i if direction > 0 else i
            here = pointers_at(plan, outer, step, lane)
            after = pointers_after(plan, outer, step, lane)
            ahead = pointers_at(plan, outer, step - direction, lane)  # only prefetched
            first = pointer_into(plan.first_output, outer, step, lane, zero)
            second = pointer_into(plan.second_output, outer, step, lane, zero)
            pointers, outputs = (here, after, ahead), (first, second, num_streamed)
            compute_step(pointers, step + 1 < num_steps, outputs, y, width, clips)
        return memory.size  # keeps it alive until now: pointers do not

    return columns


def _make_compute_step(rule: Rule, dtype: Any) -> Any:
    """Make `compute_step(pointers, has_after, outputs, y, width, clips)`: one step of a block.

    It writes the step's outputs, and overwrites the y of all lanes, to which `y` points. `pointers`
    lead to the first lane at this step, at the next one in time (if `has_after`; else to
    `last_values`), and at the one that is computed next; `outputs` has pointers to both outputs and
    the number of those that are streamed.
    """
    vector_lanes, has_second, zero = lanes_of(dtype), rule.outputs == 2, dtype(0.0)
    coefficients, continue_y, results = rule.coefficients, rule.continue_y, rule.results
    _, _, read_step, read_after, prefetch_step = make_step_readers(rule, dtype)

    @inline(exact=True)
    def compute_vector(pointers, has_after, outputs, y, lane, count, clips):
        """Compute and write the `count` lanes of one vector, from `lane` of the block on."""
        here, next_here, _ = pointers
        step, previous_y = read_step(here, lane, count), load(y, lane, 1)
        # Beyond the last step there are values, `last_values`, and no other fields: these are 0.
        num_others = count if has_after else 0
        after = read_after(next_here, lane, count, num_others, zero)
        a, b = coefficients(step, after, clips)
        new_y = continue_y(a, b, previous_y)
        # The whole vector, however few lanes count: a load of it would wait for a masked store.
        store(new_y, y, lane)
        computed = results(new_y, previous_y, step, after, clips)
        first, second, num_streamed = outputs
        write_numbers(computed[0], first, lane, count, num_streamed > 0)
        if has_second:
            write_numbers(computed[1], second, lane, count, num_streamed > 1)

    @inline(exact=True)
    def compute_step(pointers, has_after, outputs, y, width, clips):
        """Compute one step of `width` lanes, and prefetch the next."""
        prefer_small_code()
        ahead, whole = pointers[2], width // vector_lanes * vector_lanes
        # Whole vectors apart: a mask in the loop takes 1.5x as long where few arrays are read.
        for i in range(width // vector_lanes):
            lane = i * vector_lanes
            prefetch_step(ahead, lane)
            compute_vector(pointers, has_after, outputs, y, lane, vector_lanes, clips)
        if whole < width:
            prefetch_step(ahead, whole)
            compute_vector(pointers, has_after, outputs, y, whole, width - whole, clips)

    return compute_step
