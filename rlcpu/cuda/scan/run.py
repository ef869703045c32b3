"""From checked arguments of a recurrence to the launch of its kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch
from rlcpu.cuda.operands import constants
from rlcpu.cuda.scan.layout import Layout
from rlcpu.cuda.scan.recurrence_kernels import lane_kernel
from rlcpu.cuda.scan.window_kernels import window_kernel
from rlcpu.scan.recurrences.rules import Rule, Step

UNUSED = Step(*(None,) * len(Step._fields))
_FLAGS = ("terminated", "truncated")
#: Threads of a block: few lanes are spread over more multiprocessors that way.
BLOCK = 64


class Problem(NamedTuple):
    """One call of a recurrence.

    Attributes:
        steps: arrays that broadcast to the layout's shape; None where unused.
        last: values after the last steps, without the axis of steps; None for 0.
        initial: what is carried into the step computed first; None for 0.
        options: up to three numbers.
        direction: 1 if the last step is computed first, -1 if the first is.
        window: number of steps after which the recurrence ends in the next value; 0 for all.
    """

    steps: Step
    last: DeviceArray | None = None
    initial: DeviceArray | None = None
    options: tuple[float, ...] = ()
    direction: int = 1
    window: int = 0


def run(rule: Rule, layout: Layout, problem: Problem, outs: tuple[DeviceArray, ...]) -> None:
    """Overwrite the outputs, of the layout's shape; returns before that has happened."""
    dtype = outs[0].dtype
    inputs, strides = [], []
    for name, array in zip(Step._fields, problem.steps, strict=True):
        used = _nothing(np.bool_ if name in _FLAGS else dtype) if array is None else array
        inputs.append(used)
        strides.append(layout.strides(name, used))
    for name, array in (("last_values", problem.last), ("initial", problem.initial)):
        used = _nothing(dtype) if array is None else array
        inputs.append(used)
        strides.append(layout.end_strides(name, used))
    strides += [layout.strides("out", out) for out in (outs[0], outs[-1])]
    sizes = layout.outer, layout.num_steps, layout.inner, problem.direction
    plan = constants((*sizes, *(s[i] for i in range(3) for s in strides)), np.dtype(np.int64))
    options = constants((*problem.options, 0.0, 0.0, 0.0)[:3], dtype)
    if problem.window:
        inputs.pop()  # a window begins with a value
        arguments: list[Any] = [*inputs, options, plan, problem.window, outs[0]]
        launch(window_kernel(rule, dtype.type), outs[0].size, *arguments)
        return
    arguments = [*inputs, options, plan, outs[0], outs[-1]]
    launch(lane_kernel(rule, dtype.type), layout.outer * layout.inner, *arguments, block=BLOCK)


def _nothing(dtype: Any) -> DeviceArray:
    return constants((0,), np.dtype(dtype)).view(())
