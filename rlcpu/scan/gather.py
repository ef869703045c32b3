"""Rows of lanes from arrays of any strides, and back: where a block reads and writes.

Unknowns side by side in memory are transposed in registers; a number that all lanes share is
repeated; what is neither that nor lanes side by side is moved number by number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlcpu.kernels.memory import (
    load,
    load_first,
    load_tile,
    load_tile_part,
    pointer_to,
    shifted,
    store,
    store_first,
    store_tile,
    store_tile_first,
    stream,
    to_line,
)
from rlcpu.kernels.vectors import VECTOR_BYTES, fill, width
from rlcpu.scan.plans import (
    BEFORE,
    COUNT,
    FIELDS,
    FIRST,
    HALO,
    HEADER,
    INPUTS,
    LAST,
    NEXT,
    NOWHERE,
    OTHER,
    OUTPUTS,
    PLACE,
    REACH,
    ROWS,
    SOURCES,
    STEP,
    STOP,
    STREAM,
    WRITE,
    called,
    inlined,
)

ONE = 1  # register of a vector

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
