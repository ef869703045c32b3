"""SAC, TD3 and DDPG: their equations, and their updates beside NumPy's."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from rlcpu import nn
from rlcpu.kernels.random import mix, uniforms
from rlcpu.train import DDPG, SAC, TD3, sac, td3
from rlcpu.train.actor_critic import Sample, actor_loss, soft_bootstrap, squared
from rlcpu.train.actors import squashed_gaussian
from tests.train.off_policy_cases import (
    HalfFrozen,
    NaiveAdam,
    flat_gradient,
    networks_of,
    numeric,
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
#: Two critics and a policy delay of 2 in all of them but DDPG.
AGENTS = [(SAC, sac.RULES), (TD3, td3.RULES), (DDPG, td3.RULES)]


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


@pytest.mark.parametrize("rules", [sac.RULES, td3.RULES])
@pytest.mark.parametrize("at", [(0.3, -0.5), (-1.2, 0.7), (0.1, 3.0), (0.4, -25.0)])
def test_slopes_of_the_actor_are_derivatives(rules: Any, at: tuple[float, float]) -> None:
    noise, by_action, by_log_prob = 0.8, 1.7, 0.6 if rules is sac.RULES else 0.0

    def loss(x: Any) -> float:
        action, log_prob = rules.draw(x[0], x[1], noise)
        return by_action * action + by_log_prob * log_prob

    slopes = nn.slopes(lambda *x: loss(x), *at)[1]
    np.testing.assert_allclose(slopes, numeric(loss, at), atol=1e-6)


def test_log_density_of_a_squashed_action_is_smooth_at_zero() -> None:
    """There log(1 - tanh(u)**2), of a kink and its opposite, has the slope 0."""
    assert nn.slopes(lambda mean: squashed_gaussian(mean, 0.0, 0.0)[1], 0.0)[1] == (0.0,)
    for mean in (-1e-3, 1e-3, -20.0, 20.0):
        slopes = nn.slopes(lambda mean: squashed_gaussian(mean, 0.0, 0.0)[1], mean)[1]
        assert slopes[0] == pytest.approx(2.0 * math.tanh(mean), abs=1e-12)


def test_losses_and_their_slopes() -> None:
    sample = Sample(target=0.5, weight=0.7)
    loss, (error,) = squared((2.0,), sample, ())
    slope = nn.slopes(lambda x: squared((x,), sample, ())[0], 2.0)[1][0]
    assert (loss, error) == (pytest.approx(0.7 * 1.5**2 / 2), 1.5)
    assert slope == pytest.approx(numeric(lambda x: squared((x[0],), sample, ())[0], [2.0])[0])
    assert actor_loss(2.0, -0.5, 0.3) == 0.3 * -0.5 - 2.0
    assert nn.slopes(lambda *x: actor_loss(*x, 0.3), 2.0, -0.5)[1] == (-1.0, 0.3)
    assert soft_bootstrap(1.0, 0.9, False, 2.0, -1.0, 0.5) == pytest.approx(1.0 + 0.9 * 2.5)
    assert soft_bootstrap(1.0, 0.9, True, np.inf, -1.0, 0.5) == 1.0


def test_target_actions_stay_within_noise_and_bounds() -> None:
    weights = td3.Coefficients(noise=0.2, noise_clip=0.5)
    assert td3.draw_next(0.0, 0.0, 1.0, weights)[0] == pytest.approx(0.2)
    assert td3.draw_next(0.0, 0.0, 9.0, weights)[0] == 0.5
    assert td3.draw_next(5.0, 0.0, 9.0, weights)[0] == 1.0


# ---------------------------------------------------------------- whole updates


def noises(learner: Any, update: int, rows: Any, numbers: int, stream: int) -> Any:
    """Standard normal numbers (rows, numbers), as kernels draw them."""
    out, draw = np.zeros((len(rows), numbers)), uniforms(2, 0, np.float32).py_func
    with np.errstate(over="ignore"):
        key = mix.py_func(learner.key[0], learner.key[1], np.uint32(update))
        for i, k in np.ndindex(*out.shape):
            counter = np.uint32((rows[i] * numbers + k) * 2 + stream)
            u, angle = map(float, draw(*mix.py_func(*key, counter)))
            out[i, k] = math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * (angle - 0.5))
    return out


def act(free: Any, rule: Any, outputs: Any, noise: Any, *more: Any) -> tuple[Any, Any]:
    """Actions (n, numbers) and log-probabilities (n,) of an actor's outputs."""
    numbers = noise.shape[1]
    log_stds = outputs[:, numbers:] if outputs.shape[1] > numbers else np.zeros_like(noise)
    pairs = np.zeros((*noise.shape, 2))
    for i, k in np.ndindex(*noise.shape):
        pairs[i, k] = rule(float(outputs[i, k]), float(log_stds[i, k]), noise[i, k], *more)
    return pairs[:, :, 0] * free, (pairs[:, :, 1] * free).sum(axis=1)


