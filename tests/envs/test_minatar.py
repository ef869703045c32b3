"""MinAtar's games, as plain Python and as kernels, against the package minatar.

All go from equal states to equal states.

`MINATAR_STATES=7000` compares that many states in each test, 105,000 in all, in place of a few.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu.kernels.machine.random import RESET_GROUP, STEP_GROUP, Rng
from tests import naive
from tests.envs import minatar_games as games

pytest.importorskip("minatar", reason="MinAtar's own package is not installed")

STATES = int(os.environ.get("MINATAR_STATES", "150"))
every_game = pytest.mark.parametrize("name", games.GAMES)


def compare_step(env: Any, action: int, rng: Rng, **params: Any) -> bool:
    """Take one step here and there, and compare state, reward, end and observation."""
    module = games.GAMES[env.env_name]
    state = games.state_of(env)
    np.testing.assert_array_equal(games.observed(state, module), env.state())
    chosen = module.DYNAMICS.params._replace(
        sticky_action_prob=env.sticky_action_prob,
        difficulty_ramping=getattr(env.env, "ramping", None) is not False,
    )
    after, reward, terminated = module.step(state, action, chosen, rng)
    games.answer(env, rng)
    expected, ended = env.act(env.actions[action])
    assert (reward, terminated) == (expected, ended), (state, action)
    assert isinstance(reward, float)
    assert isinstance(terminated, bool)
    assert games.without_traces(after) == games.without_traces(games.state_of(env)), (state, action)
    np.testing.assert_array_equal(games.observed(after, module), env.state())
    return terminated


@every_game
@pytest.mark.parametrize("ramping", [True, False])
def test_walks_are_those_of_minatar(name: str, ramping: bool) -> None:
    """Long ones: who loses goes on, wherever the package can."""
    env = games.make(name, sticky_action_prob=0.2, difficulty_ramping=ramping)
    rng = np.random.default_rng(3 + ramping)
    restart(env, Rng.of_seed(0))
    action = 0
    for t in range(STATES):
        action = choose(env, rng, action)
        if compare_step(env, action, Rng.of_seed(5, t)):
            env.env.terminal = False
            if name == "breakout" or rng.random() < 0.002:
                restart(env, Rng.of_seed(t))
            if name == "freeway":
                env.env.terminate_timer = int(rng.integers(0, 2501))
            if name == "seaquest" and rng.random() < 0.3:
                games.shuffle(env, rng)


@every_game
def test_steps_from_random_states_are_those_of_minatar(name: str) -> None:
    """In Seaquest the enemies are those of a walk: most random ones can never come about."""
    env = games.make(name, sticky_action_prob=0.2)
    rng = np.random.default_rng(7)
    restart(env, Rng.of_seed(0))
    for t in range(STATES):
        if name != "seaquest" or t % 5 == 0:
            games.shuffle(env, rng)
        compare_step(env, int(rng.integers(len(env.actions))), Rng.of_seed(6, t))
        env.env.terminal = False


@every_game
def test_kernels_are_minatars(name: str) -> None:
    """The package draws what a lane of the kernel draws, through ends of episodes."""
    copies, dynamics = 10, games.GAMES[name].DYNAMICS
    ours = rlcpu.make_vec(dynamics.id, copies, autoreset_mode="SameStep")
    observations, _ = ours.reset(seed=11)
    lanes = [naive.Draws(11 + i, np.float32) for i in range(copies)]
    theirs = [
        games.make(name, sticky_action_prob=dynamics.params.sticky_action_prob) for _ in lanes
    ]
    for env, lane in zip(theirs, lanes, strict=True):
        restart(env, lane.rng(RESET_GROUP))
    rng, actions, ends = np.random.default_rng(3), [0] * copies, 0
    for t in range(STATES):
        np.testing.assert_array_equal(observations, planes(theirs), f"{t}")
        for lane in lanes:
            lane.advance()
        actions = [choose(env, rng, a) for env, a in zip(theirs, actions, strict=True)]
        observations, rewards, terminated, truncated, infos = ours.step(np.array(actions))
        assert not truncated.any()
        for i, (env, lane) in enumerate(zip(theirs, lanes, strict=True)):
            games.answer(env, lane.rng(STEP_GROUP))
            expected, ended = env.act(env.actions[actions[i]])
            assert (rewards[i], terminated[i]) == (expected, ended), (t, i)
            if ended:
                np.testing.assert_array_equal(infos["final_obs"][i], planes([env])[0])
                restart(env, lane.rng(RESET_GROUP))
                ends += 1
    assert ends > 0 or name == "freeway"  # which takes 2,500 steps


def planes(envs: list[Any]) -> Any:
    """Observations of the package's environments, (n, planes, 10, 10)."""
    return np.stack([np.moveaxis(env.state(), -1, 0) for env in envs])


def restart(env: Any, rng: Rng) -> None:
    """Reset both, by the same random numbers."""
    module = games.GAMES[env.env_name]
    start = module.reset(rng, module.DYNAMICS.params)
    env.env.random = games.Answers(*games.traffic(rng))
    if env.env_name == "breakout":
        env.env.random = games.Answers(rng.integers(0, 2))
    env.reset()
    env.last_action = 0
    assert start == games.state_of(env)


def choose(env: Any, rng: np.random.Generator, before: int) -> int:
    """An action: good enough to live, and to come up again and again in Seaquest."""
    game, count = env.env, len(env.actions)
    if env.env_name == "breakout" and rng.random() < 0.9:
        return 0 if game.ball_x == game.pos else 1 if game.ball_x < game.pos else 2
    if env.env_name == "freeway" and rng.random() < 0.7:
        return 1
    if env.env_name == "seaquest" and rng.random() < 0.5:
        return int(rng.choice([2, 2, 4, 5]))
    return before if rng.random() < 0.5 else int(rng.integers(count))
