"""The agent: it learns, reports, stops when told, and repeats itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import rlcpu
from rlcpu.envs.rollout.collect import collect
from rlcpu.train import PPO, PPOConfig, Progress
from rlcpu.train.ppo import ZOO_CARTPOLE

SMALL = {"num_envs": 8, "num_steps": 16, "minibatch_size": 64, "num_epochs": 2, "hidden": (16,)}


def parameters(agent: PPO) -> np.ndarray:
    policy = agent.policy
    return np.concatenate([policy.parameters, policy.value_parameters, policy.log_std])


@pytest.mark.parametrize("seed", [0, 1])
def test_solves_cartpole(seed: int) -> None:
    agent = PPO("CartPole-v1", seed=seed)
    history = agent.learn(400_000, target_return=475.0)
    assert history.solved
    assert history.episode_return >= 475.0
    assert history.steps < 400_000
    assert agent.evaluate(100, seed=seed + 1).mean() >= 475.0


@pytest.mark.parametrize(
    ("env_id", "steps", "reached"),
    [
        ("Acrobot-v1", 250_000, -110.0),
        ("MountainCarContinuous-v0", 250_000, 85.0),
        ("Pendulum-v1", 250_000, -220.0),
    ],
)
def test_learns(env_id: str, steps: int, reached: float) -> None:
    """Untrained policies return about -500, 0 or less, and -1,200."""
    agent = PPO(env_id, seed=0)
    agent.learn(steps)
    assert agent.evaluate(100, seed=1).mean() >= reached


def test_explores_until_the_first_reward() -> None:
    """Without a reward, advantages brought to a deviation of 1 are noise that ends exploration.

    Untrained policies return about 0.
    """
    agent = PPO("MiniGrid-Empty-8x8-v0", seed=6)
    agent.learn(300_000)
    assert agent.evaluate(100, seed=1).mean() >= 0.9


@pytest.mark.parallel
def test_run_is_a_function_of_the_seed_alone() -> None:
    runs = []
    most = numba.config.NUMBA_NUM_THREADS
    for seed, threads in ((3, 1), (3, None), (3, most), (4, 1)):
        agent = PPO("CartPole-v1", seed=seed, num_threads=threads, **SMALL)
        history = agent.learn(2000)
        runs.append((parameters(agent), history.episode_return, agent.evaluate(5)))
    for same in runs[1:3]:
        np.testing.assert_array_equal(runs[0][0], same[0])
        np.testing.assert_array_equal(runs[0][2], same[2])
        assert runs[0][1] == same[1]
    assert (runs[0][0] != runs[3][0]).any()


@pytest.mark.parametrize(
    ("env_id", "dtype", "options"),
    [
        ("CartPole-v1", "float32", {}),
        ("CartPole-v1", "float32", {"value": "shared"}),
        ("CartPole-v1", "float64", {"activation": "relu"}),
        ("Pendulum-v1", "float32", {"value": "shared"}),
        ("Pendulum-v1", "float64", {}),
    ],
)
def test_reports_progress(env_id: str, dtype: str, options: dict[str, Any]) -> None:
    seen: list[tuple[int, int]] = []

    def callback(progress: Progress) -> None:
        seen.append((progress.steps, progress.losses.num_gradients))
        assert progress.time_collect + progress.time_update <= progress.time_total

    agent = PPO(env_id, dtype=dtype, normalize_observations=True, **SMALL, **options)
    before = parameters(agent)
    history = agent.learn(500, callback=callback)
    assert seen == [(128, 4), (256, 4), (384, 4), (512, 4)]
    assert [steps for steps, _ in history.curve] == [128, 256, 384, 512]
    assert history.steps == agent.steps == 512
    assert np.isfinite(history.losses).all()
    assert not history.solved
    assert (parameters(agent) != before).any()


def test_callback_stops() -> None:
    agent = PPO("CartPole-v1", **SMALL)
    history = agent.learn(10_000, callback=lambda progress: progress.steps < 256)
    assert history.steps == 256


def test_linear_schedules_reach_zero_with_the_last_update() -> None:
    options = {**SMALL, "learning_rate_schedule": "linear", "clip_schedule": "linear"}
    agent = PPO("CartPole-v1", **options)
    agent.learn(128)
    np.testing.assert_array_equal(parameters(agent), parameters(PPO("CartPole-v1", **options)))


def test_statistics_of_observations_are_frozen_while_a_rollout_is_used() -> None:
    agent = PPO("Acrobot-v1", normalize_observations=True, **SMALL)
    assert (agent.policy.observation_scale == 1.0).all()
    agent.learn(128)
    seen = agent._rollout.observations.reshape(-1, 6)
    np.testing.assert_allclose(agent.policy.observation_mean, seen.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(agent.policy.observation_scale, 1.0 / seen.std(axis=0), rtol=1e-3)


def test_goes_on_from_a_policy_in_given_environments() -> None:
    env = rlcpu.make_vec("CartPole-v1", num_envs=8, length=0.7)
    space = env.single_observation_space, env.single_action_space
    policy = rlcpu.policies.MLP(*space, hidden=(16,), seed=5)
    before = policy.parameters.copy()
    agent = PPO(env, policy=policy, num_steps=16)
    assert agent.env is env
    assert (agent.config.num_envs, agent.config.hidden) == (8, (16,))
    agent.learn(128)
    assert agent.policy is policy
    assert (policy.parameters != before).any()


@pytest.mark.parametrize("in_place", [True, False])
def test_goes_on_from_what_the_user_wrote_to_the_policy(in_place: bool) -> None:
    agent = PPO("CartPole-v1", learning_rate=0.0, **SMALL)
    agent.learn(128)
    given = np.linspace(-1.0, 1.0, agent.policy.parameters.size, dtype=np.float32)
    if in_place:
        agent.policy.parameters[:] = given
    else:
        agent.policy.parameters = given.copy()
    agent.learn(128)
    np.testing.assert_array_equal(agent.policy.parameters, given)
    agent.config = agent.config.replace({"learning_rate": 1e-3})
    agent.learn(128)
    assert (agent.policy.parameters != given).any()
    agent.policy.parameters = given[1:]
    with pytest.raises(ValueError, match=r"policy\.parameters has shape"):
        agent.learn(128)


def test_predict() -> None:
    agent = PPO("CartPole-v1", **SMALL)
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    actions = agent.predict(observations)
    assert actions.shape == (50,)
    np.testing.assert_array_equal(actions, agent.policy.outputs(observations).argmax(axis=1))
    assert agent.predict(observations[0]) == actions[0]
    drawn = np.array([agent.predict(observations, deterministic=False) for _ in range(400)])
    logits = agent.policy.outputs(observations)
    expected = 1.0 / (1.0 + np.exp(logits[:, 0] - logits[:, 1]))
    np.testing.assert_allclose(drawn.mean(axis=0), expected, atol=0.13)


def test_predict_keeps_continuous_actions_within_bounds() -> None:
    agent = PPO("Pendulum-v1", log_std_init=2.0, **SMALL)
    observations = np.zeros((200, 3), np.float32)
    actions = agent.predict(observations, deterministic=False)
    assert actions.shape == (200, 1)
    assert actions.dtype == np.float32
    assert (np.abs(actions) <= 2.0).all()
    assert (np.abs(actions) == 2.0).any()


@pytest.mark.parametrize(
    ("args", "error", "name"),
    [
        ({"env": 3}, TypeError, "env"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 2**128}, ValueError, "seed"),
        ({"seed": 0.5}, TypeError, "seed"),
        ({"num_envs": 0}, ValueError, "num_envs"),
        ({"policy": "MLP"}, TypeError, "policy"),
        ({"gama": 0.9}, TypeError, "gama: PPO has no such setting; did you mean gamma?"),
        ({"n_steps": 9}, TypeError, "n_steps: PPO has no such setting; did you mean num_steps?"),
        ({"learning_rte": 1.0}, TypeError, "did you mean learning_rate"),
        ({"dtipe": "float32"}, TypeError, "did you mean dtype"),
        ({"config": {"gamma": 0.9}}, TypeError, "config"),
        ({"hidden": 5}, TypeError, "hidden=5"),
        ({"hidden": (8, 2.5)}, TypeError, r"hidden\[1\]=2.5"),
        ({"activation": 5}, ValueError, "activation=5"),
        ({"activation": "gelu"}, ValueError, "activation"),
        ({"hidden": (0,)}, ValueError, "hidden"),
    ],
)
def test_bad_argument_is_named(args: dict[str, Any], error: type[Exception], name: str) -> None:
    with pytest.raises(error, match=name):
        PPO(**{"env": "CartPole-v1", **args})


def test_policy_has_to_fit() -> None:
    other = PPO("Acrobot-v1", **SMALL).policy
    with pytest.raises(ValueError, match="policy"):
        PPO("CartPole-v1", policy=other)


def test_num_envs_has_to_agree_with_the_environments() -> None:
    with pytest.raises(ValueError, match="num_envs"):
        PPO(rlcpu.make_vec("CartPole-v1", num_envs=4), num_envs=8)


@pytest.mark.parametrize("steps", [0, -5])
def test_total_steps_is_checked(steps: int) -> None:
    with pytest.raises(ValueError, match="total_steps"):
        PPO("CartPole-v1", **SMALL).learn(steps)


def test_config_and_single_settings() -> None:
    agent = PPO("CartPole-v1", config=PPOConfig(gamma=0.5, num_envs=2), num_envs=4, lambda_=0.1)
    assert agent.config == PPOConfig(gamma=0.5, num_envs=4, lambda_=0.1)
    assert repr(agent) == "PPO(CartPole-v1, seed=0, num_envs=4, 4-64-64-2 tanh, 0 steps learnt)"


def test_zoo_settings_learn() -> None:
    agent = PPO("CartPole-v1", config=ZOO_CARTPOLE)
    assert agent.learn(100_000, target_return=475.0).solved


def test_nan_of_an_environment_stops_learning_before_the_update(tmp_path: Path) -> None:
    agent = PPO("CartPole-v1", **SMALL)
    learnt: list[np.ndarray] = []

    def break_environment(progress: Progress) -> None:
        learnt.append(parameters(agent))
        if len(learnt) == 2:
            agent.env.engine.real[0, 64 + 3] = np.nan

    with pytest.raises(FloatingPointError, match=r"environment 3 has observation\[1\]=nan"):
        agent.learn(1000, callback=break_environment)
    np.testing.assert_array_equal(parameters(agent), learnt[1])
    assert agent.steps == 2 * 8 * 16
    agent.save(tmp_path / "agent")
    other = PPO.load(tmp_path / "agent")
    for each in (agent, other):
        each.env.reset(seed=5)
        each.learn(300)
    np.testing.assert_array_equal(parameters(agent), parameters(other))
    assert np.isfinite(parameters(agent)).all()


def test_clipped_values_move_less(tmp_path: Path) -> None:
    """What they are compared with are the values of the rollout, sample by sample."""
    moves = []
    for limit in (None, 0.01):
        agent = PPO("CartPole-v1", **SMALL, clip_range_value=limit)
        rollout = collect(agent.env, agent.policy, agent.config.num_steps)
        inputs = rollout.inputs.reshape(-1, 4)
        np.testing.assert_allclose(agent.policy.evaluate(inputs), rollout.values.ravel(), atol=1e-5)
        for _ in range(5):
            agent._learn_from(rollout, 1.0)
        moves.append(np.abs(agent.policy.evaluate(inputs) - rollout.values.ravel()).mean())
    assert moves[1] < 0.5 * moves[0]
    agent.save(tmp_path / "agent")
    assert PPO.load(tmp_path / "agent").config.clip_range_value == 0.01
    with pytest.raises(AttributeError, match=r"clip_range_value=None: .* made with 0.01"):
        agent.config = agent.config.replace({"clip_range_value": None})
    for value, kind in ((0.0, ValueError), (-0.1, ValueError), ("0.1", TypeError)):
        with pytest.raises(kind, match="clip_range_value"):
            PPO("CartPole-v1", **{**SMALL, "clip_range_value": value})


@pytest.mark.parametrize("name", ["learning_rate", "clip_range", "gamma", "reward_scale"])
def test_nan_is_no_setting(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=nan: expected"):
        PPO("CartPole-v1", **{**SMALL, name: float("nan")})


def test_nan_of_the_policy_is_named() -> None:
    agent = PPO("CartPole-v1", **SMALL)
    agent.policy.parameters[5] = np.nan
    for use in (lambda: agent.learn(1), lambda: agent.predict(np.zeros(4)), agent.evaluate):
        with pytest.raises(FloatingPointError, match=r"policy.parameters\[5\] is nan"):
            use()
