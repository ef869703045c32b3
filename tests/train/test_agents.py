"""What holds for every agent."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlcpu.train import DDPG, DQN, PPO, PQN, SAC, TD3, off_policy
from tests.train import test_off_policy, test_ppo, test_pqn
from tests.train.test_off_policy import everything

REPLAY, ROLLOUT, UPDATE = test_off_policy.SMALL, test_pqn.SMALL, test_ppo.SMALL
AGENTS: dict[str, Callable[[], Any]] = {
    "PPO": lambda: PPO("CartPole-v1", seed=1, **UPDATE),
    "PQN": lambda: PQN("CartPole-v1", seed=1, **ROLLOUT),
    "DQN": lambda: DQN("CartPole-v1", seed=1, **REPLAY),
    "SAC": lambda: SAC("Pendulum-v1", seed=1, **REPLAY),
    "TD3": lambda: TD3("Pendulum-v1", seed=1, **REPLAY),
    "DDPG": lambda: DDPG("Pendulum-v1", seed=1, **REPLAY),
}
EVERY = pytest.mark.parametrize("make", AGENTS.values(), ids=AGENTS)


@EVERY
def test_an_agent_that_has_learnt_is_copied_and_pickled(make: Callable[[], Any]) -> None:
    agent = make()
    agent.learn(128)
    texts = pickle.dumps(agent), pickle.dumps(agent.history)
    off_policy.losses_type.cache_clear()  # another process has not made it yet
    others = copy.deepcopy(agent), pickle.loads(texts[0])
    history = pickle.loads(texts[1])
    assert repr(history.numbers()) == repr(agent.history.numbers())
    assert history.losses._fields == agent.history.losses._fields
    agent.learn(128)
    for other in others:
        other.learn(128)
        assert everything(other) == everything(agent)
        assert other.history.losses == agent.history.losses


@EVERY
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target_return": "475"}, TypeError, "target_return='475': expected a number"),
        ({"target_return": [475]}, TypeError, r"target_return=\[475\]: expected a number"),
        ({"target_return": True}, TypeError, "target_return=True: expected a number"),
        ({"target_return": math.nan}, ValueError, "target_return=nan: expected a finite number"),
        ({"target_return": math.inf}, ValueError, "target_return=inf: expected a finite number"),
        ({"schedule": "ab"}, TypeError, r"schedule='ab': expected \(first, last\)"),
        ({"schedule": (5, 5)}, ValueError, r"schedule\[1\]=5: expected at least 6"),
        ({"callback": "x"}, TypeError, "callback='x': expected a function"),
        ({"address": "auto"}, ValueError, "address='auto': expected num_collectors too"),
        ({"address": 3, "num_collectors": 1}, TypeError, 'address=3: expected "HOST:PORT"'),
        (
            {"address": "nonsense", "num_collectors": 1},
            ValueError,
            "address='nonsense': expected \"HOST:PORT\"",
        ),
    ],
)
def test_what_learn_cannot_do_is_refused_before_learning(
    make: Callable[[], Any], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    agent = make()
    with pytest.raises(error, match=message):
        agent.learn(128, **options)
    assert (agent.steps, agent.history.steps) == (0, 0)


@pytest.mark.parametrize("name", ["DQN", "PQN", "SAC"])
@pytest.mark.parametrize("options", [{"replay_folder": "here"}, {"num_shards": 1}])
def test_what_means_nothing_without_collectors_is_refused(
    name: str, options: dict[str, Any]
) -> None:
    agent = AGENTS[name]()
    with pytest.raises(ValueError, match=f"{next(iter(options))}=.*expected num_collectors too"):
        agent.learn(128, **options)
    assert agent.steps == 0


@EVERY
def test_an_attribute_that_nobody_would_read_is_refused(make: Callable[[], Any]) -> None:
    agent = make()
    for name, value in {"learning_rate": 0.1, "gamma": 0.5}.items():
        with pytest.raises(AttributeError, match=rf"{name} is a field of \w+'s config: .*{name}"):
            setattr(agent, name, value)
    for name, message in {
        "lr": "no such setting; did you mean learning_rate.*config",
        "total": "no such setting.*config",
        "hidden": r"hidden=\(7,\): the agent is made with",
        "num_envs": "num_envs=7: the agent is made with",
        "seed": "seed: .* is made with it",
        "policy": "policy: .* is made with it",
    }.items():
        with pytest.raises(AttributeError, match=message):
            setattr(agent, name, (7,) if name == "hidden" else 7)
    with pytest.raises(AttributeError, match="num_envs=7: the agent is made with"):
        agent.config = agent.config.replace({"num_envs": 7})
    with pytest.raises(TypeError, match=r"config=\{\}: expected a "):
        agent.config = {}
    assert make().config == agent.config


@EVERY
def test_settings_that_are_replaced_count(make: Callable[[], Any]) -> None:
    agent = make()
    agent.learn(128)
    agent.config = agent.config.replace({"learning_rate": 0.0})
    before = agent.policy.state()["parameters"].copy()
    agent.learn(128)
    np.testing.assert_array_equal(agent.policy.state()["parameters"], before)
    names = {field.name for field in dataclasses.fields(agent.config)}
    changes = {"num_epochs": 1, "num_updates": 1}
    agent.config = agent.config.replace({k: v for k, v in changes.items() if k in names})
    agent.learn(128)
    minibatches = {"PPO": 2, "PQN": 3}  # of 128 samples, and of 64
    assert agent.history.losses.num_gradients == minibatches.get(agent.algorithm, 1)


def test_a_subclass_has_attributes_of_its_own() -> None:
    class Mine(PPO):
        def __init__(self) -> None:
            super().__init__("CartPole-v1", **UPDATE)
            self.notes = ["begun"]

    agent = Mine()
    assert agent.notes == ["begun"]
    with pytest.raises(AttributeError, match="learning_rate is a field of Mine's config"):
        agent.learning_rate = 0.1  # type: ignore[misc]
