"""The table `games`: MinAtar, tables, LunarLander, BipedalWalker; one step a call, or many."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers.harness import Job, best_of, drawn, jax_keys, named
from asv_benches.peers.rows import Row, duel

NUM_ENVS, NUM_STEPS = 4096, 100
#: MinAtar's games, which gymnax has but for the last, and targets: against gymnax, many steps and
#: a step per call, and against MinAtar's own package.
MINATAR = {
    "Breakout": ("Breakout-MinAtar", 20, 40, 1000),
    "SpaceInvaders": ("SpaceInvaders-MinAtar", 20, 40, 1000),
    "Freeway": ("Freeway-MinAtar", 10, 40, None),
    "Asterix": ("Asterix-MinAtar", 10, 40, None),
    "Seaquest": (None, None, None, None),
}
#: Tables of Gymnasium and what EnvPool calls them.
TABLES = {"FrozenLake-v1": "FrozenLake-v1", "Taxi-v4": "Taxi-v3"}
#: Environments of peers that need a Python call or a solver for each.
FEW = 256


def rows() -> list[Row]:
    return [*minatar_rows(), *table_rows(), *lander_rows()]


def minatar_rows() -> list[Row]:
    """Each game against gymnax's, on the same cores, and against MinAtar's own package."""
    made = []
    for game, (theirs, fused, single, alone) in MINATAR.items():
        ours, name = f"MinAtar/{game}-v1", game.lower()
        many = f"simulate, {NUM_ENVS:,} x {NUM_STEPS}, {game}"
        mine = named(our_simulate, ours)
        package = named(minatar_step, game)
        made.append(duel(f"{name}-minatar", many, "MinAtar, act and state", mine, package, alone))
        if theirs is None:
            continue
        one = f"env.step, {NUM_ENVS:,} envs, uint8 planes, {game}"
        made += [
            duel(f"{name}-scan", many, "gymnax, scan", mine, named(gymnax_scan, theirs), fused),
            duel(f"{name}-step", one, "gymnax, jitted step",
                 named(our_step, ours), named(gymnax_step, theirs), single),
        ]  # fmt: skip
    return made


def table_rows() -> list[Row]:
    """`env.step` of toy text."""
    made = []
    for ours, theirs in TABLES.items():
        name, what = ours.split("-")[0].lower(), f"env.step, {NUM_ENVS:,} envs, {ours}"
        mine = named(our_step, ours)
        pools = {f"{k} threads": partial(envpool_step, theirs, NUM_ENVS, k) for k in (1, 2)}
        made += [
            duel(f"{name}-sync", what, f"SyncVectorEnv of {FEW}", mine,
                 named(gymnasium_step, ours), 100),
            duel(f"{name}-envpool", what, "EnvPool", mine, best_of("envpool", pools), 20),
        ]  # fmt: skip
    return made


def lander_rows() -> list[Row]:
    """`env.step` of those whose contacts EnvPool leaves to Box2D."""
    made = []
    for ours, theirs in {"LunarLander-v3": "LunarLander-v2", "BipedalWalker-v3": None}.items():
        name = "lander" if theirs else "walker"
        pools = {f"{k} threads": partial(envpool_step, theirs or ours, FEW, k) for k in (1, 2)}
        what, peer = f"env.step, {NUM_ENVS:,} envs, {ours}", best_of("envpool", pools)
        made.append(
            duel(f"{name}-envpool", what, f"EnvPool of {FEW}", named(our_step, ours), peer, 20)
        )
    return made


# ---------------------------------------------------------------- contenders


def step_job(env: Any, num_envs: int, dtype: Any = np.int64) -> Job:
    """Steps an environment that was reset, with uniform actions."""
    space = getattr(env, "single_action_space", env.action_space)

    def draw(rng: np.random.Generator) -> Any:
        if hasattr(space, "n"):
            return (rng.integers(0, space.n, num_envs).astype(dtype),)
        low, high, size = space.low.flat[0], space.high.flat[0], space.shape[-1]
        return (rng.uniform(low, high, (num_envs, size)).astype(np.float32),)

    return Job(env.step, drawn(draw, 16), num_envs)


def our_step(env_id: str) -> Job:
    import rlcpu

    env = rlcpu.make_vec(env_id, NUM_ENVS)
    env.reset(seed=0)
    return step_job(env, NUM_ENVS)


def our_simulate(env_id: str) -> Job:
    import rlcpu

    env = rlcpu.make_vec(env_id, NUM_ENVS)
    env.reset(seed=0)
    policy = rlcpu.policies.Uniform()
    return Job(lambda: rlcpu.simulate(env, policy, NUM_STEPS), work=NUM_ENVS * NUM_STEPS)


def envpool_step(env_id: str, num_envs: int, num_threads: int) -> Job:
    """EnvPool in its synchronous mode."""
    import envpool

    env = envpool.make(
        env_id, env_type="gymnasium", num_envs=num_envs, num_threads=num_threads, seed=0
    )
    env.reset()
    return step_job(env, num_envs, np.int32)


def gymnasium_step(env_id: str) -> Job:
    """Gymnasium's loop over environments."""
    import gymnasium

    known = env_id if env_id in gymnasium.registry else env_id.replace("-v4", "-v3")
    env = gymnasium.make_vec(known, FEW, vectorization_mode="sync")
    env.reset(seed=0)
    return step_job(env, FEW)


def minatar_step(game: str) -> Job:
    """One environment of the package: `act` and `state`, which makes the planes."""
    from minatar import Environment

    names = {"SpaceInvaders": "space_invaders"}
    env = Environment(names.get(game, game.lower()))

    def call(actions: Any) -> None:
        for action in actions:
            _, ended = env.act(action)
            env.state()
            if ended:
                env.reset()

    def draw(rng: np.random.Generator) -> Any:
        return (rng.integers(0, 6, 100).tolist(),)

    return Job(call, drawn(draw), work=100)


def make_gymnax(name: str) -> tuple[Any, Any, Any]:
    """A function of a key and states that takes one random step in all environments; the states."""
    import gymnax
    import jax

    env, params = gymnax.make(name)
    reset = jax.jit(jax.vmap(env.reset, (0, None)))
    _, states = reset(jax.random.split(jax.random.PRNGKey(0), NUM_ENVS), params)

    def step(key: Any, states: Any) -> Any:
        first, second = jax.random.split(key)
        actions = jax.random.randint(first, (NUM_ENVS,), 0, env.num_actions)
        keys = jax.random.split(second, NUM_ENVS)
        return jax.vmap(env.step, (0, 0, 0, None))(keys, states, actions, params)[:4]

    return jax, step, states


def gymnax_step(name: str) -> Job:
    """One jitted step of all environments, which return their planes."""
    jax, step, states = make_gymnax(name)
    jitted = jax.jit(step)

    def call(key: Any) -> None:
        nonlocal states
        _, states, *_ = jax.block_until_ready(jitted(key, states))

    return Job(call, jax_keys, NUM_ENVS)


def gymnax_scan(name: str) -> Job:
    """Many steps in one jitted scan, which sums the rewards."""
    jax, step, states = make_gymnax(name)

    @jax.jit
    def run(key: Any, states: Any) -> Any:
        def body(states: Any, key: Any) -> Any:
            _, states, rewards, ended = step(key, states)
            return states, (rewards.sum(), ended.sum())

        return jax.lax.scan(body, states, jax.random.split(key, NUM_STEPS))

    def call(key: Any) -> None:
        nonlocal states
        states, _ = jax.block_until_ready(run(key, states))

    return Job(call, jax_keys, NUM_ENVS * NUM_STEPS)
