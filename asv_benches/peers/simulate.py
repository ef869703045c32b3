"""The table `simulate`: one step per call, and many steps fused, of CartPole-v1."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from asv_benches.peers.cpp import cpp_best
from asv_benches.peers.harness import (
    Contender,
    Duel,
    Effort,
    Job,
    Measurement,
    best_of,
    drawn,
    jax_counters,
    jax_keys,
    named,
)
from asv_benches.peers.rows import Row, duel

# Number of environments: target against CartPoleVectorEnv.
STEP_TARGETS = {1: 6, 16: 8, 256: None, 4096: 40, 2**16: None, 2**18: 60}
NUM_ENVS, NUM_STEPS = 4096, 1000
ACTIONS_PER_RUN = 2**16  # int64: half the second-level cache; a policy hands its actions over warm


def rows() -> list[Row]:
    return [*step_rows(), *fused_rows()]


def step_rows() -> list[Row]:
    """`env.step`: the Python around the kernel counts."""
    made = named(single, "rlcpu/CartPole-v1"), named(single, "CartPole-v1")
    bit_for_bit = "env.step, 4,096 envs, float64 bit for bit"
    threads = {f"{k} threads": partial(envpool_step, 256, k) for k in (1, 2)}
    return [
        duel("make", "gymnasium.make, float32", "its CartPole", *made, target=1),
        *(step_row(n, by_gymnasium(n), target) for n, target in STEP_TARGETS.items()),
        *(step_row(n, by_gymnasium(n, "sync")) for n in (1, 16, 256, 4096)),
        step_row(256, best_of("envpool", threads), 80),
        Row("exact-4096", bit_for_bit, "CartPoleVectorEnv", exact, target=4),
    ]


def step_row(num_envs: int, peer: Contender, target: float | None = None) -> Row:
    what = f"env.step, {num_envs:,} env{'s' if num_envs > 1 else ''}, float32"
    name = f"step-{num_envs}-{peer.name.lower()}"
    return duel(name, what, peer.name, named(our_step, num_envs), peer, target)


def fused_rows() -> list[Row]:
    """`rlcpu.simulate`: the steps fused, actions drawn inside, episode statistics out."""
    what = f"simulate, {NUM_ENVS:,} envs x {NUM_STEPS:,} steps, float32"
    size = NUM_ENVS, NUM_STEPS
    mine, sync = named(our_simulate, *size), named(gymnasium_step, NUM_ENVS, "sync")
    tuned = named(jax_simulate, *size, polynomials)
    return [
        duel("simulate-c++", what, "the same physics in C++", mine, cpp_best(*size), 1.1),
        duel("simulate-jax", what, "jax scan", mine, named(jax_simulate, *size), 40),
        duel("simulate-jax-tuned", what, "the same, polynomials", mine, tuned),
        duel("simulate-sync", what, "SyncVectorEnv", mine, sync, 10_000),
        *(
            duel(f"simulate-{how}", f"{what}, length {how}", "one length", varied, mine, 0.75)
            for how, varied in (
                ("varied", Contender("an array", partial(varied_simulate, *size))),
                ("randomized", Contender("randomize", partial(randomized_simulate, *size))),
            )
        ),
    ]


# ---------------------------------------------------------------- one step a call


def step_job(env: Any, num_envs: int) -> Job:
    """Steps an environment that was reset; as many actions as the cache holds, then again."""
    most = max(2, ACTIONS_PER_RUN // num_envs)
    return Job(env.step, drawn(lambda rng: (rng.integers(0, 2, num_envs),), most), num_envs)


def make_ours(num_envs: int, dtype: str = "float32", env_id: str = "CartPole-v1") -> Any:
    import rlcpu

    env = rlcpu.make_vec(env_id, num_envs, dtype=dtype)
    env.reset(seed=0)
    return env


def make_gymnasium(num_envs: int, mode: str = "vector_entry_point") -> Any:
    """Gymnasium's CartPoleVectorEnv, or its loop over scalar environments ("sync"), reset."""
    import gymnasium

    env = gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode=mode)
    env.reset(seed=0)
    return env


