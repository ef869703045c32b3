"""Agents that replay goals which were achieved later."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import rlcpu
from rlcpu import replay
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.envs.tasks.goals.bit_flip import bit_flip
from rlcpu.train import DDPG, DQN, QRDQN, SAC, TD3, TQC
from tests.train.states import state_of

BITS = bit_flip(8, id="EightBits-v0")
SMALL: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 1,
    "num_updates": 2,
    "learning_starts": 64,
    "batch_size": 32,
    "hidden": (32,),
    "n_step": 1,
    "capacity": 1000,
    "replay": "hindsight",
}
EVERY = pytest.mark.parametrize(
    ("kind", "env"),
    [(each, "BitFlip-v0") for each in (DQN, QRDQN)]
    + [(each, "PointMaze-v0") for each in (SAC, TQC, TD3, DDPG)],
)
#: What goes with hindsight, where the user says nothing.
IMPLIED = {"n_step": 1, "normalize_rewards": False, "normalize_observations": False}


def everything(agent: Any) -> dict[str, bytes]:
    arrays = {k: v for k, v in state_of(agent).items() if not k.startswith("env_")}
    return {name: array.tobytes() for name, array in arrays.items()}


@EVERY
@pytest.mark.parametrize("goal", ["future", "episode"])
def test_goes_on_bit_for_bit(kind: Any, env: Any, goal: str, tmp_path: Path) -> None:
    agent = kind(env, seed=1, hindsight_goal=goal, hindsight_ratio=0.7, **SMALL)
    assert isinstance(agent.buffer, replay.HindsightReplayBuffer)
    assert (agent.buffer.goal, agent.buffer.ratio, agent.buffer.num_envs) == (goal, 0.7, 4)
    agent.learn(1600)  # the buffer has gone round
    agent.save(tmp_path / "agent.npz")
    loaded = kind.load(tmp_path / "agent.npz")
    assert loaded.config == agent.config
    agent.learn(400), loaded.learn(400)
    assert everything(loaded) == everything(agent)


def test_what_is_learnt_from() -> None:
    """Rewards of goals, and steps that end at them, as the environment itself gives them."""
    agent = DQN(BITS, seed=0, hindsight_ratio=0.9, **SMALL)
    agent.learn(800)
    batch = agent._draw(200)
    before, after = batch["observation"], batch["next_observation"]
    is_reached = (after["achieved_goal"] == after["desired_goal"]).all(axis=(1, 2))
    np.testing.assert_array_equal(before["desired_goal"], after["desired_goal"])
    np.testing.assert_array_equal(batch["reward"], is_reached - 1.0)
    np.testing.assert_array_equal(batch["terminated"], is_reached)
    assert 0.1 < is_reached.mean() < 0.9
    columns = agent._columns(batch)
    np.testing.assert_array_equal(columns["terminated"], is_reached)
    bits = np.unpackbits(after["desired_goal"].view(np.uint8), axis=-1, bitorder="little")
    names = list(agent.env.dynamics.observation_space)
    inputs = columns["next_observation"].reshape(200, 3, 8)[:, names.index("desired_goal")]
    np.testing.assert_array_equal(inputs, bits.reshape(200, -1)[:, :8])


def test_solves_what_it_does_not_solve_without() -> None:
    """Ten bits, which a random policy meets once in a hundred episodes."""
    ten = bit_flip(10, id="TenBits-v0")
    settings = {**SMALL, "num_envs": 8, "num_updates": 4, "hidden": (128,), "batch_size": 128}
    settings |= {"learning_rate": 2e-3, "exploration_steps": 2000, "capacity": 20_000}
    settings |= {"tau": 0.02, "gamma": 0.95}
    solved = {}
    for kept in ("uniform", "hindsight"):
        agent = DQN(ten, seed=0, **{**settings, "replay": kept})
        agent.learn(5000, target_return=None)
        solved[kept] = (agent.evaluate(100) > -10.0).mean()
    assert solved["hindsight"] > 0.9
    assert solved["uniform"] < 0.3


@EVERY
def test_settings_that_go_with_hindsight(kind: Any, env: str) -> None:
    """Where nobody tuned the environment; general settings normalise, and DQN's have n_step=3."""
    own: Any = dataclasses.replace(rlcpu.envs.find(env), id="Own-v0")
    usual, small = kind(own, hidden=(8,)).config, {"hidden": (8,), "num_envs": 2}
    assert {name: getattr(usual, name) for name in IMPLIED} != IMPLIED
    buffer = replay.HindsightReplayBuffer(1000, example_of(own), num_envs=2)
    for given in ({"replay": "hindsight"}, {"buffer": buffer}):
        config = kind(own, **small, **given).config
        assert {name: getattr(config, name) for name in IMPLIED} == IMPLIED
        assert config.replay == "hindsight"
        assert kind(own, **small, **given, normalize_rewards=True).config.normalize_rewards
    config = usual.replace({"n_step": 1, "normalize_rewards": True})
    assert kind(own, config=config, replay="hindsight").config.normalize_rewards
    assert kind(own, replay="return", hidden=(8,)).config.n_step == 1


