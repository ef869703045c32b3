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


class Plan(NamedTuple):
    """The first numbers of a plan; a `Place` of each input, the output and the lengths follows.

    After these, the size of each batch axis but the last, and the stride of each array along it.
    """

    inputs: Any  # number of inputs
    outer: Any  # size of all batch axes but the last
    inner: Any  # size of the last batch axis
    axes: Any  # number of the others
    length: Any  # of the axis
    chunks: Any  # of a system
    rows: Any  # of scratch for a chunk
    periodic: Any  # whether the last row is next to the first
    shared: Any  # address of an array that all lanes read, or 0
    ahead: Any  # whether to prefetch
    stream: Any  # whether to write past the caches


class Place(NamedTuple):
    """Where an array lies."""

    address: Any  # of the first number; 0 if there are no lengths
    step: Any  # stride along the axis
    next: Any  # stride along the last batch axis
    reach: Any  # -1 or 1 if the first or last number of a system is never read
    other: Any  # number in the place of those


class Table(NamedTuple):
    """A lane function for a dtype."""

    lanes: Any  # numbers of a vector
    planes: Any
    reads: Any  # numbers that go into each lane besides
    writes: Any  # numbers that come out of it besides
    run: Any  # address of the kernel that runs panels
    function: Any  # address of the function of a block
    output: Any  # plane of the output; -1 if nothing is written


class Lists(NamedTuple):
    """Pointers to a number for each lane."""

    stop: Any  # rows
    write: Any  # rows to be written
    first: Any  # first row of inputs whose reach is -1
    last: Any  # last row, exclusive, of inputs whose reach is 1
    number: Any  # of the lane


HEADER, FIELDS, LISTS = len(Plan._fields), len(Place._fields), len(Lists._fields)


@inlined
def plan_at(p):
    """Return the first numbers of a plan at a pointer."""
    return Plan(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10])


@inlined
def place_at(plan, i):
    """Return the place of array i of the plan at a pointer."""
    p = shifted(plan, HEADER + i * FIELDS)
    return Place(p[0], p[1], p[2], p[3], p[4])


@inlined
def table_at(p):
    """Return the table at a pointer."""
    return Table(p[0], p[1], p[2], p[3], p[4], p[5], p[6])


@inlined
def lists_at(lists, arrays, room):
    """Return the lists of lanes, which follow those of where lanes begin in so many arrays."""
    p = shifted(lists, arrays * room)
    return Lists(
        p, shifted(p, room), shifted(p, 2 * room), shifted(p, 3 * room), shifted(p, 4 * room)
    )


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
    """Return the number of chunks of at most so many rows; all are about as long."""
    return (length + rows - 1) // rows


def batch_order(array: Array) -> tuple[int, ...]:
    """Batch axes of an array (batch..., n) from the widest stride to the narrowest."""
    strides = array.strides
    return tuple(sorted(range(array.ndim - 1), key=lambda i: -abs(strides[i])))


def make_plan(
    inputs: Sequence[Input],
    output: Array,
    *,
    cut: Cut | None = None,
    periodic: bool = False,
    lengths: Array | None = None,
    shared: Array | None = None,
) -> Array:
    """Return the plan of a driver; the caller keeps all arrays alive.

    Lanes are numbered in C order of the batch axes as `batch_order` sorts those of the output, with
    the chunks of a system last.

    Args:
        inputs: arrays of one shape (batch..., n) and dtype.
        output: the same; may be an input. Its layout decides.
        cut: how to cut systems; None for whole ones.
        periodic: whether the last row is next to the first.
        lengths: (batch...,) int64, rows of each system; None for n.
        shared: contiguous array that all lanes read.
    """
    arrays: list[Any] = [*(item.array for item in inputs), output]
    arrays += [] if lengths is None else [lengths]
    shape = output.shape
    strides = tuple(array.strides for array in arrays)
    cut = cut or Cut(1, even(shape[-1]))
    kinds, options = tuple(item[1:] for item in inputs), (*cut, int(periodic))
    plan = _template(shape, output.itemsize, strides, kinds, options).copy()
    for i, array in enumerate(arrays):
        plan[HEADER + i * FIELDS] += address_of(array)
    if shared is not None:
        plan[Plan._fields.index("shared")] = address_of(shared)
    return plan


def place_arrays(template: Array, arrays: Sequence[Array]) -> Array:
    """Return a plan without addresses, with those of its inputs and its output."""
    plan = template.copy()
    for i, array in enumerate(arrays):
        plan[HEADER + i * FIELDS] = address_of(array)
    return plan


def even(n: int) -> int:
    """Return n rounded up to pairs of rows, one at least: elimination goes from both ends."""
    return max(n + n % 2, 2)


def fitted(array: Array) -> Array:
    """Return the array, or a copy if its numbers are not where a pointer to numbers could point."""
    even = array.flags.aligned and not any(stride % array.itemsize for stride in array.strides)
    return array if even else array.copy()


