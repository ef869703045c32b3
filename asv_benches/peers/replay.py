"""The table `replay`: storing and sampling, time per call. One call is one unit of work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers.harness import Arguments, Contender, Inputs, Job, best_of, drawn, jax_loop
from asv_benches.peers.libraries import jax, torch
from asv_benches.peers.reports import post_rows, trajectory_rows
from asv_benches.peers.rows import Row, duels

LEAVES = 2**20
OBSERVATION = 100  # float32 numbers of an observation
MILLION = 1_000_000
FILL = 1600  # transitions per call, to fill a buffer
ALPHA, BETA = 0.6, 0.4
# Sizes of a call: target against the best of the peers.
TREE_TARGETS = {
    "update": {32: None, 256: 1.5, 1600: 3, 65536: 12},
    "sample": {32: None, 256: 3, 1024: 3, 65536: 1.3},
}

Transitions = dict[str, np.ndarray]
Convert = Callable[..., Arguments]


def keep(*arrays: Any) -> Arguments:
    """The arrays as they are."""
    return arrays


def rows() -> list[Row]:
    return [*trajectory_rows(), *post_rows(), *tree_rows(), *buffer_rows()]


# ---------------------------------------------------------------- trees alone, of 2^20 leaves


def tree_rows() -> list[Row]:
    table = []
    for operation, targets in TREE_TARGETS.items():
        for size, target in targets.items():
            case = operation, size
            makers = {
                "flashbax": partial(flashbax_tree, *case),
                "torchrl": torchrl_best(*case),
                "tianshou": partial(tianshou_tree, *case),
                "cpprb": partial(cpprb_tree, *case),
            }
            peers = {name: (name, make, target) for name, make in makers.items()}
            what, ours = f"SumTree.{operation} of {size:,}, 2^20 leaves", partial(our_tree, *case)
            table += duels(f"tree-{operation}-{size}", what, ours, peers, "time", ranked=True)
    return table


def new_leaves(size: int, convert: Convert = keep) -> Inputs:
    """Random indices and priorities in a peer's own kind of array; converting is not timed."""

    def inputs(rng: np.random.Generator, count: int) -> list[Arguments]:
        indices, priorities = rng.integers(0, LEAVES, (count, size)), rng.random((count, size))
        return [convert(*pair) for pair in zip(indices, priorities, strict=True)]

    return inputs


def first_leaves() -> Arguments:
    """Indices and priorities: every leaf has one of its own."""
    return np.arange(LEAVES), np.random.default_rng(0).random(LEAVES)


def tree_job(
    operation: str,
    size: int,
    update: Callable[..., Any],
    sample: Callable[..., Any],
    convert: Convert = keep,
) -> Job:
    """`update` of a tree by indices and priorities, or `sample` of a size, by itself."""
    update(*convert(*first_leaves()))
    if operation == "update":
        return Job(update, new_leaves(size, convert))
    return Job(sample, lambda rng, count: [(size,)] * count)


def our_tree(operation: str, size: int) -> Job:
    from rlcpu.replay import SumTree

    tree = SumTree(LEAVES, seed=0)
    return tree_job(operation, size, tree.update, tree.sample)


def flashbax_tree(operation: str, size: int) -> Job:
    """flashbax's functions for CPUs: `set_batch_scan`, and the one way of drawing that it has."""
    from flashbax.buffers import sum_tree

    set_leaves = jax.jit(sum_tree.set_batch_scan, donate_argnums=0)
    draw = jax.jit(sum_tree.stratified_sample, static_argnums=1)

    def convert(indices: np.ndarray, priorities: np.ndarray) -> Arguments:
        return jax.numpy.asarray(indices, np.int32), jax.numpy.asarray(priorities, np.float32)

    def update(state: Any, indices: Any, priorities: Any) -> Any:
        return set_leaves(state, indices, priorities)

    state = update(sum_tree.init(LEAVES), *convert(*first_leaves()))
    if operation == "update":
        return jax_loop(update, state, inputs=new_leaves(size, convert))
    job = jax_loop(lambda last, key: draw(state, size, key), None)
    return job._replace(note="flashbax: stratified, it has no other draw")


