"""Hindsight replay against lists of episodes: which goals may replace which, and how often."""

from __future__ import annotations

import copy
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from rlcpu.replay import HindsightReplayBuffer, ReplayBuffer

GOALS = {"achieved_goal": np.zeros(2), "desired_goal": np.zeros(2), "speed": np.float32(0)}
EXAMPLE = {
    "observation": GOALS,
    "next_observation": GOALS,
    "reward": np.float32(0),
    "terminated": False,
    "truncated": False,
}
#: The goal that all episodes pursue.
PURSUED = np.array([-7.0, -7.0])


def compute_reward(achieved, desired):
    """The difference of goals, which names both; terminated where the desired one is even."""
    return achieved[:, 0] - 10 * desired[:, 0], desired[:, 0] % 2 == 0


class Episodes:
    """Random steps of environments, as lists, and which of them an episode has."""

    def __init__(self, rng, num_envs):
        self.rng, self.num_envs = rng, num_envs
        self.steps = [[] for _ in range(num_envs)]  # (achieved, next achieved, terminated, cut)
        self.begins = [[] for _ in range(num_envs)]  # of each step, the first one of its episode
        self.number = 0.0

    def next_number(self):
        self.number += 1
        return self.number

    def take(self, num_steps):
        """More steps of all environments, as a batch (num_steps, num_envs, ...)."""
        rows = [[self.step(env) for env in range(self.num_envs)] for _ in range(num_steps)]
        achieved, reached, terminated, truncated = (
            np.array([[step[k] for step in row] for row in rows]) for k in range(4)
        )
        return batch_of(achieved, reached, terminated, truncated)

    def step(self, env):
        steps, begins = self.steps[env], self.begins[env]
        # Now and then somebody resets an environment, and no flag tells.
        goes_on = steps and not (steps[-1][2] or steps[-1][3]) and self.rng.random() > 0.05
        achieved = steps[-1][1] if goes_on else self.next_number()
        terminated, truncated = self.rng.random(2) < 0.15
        begins.append(begins[-1] if goes_on else len(steps))
        steps.append((achieved, self.next_number(), bool(terminated), bool(truncated)))
        return steps[-1]

    def goals_of(self, env, step, goal, oldest):
        """The steps whose goals a step may get, none if its episode has not ended."""
        begins = self.begins[env]
        episode = [s for s, begin in enumerate(begins) if begin == begins[step]]
        last = episode[-1]
        if last == len(begins) - 1 and not any(self.steps[env][last][2:]):
            return []
        if goal == "final":
            return [last]
        return [s for s in episode if s >= (step if goal == "future" else oldest)]


def batch_of(achieved, reached, terminated, truncated):
    def observation(numbers):
        goals = np.stack((numbers, -numbers), axis=-1)
        return {
            "achieved_goal": goals,
            "desired_goal": np.broadcast_to(PURSUED, goals.shape),
            "speed": numbers.astype(np.float32),
        }

    return {
        "observation": observation(achieved),
        "next_observation": observation(reached),
        "reward": -reached.astype(np.float32),
        "terminated": terminated,
        "truncated": truncated,
    }


