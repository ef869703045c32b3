"""The sum tree against a plain array of priorities."""

import contextlib
import itertools
import threading

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from rlcpu.replay import SumTree

CAPACITIES = (1, 2, 7, 8, 9, 63, 64, 65, 100, 513, 4097)
priorities = st.one_of(
    st.just(0.0), st.floats(0.0, 1e6), st.sampled_from([5e-324, 1e-300, 1e-12, 1e12, 1e300])
)


def tree_of(values, **options):
    tree = SumTree(len(values), **options)
    tree.rebuild(values)
    return tree


def bytes_of(tree):
    return tree._tree.numbers.tobytes(), tree._stream.tobytes()


def check_sums(tree, expected):
    np.testing.assert_array_equal(tree[np.arange(len(expected))], expected)
    assert tree.total == pytest.approx(np.sum(expected), rel=1e-14)
    positive = expected[expected > 0]
    assert tree.min == (positive.min() if positive.size else 0.0)
    assert tree.max == expected.max()


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_updates_equal_an_array(data):
    capacity = data.draw(st.sampled_from(CAPACITIES))
    tree, expected = SumTree(capacity, seed=0), np.zeros(capacity)
    early = data.draw(st.booleans())  # extremes are kept from the first question on
    assert not early or tree.max == 0.0
    for _ in range(data.draw(st.integers(1, 4))):
        pairs = st.tuples(st.integers(0, capacity - 1), priorities)
        batch = data.draw(st.lists(pairs, max_size=40))
        indices = np.array([i for i, _ in batch], np.int64)
        numbers = np.array([p for _, p in batch], np.float64)
        tree.update(indices, numbers)
        for i, p in batch:
            expected[i] = p
    check_sums(tree, expected)
    fresh = tree_of(expected)
    end = fresh._tree._size
    # Parents are a function of the leaves alone, whatever way they came there.
    np.testing.assert_array_equal(tree._tree.numbers[:end], fresh._tree.numbers[:end])


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_samples_have_priorities(data):
    capacity = data.draw(st.sampled_from(CAPACITIES[:-1]))
    values = np.array(data.draw(st.lists(priorities, min_size=capacity, max_size=capacity)))
    tree, alive = tree_of(values, seed=data.draw(st.integers(0, 99))), np.flatnonzero(values)
    stratified = data.draw(st.booleans())
    before = tree._tree.numbers.tobytes()
    if not alive.size:
        with pytest.raises(ValueError, match="the total is 0"):
            tree.sample(3, stratified=stratified)
        return
    drawn = tree.sample(50, stratified=stratified)
    assert np.isin(drawn, alive).all()
    size = data.draw(st.integers(1, alive.size))
    distinct = tree.sample(size, replace=False, stratified=stratified)
    assert len(set(distinct.tolist())) == size
    assert np.isin(distinct, alive).all()
    state = bytes_of(tree)
    message = f"size={alive.size + 1}: expected at most {alive.size} "
    with pytest.raises(ValueError, match=message):
        tree.sample(alive.size + 1, replace=False)
    assert bytes_of(tree) == state
    assert tree._tree.numbers.tobytes() == before


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("capacity", [5, 100, 3000])
def test_proportional(capacity, stratified):
    values = np.random.default_rng(1).random(capacity)
    values[::7] = 0.0
    tree = tree_of(values, seed=3)
    counts = np.bincount(tree.sample(400_000, stratified=stratified), minlength=capacity)
    assert counts[values == 0].sum() == 0
    alive = values > 0
    expected = 400_000 * values[alive] / values.sum()
    if stratified:  # the strata fix all but the ends of an item's share
        assert np.abs(counts[alive] - expected).max() <= 2
    else:
        assert stats.chisquare(counts[alive], expected).pvalue > 1e-4


def sequences_law(weights, size):
    """Probability of every ordered sample of successive sampling."""
    law = {}
    for sequence in itertools.permutations(range(len(weights)), size):
        left, chance = sum(weights), 1.0
        for i in sequence:
            chance *= weights[i] / left if left > 0 else 0.0
            left -= weights[i]
        law[sequence] = chance
    return law


