"""Whole processes and runs: importing, first calls, training."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ._common import Quick, require

JOBS = {
    "step": """
import numpy, rlcpu
env = rlcpu.make_vec("CartPole-v1", 16)
env.reset(seed=0)
env.step(numpy.zeros(16, int))
""",
    "sum_tree": """
import numpy, rlcpu.replay
tree = rlcpu.replay.SumTree(1000, seed=0)
tree.update(numpy.arange(10), numpy.ones(10))
tree.sample(4)
""",
    "gae": """
import numpy, rlcpu.scan
steps = numpy.zeros((4, 2), numpy.float32)
ends = numpy.zeros((4, 2), bool)
rlcpu.scan.gae(steps, steps, ends, ends, steps[0], gamma=0.99, lambda_=0.95)
""",
}
#: What a newcomer waits for: 1,024 environments make one step.
MANY = """
import numpy, rlcpu
env = rlcpu.make_vec("CartPole-v1", 1024)
env.reset(seed=0)
env.step(numpy.zeros(1024, int))
"""
EMPTY_CACHE = """
import os, tempfile
folder = tempfile.TemporaryDirectory()
os.environ["NUMBA_CACHE_DIR"] = folder.name
"""


class Import(Quick):
    """Importing, nothing compiled. asv starts a fresh interpreter for each `timeraw` method."""

    number = 1
    repeat = 5

    def timeraw_rlcpu(self):
        return "import rlcpu"

    def timeraw_dependencies(self):
        """What it imports, for comparison."""
        return "import numba, gymnasium"


class FirstCall(Quick):
    """From the interpreter's start to a first result: import and first call."""

    params, param_names = (list(JOBS),), ("job",)
    number = 1
    warmup_time = 0.0

    def timeraw_warm(self, job):
        """The kernels are loaded from the cache."""
        return JOBS[job]

    def timeraw_cold(self, job):
        """The cache is empty: every kernel is compiled."""
        return JOBS[job], EMPTY_CACHE


FirstCall.timeraw_warm.repeat = 3  # type: ignore[attr-defined]
FirstCall.timeraw_cold.repeat = 1  # type: ignore[attr-defined]


#: A first round of learning: from an empty cache; then in environments of the user's, whose step is
#: new, and of which one has many actions; and by an algorithm of the user's, whose scalar function
#: is new.
LEARNING = {
    "ppo": """
import rlcpu
rlcpu.train.PPO("CartPole-v1", seed=0).learn(1)
""",
    "own_environment": """
import math, numpy, rlcpu
from gymnasium.spaces import Box, Discrete
def step(state, action, params):
    angle, velocity = state
    push = 6.0 if action == 1 else -6.0
    velocity = velocity + 0.02 * (9.8 * math.sin(angle) + push)
    angle = angle + 0.02 * velocity
    return (angle, velocity), 1.0, abs(angle) > 0.5
def reset(rng, params):
    return 0.4 * rng.uniform(0) - 0.2, 0.4 * rng.uniform(1) - 0.2
balance = rlcpu.Dynamics(
    id="Balance-v0", step=step, reset=reset, max_episode_steps=500,
    observation_space=Box(-numpy.inf, numpy.inf, (2,), numpy.float32), action_space=Discrete(2),
)
rlcpu.train.PPO(balance, seed=0).learn(1)
""",
    "many_actions": """
import numpy, rlcpu
from gymnasium.spaces import Box, Discrete
def step(state, action, params):
    return (state[0] + 1.0,), 1.0 * (action == 7), False
def reset(rng, params):
    return (rng.uniform(0),)
def action_mask(state, params, out):
    for k in range(2000):
        out[k] = (k + int(state[0])) % 7 == 0
shelf = rlcpu.Dynamics(
    id="Shelf-v0", step=step, reset=reset, action_mask=action_mask, max_episode_steps=100,
    observation_space=Box(0.0, numpy.inf, (1,), numpy.float32), action_space=Discrete(2000),
)
rlcpu.train.PPO(shelf, seed=0).learn(1)
""",
    "own_algorithm": """
from rlcpu import nn
from rlcpu.train import PPO
from rlcpu.train.ppo import ppo
def surprise(value, target):
    error = value - target
    return error * error / (1.0 + abs(error))
def mine(batch, nets, settings):
    loss, statistics = ppo(batch, nets, settings)
    value = nets.value(batch.observation)
    return loss + nn.mean(nn.each(surprise, value, batch.target)), statistics
class Mine(PPO):
    def updates(self):
        return [nn.Update(mine)]
Mine("CartPole-v1", seed=0).learn(1)
""",
}


class FirstTraining(Quick):
    """A process that learns for one round; each job finds what the first one has compiled."""

    params, param_names = (list(LEARNING),), ("job",)
    timeout = 600
    unit = "seconds"
    number = 1

    def track_wall(self, job):
        """What the user waits for."""
        return measure_training(job)[0]

    def track_cpu(self, job):
        """Of the process and of its helper."""
        return measure_training(job)[1]


def measure_training(job: str) -> tuple[float, float]:
    """Seconds of a job's process, and of CPU in it and those that it starts."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        for name in dict.fromkeys(("ppo", job)):
            before, begin = os.times(), time.perf_counter()
            subprocess.run([sys.executable, "-c", LEARNING[name]], env=environment, check=True)
            wall, after = time.perf_counter() - begin, os.times()
        user = after.children_user - before.children_user
        return wall, user + after.children_system - before.children_system


class Installation(Quick):
    """From an empty environment to the first step of 1,024 environments.

    pip takes packages from its cache if it has them: the network is no part of what is measured.
    """

    timeout = 600
    unit = "seconds"
    number = 1

    def track_first_step(self):
        """`pip install` of the wheel and what it needs, then the first program."""
        with tempfile.TemporaryDirectory() as name:
            return sum(measure_installation(Path(name)))


def measure_installation(folder: Path) -> tuple[float, float]:
    """Seconds that pip and the first program take in an empty environment in a folder."""
    root = str(Path(__file__).parents[2])
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), root]
    subprocess.run([sys.executable, *build], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "bare")], check=True)
    (wheel,) = folder.glob("*.whl")
    (python,) = (path for path in folder.glob("bare/*/python*") if path.stem == "python")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")}
    environment.pop("PYTHONPATH", None)
    times = [time.perf_counter()]
    for command in (["-m", "pip", "install", "--quiet", str(wheel)], ["-c", MANY]):
        subprocess.run([str(python), *command], env=environment, check=True)
        times.append(time.perf_counter())
    return times[1] - times[0], times[2] - times[1]


class Ppo(Quick):
    """PPO with the defaults of each environment, 100,000 steps: seconds of both halves."""

    params, param_names = (["CartPole-v1", "Pendulum-v1"],), ("env_id",)
    timeout = 300
    unit = "seconds"

    def setup(self, env_id):
        make = require("rlcpu.train.PPO")
        make(env_id, seed=0).learn(1)  # compiles
        self.history = make(env_id, seed=0).learn(100_000)

    def track_update(self, *_):
        """In the network's update."""
        return float(self.history.time_update)

    def track_collect(self, *_):
        """In simulation and inference."""
        return float(self.history.time_collect)


if __name__ == "__main__":
    for job in LEARNING:
        wall, cpu = measure_training(job)
        print(f"{job}: {wall:.1f} s, {cpu:.1f} s of CPU")
    with tempfile.TemporaryDirectory() as folder:
        install, step = measure_installation(Path(folder))
    print(f"pip install {install:.1f} s, first step of 1,024 environments {step:.1f} s")
