"""Sampling by value against its law."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from rlcpu.replay import ReturnWeightedBuffer
from tests.replay.naive import state_of

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


@pytest.mark.parametrize("value", [-7.0, -5e-324, 0.0, -1e300])
def test_equal_values_that_have_no_weight_are_as_likely(value):
    buffer = ReturnWeightedBuffer(4, {"x": 0}, seed=0)
    buffer.add({"x": np.arange(4)}, value)
    pairs = np.array([buffer.sample_indices(2) for _ in range(6000)])
    counts = np.bincount(4 * pairs[:, 0] + pairs[:, 1], minlength=16)
    assert stats.chisquare(counts[counts > 0]).pvalue > 1e-4
    assert np.count_nonzero(counts) == 12
    assert sorted(buffer.sample_indices(4).tolist()) == [0, 1, 2, 3]


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_batch_is_filled_up(data):
    """All that have a weight come first, and draws that need no others are the same."""
    held = np.array(data.draw(st.lists(values, min_size=1, max_size=90)))
    options = {"capacity": data.draw(st.sampled_from([held.size, held.size + 9])), "seed": 4}
    filling, strict = (
        ReturnWeightedBuffer(example={"x": 0}, fill_up=fill_up, **options)
        for fill_up in (True, False)
    )
    for buffer in (filling, strict):
        buffer.add({"x": np.arange(held.size)}, held)
    weights = held - min(held.min(), 0.0)
    weighted = np.flatnonzero(weights) if weights.any() else np.arange(held.size)
    before = state_of(filling)[3]
    for size in data.draw(st.lists(st.integers(1, held.size), min_size=1, max_size=4)):
        assert filling.can_sample(size)
        indices = filling.sample_indices(size)
        assert len(set(indices.tolist())) == size
        assert indices.min() >= 0
        assert indices.max() < held.size
        if size > weighted.size:
            assert sorted(indices[: weighted.size].tolist()) == weighted.tolist()
            with pytest.raises(ValueError, match=f"{weighted.size} have a weight above zero"):
                strict.sample(size)
            strict._stream[:] = filling._stream  # which has moved on
        else:
            np.testing.assert_array_equal(indices, strict.sample_indices(size))
    assert state_of(filling)[3] == before
    with pytest.raises(ValueError, match=f"of {held.size} there are"):
        filling.sample(held.size + 1)


@pytest.mark.parametrize(("low", "seed"), [(0.0, 0), (-3.7, 1), (-1e300, 2)])
def test_others_are_as_likely_where_a_batch_is_filled_up(low, seed):
    """Of 40 transitions, in the order of drawing: 5 with a weight, then any of the others."""
    held = np.full(40, low)
    held[[3, 8, 21, 22, 39]] = 1.0, 2.0, 3.0, 4.0, 5.0
    buffer = ReturnWeightedBuffer(40, {"x": 0}, seed=seed, fill_up=True)
    buffer.add({"x": np.arange(40)}, held)
    drawn = np.array([buffer.sample_indices(12) for _ in range(6000)])
    assert np.isin(drawn[:, :5], [3, 8, 21, 22, 39]).all()
    others = np.flatnonzero(held == low)
    for place in (5, 6, 11):  # the first of the others, the second and the last
        counts = np.bincount(drawn[:, place], minlength=40)
        assert counts.sum() == counts[others].sum()
        assert stats.chisquare(counts[others]).pvalue > 1e-4
    pairs = np.bincount(40 * drawn[:, 5] + drawn[:, 6], minlength=1600)
    assert np.count_nonzero(pairs) <= others.size * (others.size - 1)
    assert stats.chisquare(pairs[pairs > 0]).pvalue > 1e-4
    first = np.bincount(drawn[:, 0], minlength=40)[held > low]
    weights = held[held > low] - min(low, 0.0)
    assert stats.chisquare(first, 6000 * weights / weights.sum()).pvalue > 1e-4


def test_fill_up_is_saved_and_checked(tmp_path):
    buffer = ReturnWeightedBuffer(9, {"x": 0}, seed=0, fill_up=True)
    buffer.add({"x": np.arange(5)}, [0.0, 0.0, 1.0, 0.0, 0.0])
    buffer.save(tmp_path / "buffer")
    loaded = ReturnWeightedBuffer.load(tmp_path / "buffer")
    assert loaded.fill_up
    assert "fill_up=True" in repr(loaded)
    for _ in range(3):
        np.testing.assert_array_equal(loaded.sample(4)["x"], buffer.sample(4)["x"])
    with pytest.raises(TypeError, match="fill_up='yes'"):
        ReturnWeightedBuffer(9, {"x": 0}, fill_up="yes")
