"""The CPU's tree: drivers of the rules in `rlcpu.replay.tree`, and their memory.

Sixty-four draws walk side by side, so that their cache misses overlap, and every number comes from
a counter: a result depends neither on the number of threads nor on how a request is split.

Drivers take `numbers`, the memory of all levels of a tree, `offsets`, where these begin
(`rlcpu.replay.tree.layout`), and `filled`: how many leaves are items, or None where leaves are
priorities. `levels` are views of that memory (`rlcpu.replay.tree.Levels`).

A draw takes random number `counter + k` of the stream `key`, k counting draws, and has a *target*
in [0, `weight`), the sum of all weights; `width` is the length of a stratum, or 0 without strata. A
*walk* finds the leaf at a target, from the top of the tree.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import prange

from rlcpu.kernels.compiler.compile import EXACT, inline, kernel, specialise
from rlcpu.kernels.machine import vectors
from rlcpu.kernels.machine.memory import prefetch
from rlcpu.kernels.machine.random import u64, uniform53
from rlcpu.kernels.machine.threads import for_cores, launch
from rlcpu.replay import tree as rules
from rlcpu.replay.checks import LeafRule
from rlcpu.replay.storage import placed
from rlcpu.replay.tree import WIDTH, Levels, load_vector, make_tree, over_vectors

Array = npt.NDArray[Any]

GROUP = 64  # draws that walk side by side; at 2^20 leaves 32 take 1.2 and 16 1.5 times as long
_AHEAD = 16  # leaves that are prefetched before they are written: 8 % of an update of 1,600 of 2^20
_BLOCK = 1024  # draws that a thread takes at a time
_GRAIN = 4096  # draws, 90 us, from which a second core is worth waking: 65 us
LARGEST_RATIO = np.float32(3e38)  # of two leaves: float32 goes to 3.4e38

_unpack, _weight_of_all = over_vectors(rules.unpack), over_vectors(rules.weight_of_all)
_weight, _find_target = over_vectors(rules.weight), over_vectors(rules.find_target)
_refresh = over_vectors(rules.refresh)
_walk, _scan = over_vectors(rules.walk), over_vectors(rules.scan)


# ---------------------------------------------------------------- upkeep


@inline(exact=True)
def _propagate(levels, nodes, count):
    """Recompute all sums above some leaves.

    A level is recomputed as a whole, with all above it, where that reads less. The first `count` of
    `nodes` are the leaves; nodes of higher levels overwrite them.
    """
    offsets = levels.offsets
    for level in range(1, offsets.size - 1):
        num_entries = (offsets[level] - offsets[level - 1]) // WIDTH
        # In order, entries are read without waiting: several take the time of one at random.
        if 4 * count >= num_entries:
            for node in range(num_entries):
                _refresh(levels, level, node)
            count = num_entries  # higher levels are recomputed as a whole too
            continue
        num_parents, last = 0, np.int64(-1)
        for k in range(count):
            node = nodes[k] // WIDTH
            if node != last:
                _refresh(levels, level, node)
                nodes[num_parents] = node
                num_parents += 1
                last = node
        count = num_parents


@inline(exact=True)
def _propagate_range(levels, begin, end):
    """Recompute all sums above the leaves [begin, end), if there are any."""
    if end > begin:
        for level in range(1, levels.offsets.size - 1):
            begin, end = begin // WIDTH, (end - 1) // WIDTH + 1
            for node in range(begin, end):
                _refresh(levels, level, node)


def _write_leaves(numbers, offsets, filled, indices, leaves):
    """Write leaves and recompute sums; return the largest of the leaves, at least 0.0.

    The first three arguments are the tree, see `_unpack`. `indices`, (n,) int64, are where `leaves`
    go, and are overwritten; of equal ones the last leaf counts.
    """
    levels, count, largest = _unpack(numbers, offsets, filled), indices.size, 0.0
    for k in range(count):
        prefetch(levels.sums, indices[min(k + _AHEAD, count - 1)])
        levels.sums[indices[k]] = leaves[k]
        largest = max(largest, leaves[k])
    _propagate(levels, indices, count)
    return largest


def _write_new(numbers, offsets, filled, num_envs, slots, begin, end, leaves):
    """Write the leaves of new items, `begin` to `end` - 1 of every environment; recompute sums.

    The first three arguments are the tree, see `_unpack`. Item i is in slot i % slots of its
    environment, which has `slots` leaves side by side. Where there are more items than slots, the
    newest are written. `leaves` is (end - begin,), the same for all environments, or (1,), the same
    for all items.
    """
    levels = _unpack(numbers, offsets, filled)
    count = min(max(end - begin, 0), slots)
    start = (end - count) % slots
    for env in range(num_envs):
        base = env * slots
        for k in range(count):
            slot = start + k
            leaf = leaves[leaves.size - count + k] if leaves.size > 1 else leaves[0]
            levels.sums[base + (slot if slot < slots else slot - slots)] = leaf
        _propagate_range(levels, base + start, base + min(start + count, slots))
        _propagate_range(levels, base, base + start + count - slots)  # slots from 0 on


#: For kernels, and for Python.
write_leaves = inline(_write_leaves, exact=True)
write_new, write_runs = inline(_write_new, exact=True), kernel(_write_new, fastmath=EXACT)


@kernel(fastmath=EXACT)
def update(numbers, offsets, filled, indices, leaves, largest):
    """Write leaves, see `_write_leaves`; their largest goes to `largest`, (1,), if that is less."""
    largest[0] = max(largest[0], write_leaves(numbers, offsets, filled, indices, leaves))


@kernel(fastmath=EXACT)
def rebuild(numbers, offsets, filled):
    """Recompute everything above the leaves."""
    _propagate_range(_unpack(numbers, offsets, filled), 0, offsets[1])


# ---------------------------------------------------------------- drawing


@inline(exact=True)
def _fill(levels, key, counter, weight, width, first, out):
    """Fill `out` with the leaves of draws `first`, `first + 1`, ... of a call, `GROUP` at a time.

    Where rounding put a target between the shares of two leaves, the leaf has no weight. For the
    arguments see above.
    """
    targets = np.empty(GROUP, np.float64)
    for begin in range(0, out.size, GROUP):
        count = min(GROUP, out.size - begin)
        for q in range(count):
            targets[q] = _find_target(key, counter, weight, width, first + begin + q)
        _walk(levels, targets, out[begin : begin + count], count)


def draw(numbers, offsets, stream, stratified, out):
    """Draw leaves, which are priorities, with replacement, and return the sum of all priorities.

    By `walk`, and by `scan` where that finds a leaf of zero. Fills `out`, (n,) int64, with leaves,
    which mean nothing if the sum is 0. `stream` is (2,) uint64, key and counter of the random
    numbers; n is added to the counter. If `stratified`, draw k of n is from the k-th of n equal
    parts of the sum.
    """
    weight, count = _weight_of_all(_unpack(numbers, offsets, None)), out.size
    key, counter = stream[0], stream[1]
    width = weight / count if stratified else 0.0
    for block in prange((count + _BLOCK - 1) // _BLOCK):
        levels = _unpack(numbers, offsets, None)  # here: no NamedTuple gets into a `prange`
        begin, end = block * _BLOCK, min((block + 1) * _BLOCK, count)
        _fill(levels, key, counter, weight, width, begin, out[begin:end])
        for k in range(begin, end):
            if weight > 0.0 and not levels.sums[out[k]] > 0.0:
                target = _find_target(key, counter, weight, width, k)
                out[k] = _scan(levels, target / weight)
    stream[1] += u64(count)
    return weight


#: `draw` on one thread in other kernels, and on one or several for Python.
draw_leaves = inline(draw, exact=True)
DRAW = for_cores(draw, _GRAIN, fastmath=EXACT)


# ---------------------------------------------------------------- without replacement


@inline(exact=True)
def _leaf_without_weight(shift):
    """Return what a leaf is set to so that its weight, its number plus `shift`, is zero.

    `shift` is None for priorities. Numba drops a branch on None where that is an argument.
    """
    if shift is None:
        return 0.0
    return -shift


@inline(exact=True)
def _has_no_weights(levels, shift):
    """Tell whether no leaf has a weight; False for priorities, whose largest is not kept.

    `shift` is that of the levels, see `_leaf_without_weight`.
    """
    if shift is None:
        return False
    highest = vectors.highest(load_vector(levels.highs, levels.highs.size - WIDTH))
    return highest + shift <= 0.0


@inline(exact=True)
def _with_weights(levels, shift):
    """Return levels in which all leaves without a weight, whose values are equal, have the same."""
    if shift is None:
        return levels
    shift += max(shift, 1.0)  # beside a large shift 1 would be rounded away
    sums, lows, highs, offsets, span = levels[:5]
    return Levels(sums, lows, highs, offsets, span, shift, levels.filled)


@inline(exact=True)
def _draw_successively(levels, key, counter, stratified, fills, out):
    """Draw different leaves, each from those that were not drawn before (successive sampling).

    In rounds: a batch of leaves is drawn, of which the first of equals count; they get a weight of
    zero, and the sums are recomputed. In the end all leaves are put back bit for bit. `out`, (n,)
    int64, is overwritten with them; `counter` is that of the first random number, and `stratified`
    draws of a round are from equal parts of the sum of weights.

    Where no leaf has a weight, items of equal values are drawn as if they had equal ones; with
    `fills` also those that are left when all with a weight are drawn.

    Returns:
        How many leaves were drawn, and how many random numbers that took.
    """
    size, no_weight = out.size, _leaf_without_weight(levels.shift)
    nodes, values = np.empty(size, np.int64), np.empty(size, np.float64)
    num_drawn, num_draws, batch = 0, 0, size
    num_before = 0  # leaves that were drawn before this round, which the sums lack already
    while num_drawn < size:
        # Number by number: with a slice numba compiles the text of its error, a second and a half.
        for k in range(num_before, num_drawn):
            nodes[k] = out[k]
        _propagate(levels, nodes[num_before:num_drawn], num_drawn - num_before)
        num_before = num_drawn
        if _has_no_weights(levels, levels.shift):
            if num_drawn > 0 and not fills:
                break
            levels = _with_weights(levels, levels.shift)
            no_weight = _leaf_without_weight(levels.shift)
            for k in range(num_drawn):
                nodes[k] = out[k]
                levels.sums[out[k]] = no_weight
            _propagate(levels, nodes, num_drawn)
        weight = _weight_of_all(levels)
        count = min(size - num_drawn, batch) if weight > 0.0 else 0
        width = weight / count if stratified else 0.0
        next_counter = u64(counter + u64(num_draws))  # of draw 0 of this round
        _fill(levels, key, next_counter, weight, width, 0, out[num_before : num_before + count])
        num_draws += count
        for k in range(num_before, num_before + count):
            leaf = out[k]
            if _weight(levels.sums[leaf], levels.shift, levels.filled, leaf) > 0.0:
                values[num_drawn], levels.sums[leaf] = levels.sums[leaf], no_weight
                out[num_drawn] = leaf
                num_drawn += 1
        if num_drawn == num_before:  # no draw had a weight, but some leaf may
            leaf = _scan(levels, uniform53(key, u64(counter + u64(num_draws))))
            if leaf < 0:
                break
            values[num_drawn], levels.sums[leaf] = levels.sums[leaf], no_weight
            out[num_drawn] = leaf
            num_draws, num_drawn = num_draws + 1, num_drawn + 1
        # Many draws of the next round may be equal: no more than twice this round's leaves.
        batch = max(GROUP, 2 * (num_drawn - num_before))
    for k in range(num_drawn):
        levels.sums[out[k]] = values[k]
        nodes[k] = out[k]
    # Sums have not lost the leaves of the last round: only those before it need them back.
    _propagate(levels, nodes[:num_before], num_before)
    return num_drawn, num_draws


@kernel(fastmath=EXACT)
def draw_distinct(numbers, offsets, filled, stream, stratified, fills, out):
    """Fill `out`, (n,) int64, with different leaves, and return how many there are.

    Fewer than n only if no others have a weight, and without `fills`, by which others follow where
    leaves are values. For the other arguments see `draw`.
    """
    levels = _unpack(numbers, offsets, filled)
    drawn, draws = _draw_successively(levels, stream[0], stream[1], stratified, fills, out)
    stream[1] += u64(draws)
    return drawn


# ---------------------------------------------------------------- importance weights


def importance_weight(ratio, beta):
    """Return (N P) ** -beta over its maximum in the batch, `ratio` being P over its minimum.

    In float32, as weights are, the relative error is below (2 + log(ratio)) * 1.2e-7.
    """
    return math.exp(-beta * math.log(ratio))


class WeightWriters(NamedTuple):
    """`write_importance_weights`, compiled."""

    inlined: Any  # for kernels
    kernel: Any  # for Python


@functools.cache
def importance_weights() -> WeightWriters:
    """Compile `write_importance_weights`, at its first use: 16 ms are too long for an import.

    By NumPy, in the midst of other work, they would add a quarter to the time of drawing a batch.
    """
    scalar = specialise(importance_weight, np.float32)

    def write_importance_weights(tree, indices, total, beta, probabilities, weights):
        """Write probabilities, float64, and importance weights, float32, of the leaves at indices.

        `tree` is the memory of a tree, whose leaves come first, `total` their sum.
        """
        least = np.inf
        for k in range(indices.size):
            leaf = tree[indices[k]]
            probabilities[k] = leaf / total
            least = min(least, leaf)
        for k in range(indices.size):
            weights[k] = min(np.float32(tree[indices[k]] / least), LARGEST_RATIO)
        for k in range(indices.size):  # a loop of its own, which becomes vectors
            weights[k] = scalar(weights[k], beta)

    write = write_importance_weights
    return WeightWriters(inline(write, exact=True), kernel(write, fastmath=EXACT))


# ---------------------------------------------------------------- priorities


@inline(exact=True)
def leaf_of(priority, epsilon, alpha):
    """Return the leaf of a priority; Schaul et al. 2016, equation 1."""
    return (priority + epsilon) ** alpha


@kernel(fastmath=EXACT)
def _write_leaves_of(priorities, epsilon, alpha, leaves):
    """Overwrite `leaves` with those of priorities, both (n,)."""
    for k in range(leaves.size):
        leaves[k] = leaf_of(priorities[k], epsilon, alpha)


# ---------------------------------------------------------------- memory


class Tree:
    """The drivers of `rlcpu.replay.tree` and memory for them: unchecked, one call at a time.

    Leaves are priorities where `filled` is left out, and values where it is the number of items.

    Args:
        capacity: number of leaves, zero at first.
        extremes: whether the smallest and the largest item are kept; values need them.
    """

    def __init__(self, capacity: int, extremes: bool) -> None:
        #: Memory of the tree, float64: see `rlcpu.replay.tree.unpack`.
        self.capacity, self.numbers = capacity, make_tree(capacity, extremes)
        self.offsets = rules.layout(capacity)
        self._size = int(self.offsets[-1])  # numbers that are sums
        #: Largest priority: the sum of all of them has to be finite.
        self.most = float(np.finfo(np.float64).max) / int(self.offsets[1])
        #: The largest leaf that `update` was ever given, at least 1: the leaf of new items.
        self.largest = np.ones(1)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, numbers=placed(state["numbers"]))

    @property
    def leaves(self) -> Array:
        """Return the leaves, (capacity,) float64; call `rebuild` after a change."""
        return self.numbers[: self.capacity]

    def _top(self) -> Array:
        """Return the sums of the highest node."""
        return self.numbers[self._size - WIDTH : self._size]

    def total(self) -> float:
        """Return the sum of all leaves."""
        sums = self._top()
        while sums.size > 1:  # in the kernels' order
            sums = sums[: sums.size // 2] + sums[sums.size // 2 :]
        return float(sums[0])

    def extremes(self) -> tuple[float, float]:
        """Return the smallest and largest priority above zero; the first call begins to keep them.

        Lows and highs of all nodes then lie behind the sums, the top node last in each.
        """
        if self.numbers.size == self._size:
            numbers = make_tree(self.capacity, extremes=True)
            numbers[: self._size] = self.numbers
            rebuild(numbers, self.offsets, None)  # None: priorities
            self.numbers = numbers
        lows, highs = np.split(self.numbers[self._size :], 2)
        return float(lows[-WIDTH:].min()), float(highs[-WIDTH:].max())

    def update(
        self,
        indices: Array,
        numbers: Array,
        rule: LeafRule | None = None,
        filled: int | None = None,
    ) -> None:
        """Write the leaves of checked numbers, by a rule; of equal indices the last one counts.

        Both are (n,) and overwritten. Without a rule the numbers themselves are the leaves.
        """
        if rule is not None:
            if rule.num_present < rule.per_env:
                is_present = (indices - rule.begin) % rule.per_env < rule.num_present
                indices, numbers = indices[is_present], numbers[is_present]
            if rule.is_power:
                _write_leaves_of(numbers, rule.epsilon, rule.alpha, numbers)
        update(self.numbers, self.offsets, filled, indices, numbers, self.largest)

    def write_runs(
        self, num_envs: int, begin: int, end: int, leaves: Array, filled: int | None = None
    ) -> None:
        """Write the leaves of new items; see the kernel `write_runs`."""
        slots = self.capacity // num_envs
        write_runs(self.numbers, self.offsets, filled, num_envs, slots, begin, end, leaves)

    def rebuild(self, filled: int | None = None) -> None:
        """Recompute everything above the leaves."""
        rebuild(self.numbers, self.offsets, filled)

    @staticmethod
    def nothing_to_draw() -> ValueError:
        """Return the exception for a sum of zero."""
        return ValueError("sample: no item has a priority above zero, the total is 0")

    def draw(
        self,
        stream: Array,
        out: Array,
        stratified: bool = False,
        num_threads: int | None = None,
        beta: float | None = None,
    ) -> tuple[Array, Array] | None:
        """Fill `out`, (n,) int64, by priority; ValueError if their sum is zero.

        Returns:
            With an exponent `beta`, the probabilities, float64, and importance weights, float32, of
            what was drawn.
        """
        arguments = (self.numbers, self.offsets, stream, stratified, out)
        total = float(launch(DRAW, out.size, num_threads, *arguments))
        if not total > 0.0:
            stream[1] -= np.uint64(out.size)  # as if nothing had been drawn
            raise self.nothing_to_draw()
        if beta is None:
            return None
        probabilities, weights = np.empty(out.size), np.empty(out.size, np.float32)
        write = importance_weights().kernel
        write(self.numbers, out, total, np.float32(beta), probabilities, weights)
        return probabilities, weights

    def draw_distinct(
        self,
        stream: Array,
        out: Array,
        stratified: bool = False,
        filled: int | None = None,
        fills: bool = False,
    ) -> bool:
        """Fill `out`, (n,) int64, with different leaves, by weight; False where fewer have one.

        With `fills` the values that have none follow, all as likely.
        """
        counter_before, num_drawn = stream[1], 0
        if out.size <= (self.capacity if filled is None else filled):
            arguments = (self.numbers, self.offsets, filled, stream, stratified, fills, out)
            num_drawn = draw_distinct(*arguments)
        if num_drawn < out.size:
            stream[1] = counter_before  # as if nothing had been drawn
        return bool(num_drawn == out.size)