def our_step(num_envs: int, dtype: str = "float32") -> Job:
    return step_job(make_ours(num_envs, dtype), num_envs)


def gymnasium_step(num_envs: int, mode: str = "vector_entry_point") -> Job:
    return step_job(make_gymnasium(num_envs, mode), num_envs)


def by_gymnasium(num_envs: int, mode: str = "vector_entry_point") -> Contender:
    """Gymnasium's NumPy CartPole, or its loop over scalar environments ("sync")."""
    name = "SyncVectorEnv" if mode == "sync" else "CartPoleVectorEnv"
    return Contender(name, partial(gymnasium_step, num_envs, mode))


def envpool_step(num_envs: int, num_threads: int) -> Job:
    """envpool's CartPole in its synchronous mode."""
    import envpool

    env = envpool.make(
        "CartPole-v1", env_type="gymnasium", num_envs=num_envs, num_threads=num_threads, seed=0
    )
    env.reset()
    return step_job(env, num_envs)


def single(env_id: str) -> Job:
    """What `gymnasium.make` makes, with its wrappers, reset after each end."""
    import gymnasium

    import rlcpu  # noqa: F401 (registers ours)

    env = gymnasium.make(env_id)
    env.reset(seed=0)

    def step(action: Any) -> None:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()

    return Job(step, drawn(lambda rng: (rng.integers(0, 2),), ACTIONS_PER_RUN))


def exact(effort: Effort) -> Measurement:
    """A duel in float64 that is off where the two do not agree bit for bit."""
    measurement = Duel(named(our_step, 4096, "float64"), by_gymnasium(4096))(effort)
    if measurement.ratio is None:
        return measurement
    steps = sum(compare(4096, seed) for seed in range(effort.rounds))
    note = f"state, reward, terminated and truncated equal in {steps:,} environment steps"
    return dataclasses.replace(measurement, note=note)


def compare(num_envs: int, seed: int) -> int:
    """Rolls both out from the same states with the same actions, up to every first episode's end.

    Returns:
        How many environment steps were compared.

    Raises:
        AssertionError: one of them differs in a bit.
    """
    ours, theirs = make_ours(num_envs, "float64"), make_gymnasium(num_envs)
    theirs.reset(seed=seed)
    ours.state = theirs.state.T
    rng = np.random.default_rng(seed)
    alive = np.ones(num_envs, np.bool_)
    compared = 0
    while alive.any():
        actions = rng.integers(0, 2, num_envs)
        _, *found = ours.step(actions)
        _, *wanted = theirs.step(actions)
        pairs = zip((ours.state, *found[:3]), (theirs.state.T, *wanted[:3]), strict=True)
        for name, pair in zip(("state", "reward", "terminated", "truncated"), pairs, strict=True):
            different = int((pair[0][alive] != pair[1][alive]).sum())
            assert not different, f"{name} is not bit for bit Gymnasium's in {different} numbers"
        compared += int(alive.sum())
        alive &= ~(wanted[1] | wanted[2])
    return compared


# ---------------------------------------------------------------- fused: ours, JAX, torch, gymnax


def our_simulate(num_envs: int, num_steps: int, env_id: str = "CartPole-v1") -> Job:
    return simulate_job(make_ours(num_envs, env_id=env_id), num_steps)


def varied_simulate(num_envs: int, num_steps: int) -> Job:
    """A pole of another length in each environment."""
    import rlcpu

    env = rlcpu.make_vec("CartPole-v1", num_envs, length=np.linspace(0.25, 0.75, num_envs))
    env.reset(seed=0)
    return simulate_job(env, num_steps)


class Length(NamedTuple):
    length: float


def randomize(rng: Any, params: Any) -> Length:
    return Length(params.length * (0.5 + rng.uniform(0)))


def randomized_simulate(num_envs: int, num_steps: int) -> Job:
    """A pole of another length in each episode."""
    import rlcpu
    from rlcpu.envs import cartpole

    poles = dataclasses.replace(cartpole.DYNAMICS, id="Poles-v0", randomize=randomize)
    env = rlcpu.make_vec(poles, num_envs)
    env.reset(seed=0)
    return simulate_job(env, num_steps)


