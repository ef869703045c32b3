"""Blocks of lanes: what a lane function sees, and how it reads and writes.

A lane is a system, or a chunk of a long one. A block has as many lanes as a register has numbers.
A lane function works on the rows of a block, as vectors, in plain Python; `panels` calls it.
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

ONE = 1  # register of a vector
ROWS_AHEAD = 2  # rows between one that is asked for and one that is read, of long lanes


class LaneInput(NamedTuple):
    """An input of a lane function.

    Attributes:
        array: (outer, n, inner).
        other: 0 or 1, in the place of numbers that are not there.
        reach: -1 if equation k is about unknown k - 1, so that the first one means nothing and is
            never read; 1 if it is about k + 1, and the last one is never read; else 0.
        shift: equation k is number k + shift of the array; -1 and 1 want a reach of the same sign.
    """

    array: Any
    other: int = 0
    reach: int = 0
    shift: int = 0


class Lanes(NamedTuple):
    """A lane function, which `run` calls on blocks."""

    #: (block, pivoting) on vectors; overwrites rows of planes and returns zeros, NaN in the lanes
    #: that fail. Rows beyond a lane's stop are `Input.other`.
    function: Callable[..., Any]
    planes: int  # that it uses; the inputs are the first ones
    output: int = -1  # plane of the plan's output; -1 if nothing is written
    num_extra_inputs: int = 0  # numbers that go into each lane besides, see `extra_input`
    num_extra_outputs: int = 0  # numbers that come out besides, see `set_extra_output`


# ---------------------------------------------------------------- in memory


class SolvePlan(NamedTuple):
    """One call, for kernels: whole numbers.

    A panel is a block of rows, or several blocks of columns side by side.
    """

    run: Any  # address of `run_panels`
    function: Any  # address of the lane function
    inputs: Any  # number of inputs, whose places come first
    output: Any  # plane of the output, whose place is the last; -1 if nothing is written
    num_extra_inputs: Any  # numbers that go into each lane besides
    num_extra_outputs: Any  # numbers that come out of it besides
    outer: Any  # sizes of the arrays
    length: Any
    inner: Any
    chunks: Any  # of a system
    rows: Any  # of a chunk at most, rounded up to pairs
    periodic: Any  # whether the last equation is next to the first
    pivoting: Any  # 1 or 0, for the lane function
    plane: Any  # numbers of a plane
    planes: Any  # numbers of all planes
    scratch: Any  # bytes of numbers; lists of whole numbers follow
    memory: Any  # bytes of both
    panels: Any
    slices: Any  # panels side by side
    room: Any  # lanes of a panel
    head: Any  # lanes before the first whole line of the output, a panel of their own
    line: Any  # lines of a panel side by side, which are prefetched so; 0 for later rows of a block
    ahead: Any  # whether to prefetch
    stream: Any  # whether to write past the caches
    lengths: Any  # address of the length of each system, or 0
    shared: Any  # address of an array that all lanes read, or 0
    extra_inputs: Any  # address of what goes into lanes besides, float64 (systems, chunks, reads)
    extra_outputs: Any  # address of what comes out, float64 (systems, chunks, writes)


class StridedPointer(NamedTuple):
    """Pointer to an array, with strides in numbers."""

    address: Any
    outer: Any
    step: Any  # over the equations; 1 in rows
    lane: Any  # over systems side by side: 1, or 0 where a vector repeats one number
    reach: Any  # -1 or 1 if the first or last equation of a system has no such number
    other: Any  # number in the place of those


FIELDS = len(StridedPointer._fields)
PLAN: Any = kind_of(SolvePlan._make([types.int64] * len(SolvePlan._fields)))


@inline(exact=True)
def place_at(places, i):
    """Return the place of array i."""
    p = shifted(places, i * FIELDS)
    return StridedPointer(p[0], p[1], p[2], p[3], p[4], p[5])


class LaneBlock(NamedTuple):
    """Lanes, as many as a vector has numbers, and scratch of their own.

    With each row lines are prefetched: lines of the next panel, or later rows of long lanes. Line
    q of a panel of rows is number q % line of lane q // line, and of one of columns number
    q % line of row q // line: lines are asked for in the order of memory, which makes this pay.
    """

    memory: Any  # pointer to the planes, the inputs' first; rows of lanes
    plane: Any  # numbers of a plane
    extras: Any  # pointer to the lanes' stops, and what goes in and out besides
    trace: Any  # pointer to a row: NaN in lanes that failed
    sources: Any  # addresses of row 0 of each input, where `begin` and `end` say
    steps: Any  # numbers between their rows
    target: Any  # pointer to row 0 of the output
    target_step: Any
    rows: Any  # that the lane function computes
    least: Any  # rows that all lanes have
    begin: Any  # first row of inputs that is where `sources` says; other rows are in planes
    end: Any  # last one, exclusive
    written: Any  # rows of the output
    past: Any  # whether to write past the caches
    plan: Any  # view
    places: Any  # pointer, for prefetches: see `place_at`
    starts: Any  # pointer to `Lists.starts` of the panel to prefetch
    number: Any  # line that is prefetched with row 0
    column: Any  # lanes of the panel before this block


@inline(exact=True)
def get(block, plane, k):
    """Return row k of a plane."""
    return load(block.memory, plane * block.plane + k * width(block.memory, ONE), ONE)


@inline(exact=True)
def put(value, block, plane, k):
    """Overwrite row k of a plane."""
    store(value, block.memory, plane * block.plane + k * width(block.memory, ONE))


@inline(exact=True)
def read(block, i, k):
    """Return row k of input i, whose plane was not written to there."""
    if block.begin <= k < block.end:
        return load(pointer_to(block.sources[i], block.memory[0]), k * block.steps[i], ONE)
    return get(block, i, k)


@inline(exact=True)
def write(value, block, k):
    """Write row k of the output."""
    if k < block.written:
        if block.past != 0:
            stream(value, block.target, k * block.target_step)
        else:
            store(value, block.target, k * block.target_step)


@inline(exact=True)
def stops(block):
    """Return the number of rows of each lane, as a vector."""
    return load(block.extras, 0, ONE)


@inline(exact=True)
def extra_input(block, i):
    """Return number i of those that go into each lane besides."""
    return load(block.extras, (1 + i) * width(block.extras, ONE), ONE)


@inline(exact=True)
def set_extra_output(value, block, i):
    """Set number i of those that come out of each lane besides."""
    store(value, block.extras, (1 + i) * width(block.extras, ONE))


@inline(exact=True)
def prefetch_row(block, inputs, number, later):
    """Prefetch a row of so many inputs; called once for each row that is read.

    Args:
        block: of which rows are read.
        inputs: number of them.
        number: of the call.
        later: row that is read soon.
    """
    if block.plan.ahead == 0:
        return
    lanes, per, is_rows = width(block.memory, ONE), block.plan.line, block.plan.inner == 1
    lane, row, column = 0, later, block.column
    if per > 0:
        line = block.number + number
        major: Any = np.int64(np.uint32(line) // np.uint32(per))
        minor = (line - major * per) * lanes
        if is_rows:
            lane, row, column = major, minor, 0
        else:
            row, column = major, minor
    for i in range(inputs):
        place = place_at(block.places, i)
        source = pointer_to(place.address, block.memory[0])
        at = block.starts[i * lanes + lane] + row * place.step + column * place.lane
        if is_rows:  # the first cache holds this panel and little more
            prefetch_far(source, at)
        else:
            prefetch(source, at)
            if per == 0:  # lanes of two lines
                prefetch(source, at + lanes - 1)
