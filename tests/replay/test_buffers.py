"""All buffers against lists of transitions, and what they refuse."""

import dataclasses
import importlib.util
import pathlib
import threading
from typing import NamedTuple

import gymnasium
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from rlcpu.replay import (
    ItemBuffer,
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    ReturnWeightedBuffer,
    TrajectoryBuffer,
)

_spec = importlib.util.spec_from_file_location(
    "replay_naive", pathlib.Path(__file__).with_name("naive.py")
)
naive = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(naive)
EXAMPLE, steps, take = naive.EXAMPLE, naive.steps, naive.take


def state_of(buffer):
    """Every byte of a buffer."""
    parts = [buffer._storage.block.tobytes(), buffer._stream.tobytes(), buffer._ring]
    if hasattr(buffer, "_priorities"):
        parts += [buffer._priorities.tree._numbers.tobytes(), buffer._priorities.largest]
    if hasattr(buffer, "_numbers"):
        parts.append(buffer._numbers.tobytes())
    return parts


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
    oracle = naive.NaiveRing(envs, length)
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
            assert np.count_nonzero(buffer._priorities.tree.leaves) == len(buffer)
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
    oracle = naive.NaiveRing(envs, length)
    for num_steps in data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=8)):
        batch = steps(rng, num_steps, envs)
        buffer.add(batch)
        oracle.add(batch, num_steps)
        starts = oracle.starts(steps_long, period)
        assert buffer.can_sample() == bool(starts)
        if kind is PrioritizedTrajectoryBuffer:
            alive = np.flatnonzero(buffer._priorities.tree.leaves).tolist()
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
    assert (buffer._priorities.tree.leaves[:50] == 1.0).all()
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
    assert buffer._priorities.tree.leaves[50] == max(1.0, ((priorities + 0.01) ** alpha).max())


values = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.1, -1e9, 1e9, 5.0]))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_return_weighted(data):
    capacity = data.draw(st.sampled_from([1, 3, 8, 20, 70]))
    buffer = ReturnWeightedBuffer(capacity, {"x": 0}, seed=data.draw(st.integers(0, 9)))
    held, added = np.zeros(0), 0
    for batch in data.draw(st.lists(st.lists(values, max_size=30), min_size=1, max_size=5)):
        buffer.add({"x": np.arange(len(batch)) + added}, np.array(batch))
        for value in batch:
            held = np.append(held, value) if added < capacity else held
            held[added % capacity] = value
            added += 1
    if held.size and data.draw(st.booleans()):
        place = data.draw(st.integers(0, held.size - 1))
        held[place] = data.draw(values)
        buffer.update_values([place], held[place])
    if not held.size:
        assert not buffer.can_sample()
        with pytest.raises(ValueError, match="1 different transitions wanted, of 0"):
            buffer.sample(1)
        return
    weights = held - min(held.min(), 0.0)
    alive = np.flatnonzero(weights) if weights.any() else np.arange(held.size)
    before = state_of(buffer)
    with pytest.raises(ValueError, match=f"of {held.size} there are"):
        buffer.sample(alive.size + 1)
    assert state_of(buffer) == before
    size = data.draw(st.integers(1, alive.size))
    indices = buffer.sample_indices(size)
    assert len(set(indices.tolist())) == size
    assert np.isin(indices, alive).all()
    assert sorted(buffer.sample_indices(alive.size).tolist()) == alive.tolist()
    batch = buffer.sample(size)
    newest = added - 1 - (added - 1 - batch.indices) % capacity if added > capacity else None
    if newest is None:
        np.testing.assert_array_equal(batch["x"], batch.indices)
    assert state_of(buffer)[3] == before[3]


@pytest.mark.parametrize("shift", [0.0, -3.0])
def test_return_weighted_law(shift):
    held = np.random.default_rng(0).random(100) * 4 + shift
    buffer = ReturnWeightedBuffer(100, {"x": 0}, seed=2)
    buffer.add({"x": np.arange(100)}, held)
    counts = np.bincount([buffer.sample_indices(1)[0] for _ in range(40_000)], minlength=100)
    weights = held - min(held.min(), 0.0)
    alive = weights > 0
    assert counts[~alive].sum() == 0
    expected = 40_000 * weights[alive] / weights.sum()
    big = expected >= 5
    scale = counts[alive][big].sum() / expected[big].sum()
    assert stats.chisquare(counts[alive][big], expected[big] * scale).pvalue > 1e-4


