"""Driver of scans along contiguous rows: a block takes a piece of a row, tile by tile.

A scan is a state for every number, and the merging of two states, the earlier one first. A thread
merges a few numbers, the block what its threads found. Of a few long rows every block takes a part:
a first pass finds the state of each, so that a row is read twice and written once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.launch import launch_grid
from rlcpu.cuda.provider import SIMULATED, cuda
from rlcpu.cuda.scan.machine import machine

#: Threads of a block, which the simulator starts one by one, and most parts of a row.
THREADS = 16 if SIMULATED else 256
ITEMS = 8  # numbers of a thread in a tile: 40 KB of float64 pairs leave room for five blocks
TILE = THREADS * ITEMS
_PITCH = ITEMS + 1  # so that threads that read their own numbers find them in different banks

_TILES, _STATES = (2, THREADS * _PITCH), (2, THREADS)


class Scan(NamedTuple):
    """One kind of scan; states are pairs of real numbers.

    Attributes:
        load: (inputs, row, k, num_steps) -> state of number k of a row.
        start: (inputs, row) -> state before a row.
        merge: (m, s, n, t) -> state of what two states stand for, the earlier one first.
        value: (m, s) -> result.
        empty: state of nothing.
        dtype: of the states.
        advance: (m, s, n, t) -> state after one more number, by the recurrence itself. Where a
            merged state is not finite, numbers are taken one after the other by it: an infinity
            or NaN would spread to steps that it does not reach. None if merging is exact there.
    """

    load: Callable[..., Any]
    start: Callable[..., Any]
    merge: Callable[..., Any]
    value: Callable[..., Any]
    empty: tuple[float, float]
    dtype: Any
    advance: Callable[..., Any] | None = None


class Drivers(NamedTuple):
    """The two passes, with a block for each part of each row.

    Attributes:
        totals: (first, second, initial, num_steps, parts, length, reverse, states): the state of
            every part of `length` steps to states, (rows, parts, 2).
        scan: (first, second, initial, num_steps, parts, length, reverse, states, out): results,
            from the states of the parts before each.
    """

    totals: Any
    scan: Any


def _make_prefix(scan: Scan) -> Any:
    """Function: what all threads before this one found, and what all found, by the whole block."""
    merge, (m0, s0) = scan.merge, scan.empty

    def prefix(m: Any, s: Any, states: Any) -> Any:
        own = cuda.threadIdx.x
        states[0, own], states[1, own] = m, s
        cuda.syncthreads()
        distance = 1
        while distance < THREADS:
            n, t = m, s
            if own >= distance:
                n, t = merge(states[0, own - distance], states[1, own - distance], m, s)
            cuda.syncthreads()
            m, s = n, t
            states[0, own], states[1, own] = m, s
            cuda.syncthreads()
            distance *= 2
        last = states[0, THREADS - 1], states[1, THREADS - 1]
        before = (states[0, own - 1], states[1, own - 1]) if own > 0 else (m0, s0)
        cuda.syncthreads()
        return before, last

    return prefix


def _make_fill(scan: Scan) -> Any:
    """Function: the states of a tile to shared memory, in whole lines; empty beyond the end."""
    load, (m0, s0) = scan.load, scan.empty

    def fill(
        inputs: Any, row: Any, begin: Any, end: Any, steps: Any, reverse: Any, tile: Any
    ) -> Any:
        for i in range(ITEMS):
            number = i * THREADS + cuda.threadIdx.x
            m, s = m0, s0
            if begin + number < end:
                k = begin + number
                m, s = load(inputs, row, steps - 1 - k if reverse else k, steps)
            thread, item = number // ITEMS, number % ITEMS
            tile[0, thread * _PITCH + item], tile[1, thread * _PITCH + item] = m, s
        cuda.syncthreads()

    return fill


def _make_own(scan: Scan) -> Any:
    """Function: the state of a thread's numbers of a tile."""
    merge, (m0, s0) = scan.merge, scan.empty

    def own_state(tile: Any) -> Any:
        m, s = m0, s0
        for i in range(cuda.threadIdx.x * _PITCH, cuda.threadIdx.x * _PITCH + ITEMS):
            m, s = merge(m, s, tile[0, i], tile[1, i])
        return m, s

    return own_state


def make_drivers(scan: Scan) -> Drivers:
    """The kernels of a scan."""
    return Drivers(_make_totals(scan), _make_scan(scan))


def _make_totals(scan: Scan) -> Any:
    fill, own_state, prefix = _make_fill(scan), _make_own(scan), _make_prefix(scan)
    merge, (m0, s0), dtype = scan.merge, scan.empty, scan.dtype

    @kernel(dtype=dtype, exact=True)
    def totals(first, second, initial, steps, parts, length, reverse, states):
        tile = cuda.shared.array(_TILES, dtype)
        found = cuda.shared.array(_STATES, dtype)
        row, part = cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        m, s = m0, s0
        end = min((part + 1) * length, steps)
        for begin in range(part * length, end, TILE):
            fill((first, second, initial), row, begin, end, steps, reverse, tile)
            own = own_state(tile)
            _, last = prefix(own[0], own[1], found)
            m, s = merge(m, s, last[0], last[1])
        if cuda.threadIdx.x == 0:
            at = 2 * cuda.blockIdx.x
            states[at], states[at + 1] = m, s

    return totals


