"""What holds for every agent."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Discrete

import rlcpu
from rlcpu.algorithms import TABLE
from rlcpu.train import (
    DDPG,
    DQN,
    PPO,
    PQN,
    QRDQN,
    SAC,
    TD3,
    TQC,
    dqn,
    ppo,
    pqn,
    qrdqn,
    sac,
    td3,
    tqc,
)
from rlcpu.train.keeping import history
from tests.train import test_off_policy, test_ppo, test_pqn
from tests.train.test_off_policy import everything

REPLAY, ROLLOUT, UPDATE = test_off_policy.SMALL, test_pqn.SMALL, test_ppo.SMALL
AGENTS: dict[str, Callable[[], Any]] = {
    "PPO": lambda: PPO("CartPole-v1", seed=1, **UPDATE),
    "PQN": lambda: PQN("CartPole-v1", seed=1, **ROLLOUT),
    "DQN": lambda: DQN("CartPole-v1", seed=1, **REPLAY),
    "QRDQN": lambda: QRDQN("CartPole-v1", seed=1, **REPLAY),
    "SAC": lambda: SAC("Pendulum-v1", seed=1, **REPLAY),
    "TQC": lambda: TQC("Pendulum-v1", seed=1, **REPLAY),
    "TD3": lambda: TD3("Pendulum-v1", seed=1, **REPLAY),
    "DDPG": lambda: DDPG("Pendulum-v1", seed=1, **REPLAY),
}
EVERY = pytest.mark.parametrize("make", AGENTS.values(), ids=AGENTS)


def test_the_table_names_all_algorithms() -> None:
    """What is said of each without importing it is so."""
    assert {*AGENTS, "BC"} == set(TABLE)
    for name, row in TABLE.items():
        kind = getattr(rlcpu.train, name)
        assert (kind.algorithm, kind.Config.__name__) == (name, f"{name}Config")
        assert kind.__module__ == f"rlcpu.train.{row.module}"
        assert hasattr(kind.Config(), "replay") == row.has_replay
        kind_of_example = {"choice": "discrete", "bounded": "continuous"}
        assert row.actions == "any" or kind._example_of(kind_of_example[row.actions])
        assert {name, f"{name}Config"} <= set(rlcpu.train.__all__)
        for env_id, is_choice in (("CartPole-v1", True), ("Pendulum-v1", False)):
            if row.actions in ("any", "choice" if is_choice else "bounded"):
                kind(env_id, num_envs=2)
            else:
                with pytest.raises(TypeError, match=r"; .*PPO.* take"):
                    kind(env_id, num_envs=2)


@EVERY
def test_an_agent_that_has_learnt_is_copied_and_pickled(make: Callable[[], Any]) -> None:
    agent = make()
    agent.learn(128)
    texts = pickle.dumps(agent), pickle.dumps(agent.history)
    history.losses_type.cache_clear()  # another process has not made it yet
    others = copy.deepcopy(agent), pickle.loads(texts[0])
    loaded = pickle.loads(texts[1])
    assert repr(loaded.numbers()) == repr(agent.history.numbers())
    assert loaded.losses._fields == agent.history.losses._fields
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
def test_collect_and_simulate_act_greedily_where_they_are_asked_to(make: Callable[[], Any]) -> None:
    """An agent's policy explores, above all before it has learnt; it is not changed."""
    agent = make()
    env, policy = agent.env, agent.policy
    greedy = rlcpu.collect(env, policy, 10, deterministic=True)
    actions, space = greedy.actions, env.single_action_space
    if not isinstance(space, Discrete):
        actions = np.clip(actions, space.low, space.high)
    seen = greedy.observations.reshape(-1, *greedy.observations.shape[2:])
    np.testing.assert_allclose(
        actions.reshape(-1, *space.shape), agent.predict(seen), rtol=1e-5, atol=1e-5
    )
    explored = rlcpu.collect(env, policy, 10)
    predicted = agent.predict(explored.observations.reshape(seen.shape))
    assert (explored.actions.reshape(predicted.shape) != predicted).any()
    assert policy.deterministic is False


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


@EVERY
def test_each_setting_can_be_replaced_while_it_learns(make: Callable[[], Any]) -> None:
    agent = make()
    names = set(agent.config.names())
    changes: dict[str, Any] = {
        "num_steps": 6, "batch_size": 32, "minibatch_size": 32, "gamma": 0.5, "tau": 0.5,
        "normalize_advantages": False, "double": False, "target_entropy": -3.0, "target_noise": 0.1,
        "learning_rate_schedule": lambda remaining: remaining, "clip_schedule": "cosine",
        "exploration_schedule": "constant", "exploration_noise": 0.3, "lambda_": 0.5,
    }  # fmt: skip
    changes = {name: value for name, value in changes.items() if name in names}
    reference = make()

    def change(progress: Any) -> None:
        for name, value in changes.items():
            agent.config = agent.config.replace({name: value})

    agent.learn(128, callback=change)
    agent.learn(128)
    reference.learn(128)
    reference.learn(128)
    assert everything(agent) != everything(reference)
    if agent.algorithm == "DQN":
        assert agent._columns(agent.buffer.sample(32))["discount"][0] == 0.5