def tianshou_tree(operation: str, size: int) -> Job:
    """tianshou's SegmentTree, sampled as its prioritised buffer does."""
    from tianshou.data import SegmentTree

    tree, rng = SegmentTree(LEAVES), np.random.default_rng(0)

    def sample(size: int) -> Any:
        return tree.get_prefix_sum_idx(rng.random(size) * tree.reduce())

    return tree_job(operation, size, tree.__setitem__, sample)


def torchrl_tree(operation: str, size: int, dtype: str, tensors: bool) -> Job:
    """torchrl's compiled tree of one precision, sampled as its prioritised sampler does."""
    import torchrl._torchrl as compiled

    kind = {"float64": compiled.SumSegmentTreeFp64, "float32": compiled.SumSegmentTreeFp32}[dtype]
    tree, rng = kind(LEAVES), np.random.default_rng(0)

    def sample(size: int) -> Any:
        return tree.scan_lower_bound(rng.uniform(0.0, tree.query(0, LEAVES), size))

    def convert(indices: np.ndarray, priorities: np.ndarray) -> Arguments:
        arrays = indices, priorities.astype(dtype)
        return tuple(map(torch.from_numpy, arrays)) if tensors else arrays

    return tree_job(operation, size, tree.__setitem__, sample, convert)


def torchrl_best(operation: str, size: int) -> Contender:
    """The fastest of torchrl's precisions and kinds of array."""
    variants = {
        f"{dtype}, {kind}": partial(torchrl_tree, operation, size, dtype, kind == "tensors")
        for dtype in ("float32", "float64")
        for kind in ("tensors", "arrays")
        if kind == "tensors" or operation == "update"
    }
    return best_of("torchrl", variants)


def cpprb_tree(operation: str, size: int) -> Job:
    """cpprb's tree is reachable only through its prioritised buffer; here that holds one flag."""
    from cpprb import PrioritizedReplayBuffer

    buffer = PrioritizedReplayBuffer(LEAVES, {"done": {}}, alpha=1.0)
    buffer.add(done=np.zeros(LEAVES))
    note = "cpprb: through its buffer of one number per item, there is no other way to its tree"
    job = tree_job(operation, size, buffer.update_priorities, buffer.sample)
    return job._replace(note=note)


# ---------------------------------------------------------------- a million transitions

# All of a buffer is written before the clock, so that no page is touched for the first time, and
# batches are in the peer's own form (tensors, `Batch`, one array per step). Operations: "add" puts
# `size` transitions in, "sample" draws as many uniformly, "prioritized" draws them by priority with
# importance weights and gives them new priorities.


def buffer_rows() -> list[Row]:
    jobs = (
        ("add", 1600, "ReplayBuffer.add of 1,600", 1),
        ("sample", 256, "ReplayBuffer.sample of 256, out=", 2),
        ("prioritized", 256, "Prioritized sample 256, out=, and update", 5),
    )
    table = []
    for operation, size, what, target in jobs:
        makers = buffer_peers(operation, size)
        peers = {name: (name, make, target) for name, make in makers.items()}
        ours = partial(our_buffer, operation, size)
        table += duels(f"buffer-{operation}", what, ours, peers, "time", ranked=True)
    fresh = partial(our_buffer, "sample", 256, reuse=False)
    what, peer = "ReplayBuffer.sample of 256, new arrays", partial(cpprb_buffer, "sample", 256)
    return table + duels("buffer-sample", what, fresh, {"fresh": ("cpprb", peer)}, "time")


