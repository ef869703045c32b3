"""Transforms of actions and rewards.

Steps are here of the one form that `rlcpu.envs.transforms.forms` explains; "inner" is the
environment without the transform.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.layout.values import Layout
from rlcpu.envs.transforms.forms import (
    check_plain,
    find_transformable,
    id_and_transform,
    step_of,
    with_signature,
)
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.compile import define, source_of_tuple
from rlcpu.kernels.machine.random import PARTS


def repeat_action(environment: str | Dynamics, n: int) -> Dynamics:
    """Take each action n times, or until the episode ends; the reward is the sum.

    The limit of an episode's steps is divided by n and rounded up. Draws of a step that takes `rng`
    are other numbers in each repetition.

    Args:
        environment: id, or a `Dynamics`.
        n: how often, at most 64.

    Returns:
        The environment; its state stays as it is.

    Example:
        >>> repeat_action("CartPole-v1", 4).max_episode_steps
        125
    """
    # An `Rng` has other numbers for each of `PARTS` repetitions; `limit` is the first bad count.
    dynamics, n = find_transformable(environment), check_count("n", n, limit=PARTS + 1)
    inner_step, draws_of_each = step_of(dynamics), [_draws_of(dynamics, k) for k in range(n)]
    if dynamics.has_arrays:
        step = _repeat_arrays(inner_step, draws_of_each)
    else:
        step = _repeat_tuples(inner_step, draws_of_each, _make_choose(dynamics.state))
    transform = functools.partial(repeat_action, dynamics, n)
    changes = id_and_transform(dynamics, f"Repeat{n}", transform)
    limit = dynamics.max_episode_steps
    changes["max_episode_steps"] = None if limit is None else -(-limit // n)
    changes["step_draws"] = n * dynamics.step_draws
    changes["compute_reward"] = None  # the reward of one step, and not the sum
    return dataclasses.replace(dynamics, step=with_signature(dynamics, step), **changes)


def _draws_of(dynamics: Dynamics, k: int) -> Callable[[Any], Any]:
    """Make a function: random numbers of all repetitions -> those of repetition k."""
    first, last = k * dynamics.step_draws, (k + 1) * dynamics.step_draws
    if dynamics.takes_rng("step"):
        return lambda rng: rng.part(k)
    return lambda uniforms: uniforms[first:last]


def _make_choose(layout: Layout) -> Callable[..., Any]:
    """Make a function (condition, x, y) -> the state x if the condition holds, else y.

    Its source chooses each number by a ternary, which vectorises: of a NamedTuple

        State((x.position if condition else y.position), (x.speed if condition else y.speed))
    """

    def source_of(part: str, size: int) -> str:
        """Return the source of a part such as ".speed", a tuple of `size` numbers or one (0)."""
        if size == 0:
            return f"(x{part} if condition else y{part})"
        return source_of_tuple(source_of(f"{part}[{k}]", 0) for k in range(size))

    if layout.value_class is None:
        source = source_of("", layout.fields[0].size)
    else:
        fields = (f"({source_of(f'.{field.name}', field.size)})" for field in layout.fields)
        source = f"State({', '.join(fields)})"
    return define(f"def choose(condition, x, y): return {source}", State=layout.value_class)


def _repeat_tuples(
    step: Callable[..., Any], draws_of_each: list[Any], choose: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a step that takes `step` until the episode ends, but once for each of the draws.

    Its reward is the sum. Each repetition is a function of its own, around the one for those
    before: a loop around a long step would run lane by lane. All repetitions are computed, and
    those after the end not chosen, by `choose(condition, x, y)` of two states. Each of
    `draws_of_each` makes the draws of one repetition of those of all.
    """
    draws_of_last = draws_of_each[-1]

    def once(state: Any, action: Any, params: Any, draws: Any) -> Any:
        return step(state, action, params, draws_of_last(draws))

    if len(draws_of_each) == 1:
        return once
    repeat_before = _repeat_tuples(step, draws_of_each[:-1], choose)

    def once_more(state: Any, action: Any, params: Any, draws: Any) -> Any:
        old, total, was_terminated, was_truncated = repeat_before(state, action, params, draws)
        new, reward, terminated, truncated = step(old, action, params, draws_of_last(draws))
        over = was_terminated | was_truncated
        total = total if over else total + reward
        terminated = was_terminated if over else terminated
        truncated = was_truncated if over else truncated
        return choose(over, old, new), total, terminated, truncated

    return once_more