def test_advantages_are_no_longer_normalized_once_the_config_says_so() -> None:
    agents = [PPO("CartPole-v1", seed=1, **UPDATE) for _ in range(3)]
    for agent, value in zip(agents, (True, False, True), strict=True):
        agent.learn(128)
        agent.config = agent.config.replace({"normalize_advantages": value})
        agent.learn(128)
    first, changed, again = map(everything, agents)
    assert first == again != changed


@EVERY
def test_a_class_shows_every_setting_with_type_and_default(make: Callable[[], Any]) -> None:
    kind = type(make())
    parameters = inspect.signature(kind).parameters
    assert [*parameters][:4] == ["env", "seed", "num_threads", "dtype"]
    for field in dataclasses.fields(kind.Config):
        shown = parameters[field.name]
        assert (shown.annotation, shown.default) == (field.type, field.default)
    with pytest.raises(TypeError, match=f"{kind.algorithm} has no such setting; did you mean seed"):
        kind("CartPole-v1", sede=1)
    with pytest.raises(TypeError, match="did you mean learning_rate_schedule"):
        kind("CartPole-v1", learning_rate_schedul="linear")


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (PPO, ppo._PPOArguments),
        (DQN, dqn._DQNArguments),
        (PQN, pqn._PQNArguments),
        (QRDQN, qrdqn._QRDQNArguments),
        (SAC, sac._SACArguments),
        (TQC, tqc._TQCArguments),
        (TD3, td3._TD3Arguments),
        (DDPG, td3._DDPGArguments),
    ],
)
def test_type_checkers_see_the_arguments_of_agents(kind: Any, arguments: Any) -> None:
    shown = inspect.signature(kind).parameters
    checked = inspect.signature(arguments).parameters
    assert {name: (each.annotation, each.default) for name, each in checked.items()} == {
        name: (each.annotation, each.default) for name, each in shown.items() if name != "env"
    }


def test_a_subclass_shows_the_settings_of_its_config() -> None:
    @dataclasses.dataclass(frozen=True)
    class MineConfig(DQN.Config):  # type: ignore[misc,name-defined]
        margin: float = 0.5

    class Mine(DQN):
        Config = MineConfig

    assert inspect.signature(Mine).parameters["margin"].default == 0.5
    assert "margin" not in inspect.signature(DQN).parameters


