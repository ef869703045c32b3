"""Which numbers make a lane: plans, lists of whole numbers, and how lanes make panels.

A plan says where each array lies: the address of its first number and its strides. Any axis, order
of axes, broadcasting (stride 0), direction (negative strides) and `lengths` are strides and stops
of lanes, so that a lane function is compiled once for each dtype.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from rlcpu.kernels.compile import EXACT, INLINE
from rlcpu.kernels.memory import pointer_to, shifted
from rlcpu.kernels.vectors import VECTOR_BYTES
from rlcpu.scan.layout import address_of

Array = npt.NDArray[Any]

#: Decorators of what kernels call, in IEEE arithmetic: inlined, or functions of their own.
inlined: Any = register_jitable(fastmath=EXACT, **INLINE)
called: Any = register_jitable(fastmath=EXACT, **{**INLINE, "forceinline": False})

PANEL = 2**19  # bytes of the inputs of a panel, of which the next one is prefetched as a whole
#: Bytes of one array from which the next panel is prefetched, and from which results are written
#: past the caches. A prefetch from the caches themselves only takes time.
LARGE, STREAMED = 2**19, 2**22

# ---------------------------------------------------------------- plans

#: Positions in a plan: numbers of inputs and outputs; sizes of the batch axes together and of the
#: last of them; number of the others; length of the axis; chunks of a system, and rows of scratch
#: for one; whether systems are periodic; address of an array that all lanes read, or 0; whether to
#: prefetch; whether to write past the caches.
INPUTS, OUTPUTS, OUTER, INNER, AXES, LENGTH = range(6)
CHUNKS, ROWS, PERIODIC, SHARED, AHEAD, STREAM, HEADER = range(6, 13)
#: What a plan says of each input, each output and the lengths: the address of the first number (0
#: if there are no lengths), the strides along the axis and along the last batch axis, -1 or 1 if
#: the first or last number of a system is never read, and what takes the place of such numbers.
PLACE, STEP, NEXT, REACH, OTHER, FIELDS = range(6)
#: Positions in the table of a lane function for a dtype: numbers of a vector; planes; numbers that
#: go into each lane and come out of it besides; addresses of the kernels that run panels and that
#: run a block; number of outputs that are written, and the plane of each.
LANES, PLANES, READS, WRITES, RUN, FUNCTION, COUNT, SOURCES = range(8)
#: Lists of a whole number for each lane, after those of where it begins in each array: rows, rows
#: to be written, first and last row (exclusive) of inputs with a reach, and its number.
STOP, WRITE, FIRST, LAST, NUMBER, LISTS = range(6)


class Input(NamedTuple):
    """An input of a lane function.

    Attributes:
        array: (batch..., n); its strides are multiples of its itemsize.
        other: 0 or 1, in the place of numbers that are not there.
        reach: -1 if row k is about row k - 1, so that the first one means nothing and is never
            read; 1 if it is about row k + 1, and the last one is never read; else 0.
        shift: row k is number k + shift of the array; -1 and 1 want a reach of the same sign.
    """

    array: Array
    other: int = 0
    reach: int = 0
    shift: int = 0


class Cut(NamedTuple):
    """How systems are cut into `chunks` of at most `rows` rows, see `parts_of`."""

    chunks: int
    rows: int


@inlined
def parts_of(length: Any, rows: Any) -> Any:
    """How many chunks of at most so many rows a system has; all are about as long."""
    return (length + rows - 1) // rows


def batch_order(array: Array) -> tuple[int, ...]:
    """Batch axes of an array (batch..., n) from the widest stride to the narrowest."""
    strides = array.strides
    return tuple(sorted(range(array.ndim - 1), key=lambda i: -abs(strides[i])))


def make_plan(
    inputs: Sequence[Input],
    outputs: Sequence[Array],
    *,
    cut: Cut | None = None,
    periodic: bool = False,
    lengths: Array | None = None,
    shared: Array | None = None,
) -> Array:
    """The plan of a driver; the caller keeps all arrays alive.

    Lanes are numbered in C order of the batch axes as `batch_order` sorts those of the first
    output, with the chunks of a system last.

    Args:
        inputs: arrays of one shape (batch..., n) and dtype.
        outputs: the same; the layout of the first one, which may be an input, decides.
        cut: how to cut systems; None for whole ones.
        periodic: whether the last row is next to the first.
        lengths: (batch...,) int64, rows of each system; None for n.
        shared: contiguous array that all lanes read.
    """
    arrays: list[Any] = [*(item.array for item in inputs), *outputs]
    arrays += [] if lengths is None else [lengths]
    shape = outputs[0].shape
    strides = tuple(array.strides for array in arrays)
    cut = cut or Cut(1, even(shape[-1]))
    kinds, options = tuple(item[1:] for item in inputs), (*cut, int(periodic))
    plan = _template(shape, outputs[0].itemsize, strides, kinds, options, len(outputs)).copy()
    for i, array in enumerate(arrays):
        plan[HEADER + i * FIELDS + PLACE] += address_of(array)
    if shared is not None:
        plan[SHARED] = address_of(shared)
    return plan


def even(n: int) -> int:
    """Rows of a whole system: pairs, since elimination goes from both ends."""
    return max(n + n % 2, 2)


def fitted(array: Array) -> Array:
    """The array, or a copy if its numbers are not where a pointer to numbers could point."""
    even = array.flags.aligned and not any(stride % array.itemsize for stride in array.strides)
    return array if even else array.copy()


@functools.lru_cache(maxsize=256)
def _template(
    shape: tuple[int, ...],
    itemsize: int,
    strides: tuple[tuple[int, ...], ...],
    kinds: tuple[tuple[int, ...], ...],
    options: tuple[int, ...],
    outputs: int,
) -> Array:
    """A plan without addresses."""
    inputs, (*batch, n) = len(kinds), shape
    steps = [[stride // itemsize for stride in array] for array in strides[: inputs + outputs]]
    marks = strides[-1] if len(strides) > len(steps) else (0,) * len(batch)
    steps.append([*(stride // 8 for stride in marks), 0])
    order = sorted(range(len(batch)), key=lambda i: -abs(steps[inputs][i]))
    axes: list[tuple[int, list[int]]] = [(1, [0] * len(steps))]
    for i in order:
        size, along = shape[i], [array[i] for array in steps]
        if axes[-1][1] == [size * step for step in along] or axes[-1][0] == 1:
            axes[-1] = (axes[-1][0] * size, along)
        elif size != 1:
            axes.append((size, along))
    inner, along = axes.pop()
    outer, size = math.prod(size for size, _ in axes), itemsize * math.prod(shape)
    plan = [inputs, outputs, outer, inner, len(axes), n]
    plan += [*options, 0, size >= LARGE, size >= STREAMED]
    kinds += ((0, 0, 0),) * (len(steps) - inputs)
    for array, step, (other, reach, shift) in zip(steps, along, kinds, strict=True):
        plan += [shift * array[-1] * itemsize, array[-1], step, reach, other]
    for size, along in axes:
        plan += [size, *along]
    return np.array(plan, np.int64)


# ---------------------------------------------------------------- panels: lanes side by side


class Shape(NamedTuple):
    """How lanes are divided into panels."""

    wide: Any  # whether a panel is several blocks of lanes side by side
    overlap: Any  # whether blocks may have lanes in common, so that all of them are full
    room: Any  # lanes of a panel
    head: Any  # lanes before the first whole line of the output, a panel of their own
    per: Any  # panels of a group: all lanes, or those of one outer index and chunk
    panels: Any
    plane: Any  # numbers of a plane


@called
def shape_of(plan, table):
    """Shape of the panels of a plan for a lane function; both are pointers."""
    lanes, inner, chunks, inputs = table[LANES], plan[INNER], plan[CHUNKS], plan[INPUTS]
    itemsize, arrays = VECTOR_BYTES // lanes, inputs + plan[OUTPUTS]
    leader = shifted(plan, HEADER + inputs * FIELDS)
    # An odd number of lines, so that the planes' first rows are in different sets of a cache.
    plane = ((plan[ROWS] + lanes - 1) // lanes * lanes + 1) * lanes
    has_lengths = plan[HEADER + arrays * FIELDS + PLACE] != 0
    if leader[NEXT] != 1 or inner < lanes or (has_lengths and chunks > 1):
        panels = (plan[OUTER] * inner * chunks + lanes - 1) // lanes
        return Shape(False, False, lanes, 0, panels, panels, plane)
    overlap = True  # unless a block would read what another one has written
    for i in range(inputs):
        for j in range(inputs, inputs + table[COUNT]):
            overlap &= plan[HEADER + i * FIELDS + PLACE] != plan[HEADER + j * FIELDS + PLACE]
    blocks = (inner + lanes - 1) // lanes
    if plan[OUTER] * chunks < 4:  # something for every core, and no core waits long for another
        blocks = inner // lanes // 16
    room = lanes * max(min(PANEL // (inputs * plane * itemsize), blocks), 1)
    head = -leader[PLACE] % VECTOR_BYTES // itemsize  # in Python's sense, and so up to a line
    if leader[STEP] % lanes != 0:  # lines begin at other lanes in other rows
        head = 0
    per = (inner - head + room - 1) // room + (1 if head > 0 else 0)
    return Shape(True, overlap, room, head, per, per * plan[OUTER] * chunks, plane)


@called
def find(plan, shape, lanes, panel, lists):
    """Write the lists of a panel's lanes; how many lanes there are."""
    chunks, arrays, room = plan[CHUNKS], plan[INPUTS] + plan[OUTPUTS] + 1, shape.room
    group, number = panel // shape.per, panel % shape.per
    first = number * room
    if shape.head > 0 and number > 0:
        first += shape.head - room
    count = min((plan[INNER] if shape.wide else plan[OUTER] * plan[INNER] * chunks) - first, room)
    if shape.head > 0 and number == 0:
        count = shape.head
    if shape.overlap:
        first, count = min(first, plan[INNER] - lanes), max(count, lanes)
    has_lengths = plan[HEADER + (arrays - 1) * FIELDS + PLACE] != 0
    together = shape.wide or (chunks == 1 and first % plan[INNER] + count <= plan[INNER])
    alike = together and not has_lengths
    for lane in range(1 if alike else room):
        at, outer, chunk = first + min(lane, count - 1), group // chunks, group % chunks
        if not shape.wide:
            at, chunk = at // chunks, at % chunks
            outer, at = at // plan[INNER], at % plan[INNER]
        find_lane(plan, (outer, at, chunk), lists, (arrays, room, lane))
    if alike:
        _repeat_lane(plan, lists, (arrays, room, count))
    return count


