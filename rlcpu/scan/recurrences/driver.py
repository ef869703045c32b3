"""The driver of all recurrences: from checked arrays to kernels, which run a rule's functions.

Arrays are (outer, num_steps, inner), see `rlcpu.scan.layout`; a lane is a pair of indices (outer,
inner), and what is computed for it does not depend on other lanes. Three ways through memory:

* columns, `inner` > 1: lanes side by side are computed together;
* rows, where `inner` is 1: the steps of a lane are side by side, and transposed on the way;
* windows, of either kind: y is made of the next n steps alone.

Work is cut into blocks, each of which a core computes from its first step to the last.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import prange, types

from rlcpu.kernels.compiler.compile import EXACT, c_function, prefer_small_code
from rlcpu.kernels.machine.memory import array_address, call_at, fence
from rlcpu.kernels.machine.threads import check_num_threads, for_cores, launch
from rlcpu.kernels.machine.vectors import VECTOR_BYTES
from rlcpu.scan.layout import REPEATED, AxesOrder, Place
from rlcpu.scan.recurrences.columns import make_columns
from rlcpu.scan.recurrences.rows import PIECE, block_rows, make_rows
from rlcpu.scan.recurrences.rules import Rule, Step
from rlcpu.scan.recurrences.steps import PLANS, ClipNumbers, lanes_of
from rlcpu.scan.recurrences.windows import WIDE, make_windows

Array = npt.NDArray[Any]

GRAIN = 2**16  # steps of all lanes, 40 us, from which a second core is worth waking
#: Bytes of an output from which it is written past the caches: half of it takes longer that way,
#: twice as much half the time.
LARGE = 2**23
PIECES = 4  # pieces of a row from which one more costs less than to write through the caches
#: Windows of a lane in a block, at least: in rows, and in columns.
ROW_WINDOWS, COLUMN_WINDOWS = 512, 32


# ---------------------------------------------------------------- kernels


def make_block(rule: Rule, dtype: Any, is_rows: bool, has_windows: bool = False) -> Any:
    """Make `compute_block(plan, block)`: the steps of block number `block`.

    `plan` is a view of a `RecurrencePlan`.
    """
    # Compute `width` lanes from (outer, lane) on; numba compiles the call of the one that is there.
    windows: Any = make_windows(rule, dtype, is_rows) if has_windows else None
    rows: Any = make_rows(rule, dtype) if is_rows and not has_windows else None
    columns: Any = make_columns(rule, dtype) if not (is_rows or has_windows) else None

    def compute_block(plan, block):
        """Find the lanes and steps of a block, and compute them."""
        prefer_small_code()
        clips = dtype(plan.clips.rho), dtype(plan.clips.c), dtype(plan.clips.advantages)
        lanes, inner = plan.block_lanes, plan.inner
        if has_windows:
            across = (inner - 1) // lanes + 1  # blocks side by side
            along = (plan.num_steps - 1) // plan.block_windows + 1  # blocks one after the other
            begin, lane = block // across % along * plan.block_windows, block % across * lanes
            outer = block // (across * along)
            windows(plan, clips, outer, lane, min(lanes, inner - lane), begin)
        elif is_rows:
            outer = block * lanes
            rows(plan, clips, outer, min(lanes, plan.outer - outer))
        else:
            # The first block is shorter by `plan.shorter_by` lanes, so that the others are aligned.
            across = (inner + plan.shorter_by + lanes - 1) // lanes
            outer, begin = block // across, block % across * lanes - plan.shorter_by
            stop = min(begin + lanes, inner)
            lane = max(begin, 0)
            columns(plan, clips, outer, lane, stop - lane)
        fence()  # after results that were written past the caches

    return compute_block


@functools.cache
def address_of_block(rule: Rule, dtype: Any, is_rows: bool, has_windows: bool) -> int:
    """Return the address of `make_block`'s function, compiled."""
    kinds = PLANS[dtype].view, types.int64
    return c_function(make_block(rule, dtype, is_rows, has_windows), kinds, fastmath=EXACT)


def run_blocks(compute_block, plan, num_blocks):
    """Call the function at an address for each block of the `RecurrencePlan` at another."""
    for block in prange(num_blocks):
        call_at(compute_block, (plan, np.int64(block)))


#: One loop serves all rules, and links none of their code.
_DRIVERS = for_cores(run_blocks, GRAIN)


# ---------------------------------------------------------------- from checked arrays to a plan

UNUSED = Step(*(None,) * len(Step._fields))
_ZEROS = np.zeros(REPEATED, np.uint8)
_ZERO = Place(_ZEROS, array_address(_ZEROS), 0, 0, 0)


class RecurrenceProblem(NamedTuple):
    """One call of a recurrence.

    `ends`, if not None, is (2, rows): the last y of every row and the product of its a overwrite it
    in place of the outputs. For rules that do not cut, where there is one lane.
    """

    steps: Step  # arrays that broadcast to the layout's shape, flags as uint8; None where unused
    last: Array = np.zeros(())  # values after the last steps, without the time axis
    initial: Array = np.zeros(())  # y before the step that is computed first, without that axis
    clips: tuple[float, ...] = ()  # see `Rule`
    direction: int = 1  # 1 if the last step is computed first, -1 if the first is
    window: int = 0  # steps after which the recurrence ends in the next value; 0 for all
    ends: Array | None = None


class Blocks(NamedTuple):
    """Cut of a call's work into blocks: how many, and fields of `RecurrencePlan`.

    The first block lacks `shorter_by` lanes, or steps of a row, so that the others begin where
    outputs are aligned to vectors. The first `num_streamed` outputs are written past the caches.
    """

    num_blocks: int
    block_lanes: int
    shorter_by: int = 0
    num_streamed: int = 0
    block_windows: int = 0


