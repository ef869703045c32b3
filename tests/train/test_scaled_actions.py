"""PPO's actions, scaled to their bounds: a Gaussian of numbers in [-1, 1], whatever acts by it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.policies import MLP
from rlcpu.train import PPO
from tests.train.off_policy_cases import HalfFrozen

Array = Any
BEST = 1500.0


def step(state, action, params):
    """Pay for a first number near 1,500; the second one may be from -0.1 to 0.1, and shifts it."""
    (moment,) = state
    error = (action[0] + 1000.0 * action[1] - BEST) / 1000.0
    return (moment + 1.0,), 1.0 - error * error, moment >= 3.0


def reset(rng, params):
    return (rng.uniform(0),)


FREE = Box(-np.inf, np.inf, (1,), np.float32)
WIDE = rlcpu.Dynamics(
    id="Wide-v0",
    step=step,
    reset=reset,
    observation_space=FREE,
    action_space=Box(np.float32([0.0, -0.1]), np.float32([2000.0, 0.1])),
    max_episode_steps=4,
)
CENTER, HALF = np.array([1000.0, 0.0]), np.array([1000.0, 0.1])
SMALL: dict[str, Any] = {"num_envs": 4, "num_steps": 8, "num_epochs": 1, "minibatch_size": 32}


def wide(**settings: Any) -> PPO:
    return PPO(WIDE, seed=0, scale_actions=True, **{**SMALL, **settings})


def of_gymnasium() -> PPO:
    """Of an environment that Python steps, whose second number of an action is always 0.5."""
    return PPO(HalfFrozen(), seed=0, scale_actions=True, **{**SMALL, "num_envs": 1})


def of_mujoco() -> PPO:
    pytest.importorskip("mujoco")
    return PPO("InvertedPendulum-v5", seed=0, scale_actions=True, **SMALL)


#: Agents, and the centres and half widths of their actions.
AGENTS: dict[str, tuple[Callable[[], PPO], Array, Array]] = {
    "separate": (wide, CENTER, HALF),
    "shared": (lambda: wide(value="shared"), CENTER, HALF),
    "memory": (lambda: wide(network="gru", hidden=(8,)), CENTER, HALF),
    "gymnasium": (of_gymnasium, np.array([0.0, 0.5]), np.ones(2)),
    "mujoco": (of_mujoco, np.zeros(1), np.full(1, 3.0)),
}


def means_of(agent: PPO, rollout: Any) -> Array:
    """Outputs of the policy's network for a rollout, (T, N, action_size)."""
    shape = rollout.actions.shape
    if not agent.state_size:
        return agent.policy.outputs(rollout.observations.reshape(-1, *FREE.shape)).reshape(shape)
    state, means = rollout.states[:, : agent.state_size], []
    for seen, starts in zip(rollout.observations, rollout.starts, strict=True):
        made, state = agent.policy.outputs(seen, state, starts)
        means.append(made)
    return np.array(means)


@pytest.mark.parametrize("name", AGENTS)
def test_actions_are_numbers_of_the_gaussian_scaled_to_their_bounds(name: str) -> None:
    """What is drawn, its density, the greedy action, and what the learner makes of them."""
    make, center, half = AGENTS[name]
    agent = make()
    agent.policy.log_std[:] = np.linspace(-0.5, 0.5, center.size)
    rollout = rlcpu.collect(agent.env, agent.policy, 50)
    if name == "mujoco":
        outputs = agent.policy.outputs(rollout.observations.reshape(-1, 4))
        means = outputs.reshape(rollout.actions.shape)
    else:
        means = means_of(agent, rollout)
    numbers, std = (rollout.actions - center) / half, np.exp(agent.policy.log_std)
    noise = (numbers - means) / std
    assert np.abs(noise).max() < 5.0
    assert np.abs(noise.mean(axis=(0, 1))).max() < 5.0 / np.sqrt(noise[..., 0].size)
    density = (-0.5 * noise**2 - np.log(std) - 0.5 * np.log(2 * np.pi)).sum(axis=-1)
    np.testing.assert_allclose(rollout.log_probs, density, atol=2e-3)

    greedy = rlcpu.collect(agent.env, agent.policy, 5, deterministic=True)
    if not agent.state_size:
        space = agent.env.single_action_space
        seen = greedy.observations.reshape(-1, *greedy.observations.shape[2:])
        acted = np.clip(greedy.actions.reshape(-1, center.size), space.low, space.high)
        np.testing.assert_allclose(agent.predict(seen), acted, rtol=1e-5, atol=1e-5)

    agent.learn(64)  # minibatches of whole rollouts: before a step of Adam nothing has changed
    assert abs(agent.history.losses.kl) < 1e-4
    assert agent.history.losses.clip_fraction == 0.0


