"""All buffers against lists of transitions, and what they refuse."""

import dataclasses
from typing import NamedTuple

import gymnasium
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from rlcpu.replay import (
    ItemBuffer,
    Mixer,
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    SumTree,
    TrajectoryBuffer,
)
from tests.replay.naive import EXAMPLE, NaiveRing, steps, take


def squeeze(batch):
    """(T, 1, ...) leaves as (T, ...)."""
    if isinstance(batch, dict):
        return {name: squeeze(value) for name, value in batch.items()}
    return batch[:, 0]


@given(st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_transitions(kind, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    num_envs = data.draw(st.sampled_from([None, 1, 3]))
    envs, length = num_envs or 1, data.draw(st.integers(1, 12))
    buffer = kind(length * envs + envs - 1, EXAMPLE, num_envs=num_envs, seed=0)
    oracle = NaiveRing(envs, length)
    assert not buffer.can_sample()
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    for num_steps in data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=6)):
        batch = steps(rng, num_steps, envs)
        buffer.add(squeeze(batch) if num_envs is None else batch)
        oracle.add(batch, num_steps)
        assert len(buffer) == len(oracle.rows)
        if oracle.rows:
            out = buffer.sample(17)
            assert buffer.sample(17, out=out) is out
            found = {i: oracle.rows[divmod(i, length)] for i in out.indices.tolist()}
            for k, i in enumerate(out.indices.tolist()):
                assert take(out.data, k) == found[i]
        if oracle.rows and kind is PrioritizedReplayBuffer:
            assert np.count_nonzero(buffer._sampler.tree.leaves) == len(buffer)
            buffer.update_priorities(out.indices, rng.random(17))


@given(st.data())
@settings(max_examples=80, deadline=None)
@pytest.mark.parametrize("kind", [TrajectoryBuffer, PrioritizedTrajectoryBuffer])
def test_sequences(kind, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    period, envs = data.draw(st.sampled_from([1, 2, 3])), data.draw(st.integers(1, 3))
    length = period * data.draw(st.integers(1, 6))
    steps_long = data.draw(st.integers(1, length))
    buffer = kind(envs, length, EXAMPLE, steps_long, period, seed=0)
    oracle = NaiveRing(envs, length)
    for num_steps in data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=8)):
        batch = steps(rng, num_steps, envs)
        buffer.add(batch)
        oracle.add(batch, num_steps)
        starts = oracle.starts(steps_long, period)
        assert buffer.can_sample() == bool(starts)
        if kind is PrioritizedTrajectoryBuffer:
            alive = np.flatnonzero(buffer._sampler.tree.leaves).tolist()
            assert set(alive) == starts
        if not starts:
            with pytest.raises(ValueError, match="sample: "):
                buffer.sample(1)
            continue
        out = buffer.sample(40)
        assert set(out.indices.tolist()) <= starts
        assert out["observation"]["camera"].shape == (steps_long, 40, 2, 3)
        for k, i in enumerate(out.indices.tolist()):
            sequence = oracle.sequence(i, steps_long, period)
            assert [take(out.data, t, k) for t in range(steps_long)] == sequence
        if kind is PrioritizedTrajectoryBuffer:
            stale = rng.integers(0, envs * length // period, 5)
            if oracle.added > 2 * length:
                buffer.update_priorities(stale, 3.0)  # what is not there stays without priority
            buffer.update_priorities(out.indices, rng.random(40))


def test_uniform_draws_are_uniform():
    buffer = ReplayBuffer(300, {"x": 0}, num_envs=3, seed=0)
    for t in range(130):
        buffer.add({"x": np.arange(3) + 3 * t})
    drawn = buffer.sample(60_000)
    counts = np.bincount(drawn["x"] - 90, minlength=300)
    assert stats.chisquare(counts).pvalue > 1e-4
    trajectories = TrajectoryBuffer(3, 50, {"x": 0}, 4, seed=1)
    trajectories.add({"x": np.arange(70 * 3).reshape(70, 3)})
    counts = np.bincount(trajectories.sample(60_000)["x"][0] - 60, minlength=150)
    assert (counts[-9:] == 0).all()
    assert stats.chisquare(counts[:-9]).pvalue > 1e-4


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.4), (0.6, 0.4), (1.0, 1.0), (2.0, 0.0)])
def test_probabilities_and_weights(alpha, beta):
    buffer = PrioritizedReplayBuffer(64, {"x": 0}, alpha=alpha, beta=beta, epsilon=0.01, seed=0)
    buffer.add({"x": np.arange(50)})
    assert (buffer._sampler.tree.leaves[:50] == 1.0).all()
    priorities = np.random.default_rng(0).random(50) * 3
    buffer.update_priorities(np.arange(50), priorities)
    law = (priorities + 0.01) ** alpha
    law /= law.sum()
    batch = buffer.sample(100_000)
    assert stats.chisquare(np.bincount(batch.indices), law * 100_000).pvalue > 1e-4
    np.testing.assert_allclose(batch.probabilities, law[batch.indices], rtol=1e-12)
    weights = (50 * law[batch.indices]) ** -beta
    np.testing.assert_allclose(batch.weights, weights / weights.max(), rtol=1e-6)
    weights = (50 * law[batch.indices]) ** -0.7
    again = buffer.sample(10, beta=0.7)
    weights = (50 * law[again.indices]) ** -0.7
    np.testing.assert_allclose(again.weights, weights / weights.max(), rtol=1e-6)
    buffer.add({"x": 1})
    assert buffer._sampler.tree.leaves[50] == max(1.0, ((priorities + 0.01) ** alpha).max())


