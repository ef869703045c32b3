"""One driver for functions along an axis of many arrays, whatever their layout: blocks of lanes.

A lane is one system along the axis, or one chunk of a long one. A block has as many lanes as a
register has numbers. Lanes side by side in memory are read and written where they lie. Any other
input is gathered into a plane of scratch, a row for each step, a number for each lane, and outputs
are scattered from there. A lane function works on rows, as vectors, in plain Python.

A plan, a list of whole numbers, says where each array lies: the address of its first number and
its strides. Any axis, order of axes, broadcasting (stride 0), direction (negative strides) and
`lengths` are strides and stops of lanes, so that a lane function is compiled once for each dtype.

Unknowns side by side in memory are transposed in registers; a number that all lanes share is
repeated; what is neither that nor lanes side by side is moved number by number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import prange, types
from numba.extending import register_jitable

from rlcpu.kernels.compile import EXACT, INLINE, c_function, kernel
from rlcpu.kernels.memory import (
    address,
    call_at,
    fence,
    load,
    load_first,
    load_tile,
    load_tile_part,
    pointer_to,
    prefetch,
    shifted,
    store,
    store_first,
    store_tile,
    store_tile_first,
    stream,
    to_line,
)
from rlcpu.kernels.threads import Kernels, launch
from rlcpu.kernels.vectors import VECTOR_BYTES, fill, width

Array = npt.NDArray[Any]

#: Decorators of what kernels call, in IEEE arithmetic: inlined, or functions of their own.
inlined: Any = register_jitable(fastmath=EXACT, **INLINE)
called: Any = register_jitable(fastmath=EXACT, **{**INLINE, "forceinline": False})

ONE = 1  # register of a vector
GRAIN = 2**14  # numbers from which a second core is worth waking
PARTS = 64  # that cores take in turn
PANEL = 2**19  # bytes of the inputs of a panel, of which the next one is prefetched as a whole
SOON = 2  # rows between one that is asked for and one that is read, of long lanes
#: Bytes of one array from which the next panel is prefetched, and from which results are written
#: past the caches. A prefetch from the caches themselves only takes time.
LARGE, STREAMED = 2**19, 2**22

# ---------------------------------------------------------------- plans

#: Positions in a plan: numbers of inputs and outputs; sizes of the batch axes together and of the
#: last of them; number of the others; length of the axis; chunks of a system, and rows of scratch
#: for one; whether systems are periodic; input whose neighbours beyond a chunk are looked up, or
#: -1; whether to prefetch; whether to write past the caches; array that decides the layout.
INPUTS, OUTPUTS, OUTER, INNER, AXES, LENGTH = range(6)
CHUNKS, ROWS, PERIODIC, HALO, AHEAD, STREAM, LEADER, HEADER = range(6, 14)
#: What a plan says of each input, each output and the lengths: the address of the first number (0
#: if there are no lengths), the strides along the axis and along the last batch axis, -1 or 1 if
#: the first or last number of a system is never read, and what takes the place of such numbers.
PLACE, STEP, NEXT, REACH, OTHER, FIELDS = range(6)
#: Lists of a whole number for each lane, after those of where it begins in each array: rows, rows
#: to be written, first and last row (exclusive) of inputs with a reach, its number, and positions
#: of the numbers before and after it.
STOP, WRITE, FIRST, LAST, NUMBER, BEFORE, AFTER, LISTS = range(8)
NOWHERE = -(2**62)


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
    outputs: Sequence[Array | None],
    *,
    cut: Cut | None = None,
    periodic: bool = False,
    lengths: Array | None = None,
    halo: int = -1,
    leader: int | None = None,
) -> Array:
    """The plan of a driver; the caller keeps all arrays alive.

    Lanes are numbered in C order of the batch axes as `batch_order` sorts those of the leader, with
    the chunks of a system last.

    Args:
        inputs: arrays of one shape (batch..., n) and dtype.
        outputs: the same, or None for what is not to be written; the first one may be an input.
        cut: how to cut systems; None for whole ones.
        periodic: whether the last row is next to the first.
        lengths: (batch...,) int64, rows of each system; None for n.
        halo: input of which lanes get the numbers before and after them; -1 for none.
        leader: number of the array whose layout decides, inputs first; None for the first output.
    """
    arrays: list[Any] = [*(item.array for item in inputs), *outputs, lengths]
    leader = len(inputs) if leader is None else leader
    shape = arrays[leader].shape
    strides = tuple(None if array is None else array.strides for array in arrays)
    cut = cut or Cut(1, max(shape[-1] + shape[-1] % 2, 2))
    kinds, options = tuple(item[1:] for item in inputs), (*cut, int(periodic), halo)
    plan = _template(shape, arrays[0].itemsize, strides, kinds, options, leader).copy()
    for i, array in enumerate(arrays):
        if array is not None:
            plan[HEADER + i * FIELDS + PLACE] += array.__array_interface__["data"][0]
    return plan


def fitted(array: Array) -> Array:
    """The array, or a copy if its numbers are not where a pointer to numbers could point."""
    even = array.flags.aligned and not any(stride % array.itemsize for stride in array.strides)
    return array if even else array.copy()


def share(plan: Array, array: Array) -> Array:
    """The plan with a contiguous array that all lanes read, see `shared`; the caller keeps it."""
    return np.append(plan, array.__array_interface__["data"][0])


@functools.lru_cache(maxsize=256)
def _template(
    shape: tuple[int, ...],
    itemsize: int,
    strides: tuple[tuple[int, ...] | None, ...],
    kinds: tuple[tuple[int, ...], ...],
    options: tuple[int, ...],
    leader: int,
) -> Array:
    """A plan without addresses."""
    *own, marks = [own or (0,) * len(shape) for own in strides]
    steps = [[stride // itemsize for stride in array] for array in own]
    steps.append([stride // 8 for stride in (*marks[: len(shape) - 1], 0)])
    order = sorted(range(len(shape) - 1), key=lambda i: -abs(steps[leader][i]))
    axes: list[tuple[int, list[int]]] = [(1, [0] * len(steps))]
    for i in order:
        size, along = shape[i], [array[i] for array in steps]
        if axes[-1][1] == [size * step for step in along] or axes[-1][0] == 1:
            axes[-1] = (axes[-1][0] * size, along)
        elif size != 1:
            axes.append((size, along))
    inner, along = axes.pop()
    outer, size = math.prod(size for size, _ in axes), itemsize * math.prod(shape)
    plan = [len(kinds), len(own) - len(kinds), outer, inner, len(axes), shape[-1]]
    plan += [*options, size >= LARGE, size >= STREAMED, leader]
    kinds += ((0, 0, 0),) * (len(steps) - len(kinds))
    for array, step, (other, reach, shift) in zip(steps, along, kinds, strict=True):
        plan += [shift * array[-1] * itemsize, array[-1], step, reach, other]
    for size, along in axes:
        plan += [size, *along]
    return np.array(plan, np.int64)


# ---------------------------------------------------------------- what lane functions see


class Ahead(NamedTuple):
    """What to prefetch with each row: lines of the next panel, or later rows of long lanes.

    Line q of a panel is number q % per of lane (or row, see `turn`) q // per: lines are asked for
    in the order of memory, which is what makes this pay.
    """

    plan: Any  # pointer
    lists: Any  # pointer to the lists of its lanes, of `room` numbers each
    room: Any
    first: Any  # line that goes with row 0
    per: Any  # 0 for later rows of the same lanes
    turn: Any  # 1 if lines lie along lanes, each of which has a start; 0 if along rows


class Block(NamedTuple):
    """As many lanes as a vector has numbers, and scratch of their own.

    Inputs and outputs whose lanes lie side by side are read and written where they are, but for
    the first and last rows, which some lanes lack. All others have a plane of scratch.
    """

    memory: Any  # pointer to the planes, the inputs' first; rows of lanes
    plane: Any  # numbers of a plane
    rows: Any
    least: Any  # rows that all lanes have
    beside: Any  # pointer to the lanes' stops, their halo, and what goes in and out besides
    sources: Any  # pointer to the address of row 0 of each input, and the stride over rows
    targets: Any  # the same of each output
    begin: Any  # first row of inputs that is where `sources` says; other rows are in scratch
    end: Any  # last one, exclusive
    written: Any  # rows of outputs
    past: Any  # whether to write past the caches
    ahead: Any


@inlined
def get(block, plane, k):
    """Row k of a plane."""
    return load(block.memory, plane * block.plane + k * width(block.memory, ONE), ONE)


@inlined
def put(value, block, plane, k):
    """Overwrite row k of a plane."""
    store(value, block.memory, plane * block.plane + k * width(block.memory, ONE))


@inlined
def read(block, i, k):
    """Row k of input i, whose plane was not written to there."""
    if block.begin <= k < block.end:
        source = pointer_to(block.sources[2 * i], block.beside[0])
        return load(source, k * block.sources[2 * i + 1], ONE)
    return get(block, i, k)


@inlined
def write(value, block, i, k):
    """Row k of output i."""
    if k < block.written:
        target = pointer_to(block.targets[2 * i], block.beside[0])
        if block.past != 0:
            stream(value, target, k * block.targets[2 * i + 1])
        else:
            store(value, target, k * block.targets[2 * i + 1])


@inlined
def _beside(block, i):
    return load(block.beside, i * width(block.beside, ONE), ONE)


@inlined
def stops(block):
    """Number of rows of each lane, as a vector."""
    return _beside(block, 0)


@inlined
def halo(block):
    """Numbers before the first and after the last row, see `make_plan`."""
    return _beside(block, 1), _beside(block, 2)


@inlined
def given(block, i):
    """Number i of those that go into each lane besides."""
    return _beside(block, 3 + i)


@inlined
def shared(block):
    """Pointer to the array that all lanes read, see `share`."""
    plan = block.ahead.plan
    arrays = plan[INPUTS] + plan[OUTPUTS] + 1
    last = HEADER + arrays * FIELDS + plan[AXES] * (1 + arrays)
    return pointer_to(plan[last], block.beside[0])


@inlined
def report(value, block, i):
    """Set number i of those that come out of each lane besides."""
    store(value, block.beside, (3 + i) * width(block.beside, ONE))


@inlined
def ask(block, number, later):
    """Prefetch: call it once for each row, by its number, with a row that is read soon."""
    plan, lists, room, first, per, turn = block.ahead
    if plan[AHEAD] == 0:
        return
    lane, minor, lanes = 0, 0, width(block.memory, ONE)
    if per > 0:
        later = np.int64(np.uint32(first + number) // np.uint32(per))
        lane, minor = later * turn, (first + number - later * per) * lanes
        later -= lane
    for i in range(plan[INPUTS]):
        array = shifted(plan, HEADER + i * FIELDS)
        source = pointer_to(array[PLACE], block.beside[0])
        at = lists[i * room + lane] + later * array[STEP] + minor
        prefetch(source, at)
        if per == 0:  # lanes of two lines
            prefetch(source, at + lanes - 1)


# ---------------------------------------------------------------- panels: lanes side by side


class Shape(NamedTuple):
    """How lanes are divided into panels.

    Attributes:
        wide: whether a panel is several blocks of lanes side by side.
        overlap: whether blocks may have lanes in common, so that all of them are full.
        room: lanes of a panel.
        head: lanes before the first whole line of the output, a panel of their own.
        per: panels of a group: all lanes, or those of one outer index and chunk.
        panels: number of panels.
        plane: numbers of a plane.
    """

    wide: Any
    overlap: Any
    room: Any
    head: Any
    per: Any
    panels: Any
    plane: Any


@called
def shape_of(plan, table):
    """Shape of the panels of a plan for a lane function; both are pointers."""
    lanes, inner, chunks, inputs = table[LANES], plan[INNER], plan[CHUNKS], plan[INPUTS]
    itemsize, arrays = VECTOR_BYTES // lanes, inputs + plan[OUTPUTS]
    leader = shifted(plan, HEADER + plan[LEADER] * FIELDS)
    # An odd number of lines, so that the planes' first rows are in different sets of a cache.
    plane = ((plan[ROWS] + lanes - 1) // lanes * lanes + 1) * lanes
    has_lengths = plan[HEADER + arrays * FIELDS + PLACE] != 0
    if leader[NEXT] != 1 or inner < lanes or (has_lengths and chunks > 1):
        panels = (plan[OUTER] * inner * chunks + lanes - 1) // lanes
        return Shape(False, False, lanes, 0, panels, panels, plane)
    overlap = True  # unless a block would read what another one has written
    for i in range(inputs):
        for j in range(inputs, arrays):
            overlap &= plan[HEADER + i * FIELDS + PLACE] != plan[HEADER + j * FIELDS + PLACE]
    blocks = (inner + lanes - 1) // lanes
    if plan[OUTER] * chunks < 4:  # something for every core
        blocks = inner // lanes // 4
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
    plain = (shape.wide or chunks == 1) and plan[HEADER + (arrays - 1) * FIELDS + PLACE] == 0
    lane: Any = 0
    while lane < room:
        at, outer, chunk = first + min(lane, count - 1), group, 0
        if shape.wide and chunks > 1:
            outer, chunk = group // chunks, group % chunks
        elif not shape.wide:
            outer = 0
            if chunks > 1:
                at, chunk = at // chunks, at % chunks
            if plan[OUTER] > 1:
                outer, at = at // plan[INNER], at % plan[INNER]
        _find_lane(plan, (outer, at, chunk), lists, (arrays, room, lane))
        like = min(count - lane, plan[INNER] - at) if plain else 1
        if like > 1:
            _repeat_lane(plan, lists, (arrays, room, lane), like)
        lane += max(like, 1)
    return count


@inlined
def _repeat_lane(plan, lists, where, count):
    """Write the lists of lanes whose inner index alone is larger than that of the first one."""
    arrays, room, lane = where
    for i in range(arrays + LISTS):
        row, step = shifted(lists, i * room + lane), 0
        if i < arrays:
            step = plan[HEADER + i * FIELDS + NEXT]
        elif i == arrays + NUMBER:
            step = plan[CHUNKS]
        elif i >= arrays + BEFORE and plan[HALO] >= 0 and row[0] != NOWHERE:
            step = plan[HEADER + plan[HALO] * FIELDS + NEXT]
        for k in range(1, count):
            row[k] = row[0] + k * step


@inlined
def _find_lane(plan, index, lists, where):
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
    if plan[HALO] >= 0:
        start, step = lists[plan[HALO] * room + lane], plan[HEADER + plan[HALO] * FIELDS + STEP]
        last = start + (length - 1) * step
        own[BEFORE * room] = last if chunk == 0 else start + (begin - 1) * step
        own[AFTER * room] = start if chunk == parts - 1 else start + (begin + stop) * step
        if begins or stop == 0:
            own[BEFORE * room] = NOWHERE
        if ends or stop == 0:
            own[AFTER * room] = NOWHERE
    for i in range(arrays - 1):
        lists[i * room + lane] += begin * plan[HEADER + i * FIELDS + STEP]


# ---------------------------------------------------------------- where a block reads and writes


class Rows(NamedTuple):
    """Numbers of rows, see `Block`."""

    least: Any
    begin: Any
    end: Any
    written: Any
    past: Any


@called
def enter(plan, table, alike, room, count, lists, scratch, plane, memory, beside, sources, targets):
    """Say where a block reads and writes, and gather what is not read where it lies.

    Args:
        plan: pointer to the plan.
        table: pointer to the table of the lane function.
        alike: whether lanes have the same rows, and lie at the distance that the plan says.
        room: numbers of a list.
        count: lanes that are to be written; the lists repeat the last one.
        lists: pointer to the lists of the block's first lane.
        scratch: address of the planes.
        plane: numbers of a plane.
        memory: pointer to the planes.
        beside: pointer to the lanes' stops and halo, overwritten.
        sources: pointer to the places of inputs, overwritten.
        targets: the same of outputs.
    """
    lanes, inputs, rows = width(memory, ONE), plan[INPUTS], plan[ROWS]
    itemsize, some = VECTOR_BYTES // lanes, 1 if alike else lanes
    own = shifted(lists, (inputs + plan[OUTPUTS] + 1) * room)
    stops = _extremes(shifted(own, STOP * room), some)
    firsts = _extremes(shifted(own, FIRST * room), some)
    lasts = _extremes(shifted(own, LAST * room), some)
    begin, end = 0, stops[0]
    for i in range(inputs):
        reach = plan[HEADER + i * FIELDS + REACH]
        begin, end = firsts[1] if reach < 0 else begin, lasts[0] if reach > 0 else end
    near = False
    for i in range(inputs):
        array, starts = shifted(plan, HEADER + i * FIELDS), shifted(lists, i * room)
        sources[2 * i], sources[2 * i + 1] = scratch + i * plane * itemsize, lanes
        distance = array[NEXT] if alike else _distance(starts, count)
        inside = rows, rows
        if distance == 1 and count == lanes:
            near = True
            sources[2 * i] = array[PLACE] + starts[0] * itemsize
            sources[2 * i + 1] = array[STEP]
            inside = begin, max(begin, end)
        beside[0] = array[OTHER]
        target = shifted(memory, i * plane)
        first = firsts[1] if array[REACH] < 0 else 0
        last = lasts[1] if array[REACH] > 0 else stops[1]
        sizes = room, count, rows, first, last
        _gather(array, starts, own, alike, sizes, distance, inside, beside[0], target)
    if not near:  # planes at fixed distances are quicker to find
        end = begin
    lowest, highest = _extremes(shifted(own, WRITE * room), some)
    written, past = rows, plan[STREAM]
    for i in range(table[COUNT]):
        array = shifted(plan, HEADER + (inputs + i) * FIELDS)
        starts = shifted(lists, (inputs + i) * room)
        targets[2 * i] = scratch + table[SOURCES + i] * plane * itemsize
        targets[2 * i + 1] = lanes
        whole = count == lanes and lowest == highest and array[PLACE] != 0
        if whole and (array[NEXT] if alike else _distance(starts, lanes)) == 1:
            written = highest
            targets[2 * i] = array[PLACE] + starts[0] * itemsize
            targets[2 * i + 1] = array[STEP]
            if targets[2 * i] % VECTOR_BYTES != 0 or array[STEP] % lanes != 0:
                past = 0
        else:
            past = 0
    _enter_beside(plan, room, own, beside)
    return Rows(stops[0], begin, end, written, past)


@inlined
def _extremes(numbers, count):
    """The smallest and the largest of some numbers."""
    least: Any = numbers[0]
    most: Any = numbers[0]
    for i in range(1, count):
        least, most = min(least, numbers[i]), max(most, numbers[i])
    return least, most


@inlined
def _distance(starts, count):
    """Numbers from the beginning of one lane to that of the next; -1 if that varies."""
    distance: Any = starts[1] - starts[0] if count > 1 else 0
    for lane in range(2, count):
        if starts[lane] - starts[lane - 1] != distance:
            distance = -1
    return distance


@inlined
def _enter_beside(plan, room, own, beside):
    """Write the stops and the halo of a block's lanes."""
    lanes = width(beside, ONE)
    for lane in range(lanes):
        beside[lane] = own[STOP * room + lane]
    if plan[HALO] >= 0:
        source = pointer_to(plan[HEADER + plan[HALO] * FIELDS + PLACE], beside[0])
        for side in range(2):
            for lane in range(lanes):
                at = own[(BEFORE + side) * room + lane]
                beside[(1 + side) * lanes + lane] = source[at] if at != NOWHERE else 0


