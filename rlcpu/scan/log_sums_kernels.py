"""Drivers of `logcumsumexp`: tiles of steps and lanes, each lane's steps side by side in a buffer.

A state is a maximum m and a sum s: log(exp(x_0) + ... + exp(x_t)) = m + log(s). Of a tile's lane,
all exponentials are relative to one maximum, so that a number takes one exponential and one
logarithm, both in vectors; only the sum goes step by step.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import prange

from rlcpu.kernels.compile import EXACT, inline, inline_exact, kernel
from rlcpu.kernels.maths64 import exp64, log64
from rlcpu.kernels.threads import Kernels

STEPS = 256  # of a tile: 2 KB stay in the first cache
LANES = 8  # of a tile: a cache line of float64
LONG = 2**15  # steps of a lone row from which two passes in parallel take less time than one
SEGMENT = 2**13  # steps of a part of such a row
GRAIN = 2**14  # numbers, 40 us, from which a second core is worth waking
#: How far the first sum of a tile may lie below its maximum: x - m is rounded to 2**-50 then.
_SPREAD = 8.0


def advance(m: float, s: float, x: float) -> tuple[float, float]:
    """The state after one more number, whatever it is."""
    if math.isnan(x) or math.isnan(m):
        return math.nan, 1.0
    if x == -math.inf:
        return m, s
    if x > m:
        return x, 1.0 if x == math.inf or s == 0.0 else s * math.exp(m - x) + 1.0
    return m, s if m == math.inf else s + math.exp(x - m)


def merge(m: float, s: float, n: float, t: float) -> tuple[float, float]:
    """The state of all numbers of two."""
    if math.isnan(m) or math.isnan(n):
        return math.nan, 1.0
    if t == 0.0 or m == math.inf:
        return m, s
    if s == 0.0 or n == math.inf:
        return n, t
    return (m, s + t * math.exp(n - m)) if m >= n else (n, s * math.exp(m - n) + t)


def level(m: float, s: float) -> float:
    """Logarithm of the sum that a state stands for: m + log(s)."""
    return m + math.log(s) if s > 0.0 else m


_advance, _level, _merge = inline_exact(advance), inline_exact(level), inline_exact(merge)


@inline_exact
def _highest(numbers, count):  # type: ignore[no-untyped-def]
    """The largest of the numbers; +inf if any is NaN."""
    found, strange = -np.inf, 0
    for i in range(count):
        found = max(found, numbers[i])
        strange += numbers[i] != numbers[i]
    return np.inf if strange else found


@inline_exact
def _exponentials(numbers, count, highest):  # type: ignore[no-untyped-def]
    for i in range(count):
        numbers[i] = exp64(numbers[i] - highest)


@inline_exact
def _sums(numbers, count, s):  # type: ignore[no-untyped-def]
    """Overwrite numbers by their cumulative sums, s included; returns the last one."""
    # Four chains of additions side by side: one would wait for every step.
    n = count // 4
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        a, b, c, d = (
            a + numbers[i],
            b + numbers[n + i],
            c + numbers[2 * n + i],
            d + numbers[3 * n + i],
        )
        numbers[i], numbers[n + i], numbers[2 * n + i], numbers[3 * n + i] = a, b, c, d
    for part, total in enumerate((a, b, c, d)):
        _raise(numbers[part * n : (part + 1) * n], s)
        s += total
    for i in range(4 * n, count):
        s += numbers[i]
        numbers[i] = s
    return s


@inline_exact
def _raise(numbers, by):  # type: ignore[no-untyped-def]
    for i in range(numbers.size):
        numbers[i] += by


@inline_exact
def _logarithms(numbers, count, highest):  # type: ignore[no-untyped-def]
    for i in range(count):
        numbers[i] = highest + log64(numbers[i])


@inline_exact
def _one_by_one(numbers, count, m, s):  # type: ignore[no-untyped-def]
    for i in range(count):
        m, s = _advance(m, s, numbers[i])
        numbers[i] = _level(m, s)
    return m, s


@inline_exact
def _lane(numbers, count, m, s):  # type: ignore[no-untyped-def]
    """Overwrite numbers by results; returns the state after them."""
    highest = max(_highest(numbers, count), m)
    first = max(m, numbers[0])
    if not (highest < np.inf and first >= highest - _SPREAD):  # also where m is NaN or -inf
        return _one_by_one(numbers, count, m, s)
    s = s * math.exp(m - highest) if s > 0.0 else 0.0
    _exponentials(numbers, count, highest)
    s = _sums(numbers, count, s)
    _logarithms(numbers, count, highest)
    return highest, s


@inline  # the order of additions is free
def _sum(numbers, count):  # type: ignore[no-untyped-def]
    s = 0.0
    for i in range(count):
        s += numbers[i]
    return s


@inline_exact
def _total(numbers, count, m, s):  # type: ignore[no-untyped-def]
    """The state after the numbers, which are overwritten."""
    highest = max(_highest(numbers, count), m)
    if not -np.inf < highest < np.inf:
        return _one_by_one(numbers, count, m, s)
    s = s * math.exp(m - highest) if s > 0.0 else 0.0
    _exponentials(numbers, count, highest)
    return highest, s + _sum(numbers, count)


@inline_exact
def _read(x, begin, time, lane, tile, count, lanes):  # type: ignore[no-untyped-def]
    """A tile into rows of the buffer, one for each lane."""
    if lanes == 1 and time == 1:
        row, numbers = tile[0], x[begin : begin + count]
        for k in range(count):
            row[k] = numbers[k]
    else:
        for k in range(count):
            for i in range(lanes):
                tile[i, k] = x[begin + k * time + i * lane]


@inline_exact
def _write(tile, count, lanes, out, begin, time, lane):  # type: ignore[no-untyped-def]
    if lanes == 1 and time == 1:
        row, numbers = tile[0], out[begin : begin + count]
        for k in range(count):
            numbers[k] = row[k]
    else:
        for k in range(count):
            for i in range(lanes):
                out[begin + k * time + i * lane] = tile[i, k]


@inline_exact
def _place(plan, unit):  # type: ignore[no-untyped-def]
    """Outer index, part, first lane and number of lanes of a unit of work."""
    groups = (plan[2] + LANES - 1) // LANES
    group, part, outer = unit % groups, unit // groups % plan[3], unit // groups // plan[3]
    return outer, part, group * LANES, min(LANES, plan[2] - group * LANES)


def _make_unit(writes: bool) -> Any:
    """Function: all steps of a few lanes, or of a part of them; with or without results."""

    @inline_exact
    def unit(x, plan, states, out, place):  # type: ignore[no-untyped-def]
        outer, part, lane, lanes = place
        reverse, length = plan[5] != 0, plan[4]
        tile = np.empty((LANES, STEPS))
        first, stop = part * length, min((part + 1) * length, plan[1])
        done = 0
        while done < stop - first:
            count = min(STEPS, stop - first - done)
            # In reverse the last step comes first: strides change their sign.
            begin = stop - 1 - done if reverse else first + done
            x_at = outer * plan[6] + begin * plan[7] + lane * plan[8]
            _read(x, x_at, -plan[7] if reverse else plan[7], plan[8], tile, count, lanes)
            for i in range(lanes):
                m, s = states[0, outer, part, lane + i], states[1, outer, part, lane + i]
                m, s = _lane(tile[i], count, m, s) if writes else _total(tile[i], count, m, s)
                states[0, outer, part, lane + i], states[1, outer, part, lane + i] = m, s
            if writes:
                at = outer * plan[9] + begin * plan[10] + lane * plan[11]
                time = -plan[10] if reverse else plan[10]
                _write(tile, count, lanes, out, at, time, plan[11])
            done += count

    return unit


def _make_scan(parallel: bool) -> Any:
    unit = _make_unit(True)

    @kernel(parallel=parallel, fastmath=EXACT)
    def scan(x, plan, states, out):  # type: ignore[no-untyped-def]
        for k in prange(plan[0] * plan[3] * ((plan[2] + LANES - 1) // LANES)):
            unit(x, plan, states, out, _place(plan, k))

    return scan


def _make_totals(parallel: bool) -> Any:
    unit = _make_unit(False)

    @kernel(parallel=parallel, fastmath=EXACT)
    def totals(x, plan, states):  # type: ignore[no-untyped-def]
        for k in prange(plan[0] * plan[3] * ((plan[2] + LANES - 1) // LANES)):
            unit(x, plan, states, x, _place(plan, k))
        reverse, parts = plan[5] != 0, plan[3]
        for outer in range(plan[0]):
            for lane in range(plan[2]):
                m, s = -np.inf, 0.0
                for k in range(parts):
                    part = parts - 1 - k if reverse else k
                    n, t = states[0, outer, part, lane], states[1, outer, part, lane]
                    states[0, outer, part, lane], states[1, outer, part, lane] = m, s
                    m, s = _merge(m, s, n, t)

    return totals


@functools.cache
def scan_kernels() -> Kernels:
    """(x, plan, states, out): results, from the state before each part.

    `plan` is int64: outer, num_steps, inner, parts, steps of a part, reverse, and the strides of x
    and out over outer indices, steps and lanes. `states` is (2, outer, parts, inner), overwritten.
    """
    return Kernels(_make_scan(False), _make_scan(True), GRAIN)


@functools.cache
def total_kernels() -> Kernels:
    """(x, plan, states): maximum and sum of all parts before each."""
    return Kernels(_make_totals(False), _make_totals(True), GRAIN)
