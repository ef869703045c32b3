"""Whole buffers of the peers: a million transitions of 813 bytes, all written before the clock.

Batches are in the peer's own form (tensors, `Batch`, one array per step) before the clock starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asv_benches.peers.replay_calls import (
    OBSERVATION,
    POOL,
    Arguments,
    Calls,
    Transitions,
    cycled,
    transitions,
)

MILLION = 1_000_000
CHUNK = 1600  # transitions per call, to fill a buffer
ALPHA, BETA = 0.6, 0.4


@dataclass
class BufferCalls(Calls):
    """One of three operations on a full buffer.

    `add` puts `size` transitions in; `sample` draws `size` of them uniformly; `prioritized` draws
    them by priority with importance weights, and gives them new priorities.

    Attributes:
        capacity: transitions.
    """

    capacity: int = field(default=MILLION, kw_only=True)

    @property
    def prioritized(self) -> bool:
        """Whether it is the prioritised buffer."""
        return self.operation == "prioritized"

    def make(self) -> None:
        """An empty buffer."""
        raise NotImplementedError

    def convert(self, batch: Transitions) -> Arguments:
        """The arguments of `add`. Not timed."""
        return (batch,)

    def operations(self) -> dict[str, Callable[..., Any]]:
        """The functions that are timed, for a full buffer."""
        raise NotImplementedError

    def setup(self) -> None:
        """Makes the buffer and writes all of it, so that no page is touched for the first time."""
        self.make()
        self.fill(np.random.default_rng(0))
        self.choose(**self.operations())

    def fill(self, rng: np.random.Generator) -> None:
        """Writes every transition."""
        add = self.operations()["add"]
        for _ in range(-(-self.capacity // CHUNK)):
            add(*self.convert(transitions(rng, CHUNK)))

    def inputs(self, rng: np.random.Generator, count: int) -> list[Arguments]:
        """Fresh batches, priorities, or only the size."""
        if self.operation == "add":
            pool = [self.convert(transitions(rng, self.size)) for _ in range(min(POOL, count))]
            return cycled(pool, count)
        if self.operation == "sample":
            return [(self.size,)] * count
        return [(priorities,) for priorities in rng.random((count, self.size))]


@dataclass
class CpprbBuffer(BufferCalls):
    """cpprb."""

    def make(self) -> None:
        """The buffer with next observations of their own, as everyone else's."""
        import cpprb

        observation = {"shape": OBSERVATION, "dtype": np.float32}
        fields = {
            "observation": observation,
            "next_observation": observation,
            "action": {"dtype": np.int64},
            "reward": {"dtype": np.float32},
            "terminated": {"dtype": np.bool_},
        }
        if self.prioritized:
            self._buffer = cpprb.PrioritizedReplayBuffer(self.capacity, fields, alpha=ALPHA)
        else:
            self._buffer = cpprb.ReplayBuffer(self.capacity, fields)

    def operations(self) -> dict[str, Callable[..., Any]]:
        """`add` takes keywords."""
        buffer = self._buffer

        def add(batch: Transitions) -> None:
            buffer.add(**batch)

        def prioritized(priorities: np.ndarray) -> None:
            batch = buffer.sample(self.size, beta=BETA)
            buffer.update_priorities(batch["indexes"], priorities)

        return {"add": add, "sample": buffer.sample, "prioritized": prioritized}


@dataclass
class TorchrlBuffer(BufferCalls):
    """torchrl, its data in one tensor per field."""

    def make(self) -> None:
        """The buffer over a tensor storage."""
        import logging

        from torchrl import data

        logging.getLogger("torchrl").setLevel(logging.WARNING)
        storage = data.LazyTensorStorage(self.capacity)
        if self.prioritized:
            self._buffer = data.TensorDictPrioritizedReplayBuffer(
                alpha=ALPHA, beta=BETA, storage=storage, batch_size=self.size
            )
        else:
            self._buffer = data.TensorDictReplayBuffer(storage=storage, batch_size=self.size)

    def convert(self, batch: Transitions) -> Arguments:
        """A TensorDict over the same memory."""
        import torch
        from tensordict import TensorDict

        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        return (TensorDict(tensors, batch_size=len(batch["reward"])),)

    def inputs(self, rng: np.random.Generator, count: int) -> list[Arguments]:
        """Priorities as tensors of float32, which its tree is of."""
        import torch

        inputs = super().inputs(rng, count)
        if not self.prioritized:
            return inputs
        return [(torch.from_numpy(priorities).float(),) for (priorities,) in inputs]

    def operations(self) -> dict[str, Callable[..., Any]]:
        """`extend`, and sampling of the size that the buffer was made for."""
        buffer = self._buffer

        def prioritized(priorities: Any) -> None:
            batch = buffer.sample()
            buffer.update_priority(batch["index"], priorities)

        return {"add": buffer.extend, "sample": buffer.sample, "prioritized": prioritized}


