"""Networks of any layers act as they learn: in rollouts, in predictions, and in a file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu import nn
from rlcpu.kernels.compiler import announce
from rlcpu.policies import NetworkPolicy
from rlcpu.train import DQN, PPO, SAC
from tests.envs.masked import COUNTER, TIC_TAC_TOE
from tests.envs.samples import LEVERS


def layers(outputs: int, kind: str = "norm") -> Any:
    """Layers that are no multilayer perceptron."""
    if kind == "embedding":
        return nn.Embedding(16, choices=3) >> nn.Tanh() >> nn.Dense(outputs)
    hidden = nn.Dense(24) >> nn.LayerNorm() >> nn.Relu()
    return hidden >> nn.Residual(nn.Dense(24) >> nn.Tanh()) >> nn.Dense(outputs)


class NormedPPO(PPO):
    def networks(self, seed: int) -> dict[str, Any]:
        size, actions = self.policy.num_inputs, self.policy.num_outputs
        policy = nn.Network(size, layers(actions), seed=seed % 1000)
        return {"policy": policy, "value": nn.Network(size, layers(1), seed=1)}


class NormedDQN(DQN):
    def networks(self, seed: int) -> dict[str, Any]:
        return {"online": nn.Network(4, layers(2), seed=seed % 1000)}


class NormedSAC(SAC):
    def networks(self, seed: int) -> dict[str, Any]:
        return {**super().networks(seed), "actor": nn.Network(3, layers(2), seed=seed % 1000)}


class SeveralOutputsDQN(DQN):
    """Acts by the first output, and has another one, which its algorithm may read."""

    def networks(self, seed: int) -> dict[str, Any]:
        hidden = nn.Dense(24) >> nn.Relu()
        graphs = {"values": hidden >> nn.Dense(2), "others": hidden >> nn.Dense(5)}
        return {"online": nn.Network(4, graphs, seed=seed % 1000)}

    def updates(self) -> list[nn.Update]:
        return [nn.Update(several_outputs, ("online",))]


def several_outputs(batch: Any, nets: Any, settings: Any) -> Any:
    after, now = nets.target(batch.next_observation), nets.online(batch.observation)
    target = batch.reward + batch.discount * nn.hold(nn.max(after.values))
    error = nn.take(now.values, batch.action) - target
    others = nn.sum(now.others * now.others)
    loss = nn.mean(error * error + others)
    return loss, {"loss": loss, "q_value": target, "error": error}


def log_probs(policy: Any, rollout: Any) -> np.ndarray:
    """Log-probabilities of a rollout's actions, from the outputs of the policy."""
    outputs = policy.outputs(rollout.inputs.reshape(rollout.rewards.size, -1))
    if policy.log_std.size:
        z = (rollout.actions.reshape(outputs.shape) - outputs) / np.exp(policy.log_std)
        return (-0.5 * z**2 - policy.log_std - 0.5 * np.log(2 * np.pi)).sum(axis=1)
    outputs = outputs - np.log(np.exp(outputs).sum(axis=1, keepdims=True))
    return np.take_along_axis(outputs, rollout.actions.reshape(-1, 1), axis=1)[:, 0]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
@pytest.mark.parametrize("kind", ["norm", "embedding"])
@pytest.mark.parametrize("num_envs", [1, 70])
def test_a_rollout_is_what_the_network_says(env_id: str, kind: str, num_envs: int) -> None:
    """Of one environment, and of a block and six more; values of a network of their own."""
    env = rlcpu.make_vec(env_id, num_envs=num_envs)
    env.reset(seed=0)
    size, actions = env.dynamics.observation_size, env.dynamics.num_actions or 1
    policy = NetworkPolicy(
        env.single_observation_space,
        env.single_action_space,
        nn.Network(size, layers(actions, kind)),
        nn.Network(size, layers(1), seed=1),
    )
    policy.observation_scale[:], policy.observation_limit = 0.5, 0.3
    rollout = rlcpu.collect(env, policy, 5)
    np.testing.assert_allclose(
        rollout.log_probs.ravel(), log_probs(policy, rollout), rtol=1e-4, atol=1e-5
    )
    inputs = rollout.inputs.reshape(rollout.rewards.size, -1)
    np.testing.assert_array_equal(rollout.values.ravel(), policy.evaluate(inputs))
    learnt = policy.networks()["policy"].outputs(np.clip(inputs * 0.5, -0.3, 0.3))
    np.testing.assert_array_equal(policy.outputs(inputs), learnt)
    assert rlcpu.simulate(env, policy, 5).num_steps == 5 * num_envs


