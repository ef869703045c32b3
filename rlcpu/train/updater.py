"""The learner's memory, and the threads that run an update."""

from __future__ import annotations

import _thread
import contextlib
import math
import os
import subprocess
import weakref
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rlcpu.envs.policies import MLP
from rlcpu.kernels import announce
from rlcpu.kernels.random import keys
from rlcpu.kernels.threads import default_num_threads
from rlcpu.train.config import PPOConfig
from rlcpu.train.memory import (
    PART,
    Batch,
    Learner,
    Settings,
    Space,
    make_layout,
    make_space,
    refresh_all,
)
from rlcpu.train.network import flat_layers, packed_layers
from rlcpu.train.update import make_update

Array = npt.NDArray[Any]
#: Updates that one thread makes alone after another process has kept it waiting for its helpers.
ALONE = 8


class Losses(NamedTuple):
    """Means over the minibatches of an update.

    Attributes:
        policy: clipped surrogate loss.
        value: mean squared error of the values, without coefficient.
        entropy: of the policy, in nats.
        kl: estimated divergence from the policy that collected, in nats.
        clip_fraction: share of the samples whose ratio had left the clip range.
        gradient_norm: before it is clipped.
        num_gradients: gradient steps taken.
    """

    policy: float = np.nan
    value: float = np.nan
    entropy: float = np.nan
    kl: float = np.nan
    clip_fraction: float = np.nan
    gradient_norm: float = np.nan
    num_gradients: int = 0


