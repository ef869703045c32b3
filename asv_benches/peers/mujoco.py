"""The table `mujoco`: steps and rollouts of MuJoCo's tasks; its physics is the limit of all."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers.harness import Contender, Job, best_of, drawn, named
from asv_benches.peers.rows import Row, duel

NUM_ENVS, NUM_STEPS = 64, 16
#: Targets of a step against EnvPool.
ENVPOOL = {"HalfCheetah-v5": 1.6, "Hopper-v5": 2, "Ant-v5": 1.15, "Humanoid-v5": 1.1}
#: Of a step against Gymnasium's loop, and its processes.
GYMNASIUM = {"HalfCheetah-v5": (5, 14), "Ant-v5": (3.3, 4)}
TASKS = (*ENVPOOL, "Walker2d-v5")


#: Steps of one call of an agent.
PPO_STEPS = 512


def rows() -> list[Row]:
    what = "PPO, HalfCheetah-v5, rl-zoo's settings"
    peers = {kind: partial(stable_ppo, kind) for kind in ("DummyVecEnv", "SubprocVecEnv")}
    peer = best_of("stable-baselines3", peers)
    ppo = duel("halfcheetah-ppo", what, "stable-baselines3", named(our_ppo), peer, 5, limit_s=900.0)
    return [ppo, *(row for task in TASKS for row in task_rows(task))]


def task_rows(task: str) -> list[Row]:
    """One task: a step against all others, and what of the physics' own speed is left."""
    name, step = task.removesuffix("-v5").lower(), named(our_step, task)
    what, made = f"env.step, {NUM_ENVS} envs, {task}", []
    if task in ENVPOOL:
        pools = {f"{k} threads": partial(envpool_step, task, k) for k in (1, 2)}
        made += [
            duel(f"{name}-envpool", what, "EnvPool", step, best_of("envpool", pools), ENVPOOL[task])
        ]
    for mode, target in zip(("sync", "async"), GYMNASIUM.get(task, ()), strict=False):
        peer = Contender(mode, partial(gymnasium_step, task, mode))
        made.append(duel(f"{name}-{mode}", what, f"{mode.title()}VectorEnv", step, peer, target))
    many, bare = f"collect, {NUM_ENVS} x {NUM_STEPS}, MLP 64-64, {task}", "mjb_step alone"
    return [
        *made,
        duel(f"{name}-step-bare", what, bare, step, named(bare_step, task, 1), 0.85),
        duel(f"{name}-bare", many, bare, named(our_collect, task), named(bare_step, task), 0.95),
    ]


def step_job(env: Any, low: float, high: float, size: int, dtype: Any = np.float32) -> Job:
    """Steps an environment that was reset, with uniform actions."""

    def draw(rng: np.random.Generator) -> Any:
        return (rng.uniform(low, high, (NUM_ENVS, size)).astype(dtype),)

    return Job(env.step, drawn(draw, 16), NUM_ENVS)


def make_ours(task: str, **options: Any) -> Any:
    import rlcpu

    env = rlcpu.make_vec(task, NUM_ENVS, **options)
    env.reset(seed=0)
    return env


def our_step(task: str) -> Job:
    env = make_ours(task)
    space = env.single_action_space
    return step_job(env, float(space.low[0]), float(space.high[0]), space.shape[0])


def envpool_step(task: str, num_threads: int) -> Job:
    """EnvPool in its synchronous mode."""
    import envpool

    env = envpool.make(
        task, env_type="gymnasium", num_envs=NUM_ENVS, num_threads=num_threads, seed=0
    )
    env.reset()
    space = env.action_space
    return step_job(env, space.low.flat[0], space.high.flat[0], space.shape[-1], np.float64)


def gymnasium_step(task: str, mode: str) -> Job:
    """Gymnasium's loop over environments ("sync"), or a process for each ("async")."""
    import gymnasium

    silence()
    env = gymnasium.make_vec(task, NUM_ENVS, vectorization_mode=mode)
    env.reset(seed=0)
    space: Any = env.single_action_space
    return step_job(env, float(space.low[0]), float(space.high[0]), space.shape[0])


