"""Contenders that step environments: ours, Gymnasium's, EnvPool, gymnax; each written once."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers.harness import Contender, Job, best_of, drawn, jax_keys, jax_loop
from asv_benches.peers.libraries import jax

# Actions drawn for one repetition, int64: half the second-level cache; a policy hands its actions
# over warm.
ACTIONS_PER_RUN = 2**16


def step_job(env: Any, num_envs: int, discrete: Any = np.int64) -> Job:
    """Steps an environment that was reset with uniform actions, discrete ones of that dtype."""
    space: Any = getattr(env, "single_action_space", env.action_space)

    def draw(rng: np.random.Generator) -> tuple[np.ndarray]:
        if hasattr(space, "n"):
            return (rng.integers(0, space.n, num_envs).astype(discrete),)
        if hasattr(space, "nvec"):
            return (rng.integers(0, space.nvec, (num_envs, *space.shape)).astype(discrete),)
        low, high, shape = space.low.flat[0], space.high.flat[0], (num_envs, space.shape[-1])
        return (rng.uniform(low, high, shape).astype(space.dtype),)

    return Job(env.step, drawn(draw, max(2, ACTIONS_PER_RUN // num_envs)), num_envs)


# ---------------------------------------------------------------- ours


def make_ours(env_id: Any, num_envs: int, **options: Any) -> Any:
    import rlcpu

    env = rlcpu.make_vec(env_id, num_envs, **options)
    env.reset(seed=0)
    return env


def our_step(env_id: str, num_envs: int, **options: Any) -> Job:
    return step_job(make_ours(env_id, num_envs, **options), num_envs)


def our_simulate(env_id: Any, num_envs: int, num_steps: int, **options: Any) -> Job:
    """`rlcpu.simulate`: the steps fused, actions drawn inside, episode statistics out."""
    import rlcpu

    env = make_ours(env_id, num_envs, **options)
    call = partial(rlcpu.simulate, env, rlcpu.policies.Uniform(), num_steps)
    return Job(call, work=num_envs * num_steps)


def our_collect(env: Any, num_steps: int, **options: Any) -> Job:
    """`rlcpu.collect` under an MLP with these options, into the same rollout again."""
    import rlcpu

    policy = rlcpu.policies.MLP(env.single_observation_space, env.single_action_space, **options)
    rollout = rlcpu.collect(env, policy, num_steps)
    call = partial(rlcpu.collect, env, policy, num_steps, out=rollout)
    return Job(call, work=env.num_envs * num_steps)


# ---------------------------------------------------------------- Gymnasium, EnvPool


def make_gymnasium(env_id: str, num_envs: int, mode: str = "vector_entry_point") -> Any:
    """Gymnasium's vector environment, its loop ("sync") or its processes ("async"), reset."""
    import gymnasium

    known = env_id if env_id in gymnasium.registry else env_id.replace("-v4", "-v3")
    env = gymnasium.make_vec(known, num_envs, vectorization_mode=mode)
    env.reset(seed=0)
    return env


def gymnasium_step(env_id: str, num_envs: int, mode: str = "vector_entry_point") -> Job:
    return step_job(make_gymnasium(env_id, num_envs, mode), num_envs)


def envpool_step(env_id: str, num_envs: int, num_threads: int) -> Job:
    """EnvPool in its synchronous mode."""
    import envpool

    env = envpool.make(
        env_id, env_type="gymnasium", num_envs=num_envs, num_threads=num_threads, seed=0
    )
    env.reset()
    return step_job(env, num_envs, np.int32)


def envpool_best(env_id: str, num_envs: int) -> Contender:
    """EnvPool with the number of threads that suits it here."""
    variants = {f"{k} threads": partial(envpool_step, env_id, num_envs, k) for k in (1, 2)}
    return best_of("envpool", variants)


# ---------------------------------------------------------------- gymnax


def gymnax_step(name: str, num_envs: int, num_steps: int = 0) -> Job:
    """gymnax under `vmap`, as its users write it, with uniform actions.

    Args:
        name: of the environment.
        num_envs: how many.
        num_steps: of one `lax.scan`, which sums rewards and ends; 0 for one jitted step a call,
            which returns its observations.
    """
    import gymnax

    return _jax_step(*gymnax.make(name), num_envs, num_steps)


def craftax_step(name: str, num_envs: int, num_steps: int = 0) -> Job:
    """craftax, whose environments have gymnax's interface; arguments as of `gymnax_step`."""
    from craftax.craftax_env import make_craftax_env_from_name

    env = make_craftax_env_from_name(name, auto_reset=True)
    return _jax_step(env, env.default_params, num_envs, num_steps)


def _jax_step(env: Any, params: Any, num_envs: int, num_steps: int) -> Job:
    def step(states: Any, key: Any) -> Any:
        first, second = jax.random.split(key)
        actions = jax.random.randint(first, (num_envs,), 0, env.num_actions)
        keys = jax.random.split(second, num_envs)
        return jax.vmap(env.step, (0, 0, 0, None))(keys, states, actions, params)[:4]

    def counted(states: Any, key: Any) -> Any:
        _, states, rewards, ended = step(states, key)
        return states, (rewards.sum(), ended.sum())

    @jax.jit
    def run(last: Any, key: Any) -> Any:
        if num_steps:
            return jax.lax.scan(counted, last[0], jax.random.split(key, num_steps))
        seen, states, rewards, ended = step(last[0], key)
        return states, (seen, rewards, ended)

    keys = jax.random.split(jax.random.key(0), num_envs)
    states = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)[1]
    return jax_loop(run, (states, None), num_envs * max(1, num_steps), jax_keys)
