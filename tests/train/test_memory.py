"""PPO with memory: it learns what needs one, goes on from files, and refuses what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu import nn
from rlcpu.train import DQN, PPO
from tests.envs.masked import TIC_TAC_TOE
from tests.envs.recall import RECALL
from tests.train.memory_cases import T_MAZE, cartpole_without_velocities

SMALL: dict[str, Any] = {
    "num_envs": 12,
    "num_steps": 7,
    "minibatch_size": 28,
    "num_epochs": 2,
    "hidden": (16, 20),
}
#: rl-baselines3-zoo's settings of CartPoleNoVel-v1.
ZOO: dict[str, Any] = {
    "num_envs": 8,
    "num_steps": 32,
    "minibatch_size": 256,
    "num_epochs": 20,
    "gamma": 0.98,
    "lambda_": 0.8,
    "learning_rate": 1e-3,
    "learning_rate_schedule": "linear",
    "clip_schedule": "linear",
}


def own_layers(space: Any) -> nn.Graph:
    return nn.Gru(17) >> nn.Dense(16) >> nn.Relu()


def arrays_of(agent: PPO) -> dict[str, np.ndarray]:
    parts = {**agent.policy.state(), **agent.updater.state(), **agent.env.engine.state()}
    return {name: array.copy() for name, array in parts.items()}


def assert_same(agent: PPO, other: PPO) -> None:
    ours, theirs = arrays_of(agent), arrays_of(other)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(theirs[name], array, err_msg=name)


def test_learns_cartpole_without_velocities() -> None:
    """Without memory it reaches about 60."""
    agent = PPO(cartpole_without_velocities(), seed=0, network="mingru", **ZOO)
    agent.learn(100_000)
    assert agent.evaluate(100, seed=1).mean() >= 475.0


@pytest.mark.parametrize("value", ["separate", "shared"])
def test_a_loaded_agent_goes_on_bit_for_bit(tmp_path: Path, value: str) -> None:
    agent = PPO(RECALL, seed=0, network="mingru", value=value, **SMALL)
    agent.learn(300)
    agent.save(tmp_path / "agent")
    loaded = PPO.load(tmp_path / "agent", env=rlcpu.VectorEnv(RECALL, 12))
    assert_same(agent, loaded)
    assert agent.env.engine.carried.any()
    for each in (agent, loaded):
        each.learn(300)
    assert_same(agent, loaded)


def test_an_exception_leaves_the_last_whole_update() -> None:
    agent, other = (PPO(RECALL, seed=0, network=own_layers, **SMALL) for _ in range(2))

    def stop(progress: Any) -> None:
        if progress.steps > 200:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        agent.learn(1000, callback=stop)
    other.learn(agent.steps)
    agent.learn(100)
    other.learn(100)
    assert_same(agent, other)


@pytest.mark.parallel
def test_a_run_does_not_depend_on_threads() -> None:
    one, two = (
        PPO(RECALL, seed=0, network="mingru", num_threads=n, **{**SMALL, "num_envs": 200})
        for n in (1, 2)
    )
    for agent in (one, two):
        agent.config = agent.config.replace({"minibatch_size": 700})
        agent.learn(6000)
    assert_same(one, two)


def test_masks_hold_with_memory() -> None:
    """No forbidden action is taken, and each has the probability that it was learnt with."""
    agent = PPO(TIC_TAC_TOE, seed=0, network="mingru", **SMALL)
    agent.learn(2000)
    rollout = rlcpu.collect(agent.env, agent.policy, 9)
    masks = rollout.action_masks
    assert np.take_along_axis(masks, rollout.actions[..., None], -1).all()
    network, size = agent.policy.networks()["policy"], agent.policy.state_sizes["policy"]
    outputs, _ = network.outputs(rollout.inputs, rollout.states[:, :size], rollout.starts)
    outputs = np.where(masks, outputs, -np.inf)
    log_probs = outputs - np.log(np.exp(outputs).sum(axis=-1, keepdims=True))
    taken = np.take_along_axis(log_probs, rollout.actions[..., None], -1)[..., 0]
    np.testing.assert_allclose(rollout.log_probs, taken, atol=1e-5)


def test_the_first_update_repeats_what_was_said() -> None:
    """The first gradient step sees the policy that collected: nothing diverges, in any sequence."""
    settings = {**SMALL, "num_epochs": 1, "minibatch_size": 12 * 7}
    agent = PPO(RECALL, seed=0, network=own_layers, **settings)
    agent.learn(12 * 7)
    for _ in range(3):
        agent.learn(12 * 7)
        assert abs(agent.history.losses.kl) < 1e-6
        assert agent.history.losses.clip_fraction == 0.0


def test_predictions_take_and_return_what_is_remembered() -> None:
    agent = PPO(RECALL, seed=0, network=own_layers, **SMALL)
    rows = np.random.default_rng(0).random((5, 3, 1)).astype(np.float32)
    state = agent.initial_state(3)
    for row in rows:
        actions, state = agent.predict(row, state=state)
        assert actions.shape == (3,)
    one = agent.initial_state(1)[0]
    for row in rows:
        action, one = agent.predict(row[1], state=one)
    assert np.ndim(action) == 0
    np.testing.assert_array_equal(one, state[1])
    _, fresh = agent.predict(rows[0], state=state, starts=np.ones(3, bool))
    _, first = agent.predict(rows[0], state=agent.initial_state(3))
    np.testing.assert_array_equal(fresh, first)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'expected "mlp", .*"mingru", "gru", "ls'):
        PPO(RECALL, network="rnn")
    with pytest.raises(TypeError, match="network returned 3: expected layers"):
        PPO(RECALL, network=lambda space: 3)
    agent = PPO(RECALL, seed=0, network=own_layers, **SMALL)
    row = np.zeros((2, 1), np.float32)
    with pytest.raises(
        ValueError, match=r"has memory, expected an array \(2, 32\), such as policy"
    ):
        agent.predict(row)
    with pytest.raises(ValueError, match=r"state has shape \(3, 32\): expected \(2, 32\)"):
        agent.predict(row, state=agent.initial_state(3))
    plain = PPO(RECALL, seed=0, hidden=(8,), num_envs=12)
    with pytest.raises(ValueError, match="state, starts: PPO has no memory"):
        plain.predict(row, state=np.zeros((2, 4)))
    path, env = tmp_path / "agent", rlcpu.VectorEnv(RECALL, 12)
    agent.save(path)
    with pytest.raises(
        ValueError, match="its network was a function, which no file holds: give ne"
    ):
        PPO.load(path, env=env)
    with pytest.raises(ValueError, match=r"does not fit: policy_parameters is float32"):
        PPO.load(path, env=env, network=lambda space: nn.Gru(18) >> nn.Dense(16) >> nn.Relu())
    assert_same(PPO.load(path, env=env, network=own_layers), agent)
    with pytest.raises(AttributeError, match="config has network='gru': the agent is made with"):
        agent.config = agent.config.replace({"network": "gru"})


def test_agents_with_replay_have_no_memory() -> None:
    class Remembering(DQN):
        def networks(self, seed: int) -> dict[str, Any]:
            return {"online": nn.Network(1, nn.MinGru(16) >> nn.Dense(2))}

    with pytest.raises(ValueError, match="the policy's network has memory: expected one without"):
        Remembering(RECALL)


@pytest.mark.parametrize("network", ["mingru", "gru", "lstm"])
def test_finds_the_way_in_a_t_maze(network: str) -> None:
    """The best return is 4; without memory it is 2, by turning to one side."""
    settings = {"num_envs": 64, "num_steps": 32, "minibatch_size": 1024, "num_epochs": 4}
    agent = PPO(T_MAZE, seed=0, network=network, learning_rate=2e-3, **settings)
    agent.learn(300_000)
    assert agent.evaluate(100, seed=1).mean() == pytest.approx(4.0)
