"""Transforms of observations: several of them, or more numbers in each.

Each one adds a field to the state, by `extend_tuple` or, where states have arrays, `extend_arrays`;
their functions `at_reset`, `after_step` and `observe` are explained there. "Inner" is the
environment without the transform.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.layout.arrays import Array
from rlcpu.envs.transforms.forms import (
    extend_arrays,
    extend_tuple,
    find_transformable,
    id_and_transform,
    tuple_of,
)
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compiler.compile import define, source_of_tuple
from rlcpu.kernels.machine.boards import Board


def stack_observations(environment: str | Dynamics, n: int, padding: str = "reset") -> Dynamics:
    """Show the last n observations, the oldest first.

    They are joined along the first axis, so that (4,) becomes (n * 4,) and planes (c, rows,
    columns) become (n * c, rows, columns); `reshape(n, ...)` gives those of Gymnasium's
    `FrameStackObservation`.

    Args:
        environment: id, or a `Dynamics`, whose observations are numbers or boards.
        n: how many.
        padding: what stands for those before the first one: "reset", the first itself, or "zero".

    Returns:
        The environment, with a field `frames` in its state.

    Example:
        >>> stack_observations("CartPole-v1", 4).observation_space.shape
        (16,)
    """
    dynamics, n = find_transformable(environment), check_count("n", n)
    if padding not in ("reset", "zero"):
        raise ValueError(f'padding={padding!r}: expected "reset" or "zero"')
    stack = _stack_arrays if dynamics.has_arrays else _stack_tuples
    transform = functools.partial(stack_observations, dynamics, n, padding)
    changes = id_and_transform(dynamics, f"Stack{n}", transform)
    return stack(dynamics, n, is_zero=padding == "zero", changes=changes)


def _stack_tuples(dynamics: Dynamics, n: int, is_zero: bool, changes: dict[str, Any]) -> Dynamics:
    """Return the environment of `stack_observations` where states have no arrays.

    The field `frames` is a tuple of the numbers or boards of the last n observations; with
    `is_zero` missing ones are zeros. `changes` are other fields of `Dynamics` that change, by name.
    """
    space: Any = dynamics.observation_space
    if isinstance(space, MultiBinary):
        observe_inner: Any = dynamics.observe
        size, *cells = space.shape  # a plane is one item of a tuple, whatever its cells are
        stacked: Any = MultiBinary((n * size, *cells))
        zeros, hint = (Board(),) * size, tuple_of(Board, n * size)
    else:
        observe_inner, space = _observe_numbers(dynamics)
        (size,) = space.shape
        stacked = _stacked_space(space, n, is_zero)
        zeros, hint = (0.0,) * size, tuple_of(float, n * size)
    first_frames = _make_first_frames(n, padding=zeros if is_zero else None)

    def observe(state: Any, inner: Any, params: Any) -> Any:
        return state.frames

    def after_step(old: Any, inner: Any, action: Any, reward: Any, params: Any) -> Any:
        return old.frames[size:] + observe_inner(inner, params)

    def at_reset(inner: Any, params: Any) -> Any:
        return first_frames(observe_inner(inner, params))

    changes["observation_space"] = stacked
    return extend_tuple(dynamics, ("frames", hint), at_reset, after_step, observe, changes)


def _make_first_frames(n: int, padding: Any) -> Callable[[Any], Any]:
    """Make a function: the first observation of an episode, a tuple -> n of them, one tuple.

    All but the last are `padding`, a tuple, or, if it is None, the observation itself. The source
    is `first + first + ...` or `padding + padding + ... + first`.
    """
    missing = ["first" if padding is None else "padding"] * (n - 1)
    source = f"def first_frames(first): return {' + '.join([*missing, 'first'])}"
    return define(source, padding=padding)


def _stacked_space(space: Box, n: int, is_zero: bool) -> Box:
    """Return the space of n observations; with `is_zero` missing ones are zeros."""
    low, high = (np.concatenate([bound] * n) for bound in (space.low, space.high))
    return Box(np.minimum(low, 0.0), np.maximum(high, 0.0)) if is_zero else Box(low, high)


def _stack_arrays(dynamics: Dynamics, n: int, is_zero: bool, changes: dict[str, Any]) -> Dynamics:
    """Return the environment of `stack_observations` where states have arrays.

    The field `frames` is a ring of the last n observations, (n, size), in which `newest` is the
    index of the last one. The arguments are those of `_stack_tuples`.
    """
    observe_inner, space = _observe_numbers(dynamics)
    shape, size = space.shape, dynamics.observation_size

    def write_newest(state: Any, params: Any) -> None:
        frame = state.frames[state.newest]
        for k in range(size):
            frame[k] = 0.0
        observe_inner(state, params, frame.reshape(shape))

    def at_reset(state: Any, params: Any) -> None:
        write_newest(state, params)
        if not is_zero:
            for index in range(1, n):
                for k in range(size):
                    state.frames[index, k] = state.frames[0, k]

    def after_step(state: Any, action: Any, reward: Any, params: Any) -> None:
        state.newest = (state.newest + 1) % n
        write_newest(state, params)

    def observe(state: Any, params: Any, out: Any) -> None:
        flat = out.reshape(n * size)
        for age in range(n):  # the oldest first
            index = (state.newest + 1 + age) % n
            for k in range(size):
                flat[age * size + k] = state.frames[index, k]

    changes["observation_space"] = _stacked_space(space, n, is_zero)
    fields = {"frames": Array[float, n, size], "newest": int}
    return extend_arrays(dynamics, fields, at_reset, after_step, observe, changes)


def add_previous_action(environment: str | Dynamics) -> Dynamics:
    """Append the action of the step before to each observation.

    A `Discrete` one is shown as one number of 0 or 1 for each action, and so is each number of a
    `MultiDiscrete`; a `Box`'s numbers are shown as they are. Before the first step of an episode
    all are 0, where POPGym's `PreviousAction` shows action 0.

    It is the field `previous_action` of the state, which is -1 before the first step for a
    `Discrete` and a `MultiDiscrete`.

    Example:
        >>> add_previous_action("CartPole-v1").observation_space.shape
        (6,)
    """
    dynamics = find_transformable(environment)
    space: Any = dynamics.action_space
    action_size = dynamics.action_size
    hint: Any
    first_value: Any
    if isinstance(space, Box):
        hint, first_value = tuple_of(float, action_size), (0.0,) * action_size
        low, high = space.low.tolist(), space.high.tolist()
        numbers_of: Any = _previous_action
    else:
        hint, first_value = int, -1
        if action_size:
            hint, first_value = tuple_of(int, action_size), (-1,) * action_size
        choices = dynamics.choices or (dynamics.num_actions,)
        low, high = [0.0] * sum(choices), [1.0] * sum(choices)
        one_hot = _one_hot(choices, several=action_size > 0)

        def numbers_of(state: Any) -> Any:
            return one_hot(state.previous_action)

    def value_after(state: Any, action: Any, reward: Any) -> Any:
        return action

    field = _Field("previous_action", hint, first_value, value_after, numbers_of)
    return _append(add_previous_action, dynamics, "PreviousAction", field, low, high)


def _previous_action(state: Any) -> Any:
    """Return the numbers of the field `previous_action`."""
    return state.previous_action


def add_previous_reward(environment: str | Dynamics) -> Dynamics:
    """Append the reward of the step before to each observation; 0 before the first step.

    It is the field `previous_reward` of the state.
    """
    dynamics = find_transformable(environment)

    def value_after(state: Any, action: Any, reward: Any) -> Any:
        return reward

    def numbers_of(state: Any) -> Any:
        return (state.previous_reward,)

    field = _Field("previous_reward", float, 0.0, value_after, numbers_of)
    return _append(
        add_previous_reward, dynamics, "PreviousReward", field, low=[-np.inf], high=[np.inf]
    )


def add_first_step(environment: str | Dynamics) -> Dynamics:
    """Append 1 to the first observation of an episode and 0 to all others.

    The field `has_begun` of the state tells of that.
    """
    dynamics = find_transformable(environment)

    def value_after(state: Any, action: Any, reward: Any) -> Any:
        return True

    def numbers_of(state: Any) -> Any:
        return (0.0 if state.has_begun else 1.0,)

    field = _Field("has_begun", bool, False, value_after, numbers_of)
    return _append(add_first_step, dynamics, "FirstStep", field, low=[0.0], high=[1.0])


def add_time_left(environment: str | Dynamics) -> Dynamics:
    """Append the share of `max_episode_steps` that is left: 1 at the reset, 0 after the last step.

    A value function can then tell an end by the limit from any other state (Pardo, Tavakoli, Levdik
    & Kormushev 2018, "Time limits in reinforcement learning"). It is 1 minus what Gymnasium's
    `TimeAwareObservation(normalize_time=True)` shows. The limit is the environment's own; one that
    `make_vec` is given does not change it.

    The field `steps_taken` of the state counts. Raises ValueError for an environment without a
    limit.
    """
    dynamics = find_transformable(environment)
    if dynamics.max_episode_steps is None:
        raise ValueError(
            f"{dynamics.id} has max_episode_steps=None: expected a limit, by "
            "dataclasses.replace(dynamics, max_episode_steps=1000)"
        )
    limit = float(dynamics.max_episode_steps)

    def value_after(state: Any, action: Any, reward: Any) -> Any:
        return state.steps_taken + 1

    def numbers_of(state: Any) -> Any:
        return (max(1.0 - float(state.steps_taken) / limit, 0.0),)

    field = _Field("steps_taken", int, 0, value_after, numbers_of)
    return _append(add_time_left, dynamics, "TimeLeft", field, low=[0.0], high=[1.0])


class _Field(NamedTuple):
    """A field of the state whose numbers a transform appends to observations."""

    name: str
    hint: Any  # type hint
    first_value: Any  # at a reset
    value_after: Callable[..., Any]  # (old state, action, reward) -> the value after a step
    numbers_of: Callable[..., Any]  # (state,) -> the numbers to append, a tuple


def _append(
    transform: Callable[..., Dynamics],
    dynamics: Dynamics,
    suffix: str,
    field: _Field,
    low: list[float],
    high: list[float],
) -> Dynamics:
    """Return an environment that appends the numbers of a field to its observations.

    `transform` is the public function that asks for it, of which pickle makes a call; `suffix` is
    appended to the id of `dynamics`, the inner environment; `low` and `high` are bounds of the
    numbers.
    """
    changes = id_and_transform(dynamics, suffix, functools.partial(transform, dynamics))
    observe_inner, space = _observe_numbers(dynamics)
    if len(space.shape) != 1:
        raise TypeError(
            f"{dynamics.id}: observation_space={space} has several axes: numbers are appended to "
            "observations of one"
        )
    lowest, highest = np.append(space.low, low), np.append(space.high, high)
    changes["observation_space"] = Box(lowest.astype(np.float32), highest.astype(np.float32))
    if dynamics.has_arrays:
        return _append_to_arrays(dynamics, field, observe_inner, changes)
    first_value, value_after, numbers_of = field.first_value, field.value_after, field.numbers_of

    def at_reset(inner: Any, params: Any) -> Any:
        return first_value

    def after_step(old: Any, inner: Any, action: Any, reward: Any, params: Any) -> Any:
        return value_after(old, action, reward)

    def observe(state: Any, inner: Any, params: Any) -> Any:
        return observe_inner(inner, params) + numbers_of(state)

    return extend_tuple(dynamics, (field.name, field.hint), at_reset, after_step, observe, changes)


def _append_to_arrays(
    dynamics: Dynamics, field: _Field, observe_inner: Callable[..., None], changes: dict[str, Any]
) -> Dynamics:
    """Return the environment of `_append` where states have arrays.

    `observe_inner(state, params, out)` writes the inner observation; `changes` are other fields of
    `Dynamics` that change, by name, the observation space among them.
    """
    name, hint, first_value, value_after, numbers_of = field
    size = dynamics.observation_size
    count = len(changes["observation_space"].low) - size  # of the numbers to append
    items = getattr(hint, "__args__", ())  # type hints of the items, if the field is a tuple
    copy_items = f"for k in range({len(items)}): state.{name}[k] = value[k]"
    assignment = copy_items if items else f"state.{name} = value"
    put = define(f"def put(state, value):\n    {assignment}")

    def at_reset(state: Any, params: Any) -> None:
        put(state, first_value)

    def after_step(state: Any, action: Any, reward: Any, params: Any) -> None:
        put(state, value_after(state, action, reward))

    def observe(state: Any, params: Any, out: Any) -> None:
        observe_inner(state, params, out[0:size])
        numbers = numbers_of(state)
        for k in range(count):
            out[size + k] = numbers[k]

    field_type: Any = Array[items[0], len(items)] if items else hint
    return extend_arrays(dynamics, {name: field_type}, at_reset, after_step, observe, changes)


def _observe_numbers(dynamics: Dynamics) -> tuple[Callable[..., Any], Box]:
    """Return the function that observes a state as numbers, and the space of these.

    It is (state, params) -> a tuple of floats; where states have arrays, (state, params, out), and
    writes into zeros. A choice is a number of 0 or 1 for each value. Raises TypeError for boards or
    several parts.
    """
    observe: Any = dynamics.observe
    space: Any = dynamics.observation_space
    if isinstance(space, MultiBinary):
        raise TypeError(
            f"{dynamics.id}: observation_space={space} is boards, to which no numbers are "
            "appended: show numbers, or stack_observations"
        )
    if isinstance(space, Dict):
        raise TypeError(
            f"{dynamics.id}: observation_space={space} has several parts: expected numbers, a "
            "choice or boards"
        )
    size = dynamics.observation_size
    if isinstance(space, Discrete):
        lowest, one_hot = int(space.start), _one_hot((size,), several=False)

        def observe_choice(state: Any, params: Any) -> Any:
            return one_hot(observe(state, params) - lowest)

        def write_choice(state: Any, params: Any, out: Any) -> None:
            out[observe(state, params) - lowest] = 1.0

        return write_choice if dynamics.has_arrays else observe_choice, Box(0.0, 1.0, (size,))

    def write_numbers(state: Any, params: Any, out: Any) -> None:
        observation = observe(state, params)
        for k in range(size):
            out[k] = observation[k]

    returns_numbers_of_arrays = dynamics.has_arrays and not dynamics.writes_observation
    return write_numbers if returns_numbers_of_arrays else observe, space


def _one_hot(choices: tuple[int, ...], several: bool) -> Callable[[Any], Any]:
    """Make a function: a choice, or a tuple of `several` -> a number of 0 or 1 for each value.

    `choices` says how many values each choice has.
    """
    comparisons = [
        f"choice[{k}] == {value}" if several else f"choice == {value}"
        for k, count in enumerate(choices)
        for value in range(count)
    ]
    items = source_of_tuple(f"(1.0 if {comparison} else 0.0)" for comparison in comparisons)
    return define(f"def one_hot(choice): return {items}")