def test_minimum_rises_again():
    buffer = ReturnWeightedBuffer(4, {"x": 0}, seed=0)
    buffer.add({"x": np.arange(4)}, [-1e6, 1.0, 2.0, 3.0])
    buffer.add({"x": 4}, 6.0)
    counts = np.bincount([buffer.sample_indices(1)[0] for _ in range(24_000)], minlength=4)
    assert stats.chisquare(counts, np.array([6, 1, 2, 3]) * 2000).pvalue > 1e-4
    buffer.update_values(np.arange(4), -7.0)
    counts = np.bincount([buffer.sample_indices(1)[0] for _ in range(8000)], minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-4


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


def good(kind):
    options = {"seed": 0}
    if kind in (TrajectoryBuffer, PrioritizedTrajectoryBuffer):
        buffer = kind(2, 8, EXAMPLE, 3, **options)
        buffer.add(steps(np.random.default_rng(0), 5, 2))
        return buffer
    buffer = kind(8, EXAMPLE, **options)
    batch = steps(np.random.default_rng(0), 5)
    buffer.add(batch, np.arange(5.0)) if kind is ReturnWeightedBuffer else buffer.add(batch)
    return buffer


def spoil(batch, **changes):
    return {**batch, **changes}


BATCHES = [
    (lambda b: {k: v for k, v in b.items() if k != "reward"}, ValueError, "reward"),
    (lambda b: spoil(b, bonus=b["reward"]), ValueError, "bonus"),
    (lambda b: spoil(b, reward=b["reward"][..., None]), ValueError, "reward"),
    (lambda b: spoil(b, reward=b["reward"][:1]), ValueError, "reward"),
    (lambda b: spoil(b, action=b["reward"]), TypeError, "action"),
    (lambda b: spoil(b, observation=b["reward"]), TypeError, "observation"),
    (lambda b: list(b.values()), TypeError, "batch"),
]
KINDS = [
    ReplayBuffer,
    PrioritizedReplayBuffer,
    ReturnWeightedBuffer,
    TrajectoryBuffer,
    PrioritizedTrajectoryBuffer,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("change", "error", "message"), BATCHES)
def test_bad_batches_change_nothing(kind, change, error, message):
    buffer = good(kind)
    before = state_of(buffer)
    lead = (3, 2) if kind in (TrajectoryBuffer, PrioritizedTrajectoryBuffer) else (3,)
    batch = change(steps(np.random.default_rng(1), *lead))
    with pytest.raises(error, match=message):
        buffer.add(batch, np.zeros(3)) if kind is ReturnWeightedBuffer else buffer.add(batch)
    assert state_of(buffer) == before


NUMBERS = [
    ([np.nan], ValueError, "nan"),
    ([np.inf], ValueError, "inf"),
    ([1.0, 2.0], ValueError, "shape"),
    (["x"], TypeError, "real numbers"),
]
INDICES = [
    ([-1], IndexError, "-1 is out of range"),
    ([10**9], IndexError, "1000000000 is out of range"),
    ([7], IndexError, "nothing was written at 7 yet"),
    ([0.0], TypeError, "whole numbers"),
]


@pytest.mark.parametrize(
    "kind", [PrioritizedReplayBuffer, PrioritizedTrajectoryBuffer, ReturnWeightedBuffer]
)
def test_bad_numbers_change_nothing(kind):
    buffer = good(kind)
    weighted = kind is ReturnWeightedBuffer
    update = buffer.update_values if weighted else buffer.update_priorities
    before = state_of(buffer)
    cases = [([0], *case) for case in NUMBERS] + [(i, [1.0], *rest) for i, *rest in INDICES]
    if not weighted:
        cases.append(([0], [-1.0], ValueError, "-1.0"))
    for indices, numbers, error, message in cases:
        with pytest.raises(error, match=message):
            update(indices, numbers)
        assert state_of(buffer) == before
    if weighted:
        for numbers, error, message in NUMBERS:
            with pytest.raises(error, match=message):
                buffer.add(steps(np.random.default_rng(0), 1), numbers)
            assert state_of(buffer) == before


@pytest.mark.parametrize("kind", KINDS)
def test_bad_samples(kind):
    buffer = good(kind)
    before = state_of(buffer)
    other, changed = good(kind).sample(2), buffer.sample(2)
    changed.indices = np.zeros(9, np.int64)  # longer than its memory
    before = state_of(buffer)
    for call, error in (
        (lambda: buffer.sample(0), ValueError),
        (lambda: buffer.sample(1.5), TypeError),
        (lambda: buffer.sample(2, out=other), ValueError),
        (lambda: buffer.sample(9, out=changed), ValueError),
        (lambda: buffer.sample(2, out=changed), ValueError),
        (lambda: buffer.can_sample(0), ValueError),
    ):
        with pytest.raises(error):
            call()
    assert state_of(buffer) == before


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ReplayBuffer(0, EXAMPLE), ValueError, "capacity=0"),
        (lambda: ReplayBuffer(2, EXAMPLE, num_envs=3), ValueError, "capacity=2"),
        (lambda: ReplayBuffer(2, {}), ValueError, "empty"),
        (lambda: TrajectoryBuffer(2, 4, EXAMPLE, 5), ValueError, "length=4"),
        (lambda: TrajectoryBuffer(2, 5, EXAMPLE, 2, 2), ValueError, "period=2"),
        (lambda: TrajectoryBuffer(0, 5, EXAMPLE, 2), ValueError, "num_envs=0"),
        (lambda: PrioritizedReplayBuffer(4, EXAMPLE, alpha=np.nan), ValueError, "alpha"),
        (lambda: PrioritizedReplayBuffer(4, EXAMPLE, beta=2), ValueError, "beta"),
        (lambda: PrioritizedReplayBuffer(4, EXAMPLE, epsilon="x"), TypeError, "epsilon"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("kind", KINDS)
def test_no_item_is_torn(kind):
    trajectories = kind in (TrajectoryBuffer, PrioritizedTrajectoryBuffer)
    example = {"a": np.zeros(40), "b": np.zeros(3, np.int32)}
    buffer = kind(2, 64, example, 3, seed=0) if trajectories else kind(128, example, seed=0)
    lead = (20, 2) if trajectories else (20,)

    def add(number):
        batch = {"a": np.full((*lead, 40), number, float), "b": np.full((*lead, 3), number)}
        batch["b"] = batch["b"].astype(np.int32)
        buffer.add(batch, number % 7 - 3.0) if kind is ReturnWeightedBuffer else buffer.add(batch)

    stop, errors = threading.Event(), []

    def sample():
        while not stop.is_set():
            batch = buffer.sample(4)
            first = batch["a"][..., :1]
            if (batch["a"] != first).any() or (batch["b"] != first).any():
                errors.append(batch)
            if hasattr(buffer, "update_priorities"):
                buffer.update_priorities(batch.indices, 0.5)

    for number in range(20):
        add(number)
    threads = [threading.Thread(target=sample) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(400):
        add(number)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
