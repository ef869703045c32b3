"""Transitions whose goals are replaced by what was achieved later: hindsight experience replay.

Andrychowicz et al. 2017, "Hindsight experience replay", NIPS. Whatever an episode has led to would
have been a success, had it been the goal: so rewards are learnt from that are hardly ever met.

An episode of an environment is a run of its steps. It ends where `terminated` or `truncated` is
set, and where the achieved goal of the following step is not what the step led to, as after a reset
that no flag tells of. Steps are counted from 0 on, those that were overwritten too: step s of
environment e is in row e * length + s % length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from rlcpu.kernels.compiler.compile import EXACT, kernel
from rlcpu.kernels.machine.memory import prefetch
from rlcpu.kernels.machine.random import u64, uniform53
from rlcpu.replay.buffer import (
    Array,
    Path,  # noqa: F401 (in annotations of the constructor that `dataclass` makes)
)
from rlcpu.replay.buffers import ReplayBuffer
from rlcpu.replay.checkpoint import Reader
from rlcpu.replay.checks import check_number
from rlcpu.replay.items import Batch, Items, Ring
from rlcpu.replay.lock import complete
from rlcpu.replay.samplers import UniformSampler
from rlcpu.replay.storage import ROW_BYTES, SOURCE, TARGET, allocate, copy_row
from rlcpu.replay.structure import TransitionStructure

#: Which achieved goals of an episode replace that of a step, in the order of the kernel's numbers.
GOALS = ("future", "final", "episode")
_FUTURE, _FINAL, _EPISODE = range(3)
#: Numbers that are known of each step: the first and the last step of its episode.
_BEGIN, _END = range(2)
#: The last step of an episode that goes on, and the row of a goal that was pursued.
_RUNNING, _OWN = -1, -1
#: (achieved goals, desired goals) -> rewards, or (rewards, terminated).
ComputeReward = Callable[[Any, Any], Any]

# ---------------------------------------------------------------- kernels


@kernel(fastmath=EXACT)
def mark_episodes(ends, cuts, first, begins, bounds):
    """Write the first and the last step of the episode of each step that is added.

    Args:
        ends: (num_steps, num_envs) bool, whether an episode ends with a step that is added.
        cuts: (num_envs,) bool, whether it has ended with the step before these.
        first: number of the first step that is added.
        begins: (num_envs,) int64, first step of the episode that goes on; overwritten.
        bounds: (num_envs, length, 2) int64, of the steps that are there; of those that go on, and
            of the new ones, overwritten.
    """
    num_steps, num_envs = ends.shape
    length = bounds.shape[1]
    for env in range(num_envs):
        begin = begins[env]
        for step in range(first - 1, first + num_steps):
            is_new = step >= first
            if is_new:
                bounds[env, step % length, _BEGIN] = begin
                bounds[env, step % length, _END] = _RUNNING
            if ends[step - first, env] if is_new else cuts[env]:
                for each in range(max(begin, step - length + 1), step + 1):
                    bounds[env, each % length, _END] = step
                begin = step + 1
        begins[env] = begin


@kernel(fastmath=EXACT)
def draw_goals(stream, added, kind, ratio, bounds, rows, goals):
    """Draw the rows whose achieved goals replace those of drawn transitions.

    Args:
        stream: (2,) uint64, key and counter of random numbers; the counter goes on by n.
        added: steps that were added so far.
        kind: number of one of `GOALS`.
        ratio: probability that a goal is replaced, if the episode has ended.
        bounds: see `mark_episodes`.
        rows: (n,) int64, of the transitions.
        goals: (n,) int64, overwritten with rows, or `_OWN` where a goal is not replaced.
    """
    length = bounds.shape[1]
    newest, flat = added - 1, bounds.reshape(-1)
    for j in range(rows.size):
        prefetch(flat, 2 * rows[j])
    for j in range(rows.size):
        u = uniform53(stream[0], u64(stream[1] + u64(j)))
        begin, end = flat[2 * rows[j] + _BEGIN], flat[2 * rows[j] + _END]
        goals[j] = _OWN
        if u < ratio and end != _RUNNING:
            env = rows[j] // length
            step = newest - (newest - (rows[j] - env * length)) % length
            first = step
            if kind == _FINAL:
                first = end
            elif kind == _EPISODE:
                first = max(begin, newest - length + 1)
            # u / ratio is uniform again, in [0, 1).
            goal = min(first + np.int64(u / ratio * (end - first + 1)), end)
            goals[j] = env * length + goal % length
    stream[1] += u64(rows.size)


@kernel(fastmath=EXACT)
def set_goals(storage, out, goal, targets, goals):
    """Copy achieved goals of the storage to the desired goals of a batch, unless they are `_OWN`.

    Both are uint8. `goal` is (2,) int64, where achieved goals begin in the storage, and the bytes
    of a row; `targets` (num_targets,) int64, where desired goals begin in the batch.
    """
    begin, row_bytes = goal
    for j in range(goals.size):
        if goals[j] != _OWN:
            prefetch(storage, begin + goals[j] * row_bytes)
            prefetch(storage, begin + (goals[j] + 1) * row_bytes - 1)
    for j in range(goals.size):
        if goals[j] != _OWN:
            for target in targets:
                to = target + j * row_bytes
                copy_row(out, to, storage, begin + goals[j] * row_bytes, row_bytes)


# ---------------------------------------------------------------- the sampler


class ByEpisode(UniformSampler):
    """Draws transitions uniformly, and for each of them the step whose achieved goal it gets.

    Attributes:
        bounds: (num_envs, length, 2) int64, see `mark_episodes`.
        begins: (num_envs,) int64, first steps of the episodes that go on; and how many steps had
            been added to each environment then.
    """

    def __init__(self, items: Items, backend: Any, goal: str, ratio: float) -> None:
        super().__init__(items, backend)
        self.kind, self.ratio = GOALS.index(goal), ratio
        memory = allocate(2 * 8 * items.num_envs * items.per_env).view(np.int64)
        self.bounds = memory.reshape(items.num_envs, items.per_env, 2)
        self.begins = np.zeros(items.num_envs, np.int64), 0

    def add(self, before: Ring, after: Ring, *weights: Array) -> None:
        """Mark the episodes of new steps; `weights` are `ends` and `cuts` of `mark_episodes`."""
        begins, added = self.begins
        if added == before.added:  # not where this was done before an interrupt
            begins = begins.copy()
            mark_episodes(*weights, before.added, begins, self.bounds)
            self.begins = begins, after.added

    def draw(self, stream: Array, ring: Ring, indices: Array, batch: Any) -> None:
        """Fill indices, and the batch's goals."""
        super().draw(stream, ring, indices, batch)
        batch.goals = goals = np.empty(indices.size, np.int64)
        draw_goals(stream, ring.added, self.kind, self.ratio, self.bounds, indices, goals)

    def restore_episodes(self, ends: Array, ring: Ring) -> None:
        """Mark the episodes of the steps that a checkpoint holds; `ends` are (num_envs, length).

        What an episode has lost of its beginning makes no difference: no goal is drawn there.
        """
        oldest = ring.added - ring.filled
        slots = np.arange(oldest, ring.added) % ring.length
        begins = np.full(len(ends), oldest)
        no_cuts = np.zeros(len(ends), np.bool_)
        mark_episodes(ends.T[slots], no_cuts, oldest, begins, self.bounds)
        self.begins = begins, ring.added