@inlined
def _gather(array, starts, own, alike, sizes, distance, inside, other, plane):
    """Fill a plane, but for the rows that are read in place, `inside`."""
    source, step, reach = pointer_to(array[PLACE], other), array[STEP], array[REACH]
    lanes, (room, count, rows, first, last), tiles = width(plane, ONE), sizes, False
    firsts, ends = shifted(own, FIRST * room), shifted(own, (LAST if reach > 0 else STOP) * room)
    if distance == 1:
        for k in range(first, min(inside[0], last)):
            _gather_row(shifted(source, starts[0] + k * step), count, shifted(plane, k * lanes))
        for k in range(max(first, inside[1]), last):
            _gather_row(shifted(source, starts[0] + k * step), count, shifted(plane, k * lanes))
    elif distance == 0 and count == lanes:
        for k in range(first, last):
            store(fill(source[starts[0] + k * step], ONE), plane, k * lanes)
    elif step == 1:
        tiles = True
        _gather_tiles(source, starts, (first, rows), ends, other, plane)
    else:
        for lane in range(lanes):
            for k in range(first, ends[lane]):
                plane[k * lanes + lane] = source[starts[lane] + k * step]
    if alike:
        if first > 0:
            store(fill(other, ONE), plane, 0)
        for k in range(last, last if tiles else rows):
            store(fill(other, ONE), plane, k * lanes)
        return
    for lane in range(lanes):
        if first > 0:
            plane[lane] = source[starts[lane]] if firsts[lane] == 0 else other
        for k in range(ends[lane], 0 if tiles else rows):
            plane[k * lanes + lane] = other


