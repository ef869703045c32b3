"""From arrays that have been checked to the kernel that suits how they lie in memory."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.threads import check_num_threads, launch
from rlcpu.scan.layout import Flat, Layout, constant
from rlcpu.scan.recurrences.columns import column_kernels
from rlcpu.scan.recurrences.places import Plan
from rlcpu.scan.recurrences.rows import row_kernels
from rlcpu.scan.recurrences.steps import Rule, Step, lanes
from rlcpu.scan.recurrences.windows import window_kernels

Array = npt.NDArray[Any]

_config: Any = numba.config

#: Lanes that a core takes at a time: a page of each array. Blocks of 1 KB take 1.3x as long.
BLOCK = 4096  # bytes
#: Steps of a row at a time.
PIECE = 128
#: Size of an output from which it is written past the caches: half of it takes longer that way.
LARGE = 2**23  # bytes

UNUSED = Step(*(None,) * len(Step._fields))
NOTHING = np.zeros(())


class Problem(NamedTuple):
    """One call of a recurrence.

    Attributes:
        steps: arrays that broadcast to the layout's shape, flags as uint8; None where unused.
        last: values after the last steps, without the time axis.
        initial: what is carried into the step computed first, without the time axis.
        options: up to three numbers.
        direction: 1 if the last step is computed first, -1 if the first is.
        window: number of steps after which the recurrence ends in the next value; 0 for all.
    """

    steps: Step
    last: Array = NOTHING
    initial: Array = NOTHING
    options: tuple[float, ...] = ()
    direction: int = 1
    window: int = 0


def run(
    rule: Rule,
    layout: Layout,
    problem: Problem,
    outs: tuple[Array, ...],
    num_threads: int | None = None,
) -> None:
    """Overwrite the outputs, which have the layout's shape in the caller's order, and one dtype."""
    num_threads, dtype = check_num_threads(num_threads), outs[0].dtype
    if outs[0].size == 0:
        return
    found = [layout.target(out) for out in outs]
    places = [place for place in found if place is not None]
    if len(places) == len(outs):
        launch_on(rule, layout, problem, places, num_threads)
        return
    computed = [layout.empty(dtype) for _ in outs]
    launch_on(rule, layout, problem, [layout.flat(array) for array in computed], num_threads)
    for out, array in zip(outs, computed, strict=True):
        np.copyto(out, array)


def launch_on(
    rule: Rule, layout: Layout, problem: Problem, outs: list[Flat], num_threads: int | None
) -> None:
    """The same with outputs that kernels can write."""
    dtype: Any = outs[0].numbers.dtype
    zeros = _zeros(dtype)
    steps = [
        zero if array is None else array if isinstance(array, Flat) else layout.flat(array)
        for array, zero in zip(problem.steps, zeros, strict=True)
    ]
    ends = [layout.flat_ends(np.asarray(a, dtype)) for a in (problem.last, problem.initial)]
    options = np.array([*problem.options, 0.0, 0.0, 0.0][:3], dtype)
    arrays = [*steps, *ends, outs[0], outs[-1]]
    plan = _plan(layout, arrays, problem)
    make: Any = column_kernels if layout.inner > 1 else row_kernels
    make = window_kernels if problem.window else make
    numbers = [a.numbers for a in arrays]
    work = layout.outer * layout.num_steps * layout.inner
    launch(make(rule, dtype.type), work, num_threads, *numbers[:-2], options, plan, *numbers[-2:])


@functools.cache
def _zeros(dtype: Any) -> Step:
    """What kernels get for arrays that they do not use."""
    number, flag = constant(bytes(dtype.itemsize), dtype), constant(bytes(1), np.dtype(np.uint8))
    flags = ("terminated", "truncated")
    return Step(*(flag if name in flags else number for name in Step._fields))


def _plan(layout: Layout, arrays: list[Flat], problem: Problem) -> Array:
    """The integers that kernels take: `Plan` and all strides."""
    head, streamed = _streams(layout, arrays[-2:])
    full = lanes(arrays[-1].numbers.dtype)
    width = _width(layout, arrays[-1].numbers.itemsize, full)
    sizes = layout.outer, layout.num_steps, layout.inner
    settings = width, head, problem.direction, streamed, problem.window
    plan = Plan(*sizes, *settings)
    strides = [a.outer for a in arrays], [a.time for a in arrays], [a.lane for a in arrays]
    return np.array([*plan, *strides[0], *strides[1], *strides[2]], np.int64)


def _width(layout: Layout, itemsize: int, full: int) -> int:
    """How many lanes make a block: as many as fit, but something to do for every core."""
    if layout.inner == 1:
        return PIECE
    wanted = -(-_config.NUMBA_NUM_THREADS // layout.outer)
    slices = max(-(-layout.inner * itemsize // BLOCK), min(wanted, layout.inner * itemsize // 512))
    width = -(-layout.inner // max(1, slices))
    return -(-width // full) * full


def _streams(layout: Layout, outs: list[Flat]) -> tuple[int, int]:
    """Lanes (steps of rows) before the first vector that suits `stream`, and outputs that do."""
    size = outs[0].numbers.itemsize
    if layout.outer * layout.num_steps * layout.inner * size < LARGE:
        return 0, 0
    strides = [s for o in outs for s in ((o.outer, o.time) if layout.inner > 1 else (o.outer,))]
    begins = [-out.numbers.ctypes.data % VECTOR_BYTES for out in outs]
    if any(stride * size % VECTOR_BYTES for stride in strides) or begins[0] % size:
        return 0, 0
    head = min(begins[0] // size, layout.inner if layout.inner > 1 else layout.num_steps)
    return head, 1 + (begins[0] == begins[1])