@pytest.mark.parametrize(
    ("weights", "size"),
    [([1, 2, 3, 4], 2), ([1, 2, 3, 4], 4), ([1000, 1, 2, 1], 3), ([1e9, 1e6, 1, 2, 3], 4)],
)
def test_successive_sampling(weights, size):
    tree = tree_of(np.array(weights, float), seed=5)
    repetitions = 20_000
    counts = dict.fromkeys(sequences_law(weights, size), 0)
    for _ in range(repetitions):
        counts[tuple(tree.sample(size, replace=False).tolist())] += 1
    law = sequences_law(weights, size)
    common = [s for s in law if law[s] * repetitions >= 5]
    observed = [counts[s] for s in common]
    rare = repetitions - sum(observed), repetitions * (1 - sum(law[s] for s in common))
    if rare[1] >= 5:
        observed.append(rare[0])
    else:
        assert rare[0] <= 5 + 6 * np.sqrt(rare[1] + 1)
    expected = [repetitions * law[s] for s in common] + ([rare[1]] if rare[1] >= 5 else [])
    expected = np.array(expected) * sum(observed) / sum(expected)
    assert stats.chisquare(observed, expected).pvalue > 1e-4


def test_geometric_priorities_are_drawn_to_the_last():
    values = 2.0 ** -np.arange(300.0)
    tree = tree_of(values, seed=0)
    assert sorted(tree.sample(300, replace=False).tolist()) == list(range(300))


def test_result_is_a_function_of_the_seed():
    values = np.random.default_rng(0).random(5000)
    a, b = tree_of(values, seed=1, num_threads=1), tree_of(values, seed=1)
    np.testing.assert_array_equal(a.sample(9000), b.sample(9000))
    # The stream goes on whatever the size of a call.
    parts = np.concatenate([a.sample(100), a.sample(200)])
    np.testing.assert_array_equal(parts, b.sample(300))
    np.testing.assert_array_equal(a.sample(10, seed=4), b.sample(10, seed=4))
    assert (a.sample(100) != a.sample(100)).any()
    assert (SumTree(5, seed=None)._stream != SumTree(5, seed=None)._stream).any()


BAD = [
    ([0], [np.nan], ValueError, "priorities: nan for index 0"),
    ([1], [-1.0], ValueError, "priorities: -1.0 for index 1"),
    ([0, 2], [1.0, np.inf], ValueError, "priorities: inf for index 2"),
    ([2], [1e308], ValueError, "priorities: 1e\\+308 for index 2"),
    ([-1], [1.0], IndexError, "-1 is out of range, expected 0 to 9"),
    ([10], [1.0], IndexError, "10 is out of range"),
    ([0, 10**9], [1.0, 1.0], IndexError, "1000000000 is out of range"),
    (np.array([2**63], np.uint64), [1.0], IndexError, "9223372036854775808 is out of range"),
    ([0.5], [1.0], TypeError, "indices: expected whole numbers, got float64"),
    ([True], [1.0], TypeError, "indices: expected whole numbers, got bool"),
    ([0, 1], [1.0], ValueError, r"priorities: expected shape \(2,\), got \(1,\)"),
    ([[0]], [[1.0]], ValueError, r"indices: expected shape \(n,\), got \(1, 1\)"),
    ([0], ["1"], TypeError, "priorities: expected real numbers"),
]


