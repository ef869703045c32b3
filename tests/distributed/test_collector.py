"""Collectors: n-step transitions, and a policy whose numbers are sent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.distributed import Collector, ReplayShard
from rlcpu.distributed.collector import CollectorBase, n_step_transitions, pin_all
from rlcpu.envs.contract.names import find
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.replay import PrioritizedReplayBuffer, ReplayBuffer
from rlcpu.train import DQN, QRDQN
from rlcpu.train.running.actors import EpsilonGreedy
from tests.distributed.local import Local
from tests.envs.masked import TIC_TAC_TOE


@given(
    steps=st.integers(1, 12),
    num_envs=st.integers(1, 3),
    n=st.integers(1, 5),
    gamma=st.sampled_from([0.9, 0.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_n_step_transitions_are_those_of_a_plain_loop(steps, num_envs, n, gamma, seed):
    rng = np.random.default_rng(seed)
    shape = steps, num_envs
    rows = {
        "observation": rng.normal(size=(*shape, 2)).astype(np.float32),
        "action": rng.integers(3, size=shape),
        "reward": rng.normal(size=shape).astype(np.float32),
        "next_observation": rng.normal(size=(*shape, 2)).astype(np.float32),
        "terminated": rng.random(shape) < 0.2,
        "truncated": rng.random(shape) < 0.2,
    }
    rows["reward"][rng.random(shape) < 0.1] = rng.choice([np.nan, np.inf])
    made, count = n_step_transitions(rows, n, gamma)
    assert count == max(steps - n + 1, 0)
    for t in range(count):
        for i in range(num_envs):
            reward, discount = 0.0, 1.0
            for last in range(t, t + n):
                if discount != 0.0:  # a term with the factor 0 is no term
                    reward += discount * rows["reward"][last, i]
                discount *= gamma
                if rows["terminated"][last, i] or rows["truncated"][last, i]:
                    break
            np.testing.assert_allclose(made["reward"][t, i], reward, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(made["discount"][t, i], discount, rtol=1e-6)
            for name in ("next_observation", "terminated", "truncated"):
                np.testing.assert_array_equal(made[name][t, i], rows[name][last, i])
            for name in ("observation", "action"):
                np.testing.assert_array_equal(made[name][t, i], rows[name][t, i])


def test_steps_that_wait_for_their_end_come_with_the_next_block():
    policy = EpsilonGreedy(find("CartPole-v1"), (8,))
    collector = Collector("CartPole-v1", policy, num_envs=2, seed=0, n_step=3, gamma=0.5)
    sizes = [collector.collect(policy.state(), 4)[2].size for _ in range(3)]
    assert sizes == [4, 8, 8]  # the first two steps of each environment are carried on
    block, priorities, made = collector.collect(policy.state(), 1)
    assert priorities is None
    assert made.size == len(block["reward"]) == 2
    assert block["observation"].shape == (2, 4)
    assert block["discount"].dtype == np.float32


def test_the_policy_has_the_numbers_that_were_sent():
    policy = EpsilonGreedy(find("CartPole-v1"), (8,), seed=1)
    collector = Collector("CartPole-v1", policy, num_envs=4, seed=0)
    numbers = {name: array.copy() for name, array in policy.state().items()}
    numbers["parameters"][:] = 0.0
    numbers["parameters"][-1] = 1.0  # the last bias: always the second action
    numbers["params"][0] = 0.0
    block, _, _ = collector.collect(numbers, 50)
    assert (block["action"] == 1).all()
    assert policy.network.parameters.any()  # the caller's own are as they were


@pytest.mark.parametrize("env", ["Taxi-v4", pytest.param(TIC_TAC_TOE, id="TicTacToe-v0")])
def test_columns_are_those_of_the_example(env):
    """Masks, choices and planes too, in the dtypes that the learner's buffer has."""
    policy = EpsilonGreedy(find(env), (8,))
    collector = Collector(env, policy, num_envs=2, seed=0, n_step=2, prioritized=True)
    example = {**example_of(env), "discount": np.float32(0)}
    options = {"capacity": 30, "example": example, "alpha": 1.0, "epsilon": 0.0}
    shard = ReplayShard(PrioritizedReplayBuffer, options)
    block, priorities, made = collector.collect(policy.state(), 20)
    status = shard.add(shard.status().life, 0, block, priorities)
    assert status.added == made.size == 38
    np.testing.assert_allclose(status.total, priorities[-30:].sum(), rtol=1e-6)


@pytest.mark.parametrize(("kind", "dueling"), [(DQN, False), (DQN, True), (QRDQN, False)])
def test_priorities_are_the_errors_that_agents_compute(kind, dueling):
    """Of an agent whose target network is still the one that it learns."""
    agent = kind(
        "CartPole-v1", seed=2, hidden=(8,), dueling=dueling, reward_scale=0.5, batch_size=64
    )
    collector = Collector(
        *("CartPole-v1", agent.policy),
        num_envs=3,
        seed=0,
        n_step=3,
        gamma=0.9,
        prioritized=True,
        reward_scale=0.5,
    )
    block, priorities, _ = collector.collect(agent.policy.state(), 60)
    assert block["terminated"].any()
    buffer = ReplayBuffer(len(priorities), {**example_of("CartPole-v1"), "discount": np.float32(0)})
    buffer.add(block)
    batch = buffer.sample(64)
    batch.discounts = batch["discount"]
    agent.learner.update(
        agent._columns(batch), minibatch_size=64, normalise=agent._normalisation,
        **agent._options(),
    )  # fmt: skip
    assert batch["terminated"].any()
    errors = abs(agent.learner.per_sample["error"])
    np.testing.assert_allclose(priorities[batch.indices], errors, rtol=1e-4, atol=1e-5)


def test_collectors_of_a_machine_divide_its_cpus(monkeypatch):
    pinned = []
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cpus: pinned.append(cpus))
    for nodes in ([[0, 1, 2]], [[0, 1], [2, 3]]):
        monkeypatch.setattr("rlcpu.distributed.collector.numa_nodes", lambda nodes=nodes: nodes)
        machines = ["one", "two", "one", "one"]
        collectors = [Local(lambda: CollectorBase(None)) for _ in machines]
        for collector, machine in zip(collectors, machines, strict=True):
            collector.object.machine = lambda machine=machine: machine
        pin_all(collectors)
        for collector in collectors:
            collector.work()
    assert pinned == [[0], [0, 1], [2, 3], [1]]  # nobody is pinned where there is one node