def test_structures():
    class Step(NamedTuple):
        observation: np.ndarray
        reward: float

    @dataclasses.dataclass
    class Data:
        observation: np.ndarray
        reward: float

    spaces = gymnasium.spaces
    box = spaces.Box(-1, 1, (3,), np.float32)
    for example in (
        {"observation": box, "reward": 0.0},
        spaces.Dict(observation=box, reward=spaces.Box(-1, 1, (), np.float64)),
        Step(np.zeros(3, np.float32), 0.0),
        Data(np.zeros(3, np.float32), 0.0),
    ):
        buffer = ReplayBuffer(10, example, seed=0)
        batch = (np.full((4, 3), 2, np.float32), np.arange(4.0))
        kind = type(example)
        is_dict = isinstance(example, dict | spaces.Dict)
        names = ("observation", "reward")
        buffer.add(dict(zip(names, batch, strict=True)) if is_dict else kind(*batch))
        data = buffer.sample(5).data
        reward = data["reward"] if is_dict else data.reward
        assert isinstance(data, dict if is_dict else kind)
        assert reward.shape == (5,)
    items = ItemBuffer(3, np.zeros((2, 2), "S3"))
    items.add(np.full((2, 2), b"abc"))
    assert (items.sample(2).data == b"abc").all()
    with pytest.raises(ValueError, match="shape"):
        items.add(np.full((1, 2, 2), b"abc"))


def test_buffers_and_batches_say_what_is_in_them():
    buffer = PrioritizedReplayBuffer(1000, {"<x>": np.zeros(3, np.float32), "y": 0}, epsilon=0.0)
    buffer.add({"<x>": np.zeros((20, 3), np.float32), "y": np.zeros(20, int)})
    fields = "<x> float32 (3,), y int64 ()"
    facts = "20 of 1,000 transitions, 20 kB, alpha=0.6, beta=0.4, epsilon=0.0, n_step=1, gamma=0.99"
    assert repr(buffer) == f"PrioritizedReplayBuffer({facts}: {fields})"
    table = buffer._repr_html_()
    assert "<td>&lt;x&gt;</td><td>float32</td><td>(3,)</td>" in table
    assert "<x>" not in table
    batch = buffer.sample(5)
    fields = "<x> float32 (5, 3), y int64 (5,)"
    assert repr(batch) == f"Batch(5 drawn, with probabilities, with weights: {fields})"
    assert "<td>y</td><td>int64</td><td>(5,)</td>" in batch._repr_html_()
    trajectories = TrajectoryBuffer(2, 100, np.zeros(3, np.float32), 5)
    settings = "num_envs=2, length=100, sequence_length=5, period=1"
    assert (
        repr(trajectories)
        == f"TrajectoryBuffer(0 of 200 transitions, 2.43 kB, {settings}: float32 (3,))"
    )
    assert repr(Mixer([trajectories], [2])) == f"Mixer(2 x {trajectories!r})"
    tree = SumTree(1000)
    tree.update([3, 4], 2.0)
    assert repr(tree) == "SumTree(2 of 1,000 items have a priority)"


@given(
    adds=st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12),
    length=st.sampled_from([6, 12, 20]),
    steps=st.integers(1, 6),
    period=st.sampled_from([1, 2]),
)
def test_no_sequence_runs_across_a_cut(tmp_path_factory, adds, length, steps, period):
    """Those that may be drawn are those of a list of steps with the cuts marked."""
    buffer = PrioritizedTrajectoryBuffer(2, length, {"x": 0}, steps, period, epsilon=0.5, alpha=0.0)
    added, cuts = 0, []
    for number, (count, cut) in enumerate(adds):
        if cut:
            buffer.cut()
            cuts.append(added)
        if number == len(adds) // 2:
            folder = tmp_path_factory.mktemp("cut") / "saved"
            buffer.save(folder)
            buffer = PrioritizedTrajectoryBuffer.load(folder)
        new = np.arange(added, added + count)
        buffer.add({"x": np.stack([new, new], 1)})
        added += count
    whole = [
        begin
        for begin in range(0, added - steps + 1, period)
        if begin >= added - length and not any(begin < cut < begin + steps for cut in cuts)
    ]
    assert buffer.total_weight() == pytest.approx(2 * len(whole))
    if whole:
        drawn = buffer.sample(300)["x"]
        assert set(drawn[0].tolist()) <= set(whole)
        np.testing.assert_array_equal(drawn - drawn[0], np.arange(steps)[:, None] + 0 * drawn)
