"""Contenders of the table `replay`: one call is one unit of work, on fresh random inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Arguments = tuple[Any, ...]
Transitions = dict[str, np.ndarray]

OBSERVATION = 100  # float32 numbers of an observation
POOL = 8  # different batches per repetition: copying takes the same time whatever the numbers


@dataclass
class Calls:
    """A contender that makes one call for each input.

    Attributes:
        name: of the library, or of the variant.
        operation: the method that is timed.
        size: items per call.
    """

    name: str
    operation: str
    size: int

    @property
    def work(self) -> float:
        """One: the unit of work is the call."""
        return 1.0

    def choose(self, **operations: Callable[..., Any]) -> None:
        """Says what `run` calls; to be called in `setup`."""
        self._call = operations[self.operation]

    def run(self, inputs: Iterable[Arguments]) -> None:
        """One call for each input."""
        call = self._call
        for arguments in inputs:
            call(*arguments)


def cycled(pool: Sequence[Arguments], count: int) -> list[Arguments]:
    """The inputs of `count` calls out of a few prepared ones."""
    return list(itertools.islice(itertools.cycle(pool), count))


def transitions(rng: np.random.Generator, count: int) -> Transitions:
    """Random transitions, `count` of them: 813 bytes each."""
    return {
        "observation": rng.random((count, OBSERVATION), np.float32),
        "next_observation": rng.random((count, OBSERVATION), np.float32),
        "action": rng.integers(0, 4, count),
        "reward": rng.random(count, np.float32),
        "terminated": rng.random(count) < 0.01,
    }


def num_bytes(batch: Transitions) -> int:
    """Bytes of the data alone."""
    return sum(array.nbytes for array in batch.values())
