"""The buffers: transitions and sequences, drawn uniformly, by priority, by value, or in order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rlcpu.replay.buffer import (
    Array,
    Buffer,
    Path,  # noqa: F401 (in annotations of the constructors that `dataclass` makes)
)
from rlcpu.replay.checks import check_count, check_flag, check_number
from rlcpu.replay.items import Batch, Items, NStep
from rlcpu.replay.lock import complete
from rlcpu.replay.samplers import MOST, ByPriority, ByValue, InOrder

if TYPE_CHECKING:
    from rlcpu.replay.loop import LoopStages


@dataclass(eq=False, repr=False)
class ReplayBuffer(Buffer):
    """Transitions, drawn uniformly with replacement (Lin 1992, Self-improving reactive agents).

    Args:
        capacity: transitions that are kept, the newest ones; divided by `num_envs` and rounded
            down to whole steps of all environments.
        example: one transition: a dict of arrays, numbers or Gymnasium spaces, nested as you like,
            or a dataclass, NamedTuple, tuple or array. It gives dtypes and shapes, and batches are
            structured like it.
        num_envs: environments that are added side by side; None if batches have no axis for it,
            and follow each other in time.
        n_step: steps whose rewards are added up when a transition is drawn, if its episode goes
            on for so long and they are there. `reward` (a float) becomes their discounted sum,
            `terminated`, `truncated` and fields named `next_...` those of the last of them, and
            `Batch.discounts` gamma to the power of their number.
        gamma: discount factor of these sums, in [0, 1].
        truncated: False says that no episode is cut. Sums of n_step > 1 end where `terminated` or
            `truncated` is True, and the example has to have both fields otherwise.
        derive_next: store no `next_observation`, but take it from the `observation` of the step
            that follows in the same environment; both need the same fields. Where they differ in
            a byte, as at the end of an episode, it is kept too, in memory even with `memmap`, so
            that batches are what they would be otherwise, for about half the memory.
        memmap: a file to be made that holds the transitions, for more than fits into memory. A
            forked process shares it: what is added there, is added here, though not counted.
        seed: of the buffer's own stream of random numbers, 0 to 2**128 - 1; None takes a new one.
        num_threads: most threads that a call may use; None for all.
        device: "cpu" or "cuda": where the transitions are, and batches of them. The same ones are
            drawn everywhere. On "cuda", fields are bool, integers or real numbers of at most 64
            bits, and what is added may be there or on the host.

    Raises:
        TypeError, ValueError: an argument is of the wrong kind, or out of range.
        FileExistsError: there is something at `memmap` already.
        MemoryError: there is no room.
        NotImplementedError: `derive_next` or `memmap` is asked for on a CUDA device.
        CudaUnavailableError, CudaMemoryError: there is none, or not enough memory there.

    Example:
        >>> buffer = ReplayBuffer(1000, {"observation": np.zeros(4, np.float32), "reward": 0.0})
        >>> buffer.add({"observation": np.ones((3, 4), np.float32), "reward": np.arange(3.0)})
        >>> buffer.sample(2)["observation"].shape
        (2, 4)
    """

    capacity: int
    example: Any
    _: KW_ONLY
    num_envs: int | None = None
    n_step: int = 1
    gamma: float = 0.99
    truncated: bool = True
    derive_next: bool = False

    def _make_items(self) -> Items:
        if self.num_envs is not None:
            self.num_envs = check_count("num_envs", self.num_envs)
        num_envs = self.num_envs or 1
        self.capacity = check_count("capacity", self.capacity, num_envs)
        self.truncated = check_flag("truncated", self.truncated)
        self._n_step = NStep(self.structure, self.n_step, self.gamma, self.truncated)
        self.n_step, self.gamma = self._n_step.n, self._n_step.gamma
        return Items(num_envs, per_env=self.capacity // num_envs)

    @contextlib.contextmanager
    def looping(
        self, batch: Batch, sources: Mapping[str, tuple[int, int]], count: int, errors: Array
    ) -> Iterator[LoopStages]:
        """Yield the buffer's memory to kernels that add and draw, and hold the lock meanwhile.

        Of this class and `PrioritizedReplayBuffer`, on the CPU and without `derive_next`.

        Args:
            batch: that `sample` returned last, of size S; kernels draw into it.
            sources: of each field, by name, the address of the first transition that is added, and
                the distance of transitions in bytes.
            count: transitions that are added at a time, whole steps of all environments.
            errors: (S,) float32, whose absolute values become priorities.

        Yields:
            The memory, and the compiled functions that work on it.
        """
        from rlcpu.replay.loop import LoopParts, make_loop  # 16 ms: not with `import rlcpu`

        assert self._n_step is not None
        with self.locked():
            parts = LoopParts(
                structure=self.structure,
                storage=self._storage,
                sampler=self._sampler,
                n_step=self._n_step,
                ring=self._ring,
                stream=self._stream,
            )
            stages = make_loop(parts, batch, sources, count // self._envs, errors)
            loop = stages.loop
            try:
                yield stages
            finally:  # kernels have added
                self._ring = self._ring._replace(added=int(loop.added[0]))


@dataclass(eq=False, repr=False)
class ItemBuffer(ReplayBuffer):
    """Items of any kind, each added by itself, drawn uniformly with replacement.

    Arguments are those of `ReplayBuffer`, without `num_envs`, `n_step`, `gamma`,
    `truncated`, `derive_next`.
    """

    num_envs: int | None = field(init=False, default=None)
    n_step: int = field(init=False, default=1)
    gamma: float = field(init=False, default=0.99)
    truncated: bool = field(init=False, default=True)
    derive_next: bool = field(init=False, default=False)

    def _check(self, batch: Any) -> list[Array]:
        """Return the arrays of one item, structured and shaped like the example."""
        arrays, _ = self._storage.check(batch, max_axes=0)
        return [array[None, None] for array in arrays]  # one step of one environment


@dataclass(eq=False, repr=False)
class Prioritized(Buffer):
    """Methods that buffers with priorities have in common."""

    _: KW_ONLY
    alpha: float = 0.6
    beta: float = 0.4
    epsilon: float = 1e-6
    _sampler: ByPriority = field(init=False)

    def _make_sampler(self) -> ByPriority:
        self.alpha = check_number("alpha", self.alpha, 0.0, 2.0)
        self.beta = check_number("beta", self.beta, 0.0, 1.0)
        self.epsilon = check_number("epsilon", self.epsilon, 0.0, MOST)
        exponents = {"alpha": self.alpha, "beta": self.beta, "epsilon": self.epsilon}
        return ByPriority(self._items, self.backend, **exponents, num_threads=self.num_threads)

    def sample(
        self, batch_size: int, *, beta: float | None = None, out: Batch | None = None
    ) -> Batch:
        """Draw transitions or sequences by priority, with replacement; see `ReplayBuffer.sample`.

        The batch has probabilities and importance weights too; `beta` stands in for the buffer's
        own. ValueError is raised also where no priority is above zero: on a CUDA device by the next
        call, see `update_priorities`, and all indices, probabilities and weights are 0 meanwhile.
        """
        return self._sample(batch_size, out, beta)

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Give transitions or sequences new priorities; of equal indices the last one counts.

        A transition that was overwritten since it was drawn hands its priority to its successor;
        sequences that are no longer there, or not again yet, are passed over.

        Args:
            indices: (n,) of any integer dtype, as a batch has them.
            priorities: (n,), or one for all; finite and not negative.

        Raises:
            IndexError: an index is out of range, or nothing was written there yet.
            TypeError: an array is of another kind.
            ValueError: a priority is NaN, negative or above 1e100, or a shape is wrong. Nothing is
                changed by a call that raises. Values of arrays on a CUDA device are checked there,
                without a wait: such a call changes nothing either, and the buffer's next `sample`
                or `update_priorities`, or `rlcpu.cuda.synchronize`, raises.
        """
        pairs = self.check_priorities(indices, priorities)
        with self.locked():
            self._sampler.update(self._ring, *pairs)

    def check_priorities(self, indices: Any, priorities: Any) -> tuple[Array, Array]:
        """Return indices and priorities for `update_priorities`, or its exception."""
        return self._sampler.check(self._ring, indices, priorities)


