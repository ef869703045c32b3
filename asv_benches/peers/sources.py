"""The reports that the library answers: their scripts and tables, run again.

Two are on replay buffers: flashbax's issue that adding on a CPU is slow, and the post "8h to gain
26h" on drawing by return; most of their rows stand in the table `replay`. The third, JAX's issue
2491, is on scans: most of its rows are in `scan`. The table `sources` holds the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers import scan
from asv_benches.peers.harness import (
    POOL,
    Arguments,
    Contender,
    Job,
    Panel,
    drawn,
    jax_keys,
    named,
)
from asv_benches.peers.rows import Row, duel
from asv_benches.peers.scan import Systems

OBSERVATION = 100  # float32 numbers of an observation
NUM_ENVS, LENGTH = 16, 125_000  # of trajectories: 2 million time steps of 400 bytes
SEQUENCE, SEQUENCES = 11, 256
STEPS = 100  # time steps of all environments per call
REFRESHES = 64  # batches whose priorities are set before the clock starts
DRAWS = 256  # by return
MILLION = 10**6  # items in the post's buffer
POST_TARGETS = {10**4: {}, 10**5: {}, 10**6: {"NumPy": 400, "torch": 800}, 10**7: {}}
FILL = (10_000, 100_000, 250_000, 500_000, 750_000, MILLION)  # items held: the post's Figure 1
GIST = tuple(10**exponent for exponent in range(3, 8))  # unknowns of all systems together
UNKNOWNS = 100  # of one system
LIMIT = "limit: 4 reads, 1 write"


def rows() -> list[Row]:
    """What the tables `replay` and `scan` do not measure already."""
    return [*flashbax_rows(), *table_rows(), *fill_rows(), *gist_rows()]


def flashbax_rows() -> list[Row]:
    """The issue's first script without donation, and its last one, step by step."""
    whole, two = (named(our_trajectory, "add", n) for n in (STEPS, 2))
    copied = named(flashbax_trajectory, "add", STEPS, donate=False)
    steps = named(flashbax_trajectory, "add", 2, one_by_one=True)
    row = partial(duel, how="time", limit_s=120.0)
    return [
        row(
            "flashbax-copied", "add 100 time steps, 16 envs", "flashbax, not donated", whole, copied
        ),
        row("flashbax-steps", "add 2 time steps, 16 envs", "flashbax, one at a time", two, steps),
    ]


def table_rows() -> list[Row]:
    """The post's Tables 1 and 2; its Table 3, both together, is in the table `replay`."""
    jobs = {"weigh": "probabilities after a new return", "choose": "256 of them drawn"}
    return [
        duel(
            f"post-{operation}-{peer.name}",
            f"{job}, {MILLION:,} items",
            f"the post's {against}",
            named(our_post, operation, MILLION),
            peer,
            how="time",
            limit_s=120.0,
        )
        for operation, job in jobs.items()
        for against, peer in post_peers(operation, MILLION).items()
    ]


def fill_rows() -> list[Row]:
    """The post's Figure 1: the time to sample while the buffer fills."""
    return [
        panel(
            f"fill-{size}",
            f"add 1, draw 256, {size:,} items held",
            size,
            {
                "rlcpu": partial(our_post, "draw", size),
                "the post's NumPy": partial(numpy_post, "draw", size),
                "the post's torch": partial(torch_post, "draw", size),
            },
        )
        for size in FILL
    ]