def simulate_job(env: Any, num_steps: int) -> Job:
    import rlcpu

    call = partial(rlcpu.simulate, env, rlcpu.policies.Uniform(), num_steps)
    return Job(call, work=env.num_envs * num_steps)


# `jax.random` (threefry) would be most of the time, so the random numbers are those of
# cartpole.cpp: of the five numbers of a step, as random.py makes them from splitmix64.
ADDENDS = (
    (0x7B1DCDAE, 0xE220A839),
    (0x89025CC0, 0x910A2DEC),
    (0x1C9756CE, 0x975835DE),
    (0xDB018FEC, 0x1D0B14E4),
    (0xE2338ACA, 0x6E73E372),
)

SinCos = Callable[[Any], tuple[Any, Any]]


class Lanes(NamedTuple):
    """State of every environment, each (num_envs,): float32, steps int32, keys uint32."""

    x: Any
    x_dot: Any
    theta: Any
    theta_dot: Any
    steps: Any
    key_low: Any
    key_high: Any


def start(num_envs: int, seed: int = 0) -> Lanes:
    """Random initial states, of JAX."""
    import jax.numpy as jnp

    rng = np.random.default_rng(seed)
    state = rng.uniform(-0.05, 0.05, (4, num_envs)).astype(np.float32)
    keys = rng.integers(0, 2**32, (2, num_envs), dtype=np.uint32)
    return Lanes(*map(jnp.asarray, (*state, np.zeros(num_envs, np.int32), *keys)))


def draw(lanes: Lanes, counter: Any) -> list[Any]:
    """Five numbers in [0, 1) per environment, as rlcpu/kernels/random.py makes them."""
    import jax.numpy as jnp

    u32 = jnp.uint32
    a = lanes.key_low + counter * u32(0x9E3779B9)
    a = (a ^ (a >> 16)) * u32(0x7FEB352D)
    b = lanes.key_high + a
    b = (b ^ (b >> 15)) * u32(0x846CA68B)
    a = a + b
    a = (a ^ (a >> 16)) * u32(0x85EBCA6B)
    b = b + a
    b = (b ^ (b >> 15)) * u32(0xC2B2AE35)
    words = (((a | 1) + u32(first)) * (b + u32(second)) >> 8 for first, second in ADDENDS)
    return [word.astype(jnp.int32).astype(jnp.float32) * jnp.float32(2**-24) for word in words]


def polynomials(x: Any) -> tuple[Any, Any]:
    """Sine and cosine for |x| <= pi/4, all that CartPole needs; those of cartpole.cpp."""
    z = x * x
    sin = x + x * z * (-1.6666654611e-1 + z * (8.3321608736e-3 + z * -1.9515295891e-4))
    tail = 4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5)
    return sin, 1.0 - 0.5 * z + z * z * tail


def library(x: Any) -> tuple[Any, Any]:
    """Sine and cosine as one writes them in JAX."""
    import jax.numpy as jnp

    return jnp.sin(x), jnp.cos(x)


def physics(lanes: Lanes, force: Any, sincos: SinCos) -> tuple[Any, Any, Any, Any]:
    """CartPole's new x, x_dot, theta, theta_dot, of JAX's or torch's arrays."""
    x, x_dot, theta, theta_dot = lanes[:4]
    sin, cos = sincos(theta)
    temp = (force + 0.05 * theta_dot * theta_dot * sin) * (1 / 1.1)
    theta_acc = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - (0.1 / 1.1) * cos * cos))
    x_acc = temp - (0.05 / 1.1) * theta_acc * cos
    return (
        x + 0.02 * x_dot,
        x_dot + 0.02 * x_acc,
        theta + 0.02 * theta_dot,
        theta_dot + 0.02 * theta_acc,
    )


