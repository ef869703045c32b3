"""Gymnasium's vector wrappers on our environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers as single_wrappers
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import rlcpu

NUM_ENVS = 70

WRAPPERS = {
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "ClipReward": lambda env: wrappers.ClipReward(env, -0.5, 0.5),
    "TransformObservation": lambda env: wrappers.TransformObservation(env, lambda obs: 2 * obs),
    "RescaleObservation": lambda env: wrappers.RescaleObservation(
        wrappers.TransformObservation(
            env,
            lambda obs: np.clip(obs, -1, 1),
            single_observation_space=gymnasium.spaces.Box(-1, 1, (4,), np.float32),
        ),
        np.float32(0),
        np.float32(1),
    ),
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda reward: 2 * reward),
    "TransformAction": lambda env: wrappers.TransformAction(env, lambda action: 1 - action),
    "DtypeObservation": lambda env: wrappers.DtypeObservation(env, np.float64),
    "FlattenObservation": wrappers.FlattenObservation,
    "DictInfoToList": wrappers.DictInfoToList,
}


def run_wrapped(wrap: Any, env: Any, states: np.ndarray) -> list[tuple[Any, ...]]:
    """Some steps from given states: CartPole's episodes are longer."""
    wrapped = wrap(env)
    wrapped.reset(seed=1)
    if isinstance(env, SyncVectorEnv):
        for sub, state in zip(env.envs, states, strict=True):
            sub.unwrapped.state = state
    else:
        env.state = states
    actions = np.tile([0, 1], 35)
    return [wrapped.step(actions) for _ in range(6)]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_gymnasiums_wrappers(wrapper: str) -> None:
    """What a wrapper makes of our environment is what it makes of Gymnasium's."""
    ours = rlcpu.make_vec("CartPole-v1", NUM_ENVS, dtype="float64")
    theirs = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * NUM_ENVS)
    states = np.random.default_rng(0).uniform(-0.05, 0.05, (NUM_ENVS, 4))
    pairs = zip(
        run_wrapped(WRAPPERS[wrapper], ours, states),
        run_wrapped(WRAPPERS[wrapper], theirs, states),
        strict=True,
    )
    for mine, other in pairs:
        # NormalizeObservation also saw the first observations, which differ.
        error = 1.0 if wrapper == "NormalizeObservation" else 1e-6
        np.testing.assert_allclose(mine[0], other[0], rtol=0, atol=error)
        for ours_, theirs_ in zip(mine[1:4], other[1:4], strict=True):
            np.testing.assert_allclose(ours_, theirs_, rtol=1e-6)
        assert type(mine[4]) is type(other[4])


def test_episode_statistics_of_the_wrapper_are_right() -> None:
    env = wrappers.RecordEpisodeStatistics(
        rlcpu.make_vec("CartPole-v1", NUM_ENVS, max_episode_steps=5)
    )
    env.reset(seed=0)
    infos: list[dict[str, Any]] = []
    for step in range(12):
        infos.append(env.step(np.full(NUM_ENVS, step % 2))[4])
    ended = [info["episode"] for info in infos if "episode" in info]
    assert len(ended) >= 2
    for episode in ended:
        np.testing.assert_array_equal(episode["r"], episode["l"])
        assert episode["l"].max() <= 5


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_infos_of_the_statistics_are_gymnasiums(mode: str) -> None:
    """With the masks, and in same-step mode with what the last step of an episode said."""
    states = np.random.default_rng(1).uniform(-0.05, 0.05, (NUM_ENVS, 4))
    theirs = SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1", max_episode_steps=3)] * NUM_ENVS, autoreset_mode=mode
    )
    options: dict[str, Any] = {"dtype": "float64", "max_episode_steps": 3, "autoreset_mode": mode}
    ours = rlcpu.make_vec("CartPole-v1", NUM_ENVS, **options)
    wrapper = wrappers.RecordEpisodeStatistics
    pairs = zip(*(run_wrapped(wrapper, env, states) for env in (ours, theirs)), strict=True)
    ended = 0
    for (*_, mine), (*_, other) in pairs:
        assert mine.keys() == other.keys()
        for key in mine.keys() & {"_final_obs", "_final_info", "_episode"}:
            np.testing.assert_array_equal(mine[key], other[key])
        assert mine.get("final_info") == other.get("final_info")
        if "episode" in mine:
            ended += 1
            for key in ("r", "l"):
                np.testing.assert_array_equal(mine["episode"][key], other["episode"][key])
    assert ended


SINGLE_WRAPPERS = {
    "RecordEpisodeStatistics": single_wrappers.RecordEpisodeStatistics,
    "NormalizeObservation": single_wrappers.NormalizeObservation,
    "FlattenObservation": single_wrappers.FlattenObservation,
    "FrameStackObservation": lambda env: single_wrappers.FrameStackObservation(env, 3),
    "TimeAwareObservation": single_wrappers.TimeAwareObservation,
    "TimeLimit": lambda env: single_wrappers.TimeLimit(env, 4),
    "Autoreset": single_wrappers.Autoreset,
}


@pytest.mark.parametrize("wrapper", SINGLE_WRAPPERS)
def test_gymnasiums_wrappers_of_one_environment(wrapper: str) -> None:
    results = []
    for name, options in (("rlcpu/CartPole-v1", {"dtype": "float64"}), ("CartPole-v1", {})):
        env = SINGLE_WRAPPERS[wrapper](gymnasium.make(name, **options))
        env.reset(seed=0)
        env.unwrapped.state = np.array([0.01, 0.02, -0.03, 0.04])
        results.append([env.step(i % 2) for i in range(6)])
    for mine, other in zip(*results, strict=True):
        # These wrappers also saw the first observations, which differ.
        error = 2.0 if wrapper in ("NormalizeObservation", "FrameStackObservation") else 1e-6
        np.testing.assert_allclose(mine[0], other[0], rtol=0, atol=error)
        assert mine[1:4] == other[1:4]
        assert mine[4].keys() == other[4].keys()