@inlined
def _gather_row(row, count, target):
    """Lanes side by side, the last one again for those that are not there."""
    store(load_first(row, 0, count, row[count - 1], ONE), target, 0)


@inlined
def _gather_tiles(source, starts, rows, ends, other, plane):
    """Rows of a lane side by side: squares of numbers, transposed; `other` beyond a lane's end."""
    lanes, (first, n) = width(plane, ONE), rows
    least = min(_extremes(ends, lanes)[0], n)
    for k in range(0, n, lanes):
        if k + lanes <= least and k >= first:
            load_tile(source, starts, k, shifted(plane, k * lanes), ONE)
        else:
            load_tile_part(source, starts, (k, first, ends), other, shifted(plane, k * lanes), ONE)


# ---------------------------------------------------------------- scatter


@called
def scatter(array, streamed, count, rows, starts, ends, plane, linear, inside):
    """Write a plane to an output."""
    target, step, lanes = pointer_to(array[PLACE], plane[0]), array[STEP], width(plane, ONE)
    if step == 1 and streamed:
        _stream_tiles(plane, target, starts, ends, rows, linear, inside)
    elif step == 1:
        _scatter_tiles(plane, target, starts, ends)
    elif _distance(starts, count) == 1 and _distance(ends, count) == 0:
        for k in range(ends[0]):
            numbers = load(plane, k * lanes, ONE)
            store_first(numbers, target, starts[0] + k * step, count)
    else:
        for lane in range(lanes):
            for k in range(ends[lane]):
                target[starts[lane] + k * step] = plane[k * lanes + lane]


