"""Gymnasium's vector wrappers on our environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
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
