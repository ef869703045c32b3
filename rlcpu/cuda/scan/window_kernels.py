"""Driver of recurrences over windows of n steps: a thread for each window.

Threads next to each other take windows that are next to each other in memory, along the lanes or
along time: what one reads its neighbours read too, so that n steps cost n reads of the first cache.
"""

from __future__ import annotations

import functools
from typing import Any

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.scan.recurrence_kernels import (
    FIRST,
    INNER,
    LAST,
    NUM_STEPS,
    OUTER,
    Lane,
    as_after,
    get_step,
    last_step,
    place,
)
from rlcpu.cuda.scan.steps import device_step
from rlcpu.scan.recurrences.rules import Rule, Step, link


@functools.cache
def window_kernel(rule: Rule, dtype: Any) -> Any:
    """Driver: (inputs..., last, options, plan, window, first); see `lane_kernel`.

    y of a step is b + a * (b' + a' * (...)) over the steps of its window, and the innermost y is
    the value after the last of them. Time runs backward.
    """
    coefficients, connect = device_step(rule.coefficients, dtype), device_step(link, dtype)
    zero = dtype(0.0)

    @kernel(dtype=dtype, exact=True)
    def scan(i0, i1, i2, i3, i4, i5, i6, i7, i8, last, options, plan, window, first):
        number = cuda.grid(1)
        if number < plan[OUTER] * plan[NUM_STEPS] * plan[INNER]:
            row, inner = number // plan[INNER], number % plan[INNER]
            outer, begin = row // plan[NUM_STEPS], row % plan[NUM_STEPS]
            lane, arrays = Lane(plan, outer, inner), Step(i0, i1, i2, i3, i4, i5, i6, i7, i8)
            stop = min(begin + window, plan[NUM_STEPS])
            after = last_step(last[place(lane, LAST, 0)], zero)
            if stop < plan[NUM_STEPS]:
                step = get_step(arrays, lane, stop)
                after = as_after(step, zero)
            y = after.value
            for i in range(begin, stop):
                step = get_step(arrays, lane, stop - 1 - (i - begin))
                a, b = coefficients(step, after, (options[0], options[1], options[2]))
                y = connect(a, b, y)
                after = as_after(step, zero)
            first[place(lane, FIRST, begin)] = y

    return scan
