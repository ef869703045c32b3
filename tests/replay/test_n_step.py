"""n-step returns against a loop over a list of steps."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from rlcpu.replay import PrioritizedReplayBuffer, ReplayBuffer

EXAMPLE = {
    "observation": 0,
    "next_observation": {"a": 0, "b": np.zeros(2, np.float32)},
    "reward": 0.0,
    "terminated": False,
    "truncated": False,
}


def make_batch(rng, first, num_steps, envs):
    lead = (num_steps, envs)
    number = first + np.arange(num_steps * envs).reshape(lead)
    return {
        "observation": number,
        "next_observation": {
            "a": number + 10**6,
            "b": np.repeat(number[..., None], 2, -1).astype(np.float32),
        },
        "reward": rng.normal(size=lead),
        "terminated": rng.random(lead) < 0.15,
        "truncated": rng.random(lead) < 0.15,
    }


def expected_of(history, env, time, n, gamma):
    """Return, discount and time of the last step, of a list of batches' rows."""
    total, discount = 0.0, 1.0
    for k in range(n):
        step = history[time + k]
        if discount != 0.0:  # a term with the factor 0 is no term
            total += discount * step["reward"][env]
        discount *= gamma
        ended = step["terminated"][env] or step["truncated"][env]
        if ended or k == n - 1 or time + k + 1 == len(history):
            return total, discount, time + k
    raise AssertionError


@given(st.data())
@settings(max_examples=80, deadline=None)
@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_returns(kind, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    envs, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 15))
    n, gamma = data.draw(st.integers(2, 6)), data.draw(st.sampled_from([0.0, 0.5, 0.99, 1.0]))
    options = {"num_envs": envs, "n_step": n, "gamma": gamma, "seed": 0}
    buffer, history = kind(envs * length, EXAMPLE, **options), []
    for num_steps in data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=5)):
        batch = make_batch(rng, len(history) * envs, num_steps, envs)
        batch["reward"][rng.random((num_steps, envs)) < 0.1] = rng.choice([np.nan, np.inf])
        buffer.add(batch)
        names = ("observation", "reward", "terminated", "truncated")
        history += [{name: batch[name][t] for name in names} for t in range(num_steps)]
        out = buffer.sample(30)
        for k in range(30):
            time, env = divmod(int(out["observation"][k]), envs)
            assert time >= len(history) - length
            total, discount, last = expected_of(history, env, time, n, gamma)
            np.testing.assert_equal(out["reward"][k], total)
            assert out.discounts[k] == np.float32(discount)
            number = last * envs + env
            assert out["next_observation"]["a"][k] == number + 10**6
            assert (out["next_observation"]["b"][k] == number).all()
            assert out["terminated"][k] == history[last]["terminated"][env]
            assert out["truncated"][k] == history[last]["truncated"][env]


def test_one_environment_without_axis(tmp_path):
    example = {"reward": np.float32(0), "terminated": False}
    buffer = ReplayBuffer(10, example, n_step=3, gamma=0.5, truncated=False, seed=0)
    rewards = np.ones(4, np.float32)
    buffer.add({"reward": rewards, "terminated": np.array([False, True, False, False])})
    batch = buffer.sample(200)
    expected = np.array([1.5, 1.0, 1.5, 1.0], np.float32)
    np.testing.assert_array_equal(batch["reward"], expected[batch.indices])
    np.testing.assert_array_equal(batch["terminated"], batch.indices < 2)
    buffer.save(tmp_path / "b")
    loaded = ReplayBuffer.load(tmp_path / "b")
    assert (loaded.n_step, loaded.gamma, loaded.truncated) == (3, 0.5, False)
    np.testing.assert_array_equal(loaded.sample(9)["reward"], buffer.sample(9)["reward"])


def test_sums_end_where_an_episode_is_cut():
    """Rewards 1 up to the end of an episode, and 10 after it."""
    batch = {
        "reward": np.array([1.0, 1.0, 10.0, 10.0]),
        "terminated": np.zeros(4, bool),
        "truncated": np.array([False, True, False, False]),
    }
    example = {name: column[0] for name, column in batch.items()}
    buffer = ReplayBuffer(4, example, n_step=3, gamma=1.0, seed=0)
    buffer.add(batch)
    drawn = buffer.sample(100)
    np.testing.assert_array_equal(drawn["reward"], np.array([2, 1, 20, 10])[drawn.indices])

    example.pop("truncated")
    with pytest.raises(ValueError, match="n_step=3: example has no field 'truncated'"):
        ReplayBuffer(4, example, n_step=3)
    assert not ReplayBuffer(4, example, n_step=3, truncated=False).truncated
    assert ReplayBuffer(4, example).n_step == 1  # single steps do not add up


@pytest.mark.parametrize(
    ("example", "options", "message"),
    [
        ({"terminated": False}, {"n_step": 2}, "no field 'reward'"),
        ({"reward": 0.0}, {"n_step": 2}, "no field 'terminated'"),
        ({"reward": 0, "terminated": False}, {"n_step": 2}, "'reward' field is int64"),
        (
            {"reward": np.float16(0), "terminated": False},
            {"n_step": 2},
            "'reward' field is float16",
        ),
        ({"reward": np.zeros(2), "terminated": False}, {"n_step": 2}, r"\(2,\)"),
        ({"reward": 0.0, "terminated": 0}, {"n_step": 2}, "one bool"),
        (
            {"reward": 0.0, "terminated": False, "truncated": 0},
            {"n_step": 2},
            "'truncated' field is int64",
        ),
        (EXAMPLE, {"n_step": 2, "truncated": False}, "truncated=False, n_step=2: example has"),
        ({"reward": 0.0}, {"n_step": 0}, "n_step=0"),
        ({"reward": 0.0}, {"gamma": 1.5}, "gamma=1.5"),
    ],
)
def test_bad_arguments(example, options, message):
    with pytest.raises(ValueError, match=message):
        ReplayBuffer(10, example, **options)
    with pytest.raises(TypeError, match="truncated=1: expected a bool"):
        ReplayBuffer(10, example, truncated=1)