def run(
    rule: Rule,
    layout: AxesOrder,
    problem: RecurrenceProblem,
    outs: tuple[Array, ...],
    num_threads: int | None = None,
) -> None:
    """Compute a recurrence.

    Overwrites `outs`, as many as the rule has outputs: arrays of one dtype, of the layout's shape
    in the caller's order of axes.
    """
    num_threads, dtype = check_num_threads(num_threads), outs[0].dtype
    kind: Any = dtype.type
    if outs[0].size == 0:
        return
    # Outputs that kernels cannot write where they are go to other arrays, and are copied at last.
    targets = [layout.target(out) for out in outs]
    written = [out if t else layout.empty(dtype) for out, t in zip(outs, targets, strict=True)]
    places = [_ZERO if array is None else layout.place(array) for array in problem.steps]
    inputs: list[int] = []
    for place in places:
        inputs += place[1:]  # address and strides
    last, initial = (
        layout.place_ends(np.asarray(array, dtype)) for array in (problem.last, problem.initial)
    )
    # The first and the last: a rule's only output is there twice.
    outputs = [targets[i] or layout.place(written[i]) for i in (0, -1)]
    outer, num_steps, inner = layout.outer, layout.num_steps, layout.inner
    blocks = _cut(layout, problem, outputs, dtype)
    plan = PLANS[kind](
        outer=outer,
        num_steps=num_steps,
        inner=inner,
        block_lanes=blocks.block_lanes,
        shorter_by=blocks.shorter_by,
        num_streamed=blocks.num_streamed,
        direction=problem.direction,
        window_steps=problem.window,
        block_windows=blocks.block_windows,
        wants_ends=problem.ends is not None,
        ends=0 if problem.ends is None else problem.ends,
        clips=_pack_clips(problem.clips),
        inputs=tuple(inputs),
        last_values=last[1:],
        initial=initial[1:],
        first_output=outputs[0][1:],
        second_output=outputs[1][1:],
    )
    compute_block = address_of_block(rule, kind, inner == 1, problem.window > 0)
    work = outer * num_steps * inner * max(problem.window, 1)
    launch(_DRIVERS, work, num_threads, compute_block, plan.address, blocks.num_blocks)
    for out, array in zip(outs, written, strict=True):
        if array is not out:
            np.copyto(out, array)


@functools.lru_cache(maxsize=64)
def _pack_clips(clips: tuple[float, ...]) -> ClipNumbers:
    rho, c, advantages = (*clips, 0.0, 0.0, 0.0)[:3]  # unused ones are 0
    return ClipNumbers(rho=rho, c=c, advantages=advantages)


def _cut(
    layout: AxesOrder, problem: RecurrenceProblem, outputs: list[Place], dtype: np.dtype[Any]
) -> Blocks:
    """Return how a call is cut into blocks, and which outputs are written past the caches.

    Lanes of columns are `WIDE` vectors in a window's block. Rows are computed in pieces of `PIECE`
    steps; only long ones that are whole (without `problem.ends`, the ends of a part) are streamed.
    """
    outer, num_steps, inner = layout.outer, layout.num_steps, layout.inner
    if problem.window:
        lanes = 1 if inner == 1 else WIDE * lanes_of(dtype)
        # A block also reads the steps of a window beyond its own: not more than half as many.
        windows = max(ROW_WINDOWS if inner == 1 else COLUMN_WINDOWS, 2 * problem.window)
        count = outer * -(-num_steps // windows) * -(-inner // lanes)
        return Blocks(count, lanes, block_windows=windows)
    if inner == 1:
        lanes = block_rows(dtype)
        count = -(-outer // lanes)
        if num_steps < PIECES * PIECE or problem.ends is not None:
            return Blocks(count, lanes)
        head, num_streamed = _streams(layout, outputs, dtype.itemsize)
        return Blocks(count, lanes, -head % PIECE, num_streamed)
    lanes = _block_lanes(layout, dtype)
    # The first block has the `head` lanes alone, if there are any: then others are aligned.
    head, num_streamed = _streams(layout, outputs, dtype.itemsize)
    shorter_by = -head % lanes
    return Blocks(outer * -(-(inner + shorter_by) // lanes), lanes, shorter_by, num_streamed)


def _block_lanes(layout: AxesOrder, dtype: np.dtype[Any]) -> int:
    """Return how many lanes make a block: as many as fit, but something to do for every core."""
    size, vector_lanes = layout.inner * dtype.itemsize, lanes_of(dtype)  # bytes of a step
    wanted = -(-numba.config.NUMBA_NUM_THREADS // layout.outer)
    # Blocks side by side: a step of one is at most `REPEATED` bytes, for cores at least 512.
    across = max(-(-size // REPEATED), min(wanted, size // 512), 1)
    return -(-layout.inner // (across * vector_lanes)) * vector_lanes


def _streams(layout: AxesOrder, outputs: list[Place], itemsize: int) -> tuple[int, int]:
    """Return which outputs are written past the caches: those that are large and aligned.

    Returns:
        The lanes, or steps of rows, before the first vector that is aligned to its size.
        How many outputs are streamed, the first ones; both are 0 if none is.
    """
    if layout.outer * layout.num_steps * layout.inner * itemsize < LARGE:
        return 0, 0
    strides = [out.outer for out in outputs]
    if layout.inner > 1:
        strides += [out.time for out in outputs]
    heads = [-out.address % VECTOR_BYTES for out in outputs]  # in bytes
    if any(stride * itemsize % VECTOR_BYTES for stride in strides) or heads[0] % itemsize:
        return 0, 0
    # The second one, too, if it is aligned at the same lanes; an only output is there twice.
    return heads[0] // itemsize, 1 + (heads[0] == heads[1])
