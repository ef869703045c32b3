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
from rlcpu.kernels.vectors import VECTOR_BYTES, width
from rlcpu.scan.device import for_cores
from rlcpu.scan.gather import ONE, distance_of, extremes, gather, scatter
from rlcpu.scan.layout import address_of
from rlcpu.scan.plans import (
    LISTS,
    PANEL,
    Array,
    Table,
    called,
    find_lanes,
    inlined,
    lists_at,
    place_at,
    plan_at,
    shape_of,
    table_at,
)

GRAIN = 2**14  # numbers from which a second core is worth waking
PARTS = 64  # that cores take in turn
SOON = 2  # rows between one that is asked for and one that is read, of long lanes

# ---------------------------------------------------------------- blocks


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
    target: Any  # the same of the output
    rows: Any
    room: Any
    line: Any  # line that is prefetched with row 0
    per: Any  # 0 for later rows of the same lanes
    turn: Any  # 1 if lines lie along lanes, each of which has a start; 0 if along rows
    plane: Any  # numbers of a plane
    least: Any  # rows that all lanes have
    begin: Any  # first row of inputs that is where `sources` says; other rows are in scratch
    end: Any  # last one, exclusive
    written: Any  # rows of the output
    past: Any  # whether to write past the caches


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
def write(value, block, k):
    """Write row k of the output."""
    if k < block.written:
        target = pointer_to(block.target[0], block.beside[0])
        if block.past != 0:
            stream(value, target, k * block.target[1])
        else:
            store(value, target, k * block.target[1])


@inlined
def stops(block):
    """Return the number of rows of each lane, as a vector."""
    return load(block.beside, 0, ONE)


@inlined
def given(block, i):
    """Return number i of the further numbers of each lane."""
    return load(block.beside, (1 + i) * width(block.beside, ONE), ONE)


@inlined
def shared(block):
    """Pointer to the array that all lanes read."""
    return pointer_to(plan_at(block.plan).shared, block.beside[0])


@inlined
def report(value, block, i):
    """Set number i of those that come out of each lane besides."""
    store(value, block.beside, (1 + i) * width(block.beside, ONE))


