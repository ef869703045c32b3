"""Hooks of subclasses that see rollouts: rewards in the place of others, and further columns."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcpu import nn, replay
from rlcpu.distributed.collector import Collector
from rlcpu.train import DQN, PPO
from tests.train.states import state_of
from tests.train.test_off_policy import SMALL
from tests.train.test_saved_numbers import AGENTS, ROLLOUTS

EVERY = pytest.mark.parametrize(("base", "env", "settings"), AGENTS)
#: Ways to replay that treat columns differently, as settings of DQN.
REPLAYS: dict[str, dict[str, Any]] = {
    "prioritized, 3 steps": {"replay": "prioritized", "n_step": 3},
    "return": {"replay": "return"},
    "hindsight": {"replay": "hindsight"},
    "memory": {"network": "gru", "sequence_length": 4, "burn_in": 2, "n_step": 2},
}


@EVERY
def test_facts_in_settings_are_listed(base: Any, env: str, settings: dict[str, Any]) -> None:
    agent = base(env, **settings)
    assert agent.settings().keys() == {*agent.config.names(), *agent.facts}


def test_facts_say_what_actions_there_are() -> None:
    for env, expected in (
        ("CartPole-v1", ("discrete", 2, (), 0, False)),
        ("Taxi-v4", ("discrete", 6, (), 0, True)),
        ("Pendulum-v1", ("continuous", 0, (), 1, False)),
    ):
        facts = PPO(env, **ROLLOUTS).settings()
        names = "kind", "num_actions", "choices", "action_size", "is_masked"
        assert tuple(facts[name] for name in names) == expected


def observing(base: Any) -> Any:
    """Return a class whose columns repeat what its networks observe, and whose loss compares."""

    def compared(function: Any) -> Any:
        @functools.wraps(function)  # its statistic has the function's name
        def loss(batch: Any, nets: Any, settings: Any) -> Any:
            value, statistics = function(batch, nets, settings)
            gap = batch.first - batch.observation[0]
            others = batch.rest - batch.observation[1:3]
            mismatch = gap * gap + nn.sum(others * others)
            return value, {**statistics, "mismatch": mismatch, "square": batch.first * batch.first}

        return loss

    class Observing(base):
        algorithm = f"Observing{base.algorithm}"
        reported = (*base.reported, "mismatch", "square")

        def updates(self) -> list[nn.Update]:
            first, *others = super().updates()
            return [first._replace(function=compared(first.function)), *others]

        def column_sizes(self) -> dict[str, int]:
            return {"first": 1, "rest": 2}

        def columns(self, rollout: Any) -> dict[str, Any]:
            observed = rollout.inputs
            return {"first": observed[..., 0], "rest": observed[..., 1:3].reshape(-1, 2)}

    return Observing


def check_columns(agent: Any, steps: int) -> None:
    losses = agent.learn(steps).losses
    assert losses.mismatch < 1e-12
    assert losses.square > 1e-6


@EVERY
def test_columns_are_those_of_the_sample_also_in_a_loaded_agent(
    base: Any, env: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    kind = observing(base)
    agent = kind(env, seed=0, **settings)
    check_columns(agent, 600)
    agent.save(tmp_path / "agent.npz")
    loaded = kind.load(tmp_path / "agent.npz")
    for each in (agent, loaded):
        check_columns(each, 600)
    for name, array in state_of(agent).items():
        np.testing.assert_array_equal(state_of(loaded)[name], array, err_msg=name)


@pytest.mark.parametrize("name", REPLAYS)
def test_columns_are_those_of_the_sample_in_every_replay(name: str) -> None:
    # Of bits and goals the first numbers are an achieved goal, which hindsight leaves as it was.
    env = "BitFlip-v0" if name == "hindsight" else "CartPole-v1"
    agent = observing(DQN)(env, seed=0, **SMALL | REPLAYS[name])
    check_columns(agent, 800)


def test_a_buffer_of_ones_own_has_the_columns() -> None:
    kind = observing(DQN)
    example = kind("CartPole-v1", **SMALL).example()
    buffer = replay.PrioritizedReplayBuffer(500, example, seed=0)
    check_columns(kind("CartPole-v1", buffer=buffer, **SMALL | {"replay": None}), 600)
    del example["rest"]
    lacking = replay.ReplayBuffer(500, example, seed=0)
    with pytest.raises(ValueError, match=r"has the fields .* expected .*rest float32 \(2,\)"):
        kind("CartPole-v1", buffer=lacking, **SMALL)


@EVERY
def test_bad_columns_are_one_sentence(base: Any, env: str, settings: dict[str, Any]) -> None:
    sizes: dict[str, Any] = {"cost": 1}
    returned: dict[str, Any] = {}

    class Bad(base):
        algorithm = "Bad"

        def column_sizes(self) -> dict[str, int]:
            return sizes

        def columns(self, rollout: Any) -> dict[str, Any]:
            return returned

    agent = Bad(env, **settings)
    count = settings.get("num_envs", 8) * settings.get("num_steps", 1)
    for value, error, text in (
        ({}, ValueError, "Bad.columns returned none: column_sizes has cost"),
        ({"price": np.zeros(count)}, ValueError, "Bad.columns returned price: column_sizes has"),
        ({"cost": 0.0}, ValueError, rf"Bad.columns returned cost of shape \(\): .*\({count},\)"),
        ({"cost": np.zeros((count, 2))}, ValueError, rf"cost of shape \({count}, 2\): expected"),
        ({"cost": np.full(count, np.nan)}, FloatingPointError, "returned cost that is not finite"),
    ):
        returned = value
        with pytest.raises(error, match=text):
            agent.learn(count)
    for wrong, text in (
        ({"observation": 4}, "Bad.column_sizes has 'observation': the batch has it already"),
        ({"state": 4}, "Bad.column_sizes has 'state'"),
        ({"cost": 0}, "Bad.column_sizes: cost=0: expected"),
    ):
        sizes = wrong
        with pytest.raises(ValueError, match=text):
            Bad(env, **settings)


def halving(base: Any) -> Any:
    """Return a class that learns from half of each reward, and keeps the environment's."""

    class Halving(observing(base)):
        algorithm = f"Halving{base.algorithm}"

        def prepare(self, rollout: Any) -> None:
            self._paid = rollout.rewards.copy()
            rollout.rewards *= 0.5

        def column_sizes(self) -> dict[str, int]:
            return {**super().column_sizes(), "paid": 1}

        def columns(self, rollout: Any) -> dict[str, Any]:
            np.testing.assert_array_equal(rollout.rewards, 0.5 * self._paid)
            return {**super().columns(rollout), "paid": self._paid}

    return Halving