@functools.lru_cache(maxsize=256)
def _template(
    shape: tuple[int, ...],
    itemsize: int,
    strides: tuple[tuple[int, ...], ...],
    kinds: tuple[tuple[int, ...], ...],
    options: tuple[int, ...],
) -> Array:
    """Return a plan without addresses."""
    inputs, (*batch, n) = len(kinds), shape
    steps = [[stride // itemsize for stride in array] for array in strides[: inputs + 1]]
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
    large, streamed = size >= LARGE, size >= STREAMED
    chunks, rows, periodic = options
    sizes = inputs, outer, inner, len(axes), n, chunks, rows
    plan: list[int] = [*Plan(*sizes, periodic, shared=0, ahead=large, stream=streamed)]
    kinds += ((0, 0, 0),) * (len(steps) - inputs)
    for array, step, (other, reach, shift) in zip(steps, along, kinds, strict=True):
        plan += Place(shift * array[-1] * itemsize, array[-1], step, reach, other)
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
def shape_of(plan_pointer, table_pointer):
    """Return the shape of the panels of a plan for a lane function."""
    plan, table = plan_at(plan_pointer), table_at(table_pointer)
    lanes, inner, chunks, inputs = table.lanes, plan.inner, plan.chunks, plan.inputs
    itemsize, output = VECTOR_BYTES // lanes, place_at(plan_pointer, inputs)
    # An odd number of lines, so that the planes' first rows are in different sets of a cache.
    plane = ((plan.rows + lanes - 1) // lanes * lanes + 1) * lanes
    has_lengths = place_at(plan_pointer, inputs + 1).address != 0
    if output.next != 1 or inner < lanes or (has_lengths and chunks > 1):
        panels = (plan.outer * inner * chunks + lanes - 1) // lanes
        return Shape(False, False, lanes, 0, panels, panels, plane)
    overlap = True  # unless a block would read what another one has written
    for i in range(inputs):
        overlap &= place_at(plan_pointer, i).address != output.address or table.output < 0
    blocks = (inner + lanes - 1) // lanes
    if plan.outer * chunks < 4:  # something for every core, and no core waits long for another
        blocks = inner // lanes // 16
    room = lanes * max(min(PANEL // (inputs * plane * itemsize), blocks), 1)
    head = -output.address % VECTOR_BYTES // itemsize  # in Python's sense, and so up to a line
    if output.step % lanes != 0:  # lines begin at other lanes in other rows
        head = 0
    per = (inner - head + room - 1) // room + (1 if head > 0 else 0)
    return Shape(True, overlap, room, head, per, per * plan.outer * chunks, plane)


@called
def find_lanes(plan_pointer, shape, lanes, panel, lists):
    """Write the lists of a panel's lanes; how many lanes there are."""
    plan = plan_at(plan_pointer)
    chunks, inner, arrays, room = plan.chunks, plan.inner, plan.inputs + 2, shape.room
    group, number = panel // shape.per, panel % shape.per
    first = number * room
    if shape.head > 0 and number > 0:
        first += shape.head - room
    count = min((inner if shape.wide else plan.outer * inner * chunks) - first, room)
    if shape.head > 0 and number == 0:
        count = shape.head
    if shape.overlap:
        first, count = min(first, inner - lanes), max(count, lanes)
    has_lengths = place_at(plan_pointer, arrays - 1).address != 0
    together = shape.wide or (chunks == 1 and first % inner + count <= inner)
    alike = together and not has_lengths
    for lane in range(1 if alike else room):
        at, outer, chunk = first + min(lane, count - 1), group // chunks, group % chunks
        if not shape.wide:
            at, chunk = at // chunks, at % chunks
            outer, at = at // inner, at % inner
        find_lane(plan_pointer, (outer, at, chunk), lists, room, lane)
    if alike:
        repeat_lane(plan_pointer, lists, room, count)
    return count


@inlined
def repeat_lane(plan_pointer, lists, room, count):
    """Write the lists of lanes of which only the inner index is another than that of the first."""
    plan = plan_at(plan_pointer)
    arrays = plan.inputs + 2
    number = lists_at(lists, arrays, room).number
    for i in range(arrays):
        row, step = shifted(lists, i * room), place_at(plan_pointer, i).next
        for k in range(1, room):
            row[k] = row[0] + min(k, count - 1) * step
    for i in range(arrays, arrays + LISTS):
        row = shifted(lists, i * room)
        for k in range(1, room):
            row[k] = row[0]
    for k in range(1, room):
        number[k] = number[0] + min(k, count - 1) * plan.chunks


@inlined
def find_lane(plan_pointer, index, lists, room, lane):
    """Write the lists of a lane from its outer and inner index and its chunk's number."""
    plan, (outer, inner, chunk) = plan_at(plan_pointer), index
    arrays = plan.inputs + 2
    for i in range(arrays):
        lists[i * room + lane] = inner * place_at(plan_pointer, i).next
    rest, axis = outer, HEADER + arrays * FIELDS + plan.axes * (1 + arrays)
    for _ in range(plan.axes):
        axis -= 1 + arrays
        place = rest % plan_pointer[axis]
        rest //= plan_pointer[axis]
        for i in range(arrays):
            lists[i * room + lane] += place * plan_pointer[axis + 1 + i]
    length, lengths = plan.length, place_at(plan_pointer, arrays - 1).address
    if lengths != 0:
        length = pointer_to(lengths, np.int64(0))[lists[(arrays - 1) * room + lane]]
    begin, stop, parts = 0, length, 1
    if plan.chunks > 1:
        parts = max(parts_of(length, plan.rows), 1)
        begin = length * chunk // parts if chunk < parts else 0
        stop = length * (chunk + 1) // parts - begin if chunk < parts else 0
    each = lists_at(lists, arrays, room)
    each.stop[lane], each.write[lane] = stop, stop if plan.chunks > 1 else plan.length
    is_first = plan.periodic == 0 and chunk == 0
    is_last = plan.periodic == 0 and chunk == parts - 1
    each.first[lane] = 1 if is_first or stop == 0 else 0
    each.last[lane] = max(stop - 1, 0) if is_last else stop
    each.number[lane] = (outer * plan.inner + inner) * plan.chunks + chunk
    for i in range(arrays - 1):
        lists[i * room + lane] += begin * place_at(plan_pointer, i).step
