"""Rules: what is computed at each step of a recurrence, as plain Python.

A recurrence here is y = b + a * previous_y, where previous_y belongs to the step computed just
before: the next one in time for returns, the one before in time for filters. A `Rule` says what a
and b are. Its functions take numbers, or vectors with a number for each of several lanes, and
compute in IEEE arithmetic: memory is the limit, and results equal plain Python's. In all rules but
`LINEAR` a term with the factor 0 is no term, whatever its value: it may be NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rlcpu.kernels.compiler.compile import inline
from rlcpu.kernels.machine.vectors import where

# ---------------------------------------------------------------- from step to step


@inline(exact=True, plain=True)
def next_y_or_cut(a: float, b: float, previous_y: float) -> Any:
    """Return y of a step of a recurrence that is cut where a is 0, also after a NaN."""
    return where(a == 0.0, b, b + a * previous_y)


@inline(exact=True, plain=True)
def next_y(a: float, b: float, previous_y: float) -> Any:
    """Return y of a step of a recurrence whose NaN and infinities go on for ever."""
    return b + a * previous_y


@inline(exact=True, plain=True)
def next_gradient(a: float, b: float, previous_y: float) -> Any:
    """Return y of a step of a recurrence of gradients, of which a 0 stays 0, whatever a is."""
    return where(previous_y == 0.0, b, b + a * previous_y)


class Step(NamedTuple):
    """Inputs of a step; in kernels also a pointer, a place or a flag for each of them."""

    reward: Any  # what the step yielded
    value: Any  # of the observation before the step
    terminated: Any  # whether the episode ended with the step
    truncated: Any  # whether a limit cut the episode short after the step
    final_value: Any  # value of the last observation of an episode that was truncated
    gamma: Any  # discount of what follows the step
    lambda_: Any  # weight of what follows against the value of the next observation
    ratio: Any  # probability of the action by the target policy over that by the one that acted
    action_value: Any  # of the action taken


#: The arrays that hold flags.
FLAGS = ("terminated", "truncated")


class Rule(NamedTuple):
    """One recurrence."""

    #: (step, after, clips) -> (a, b). `step` and `after`, the next step in time, are `Step`s;
    #: `after` has value, lambda_, ratio and action_value alone, and beyond the last step the value
    #: `last_values` and 0 for the others. `clips` are V-trace's three bounds of importance ratios,
    #: rho, c and that of the advantages; other rules have none.
    coefficients: Callable[..., Any]
    #: (y, previous_y, step, after, clips) -> two numbers, of which the first or both are the
    #: outputs; `previous_y` is y of the step computed before.
    results: Callable[..., Any]
    reads: tuple[str, ...]  # names of the fields of `step` that are used
    outputs: int = 1  # number of outputs, 1 or 2
    continue_y: Callable[..., Any] = next_y_or_cut  # (a, b, previous_y) -> y


# ---------------------------------------------------------------- parts of rules


@inline(exact=True, plain=True)
def weighted(factor: float, number: float) -> Any:
    """Return factor * number: 0 of a factor of 0, even where the number is NaN or infinite."""
    return where(factor == 0.0, 0.0, factor * number)


@inline(exact=True, plain=True)
def bootstrap(step: Step, following: float) -> Any:
    """Return the value of the observation after a step, `following` if the episode goes on."""
    return where(step.terminated, 0.0, where(step.truncated, step.final_value, following))


@inline(exact=True, plain=True)
def zero_if_ended(step: Step, number: float) -> Any:
    """Return the number if the episode goes on, else 0."""
    return where(step.terminated, 0.0, where(step.truncated, 0.0, number))


@inline(exact=True, plain=True)
def clip_ratio(ratio: float, clip: float) -> Any:
    """Return an importance ratio or the bound `clip`, the smaller one; NaN of a NaN ratio."""
    return where(ratio > clip, clip, ratio)


# ---------------------------------------------------------------- coefficients


@inline(exact=True, plain=True)
def linear_coefficients(step: Step, after: Step, clips: Any) -> tuple[Any, Any]:
    """Return a and b of y_t = a_t * y_{t-1} + b_t."""
    return step.gamma, step.reward


@inline(exact=True, plain=True)
def return_coefficients(step: Step, after: Step, clips: Any) -> tuple[Any, Any]:
    """Return a and b of R_t = r_t + gamma * R_{t+1}; the last term is a value where it ended."""
    following = bootstrap(step, 0.0)
    return zero_if_ended(step, step.gamma), step.reward + weighted(step.gamma, following)


@inline(exact=True, plain=True)
def advantage_coefficients(step: Step, after: Step, clips: Any) -> tuple[Any, Any]:
    """Return a and b of A_t = delta_t + gamma * lambda * A_{t+1}."""
    following = bootstrap(step, after.value)
    delta = step.reward + weighted(step.gamma, following) - step.value
    return zero_if_ended(step, step.gamma * step.lambda_), delta


@inline(exact=True, plain=True)
def lambda_coefficients(step: Step, after: Step, clips: Any) -> tuple[Any, Any]:
    """Return a and b of G_t = r_t + gamma * ((1 - lambda) * v_{t+1} + lambda * G_{t+1})."""
    following = bootstrap(step, weighted(1.0 - step.lambda_, after.value))
    a = zero_if_ended(step, step.gamma * step.lambda_)
    return a, step.reward + weighted(step.gamma, following)


@inline(exact=True, plain=True)
def vtrace_coefficients(step: Step, after: Step, clips: Any) -> tuple[Any, Any]:
    """Return a and b of E_t = rho_t * delta_t + gamma * lambda * c_t * E_{t+1}.

    v_t + E_t is the target.
    """
    following = bootstrap(step, after.value)
    delta = step.reward + weighted(step.gamma, following) - step.value
    rho_clip, c_clip, _ = clips
    a = weighted(step.gamma, weighted(step.lambda_, clip_ratio(step.ratio, c_clip)))
    return zero_if_ended(step, a), weighted(clip_ratio(step.ratio, rho_clip), delta)


@inline(exact=True, plain=True)
def retrace_coefficients(step: Step, after: Step, clips: Any) -> tuple[Any, Any]:
    """Return a and b of G_t = r_t + gamma * (v_{t+1} + c_{t+1} * (G_{t+1} - q_{t+1}))."""
    c = weighted(after.lambda_, clip_ratio(after.ratio, 1.0))
    following = bootstrap(step, after.value - weighted(c, after.action_value))
    a = zero_if_ended(step, weighted(step.gamma, c))
    return a, step.reward + weighted(step.gamma, following)


# ---------------------------------------------------------------- results


@inline(exact=True, plain=True)
def y_alone(y: Any, previous_y: Any, step: Step, after: Step, clips: Any) -> tuple[Any, Any]:
    """Return y, twice: rules of one output drop the second."""
    return y, y


@inline(exact=True, plain=True)
def y_and_sum(y: Any, previous_y: Any, step: Step, after: Step, clips: Any) -> tuple[Any, Any]:
    """Return y, and y plus the step's value: the advantage and the return."""
    return y, y + step.value


