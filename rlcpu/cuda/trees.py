"""Trees of sums on the device: drivers of the rules in `rlcpu.replay.tree`.

The same numbers as on the CPU, bit for bit: sums, and what is drawn for the same seed. Leaves are
values on the device; priorities are values with a shift of 0, and all leaves are items.
"""

from __future__ import annotations

import types
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda import device
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.device import SIMULATED, Prepared, cuda, launch, xp
from rlcpu.cuda.faults import Faults, report
from rlcpu.replay import tree_cpu
from rlcpu.replay.checks import LeafRule
from rlcpu.replay.lock import complete
from rlcpu.replay.tree import (
    WIDTH,
    find_target,
    refresh,
    scan,
    unpack,
    walk,
    weight,
    weight_of_all,
)

#: Threads of a block; the simulator starts each of them, so that it has few.
BLOCK = 4 if SIMULATED else 256
#: Of a block of `apply_claims`: a thread for every node of leaves.
APPLY_BLOCK = 4 if SIMULATED else 512
#: Levels above the leaves that one block of `apply_claims` recomputes, and the leaves below it.
LEVELS = 2 if SIMULATED else 4
SPAN = WIDTH**LEVELS
#: Entries of those levels.
_ENTRIES = (SPAN - 1) // (WIDTH - 1)

#: Kinds of faults, see `_make_faults`.
_OUT_OF_RANGE, _BAD_NUMBER, _UNWRITTEN, _NOTHING = range(4)
#: Numbers of `Claims.record`: the largest leaf so far, see `rlcpu.replay.tree_cpu.Tree`; of this
#: update the largest, whether a number is refused, and how many blocks have finished.
_LARGEST, _HIGHEST, _REFUSED, _FINISHED = range(4)


class TreeMemory(NamedTuple):
    """A tree, as kernels take it; `levels_of` has its levels."""

    numbers: Any  # float64, the memory of all levels
    offsets: Any  # (num_levels + 1,) int64, where levels begin, see `rlcpu.replay.tree.layout`
    filled: float  # how many leaves are items


class Claims(NamedTuple):
    """Holds what the first kernel of an update hands to the second.

    Stamps, and all of `record` but its first number, are 0 between updates.
    """

    stamps: Any  # (offsets[1],) int32, 1 + the position of the number that a leaf is given
    stamp_pairs: Any  # (offsets[1] / 2,) int64, the same memory
    leaves: Any  # (n,) float64, by the position of their numbers
    record: Any  # (4,) float64, see `_LARGEST`


class NewItems(NamedTuple):
    """New items of all environments, see `rlcpu.replay.tree_cpu.write_runs`."""

    num_envs: int
    slots: int  # of each environment
    start: int  # slot of the first item
    num_items: int  # at most `slots`


class DrawRequest(NamedTuple):
    """Says how leaves are drawn."""

    key: Any  # uint64, of the random numbers
    counter: Any  # uint64, of the first
    stratified: bool
    avoids_zero: bool  # whether a leaf without a weight, drawn by rounding, is replaced
    has_probabilities: bool  # whether they are asked for


def levels_of(tree):
    """Return the `rlcpu.replay.tree.Levels` of a tree."""
    return unpack(tree.numbers, tree.offsets, tree.filled)


def highest_of_block(number):
    """Return the largest of the numbers of all threads of a block, in each of them."""
    numbers, thread = cuda.shared.array(BLOCK, np.float64), cuda.threadIdx.x
    cuda.syncthreads()  # of an earlier call all have read
    numbers[thread] = number
    width = cuda.blockDim.x
    while width > 1:
        cuda.syncthreads()
        half = (width + 1) // 2
        if thread + half < width:
            numbers[thread] = max(numbers[thread], numbers[thread + half])
        width = half
    cuda.syncthreads()
    return numbers[0]


# ---------------------------------------------------------------- upkeep

# An update is two kernels. The first makes leaves of numbers and stamps those that get one; the
# second, a block for every `SPAN` leaves, reads all stamps: 8 MB of 2^21 leaves, on paper 2 us. A
# launch for each level would take more.


