"""Peak memory of a process, interpreter and compiled kernels included."""

from __future__ import annotations

import numpy as np

from ._common import Quick, require


class Peak(Quick):
    """To be compared with the reference: numba and LLVM alone take 100 MB."""

    def peakmem_reference(self):
        """rlcpu imported, nothing compiled."""
        require("rlcpu.make_vec")

    def peakmem_collect(self):
        """A rollout of 1,024 environments x 128 steps: 5 MB of data."""
        env = require("rlcpu.make_vec")("CartPole-v1", 1024)
        env.reset(seed=0)
        spaces = env.single_observation_space, env.single_action_space
        policy = require("rlcpu.policies").MLP(*spaces, value="shared")
        require("rlcpu.collect")(env, policy, 128)

    def peakmem_replay(self):
        """A million prioritised transitions of 44 bytes."""
        example = {"observation": np.zeros(10, np.float32), "reward": np.float32(0)}
        buffer = require("rlcpu.replay.PrioritizedReplayBuffer")(10**6, example, seed=0)
        rewards, observations = np.ones(10_000, np.float32), np.ones((10_000, 10), np.float32)
        for _ in range(100):
            buffer.add({"observation": observations, "reward": rewards})
        buffer.sample(256)

    def peakmem_tridiagonal(self):
        """100,000 systems of 100 unknowns: 400 MB of data with the solution."""
        lower, upper, rhs = np.random.default_rng(0).random((3, 100_000, 100)) - 0.5
        require("rlcpu.scan.solve_tridiagonal")(lower, np.full_like(rhs, 2.0), upper, rhs)