@EVERY
def test_rewards_are_replaced_before_all_that_is_done_with_them(
    base: Any, env: str, settings: dict[str, Any]
) -> None:
    """Half of the rewards, and half of all that is learnt from them by a setting, are the same."""
    agent = halving(base)(env, seed=0, **settings)
    usual = base(env, seed=0, **settings)
    if hasattr(usual.config, "reward_scale"):
        agent = halving(base)(env, seed=0, **settings, reward_scale=1.0)
        usual = base(env, seed=0, **settings, reward_scale=0.5)
    ends = [each.learn(640) for each in (agent, usual)]
    assert ends[0].episodes == ends[1].episodes
    np.testing.assert_equal(ends[0].episode_return, ends[1].episode_return)
    if hasattr(usual.config, "reward_scale"):
        common = [name for name in ends[1].losses._fields if "gradient" not in name]
        for name in common:
            assert getattr(ends[0].losses, name) == getattr(ends[1].losses, name), name
    if hasattr(agent, "buffer"):
        batch = agent.buffer.sample(200)
        np.testing.assert_array_equal(batch["reward"], 0.5 * batch["paid"])
        assert batch["paid"].any()


def test_rewards_are_normalised_after_they_were_replaced() -> None:
    """A factor of 1024 is divided out again, where the first returns are not tiny."""

    class Larger(PPO):
        algorithm = "Larger"

        def prepare(self, rollout: Any) -> None:
            rollout.rewards *= 1024.0

    options: dict[str, Any] = {"seed": 0, "normalize_rewards": True, **ROLLOUTS}
    larger, usual = (each("CartPole-v1", **options) for each in (Larger, PPO))
    losses = [each.learn(1_024).losses.value for each in (larger, usual)]
    np.testing.assert_allclose(*losses, rtol=1e-3)


def test_rewards_that_are_not_finite_are_refused_before_they_are_stored() -> None:
    class Bad(DQN):
        algorithm = "Bad"

        def prepare(self, rollout: Any) -> None:
            rollout.rewards[0, 0] = np.inf

    agent = Bad("CartPole-v1", **SMALL)
    with pytest.raises(FloatingPointError, match=r"Bad.prepare left a reward that is not finite"):
        agent.learn(64)
    assert len(agent.buffer) == 0


def test_collectors_in_other_processes_call_both() -> None:
    kind = halving(DQN)
    agent = kind("CartPole-v1", seed=0, **SMALL)
    collector = Collector(
        *("CartPole-v1", agent.policy),
        num_envs=3,
        seed=0,
        n_step=2,
        gamma=0.5,
        agent=(kind, agent.config),
    )
    block, _, made = collector.collect(agent.policy.state(), 20)
    np.testing.assert_array_equal(block["first"], block["observation"][:, 0])
    np.testing.assert_array_equal(block["rest"], block["observation"][:, 1:3])
    assert block["paid"].shape == (made.size,)
    assert set(np.unique(block["reward"])) <= {0.5, 0.75}
