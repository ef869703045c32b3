"""Rows of lanes from arrays of any strides to scratch, and back.

Unknowns side by side in memory are transposed in registers; a number that all lanes share is
repeated; what is neither that nor lanes side by side is moved number by number.
"""

from __future__ import annotations

from typing import Any

from rlcpu.kernels.memory import (
    load,
    load_tile,
    pointer_to,
    shifted,
    store,
    store_tile,
    stream,
    to_line,
)
from rlcpu.kernels.vectors import fill, width
from rlcpu.scan.plans import called, inlined

ONE = 1  # register of a vector


@inlined
def extremes(numbers, count):
    """Return the smallest and the largest of some numbers."""
    least: Any = numbers[0]
    most: Any = numbers[0]
    for i in range(1, count):
        least, most = min(least, numbers[i]), max(most, numbers[i])
    return least, most


@inlined
def distance_of(starts, count):
    """Return the distance, in numbers, between the beginnings of lanes; -1 if it varies."""
    distance: Any = starts[1] - starts[0] if count > 1 else 0
    for lane in range(2, count):
        if starts[lane] - starts[lane - 1] != distance:
            distance = -1
    return distance


@inlined
def gather(place, starts, lists, sizes, distance, inside, plane):
    """Fill a plane, but for the rows that are read in place, `inside`."""
    plane[0] = place.other
    other, step = plane[0], place.step
    source = pointer_to(place.address, other)
    lanes, (count, rows, first, last), tiles = width(plane, ONE), sizes, False
    firsts, ends = lists.first, lists.last if place.reach > 0 else lists.stop
    if distance == 1:
        for begin, end in ((first, min(inside[0], last)), (max(first, inside[1]), last)):
            for k in range(begin, end):  # lanes that are not there repeat the last one
                row = shifted(source, starts[0] + k * step)
                store(load(row, 0, ONE, count, row[count - 1]), plane, k * lanes)
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
    for lane in range(lanes):
        if first > 0:
            plane[lane] = source[starts[lane]] if firsts[lane] == 0 else other
        for k in range(ends[lane], 0 if tiles else rows):
            plane[k * lanes + lane] = other


@inlined
def _gather_tiles(source, starts, rows, ends, other, plane):
    """Gather rows side by side: squares of numbers, transposed; `other` beyond a lane's end."""
    lanes, (first, n) = width(plane, ONE), rows
    least = min(extremes(ends, lanes)[0], n)
    for k in range(0, n, lanes):
        if k + lanes <= least and k >= first:
            load_tile(source, starts, k, shifted(plane, k * lanes), ONE)
        else:
            tile = shifted(plane, k * lanes)
            load_tile(source, starts, k, tile, ONE, (first, ends), other)


# ---------------------------------------------------------------- scatter


@called
def scatter(address, step, streamed, count, rows, starts, ends, plane, linear, inside):
    """Write a plane to the output at an address."""
    target, lanes = pointer_to(address, plane[0]), width(plane, ONE)
    if step == 1 and streamed:
        _stream_tiles(plane, target, starts, ends, rows, linear, inside)
    elif step == 1:
        _scatter_tiles(plane, target, starts, ends)
    elif distance_of(starts, count) == 1 and distance_of(ends, count) == 0:
        for k in range(ends[0]):
            numbers = load(plane, k * lanes, ONE)
            store(numbers, target, starts[0] + k * step, count)
    else:
        for lane in range(lanes):
            for k in range(ends[lane]):
                target[starts[lane] + k * step] = plane[k * lanes + lane]


@called
def _scatter_tiles(plane, target, starts, ends):
    """Scatter rows that lie side by side, transposed, to their places."""
    lanes = width(plane, ONE)
    least = extremes(ends, lanes)[0]
    whole = least // lanes * lanes
    for k in range(0, whole, lanes):
        store_tile(shifted(plane, k * lanes), target, starts, k, ONE)
    store_tile(shifted(plane, whole * lanes), target, starts, whole, ONE, least - whole)
    for lane in range(lanes):
        for k in range(least, ends[lane]):
            target[starts[lane] + k] = plane[k * lanes + lane]


@inlined
def _stream_tiles(plane, target, starts, ends, n, linear, inside):
    """Scatter rows past the caches: transposed to `linear`, then written in runs."""
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
