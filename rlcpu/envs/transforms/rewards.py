"""Transforms of actions and rewards."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.layout import Layout
from rlcpu.envs.transforms.forms import check_plain, find_own, renamed, step_of, with_signature
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import define, source_of_tuple
from rlcpu.kernels.random import PARTS


def repeat_action(environment: str | Dynamics, n: int) -> Dynamics:
    """Take each action n times, or until the episode ends; the reward is the sum.

    The limit of an episode's steps is divided by n and rounded up. Draws of a step that takes `rng`
    are other numbers in each repetition.

    Args:
        environment: id, or a `Dynamics`.
        n: how often, at most 64.

    Returns:
        The environment; its state stays as it is.

    Raises:
        TypeError, ValueError: a bad argument, or an environment that cannot be transformed.

    Example:
        >>> repeat_action("CartPole-v1", 4).max_episode_steps
        125
    """
    dynamics, n = find_own(environment), check_count("n", n, limit=PARTS + 1)
    inner, parts = step_of(dynamics), [_part_of(dynamics, k) for k in range(n)]
    if dynamics.has_arrays:
        step = _repeat_arrays(inner, parts)
    else:
        step = _repeat_tuples(inner, parts, _make_choose(dynamics.state))
    again = functools.partial(repeat_action, dynamics, n)
    changes = renamed(dynamics, f"Repeat{n}", again)
    limit = dynamics.max_episode_steps
    changes["max_episode_steps"] = None if limit is None else -(-limit // n)
    changes["step_draws"] = n * dynamics.step_draws
    return dataclasses.replace(dynamics, step=with_signature(dynamics, step), **changes)


def _part_of(dynamics: Dynamics, k: int) -> Callable[[Any], Any]:
    """Return a function of the draws of n repetitions, which returns those of repetition k."""
    first, last = k * dynamics.step_draws, (k + 1) * dynamics.step_draws
    if dynamics.takes_rng("step"):
        return lambda rng: rng.part(k)
    return lambda uniforms: uniforms[first:last]


def _make_choose(layout: Layout) -> Callable[..., Any]:
    """Return a function (condition, x, y) -> the state x where the condition holds, else y."""

    def choose(place: str, size: int) -> str:
        if size == 0:
            return f"(x{place} if condition else y{place})"
        return source_of_tuple(choose(f"{place}[{k}]", 0) for k in range(size))

    if layout.value_class is None:
        source = choose("", layout.fields[0].size)
    else:
        fields = (f"({choose(f'.{field.name}', field.size)})" for field in layout.fields)
        source = f"made({', '.join(fields)})"
    return define(f"def choose(condition, x, y): return {source}", made=layout.value_class)


def _repeat_tuples(
    step: Callable[..., Any], parts: list[Any], choose: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a step that takes `step` once for each of the parts of its draws.

    Each repetition is a function of its own: a loop around a long one would run lane by lane.
    """
    part = parts[-1]

    def once(state: Any, action: Any, params: Any, draws: Any) -> Any:
        return step(state, action, params, part(draws))

    if len(parts) == 1:
        return once
    before = _repeat_tuples(step, parts[:-1], choose)

    def again(state: Any, action: Any, params: Any, draws: Any) -> Any:
        old, total, failed, cut = before(state, action, params, draws)
        new, reward, terminated, truncated = step(old, action, params, part(draws))
        over = failed | cut
        total = total if over else total + reward
        failed, cut = (failed if over else terminated), (cut if over else truncated)
        return choose(over, old, new), total, failed, cut

    return again


def _repeat_arrays(step: Callable[..., Any], parts: list[Any]) -> Callable[..., Any]:
    """`_repeat_tuples` where a state holds arrays, which a repetition changes in place."""
    part = parts[-1]

    def once(state: Any, action: Any, params: Any, draws: Any) -> Any:
        return step(state, action, params, part(draws))

    if len(parts) == 1:
        return once
    before = _repeat_arrays(step, parts[:-1])

    def again(state: Any, action: Any, params: Any, draws: Any) -> Any:
        total, terminated, truncated = before(state, action, params, draws)
        if terminated or truncated:
            return total, terminated, truncated
        reward, terminated, truncated = step(state, action, params, part(draws))
        return total + reward, terminated, truncated

    return again


def transform_reward(environment: str | Dynamics, function: Callable[[Any], Any]) -> Dynamics:
    """Give another reward: `function(reward)`, as scaled, clipped, or its sign.

    Args:
        environment: id, or a `Dynamics`.
        function: plain Python of one number, which returns a float.

    Returns:
        The environment, without a `reward_threshold`; its state stays as it is.

    Raises:
        TypeError, ValueError: a bad argument, or an environment that cannot be transformed.
    """
    dynamics, function = find_own(environment), check_plain("function", function)
    again = functools.partial(transform_reward, dynamics, function)

    def reward(before: Any, after: Any, reward: Any, terminated: Any, params: Any) -> Any:
        return function(reward)

    return _rewarded(dynamics, None, reward, renamed(dynamics, "Reward", again))


def shape_reward(
    environment: str | Dynamics, potential: Callable[[Any, Any], Any], discount: float = 0.99
) -> Dynamics:
    """Add to each reward by how much a potential rises: discount * potential(new) - potential(old).

    The potential of a state in which the episode has terminated counts as 0. Whatever the
    potential is, the same policies are optimal with this discount (Ng, Harada & Russell 1999,
    "Policy invariance under reward transformations").

    Args:
        environment: id, or a `Dynamics`.
        potential: (state, params) -> float, in plain Python.
        discount: that of the agent, `gamma`.

    Returns:
        The environment, without a `reward_threshold`; its state stays as it is.

    Raises:
        TypeError, ValueError: a bad argument, or an environment that cannot be transformed.
    """
    dynamics, potential = find_own(environment), check_plain("potential", potential)
    if isinstance(discount, bool) or not isinstance(discount, int | float):
        raise TypeError(f"discount={discount!r}: expected a number from 0 to 1")
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount={discount!r}: expected a number from 0 to 1")
    factor = float(discount)
    again = functools.partial(shape_reward, dynamics, potential, factor)

    def reward(before: Any, after: Any, reward: Any, terminated: Any, params: Any) -> Any:
        return reward + (factor * (0.0 if terminated else after) - before)

    return _rewarded(dynamics, potential, reward, renamed(dynamics, "Shaped", again))


def _rewarded(
    dynamics: Dynamics, potential: Any, reward_of: Callable[..., Any], changes: dict[str, Any]
) -> Dynamics:
    """Return an environment of other rewards.

    Args:
        dynamics: the environment.
        potential: (state, params) -> a number of a state, or None.
        reward_of: (number before, number after, reward, terminated, params) -> reward; both numbers
            are 0 without a potential.
        changes: other fields that change.
    """
    step = step_of(dynamics)
    measure: Any = potential or (lambda state, params: 0.0)

    def of_tuple(state: Any, action: Any, params: Any, draws: Any) -> Any:
        new, reward, terminated, truncated = step(state, action, params, draws)
        before, after = measure(state, params), measure(new, params)
        return new, reward_of(before, after, reward, terminated, params), terminated, truncated

    def of_array(state: Any, action: Any, params: Any, draws: Any) -> Any:
        before = measure(state, params)
        reward, terminated, truncated = step(state, action, params, draws)
        after = measure(state, params)
        return reward_of(before, after, reward, terminated, params), terminated, truncated

    made = with_signature(dynamics, of_array if dynamics.has_arrays else of_tuple)
    return dataclasses.replace(dynamics, step=made, reward_threshold=None, **changes)
