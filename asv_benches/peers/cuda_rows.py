"""The rows of the GPU table: what, how much of it is wanted, and how it is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers import cuda_peers
from asv_benches.peers.cuda_timing import Card, Figure, Sizes, seconds_per_call

FULL = Sizes(
    burst_s=0.1,
    rounds=5,
    envs=(2**24, 2**20, 2**16),
    steps=(1000, 128),
    grid=((8, 10, 12, 14, 16, 18, 20, 22, 24), (1, 10, 100, 1000)),
    factors=((1, 1), (4, 1), (16, 1), (1, 4), (1, 16), (4, 4), (16, 16)),
    system=(100_000, 100),
    leaves=2**21,
    batch=65_536,
    copy_bytes=2**30,
)
#: Small enough for the simulator.
QUICK = Sizes(
    burst_s=0.0,
    rounds=1,
    envs=(8, 4, 4),
    steps=(2, 2),
    grid=((2,), (1, 2)),
    factors=((2, 2),),
    system=(3, 4),
    leaves=8,
    batch=4,
    copy_bytes=4096,
)


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: for `--only` and the JSON file.
        what: the job.
        measure: card -> figure.
        target: what is wanted, in words.
    """

    name: str
    what: str
    measure: Callable[[Card], Figure]
    target: str = ""


def rows(sizes: Sizes) -> Iterator[Row]:
    """All rows, the promised ones first."""
    large, long, rollout = sizes.envs
    steps, horizon = sizes.steps
    yield Row("step", f"env.step, {large:,} CartPoles, float32", step, "80 % of copy bandwidth")
    yield Row(
        "simulate",
        f"simulate, {long:,} CartPoles x {steps:,} steps, float32",
        partial(simulate, num_envs=long, num_steps=steps, peers=True),
        "100 G steps/s on an H100, 10x torch eager, 3x a jax scan",
    )
    yield Row("collect", f"collect, MLP 4-64-64, {rollout:,} x {horizon}", collect, "5x torch")
    count, size = sizes.system
    for dtype in ("float64", "float32"):
        for layout, share in (("interleaved", 70), ("rows", 50)):
            yield Row(
                f"thomas-{layout}-{dtype}",
                f"solve_tridiagonal, {count:,} systems of {size}, {dtype}, {layout}",
                partial(solve, dtype=dtype, layout=layout),
                f"{share} % of copy bandwidth, ahead of CuPy and jax",
            )
    what = f"sum tree of {sizes.leaves:,} leaves, {sizes.batch:,} at a time"
    yield Row("tree-update", f"{what}: update", partial(tree, sampled=False), "60 us on an H100")
    yield Row("tree-sample", f"{what}: sample", partial(tree, sampled=True), "20 us on an H100")
    yield Row("gae", f"generalised advantages, {horizon} x {rollout:,}, float32", advantages)
    for exponent in sizes.grid[0]:
        for length in sizes.grid[1]:
            name = f"figure8-n2^{exponent}-k{length}"
            run = partial(simulate, num_envs=2**exponent, num_steps=length)
            yield Row(name, f"simulate, 2^{exponent} CartPoles x {length:,} steps", run)
    for factors in sizes.factors:
        name = f"figure9-s{factors[0]}-c{factors[1]}"
        yield Row(name, "fusing 100 steps, over 100 calls", partial(fusion, factors=factors))


def make_env(num_envs: int, environment: Any = "CartPole-v1") -> Any:
    """Environments on the device, after their reset."""
    import rlcpu

    env = rlcpu.make_vec(environment, num_envs, device="cuda")
    env.reset(seed=0)
    return env


def step(card: Card) -> Figure:
    """One step of very many environments: memory traffic and nothing else."""
    from rlcpu.cuda.arrays import from_host

    num_envs = card.sizes.envs[0]
    env = make_env(num_envs)
    actions = from_host(np.random.default_rng(0).integers(0, 2, num_envs).astype(np.int32))
    seconds = seconds_per_call(lambda: env.step(actions), card.sizes)
    # State and return, clock: read and written; keys and action read; the outputs written.
    traffic = num_envs * (2 * 5 * 4 + 2 * 4 + 8 + 4 + 4 * 4 + 4 + 2)
    return Figure(seconds, num_envs / seconds, traffic / seconds / card.bandwidth)


def simulate(card: Card, num_envs: int, num_steps: int, peers: bool = False) -> Figure:
    """Fused steps under random actions."""
    import rlcpu

    env, policy = make_env(num_envs), rlcpu.policies.Uniform()
    seconds = seconds_per_call(lambda: rlcpu.simulate(env, policy, num_steps), card.sizes)
    figure = Figure(seconds, num_envs * num_steps / seconds)
    if peers:
        shape = num_envs, num_steps
        cuda_peers.compare(figure, "torch eager", cuda_peers.torch_simulate, shape, card.sizes)
        cuda_peers.compare(figure, "jax scan", cuda_peers.jax_simulate, shape, card.sizes)
    return figure


