"""From checked arrays to the plan of a kernel: sizes that suit how they lie in memory."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rlcpu.kernels.threads import check_num_threads, launch
from rlcpu.kernels.vectors import VECTOR_BYTES
from rlcpu.scan.layout import REPEATED, Layout, Place, address_of
from rlcpu.scan.recurrences.driver import FIRST, INITIAL, REGISTERS, kernels, lanes_of
from rlcpu.scan.recurrences.rules import Rule, Step

Array = npt.NDArray[Any]

PIECE = 128  # steps of a piece of rows
WINDOW_PIECE = 512  # steps of a row whose windows are computed at a time
WINDOW_STEPS, WINDOW_VECTORS = 32, 4  # the same of a block of lanes, and its width
#: Size of an output from which it is written past the caches: half of it takes longer that way.
LARGE = 2**23  # bytes
MANY = 16  # rows from which there are enough for vectors across them
LONG = 2**15  # steps from which two passes take less time than one that waits for every step

UNUSED = Step(*(None,) * len(Step._fields))
_ZEROS = np.zeros(REPEATED, np.uint8)
_ZERO = Place(_ZEROS, address_of(_ZEROS), 0, 0, 0)


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
    last: Array = np.zeros(())
    initial: Array = np.zeros(())
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
    targets = [layout.target(out) for out in outs]
    written = [out if t else layout.empty(dtype) for out, t in zip(outs, targets, strict=True)]
    arrays = [_ZERO if array is None else layout.place(array) for array in problem.steps]
    for array in (problem.last, problem.initial):
        arrays.append(layout.place_ends(np.asarray(array, dtype)))
    for i in (0, -1):
        arrays.append(targets[i] or layout.place(written[i]))
    is_long = layout.inner == 1 and layout.outer < MANY and layout.num_steps >= LONG
    start = _run_long if is_long and not rule.cuts else _launch
    start(rule, layout, problem, arrays, dtype, num_threads)
    for out, array in zip(outs, written, strict=True):
        if array is not out:
            np.copyto(out, array)


def _launch(
    rule: Rule,
    layout: Layout,
    problem: Problem,
    arrays: list[Place],
    dtype: Any,
    num_threads: int | None,
    totals: tuple[int, int] = (0, 0),
) -> None:
    """Call the kernel; `totals` are the last integers of its plan."""
    outer, steps, inner = layout.outer, layout.num_steps, layout.inner
    head, streamed = _streams(layout, arrays[FIRST:], dtype.itemsize)
    if problem.window:
        form, width, length = "windows", 1, WINDOW_PIECE
        if inner > 1:
            width, length = WINDOW_VECTORS * lanes_of(dtype), WINDOW_STEPS
        length, head, streamed = max(length, 2 * problem.window), 0, 0
        units = outer * -(-inner // width) * -(-steps // length)
    elif inner == 1:
        form, width, length = "rows", 1, PIECE
        units = -(-outer // (REGISTERS * lanes_of(dtype)))
    else:
        form, width, length = "columns", _width(layout, dtype), 1
        units = outer * (-(-(inner - head) // width) + (head > 0))
    sizes = outer, steps, inner, width, min(length, steps), head
    plan = [*sizes, problem.direction, streamed, problem.window]
    for places in zip(*(array[1:] for array in arrays), strict=True):  # addresses, then strides
        plan += places
    plan += [_ZERO.address, *totals]
    options = np.array([*problem.options, 0.0, 0.0, 0.0][:3], dtype)
    drivers = kernels(rule, dtype.type, form)
    work = outer * steps * inner
    launch(drivers, work, num_threads, np.array(plan, np.int64), options, units)


def _width(layout: Layout, dtype: Any) -> int:
    """How many lanes make a block: as many as fit, but something to do for every core."""
    size, full = layout.inner * dtype.itemsize, lanes_of(dtype)
    wanted = -(-numba.config.NUMBA_NUM_THREADS // layout.outer)
    slices = max(-(-size // REPEATED), min(wanted, size // 512), 1)
    return -(-layout.inner // (slices * full)) * full


def _streams(layout: Layout, outs: list[Place], size: int) -> tuple[int, int]:
    """Lanes (steps of rows) before the first vector that suits `stream`, and outputs that do."""
    if layout.outer * layout.num_steps * layout.inner * size < LARGE:
        return 0, 0
    strides = [s for o in outs for s in ((o.outer, o.time) if layout.inner > 1 else (o.outer,))]
    begins = [-out.address % VECTOR_BYTES for out in outs]
    if any(stride * size % VECTOR_BYTES for stride in strides) or begins[0] % size:
        return 0, 0
    head = min(begins[0] // size, layout.inner if layout.inner > 1 else layout.num_steps)
    return head, 1 + (begins[0] == begins[1])


def _run_long(
    rule: Rule,
    layout: Layout,
    problem: Problem,
    arrays: list[Place],
    dtype: Any,
    num_threads: int | None,
) -> None:
    """`_launch` for a few long rows, each of which is cut into segments, computed side by side.

    Every segment is passed twice: once for what it makes of any y before it, product * y + final;
    and, once these have been put together, as a row of its own with the right y to begin with.
    """
    steps, forward, size = layout.num_steps, problem.direction < 0, dtype.itemsize
    # An odd number of vectors: segments whose distance is a power of two would meet in the same
    # few lines of the cache.
    number = 64 if steps < 2**20 else 256
    length = ((steps // (number * lanes_of(dtype)) + 1) // 2 * 2 - 1) * lanes_of(dtype)
    rest = steps - number * length
    begin, first = (rest, 0) if forward else (0, steps - rest)
    products, finals = np.empty((2, number), dtype)
    ends = address_of(products), address_of(finals)

    def scan(row: int, begin: int, shape: tuple[int, int], initial: Any, totals: Any) -> None:
        """Segments, a shape of them, that begin with a step of a row."""
        segments, moved = Layout((0, 1), shape, 1, *shape, 1, True), list(arrays)
        for i, (array, address, outer, time, lane) in enumerate(arrays):
            by = (row * outer + begin * time) * size
            moved[i] = Place(array, address + by, shape[1] * time, time, lane)
        moved[INITIAL] = segments.place_ends(np.asarray(initial, dtype))
        _launch(rule, segments, problem, moved, dtype, num_threads, totals)

    for row, start in enumerate(layout.ends(problem.initial).tolist()):
        if rest:
            scan(row, first, (1, rest), start, (0, ends[1]))
            start = float(finals[0])
        scan(row, begin, (number, length), 0.0, ends)
        pairs = list(zip(products.tolist(), finals.tolist(), strict=True))
        pairs = pairs[:-1] if forward else pairs[:0:-1]
        carried = list(itertools.accumulate(pairs, lambda y, p: p[1] + p[0] * y, initial=start))
        if all(map(math.isfinite, [*products.tolist(), *carried])):
            initial = carried if forward else carried[::-1]
            scan(row, begin, (number, length), initial, (0, 0))
        else:  # an infinity or NaN would spread to steps that it does not reach
            scan(row, begin, (1, number * length), start, (0, 0))