def advance(
    lanes: Lanes, right: Any, fresh: list[Any], sincos: SinCos = library
) -> tuple[Lanes, Any, Any]:
    """One step and automatic reset in JAX; returns the lanes, terminated and truncated."""
    import jax.numpy as jnp

    state = physics(lanes, jnp.where(right, 10.0, -10.0).astype(jnp.float32), sincos)
    terminated = (abs(state[0]) > 2.4) | (abs(state[2]) > 0.20943951)
    steps = lanes.steps + 1
    truncated = steps >= 500
    done = terminated | truncated
    new = (jnp.where(done, 0.1 * u - 0.05, s) for u, s in zip(fresh, state, strict=True))
    return Lanes(*new, jnp.where(done, 0, steps), *lanes[5:]), terminated, truncated


def jax_simulate(num_envs: int, num_steps: int, sincos: SinCos = library) -> Job:
    """One `lax.scan` in one `jit`. Unrolling the scan by 2, 4 or 8 makes it slower."""
    import jax
    import jax.numpy as jnp

    def step(carry: Any, counter: Any) -> Any:
        lanes, (episodes, lengths) = carry
        u, *fresh = draw(lanes, counter)
        new, terminated, truncated = advance(lanes, u >= 0.5, fresh, sincos)
        done = terminated | truncated
        lengths = lengths + jnp.where(done, lanes.steps + 1, 0)
        return (new, (episodes + done, lengths)), None

    @partial(jax.jit, donate_argnums=0)
    def simulate(carry: Any, counter: Any) -> Any:
        counters = counter + jnp.arange(num_steps, dtype=jnp.uint32)
        return jax.lax.scan(step, carry, counters)[0]

    carry = start(num_envs), tuple(jnp.zeros(num_envs, jnp.int32) for _ in range(2))

    def call(counter: np.uint32) -> None:
        nonlocal carry
        carry = simulate(carry, counter)

    return Job(call, jax_counters, num_envs * num_steps, lambda: jax.block_until_ready(carry))


def gymnax_simulate(num_envs: int, num_steps: int) -> Job:
    """gymnax's CartPole under `vmap`, the steps as one `lax.scan`, as its users write it."""
    import gymnax
    import jax

    env, parameters = gymnax.make("CartPole-v1")

    def step(state: Any, key: Any) -> Any:
        act, move = jax.random.split(key)
        actions = jax.random.randint(act, (num_envs,), 0, 2)
        keys = jax.random.split(move, num_envs)
        new = jax.vmap(env.step, (0, 0, 0, None))(keys, state, actions, parameters)
        return new[1], None

    @partial(jax.jit, donate_argnums=0)
    def simulate(state: Any, key: Any) -> Any:
        return jax.lax.scan(step, state, jax.random.split(key, num_steps))[0]

    keys = jax.random.split(jax.random.key(0), num_envs)
    state = jax.vmap(env.reset, (0, None))(keys, parameters)[1]

    def call(key: Any) -> None:
        nonlocal state
        state = simulate(state, key)

    return Job(call, jax_keys, num_envs * num_steps, lambda: jax.block_until_ready(state))


def torch_cartpole(num_envs: int) -> tuple[Lanes, Callable[[Lanes], Lanes]]:
    """Random initial states, and one step with uniform actions and automatic reset."""
    import torch

    def advance(lanes: Lanes) -> Lanes:
        force = 20.0 * (torch.rand(num_envs) < 0.5) - 10.0
        state = physics(lanes, force, lambda x: (torch.sin(x), torch.cos(x)))
        steps = lanes.steps + 1
        done = (abs(state[0]) > 2.4) | (abs(state[2]) > 0.20943951) | (steps >= 500)
        fresh = 0.1 * torch.rand(4, num_envs) - 0.05
        new = (torch.where(done, new, old) for new, old in zip(fresh, state, strict=True))
        return Lanes(*new, torch.where(done, 0, steps), None, None)

    torch.manual_seed(0)
    steps = torch.zeros(num_envs, dtype=torch.int32)
    return Lanes(*(0.1 * torch.rand(4, num_envs) - 0.05), steps, None, None), advance


def torch_simulate(num_envs: int) -> Job:
    """PyTorch, eager: CartPole as tensor operations, every step a dozen calls from Python."""
    import torch

    lanes, advance = torch_cartpole(num_envs)

    @torch.inference_mode()
    def call() -> None:
        nonlocal lanes
        lanes = advance(lanes)

    return Job(call, work=num_envs)