def silence() -> None:
    """Drop MuJoCo's warnings: each of Gymnasium's environments loads a model that it warns of."""
    import logging

    import rlcpu.envs.mujoco  # noqa: F401 - they go to this logger then

    logging.getLogger("rlcpu.mujoco").setLevel(logging.ERROR)


# ---------------------------------------------------------------- agents


def our_ppo() -> Job:
    from rlcpu.train import PPO
    from rlcpu.train.zoo import ppo_config

    agent = PPO("HalfCheetah-v5", seed=0, config=ppo_config("HalfCheetah-v5"))
    agent.learn(PPO_STEPS)
    return Job(lambda: agent.learn(PPO_STEPS), work=PPO_STEPS)


def stable_ppo(kind: str) -> Job:
    """PPO of stable-baselines3, whose rewards are normalised too."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common import env_util, vec_env

    from rlcpu.train.zoo import ppo_config

    torch.set_num_threads(1)  # more make its small minibatches slower
    silence()  # a forked process keeps that
    ours = ppo_config("HalfCheetah-v5")
    options = {"start_method": "fork"} if kind == "SubprocVecEnv" else {}
    made = env_util.make_vec_env(
        "HalfCheetah-v5",
        ours.num_envs,
        vec_env_cls=getattr(vec_env, kind),
        vec_env_kwargs=options,
    )
    agent = PPO(
        "MlpPolicy",
        vec_env.VecNormalize(made),
        n_steps=ours.num_steps,
        batch_size=ours.minibatch_size,
        n_epochs=ours.num_epochs,
        learning_rate=ours.learning_rate,
        clip_range=ours.clip_range,
        gamma=ours.gamma,
        gae_lambda=ours.lambda_,
        ent_coef=ours.entropy_coefficient,
        vf_coef=ours.value_coefficient,
        max_grad_norm=ours.max_gradient_norm,
        policy_kwargs={
            "net_arch": list(ours.hidden),
            "activation_fn": torch.nn.ReLU,
            "log_std_init": ours.log_std_init,
            "ortho_init": False,
        },
        seed=0,
        device="cpu",
    )
    agent.learn(PPO_STEPS)
    return Job(lambda: agent.learn(PPO_STEPS, reset_num_timesteps=False), work=PPO_STEPS)


# ---------------------------------------------------------------- beside the physics alone


def states_of(task: str) -> tuple[Any, Any]:
    """Environments that took a hundred random steps, and their states."""
    import rlcpu

    env = make_ours(task, max_episode_steps=10**6)
    rlcpu.simulate(env, rlcpu.policies.Uniform(), 100)
    return env, env.state


def our_collect(task: str) -> Job:
    """`rlcpu.collect` of a few steps, from the same states each time."""
    import rlcpu

    env, state = states_of(task)
    policy = rlcpu.policies.MLP(env.single_observation_space, env.single_action_space)
    rollout = rlcpu.collect(env, policy, NUM_STEPS)

    def call() -> None:
        env.memory.batch.state[:] = state
        rlcpu.collect(env, policy, NUM_STEPS, out=rollout)

    return Job(call, work=NUM_ENVS * NUM_STEPS)


def bare_step(task: str, num_steps: int = NUM_STEPS) -> Job:
    """`mjb_step` alone, from the same states, with the controls that they hold."""
    import ctypes

    from rlcpu.envs.mujoco.library import library

    env, state = states_of(task)
    batch, step = env.memory.batch, library().mjb_step
    step.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int] * 3]
    skip = env.dynamics.frame_skip

    def call() -> None:
        batch.state[:] = state
        for _ in range(num_steps):
            step(batch.address, None, 0, skip, 0)

    return Job(call, work=NUM_ENVS * num_steps)