@called
def _scatter_tiles(plane, target, starts, ends):
    """Rows of a lane side by side: transposed to where they belong."""
    lanes, least = width(plane, ONE), ends[0]
    for lane in range(lanes):
        least = min(least, ends[lane])
    whole = least // lanes * lanes
    for k in range(0, whole, lanes):
        store_tile(shifted(plane, k * lanes), target, starts, k, ONE)
    store_tile_first(shifted(plane, whole * lanes), target, starts, whole, least - whole, ONE)
    for lane in range(lanes):
        for k in range(least, ends[lane]):
            target[starts[lane] + k] = plane[k * lanes + lane]


@inlined
def _stream_tiles(plane, target, starts, ends, n, linear, inside):
    """The same past the caches: transposed to `linear`, then written in runs."""
    lanes, head, dense = width(plane, ONE), to_line(target, starts[0]), True
    for lane in range(lanes):
        dense &= starts[lane] == starts[0] + lane * ends[0] and ends[lane] == ends[0]
    for lane in range(lanes):
        inside[lane] = lane * (ends[0] if dense else n)
    linear = shifted(linear, (lanes - head if dense else 0))  # lines of one are lines of the other
    _scatter_tiles(plane, linear, inside, ends)
    if dense:
        _stream_run(linear, target, starts[0], ends[0] * lanes)
    else:
        for lane in range(lanes):
            _stream_run(shifted(linear, lane * n), target, starts[lane], ends[lane])


