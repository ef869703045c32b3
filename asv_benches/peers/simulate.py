"""The table `simulate`: one step per call, and many steps fused, of CartPole-v1."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from asv_benches.peers.cpp import cpp_best
from asv_benches.peers.harness import (
    Arguments,
    Duel,
    Effort,
    Job,
    Measurement,
    drawn,
    jax_loop,
)
from asv_benches.peers.libraries import jax, jnp, torch
from asv_benches.peers.rows import Row, duels
from asv_benches.peers.stepping import (
    ACTIONS_PER_RUN,
    envpool_best,
    gymnasium_step,
    gymnax_step,
    make_gymnasium,
    make_ours,
    our_simulate,
    our_step,
)

CARTPOLE = "CartPole-v1"
# Number of environments: target against CartPoleVectorEnv.
STEP_TARGETS = {1: 6, 16: 8, 256: None, 4096: 40, 2**16: None, 2**18: 60}
SYNC = (1, 16, 256, 4096)  # of them, where Gymnasium's loop over environments takes part
NUM_ENVS, NUM_STEPS = 4096, 1000


def rows() -> list[Row]:
    return [*step_rows(), *fused_rows()]


def step_rows() -> list[Row]:
    """`env.step`: the Python around the kernel counts."""
    made = {"": ("its CartPole", partial(single, CARTPOLE), 1)}
    table = duels("make", "gymnasium.make, float32", partial(single, f"rlcpu/{CARTPOLE}"), made)
    for n, target in STEP_TARGETS.items():
        theirs = partial(gymnasium_step, CARTPOLE, n)
        peers = {"cartpolevectorenv": ("CartPoleVectorEnv", theirs, target)}
        if n in SYNC:
            peers["syncvectorenv"] = ("SyncVectorEnv", partial(theirs, "sync"))
        if n == 256:
            peers["envpool"] = ("envpool", envpool_best(CARTPOLE, n), 80)
        if n == 4096:
            peers["envpool"] = ("envpool", envpool_best(CARTPOLE, n))
            peers["gymnax"] = ("gymnax, jitted step", partial(gymnax_step, CARTPOLE, n))
        what = f"env.step, {n:,} env{'s' if n > 1 else ''}, float32"
        table += duels(f"step-{n}", what, partial(our_step, CARTPOLE, n), peers)
    what = "env.step, 4,096 envs, float64 bit for bit"
    return [*table, Row("exact-4096", what, "CartPoleVectorEnv", exact, target=4)]


def fused_rows() -> list[Row]:
    """`rlcpu.simulate`: the steps fused, actions drawn inside, episode statistics out."""
    what = f"simulate, {NUM_ENVS:,} envs x {NUM_STEPS:,} steps, float32"
    size = NUM_ENVS, NUM_STEPS
    ours, jax = partial(our_simulate, CARTPOLE, *size), partial(jax_simulate, *size)
    peers = {
        "c++": ("the same physics in C++", cpp_best(*size), 1.1),
        "jax": ("jax scan", jax, 40),
        "jax-tuned": ("the same, polynomials", partial(jax, polynomials)),
        "sync": ("SyncVectorEnv", partial(gymnasium_step, CARTPOLE, NUM_ENVS, "sync"), 10_000),
    }
    table = duels("simulate", what, ours, peers)
    for how, varied in {"varied": varied_simulate, "randomized": randomized_simulate}.items():
        one = {how: ("one length", ours, 0.75)}
        table += duels("simulate", f"{what}, length {how}", partial(varied, *size), one)
    return table


# ---------------------------------------------------------------- one step a call


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
    measurement = Duel(
        partial(our_step, CARTPOLE, 4096, dtype="float64"), partial(gymnasium_step, CARTPOLE, 4096)
    )(effort)
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
    ours = make_ours(CARTPOLE, num_envs, dtype="float64")
    theirs = make_gymnasium(CARTPOLE, num_envs)
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


# ---------------------------------------------------------------- fused: ours, JAX, torch


def varied_simulate(num_envs: int, num_steps: int) -> Job:
    """A pole of another length in each environment."""
    length = np.linspace(0.25, 0.75, num_envs)
    return our_simulate(CARTPOLE, num_envs, num_steps, length=length)


class Length(NamedTuple):
    length: float


def randomize(rng: Any, params: Any) -> Length:
    return Length(params.length * (0.5 + rng.uniform(0)))


def randomized_simulate(num_envs: int, num_steps: int) -> Job:
    """A pole of another length in each episode."""
    from rlcpu.envs.tasks.classic_control import cartpole

    poles = dataclasses.replace(cartpole.DYNAMICS, id="Poles-v0", randomize=randomize)
    return our_simulate(poles, num_envs, num_steps)


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
    rng = np.random.default_rng(seed)
    state = rng.uniform(-0.05, 0.05, (4, num_envs)).astype(np.float32)
    keys = rng.integers(0, 2**32, (2, num_envs), dtype=np.uint32)
    return Lanes(*map(jnp.asarray, (*state, np.zeros(num_envs, np.int32), *keys)))


def jax_counters(rng: np.random.Generator, count: int) -> Iterable[Arguments]:
    """Counters of that generator."""
    return zip(rng.integers(0, 2**32, count, dtype=np.uint32), strict=True)


def draw(lanes: Lanes, counter: Any) -> list[Any]:
    """Five numbers in [0, 1) per environment, as rlcpu/kernels/machine/random.py makes them."""
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
    state = physics(lanes, jnp.where(right, 10.0, -10.0).astype(jnp.float32), sincos)
    terminated = (abs(state[0]) > 2.4) | (abs(state[2]) > 0.20943951)
    steps = lanes.steps + 1
    truncated = steps >= 500
    done = terminated | truncated
    new = (jnp.where(done, 0.1 * u - 0.05, s) for u, s in zip(fresh, state, strict=True))
    return Lanes(*new, jnp.where(done, 0, steps), *lanes[5:]), terminated, truncated


def jax_simulate(num_envs: int, num_steps: int, sincos: SinCos = library) -> Job:
    """One `lax.scan` in one `jit`. Unrolling the scan by 2, 4 or 8 makes it slower."""

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
    return jax_loop(simulate, carry, num_envs * num_steps, jax_counters)


def torch_cartpole(num_envs: int) -> tuple[Lanes, Callable[[Lanes], Lanes]]:
    """Random initial states, and one step with uniform actions and automatic reset."""

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
    lanes, advance = torch_cartpole(num_envs)

    @torch.inference_mode()
    def call() -> None:
        nonlocal lanes
        lanes = advance(lanes)

    return Job(call, work=num_envs)
