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

from rlcpu.kernels.compile import EXACT, c_function, kernel
from rlcpu.kernels.memory import (
    address,
    call_at,
    fence,
    load,
    pointer_to,
    prefetch,
    shifted,
    store,
    stream,
)
from rlcpu.kernels.threads import Kernels, launch
from rlcpu.kernels.vectors import VECTOR_BYTES, fill, width
from rlcpu.scan.gather import ONE, enter, scatter
from rlcpu.scan.plans import (
    AHEAD,
    AXES,
    COUNT,
    FIELDS,
    FUNCTION,
    HEADER,
    INPUTS,
    LANES,
    LISTS,
    NUMBER,
    OUTPUTS,
    PANEL,
    PLACE,
    PLANES,
    READS,
    ROWS,
    RUN,
    SOURCES,
    STEP,
    STREAM,
    WRITE,
    WRITES,
    Array,
    find,
    inlined,
    shape_of,
)

GRAIN = 2**14  # numbers from which a second core is worth waking
PARTS = 64  # that cores take in turn
SOON = 2  # rows between one that is asked for and one that is read, of long lanes

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


# ---------------------------------------------------------------- the driver

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
