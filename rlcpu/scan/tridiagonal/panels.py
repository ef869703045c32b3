"""Panels of lanes: which numbers of arrays make a lane, and how they get to blocks and back.

Arrays are (outer, n, inner), in one of two layouts, into which `scan/layout.py` copies others:

* rows, where `inner` is 1: the numbers of a system are side by side. Squares of them are transposed
  in registers, into planes of scratch with a row for each equation and a number for each lane, and
  results go back in the same way.
* columns: systems are side by side, and a row of a block is a vector in memory, read and written
  there. First and last equations, which lack a neighbour, and blocks that are not full go through
  planes too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.kernels.calls import make_view, view
from rlcpu.kernels.compile import EXACT, inline, outline
from rlcpu.kernels.memory import (
    call_at,
    fence,
    load,
    load_tile,
    pointer_to,
    shifted,
    store,
    store_tile,
    stream,
    to_line,
)
from rlcpu.kernels.vectors import VECTOR_BYTES, fill, width
from rlcpu.scan.device import for_cores
from rlcpu.scan.tridiagonal.blocks import ONE, PLAN, LaneBlock, SolvePlan, place_at

GRAIN = 2**14  # numbers from which a second core is worth waking
PARTS = 64  # that cores take in turn
plan_at = make_view(PLAN)


class Lists(NamedTuple):
    """Pointers to a number for each lane of a panel; of columns, all lanes have the same ones."""

    starts: Any  # where the lane begins in each array: `lanes` numbers, array by array
    stop: Any  # equations of the lane
    first: Any  # first equation that has a neighbour before it
    last: Any  # last one, exclusive, that has a neighbour after it


INPUTS = 5  # at most
LISTS, PLACES = len(Lists._fields) - 1, len(SolvePlan._fields)


@inline(exact=True, plain=True)
def parts_of(length: Any, rows: Any) -> Any:
    """Return the number of chunks of at most so many rows; all are about as long."""
    return (length + rows - 1) // rows


# ---------------------------------------------------------------- rows


@inline(exact=True)
def extremes(numbers, count):
    """Return the smallest and the largest of some numbers."""
    least: Any = numbers[0]
    most: Any = numbers[0]
    for i in range(1, count):
        least, most = min(least, numbers[i]), max(most, numbers[i])
    return least, most


@outline(exact=True)
def gather_rows(place, starts, lists, plane, rows):
    """Fill rows of a plane with those of an input that lie along lanes, transposed."""
    plane[0] = place.other
    other, lanes = plane[0], width(plane, ONE)
    source, ends = pointer_to(place.address, other), lists.stop
    first = 0
    if place.reach < 0:
        first = extremes(lists.first, lanes)[1]
    if place.reach > 0:
        ends = lists.last
    least = extremes(ends, lanes)[0]
    for k in range(0, rows, lanes):
        tile = shifted(plane, k * lanes)
        if k >= first and k + lanes <= least:
            load_tile(source, starts, k, tile, ONE)
        else:
            load_tile(source, starts, k, tile, ONE, (first, ends), other)
    if first > 0:  # chunks that do not begin their system have a neighbour there
        for lane in range(lanes):
            if lists.first[lane] == 0:
                plane[lane] = source[starts[lane]]


@outline(exact=True)
def scatter_rows(plane, target, starts, ends):
    """Write a plane to rows along lanes, transposed."""
    lanes = width(plane, ONE)
    least = extremes(ends, lanes)[0]
    whole = least // lanes * lanes
    for k in range(0, whole, lanes):
        store_tile(shifted(plane, k * lanes), target, starts, k, ONE)
    store_tile(shifted(plane, whole * lanes), target, starts, whole, ONE, least - whole)
    for lane in range(lanes):
        for k in range(least, ends[lane]):
            target[starts[lane] + k] = plane[k * lanes + lane]


@outline(exact=True)
def stream_rows(plane, target, start, ends, linear, begins):
    """Write a plane past the caches to rows of equal length that follow each other.

    They are transposed to `linear`, whose lines are lines of the target, and written in one run: of
    100,000 systems of 100 unknowns that takes 0.85 of the time.
    """
    lanes, head, count = width(plane, ONE), to_line(target, start), ends[0] * width(plane, ONE)
    for lane in range(lanes):
        begins[lane] = lane * ends[0]
    linear = shifted(linear, lanes - head)
    scatter_rows(plane, linear, begins, ends)
    head = min(head, count)
    for i in range(head):
        target[start + i] = linear[i]
    end = head + (count - head) // lanes * lanes
    for i in range(head, end, lanes):
        stream(load(linear, i, ONE), target, start + i)
    for i in range(end, count):
        target[start + i] = linear[i]


# ---------------------------------------------------------------- columns


@outline(exact=True)
def gather_columns(place, start, lists, count, inside, plane, rows):
    """Fill rows of a plane with those of an input that lie across lanes, but for rows `inside`."""
    plane[0] = place.other
    other, lanes = plane[0], width(plane, ONE)
    source = shifted(pointer_to(place.address, other), start)
    first = lists.first[0] if place.reach < 0 else 0
    last = lists.last[0] if place.reach > 0 else lists.stop[0]
    for begin, end in ((first, min(inside[0], last)), (max(first, inside[1]), last)):
        for k in range(begin, end):  # lanes that are not there repeat the last one
            row = shifted(source, k * place.step)
            numbers = load(row, 0, ONE, count, row[(count - 1) * place.lane])
            store(numbers, plane, k * lanes)
    for begin, end in ((0, first), (last, rows)):
        for k in range(begin, end):
            store(fill(other, ONE), plane, k * lanes)


# ---------------------------------------------------------------- panels


@inline(exact=True)
def lists_at(pointer, arrays, lanes):
    """Return the lists that begin at a pointer."""
    rest = shifted(pointer, arrays * lanes)
    return Lists(pointer, rest, shifted(rest, lanes), shifted(rest, 2 * lanes))


@inline(exact=True)
def find_lane(plan, places, index, lists, lanes, lane):
    """Write the lists of a lane from its outer index, the number of its chunk, and its column."""
    outer, chunk, column = index
    length = plan.length
    if plan.lengths != 0:
        length = pointer_to(plan.lengths, np.int64(0))[outer]
    begin, stop, parts = 0, length, 1
    if plan.chunks > 1:
        parts = max(parts_of(length, plan.rows), 1)
        begin = length * chunk // parts if chunk < parts else 0
        stop = length * (chunk + 1) // parts - begin if chunk < parts else 0
    is_first, is_last = plan.periodic == 0 and chunk == 0, plan.periodic == 0 and chunk == parts - 1
    lists.stop[lane] = stop
    lists.first[lane] = 1 if is_first or stop == 0 else 0
    lists.last[lane] = max(stop - 1, 0) if is_last else stop
    for i in range(plan.inputs + 1):
        place = place_at(places, i)
        at = outer * place.outer + begin * place.step + column * place.lane
        lists.starts[i * lanes + lane] = at


@outline(exact=True)
def find_panel(plan, places, panel, lists, lanes):
    """Write the lists of a panel; how many lanes there are, and the number of the first one."""
    chunks = plan.chunks
    if plan.inner == 1:
        first = panel * lanes
        count = min(plan.outer * chunks - first, lanes)
        for lane in range(lanes):
            unit = first + min(lane, count - 1)
            index = (unit, 0, 0) if chunks == 1 else (unit // chunks, unit % chunks, 0)
            find_lane(plan, places, index, lists, lanes, lane)
        return count, first
    number, group = panel % plan.slices, panel // plan.slices
    outer, chunk = group // chunks, group % chunks
    first, count = number * plan.room, plan.room
    if plan.head > 0:
        first, count = max(first + plan.head - plan.room, 0), count if number > 0 else plan.head
    for lane in range(lanes):
        find_lane(plan, places, (outer, chunk, first), lists, lanes, lane)
    return min(plan.inner - first, count), (outer * plan.inner + first) * chunks + chunk


class PanelScratch(NamedTuple):
    """Pointers into the scratch memory of a thread, besides that of planes."""

    trace: Any  # a row: NaN in lanes that failed
    extras: Any  # stops of lanes, and numbers that go into them and come out
    linear: Any  # rows of the output, see `stream_rows`
    begins: Any  # where rows begin in `linear`
    here: Any  # `Lists` of the panel
    there: Any  # those of the next one, which is prefetched meanwhile
    sources: Any  # addresses of row 0 of each input
    steps: Any  # numbers between their rows


@inline(exact=True)
def scratch_at(plan, memory, lists):
    """Return the scratch memory of a thread, whose lanes have not failed yet."""
    lanes, arrays = width(memory, ONE), plan.inputs + 1
    trace, size = shifted(memory, plan.planes), (arrays + LISTS) * lanes
    extras, begins = shifted(trace, lanes), shifted(lists, 2 * size)
    sources = shifted(begins, lanes)
    for lane in range(lanes):
        trace[lane] = 0.0
    return PanelScratch(
        trace=trace,
        extras=extras,
        linear=shifted(extras, (1 + max(plan.num_extra_inputs, plan.num_extra_outputs)) * lanes),
        begins=begins,
        here=lists_at(lists, arrays, lanes),
        there=lists_at(shifted(lists, size), arrays, lanes),
        sources=sources,
        steps=shifted(sources, INPUTS),
    )


@inline(exact=True)
def gather_inputs(plan, places, memory, scratch, here, columns, rows):
    """Bring the inputs of a block to planes, or note where its columns are.

    Args:
        plan: view of a `SolvePlan`.
        places: pointer to the places of all arrays.
        memory: pointer to the planes.
        scratch: a `PanelScratch`, whose sources and steps are overwritten.
        here: `Lists` of the panel.
        columns: first lane of the block in the panel, lanes that are there, and the rows, from one
            to another, that need no plane.
        rows: of the block.
    """
    (by, count, begin, end), lanes = columns, width(memory, ONE)
    for i in range(plan.inputs):
        place, plane = place_at(places, i), shifted(memory, i * plan.plane)
        scratch.sources[i] = place.address
        if plan.inner == 1:
            gather_rows(place, shifted(here.starts, i * lanes), here, plane, rows)
        else:
            at = here.starts[i * lanes] + by * place.lane
            scratch.sources[i] += at * (VECTOR_BYTES // lanes)
            scratch.steps[i] = place.step
            gather_columns(place, at, here, count, (begin, max(begin, end)), plane, rows)


@inline(exact=True)
def scatter_output(plan, target, plane, scratch, here, columns, rows):
    """Write the plane of a block's output, unless its columns have been written already."""
    (by, count, _, _), lanes = columns, width(plane, ONE)
    memory, starts = pointer_to(target.address, plane[0]), shifted(here.starts, plan.inputs * lanes)
    if plan.inner == 1:
        if plan.stream != 0 and count == lanes:
            stream_rows(plane, memory, starts[0] + by, here.stop, scratch.linear, scratch.begins)
        else:
            scatter_rows(plane, memory, starts, here.stop)
    elif count < lanes:
        for k in range(rows):
            row = load(plane, k * lanes, ONE)
            store(row, memory, starts[0] + by + k * target.step, count)


