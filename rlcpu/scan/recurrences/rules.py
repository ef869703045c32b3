"""Rules: what is computed at each step of a recurrence, as plain Python.

A recurrence here is y = b + a * y', where y' belongs to the step computed just before: the next one
in time for returns, the one before for filters. A `Rule` says what a and b are. Its functions take
numbers or vectors of them, one for each of several lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from rlcpu.kernels.compile import inline
from rlcpu.kernels.vectors import where

#: Decorator of a rule's functions: plain Python of numbers, or of vectors of them in kernels. In
#: IEEE arithmetic: memory is the limit, and results equal plain Python's.
rule_function = functools.partial(inline, exact=True, plain=True)


class Step(NamedTuple):
    """Inputs of a step; in drivers also a pointer or an index for each array.

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
            kept; `carried` is y of the step computed before.
        reads: names of the fields of `Step` that are used. The first ones, as many as there are
            outputs, hold numbers: on the way to memory results lie in their place.
        sees: names of those that are used of `after`, which rules that run forward in time have
            none of. The first one is the value.
        outputs: 1 or 2.
        cuts: a == 0 drops even a NaN of the steps computed before, which belong to another episode.
    """

    coefficients: Callable[..., Any]
    results: Callable[..., Any]
    reads: tuple[str, ...]
    sees: tuple[str, ...] = ()
    outputs: int = 1
    cuts: bool = True


# ---------------------------------------------------------------- parts of rules


@rule_function
def link(a: float, b: float, carried: float) -> Any:
    """Make one step of a recurrence that is cut where a is 0."""
    return where(a == 0.0, b, b + a * carried)


@rule_function
def link_always(a: float, b: float, carried: float) -> Any:
    """Make one step of a recurrence whose NaN and infinities go on for ever."""
    return b + a * carried


@rule_function
def bootstrap(step: Step, following: float) -> Any:
    """Return the value of what comes after the step, `following` if the episode goes on."""
    return where(step.terminated, 0.0, where(step.truncated, step.final_value, following))


@rule_function
def unless_ended(step: Step, number: float) -> Any:
    """Return the number if the episode goes on, else 0."""
    return where(step.terminated, 0.0, where(step.truncated, 0.0, number))


@rule_function
def clipped(ratio: float, clip: float) -> Any:
    """Return the smaller of both, NaN if the ratio is that."""
    return where(ratio > clip, clip, ratio)


# ---------------------------------------------------------------- coefficients


@rule_function
def linear_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """Return a and b of y_t = a_t * y_{t-1} + b_t."""
    return step.gamma, step.reward


@rule_function
def return_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """Return a and b of R_t = r_t + gamma * R_{t+1}; the last term is a value where it ended."""
    return unless_ended(step, step.gamma), step.reward + step.gamma * bootstrap(step, 0.0)


@rule_function
def advantage_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """Return a and b of A_t = delta_t + gamma * lambda * A_{t+1}."""
    delta = step.reward + step.gamma * bootstrap(step, after.value) - step.value
    return unless_ended(step, step.gamma * step.lambda_), delta


@rule_function
def lambda_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """Return a and b of G_t = r_t + gamma * ((1 - lambda) * v_{t+1} + lambda * G_{t+1})."""
    following = bootstrap(step, (1.0 - step.lambda_) * after.value)
    return unless_ended(step, step.gamma * step.lambda_), step.reward + step.gamma * following


@rule_function
def vtrace_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """Return a and b of E_t = rho_t * delta_t + gamma * lambda * c_t * E_{t+1}.

    v_t + E_t is the target.
    """
    target = step.reward + step.gamma * bootstrap(step, after.value)
    weight = step.gamma * (step.lambda_ * clipped(step.ratio, options[1]))
    return unless_ended(step, weight), clipped(step.ratio, options[0]) * (target - step.value)


@rule_function
def retrace_coefficients(step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """Return a and b of G_t = r_t + gamma * (v_{t+1} + c_{t+1} * (G_{t+1} - q_{t+1}))."""
    c = after.lambda_ * clipped(after.ratio, 1.0)
    following = bootstrap(step, after.value - c * after.action_value)
    return unless_ended(step, step.gamma * c), step.reward + step.gamma * following


# ---------------------------------------------------------------- results


@rule_function
def itself(y: Any, carried: Any, step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """Return the recurrence."""
    return y, y


@rule_function
def with_value(y: Any, carried: Any, step: Step, after: Step, options: Any) -> tuple[Any, Any]:
    """Return the recurrence, and its sum with the value."""
    return y, y + step.value


@rule_function
def vtrace_results(y: Any, carried: Any, step: Step, after: Step, options: Any) -> Any:
    """Return the target, and the advantage of the action against the next step's target."""
    following = bootstrap(step, after.value + step.lambda_ * carried)
    advantage = step.reward + step.gamma * following - step.value
    return step.value + y, clipped(step.ratio, options[2]) * advantage


# ---------------------------------------------------------------- the rules

_ENDS = ("terminated", "truncated", "final_value", "gamma")
_VALUED = ("reward", "value", *_ENDS, "lambda_")

LINEAR = Rule(linear_coefficients, itself, ("reward", "gamma"), cuts=False)
RETURNS = Rule(return_coefficients, itself, ("reward", *_ENDS))
ADVANTAGES = Rule(advantage_coefficients, with_value, _VALUED, ("value",), outputs=2)
LAMBDA_RETURNS = Rule(lambda_coefficients, itself, _VALUED, ("value",))
VTRACE = Rule(vtrace_coefficients, vtrace_results, (*_VALUED, "ratio"), ("value",), outputs=2)
RETRACE = Rule(
    retrace_coefficients,
    itself,
    (*_VALUED, "ratio", "action_value"),
    ("value", "lambda_", "ratio", "action_value"),
)