class Naive:
    """What an agent's networks become, by the formulas."""

    def __init__(self, agent: Any, rules: Any, critics: int) -> None:
        self.agent, self.rules, self.critics = agent, rules, critics
        self.free = agent.policy.half > 0.0
        self.networks = networks_of(agent.learner)
        self.adams = [NaiveAdam(x.parameters.size) for x in self.networks[: critics + 1]]
        self.temperature = NaiveAdam(1)
        self.log_alpha = np.array([math.log(0.3)]) if rules is sac.RULES else np.array([-np.inf])

    @property
    def alpha(self) -> float:
        return float(np.exp(self.log_alpha[0]))

    def inputs(self, observations: Any, actions: Any) -> Any:
        return np.concatenate((seen(self.agent, observations), actions), axis=1)

    def critics_step(self, batch: Any, update: int, rows: Any) -> Any:
        learner, coefficients = self.agent.learner, self.agent._coefficients()
        targets = learner.layout.targets
        actor = self.networks[max(targets[0], 0)]
        noise = noises(learner, update, rows, batch["actions"].shape[1], 0)
        outputs = actor.outputs(seen(self.agent, batch["next_observations"]))
        actions, log_probs = act(self.free, self.rules.draw_next, outputs, noise, coefficients)
        inputs = self.inputs(batch["next_observations"], actions)
        values = [self.networks[targets[k]].outputs(inputs)[:, 0] for k in self.numbers]
        soft = np.min(values, axis=0) - (self.alpha * log_probs if self.alpha else 0.0)
        y = batch["rewards"] + batch["discounts"] * np.where(batch["terminated"], 0.0, soft)
        policy, errors = self.agent.policy, 0.0
        taken = (batch["actions"] - policy.center) / np.where(self.free, policy.half, 1.0)
        inputs = self.inputs(batch["observations"], taken)
        for k in self.numbers:
            error = self.networks[k].outputs(inputs)[:, 0] - y
            slopes = (batch["weights"] * error / len(y))[:, None]
            gradient = self.networks[k].gradients(inputs, slopes)[0]
            self.adams[k].step(self.networks[k].parameters, gradient, 1e-3)
            errors = errors + abs(error) / self.critics
        return errors

    def actor_step(self, batch: Any, update: int, rows: Any) -> Any:
        learner, size = self.agent.learner, len(rows)
        noise = noises(learner, update, rows, batch["actions"].shape[1], 1)
        observations = seen(self.agent, batch["observations"])
        outputs = self.networks[0].outputs(observations)
        actions, log_probs = act(self.free, self.rules.draw, outputs, noise)
        inputs = self.inputs(batch["observations"], actions)
        counted = self.numbers if self.agent._coefficients().least else [1]
        values = np.stack([self.networks[k].outputs(inputs)[:, 0] for k in counted])
        least = values.argmin(axis=0)
        by_actions = np.zeros_like(actions)
        for position, k in enumerate(counted):
            slopes = -(least == position).astype(float)[:, None]
            by_inputs = self.networks[k].gradients(inputs, slopes)[1]
            by_actions += by_inputs[:, observations.shape[1] :]
        slopes = np.zeros_like(outputs)
        for i, k in itertools.product(range(size), np.flatnonzero(self.free)):
            log_std = (
                outputs[i, actions.shape[1] + k] if outputs.shape[1] > len(actions[0]) else 0.0
            )
            draw, z = self.rules.draw, float(noise[i, k])
            at = float(outputs[i, k]), float(log_std)
            _, slopes_of = nn.slopes(lambda *x, draw=draw, z=z: draw(*x, z), *at)
            by_mean, by_log_std = by_actions[i, k] * np.array(slopes_of[0])
            by_mean, by_log_std = (by_mean, by_log_std) + self.alpha * np.array(slopes_of[1])
            slopes[i, k] = by_mean / size
            if outputs.shape[1] > actions.shape[1]:
                slopes[i, actions.shape[1] + k] = by_log_std / size
        gradient = self.networks[0].gradients(observations, slopes)[0]
        self.adams[0].step(self.networks[0].parameters, gradient, 1e-3)
        if self.alpha:
            slope = -(log_probs.mean() - self.free.sum())  # its target is -1 a number
            self.temperature.step(self.log_alpha, np.array([slope]), 1e-3)
        return gradient

    @property
    def numbers(self) -> range:
        return range(1, self.critics + 1)

    def follow(self, tau: float) -> None:
        for k, target in enumerate(self.agent.learner.layout.targets):
            if target >= 0:
                ours, theirs = self.networks[k].parameters, self.networks[target].parameters
                theirs += tau * (ours - theirs)