@inline(exact=True)
def load_extras(plan, scratch, stops, units):
    """Set the stops of a block's lanes and the numbers that go into them besides.

    `units` are the number of the first lane among all chunks of all systems, the distance to the
    next one, and how many there are; other lanes repeat the last one.
    """
    first, step, count = units
    extras, inputs = scratch.extras, pointer_to(plan.extra_inputs, np.float64(0.0))
    lanes = width(extras, ONE)
    for k in range(lanes):
        extras[k] = stops[k]
        for i in range(plan.num_extra_inputs):
            unit = first + min(k, count - 1) * step
            extras[(1 + i) * lanes + k] = inputs[unit * plan.num_extra_inputs + i]


@inline(exact=True)
def store_extras(plan, scratch, units):
    """Write the numbers that come out of a block's lanes besides; see `load_extras`."""
    first, step, count = units
    extras, reported = scratch.extras, pointer_to(plan.extra_outputs, np.float64(0.0))
    lanes = width(extras, ONE)
    for k in range(count):
        for i in range(plan.num_extra_outputs):
            reported[(first + k * step) * plan.num_extra_outputs + i] = extras[(1 + i) * lanes + k]


def run_panels(plan, places, memory, lists, start, stop, failed):
    """Run a lane function on some panels.

    Args:
        plan: view of a `SolvePlan`.
        places: pointer to the places of all arrays.
        memory: pointer to scratch of numbers.
        lists: pointer to scratch of whole numbers.
        start: first panel.
        stop: last one, exclusive.
        failed: pointer to a number, overwritten with whether a lane failed.
    """
    lanes, is_rows, scratch = width(memory, ONE), plan.inner == 1, scratch_at(plan, memory, lists)
    sources, steps, here, there = scratch.sources, scratch.steps, scratch.here, scratch.there
    output, plane = place_at(places, plan.inputs), memory
    if plan.output >= 0:
        plane = shifted(memory, plan.output * plan.plane)
    present, number = find_panel(plan, places, start, here, lanes)
    for panel in range(start, stop):
        following = find_panel(plan, places, min(panel + 1, plan.panels - 1), there, lanes)
        for by in range(0, present, lanes):
            count, (least, most) = min(present - by, lanes), extremes(here.stop, lanes)
            rows, is_direct = max(most + most % 2, 2), not is_rows and count == lanes
            begin, end, target, target_step, written = 0, 0, plane, lanes, rows
            if is_direct:
                begin, end, target_step, written = here.first[0], here.last[0], output.step, most
                at = here.starts[plan.inputs * lanes] + by
                target = shifted(pointer_to(output.address, memory[0]), at)
            columns, step = (by, count, begin, end), 1 if is_rows else plan.chunks
            units = number + by * step, step, count
            gather_inputs(plan, places, memory, scratch, here, columns, rows)
            load_extras(plan, scratch, here.stop, units)
            block = LaneBlock(
                memory,
                plan.plane,
                scratch.extras,
                scratch.trace,
                (sources[0], sources[1], sources[2], sources[3], sources[4]),
                (steps[0], steps[1], steps[2], steps[3], steps[4]),
                target,
                target_step,
                rows,
                least,
                begin,
                end,
                written if plan.output >= 0 else 0,
                plan.stream if is_direct else 0,
                plan,
                places,
                there.starts if plan.line > 0 else here.starts,
                by // lanes * rows,
                by,
            )
            call_at(plan.function, (view(block),))
            store_extras(plan, scratch, units)
            if plan.output >= 0:
                scatter_output(plan, output, plane, scratch, here, columns, most)
        here, there = there, here
        present, number = following
    fence()
    failed[0] = 0
    for lane in range(lanes):
        failed[0] |= np.isnan(scratch.trace[lane])


def drive(plan):
    """Run a lane function over a `SolvePlan`, which places follow; whether no lane failed."""
    named = plan_at(plan.ctypes.data)
    panels, run_at, size, scratch = named.panels, named.run, named.memory, named.scratch
    places = plan.ctypes.data + 8 * PLACES
    parts = min(panels, PARTS)
    failed = np.zeros(parts, np.int64)
    for i in prange(parts):
        memory = np.empty(size + VECTOR_BYTES, np.uint8)
        begin = (memory.ctypes.data + VECTOR_BYTES - 1) & -VECTOR_BYTES
        there = plan.ctypes.data, places, begin, begin + scratch
        panel = panels * i // parts, panels * (i + 1) // parts
        call_at(run_at, (*there, *panel, failed.ctypes.data + 8 * i))
        memory[0] = 0  # keeps it alive until now: an address does not
    return not failed.any()


DRIVERS = for_cores(drive, GRAIN, fastmath=EXACT)