@kernel(exact=True)
def claim(indices, numbers, rule, claims, words):
    """Stamp each leaf with the last position that gives it a number; see `LeafRule`.

    What is wrong is reported to `words`, and the call refused.
    """
    k, highest, fault = cuda.grid(1), 0.0, -1
    if k < indices.size:
        index, number = indices[k], np.float64(numbers[k])
        if not 0 <= index < rule.capacity:
            fault = _OUT_OF_RANGE
        elif not rule.low <= number <= rule.high:
            fault = _BAD_NUMBER
        elif index % rule.per_env >= rule.written:
            fault = _UNWRITTEN
        elif (index - rule.begin) % rule.per_env < rule.num_present:
            leaf = (number + rule.epsilon) ** rule.alpha if rule.is_power else number
            claims.leaves[k], highest = leaf, max(leaf, highest)
            cuda.atomic.max(claims.stamps, index, np.int32(k + 1))
        if fault >= 0:
            report(words, fault, k)
            claims.record[_REFUSED] = 1.0
    highest = highest_of_block(highest)
    if cuda.threadIdx.x == 0 and highest > claims.record[_LARGEST]:
        cuda.atomic.max(claims.record, _HIGHEST, highest)


@kernel(exact=True)
def claim_run(run, leaves, claims):
    """Stamp the leaves of new items; `leaves` are one for each, or one for all, (1,)."""
    k = cuda.grid(1)
    if k < run.num_envs * run.num_items:
        env, item = k // run.num_items, k % run.num_items
        slot = run.start + item
        index = env * run.slots + (slot - run.slots if slot >= run.slots else slot)
        first = leaves.size - run.num_items  # of more leaves than items the last ones count
        claims.leaves[k] = leaves[first + item] if leaves.size > 1 else leaves[0]
        claims.stamps[index] = k + 1


