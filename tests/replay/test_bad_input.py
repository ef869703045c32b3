"""What buffers refuse, and that it changes no byte."""

import numpy as np
import pytest

from rlcpu.replay import (
    Mixer,
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    ReturnWeightedBuffer,
    SumTree,
    TrajectoryBuffer,
)
from tests.replay.naive import EXAMPLE, state_of, steps


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
    (lambda b: spoil(b, reward=np.ma.array(b["reward"])), TypeError, "reward"),
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
    (np.ma.array([1.0], mask=[True]), TypeError, "without a mask"),
]
INDICES = [
    ([-1], IndexError, "-1 is out of range"),
    ([10**9], IndexError, "1000000000 is out of range"),
    ([7], IndexError, "nothing was written at 7 yet"),
    ([0.0], TypeError, "whole numbers"),
    (np.ma.array([0], mask=[True]), TypeError, "indices is a masked array"),
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
    before = state_of(buffer)
    for call, error in (
        (lambda: buffer.sample(0), ValueError),
        (lambda: buffer.sample(1.5), TypeError),
        (lambda: buffer.sample(2, out=other), ValueError),
        (lambda: buffer.sample(9, out=changed), ValueError),
        (lambda: buffer.can_sample(0), ValueError),
    ):
        with pytest.raises(error):
            call()
    assert state_of(buffer) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_whose_indices_are_its_own_data_is_overwritten(kind):
    """What is drawn is written to the data: rows of it would not be rows of the buffer."""
    buffer = good(kind)
    out = buffer.sample(2)
    out.indices = out["action"].reshape(-1)[:2]
    again = good(kind)
    again.sample(2)
    expected = again.sample(2)
    assert buffer.sample(2, out=out) is out
    assert out.indices.tolist() == expected.indices.tolist()
    assert out["action"].tolist() == expected["action"].tolist()


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
        (lambda: PrioritizedReplayBuffer(4, EXAMPLE, alpha=10**400), ValueError, "alpha=inf"),
        (lambda: PrioritizedReplayBuffer(4, EXAMPLE, alpha=np.ones(1)), TypeError, "alpha"),
        (lambda: ReplayBuffer(4, EXAMPLE, gamma=np.ma.masked), TypeError, "gamma"),
        (lambda: ReplayBuffer(4, EXAMPLE, gamma=b"1"), TypeError, "gamma"),
        (lambda: ReplayBuffer(4, EXAMPLE, seed=[0]), TypeError, "seed"),
        (lambda: ReplayBuffer(4, EXAMPLE, seed=2**128), ValueError, "seed"),
        (lambda: ReplayBuffer(np.ma.array(4, mask=True), EXAMPLE), TypeError, "capacity"),
        (lambda: ReplayBuffer(4, EXAMPLE, derive_next=1), TypeError, "derive_next=1"),
        (lambda: ReplayBuffer(2**47, np.zeros(2**20)), MemoryError, "no room"),
        (lambda: ReplayBuffer(4, EXAMPLE).save(1), TypeError, "path=1: expected a path"),
        (lambda: ReplayBuffer.load(None), TypeError, "path=None: expected a path"),
        (lambda: ReplayBuffer.load("a\0b"), ValueError, "path='a"),
        (lambda: SumTree(4).sample(1, stratified=[0]), TypeError, "stratified"),
        (lambda: SumTree(4).sample(1, replace=None), TypeError, "replace=None"),
        (lambda: SumTree(4).update([[1, 2], [3]], 1.0), ValueError, "indices"),
        (lambda: SumTree(4).update([10**400], 1.0), TypeError, "indices"),
        (lambda: SumTree(4).update([0], [10**400]), TypeError, "priorities"),
        (lambda: Mixer(None, [1]), TypeError, "buffers and proportions"),
        (lambda: Mixer([good(ReplayBuffer)], 1), TypeError, "buffers and proportions"),
        (lambda: Mixer([good(ReplayBuffer)], [np.nan]), ValueError, "proportions=nan"),
        (lambda: Mixer([good(ReplayBuffer)], [1]).add({}, to="0"), TypeError, "to='0'"),
        (lambda: Mixer([good(ReplayBuffer)], [1]).add({}, to=1), IndexError, "to=1"),
        (lambda: Mixer([good(ReplayBuffer)], [1]).add({}, to=-1), IndexError, "to=-1"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
