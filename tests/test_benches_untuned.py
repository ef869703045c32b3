"""The untuned environments: their two returns are those that chance and the good policy get."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlcpu
from asv_benches import untuned
from asv_benches.untuned import scores
from rlcpu.envs import check
from rlcpu.envs.rollout.collect import play_episodes

EPISODES = 512
#: Those that are checked in kernels, one of each kind of action: all compile for minutes.
PLAYED = ("late", "notebook", "pump")


def plays_of(task: untuned.Task, policy: object) -> np.ndarray:
    env = rlcpu.make_vec(task.dynamics, EPISODES)
    env.reset(seed=1)
    returns, *_ = play_episodes(env, policy, EPISODES)
    return returns


def plain_returns(task: untuned.Task, episodes: int) -> list[float]:
    """Returns of the good policy in plain Python."""
    rng, dynamics, returns = np.random.default_rng(0), task.dynamics, []

    class Rng:
        def uniform(self, k: int = 0) -> float:
            return float(rng.random())

        def integers(self, k: int, n: int) -> int:
            return int(rng.integers(n))

    for _ in range(episodes):
        state, total, steps = dynamics.reset(Rng(), dynamics.params), 0.0, 0
        terminated = False
        while not terminated and steps < (dynamics.max_episode_steps or math.inf):
            action = task.act(dynamics.observe(state, dynamics.params), (), ())[0]
            draws = (Rng(),) if dynamics.step.__code__.co_argcount == 4 else ()
            state, reward, terminated, *_ = dynamics.step(state, action, dynamics.params, *draws)
            total, steps = total + reward, steps + 1
        returns.append(total)
    return returns


@pytest.mark.parametrize("name", untuned.NAMES)
def test_the_good_policy_gets_what_is_said(name: str) -> None:
    task = untuned.task(name)
    returns = np.array(plain_returns(task, 200))
    error = returns.std() / math.sqrt(len(returns))
    # The figures have three digits.
    assert abs(returns.mean() - task.good) <= 4 * error + 0.006 * abs(task.good)
    assert task.good > task.chance


@pytest.mark.parametrize("name", PLAYED)
def test_chance_and_kernels_agree(name: str) -> None:
    task = untuned.task(name)
    for policy, said in (
        (rlcpu.policies.Uniform(), task.chance),
        (rlcpu.policies.Scalar(task.act), task.good),
    ):
        returns = plays_of(task, policy)
        error = returns.std() / math.sqrt(EPISODES)
        assert abs(returns.mean() - said) <= 4 * error + 0.006 * abs(said)


def test_shares() -> None:
    task = untuned.task("dials")
    assert [task.share(x) for x in (2.0, 6.0, 10.0)] == [0.0, 0.5, 1.0]


def test_there_is_a_module_for_each_name() -> None:
    folder = Path(untuned.__file__).parent
    modules = {path.stem for path in folder.glob("[a-z]*.py")} - {"scores", "__main__"}
    assert modules == set(untuned.NAMES)
    assert len(untuned.NAMES) == 20
    assert len(untuned.HELD_OUT) == 10
    assert set(untuned.NAMES) >= untuned.HELD_OUT


def test_an_environment_is_right() -> None:
    assert check(untuned.task("packing").dynamics, 200).ok


def test_scores_are_measured_kept_and_shown(tmp_path: Path, monkeypatch: Any) -> None:
    task = untuned.task("late")._replace(steps=512)
    monkeypatch.setattr(untuned, "task", lambda name: task)
    settings = {"num_envs": 4, "num_steps": 64, "hidden": (8,), "num_epochs": 1}
    made = scores.measure("late", ("ppo", "sac"), 2, tmp_path, settings)
    (score,) = made  # sac takes no choices
    assert (score.env, score.agent, len(score.shares)) == ("late", "ppo", 2)
    scores.save(made, tmp_path / "scores.json")
    scores.save(made, tmp_path / "scores.json")
    assert scores.load(tmp_path / "scores.json") == made
    table = scores.markdown(made).splitlines()
    assert table[2].startswith("| `late`: Twenty additions are to make a sum: nothing is paid")
    assert f" | {score.mean:.2f} | " in table[2]
    assert "**those held out**" in table[4]
