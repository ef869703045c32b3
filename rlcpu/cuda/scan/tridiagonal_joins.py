"""Drivers that put the equations of chunks together, and take their unknowns apart again.

A group of neighbours is a chunk of chunks: a thread eliminates their inner unknowns as
`rlcpu.scan.tridiagonal.equations` does those of a whole system, in float64. Groups of groups
follow, until each system is one: a million unknowns take five rounds instead of 30,000 steps.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.scan.steps import device_step
from rlcpu.scan.tridiagonal.equations import (
    REST,
    WIDTH,
    Rest,
    close_ring,
    eliminate_column,
    enter_row,
)

#: Chunks of a group. More take longer one after the other, fewer more rounds.
GROUP = 8
PIVOTS = 2 * WIDTH  # numbers that are kept of a chunk that is put to those before it
_RHS = 6  # column of right-hand sides


@functools.cache
def join_kernel() -> Any:
    """Driver: (rests, count, systems, pivots, joined), a thread for each group of a system.

    `rests` is (12, systems * count), `joined` the same of the groups, overwritten; `pivots` is
    (16, systems * count), overwritten; all float64.
    """
    free, put = device_step(eliminate_column, np.float64), device_step(enter_row, np.float64)

    def read(rests: Any, at: Any, room: Any) -> Any:
        return (
            rests[at],
            rests[at + room],
            rests[at + 2 * room],
            rests[at + 3 * room],
            rests[at + 4 * room],
            rests[at + 5 * room],
        )

    def advance(work: Any, rests: Any, at: Any, room: Any, pivots: Any) -> Any:
        """One more chunk to those whose equations are the last two rows."""
        for i in range(2):
            for column in range(WIDTH):
                work[i, column] = work[2 + i, column]
            work[i, 2], work[i, 3] = work[i, 4], work[i, 5]
            work[i, 4], work[i, 5] = 0.0, 0.0
            put(work, 2 + i, read(rests, at + i * REST * room, room), (2, 3, 4, 5))
        free(work, 0, 2)
        free(work, 1, 3)
        for i in range(2):
            for column in range(WIDTH):
                pivots[at + (i * WIDTH + column) * room] = work[i, column]

    @kernel(dtype=np.float64, exact=True)
    def join(rests, count, systems, pivots, joined):
        work = cuda.local.array((4, WIDTH), np.float64)
        groups, room = (count + GROUP - 1) // GROUP, systems * count
        number = cuda.grid(1)
        if number < systems * groups:
            system, first = number // groups, number % groups * GROUP
            at = system * count + first
            for i in range(2):
                put(work, 2 + i, read(rests, at + i * REST * room, room), (0, 1, 4, 5))
            for j in range(1, min(GROUP, count - first)):
                advance(work, rests, at + j, room, pivots)
            for i in range(2):
                to = number + i * REST * systems * groups
                for column in (0, 1, 4, 5, 6, 7):
                    joined[to] = work[2 + i, column]
                    to += systems * groups

    return join


@functools.cache
def close_kernel() -> Any:
    """Driver: (rests, ends): first and last unknowns (2, systems) of what is one chunk each."""
    close = device_step(close_ring, np.float64)

    @kernel(dtype=np.float64, exact=True)
    def run(rests, ends):
        system, systems = cuda.grid(1), ends.size // 2
        if system < systems:
            one = Rest(
                rests[system],
                rests[system + systems],
                rests[system + 2 * systems],
                rests[system + 3 * systems],
                rests[system + 4 * systems],
                rests[system + 5 * systems],
            )
            two = Rest(
                rests[system + 6 * systems],
                rests[system + 7 * systems],
                rests[system + 8 * systems],
                rests[system + 9 * systems],
                rests[system + 10 * systems],
                rests[system + 11 * systems],
            )
            last, first = close(one, two)
            ends[system], ends[systems + system] = first, last

    return run


@functools.cache
def part_kernel() -> Any:
    """Driver: (joined, pivots, count, systems, ends): the reverse of `join_kernel`.

    From the first and last unknowns `joined` (2, groups of all systems) those of the chunks, `ends`
    (2, systems * count), overwritten.
    """

    @kernel(dtype=np.float64, exact=True)
    def part(joined, pivots, count, systems, ends):
        groups, room = (count + GROUP - 1) // GROUP, systems * count
        number = cuda.grid(1)
        if number < systems * groups:
            system, group = number // groups, number % groups
            begin, all_groups = system * groups, systems * groups
            before = joined[all_groups + begin + (group if group > 0 else groups) - 1]
            first, own = joined[number], joined[all_groups + number]
            after = joined[begin + (group + 1 if group + 1 < groups else 0)]
            at, size = system * count + group * GROUP, min(GROUP, count - group * GROUP)
            ends[at], ends[room + at + size - 1] = first, own
            for i in range(1, size):
                k = at + size - i
                two = k + WIDTH * room
                start = pivots[two + _RHS * room] - pivots[two] * before
                start -= pivots[two + room] * first + pivots[two + 4 * room] * own
                start -= pivots[two + 5 * room] * after
                end = pivots[k + _RHS * room] - pivots[k] * before
                end -= pivots[k + room] * first + pivots[k + 4 * room] * own
                end -= pivots[k + 5 * room] * after + pivots[k + 3 * room] * start
                ends[k], ends[room + k - 1] = start, end
                own, after = end, start

    return part
