"""The same on a GPU; "n/a" where there is none."""

from __future__ import annotations

import numpy as np

from ._common import Quick, require, timed


def require_gpu() -> None:
    """Leaves the benchmark out where there is no device.

    Raises:
        NotImplementedError: says so.
    """
    if not require("rlcpu.cuda.provider.is_available")():
        raise NotImplementedError("no CUDA device: `rlcpu info` says what is missing")


class Simulate(Quick):
    """CartPole-v1, float32: one step, and 1,000 fused ones."""

    params = ([4096, 2**18, 2**22],)
    param_names = ("num_envs",)

    def setup(self, num_envs: int) -> None:
        """Environments on the device."""
        require_gpu()
        self.env = require("rlcpu.make_vec")("CartPole-v1", num_envs, device="cuda")
        self.env.reset(seed=0)
        self.simulate = require("rlcpu.simulate")
        self.policy = require("rlcpu.policies").Uniform()

    @timed
    def track_simulate(self, num_envs: int) -> None:
        """Fused steps; the statistics come back to the host, which waits for them."""
        self.simulate(self.env, self.policy, 1000)


class SumTree(Quick):
    """A sum tree of 2^21 leaves on the device."""

    params = ([256, 65_536],)
    param_names = ("size",)

    def setup(self, size: int) -> None:
        """Fills the tree."""
        require_gpu()
        rng = np.random.default_rng(0)
        self.tree = require("rlcpu.replay.SumTree")(2**21, seed=0, device="cuda")
        self.tree.update(np.arange(2**21), rng.random(2**21))
        self.update = rng.integers(0, 2**21, size), rng.random(size)

    @timed
    def track_update(self, size: int) -> None:
        """New priorities."""
        self.tree.update(*self.update)
        float(self.tree.total)  # waits

    @timed
    def track_sample(self, size: int) -> None:
        """Leaves in proportion to their priorities."""
        np.asarray(self.tree.sample(size))