@called
def _stream_run(linear, target, position, count):
    """Write numbers from any position on past the caches."""
    lanes, head = width(linear, ONE), min(to_line(target, position), count)
    for i in range(head):
        target[position + i] = linear[i]
    end = head + (count - head) // lanes * lanes
    for i in range(head, end, lanes):
        stream(load(linear, i, ONE), target, position + i)
    for i in range(end, count):
        target[position + i] = linear[i]


# ---------------------------------------------------------------- the driver

#: Positions in the table of a lane function for a dtype: numbers of a vector; planes; numbers that
#: go into each lane and come out of it besides; addresses of the kernels that run panels and that
#: run a block; number of outputs that are written, and the plane of each.
LANES, PLANES, READS, WRITES, RUN, FUNCTION, COUNT, SOURCES = range(8)
#: What goes in and out of lanes besides: addresses, and numbers from one lane to the next.
Beside = tuple[int, int, int, int]
NOTHING: Beside = (0, 0, 0, 0)


class Lanes:
    """A lane function, which `run` calls on blocks; compiled for a dtype when it is first used.

    Args:
        function: (block, parameter) on vectors; overwrites rows of planes and returns zeros, NaN in
            the lanes that fail. Rows beyond a lane's stop are `Input.other`; what it leaves there
            is written too, unless systems are cut.
        planes: that it uses; the inputs are the first ones.
        outputs: plane of each output of the plan; () if nothing is to be written.
        reads: numbers that go into each lane besides, see `given`.
        writes: numbers that come out besides, see `report`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        planes: int,
        outputs: tuple[int, ...] = (),
        reads: int = 0,
        writes: int = 0,
    ) -> None:
        self._function = function
        self._tables: dict[Any, Array] = {}
        self._sizes, self._sources = (planes, reads, writes), outputs

    def table(self, dtype: Any) -> Array:
        """What `drive` takes."""
        found = self._tables.get(dtype)
        if found is None:
            addresses = _panels_address(dtype.name), _block_address(self._function, dtype.name)
            lanes, count = VECTOR_BYTES // dtype.itemsize, len(self._sources)
            numbers = lanes, *self._sizes, *addresses, count, *self._sources
            found = self._tables[dtype] = np.array(numbers, np.int64)
        return found


def run(
    lanes: Lanes,
    plan: Array,
    dtype: Any,
    parameter: float,
    work: int,
    num_threads: int | None,
    beside: Beside = NOTHING,
) -> bool:
    """Run a lane function over a plan; whether no lane failed.

    Args:
        lanes: the function.
        plan: of `make_plan`.
        dtype: of its arrays.
        parameter: a number that the function gets, in that dtype.
        work: numbers of a result; decides between one thread and several.
        num_threads: at most so many; None for all.
        beside: see `beside_of`.
    """
    table = lanes.table(dtype)
    return bool(launch(_DRIVERS, work, num_threads, table, plan, parameter, beside))


def beside_of(numbers: Array | None, found: Array | None) -> Beside:
    """Where numbers of each lane are read and written; the caller keeps both arrays alive.

    Args:
        numbers: float64 (lanes, reads), or None without any; rows of numbers side by side.
        found: the same (lanes, writes), overwritten.
    """
    places = [
        (0, 0) if array is None else (array.__array_interface__["data"][0], array.strides[0] // 8)
        for array in (numbers, found)
    ]
    return (*places[0], *places[1])


@functools.cache
def _block_address(function: Callable[..., Any], dtype: str) -> int:
    """Address of a lane function on one block, whose trace it adds to the one before `beside`."""

    def block(
        memory,
        plane,
        rows,
        least,
        beside,
        sources,
        targets,
        begin,
        end,
        written,
        past,
        plan,
        lists,
        room,
        first,
        per,
        turn,
        parameter,
    ):
        ahead = Ahead(plan, lists, room, first, per, turn)
        lanes = Block(
            *(memory, plane, rows, least, beside, sources, targets),
            *(begin, end, written, past, ahead),
        )
        trace = function(lanes, parameter)
        before = -width(memory, ONE)
        store(load(beside, before, ONE) + trace, beside, before)

    block.__name__ = function.__name__
    number = getattr(types, dtype)
    numbers, table = types.CPointer(number), types.CPointer(types.int64)
    counts = (types.int64,) * 3
    kinds = (numbers, *counts, numbers, table, table, types.int64, *counts)
    kinds_ahead = (table, table, types.int64, *counts)
    return c_function(block, (*kinds, *kinds_ahead, number), fastmath=EXACT)


@functools.cache
def _panels_address(dtype: str) -> int:
    """Address of `run_panels`, compiled for a dtype: all lane functions share it."""
    numbers, table = types.CPointer(getattr(types, dtype)), types.CPointer(types.int64)
    floats, count = types.CPointer(types.float64), types.int64
    places = (floats, count, floats, count, count, numbers, table, table)
    kinds = (table, table, count, count, types.float64, *places)
    return c_function(run_panels, kinds, fastmath=EXACT)


def run_panels(
    table,
    plan,
    start,
    stop,
    parameter,
    numbers,
    pitch,
    found,
    stride,
    scratch,
    memory,
    lists,
    failed,
):
    """Run a lane function on some panels; overwrites `failed` with whether a lane failed."""
    shape, inputs, rows = shape_of(plan, table), plan[INPUTS], plan[ROWS]
    alike = shape.wide and plan[HEADER + (inputs + plan[OUTPUTS]) * FIELDS + PLACE] == 0
    lanes, room, plane, arrays = width(memory, ONE), shape.room, shape.plane, inputs + plan[OUTPUTS]
    size = LISTS + arrays + 1
    trace = shifted(memory, table[PLANES] * plane)
    beside = shifted(trace, lanes)
    linear = shifted(beside, (3 + max(table[READS], table[WRITES])) * lanes)
    beside[0] = parameter
    own = beside[0]
    store(fill(own - own, ONE), trace, 0)
    here, there, inside = lists, shifted(lists, size * room), shifted(lists, 2 * size * room)
    sources = shifted(inside, lanes)
    targets = shifted(sources, 2 * inputs)
    turn, per = (0, room // lanes) if shape.wide else (1, (rows + lanes - 1) // lanes)
    if shape.wide and inputs * plane * (VECTOR_BYTES // lanes) > PANEL:
        per = 0
    present = find(plan, shape, lanes, start, here)
    for panel in range(start, stop):
        following = find(plan, shape, lanes, min(panel + 1, shape.panels - 1), there)
        for number in range((present + lanes - 1) // lanes):
            by = min(number * lanes, present - lanes) if shape.overlap else number * lanes
            count, lane = min(present - by, lanes), shifted(here, by)
            names = shifted(lane, (arrays + 1 + NUMBER) * room)
            writes = shifted(lane, (arrays + 1 + WRITE) * room)
            places = scratch, plane, memory, beside, sources, targets
            seen = enter(plan, table, alike, room, count, lane, *places)
            for i in range(table[READS]):
                for k in range(lanes):
                    beside[(3 + i) * lanes + k] = numbers[names[k] * pitch + i]
            block = memory, plane, rows, seen.least, beside, sources, targets
            span = seen.begin, seen.end, seen.written, seen.past
            ahead = plan, there if per > 0 else lane, room, number * rows, per, turn
            call_at(table[FUNCTION], (*block, *span, *ahead, own))
            for i in range(table[WRITES]):
                for k in range(count):
                    found[names[k] * stride + i] = beside[(3 + i) * lanes + k]
            for i in range(table[COUNT]):
                array = shifted(plan, HEADER + (inputs + i) * FIELDS)
                source = table[SOURCES + i] * plane
                if array[PLACE] != 0 and targets[2 * i] == scratch + source * (
                    VECTOR_BYTES // lanes
                ):
                    starts = shifted(lane, (inputs + i) * room)
                    streamed, source = plan[STREAM] != 0, shifted(memory, source)
                    scatter(array, streamed, count, rows, starts, writes, source, linear, inside)
        here, there, present = there, here, following
    fence()
    failed[0] = 0
    for lane in range(lanes):
        failed[0] |= np.isnan(trace[lane])


def drive(table, plan, parameter, beside):
    """Run a lane function over a plan, see `run`."""
    own, given = address(table), address(plan)
    shape, lanes = shape_of(given, own), table[LANES]
    panels = shape.panels
    parts = min(panels, PARTS)
    failed = np.zeros(parts, np.int64)
    size = (table[PLANES] + 1) * shape.plane + (4 + max(table[READS], table[WRITES]) + 3) * lanes
    size *= VECTOR_BYTES // lanes
    arrays = plan[INPUTS] + plan[OUTPUTS] + 1
    lists = 8 * (2 * (LISTS + arrays) * shape.room + lanes + 2 * arrays)
    for i in prange(parts):
        first, last = panels * i // parts, panels * (i + 1) // parts
        memory = np.empty(size + lists + VECTOR_BYTES, np.uint8)
        start = (memory.ctypes.data + VECTOR_BYTES - 1) & -VECTOR_BYTES
        scratch = start, start, start + size, failed.ctypes.data + 8 * i
        what = table.ctypes.data, plan.ctypes.data, first, last, parameter
        call_at(table[RUN], (*what, *beside, *scratch))
        memory[0] = 0  # keeps it alive until now: an address does not
    return not failed.any()


_DRIVERS = Kernels(
    kernel(drive, fastmath=EXACT), kernel(drive, parallel=True, fastmath=EXACT), GRAIN
)