def test_wide_bounds_are_learnt() -> None:
    """Without scaling an action stays at 0, where it began."""
    settings: dict[str, Any] = {
        "num_envs": 16, "num_steps": 64, "num_epochs": 8, "minibatch_size": 256,
        "learning_rate": 3e-3, "gamma": 0.0, "hidden": (16,),
    }  # fmt: skip
    nears = []
    for scale_actions in (True, False):
        agent = PPO(WIDE, seed=0, scale_actions=scale_actions, **settings)
        agent.learn(20_000)
        first, second = agent.predict(np.array([[0.5], [2.5]])).T
        nears.append(np.abs(first + 1000.0 * second - BEST).max())
        if not scale_actions:
            assert (np.abs(first) < 10.0).all()
    assert nears[0] < 100.0 < 1000.0 < nears[1]


def test_draws_of_predict_are_scaled_too() -> None:
    agent = wide()
    drawn = agent.predict(np.zeros((4000, 1)), deterministic=False)
    numbers = (drawn - CENTER) / HALF
    share = (np.abs(numbers) < 1.0).mean()  # the rest is at the bounds
    assert abs(share - 0.6827) < 4 * np.sqrt(0.25 / numbers.size)
    assert WIDE.action_space.contains(drawn[0])


def test_files_and_policies_of_the_user_s_keep_it(tmp_path: Path) -> None:
    agent = wide()
    agent.learn(64)
    agent.save(tmp_path / "agent.npz")
    loaded = PPO.load(tmp_path / "agent.npz", env=rlcpu.make_vec(WIDE, 4))
    seen = np.linspace(-1.0, 1.0, 5)[:, None]
    assert loaded.config.scale_actions
    np.testing.assert_array_equal(loaded.predict(seen), agent.predict(seen))
    for each in (agent, loaded):
        each.learn(64)
    np.testing.assert_array_equal(loaded.predict(seen), agent.predict(seen))

    policy = MLP(FREE, WIDE.action_space)
    policy.scale_actions = True
    theirs = PPO(WIDE, policy=policy, **SMALL)
    assert theirs.config.scale_actions
    policy.scale_actions = False
    with pytest.raises(ValueError, match=r"policy.scale_actions=False: the agent is made with Tru"):
        theirs.learn(32)
    unscaled = MLP(FREE, WIDE.action_space)
    assert not PPO(WIDE, policy=unscaled, **SMALL).config.scale_actions


def test_what_has_no_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scale_actions=True: CartPole-v1 has action_space=Discr"):
        PPO("CartPole-v1", scale_actions=True)
    env: Any = gymnasium.make("Pendulum-v1")
    env.unwrapped.action_space = Box(-np.inf, np.float32(2.0), (1,), np.float32)
    with pytest.raises(ValueError, match=r"scale_actions=True: .* expected a Box with finite bou"):
        PPO(env, scale_actions=True)
    for space, kind in ((env.unwrapped.action_space, "without bounds"), (Discrete(2), "choices")):
        policy = MLP(FREE, space)
        with pytest.raises(ValueError, match=f"scale_actions=True: actions are {kind}, expected"):
            policy.scale_actions = True
        assert policy.scale_actions is False
    policy = MLP(FREE, Box(-1.0, 1.0, (2,)))
    policy.scale_actions = True
    env = rlcpu.make_vec(WIDE, 2)
    with pytest.raises(ValueError, match=r"policy scales actions to .*-1.*: Wide-v0 has action_sp"):
        rlcpu.collect(env, policy, 2)


@pytest.mark.parametrize(
    ("low", "high", "is_far"),
    [(-3.0, 3.0, False), (0.0, 1.0, False), (-6.0, 6.0, True), (10.0, 11.0, True),
     (-0.1, 0.1, True), (-0.4, 0.4, False)],
)  # fmt: skip
def test_the_checker_advises_it(low: float, high: float, is_far: bool) -> None:
    space = Box(np.float32([low, 0.0]), np.float32([high, 1.0]))
    report = rlcpu.envs.check(dataclasses.replace(WIDE, action_space=space), 20)
    assert (f"action[0] goes from {low:g} to {high:g}" in str(report)) is is_far
    assert ("scale_actions=True" in str(report)) is is_far
