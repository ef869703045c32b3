"""Panels: which numbers of arrays make a lane, and how they get to blocks of lanes and back.

Arrays are (outer, n, inner), in one of two layouts, into which `scan/layout.py` copies others:

* rows, where `inner` is 1: the numbers of a system are side by side. Squares of them are transposed
  in registers, into planes of scratch with a row for each equation and a number for each lane, and
  results go back in the same way.
* columns: systems are side by side, and a row of a block is a vector in memory, read and written
  there. First and last equations, which lack a neighbour, and blocks that are not full go through
  planes too.

A panel is what a core computes in one go: one block of rows, or several blocks of columns.

`plan` is a view of a `SolvePlan`, `places` a pointer to the arrays' `StridedPointer`s, and `here`
the `LaneLists` of a panel. Where `plan.streams` is 1 results are written past the caches. `lanes`
are the numbers of a vector; an aligned vector of memory is called a line. `plan.output_plane` is
-1 if nothing is written.
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
from rlcpu.kernels.threads import for_cores
from rlcpu.kernels.vectors import VECTOR_BYTES, fill, width
from rlcpu.scan.tridiagonal.blocks import ONE, PLAN, LaneBlock, SolvePlan, array_place, count_chunks

GRAIN = 2**14  # numbers from which a second core is worth waking
PARTS = 64  # that cores take in turn
plan_at = make_view(PLAN)


class LaneLists(NamedTuple):
    """Pointers to a number for each lane of a panel; of columns, all lanes have the same ones."""

    starts: Any  # where the lane begins in each array: `lanes` numbers, array by array
    stop: Any  # equations of the lane
    first: Any  # first equation that has a neighbour before it
    last: Any  # last one, exclusive, that has a neighbour after it


INPUTS = 5  # inputs of a lane function at most
#: Lists besides `starts`; and numbers of a plan in front of its places.
LISTS, PLACES = len(LaneLists._fields) - 1, len(SolvePlan._fields)


# ---------------------------------------------------------------- rows


@inline(exact=True)
def smallest_and_largest(numbers, count):
    """Return the smallest and the largest of the first `count` numbers behind a pointer."""
    least: Any = numbers[0]
    most: Any = numbers[0]
    for i in range(1, count):
        least, most = min(least, numbers[i]), max(most, numbers[i])
    return least, most


@outline(exact=True)
def gather_rows(place, starts, lists, plane, rows):
    """Fill the rows of a plane with an input whose equations lie side by side, by transposing.

    `place` is the input's `StridedPointer`, `starts` points to where each lane begins in it,
    `lists` are the `LaneLists` of the panel. Rows that a lane does not have get the fill value.
    """
    plane[0] = place.fill_value
    fill_value, lanes = plane[0], width(plane, ONE)  # of the plane's dtype
    source, ends = pointer_to(place.address, fill_value), lists.stop
    # Numbers before `first` and from `ends` on are never read, see `LaneInput.neighbour`.
    first = 0
    if place.neighbour < 0:
        first = smallest_and_largest(lists.first, lanes)[1]
    if place.neighbour > 0:
        ends = lists.last
    least = smallest_and_largest(ends, lanes)[0]  # rows that all lanes have
    for k in range(0, rows, lanes):
        tile = shifted(plane, k * lanes)
        if k >= first and k + lanes <= least:
            load_tile(source, starts, k, tile, ONE)
        else:
            load_tile(source, starts, k, tile, ONE, (first, ends), fill_value)
    if first > 0:  # chunks that do not begin their system have a neighbour there
        for lane in range(lanes):
            if lists.first[lane] == 0:
                plane[lane] = source[starts[lane]]


@outline(exact=True)
def scatter_rows(plane, target, starts, ends):
    """Write a plane to an array whose equations lie side by side, by transposing.

    `starts` and `ends` point to where each lane begins in `target`, and to its number of rows.
    """
    lanes = width(plane, ONE)
    least = smallest_and_largest(ends, lanes)[0]  # rows that all lanes have; the rest comes last
    whole = least // lanes * lanes
    for k in range(0, whole, lanes):
        store_tile(shifted(plane, k * lanes), target, starts, k, ONE)
    store_tile(shifted(plane, whole * lanes), target, starts, whole, ONE, least - whole)
    for lane in range(lanes):
        for k in range(least, ends[lane]):
            target[starts[lane] + k] = plane[k * lanes + lane]


@outline(exact=True)
def stream_rows(plane, target, start, ends, linear, begins):
    """Write a plane past the caches to rows of equal length that follow each other from `start` on.

    They are transposed to scratch, `linear`, and written from there in one run: of 100,000 systems
    of 100 unknowns that takes 0.85 of the time. Only whole lines of the cache, of one vector each,
    can be written past it: `head` numbers come before the target's first.

    Args:
        plane: number k of all lanes is vector k.
        target: the array.
        start: place in it of the first lane's first row.
        ends: points to the number of rows of each lane, all equal.
        linear: scratch that begins at a line, overwritten.
        begins: points to scratch for where each lane begins in `linear`.
    """
    lanes, head, rows = width(plane, ONE), to_line(target, start), ends[0]
    count = rows * lanes
    for lane in range(lanes):
        begins[lane] = lane * rows
    linear = shifted(linear, lanes - head)  # number `head` begins a line there, too
    scatter_rows(plane, linear, begins, ends)
    head = min(head, count)  # few numbers may end before that line
    for i in range(head):
        target[start + i] = linear[i]
    end = head + (count - head) // lanes * lanes
    for i in range(head, end, lanes):
        stream(load(linear, i, ONE), target, start + i)
    for i in range(end, count):
        target[start + i] = linear[i]


# ---------------------------------------------------------------- columns


@outline(exact=True)
def gather_columns(place, start, lists, block, plane):
    """Fill the rows of a plane with an input whose systems lie side by side.

    `place` is the input's `StridedPointer`, in which the first lane of the `BlockOfPanel` begins at
    `start`; `lists` are the `LaneLists` of its panel, the same for all lanes. Rows from
    `block.begin` to `block.end`, which are read where they lie, are left out.
    """
    plane[0] = place.fill_value
    fill_value, lanes = plane[0], width(plane, ONE)  # of the plane's dtype
    count, direct_end = block.count, max(block.begin, block.end)
    source = shifted(pointer_to(place.address, fill_value), start)
    first = lists.first[0] if place.neighbour < 0 else 0
    last = lists.last[0] if place.neighbour > 0 else lists.stop[0]
    for begin, end in ((first, min(block.begin, last)), (max(first, direct_end), last)):
        for k in range(begin, end):  # lanes that are not there repeat the last one
            row = shifted(source, k * place.step)
            numbers = load(row, 0, ONE, count, row[(count - 1) * place.lane])
            store(numbers, plane, k * lanes)
    for begin, end in ((0, first), (last, block.rows)):
        for k in range(begin, end):
            store(fill(fill_value, ONE), plane, k * lanes)


# ---------------------------------------------------------------- which lanes a panel has


@inline(exact=True)
def lists_behind(pointer, arrays, lanes):
    """Return the lists of `arrays` arrays and `lanes` lanes that begin at a pointer."""
    rest = shifted(pointer, arrays * lanes)
    return LaneLists(pointer, rest, shifted(rest, lanes), shifted(rest, 2 * lanes))


@inline(exact=True)
def describe_lane(plan, places, outer, chunk, column, lists, lanes, lane):
    """Overwrite what `lists`, of `lanes` lanes each, say of number `lane`.

    That is chunk number `chunk` of the system at (outer, column) of the arrays' other axes. Shorter
    systems have fewer chunks than `plan.num_chunks`: the last ones are of no equation.
    """
    length = plan.length
    if plan.lengths != 0:  # the address of a length for each system
        length = pointer_to(plan.lengths, np.int64(0))[outer]
    begin, stop, chunks = 0, length, 1
    if plan.num_chunks > 1:
        chunks = max(count_chunks(length, plan.chunk_rows), 1)
        begin = length * chunk // chunks if chunk < chunks else 0
        stop = length * (chunk + 1) // chunks - begin if chunk < chunks else 0
    is_first = plan.periodic == 0 and chunk == 0
    is_last = plan.periodic == 0 and chunk == chunks - 1
    lists.stop[lane] = stop
    lists.first[lane] = 1 if is_first or stop == 0 else 0
    lists.last[lane] = max(stop - 1, 0) if is_last else stop
    for i in range(plan.num_inputs + 1):
        place = array_place(places, i)
        at = outer * place.outer + begin * place.step + column * place.lane
        lists.starts[i * lanes + lane] = at


@outline(exact=True)
def describe_panel(plan, places, panel, lists, lanes):
    """Overwrite the lists of a panel, whose number is `panel`; `lanes` are those of a block.

    Returns:
        How many lanes the panel has; of rows, those of the block that are there.
        The number of its first lane among all chunks of all systems.
    """
    chunks = plan.num_chunks
    if plan.inner == 1:
        first = panel * lanes
        count = min(plan.outer * chunks - first, lanes)
        for lane in range(lanes):
            unit = first + min(lane, count - 1)
            outer, chunk = (unit, 0) if chunks == 1 else (unit // chunks, unit % chunks)
            describe_lane(plan, places, outer, chunk, 0, lists, lanes, lane)
        return count, first
    number, group = panel % plan.panels_across, panel // plan.panels_across
    # A group is a chunk of all systems of one outer index.
    outer, chunk = group // chunks, group % chunks
    column, count = number * plan.panel_lanes, plan.panel_lanes
    if plan.head_lanes > 0:  # the first panel is shorter
        column = max(column + plan.head_lanes - plan.panel_lanes, 0)
        count = count if number > 0 else plan.head_lanes
    for lane in range(lanes):
        describe_lane(plan, places, outer, chunk, column, lists, lanes, lane)
    return min(plan.inner - column, count), (outer * plan.inner + column) * chunks + chunk


# ---------------------------------------------------------------- blocks in and out


class PanelScratch(NamedTuple):
    """Pointers into the scratch memory of a thread, besides that of planes."""

    failures: Any  # a row: NaN in lanes that failed
    extras: Any  # rows, see `LaneBlock.extras`
    linear: Any  # rows of the output, see `stream_rows`
    begins: Any  # where rows begin in `linear`
    here: Any  # `LaneLists` of the panel
    there: Any  # those of the next one, which is prefetched meanwhile
    sources: Any  # see `LaneBlock`
    source_steps: Any


@inline(exact=True)
def scratch_at(plan, memory, lists):
    """Return the scratch memory of a thread, whose lanes have not failed yet.

    In `memory`, behind the planes: failures, extras, `linear`. In `lists`: the lists of two panels,
    `begins`, sources and their steps.
    """
    lanes, arrays = width(memory, ONE), plan.num_inputs + 1
    failures, size = shifted(memory, plan.planes_size), (arrays + LISTS) * lanes
    extras, begins = shifted(failures, lanes), shifted(lists, 2 * size)
    sources = shifted(begins, lanes)
    for lane in range(lanes):
        failures[lane] = 0.0
    return PanelScratch(
        failures=failures,
        extras=extras,
        linear=shifted(extras, (1 + max(plan.num_extra_inputs, plan.num_extra_outputs)) * lanes),
        begins=begins,
        here=lists_behind(lists, arrays, lanes),
        there=lists_behind(shifted(lists, size), arrays, lanes),
        sources=sources,
        source_steps=shifted(sources, INPUTS),
    )


class BlockOfPanel(NamedTuple):
    """One block of lanes of a panel."""

    lane: Any  # first lane of the block in the panel
    count: Any  # lanes that are there; others repeat the last one
    is_direct: Any  # whether its rows are vectors in the arrays, which are read and written there
    begin: Any  # rows from here to `end`, exclusive, are read there; all others are in planes
    end: Any
    rows: Any  # rows that are computed, in pairs: elimination goes from both ends
    least: Any  # rows of the shortest lane, and of the longest
    most: Any
    first_unit: Any  # number of its first lane among all chunks of all systems
    unit_step: Any  # from there to that of the next lane


@inline(exact=True)
def block_of_panel(plan, here, lane, count, panel_unit, lanes):
    """Return the block of a panel, the lists of which are `here`, that begins with `lane`.

    `panel_unit` is the number of the panel's first lane among all chunks of all systems; `lanes`
    are those of a full block.
    """
    is_rows = plan.inner == 1
    least, most = smallest_and_largest(here.stop, lanes)
    rows, is_direct = max(most + most % 2, 2), not is_rows and count == lanes
    begin, end = (here.first[0], here.last[0]) if is_direct else (0, 0)
    step = 1 if is_rows else plan.num_chunks
    unit = panel_unit + lane * step
    return BlockOfPanel(lane, count, is_direct, begin, end, rows, least, most, unit, step)


@inline(exact=True)
def lane_block(plan, places, memory, scratch, here, next_starts, part):
    """Return what the lane function sees of a `BlockOfPanel`, `part`.

    `memory` points to the planes, `here` are the lists of the panel, `next_starts` the
    `LaneLists.starts` of the next one, which is prefetched meanwhile.
    """
    lanes, output = width(memory, ONE), array_place(places, plan.num_inputs)
    target, target_step, output_rows, streams = memory, lanes, part.rows, 0
    if plan.output_plane >= 0:
        target = shifted(memory, plan.output_plane * plan.plane_size)
    if part.is_direct:
        target_step, output_rows, streams = output.step, part.most, plan.streams
        at = here.starts[plan.num_inputs * lanes] + part.lane
        target = shifted(pointer_to(output.address, memory[0]), at)
    if plan.output_plane < 0:
        output_rows = 0
    # Lines of the next panel are prefetched or, where `lines_across` is 0, later rows of this one.
    starts = next_starts if plan.lines_across > 0 else here.starts
    sources, steps = scratch.sources, scratch.source_steps
    return LaneBlock(
        memory=memory,
        plane_size=plan.plane_size,
        extras=scratch.extras,
        failures=scratch.failures,
        sources=(sources[0], sources[1], sources[2], sources[3], sources[4]),
        source_steps=(steps[0], steps[1], steps[2], steps[3], steps[4]),
        target=target,
        target_step=target_step,
        rows=part.rows,
        common_rows=part.least,
        begin=part.begin,
        end=part.end,
        output_rows=output_rows,
        streams=streams,
        plan=plan,
        places=places,
        starts=starts,
        first_line=part.lane // lanes * part.rows,  # blocks before ask for a line with each row
        first_lane=part.lane,
    )


@inline(exact=True)
def gather_inputs(plan, places, memory, scratch, here, block):
    """Bring the inputs of a `BlockOfPanel` to planes, or note where its columns are.

    `memory` points to the planes; the sources of `scratch`, a `PanelScratch`, are overwritten.
    """
    lanes = width(memory, ONE)
    for i in range(plan.num_inputs):
        place, plane = array_place(places, i), shifted(memory, i * plan.plane_size)
        scratch.sources[i] = place.address
        if plan.inner == 1:
            starts = shifted(here.starts, i * lanes)
            gather_rows(place, starts, here, plane, block.rows)
        else:
            start = here.starts[i * lanes] + block.lane * place.lane
            scratch.sources[i] += start * (VECTOR_BYTES // lanes)  # bytes of a number
            scratch.source_steps[i] = place.step
            gather_columns(place, start, here, block, plane)


@inline(exact=True)
def scatter_output(plan, places, plane, scratch, here, block):
    """Write the output's plane; direct blocks have been written already.

    See `gather_inputs` for the arguments.
    """
    lanes, target = width(plane, ONE), array_place(places, plan.num_inputs)
    memory = pointer_to(target.address, plane[0])
    starts = shifted(here.starts, plan.num_inputs * lanes)
    if plan.inner == 1:
        if plan.streams != 0 and block.count == lanes:
            begin = starts[0] + block.lane
            stream_rows(plane, memory, begin, here.stop, scratch.linear, scratch.begins)
        else:
            scatter_rows(plane, memory, starts, here.stop)
    elif not block.is_direct:
        for k in range(block.most):
            row = load(plane, k * lanes, ONE)
            store(row, memory, starts[0] + block.lane + k * target.step, block.count)


@inline(exact=True)
def load_extras(plan, scratch, stops, block):
    """Set the numbers of rows of a `BlockOfPanel`'s lanes, `stops`, and their extra inputs.

    In `LaneBlock.extras` row 0 has the former, row 1 + i extra input i.
    """
    extras, inputs = scratch.extras, pointer_to(plan.extra_inputs, np.float64(0.0))
    lanes = width(extras, ONE)
    for lane in range(lanes):
        extras[lane] = stops[lane]
        for i in range(plan.num_extra_inputs):
            unit = block.first_unit + min(lane, block.count - 1) * block.unit_step
            extras[(1 + i) * lanes + lane] = inputs[unit * plan.num_extra_inputs + i]


@inline(exact=True)
def store_extras(plan, scratch, block):
    """Write the extra outputs of a block's lanes to the plan's array; see `load_extras`."""
    extras, outputs = scratch.extras, pointer_to(plan.extra_outputs, np.float64(0.0))
    lanes = width(extras, ONE)
    for lane in range(block.count):
        for i in range(plan.num_extra_outputs):
            unit = block.first_unit + lane * block.unit_step
            outputs[unit * plan.num_extra_outputs + i] = extras[(1 + i) * lanes + lane]


# ---------------------------------------------------------------- the driver


def run_panels(plan, places, memory, lists, start, stop, failed):
    """Run a lane function on the panels from `start` to `stop`, exclusive.

    `memory` and `lists` point to scratch, of numbers and of whole numbers, `failed` to a number
    that is overwritten with whether a lane failed.
    """
    lanes, scratch = width(memory, ONE), scratch_at(plan, memory, lists)
    # The next panel, `there`, is described early, since lanes prefetch it.
    here, there, has_output = scratch.here, scratch.there, plan.output_plane >= 0
    plane = shifted(memory, max(plan.output_plane, 0) * plan.plane_size)
    num_lanes, first_unit = describe_panel(plan, places, start, here, lanes)
    for panel in range(start, stop):
        next_panel = min(panel + 1, plan.num_panels - 1)
        next_num_lanes, next_unit = describe_panel(plan, places, next_panel, there, lanes)
        for lane in range(0, num_lanes, lanes):
            count = min(num_lanes - lane, lanes)
            part = block_of_panel(plan, here, lane, count, first_unit, lanes)
            gather_inputs(plan, places, memory, scratch, here, part)
            load_extras(plan, scratch, here.stop, part)
            block = lane_block(plan, places, memory, scratch, here, there.starts, part)
            call_at(plan.lane_function, (view(block),))
            store_extras(plan, scratch, part)
            if has_output:
                scatter_output(plan, places, plane, scratch, here, part)
        here, there = there, here
        num_lanes, first_unit = next_num_lanes, next_unit
    fence()
    failed[0] = 0
    for lane in range(lanes):
        failed[0] |= np.isnan(scratch.failures[lane])


def drive(plan):
    """Run the lane function of a plan, and return whether no lane failed.

    `plan` is int64: the numbers of a `SolvePlan`, then those of the arrays' `StridedPointer`s.
    """
    facts = plan_at(plan.ctypes.data)
    panels, run_at = facts.num_panels, facts.run_panels
    size, lists_offset = facts.scratch_bytes, facts.lists_offset
    places = plan.ctypes.data + 8 * PLACES
    parts = min(panels, PARTS)
    failed = np.zeros(parts, np.int64)
    for i in prange(parts):
        memory = np.empty(size + VECTOR_BYTES, np.uint8)
        begin = (memory.ctypes.data + VECTOR_BYTES - 1) & -VECTOR_BYTES
        pointers = plan.ctypes.data, places, begin, begin + lists_offset
        some_panels = panels * i // parts, panels * (i + 1) // parts
        call_at(run_at, (*pointers, *some_panels, failed.ctypes.data + 8 * i))
        memory[0] = 0  # keeps it alive until now: an address does not
    return not failed.any()


DRIVERS = for_cores(drive, GRAIN, fastmath=EXACT)
