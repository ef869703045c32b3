"""What leaves mean, node by node, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.kernels.compiler.compile import EXACT, kernel
from rlcpu.kernels.machine.memory import ONE_LINE, load, store
from rlcpu.kernels.machine.vectors import highest, lowest, search, total
from rlcpu.replay import tree as rules
from rlcpu.replay.tree import WIDTH, child_weights_vector, make_tree, replace_free_vector
from rlcpu.replay.tree_cpu import Tree

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
eight = st.lists(numbers, min_size=WIDTH, max_size=WIDTH).map(np.array)


@kernel(fastmath=EXACT)
def store_items(leaves, filled, node, other, out):
    store(replace_free_vector(load(leaves, 0, ONE_LINE), node * 8.0, filled, other), out, 0)


@kernel(fastmath=EXACT)
def store_weights(sums, shift, filled, span, node, out):
    store(
        child_weights_vector(load(sums, 0, ONE_LINE), shift, node * 8.0 * span, span, filled),
        out,
        0,
    )


@kernel(fastmath=EXACT)
def store_reductions(leaves, mark, out):
    node = load(leaves, 0, ONE_LINE)
    out[0], out[1], out[2] = total(node), lowest(node), highest(node)
    out[3], out[4] = search(node, mark)


@given(leaves=eight, other=numbers)
def test_items_with_priorities_are_those_above_zero(leaves: np.ndarray, other: float) -> None:
    out = np.zeros(WIDTH)
    store_items(leaves, None, 0, other, out)
    np.testing.assert_array_equal(out, np.where(leaves > 0, leaves, other))
    store_weights(leaves, None, None, 1.0, 0, out)
    np.testing.assert_array_equal(out, leaves)


@given(leaves=eight, node=st.integers(0, 3), filled=st.integers(0, 32), other=numbers)
def test_items_with_values_are_the_first(
    leaves: np.ndarray, node: int, filled: int, other: float
) -> None:
    out = np.zeros(WIDTH)
    store_items(leaves, filled, node, other, out)
    np.testing.assert_array_equal(
        out, np.where(np.arange(WIDTH) + node * WIDTH < filled, leaves, other)
    )


@given(
    sums=eight,
    shift=numbers,
    node=st.integers(0, 2),
    filled=st.integers(0, 1200),
    span=st.sampled_from([1, 8, 64]),
)
def test_weights_of_values_are_their_sums_and_a_shift_for_each(
    sums: np.ndarray, shift: float, node: int, filled: int, span: int
) -> None:
    out = np.zeros(WIDTH)
    store_weights(sums, shift, filled, float(span), node, out)
    counts = np.clip(filled - (node * WIDTH + np.arange(WIDTH)) * span, 0, span)
    np.testing.assert_array_equal(out, np.maximum(sums + counts * shift, 0.0))


@given(
    leaves=st.lists(st.floats(0, 1e6), min_size=8, max_size=8).map(np.array), u=st.floats(0, 1.1)
)
def test_vectors_and_plain_python_agree_to_the_last_bit(leaves: np.ndarray, u: float) -> None:
    out, node = np.zeros(5), rules.load(leaves, 0)
    mark = u * rules.total(node)
    store_reductions(leaves, mark, out)
    child, rest = rules.search(node, mark)
    found = rules.total(node), rules.lowest(node), rules.highest(node), child, rest
    np.testing.assert_array_equal(out, found)
    weights = np.zeros(8)
    store_weights(leaves, 0.1, 1000, 64.0, 1, weights)
    np.testing.assert_array_equal(rules.child_weights(node, 0.1, 512.0, 64.0, 1000), weights)
    store_items(leaves, 12, 1, -1.0, weights)
    np.testing.assert_array_equal(rules.replace_free(node, 8.0, 12, -1.0), weights)


def test_rules_in_plain_python_are_the_kernels() -> None:
    """A tree of values, built and walked uncompiled."""
    values = np.random.default_rng(0).normal(size=50)
    tree, numbers, offsets = Tree(70, extremes=True), make_tree(70, True), rules.layout(70)
    tree.update(np.arange(50), values.copy(), filled=50)
    numbers[:50] = values
    for level in range(1, offsets.size - 1):
        for node in range((offsets[level] - offsets[level - 1]) // WIDTH):
            rules.refresh(rules.unpack(numbers, offsets, 50), level, node)
    np.testing.assert_array_equal(numbers, tree.numbers)
    levels, weights = rules.unpack(numbers, offsets, 50), values - values.min()
    assert rules.weight_of_all(levels) == pytest.approx(weights.sum())
    (there,) = np.nonzero(weights)
    middles, found = (np.cumsum(weights) - weights / 2)[there], np.empty(there.size, np.int64)
    rules.walk(levels, middles.copy(), found, found.size)
    assert found.tolist() == there.tolist()
    assert [rules.scan(levels, mark / weights.sum()) for mark in middles] == there.tolist()


@given(st.data())
def test_runs_of_items_go_round_in_every_environment(data: st.DataObject) -> None:
    num_envs, items = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 20))
    tree, expected = Tree(num_envs * items, extremes=False), np.zeros((num_envs, items))
    for _ in range(3):
        begin, count = data.draw(st.integers(0, 50)), data.draw(st.integers(0, 40))
        leaves = np.arange(1.0, 1.0 + count) if data.draw(st.booleans()) else np.array([7.0])
        tree.write_runs(num_envs, begin, begin + count, leaves)
        for number in range(count):
            leaf = leaves[number % leaves.size]
            expected[:, (begin + number) % items] = leaf
        np.testing.assert_array_equal(tree.leaves.reshape(num_envs, items), expected)
        fresh = Tree(num_envs * items, extremes=False)
        fresh.leaves[:] = expected.reshape(-1)
        fresh.rebuild()
        np.testing.assert_array_equal(tree.numbers, fresh.numbers)
