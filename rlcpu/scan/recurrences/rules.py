"""Rules: what is computed at each step of a recurrence, as plain Python.

A recurrence here is y = b + a * y', where y' belongs to the step computed just before: the next one
in time for returns, the one before for filters. A `Rule` says what a and b are. Its functions take
numbers or vectors of them, one for each of several steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numba.extending import register_jitable

from rlcpu.kernels.vectors import where

#: Decorator of a scalar function: plain Python, of numbers or vectors of them, and a part of every
#: kernel that calls it. In IEEE arithmetic: memory is the limit, and it equals plain Python's.
inlined: Any = register_jitable(forceinline=True, error_model="numpy", fastmath=False)


class Step(NamedTuple):
    """What is known of a step; in drivers also a pointer, a stride or an index for each array.

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


#: The arrays that hold flags.
FLAGS = ("terminated", "truncated")


class Rule(NamedTuple):
    """One recurrence.

    Attributes:
        coefficients: (step, after, options) -> (a, b). `after` is the next step in time; beyond the
            last one its value is `last_values` and all else is 0.
        results: (y, carried, step, after, options) -> two numbers, of which the first or both are
            kept; `carried` is y of the step computed before, for rules that run backward in time.
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
def itself(y: Any, carried: Any, step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """Results: the recurrence."""
    return y, y


@inlined
def bootstrap(step: Step, following: float) -> Any:
    """Value of what comes after the step, `following` if the episode goes on."""
    return where(step.terminated, 0.0, where(step.truncated, step.final_value, following))


@inlined
def unless_ended(step: Step, number: float) -> Any:
    """The number if the episode goes on, else 0."""
    return where(step.terminated, 0.0, where(step.truncated, 0.0, number))
