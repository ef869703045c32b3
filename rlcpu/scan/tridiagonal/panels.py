"""Panels: which numbers of arrays make a lane, and how they get to blocks of lanes and back.

Arrays are (outer, n, inner), in one of two layouts, into which `scan/layout.py` copies others:

* rows, where `inner` is 1: the numbers of a system are side by side. Squares of them are transposed
  in registers, into planes of scratch with a row for each equation and a number for each lane, and
  results go back in the same way.
* columns: systems are side by side, and a row of a block is a vector in memory, read and written
  there. First and last equations, which lack a neighbour, and blocks that are not full go through
  planes too.

A panel is what a core computes in one go: one block of rows, or several blocks of columns.

`plan` is a view of a `SolvePlan`, `extras` one of `Extras`, `addresses` a pointer to those of the
inputs and the output, and `here` the `LaneLists` of a panel. `lanes` are the numbers of a vector;
an aligned vector of memory is called a line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from rlcpu.kernels.compiler.compile import EXACT, c_function, inline, outline
from rlcpu.kernels.machine.memory import (
    call_at,
    fence,
    load,
    load_tile,
    place_of,
    pointer_to,
    shifted,
    store,
    store_tile,
    stream,
    to_line,
)
from rlcpu.kernels.machine.threads import for_cores
from rlcpu.kernels.machine.vectors import fill, width
from rlcpu.scan.tridiagonal.blocks import INPUTS, NO_EXTRAS, ROW, ROW_BYTES, LaneBlock, SolvePlan

GRAIN = 2**14  # numbers from which a second core is worth waking
PARTS = 64  # that cores take in turn
plan_at = SolvePlan.at


class LaneLists(NamedTuple):
    """Pointers to a number for each lane of a panel; of columns, all lanes have the same ones."""

    starts: Any  # where the lane begins in each array: `lanes` numbers, array by array
    stop: Any  # equations of the lane
    first: Any  # first equation that has a neighbour before it
    last: Any  # last one, exclusive, that has a neighbour after it


LISTS = len(LaneLists._fields) - 1  # lists besides `starts`


@inline(exact=True, plain=True)
def count_chunks(length: Any, rows: Any) -> Any:
    """Return how many chunks of at most so many rows a system has; all are about as long."""
    return (length + rows - 1) // rows


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
def gather_rows(source, place, starts, lists, plane, rows):
    """Fill the rows of a plane with an input whose equations lie side by side, by transposing.

    `source` points to the input's numbers, `place` is its `PLACE`, `starts` points to where each
    lane begins in it, `lists` are the `LaneLists` of the panel. Rows that a lane does not have get
    the fill value.
    """
    plane[0] = place.fill_value
    fill_value, lanes, ends = plane[0], width(plane, ROW), lists.stop  # of the plane's dtype
    # Numbers before `first` and from `ends` on are never read, see `LaneInput.neighbour`.
    first = 0
    if place.neighbour < 0:
        first = smallest_and_largest(lists.first, lanes)[1]
    if place.neighbour > 0:
        ends = lists.last
    least = smallest_and_largest(ends, lanes)[0]  # rows that all lanes have
    step = width(plane, 1)  # rows of a tile
    for k in range(0, rows, step):
        tile = shifted(plane, k * lanes)
        if k >= first and k + step <= least:
            load_tile(source, starts, k, tile, ROW)
        else:
            load_tile(source, starts, k, tile, ROW, (first, ends), fill_value)
    if first > 0:  # chunks that do not begin their system have a neighbour there
        for lane in range(lanes):
            if lists.first[lane] == 0:
                plane[lane] = source[starts[lane]]


@outline(exact=True)
def scatter_rows(plane, target, starts, ends):
    """Write a plane to an array whose equations lie side by side, by transposing.

    `starts` and `ends` point to where each lane begins in `target`, and to its number of rows. A
    row of the plane, an equation of all lanes, takes `ROW` registers. Tiles of as many rows as a
    register has numbers are transposed, the last one in part.
    """
    lanes = width(plane, ROW)
    least = smallest_and_largest(ends, lanes)[0]  # rows that all lanes have; the rest comes last
    step = width(plane, 1)  # rows of a tile
    whole = least // step * step
    for k in range(0, whole, step):
        store_tile(shifted(plane, k * lanes), target, starts, k, ROW)
    store_tile(shifted(plane, whole * lanes), target, starts, whole, ROW, least - whole)
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
    lanes, head, rows = width(plane, ROW), to_line(target, start), ends[0]
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
        stream(load(linear, i, ROW), target, start + i)
    for i in range(end, count):
        target[start + i] = linear[i]


# ---------------------------------------------------------------- columns


@outline(exact=True)
def gather_columns(source, place, lists, block, plane):
    """Fill the rows of a plane with an input whose systems lie side by side.

    `source` points to where the first lane of the `BlockOfPanel` begins in the input, `place` is
    its `PLACE`; `lists` are the `LaneLists` of its panel, the same for all lanes. Rows from
    `block.begin` to `block.end`, which are read where they lie, are left out.
    """
    plane[0] = place.fill_value
    fill_value, lanes = plane[0], width(plane, ROW)  # of the plane's dtype
    count, direct_end = block.count, max(block.begin, block.end)
    first = lists.first[0] if place.neighbour < 0 else 0
    last = lists.last[0] if place.neighbour > 0 else lists.stop[0]
    for begin, end in ((first, min(block.begin, last)), (max(first, direct_end), last)):
        for k in range(begin, end):  # lanes that are not there repeat the last one
            row = shifted(source, k * place.step)
            numbers = load(row, 0, ROW, count, row[(count - 1) * place.lane])
            store(numbers, plane, k * lanes)
    for begin, end in ((0, first), (last, block.rows)):
        for k in range(begin, end):
            store(fill(fill_value, ROW), plane, k * lanes)


# ---------------------------------------------------------------- which lanes a panel has


@inline(exact=True)
def lists_behind(pointer, arrays, lanes):
    """Return the lists of `arrays` arrays and `lanes` lanes that begin at a pointer."""
    rest = shifted(pointer, arrays * lanes)
    return LaneLists(pointer, rest, shifted(rest, lanes), shifted(rest, 2 * lanes))


@outline(exact=True)
def describe_panel(plan, extras, panel, lists, lanes):
    """Overwrite the lists of a panel, whose number is `panel`; `lanes` are those of a block.

    A lane is a chunk of a system. Shorter systems have fewer chunks than `plan.num_chunks`: the
    last ones are of no equation.

    Returns:
        How many lanes the panel has; of rows, those of the block that are there.
        The number of its first lane among all chunks of all systems.
    """
    is_rows, num_chunks = plan.inner == 1, plan.num_chunks
    # Columns: a group is a chunk of all systems of one outer index.
    number, group = panel % plan.panels_across, panel // plan.panels_across
    first, column, count = group, number * plan.panel_lanes, plan.panel_lanes
    if plan.head_lanes > 0:  # the first panel is shorter
        column = max(column + plan.head_lanes - plan.panel_lanes, 0)
        count = count if number > 0 else plan.head_lanes
    if is_rows:
        first, column = panel * lanes, 0
        count = min(plan.outer * num_chunks - first, lanes)
    for lane in range(lanes):
        unit = first + min(lane, count - 1) if is_rows else group
        outer, chunk = (unit, 0) if num_chunks == 1 else (unit // num_chunks, unit % num_chunks)
        length = extras.lengths[outer] if extras.has_lengths else plan.length
        begin, stop, chunks = 0, length, 1
        if num_chunks > 1:
            chunks = max(count_chunks(length, plan.chunk_rows), 1)
            begin = length * chunk // chunks if chunk < chunks else 0
            stop = length * (chunk + 1) // chunks - begin if chunk < chunks else 0
        is_first = not plan.periodic and chunk == 0
        is_last = not plan.periodic and chunk == chunks - 1
        lists.stop[lane] = stop
        lists.first[lane] = 1 if is_first or stop == 0 else 0
        lists.last[lane] = max(stop - 1, 0) if is_last else stop
        for i in range(plan.num_inputs + 1):
            place = plan.places[i]
            at = outer * place.outer + begin * place.step + column * place.lane
            lists.starts[i * lanes + lane] = at
    if is_rows:
        return count, first
    outer, chunk = group // num_chunks, group % num_chunks
    first_unit = (outer * plan.inner + column) * num_chunks + chunk
    return min(plan.inner - column, count), first_unit


# ---------------------------------------------------------------- blocks in and out


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
    unit: Any  # number of its first lane among all chunks of all systems
    unit_step: Any  # from there to that of the next lane


class BlockScratch(NamedTuple):
    """Pointers to scratch memory for a block."""

    memory: Any  # planes
    extras: Any  # rows, see `LaneBlock.extras`
    linear: Any  # rows of the output, see `stream_rows`
    begins: Any  # where rows begin in `linear`
    sources: Any  # see `LaneBlock`
    source_steps: Any


@inline(exact=True)
def gather_inputs(plan, extras, addresses, scratch, here, block):
    """Bring the inputs of a `BlockOfPanel` to planes, or note where its columns are.

    Extras of its lanes become rows: of how many rows each has, and of each extra input.
    """
    memory, lanes = scratch.memory, width(scratch.memory, ROW)
    for i in range(plan.num_inputs):
        place, plane = plan.places[i], shifted(memory, i * plan.plane_size)
        source, starts = pointer_to(addresses[i], memory[0]), shifted(here.starts, i * lanes)
        if plan.inner == 1:
            gather_rows(source, place, starts, here, plane, block.rows)
        else:
            source = shifted(source, starts[0] + block.lane * place.lane)
            scratch.sources[i], scratch.source_steps[i] = place_of(source, 0), place.step
            gather_columns(source, place, here, block, plane)
    for lane in range(lanes):
        scratch.extras[lane] = here.stop[lane]
        unit = block.unit + min(lane, block.count - 1) * block.unit_step
        for i in range(plan.num_extra_inputs):
            number = extras.inputs[unit * plan.num_extra_inputs + i]
            scratch.extras[(1 + i) * lanes + lane] = number


@inline(exact=True)
def scatter_outputs(plan, extras, addresses, scratch, here, block):
    """Write the output's plane, if there is one, and extra outputs; see `gather_inputs`.

    Direct blocks have been written already.
    """
    plane = shifted(scratch.memory, max(plan.output_plane, 0) * plan.plane_size)
    lanes, number = width(plane, ROW), plan.num_inputs
    target, starts = pointer_to(addresses[number], plane[0]), shifted(here.starts, number * lanes)
    for lane in range(block.count):
        unit = block.unit + lane * block.unit_step
        for i in range(plan.num_extra_outputs):
            number = scratch.extras[(1 + i) * lanes + lane]
            extras.outputs[unit * plan.num_extra_outputs + i] = number
    if plan.output_plane < 0 or block.is_direct:
        return
    if plan.inner > 1:
        step = plan.places[plan.num_inputs].step
        for k in range(block.most):
            row = load(plane, k * lanes, ROW)
            store(row, target, starts[0] + block.lane + k * step, block.count)
    elif plan.streams and block.count == lanes:
        begin = starts[0] + block.lane
        stream_rows(plane, target, begin, here.stop, scratch.linear, scratch.begins)
    else:
        scatter_rows(plane, target, starts, here.stop)


# ---------------------------------------------------------------- the driver


def run_panels(plan, extras, addresses, memory, lists, start, stop, failed):
    """Run a lane function on the panels from `start` to `stop`, exclusive.

    `memory` and `lists` point to scratch, of numbers and of whole numbers, `failed` to a number
    that is overwritten with whether a lane failed.
    """
    is_rows, output, lanes = plan.inner == 1, plan.num_inputs, width(memory, ROW)
    # In `memory`, behind the planes: failures, extras, `linear`.
    failures = shifted(memory, plan.planes_size)
    numbers = shifted(failures, lanes)
    linear = shifted(numbers, (1 + max(plan.num_extra_inputs, plan.num_extra_outputs)) * lanes)
    # In `lists`: those of two panels, then `begins`, sources and their steps.
    size = (plan.num_inputs + 1 + LISTS) * lanes
    begins = shifted(lists, 2 * size)
    sources, steps = shifted(begins, lanes), shifted(begins, lanes + INPUTS)
    scratch = BlockScratch(memory, numbers, linear, begins, sources, steps)
    # The next panel, `there`, is described early, since lanes prefetch it.
    here = lists_behind(lists, output + 1, lanes)
    there = lists_behind(shifted(lists, size), output + 1, lanes)
    for lane in range(lanes):
        failures[lane] = 0.0
    num_lanes, first_unit = describe_panel(plan, extras, start, here, lanes)
    for panel in range(start, stop):
        next_panel = min(panel + 1, plan.num_panels - 1)
        next_num_lanes, next_unit = describe_panel(plan, extras, next_panel, there, lanes)
        least, most = smallest_and_largest(here.stop, lanes)
        unit_step = 1 if is_rows else plan.num_chunks
        for lane in range(0, num_lanes, lanes):
            count = min(num_lanes - lane, lanes)
            is_direct = not is_rows and count == lanes
            part = BlockOfPanel(
                lane=lane,
                count=count,
                is_direct=is_direct,
                begin=here.first[0] if is_direct else 0,
                end=here.last[0] if is_direct else 0,
                rows=max(most + most % 2, 2),
                least=least,
                most=most,
                unit=first_unit + lane * unit_step,
                unit_step=unit_step,
            )
            gather_inputs(plan, extras, addresses, scratch, here, part)
            target = shifted(memory, max(plan.output_plane, 0) * plan.plane_size)
            target_step, output_rows, streams = lanes, part.rows, is_direct and plan.streams
            if is_direct:
                target_step, output_rows = plan.places[output].step, most
                at = here.starts[output * lanes] + lane
                target = shifted(pointer_to(addresses[output], memory[0]), at)
            if plan.output_plane < 0:
                output_rows = 0
            # Lines of the next panel are prefetched or, with `lines_across` 0, later rows of this.
            starts = there.starts if plan.lines_across > 0 else here.starts
            block = LaneBlock(
                memory=memory,
                plane_size=plan.plane_size,
                extras=numbers,
                failures=failures,
                shared=extras.shared,
                sources=(sources[0], sources[1], sources[2], sources[3], sources[4]),
                source_steps=(steps[0], steps[1], steps[2], steps[3], steps[4]),
                target=target,
                target_step=target_step,
                rows=part.rows,
                common_rows=least,
                begin=part.begin,
                end=part.end,
                output_rows=output_rows,
                streams=streams,
                plan=plan,
                addresses=addresses,
                starts=starts,
                first_line=lane // lanes * part.rows,  # blocks before ask for a line with each row
                first_lane=lane,
            )
            call_at(plan.lane_function, (block,))
            scatter_outputs(plan, extras, addresses, scratch, here, part)
        here, there = there, here
        num_lanes, first_unit = next_num_lanes, next_unit
    fence()
    failed[0] = 0
    for lane in range(lanes):
        failed[0] |= np.isnan(failures[lane])


def drive(plan, extras, addresses):
    """Run the lane function of a plan, and return whether no lane failed.

    `plan` and `extras` are addresses, `addresses` is int64: of the inputs and of the output.
    """
    facts = plan_at(plan)
    panels, run_at = facts.num_panels, facts.run_panels
    size, lists_offset = facts.scratch_bytes, facts.lists_offset
    parts = min(panels, PARTS)
    failed = np.zeros(parts, np.int64)
    for i in prange(parts):
        memory = np.empty(size + ROW_BYTES, np.uint8)
        begin = (memory.ctypes.data + ROW_BYTES - 1) & -ROW_BYTES
        pointers = plan, extras, addresses.ctypes.data, begin, begin + lists_offset
        some_panels = panels * i // parts, panels * (i + 1) // parts
        call_at(run_at, (*pointers, *some_panels, failed.ctypes.data + 8 * i))
        memory[0] = 0  # keeps it alive until now: an address does not
    return not failed.any()


DRIVERS = for_cores(drive, GRAIN, fastmath=EXACT)


# ---------------------------------------------------------------- compiled for a dtype


@functools.cache
def block_address(function: Callable[..., Any], dtype: str) -> int:
    """Return the address of a compiled lane function, which adds to the failures of its block."""
    number: Any = np.dtype(dtype).type

    def run_block(block):
        failures = function(block, number(block.plan.pivoting))
        store(load(block.failures, 0, ROW) + failures, block.failures, 0)

    run_block.__name__ = function.__name__
    return c_function(run_block, (LaneBlock.of(real=number).view,), fastmath=EXACT)


@functools.cache
def panels_address(dtype: str) -> int:
    """Return the address of `run_panels`, compiled for a dtype: all lane functions share it."""
    whole, number = types.int64, getattr(types, dtype)
    numbers, wholes = types.CPointer(number), types.CPointer(whole)
    structs = SolvePlan.view, NO_EXTRAS[np.dtype(dtype).type].view
    kinds = (*structs, wholes, numbers, wholes, whole, whole, wholes)
    return c_function(run_panels, kinds, fastmath=EXACT)
