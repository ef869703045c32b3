"""A buffer for kernels that add, draw and give priorities again and again, without Python between.

What they add lies in the same arrays each time, and what they draw is written to one batch. They do
what `Buffer.add`, `sample` and `update_priorities` do, by the same functions, bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.kernels.calls import function_of, kind_of
from rlcpu.kernels.compile import EXACT
from rlcpu.kernels.memory import pointer_to
from rlcpu.replay.items import Batch, NStep, ReturnSettings, Ring, pick_items, sums_ahead
from rlcpu.replay.samplers import MOST
from rlcpu.replay.storage import Storage, copy_row, gather_field
from rlcpu.replay.structure import TransitionStructure
from rlcpu.replay.tree_cpu import draw_leaves, importance_weights, leaf_of, write_leaves, write_new

Array = npt.NDArray[Any]
_BYTE = np.uint8(0)


class Loop(NamedTuple):
    """The memory of a buffer and of one batch; arrays of what it does not have are empty."""

    add: Any  # addresses of the functions below
    draw: Any
    update: Any  # 0 without priorities
    added: Any  # (1,) int64, steps that were added so far
    block: Any  # uint8, the storage
    sources: Any  # (num_fields, 4) int64, with the columns below
    num_steps: Any  # steps that are added at a time
    num_envs: Any  # shape of the storage
    length: Any
    stream: Any  # (2,) uint64 of random numbers
    tree: Any  # float64, all levels of the tree of priorities
    largest: Any  # (1,) float64, the largest leaf so far
    alpha: Any  # exponents of priorities and of importance weights, see `ByPriority`
    beta: Any
    epsilon: Any
    n_step: Any  # of returns
    gamma: Any
    rewards: Any  # (num_envs * length,), columns of the storage for returns
    terminated: Any
    truncated: Any
    indices: Any  # (S,) int64, rows of the drawn transitions
    last_rows: Any  # (S,) int64, the last row of each return
    out: Any  # uint8, the batch
    first_table: Any  # `rlcpu.replay.storage.gather`'s table of the fields of drawn rows
    last_table: Any  # its table of the fields of last rows
    returns: Any  # (S,) float32, the batch's rewards
    discounts: Any  # (S,) float32 of the batch
    weights: Any  # (S,) float32 of the batch
    probabilities: Any  # (S,) float64
    errors: Any  # (S,) float32, whose sizes become priorities
    leaves: Any  # (S,) float64, scratch
    fault: Any  # (1,) int64, not 0 where an error was not finite, and no priority was changed


#: Columns of `Loop.sources`: where a field begins in the block, bytes of its rows, address of the
#: first row that is added, and bytes from there to the next.
BEGIN, ROW_BYTES, ADDRESS, STRIDE = range(4)


class LoopParts(NamedTuple):
    """Parts of a buffer of transitions, see `rlcpu.replay.buffer`."""

    structure: TransitionStructure
    storage: Storage
    sampler: Any
    n_step: NStep
    ring: Ring
    stream: Array


def make_loop(
    parts: LoopParts,
    batch: Batch,
    sources: Mapping[str, tuple[int, int]],
    steps: int,
    errors: Array,
) -> Loop:
    """Return the memory of a buffer, and the addresses of functions that work on it.

    They add `steps` steps of all environments at a time; see `ReplayBuffer.looping` for the others.
    Fields are named by their positions: `n_step.columns` are reward, terminated and truncated, and
    `first_fields` and `last_fields` those that come from the first and the last row of a return;
    all three are empty where returns are of one step.
    """
    storage, sampler, n_step = parts.storage, parts.sampler, parts.n_step
    fields, size = parts.structure.fields, len(batch)
    pairs = zip(fields, storage.begins, strict=True)
    source_rows = [(begin, field.row_bytes, *sources[field.name]) for field, begin in pairs]
    all_fields, no_fields = np.arange(len(fields)), np.arange(0)
    no_numbers, no_flags = np.zeros(0, np.float32), np.zeros(0, np.bool_)
    has_returns, is_weighted = n_step.n > 1, batch.weights is not None
    columns = [storage.fields[k].reshape(-1) for k in n_step.columns]
    rewards, terminated, truncated = columns or (no_numbers, no_flags, no_flags)
    loop = Loop(
        add=0,
        draw=0,
        update=0,
        added=np.array([parts.ring.added]),
        block=storage.block,
        sources=np.array(source_rows),
        num_steps=steps,
        num_envs=storage.num_envs,
        length=storage.length,
        stream=parts.stream,
        tree=sampler.tree.numbers if is_weighted else np.zeros(0),
        largest=np.array([sampler.largest if is_weighted else 0.0]),
        alpha=sampler.alpha if is_weighted else 0.0,
        beta=sampler.beta if is_weighted else 0.0,
        epsilon=sampler.epsilon if is_weighted else 0.0,
        n_step=n_step.n,
        gamma=n_step.gamma,
        rewards=rewards,
        terminated=terminated,
        truncated=truncated,
        indices=batch.indices,
        last_rows=np.zeros(size if has_returns else 0, np.int64),
        out=batch.rows.block,
        first_table=batch.rows.table[n_step.first_fields if has_returns else all_fields],
        last_table=batch.rows.table[n_step.last_fields if has_returns else no_fields],
        returns=batch.rows.leaves[n_step.columns[0]] if has_returns else no_numbers,
        discounts=no_numbers if batch.discounts is None else batch.discounts,
        weights=batch.weights if is_weighted else no_numbers,
        probabilities=batch.probabilities if is_weighted else np.zeros(0),
        errors=errors,
        leaves=np.empty(size),
        fault=np.zeros(1, np.int64),
    )
    add, draw, update = _addresses(kind_of(loop), is_weighted)
    return loop._replace(add=add, draw=draw, update=update)


# ---------------------------------------------------------------- functions of a view of a `Loop`


@functools.cache
def _addresses(kind: Any, is_weighted: bool) -> tuple[int, int, int]:
    """Return the addresses of the functions that add, draw and update, compiled for a `Loop`.

    `kind` is numba's type of it.
    """
    add = function_of(_make_add(is_weighted), kind, fastmath=EXACT)
    draw = function_of(_make_draw(is_weighted), kind, fastmath=EXACT)
    update = function_of(update_priorities, kind, fastmath=EXACT) if is_weighted else 0
    return add, draw, update


def _make_add(is_weighted: bool) -> Callable[..., None]:
    """Make `add_rows(loop)`; `is_weighted` says whether there are priorities."""

    def add_rows(loop):
        """Store `num_steps` steps of all environments, which lie at the sources, step by step.

        Step s of an environment goes to slot s % length of its rows in the storage.
        """
        added, length, num_envs = loop.added[0], loop.length, loop.num_envs
        for f in range(loop.sources.shape[0]):
            begin, row_bytes = loop.sources[f, BEGIN], loop.sources[f, ROW_BYTES]
            rows, stride = pointer_to(loop.sources[f, ADDRESS], _BYTE), loop.sources[f, STRIDE]
            for step in range(loop.num_steps):
                slot = (added + step) % length
                for env in range(num_envs):
                    to = begin + (env * length + slot) * row_bytes
                    copy_row(loop.block, to, rows, (step * num_envs + env) * stride, row_bytes)
        added_next = added + loop.num_steps
        if is_weighted:
            # `filled` counts items among leaves that are values; None: leaves are priorities. New
            # items get the largest leaf so far.
            capacity, filled = num_envs * length, None
            write_new(loop.tree, capacity, filled, num_envs, added, added_next, loop.largest)
        loop.added[0] = added_next

    return add_rows


def _make_draw(is_weighted: bool) -> Callable[..., None]:
    """Make `draw_rows(loop)`; `is_weighted` says whether there are priorities."""
    write_weights: Any = importance_weights().inlined if is_weighted else None
    # No strata; uniform draws are of items from row 0 on, since all filled rows are items; all of a
    # batch is copied, from its first item on, one step each.
    is_stratified, first_item, first_drawn, steps = False, 0, 0, 1

    def draw_rows(loop):
        """Draw transitions, and write rows, n-step returns and weights to the batch."""
        added, length, indices, size = loop.added[0], loop.length, loop.indices, loop.indices.size
        block, out, last_rows = loop.block, loop.out, loop.last_rows
        if is_weighted:
            capacity, beta = loop.num_envs * length, np.float32(loop.beta)
            total = draw_leaves(loop.tree, capacity, loop.stream, is_stratified, indices)
            write_weights(loop.tree, indices, total, beta, loop.probabilities, loop.weights)
        else:
            filled = min(added, length)
            pick_items(loop.stream, loop.num_envs, first_item, filled, length, indices)
        for f in range(loop.first_table.shape[0]):
            field = loop.first_table[f]
            gather_field(block, out, field, indices, first_drawn, size, steps, length)
        if loop.n_step > 1:
            settings = ReturnSettings(length, (added - 1) % length, loop.n_step, loop.gamma)
            rewards, terminated, truncated = loop.rewards, loop.terminated, loop.truncated
            returns, discounts = loop.returns, loop.discounts
            sums_ahead(
                rewards, terminated, truncated, indices, settings, returns, discounts, last_rows
            )
        for f in range(loop.last_table.shape[0]):
            field = loop.last_table[f]
            gather_field(block, out, field, last_rows, first_drawn, size, steps, length)

    return draw_rows


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
    capacity, filled = loop.num_envs * loop.length, None  # None: leaves are priorities, not values
    largest = write_leaves(loop.tree, capacity, filled, loop.indices, leaves)
    loop.largest[0] = max(loop.largest[0], largest)
