"""Recurrences over columns: lanes side by side in memory go through time together.

A block of lanes is computed one step after the other, a vector of lanes at a time. The y of its
lanes, which goes from step to step, stays in the first cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.kernels.compiler.compile import inline, prefer_small_code
from rlcpu.kernels.machine.memory import address, load, shifted, store, to_line
from rlcpu.scan.recurrences.rules import Rule, Step
from rlcpu.scan.recurrences.steps import (
    lanes_of,
    pointer_into,
    pointers_at,
    prefetch_step,
    read_after,
    read_initial,
    read_step,
    write_numbers,
)


def make_columns(rule: Rule, dtype: Any) -> Any:
    """Make `columns(plan, clips, outer, lane, width)`: all steps of a block.

    It writes the outputs of `width` lanes from (outer, lane) on. `plan` is a view of a
    `RecurrencePlan`, whose `direction` is 1 to compute the last step first, -1 the first one, and
    whose first `num_streamed` outputs are written past the caches; `clips` are those of `Rule`.
    """
    vector_lanes, has_second = lanes_of(dtype), rule.outputs == 2
    coefficients, continue_y, results = rule.coefficients, rule.continue_y, rule.results
    is_read = Step._make(field in rule.reads for field in Step._fields)

    @inline(exact=True)
    def compute_lanes(pointers, has_after, outputs, y, lane, count, clips):
        """Compute and write `count` lanes of a step from `lane` on, and prefetch the next one.

        The lanes' y, to which `y` points, is overwritten; `outputs` has pointers to both outputs,
        and how many of them are streamed. For `pointers` and `has_after` see `compute_step`.
        """
        here, next_here, ahead = pointers
        prefetch_step(ahead, lane, is_read)
        step, previous_y = read_step(here, lane, count), load(y, lane, 1)
        # Beyond the last step there are values, `last_values`, and no other fields: these are 0.
        after = read_after(next_here, lane, count, count if has_after else 0, 0.0)
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
        """Compute a step of all lanes.

        `pointers` lead to the first lane at this step, at the next one in time (if `has_after`;
        else to `last_values`), and at the one that is computed next.
        """
        prefer_small_code()
        whole = width // vector_lanes * vector_lanes
        # Whole vectors apart: a mask in the loop takes 1.5x as long where few arrays are read.
        for i in range(width // vector_lanes):
            lane = i * vector_lanes
            compute_lanes(pointers, has_after, outputs, y, lane, vector_lanes, clips)
        if whole < width:
            compute_lanes(pointers, has_after, outputs, y, whole, width - whole, clips)

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
            after, has_after = pointers_at(plan, outer, step + 1, lane), step + 1 < num_steps
            last_values = pointer_into(plan.last_values, outer, 0, lane)
            value = after.value if has_after else last_values
            after = Step(0, value, 0, 0, 0, 0, after.lambda_, after.ratio, after.action_value)
            ahead = pointers_at(plan, outer, step - direction, lane)  # only prefetched
            pointers = pointers_at(plan, outer, step, lane), after, ahead
            first = pointer_into(plan.first_output, outer, step, lane)
            second = pointer_into(plan.second_output, outer, step, lane)
            outputs = first, second, num_streamed
            compute_step(pointers, has_after, outputs, y, width, clips)
        return memory.size  # keeps it alive until now: pointers do not

    return columns
