"""The table `mujoco`: steps and rollouts of MuJoCo's tasks; its physics is the limit of all."""

from __future__ import annotations

import ctypes
import logging
from functools import partial
from typing import Any

from asv_benches.peers.agents import our_ppo, stable_ppo
from asv_benches.peers.harness import Job, best_of
from asv_benches.peers.rows import Row, duels
from asv_benches.peers.stepping import (
    envpool_best,
    gymnasium_step,
    make_ours,
    our_collect,
    our_step,
)

NUM_ENVS, NUM_STEPS = 64, 16
#: Targets of a step against EnvPool, Gymnasium's loop and its processes; None means no row.
TASKS = {
    "HalfCheetah-v5": (1.6, 5, 14),
    "Hopper-v5": (2, None, None),
    "Ant-v5": (1.15, 3.3, 4),
    "Humanoid-v5": (1.1, None, None),
    "Walker2d-v5": (None, None, None),
}
PPO_TASK, PPO_STEPS = "HalfCheetah-v5", 512  # steps of one call of an agent


def rows() -> list[Row]:
    what = f"PPO, {PPO_TASK}, rl-zoo's settings"
    variants = {kind: partial(silent_ppo, kind) for kind in ("DummyVecEnv", "SubprocVecEnv")}
    peers = {"ppo": ("stable-baselines3", best_of("stable-baselines3", variants), 5)}
    ours = partial(our_ppo, PPO_TASK, PPO_STEPS)
    table = duels("halfcheetah", what, ours, peers, limit_s=900.0)
    return [*table, *(row for task in TASKS for row in task_rows(task))]


def task_rows(task: str) -> list[Row]:
    """One task: a step against all others, and what of the physics' own speed is left."""
    makers = {
        "envpool": ("EnvPool", envpool_best(task, NUM_ENVS)),
        "sync": ("SyncVectorEnv", partial(silent_step, task, "sync")),
        "async": ("AsyncVectorEnv", partial(silent_step, task, "async")),
    }
    targets = zip(makers.items(), TASKS[task], strict=True)
    peers = {end: (*peer, target) for (end, peer), target in targets if target}
    peers["step-bare"] = ("mjb_step alone", partial(bare_step, task, 1), 0.85)
    name, many = task.removesuffix("-v5").lower(), {}
    many["bare"] = ("mjb_step alone", partial(bare_step, task), 0.95)
    rollout = f"collect, {NUM_ENVS} x {NUM_STEPS}, MLP 64-64, {task}"
    return [
        *duels(
            name, f"env.step, {NUM_ENVS} envs, {task}", partial(our_step, task, NUM_ENVS), peers
        ),
        *duels(name, rollout, partial(collect, task), many),
    ]


def silent_step(task: str, mode: str) -> Job:
    silence()
    return gymnasium_step(task, NUM_ENVS, mode)


def silent_ppo(kind: str) -> Job:
    silence()  # a forked process keeps that
    return stable_ppo(PPO_TASK, PPO_STEPS, kind)


def silence() -> None:
    """Drop MuJoCo's warnings: each of Gymnasium's environments loads a model that it warns of."""
    import rlcpu.envs.mujoco  # noqa: F401 - they go to this logger then

    logging.getLogger("rlcpu.mujoco").setLevel(logging.ERROR)


# ---------------------------------------------------------------- beside the physics alone


def states_of(task: str) -> tuple[Any, Any]:
    """Environments that took a hundred random steps, and their states."""
    import rlcpu

    env = make_ours(task, NUM_ENVS, max_episode_steps=10**6)
    rlcpu.simulate(env, rlcpu.policies.Uniform(), 100)
    return env, env.state


def collect(task: str) -> Job:
    """`rlcpu.collect` of a few steps, from the same states each time."""
    env, state = states_of(task)
    job = our_collect(env, NUM_STEPS)

    def call() -> None:
        env.memory.batch.state[:] = state
        job.call()

    return job._replace(call=call)


def bare_step(task: str, num_steps: int = NUM_STEPS) -> Job:
    """`mjb_step` alone, from the same states, with the controls that they hold."""
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
