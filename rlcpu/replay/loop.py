"""A buffer for kernels that add, draw and give priorities again and again, without Python between.

What they add lies in the same arrays each time, and what they draw is written to one batch. They do
what `Buffer.add`, `sample` and `update_priorities` do, by the same functions, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.compiler.compile import inline_source
from rlcpu.kernels.machine.memory import pointer_to
from rlcpu.kernels.machine.stages import Stage
from rlcpu.kernels.machine.structs import Array, Real, Struct, Whole
from rlcpu.replay.items import Batch, NStep, ReturnSettings, Ring, pick_items, sums_ahead
from rlcpu.replay.samplers import MOST
from rlcpu.replay.storage import Storage, copy_row, gather_field
from rlcpu.replay.structure import TransitionStructure
from rlcpu.replay.tree_cpu import draw_leaves, importance_weights, leaf_of, write_leaves, write_new

_BYTE = np.uint8(0)
_write_weights: Any = importance_weights().inlined


class Loop(Struct):
    """The memory of a buffer and of one batch; arrays of what it does not have are empty."""

    added = Array(np.int64, 1)  #: steps that were added so far
    num_fields = Whole()
    sources = Array(np.int64, "num_fields", 4)  #: with the columns below
    block = Array(np.uint8)  #: the storage
    num_steps = Whole()  #: steps that are added at a time
    num_envs = Whole()  #: shape of the storage
    length = Whole()
    stream = Array(np.uint64, 2)  #: of random numbers
    tree_size = Whole()
    tree = Array(np.float64, "tree_size")  #: all levels of the tree of priorities
    num_offsets = Whole()
    offsets = Array(np.int64, "num_offsets")  #: where the levels begin
    largest = Array(np.float64, 1)  #: the largest leaf so far
    alpha = Real()  #: exponents of priorities and of importance weights, see `ByPriority`
    beta = Real()
    epsilon = Real()
    n_step = Whole()  #: of returns
    gamma = Real()
    num_rows = Whole()
    rewards = Array(np.float32, "num_rows")  #: columns of the storage for returns
    terminated = Array(np.bool_, "num_rows")
    truncated = Array(np.bool_, "num_rows")
    batch_size = Whole()  #: S
    indices = Array(np.int64, "batch_size")  #: rows of the drawn transitions
    last_rows = Array(np.int64, "batch_size")  #: the last row of each return
    out = Array(np.uint8)  #: the batch
    #: `rlcpu.replay.storage.gather`'s tables of the fields of drawn rows, and of last rows.
    num_first = Whole()
    first_table = Array(np.int64, "num_first", 3)
    num_last = Whole()
    last_table = Array(np.int64, "num_last", 3)
    returns = Array(np.float32, "batch_size")  #: the batch's rewards, if returns are of n steps
    discounts = Array(np.float32, "batch_size")  #: of the batch
    weights = Array(np.float32, "batch_size")
    probabilities = Array(np.float64, "batch_size")
    errors = Array(np.float32, "batch_size")  #: whose sizes become priorities
    leaves = Array(np.float64, "batch_size")  #: scratch
    fault = Array(np.int64, 1)  #: not 0 where an error was not finite, and no priority was changed


#: Columns of `Loop.sources`: where a field begins in the block, bytes of its rows, address of the
#: first row that is added, and bytes from there to the next.
BEGIN, ROW_BYTES, ADDRESS, STRIDE = range(4)


class LoopStages(NamedTuple):
    """Stages by which kernels add to a buffer, draw from it, and set priorities."""

    loop: Any  #: the `Loop`
    add: Stage
    draw: Stage
    update: list[Stage]  #: what sets priorities; none without them


class LoopParts(NamedTuple):
    """Parts of a buffer of transitions, see `rlcpu.replay.buffer`."""

    structure: TransitionStructure
    storage: Storage
    sampler: Any
    n_step: NStep
    ring: Ring
    stream: npt.NDArray[np.uint64]


def make_loop(
    parts: LoopParts,
    batch: Batch,
    sources: Mapping[str, tuple[int, int]],
    steps: int,
    errors: npt.NDArray[np.float32],
) -> LoopStages:
    """Return the memory of a buffer, and what works on it.

    They add `steps` steps of all environments at a time; see `ReplayBuffer.looping` for the others.
    Fields are named by their positions: `n_step.columns` are reward, terminated and truncated, and
    `first_fields` and `last_fields` those that come from the first and the last row of a return;
    all three are empty where returns are of one step.
    """
    storage, sampler, n_step = parts.storage, parts.sampler, parts.n_step
    fields, size = parts.structure.fields, len(batch)
    pairs = zip(fields, storage.begins, strict=True)
    source_rows = [(begin, field.row_bytes, *sources[field.name]) for field, begin in pairs]
    has_returns, is_weighted = n_step.n > 1, batch.weights is not None
    columns = [storage.fields[k].reshape(-1) for k in n_step.columns]
    first = n_step.first_fields if has_returns else range(len(fields))
    first_table, last_table = batch.rows.table[first], batch.rows.table[n_step.last_fields]
    nothing = 0  # the address of an array that is not read
    loop = Loop(
        added=np.array([parts.ring.added]),
        num_fields=len(fields),
        sources=np.array(source_rows),
        block=storage.block,
        num_steps=steps,
        num_envs=storage.num_envs,
        length=storage.length,
        stream=parts.stream,
        tree_size=sampler.tree.numbers.size if is_weighted else 0,
        tree=sampler.tree.numbers if is_weighted else nothing,
        num_offsets=sampler.tree.offsets.size if is_weighted else 0,
        offsets=sampler.tree.offsets if is_weighted else nothing,
        largest=sampler.tree.largest if is_weighted else nothing,
        alpha=sampler.alpha if is_weighted else 0.0,
        beta=sampler.beta if is_weighted else 0.0,
        epsilon=sampler.epsilon if is_weighted else 0.0,
        n_step=n_step.n,
        gamma=n_step.gamma,
        num_rows=storage.num_envs * storage.length,
        rewards=columns[0] if has_returns else nothing,
        terminated=columns[1] if has_returns else nothing,
        truncated=columns[2] if has_returns else nothing,
        batch_size=size,
        indices=batch.indices,
        last_rows=np.zeros(size, np.int64),
        out=batch.rows.block,
        num_first=len(first_table),
        first_table=first_table,
        num_last=len(last_table),
        last_table=last_table,
        returns=batch.rows.leaves[n_step.columns[0]] if has_returns else nothing,
        discounts=batch.discounts if has_returns else nothing,
        weights=batch.weights if is_weighted else nothing,
        probabilities=batch.probabilities if is_weighted else nothing,
        errors=errors,
        leaves=np.empty(size),
        fault=np.zeros(1, np.int64),
    )
    if not is_weighted:
        return LoopStages(loop, Stage(add_rows, loop), Stage(draw_rows, loop), [])
    return LoopStages(
        loop,
        add=Stage(add_items, loop),
        draw=Stage(draw_by_priority, loop),
        update=[Stage(update_priorities, loop)],
    )


# ---------------------------------------------------------------- functions of a view of a `Loop`


def add_rows(loop):
    """Store `num_steps` steps of all environments, which lie at the sources, step by step."""
    _store_rows(loop)
    loop.added[0] += loop.num_steps


def add_items(loop):
    """Store steps, see `add_rows`, and give new items the largest leaf so far."""
    _store_rows(loop)
    before, after = loop.added[0], loop.added[0] + loop.num_steps
    offsets, filled = loop.offsets, None  # None: leaves are priorities, not values
    num_envs, length = loop.num_envs, loop.length
    write_new(loop.tree, offsets, filled, num_envs, length, before, after, loop.largest)
    loop.added[0] = after


@inline_source
def _store_rows(loop):
    """Copy rows from the sources: step s of an environment goes to slot s % length of its rows."""
    added, length, num_envs = loop.added[0], loop.length, loop.num_envs
    for f in range(loop.num_fields):
        begin, row_bytes = loop.sources[f, BEGIN], loop.sources[f, ROW_BYTES]
        rows, stride = pointer_to(loop.sources[f, ADDRESS], _BYTE), loop.sources[f, STRIDE]
        for step in range(loop.num_steps):
            slot = (added + step) % length
            for env in range(num_envs):
                to = begin + (env * length + slot) * row_bytes
                copy_row(loop.block, to, rows, (step * num_envs + env) * stride, row_bytes)


def draw_rows(loop):
    """Draw transitions, all of which are as likely, and write them to the batch."""
    # From slot 0 on, since all filled ones hold an item.
    first, filled = 0, min(loop.added[0], loop.length)
    pick_items(loop.stream, loop.num_envs, first, filled, loop.length, loop.indices)
    _gather_rows(loop)


def draw_by_priority(loop):
    """Draw transitions by priority, and write them, and their weights, to the batch."""
    is_stratified, indices = False, loop.indices
    total = draw_leaves(loop.tree, loop.offsets, loop.stream, is_stratified, indices)
    beta = np.float32(loop.beta)
    _write_weights(loop.tree, indices, total, beta, loop.probabilities, loop.weights)
    _gather_rows(loop)


@inline_source
def _gather_rows(loop):
    """Copy the drawn rows to the batch, and their n-step returns."""
    length, indices, size, last_rows = loop.length, loop.indices, loop.batch_size, loop.last_rows
    first, steps = 0, 1  # all of a batch is copied, from its first item on, one step each
    for f in range(loop.num_first):
        field = loop.first_table[f]
        gather_field(loop.block, loop.out, field, indices, first, size, steps, length)
    if loop.n_step > 1:
        settings = ReturnSettings(length, (loop.added[0] - 1) % length, loop.n_step, loop.gamma)
        rewards, terminated, truncated = loop.rewards, loop.terminated, loop.truncated
        returns, discounts = loop.returns, loop.discounts
        sums_ahead(rewards, terminated, truncated, indices, settings, returns, discounts, last_rows)
    for f in range(loop.num_last):
        field = loop.last_table[f]
        gather_field(loop.block, loop.out, field, last_rows, first, size, steps, length)


def update_priorities(loop):
    """Set the priorities of drawn items to absolute errors; their indices are overwritten.

    An error that is not finite sets `fault`, and nothing else.
    """
    errors, leaves = loop.errors, loop.leaves
    for k in range(leaves.size):
        priority = np.float64(abs(errors[k]))
        if not priority <= MOST:
            loop.fault[0] = 1
            return
        leaves[k] = leaf_of(priority, loop.epsilon, loop.alpha)
    filled = None  # leaves are priorities, not values
    largest = write_leaves(loop.tree, loop.offsets, filled, loop.indices, leaves)
    loop.largest[0] = max(loop.largest[0], largest)