@pytest.mark.parametrize(("indices", "values", "error", "message"), BAD)
def test_bad_updates_change_nothing(indices, values, error, message):
    tree = tree_of(np.arange(10.0), seed=0)
    before = bytes_of(tree)
    with pytest.raises(error, match=message):
        tree.update(indices, values)
    assert bytes_of(tree) == before
    assert tree.max == 9.0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: SumTree(0), ValueError),
        (lambda: SumTree(1.5), TypeError),
        (lambda: SumTree(True), TypeError),
        (lambda: SumTree(4, seed=-1), ValueError),
        (lambda: SumTree(4).sample(0), ValueError),
        (lambda: SumTree(4).sample(2.5), TypeError),
        (lambda: SumTree(4)[4], IndexError),
        (lambda: SumTree(4)[[-1]], IndexError),
        (lambda: SumTree(4)[0.5], TypeError),
        (lambda: SumTree(2).rebuild([1.0]), ValueError),
        (lambda: SumTree(2).rebuild([1.0, np.nan]), ValueError),
        (lambda: SumTree(2).sample(3, replace=False), ValueError),
    ],
)
def test_bad_arguments(call, error):
    with pytest.raises(error):
        call()


def test_leaves_that_were_written_to_are_checked_when_sums_are_recomputed():
    tree = tree_of([1.0, 2.0, 3.0])
    tree.leaves[1] = 5.0
    tree.rebuild()
    assert tree.total == 9.0
    for number in (np.nan, -1.0, np.inf):
        tree.leaves[1] = number
        with pytest.raises(ValueError, match=f"priorities: {number} at 1"):
            tree.rebuild()


def test_last_of_equal_indices_counts():
    tree = SumTree(100)
    tree.update(np.repeat(7, 5), np.arange(5.0))
    tree.update([], [])
    assert (tree[7], tree.total, len(tree)) == (4.0, 4.0, 100)
    tree.update(np.int32(3), np.float32(2))
    assert tree[3] == 2.0


def test_threads_share_a_tree():
    tree = tree_of(np.ones(1000), seed=0)
    stop, errors = threading.Event(), []

    def sample():
        while not stop.is_set():
            drawn = tree.sample(64, replace=False)
            if len(set(drawn.tolist())) != 64 or (drawn >= 500).any():
                errors.append(drawn)

    tree.update(np.arange(500, 1000), 0.0)
    threads = [threading.Thread(target=sample) for _ in range(3)]
    for thread in threads:
        thread.start()
    rng = np.random.default_rng(0)
    for _ in range(300):
        tree.update(rng.integers(0, 500, 50), rng.random(50) + 0.1)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert tree.total == pytest.approx(tree[np.arange(1000)].sum(), rel=1e-14)


def test_priorities_and_indices_may_be_the_leaves_themselves():
    tree = tree_of([1.0, 2.0, 3.0, 4.0])
    tree.update([3, 2, 1, 0], tree.leaves)
    assert tree.leaves.tolist() == [4.0, 3.0, 2.0, 1.0]
    tree = tree_of(np.zeros(64))
    tree.update(tree.leaves.view(np.int64)[:8], 5.0)  # 5.0 read as an index is far outside
    assert tree.leaves.tolist() == [5.0] + [0.0] * 63


def test_indices_that_another_thread_overwrites_are_those_that_were_checked():
    tree, indices, stop = SumTree(4096, seed=0), np.zeros(4096, np.int64), threading.Event()

    def spoil():
        while not stop.is_set():
            indices[:] = 2**40
            indices[:] = 0

    thread = threading.Thread(target=spoil)
    thread.start()
    for _ in range(300):
        with contextlib.suppress(IndexError):
            tree.update(indices, 1.0)
    stop.set()
    thread.join()
    assert tree.total == tree.leaves.sum() <= 1.0


@pytest.mark.parametrize("name", ["indices", "priorities"])
def test_masks_are_not_passed_over(name):
    tree, masked = tree_of([1.0, 2.0]), np.ma.array([1, 0], mask=[True, False])
    calls = [lambda: tree[masked], lambda: tree.update(masked, 5.0)]
    if name == "priorities":
        calls = [lambda: tree.update([0, 1], masked), lambda: tree.rebuild(masked)]
    for call in calls:
        with pytest.raises(TypeError, match=f"{name} is a masked array"):
            call()
    assert tree.leaves.tolist() == [1.0, 2.0]