class Updater:
    """Improves a policy from batches of samples.

    Args:
        policy: the networks; they are written after each update.
        config: hyper-parameters.
        seed: of the stream that shuffles.
        num_threads: threads at most; None for one on each CPU that the process may use. The result
            does not depend on it.
        dtype: in which gradients and moments are computed.

    Attributes:
        learner: parameters and moments of Adam.
        counters: (2,) int64, gradient steps and epochs so far.
        space: scratch memory of the last update, or None.
        awaited: a process that compiles the kernel, or None; see `rlcpu.train.precompile`.
    """

    awaited: subprocess.Popen[bytes] | None = None

    def __init__(
        self,
        policy: MLP,
        config: PPOConfig,
        seed: int = 0,
        num_threads: int | None = None,
        dtype: type = np.float32,
    ) -> None:
        self.policy, self.config, self.dtype = policy, config, dtype
        self.discrete = policy.log_std.size == 0
        self.num_workers = num_threads or default_num_threads()
        self.layout = make_layout(policy)
        size, copies = int(self.layout.begins[-1]), int(self.layout.copies_begins[-1])
        self.learner = Learner(*(np.zeros(n, dtype) for n in (size, size, size, copies)))
        self.counters = np.zeros(2, np.int64)
        self.key = keys(np.array([seed], np.uint64))[:, 0]
        self.space: Space | None = None
        self._pool: tuple[int, SimpleQueue[Any]] | None = None
        self._alone = 0
        self.read_policy()

    def read_policy(self) -> None:
        """Take the policy's present parameters over, be they in other arrays than before."""
        self._views = self._pair_views()
        for learnt, flat in self._views:
            learnt[...] = flat
        self.write_copies()

    def write_copies(self) -> None:
        """Make the learner's transposed weights anew."""
        refresh_all(self.learner, self.layout)

    def write_policy(self) -> None:
        """Write the learner's parameters to the policy."""
        for learnt, flat in self._views:
            flat[...] = learnt

    def _pair_views(self) -> list[tuple[Array, Array]]:
        """Each weight and bias array of the policy, as the learner has it and as the policy has."""
        policy, parameters, begins = self.policy, self.learner.parameters, self.layout.begins
        pairs = [(parameters[: policy.log_std.size], policy.log_std)]
        networks = [
            (policy.sizes, policy.parameters),
            (policy.value_sizes, policy.value_parameters),
        ]
        for k, (sizes, flat) in enumerate(networks[: len(begins) - 1]):
            packed = parameters[begins[k] : begins[k + 1]]
            for learnt, own in zip(
                packed_layers(sizes, packed), flat_layers(sizes, flat), strict=True
            ):
                pairs += zip(learnt, own, strict=True)
        return pairs

    def update(self, batch: Batch, learning_rate: float, clip: float) -> Losses:
        """Learn from a batch, and write the policy.

        Args:
            batch: S samples.
            learning_rate: of this update.
            clip: half-width of the clip range in this update.

        Raises:
            FloatingPointError: a loss or a parameter has become NaN or infinite; the learner holds
                what came of it, the policy is untouched.
        """
        if self.awaited is not None:
            with announce.said("rlcpu.train", "update"):
                self.awaited.wait()
            self.awaited = None
        count = batch.log_probs.size
        space = self.space
        if space is None or space.indices.size != count:
            space = make_space(self.layout, self.config, count, self.num_workers, self.dtype)
        self.space = space
        for shared in (space.claims, space.done, space.report):
            shared[:] = 0
        settings = self._settings(learning_rate, clip)
        self._run(batch, space, settings)
        *means, steps = space.report.tolist()
        self.counters += int(steps), self.config.num_epochs
        losses = Losses._make([*(mean / max(steps, 1.0) for mean in means), int(steps)])
        self._check_finite(losses)
        self.write_policy()
        return losses

    def compile(self) -> None:
        """Make the kernel ready, without an update."""
        self._kernel.compile(self._types())

    def is_uncompiled(self) -> bool:
        """Whether the kernel would be compiled by the first update, and kept in a cache."""
        kernel = self._kernel  # it has one set of types: where there is code, it is the right one
        return not kernel.overloads and kernel._cache.lacks(self._types())

    @property
    def _kernel(self) -> Any:
        return make_update(self.dtype, self.discrete)

    def _types(self) -> tuple[Any, ...]:
        """Numba's types of the kernel's arguments."""
        numbers = np.zeros(1, np.float32)
        actions = np.zeros(1, np.int64) if self.discrete else numbers
        batch = Batch(numbers, numbers, numbers, actions, numbers, numbers, numbers)
        space = make_space(self.layout, self.config, 1, 1, self.dtype)
        args = (0, 1, self.learner, self.layout, batch, space, self._settings(0.0, 0.0))
        typeof: Any = numba.typeof
        return tuple(map(typeof, args))

    def _check_finite(self, losses: Losses) -> None:
        # The divergence is no part of the loss: it may overflow where the loss is clipped.
        named = zip(losses._fields, losses, strict=True)
        bad = [name for name, loss in named if name != "kl" and not math.isfinite(loss)]
        for name in ("parameters", "first", "second"):
            if not np.isfinite(getattr(self.learner, name)).all():
                bad.append(name)
        if bad:
            raise FloatingPointError(
                f"update {int(self.counters[0])} made {', '.join(bad)} NaN or infinite: "
                "smaller rewards (reward_scale), observations or learning_rate help"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Without threads, scratch memory and views of arrays that a copy has of its own."""
        made: dict[str, Any] = {"_pool": None, "space": None, "_views": [], "awaited": None}
        return {**self.__dict__, **made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._views = self._pair_views()

    def discard(self) -> None:
        """Give up what an interrupted update works on: its threads may go on in it for a moment."""
        self.learner = Learner(*(array.copy() for array in self.learner))
        self.counters = self.counters.copy()
        self._views = self._pair_views()
        self.space = None

    def _run(self, batch: Batch, space: Space, settings: Settings) -> None:
        """Run the kernel on this thread and, if there are more workers, on others."""
        kernel = self._kernel
        workers = 1 if self._alone else self.num_workers
        args = (workers, self.learner, self.layout, batch, space, settings)
        numbers: SimpleQueue[int] = SimpleQueue()
        ended: SimpleQueue[None] = SimpleQueue()

        def work() -> None:
            with contextlib.suppress(Empty):
                number = numbers.get_nowait()
                try:
                    kernel(number, *args)
                finally:
                    ended.put(None)

        for number in range(1, workers):
            numbers.put(number)
            self._helpers().put(work)
        kernel(0, *args)
        # A number that nobody has taken is not needed any more: everything is done.
        with contextlib.suppress(Empty):
            while True:
                numbers.get_nowait()
                workers -= 1
        for _ in range(1, workers):
            ended.get()
        self._alone = ALONE if space.done[2] else max(0, self._alone - 1)

    def _helpers(self) -> SimpleQueue[Any]:
        """Where the threads of this process take work: those of a parent do not survive a fork.

        A signal's exception may come at any instruction of Python code. Queues and threads of this
        kind have none: those of `concurrent.futures` were left locked by an interrupt.
        """
        if self._pool is None or self._pool[0] != os.getpid():
            jobs: SimpleQueue[Any] = SimpleQueue()
            count = self.num_workers - 1
            for _ in range(count):
                _thread.start_new_thread(_serve, (jobs,))
            weakref.finalize(self, _dismiss, jobs, count)
            self._pool = os.getpid(), jobs
        return self._pool[1]

    def _settings(self, learning_rate: float, clip: float) -> Settings:
        config, real = self.config, self.dtype
        divergence = np.inf if config.target_kl is None else 1.5 * config.target_kl
        samples = min(config.minibatch_size, PART)
        return Settings(
            epochs=config.num_epochs,
            minibatch_size=config.minibatch_size,
            normalize=int(config.normalize_advantages),
            learning_rate=real(learning_rate),
            epsilon=real(config.adam_epsilon),
            clip=real(clip),
            entropy=real(config.entropy_coefficient),
            value=real(config.value_coefficient),
            max_norm=real(config.max_gradient_norm),
            max_divergence=float(divergence),
            steps=int(self.counters[0]),
            shuffles=int(self.counters[1]),
            key_low=self.key[0],
            key_high=self.key[1],
            # A look takes 1.3 ns: about four times as long as the longest item.
            patience=10_000 + samples * self.learner.parameters.size // 16,
        )


def _serve(jobs: SimpleQueue[Any]) -> None:
    """Do what is in the queue until there is None."""
    while job := jobs.get():
        job()


def _dismiss(jobs: SimpleQueue[Any], count: int) -> None:
    for _ in range(count):
        jobs.put(None)
