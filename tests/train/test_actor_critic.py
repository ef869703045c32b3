"""SAC, TD3 and DDPG: their equations, and their updates beside NumPy's."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from rlcpu import nn
from rlcpu.kernels.machine.random import mix, uniforms
from rlcpu.train import DDPG, SAC, TD3, sac, td3
from rlcpu.train.critics import least, size_of, soft_bootstrap
from rlcpu.train.sac import squashed_gaussian
from tests.train.off_policy_cases import (
    HalfFrozen,
    NaiveAdam,
    gradient_of,
    networks_of,
    numeric,
    plain,
    restart,
    seen,
)

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "num_updates": 4,
    "learning_starts": 64,
    "capacity": 500,
    "batch_size": 48,
    "hidden": (32, 16),
}


# ---------------------------------------------------------------- scalar functions


@pytest.mark.parametrize(("mean", "log_std"), [(0.3, -0.5), (-2.0, 0.7), (1.0, -3.0)])
def test_density_of_squashed_actions_integrates_to_one(mean: float, log_std: float) -> None:
    noise = np.linspace(-8.0, 8.0, 20_001)
    pairs = [squashed_gaussian(mean, log_std, z) for z in noise]
    actions, log_probs = np.array(pairs).T
    assert np.trapezoid(np.exp(log_probs), actions) == pytest.approx(1.0, abs=1e-4)
    assert (np.abs(actions) <= 1.0).all()


def test_log_density_is_finite_where_tanh_rounds_to_one() -> None:
    action, log_prob = squashed_gaussian(30.0, 0.0, 0.0)
    assert action == 1.0
    assert log_prob == pytest.approx(-0.5 * math.log(2 * math.pi) + 60.0 - math.log(4.0))


@pytest.mark.parametrize("at", [(0.3, -0.5), (-1.2, 0.7), (0.1, 3.0), (0.4, -25.0)])
def test_slopes_of_the_actors_are_derivatives(at: tuple[float, float]) -> None:
    noise = 0.8
    results, slopes = nn.slopes(sac.draw, *at, noise)
    assert results == sac.draw(*at, noise)
    for k, by in enumerate(slopes):
        expected = numeric(lambda x, k=k: sac.draw(x[0], x[1], noise)[k], at)
        np.testing.assert_allclose(by[:2], expected, atol=1e-6)
    action, (slope,) = nn.slopes(td3.squashed, at[0])
    assert action == math.tanh(at[0])
    np.testing.assert_allclose([slope], numeric(lambda x: td3.squashed(x[0]), at[:1]), atol=1e-6)


def test_values_to_learn() -> None:
    assert soft_bootstrap(1.0, 0.9, False, 2.0, -1.0, 0.5) == pytest.approx(1.0 + 0.9 * 2.5)
    assert soft_bootstrap(1.0, 0.9, True, np.inf, -1.0, 0.5) == 1.0
    assert nn.slopes(least, 2.0, -1.0) == (-1.0, (0.0, 1.0))
    assert nn.slopes(least, -2.0, -1.0) == (-2.0, (1.0, 0.0))
    assert size_of(-1.5) == 1.5


def test_target_actions_stay_within_noise_and_bounds() -> None:
    assert td3.smoothed(0.0, 1.0, 0.2, 0.5) == pytest.approx(0.2)
    assert td3.smoothed(0.0, 9.0, 0.2, 0.5) == 0.5
    assert td3.smoothed(0.0, -9.0, 0.2, 0.5) == -0.5
    assert td3.smoothed(5.0, 9.0, 0.2, 0.5) == 1.0
    assert td3.smoothed(0.7, 9.0, 0.0, 0.0) == td3.squashed(0.7)


# ---------------------------------------------------------------- whole updates


def noises(learner: Any, update: int, rows: Any, numbers: int, stream: int) -> Any:
    """Standard normal numbers (rows, numbers), as kernels draw them; critics 0, the actor 1."""
    out, draw = np.zeros((len(rows), numbers)), uniforms(2, 0, np.float32).py_func
    with np.errstate(over="ignore"):
        key = mix.py_func(learner.key[0], learner.key[1], np.uint32(update))
        for i, k in np.ndindex(*out.shape):
            counter = np.uint32((rows[i] * numbers + k) * 2 + stream)
            u, angle = map(float, draw(*mix.py_func(*key, counter)))
            out[i, k] = math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * (angle - 0.5))
    return out


class Naive:
    """What an agent's networks become, by the formulas."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.free = agent.policy.half > 0.0
        learner = agent.learner
        self.networks = dict(zip(learner.names, networks_of(learner), strict=True))
        self.critics = [name for name in learner.names if name.startswith("critic")]
        learnt = ["actor", *self.critics]
        self.adams = {name: NaiveAdam(self.networks[name].parameters.size) for name in learnt}
        self.temperature = NaiveAdam(1)
        self.log_alpha = np.array([math.log(0.3) if isinstance(agent, SAC) else -np.inf])

    @property
    def alpha(self) -> float:
        return float(np.exp(self.log_alpha[0]))

    def inputs(self, observations: Any, actions: Any) -> Any:
        return np.concatenate((seen(self.agent, observations), actions), axis=1)

    def values(self, kind: str, inputs: Any) -> Any:
        names = [name.replace("critic", kind) for name in self.critics]
        return np.stack([self.networks[name].outputs(inputs)[:, 0] for name in names])

    def act(self, outputs: Any, noise: Any, following: bool) -> tuple[Any, Any]:
        """Actions (n, numbers) and log-probabilities (n,) of an actor's outputs."""
        if not isinstance(self.agent, SAC):
            means = np.tanh(np.asarray(outputs, np.float64))
            if following:
                bound = self.agent.config.target_noise_clip
                shift = np.clip(self.agent.config.target_noise * noise, -bound, bound)
                means = np.clip(means + shift, -1.0, 1.0)
            return means * self.free, np.zeros(len(means))
        pairs, numbers = np.zeros((*noise.shape, 2)), noise.shape[1]
        for i, k in np.ndindex(*noise.shape):
            log_std = np.clip(outputs[i, numbers + k], -20.0, 2.0)
            pairs[i, k] = squashed_gaussian(float(outputs[i, k]), float(log_std), noise[i, k])
        return pairs[:, :, 0] * self.free, (pairs[:, :, 1] * self.free).sum(axis=1)

    def critic_gradients(self, batch: Any, update: int, rows: Any) -> tuple[Any, Any]:
        """Gradients by the critics' parameters, and mean sizes of the errors."""
        names, policy = self.networks, self.agent.policy
        actor = names.get("target_actor", names["actor"])
        noise = noises(self.agent.learner, update, rows, batch["action"].shape[1], 0)
        outputs = actor.outputs(seen(self.agent, batch["next_observation"]))
        actions, log_probs = self.act(outputs, noise, following=True)
        inputs = self.inputs(batch["next_observation"], actions)
        soft = self.values("target", inputs).min(axis=0) - self.alpha * log_probs
        y = batch["reward"] + batch["discount"] * np.where(batch["terminated"], 0.0, soft)
        taken = (batch["action"] - policy.center) / np.where(self.free, policy.half, 1.0)
        inputs = self.inputs(batch["observation"], taken)
        errors = self.values("critic", inputs) - y
        slopes = (batch["weight"] * errors / len(y))[:, :, None]
        gradients = {
            name: names[name].gradients(inputs, slopes[k])[0] for k, name in enumerate(self.critics)
        }
        return gradients, abs(errors).mean(axis=0)

    def critics_step(self, batch: Any, update: int, rows: Any) -> Any:
        gradients, errors = self.critic_gradients(batch, update, rows)
        for name, gradient in gradients.items():
            self.adams[name].step(self.networks[name].parameters, gradient, 1e-3)
        return errors

    def actor_gradient(self, batch: Any, update: int, rows: Any) -> tuple[Any, Any]:
        """Gradient by the actor's parameters, and log-probabilities of its actions."""
        noise = noises(self.agent.learner, update, rows, batch["action"].shape[1], 1)
        observations = seen(self.agent, batch["observation"])
        outputs = self.networks["actor"].outputs(observations)
        actions, log_probs = self.act(outputs, noise, following=False)
        inputs = self.inputs(batch["observation"], actions)
        is_sac = isinstance(self.agent, SAC)
        counted = self.critics if is_sac else self.critics[:1]
        least = self.values("critic", inputs)[: len(counted)].argmin(axis=0)
        by_actions = np.zeros_like(actions)
        for position, name in enumerate(counted):
            slopes = -(least == position).astype(float)[:, None]
            by_inputs = self.networks[name].gradients(inputs, slopes)[1]
            by_actions += by_inputs[:, observations.shape[1] :]
        slopes, numbers = np.zeros_like(outputs), actions.shape[1]
        for i, k in itertools.product(range(len(rows)), np.flatnonzero(self.free)):
            columns = [k, numbers + k] if is_sac else [k]

            def loss(x: Any, i: int = i, k: int = k) -> float:
                if not is_sac:
                    return float(by_actions[i, k] * math.tanh(x[0]))
                log_std = min(max(x[1], -20.0), 2.0)
                action, log_prob = squashed_gaussian(x[0], log_std, noise[i, k])
                return float(by_actions[i, k] * action + self.alpha * log_prob)

            slopes[i, columns] = numeric(loss, outputs[i, columns]) / len(rows)
        return self.networks["actor"].gradients(observations, slopes)[0], log_probs

    def actor_step(self, batch: Any, update: int, rows: Any) -> None:
        gradient, log_probs = self.actor_gradient(batch, update, rows)
        self.adams["actor"].step(self.networks["actor"].parameters, gradient, 1e-3)
        if self.alpha:
            slope = -(log_probs.mean() - self.free.sum())  # its target is -1 a number
            self.temperature.step(self.log_alpha, np.array([slope]), 1e-3)

    def follow(self, tau: float) -> None:
        for name, source in self.agent.learner.targets.items():
            ours, theirs = self.networks[source].parameters, self.networks[name].parameters
            theirs += tau * (ours - theirs)


