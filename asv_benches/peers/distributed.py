"""The table `distributed`: collectors and sharded replay on Ray, beside one process and peers."""

from __future__ import annotations

import subprocess
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from asv_benches.peers.harness import Job
from asv_benches.peers.rows import Row, duels

#: Of a row, which starts a cluster and fills buffers first.
LIMIT_S = 600.0
#: Environments of a collector, and steps of each in a block: 1.3 MB of transitions.
NUM_ENVS, NUM_STEPS = 256, 128
CAPACITY, BATCH = 1_000_000, 256
#: Transitions of a table that Reverb takes seconds to fill.
FEWER = 100_000
#: Batches that an agent of ours draws, and learns from, in one call; steps of an episode.
AT_ONCE, EPISODE = 8, 500
#: Draws of a repetition: a message to a shard asks for several of them.
IN_A_ROW = 32
#: Shards that together take the load of one.
SHARDS = 8
#: Python with Reverb, which wants another NumPy than rlcpu, and the program that it runs.
REVERB = Path(__file__).parents[2] / ".venv-reverb" / "bin" / "python"
TABLE = Path(__file__).with_name("reverb_table.py")


def rows() -> list[Row]:
    row, rllib = partial(duels, limit_s=LIMIT_S), "RLlib's buffer of episodes"
    stored = f"blocks of {NUM_ENVS * NUM_STEPS:,} transitions of CartPole, made and stored"
    drawn = f"batches of {BATCH} of a million transitions by priority, and their update"
    one, many = partial(our_draws, 1), partial(our_draws, SHARDS)
    blocks, shards = {"stored": ("one process", local_blocks, 0.5)}, ("one shard", one, 1.2)
    added = f"episodes of {EPISODE} steps added"
    fewer, reverb = f"{FEWER:,} transitions: ", "Reverb's table"
    reverb_adds = {"added": (reverb, partial(from_reverb, "add", EPISODE), 3)}
    reverb_draws = {"drawn": (reverb, partial(from_reverb, "draw", AT_ONCE), 3)}
    few_drawn = f"{fewer}batches of {BATCH} by priority, and their update"
    return [
        *row("", stored, our_blocks, blocks),
        *row("", added, our_adds, {"added": (rllib, rllib_adds, 100)}),
        *row("", drawn, one, {"drawn": (rllib, rllib_draws, 100)}),
        *row("reverb", fewer + added, partial(our_adds, FEWER), reverb_adds),
        *row("reverb", few_drawn, partial(our_draws, 1, FEWER), reverb_draws),
        *row("", f"{drawn}, {SHARDS} shards", many, {"shards": shards}, "cost"),
    ]


def _example() -> dict[str, Any]:
    from rlcpu.envs.rollout.transitions import example_of

    return {**example_of("CartPole-v1"), "discount": np.float32(0)}


def _policy() -> Any:
    from rlcpu.envs.contract.names import find
    from rlcpu.train.running.actors import EpsilonGreedy

    return EpsilonGreedy(find("CartPole-v1"), (64, 64))


@cache
def _cluster() -> Any:
    """A cluster that all contenders of a row share; it ends with their process."""
    from rlcpu.distributed import Cluster

    return Cluster(2 * SHARDS)


