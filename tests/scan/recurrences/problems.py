"""Random episodes of any shape, axis and layout in memory, and how far results may be off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.scan.recurrences import naive

DTYPES = ["float32", "float64"]


def frozen(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def spread(array: np.ndarray) -> np.ndarray:
    """The same numbers, every other one of a larger array along every axis."""
    whole = np.zeros([2 * n for n in array.shape], array.dtype)
    part = whole[(slice(None, None, 2),) * array.ndim]
    part[...] = array
    return part


def backward(array: np.ndarray) -> np.ndarray:
    """The same numbers, with negative strides."""
    turned = (slice(None, None, -1),) * array.ndim
    return array[turned].copy()[turned]


def part(array: np.ndarray) -> np.ndarray:
    """The same numbers, as a part of longer rows."""
    whole = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
    whole[..., 1:-2] = array
    return whole[..., 1:-2]


#: The same array with other strides.
LAYOUTS: list[Callable[[np.ndarray], np.ndarray]] = [
    np.ascontiguousarray,
    np.asfortranarray,
    spread,
    backward,
    part,
    frozen,
]


class Problem(NamedTuple):
    """Arguments of estimators with time along `axis`."""

    rewards: Any
    values: Any
    ratios: Any
    action_values: Any
    terminated: Any
    truncated: Any
    last_values: Any
    final_values: Any
    axis: int

    def call(self, function: Callable[..., Any], *names: str, **settings: Any) -> Any:
        """Call an estimator with the rewards, the arrays of those names and what all take."""
        arrays = [getattr(self, name) for name in ("rewards", *names, "terminated", "truncated")]
        given = {"final_values": self.final_values, "axis": self.axis, **settings}
        return function(*arrays, self.last_values, **given)

    def columns(self, array: Any, dtype: Any = None) -> Any:
        """An array as the oracles take it: (num_steps, num_envs)."""
        found = np.broadcast_to(array, self.rewards.shape).astype(dtype or np.asarray(array).dtype)
        return np.moveaxis(found, self.axis, 0).reshape(found.shape[self.axis], -1)

    def episodes(self, gamma: Any, dtype: Any = np.longdouble) -> naive.Episodes:
        """The oracles' arguments."""
        return naive.Episodes(
            self.columns(self.rewards, dtype),
            self.columns(self.terminated),
            self.columns(self.truncated),
            self.last_values.astype(dtype).reshape(-1),
            self.columns(self.final_values, dtype),
            self.columns(gamma, dtype),
        )

    def arrays(self, *names: str) -> list[Any]:
        """Arrays for the oracles in extended precision."""
        return [self.columns(getattr(self, name), np.longdouble) for name in names]

    def laid_out(self, layouts: list[Callable[[np.ndarray], np.ndarray]]) -> Problem:
        """The same with every array in a layout of its own."""
        arrays = [layouts[i % len(layouts)](a) if a.ndim else a for i, a in enumerate(self[:-1])]
        return Problem(*arrays, self.axis)


def make_problem(
    shape: tuple[int, ...], dtype: str, ends: float = 0.3, seed: int = 0, axis: int = 0
) -> Problem:
    """Random numbers; NaN in every final value that must not be used."""
    rng = np.random.default_rng(seed)
    rewards, values, action_values, final_values = rng.normal(size=(4, *shape)).astype(dtype)
    ratios = np.exp(rng.normal(size=shape)).astype(dtype)
    terminated, truncated = rng.random((2, *shape)) < ends
    final_values[terminated | ~truncated] = np.nan
    last_values = np.asarray(rng.normal(size=np.delete(shape, axis))).astype(dtype)
    arrays = rewards, values, ratios, action_values, terminated, truncated
    return Problem(*arrays, last_values, final_values, axis)


def poisoned(problem: Problem, seed: int) -> tuple[Problem, Any, Any]:
    """A problem with NaN and infinities everywhere, and factors of which many are 0.

    Returns:
        The problem; gamma and lambda_, like the rewards.
    """
    rng, shape, dtype = np.random.default_rng(seed), problem.rewards.shape, problem.rewards.dtype
    spoiled = {}
    for name in ("rewards", "values", "action_values", "last_values", "final_values"):
        array = getattr(problem, name)
        poison = rng.choice([np.nan, np.inf, -np.inf], size=array.shape)
        spoiled[name] = np.where(rng.random(array.shape) < 0.15, poison, array).astype(dtype)
    gamma, lambda_, ratios = rng.choice([0.0, 0.5, 1.0], size=(3, *shape)).astype(dtype)
    return problem._replace(ratios=2 * ratios, **spoiled), gamma, lambda_


@st.composite
def problems(draw: Any) -> Problem:
    """Problems of one to three axes, each array in a layout of its own."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=0, max_size=2)))
    axis = draw(st.integers(0, len(shape)))
    shape = (*shape[:axis], draw(st.integers(1, 50)), *shape[axis:])
    axis -= len(shape) * draw(st.integers(0, 1))
    ends = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    seed, dtype = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from(DTYPES))
    problem = make_problem(shape, dtype, ends, seed, axis)
    same = draw(st.booleans())
    layouts = [draw(st.sampled_from(LAYOUTS)) for _ in range(1 if same else 8)]
    return problem.laid_out(layouts)


def assert_close(problem: Problem, found: Any, expected: Any) -> None:
    """Equal but for rounding; `expected` is an oracle's, (num_steps, num_envs)."""
    assert found.shape == problem.rewards.shape
    assert found.dtype == problem.rewards.dtype
    scale = max(1.0, float(np.abs(expected).max()))
    error = np.abs(problem.columns(found, np.longdouble) - expected).max()
    assert error <= 50 * np.finfo(found.dtype).eps * scale
