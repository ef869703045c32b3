"""What counts as a count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu.kernels.checks import check_count
from rlcpu.replay import ReplayBuffer, SumTree, TrajectoryBuffer
from rlcpu.scan import nstep_returns


@pytest.mark.parametrize(
    "value", [1000, 1e3, np.float32(1e3), np.int8(100), np.uint64(7), np.array(5), 1.0]
)
def test_whole_numbers_are_counts(value: Any) -> None:
    count = check_count("n", value)
    assert type(count) is int
    assert count == value


@pytest.mark.parametrize(
    "value",
    [True, np.True_, 1.5, np.nan, np.inf, -np.inf, "4", None, [4], np.array([4, 5]), 2 + 0j],
)
def test_anything_else_is_no_count(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^n=.*: expected an int of at least 1$"):
        check_count("n", value)


def test_counts_have_limits() -> None:
    assert check_count("n", 0, 0) == 0
    with pytest.raises(ValueError, match=r"^n=0: expected at least 1$"):
        check_count("n", 0.0)
    with pytest.raises(ValueError, match=rf"^n=1{'0' * 400}: expected less than 281474976710656$"):
        check_count("n", 10**400)


def test_whole_floats_are_taken_where_a_count_is_meant() -> None:
    env = rlcpu.make_vec("CartPole-v1", 1e1, max_episode_steps=1e2)  # type: ignore[arg-type]
    assert (env.num_envs, env.max_episode_steps) == (10, 100)
    statistics = rlcpu.simulate(env, rlcpu.policies.Uniform(), 2e1)  # type: ignore[arg-type]
    assert statistics.num_steps == 200
    buffer = ReplayBuffer(1e2, 0.0, num_envs=2.0, n_step=1.0)  # type: ignore[arg-type]
    buffer.add(np.zeros((3, 2)))
    assert (buffer.capacity, buffer.num_envs, len(buffer.sample(4.0))) == (100, 2, 4)  # type: ignore[arg-type]
    assert TrajectoryBuffer(2.0, 8.0, 0.0, 4.0, 2.0).length == 8  # type: ignore[arg-type]
    assert SumTree(1e2).capacity == 100  # type: ignore[arg-type]
    ones, going = np.ones((3, 1)), np.zeros((3, 1), np.bool_)
    returns = nstep_returns(ones, ones, going, going, np.ones(1), n=2.0, gamma=0.5)  # type: ignore[arg-type]
    np.testing.assert_array_equal(returns.ravel(), [1.75, 1.75, 1.5])
