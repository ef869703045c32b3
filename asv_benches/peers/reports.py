"""Rows of the table `replay`: two reports on replay buffers, their jobs run again.

One is flashbax's issue that adding on a CPU is slow, the other the post "8h to gain 26h" on drawing
by return. The third report that the library answers, JAX's issue 2491, is in the table `scan`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers.harness import POOL, Arguments, Job, drawn, jax_keys, named
from asv_benches.peers.rows import Row, duel

OBSERVATION = 100  # float32 numbers of an observation
NUM_ENVS, LENGTH = 16, 125_000  # of trajectories: 2 million time steps of 400 bytes
SEQUENCE, SEQUENCES = 11, 256
STEPS = 100  # time steps of all environments per call
REFRESHES = 64  # batches whose priorities are set before the clock starts
DRAWS = 256  # by return
POST_TARGETS = {10**4: {}, 10**5: {}, 10**6: {"NumPy": 400, "torch": 800}, 10**7: {}}


# ---------------------------------------------------------------- flashbax's issue


def trajectory_rows() -> list[Row]:
    """Adding to a prioritised trajectory buffer of 2 million time steps, and sampling from it."""
    add, sample = "add {} time steps, {}", f"sample {SEQUENCES} sequences of 11, {{}}"
    size, donated, again = "16 envs, 2 million", "flashbax, donated", sample.format("out=")
    whole, small = add.format(STEPS, "16 envs"), add.format(2, "16 envs")
    one, two, many = (named(our_trajectory, "add", n) for n in (1, 2, STEPS))
    draw, fresh = (named(our_trajectory, "sample", reuse=reuse) for reuse in (True, False))
    new, waiting = sample.format("new arrays"), "flashbax, waiting for each"
    peer, once = partial(named, flashbax_trajectory), "ours, 1 time step"
    block, copy = "copying them to a random place", named(copy_blocks, STEPS)
    rows: tuple[tuple[Any, ...], ...] = (
        ("trajectory-add-1", add.format(1, size), donated, one, peer("add", 1)),
        ("trajectory-add-2", add.format(2, size), donated, two, peer("add", 2)),
        ("trajectory-add-100", add.format(STEPS, size), donated, many, peer("add", STEPS), 8),
        ("trajectory-growth-2", add.format(2, "cost of"), once, two, one, 2, "cost"),
        ("trajectory-growth-100", add.format(STEPS, "cost of"), once, many, one, 60, "cost"),
        ("trajectory-copy", add.format(STEPS, "640 KB"), block, many, copy, 0.5),
        ("trajectory-sample", again, "flashbax", draw, peer("sample"), 8),
        ("trajectory-sample-fresh", new, "flashbax", fresh, peer("sample")),
        ("trajectory-sample-wait", again, waiting, draw, peer("sample", wait=True)),
        # The first script, and its last one.
        ("flashbax-copied", whole, "flashbax, not donated", many, peer("add", STEPS, donate=False)),
        ("flashbax-steps", small, "flashbax, one at a time", two, peer("add", 2, one_by_one=True)),
    )
    return [duel(*row, **({"how": "time"} if "cost" not in row else {})) for row in rows]


def our_trajectory(operation: str, size: int = SEQUENCES, reuse: bool = True) -> Job:
    """`PrioritizedTrajectoryBuffer`: `add` of `size` time steps, or `sample` of 256 sequences."""
    from rlcpu.replay import PrioritizedTrajectoryBuffer

    buffer = PrioritizedTrajectoryBuffer(
        NUM_ENVS, LENGTH, np.zeros(OBSERVATION, np.float32), SEQUENCE, 1, alpha=0.5, seed=0
    )

    def steps(rng: np.random.Generator, count: int = size) -> Arguments:
        return (rng.random((count, NUM_ENVS, OBSERVATION), np.float32),)

    rng = np.random.default_rng(0)
    for _ in range(LENGTH // STEPS):
        buffer.add(*steps(rng, STEPS))
    out = buffer.sample(SEQUENCES)
    for _ in range(REFRESHES):
        buffer.sample(SEQUENCES, out=out)
        buffer.update_priorities(out.indices, rng.random(SEQUENCES))
    if operation == "add":
        return Job(buffer.add, drawn(steps))
    return Job(partial(buffer.sample, SEQUENCES, out=out if reuse else None))


def flashbax_trajectory(
    operation: str,
    size: int = SEQUENCES,
    wait: bool = False,
    donate: bool = True,
    one_by_one: bool = False,
) -> Job:
    """flashbax, compiled as a whole, its inputs JAX's own arrays before the clock starts.

    Args:
        operation: `add` of `size` time steps of 16 environments, or `sample` of 256 sequences.
        size: time steps.
        wait: whether every sample is waited for before the next one is asked for. Only the last
            call of a repetition is waited for otherwise: the calls overlap as XLA sees fit, which
            is up to twice as fast.
        donate: whether XLA may write over the state; if not, `add` copies 800 MB.
        one_by_one: whether `add` takes one time step at a time, inside one compiled function.
    """
    import flashbax
    import jax

    buffer = flashbax.make_prioritised_trajectory_buffer(
        add_batch_size=NUM_ENVS,
        sample_batch_size=SEQUENCES,
        sample_sequence_length=SEQUENCE,
        period=1,
        min_length_time_axis=SEQUENCE,
        max_length_time_axis=LENGTH,
        priority_exponent=0.5,
        device="cpu",
    )

    def steps(rng: np.random.Generator, count: int = size) -> Arguments:
        return (jax.numpy.asarray(rng.random((NUM_ENVS, count, OBSERVATION), np.float32)),)

    def add_one_by_one(state: Any, steps: Any) -> Any:
        """The issue's `buf_add_sequential`."""
        for t in range(size):
            state = buffer.add(state, steps[:, t : t + 1])
        return state

    add_all = jax.jit(buffer.add, donate_argnums=0)
    draw = jax.jit(buffer.sample)
    refresh = jax.jit(buffer.set_priorities, donate_argnums=0)
    state = last = buffer.init(jax.numpy.zeros(OBSERVATION, np.float32))
    rng = np.random.default_rng(0)
    for _ in range(LENGTH // STEPS):
        state = add_all(state, *steps(rng, STEPS))
    for (key,) in jax_keys(rng, REFRESHES):
        indices = draw(state, key).indices
        state = refresh(state, indices, jax.numpy.asarray(rng.random(SEQUENCES, np.float32)))
    chosen = add_one_by_one if one_by_one else buffer.add
    timed = jax.jit(chosen, donate_argnums=0 if donate else ())

    def add(steps: Any) -> None:
        nonlocal state, last
        state = last = timed(state, steps)

    def sample(key: Any) -> None:
        nonlocal last
        last = draw(state, key)
        if wait:
            jax.block_until_ready(last)

    call, inputs = (add, drawn(steps)) if operation == "add" else (sample, jax_keys)
    return Job(call, inputs, finish=lambda: jax.block_until_ready(last))


def copy_blocks(size: int) -> Job:
    """The machine's limit: `size` time steps copied as one block to a random place of 800 MB."""
    array, rows = np.ones((NUM_ENVS * LENGTH, OBSERVATION), np.float32), size * NUM_ENVS

    def copy(begin: int, block: np.ndarray) -> None:
        np.copyto(array[begin : begin + rows], block)

    def inputs(rng: np.random.Generator, count: int) -> list[Arguments]:
        blocks = [rng.random((rows, OBSERVATION), np.float32) for _ in range(min(POOL, count))]
        places = rng.integers(0, NUM_ENVS * LENGTH - rows, count).tolist()
        return [(place, blocks[k % len(blocks)]) for k, place in enumerate(places)]

    return Job(copy, inputs)


# ---------------------------------------------------------------- the post "8h to gain 26h"

# One new return takes an old one's place, then 256 indices are drawn without repetition. With
# m = min(min(B), 0) and w = B + |m|, an item of return b is drawn with probability w / sum(w).


def post_rows() -> list[Row]:
    what = "add 1, draw 256 of {:,} by return"
    table = [
        duel(
            f"post-{size}-{against.lower()}",
            what.format(size),
            f"the post's {against}",
            named(our_post, size),
            named(make, size),
            targets.get(against),
            "time",
        )
        for size, targets in POST_TARGETS.items()
        for against, make in {"NumPy": numpy_post, "torch": torch_post}.items()
    ]
    large, small = named(our_post, 10**7), named(our_post, 10**6)
    what = "add 1, draw 256 of 10,000,000, cost of"
    return [*table, duel("post-growth", what, "ours, 1,000,000", large, small, 3, "cost")]


def returns(rng: np.random.Generator, count: int) -> np.ndarray:
    """Random returns of episodes; a third of them is negative."""
    return rng.normal(50.0, 120.0, count)


def post_job(call: Callable[[float], Any]) -> Job:
    return Job(call, lambda rng, count: [(value,) for value in returns(rng, count).tolist()])


def our_post(size: int) -> Job:
    """`ReturnWeightedBuffer` of transitions of one number: it keeps the sums that it draws by."""
    from rlcpu.replay import ReturnWeightedBuffer

    transition, rng = np.zeros((), np.float32), np.random.default_rng(0)
    buffer = ReturnWeightedBuffer(size, transition, seed=0)
    for begin in range(0, size, 2**16):
        count = min(2**16, size - begin)
        buffer.add(rng.random(count, np.float32), returns(rng, count))

    def call(value: float) -> Any:
        buffer.add(transition, value)
        return buffer.sample_indices(DRAWS)

    return post_job(call)


def numpy_post(size: int) -> Job:
    """The post's first version recomputes everything; here with NumPy's newer generator."""
    rng, position = np.random.default_rng(0), 0
    values = returns(rng, size)

    def call(value: float) -> np.ndarray:
        nonlocal position
        values[position] = value
        position = (position + 1) % size
        weights = values + abs(min(values.min(), 0.0))
        return rng.choice(size, DRAWS, replace=False, p=weights / weights.sum())

    return post_job(call)


def torch_post(size: int) -> Job:
    """The post's second version, float32: it keeps the minimum, which then never rises again."""
    import torch

    values, position = torch.from_numpy(returns(np.random.default_rng(0), size)).float(), 0
    lowest = values.min().item()

    def call(value: float) -> Any:
        nonlocal position, lowest
        values[position] = value
        position = (position + 1) % size
        lowest = min(lowest, value)
        weights = values + abs(min(lowest, 0.0))
        return torch.multinomial(weights / weights.sum(), DRAWS, replacement=False)

    return post_job(call)
