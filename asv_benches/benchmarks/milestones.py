"""One size of every kind of work, for the history: a dozen numbers a commit."""

from __future__ import annotations

from functools import partial

import numpy as np

from asv_benches.peers.agents import GAME, learning
from asv_benches.peers.collect import cartpole_collect
from asv_benches.peers.harness import Job
from asv_benches.peers.recurrences import (
    Line,
    Models,
    Rollouts,
    our_gae,
    our_kalman,
    our_logcumsumexp,
)
from asv_benches.peers.replay import our_tree
from asv_benches.peers.scan import REPORT, Systems, our_solve
from asv_benches.peers.simulate import CARTPOLE
from asv_benches.peers.stepping import our_simulate, our_step

from ._common import Quick, milestone, require


class Simulation(Quick):
    """CartPole-v1, float32; everything recorded where it is collected."""

    track_step_4096 = milestone(partial(our_step, CARTPOLE, 4096))
    track_simulate_4096x1000 = milestone(partial(our_simulate, CARTPOLE, 4096, 1000))
    track_collect_1024x128 = milestone(partial(cartpole_collect, 1024, 128, "relu"))


class Tree(Quick):
    """A sum tree of 2^20 leaves, 1,024 of them a call."""

    track_update = milestone(partial(our_tree, "update", 1024))
    track_sample = milestone(partial(our_tree, "sample", 1024))


def full_buffer(operation: str) -> Job:
    """Transitions of 100 float32 and a reward, 200,000 of them; samples into the same batch."""
    batch = {"observation": np.ones((1600, 100), np.float32), "reward": np.ones(1600)}
    example = {name: column[0] for name, column in batch.items()}
    buffer = require("rlcpu.replay.ReplayBuffer")(200_000, example, seed=0)
    for _ in range(126):
        buffer.add(batch)
    out = buffer.sample(256)
    calls = {"add": partial(buffer.add, batch), "sample": partial(buffer.sample, 256, out=out)}
    return Job(calls[operation])


class Buffer(Quick):
    """Adding 1,600 and sampling 256."""

    track_add_1600 = milestone(partial(full_buffer, "add"))
    track_sample_256 = milestone(partial(full_buffer, "sample"))


class Scan(Quick):
    """Recurrences, the sizes of the reports; new arrays for the advantages and logarithms."""

    track_tridiagonal = milestone(partial(our_solve, Systems(*REPORT)))
    track_gae = milestone(partial(our_gae, Rollouts(2048, 1024), reuse=False))
    track_logcumsumexp = milestone(partial(our_logcumsumexp, Line(100_000), reuse=False))
    track_kalman_loglik = milestone(partial(our_kalman, Models(64, 4)))


def new_agent() -> Job:
    agent = require("rlcpu.train.PPO")
    return Job(lambda: agent(CARTPOLE, seed=0).learn(50_000))


def agent_of_planes() -> Job:
    return learning(require("rlcpu.train.PPO")(GAME, seed=0), 16_384, 16_384)


class Training(Quick):
    """PPO: 50,000 steps of a new agent; two rollouts of one that goes on, observed as planes."""

    track_ppo = milestone(new_agent)
    track_ppo_planes = milestone(agent_of_planes)