@dataclass(eq=False, repr=False)
class PrioritizedReplayBuffer(ReplayBuffer, Prioritized):
    """Transitions, drawn by priority with replacement (Schaul et al. 2016, Prioritized replay).

    Transition i is drawn with probability P(i) proportional to (priority + epsilon) ** alpha, and
    comes with the importance weight (N P(i)) ** -beta over the largest one of its batch. New
    transitions get the largest priority given so far, at first 1. The other arguments, and errors,
    are those of `ReplayBuffer`.

    Args:
        alpha: 0 draws uniformly, 1 in proportion; at most 2.
        beta: 0 to 1, how much of the bias importance weights correct; `sample` takes another one.
        epsilon: added to each priority, so that items of priority 0 are drawn too.

    Example:
        >>> buffer = PrioritizedReplayBuffer(1000, {"reward": 0.0}, seed=0)
        >>> buffer.add({"reward": np.arange(3.0)})
        >>> batch = buffer.sample(2)
        >>> buffer.update_priorities(batch.indices, np.abs(batch["reward"]))
    """


@dataclass(eq=False, repr=False)
class ReturnWeightedBuffer(Buffer):
    """Transitions with a value each, drawn in proportion to it, none twice in a batch.

    The weight of a transition is its value - min(0, smallest value that is in the buffer); where
    all weights are zero, all transitions are as likely. The other arguments, and errors, are those
    of `ReplayBuffer`, without `num_envs`, `n_step`, `gamma` and `truncated`.

    Args:
        fill_up: whether a batch takes transitions without a weight, all as likely, where fewer have
            one than are wanted: these are all in it then. False is a ValueError in that case.

    Example:
        >>> buffer = ReturnWeightedBuffer(1000, {"reward": 0.0}, seed=0)
        >>> buffer.add({"reward": np.zeros(3)}, [-5.0, 10.0, 10.0])
        >>> sorted(buffer.sample_indices(2).tolist())  # weights 0, 15 and 15
        [1, 2]
    """

    capacity: int
    example: Any
    _: KW_ONLY
    fill_up: bool = False
    derive_next: bool = False
    num_envs: int | None = field(init=False, default=None)
    _sampler: ByValue = field(init=False)

    def _make_items(self) -> Items:
        self.fill_up = check_flag("fill_up", self.fill_up)
        self.capacity = check_count("capacity", self.capacity)
        return Items(num_envs=1, per_env=self.capacity)

    def _make_sampler(self) -> ByValue:
        return ByValue(self._items, self.backend, self.fill_up)

    def add(self, batch: Any, values: npt.ArrayLike) -> None:  # type: ignore[override]
        """Store transitions with values, (n,) or one for all, finite; see `ReplayBuffer.add`."""
        arrays = self._check(batch)
        numbers = self._sampler.check(values, len(arrays[0]))
        with self.locked():
            complete(self._write, arrays, self._ring, numbers)

    def sample_indices(self, size: int) -> npt.NDArray[np.int64]:
        """Draw different transitions as `sample` does, and return (size,) indices alone."""
        out = self.backend.empty(check_count("size", size), np.int64)
        with self.locked():
            self._sampler.draw(self._stream, self._ring, out, batch=None)
        return out

    def update_values(self, indices: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Give transitions new values, (n,) or one for all, finite.

        See `PrioritizedReplayBuffer.update_priorities` for the indices and errors.
        """
        pairs = self._sampler.check_pairs(indices, values)
        with self.locked():
            self._sampler.update(self._ring, *pairs)


@dataclass(eq=False, repr=False)
class Sequences(Buffer):
    """Methods that buffers of sequences have in common."""

    num_envs: int
    length: int
    example: Any
    sequence_length: int
    period: int = field(init=False, default=1)

    def _make_items(self) -> Items:
        """Check the lengths, in place, and return where sequences may begin."""
        self.sequence_length = check_count("sequence_length", self.sequence_length)
        self.period = check_count("period", self.period)
        self.length = check_count("length", self.length, self.sequence_length)
        if self.length % self.period:
            raise ValueError(f"length={self.length}: expected a multiple of period={self.period}")
        self.num_envs = check_count("num_envs", self.num_envs)
        per_env = self.length // self.period
        return Items(self.num_envs, per_env, steps=self.sequence_length, period=self.period)


@dataclass(eq=False, repr=False)
class TrajectoryBuffer(Sequences):
    """Steps of many environments side by side, from which sequences are drawn uniformly.

    A sequence begins at every `period`-th step of an environment, and is drawn only when all of it
    is there: none holds steps from both sides of the place where writing goes on. Sequences run
    across the ends of episodes.

    Args:
        num_envs: number of environments.
        length: steps that are kept of each; a multiple of `period`.
        example: one transition; see `ReplayBuffer`, also for other arguments and for errors.
        sequence_length: steps of a sequence, at most `length`.
        period: steps between the beginnings of sequences.

    Example:
        >>> buffer = TrajectoryBuffer(2, 100, np.zeros(3, np.float32), sequence_length=5)
        >>> buffer.add(np.ones((7, 2, 3), np.float32))
        >>> buffer.sample(4).data.shape
        (5, 4, 3)
    """

    period: int = 1


@dataclass(eq=False, repr=False)
class PrioritizedTrajectoryBuffer(TrajectoryBuffer, Prioritized):
    """Steps of many environments side by side, from which sequences are drawn by priority.

    See `TrajectoryBuffer` for the sequences and `PrioritizedReplayBuffer` for the priorities; a
    sequence gets the largest priority given so far when its last step comes.
    """

    def cut(self) -> None:
        """Let no sequence hold steps from before and from after this call.

        Steps that come next do not continue the last ones. Sequences that are not complete yet
        never will be: they have no priority, and none is to be given to them.
        """
        with self.locked():
            self._sampler.cut = self._ring.added


@dataclass(eq=False, repr=False)
class TrajectoryQueue(Sequences):
    """Steps of many environments side by side, handed out in order, and once.

    For algorithms that learn from what was just collected, such as IMPALA (Espeholt et al. 2018),
    while other threads collect.

    Args:
        num_envs: number of environments.
        length: steps of each that may wait.
        example: one transition; see `ReplayBuffer`, also for other arguments and for errors.
        sequence_length: steps that `sample` hands out at a time, at most `length`.

    Example:
        >>> queue = TrajectoryQueue(2, 100, {"reward": 0.0}, sequence_length=3)
        >>> queue.add({"reward": np.arange(8.0).reshape(4, 2)})
        >>> queue.sample()["reward"].tolist(), len(queue)
        ([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], 2)
    """

    _sampler: InOrder = field(init=False)

    def _make_sampler(self) -> InOrder:
        return InOrder(self._items, self.backend)

    def __len__(self) -> int:
        """Return the number of transitions that wait."""
        return self._sampler.waiting(self._ring) * self._envs

    def can_add(self, num_steps: int = 1) -> bool:
        """Tell whether there is room for so many steps of all environments."""
        room = self.length - self._sampler.waiting(self._ring)
        return check_count("num_steps", num_steps) <= room

    def add(self, batch: Any) -> None:
        """Append steps to the queue; see `ReplayBuffer.add`. No room is a ValueError."""
        arrays = self._check(batch)
        with self.locked():
            room = self.length - self._sampler.waiting(self._ring)
            if len(arrays[0]) > room:
                raise ValueError(f"batch has {len(arrays[0])} steps: expected at most {room}")
            complete(self._write, arrays, self._ring)

    def sample(self, *, out: Batch | None = None) -> Batch:  # type: ignore[override]
        """Take the oldest steps, leaves (sequence_length, num_envs, *shape).

        A batch `out` that this queue returned is overwritten. ValueError is raised if fewer steps
        wait, or `out` is something else.
        """
        return self._sample(self._envs, out)
