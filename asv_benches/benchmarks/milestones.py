"""One size of every kind of work, for the history: a dozen numbers a commit.

The fastest of many calls each: old commits are measured when there is time, on machines that others
use too, where asv's medians of ten samples move by half.
"""

from __future__ import annotations

import numpy as np

from ._common import Milestone, fastest, figure, require


class Simulation(Milestone):
    """CartPole-v1, float32."""

    def setup(self) -> None:
        """Environments and policy."""
        import rlcpu

        self.rlcpu = rlcpu
        self.env = rlcpu.make_vec("CartPole-v1", 4096)
        self.env.reset(seed=0)
        self.few = rlcpu.make_vec("CartPole-v1", 1024)
        self.few.reset(seed=0)

    def track_step_4096(self) -> float:
        """`env.step`."""
        actions = np.random.default_rng(0).integers(0, 2, 4096)
        return fastest(lambda: self.env.step(actions))

    def track_simulate_4096x1000(self) -> float:
        """Fused steps with uniform actions."""
        policy = self.rlcpu.policies.Uniform()
        return fastest(lambda: self.rlcpu.simulate(self.env, policy, 1000))

    def track_collect_1024x128(self) -> float:
        """Simulation and inference, everything recorded."""
        spaces = self.few.single_observation_space, self.few.single_action_space
        policy = self.rlcpu.policies.MLP(*spaces, activation="relu", value="shared")
        rollout = self.rlcpu.collect(self.few, policy, 128)
        return fastest(lambda: self.rlcpu.collect(self.few, policy, 128, out=rollout))


class Tree(Milestone):
    """A sum tree of 2^20 leaves, 1,024 of them a call."""

    def setup(self) -> None:
        """Fills the tree."""
        self.rng = np.random.default_rng(0)
        self.tree = require("rlcpu.replay.SumTree")(2**20, seed=0)
        self.tree.update(np.arange(2**20), self.rng.random(2**20))

    def track_update(self) -> float:
        """New priorities, of 64 sets of leaves in turn: one would be learnt by heart."""
        leaves = list(self.rng.integers(0, 2**20, (64, 1024)))
        priorities = self.rng.random(1024)

        def update() -> None:
            leaves.append(leaves.pop(0))
            self.tree.update(leaves[0], priorities)

        return fastest(update)

    def track_sample(self) -> float:
        """Leaves in proportion to their priorities."""
        return fastest(lambda: self.tree.sample(1024))


class Buffer(Milestone):
    """Transitions of 100 float32 and a reward, 200,000 of them."""

    def setup(self) -> None:
        """Fills the buffer."""
        make = require("rlcpu.replay.ReplayBuffer")
        self.batch = {"observation": np.ones((1600, 100), np.float32), "reward": np.ones(1600)}
        self.buffer = make(200_000, {k: x[0] for k, x in self.batch.items()}, seed=0)
        for _ in range(126):
            self.buffer.add(self.batch)

    def track_add_1600(self) -> float:
        """One call."""
        return fastest(lambda: self.buffer.add(self.batch))

    def track_sample_256(self) -> float:
        """Into the same batch again."""
        out = self.buffer.sample(256)
        return fastest(lambda: self.buffer.sample(256, out=out))


class Scan(Milestone):
    """Recurrences, the sizes of the reports; new arrays for the results but for the systems'."""

    def setup(self) -> None:
        """Random numbers."""
        self.rng = np.random.default_rng(0)

    @figure
    def track_tridiagonal(self) -> float:
        """100,000 systems of 100 unknowns, float64, row-major."""
        solve = require("rlcpu.scan.solve_tridiagonal")
        lower, upper, rhs = self.rng.random((3, 100_000, 100)) - 0.5
        diagonal, out = np.full_like(rhs, 2.0), np.zeros_like(rhs)
        return fastest(lambda: solve(lower, diagonal, upper, rhs, out=out))

    @figure
    def track_gae(self) -> float:
        """2,048 steps of 1,024 environments, float32."""
        gae = require("rlcpu.scan.gae")
        rewards, values = self.rng.standard_normal((2, 2048, 1024), np.float32)
        ends = self.rng.random((2048, 1024)) < 0.01, np.zeros((2048, 1024), np.bool_)
        arrays = rewards, values, *ends, np.zeros(1024, np.float32)
        return fastest(lambda: gae(*arrays, gamma=0.99, lambda_=0.95))

    @figure
    def track_logcumsumexp(self) -> float:
        """One row of 100,000 float64."""
        function = require("rlcpu.scan.logcumsumexp")
        row = self.rng.standard_normal(100_000)
        return fastest(lambda: function(row))

    @figure
    def track_kalman_loglik(self) -> float:
        """10,000 observations under 64 models of state 4."""
        loglik = require("rlcpu.scan.kalman_loglik")
        transition = 0.95 * np.linalg.qr(self.rng.standard_normal((64, 4, 4)))[0]
        design, noise = self.rng.standard_normal((64, 1, 4)), 0.1 * np.eye(4)
        observations = self.rng.standard_normal((64, 10_000, 1))
        return fastest(lambda: loglik(observations, transition, noise, design, np.eye(1)))


class Training(Milestone):
    """PPO on CartPole-v1, default settings."""

    @figure
    def track_ppo(self) -> float:
        """50,000 steps of a new agent."""
        agent = require("rlcpu.train.PPO")
        return fastest(lambda: agent("CartPole-v1", seed=0).learn(50_000))
