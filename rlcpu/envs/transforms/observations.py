"""Transforms of observations: several of them, or more numbers in each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.arrays import Array
from rlcpu.envs.transforms.forms import extend_arrays, extend_tuple, find_own, renamed, tuple_of
from rlcpu.kernels.boards import Board
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import define, source_of_tuple


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

    Raises:
        TypeError, ValueError: a bad argument, or an environment that cannot be transformed.

    Example:
        >>> stack_observations("CartPole-v1", 4).observation_space.shape
        (16,)
    """
    dynamics, n = find_own(environment), check_count("n", n)
    if padding not in ("reset", "zero"):
        raise ValueError(f'padding={padding!r}: expected "reset" or "zero"')
    made = _stack_arrays if dynamics.has_arrays else _stack_tuples
    again = functools.partial(stack_observations, dynamics, n, padding)
    return made(dynamics, n, padding == "zero", renamed(dynamics, f"Stack{n}", again))


def _stack_tuples(dynamics: Dynamics, n: int, is_zero: bool, changes: dict[str, Any]) -> Dynamics:
    """`stack_observations` where a state has no arrays."""
    space: Any = dynamics.observation_space
    blank: Any
    if isinstance(space, MultiBinary):
        show: Any = dynamics.observe
        planes, *cells = space.shape
        stacked: Any = MultiBinary((n * planes, *cells))
        size, hint, blank = planes, tuple_of(Board, n * planes), Board()
    else:
        show, space = _observe_numbers(dynamics)
        size, blank = space.shape[0], 0.0
        stacked, hint = _stacked(space, n, is_zero), tuple_of(float, n * size)
    padding = (blank,) * size

    def observe(state: Any, inner: Any, params: Any) -> Any:
        return state.frames

    def go_on(old: Any, inner: Any, action: Any, reward: Any, params: Any) -> Any:
        return old.frames[size:] + show(inner, params)

    def begin(inner: Any, params: Any) -> Any:
        return before(show(inner, params))

    before = _make_before(n, padding if is_zero else None)
    changes["observation_space"] = stacked
    return extend_tuple(dynamics, ("frames", hint), begin, go_on, observe, changes)


def _make_before(n: int, padding: Any) -> Callable[[Any], Any]:
    """Return a function of an observation: n of them, the first ones `padding` if there is any."""
    others = ["padding" if padding is not None else "seen"] * (n - 1)
    return define(f"def before(seen): return {' + '.join([*others, 'seen'])}", padding=padding)


def _stacked(space: Box, n: int, is_zero: bool) -> Box:
    """Return the space of n observations, of which those that are missing may be zeros."""
    low, high = (np.concatenate([bound] * n) for bound in (space.low, space.high))
    return Box(np.minimum(low, 0.0), np.maximum(high, 0.0)) if is_zero else Box(low, high)


def _stack_arrays(dynamics: Dynamics, n: int, is_zero: bool, changes: dict[str, Any]) -> Dynamics:
    """`stack_observations` where a state holds arrays: a ring of observations."""
    show, space = _observe_numbers(dynamics)
    shape, size = space.shape, dynamics.observation_size

    def write(state: Any, params: Any) -> None:
        frame = state.frames[state.newest]
        for k in range(size):
            frame[k] = 0.0
        show(state, params, frame.reshape(shape))

    def begin(state: Any, params: Any) -> None:
        write(state, params)
        if not is_zero:
            for place in range(1, n):
                for k in range(size):
                    state.frames[place, k] = state.frames[0, k]

    def go_on(state: Any, action: Any, reward: Any, params: Any) -> None:
        state.newest = (state.newest + 1) % n
        write(state, params)

    def observe(state: Any, params: Any, out: Any) -> None:
        shown = out.reshape(n * size)
        for age in range(n):
            place = (state.newest + 1 + age) % n
            for k in range(size):
                shown[age * size + k] = state.frames[place, k]

    changes["observation_space"] = _stacked(space, n, is_zero)
    fields = {"frames": Array[float, n, size], "newest": int}
    return extend_arrays(dynamics, fields, begin, go_on, observe, changes)


