"""Calls of `collect` and `simulate` one after the other, their memory, threads and arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import rlcpu
from rlcpu.envs.rollout.collect import Rollout
from rlcpu.policies import Scalar, Uniform
from tests.envs.rollouts import FIELDS, LIMIT, NUM_ENVS, Lean, assert_same, lean, make


def assert_equal(first: Rollout, second: Rollout) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)


def copy(rollout: Rollout) -> dict[str, np.ndarray]:
    return {name: getattr(rollout, name).copy() for name in FIELDS}


# ---------------------------------------------------------------- calls that follow each other


@pytest.mark.parametrize("case", ["CartPole-v1 tanh", "CartPole-v1 exact own", "Pendulum-v1 own"])
def test_two_calls_are_one_longer_call(case: str) -> None:
    (env, policy), (twin, same) = make(case), make(case)
    whole = rlcpu.collect(env, policy, 20)
    parts = [rlcpu.collect(twin, same, 12), rlcpu.collect(twin, same, 8)]
    for name in FIELDS:
        if name.startswith("last"):
            np.testing.assert_array_equal(getattr(parts[1], name), getattr(whole, name))
            continue
        first, second = (getattr(part, name) for part in parts)
        if name == "final_indices":
            second = np.add(second, [12, 0])
        joined = np.concatenate((first, second))
        np.testing.assert_array_equal(joined, getattr(whole, name), err_msg=name)
    np.testing.assert_array_equal(env.state, twin.state)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_a_call_may_ask_for_deterministic_actions(name: str) -> None:
    """The policy stays what it is set to; so does the next call."""
    (env, policy), (twin, greedy) = make(f"{name} tanh"), make(f"{name} greedy")
    for deterministic in (True, False):
        wanted = rlcpu.collect(twin, greedy if deterministic else policy, 8)
        assert_equal(rlcpu.collect(env, policy, 8, deterministic=deterministic), wanted)
        wanted = rlcpu.collect(twin, greedy, 4)
        assert_equal(rlcpu.collect(env, greedy, 4), wanted)
        for length in ({"num_steps": 9}, {"num_episodes": 5}):
            sums = rlcpu.simulate(twin, greedy if deterministic else policy, **length)
            assert rlcpu.simulate(env, policy, **length, deterministic=deterministic) == sums
            sums = rlcpu.simulate(twin, policy if deterministic else greedy, **length)
            assert rlcpu.simulate(env, greedy, **length, deterministic=not deterministic) == sums
    assert (policy.deterministic, greedy.deterministic) == (False, True)


@pytest.mark.parametrize("policy", [Uniform(), Scalar(lean, Lean(), 2)], ids=repr)
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_function_says_itself_how_it_acts(policy: Any, deterministic: bool) -> None:
    env, _ = make("CartPole-v1 tanh")
    message = f"deterministic={deterministic}: {type(policy).__name__} says itself how it acts"
    with pytest.raises(TypeError, match=message):
        rlcpu.collect(env, policy, 2, deterministic=deterministic)
    for length in ({"num_steps": 2}, {"num_episodes": 2}):
        with pytest.raises(TypeError, match=message):
            rlcpu.simulate(env, policy, **length, deterministic=deterministic)


@pytest.mark.parametrize("deterministic", [1, "yes", np.nan])
def test_deterministic_is_a_bool(deterministic: Any) -> None:
    env, policy = make("CartPole-v1 tanh")
    with pytest.raises(TypeError, match=r"deterministic=.*: expected True, False or None"):
        rlcpu.collect(env, policy, 2, deterministic=deterministic)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_collecting_and_stepping_mix(mode: AutoresetMode) -> None:
    """Returns and lengths count the steps of both."""
    env = rlcpu.make_vec("CartPole-v1", 3, max_episode_steps=12, autoreset_mode=mode)
    env.reset(seed=0)
    env.state = np.zeros((3, 4))
    left = Scalar(lean, Lean(gain=0.0, noise=0.0), 2)
    actions = np.ones(3, np.int64)
    for _ in range(4):
        assert not env.step(actions)[2].any()
    rollout = rlcpu.collect(env, left, 5)
    assert len(rollout.final_indices) == 0
    for _ in range(2):
        env.step(actions)
    rollout = rlcpu.collect(env, left, 3)
    assert rollout.final_indices.tolist() == [[0, 0], [0, 1], [0, 2]]
    assert rollout.episode_lengths.tolist() == [12] * 3
    assert rollout.episode_returns.tolist() == [12.0] * 3
    assert rollout.truncated[0].all()
    ended = [env.step(np.full(3, step % 2))[2:4] for step in range(10)]
    assert not np.array(ended[:-1]).any()
    assert np.array(ended[-1]).tolist() == [[False] * 3, [True] * 3]


def test_collecting_begins_where_a_finished_episode_waits() -> None:
    """In next-step mode the reset that `env.step` owes comes first."""
    env = rlcpu.make_vec("CartPole-v1", NUM_ENVS, max_episode_steps=5)
    env.reset(seed=0)
    for _ in range(5):
        *_, truncated, _ = env.step(np.zeros(NUM_ENVS, np.int64))
    assert truncated.all()
    rollout = rlcpu.collect(env, Uniform(), 5)
    assert (np.abs(rollout.observations[0]) <= 0.05).all()
    assert rollout.truncated.sum(axis=0).tolist() == [1] * NUM_ENVS
    assert (rollout.episode_lengths == 5).all()
    assert (rollout.episode_returns == 5).all()


def test_environment_that_was_never_reset_is_reset() -> None:
    env = rlcpu.make_vec("CartPole-v1", 3)
    assert rlcpu.collect(env, Uniform(), 1).observations.all()


def test_out_is_used_again() -> None:
    env, policy = make("CartPole-v1 tanh")
    twin, _ = make("CartPole-v1 tanh")
    first = rlcpu.collect(env, policy, 20)
    kept = copy(first)
    large = [
        name for name in FIELDS if name in kept and first.rewards.shape == kept[name].shape[:2]
    ]
    addresses = {name: getattr(first, name).ctypes.data for name in large}
    assert len(large) == 8
    second = rlcpu.collect(env, policy, 20, out=first)
    assert second is first
    assert {name: getattr(second, name).ctypes.data for name in large} == addresses
    for name, values in copy(rlcpu.collect(twin, policy, 20)).items():
        np.testing.assert_array_equal(values, kept[name])
    assert_equal(second, rlcpu.collect(twin, policy, 20))


def test_out_of_a_policy_with_values_serves_one_without() -> None:
    env, policy = make("CartPole-v1 tanh")
    rollout = rlcpu.collect(env, policy, 20)
    assert rollout.final_values.any()
    rlcpu.collect(env, Uniform(), 20, out=rollout)
    for name in ("values", "final_values", "last_values"):
        assert not getattr(rollout, name).any()


@pytest.mark.parametrize(
    ("options", "num_steps", "message"),
    [
        ({"num_envs": 4}, 6, r"out has \(6, 3\) steps and environments .*: expected \(6, 4\)"),
        ({"num_envs": 3}, 7, r"out has \(6, 3\) steps and environments .*: expected \(7, 3\)"),
        ({"num_envs": 6}, 3, r"out has \(6, 3\) steps and environments .*: expected \(3, 6\)"),
        ({"num_envs": 3, "dtype": "float64"}, 6, "of float32: expected .* of float64"),
        ({"num_envs": 3, "name": "MountainCar-v0"}, 6, "the spaces of MountainCar-v0"),
        ({"num_envs": 3, "name": "Pendulum-v1"}, 6, "the spaces of Pendulum-v1"),
    ],
)
def test_out_that_does_not_fit(options: dict[str, Any], num_steps: int, message: str) -> None:
    rollout = rlcpu.collect(rlcpu.make_vec("CartPole-v1", 3), Uniform(), 6)
    kept = copy(rollout)
    name = options.pop("name", "CartPole-v1")
    env = rlcpu.make_vec(name, **options)
    env.reset(seed=0)
    before = env.state
    with pytest.raises(ValueError, match=message):
        rlcpu.collect(env, Uniform(), num_steps, out=rollout)
    np.testing.assert_array_equal(env.state, before)
    for field, values in kept.items():
        np.testing.assert_array_equal(getattr(rollout, field), values)


# ---------------------------------------------------------------- simulate


SIMULATED = ["CartPole-v1 uniform", "CartPole-v1 exact own", "CartPole-v1 tanh", "Pendulum-v1 tanh"]


@pytest.mark.parametrize("case", SIMULATED)
def test_simulate_goes_the_way_of_collect(case: str) -> None:
    """Over more than 256 steps, after which float32 sums are added up in float64."""
    (env, policy), (twin, same) = make(case), make(case)
    for each, its in ((env, policy), (twin, same)):
        rlcpu.collect(each, its, 4)  # begin in the middle of episodes
    statistics = rlcpu.simulate(env, policy, 300)
    rollout = rlcpu.collect(twin, same, 300)
    assert_same(env.state, twin.state)
    returns = rollout.episode_returns
    assert statistics.num_steps == 300 * NUM_ENVS
    assert statistics.num_episodes == len(returns)
    assert statistics.mean_length == pytest.approx(rollout.episode_lengths.mean(), rel=1e-12)
    assert statistics.mean_return == pytest.approx(returns.mean(), rel=1e-5)
    assert statistics.std_return == pytest.approx(returns.std(), rel=1e-3, abs=1e-3)


def test_simulate_without_an_end() -> None:
    env, policy = make("Pendulum-v1 tanh", num_envs=3, max_episode_steps=200)
    statistics = rlcpu.simulate(env, policy, 10)
    assert (statistics.num_steps, statistics.num_episodes) == (30, 0)
    assert math.isnan(statistics.mean_return)
    assert math.isnan(statistics.std_return)
    assert math.isnan(statistics.mean_length)


# ---------------------------------------------------------------- threads


@pytest.mark.parallel
@pytest.mark.parametrize("case", ["CartPole-v1 tanh", "Pendulum-v1 own"])
def test_serial_and_parallel_give_the_same_bits(case: str) -> None:
    """300 environments are five blocks, the last of 44."""
    rollouts, statistics, states = [], [], []
    for num_threads in (1, 2, None):
        env, policy = make(case, num_envs=300, num_threads=num_threads)
        rollouts.append(rlcpu.collect(env, policy, 40))
        statistics.append(rlcpu.simulate(env, policy, 80))
        states.append(env.state)
    for i in (1, 2):
        assert_equal(rollouts[0], rollouts[i])
        assert statistics[0] == statistics[i]
        np.testing.assert_array_equal(states[0], states[i])


def test_environments_of_a_batch_do_not_touch_each_other() -> None:
    """Three of a batch of 70, and of one of 3: the network sees 64, 16 or 6 lanes."""
    env, policy = make("CartPole-v1 tanh")
    part, _ = make("CartPole-v1 tanh", num_envs=3)
    whole, few = rlcpu.collect(env, policy, 20), rlcpu.collect(part, policy, 20)
    for name in ("observations", "actions", "log_probs", "values", "rewards", "terminated"):
        np.testing.assert_array_equal(getattr(whole, name)[:, :3], getattr(few, name))


# ---------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"env": "CartPole-v1"}, TypeError, "env='CartPole-v1': expected a rlcpu VectorEnv"),
        ({"policy": None}, TypeError, "policy=None: expected one of rlcpu.policies"),
        ({"policy": Uniform}, TypeError, "policy=<class .*: expected one of rlcpu.policies"),
        ({"policy": lean}, TypeError, "policy=<function .*: expected one of rlcpu.policies"),
        ({"num_steps": 0}, ValueError, "num_steps=0: expected at least 1"),
        ({"num_steps": 1.5}, TypeError, "num_steps=1.5: expected an int"),
        ({"num_steps": True}, TypeError, "num_steps=True: expected an int"),
    ],
)
@pytest.mark.parametrize("function", [rlcpu.collect, rlcpu.simulate])
def test_bad_arguments(
    function: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    env = rlcpu.make_vec("CartPole-v1", 3)
    env.reset(seed=0)
    before = env.state
    with pytest.raises(error, match=message):
        function(**{"env": env, "policy": Uniform(), "num_steps": 2, **arguments})
    np.testing.assert_array_equal(env.state, before)


def test_out_has_to_be_a_rollout() -> None:
    with pytest.raises(TypeError, match="out=dict: expected a Rollout"):
        rlcpu.collect(rlcpu.make_vec("CartPole-v1", 3), Uniform(), 2, out={})  # type: ignore[arg-type]


def test_results_and_policies_say_what_is_in_them() -> None:
    env, policy = make("CartPole-v1 tanh")
    rollout = rlcpu.collect(env, policy, 2 * LIMIT)
    assert repr(policy) == "MLP(4-20-7-2 tanh, value='separate', 518 parameters)"
    ended = len(rollout.episode_returns)
    assert repr(rollout).startswith(
        f"Rollout(18 steps of 70 environments, {ended} episodes ended, mean return 9"
    )
    assert "<td>observations</td><td>float32</td><td>(18, 70, 4)</td>" in rollout._repr_html_()
    statistics = rlcpu.simulate(env, policy, 2)
    assert "<td>num_steps</td><td>140</td>" in statistics._repr_html_()
    assert repr(make("CartPole-v1 uniform")[1]) == "Uniform()"
    own = make("CartPole-v1 own")[1]
    assert repr(own) == "Scalar(lean, params=Lean(gain=3.0, noise=0.05), draws=2)"