@pytest.mark.parametrize(
    ("env", "threads"), [("Pendulum-v1", 1), ("Pendulum-v1", 2), (HalfFrozen, 1)]
)
@pytest.mark.parametrize(("kind", "rules"), AGENTS)
def test_updates_equal_numpys(kind: Any, rules: Any, env: Any, threads: int) -> None:
    options = {"temperature": 0.3} if kind is SAC else {}
    env = SyncVectorEnv([HalfFrozen] * 4) if env is HalfFrozen else env
    agent = kind(env, seed=1, num_threads=threads, learning_rate=1e-3, **SMALL, **options)
    agent.learn(64)  # before learning starts but for one round
    learner, size, updates = agent.learner, 80, 4
    rng, critics = np.random.default_rng(0), 1 if kind is DDPG else 2
    agent.learner.write_networks(range(len(learner.networks)))
    for each in learner.networks:
        each.parameters += rng.normal(0, 0.1, each.parameters.size).astype(np.float32)
    learner.read_networks()
    for array in (learner.learnt.first, learner.learnt.second, learner.counters):
        array[:] = 0
    if kind is SAC:
        learner.learnt.extra[:] = math.log(0.3), 0, 0, 0
    naive = Naive(agent, rules, critics)
    batch = agent._transitions(agent.buffer.sample(size * updates))
    batch = batch._replace(
        weights=rng.uniform(0.5, 1.0, size * updates).astype(np.float32),
        terminated=rng.random(size * updates) < 0.2,
    )
    learner.update(batch, size, agent._coefficients(), **{**agent._options(), "tau": 0.3})
    delay, gradient = 2 if kind is TD3 else 1, None
    for update in range(1, updates + 1):
        rows = np.arange((update - 1) * size, update * size)
        shaped = {
            name: getattr(batch, name).reshape(size * updates, -1)[rows]
            for name in ("observations", "next_observations", "actions")
        }
        names = ("rewards", "discounts", "weights", "terminated")
        shaped |= {name: getattr(batch, name)[rows] for name in names}
        errors = naive.critics_step(shaped, update, rows)
        np.testing.assert_allclose(batch.errors[rows], errors, atol=5e-3)
        if update % delay == 0:
            gradient = naive.actor_step(shaped, update, rows)
            naive.follow(0.3)
    np.testing.assert_allclose(flat_gradient(learner, 0), gradient, atol=2e-4)
    for ours, expected in zip(networks_of(learner), naive.networks, strict=True):
        np.testing.assert_allclose(ours.parameters, expected.parameters, atol=5e-4)
    if kind is SAC:
        assert learner.learnt.extra[0] == pytest.approx(naive.log_alpha[0], abs=1e-5)
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