@dataclass
class StableBaselinesBuffer(BufferCalls):
    """stable-baselines3; it has no prioritised buffer.

    Attributes:
        num_envs: transitions that one call of its `add` takes.
    """

    num_envs: int = 16

    def make(self) -> None:
        """The buffer of `num_envs` environments."""
        from gymnasium.spaces import Box, Discrete
        from stable_baselines3.common.buffers import ReplayBuffer

        observations = Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
        self._buffer = ReplayBuffer(
            self.capacity, observations, Discrete(4), device="cpu", n_envs=self.num_envs
        )
        self._infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]

    def convert(self, batch: Transitions) -> Arguments:
        """One tuple of arguments for each step of all environments."""
        steps = np.arange(0, len(batch["reward"]), self.num_envs)
        names = ("observation", "next_observation", "action", "reward", "terminated")
        return ([tuple(batch[name][k : k + self.num_envs] for name in names) for k in steps],)

    def operations(self) -> dict[str, Callable[..., Any]]:
        """`add` is called once for each step."""
        buffer, infos = self._buffer, self._infos

        def add(steps: list[Arguments]) -> None:
            for step in steps:
                buffer.add(*step, infos)

        return {"add": add, "sample": buffer.sample}


@dataclass
class TianshouBuffer(BufferCalls):
    """tianshou; its `add` takes one transition of each of `num_envs` buffers.

    Attributes:
        num_envs: transitions that one call of its `add` takes.
    """

    num_envs: int = 16

    def make(self) -> None:
        """The buffers."""
        from tianshou import data

        self._data = data
        if self.prioritized:
            self._buffer = data.PrioritizedReplayBuffer(self.capacity, ALPHA, BETA)
        elif self.operation == "add":
            self._buffer = data.VectorReplayBuffer(self.capacity, self.num_envs)

    def convert(self, batch: Transitions) -> Arguments:
        """One `Batch` for each step of all environments."""
        steps = np.arange(0, len(batch["reward"]), self.num_envs)
        whole = self.renamed(batch)
        return (
            [
                self._data.Batch({name: x[k : k + self.num_envs] for name, x in whole.items()})
                for k in steps
            ],
        )

    def renamed(self, batch: Transitions) -> dict[str, np.ndarray]:
        """tianshou's names, and the field that it asks for besides."""
        return {
            "obs": batch["observation"],
            "obs_next": batch["next_observation"],
            "act": batch["action"],
            "rew": batch["reward"],
            "terminated": batch["terminated"],
            "truncated": np.zeros_like(batch["terminated"]),
        }

    def fill(self, rng: np.random.Generator) -> None:
        """All at once where `add` is not timed: a million transitions one by one take minutes."""
        if self.operation == "add":
            return super().fill(rng)
        whole = self.renamed(transitions(rng, self.capacity))
        whole["done"] = whole["terminated"]
        full = self._data.ReplayBuffer.from_data(**whole)
        if not self.prioritized:
            self._buffer = full
            return None
        self._buffer.update(full)
        self._buffer.update_weight(np.arange(self.capacity), rng.random(self.capacity))
        return None

    def operations(self) -> dict[str, Callable[..., Any]]:
        """`add` is called once for each step."""
        buffer = self._buffer

        def add(steps: list[Any]) -> None:
            for step in steps:
                buffer.add(step)

        def prioritized(priorities: np.ndarray) -> None:
            _, indices = buffer.sample(self.size)
            buffer.update_weight(indices, priorities)

        return {"add": add, "sample": buffer.sample, "prioritized": prioritized}
