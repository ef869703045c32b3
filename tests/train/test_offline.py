"""Agents of spaces alone: they learn from a buffer, play where they are told, and go to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.envs import find, spaces_of
from rlcpu.train import DDPG, DQN, PPO, PQN, QRDQN, SAC, TD3, TQC
from tests.train.states import state_of
from tests.train.test_off_policy import AGENTS, EVERY, SMALL


def spaces_like(env: str) -> Any:
    dynamics = find(env)
    return spaces_of(dynamics.observation_space, dynamics.action_space)


def teacher_of(kind: Any, env: str, **settings: Any) -> Any:
    teacher = kind(env, seed=0, **SMALL | settings)
    teacher.learn(480)
    return teacher


@EVERY
def test_learning_is_that_of_an_agent_with_environments(
    kind: Any, env: str, tmp_path: Path
) -> None:
    """From copies of a buffer, bit for bit; and a loaded agent goes on as the saved one."""
    teacher = teacher_of(kind, env)
    teacher.buffer.save(tmp_path / "buffer")
    load = type(teacher.buffer).load
    agents = [
        kind(where, seed=3, config=teacher.config, buffer=load(tmp_path / "buffer"))
        for where in (env, spaces_like(env))
    ]
    losses = [agent.learn_offline(20) for agent in agents]
    assert losses[0] == losses[1]
    assert agents[1].num_updates == 20
    played = rlcpu.make_vec(env)
    returns = [agents[0].evaluate(5, seed=1)]
    returns += [agent.evaluate(5, seed=1, env=played) for agent in agents]
    agents[1].save(tmp_path / "agent.npz")
    loaded = kind.load(tmp_path / "agent.npz", env=spaces_like(env))
    losses = [each.learn_offline(10) for each in (*agents, loaded)]
    assert losses[0] == losses[1] == losses[2]
    for name, array in state_of(agents[1]).items():
        np.testing.assert_array_equal(state_of(loaded)[name], array, err_msg=name)
    np.testing.assert_array_equal(returns[0], returns[1])
    np.testing.assert_array_equal(returns[0], returns[2])


def test_updates_are_those_of_improve() -> None:
    losses = []
    for learn in (lambda x: x.improve(), lambda x: x.learn_offline(4)):
        agent = DQN("CartPole-v1", seed=1, config=DQN("CartPole-v1", **SMALL).config)
        agent.learn(128)
        losses.append(learn(agent))
    assert losses[0] == losses[1]


@EVERY
def test_what_needs_environments_is_refused(kind: Any, env: str, tmp_path: Path) -> None:
    agent = kind(spaces_like(env), **SMALL)
    for call, text in (
        (lambda: agent.learn(100), "total_steps=100: Spaces-v0 are spaces alone.*learn_offline"),
        (lambda: agent.evaluate(), "Spaces-v0 are spaces alone.*takes env="),
        (lambda: agent.evaluate(env=rlcpu.make_vec("MountainCar-v0")), "have observation_space="),
        (lambda: agent.learn_offline(1), r"buffer=.*expected one that 48 can be drawn from"),
        (lambda: agent.learn_offline(0), "num_updates=0"),
        (lambda: kind(spaces_like(env), normalize_rewards=True), "normalize_rewards=True: Spaces"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    agent.save(tmp_path / "agent.npz")
    with pytest.raises(ValueError, match="Spaces-v0, were given to the agent: give them as env="):
        kind.load(tmp_path / "agent.npz")


def test_observations_of_the_buffer_normalise() -> None:
    """By default, as nobody has tuned settings for the spaces."""
    teacher = teacher_of(SAC, "Pendulum-v1")
    agent = SAC(spaces_like("Pendulum-v1"), buffer=teacher.buffer, batch_size=48)
    assert agent.config.normalize_observations
    assert not agent.config.normalize_rewards
    agent.learn_offline(4)
    stored = teacher.buffer.peek(100_000)["observation"]
    np.testing.assert_allclose(agent.policy.observation_mean, stored.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(1 / agent.policy.observation_scale, stored.std(axis=0), rtol=0.1)
    before = agent.policy.observation_mean.copy()
    agent.learn_offline(4)
    np.testing.assert_array_equal(agent.policy.observation_mean, before)


def test_spaces_of_other_kinds() -> None:
    with pytest.raises(TypeError, match="Box"):
        SAC(spaces_of(Box(-1.0, 1.0, (2,)), Discrete(2)))
    for learner in (PPO, PQN):
        with pytest.raises(TypeError, match=r"env=SpacesTask.*: P.* learns from steps of its own"):
            learner(spaces_of(Box(-1.0, 1.0, (2,)), Discrete(2)))
    for kind in (SAC, TD3, DDPG, TQC):
        agent = kind(spaces_of(Discrete(4, start=1), Box(-1.0, 1.0, (2,))), **SMALL)
        assert agent.predict([1, 4]).shape == (2, 2)
    assert AGENTS.keys() == {DQN, QRDQN, SAC, TD3, DDPG, TQC}