@pytest.mark.parametrize(
    ("env", "threads"), [("Pendulum-v1", 1), ("Pendulum-v1", 2), (HalfFrozen, 1)]
)
@pytest.mark.parametrize("kind", [SAC, TD3, DDPG])
def test_updates_equal_numpys(kind: Any, env: Any, threads: int) -> None:
    options = {"temperature": 0.3} if kind is SAC else {}
    env = SyncVectorEnv([HalfFrozen] * 4) if env is HalfFrozen else env
    agent = kind(env, seed=1, num_threads=threads, learning_rate=1e-3, **SMALL, **options)
    agent.learn(64)  # before learning starts but for one round
    learner, size, updates = agent.learner, 80, 4
    rng = np.random.default_rng(0)
    learner.write_networks()
    for each in learner.networks:
        each.parameters += rng.normal(0, 0.1, each.parameters.size).astype(np.float32)
    learner.read_networks()
    restart(learner)
    if kind is SAC:
        learner.value_of("log_temperature")[:] = math.log(0.3)
    naive = Naive(agent)
    batch = plain(agent._columns(agent.buffer.sample(size * updates)))
    batch["weight"] = rng.uniform(0.5, 1.0, size * updates).astype(np.float32)
    batch["terminated"] = rng.random(size * updates) < 0.2
    parts = []
    for update in range(updates):
        rows = np.arange(update * size, (update + 1) * size)
        parts.append(({name: array[rows] for name, array in batch.items()}, update + 1, rows))
    if kind is not TD3:  # whose actor waits for the second update
        found = gradient_of(learner, parts[0][0], 1, normalise=agent._normalisation)
        np.testing.assert_allclose(found, naive.actor_gradient(*parts[0])[0], atol=2e-5)
    found = gradient_of(learner, parts[0][0], 0, normalise=agent._normalisation)
    expected = naive.critic_gradients(*parts[0])[0]["critic1"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    learner.update(
        batch,
        minibatch_size=size,
        normalise=agent._normalisation,
        tau=0.3,
        **agent._options(),
    )
    for part in parts:
        errors = naive.critics_step(*part)
        np.testing.assert_allclose(learner.per_sample["error"][part[2]], errors, atol=5e-3)
        if part[1] % (2 if kind is TD3 else 1) == 0:
            naive.actor_step(*part)
            naive.follow(0.3)
    for name, ours in zip(learner.names, networks_of(learner), strict=True):
        np.testing.assert_allclose(
            ours.parameters, naive.networks[name].parameters, atol=5e-4, err_msg=name
        )
    if kind is SAC:
        found = learner.value_of("log_temperature")[0]
        assert found == pytest.approx(naive.log_alpha[0], abs=1e-5)
        assert agent.temperature == pytest.approx(naive.alpha, abs=1e-5)


@pytest.mark.parametrize("kind", [SAC, TD3, DDPG])
def test_a_number_of_actions_that_cannot_change_is_not_learnt(kind: Any) -> None:
    agent = kind(SyncVectorEnv([HalfFrozen] * 4), seed=0, **SMALL)
    agent.learn(320)
    assert agent.num_updates > 0
    assert np.isfinite(agent.history.losses).all()
    observations = np.zeros((5, 1))
    assert (agent.predict(observations, deterministic=False)[:, 1] == 0.5).all()


def test_environments_that_do_not_fit_are_refused() -> None:
    for kind in (SAC, TD3, DDPG):
        with pytest.raises(
            TypeError, match=r"CartPole-v1 has action_space=Discrete.*expected a Box"
        ):
            kind("CartPole-v1")
