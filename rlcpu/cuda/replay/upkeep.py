"""Drivers of the upkeep of a tree: check, write leaves, recompute what is above them.

Nothing is read back between them: where an index or a priority is bad, the first one leaves its
position, and those after it write nothing. Parents are always recomputed from all of their
children, and two threads that recompute one parent write the same number.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from rlcpu.cuda.compile import kernel
from rlcpu.cuda.provider import SIMULATED, cuda
from rlcpu.cuda.replay.nodes import WIDTH, total

#: Position of the first bad pair if there is none.
GOOD = np.int64(2**62)
#: Most threads of the block that recomputes the upper levels; the simulator starts each of them.
TOP = 32 if SIMULATED else 512


@functools.cache
def claim_kernel() -> Any:
    """(indices, priorities, capacity, length, filled, most, stamps, bad): whose write counts.

    `indices` is (n,) int64, `priorities` (n,) or (1,), real. `stamps` is (capacity,) int32 of
    zeros, `stamps[i]` becomes 1 + the last position of index i. `bad` is (1,) int64, lowered to
    the first position of a bad pair: an index outside [0, capacity), or among the last of each
    `length` of which only the first `filled` are there; a priority outside [0, most].
    """

    @kernel(exact=True)
    def claim(indices, priorities, capacity, length, filled, most, stamps, bad):
        k = cuda.grid(1)
        if k < indices.size:
            index, priority = indices[k], priorities[k if priorities.size > 1 else 0]
            inside = 0 <= index < capacity
            if inside:
                cuda.atomic.max(stamps, index, np.int32(k + 1))
            # NaN is in no range.
            if not (inside and index % length < filled and 0 <= priority <= most):
                cuda.atomic.min(bad, 0, np.int64(k))

    return claim


@functools.cache
def write_kernel() -> Any:
    """(indices, leaves, capacity, stamps, bad, numbers, largest): leaves, and zeros to `stamps`.

    `leaves` is (n,) or (1,), real. `largest` is (1,) float64, raised to the largest leaf written.
    """

    @kernel(exact=True)
    def write(indices, leaves, capacity, stamps, bad, numbers, largest):
        k = cuda.grid(1)
        if k < indices.size:
            index, leaf = indices[k], np.float64(leaves[k if leaves.size > 1 else 0])
            good = bad[0] == GOOD
            if 0 <= index < capacity and stamps[index] == k + 1:
                stamps[index] = 0
                if good:
                    numbers[index] = leaf
            # An atomic operation of every thread on one number would take longer than all else.
            if good and leaf > largest[0]:
                cuda.atomic.max(largest, 0, leaf)

    return write


@functools.cache
def raise_kernel() -> Any:
    """(priorities, epsilon, alpha, out): (priority + epsilon) ** alpha, float64."""

    @kernel(dtype=np.float64, exact=True)
    def power(priorities, epsilon, alpha, out):
        k = cuda.grid(1)
        if k < out.size:
            out[k] = math.pow(np.float64(priorities[k]) + epsilon, alpha)

    return power


@functools.cache
def refresh_some_kernel() -> Any:
    """(indices, capacity, offsets, level, numbers): recompute the entries above some leaves."""

    @kernel(exact=True)
    def refresh(indices, capacity, offsets, level, numbers):
        k = cuda.grid(1)
        if k < indices.size:
            node = indices[k]
            if 0 <= node < capacity:
                for _ in range(level):
                    node //= WIDTH
                numbers[offsets[level] + node] = total(numbers, offsets[level - 1] + node * WIDTH)

    return refresh


@functools.cache
def refresh_all_kernel() -> Any:
    """(offsets, level, numbers): recompute a whole level."""

    @kernel(exact=True)
    def refresh(offsets, level, numbers):
        node = cuda.grid(1)
        begin = offsets[level - 1]
        if node < (offsets[level] - begin) // WIDTH:
            numbers[offsets[level] + node] = total(numbers, begin + node * WIDTH)

    return refresh


@functools.cache
def finish_kernel() -> Any:
    """(offsets, level, numbers, bad, summary): recompute a level and all above it, in one block.

    `summary` is (2,) float64, overwritten with the first bad position, or -1, and the sum of all
    leaves; `bad` is set back.
    """

    @kernel(exact=True)
    def finish(offsets, level, numbers, bad, summary):
        top = offsets.size - 2
        for here in range(level, top + 1):
            begin = offsets[here - 1]
            entries = (offsets[here] - begin) // WIDTH
            for node in range(cuda.threadIdx.x, entries, cuda.blockDim.x):
                numbers[offsets[here] + node] = total(numbers, begin + node * WIDTH)
            cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            summary[0] = -1.0 if bad[0] == GOOD else np.float64(bad[0])
            summary[1] = total(numbers, offsets[top])
            bad[0] = GOOD

    return finish


@functools.cache
def fill_kernel() -> Any:
    """(num_envs, items, start, count, priority, numbers): the same number to runs of leaves.

    `priority` is (1,). Leaves `env * items + (start + k) % items` of each environment, k below
    `count`.
    """

    @kernel(exact=True)
    def fill(num_envs, items, start, count, priority, numbers):
        k = cuda.grid(1)
        if k < num_envs * count:
            env = k // count
            slot = start + (k - env * count)
            numbers[env * items + (slot - items if slot >= items else slot)] = priority[0]

    return fill


@functools.cache
def extremes_kernel() -> Any:
    """(numbers, capacity, found): smallest leaf above zero and largest one, to (2,) float64."""

    @kernel(exact=True)
    def find(numbers, capacity, found):
        least, most = np.inf, 0.0
        for k in range(cuda.grid(1), capacity, cuda.gridsize(1)):
            leaf = numbers[k]
            if leaf > 0.0:
                least = min(least, leaf)
                most = max(most, leaf)
        cuda.atomic.min(found, 0, least)
        cuda.atomic.max(found, 1, most)

    return find