def choice_log_probs(policy: Any, rollout: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """Log-probabilities of actions of several choices, or of allowed ones, from the outputs."""
    outputs = policy.outputs(rollout.inputs.reshape(rollout.rewards.size, -1)).astype(np.float64)
    if rollout.action_masks is not None:
        outputs = np.where(rollout.action_masks.reshape(outputs.shape), outputs, -np.inf)
    total, actions = np.zeros(len(outputs)), rollout.actions.reshape(len(outputs), -1)
    for k, part in enumerate(np.split(outputs, np.cumsum(sizes)[:-1], axis=1)):
        total += np.take_along_axis(part, actions[:, k : k + 1], axis=1)[:, 0]
        total -= np.log(np.exp(part).sum(axis=1))
    return total


@pytest.mark.parametrize(
    ("dynamics", "sizes"),
    [(LEVERS, (3, 2, 4)), (TIC_TAC_TOE, (9,)), (COUNTER, (33,))],
    ids=["several choices", "boards and masks", "masks"],
)
def test_heads_masks_and_boards_are_those_of_any_policy(dynamics: Any, sizes: Any) -> None:
    """Likely actions are the largest outputs that are allowed; none is taken that is not."""
    env = rlcpu.make_vec(dynamics, num_envs=70)
    env.reset(seed=0)
    size, spaces = (
        env.dynamics.observation_size,
        (
            env.single_observation_space,
            env.single_action_space,
        ),
    )
    policy = NetworkPolicy(*spaces, nn.Network(size, layers(sum(sizes)), seed=2))
    rollout = rlcpu.collect(env, policy, 4)
    expected = choice_log_probs(policy, rollout, sizes)
    np.testing.assert_allclose(rollout.log_probs.ravel(), expected, rtol=1e-4, atol=1e-5)
    assert np.isfinite(expected).all()
    policy.deterministic = True
    rollout = rlcpu.collect(env, policy, 4)
    outputs = policy.outputs(rollout.inputs.reshape(rollout.rewards.size, -1))
    if rollout.action_masks is not None:
        outputs = np.where(rollout.action_masks.reshape(outputs.shape), outputs, -np.inf)
    likely = [part.argmax(axis=1) for part in np.split(outputs, np.cumsum(sizes)[:-1], axis=1)]
    actions = rollout.actions.reshape(rollout.rewards.size, -1)
    np.testing.assert_array_equal(actions, np.stack(likely, axis=1))


@pytest.mark.parallel
def test_threads_share_a_network() -> None:
    """A rollout does not depend on their number."""
    rollouts = []
    for num_threads in (1, 2):
        env = rlcpu.make_vec("CartPole-v1", num_envs=2000, num_threads=num_threads)
        env.reset(seed=0)
        spaces = env.single_observation_space, env.single_action_space
        network, value = nn.Network(4, layers(2), seed=1), nn.Network(4, layers(1), seed=2)
        rollouts.append(rlcpu.collect(env, NetworkPolicy(*spaces, network, value), 20))
    for name in ("observations", "actions", "log_probs", "values"):
        np.testing.assert_array_equal(*(getattr(rollout, name) for rollout in rollouts))


def test_a_rollout_follows_parameters_that_are_written_in_place() -> None:
    env = rlcpu.make_vec("CartPole-v1", num_envs=70)
    env.reset(seed=0)
    spaces = env.single_observation_space, env.single_action_space
    policy = NetworkPolicy(*spaces, nn.Network(4, layers(3)), "shared")
    rollout = rlcpu.collect(env, policy, 3)
    other = copy.deepcopy(policy)
    policy.parameters *= 2.0
    rollout = rlcpu.collect(env, policy, 3, out=rollout)
    inputs = rollout.inputs.reshape(rollout.rewards.size, -1)
    np.testing.assert_array_equal(rollout.values.ravel(), policy.evaluate(inputs))
    assert not np.array_equal(rollout.values.ravel(), other.evaluate(inputs))


def test_a_new_network_of_known_layers_compiles_nothing() -> None:
    env = rlcpu.make_vec("CartPole-v1", num_envs=70)
    env.reset(seed=0)
    spaces = env.single_observation_space, env.single_action_space
    rlcpu.collect(env, NetworkPolicy(*spaces, nn.Network(4, layers(2))), 3)
    before = announce.seconds()
    other = nn.Dense(7) >> nn.LayerNorm() >> nn.Tanh() >> nn.Dense(2)
    rlcpu.collect(env, NetworkPolicy(*spaces, nn.Network(4, other)), 3)
    rlcpu.collect(env, rlcpu.policies.MLP(*spaces, (5,), value=None), 3)
    assert announce.seconds() == before


@pytest.mark.parametrize(
    ("agent_class", "env_id", "steps", "settings", "least"),
    [
        (NormedPPO, "CartPole-v1", 40_000, {}, 100.0),
        (NormedDQN, "CartPole-v1", 3_000, {}, 9.0),
        (NormedSAC, "Pendulum-v1", 4_000, {"hidden": (64, 64)}, -1000.0),
    ],
)
def test_an_agent_learns_acts_and_is_loaded(
    tmp_path: Path, agent_class: Any, env_id: str, steps: int, settings: Any, least: float
) -> None:
    agent = agent_class(env_id, seed=0, **settings)
    before = agent.policy.outputs(np.ones(agent.policy.observation_shape, np.float32)).copy()
    agent.learn(steps)
    assert agent.evaluate(20).mean() > least
    agent.save(tmp_path / "agent")
    loaded = agent_class.load(tmp_path / "agent")
    inputs = np.ones(agent.policy.observation_shape, np.float32)
    assert not np.array_equal(agent.policy.outputs(inputs), before)
    np.testing.assert_array_equal(loaded.policy.outputs(inputs), agent.policy.outputs(inputs))
    np.testing.assert_array_equal(loaded.predict(inputs), agent.predict(inputs))
    np.testing.assert_array_equal(loaded.evaluate(5), agent.evaluate(5))


@pytest.mark.parametrize(
    ("network", "value", "match"),
    [
        (nn.Network(3, layers(2)), None, "expected one input of 4 and 2 outputs"),
        (nn.Network(4, layers(2)), "shared", "expected one input of 4 and 3 outputs"),
        (nn.Network(4, layers(2)), nn.Network(4, layers(2)), "value is a network"),
        (nn.Network(4, layers(2)), "separate", "expected a network"),
    ],
)
def test_networks_that_do_not_fit_are_refused(network: Any, value: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        NetworkPolicy(Box(-1.0, 1.0, (4,)), Discrete(2), network, value)


def test_an_agent_acts_by_the_first_output_of_several(tmp_path: Path) -> None:
    agent = SeveralOutputsDQN("CartPole-v1", seed=0, num_envs=4, batch_size=32, learning_starts=64)
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    inputs = agent.policy.scaling.apply(rows)
    before = np.abs(agent.policy.network.outputs(inputs)["others"]).mean()
    agent.learn(600)
    agent.save(tmp_path / "agent.npz")
    loaded = SeveralOutputsDQN.load(tmp_path / "agent.npz")
    outputs = agent.policy.network.outputs(inputs)
    assert (agent.predict(rows) == outputs["values"].argmax(axis=1)).all()
    assert np.abs(outputs["others"]).mean() < 0.5 * before, "it learns all outputs"
    np.testing.assert_array_equal(loaded.predict(rows), agent.predict(rows))
    rollout = rlcpu.collect(agent.env, agent.policy, 10, deterministic=True)
    assert (rollout.actions.ravel() == agent.predict(rollout.inputs.reshape(-1, 4))).all()

    class Swapped(SeveralOutputsDQN):
        def networks(self, seed: int) -> dict[str, Any]:
            (network,) = super().networks(seed).values()
            graphs = {"others": nn.Dense(5), "values": nn.Dense(2)}
            return {"online": nn.Network(network.input_sizes["input"], graphs)}

    with pytest.raises(ValueError, match="one input of 4 and 2 outputs"):
        Swapped("CartPole-v1")
