"""The learner's memory, and the threads that run an update."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rlcpu.envs.policies import MLP
from rlcpu.kernels.mlp import RELU, TANH
from rlcpu.kernels.random import keys
from rlcpu.train import network, objective, phases, update
from rlcpu.train.config import PPOConfig

Array = npt.NDArray[Any]


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
        num_threads: threads at most; None takes numba's number. The result does not depend on it.
        dtype: in which gradients and moments are computed.

    Attributes:
        learner: parameters and moments of Adam.
        counters: (2,) int64, gradient steps and epochs so far.
    """

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
        self.num_workers = num_threads or numba.get_num_threads()
        self.layout = _layout(policy)
        size, copies = int(self.layout.begins[-1]), int(self.layout.copies_begins[-1])
        self.learner = update.Learner(*(np.zeros(n, dtype) for n in (size, size, size, copies)))
        self.counters = np.zeros(2, np.int64)
        self.key = keys(np.array([seed], np.uint64))[:, 0]
        self._space: update.Space | None = None
        self._pool: ThreadPoolExecutor | None = None
        self.read_policy()

    def read_policy(self) -> None:
        """Take the policy's present parameters over."""
        stds, begins = self.policy.log_std, self.layout.begins
        self.learner.parameters[: stds.size] = stds
        for sizes, flat, begin, end in self._networks():
            network.pack(sizes, flat, self.learner.parameters[begin:end])
        update.refresh_all(self.learner, self.layout)

    def write_policy(self) -> None:
        """Write the learner's parameters to the policy."""
        stds = self.policy.log_std
        stds[:] = self.learner.parameters[: stds.size]
        for sizes, flat, begin, end in self._networks():
            network.unpack(sizes, self.learner.parameters[begin:end], flat)

    def _networks(self) -> list[tuple[Array, Array, int, int]]:
        policy, bounds = self.policy, self.layout.begins
        sizes = [policy.sizes, policy.value_sizes][: len(bounds) - 1]
        flats = [policy.parameters, policy.value_parameters]
        return [(s, f, *bounds[k : k + 2]) for k, (s, f) in enumerate(zip(sizes, flats))]

    def update(self, batch: update.Batch, learning_rate: float, clip: float) -> Losses:
        """Learn from a batch, and write the policy.

        Args:
            batch: S samples.
            learning_rate: of this update.
            clip: half-width of the clip range in this update.
        """
        count = batch.log_probs.size
        if self._space is None or self._space.indices.size != count:
            self._space = _space(self.layout, self.config, count, self.num_workers, self.dtype)
        space = self._space
        for shared in (space.claims, space.done, space.report):
            shared[:] = 0
        settings = self._settings(learning_rate, clip, batch.mean.size)
        self._run(batch, space, settings)
        *means, steps = space.report
        self.counters += int(steps), self.config.num_epochs
        self.write_policy()
        return Losses(*(np.array(means) / max(steps, 1.0)).tolist(), int(steps))

    def _run(self, batch: update.Batch, space: update.Space, settings: update.Settings) -> None:
        """Run the kernel on this thread and, if there are more workers, on others."""
        kernel = update.make_update(self.dtype, self.discrete)
        args = (self.num_workers, self.learner, self.layout, batch, space, settings)
        if self.num_workers > 1 and self._pool is None:
            self._pool = ThreadPoolExecutor(self.num_workers - 1, "rlcpu-update")
        others = range(1, self.num_workers)
        futures = [self._pool.submit(kernel, w, *args) for w in others] if self._pool else []
        kernel(0, *args)
        for future in futures:
            # A thread that has not begun is not needed: everything is done. In a forked child
            # it would never begin.
            if not future.cancel():
                future.result()

    def _settings(self, learning_rate: float, clip: float, inputs: int) -> update.Settings:
        config, real = self.config, self.dtype
        divergence = np.inf if config.target_kl is None else 1.5 * config.target_kl
        samples = min(config.minibatch_size, update.PART)
        return update.Settings(
            config.num_epochs,
            config.minibatch_size,
            int(config.normalize_advantages),
            real(learning_rate),
            real(config.adam_epsilon),
            real(clip),
            real(config.entropy_coefficient),
            real(config.value_coefficient),
            real(config.max_gradient_norm),
            float(divergence),
            *self.counters.tolist(),
            *self.key,
            # About ten times as long as the longest item takes.
            10_000 + samples * self.learner.parameters.size // 4,
        )


def _layout(policy: MLP) -> update.Layout:
    """The flat vector of a policy and its value network."""
    separate = policy.value == "separate"
    sizes = [policy.sizes, policy.value_sizes] if separate else [policy.sizes]
    tables = [network.layer_table(s) for s in sizes]
    begins, copies = [network.padded(policy.log_std.size)], [0]
    for table in tables:
        begins.append(begins[-1] + network.packed_size(table))
        copies.append(copies[-1] + network.copies_size(table))
    shared = policy.value == "shared"
    actions = int(policy.sizes[-1]) - shared
    return update.Layout(
        tables=np.array(tables),
        activation=RELU if policy.activation == "relu" else TANH,
        begins=np.array(begins),
        copies_begins=np.array(copies),
        actions=actions,
        value_column=actions if shared else -1,
    )


def _space(
    layout: update.Layout, config: PPOConfig, count: int, workers: int, dtype: type
) -> update.Space:
    """Scratch memory for batches of `count` samples."""
    minibatch = min(config.minibatch_size, count)
    num_minibatches = -(-count // minibatch)
    parts = -(-minibatch // update.PART)
    items = parts * len(layout.tables)
    size = layout.begins[-1]
    cells = max(network.cells_per_sample(table) for table in layout.tables)
    widest = layout.tables[:, :, network.WIDTH_IN :].max()
    lanes = objective.HEADS + 2 * layout.actions + 1
    return update.Space(
        indices=np.zeros(count, np.int64),
        moments=np.zeros((num_minibatches, 2), dtype),
        gradients=np.zeros((parts, size), dtype),
        sums=np.zeros((items, objective.NUM_SUMS)),
        cells=np.zeros((workers, update.CHUNK * cells), dtype),
        slopes=np.zeros((workers, (update.CHUNK + 1) * widest), dtype),
        lanes=np.zeros((workers, update.CHUNK * lanes), dtype),
        totals=np.zeros((workers, size), dtype),
        claims=np.zeros(phases.LINE * max(items, num_minibatches), np.int64),
        done=np.zeros(phases.LINE, np.int64),
        report=np.zeros(objective.NUM_SUMS + 2),
    )