def gist_rows() -> list[Row]:
    """Systems of 100 unknowns, more and more of them: the report's JAX, NumPy and numba."""
    table = []
    for total in GIST:
        systems = Systems(total // UNKNOWNS, UNKNOWNS)
        contenders: dict[str, Callable[[], Job]] = {
            "rlcpu": partial(scan.our_solve, systems),
            "jax lax.scan": partial(scan.jax_job, systems, scan.solve_rows),
            "numba": partial(scan.numba_solve, systems),
            "NumPy": partial(scan.numpy_solve, systems),
        }
        if total >= GIST[-2]:  # fewer fit into the caches, and memory is no limit
            contenders[LIMIT] = scan.best_roofline(systems).make
        what = f"solve ({systems.batch:,} x {UNKNOWNS}) float64"
        table.append(panel(f"gist-{total}", what, total, contenders))
    return table


def panel(name: str, what: str, size: int, contenders: dict[str, Callable[[], Job]]) -> Row:
    """One point of every curve, in seconds."""
    measure = Panel(size, contenders, rates=False)
    return Row(name, what, "the best of the peers", measure, unit="s", limit_s=120.0)


# ---------------------------------------------------------------- flashbax's issue


def trajectory_rows() -> list[Row]:
    """The report on flashbax: adding to a prioritised trajectory buffer on a CPU is slow."""
    size = "16 envs, 2 million"  # of 100 float32, in sequences of 11
    ours = {n: named(our_trajectory, "add", n) for n in (1, 2, STEPS)}
    peers = {n: named(flashbax_trajectory, "add", n) for n in ours}
    draw, peer = named(our_trajectory, "sample"), named(flashbax_trajectory, "sample")
    fresh = named(our_trajectory, "sample", reuse=False)
    wait = named(flashbax_trajectory, "sample", wait=True)
    add, sample = "add {} time steps, {}", f"sample {SEQUENCES} sequences of 11, {{}}"
    again, copy = sample.format("out="), named(copy_blocks, STEPS)
    row, once, table = partial(duel, how="time"), "ours, 1 time step", []
    for n, target in ((1, None), (2, None), (STEPS, 8)):
        name, what = f"trajectory-add-{n}", add.format(n, size)
        table.append(row(name, what, "flashbax, donated", ours[n], peers[n], target))
    for n, target in ((2, 2), (STEPS, 60)):
        name, what = f"trajectory-growth-{n}", add.format(n, "cost of")
        table.append(duel(name, what, once, ours[n], ours[1], target, "cost"))
    name, what = "trajectory-copy", add.format(STEPS, "640 KB")
    new, waiting = sample.format("new arrays"), "flashbax, waiting for each"
    return [
        *table,
        row(name, what, "copying them to a random place", ours[STEPS], copy, 0.5),
        row("trajectory-sample", again, "flashbax", draw, peer, 8),
        row("trajectory-sample-fresh", new, "flashbax", fresh, peer),
        row("trajectory-sample-wait", again, waiting, draw, wait),
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

# One new return takes an old one's place, then 256 indices are drawn
# without repetition. With m = min(min(B), 0) and w = B + |m|, an item of return b is drawn with
# probability w / sum(w). Operations: "draw" does both, "weigh" the first with all that follows from
# it, "choose" the second alone. The post's first version recomputes everything with NumPy, its
# second one keeps the minimum, which then never rises again, and draws with torch.


def post_rows() -> list[Row]:
    """An item added, 256 drawn."""
    what = "add 1, draw 256 of {:,} by return"
    table = [
        duel(
            f"post-{size}-{against.lower()}",
            what.format(size),
            f"the post's {against}",
            named(our_post, "draw", size),
            peer,
            targets.get(against),
            "time",
        )
        for size, targets in POST_TARGETS.items()
        for against, peer in post_peers("draw", size).items()
    ]
    large, small = (named(our_post, "draw", size) for size in (10**7, 10**6))
    what = "add 1, draw 256 of 10,000,000, cost of"
    return [*table, duel("post-growth", what, "ours, 1,000,000", large, small, 3, "cost")]


def post_peers(operation: str, size: int) -> dict[str, Contender]:
    """The post's two versions, by the name of the library that they use."""
    functions = {"NumPy": numpy_post, "torch": torch_post}
    return {name: named(make, operation, size) for name, make in functions.items()}


def returns(rng: np.random.Generator, count: int) -> np.ndarray:
    """Random returns of episodes; a third of them is negative."""
    return rng.normal(50.0, 120.0, count)


def post_job(
    operation: str, weigh: Callable[[float], Any], choose: Callable[[Any], Any], weights: Any
) -> Job:
    """One of the three operations; `weigh` gives the weights that `choose` draws by."""
    calls = {
        "draw": lambda value: choose(weigh(value)),
        "weigh": weigh,
        "choose": lambda value: choose(weights),
    }

    def inputs(rng: np.random.Generator, count: int) -> list[Arguments]:
        return [(value,) for value in returns(rng, count).tolist()]

    return Job(calls[operation], inputs)


def our_post(operation: str, size: int) -> Job:
    """`ReturnWeightedBuffer` of transitions of one number: it keeps the sums that it draws by."""
    from rlcpu.replay import ReturnWeightedBuffer

    transition, rng = np.zeros((), np.float32), np.random.default_rng(0)
    buffer = ReturnWeightedBuffer(size, transition, seed=0)
    for begin in range(0, size, 2**16):
        count = min(2**16, size - begin)
        buffer.add(rng.random(count, np.float32), returns(rng, count))
    add, sample = partial(buffer.add, transition), buffer.sample_indices
    return post_job(operation, add, lambda weights: sample(DRAWS), None)


def numpy_post(operation: str, size: int) -> Job:
    """The post's first version, with NumPy's newer generator."""
    rng, position = np.random.default_rng(0), 0
    values = returns(rng, size)

    def probabilities() -> np.ndarray:
        weights = values + abs(min(values.min(), 0.0))
        return weights / weights.sum()

    def weigh(value: float) -> np.ndarray:
        nonlocal position
        values[position] = value
        position = (position + 1) % size
        return probabilities()

    def choose(weights: np.ndarray) -> np.ndarray:
        return rng.choice(size, DRAWS, replace=False, p=weights)

    return post_job(operation, weigh, choose, probabilities())


def torch_post(operation: str, size: int) -> Job:
    """The post's second version, float32."""
    import torch

    values, position = torch.from_numpy(returns(np.random.default_rng(0), size)).float(), 0
    lowest = values.min().item()

    def probabilities() -> Any:
        weights = values + abs(min(lowest, 0.0))
        return weights / weights.sum()

    def weigh(value: float) -> Any:
        nonlocal position, lowest
        values[position] = value
        position = (position + 1) % size
        lowest = min(lowest, value)
        return probabilities()

    def choose(weights: Any) -> Any:
        return torch.multinomial(weights, DRAWS, replacement=False)

    return post_job(operation, weigh, choose, probabilities())