def _make_is_broken(scan: Scan) -> Any:
    """Function: whether any thread has a state that is not finite, if that matters."""
    matters = scan.advance is not None

    def is_broken(m: Any, s: Any, n: Any, t: Any) -> Any:
        if not matters:
            return False
        found = (m - m) + (s - s) + (n - n) + (t - t)
        return cuda.syncthreads_or(1 if found != 0 else 0) != 0

    return is_broken


def _make_finish(scan: Scan) -> Any:
    """Functions: results in place of a tile's states, by all threads, or by one."""
    merge, value, advance = scan.merge, scan.value, scan.advance or scan.merge

    def finish(tile: Any, m: Any, s: Any) -> Any:
        for i in range(cuda.threadIdx.x * _PITCH, cuda.threadIdx.x * _PITCH + ITEMS):
            m, s = merge(m, s, tile[0, i], tile[1, i])
            tile[0, i] = value(m, s)
        cuda.syncthreads()

    def finish_alone(tile: Any, m: Any, s: Any, count: Any, states: Any) -> Any:
        if cuda.threadIdx.x == 0:
            for number in range(count):
                i = number // ITEMS * _PITCH + number % ITEMS
                m, s = advance(m, s, tile[0, i], tile[1, i])
                tile[0, i] = value(m, s)
            states[0, 0], states[1, 0] = m, s
        cuda.syncthreads()
        last = states[0, 0], states[1, 0]
        cuda.syncthreads()
        return last

    return finish, finish_alone


def _make_begin(scan: Scan) -> Any:
    """Function: the state before a part of a row, and whether parts cannot be put together."""
    prefix, is_broken = _make_prefix(scan), _make_is_broken(scan)
    merge, start, (m0, s0) = scan.merge, scan.start, scan.empty

    def begin(inputs: Any, row: Any, part: Any, parts: Any, states: Any, found: Any) -> Any:
        own, first = cuda.threadIdx.x, start(inputs, row)
        m, s = m0, s0
        if own + 1 < parts:  # nobody waits for the last part
            at = 2 * (row * parts + own)
            m, s = states[at], states[at + 1]
        before, _ = prefix(m, s, found)
        n, t = merge(first[0], first[1], before[0], before[1])
        broken = is_broken(before[0], before[1], n, t)
        if own == part:
            found[0, 0], found[1, 0] = n, t
        cuda.syncthreads()
        if part > 0 and not broken:
            first = found[0, 0], found[1, 0]
        cuda.syncthreads()
        return first, broken

    return begin


def _make_scan(scan: Scan) -> Any:
    fill, own_state, prefix = _make_fill(scan), _make_own(scan), _make_prefix(scan)
    open_part, is_broken, (finish, finish_alone) = (
        make(scan) for make in (_make_begin, _make_is_broken, _make_finish)
    )
    merge, dtype = scan.merge, scan.dtype

    def write(tile: Any, row: Any, begin: Any, end: Any, steps: Any, reverse: Any, out: Any) -> Any:
        for i in range(ITEMS):
            number = i * THREADS + cuda.threadIdx.x
            if begin + number < end:
                k = begin + number
                at = row * steps + (steps - 1 - k if reverse else k)
                out[at] = tile[0, number // ITEMS * _PITCH + number % ITEMS]
        cuda.syncthreads()

    @kernel(dtype=dtype, exact=True)
    def scan_rows(first, second, initial, steps, parts, length, reverse, states, out):
        tile = cuda.shared.array(_TILES, dtype)
        found = cuda.shared.array(_STATES, dtype)
        row, part = cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        inputs = first, second, initial
        (m, s), broken = open_part(inputs, row, part, parts, states, found)
        at, end = part * length, min((part + 1) * length, steps)
        if broken:  # the first part's block takes the whole row
            at, end = (0, steps) if part == 0 else (0, 0)
        for begin in range(at, end, TILE):
            fill(inputs, row, begin, end, steps, reverse, tile)
            mine = own_state(tile)
            before, last = prefix(mine[0], mine[1], found)
            n, t = merge(m, s, before[0], before[1])
            after = merge(m, s, last[0], last[1])
            if is_broken(n, t, after[0], after[1]):
                m, s = finish_alone(tile, m, s, min(end - begin, TILE), found)
            else:
                finish(tile, n, t)
                m, s = after
            write(tile, row, begin, end, steps, reverse, out)

    return scan_rows


def scan_rows(
    drivers: Drivers, inputs: tuple[DeviceArray, ...], reverse: bool, out: DeviceArray, state: Any
) -> None:
    """Overwrite `out`, (rows, num_steps), whose rows are contiguous; returns before that is done.

    Args:
        drivers: of `make_drivers`.
        inputs: what its `load` and `start` read, three arrays.
        reverse: begin at the end.
        out: the result.
        state: dtype of the states.
    """
    rows, steps = out.shape
    tiles = -(-steps // TILE)
    wanted = -(-2 * machine().multiprocessors // rows)
    each = -(-tiles // min(tiles, wanted, THREADS))
    parts = -(-tiles // each)
    states = arrays.empty(2 * rows * parts, np.dtype(state))
    arguments = (*inputs, steps, parts, each * TILE, reverse, states)
    if parts > 1:
        launch_grid(drivers.totals, rows * parts, THREADS, *arguments)
    launch_grid(drivers.scan, rows * parts, THREADS, *arguments, out)
