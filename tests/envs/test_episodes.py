"""`simulate` over whole episodes: unbiased, in all engines, and what is refused."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcpu
from rlcpu.envs import find
from rlcpu.policies import Uniform

END = 0.1  # probability of each step to end the episode, which has a reward of 1 a step


class NoParams(NamedTuple):
    """No parameters."""


def step(state, action, params, rng):
    return state, 1.0, rng.uniform(0) < END


def reset(rng, params):
    return (0.0,)


LOTTERY = rlcpu.Dynamics(
    id="Lottery-v0",
    params=NoParams(),
    step=step,
    reset=reset,
    observation_space=Box(-1.0, 1.0, (1,)),
    action_space=Discrete(2),
)


@pytest.mark.parametrize("seed", [0, 1])
def test_mean_of_whole_episodes_is_unbiased(seed: int) -> None:
    """Returns and lengths are geometric: their mean is 1 / END, their deviation 9.5."""
    env, count = rlcpu.make_vec(LOTTERY, 512, num_threads=1), 20_000
    env.reset(seed=seed)
    statistics = rlcpu.simulate(env, Uniform(), num_episodes=count)
    error = np.sqrt(1.0 - END) / END / np.sqrt(count)
    assert abs(statistics.mean_return - 1.0 / END) < 4.0 * error  # 6e-5
    assert abs(statistics.std_return - error * np.sqrt(count)) < 0.5
    assert statistics.mean_length == pytest.approx(statistics.mean_return)
    assert statistics.num_episodes == count
    assert statistics.num_cut_off == 0
    env.reset(seed=seed)
    cut = rlcpu.simulate(env, Uniform(), 20)
    assert cut.mean_return < 1.0 / END - 20.0 * error  # what a fixed number of steps gives
    collected = rlcpu.make_vec(LOTTERY, 512, num_threads=1)
    collected.reset(seed=seed)
    ended = rlcpu.collect(collected, Uniform(), 20).terminated[-1].sum()
    assert cut.num_cut_off == 512 - ended
    assert f"num_cut_off={cut.num_cut_off}" in repr(cut)


def make_sync(mode: AutoresetMode) -> Any:
    makers = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=30) for _ in range(3)]
    return rlcpu.envs.GymnasiumEnv(SyncVectorEnv(makers, autoreset_mode=mode))


MAKERS: dict[str, Any] = {
    **{mode.value: lambda mode=mode: make_sync(mode) for mode in AutoresetMode},
    **{
        f"ours {mode.value}": lambda mode=mode: rlcpu.make_vec(
            "CartPole-v1", 3, autoreset_mode=mode, max_episode_steps=30
        )
        for mode in AutoresetMode
    },
    "MuJoCo": lambda: rlcpu.make_vec("InvertedPendulum-v5", 3, max_episode_steps=30),
}


@pytest.mark.parametrize("name", MAKERS)
def test_episodes_are_the_first_ones_of_each_environment(name: str) -> None:
    if name == "MuJoCo" and importlib.util.find_spec("mujoco") is None:
        pytest.skip("needs mujoco")
    env, twin = MAKERS[name](), MAKERS[name]()
    for each in (env, twin):
        each.reset(seed=4)
    twin.reset()
    statistics = rlcpu.simulate(env, Uniform(), num_episodes=8)
    rollout = rlcpu.collect(twin, Uniform(), 320)
    envs, returns = rollout.final_indices[:, 1], rollout.episode_returns
    first = [returns[envs == i][:count] for i, count in enumerate((3, 3, 2))]
    assert statistics.num_episodes == 8
    assert statistics.mean_return == pytest.approx(np.concatenate(first).mean())
    lengths = [rollout.episode_lengths[envs == i][:count] for i, count in enumerate((3, 3, 2))]
    assert statistics.mean_length == np.concatenate(lengths).mean()


def test_fewer_episodes_than_environments_and_bad_arguments() -> None:
    env = rlcpu.make_vec("CartPole-v1", 3, max_episode_steps=30)
    assert rlcpu.simulate(env, Uniform(), num_episodes=2).num_episodes == 2
    for given in ({}, {"num_steps": 3, "num_episodes": 3}):
        with pytest.raises(TypeError, match="expected one of them"):
            rlcpu.simulate(env, Uniform(), **given)
    with pytest.raises(ValueError, match="num_episodes=0: expected at least 1"):
        rlcpu.simulate(env, Uniform(), num_episodes=0)
    env.device = "cuda"  # as those are that need a card
    with pytest.raises(NotImplementedError, match="num_episodes=3: for environments on the CPU"):
        rlcpu.simulate(env, Uniform(), num_episodes=3)


def test_episodes_without_an_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcpu.envs.rollout.collect.MOST_STEPS", 200)
    endless = dataclasses.replace(find("Pendulum-v1"), id="Endless-v0", max_episode_steps=None)
    with pytest.raises(RuntimeError, match="Endless-v0: an episode did not end within 200 steps"):
        rlcpu.simulate(rlcpu.make_vec(endless, 2, num_threads=1), Uniform(), num_episodes=2)