@inlined
def prefetch_row(block, inputs, number, later):
    """Prefetch a row of so many inputs; called once for each row that is read.

    Args:
        block: of which rows are read.
        inputs: number of them.
        number: of the call.
        later: row that is read soon.
    """
    per = block.per
    if plan_at(block.plan).ahead == 0:
        return
    lane, minor, lanes = 0, 0, width(block.memory, ONE)
    if per > 0:
        line = block.line + number
        later = np.int64(np.uint32(line) // np.uint32(per))
        lane, minor = later * block.turn, (line - later * per) * lanes
        later -= lane
    for i in range(inputs):
        place = place_at(block.plan, i)
        source = pointer_to(place.address, block.beside[0])
        at = block.lists[i * block.room + lane] + later * place.step + minor
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
    output: int = -1  # plane of the plan's output; -1 if nothing is written
    reads: int = 0  # numbers that go into each lane besides, see `given`
    writes: int = 0  # numbers that come out besides, see `report`


@functools.cache
def table_of(lanes: Lanes, dtype: Any) -> Array:
    """Return the table that `drive` reads of a lane function, compiled for a dtype."""
    function, planes, output, reads, writes = lanes
    addresses = _panels_address(dtype.name), _block_address(function, dtype.name)
    sizes = VECTOR_BYTES // dtype.itemsize, planes, reads, writes
    return np.array(Table(*sizes, *addresses, output), np.int64)


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

    def run_block(
        memory, beside, plan, lists, sources, room, line, per, turn, plane, region, parameter
    ):
        target, rows = shifted(sources, 2 * plan_at(plan).inputs), plan_at(plan).rows
        least, begin, end, written, past = region[0], region[1], region[2], region[3], region[4]
        sizes = rows, room, line, per, turn, plane, least, begin, end, written, past
        block = Block(memory, beside, plan, lists, sources, target, *sizes)
        trace = function(block, parameter)
        before = -width(beside, ONE)
        store(load(beside, before, ONE) + trace, beside, before)

    run_block.__name__ = function.__name__
    number, count = getattr(types, dtype), types.int64
    numbers, integers = types.CPointer(number), types.CPointer(count)
    pointers = numbers, numbers, integers, integers, integers
    kinds = (*pointers, count, count, count, count, count, integers, number)
    return c_function(run_block, kinds, fastmath=EXACT)


@functools.cache
def _panels_address(dtype: str) -> int:
    """Address of `run_panels`, compiled for a dtype: all lane functions share it."""
    integers, count = types.CPointer(types.int64), types.int64
    floats, numbers = types.CPointer(types.float64), types.CPointer(getattr(types, dtype))
    scratch = (numbers, count, count, integers)
    kinds = (integers, count, count, count, types.float64, floats, floats, *scratch)
    return c_function(run_panels, kinds, fastmath=EXACT)


@called
def enter_block(
    plan_pointer, output, room, count, lists, memory, memory_at, plane, sources, region
):
    """Say where a block reads and writes, and gather inputs that are not read where they lie.

    Args:
        plan_pointer: pointer to the plan.
        output: plane of the output, or -1.
        room: numbers of a list.
        count: lanes that are to be written; the lists repeat the last one.
        lists: pointer to the lists of the block's first lane.
        memory: pointer to the planes.
        memory_at: its address.
        plane: numbers of a plane.
        sources: pointer to the places of inputs and of the output, overwritten: see `Block`.
        region: pointer to the block's least, begin, end, written and past, overwritten.
    """
    plan, lanes = plan_at(plan_pointer), width(memory, ONE)
    inputs, rows, itemsize = plan.inputs, plan.rows, VECTOR_BYTES // lanes
    each = lists_at(lists, inputs + 2, room)
    stops, firsts = extremes(each.stop, lanes), extremes(each.first, lanes)
    lasts, begin, end = extremes(each.last, lanes), 0, stops[0]
    for i in range(inputs):
        reach = place_at(plan_pointer, i).reach
        begin, end = firsts[1] if reach < 0 else begin, lasts[0] if reach > 0 else end
    near = False
    for i in range(inputs):
        place, starts = place_at(plan_pointer, i), shifted(lists, i * room)
        sources[2 * i], sources[2 * i + 1] = memory_at + i * plane * itemsize, lanes
        distance, inside = distance_of(starts, count), (rows, rows)
        if distance == 1 and count == lanes:
            near = True
            sources[2 * i] = place.address + starts[0] * itemsize
            sources[2 * i + 1] = place.step
            inside = begin, max(begin, end)
        first = firsts[1] if place.reach < 0 else 0
        last = lasts[1] if place.reach > 0 else stops[1]
        sizes = count, rows, first, last
        gather(place, starts, each, sizes, distance, inside, shifted(memory, i * plane))
    if not near:  # planes at fixed distances are quicker to find
        end = begin
    written, past, target = 0, 0, shifted(sources, 2 * inputs)
    if output >= 0:
        place, starts = place_at(plan_pointer, inputs), shifted(lists, inputs * room)
        lowest, highest = extremes(each.write, lanes)
        written, target[0], target[1] = rows, memory_at + output * plane * itemsize, lanes
        if count == lanes and lowest == highest and distance_of(starts, lanes) == 1:
            written, target[1] = highest, place.step
            target[0] = place.address + starts[0] * itemsize
            if target[0] % VECTOR_BYTES == 0 and place.step % lanes == 0:
                past = plan.stream
    region[0], region[1], region[2], region[3], region[4] = stops[0], begin, end, written, past


REGION = 5  # numbers of a region


def run_panels(
    table_pointer,
    plan_address,
    start,
    stop,
    parameter,
    given,
    found,
    memory,
    memory_at,
    lists_address,
    failed,
):
    """Run a lane function on some panels; overwrites `failed` with whether a lane failed.

    Args:
        table_pointer: pointer to the lane function's table.
        plan_address: address of the plan.
        start: first panel.
        stop: last one, exclusive.
        parameter: of the lane function.
        given: pointer to numbers that go into lanes besides.
        found: pointer to numbers that come out.
        memory: pointer to scratch, see `drive`.
        memory_at: its address.
        lists_address: address of scratch of whole numbers.
        failed: pointer to a number.
    """
    pointer, here = pointer_to(plan_address, np.int64(0)), pointer_to(lists_address, np.int64(0))
    plan, table, shape = plan_at(pointer), table_at(table_pointer), shape_of(pointer, table_pointer)
    lanes, room, plane, inputs = width(memory, ONE), shape.room, shape.plane, plan.inputs
    arrays, rows, itemsize = inputs + 2, plan.rows, VECTOR_BYTES // lanes
    reads, writes, output = table.reads, table.writes, table.output
    trace = shifted(memory, table.planes * plane)
    beside = shifted(trace, lanes)
    beside_at = memory_at + (table.planes * plane + lanes) * itemsize
    linear = shifted(beside, (1 + max(reads, writes)) * lanes)
    memory[0] = parameter
    number = memory[0]
    for lane in range(lanes):
        trace[lane] = 0.0
    size = (LISTS + arrays) * room
    there, inside = shifted(here, size), shifted(here, 2 * size)
    here_at, there_at = lists_address, lists_address + 8 * size
    region = shifted(inside, lanes)
    sources = shifted(region, REGION)
    region_at = lists_address + 8 * (2 * size + lanes)
    turn, per = 1, (rows + lanes - 1) // lanes
    if shape.wide:
        turn, per = 0, room // lanes if inputs * plane * itemsize <= PANEL else 0
    present = find_lanes(pointer, shape, lanes, start, here)
    for panel in range(start, stop):
        following = find_lanes(pointer, shape, lanes, min(panel + 1, shape.panels - 1), there)
        for block in range((present + lanes - 1) // lanes):
            by = min(block * lanes, present - lanes) if shape.overlap else block * lanes
            count, lane = min(present - by, lanes), shifted(here, by)
            each = lists_at(lane, arrays, room)
            place = memory, memory_at, plane
            enter_block(pointer, output, room, count, lane, *place, sources, region)
            for k in range(lanes):
                beside[k] = each.stop[k]
                for i in range(reads):
                    beside[(1 + i) * lanes + k] = given[each.number[k] * reads + i]
            ahead = there_at if per > 0 else here_at + 8 * by
            addresses = memory_at, beside_at, plan_address, ahead, region_at + 8 * REGION
            line = block * rows
            sizes = room, line, per, turn, plane, region_at
            call_at(table.function, (*addresses, *sizes, number))
            for i in range(writes):
                for k in range(count):
                    found[each.number[k] * writes + i] = beside[(1 + i) * lanes + k]
            if output >= 0 and sources[2 * inputs] == memory_at + output * plane * itemsize:
                to, starts = place_at(pointer, inputs), shifted(lane, inputs * room)
                source, past = shifted(memory, output * plane), plan.stream != 0
                where = count, rows, starts, each.write, source, linear, inside
                scatter(to.address, to.step, past, *where)
        here, there, here_at, there_at = there, here, there_at, here_at
        present = following
    fence()
    failed[0] = 0
    for lane in range(lanes):
        failed[0] |= np.isnan(trace[lane])


def drive(table, plan, parameter, beside):
    """Run a lane function over a plan, see `run`."""
    named, shape = table_at(address(table)), shape_of(address(plan), address(table))
    panels, lanes, run_at = shape.panels, named.lanes, named.run
    parts = min(panels, PARTS)
    failed = np.zeros(parts, np.int64)
    size = (named.planes + 1) * shape.plane + (6 + max(named.reads, named.writes)) * lanes
    size *= VECTOR_BYTES // lanes
    arrays = plan_at(address(plan)).inputs + 2
    lists = 8 * (2 * (LISTS + arrays) * shape.room + lanes + REGION + 2 * arrays)
    for i in prange(parts):
        first, last = panels * i // parts, panels * (i + 1) // parts
        memory = np.empty(size + lists + VECTOR_BYTES, np.uint8)
        start = (memory.ctypes.data + VECTOR_BYTES - 1) & -VECTOR_BYTES
        scratch = start, start, start + size, failed.ctypes.data + 8 * i
        job = table.ctypes.data, plan.ctypes.data, first, last, parameter
        call_at(run_at, (*job, *beside, *scratch))
        memory[0] = 0  # keeps it alive until now: an address does not
    return not failed.any()


_DRIVERS = for_cores(drive, GRAIN, fastmath=EXACT)