def _replay(num_shards: int, capacity: int = CAPACITY) -> Any:
    """Shards full of zeros."""
    from rlcpu.distributed import ReplayShard, ShardedReplay
    from rlcpu.replay import PrioritizedReplayBuffer
    from rlcpu.replay.structure import TransitionStructure

    example = _example()
    options = {"capacity": capacity // num_shards, "example": example}
    shards = [
        _cluster().start(ReplayShard, PrioritizedReplayBuffer, options) for _ in range(num_shards)
    ]
    replay = ShardedReplay(shards, TransitionStructure(example))
    for _ in range(8):
        replay.add(_zeros(capacity // 8))
    replay.take_answers(wait=True)
    return replay


def _zeros(count: int) -> dict[str, Any]:
    leaves = {name: np.asarray(leaf) for name, leaf in _example().items()}
    return {name: np.zeros((count, *leaf.shape), leaf.dtype) for name, leaf in leaves.items()}


def our_blocks() -> Job:
    """One collector and one shard, two blocks on the way at any time."""
    from rlcpu.distributed import Collector

    cluster, policy, replay = _cluster(), _policy(), _replay(1)
    collector = cluster.start(Collector, "CartPole-v1", policy, num_envs=NUM_ENVS, seed=0)
    numbers = cluster.put(policy.state())
    waiting = [collector.call("collect", numbers, NUM_STEPS) for _ in range(2)]

    def store() -> None:
        block, _, made = waiting.pop(0)
        waiting.append(collector.call("collect", numbers, NUM_STEPS))
        replay.add(block, collector.result(made).size)
        while replay.ledger.on_the_way > 4 * NUM_ENVS * NUM_STEPS:
            replay.take_answers()

    store()
    replay.take_answers(wait=True)
    return Job(store, work=NUM_ENVS * NUM_STEPS, finish=lambda: replay.take_answers(wait=True))


def local_blocks() -> Job:
    """The same loop in this process."""
    from rlcpu.distributed import Collector
    from rlcpu.replay import PrioritizedReplayBuffer

    policy = _policy()
    collector = Collector("CartPole-v1", policy, num_envs=NUM_ENVS, seed=0)
    buffer = PrioritizedReplayBuffer(CAPACITY, _example())

    def store() -> None:
        buffer.add(collector.collect(policy.state(), NUM_STEPS)[0])

    store()
    return Job(store, work=NUM_ENVS * NUM_STEPS)


def our_adds(capacity: int = CAPACITY) -> Job:
    """One episode a call to one shard, which answers later."""
    replay, block = _replay(1, capacity), _zeros(EPISODE)

    def add() -> None:
        replay.add(block)

    return Job(add, work=EPISODE, finish=lambda: replay.take_answers(wait=True))


def rllib_adds() -> Job:
    buffer = _rllib_buffer()
    return Job(lambda: buffer.add(_rllib_episode()), work=EPISODE)


def our_draws(num_shards: int, capacity: int = CAPACITY) -> Job:
    """As our agents draw: some batches in one call, many calls one after the other."""
    replay, rng = _replay(num_shards, capacity), np.random.default_rng(0)
    batch = replay.sample(AT_ONCE * BATCH)

    def draw() -> None:
        for _ in range(IN_A_ROW):
            replay.sample(AT_ONCE * BATCH, out=batch)
            replay.update_priorities(batch.indices, rng.random(AT_ONCE * BATCH))

    def finish() -> None:
        """Wait for what was asked for ahead, and keep it, as the next repetition had it."""
        for asked in replay._asked:
            _cluster().wait([asked.updated, asked.drawn], timeout=LIMIT_S)

    draw()
    return Job(draw, work=IN_A_ROW * AT_ONCE, finish=finish)


def rllib_draws() -> Job:
    """RLlib's prioritised buffer of episodes with as many transitions."""
    buffer, rng = _rllib_buffer(), np.random.default_rng(0)

    def draw() -> None:
        buffer.sample(num_items=BATCH, n_step=1, beta=0.4)
        buffer.update_priorities(rng.random(BATCH) + 1e-3)

    draw()
    return Job(draw, work=1)


def _rllib_buffer() -> Any:
    from ray.rllib.utils.replay_buffers import PrioritizedEpisodeReplayBuffer

    buffer = PrioritizedEpisodeReplayBuffer(capacity=CAPACITY, batch_size_B=BATCH)
    for _ in range(CAPACITY // EPISODE):
        buffer.add(_rllib_episode())
    return buffer


def _rllib_episode() -> Any:
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    return SingleAgentEpisode(
        observations=list(np.zeros((EPISODE + 1, 4), np.float32)),
        actions=[0] * EPISODE,
        rewards=[1.0] * EPISODE,
        terminated=True,
        len_lookback_buffer=0,
    )


def from_reverb(what: str, work: int) -> Job:
    """A table in the process of another Python; it ends when its input does."""
    if not REVERB.exists():
        raise ModuleNotFoundError(f"{REVERB.parts[-3]} is missing: see {TABLE.name}")
    process = subprocess.Popen(
        [REVERB, TABLE, f"{FEWER}", f"{BATCH}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    questions: Any = process.stdin
    answers: Any = process.stdout

    def listen() -> None:
        if not answers.readline():
            raise RuntimeError(f"{TABLE.name} ended with {process.wait()}")

    def ask() -> None:
        questions.write(f"{what} {work}\n")
        questions.flush()
        listen()

    listen()
    return Job(ask, work=work)