def add_previous_action(environment: str | Dynamics) -> Dynamics:
    """Append the action of the step before to each observation.

    A `Discrete` one is shown as one number of 0 or 1 for each action, and so is each number of a
    `MultiDiscrete`; a `Box`'s numbers are shown as they are. Before the first step of an episode
    all are 0, where POPGym's `PreviousAction` shows action 0.

    Args:
        environment: id, or a `Dynamics`, whose observations are numbers.

    Returns:
        The environment, with a field `previous_action` in its state, which is -1 before the first
        step for a `Discrete` and a `MultiDiscrete`.

    Raises:
        TypeError, ValueError: an environment that cannot be transformed.

    Example:
        >>> add_previous_action("CartPole-v1").observation_space.shape
        (6,)
    """
    dynamics = find_own(environment)
    space: Any = dynamics.action_space
    size = dynamics.action_size
    hint: Any
    start: Any
    if isinstance(space, Box):
        hint, start = tuple_of(float, size), (0.0,) * size
        low, high = space.low.tolist(), space.high.tolist()
        show: Any = _previous_action
    else:
        choices = dynamics.choices or (dynamics.num_actions,)
        hint, start = (tuple_of(int, size), (-1,) * size) if size else (int, -1)
        low, high = [0.0] * sum(choices), [1.0] * sum(choices)
        ones = _one_hot(choices, bool(size))

        def show(state: Any) -> Any:
            return ones(state.previous_action)

    def after(state: Any, action: Any, reward: Any) -> Any:
        return action

    field = _Field("previous_action", hint, start, after, show)
    return _append(add_previous_action, dynamics, "PreviousAction", field, low, high)


def _previous_action(state: Any) -> Any:
    return state.previous_action


def add_previous_reward(environment: str | Dynamics) -> Dynamics:
    """Append the reward of the step before to each observation; 0 before the first step.

    Args:
        environment: id, or a `Dynamics`, whose observations are numbers.

    Returns:
        The environment, with a field `previous_reward` in its state.

    Raises:
        TypeError, ValueError: an environment that cannot be transformed.
    """
    dynamics = find_own(environment)

    def after(state: Any, action: Any, reward: Any) -> Any:
        return reward

    def show(state: Any) -> Any:
        return (state.previous_reward,)

    field = _Field("previous_reward", float, 0.0, after, show)
    return _append(add_previous_reward, dynamics, "PreviousReward", field, [-np.inf], [np.inf])


def add_first_step(environment: str | Dynamics) -> Dynamics:
    """Append 1 to the first observation of an episode and 0 to all others.

    Args:
        environment: id, or a `Dynamics`, whose observations are numbers.

    Returns:
        The environment, with a field `has_begun` in its state.

    Raises:
        TypeError, ValueError: an environment that cannot be transformed.
    """
    dynamics = find_own(environment)

    def after(state: Any, action: Any, reward: Any) -> Any:
        return True

    def show(state: Any) -> Any:
        return (0.0 if state.has_begun else 1.0,)

    field = _Field("has_begun", bool, False, after, show)
    return _append(add_first_step, dynamics, "FirstStep", field, [0.0], [1.0])


def add_time_left(environment: str | Dynamics) -> Dynamics:
    """Append the share of `max_episode_steps` that is left: 1 at the reset, 0 after the last step.

    A value function can then tell an end by the limit from any other state (Pardo, Tavakoli, Levdik
    & Kormushev 2018, "Time limits in reinforcement learning"). It is 1 minus what Gymnasium's
    `TimeAwareObservation(normalize_time=True)` shows. The limit is the environment's own; one that
    `make_vec` is given does not change it.

    Args:
        environment: id, or a `Dynamics`, whose observations are numbers.

    Returns:
        The environment, with a field `steps_taken` in its state.

    Raises:
        TypeError, ValueError: an environment that cannot be transformed, as one without a limit.
    """
    dynamics = find_own(environment)
    if dynamics.max_episode_steps is None:
        raise ValueError(
            f"{dynamics.id} has max_episode_steps=None: expected a limit, by "
            "dataclasses.replace(dynamics, max_episode_steps=1000)"
        )
    limit = float(dynamics.max_episode_steps)

    def count(state: Any, action: Any, reward: Any) -> Any:
        return state.steps_taken + 1

    def show(state: Any) -> Any:
        return (max(1.0 - float(state.steps_taken) / limit, 0.0),)

    field = _Field("steps_taken", int, 0, count, show)
    return _append(add_time_left, dynamics, "TimeLeft", field, [0.0], [1.0])


class _Field(NamedTuple):
    """A number, or several, that a transform keeps in the state and appends to observations.

    Attributes:
        name, hint: of the field.
        start: its value at a reset.
        after: (old state, action, reward) -> its value after a step.
        show: (state) -> the numbers to append.
    """

    name: str
    hint: Any
    start: Any
    after: Callable[..., Any]
    show: Callable[..., Any]