def buffer_peers(operation: str, size: int) -> dict[str, Contender]:
    """Everyone; where a call takes one step, the faster of 16 environments and 1,600."""
    functions = {
        "cpprb": cpprb_buffer,
        "torchrl": torchrl_buffer,
        "tianshou": tianshou_buffer,
        "stable-baselines3": stable_baselines_buffer,
    }
    peers: dict[str, Contender] = {k: partial(f, operation, size) for k, f in functions.items()}
    if operation == "prioritized":
        del peers["stable-baselines3"]
    if operation == "add":
        for name in ("tianshou", "stable-baselines3"):
            variants = {f"{n} envs": partial(peers[name], num_envs=n) for n in (1600, 16)}
            peers[name] = best_of(name, variants)
    return peers


def transitions(rng: np.random.Generator, count: int) -> Transitions:
    """Random transitions, `count` of them: 813 bytes each."""
    return {
        "observation": rng.random((count, OBSERVATION), np.float32),
        "next_observation": rng.random((count, OBSERVATION), np.float32),
        "action": rng.integers(0, 4, count),
        "reward": rng.random(count, np.float32),
        "terminated": rng.random(count) < 0.01,
    }


def fill(add: Callable[..., Any], capacity: int, convert: Convert = keep) -> None:
    rng = np.random.default_rng(0)
    for _ in range(-(-capacity // FILL)):
        add(*convert(transitions(rng, FILL)))


def buffer_job(
    operation: str,
    size: int,
    convert: Convert = keep,
    errors: Convert = keep,
    **calls: Callable[..., Any],
) -> Job:
    """A full buffer's operation, one of `calls`; `convert` takes batches, `errors` priorities."""
    if operation == "add":
        return Job(calls["add"], drawn(lambda rng: convert(transitions(rng, size))))
    if operation == "sample":
        return Job(calls["sample"], lambda rng, count: [(size,)] * count)
    return Job(calls["prioritized"], drawn(lambda rng: errors(rng.random(size)), MILLION))


def filled_buffer(operation: str, capacity: int) -> Any:
    """Ours, full, the prioritised one for that operation."""
    from rlcpu import replay

    example = {name: x[0] for name, x in transitions(np.random.default_rng(0), 1).items()}
    buffer: Any = (
        replay.PrioritizedReplayBuffer(capacity, example, alpha=ALPHA, beta=BETA, seed=0)
        if operation == "prioritized"
        else replay.ReplayBuffer(capacity, example, seed=0)
    )
    fill(buffer.add, capacity)
    return buffer


def our_buffer(operation: str, size: int, capacity: int = MILLION, reuse: bool = True) -> Job:
    """Ours; samples go into the same batch again (`out=`), as a training loop does, or do not."""
    buffer = filled_buffer(operation, capacity)
    out = buffer.sample(size) if reuse else None

    def prioritized(priorities: np.ndarray) -> None:
        batch = buffer.sample(size, out=out)
        buffer.update_priorities(batch.indices, priorities)

    calls = {"add": buffer.add, "sample": partial(buffer.sample, out=out)}
    return buffer_job(operation, size, **calls, prioritized=prioritized)


def cpprb_buffer(operation: str, size: int, capacity: int = MILLION) -> Job:
    """cpprb, with next observations of their own, as everyone else's."""
    import cpprb

    observation = {"shape": OBSERVATION, "dtype": np.float32}
    fields = {
        "observation": observation,
        "next_observation": observation,
        "action": {"dtype": np.int64},
        "reward": {"dtype": np.float32},
        "terminated": {"dtype": np.bool_},
    }
    buffer = (
        cpprb.PrioritizedReplayBuffer(capacity, fields, alpha=ALPHA)
        if operation == "prioritized"
        else cpprb.ReplayBuffer(capacity, fields)
    )

    def add(batch: Transitions) -> None:
        buffer.add(**batch)

    def prioritized(priorities: np.ndarray) -> None:
        batch = buffer.sample(size, beta=BETA)
        buffer.update_priorities(batch["indexes"], priorities)

    fill(add, capacity)
    return buffer_job(operation, size, add=add, sample=buffer.sample, prioritized=prioritized)


def torchrl_buffer(operation: str, size: int, capacity: int = MILLION) -> Job:
    """torchrl, its data in one tensor per field, samples of the size that it is made for."""
    import logging

    from tensordict import TensorDict
    from torchrl import data

    logging.getLogger("torchrl").setLevel(logging.WARNING)
    storage = data.LazyTensorStorage(capacity)
    buffer = (
        data.TensorDictPrioritizedReplayBuffer(
            alpha=ALPHA, beta=BETA, storage=storage, batch_size=size
        )
        if operation == "prioritized"
        else data.TensorDictReplayBuffer(storage=storage, batch_size=size)
    )

    def convert(batch: Transitions) -> Arguments:
        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        return (TensorDict(tensors, batch_size=len(batch["reward"])),)

    def errors(priorities: np.ndarray) -> Arguments:
        return (torch.from_numpy(priorities).float(),)  # its tree is of float32

    def prioritized(priorities: Any) -> None:
        batch = buffer.sample()
        buffer.update_priority(batch["index"], priorities)

    fill(buffer.extend, capacity, convert)
    calls = {"add": buffer.extend, "sample": buffer.sample, "prioritized": prioritized}
    return buffer_job(operation, size, convert, errors, **calls)


def by_steps(whole: Transitions, num_envs: int) -> list[Transitions]:
    """A batch as one dictionary for each step of all environments."""
    steps = range(0, len(next(iter(whole.values()))), num_envs)
    return [{name: x[k : k + num_envs] for name, x in whole.items()} for k in steps]


def stable_baselines_buffer(
    operation: str, size: int, capacity: int = MILLION, num_envs: int = 16
) -> Job:
    """stable-baselines3, whose `add` takes one step; it has no prioritised buffer."""
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer

    observations = Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
    buffer = ReplayBuffer(capacity, observations, Discrete(4), device="cpu", n_envs=num_envs)
    infos: list[dict[str, Any]] = [{} for _ in range(num_envs)]
    names = ("observation", "next_observation", "action", "reward", "terminated")

    def convert(batch: Transitions) -> Arguments:
        return ([tuple(step[name] for name in names) for step in by_steps(batch, num_envs)],)

    def add(steps: list[Arguments]) -> None:
        for step in steps:
            buffer.add(*step, infos)

    fill(add, capacity, convert)
    return buffer_job(operation, size, convert, add=add, sample=buffer.sample)


def tianshou_buffer(operation: str, size: int, capacity: int = MILLION, num_envs: int = 16) -> Job:
    """tianshou, whose `add` takes one transition of each of `num_envs` buffers."""
    from tianshou import data

    def renamed(batch: Transitions) -> Transitions:
        """tianshou's names, and the field that it asks for besides."""
        names = ("obs", "obs_next", "act", "rew", "terminated")
        never = np.zeros_like(batch["terminated"])
        return {**dict(zip(names, batch.values(), strict=True)), "truncated": never}

    def convert(batch: Transitions) -> Arguments:
        return ([data.Batch(step) for step in by_steps(renamed(batch), num_envs)],)

    def add(steps: list[Any]) -> None:
        for step in steps:
            buffer.add(step)

    if operation == "add":
        buffer = data.VectorReplayBuffer(capacity, num_envs)
        fill(add, capacity, convert)
        return buffer_job(operation, size, convert, add=add)
    # All at once, because a million transitions one by one take minutes.
    rng = np.random.default_rng(0)
    whole = renamed(transitions(rng, capacity))
    buffer = data.ReplayBuffer.from_data(**whole, done=whole["terminated"])
    if operation == "prioritized":
        full, buffer = buffer, data.PrioritizedReplayBuffer(capacity, ALPHA, BETA)
        buffer.update(full)
        buffer.update_weight(np.arange(capacity), rng.random(capacity))

    def prioritized(priorities: np.ndarray) -> None:
        _, indices = buffer.sample(size)
        buffer.update_weight(indices, priorities)

    return buffer_job(operation, size, sample=buffer.sample, prioritized=prioritized)
