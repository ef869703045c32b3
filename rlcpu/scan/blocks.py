"""One driver for functions along an axis of many arrays, whatever their layout: blocks of lanes.

A lane is one system along the axis, or one chunk of a long one. A block has as many lanes as a
register has numbers. Lanes side by side in memory are read and written where they lie. Any other
input is gathered into a plane of scratch, a row for each step, a number for each lane, and outputs
are scattered from there, see `gather`. A lane function works on rows, as vectors, in plain Python.
Where arrays lie, and which of their numbers make a lane, is said by a plan, see `plans`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from rlcpu.kernels.compile import EXACT, c_function
from rlcpu.kernels.memory import (
    address,
    call_at,
    fence,
    load,
    pointer_to,
    prefetch,
    prefetch_far,
    shifted,
    store,
    stream,
)
from rlcpu.kernels.threads import launch
from rlcpu.kernels.vectors import VECTOR_BYTES, fill, width
from rlcpu.scan.device import for_cores
from rlcpu.scan.gather import ONE, distance_of, extremes, gather, scatter
from rlcpu.scan.layout import address_of
from rlcpu.scan.plans import (
    AHEAD,
    COUNT,
    FIELDS,
    FIRST,
    FUNCTION,
    HEADER,
    INPUTS,
    LANES,
    LAST,
    LISTS,
    NUMBER,
    OUTPUTS,
    PANEL,
    PLACE,
    PLANES,
    REACH,
    READS,
    ROWS,
    RUN,
    SHARED,
    SOURCES,
    STEP,
    STOP,
    STREAM,
    WRITE,
    WRITES,
    Array,
    called,
    find,
    inlined,
    shape_of,
)

GRAIN = 2**14  # numbers from which a second core is worth waking
PARTS = 64  # that cores take in turn
SOON = 2  # rows between one that is asked for and one that is read, of long lanes

#: Positions in a block's frame: addresses of its planes, of what goes in and out besides, of the
#: plan and of the lists that `ask` looks at; the other fields of `Block`. After them: the
#: address of row 0 of each input and each output, and the stride over rows.
MEMORY, BESIDE, PLAN, LISTS_AHEAD, ROOM, LINE, PER, TURN = range(8)
PLANE, LEAST, BEGIN, END, WRITTEN, PAST, FRAME = range(8, 15)

# ---------------------------------------------------------------- what lane functions see


class Block(NamedTuple):
    """As many lanes as a vector has numbers, and scratch of their own.

    Inputs and outputs whose lanes lie side by side are read and written where they are, but for
    the first and last rows, which some lanes lack. All others have a plane of scratch.

    With each row lines are prefetched: lines of the next panel, or later rows of long lanes. Line
    q of a panel is number q % per of lane (or row, see `turn`) q // per: lines are asked for in the
    order of memory, which is what makes this pay.
    """

    memory: Any  # pointer to the planes, the inputs' first; rows of lanes
    beside: Any  # pointer to the lanes' stops, and what goes in and out besides
    plan: Any  # pointer
    lists: Any  # pointer to the lists, of `room` numbers each, of the lanes to prefetch
    sources: Any  # pointer to the address of row 0 of each input, and the stride over rows
    targets: Any  # the same of each output
    rows: Any
    room: Any
    line: Any  # line that is prefetched with row 0
    per: Any  # 0 for later rows of the same lanes
    turn: Any  # 1 if lines lie along lanes, each of which has a start; 0 if along rows
    plane: Any  # numbers of a plane
    least: Any  # rows that all lanes have
    begin: Any  # first row of inputs that is where `sources` says; other rows are in scratch
    end: Any  # last one, exclusive
    written: Any  # rows of outputs
    past: Any  # whether to write past the caches


@inlined
def _block_of(frame, like):
    """The block that a frame describes."""
    plan = pointer_to(frame[PLAN], np.int64(0))
    sources = shifted(frame, FRAME)
    return Block(
        pointer_to(frame[MEMORY], like),
        pointer_to(frame[BESIDE], like),
        plan,
        pointer_to(frame[LISTS_AHEAD], np.int64(0)),
        sources,
        shifted(sources, 2 * plan[INPUTS]),
        plan[ROWS],
        *(frame[ROOM], frame[LINE], frame[PER], frame[TURN], frame[PLANE], frame[LEAST]),
        *(frame[BEGIN], frame[END], frame[WRITTEN], frame[PAST]),
    )


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
def stops(block):
    """Number of rows of each lane, as a vector."""
    return load(block.beside, 0, ONE)


@inlined
def given(block, i):
    """Number i of those that go into each lane besides."""
    return load(block.beside, (1 + i) * width(block.beside, ONE), ONE)


@inlined
def shared(block):
    """Pointer to the array that all lanes read."""
    return pointer_to(block.plan[SHARED], block.beside[0])


@inlined
def report(value, block, i):
    """Set number i of those that come out of each lane besides."""
    store(value, block.beside, (1 + i) * width(block.beside, ONE))


@inlined
def ask(block, inputs, number, later):
    """Prefetch so many inputs: call it once for each row, by number, with one that is read soon."""
    plan, per = block.plan, block.per
    if plan[AHEAD] == 0:
        return
    lane, minor, lanes = 0, 0, width(block.memory, ONE)
    if per > 0:
        line = block.line + number
        later = np.int64(np.uint32(line) // np.uint32(per))
        lane, minor = later * block.turn, (line - later * per) * lanes
        later -= lane
    for i in range(inputs):
        array = shifted(plan, HEADER + i * FIELDS)
        source = pointer_to(array[PLACE], block.beside[0])
        at = block.lists[i * block.room + lane] + later * array[STEP] + minor
        if block.turn != 0:  # the first cache holds this panel and little more
            prefetch_far(source, at)
        else:
            prefetch(source, at)
            if per == 0:  # lanes of two lines
                prefetch(source, at + lanes - 1)


# ---------------------------------------------------------------- the driver


class Lanes(NamedTuple):
    """A lane function, which `run` calls on blocks."""

    #: (block, parameter) on vectors; overwrites rows of planes and returns zeros, NaN in the lanes
    #: that fail. Rows beyond a lane's stop are `Input.other`; what it leaves there is written too,
    #: unless systems are cut.
    function: Callable[..., Any]
    planes: int  # that it uses; the inputs are the first ones
    outputs: tuple[int, ...] = ()  # plane of each output of the plan; () if nothing is written
    reads: int = 0  # numbers that go into each lane besides, see `given`
    writes: int = 0  # numbers that come out besides, see `report`


@functools.cache
def table_of(lanes: Lanes, dtype: Any) -> Array:
    """What `drive` takes of a lane function, compiled for a dtype."""
    function, planes, outputs, reads, writes = lanes
    addresses = _panels_address(dtype.name), _block_address(function, dtype.name)
    sizes = VECTOR_BYTES // dtype.itemsize, planes, reads, writes
    return np.array([*sizes, *addresses, len(outputs), *outputs], np.int64)


def run(
    lanes: Lanes,
    plan: Array,
    dtype: Any,
    parameter: float,
    work: int,
    num_threads: int | None,
    given: Array | None = None,
    found: Array | None = None,
) -> bool:
    """Run a lane function over a plan; whether no lane failed.

    Args:
        lanes: the function.
        plan: of `make_plan`.
        dtype: of its arrays.
        parameter: a number that the function gets, in that dtype.
        work: numbers of a result; decides between one thread and several.
        num_threads: at most so many; None for all.
        given: float64 (lanes, reads) contiguous, see `given`; None without any.
        found: float64 (lanes, writes) contiguous, overwritten, see `report`.
    """
    table = table_of(lanes, dtype)
    beside = 0 if given is None else address_of(given), 0 if found is None else address_of(found)
    return bool(launch(_DRIVERS, work, num_threads, table, plan, parameter, beside))


@functools.cache
def _block_address(function: Callable[..., Any], dtype: str) -> int:
    """Address of a lane function on one block, whose trace it adds to the one before `beside`."""

    def block(frame, parameter):
        lanes = _block_of(frame, parameter)
        trace = function(lanes, parameter)
        before = -width(lanes.beside, ONE)
        store(load(lanes.beside, before, ONE) + trace, lanes.beside, before)

    block.__name__ = function.__name__
    return c_function(block, (types.CPointer(types.int64), getattr(types, dtype)), fastmath=EXACT)


@functools.cache
def _panels_address(dtype: str) -> int:
    """Address of `run_panels`, compiled for a dtype: all lane functions share it."""
    integers, count = types.CPointer(types.int64), types.int64
    floats, numbers = types.CPointer(types.float64), types.CPointer(getattr(types, dtype))
    scratch = (numbers, count, count, integers)
    kinds = (integers, count, count, count, types.float64, floats, floats, *scratch)
    return c_function(run_panels, kinds, fastmath=EXACT)


@called
def enter(plan, table, room, count, lists, memory, frame):
    """Say where a block reads and writes, and gather what is not read where it lies.

    Args:
        plan: pointer to the plan.
        table: pointer to the table of the lane function.
        room: numbers of a list.
        count: lanes that are to be written; the lists repeat the last one.
        lists: pointer to the lists of the block's first lane.
        memory: pointer to the planes.
        frame: pointer to what the lane function is told, of which the fields from `LEAST` on and
            the places of inputs and outputs are overwritten.
    """
    lanes, inputs, rows, plane = width(memory, ONE), plan[INPUTS], plan[ROWS], frame[PLANE]
    itemsize, sources = VECTOR_BYTES // lanes, shifted(frame, FRAME)
    own = shifted(lists, (inputs + plan[OUTPUTS] + 1) * room)
    stops = extremes(shifted(own, STOP * room), lanes)
    firsts = extremes(shifted(own, FIRST * room), lanes)
    lasts = extremes(shifted(own, LAST * room), lanes)
    begin, end = 0, stops[0]
    for i in range(inputs):
        reach = plan[HEADER + i * FIELDS + REACH]
        begin, end = firsts[1] if reach < 0 else begin, lasts[0] if reach > 0 else end
    near = False
    for i in range(inputs):
        array, starts = shifted(plan, HEADER + i * FIELDS), shifted(lists, i * room)
        sources[2 * i], sources[2 * i + 1] = frame[MEMORY] + i * plane * itemsize, lanes
        distance, inside = distance_of(starts, count), (rows, rows)
        if distance == 1 and count == lanes:
            near = True
            sources[2 * i] = array[PLACE] + starts[0] * itemsize
            sources[2 * i + 1] = array[STEP]
            inside = begin, max(begin, end)
        target = shifted(memory, i * plane)
        first = firsts[1] if array[REACH] < 0 else 0
        last = lasts[1] if array[REACH] > 0 else stops[1]
        gather(array, starts, own, (room, count, rows, first, last), distance, inside, target)
    if not near:  # planes at fixed distances are quicker to find
        end = begin
    lowest, highest = extremes(shifted(own, WRITE * room), lanes)
    written, past = rows if table[COUNT] > 0 else 0, plan[STREAM]
    for i in range(table[COUNT]):
        array, k = shifted(plan, HEADER + (inputs + i) * FIELDS), inputs + i
        starts = shifted(lists, k * room)
        sources[2 * k] = frame[MEMORY] + table[SOURCES + i] * plane * itemsize
        sources[2 * k + 1] = lanes
        if count == lanes and lowest == highest and distance_of(starts, lanes) == 1:
            written = highest
            sources[2 * k] = array[PLACE] + starts[0] * itemsize
            sources[2 * k + 1] = array[STEP]
            if sources[2 * k] % VECTOR_BYTES != 0 or array[STEP] % lanes != 0:
                past = 0
        else:
            past = 0
    frame[LEAST], frame[BEGIN], frame[END] = stops[0], begin, end
    frame[WRITTEN], frame[PAST] = written, past


def run_panels(
    table, plan_at, start, stop, parameter, given, found, memory, memory_at, lists_at, failed
):
    """Run a lane function on some panels; overwrites `failed` with whether a lane failed.

    Args:
        table: pointer to the lane function's table.
        plan_at: address of the plan.
        start: first panel.
        stop: last one, exclusive.
        parameter: of the lane function.
        given: pointer to what goes into lanes besides.
        found: pointer to what comes out.
        memory: pointer to scratch, see `drive`.
        memory_at: its address.
        lists_at: address of scratch of whole numbers.
        failed: pointer to a number.
    """
    plan, here = pointer_to(plan_at, np.int64(0)), pointer_to(lists_at, np.int64(0))
    shape, inputs, rows = shape_of(plan, table), plan[INPUTS], plan[ROWS]
    lanes, room, plane, arrays = width(memory, ONE), shape.room, shape.plane, inputs + plan[OUTPUTS]
    itemsize, reads, writes = VECTOR_BYTES // lanes, table[READS], table[WRITES]
    trace = shifted(memory, table[PLANES] * plane)
    beside = shifted(trace, lanes)
    linear = shifted(beside, (1 + max(reads, writes)) * lanes)
    trace[0] = parameter
    own = trace[0]
    store(fill(own - own, ONE), trace, 0)
    size = (LISTS + arrays + 1) * room
    there, inside, there_at = shifted(here, size), shifted(here, 2 * size), lists_at + 8 * size
    here_at, frame = lists_at, shifted(inside, lanes)
    targets = shifted(frame, FRAME + 2 * inputs)
    frame[MEMORY], frame[PLAN] = memory_at, plan_at
    frame[BESIDE] = memory_at + (table[PLANES] * plane + lanes) * itemsize
    frame[ROOM], frame[PLANE] = room, plane
    frame[TURN], frame[PER] = 1, (rows + lanes - 1) // lanes
    if shape.wide:
        ahead = inputs * plane * itemsize <= PANEL
        frame[TURN], frame[PER] = 0, room // lanes if ahead else 0
    present = find(plan, shape, lanes, start, here)
    for panel in range(start, stop):
        following = find(plan, shape, lanes, min(panel + 1, shape.panels - 1), there)
        for number in range((present + lanes - 1) // lanes):
            by = min(number * lanes, present - lanes) if shape.overlap else number * lanes
            count, lane = min(present - by, lanes), shifted(here, by)
            names = shifted(lane, (arrays + 1 + NUMBER) * room)
            stops = shifted(lane, (arrays + 1 + STOP) * room)
            enter(plan, table, room, count, lane, memory, frame)
            for k in range(lanes):
                beside[k] = stops[k]
                for i in range(reads):
                    beside[(1 + i) * lanes + k] = given[names[k] * reads + i]
            frame[LISTS_AHEAD] = there_at if frame[PER] > 0 else here_at + 8 * by
            frame[LINE] = number * rows
            call_at(table[FUNCTION], (frame, own))
            for i in range(writes):
                for k in range(count):
                    found[names[k] * writes + i] = beside[(1 + i) * lanes + k]
            for i in range(table[COUNT]):
                source = table[SOURCES + i] * plane
                if targets[2 * i] == memory_at + source * itemsize:
                    array = shifted(plan, HEADER + (inputs + i) * FIELDS)
                    starts = shifted(lane, (inputs + i) * room)
                    ends = shifted(lane, (arrays + 1 + WRITE) * room)
                    past, source = plan[STREAM] != 0, shifted(memory, source)
                    scatter(array, past, count, rows, starts, ends, source, linear, inside)
        here, there, here_at, there_at = there, here, there_at, here_at
        present = following
    fence()
    failed[0] = 0
    for lane in range(lanes):
        failed[0] |= np.isnan(trace[lane])


def drive(table, plan, parameter, beside):
    """Run a lane function over a plan, see `run`."""
    shape, lanes = shape_of(address(plan), address(table)), table[LANES]
    panels = shape.panels
    parts = min(panels, PARTS)
    failed = np.zeros(parts, np.int64)
    size = (table[PLANES] + 1) * shape.plane + (3 + max(table[READS], table[WRITES]) + 3) * lanes
    size *= VECTOR_BYTES // lanes
    arrays = plan[INPUTS] + plan[OUTPUTS] + 1
    lists = 8 * (2 * (LISTS + arrays) * shape.room + lanes + FRAME + 2 * arrays)
    for i in prange(parts):
        first, last = panels * i // parts, panels * (i + 1) // parts
        memory = np.empty(size + lists + VECTOR_BYTES, np.uint8)
        start = (memory.ctypes.data + VECTOR_BYTES - 1) & -VECTOR_BYTES
        scratch = start, start, start + size, failed.ctypes.data + 8 * i
        what = table.ctypes.data, plan.ctypes.data, first, last, parameter
        call_at(table[RUN], (*what, *beside, *scratch))
        memory[0] = 0  # keeps it alive until now: an address does not
    return not failed.any()


_DRIVERS = for_cores(drive, GRAIN, fastmath=EXACT)
