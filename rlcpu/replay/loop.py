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
from rlcpu.replay.tree_cpu import (
    draw_leaves,
    importance_weights,
    leaf_of,
    write_leaves,
    write_new,
)

Array = npt.NDArray[Any]
_BYTE = np.uint8(0)


class Loop(NamedTuple):
    """The memory of a buffer and of one batch; arrays of what it does not have are empty.

    Attributes:
        add, draw, give: addresses of the functions below, the last one 0 without priorities.
        added: (1,) int64, steps that were added so far.
        block: uint8, the storage.
        sources: (num_fields, 4) int64: where a field begins in the block, bytes of its rows,
            address of the first row that is added, and bytes from there to the next.
        num_steps, num_envs, length: steps that are added at a time, and the storage's shape.
        stream: (2,) uint64 of random numbers.
        tree, largest: float64, of priorities: all levels, and the largest so far.
        exponents: (3,) float64, alpha, beta and epsilon.
        n_step, gamma: of returns.
        rewards, terminated, truncated: (num_envs * length,), columns of the storage that returns
            are summed of.
        indices, last: (S,) int64, what is drawn, and the last row of each return.
        out: uint8, the batch.
        first, following: (any, 3) int64, fields of what is drawn, and of the last rows; see
            `rlcpu.replay.storage.GATHER`.
        returns: (S,) float32, the batch's rewards.
        discounts, weights: (S,) float32 of the batch.
        probabilities: (S,) float64.
        errors: (S,) float32, whose sizes become priorities.
        leaves: (S,) float64, scratch.
        fault: (1,) int64, not 0 where an error was not finite, and no priority was changed.
    """

    add: Any
    draw: Any
    give: Any
    added: Any
    block: Any
    sources: Any
    num_steps: Any
    num_envs: Any
    length: Any
    stream: Any
    tree: Any
    largest: Any
    exponents: Any
    n_step: Any
    gamma: Any
    rewards: Any
    terminated: Any
    truncated: Any
    indices: Any
    last: Any
    out: Any
    first: Any
    following: Any
    returns: Any
    discounts: Any
    weights: Any
    probabilities: Any
    errors: Any
    leaves: Any
    fault: Any


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
    """Return the memory of a buffer; see `ReplayBuffer.looping`.

    `steps` are added at a time, of all environments.
    """
    storage, sampler, n_step = parts.storage, parts.sampler, parts.n_step
    fields, size = parts.structure.fields, len(batch)
    rows = zip(fields, storage.begins, strict=True)
    table = [(begin, field.row_bytes, *sources[field.name]) for field, begin in rows]
    whole, none = np.arange(len(fields)), np.zeros(0, np.float32)
    flags, flat = np.zeros(0, np.bool_), [each.reshape(-1) for each in storage.fields]
    rewards, terminated, truncated = [flat[k] for k in n_step.wanted] or (none, flags, flags)
    is_weighted = batch.weights is not None
    exponents = [sampler.alpha, sampler.beta, sampler.epsilon] if is_weighted else [0.0]
    loop = Loop(
        add=0,
        draw=0,
        give=0,
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
        last=np.zeros(size if n_step.n > 1 else 0, np.int64),
        out=batch.rows.block,
        first=batch.rows.table[n_step.first if n_step.n > 1 else whole],
        following=batch.rows.table[n_step.last if n_step.n > 1 else whole[:0]],
        returns=batch.rows.leaves[n_step.wanted[0]] if n_step.n > 1 else none,
        discounts=none if batch.discounts is None else batch.discounts,
        weights=batch.weights if is_weighted else none,
        probabilities=batch.probabilities if is_weighted else np.zeros(0),
        errors=errors,
        leaves=np.empty(size),
        fault=np.zeros(1, np.int64),
    )
    add, draw, give = _addresses(kind_of(loop), is_weighted)
    return loop._replace(add=add, draw=draw, give=give)


# ---------------------------------------------------------------- functions of a view of a `Loop`


@functools.cache
def _addresses(kind: Any, is_weighted: bool) -> tuple[int, int, int]:
    """Compile the functions that add, draw and give priorities, for a type of `Loop`."""
    functions = [_make_add(is_weighted), _make_draw(is_weighted)] + [give_priorities] * is_weighted
    addresses = [function_of(each, kind, fastmath=EXACT) for each in functions]
    return addresses[0], addresses[1], addresses[2] if is_weighted else 0


def _make_add(is_weighted: bool) -> Callable[..., None]:
    """Make `add_rows(loop)`: it stores the rows at the sources as the next steps."""

    def add_rows(loop):
        """Store the rows of `num_steps` steps of all environments; see `_make_add`."""
        added, length, num_envs = loop.added[0], loop.length, loop.num_envs
        for f in range(loop.sources.shape[0]):
            begin, row_bytes = loop.sources[f, 0], loop.sources[f, 1]
            rows, stride = pointer_to(loop.sources[f, 2], _BYTE), loop.sources[f, 3]
            for step in range(loop.num_steps):
                slot = (added + step) % length
                for env in range(num_envs):
                    to = begin + (env * length + slot) * row_bytes
                    copy_row(loop.block, to, rows, (step * num_envs + env) * stride, row_bytes)
        after = added + loop.num_steps
        if is_weighted:
            capacity = num_envs * length
            write_new(loop.tree, capacity, None, num_envs, added, after, loop.largest)
        loop.added[0] = after

    return add_rows


def _make_draw(is_weighted: bool) -> Callable[..., None]:
    """Make `draw_rows(loop)`: it overwrites the batch with drawn items."""
    write_weights: Any = importance_weights()[0] if is_weighted else None

    def draw_rows(loop):
        """Draw items, and copy their rows, n-step sums and weights to the batch."""
        added, length, indices, size = loop.added[0], loop.length, loop.indices, loop.indices.size
        if is_weighted:
            capacity = loop.num_envs * length
            total = draw_leaves(loop.tree, capacity, None, loop.stream, False, indices)
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


def give_priorities(loop):
    """Set the priorities of drawn items to absolute errors; their indices are overwritten."""
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