def _repeat_arrays(step: Callable[..., Any], draws_of_each: list[Any]) -> Callable[..., Any]:
    """Return the step of `_repeat_tuples` where states have arrays, which are changed in place."""
    draws_of_last = draws_of_each[-1]

    def once(state: Any, action: Any, params: Any, draws: Any) -> Any:
        return step(state, action, params, draws_of_last(draws))

    if len(draws_of_each) == 1:
        return once
    repeat_before = _repeat_arrays(step, draws_of_each[:-1])

    def once_more(state: Any, action: Any, params: Any, draws: Any) -> Any:
        total, terminated, truncated = repeat_before(state, action, params, draws)
        if terminated or truncated:
            return total, terminated, truncated
        reward, terminated, truncated = step(state, action, params, draws_of_last(draws))
        return total + reward, terminated, truncated

    return once_more


def transform_reward(environment: str | Dynamics, function: Callable[[Any], Any]) -> Dynamics:
    """Give another reward: `function(reward)`, as scaled, clipped, or its sign.

    Args:
        environment: id, or a `Dynamics`.
        function: plain Python of one number, which returns a float.

    Returns:
        The environment, without a `reward_threshold`; its state stays as it is.
    """
    dynamics, function = find_transformable(environment), check_plain("function", function)
    transform = functools.partial(transform_reward, dynamics, function)

    def no_potential(state: Any, params: Any) -> float:
        return 0.0

    def new_reward(before: Any, after: Any, reward: Any, terminated: Any) -> Any:
        return function(reward)

    changes = id_and_transform(dynamics, "Reward", transform)
    return _with_rewards(dynamics, no_potential, new_reward, changes)


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
    """
    dynamics, potential = find_transformable(environment), check_plain("potential", potential)
    if isinstance(discount, bool) or not isinstance(discount, int | float):
        raise TypeError(f"discount={discount!r}: expected a number from 0 to 1")
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount={discount!r}: expected a number from 0 to 1")
    factor = float(discount)
    transform = functools.partial(shape_reward, dynamics, potential, factor)

    def new_reward(before: Any, after: Any, reward: Any, terminated: Any) -> Any:
        return reward + (factor * (0.0 if terminated else after) - before)

    changes = id_and_transform(dynamics, "Shaped", transform)
    return _with_rewards(dynamics, potential, new_reward, changes)


def _with_rewards(
    dynamics: Dynamics,
    potential_of: Callable[..., Any],
    new_reward: Callable[..., Any],
    changes: dict[str, Any],
) -> Dynamics:
    """Return an environment with other rewards.

    `potential_of(state, params)` is a number, and `new_reward` is (potential before the step,
    potential after it, reward, terminated) -> reward. `changes` are other fields of `Dynamics` that
    change, by name.
    """
    step = step_of(dynamics)

    def step_tuple(state: Any, action: Any, params: Any, draws: Any) -> Any:
        new, reward, terminated, truncated = step(state, action, params, draws)
        before, after = potential_of(state, params), potential_of(new, params)
        return new, new_reward(before, after, reward, terminated), terminated, truncated

    def step_arrays(state: Any, action: Any, params: Any, draws: Any) -> Any:
        before = potential_of(state, params)
        reward, terminated, truncated = step(state, action, params, draws)
        after = potential_of(state, params)
        return new_reward(before, after, reward, terminated), terminated, truncated

    new_step = with_signature(dynamics, step_arrays if dynamics.has_arrays else step_tuple)
    changes |= {"step": new_step, "reward_threshold": None, "compute_reward": None}
    return dataclasses.replace(dynamics, **changes)
