"""The same on a GPU; "n/a" where there is none."""

from __future__ import annotations

from functools import partial

import numpy as np

from ._common import benchmark, require


def require_gpu() -> None:
    """Leaves the benchmark out where there is no device."""
    if not require("rlcpu.cuda.is_available")():
        raise NotImplementedError("no CUDA device: `rlcpu info` says what is missing")


@benchmark("simulate", num_envs=[4096, 2**18, 2**22])
def Simulate(num_envs):
    """CartPole-v1, float32, 1,000 fused steps; their statistics come back to the host."""
    require_gpu()
    env = require("rlcpu.make_vec")("CartPole-v1", num_envs, device="cuda")
    env.reset(seed=0)
    return partial(require("rlcpu.simulate"), env, require("rlcpu.policies").Uniform(), 1000)


@benchmark("update", "sample", size=[256, 65_536])
def SumTree(size):
    """A sum tree of 2^21 leaves on the device; reading something waits for it."""
    require_gpu()
    rng = np.random.default_rng(0)
    tree = require("rlcpu.replay.SumTree")(2**21, seed=0, device="cuda")
    tree.update(np.arange(2**21), rng.random(2**21))
    new = rng.integers(0, 2**21, size), rng.random(size)
    return lambda: (tree.update(*new), float(tree.total)), lambda: int(tree.sample(size)[-1])
