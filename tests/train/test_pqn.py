"""PQN: its equations, that it learns, goes on bit for bit, and keeps what it learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu import nn
from rlcpu.cli import main
from rlcpu.train import DQN, PQN
from rlcpu.train.pqn import squared_error
from tests.train import naive
from tests.train.off_policy_cases import numeric, seen
from tests.train.test_off_policy import everything

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 16,
    "num_epochs": 2,
    "minibatch_size": 24,
    "exploration_steps": 500,
    "hidden": (32, 16),
}


def test_loss_and_its_slope() -> None:
    loss, slopes = nn.slopes(squared_error, 0.9, 0.3)
    assert loss == pytest.approx(0.36)
    np.testing.assert_allclose(slopes, numeric(lambda x: squared_error(*x), [0.9, 0.3]), atol=1e-4)


def largest_values(agent: PQN, observations: Any) -> Any:
    network = agent.policy.network
    rows = seen(agent, np.asarray(observations, np.float64))
    parameters = network.parameters.astype(np.float64)
    return naive.run_network(network.sizes, parameters, "relu", rows, True).max(axis=1)


def test_returns_are_those_of_the_paper() -> None:
    env = rlcpu.make_vec("CartPole-v1", 4, max_episode_steps=20)
    agent = PQN(env, seed=1, **{**SMALL, "num_steps": 60})
    agent.learn(240)
    rollout, config = agent._rollout, agent.config
    assert rollout.terminated.any()
    assert (rollout.truncated & ~rollout.terminated).any()
    columns = rollout.transitions()
    following = largest_values(agent, columns["next_observation"]).reshape(60, 4)
    expected, after = np.zeros((60, 4)), following[-1]
    for t in reversed(range(60)):
        ended = rollout.terminated[t] | rollout.truncated[t]
        mixed = (1 - config.lambda_) * following[t] + config.lambda_ * after
        mixed = np.where(ended, following[t], mixed)
        expected[t] = rollout.rewards[t] + config.gamma * np.where(rollout.terminated[t], 0, mixed)
        after = expected[t]
    np.testing.assert_allclose(agent._targets(rollout), expected, rtol=1e-4, atol=1e-4)


def test_a_loaded_agent_goes_on_bit_for_bit(tmp_path: Path) -> None:
    agent = PQN("CartPole-v1", seed=3, **SMALL)
    agent.learn(640)
    agent.save(tmp_path / "agent.npz")
    loaded = PQN.load(tmp_path / "agent.npz")
    assert everything(loaded) == everything(agent)
    assert (loaded.config, loaded.steps, loaded.returns) == (
        agent.config,
        agent.steps,
        agent.returns,
    )
    agent.learn(640), loaded.learn(640)
    assert everything(loaded) == everything(agent)
    np.testing.assert_array_equal(agent.evaluate(5), loaded.evaluate(5))
    with pytest.raises(ValueError, match="rlcpu PQN 1"):
        DQN.load(tmp_path / "agent.npz")


def test_the_result_is_a_function_of_the_seed() -> None:
    def run(seed: int, threads: int) -> dict[str, bytes]:
        agent = PQN("CartPole-v1", seed=seed, num_threads=threads, **SMALL)
        agent.learn(320)
        return everything(agent)

    one = run(5, 1)
    assert run(5, 2) == one
    assert run(6, 1) != one


def test_greedy_actions_in_kernels_are_those_of_predict() -> None:
    agent = PQN("Acrobot-v1", seed=0, **SMALL)
    agent.learn(128)
    agent.policy.deterministic = True
    rollout = rlcpu.collect(agent.env, agent.policy, 8)
    for step in range(8):
        expected = agent.predict(rollout.observations[step])
        np.testing.assert_array_equal(rollout.actions[step], expected)
    assert set(agent.predict(rollout.observations[0], deterministic=False)) <= {0, 1, 2}


def test_an_update_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = PQN("CartPole-v1", seed=0, **SMALL)
    agent.learn(64)
    before = {name: array.copy() for name, array in agent.learner.state().items()}
    real = PQN._targets
    monkeypatch.setattr(PQN, "_targets", lambda self, rollout: real(self, rollout) * np.nan)
    with pytest.raises(FloatingPointError, match="NaN or infinite"):
        agent.learn(64)
    for name, array in agent.learner.state().items():
        np.testing.assert_array_equal(array, before[name])
    monkeypatch.undo()
    assert agent.learn(64).stopped == "steps"


def test_rates_and_exploration_fall() -> None:
    agent = PQN("CartPole-v1", seed=0, **SMALL)
    assert agent.policy.params[0] == 1.0
    agent.learn(640)
    assert agent.policy.params[0] == pytest.approx(agent.config.exploration_final)
    assert agent._remaining == pytest.approx(0.1)


def test_learns_cartpole_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "agent.npz"
    words = "train CartPole-v1 --algo pqn --steps 40000 --set num_envs=16 --set num_steps=32"
    words += " --set exploration_steps=10000 --set learning_rate=2e-3 --set lambda_=0.9"
    assert main([*words.split(), "--save", str(file)]) in (0, 1)  # 1: not solved
    assert PQN.load(file).evaluate(50).mean() > 55.0  # 22 at random


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Pendulum-v1 has action_space=Box.*expected Discrete"):
        PQN("Pendulum-v1")
    with pytest.raises(TypeError, match="PQN learns from its rollouts, without a buffer"):
        PQN("CartPole-v1", buffer=3)
    with pytest.raises(TypeError, match="learning_starts"):
        PQN("CartPole-v1", learning_starts=3)
    with pytest.raises(ValueError, match="expected one hidden layer"):
        PQN("CartPole-v1", hidden=())
