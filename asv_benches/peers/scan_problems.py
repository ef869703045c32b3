"""What the contenders of the table `scan` solve, and how they do: one call is one unit of work.

All contenders of a row draw the same numbers, each its own copy of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from asv_benches.peers.replay_calls import Arguments, cycled

POOL_BYTES = 2**26  # of inputs in turn: more than the caches hold, as new data would be
POOL = 16  # of them at most: enough to teach the branch predictor nothing


class Problem(Protocol):
    """Draws the inputs of one call."""

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Random arrays."""


class Systems(NamedTuple):
    """Tridiagonal systems that are diagonally dominant, so that every method solves them.

    Attributes:
        batch: number of systems.
        n: unknowns of each.
        dtype: of the numbers.
        layout: "rows" for arrays (batch, n), "columns" for (n, batch).
        shared: whether all systems have one matrix.
    """

    batch: int
    n: int
    dtype: str = "float64"
    layout: str = "rows"
    shared: bool = False

    @property
    def axis(self) -> int:
        """The axis of the unknowns."""
        return -1 if self.layout == "rows" else 0

    @property
    def shape(self) -> tuple[int, int]:
        """Of the right-hand sides."""
        return (self.batch, self.n) if self.layout == "rows" else (self.n, self.batch)

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Lower, main and upper diagonal, right-hand sides."""
        kind = np.dtype(self.dtype)
        shape = (self.n,) if self.shared else self.shape
        lower, upper = (rng.random(shape, kind) - kind.type(0.5) for _ in range(2))
        diagonal = rng.random(shape, kind) + kind.type(1.5)
        axis = 0 if self.shared else self.axis
        np.moveaxis(lower, axis, 0)[0] = 0  # as jax.lax.linalg demands
        np.moveaxis(upper, axis, 0)[-1] = 0
        return lower, diagonal, upper, rng.random(self.shape, kind) - kind.type(0.5)


class SystemsAndSlopes(NamedTuple):
    """The same, and the gradient of a loss with respect to the solution.

    Attributes:
        systems: to be solved.
    """

    systems: Systems

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Lower, main and upper diagonal, right-hand sides, gradients."""
        dtype = np.dtype(self.systems.dtype)
        return *self.systems.draw(rng), rng.random(self.systems.shape, dtype)


class Rollouts(NamedTuple):
    """Rollouts of a policy, one step in a hundred the last one of its episode.

    Attributes:
        num_steps: T.
        num_envs: N.
        layout: "time-major" for arrays (T, N), "batch-major" for (N, T).
    """

    num_steps: int
    num_envs: int
    layout: str = "time-major"

    @property
    def axis(self) -> int:
        """The axis of the time."""
        return 0 if self.layout == "time-major" else 1

    @property
    def shape(self) -> tuple[int, int]:
        """Of the rewards."""
        shape = self.num_steps, self.num_envs
        return shape if self.layout == "time-major" else shape[::-1]

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Rewards, values, whether the episode terminated, last values."""
        rewards, values = (rng.standard_normal(self.shape, np.float32) for _ in range(2))
        terminated = rng.random(self.shape, np.float32) < 0.01
        return rewards, values, terminated, rng.standard_normal(self.num_envs, np.float32)


class Line(NamedTuple):
    """A long row of float64 numbers.

    Attributes:
        size: how many.
    """

    size: int

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Normal numbers."""
        return (rng.standard_normal(self.size),)


class Models(NamedTuple):
    """Linear-Gaussian state-space models of scalar observations, float64.

    Attributes:
        batch: number of models, B.
        state: size of the state, m.
        num_steps: observations of each, T.
    """

    batch: int
    state: int
    num_steps: int = 10_000

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Transition F (B, m, m), its covariance Q, design H (B, m), R (B,), observations (B, T).

        F is 0.95 times a rotation: stable, and nothing in it is zero.
        """
        b, m = self.batch, self.state
        transition = 0.95 * np.linalg.qr(rng.standard_normal((b, m, m)))[0]
        noise = np.tile(0.1 * np.eye(m), (b, 1, 1))
        design = rng.standard_normal((b, m))
        return transition, noise, design, np.full(b, 0.5), rng.standard_normal((b, self.num_steps))


@dataclass
class Solver:
    """A contender that solves its problem on prepared inputs, in turn.

    Attributes:
        name: of the library, or of the variant.
        problem: what is solved.
    """

    name: str
    problem: Any
    work = 1.0

    def make(self) -> Callable[..., Any]:
        """The call that is timed; returns the solution, for the tests."""
        raise NotImplementedError

    def convert(self, *arrays: np.ndarray) -> Arguments:
        """The contender's own kind of array. Not timed."""
        return arrays

    def setup(self) -> None:
        """Compiles what can be, and draws the inputs."""
        self.call = self.make()
        rng = np.random.default_rng(0)
        first = self.problem.draw(rng)
        size = sum(array.nbytes for array in first)
        others = [self.problem.draw(rng) for _ in range(1, min(POOL, -(-POOL_BYTES // size)))]
        self._pool = [self.convert(*arrays) for arrays in (first, *others)]

    def inputs(self, rng: np.random.Generator, count: int) -> Iterable[Arguments]:
        """The inputs in turn, from a random one on."""
        begin = int(rng.integers(len(self._pool)))
        return cycled(self._pool[begin:] + self._pool[:begin], count)

    def run(self, inputs: Iterable[Arguments]) -> None:
        """One call for each."""
        call = self.call
        for arguments in inputs:
            call(*arguments)