# ---------------------------------------------------------------- fields


class _Places(NamedTuple):
    """Positions of fields of a transition."""

    achieved: int
    desired: int
    next_achieved: int
    next_desired: int
    reward: int
    terminated: int
    truncated: int


def _find_places(structure: TransitionStructure) -> _Places:
    """Return the positions of the fields; ValueError or TypeError where one is of another kind."""
    parts = "observation.achieved_goal", "observation.desired_goal"
    names = *parts, *(f"next_{name}" for name in parts), "reward", "terminated", "truncated"
    positions = []
    for name in names:
        present = [n for n, each in enumerate(structure.fields) if each.name == name]
        if not present:
            raise ValueError(
                f"example has no field {name!r}: goals are parts of the observations, expected "
                f"{', '.join(names)}"
            )
        positions += present
    goal, *goals = [structure.fields[position] for position in positions[:4]]
    for other in goals:
        if (other.dtype, other.shape) != (goal.dtype, goal.shape):
            raise ValueError(
                f"example has {other.name} {other.dtype} {other.shape}: expected {goal.dtype} "
                f"{goal.shape}, as {goal.name} is"
            )
    for position, expected in zip(positions[4:], ("f", "b", "b"), strict=True):
        number = structure.fields[position]
        if number.shape or number.dtype.kind != expected:
            kind = "float" if expected == "f" else "bool"
            raise TypeError(
                f"example has {number.name} {number.dtype} {number.shape}: expected one {kind} per "
                "transition"
            )
    return _Places(*positions)


