"""Rows of the table `replay`: two reports on replay buffers, their jobs run again.

One is flashbax's issue that adding on a CPU is slow, the other the post "8h to gain 26h" on drawing
by return. The third report that the library answers, JAX's issue 2491, is in the table `scan`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers.harness import POOL, Arguments, Job, drawn, jax_keys, jax_loop
from asv_benches.peers.libraries import jax, torch
from asv_benches.peers.rows import Row, duels

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
    add, peer_add = partial(our_trajectory, "add"), partial(flashbax_trajectory, "add")
    what, table = f"add {{}} time steps, {NUM_ENVS} envs, 2 million", []
    for count, target in ((1, None), (2, None), (STEPS, 8)):
        peers = {str(count): ("flashbax, donated", partial(peer_add, count), target)}
        table += duels("trajectory-add", what.format(count), partial(add, count), peers, "time")
    for count, target in ((2, 2), (STEPS, 60)):
        one = {str(count): ("ours, 1 time step", partial(add, 1), target)}
        cost = f"add {count} time steps, cost of"
        table += duels("trajectory-growth", cost, partial(add, count), one, "cost")
    copy = {"copy": ("copying them to a random place", partial(copy_blocks, STEPS), 0.5)}
    block = f"add {STEPS} time steps, 640 KB"
    sample, draw = (
        f"sample {SEQUENCES} sequences of 11, {{}}",
        partial(flashbax_trajectory, "sample"),
    )
    again = {
        "sample": ("flashbax", draw, 8),
        "sample-wait": ("flashbax, waiting for each", partial(draw, wait=True)),
    }
    fresh = partial(our_trajectory, "sample", reuse=False)
    # The first script, and its last one.
    copied = {"copied": ("flashbax, not donated", partial(peer_add, STEPS, donate=False))}
    steps = {"steps": ("flashbax, one at a time", partial(peer_add, 2, one_by_one=True))}
    short = f"add {{}} time steps, {NUM_ENVS} envs"
    row = partial(duels, how="time")
    return [
        *table,
        *row("trajectory", block, partial(add, STEPS), copy),
        *row("trajectory", sample.format("out="), partial(our_trajectory, "sample"), again),
        *row(
            "trajectory", sample.format("new arrays"), fresh, {"sample-fresh": ("flashbax", draw)}
        ),
        *row("flashbax", short.format(STEPS), partial(add, STEPS), copied),
        *row("flashbax", short.format(2), partial(add, 2), steps),
    ]


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
        wait: whether every sample is waited for before the next one is asked for; calls that
            overlap are up to twice as fast.
        donate: whether XLA may write over the state; if not, `add` copies 800 MB.
        one_by_one: whether `add` takes one time step at a time, inside one compiled function.
    """
    import flashbax

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
    state = buffer.init(jax.numpy.zeros(OBSERVATION, np.float32))
    rng = np.random.default_rng(0)
    for _ in range(LENGTH // STEPS):
        state = add_all(state, *steps(rng, STEPS))
    for (key,) in jax_keys(rng, REFRESHES):
        indices = draw(state, key).indices
        state = refresh(state, indices, jax.numpy.asarray(rng.random(SEQUENCES, np.float32)))
    if operation == "add":
        chosen = add_one_by_one if one_by_one else buffer.add
        timed = jax.jit(chosen, donate_argnums=0 if donate else ())
        return jax_loop(timed, state, inputs=drawn(steps))

    def sample(last: Any, key: Any) -> Any:
        found = draw(state, key)
        return jax.block_until_ready(found) if wait else found

    return jax_loop(sample, None)


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
    table, posts = [], {"NumPy": numpy_post, "torch": torch_post}
    for size, targets in POST_TARGETS.items():
        peers = {
            name.lower(): (f"the post's {name}", partial(make, size), targets.get(name))
            for name, make in posts.items()
        }
        what = f"add 1, draw 256 of {size:,} by return"
        table += duels(f"post-{size}", what, partial(our_post, size), peers, "time")
    small = {"growth": ("ours, 1,000,000", partial(our_post, 10**6), 3)}
    what = "add 1, draw 256 of 10,000,000, cost of"
    return table + duels("post", what, partial(our_post, 10**7), small, "cost")


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
