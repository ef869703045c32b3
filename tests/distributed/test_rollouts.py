"""Rollouts whose parts are made by several collectors: those of one process, bit for bit."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import rlcpu
from rlcpu import nn
from rlcpu.distributed import rollouts
from rlcpu.distributed.rollouts import RolloutSession
from rlcpu.envs.contract.names import find
from rlcpu.policies import MLP, NetworkPolicy
from rlcpu.train import PQN
from rlcpu.train.running.actors import EpsilonGreedy
from tests.distributed.local import Here
from tests.envs.masked import TIC_TAC_TOE


@pytest.fixture
def divide(monkeypatch):
    """Function that makes a session of an environment and policy."""
    monkeypatch.setattr(rollouts, "Cluster", Here)

    def divide(env, policy, count):
        return RolloutSession(
            SimpleNamespace(env=env, policy=policy, history=SimpleNamespace()),
            num_collectors=count,
            address=None,
        )

    return divide


def greedy(env_id):
    return EpsilonGreedy(find(env_id), (8,))


def perceptron(env_id):
    dynamics = find(env_id)
    return MLP(dynamics.observation_space, dynamics.action_space, hidden=(8,), seed=1)


def remembering(env_id):
    dynamics = find(env_id)
    spaces = dynamics.observation_space, dynamics.action_space
    return NetworkPolicy.of_layers(*spaces, lambda space: nn.MinGru(20), "separate", seed=1)


SHOWN = (
    "observations",
    "actions",
    "log_probs",
    "values",
    "rewards",
    "terminated",
    "truncated",
    "states",
)
ENDS = ("last_observations", "final_observations", "final_indices", "episode_returns")
VALUES = ("last_values", "final_values", "episode_lengths", "action_masks")


@pytest.mark.parametrize(
    ("env_id", "make_policy", "num_envs", "count"),
    [
        ("CartPole-v1", greedy, 37, 3),
        ("Taxi-v4", greedy, 3, 2),
        pytest.param(TIC_TAC_TOE, greedy, 3, 3, id="TicTacToe-v0"),
        ("InvertedPendulum-v5", perceptron, 5, 2),
        ("CartPole-v1", remembering, 37, 3),
        ("InvertedPendulum-v5", remembering, 5, 2),
    ],
)
def test_parts_are_the_rollout_of_one_process(divide, env_id, make_policy, num_envs, count):
    """Also after a death, and after calls of all environments that no collector knows of."""
    make = {"num_envs": num_envs, "num_threads": 1, "max_episode_steps": 30}
    whole, divided = (rlcpu.make_vec(env_id, **make) for _ in range(2))
    policy = make_policy(env_id)
    for env in (whole, divided):
        env.reset(seed=4)
    session = divide(divided, policy, count)
    for round_ in range(3):
        if round_:
            policy.state()["parameters"][...] *= 0.9
            env_mask = np.arange(num_envs) % 2 == 0
            for env in (whole, divided):
                env.reset(options={"reset_mask": env_mask})
        else:
            session.cluster.dying.append(1)
        expected = rlcpu.collect(whole, policy, 25)
        found = session.collect(divided, policy, 25)
        for name in (*SHOWN, *ENDS, *VALUES):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
        for name, array in divided.engine.take(slice(None)).items():
            np.testing.assert_array_equal(array, whole.engine.take(slice(None))[name], name)
    assert found.terminated.any() or found.truncated.any()
    ledger = session.ledger
    ledger.check()
    assert (ledger.received, ledger.collector_restarts) == (3 * 25 * num_envs, 1)
    assert ledger.lost_with_collectors == ledger.requested - ledger.received > 0


def test_the_environment_that_showed_nan_is_named(divide):
    env, policy = rlcpu.make_vec("CartPole-v1", num_envs=5, num_threads=1), greedy("CartPole-v1")
    env.reset(seed=0)
    session = divide(env, policy, 2)
    env.engine.real[0, 3] = np.nan  # the first number of environment 3's state
    with pytest.raises(FloatingPointError, match="environment 3"):
        session.collect(env, policy, 4)
    session.collect(env, policy, 4)  # a new episode has begun there


@pytest.mark.parametrize("normalizes", [False, True])
def test_pqn_learns_bit_for_bit_what_one_process_learns(monkeypatch, normalizes):
    monkeypatch.setattr(rollouts, "Cluster", Here)
    curves, settings = (
        [],
        dict.fromkeys(("normalize_observations", "normalize_rewards"), normalizes),
    )
    for options in ({}, {"num_collectors": 3}):
        agent = PQN("CartPole-v1", seed=1, hidden=(8,), **settings)
        curves.append((agent.learn(2048, **options).curve, agent.policy.state()))
    np.testing.assert_equal(curves[0], curves[1])
    assert agent.ledger.received == agent.steps == 2048