@inlined
def _repeat_lane(plan, lists, where):
    """Write the lists of lanes of which only the inner index is another than that of the first."""
    arrays, room, count = where
    for i in range(arrays + LISTS):
        row, step = shifted(lists, i * room), 0
        if i < arrays:
            step = plan[HEADER + i * FIELDS + NEXT]
        elif i == arrays + NUMBER:
            step = plan[CHUNKS]
        for k in range(1, room):
            row[k] = row[0] + min(k, count - 1) * step


@inlined
def find_lane(plan, index, lists, where):
    """Write the lists of a lane from its outer and inner index and its chunk's number."""
    outer, inner, chunk = index
    arrays, room, lane = where
    for i in range(arrays):
        lists[i * room + lane] = inner * plan[HEADER + i * FIELDS + NEXT]
    rest, axis = outer, HEADER + arrays * FIELDS + plan[AXES] * (1 + arrays)
    for _ in range(plan[AXES]):
        axis -= 1 + arrays
        place = rest % plan[axis]
        rest //= plan[axis]
        for i in range(arrays):
            lists[i * room + lane] += place * plan[axis + 1 + i]
    length, marks = plan[LENGTH], plan[HEADER + (arrays - 1) * FIELDS + PLACE]
    if marks != 0:
        length = pointer_to(marks, np.int64(0))[lists[(arrays - 1) * room + lane]]
    begin, stop, parts = 0, length, 1
    if plan[CHUNKS] > 1:
        parts = max(parts_of(length, plan[ROWS]), 1)
        begin = length * chunk // parts if chunk < parts else 0
        stop = length * (chunk + 1) // parts - begin if chunk < parts else 0
    own = shifted(lists, arrays * room + lane)
    own[STOP * room], own[WRITE * room] = stop, stop if plan[CHUNKS] > 1 else plan[LENGTH]
    begins = plan[PERIODIC] == 0 and chunk == 0
    ends = plan[PERIODIC] == 0 and chunk == parts - 1
    own[FIRST * room] = 1 if begins or stop == 0 else 0
    own[LAST * room] = max(stop - 1, 0) if ends else stop
    own[NUMBER * room] = (outer * plan[INNER] + inner) * plan[CHUNKS] + chunk
    for i in range(arrays - 1):
        lists[i * room + lane] += begin * plan[HEADER + i * FIELDS + STEP]
