"""DQN: its equations, its update beside NumPy's, and that it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu.train import DQN
from rlcpu.train.dqn import Coefficients, Sample, bootstrap, huber
from tests.envs.masked import TIC_TAC_TOE
from tests.train.off_policy_cases import NaiveAdam, flat_gradient, networks_of, numeric, seen

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
    sample = Sample(target=0.3, weight=0.6)
    loss, (slope,), (error,) = huber((value,), sample, ())
    assert error == pytest.approx(value - 0.3)
    size = abs(error)
    assert loss == pytest.approx(0.6 * (0.5 * size**2 if size < 1 else size - 0.5))
    expected = numeric(lambda x: huber((x[0],), sample, ())[0], [value])
    assert slope == pytest.approx(expected[0], abs=1e-4)


def test_nothing_follows_a_terminated_transition() -> None:
    assert bootstrap(1.0, 0.9, False, 10.0) == 10.0
    assert bootstrap(1.0, 0.9, True, np.inf) == 1.0


def action_values(agent: DQN, network: Any, inputs: Any) -> Any:
    outputs, count = network.outputs(inputs), agent.env.dynamics.num_actions
    if not agent.config.dueling:
        return outputs
    advantages = outputs[:, :count] - outputs[:, :count].mean(axis=1, keepdims=True)
    return advantages + outputs[:, count:]


def naive_gradient(agent: DQN, networks: Any, batch: Any, size: int) -> tuple[Any, Any]:
    """Gradient of the loss by the parameters, and the temporal differences."""
    (online, target), double = networks, agent.config.double
    inputs, following = seen(agent, batch.observations), seen(agent, batch.next_observations)
    valued = action_values(agent, target, following)
    chosen = action_values(agent, online, following) if double else valued
    if batch.allowed.size:
        chosen = np.where(batch.allowed, chosen, -np.inf)
    rows = np.arange(size)
    value = valued[rows, chosen.argmax(axis=1)]
    targets = batch.rewards + batch.discounts * np.where(batch.terminated, 0.0, value)
    errors = action_values(agent, online, inputs)[rows, batch.actions] - targets
    slope = batch.weights * np.clip(errors, -1.0, 1.0) / size
    slopes = np.zeros((size, int(online.sizes[-1])))
    if agent.config.dueling:
        slopes[:, :-1], slopes[:, -1] = -slope[:, None] / (slopes.shape[1] - 1), slope
    slopes[rows, batch.actions] += slope
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
    for array in (learner.learnt.first, learner.learnt.second, learner.counters):
        array[:] = 0
    rng, adam = np.random.default_rng(2), NaiveAdam(networks[0].parameters.size)
    batch = agent._transitions(agent.buffer.sample(size * updates))
    batch = batch._replace(weights=rng.uniform(0.5, 1.0, size * updates).astype(np.float32))
    coefficients = Coefficients(agent.env.dynamics.num_actions, dueling, double)
    learner.update(
        batch, size, coefficients, learning_rates=(1e-3,), period=4, tau=0.5, max_norm=0.05
    )
    for update in range(1, updates + 1):
        rows = slice((update - 1) * size, update * size)
        shaped = {
            name: getattr(batch, name).reshape(size * updates, -1)[rows]
            for name in ("observations", "next_observations", "allowed")
            if getattr(batch, name).size
        }
        names = ("actions", "rewards", "discounts", "weights", "terminated")
        shaped |= {name: getattr(batch, name)[rows] for name in names}
        gradient, errors = naive_gradient(agent, networks, batch._replace(**shaped), size)
        np.testing.assert_allclose(batch.errors[rows], abs(errors), atol=2e-3)
        norm = np.linalg.norm(gradient)
        adam.step(networks[0].parameters, gradient * min(1.0, 0.05 / (norm + 1e-6)), 1e-3)
        if update % 4 == 0:
            networks[1].parameters += 0.5 * (networks[0].parameters - networks[1].parameters)
    np.testing.assert_allclose(flat_gradient(learner, 0), gradient, atol=1e-4)
    for ours, expected in zip(networks_of(learner), networks, strict=True):
        np.testing.assert_allclose(ours.parameters, expected.parameters, atol=3e-4)


def test_environments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Pendulum-v1 has action_space=Box.*expected Discrete"):
        DQN("Pendulum-v1")
