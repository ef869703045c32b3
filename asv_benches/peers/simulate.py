"""The table `simulate`: one step per call, and many steps fused, of CartPole-v1."""

from __future__ import annotations

from asv_benches.peers import ours
from asv_benches.peers.cpp import cpp_simulate
from asv_benches.peers.duel import Duel
from asv_benches.peers.exact import ExactDuel
from asv_benches.peers.jax_simulate import JaxSimulate, polynomials
from asv_benches.peers.report import Row
from asv_benches.peers.stepping import (
    envpool_sync,
    gymnasium_sync,
    gymnasium_vector,
    rlcpu_step,
    single,
)

# Number of environments: target against CartPoleVectorEnv.
STEP_TARGETS = {1: 6, 16: 8, 256: None, 4096: 40, 2**16: None, 2**18: 60}
NUM_ENVS, NUM_STEPS = 4096, 1000


def rows() -> list[Row]:
    """All rows, in the order of the table."""
    return [*step_rows(), *fused_rows()]


def step_rows() -> list[Row]:
    """`env.step`: the Python around the kernel counts."""
    vector = [
        _step(n, "CartPoleVectorEnv", Duel(rlcpu_step(n), gymnasium_vector(n)), target)
        for n, target in STEP_TARGETS.items()
    ]
    sync = [
        _step(n, "SyncVectorEnv", Duel(rlcpu_step(n), gymnasium_sync(n)))
        for n in (1, 16, 256, 4096)
    ]
    made = Duel(single("rlcpu", "rlcpu/CartPole-v1"), single("Gymnasium", "CartPole-v1"))
    one = Row("make", "gymnasium.make, float32", "its CartPole", made, 1)
    envpool = _step(256, "envpool", Duel(rlcpu_step(256), envpool_sync(256)), 80)
    exact = Row(
        "exact-4096",
        "env.step, 4,096 envs, float64 bit for bit",
        "CartPoleVectorEnv",
        ExactDuel(rlcpu_step(4096, "float64"), gymnasium_vector(4096)),
        target=4,
    )
    return [one, *vector, *sync, envpool, exact]


def _step(num_envs: int, against: str, duel: Duel, target: float | None = None) -> Row:
    name = f"step-{num_envs}-{against.lower()}"
    envs = "env" if num_envs == 1 else "envs"
    return Row(name, f"env.step, {num_envs:,} {envs}, float32", against, duel, target)


def fused_rows() -> list[Row]:
    """`rlcpu.simulate`: the steps fused, actions drawn inside, episode statistics out."""
    what = f"simulate, {NUM_ENVS:,} envs x {NUM_STEPS:,} steps, float32"
    mine = ours.Simulate(NUM_ENVS, NUM_STEPS)
    users = ours.Simulate(NUM_ENVS, NUM_STEPS, ours.USER_ID)
    cpp = cpp_simulate(NUM_ENVS, NUM_STEPS)
    jax = JaxSimulate(NUM_ENVS, NUM_STEPS)
    jax_tuned = JaxSimulate(NUM_ENVS, NUM_STEPS, polynomials)
    return [
        Row("simulate-c++", what, "the same physics in C++", Duel(mine, cpp), 1.1),
        Row("simulate-jax", what, "jax scan", Duel(mine, jax), 40),
        Row("simulate-jax-tuned", what, "the same, polynomials", Duel(mine, jax_tuned)),
        Row("simulate-sync", what, "SyncVectorEnv", Duel(mine, gymnasium_sync(NUM_ENVS)), 10_000),
        Row("simulate-user", "simulate, user-defined CartPole", "ours", Duel(users, mine), 0.95),
    ]
