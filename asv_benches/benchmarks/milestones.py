"""One size of every kind of work, for the history: a dozen numbers a commit."""

from __future__ import annotations

import numpy as np

from ._common import Quick, milestone, require


class Simulation(Quick):
    """CartPole-v1, float32."""

    def setup(self):
        import rlcpu

        self.rlcpu = rlcpu
        self.env, self.few = (rlcpu.make_vec("CartPole-v1", n) for n in (4096, 1024))
        for env in (self.env, self.few):
            env.reset(seed=0)

    @milestone
    def track_step_4096(self):
        actions = np.random.default_rng(0).integers(0, 2, 4096)
        return lambda: self.env.step(actions)

    @milestone
    def track_simulate_4096x1000(self):
        """Fused steps with uniform actions."""
        policy = self.rlcpu.policies.Uniform()
        return lambda: self.rlcpu.simulate(self.env, policy, 1000)

    @milestone
    def track_collect_1024x128(self):
        """Simulation and inference, everything recorded."""
        spaces = self.few.single_observation_space, self.few.single_action_space
        policy = self.rlcpu.policies.MLP(*spaces, activation="relu", value="shared")
        rollout = self.rlcpu.collect(self.few, policy, 128)
        return lambda: self.rlcpu.collect(self.few, policy, 128, out=rollout)


class Tree(Quick):
    """A sum tree of 2^20 leaves, 1,024 of them a call."""

    def setup(self):
        self.rng = np.random.default_rng(0)
        self.tree = require("rlcpu.replay.SumTree")(2**20, seed=0)
        self.tree.update(np.arange(2**20), self.rng.random(2**20))

    @milestone
    def track_update(self):
        """New priorities, of 64 sets of leaves in turn: one would be learnt by heart."""
        leaves = list(self.rng.integers(0, 2**20, (64, 1024)))
        priorities = self.rng.random(1024)

        def update() -> None:
            leaves.append(leaves.pop(0))
            self.tree.update(leaves[0], priorities)

        return update

    @milestone
    def track_sample(self):
        return lambda: self.tree.sample(1024)


class Buffer(Quick):
    """Transitions of 100 float32 and a reward, 200,000 of them."""

    def setup(self):
        make = require("rlcpu.replay.ReplayBuffer")
        self.batch = {"observation": np.ones((1600, 100), np.float32), "reward": np.ones(1600)}
        self.buffer = make(200_000, {k: x[0] for k, x in self.batch.items()}, seed=0)
        for _ in range(126):
            self.buffer.add(self.batch)

    @milestone
    def track_add_1600(self):
        return lambda: self.buffer.add(self.batch)

    @milestone
    def track_sample_256(self):
        """Into the same batch again."""
        out = self.buffer.sample(256)
        return lambda: self.buffer.sample(256, out=out)


class Scan(Quick):
    """Recurrences, the sizes of the reports; new arrays for the results but for the systems'."""

    def setup(self):
        self.rng = np.random.default_rng(0)

    @milestone
    def track_tridiagonal(self):
        """100,000 systems of 100 unknowns, float64, row-major."""
        solve = require("rlcpu.scan.solve_tridiagonal")
        lower, upper, rhs = self.rng.random((3, 100_000, 100)) - 0.5
        diagonal, out = np.full_like(rhs, 2.0), np.zeros_like(rhs)
        return lambda: solve(lower, diagonal, upper, rhs, out=out)

    @milestone
    def track_gae(self):
        """2,048 steps of 1,024 environments, float32."""
        gae = require("rlcpu.scan.gae")
        rewards, values = self.rng.standard_normal((2, 2048, 1024), np.float32)
        ends = self.rng.random((2048, 1024)) < 0.01, np.zeros((2048, 1024), np.bool_)
        arrays = rewards, values, *ends, np.zeros(1024, np.float32)
        return lambda: gae(*arrays, gamma=0.99, lambda_=0.95)

    @milestone
    def track_logcumsumexp(self):
        """One row of 100,000 float64."""
        function = require("rlcpu.scan.logcumsumexp")
        row = self.rng.standard_normal(100_000)
        return lambda: function(row)

    @milestone
    def track_kalman_loglik(self):
        """10,000 observations under 64 models of state 4."""
        loglik = require("rlcpu.scan.kalman_loglik")
        transition = 0.95 * np.linalg.qr(self.rng.standard_normal((64, 4, 4)))[0]
        design, noise = self.rng.standard_normal((64, 1, 4)), 0.1 * np.eye(4)
        observations = self.rng.standard_normal((64, 10_000, 1))
        return lambda: loglik(observations, transition, noise, design, np.eye(1))


class Training(Quick):
    """PPO with its default settings."""

    @milestone
    def track_ppo(self):
        """50,000 steps of a new agent in CartPole-v1."""
        agent = require("rlcpu.train.PPO")
        return lambda: agent("CartPole-v1", seed=0).learn(50_000)

    @milestone
    def track_ppo_planes(self):
        """Two rollouts of an agent that goes on, in MinAtar's Breakout."""
        agent = require("rlcpu.train.PPO")("MinAtar/Breakout-v1", seed=0)
        return lambda: agent.learn(16_384)
