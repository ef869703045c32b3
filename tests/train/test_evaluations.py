"""Evaluations on the way: when they happen, and that they leave no trace in what is learnt."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from rlcpu.envs import GymnasiumEnv, make_vec
from rlcpu.train import DQN, PPO
from rlcpu.train.algorithms import NAMES, algorithm
from rlcpu.train.evaluate import EndlessEpisodeError
from rlcpu.train.evaluations import Evaluations

SMALL = {"num_envs": 4, "num_steps": 32, "minibatch_size": 64, "num_epochs": 2, "hidden": (8,)}
OFF_POLICY: dict[str, Any] = {"learning_starts": 100, "batch_size": 16, "hidden": (8,)}


def learnt_by(agent: Any, total_steps: int, **options: Any) -> list[Any]:
    """What an agent has learnt, and what decides how it goes on."""
    agent.learn(total_steps, **options)
    arrays = agent._state()
    return [*(arrays[name].copy() for name in sorted(arrays)), agent.rng.bit_generator.state]


@pytest.mark.parametrize(("kind", "options"), [(PPO, SMALL), (DQN, OFF_POLICY)])
def test_they_change_nothing_that_is_learnt(kind: Any, options: dict[str, Any]) -> None:
    agent = kind("CartPole-v1", seed=3, **options)
    evaluations = Evaluations(agent, 1500, number=7, num_episodes=3, seed=1)
    with_them = learnt_by(agent, 1500, callback=evaluations)
    without = learnt_by(kind("CartPole-v1", seed=3, **options), 1500)
    assert len(evaluations.made) > 2
    for array, expected in zip(with_them, without, strict=True):
        np.testing.assert_equal(array, expected)


def test_they_happen_at_the_first_rollout_at_or_after_their_step() -> None:
    agent = PPO("CartPole-v1", seed=0, **SMALL)  # a rollout has 128 steps
    evaluations = Evaluations(agent, 1000, number=5, num_episodes=2, seed=7)
    agent.learn(1000, callback=evaluations)
    assert [each.steps for each in evaluations.made] == [256, 512, 640, 896, 1024]
    last = evaluations.made[-1]
    np.testing.assert_array_equal(last.returns, agent.evaluate(2, seed=7))
    assert last.training_return == agent.history.episode_return
    seconds = [each.seconds for each in evaluations.made]
    assert 0.0 < seconds[0] < seconds[-1] < agent.history.time_total
    assert evaluations.seconds > 0.0


def test_several_that_are_due_at_once_are_one() -> None:
    agent = PPO("CartPole-v1", seed=0, **SMALL)
    evaluations = Evaluations(agent, 300, number=100, num_episodes=1)
    agent.learn(300, callback=evaluations)
    assert [each.steps for each in evaluations.made] == [128, 256, 384]


def test_the_last_one_is_at_the_end_though_the_target_came_first() -> None:
    agent = PPO("CartPole-v1", seed=0, **SMALL)
    evaluations = Evaluations(agent, 1_000_000, number=10, num_episodes=1)
    agent.learn(1_000_000, callback=evaluations, target_return=9.0)
    (only,) = evaluations.made
    assert only.steps == agent.steps < 100_000


def test_an_episode_that_does_not_end_is_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def evaluate(env: Any, policy: Any, num_episodes: int, *, seed: int) -> Any:
        raise EndlessEpisodeError("an episode did not end")

    agent = PPO("CartPole-v1", seed=0, **SMALL)
    evaluations = Evaluations(agent, 256, number=2, num_episodes=3)
    with monkeypatch.context() as patched:
        patched.setattr("rlcpu.train.evaluations.evaluate", evaluate)
        agent.learn(256, callback=evaluations)
    for each in evaluations.made:
        np.testing.assert_array_equal(each.returns, np.full(3, np.nan))
    assert agent.history.stopped == "steps"


class Counted(gymnasium.Wrapper):
    """Counts its resets."""

    resets = 0

    def reset(self, **options: Any) -> Any:
        self.resets += 1
        return self.env.reset(**options)


def test_environments_that_cannot_be_made_again_need_others() -> None:
    one, other = (Counted(gymnasium.make("CartPole-v1")) for _ in range(2))
    agent = PPO(one, seed=0, num_steps=32, minibatch_size=32, num_epochs=1, hidden=(8,))
    with pytest.raises(ValueError, match=r"cannot be made again.*expected other environments"):
        Evaluations(agent, 64)
    evaluations = Evaluations(agent, 64, number=1, num_episodes=2, env=GymnasiumEnv(other))
    before = one.resets
    agent.learn(64, callback=evaluations)
    played_without = one.resets - before
    assert len(evaluations.made[0].returns) == 2
    assert other.resets >= 2
    other_agent = PPO(one, seed=0, num_steps=32, minibatch_size=32, num_epochs=1, hidden=(8,))
    before = one.resets
    other_agent.learn(64)
    assert one.resets - before == played_without


def test_other_spaces_are_refused() -> None:
    agent = PPO("CartPole-v1", seed=0, **SMALL)
    with pytest.raises(ValueError, match=r"have observation_space=Box.*expected that of CartPol"):
        Evaluations(agent, 64, env=make_vec("Acrobot-v1"))
    with pytest.raises(ValueError, match="number=0: expected at least 1"):
        Evaluations(agent, 64, number=0)


def test_algorithms_have_the_names_that_the_command_takes() -> None:
    from rlcpu.cli.train import ALGORITHMS

    assert set(NAMES) == set(ALGORITHMS)
    assert algorithm("dqn") is DQN
    with pytest.raises(ValueError, match=r"algo='DQN': there is no such.*did you mean 'dqn'"):
        algorithm("DQN")
