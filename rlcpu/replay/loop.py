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
from rlcpu.replay.items import Batch, NStep, Ring, pick_items, sums_ahead
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
    sources: Any  # (num_fields, 4) int64: where a field begins in the block, bytes of its rows,
    # address of the first row that is added, and bytes from there to the next
    num_steps: Any  # steps that are added at a time
    num_envs: Any  # shape of the storage
    length: Any
    stream: Any  # (2,) uint64 of random numbers
    tree: Any  # float64, all levels of the tree of priorities
    largest: Any  # (1,) float64, the largest leaf so far
    exponents: Any  # (3,) float64, alpha, beta and epsilon
    n_step: Any  # of returns
    gamma: Any
    rewards: Any  # (num_envs * length,), columns of the storage for returns
    terminated: Any
    truncated: Any
    indices: Any  # (S,) int64, rows of the drawn transitions
    last: Any  # (S,) int64, the last row of each return
    out: Any  # uint8, the batch
    first: Any  # (any, 3) int64, `rlcpu.replay.storage.GATHER`'s table of the fields of drawn rows
    following: Any  # the same of the fields of last rows
    returns: Any  # (S,) float32, the batch's rewards
    discounts: Any  # (S,) float32 of the batch
    weights: Any  # (S,) float32 of the batch
    probabilities: Any  # (S,) float64
    errors: Any  # (S,) float32, whose sizes become priorities
    leaves: Any  # (S,) float64, scratch
    fault: Any  # (1,) int64, not 0 where an error was not finite, and no priority was changed


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
    """
    storage, sampler, n_step = parts.storage, parts.sampler, parts.n_step
    fields, size = parts.structure.fields, len(batch)
    rows = zip(fields, storage.begins, strict=True)
    table = [(begin, field.row_bytes, *sources[field.name]) for field, begin in rows]
    all_fields, no_fields = np.arange(len(fields)), np.arange(0)
    no_numbers, no_flags = np.zeros(0, np.float32), np.zeros(0, np.bool_)
    has_returns, is_weighted = n_step.n > 1, batch.weights is not None
    columns = [storage.fields[k].reshape(-1) for k in n_step.columns]
    rewards, terminated, truncated = columns or (no_numbers, no_flags, no_flags)
    exponents = [sampler.alpha, sampler.beta, sampler.epsilon] if is_weighted else [0.0]
    loop = Loop(
        add=0,
        draw=0,
        update=0,
        added=np.array([parts.ring.added]),
        block=storage.block,
        sources=np.array(table),
        num_steps=steps,
        num_envs=storage.num_envs,
        length=storage.length,
        stream=parts.stream,
        tree=sampler.tree.numbers if is_weighted else np.zeros(0),
        largest=np.array([sampler.largest if is_weighted else 0.0]),
        exponents=np.array(exponents),
        n_step=n_step.n,
        gamma=n_step.gamma,
        rewards=rewards,
        terminated=terminated,
        truncated=truncated,
        indices=batch.indices,
        last=np.zeros(size if has_returns else 0, np.int64),
        out=batch.rows.block,
        first=batch.rows.table[n_step.first if has_returns else all_fields],
        following=batch.rows.table[n_step.last if has_returns else no_fields],
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
        """Store `num_steps` steps of all environments, which lie at the sources."""
        added, length, num_envs = loop.added[0], loop.length, loop.num_envs
        for f in range(loop.sources.shape[0]):
            begin, row_bytes = loop.sources[f, 0], loop.sources[f, 1]
            rows, stride = pointer_to(loop.sources[f, 2], _BYTE), loop.sources[f, 3]
            for step in range(loop.num_steps):
                slot = (added + step) % length
                for env in range(num_envs):
                    to = begin + (env * length + slot) * row_bytes
                    copy_row(loop.block, to, rows, (step * num_envs + env) * stride, row_bytes)
        added_next = added + loop.num_steps
        if is_weighted:
            capacity = num_envs * length
            write_new(loop.tree, capacity, None, num_envs, added, added_next, loop.largest)
        loop.added[0] = added_next

    return add_rows


def _make_draw(is_weighted: bool) -> Callable[..., None]:
    """Make `draw_rows(loop)`; `is_weighted` says whether there are priorities."""
    write_weights: Any = importance_weights()[0] if is_weighted else None

    def draw_rows(loop):
        """Draw transitions, and write rows, n-step returns and weights to the batch."""
        added, length, indices, size = loop.added[0], loop.length, loop.indices, loop.indices.size
        if is_weighted:
            capacity = loop.num_envs * length
            total = draw_leaves(loop.tree, capacity, loop.stream, False, indices)
            beta = np.float32(loop.exponents[1])
            write_weights(loop.tree, indices, total, beta, loop.probabilities, loop.weights)
        else:
            count = min(added, length)
            pick_items(loop.stream, loop.num_envs, 0, count, length, indices)
        for f in range(loop.first.shape[0]):
            gather_field(loop.block, loop.out, loop.first[f], indices, 0, size, 1, length)
        if loop.n_step > 1:
            ring, settings = (length, (added - 1) % length), (loop.n_step, loop.gamma)
            out = loop.returns, loop.discounts, loop.last
            columns = loop.rewards, loop.terminated, loop.truncated
            sums_ahead(columns[0], columns[1], columns[2], indices, ring, settings, out)
        for f in range(loop.following.shape[0]):
            gather_field(loop.block, loop.out, loop.following[f], loop.last, 0, size, 1, length)

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
        leaves[k] = leaf_of(priority, loop.exponents[2], loop.exponents[0])
    capacity = loop.num_envs * loop.length
    largest = write_leaves(loop.tree, capacity, None, loop.indices, leaves)
    loop.largest[0] = max(loop.largest[0], largest)