def _differ(reached: Array, starts: Array, num_axes: int) -> Any:
    """Tell which goals, arrays of which so many leading axes count them, are not the same."""
    unequal = reached != starts
    return unequal.any(axis=tuple(range(num_axes, unequal.ndim)))


def _write_results(name: str, values: Any, kinds: str, is_replaced: Array, out: Array) -> None:
    """Write results of a `compute_reward` where goals were replaced; raise for other results.

    `name` is theirs in messages, `kinds` are the kinds of dtypes that they may have.
    """
    array = np.asarray(values)
    if array.dtype.kind not in kinds:
        expected = "bools" if kinds == "b" else "numbers"
        raise TypeError(f"compute_reward returned {name} of {array.dtype}: expected {expected}")
    if array.shape != out.shape:
        raise ValueError(
            f"compute_reward returned {name} of shape {array.shape}: expected {out.shape}"
        )
    np.copyto(out, array, where=is_replaced, casting="unsafe")


# ---------------------------------------------------------------- the buffer


@dataclass(eq=False, repr=False)
class HindsightReplayBuffer(ReplayBuffer):
    """Transitions drawn uniformly, most of them with a goal that was achieved later.

    Andrychowicz et al. 2017, "Hindsight experience replay", sections 3.2 and 4.5. Observations are
    dicts, or other containers, with the parts `achieved_goal` and `desired_goal`, as those of
    Gymnasium-Robotics are. Each transition that is drawn gets, with the probability `ratio`, as the
    desired goal of both its observations the `next_observation` 's achieved goal of another step of
    its episode, and the reward of that goal by `compute_reward`. Transitions of an episode that has
    not ended yet are drawn, too, with the goal that is pursued.

    An episode ends where `terminated` or `truncated` is set, and where the next step's achieved
    goal is not what the step has led to. Of one that has lost its beginning, the other steps are
    replayed, and no goal comes from those that it has lost.

    Args:
        capacity: transitions that are kept; see `ReplayBuffer`, also for other arguments, errors.
        example: one transition, with `observation` and `next_observation` that have the parts
            `achieved_goal` and `desired_goal`, of one dtype and shape, `reward` (a float),
            `terminated` and `truncated` (bools).
        compute_reward: (achieved_goal, desired_goal) -> rewards, or (rewards, terminated): arrays
            (n, *shape) to arrays (n,). Without the second, `terminated` stays what was stored.
            None where `sample` is given one, as agents give that of their environment. It is not
            saved: set it after `load`.
        goal: "future" draws among the goals that were achieved from the step itself on to the end
            of its episode, "episode" among all of the episode's, "final" takes the last.
        ratio: probability that the goal of a transition is replaced, 0 to 1.

    Raises:
        TypeError, ValueError: the example lacks one of the fields, or a field is of another kind.
        NotImplementedError: on a CUDA device.

    Example:
        >>> goals = {"achieved_goal": 0, "desired_goal": 0}
        >>> example = {"observation": goals, "next_observation": goals, "reward": 0.0}
        >>> example |= {"terminated": False, "truncated": False}
        >>> reached = lambda achieved, desired: (achieved == desired) - 1.0
        >>> buffer = HindsightReplayBuffer(1000, example, compute_reward=reached, ratio=1.0)
        >>> places = np.arange(3)  # where an episode of three steps was, on its way to 9
        >>> before = {"achieved_goal": places, "desired_goal": np.full(3, 9)}
        >>> buffer.add({
        ...     "observation": before,
        ...     "next_observation": {**before, "achieved_goal": places + 1},
        ...     "reward": np.full(3, -1.0),
        ...     "terminated": np.zeros(3, bool),
        ...     "truncated": places == 2,
        ... })
        >>> int(buffer.sample(100)["observation"]["desired_goal"].max())
        3
    """

    _: KW_ONLY
    compute_reward: ComputeReward | None = None
    goal: Literal["future", "final", "episode"] = "future"
    ratio: float = 0.8
    n_step: int = field(init=False, default=1)
    gamma: float = field(init=False, default=0.99)
    truncated: bool = field(init=False, default=True)
    derive_next: bool = field(init=False, default=False)
    _sampler: ByEpisode = field(init=False)

    def _make_items(self) -> Items:
        if self.device != "cpu":
            raise NotImplementedError(
                f"device={self.device!r}: goals are replaced on the CPU alone"
            )
        if self.goal not in GOALS:
            raise ValueError(f"goal={self.goal!r}: expected one of {', '.join(map(repr, GOALS))}")
        self.ratio = check_number("ratio", self.ratio, 0.0, 1.0)
        if self.compute_reward is not None and not callable(self.compute_reward):
            raise TypeError(
                f"compute_reward={self.compute_reward!r}: expected a function of the achieved and "
                "the desired goals, or None"
            )
        self._places = _find_places(self.structure)
        return super()._make_items()

    def _make_sampler(self) -> ByEpisode:
        return ByEpisode(self._items, self.backend, self.goal, self.ratio)

    @classmethod
    def _settings(cls) -> list[str]:
        return [name for name in super()._settings() if name != "compute_reward"]

    # ------------------------------------------------------------ adding

    def add(self, batch: Any) -> None:
        """Store transitions; see `ReplayBuffer.add`."""
        arrays, places = self._check(batch), self._places
        ends = arrays[places.terminated] | arrays[places.truncated]
        reached, starts = arrays[places.next_achieved], arrays[places.achieved]
        ends[:-1] |= _differ(reached[:-1], starts[1:], 2)
        with self.locked():
            cuts = np.zeros(self._envs, np.bool_)
            if self._ring.added:
                last = self._storage.fields[places.next_achieved][:, self._ring.slot - 1]
                cuts = _differ(last, starts[0], 1)
            complete(self._write, arrays, self._ring, ends, cuts)

    def _read_state(self, header: dict[str, Any], source: Reader) -> None:
        super()._read_state(header, source)
        fields, places = self._storage.fields, self._places
        ends = fields[places.terminated] | fields[places.truncated]
        reached, starts = fields[places.next_achieved], fields[places.achieved]
        newest = self._ring.slot - 1
        is_last = ends[:, newest].copy()  # behind it are the oldest steps
        ends[:, :-1] |= _differ(reached[:, :-1], starts[:, 1:], 2)
        ends[:, -1] |= _differ(reached[:, -1], starts[:, 0], 1)
        ends[:, newest] = is_last
        self._sampler.restore_episodes(ends, self._ring)

    # ------------------------------------------------------------ sampling

    def sample(
        self,
        batch_size: int,
        *,
        compute_reward: ComputeReward | None = None,
        out: Batch | None = None,
    ) -> Batch:
        """Draw transitions, most of which have other goals than were pursued.

        Args:
            batch_size: how many.
            compute_reward: stands in for the buffer's own.
            out: a batch that this buffer returned for the same size: overwritten and returned.

        Returns:
            See `ReplayBuffer.sample`. Its `goals` are the indices of the transitions whose achieved
            goals have become the desired ones, and -1 where a goal was not replaced.

        Raises:
            TypeError, ValueError: see `ReplayBuffer.sample`; or there is no `compute_reward`, or it
                returns something else than is expected.
        """
        compute_reward = compute_reward or self.compute_reward
        if compute_reward is None:
            raise ValueError(
                "compute_reward=None: expected the function of goals, here or in the buffer"
            )
        batch, places = self._sample(batch_size, out), self._places
        leaves, goals = batch.rows.leaves, np.asarray(batch.goals)
        is_replaced = goals != _OWN
        if not is_replaced.any():
            return batch
        results: Any = compute_reward(leaves[places.next_achieved], leaves[places.next_desired])
        rewards, *flags = results if isinstance(results, tuple) and results else (results,)
        if len(flags) > 1:
            count = f"{1 + len(flags)} results"
            raise ValueError(f"compute_reward returned {count}: expected rewards and terminated")
        _write_results("rewards", rewards, "biuf", is_replaced, leaves[places.reward])
        for values in flags:
            _write_results("terminated", values, "b", is_replaced, leaves[places.terminated])
        return batch

    def _gather(self, rows: Array, batch: Batch) -> None:
        super()._gather(rows, batch)
        if batch.goals is not None:  # `peek` replaces none
            places, table = self._places, batch.rows.table
            goal = table[places.next_achieved, [SOURCE, ROW_BYTES]]
            targets = table[[places.desired, places.next_desired], TARGET]
            set_goals(self._storage.block, batch.rows.block, goal, targets, batch.goals)