def check(buffer, batch, episodes, goal, ratio):
    """Compare a batch with the lists; return which goals were drawn, by (environment, step)."""
    length = buffer.capacity // episodes.num_envs
    added = len(episodes.steps[0])
    oldest, drawn = max(added - length, 0), {}

    def find(index):
        """The environment and the step of an index."""
        env, slot = divmod(int(index), length)
        return env, max(s for s in range(added) if s % length == slot)

    before, after = batch["observation"], batch["next_observation"]
    for b, (index, source) in enumerate(zip(batch.indices, batch.goals, strict=True)):
        env, step = find(index)
        achieved, reached, terminated, truncated = episodes.steps[env][step]
        assert before["speed"][b] == np.float32(achieved)
        assert before["achieved_goal"][b].tolist() == [achieved, -achieved]
        assert after["achieved_goal"][b].tolist() == [reached, -reached]
        assert batch["truncated"][b] == truncated
        np.testing.assert_array_equal(before["desired_goal"][b], after["desired_goal"][b])
        allowed = episodes.goals_of(env, step, goal, oldest)
        if source < 0:
            assert ratio < 1 or not allowed
            np.testing.assert_array_equal(before["desired_goal"][b], PURSUED)
            assert batch["reward"][b] == np.float32(-reached)
            assert batch["terminated"][b] == terminated
            continue
        goal_env, goal_step = find(source)
        assert (goal_env, goal_step in allowed) == (env, True)
        desired = episodes.steps[env][goal_step][1]
        assert before["desired_goal"][b].tolist() == [desired, -desired]
        assert batch["reward"][b] == np.float32(reached - 10 * desired)
        assert batch["terminated"][b] == (desired % 2 == 0)
        drawn.setdefault((env, step), []).append(goal_step)
    return drawn


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_goals(data):
    """Steps of the same episode that are there: for "future" none before the step itself."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    num_envs, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 12))
    goal = data.draw(st.sampled_from(["future", "final", "episode"]))
    ratio = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    options = {"num_envs": num_envs, "goal": goal, "ratio": ratio, "seed": 3}
    buffer = HindsightReplayBuffer(
        num_envs * length, EXAMPLE, compute_reward=compute_reward, **options
    )
    episodes = Episodes(rng, num_envs)
    for num_steps in data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=6)):
        buffer.add(episodes.take(num_steps))
        check(buffer, buffer.sample(40), episodes, goal, ratio)


@pytest.mark.parametrize("goal", ["future", "final", "episode"])
def test_frequencies(goal):
    """All goals of a step are as likely, and `ratio` of the steps of ended episodes get one."""
    episodes = Episodes(np.random.default_rng(1), 2)
    buffer = HindsightReplayBuffer(
        32, EXAMPLE, num_envs=2, compute_reward=compute_reward, goal=goal, ratio=0.7, seed=0
    )
    for _ in range(9):
        buffer.add(episodes.take(5))
    count = 40_000
    drawn = check(buffer, buffer.sample(count), episodes, goal, 0.7)
    oldest = 45 - 16
    for (env, step), steps in drawn.items():
        allowed = episodes.goals_of(env, step, goal, oldest)
        expected = 0.7 * count / 32 / len(allowed)
        for each in allowed:
            assert abs(steps.count(each) - expected) < 5 * expected**0.5
    with_goals = [
        (env, step)
        for env in range(2)
        for step in range(oldest, 45)
        if episodes.goals_of(env, step, goal, oldest)
    ]
    assert sorted(drawn) == with_goals


def filled(seed=0, **options):
    buffer = HindsightReplayBuffer(
        30, EXAMPLE, num_envs=3, compute_reward=compute_reward, seed=seed, **options
    )
    episodes = Episodes(np.random.default_rng(5), 3)
    buffer.add(episodes.take(17))
    return buffer, episodes


def assert_same(one, other):
    for name in ("observation", "next_observation"):
        for part in one[name]:
            np.testing.assert_array_equal(one[name][part], other[name][part])
    for name in ("reward", "terminated", "truncated"):
        np.testing.assert_array_equal(one[name], other[name])
    np.testing.assert_array_equal(one.indices, other.indices)
    np.testing.assert_array_equal(one.goals, other.goals)


@pytest.mark.parametrize("goal", ["future", "episode"])
def test_files_and_copies_go_on(goal, tmp_path):
    """Bit for bit, also where the checkpoint has lost the beginning of an episode that goes on."""
    buffer, episodes = filled(goal=goal, ratio=0.9)
    buffer.save(tmp_path / "saved")
    loaded = HindsightReplayBuffer.load(tmp_path / "saved")
    assert (loaded.goal, loaded.ratio, loaded.compute_reward) == (goal, 0.9, None)
    loaded.compute_reward = compute_reward
    others = [loaded, copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))]
    for num_steps in (1, 4, 1, 30):
        batch = episodes.take(num_steps)
        for each in (buffer, *others):
            each.add(batch)
        drawn = buffer.sample(50)
        check(buffer, drawn, episodes, goal, 0.9)
        for each in others:
            assert_same(drawn, each.sample(50))
    buffer.save(tmp_path / "saved")  # what has changed since
    again = HindsightReplayBuffer.load(tmp_path / "saved")
    assert_same(again.sample(20, compute_reward=compute_reward), buffer.sample(20))


def test_files_of_little(tmp_path):
    """Of an empty buffer, and of one whose environment has no axis."""
    buffer = HindsightReplayBuffer(6, EXAMPLE, compute_reward=compute_reward, ratio=1.0, seed=2)
    other = copy.deepcopy(buffer)
    other.save(tmp_path / "empty")
    other = HindsightReplayBuffer.load(tmp_path / "empty")
    other.compute_reward = compute_reward
    steps = Episodes(np.random.default_rng(0), 1).take(9)

    def without_env(batch):
        if isinstance(batch, dict):
            return {name: without_env(each) for name, each in batch.items()}
        return batch[:, 0]

    for each in (buffer, other):
        each.add(without_env(steps))
    assert_same(buffer.sample(30), other.sample(30))


def test_splits_of_steps_make_no_difference():
    one, other = filled()[0], filled()[0]
    steps = Episodes(np.random.default_rng(2), 3).take(40)
    one.add(steps)

    def part(batch, k):
        if isinstance(batch, dict):
            return {name: part(each, k) for name, each in batch.items()}
        return batch[k : k + 1]

    for k in range(40):
        other.add(part(steps, k))
    assert_same(one.sample(64), other.sample(64))


def test_draws_the_transitions_of_a_plain_buffer():
    """Of the same seed, the first batch; a ratio of 0 changes nothing of it."""
    buffer, _ = filled(ratio=0.0)
    plain = ReplayBuffer(30, EXAMPLE, num_envs=3, seed=0)
    plain.add(Episodes(np.random.default_rng(5), 3).take(17))
    one, other = buffer.sample(25), plain.sample(25)
    np.testing.assert_array_equal(one.indices, other.indices)
    np.testing.assert_array_equal(one["reward"], other["reward"])
    assert other.goals is None
    assert buffer.peek(25).goals is None


def test_memory_is_used_again():
    buffer, _ = filled()
    first = buffer.sample(16)
    indices, goals = first.indices, first.goals
    again = buffer.sample(16, out=first)
    assert again is first
    assert again.indices is not indices
    assert again.goals is not goals


def test_rewards_alone_leave_terminated_as_it_was():
    buffer, _ = filled(ratio=1.0)
    other = copy.deepcopy(buffer)
    one = buffer.sample(64, compute_reward=lambda a, d: np.float64(a[:, 0] > d[:, 0]))
    (terminated,) = other.structure.select("terminated")
    stored = other._storage.fields[terminated].reshape(-1)
    np.testing.assert_array_equal(one["terminated"], stored[one.indices])


def without(name):
    return {key: value for key, value in EXAMPLE.items() if key != name}


@pytest.mark.parametrize(
    ("example", "error", "message"),
    [
        ({**EXAMPLE, "observation": np.zeros(3)}, ValueError, "no field 'observation.achieved_go"),
        (without("next_observation"), ValueError, "no field 'next_observation.achieved_goal'"),
        (without("truncated"), ValueError, "no field 'truncated'"),
        ({**EXAMPLE, "reward": 0}, TypeError, "reward int64"),
        ({**EXAMPLE, "terminated": np.zeros(2, bool)}, TypeError, "terminated bool"),
        (
            {**EXAMPLE, "observation": {**GOALS, "desired_goal": np.zeros(3)}},
            ValueError,
            r"observation.desired_goal float64 \(3,\): expected float64 \(2,\)",
        ),
    ],
)
def test_examples_without_goals(example, error, message):
    with pytest.raises(error, match=message):
        HindsightReplayBuffer(10, example)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"goal": "past"}, ValueError, "goal='past': expected one of 'future', 'final', 'episode'"),
        ({"goal": ["final"]}, ValueError, r"goal=\['final'\]"),
        ({"ratio": 1.1}, ValueError, "ratio=1.1"),
        ({"ratio": -0.1}, ValueError, "ratio=-0.1"),
        ({"ratio": None}, TypeError, "ratio=None"),
        ({"ratio": float("nan")}, ValueError, "ratio=nan"),
        ({"compute_reward": 3}, TypeError, "compute_reward=3"),
        ({"n_step": 2}, TypeError, "n_step"),
        ({"derive_next": True}, TypeError, "derive_next"),
        ({"device": "cuda"}, NotImplementedError, "device='cuda'"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        HindsightReplayBuffer(10, EXAMPLE, **options)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (None, ValueError, "compute_reward=None"),
        (lambda a, d: None, TypeError, "rewards of object"),
        (lambda a, d: a, ValueError, r"rewards of shape \(40, 2\): expected \(40,\)"),
        (lambda a, d: 0.0, ValueError, r"rewards of shape \(\): expected \(40,\)"),
        (lambda a, d: (a[:, 0], a[:, 0]), TypeError, "terminated of float64: expected bools"),
        (lambda a, d: (a[:, 0], True), ValueError, r"terminated of shape \(\)"),
        (lambda a, d: (a[:, 0],) * 3, ValueError, "3 results: expected"),
    ],
)
def test_bad_rewards(function, error, message):
    buffer, _ = filled(ratio=1.0)
    buffer.compute_reward = None
    with pytest.raises(error, match=message):
        buffer.sample(40, compute_reward=function)


def test_nothing_to_draw():
    buffer = HindsightReplayBuffer(10, EXAMPLE, compute_reward=compute_reward)
    assert not buffer.can_sample(1)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)


def test_numbers_that_are_not_finite_pass():
    """As through any buffer; an episode ends where goals cannot be compared."""
    buffer = HindsightReplayBuffer(
        8, EXAMPLE, compute_reward=lambda a, d: a[:, 0] * d[:, 0], ratio=1.0, seed=0
    )
    reached = np.array([1.0, np.inf, np.nan, 4.0])
    flags = np.zeros(4, bool), np.array([False, False, False, True])
    buffer.add(batch_of(np.array([0.0, 1.0, np.inf, np.nan]), reached, *flags))
    batch = buffer.sample(200)
    assert set(batch.goals[batch.indices == 0]) == {0, 1, 2}
    assert set(batch.goals[batch.indices == 3]) == {3}
    assert np.isinf(batch["reward"][(batch.indices == 0) & (batch.goals == 1)]).all()