def take_leaves(numbers, claims, node, is_refused):
    """Write the leaves of a node that have a stamp, clear the stamps, and tell if any was written.

    None is where a call is refused.
    """
    pairs, begin = claims.stamp_pairs, node * (WIDTH // 2)
    a, b, c, d = pairs[begin], pairs[begin + 1], pairs[begin + 2], pairs[begin + 3]
    if a | b | c | d == 0:
        return False
    for leaf in range(node * WIDTH, (node + 1) * WIDTH):
        stamp = claims.stamps[leaf]
        if stamp > 0:
            claims.stamps[leaf] = 0
            if not is_refused:
                numbers[leaf] = claims.leaves[stamp - 1]
    return not is_refused


@kernel(exact=True)
def apply_claims(tree, claims, is_whole):
    """Write the leaves that have stamps, and recompute all sums above them; all if `is_whole`.

    A block recomputes `LEVELS` levels above `SPAN` leaves of its own, and the last one to finish
    those above. If the call is refused, nothing but stamps is changed.
    """
    levels, offsets, thread = levels_of(tree), tree.offsets, cuda.threadIdx.x
    # Of the block's entries, level by level, whether they are recomputed.
    is_new, is_last = cuda.shared.array(_ENTRIES, np.uint8), cuda.shared.array(1, np.uint8)
    record, top = claims.record, offsets.size - 2
    is_refused = record[_REFUSED] != 0.0
    entries, begin, below = SPAN // WIDTH, 0, 0
    for level in range(1, min(LEVELS, top) + 1):
        num_nodes = (offsets[level] - offsets[level - 1]) // WIDTH
        for entry in range(thread, entries, cuda.blockDim.x):
            node, changes = cuda.blockIdx.x * entries + entry, False
            if node < num_nodes:
                if level == 1:
                    changes = take_leaves(tree.numbers, claims, node, is_refused) or is_whole
                else:
                    for child in range(WIDTH):
                        changes |= is_new[below + entry * WIDTH + child] != 0
            if changes:
                refresh(levels, level, node)
            is_new[begin + entry] = changes
        cuda.syncthreads()
        below, begin = begin, begin + entries
        entries //= WIDTH
    if thread == 0:  # as a barrier of the whole grid: what the block has written comes first
        cuda.threadfence()
        before = cuda.atomic.add(record, _FINISHED, 1.0)
        is_last[0] = before == cuda.gridDim.x - 1
        cuda.threadfence()
    cuda.syncthreads()
    if is_last[0]:
        for level in range(LEVELS + 1, top + 1):
            num_nodes = (offsets[level] - offsets[level - 1]) // WIDTH
            for node in range(thread, num_nodes, cuda.blockDim.x):
                refresh(levels, level, node)
            cuda.syncthreads()
        if thread == 0:
            if not is_refused:
                record[_LARGEST] = max(record[_LARGEST], record[_HIGHEST])
            record[_HIGHEST] = record[_REFUSED] = record[_FINISHED] = 0.0


# ---------------------------------------------------------------- drawing


@kernel(exact=True)
def summarise(tree, out):
    """Write the sum of all weights, and the shift, to `out`, (2,) float64."""
    if cuda.grid(1) == 0:
        levels = levels_of(tree)
        out[0], out[1] = weight_of_all(levels), levels.shift


@kernel(exact=True)
def draw(tree, request, words, out, probabilities, minima):
    """Draw leaves by weight, a thread each; draw k has stratum k. See `rlcpu.replay.tree_cpu`.

    Sums are rounded, so that a target may fall between the shares of two leaves, and a leaf without
    weight be drawn: one that has a weight takes its place, if that is asked for. `minima` are the
    least leaves of blocks, for `write_importance_weights`.
    """
    k, least = cuda.grid(1), np.inf
    if k < out.size:
        levels = levels_of(tree)
        all_weights, leaf, probability = weight_of_all(levels), np.int64(0), 0.0
        if all_weights > 0.0:
            width = all_weights / out.size if request.stratified else 0.0
            target = find_target(request.key, request.counter, all_weights, width, k)
            targets, leaves = cuda.local.array(1, np.float64), cuda.local.array(1, np.int64)
            targets[0] = target
            walk(levels, targets, leaves, 1)
            leaf = leaves[0]
            share = weight(levels.sums[leaf], levels.shift, levels.filled, leaf)
            if request.avoids_zero and not share > 0.0:
                leaf = scan(levels, target / all_weights)
                share = levels.sums[leaf]
            least, probability = share, share / all_weights
        elif k == 0:
            report(words, _NOTHING, 0)
        out[k] = leaf
        if request.has_probabilities:
            probabilities[k] = probability
    if request.has_probabilities:
        least = -highest_of_block(-least)
        if cuda.threadIdx.x == 0:
            minima[cuda.blockIdx.x] = least


@kernel(exact=True)
def write_importance_weights(tree, indices, minima, beta, out):
    """Write importance weights, (n,) float32, of what `draw` drew; zeros if that was nothing."""
    least = np.inf
    for block in range(cuda.threadIdx.x, minima.size, cuda.blockDim.x):
        least = min(least, minima[block])
    least = -highest_of_block(-least)
    k = cuda.grid(1)
    if k < indices.size:
        leaf = tree.numbers[indices[k]]
        ratio = np.float32(min(leaf / least, tree_cpu.LARGEST_RATIO))
        out[k] = tree_cpu.importance_weight(ratio, beta) if leaf > 0.0 else 0.0


# ---------------------------------------------------------------- memory


def _make_faults(capacity: int, name: str) -> Faults:
    """Return what kernels may find wrong; `name` is that of the numbers."""
    expected = "finite and in its range" if name == "values" else "finite and not negative"
    return Faults(
        lambda k: IndexError(
            f"indices: number {k} of an earlier call is out of range, expected 0 to {capacity - 1}"
        ),
        lambda k: ValueError(f"{name}: number {k} of an earlier call, expected {expected}"),
        lambda k: IndexError(f"indices: nothing was written yet at number {k} of an earlier call"),
        lambda k: tree_cpu.Tree.nothing_to_draw(),
    )


class DeviceTree(tree_cpu.Tree):
    """`rlcpu.replay.tree_cpu.Tree` on the device; nothing but `total` and `extremes` waits for it.

    What a kernel finds wrong is raised by the next `update`, `draw`, `total` or `extremes`.
    """

    def __init__(self, capacity: int, extremes: bool) -> None:
        super().__init__(capacity, extremes)
        self._begins, self._has_values = self.offsets.tolist(), extremes
        self.numbers, self.offsets = device.asarray(self.numbers), device.asarray(self.offsets)
        self._record = device.zeros(4, np.float64)
        self._record[_LARGEST] = 1.0
        self._prepare()

    def _prepare(self) -> None:
        """Make what no copy of a tree takes over: faults, and the claims of an update."""
        self._faults = _make_faults(self.capacity, "values" if self._has_values else "priorities")
        pairs = device.zeros(self._begins[1] // 2, np.int64)
        leaves = device.empty(BLOCK, np.float64)
        claims = Claims(pairs.view(np.int32), pairs, leaves, self._record)
        # Each array of a launch takes the host a microsecond: these are the same from call to call.
        self._claims, self._words = Prepared(claims), Prepared(self._faults.words)
        self._memory, self._rule = Prepared(None), Prepared(None)
        self._unused = Prepared(self.numbers)  # in the place of arrays that a kernel does not use
        self.largest = self._record[_LARGEST : _LARGEST + 1]

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self).copy()
        names = ("_claims", "_faults", "_memory", "_rule", "_unused", "_words", "largest")
        for name in names:  # what `_prepare` makes
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    def _top(self) -> Any:
        top = device.to_host(super()._top())
        self._faults.check()
        return top

    def extremes(self) -> tuple[float, float]:
        """Return the smallest and largest priority above zero."""
        leaves = self.leaves
        extremes = float(xp.where(leaves > 0.0, leaves, np.inf).min()), float(leaves.max())
        self._faults.check()
        return extremes

    # ------------------------------------------------------------ upkeep

    def update(
        self,
        indices: Any,
        numbers: Any,
        rule: LeafRule | None = None,
        filled: int | None = None,
    ) -> None:
        """Write the leaves of numbers, by a rule; of equal indices the last one counts.

        Both are (n,), of the device or the host. Without a rule numbers are leaves, unchecked.
        """
        self._faults.check()
        if indices.size:
            complete(self._write, indices, numbers, rule, filled)

    def _write(self, indices: Any, numbers: Any, rule: LeafRule | None, filled: int | None) -> None:
        """Launch both kernels of an update; between them stamps are not 0, see `Claims`."""
        if rule is None:
            count = self.capacity
            rule = LeafRule(count, -np.inf, np.inf, count, count, begin=0, num_present=count)
        if rule != self._rule.value:
            self._rule = Prepared(rule)
        arrays = [
            device.asarray(each) if type(each) is np.ndarray else xp.ascontiguousarray(each)
            for each in (indices, numbers)
        ]
        size = indices.size
        args = *arrays, self._rule, self._claims_of(size), self._words
        launch(claim, size, *args, block=BLOCK, grid=-(-size // BLOCK))
        self._apply_claims(filled)

    def write_runs(
        self, num_envs: int, begin: int, end: int, leaves: Any, filled: int | None = None
    ) -> None:
        """Write the leaves of new items; see `rlcpu.replay.tree_cpu.write_runs`."""
        slots = self.capacity // num_envs
        count = min(max(end - begin, 0), slots)
        if count:
            run = NewItems(num_envs, slots, (end - count) % slots, count)
            size = num_envs * count
            launch(claim_run, size, run, device.asarray(leaves), self._claims_of(size))
            self._apply_claims(filled)

    def rebuild(self, filled: int | None = None) -> None:
        """Recompute everything above the leaves."""
        self._apply_claims(filled, is_whole=True)

    def _memory_of(self, filled: int | None) -> Prepared:
        """Return the tree as kernels take it; all leaves are items where `filled` is None."""
        count, memory = float(self.capacity if filled is None else filled), self._memory.value
        if memory is None or memory.filled != count:
            self._memory = Prepared(TreeMemory(self.numbers, self.offsets, count))
        return self._memory

    def _claims_of(self, size: int) -> Prepared:
        """Return the claims of an update, with room for so many leaves."""
        claims = self._claims.value
        if claims.leaves.size < size:
            self._claims = Prepared(claims._replace(leaves=device.empty(2 * size, np.float64)))
        return self._claims

    def _apply_claims(self, filled: int | None, is_whole: bool = False) -> None:
        """Write leaves that have a stamp, and the sums above; or all sums."""
        blocks = -(-self._begins[1] // SPAN)
        tree = self._memory_of(filled)
        launch(apply_claims, blocks, tree, self._claims, is_whole, block=APPLY_BLOCK, grid=blocks)

    # ------------------------------------------------------------ drawing

    def draw(
        self,
        stream: Any,
        out: Any,
        stratified: bool = False,
        num_threads: int | None = None,
        beta: float | None = None,
    ) -> tuple[Any, Any] | None:
        """Fill `out` by priority; with `beta` return probabilities and importance weights.

        If their sum is zero, the next call raises ValueError, and all of these are zeros.
        """
        self._faults.check()
        size, tree, grid = out.size, self._memory_of(filled=None), -(-out.size // BLOCK)
        request = DrawRequest(stream[0], stream[1], stratified, True, beta is not None)
        probabilities: Any = self._unused
        minima: Any = self._unused
        if beta is not None:
            probabilities, minima = (device.empty(n, np.float64) for n in (size, grid))
        args = tree, request, self._words, out, probabilities, minima
        launch(draw, size, *args, block=BLOCK, grid=grid)
        stream[1] += np.uint64(size)
        if beta is None:
            return None
        weights = device.empty(size, np.float32)
        launch(
            write_importance_weights,
            size,
            tree,
            out,
            minima,
            np.float32(beta),
            weights,
            block=BLOCK,
            grid=grid,
        )
        return probabilities, weights

    def draw_distinct(
        self,
        stream: Any,
        out: Any,
        stratified: bool = False,
        filled: int | None = None,
        fills: bool = False,
    ) -> bool:
        """Fill `out` with different leaves, by weight; False where fewer have one.

        With `fills` the values that have none follow, all as likely.

        In rounds, as on the CPU. What they do not find, because all weights are zero or below the
        rounding errors of their sums, the CPU draws from a copy of the tree.
        """
        self._faults.check()
        if draws := self._draw_rounds(stream, out, stratified, filled):
            stream[1] += np.uint64(draws)
            return True
        drawn, numbers = np.empty(out.size, np.int64), device.to_host(self.numbers)
        offsets = np.array(self._begins)
        host: Any = types.SimpleNamespace(capacity=self.capacity, numbers=numbers, offsets=offsets)
        is_full = tree_cpu.Tree.draw_distinct(host, stream, drawn, stratified, filled, fills)
        if is_full:
            out[:] = device.asarray(drawn)
        return is_full

    def _draw_rounds(self, stream: Any, out: Any, stratified: bool, filled: int | None) -> int:
        """Draw different leaves until `out` is full, and return how many random numbers it took.

        0 if a round finds nothing. Leaves that were drawn have no weight until the end, so that no
        round draws them again: their value is minus the shift meanwhile, see `rlcpu.replay.tree`.
        """
        wanted, batch, num_items = out.size, out.size, self.capacity if filled is None else filled
        if wanted > num_items:
            return 0
        done, removed, draws, summary = 0, 0, 0, device.empty(2, np.float64)
        removed_values = device.empty(wanted, np.float64)
        try:
            while done < wanted:
                tree = self._memory_of(filled)
                launch(summarise, 1, tree, summary)
                all_weights, shift = device.to_host(summary).tolist()
                count = min(wanted - done, batch) if all_weights > 0.0 else 0
                drawn = device.empty(count, np.int64)
                counter = np.uint64((int(stream[1]) + draws) % 2**64)
                request = DrawRequest(stream[0], counter, stratified, False, False)
                args = request, self._words, drawn, self._unused, self._unused
                launch(draw, count, tree, *args)
                fresh = self._fresh(drawn, shift, num_items)
                if not fresh.size:
                    return 0
                out[done : done + fresh.size] = fresh
                done, draws = done + fresh.size, draws + count
                batch = max(tree_cpu.GROUP, 2 * fresh.size)  # as on the CPU
                if done < wanted:
                    removed_values[removed:done] = self.numbers[fresh]
                    complete(self._write, fresh, xp.full(fresh.size, -shift), None, filled)
                    removed = done
            return draws
        finally:
            if removed:
                complete(self._write, out[:removed], removed_values[:removed], None, filled)

    def _fresh(self, drawn: Any, shift: float, filled: int) -> Any:
        """Return the leaves that have a weight and are new, each once, in order."""
        drawn = drawn[(self.numbers[drawn] + shift > 0.0) & (drawn < filled)]
        if not drawn.size:
            return drawn
        _, first = xp.unique(drawn, return_index=True)
        return drawn[xp.sort(first)]
