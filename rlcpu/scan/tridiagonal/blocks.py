"""Blocks of lanes: what a lane function sees, and how it reads and writes.

A lane is a system, or a chunk of a long one. A block has as many lanes as a register has numbers,
and a row of it is a vector: equation k of each lane. A lane function, plain Python, computes the
rows of one block; `panels` fills blocks and calls it. Arrays are (outer, n, inner): equations along
the axis of n, systems along the other two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types

from rlcpu.kernels.calls import kind_of
from rlcpu.kernels.compile import inline
from rlcpu.kernels.memory import load, pointer_to, prefetch, prefetch_far, shifted, store, stream
from rlcpu.kernels.vectors import width

ONE = 1  # number of registers of a vector, for loads and stores
ROWS_AHEAD = 2  # rows between the one that is prefetched and the one that is read, of long lanes


class LaneInput(NamedTuple):
    """An array that a lane function reads."""

    array: Any  # (outer, n, inner)
    fill_value: int = 0  # 0 or 1, in the place of numbers that a lane does not have
    #: -1 if the array holds coefficients of the unknown before, so that the first one of a system
    #: means nothing and is never read; 1 if of the unknown after, and the last one is never read;
    #: else 0.
    neighbour: int = 0
    #: Equation k has number k + shift of the array; -1 and 1 want a neighbour of the same sign.
    shift: int = 0


class LaneFunction(NamedTuple):
    """A function that computes a block of lanes, and the memory that it wants."""

    #: (block, pivoting) -> a vector of zeros, NaN in the lanes that fail. `block` is a `LaneBlock`,
    #: whose planes it overwrites; `pivoting` is 1 or 0. Rows beyond a lane's end hold fill values.
    function: Callable[..., Any]
    planes: int  # number of planes that it uses; the inputs are the first ones
    output: int = -1  # plane of the output; -1 if nothing is written
    num_extra_inputs: int = 0  # numbers that go into each lane besides, see `extra_input`
    num_extra_outputs: int = 0  # numbers that come out besides, see `set_extra_output`


@inline(exact=True, plain=True)
def count_chunks(length: Any, rows: Any) -> Any:
    """Return how many chunks of at most so many rows a system has; all are about as long."""
    return (length + rows - 1) // rows


# ---------------------------------------------------------------- in memory


class SolvePlan(NamedTuple):
    """One call for kernels: whole numbers. Sizes are in numbers unless bytes are named.

    A unit of work is a panel: one block of rows, or several blocks of columns side by side.
    """

    run_panels: Any  # address of the function of this name
    lane_function: Any  # address of the compiled `LaneFunction.function`
    num_inputs: Any  # number of inputs, whose places come first
    output_plane: Any  # plane of the output, whose place is the last; -1 if nothing is written
    num_extra_inputs: Any  # see `LaneFunction`
    num_extra_outputs: Any
    outer: Any  # sizes of the arrays
    length: Any
    inner: Any
    num_chunks: Any  # of a system
    chunk_rows: Any  # rows of a chunk at most, rounded up to pairs
    periodic: Any  # whether the last equation is next to the first
    pivoting: Any  # 1 or 0, for the lane function
    plane_size: Any
    planes_size: Any  # of all planes
    lists_offset: Any  # bytes of scratch memory before lists of whole numbers
    scratch_bytes: Any
    num_panels: Any
    panels_across: Any  # panels of columns side by side
    panel_lanes: Any
    head_lanes: Any  # lanes before the first whole line of the output, a panel of their own
    lines_across: Any  # cache lines of a panel's lane or row, prefetched in turn; 0: rows ahead
    prefetches: Any  # whether to prefetch
    streams: Any  # whether to write past the caches
    lengths: Any  # address of the length of each system, or 0
    shared: Any  # address of an array that all lanes read, or 0
    extra_inputs: Any  # address of what goes into lanes, float64 (systems, chunks, numbers)
    extra_outputs: Any  # address of what comes out of lanes, likewise


class StridedPointer(NamedTuple):
    """An input or the output, (outer, n, inner) in memory; strides in numbers.

    `neighbour` and `fill_value` are those of `LaneInput`.
    """

    address: Any
    outer: Any
    step: Any  # stride over the equations; 1 in rows
    lane: Any  # stride over systems side by side: 1, or 0 where a vector repeats one number
    neighbour: Any
    fill_value: Any


FIELDS = len(StridedPointer._fields)
#: Numba's type of a `SolvePlan`.
PLAN: Any = kind_of(SolvePlan._make([types.int64] * len(SolvePlan._fields)))


@inline(exact=True)
def array_place(places, i):
    """Return the `StridedPointer` of array i; `places` points to their numbers."""
    p = shifted(places, i * FIELDS)
    return StridedPointer(p[0], p[1], p[2], p[3], p[4], p[5])


class LaneBlock(NamedTuple):
    """Lanes, as many as a vector has numbers, as a lane function sees them.

    Numbers are in planes of scratch memory, whose row k is a vector: equation k of all lanes. Full
    blocks of columns are read and written where they lie in the arrays, but for their ends.
    """

    memory: Any  # pointer to the planes, the inputs' first
    plane_size: Any
    extras: Any  # pointer to rows: the number of rows of each lane, then extra inputs or outputs
    failures: Any  # pointer to a row: NaN in lanes that failed
    sources: Any  # address of row 0 of each input, for rows from `begin` to `end`
    source_steps: Any  # numbers between an input's rows
    target: Any  # pointer to row 0 of the output
    target_step: Any
    rows: Any  # rows that the lane function computes
    common_rows: Any  # rows that all lanes have
    begin: Any  # first row of inputs that is where `sources` says; other rows are in planes
    end: Any  # last one, exclusive
    output_rows: Any  # rows of the output that are written
    streams: Any  # whether to write past the caches
    plan: Any  # view of the `SolvePlan`
    places: Any  # pointer, see `array_place`; this and the rest are for prefetches
    starts: Any  # pointer to `LaneLists.starts` of the panel to prefetch
    first_line: Any  # line of that panel that is prefetched with row 0
    first_lane: Any  # lanes of the panel before this block


@inline(exact=True)
def load_row(block, plane, k):
    """Return row k of a plane, a vector."""
    return load(block.memory, plane * block.plane_size + k * width(block.memory, ONE), ONE)


@inline(exact=True)
def store_row(value, block, plane, k):
    """Overwrite row k of a plane."""
    store(value, block.memory, plane * block.plane_size + k * width(block.memory, ONE))


@inline(exact=True)
def read_input(block, i, k):
    """Return row k of input i, of which the lane function has not overwritten the plane."""
    if block.begin <= k < block.end:
        return load(pointer_to(block.sources[i], block.memory[0]), k * block.source_steps[i], ONE)
    return load_row(block, i, k)


@inline(exact=True)
def write_output(value, block, k):
    """Write row k of the output."""
    if k < block.output_rows:
        if block.streams != 0:
            stream(value, block.target, k * block.target_step)
        else:
            store(value, block.target, k * block.target_step)


@inline(exact=True)
def lane_rows(block):
    """Return the number of rows of each lane, as a vector."""
    return load(block.extras, 0, ONE)


@inline(exact=True)
def extra_input(block, i):
    """Return extra input i of each lane, as a vector."""
    return load(block.extras, (1 + i) * width(block.extras, ONE), ONE)


@inline(exact=True)
def set_extra_output(value, block, i):
    """Set extra output i of each lane to the numbers of a vector."""
    store(value, block.extras, (1 + i) * width(block.extras, ONE))


@inline(exact=True)
def prefetch_row(block, num_inputs, call, later_row):
    """Prefetch a part of the first inputs; called once for each row that a lane function reads.

    What is asked for is the next panel, line by line in the order of memory, which makes this pay.
    Of a panel of rows line q is number q % lines_across of lane q // lines_across; of one of
    columns it is number q % lines_across of row q // lines_across. Where a panel does not fit the
    cache, `lines_across` is 0 and a later row of this block is asked for. `call` is the number of
    this call, from 0 on, `later_row` a row of this block that is read soon.
    """
    if block.plan.prefetches == 0:
        return
    lanes, lines_across = width(block.memory, ONE), block.plan.lines_across
    is_rows = block.plan.inner == 1
    lane, row, column = 0, later_row, block.first_lane
    if lines_across > 0:
        line = block.first_line + call
        # In 32 bits: to divide by a number that is not constant takes longer in 64.
        major: Any = np.int64(np.uint32(line) // np.uint32(lines_across))
        minor = (line - major * lines_across) * lanes
        if is_rows:
            lane, row, column = major, minor, 0
        else:
            row, column = major, minor
    for i in range(num_inputs):
        place = array_place(block.places, i)
        source = pointer_to(place.address, block.memory[0])
        at = block.starts[i * lanes + lane] + row * place.step + column * place.lane
        if is_rows:  # the first cache holds this panel and little more
            prefetch_far(source, at)
        else:
            prefetch(source, at)
            if lines_across == 0:  # lanes of two lines
                prefetch(source, at + lanes - 1)