def test_general_settings_learn() -> None:
    """Twelve bits: with rewards and observations normalised a fifth of the goals are met."""
    agent = DQN(bit_flip(12, id="TwelveBits-v0"), replay="hindsight", seed=0)
    agent.learn(5000)
    assert (agent.evaluate(100) > -12.0).mean() > 0.8


def test_a_buffer_of_the_user() -> None:
    own = replay.HindsightReplayBuffer(
        400, example_of(BITS), num_envs=4, goal="final", ratio=0.5, seed=1
    )
    others = {k: v for k, v in SMALL.items() if k not in ("capacity", "num_envs", "n_step")}
    agent = DQN(BITS, seed=0, buffer=own, **others)
    config = agent.config
    assert (config.replay, config.n_step, config.capacity) == ("hindsight", 1, 400)
    assert (config.hindsight_goal, config.hindsight_ratio, config.num_envs) == ("final", 0.5, 4)
    agent.learn(400)
    with pytest.raises(ValueError, match=r"hindsight_ratio=0.9: buffer has 0.5, which counts"):
        DQN(BITS, buffer=own, hindsight_ratio=0.9, **others)
    # A function of its own counts, and may be any.
    own.compute_reward = lambda achieved, desired: np.full(len(achieved), 7.0)
    assert set(agent._draw(100)["reward"].tolist()) == {7.0, -1.0}
    single = replay.HindsightReplayBuffer(400, example_of(BITS))
    with pytest.raises(ValueError, match=r"num_envs=None: its episodes .* expected num_envs=4"):
        DQN(BITS, buffer=single, num_envs=4, **others)


def test_refuses_what_has_no_hindsight() -> None:
    for environment, changes, error, message in (
        ("CartPole-v1", {}, TypeError, 'replay="hindsight": CartPole-v1 has no goals: observation'),
        (BITS, {"n_step": 3}, ValueError, 'n_step=3: replay="hindsight" has n_step=1 only'),
        (BITS, {"hindsight_ratio": 1.5}, ValueError, "hindsight_ratio=1.5"),
        (BITS, {"hindsight_ratio": "much"}, TypeError, "hindsight_ratio='much'"),
        (BITS, {"hindsight_goal": "past"}, ValueError, "hindsight_goal='past'"),
    ):
        with pytest.raises(error, match=message):
            DQN(environment, **{**SMALL, **changes})
    with pytest.raises(ValueError, match='replay="hindsight" has no sequences: expected "uniform"'):
        SAC("PointMaze-v0", network="gru", **SMALL)
    agent = DQN(BITS, seed=0, **SMALL)
    with pytest.raises(ValueError, match="num_collectors=1: goals of whole episodes"):
        agent.learn(100, num_collectors=1)


class Line(gymnasium.Env[Any, Any]):
    """A walk along a line to a goal, in Gymnasium's form; it ends there."""

    observation_space = Dict(
        observation=Box(0.0, 9.0, (1,)), achieved_goal=Discrete(10), desired_goal=Discrete(10)
    )
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.goal = map(int, self.np_random.integers(0, 10, 2))
        return self.look(), {}

    def look(self) -> Any:
        goals = {"achieved_goal": self.place, "desired_goal": self.goal}
        return {"observation": np.float32([self.place]), **goals}

    def step(self, action: int) -> Any:
        self.place = min(max(self.place + 2 * int(action) - 1, 0), 9)
        reward = float(self.compute_reward(np.array(self.place), np.array(self.goal), {}))
        return self.look(), reward, reward == 0.0, False, {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.where(achieved_goal == desired_goal, 0.0, -1.0)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> bool:
        return bool(achieved_goal == desired_goal)


def test_an_environment_of_gymnasium() -> None:
    env = gymnasium.wrappers.TimeLimit(Line(), 12)
    settings = {**SMALL, "num_updates": 1, "learning_rate": 3e-3, "exploration_steps": 500}
    agent = DQN(env, seed=0, **{**settings, "num_envs": None, "gamma": 0.9, "tau": 0.05})
    agent.learn(1500)
    batch = agent._draw(300)
    after = batch["next_observation"]
    is_reached = after["achieved_goal"] == after["desired_goal"]
    np.testing.assert_array_equal(batch["reward"], is_reached - 1.0)
    np.testing.assert_array_equal(batch["terminated"], is_reached)
    assert agent.evaluate(50).mean() > -6.0
