"""DQN: its equations, its update beside NumPy's, and that it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu import nn
from rlcpu.train import DQN
from rlcpu.train.dqn import bootstrap, huber
from tests.envs.masked import TIC_TAC_TOE
from tests.train.off_policy_cases import (
    NaiveAdam,
    gradient_of,
    layers_of,
    networks_of,
    numeric,
    plain,
    restart,
    seen,
)

#: One kernel serves all: it knows neither the environment nor the sizes.
SMALL: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 16,
    "num_updates": 4,
    "learning_starts": 64,
    "capacity": 1000,
    "batch_size": 48,
    "hidden": (32, 16),
}


@pytest.mark.parametrize("value", [-3.0, -0.4, 0.0, 0.7, 2.5])
def test_loss_and_its_slope(value: float) -> None:
    loss, (slope, by_target) = nn.slopes(huber, value, 0.3)
    size = abs(value - 0.3)
    assert loss == pytest.approx(0.5 * size**2 if size < 1 else size - 0.5)
    expected = numeric(lambda x: huber(*x), [value, 0.3])
    np.testing.assert_allclose((slope, by_target), expected, atol=1e-4)


def test_nothing_follows_a_terminated_transition() -> None:
    assert bootstrap(1.0, 0.9, False, 10.0) == 10.0
    assert bootstrap(1.0, 0.9, True, np.inf) == 1.0


def naive_gradient(agent: DQN, networks: Any, batch: Any) -> tuple[Any, Any]:
    """Gradient of the loss by the parameters, and the temporal differences."""
    (online, target), double = networks, agent.config.double
    inputs, following = seen(agent, batch["observation"]), seen(agent, batch["next_observation"])
    valued = target.outputs(following)
    chosen = online.outputs(following) if double else valued
    if "next_action_mask" in batch:
        chosen = np.where(batch["next_action_mask"] != 0, chosen, -np.inf)
    size = len(inputs)
    rows, taken = np.arange(size), batch["action"].astype(np.int64)
    value = valued[rows, chosen.argmax(axis=1)]
    targets = batch["reward"] + batch["discount"] * np.where(batch["terminated"], 0.0, value)
    outputs = online.outputs(inputs)
    errors = outputs[rows, taken] - targets
    slope = batch["weight"] * np.clip(errors, -1.0, 1.0) / size
    slopes = np.zeros_like(outputs)
    slopes[rows, taken] = slope
    return online.gradients(inputs, slopes)[0], errors


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("env", "double", "dueling"),
    [
        *(("Acrobot-v1", False, False), ("Acrobot-v1", True, False), ("Acrobot-v1", True, True)),
        *((TIC_TAC_TOE, False, False), (TIC_TAC_TOE, True, True)),
    ],
)
def test_updates_equal_numpys(env: Any, double: bool, dueling: bool, threads: int) -> None:
    agent = DQN(env, seed=1, double=double, dueling=dueling, num_threads=threads, **SMALL)
    agent.learn(128)
    learner, size, updates = agent.learner, 150, 6
    networks = networks_of(learner)
    networks[1].parameters += np.random.default_rng(0).normal(0, 0.05, networks[1].parameters.size)
    learner.networks[1].parameters[:] = networks[1].parameters
    learner.read_networks()
    restart(learner)
    rng, adam = np.random.default_rng(2), NaiveAdam(networks[0].parameters.size)
    batch = plain(agent._columns(agent.buffer.sample(size * updates)))
    batch["weight"] = rng.uniform(0.5, 1.0, size * updates).astype(np.float32)
    options = {"normalise": agent._normalisation, "minibatch_size": size}
    parts = [
        {name: array[update * size : (update + 1) * size] for name, array in batch.items()}
        for update in range(updates)
    ]
    found = gradient_of(learner, parts[0], normalise=agent._normalisation)
    np.testing.assert_allclose(found, naive_gradient(agent, networks, parts[0])[0], atol=1e-5)
    learner.update(
        batch, learning_rate=1e-3, target_period=4, tau=0.5, max_gradient_norm=0.05, **options
    )
    for update, part in enumerate(parts, 1):
        gradient, errors = naive_gradient(agent, networks, part)
        rows = slice((update - 1) * size, update * size)
        np.testing.assert_allclose(learner.per_sample["error"][rows], errors, atol=2e-3)
        norm = np.linalg.norm(gradient)
        adam.step(networks[0].parameters, gradient * min(1.0, 0.05 / (norm + 1e-6)), 1e-3)
        if update % 4 == 0:
            networks[1].parameters += 0.5 * (networks[0].parameters - networks[1].parameters)
    for ours, expected in zip(networks_of(learner), networks, strict=True):
        np.testing.assert_allclose(ours.parameters, expected.parameters, atol=3e-4)
    last = gradient_of(learner, parts[0], normalise=agent._normalisation)
    expected = naive_gradient(agent, networks_of(learner), parts[0])[0]
    np.testing.assert_allclose(last, expected, atol=1e-5)


def test_rewards_are_scaled_for_the_values_alone() -> None:
    agent = DQN("Acrobot-v1", seed=1, reward_scale=0.25, **SMALL)
    agent.learn(128)
    batch = agent.buffer.sample(100)
    np.testing.assert_allclose(agent._columns(batch)["reward"], 0.25 * batch["reward"])
    assert set(batch["reward"].tolist()) <= {-1.0, 0.0}


@pytest.mark.parametrize("is_loaded", [False, True])
def test_the_learning_rate_falls_where_it_is_to(is_loaded: bool) -> None:
    """Also where a kernel makes the rounds, which is loaded for long runs and stays."""
    rates = {}
    if is_loaded:
        DQN("Acrobot-v1", **SMALL).learn(70_000)
    for schedule in ("constant", "linear"):
        agent = DQN("Acrobot-v1", learning_rate=0.01, learning_rate_schedule=schedule, **SMALL)
        agent.learn(640)
        rates[schedule] = agent._options()["learning_rate"]
    assert rates == {"constant": 0.01, "linear": pytest.approx(0.001)}


def test_observations_are_scaled_unless_told_otherwise() -> None:
    bounds = np.array([1, 1, 1, 1, 4 * np.pi, 9 * np.pi])
    for scale, expected in ((True, 1 / bounds), (False, np.ones(6))):
        agent = DQN("Acrobot-v1", scale_observations=scale, **SMALL)
        agent.learn(128)
        np.testing.assert_allclose(agent.policy.observation_scale, expected, rtol=1e-6)
        assert not agent.policy.observation_mean.any()
        for name in ("observation", "next_observation"):
            mean, scaling, _ = agent._normalisation[name]
            assert not mean.any()
            np.testing.assert_allclose(scaling, expected, rtol=1e-6)


def test_the_update_is_stable_baselines3s() -> None:
    """From equal weights and minibatches, with its loss, clipping, target and Adam."""
    torch = pytest.importorskip("torch")
    stable = pytest.importorskip("stable_baselines3")
    samples = pytest.importorskip("stable_baselines3.common.type_aliases").ReplayBufferSamples
    settings = {**SMALL, "n_step": 1, "reward_scale": 1.0, "double": False}
    agent = DQN("CartPole-v1", seed=0, **settings)
    agent.policy.observation_mean[:], agent.policy.observation_scale[:] = 0.0, 1.0
    agent.learn(128)
    theirs = stable.DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100,
        gamma=0.99,
        max_grad_norm=0.5,
        policy_kwargs={"net_arch": list(SMALL["hidden"])},
        device="cpu",
    )
    theirs._setup_learn(1000)
    networks = networks_of(agent.learner)
    modules = (theirs.q_net, theirs.q_net_target)
    layers = [[x for x in m.q_net if isinstance(x, torch.nn.Linear)] for m in modules]
    for network, linear in zip(networks, layers, strict=True):
        for layer, arrays in zip(linear, layers_of(network), strict=True):
            layer.weight.data, layer.bias.data = torch.tensor(arrays[0].T), torch.tensor(arrays[1])
    restart(agent.learner)
    for _ in range(10):
        batch = agent.buffer.sample(64)
        report = agent.learner.update(
            agent._columns(batch), minibatch_size=64, learning_rate=2.3e-3, target_period=1000,
            max_gradient_norm=0.5, normalise=agent._normalisation,
        )  # fmt: skip
        names = ("observation", "action", "next_observation", "terminated", "reward")
        columns = [torch.tensor(np.array(batch[name])).reshape(64, -1) for name in names]
        columns[3] = columns[3].float()
        made = samples(*columns)
        theirs.replay_buffer.sample = lambda *args, made=made, **options: made
        theirs.train(1, 64)
        assert theirs.logger.name_to_value["train/loss"] == pytest.approx(report["loss"], rel=1e-3)
    final = networks_of(agent.learner)[0]
    for layer, arrays in zip(layers[0], layers_of(final), strict=True):
        np.testing.assert_allclose(layer.weight.detach().numpy().T, arrays[0], atol=2e-5)
        np.testing.assert_allclose(layer.bias.detach().numpy(), arrays[1], atol=2e-5)


def test_rare_ends_far_from_the_mean_are_learnt() -> None:
    """Where all steps cost 1 but those that end, values of those are seen among the others.

    Values of tens and an error's slope of at most 1 hid them: Acrobot was not learnt.
    """
    agent = DQN("Acrobot-v1", seed=0, num_threads=1)
    agent.learn(24_000)
    batch = agent.buffer.sample(4000)
    rows = batch["observation"]
    values = agent.policy.outputs(rows).max(axis=1)
    ends, scale = np.asarray(batch["terminated"]), agent.config.reward_scale
    assert values[ends].mean() > 0.5 * values[~ends].mean()
    assert values[ends].mean() > -50 * scale


def test_environments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Pendulum-v1 has action_space=Box.*expected Discrete"):
        DQN("Pendulum-v1")
