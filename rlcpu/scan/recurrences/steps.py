"""Steps of episodes as vectors: what the drivers of all recurrences read, and how.

A recurrence here is y = b + a * y', where y' belongs to the step computed just before: the next one
in time for returns, the one before for filters. A `Rule` says what a and b are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from rlcpu.kernels.compile import inline_exact
from rlcpu.kernels.masks import load_mask, load_mask_first
from rlcpu.kernels.memory import load, load_first, prefetch, store, store_first, stream
from rlcpu.kernels.simd import VECTOR_BYTES
from rlcpu.kernels.vectors import where

#: Decorator of a scalar function: plain Python, of numbers or vectors of them, and a part of every
#: kernel that calls it. In IEEE arithmetic: memory is the limit, and it equals plain Python's.
inlined: Any = register_jitable(forceinline=True, error_model="numpy", fastmath=False)


class Step(NamedTuple):
    """What is known of a step: numbers, or vectors of as many steps; also pointers or positions.

    Attributes:
        reward: what the step yielded.
        value: of the observation before the step.
        terminated: whether the episode ended with the step.
        truncated: whether a limit cut the episode short after the step.
        final_value: value of the last observation of an episode that was truncated.
        gamma: discount of what follows the step.
        lambda_: weight of what follows against the value of the next observation.
        ratio: probability of the action under the target policy over that under the one that acted.
        action_value: of the action taken.
    """

    reward: Any
    value: Any
    terminated: Any
    truncated: Any
    final_value: Any
    gamma: Any
    lambda_: Any
    ratio: Any
    action_value: Any


class After(NamedTuple):
    """What is known of the next step in time; beyond the last one only a value, and zeros.

    Attributes: see `Step`.
    """

    value: Any
    lambda_: Any
    ratio: Any
    action_value: Any


class Rule(NamedTuple):
    """One recurrence.

    Attributes:
        coefficients: (step, after, options) -> (a, b).
        results: (y, carried, step, after, options) -> two numbers, of which the first or both are
            kept; `carried` is y of the step computed before.
        reads: names of the fields of `Step` that are used.
        outputs: 1 or 2.
        cuts: a == 0 drops even a NaN of the steps computed before, which belong to another episode.
    """

    coefficients: Callable[..., Any]
    results: Callable[..., Any]
    reads: tuple[str, ...]
    outputs: int = 1
    cuts: bool = True


@inlined
def link(a: float, b: float, carried: float) -> Any:
    """One step of a recurrence that is cut where a is 0."""
    return where(a == 0.0, b, b + a * carried)


@inlined
def link_always(a: float, b: float, carried: float) -> Any:
    """One step of a recurrence whose NaN and infinities go on for ever."""
    return b + a * carried


@inlined
def bootstrap(step: Step, following: float) -> Any:
    """Value of what comes after the step, `following` if the episode goes on."""
    return where(step.terminated, 0.0, where(step.truncated, step.final_value, following))


@inlined
def unless_ended(step: Step, number: float) -> Any:
    """The number if the episode goes on, else 0."""
    return where(step.terminated, 0.0, where(step.truncated, 0.0, number))


# ---------------------------------------------------------------- vectors of steps


def lanes(dtype: Any) -> int:
    """How many numbers a vector holds."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


class Access(NamedTuple):
    """Functions that kernels of one dtype call.

    Attributes:
        get: (pointer, position, count) -> vector of `count` numbers, then zeros.
        put: (vector, pointer, position, count, streamed) writes `count` numbers.
        gather: (pointers, positions, by, count) -> `Step` of vectors.
        gather_after: the same, -> `After`.
    """

    get: Any
    put: Any
    gather: Any
    gather_after: Any


@functools.cache
def access(dtype: Any) -> Access:
    """The functions for one dtype; `count` is the number of a vector's lanes or less."""
    full, zero = lanes(dtype), dtype(0.0)

    @inline_exact
    def get(pointer, position, count):  # type: ignore[no-untyped-def]
        if count < full:
            return load_first(pointer, position, count, zero, 1)
        return load(pointer, position, 1)

    @inline_exact
    def get_mask(pointer, position, like, count):  # type: ignore[no-untyped-def]
        if count < full:
            return load_mask_first(pointer, position, like, count)
        return load_mask(pointer, position, like)

    @inline_exact
    def put(vector, pointer, position, count, streamed):  # type: ignore[no-untyped-def]
        if count < full:
            store_first(vector, pointer, position, count)
        elif streamed:
            stream(vector, pointer, position)
        else:
            store(vector, pointer, position)

    @inline_exact
    def gather(pointers, at, by, count):  # type: ignore[no-untyped-def]
        reward = get(pointers.reward, at.reward + by, count)
        return Step(
            reward,
            get(pointers.value, at.value + by, count),
            get_mask(pointers.terminated, at.terminated + by, reward, count),
            get_mask(pointers.truncated, at.truncated + by, reward, count),
            get(pointers.final_value, at.final_value + by, count),
            get(pointers.gamma, at.gamma + by, count),
            get(pointers.lambda_, at.lambda_ + by, count),
            get(pointers.ratio, at.ratio + by, count),
            get(pointers.action_value, at.action_value + by, count),
        )

    @inline_exact
    def gather_after(pointers, at, by, count):  # type: ignore[no-untyped-def]
        return After(
            get(pointers.value, at.value + by, count),
            get(pointers.lambda_, at.lambda_ + by, count),
            get(pointers.ratio, at.ratio + by, count),
            get(pointers.action_value, at.action_value + by, count),
        )

    return Access(get, put, gather, gather_after)


@functools.cache
def prefetcher(reads: tuple[str, ...]) -> Any:
    """Function (pointers, positions, by) that asks for the lines of those fields."""
    reward, value, terminated, truncated, final_value, gamma, lambda_, ratio, action_value = (
        name in reads for name in Step._fields
    )

    @inline_exact
    def ask(pointers, at, by):  # type: ignore[no-untyped-def]
        if reward:
            prefetch(pointers.reward, at.reward + by)
        if value:
            prefetch(pointers.value, at.value + by)
        if terminated:
            prefetch(pointers.terminated, at.terminated + by)
        if truncated:
            prefetch(pointers.truncated, at.truncated + by)
        if final_value:
            prefetch(pointers.final_value, at.final_value + by)
        if gamma:
            prefetch(pointers.gamma, at.gamma + by)
        if lambda_:
            prefetch(pointers.lambda_, at.lambda_ + by)
        if ratio:
            prefetch(pointers.ratio, at.ratio + by)
        if action_value:
            prefetch(pointers.action_value, at.action_value + by)

    return ask