def _append(
    transform: Callable[..., Dynamics],
    dynamics: Dynamics,
    suffix: str,
    field: _Field,
    low: list[float],
    high: list[float],
) -> Dynamics:
    """Return an environment that appends a field to its observations.

    Args:
        transform: the public function, which makes it again of `dynamics`.
        dynamics: the environment without the field.
        suffix: of the id.
        field: what is appended.
        low: bounds of the numbers that it shows.
        high: likewise.
    """
    changes = renamed(dynamics, suffix, functools.partial(transform, dynamics))
    observed, space = _observe_numbers(dynamics)
    if len(space.shape) != 1:
        raise TypeError(
            f"{dynamics.id}: observation_space={space} has several axes: numbers are appended to "
            "observations of one"
        )
    bounds = [np.concatenate(pair) for pair in ((space.low, low), (space.high, high))]
    lowest, highest = (np.array(bound, np.float32) for bound in bounds)
    changes["observation_space"] = Box(lowest, highest)
    if dynamics.has_arrays:
        return _append_to_arrays(dynamics, field, observed, changes)
    start, after, show = field.start, field.after, field.show

    def begin(inner: Any, params: Any) -> Any:
        return start

    def go_on(old: Any, inner: Any, action: Any, reward: Any, params: Any) -> Any:
        return after(old, action, reward)

    def observe(state: Any, inner: Any, params: Any) -> Any:
        return observed(inner, params) + show(state)

    return extend_tuple(dynamics, (field.name, field.hint), begin, go_on, observe, changes)


def _append_to_arrays(
    dynamics: Dynamics, field: _Field, observed: Callable[..., None], changes: dict[str, Any]
) -> Dynamics:
    """`_append` where a state holds arrays."""
    name, hint, start, after, show = field
    size, more = dynamics.observation_size, len(changes["observation_space"].low)
    count, items = more - size, getattr(hint, "__args__", ())  # of a tuple
    target = f"for k in range({len(items)}): state.{name}[k] = value[k]"
    put = define(f"def put(state, value):\n    {target if items else f'state.{name} = value'}")

    def begin(state: Any, params: Any) -> None:
        put(state, start)

    def go_on(state: Any, action: Any, reward: Any, params: Any) -> None:
        put(state, after(state, action, reward))

    def observe(state: Any, params: Any, out: Any) -> None:
        observed(state, params, out[0:size])
        numbers = show(state)
        for k in range(count):
            out[size + k] = numbers[k]

    field_type: Any = Array[items[0], len(items)] if items else hint
    return extend_arrays(dynamics, {name: field_type}, begin, go_on, observe, changes)


def _observe_numbers(dynamics: Dynamics) -> tuple[Callable[..., Any], Box]:
    """Return what shows a state as numbers, and the space of them.

    It is (state, params) -> a tuple of floats, or (state, params, out) for a state with arrays.

    Raises:
        TypeError: an observation is boards, or has several parts.
    """
    observe, space = dynamics.observe, dynamics.observation_space
    numbers: Any = space
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
    is_choice, arrays = isinstance(space, Discrete), dynamics.has_arrays
    lowest = int(space.start) if isinstance(space, Discrete) else 0
    if is_choice:
        numbers = Box(0.0, 1.0, (dynamics.observation_size,))
    if dynamics.writes_observation or not (is_choice or arrays):
        return observe, numbers
    if not arrays:
        ones = _one_hot((dynamics.observation_size,), False)
        return (lambda state, params: ones(observe(state, params) - lowest)), numbers
    size = dynamics.observation_size

    def write_choice(state: Any, params: Any, out: Any) -> None:
        out[observe(state, params) - lowest] = 1.0

    def write_numbers(state: Any, params: Any, out: Any) -> None:
        shown = observe(state, params)
        for k in range(size):
            out[k] = shown[k]

    return write_choice if is_choice else write_numbers, numbers


def _one_hot(choices: tuple[int, ...], several: bool) -> Callable[[Any], Any]:
    """Return a function of a choice, or of a tuple of them: a number of 0 or 1 for each value."""
    places = [
        (f"chosen[{k}]" if several else "chosen", value)
        for k, count in enumerate(choices)
        for value in range(count)
    ]
    items = source_of_tuple(f"(1.0 if {name} == {value} else 0.0)" for name, value in places)
    return define(f"def one_hot(chosen): return {items}")
