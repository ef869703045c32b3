"""Sampling from a tree without replacement: in rounds, as on the CPU.

Leaves that come again are dropped, and what is missing is drawn in the next round. Where that drops
half of the draws or more, what was found is taken out of the tree until the end.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.launch import launch, launch_grid
from rlcpu.cuda.provider import SIMULATED, cuda
from rlcpu.cuda.replay.draw import draw_kernel
from rlcpu.replay.tree import GROUP

#: Stamp of a leaf that was found in an earlier round.
TAKEN = np.int32(2**31 - 1)
#: Threads of the block that compacts what was drawn; the simulator starts each of them.
THREADS = 32 if SIMULATED else 256


@functools.cache
def stamp_kernel() -> Any:
    """(numbers, candidates, stamps): n less the first position of each leaf above zero."""

    @kernel
    def stamp(numbers, candidates, stamps):
        k = cuda.grid(1)
        if k < candidates.size and numbers[candidates[k]] > 0.0:
            cuda.atomic.max(stamps, candidates[k], np.int32(candidates.size - k))

    return stamp


@functools.cache
def compact_kernel() -> Any:
    """(candidates, stamps, out, found): candidates that are new, in order, by one block.

    `found` is (1,) int64: how many are in `out` already, and then how many are. `stamps` of those
    become `TAKEN`.
    """

    @kernel
    def compact(candidates, stamps, out, found):
        counts = cuda.shared.array(THREADS, np.int64)
        own, size = cuda.threadIdx.x, candidates.size
        each = (size + THREADS - 1) // THREADS
        begin, end = min(own * each, size), min((own + 1) * each, size)
        count = 0
        for k in range(begin, end):
            if stamps[candidates[k]] == size - k:
                count += 1
        counts[own] = count
        cuda.syncthreads()
        to = found[0]
        for thread in range(own):
            to += counts[thread]
        cuda.syncthreads()
        for k in range(begin, end):
            leaf = candidates[k]
            if stamps[leaf] == size - k:
                stamps[leaf] = TAKEN
                out[to] = leaf
                to += 1
        if own == THREADS - 1:
            found[0] = to

    return compact


@functools.cache
def exchange_kernel() -> Any:
    """(numbers, leaves, values): exchange the leaves' numbers, which are different, for values."""

    @kernel
    def exchange(numbers, leaves, values):
        k = cuda.grid(1)
        if k < leaves.size:
            number = numbers[leaves[k]]
            numbers[leaves[k]] = values[k]
            values[k] = number

    return exchange


@functools.cache
def release_kernel() -> Any:
    """(leaves, stamps): zeros to the stamps of leaves."""

    @kernel
    def release(leaves, stamps):
        k = cuda.grid(1)
        if k < leaves.size:
            stamps[leaves[k]] = 0

    return release


def draw_distinct(
    tree: Any, stream: npt.NDArray[np.uint64], out: DeviceArray, stratified: bool
) -> None:
    """Different leaves of a `SumTree`, drawn by a stream, which is moved on.

    Raises:
        ValueError: fewer leaves than `out` has room for are above zero.
    """
    wanted, found, draws = out.size, 0, 0
    if wanted <= tree.capacity:
        found, draws = _draw(tree, stream, stratified, out)
    if found < wanted:
        positive = int(np.count_nonzero(tree.leaves.copy_to_host()))
        raise ValueError(
            f"size={wanted}: expected at most {positive} without replacement, the number of items "
            "with a priority above zero"
        )
    stream[1] += np.uint64(draws)


class Room(NamedTuple):
    """Memory of one call.

    Attributes:
        candidates: (wanted,) int64, what a round draws.
        values: (wanted,) float64, what the leaves that are taken out had.
        counter: (1,) int64, how many leaves were found.
    """

    candidates: DeviceArray
    values: DeviceArray
    counter: DeviceArray


def _draw(
    tree: Any, stream: npt.NDArray[np.uint64], stratified: bool, out: DeviceArray
) -> tuple[int, int]:
    """How many leaves were found, and how many random numbers that took."""
    wanted, batch = out.size, out.size
    found, removed, draws = 0, 0, 0
    candidates, values = arrays.empty(wanted, np.int64), arrays.zeros(wanted, np.float64)
    room = Room(candidates, values, arrays.zeros(1, np.int64))
    while found < wanted and (tree.total > 0.0 or removed < found):
        before = found
        count = min(wanted - found, batch) if tree.total > 0.0 else 0
        if count:
            at = np.uint64((int(stream[1]) + draws) % 2**64)
            found = _draw_round(tree, (stream[0], at, stratified), count, room, out)
        draws += count
        batch = max(GROUP, 2 * (found - before))
        if found < wanted and (removed or stratified or 2 * (found - before) <= count):
            _exchange(tree, out, room.values, removed, found)
            removed = found
    _exchange(tree, out, room.values, 0, removed)
    if found:
        launch(release_kernel(), found, out.view((found,)), tree.stamps)
    return found, draws


def _draw_round(
    tree: Any, stream: tuple[Any, Any, bool], count: int, room: Room, out: DeviceArray
) -> int:
    """Draw so many leaves, add those that are new to `out`; how many are there then."""
    drawn = room.candidates.view((count,))
    launch(draw_kernel(), count, tree.numbers, tree.offsets, *stream, drawn)
    launch(stamp_kernel(), count, tree.numbers, drawn, tree.stamps)
    launch_grid(compact_kernel(), 1, THREADS, drawn, tree.stamps, out, room.counter)
    return int(room.counter.copy_to_host()[0])


def _exchange(tree: Any, out: DeviceArray, values: DeviceArray, begin: int, end: int) -> None:
    """Exchange the numbers of some leaves in `out` for values."""
    if end > begin:
        leaves, own = (array.view((end - begin,), begin) for array in (out, values))
        launch(exchange_kernel(), leaves.size, tree.numbers, leaves, own)
        tree.propagate(leaves)
