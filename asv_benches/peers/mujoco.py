"""The table `mujoco`: steps and rollouts of MuJoCo's tasks; its physics is the limit of all."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from asv_benches.peers.agents import our_ppo, stable_ppo
from asv_benches.peers.harness import Effort, Job, Measurement
from asv_benches.peers.rows import Row, duels
from asv_benches.peers.stepping import (
    envpool_best,
    gymnasium_step,
    make_ours,
    our_collect,
    our_step,
)

ROOT = Path(__file__).parents[2]
SIZES, NUM_STEPS = (64, 256), 16
#: Targets of a step against EnvPool, Gymnasium's loop and its processes; None means no row.
TASKS = {
    "HalfCheetah-v5": (1.6, 5, 14),
    "Hopper-v5": (2, None, None),
    "Ant-v5": (1.15, 3.3, 4),
    "Humanoid-v5": (1.1, None, None),
    "Walker2d-v5": (None, None, None),
}
PPO_TASK, PPO_STEPS = "HalfCheetah-v5", 512  # steps of one call of an agent
#: CPU seconds until a task was stepped and collected from with a policy, on an empty cache.
COMPILE_S = 10.0
FIRST_CALLS = """
import time, rlcpu
begin = time.process_time()
env = rlcpu.make_vec("HalfCheetah-v5", 64)
env.reset(seed=0)
env.step(env.action_space.sample())
policy = rlcpu.policies.MLP(env.single_observation_space, env.single_action_space)
rlcpu.collect(env, policy, 4)
print(time.process_time() - begin)
"""


def rows() -> list[Row]:
    what = f"PPO, {PPO_TASK}, rl-zoo's settings"
    peers = {"ppo": ("stable-baselines3", partial(silent_ppo, "DummyVecEnv"), 5)}
    ours = partial(our_ppo, PPO_TASK, PPO_STEPS)
    first = Row(
        "halfcheetah-compile",
        "HalfCheetah-v5: first reset, step and collect",
        f"{COMPILE_S:g} s of CPU",
        compile_time,
        1.0,
        "time",
        "s",
    )
    table = [row for size in SIZES for task in TASKS for row in task_rows(task, size)]
    return [*table, first, *duels("halfcheetah", what, ours, peers, limit_s=900.0)]


def task_rows(task: str, num_envs: int) -> list[Row]:
    """One task: a step against all others, and what of the physics' own speed is left."""
    makers = {
        "envpool": ("EnvPool", envpool_best(task, num_envs)),
        "sync": ("SyncVectorEnv", partial(silent_step, task, "sync", num_envs)),
        "async": ("AsyncVectorEnv", partial(silent_step, task, "async", num_envs)),
    }
    targets = zip(makers.items(), TASKS[task], strict=True)
    peers = {end: (*peer, target) for (end, peer), target in targets if target}
    if num_envs != SIZES[0]:  # a process takes 100 MB
        peers.pop("async", None)
    peers["step-bare"] = ("mjb_step alone", partial(bare_step, task, num_envs, 1), 0.85)
    name, bare = f"{task.removesuffix('-v5').lower()}-{num_envs}", partial(bare_step, task)
    many = {"bare": ("mjb_step alone", partial(bare, num_envs, NUM_STEPS), 0.95)}
    ours = partial(our_step, task, num_envs)
    rollout = f"collect, {num_envs} x {NUM_STEPS}, MLP 64-64, {task}"
    return [
        *duels(name, f"env.step, {num_envs} envs, {task}", ours, peers),
        *duels(name, rollout, partial(collect, task, num_envs), many),
    ]


def silent_step(task: str, mode: str, num_envs: int) -> Job:
    silence()
    return gymnasium_step(task, num_envs, mode)


def silent_ppo(kind: str) -> Job:
    silence()
    return stable_ppo(PPO_TASK, PPO_STEPS, kind)


def silence() -> None:
    """Drop MuJoCo's warnings: each of Gymnasium's environments loads a model that it warns of.

    Processes that are forked keep that. It is what Gymnasium does on Linux; in a process that was
    not forked itself, as a row's is, it would start new ones.
    """
    import rlcpu.envs.mujoco  # noqa: F401 - they go to this logger then

    logging.getLogger("rlcpu.mujoco").setLevel(logging.ERROR)
    if "fork" in multiprocessing.get_all_start_methods():
        multiprocessing.set_start_method("fork", force=True)


def compile_time(effort: Effort) -> Measurement:
    """CPU seconds of a task's first calls in the first process, beyond those of a second one."""
    with tempfile.TemporaryDirectory() as cache:
        seconds, files = [], []
        for _ in range(2):
            command, paths = [sys.executable, "-c", FIRST_CALLS], {"NUMBA_CACHE_DIR": cache}
            variables = {**os.environ, **paths}
            done = subprocess.check_output(command, cwd=ROOT, text=True, env=variables)
            seconds.append(float(done.split()[-1]))
            files.append({(p, p.stat().st_mtime_ns) for p in Path(cache).rglob("*") if p.is_file()})
    took, added = seconds[0] - seconds[1], len(files[1] - files[0])
    note = f"the second process takes {seconds[1]:.2f} s and writes {added} files"
    return Measurement(took, COMPILE_S, took / COMPILE_S, note=note)


# ---------------------------------------------------------------- beside the physics alone


def states_of(task: str, num_envs: int) -> tuple[Any, Any]:
    """Environments that took a hundred random steps, and their states."""
    import rlcpu

    env = make_ours(task, num_envs, max_episode_steps=10**6)
    rlcpu.simulate(env, rlcpu.policies.Uniform(), 100)
    return env, env.state


def collect(task: str, num_envs: int) -> Job:
    """`rlcpu.collect` of a few steps, from the same states each time."""
    env, state = states_of(task, num_envs)
    job = our_collect(env, NUM_STEPS)

    def call() -> None:
        env.engine.batch.state[:] = state
        job.call()

    return job._replace(call=call)


def bare_step(task: str, num_envs: int, num_steps: int) -> Job:
    """`mjb_step` alone, from the same states, with the controls that they hold."""
    from rlcpu.envs.mujoco.simulations import library

    env, state = states_of(task, num_envs)
    batch, step = env.engine.batch, library().mjb_step
    step.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int] * 3]
    skip = env.dynamics.frame_skip

    def call() -> None:
        batch.state[:] = state
        for _ in range(num_steps):
            step(batch.address, None, 0, skip, 0)

    return Job(call, work=num_envs * num_steps)
