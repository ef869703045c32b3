"""Few long tridiagonal systems on the device, cut into chunks that threads solve side by side."""

from __future__ import annotations

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.launch import launch
from rlcpu.cuda.operands import constants
from rlcpu.cuda.scan.machine import machine
from rlcpu.cuda.scan.tridiagonal_chunks import NUMBERS, expand_kernel, reduce_kernel, scratch
from rlcpu.cuda.scan.tridiagonal_drive import Found, Mode, lengths_of, make_plan, solve_each
from rlcpu.cuda.scan.tridiagonal_input import Systems
from rlcpu.cuda.scan.tridiagonal_joins import GROUP, PIVOTS, close_kernel, join_kernel, part_kernel

#: Systems of a multiprocessor from which they are enough: one warp, which waits for every step.
ENOUGH = 32
#: Unknowns from which two passes and a dozen launches take less time than one after the other, at
#: an estimated 0.2 us each; not measured on a card.
SHORTEST = 2048
#: Chunks of a multiprocessor, and the fewest equations of one.
_CHUNKS, _LEAST = 256, 16
_BLOCK = 64  # threads, of some hundred registers each


def is_long(systems: Systems, mode: Mode) -> bool:
    """Whether systems are so few and so long that they are better cut."""
    layout = systems.layout
    few = layout.outer * layout.inner < ENOUGH * machine().multiprocessors
    plain = not (mode.periodic and systems.lengths is not None)  # a ring's end is not cut off
    return few and plain and layout.num_steps >= SHORTEST


def solve(systems: Systems, mode: Mode, found: Found) -> None:
    """Solve systems by the kernels that suit them; returns before that has happened."""
    (solve_long if is_long(systems, mode) else solve_each)(systems, mode, found)


def solve_long(systems: Systems, mode: Mode, found: Found) -> None:
    """Solve systems in chunks; `found.status` is zeros before.

    The equations are read twice: once for what chunks leave to be solved together.
    """
    layout, out = systems.layout, systems.out
    plan, count = make_plan(systems), layout.outer * layout.inner
    wanted = max(_CHUNKS * machine().multiprocessors // count, 1)
    length = max(layout.num_steps // wanted, _LEAST)
    chunks = layout.num_steps // length
    cut = constants((chunks, length, int(mode.periodic)), np.dtype(np.int64))
    rests = arrays.empty(NUMBERS * count * chunks, np.float64)
    spoiled = arrays.zeros(count, np.int8)
    given = *systems.inputs, lengths_of(systems, plan), plan, cut
    dtype = out.dtype.type
    reduce, expand = (make(dtype, mode.pivoting) for make in (reduce_kernel, expand_kernel))
    launch(reduce, count * chunks, *given, rests, spoiled, block=_BLOCK)
    ends = _find_ends(rests, chunks, count)
    longest = layout.num_steps - (chunks - 1) * length
    pivots = arrays.empty(scratch(count * chunks, longest), out.dtype)
    launch(expand, count * chunks, *given, ends, pivots, spoiled, out, *found, block=_BLOCK)


def _find_ends(rests: DeviceArray, chunks: int, systems: int) -> DeviceArray:
    """First and last unknowns (2, systems * chunks) of chunks, from what they leave."""
    rounds = []
    while chunks > 1:
        groups = -(-chunks // GROUP)
        pivots = arrays.empty(PIVOTS * systems * chunks, np.float64)
        joined = arrays.empty(NUMBERS * systems * groups, np.float64)
        arguments = rests, chunks, systems, pivots, joined
        launch(join_kernel(), systems * groups, *arguments, block=_BLOCK)
        rounds.append((pivots, chunks))
        rests, chunks = joined, groups
    ends = arrays.empty(2 * systems, np.float64)
    launch(close_kernel(), systems, rests, ends, block=_BLOCK)
    for pivots, chunks in reversed(rounds):
        parts = arrays.empty(2 * systems * chunks, np.float64)
        groups = -(-chunks // GROUP)
        sizes = chunks, systems
        launch(part_kernel(), systems * groups, ends, pivots, *sizes, parts, block=_BLOCK)
        ends = parts
    return ends