@EVERY
def test_a_function_as_schedule_is_not_kept_in_a_file(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    agent = make()
    schedule = {"learning_rate_schedule": math.sqrt}
    agent.config = agent.config.replace(schedule)
    agent.learn(128)
    agent.save(tmp_path / "agent")
    with pytest.warns(UserWarning, match="agent: learning_rate_schedule was a function") as told:
        loaded = type(agent).load(tmp_path / "agent")
    assert told[0].filename == __file__
    assert loaded.config.learning_rate_schedule == "constant"
    loaded.config = loaded.config.replace(schedule)
    for each in (agent, loaded):
        each.learn(128)
    assert everything(loaded) == everything(agent)


@EVERY
@pytest.mark.parametrize("schedule", ["cosine", lambda remaining: 0.5 * remaining])
def test_learning_rates_follow_schedules(make: Callable[[], Any], schedule: Any) -> None:
    rates, agent = [], make()
    agent.config = agent.config.replace({"learning_rate_schedule": schedule})
    learner = agent._parts()["learner"]
    update = learner.update

    def spy(*args: Any, **options: Any) -> Any:
        rates.append(options["learning_rate"])
        return update(*args, **options)

    learner.update = spy
    agent.learn(512)
    remaining = np.arange(1, 513) / 512
    if schedule == "cosine":
        expected = (1 + np.cos(np.pi * (1 - remaining))) / 2
    else:
        expected = 0.5 * remaining
    assert len(set(rates)) > 2
    for rate in rates:
        assert np.abs(agent.config.learning_rate * np.append(expected, 0) - rate).min() < 1e-9


@pytest.mark.parametrize("name", ["DQN", "PQN"])
def test_exploration_follows_its_schedule(name: str) -> None:
    agent = AGENTS[name]()
    chances = {}
    settings = {"exploration_initial": 0.8, "exploration_final": 0.2, "exploration_steps": 1000}
    schedules = {"linear": 0.65, "cosine": 0.5 + 0.3 * math.sqrt(0.5), "constant": 0.8}
    for schedule in (*schedules, lambda remaining: remaining**2):
        agent.config = agent.config.replace({**settings, "exploration_schedule": schedule})
        agent.steps = 250
        agent.explore()
        chances[schedule] = float(agent.policy.params[0])
        agent.steps = 1000
        agent.explore()
        assert agent.policy.params[0] == np.float32(0.8 if schedule == "constant" else 0.2)
    expected = [*schedules.values(), 0.2 + 0.6 * 0.75**2]
    assert list(chances.values()) == pytest.approx(expected)


def normalizing(agent: Any) -> Any:
    agent.config = agent.config.replace({"normalize_observations": True, "normalize_rewards": True})
    return agent


@EVERY
def test_an_agent_normalizes_by_all_that_it_has_seen(make: Callable[[], Any]) -> None:
    agent = normalizing(make())
    observations, returns = [], [np.zeros(agent.env.num_envs)]
    collect_rollout, gamma = agent.collect_rollout, agent.config.gamma
    acted_by = []

    def spy(*args: Any, **options: Any) -> Any:
        acted_by.append(agent.policy.observation_mean.copy())
        rollout = collect_rollout(*args, **options)
        observations.append(rollout.inputs.reshape(rollout.rewards.size, -1).copy())
        ended = rollout.terminated | rollout.truncated
        for rewards, ends in zip(rollout.rewards, ended, strict=True):
            returns.append(gamma * returns[-1] * going + rewards)
            going[:] = ~ends
        return rollout

    going = np.ones(agent.env.num_envs)
    agent.collect_rollout = spy
    agent.learn(512)
    seen = np.concatenate(observations).astype(np.float64)
    assert agent.normalizer.count.tolist() == [len(seen)]
    np.testing.assert_allclose(agent.policy.observation_mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(agent.policy.observation_scale, 1 / seen.std(axis=0), rtol=1e-4)
    np.testing.assert_allclose(acted_by[1], observations[0].mean(axis=0), rtol=1e-5)
    deviation = np.array(returns[1:]).std()
    statistics = agent.rewards.statistics
    assert np.sqrt(statistics.squares / statistics.count) == pytest.approx(deviation, rel=1e-5)
    if TABLE[agent.algorithm].has_replay:
        batch = agent.buffer.sample(48)
        known = {row.tobytes() for row in np.concatenate(observations)}
        assert all(row.tobytes() in known for row in batch["observation"])
        learnt = agent._columns(batch)["reward"]
        scale = getattr(agent.config, "reward_scale", 1.0) / deviation
        np.testing.assert_allclose(learnt, batch["reward"] * scale, rtol=1e-5)
        assert learnt.dtype == np.float32


@EVERY
def test_an_agent_that_normalizes_goes_on_bit_for_bit(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    agent, plain = normalizing(make()), make()
    agent.learn(256), plain.learn(256)
    assert everything(agent)["policy_parameters"] != everything(plain)["policy_parameters"]
    agent.save(tmp_path / "agent")
    loaded = type(agent).load(tmp_path / "agent")
    assert everything(loaded) == everything(agent)
    agent.learn(256), loaded.learn(256)
    assert everything(loaded) == everything(agent)


def test_an_update_that_is_undone_leaves_statistics_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = normalizing(PPO("CartPole-v1", seed=1, **UPDATE))
    agent.learn(128)
    before = everything(agent)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(agent.learner, "update", fail)
    with pytest.raises(RuntimeError):
        agent.learn(128)
    monkeypatch.undo()
    assert everything(agent) == before


@pytest.mark.parametrize("name", [name for name in AGENTS if TABLE[name].has_replay])
@pytest.mark.parametrize("setting", ["normalize_observations", "normalize_rewards"])
def test_collectors_with_replay_do_not_normalize(name: str, setting: str) -> None:
    agent = AGENTS[name]()
    agent.config = agent.config.replace({setting: True})
    with pytest.raises(ValueError, match=f"num_collectors=2: {name} with {setting}=True"):
        agent.learn(128, num_collectors=2)
    assert agent.steps == 0


def test_a_subclass_has_attributes_of_its_own() -> None:
    class Mine(PPO):
        def __init__(self) -> None:
            super().__init__("CartPole-v1", **UPDATE)
            self.notes = ["begun"]

    agent = Mine()
    assert agent.notes == ["begun"]
    with pytest.raises(AttributeError, match="learning_rate is a field of Mine's config"):
        agent.learning_rate = 0.1  # type: ignore[misc]
