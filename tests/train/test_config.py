"""Hyper-parameters: each bad value is one error that names it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from rlcpu import Dynamics
from rlcpu.envs.contract.names import find
from rlcpu.train import DDPG, DQN, PPO, PQN, QRDQN, SAC, TD3, TQC
from rlcpu.train.ppo import DEFAULTS, GENERAL, GENERAL_SYMBOLS, ZOO_CARTPOLE, PPOConfig
from rlcpu.train.settings.base import scheduled


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("num_envs", 0, ValueError),
        ("num_steps", 2.5, TypeError),
        ("num_epochs", True, TypeError),
        ("minibatch_size", -1, ValueError),
        ("learning_rate", -1e-3, ValueError),
        ("learning_rate", math.nan, ValueError),
        ("learning_rate", math.inf, ValueError),
        ("learning_rate", 10**400, ValueError),
        ("clip_range", 10**400, ValueError),
        ("num_steps", 10**400, ValueError),
        ("hidden", 5, TypeError),
        ("hidden", "64", TypeError),
        ("hidden", (64, 0), ValueError),
        ("activation", "gelu", ValueError),
        ("learning_rate", "fast", TypeError),
        ("learning_rate_schedule", "sine", ValueError),
        ("clip_schedule", 0.5, ValueError),
        ("clip_range", 0.0, ValueError),
        ("gamma", 1.01, ValueError),
        ("lambda_", -0.1, ValueError),
        ("entropy_coefficient", None, TypeError),
        ("max_gradient_norm", 0.0, ValueError),
        ("target_kl", 0.0, ValueError),
        ("normalize_advantages", 1, TypeError),
        ("value", None, ValueError),
    ],
)
def test_bad_value_is_named(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=name):
        PPOConfig(**{name: value})


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(TypeError, match="clip_rnage"):
        PPOConfig().replace({"clip_rnage": 0.2})


def test_limits_themselves_are_allowed() -> None:
    config = PPOConfig(gamma=1, lambda_=0.0, learning_rate=0.0, max_gradient_norm=math.inf)
    assert config.gamma == 1.0
    assert (PPOConfig(num_steps=1e3).num_steps, PPOConfig(hidden=[8]).hidden) == (1000, (8,))
    assert isinstance(config.gamma, float)
    assert config.replace({"num_envs": 3}) == dataclasses.replace(config, num_envs=3)


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("n_steps", "num_steps"), ("gae_lambda", "lambda_"), ("ent_coef", "entropy_coefficient"),
        ("batch_size", "minibatch_size"), ("n_epochs", "num_epochs"), ("clip_coef", "clip_range"),
        ("vf_coef", "value_coefficient"), ("max_grad_norm", "max_gradient_norm"),
        ("norm_adv", "normalize_advantages"), ("learning_rte", "learning_rate"),
    ],
)  # fmt: skip
def test_names_of_other_libraries_get_a_hint(given: str, ours: str) -> None:
    with pytest.raises(TypeError, match=f"^{given}: .* did you mean {ours}[?]$"):
        PPOConfig().replace({given: 1})


def test_schedules() -> None:
    assert scheduled(0.3, "constant", 0.25) == 0.3
    assert scheduled(0.4, "linear", 0.25) == 0.1
    assert scheduled(0.4, "linear", 0.0) == 0.0
    assert [scheduled(0.4, "cosine", x) for x in (1.0, 0.5, 0.0)] == pytest.approx([0.4, 0.2, 0.0])
    assert scheduled(0.4, "cosine", 0.75) == pytest.approx(0.2 * (1 + math.cos(math.pi / 4)))
    assert scheduled(0.4, lambda remaining: remaining**2, 0.5) == 0.1


@pytest.mark.parametrize("factor", [-0.1, math.nan, math.inf, "half", None])
def test_a_schedule_gives_a_finite_number(factor: Any) -> None:
    with pytest.raises(ValueError, match=r"schedule .* gives .* at 0[.]5: expected a finite"):
        scheduled(0.4, lambda remaining: factor, 0.5)


def untuned(env_id: str, **changes: Any) -> Dynamics:
    """An environment under a name for which nothing is tuned."""
    return dataclasses.replace(find(env_id), id="Nobody-v0", **changes)


def test_tuned_settings_come_first() -> None:
    assert PPO.default_config(find("CartPole-v1")) is DEFAULTS["CartPole-v1"]
    assert PPO.default_config(find("Ant-v5")) is DEFAULTS["Ant-v5"]


def test_general_settings_fit_the_spaces() -> None:
    whole = Box(-2.0, 3.0, (1,), np.float32)
    without = GENERAL.replace({"scale_actions": False})
    assert PPO.default_config(untuned("Pendulum-v1", action_space=whole)) == GENERAL
    half = Box(-2.0, np.inf, (1,), np.float32)
    assert PPO.default_config(untuned("Pendulum-v1", action_space=half)) == without
    assert PPO.default_config(untuned("CartPole-v1")) == without
    symbols = GENERAL_SYMBOLS.replace({"scale_actions": False})
    assert PPO.default_config(untuned("FrozenLake-v1")) == symbols
    board = symbols.replace({"network": "conv"})
    assert PPO.default_config(untuned("MinAtar/Breakout-v1")) == board


@pytest.mark.parametrize("kind", [PQN, DQN, QRDQN, SAC, TQC, TD3, DDPG])
def test_numbers_are_normalized_where_nobody_tuned_and_symbols_are_not(kind: Any) -> None:
    is_discrete = kind in (PQN, DQN, QRDQN)
    numbers = kind.default_config(untuned("CartPole-v1" if is_discrete else "Pendulum-v1"))
    assert (numbers.normalize_observations, numbers.normalize_rewards) == (True, True)
    if is_discrete:
        symbols = kind.default_config(untuned("FrozenLake-v1"))
        assert (symbols.normalize_observations, symbols.normalize_rewards) == (False, True)


def test_defaults_of_a_subclass_stay() -> None:
    @dataclasses.dataclass(frozen=True)
    class Config(PPOConfig):
        learning_rate: float = 7e-4
        more: int = 3

    class Agent(PPO):
        pass

    Agent.Config = Config
    for env, base in ((untuned("CartPole-v1"), PPO), (find("CartPole-v1"), PPO)):
        own, usual = Agent.default_config(env), base.default_config(env)
        assert (own.learning_rate, own.more) == (7e-4, 3)
        assert own.num_envs == usual.num_envs
        assert own.normalize_observations == usual.normalize_observations


def test_settings_of_the_zoo_for_cartpole_make_one_minibatch() -> None:
    assert ZOO_CARTPOLE.num_envs * ZOO_CARTPOLE.num_steps == ZOO_CARTPOLE.minibatch_size


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: QRDQN.Config(num_quantiles=0), ValueError, "num_quantiles=0: expected at least 1"),
        (lambda: QRDQN.Config(num_quantiles=2.5), TypeError, "num_quantiles=2.5: expected an int"),
        (lambda: TQC.Config(num_critics=0), ValueError, "num_critics=0: expected at least 1"),
        (lambda: TQC.Config(dropped=-1), ValueError, "dropped=-1: expected at least 0"),
        (
            lambda: TQC.Config(num_quantiles=5, dropped=5),
            ValueError,
            "dropped=5: expected fewer than num_quantiles=5",
        ),
    ],
)
def test_quantiles_that_there_cannot_be_are_refused(make: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_quantiles_are_those_that_an_agent_was_made_with() -> None:
    agent = QRDQN("CartPole-v1", num_envs=2, num_quantiles=5)
    with pytest.raises(
        AttributeError, match="config has num_quantiles=6: the agent is made with 5"
    ):
        agent.config = agent.config.replace({"num_quantiles": 6})