def collect(card: Card) -> Figure:
    """Simulation and inference in one kernel."""
    import rlcpu

    num_envs, num_steps = card.sizes.envs[2], card.sizes.steps[1]
    env = make_env(num_envs)
    policy = rlcpu.policies.MLP(env.single_observation_space, env.single_action_space)
    rollout = rlcpu.collect(env, policy, num_steps)
    seconds = seconds_per_call(
        lambda: rlcpu.collect(env, policy, num_steps, out=rollout), card.sizes
    )
    multiply_adds = 2 * (4 * 64 + 64 * 64) + 64 * 3
    work = num_envs * num_steps
    share = 2 * multiply_adds * work / seconds / card.flops
    figure = Figure(seconds, work / seconds, share, "float32 peak")
    shape = num_envs, num_steps
    cuda_peers.compare(figure, "torch", cuda_peers.torch_collect, shape, card.sizes)
    return figure


def solve(card: Card, dtype: str, layout: str) -> Figure:
    """Many small tridiagonal systems; interleaved ones are the columns of matrices."""
    from rlcpu.cuda import scan
    from rlcpu.cuda.arrays import empty, from_host

    count, size = card.sizes.system
    rng = np.random.default_rng(0)
    shape, axis = ((size, count), 0) if layout == "interleaved" else ((count, size), -1)
    host = [rng.uniform(-1, 1, shape).astype(dtype) for _ in range(4)]
    host[1] += 4.0
    inputs, out = [from_host(each) for each in host], empty(shape, dtype)

    def call() -> None:
        scan.solve_tridiagonal(*inputs, axis=axis, method="thomas", out=out)

    seconds = seconds_per_call(call, card.sizes)
    share = 5 * out.nbytes / seconds / card.bandwidth
    figure = Figure(seconds, count / seconds, share)
    problem = (host, layout)
    cuda_peers.compare(figure, "CuPy gtsv2StridedBatch", cuda_peers.cupy_solve, problem, card.sizes)
    cuda_peers.compare(figure, "jax tridiagonal_solve", cuda_peers.jax_solve, problem, card.sizes)
    return figure


def tree(card: Card, sampled: bool) -> Figure:
    """Priorities written, or indices drawn."""
    import rlcpu
    from rlcpu.cuda.arrays import from_host

    leaves, batch = card.sizes.leaves, card.sizes.batch
    rng = np.random.default_rng(0)
    own = rlcpu.replay.SumTree(leaves, seed=0, device="cuda")
    own.update(np.arange(leaves), rng.random(leaves))
    indices = from_host(rng.integers(0, leaves, batch))
    priorities = from_host(rng.random(batch))
    call: Callable[[], Any] = partial(own.update, indices, priorities)
    if sampled:
        call = partial(own.sample, batch)
    seconds = seconds_per_call(call, card.sizes)
    figure = Figure(seconds, batch / seconds)
    problem = (leaves, batch, sampled)
    cuda_peers.compare(figure, "torchrl", cuda_peers.torchrl_tree, problem, card.sizes)
    return figure


def advantages(card: Card) -> Figure:
    """A recurrence over time, batched over environments."""
    import rlcpu
    from rlcpu.cuda.arrays import from_host

    shape = card.sizes.steps[1], card.sizes.envs[2]
    rng = np.random.default_rng(0)
    rewards, values = (from_host(rng.random(shape, np.float32)) for _ in range(2))
    terminated, truncated = (from_host(rng.random(shape) < 0.01) for _ in range(2))
    last_values = from_host(rng.random(shape[1], np.float32))

    def call() -> Any:
        return rlcpu.scan.gae(
            rewards, values, terminated, truncated, last_values, gamma=0.99, lambda_=0.95
        )

    seconds = seconds_per_call(call, card.sizes)
    return Figure(seconds, shape[0] * shape[1] / seconds)


def fusion(card: Card, factors: tuple[int, int]) -> Figure:
    """What fusing 100 steps gains, as the paper's Figure 9 normalises it."""
    import rlcpu
    from asv_benches.peers.factors import make_dynamics

    env = make_env(card.sizes.envs[1], make_dynamics(*factors))
    policy = rlcpu.policies.Uniform()
    fused, single = (
        seconds_per_call(partial(rlcpu.simulate, env, policy, steps), card.sizes) / steps
        for steps in (100 if card.sizes.burst_s else 2, 1)
    )
    return Figure(fused, env.num_envs / fused, ratios={"one step a call": single / fused})
