"""What hampers learning: whoever follows the advice learns, and healthy runs are told nothing."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from asv_benches import untuned
from rlcpu.envs import GymnasiumEnv
from rlcpu.train import DQN, PPO, PQN, SAC, TD3
from rlcpu.train.running.evaluate import evaluate
from tests.replay.naive import state_of as bytes_of_buffer

#: Settings with which small environments are learnt in a second or two.
SMALL: dict[Any, dict[str, Any]] = {
    PPO: {
        "num_envs": 16,
        "num_steps": 64,
        "minibatch_size": 256,
        "num_epochs": 8,
        "activation": "tanh",
        "entropy_coefficient": 0.0,
    },
    DQN: {
        "num_envs": 8,
        "num_steps": 8,
        "num_updates": 16,
        "batch_size": 64,
        "learning_starts": 500,
        "exploration_steps": 4000,
        "n_step": 1,
        "tau": 0.005,
    },
    SAC: {"num_envs": 8, "num_updates": 4, "batch_size": 64, "learning_starts": 500},
}
SMALL[TD3] = SMALL[SAC]
for _options in SMALL.values():
    _options |= {"learning_rate": 1e-3, "hidden": (32, 32)}
    _options |= {"normalize_observations": True, "normalize_rewards": True}


class Toll(NamedTuple):
    toll: float = 0.1  # for each step to the right
    length: float = 8.0


def walk(state: Any, action: Any, params: Any, rng: Any) -> Any:
    """Walk to the right, which costs, until the end pays more; or to the left, for nothing."""
    (place,) = state
    place = place + 1.0 if action == 1 else max(place - 1.0, 0.0)
    arrived = place >= params.length
    return (place,), (1.0 if arrived else 0.0) - (params.toll if action == 1 else 0.0), arrived


def begin(rng: Any, params: Any) -> Any:
    return (0.0,)


TOLL = rlcpu.Dynamics(
    id="Toll-v0",
    step=walk,
    reset=begin,
    params=Toll(),
    observation_space=Box(0.0, 10.0, (1,), np.float32),
    action_space=Discrete(2),
    max_episode_steps=40,
)


class Case(NamedTuple):
    """An agent with settings that hamper, and what is said of it.

    Returns are shares of a good policy's for an untuned environment.
    """

    kind: Any
    env: Any
    steps: int
    settings: dict[str, Any]
    name: str
    answer: dict[str, Any]
    hampered: float  # mean return, at most
    cured: float  # at least


def scaled_mine(scale: float) -> rlcpu.Dynamics:
    dynamics = untuned.task("mine").dynamics
    rewards = {"price": 1000.0, "repair": 2500.0, "collapse": 20000.0}
    return dynamics.with_params(**{name: scale * value for name, value in rewards.items()})


NORMAL = {"normalize_rewards": True}
CASES = {
    "tiny inputs": Case(
        DQN,
        "microvolts",
        8000,
        {"normalize_observations": False},
        "inputs",
        {"normalize_observations": True},
        0.3,
        0.9,
    ),
    "clipped inputs": Case(
        PPO,
        "pump",
        40_000,
        {"normalize_observations": False, "clip_observations": 5.0, "scale_actions": True},
        "inputs",
        {"normalize_observations": True},
        0.5,
        0.9,
    ),
    "wide bounds": Case(
        PPO, "pump", 40_000, {"scale_actions": False}, "actions", {"scale_actions": True}, 0.0, 0.9
    ),
    "one end": Case(
        TD3, "pump", 5000, {"learning_rate": 0.05}, "actions", {"learning_rate": 0.005}, 0.0, 0.9
    ),
    "large returns": Case(
        PPO, "mine", 30_000, {"normalize_rewards": False}, "rewards", NORMAL, 0.6, 0.85
    ),
    "small returns": Case(
        DQN, scaled_mine(1e-8), 10_000, {"normalize_rewards": False}, "rewards", NORMAL, 0.0, 3e-4
    ),
    "entropy before rewards": Case(
        SAC, "greenhouse", 5000, {"normalize_rewards": False}, "rewards", NORMAL, 0.65, 0.7
    ),
    "bounded errors": Case(
        DQN, "mine", 10_000, {"normalize_rewards": False}, "errors", NORMAL, 0.6, 0.85
    ),
    "a short memory": Case(
        DQN, "microvolts", 10_000, {"capacity": 128}, "replay", {"capacity": 100_000}, 0.5, 0.9
    ),
    "one action": Case(
        PPO,
        TOLL,
        20_000,
        {"learning_rate": 5e-3},
        "entropy",
        {"entropy_coefficient": 0.01, "normalize_advantages": False},
        0.0,
        0.199,
    ),
    "no noise": Case(
        PPO,
        "pump",
        40_000,
        {"scale_actions": True, "log_std_init": -6.0},
        "entropy",
        {"log_std_init": 0.0},
        0.2,
        0.9,
    ),
    "values that nobody learns": Case(
        PPO,
        "CartPole-v1",
        20_000,
        {"lambda_": 0.5, "value_coefficient": 0.0},
        "values",
        {"value_coefficient": 0.5},
        30.0,
        70.0,
    ),
    "dead units": Case(
        DQN, "microvolts", 8000, {"learning_rate": 0.1}, "units", {"learning_rate": 0.01}, 0.3, 0.8
    ),
}


def learn(case: Case, **changes: Any) -> tuple[Any, float]:
    task = untuned.task(case.env) if case.env in untuned.NAMES else None
    env = case.env if task is None else task.dynamics
    settings = {**SMALL[case.kind], **case.settings, **changes}
    agent = case.kind(env, seed=0, num_threads=1, **settings)
    agent.learn(case.steps)
    mean = float(agent.evaluate(50, seed=1).mean())
    return agent, mean if task is None else task.share(mean)


def names_of(diagnosis: Any) -> list[str]:
    return [each.name for each in diagnosis.hindrances]


@pytest.mark.filterwarnings("ignore:.*as the networks get it")
@pytest.mark.parametrize("name", CASES)
def test_who_follows_the_advice_learns(name: str) -> None:
    case = CASES[name]
    agent, hampered = learn(case)
    diagnosis = agent.diagnose()
    assert case.name in names_of(diagnosis), diagnosis
    hindrance = diagnosis.hindrances[names_of(diagnosis).index(case.name)]
    assert hindrance.settings == case.answer
    cured_agent, cured = learn(case, **hindrance.settings)
    assert hampered <= case.hampered
    assert cured >= case.cured
    assert cured_agent.diagnose().ok, cured_agent.diagnose()


def test_episodes_that_never_end() -> None:
    """A balloon that nobody brings back is soon where nothing can be learnt."""
    task = untuned.task("altitude")
    endless = dataclasses.replace(task.dynamics, max_episode_steps=None)

    def learn_on(agent: Any) -> float:
        agent.learn(30_000)
        mean = evaluate(rlcpu.make_vec(task.dynamics, 8), agent.policy, 50, seed=1).mean()
        return task.share(float(mean))

    lost, brought_back = (
        PPO(
            rlcpu.make_vec(endless, 16, max_episode_steps=limit),
            seed=0,
            num_threads=1,
            **SMALL[PPO],
        )
        for limit in (None, 200)
    )
    assert learn_on(brought_back) > learn_on(lost) + 1.0  # five seeds: by 1.9 to 4.8
    diagnosis = lost.diagnose()
    (hindrance,) = diagnosis.hindrances
    assert (hindrance.name, hindrance.settings) == ("episodes", {})
    assert "rlcpu.make_vec(..., max_episode_steps=200)" in str(diagnosis)
    assert learn_on(brought_back) > 0.6  # five seeds: 0.81 to 0.98
    assert brought_back.diagnose().ok


# ---------------------------------------------------------------- healthy runs


@pytest.mark.parametrize(
    ("kind", "env", "steps", "least", "settings"),
    [
        (PPO, "CartPole-v1", 50_000, 300.0, {}),
        (DQN, "CartPole-v1", 20_000, 100.0, {}),
        (SAC, "Pendulum-v1", 8000, -300.0, {}),
        (TD3, "Pendulum-v1", 8000, -300.0, {}),
        (PPO, "Pendulum-v1", 100_000, -1000.0, {}),
    ],
)
def test_nothing_is_said_of_healthy_runs(
    kind: Any, env: str, steps: int, least: float, settings: dict[str, Any]
) -> None:
    agent = kind(env, seed=0, num_threads=1, **settings)
    agent.learn(steps)
    assert agent.evaluate(20, seed=1).mean() > least
    diagnosis = agent.diagnose()
    assert diagnosis.ok, diagnosis
    assert repr(diagnosis) == f"{kind.__name__} on {env}, {agent.steps:,} steps: nothing found"
    assert diagnosis.settings == {}


# ---------------------------------------------------------------- what it leaves as it is

TINY: dict[Any, dict[str, Any]] = {
    PPO: {"num_envs": 4, "num_steps": 32, "minibatch_size": 64, "num_epochs": 2, "hidden": (8,)},
    PQN: {"num_envs": 4, "num_steps": 32, "minibatch_size": 64, "num_epochs": 2, "hidden": (8,)},
    DQN: {"learning_starts": 100, "batch_size": 16, "hidden": (8,)},
    SAC: {"learning_starts": 100, "batch_size": 16, "hidden": (8,)},
}


def state_of(agent: Any) -> list[Any]:
    """What an agent has learnt, and what decides how it goes on."""
    arrays, buffer = agent._state(), getattr(agent, "buffer", None)
    held = [] if buffer is None else bytes_of_buffer(buffer)
    return [*(arrays[name].copy() for name in sorted(arrays)), agent.rng.bit_generator.state, *held]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (PPO, {}),
        (PPO, {"network": "gru"}),
        (PQN, {}),
        (DQN, {}),
        (DQN, {"replay": "prioritized"}),
        (DQN, {"replay": "return", "n_step": 1}),
        (DQN, {"network": "gru"}),
        (SAC, {}),
    ],
)
def test_it_changes_nothing_that_is_learnt(kind: Any, options: dict[str, Any]) -> None:
    env, states = "Pendulum-v1" if kind is SAC else "CartPole-v1", []
    for is_diagnosed in (True, False):
        agent = kind(env, seed=3, num_threads=1, **{**TINY[kind], **options})
        agent.learn(1024)
        before = state_of(agent)
        if is_diagnosed:
            agent.diagnose()
            for array, expected in zip(state_of(agent), before, strict=True):
                np.testing.assert_equal(array, expected)
        agent.learn(512)
        states.append(state_of(agent))
    for array, expected in zip(*states, strict=True):
        np.testing.assert_equal(array, expected)


@pytest.mark.parametrize(
    ("kind", "env", "settings"),
    [
        (PPO, "CartPole-v1", {"value_coefficient": 0.0}),
        (SAC, "Pendulum-v1", {"learning_rate": 0.3}),
    ],
)
def test_a_file_is_told_the_same(
    kind: Any, env: str, settings: dict[str, float], tmp_path: Any
) -> None:
    """Of an agent with values that differ from what was observed, and settings that hamper."""
    agent = kind(env, seed=0, num_threads=1, **{**TINY[kind], **settings})
    agent.learn(1500)
    agent.save(tmp_path / "agent.npz")
    loaded = kind.load(tmp_path / "agent.npz", num_threads=1)
    diagnosis = agent.diagnose(seed=2)
    assert not diagnosis.ok
    assert repr(loaded.diagnose(seed=2)) == repr(diagnosis)


# ---------------------------------------------------------------- what it cannot do


def test_what_cannot_be_told_yet() -> None:
    agent = PPO("CartPole-v1", seed=0, **TINY[PPO])
    with pytest.raises(ValueError, match="steps=0: expected an agent that has learnt 1,000 at"):
        agent.diagnose()
    agent.learn(1024)
    with pytest.raises(ValueError, match=r"observation_space=Box.*expected that of"):
        agent.diagnose(env=rlcpu.make_vec("Acrobot-v1"))
    with pytest.raises(ValueError, match="seed=-1: expected"):
        agent.diagnose(seed=-1)


def test_environments_that_cannot_be_made_again_need_others() -> None:
    one, other = (gymnasium.make("CartPole-v1") for _ in range(2))
    agent = PPO(one, seed=0, **{**TINY[PPO], "num_envs": None, "num_steps": 256})
    agent.learn(1024)
    with pytest.raises(ValueError, match=r"cannot be made again.*expected other environments"):
        agent.diagnose()
    assert "PPO on " in str(agent.diagnose(env=GymnasiumEnv(other)))


def test_the_settings_of_several_hindrances_are_those_of_all() -> None:
    agent, _ = learn(CASES["bounded errors"]._replace(steps=2000))
    diagnosis = agent.diagnose()
    assert names_of(diagnosis)[:2] == ["rewards", "errors"]
    assert diagnosis.settings == NORMAL
    rewards = diagnosis.hindrances[0]
    assert rewards.measured > rewards.limit
    lines = str(diagnosis).splitlines()
    assert lines[0].startswith("DQN on Untuned/Mine-v0, 2,048 steps: ")
    assert lines[1] == f"rewards  {rewards.message}"
    assert lines[2] == "         try normalize_rewards=True"


def test_with_hindsight_nothing_is_to_be_normalised() -> None:
    settings = {name: each for name, each in SMALL[TD3].items() if not name.startswith("normalize")}
    agent = TD3("PointMaze-v0", seed=0, replay="hindsight", **{**settings, "learning_rate": 0.5})
    agent.learn(2000)
    assert not agent.config.normalize_rewards
    answers = {each.name: each.settings for each in agent.diagnose().hindrances}
    assert answers["actions"] == {"learning_rate": 0.05}


def test_narrow_bounds() -> None:
    """All that a deviation of 1 draws is beyond bounds of a thousandth."""
    agent = PPO(untuned.task("trim").dynamics, seed=0, **{**SMALL[PPO], "scale_actions": False})
    agent.learn(1024)
    (hindrance,) = agent.diagnose().hindrances
    assert hindrance.settings == {"scale_actions": True}
    assert hindrance.measured > 0.99
    assert math.isclose(hindrance.limit, 0.5)
