"""Evaluations on the way: when they happen, and that they leave no trace in what is learnt."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlcpu.envs import make_vec
from rlcpu.train import DQN, PPO, Evaluations
from rlcpu.train.running.evaluate import EndlessEpisodeError
from rlcpu.train.settings.algorithms import NAMES, algorithm
from tests.train.test_agents import EVERY
from tests.train.test_off_policy import everything
from tests.train.test_ppo import SMALL  # a rollout has 128 steps


@EVERY
def test_they_and_files_change_nothing_that_is_learnt(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    agent, other = make(), make()
    evaluations = Evaluations(4, num_episodes=3, seed=1)
    files: dict[str, Any] = {"keep_best": tmp_path / "best.npz", "save_to": tmp_path / "all.npz"}
    history = agent.learn(2000, evaluations=evaluations, save_every=512, patience=9, **files)
    expected = other.learn(2000)
    assert len(history.evaluations) == 4
    assert everything(agent) == everything(other)
    assert agent.rng.bit_generator.state == other.rng.bit_generator.state
    np.testing.assert_array_equal(np.array(history.curve), np.array(expected.curve))
    assert history.losses == expected.losses
    agent.learn(512), other.learn(512)
    assert everything(agent) == everything(other)
    # What was saved goes on as the agent did.
    saved = type(agent).load(tmp_path / "all.npz")
    saved.learn(512)
    assert everything(saved) == everything(agent)


def test_they_happen_at_the_first_rollout_at_or_after_their_step() -> None:
    agent = PPO("CartPole-v1", seed=0, **SMALL)
    shown = []
    history = agent.learn(
        1000,
        evaluations=Evaluations(5, num_episodes=2, seed=7),
        callback=lambda progress: shown.append(progress.evaluation),
    )
    assert [each.steps for each in history.evaluations] == [256, 512, 640, 896, 1024]
    assert [each.steps for each in shown if each] == [256, 512, 640, 896, 1024]
    assert len(shown) == 8
    last = history.evaluations[-1]
    np.testing.assert_array_equal(last.returns, agent.evaluate(2, seed=7))
    assert last.mean_return == last.returns.mean()
    assert last.training_return == agent.history.episode_return
    seconds = [each.seconds for each in history.evaluations]
    assert 0.0 < seconds[0] < seconds[-1] == history.time_total
    assert history.time_upkeep > 0.0
    assert all(each.cpu_seconds > 0.0 for each in history.evaluations)


def test_several_that_are_due_at_once_are_one() -> None:
    history = PPO("CartPole-v1", seed=0, **SMALL).learn(
        300, evaluations=Evaluations(100, num_episodes=1)
    )
    assert [each.steps for each in history.evaluations] == [128, 256, 384]


def test_a_schedule_says_over_which_steps_they_are_spread() -> None:
    """A run that is interrupted and gone on with has those of the whole run."""
    evaluations = Evaluations(4, num_episodes=1)
    agent = PPO("CartPole-v1", seed=0, **SMALL)

    def stop(progress: Any) -> None:
        if progress.steps == 384:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        agent.learn(1024, evaluations=evaluations, callback=stop)
    steps = [each.steps for each in agent.history.evaluations]
    agent.learn(640, evaluations=evaluations, schedule=(0, 1024))
    steps += [each.steps for each in agent.history.evaluations]
    assert steps == [256, 512, 768, 1024]


@pytest.mark.parametrize(
    ("options", "stopped"),
    [
        ({"target_return": 9.0}, "solved"),
        ({"callback": lambda progress: progress.steps < 1280}, "callback"),
        ({"callback": [lambda progress: False, lambda progress: True]}, "callback"),
    ],
)
def test_the_last_one_is_at_the_end_though_that_came_early(
    options: dict[str, Any], stopped: str
) -> None:
    agent = PPO("CartPole-v1", seed=0, **SMALL)
    history = agent.learn(1_000_000, evaluations=Evaluations(10, num_episodes=1), **options)
    (only,) = history.evaluations
    assert history.stopped == stopped
    assert only.steps == agent.steps < 100_000


def test_all_callbacks_of_a_list_are_called() -> None:
    calls: list[tuple[str, int]] = []

    def first(progress: Any) -> bool:
        calls.append(("first", progress.steps))
        return progress.steps < 256

    agent = PPO("CartPole-v1", seed=0, **SMALL)
    agent.learn(10_000, callback=[first, lambda progress: calls.append(("second", progress.steps))])
    assert calls == [("first", 128), ("second", 128), ("first", 256), ("second", 256)]
    assert agent.learn(128, callback=[]).stopped == "steps"
    with pytest.raises(TypeError, match=r"callback=\['x'\]: expected a function, a list of them"):
        agent.learn(128, callback=["x"])  # type: ignore[list-item]


def test_an_episode_that_does_not_end_is_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def evaluate(env: Any, policy: Any, num_episodes: int, *, seed: int) -> Any:
        raise EndlessEpisodeError("an episode did not end")

    agent = PPO("CartPole-v1", seed=0, **SMALL)
    with monkeypatch.context() as patched:
        patched.setattr("rlcpu.train.running.evaluations.evaluate", evaluate)
        history = agent.learn(512, evaluations=Evaluations(4, num_episodes=3), patience=1)
    assert len(history.evaluations) == 4
    for each in history.evaluations:
        np.testing.assert_array_equal(each.returns, np.full(3, np.nan))
    assert agent.history.stopped == "steps"
    assert agent.best_evaluation is None


def test_table_has_them_in_the_lines_of_their_steps(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    agent = PPO("CartPole-v1", seed=0, **SMALL)
    history = agent.learn(512, evaluations=Evaluations(2, num_episodes=3))
    history.to_csv(path)
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    means = [row["evaluation_return"] for row in rows]
    first, second = history.evaluations
    assert means == ["nan", str(first.mean_return), "nan", str(second.mean_return)]
    assert rows[1]["evaluation_deviation"] == str(first.returns.std())
    agent.learn(128).to_csv(path, append=True)
    with open(path, newline="", encoding="utf-8") as file:
        assert [row["evaluation_return"] for row in csv.DictReader(file)] == [*means, "nan"]
    agent.history.to_csv(path)
    assert "evaluation" not in path.read_text()


class Counted(gymnasium.Wrapper):
    """Counts its resets."""

    resets = 0

    def reset(self, **options: Any) -> Any:
        self.resets += 1
        return self.env.reset(**options)


def test_environments_that_cannot_be_made_again_need_others() -> None:
    one, other = (Counted(gymnasium.make("CartPole-v1")) for _ in range(2))
    agent = PPO(one, seed=0, num_steps=32, minibatch_size=32, num_epochs=1, hidden=(8,))
    with pytest.raises(ValueError, match=r"cannot be made again.*expected other environments") as e:
        agent.learn(64, evaluations=1)
    assert "rlcpu.train.Evaluations(20, env=...)" in str(e.value)
    assert agent.steps == 0
    before = one.resets
    history = agent.learn(64, evaluations=Evaluations(1, num_episodes=2, env=other))
    played_without = one.resets - before
    assert len(history.evaluations[0].returns) == 2
    assert other.resets >= 2
    other_agent = PPO(one, seed=0, num_steps=32, minibatch_size=32, num_epochs=1, hidden=(8,))
    before = one.resets
    other_agent.learn(64)
    assert one.resets - before == played_without


def test_they_play_in_environments_of_their_own() -> None:
    agent = PPO("CartPole-v1", seed=0, **SMALL)
    heavy = make_vec("CartPole-v1", 1, max_episode_steps=5)
    history = agent.learn(128, evaluations=Evaluations(1, num_episodes=4, env=heavy))
    np.testing.assert_array_equal(history.evaluations[0].returns, np.full(4, 5.0))


def test_what_they_cannot_do_is_refused() -> None:
    agent = PPO("CartPole-v1", seed=0, **SMALL)
    with pytest.raises(ValueError, match=r"have observation_space=Box.*expected that of CartPol"):
        agent.learn(64, evaluations=Evaluations(env=make_vec("Acrobot-v1")))
    with pytest.raises(ValueError, match="number=0: expected at least 1"):
        Evaluations(0)
    with pytest.raises(TypeError, match="env='CartPole-v1': expected a VectorEnv, or an env"):
        Evaluations(env="CartPole-v1")
    with pytest.raises(TypeError, match=r"n_eval_episodes: Evaluations.*did you mean num_episodes"):
        Evaluations(20, n_eval_episodes=5)  # type: ignore[call-arg]
    assert agent.steps == 0


def test_algorithms_have_the_names_that_the_command_takes() -> None:
    from rlcpu.cli.train import ALGORITHMS

    assert set(NAMES) == set(ALGORITHMS)
    assert algorithm("dqn") is DQN
    with pytest.raises(ValueError, match=r"algo='DQN': there is no such.*did you mean 'dqn'"):
        algorithm("DQN")