@inline(exact=True, plain=True)
def vtrace_results(y: Any, previous_y: Any, step: Step, after: Step, clips: Any) -> Any:
    """Return the target, and the advantage of the action against the next step's target."""
    following = bootstrap(step, after.value + weighted(step.lambda_, previous_y))
    advantage = step.reward + weighted(step.gamma, following) - step.value
    return step.value + y, weighted(clip_ratio(step.ratio, clips[2]), advantage)


# ---------------------------------------------------------------- the rules

_ENDS = ("terminated", "truncated", "final_value", "gamma")
_VALUED = ("reward", "value", *_ENDS, "lambda_")

LINEAR = Rule(linear_coefficients, y_alone, ("reward", "gamma"), continue_y=next_y)
LINEAR_GRADIENTS = LINEAR._replace(continue_y=next_gradient)
RETURNS = Rule(return_coefficients, y_alone, ("reward", *_ENDS))
ADVANTAGES = Rule(advantage_coefficients, y_and_sum, _VALUED, outputs=2)
LAMBDA_RETURNS = Rule(lambda_coefficients, y_alone, _VALUED)
VTRACE = Rule(vtrace_coefficients, vtrace_results, (*_VALUED, "ratio"), outputs=2)
RETRACE = Rule(retrace_coefficients, y_alone, (*_VALUED, "ratio", "action_value"))
