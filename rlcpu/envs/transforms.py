"""Transforms: functions of a `Dynamics` that return one which shows, repeats or rewards otherwise.

They are for environments of our own kernels what Gymnasium's wrappers are for its environments, and
become part of the machine code:

    env = rlcpu.make_vec(add_previous_action(stack_observations("CartPole-v1", 4)), 1024)

| here | elsewhere |
|---|---|
| `stack_observations` | Gymnasium's `FrameStackObservation` |
| `add_time_left` | Gymnasium's `TimeAwareObservation` |
| `transform_reward` | Gymnasium's `TransformReward` |
| `repeat_action` | frame skip, as in Gymnasium's `MaxAndSkipObservation` |
| `add_previous_action`, `add_first_step` | POPGym's `PreviousAction`, `Antialias` |

What a transform has to remember is a field of the state, behind those of the environment itself:
snapshots, copies and checkpoints hold it. Random numbers are those of the environment without the
transform. A `Discrete` observation becomes a number of 0 or 1 for each of its values where numbers
are added to it or where it is stacked.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.arrays import Array
from rlcpu.envs.engine.layout import Layout
from rlcpu.envs.registration import find
from rlcpu.kernels.boards import Board
from rlcpu.kernels.checks import check_count
from rlcpu.kernels.compile import define, source_of_tuple
from rlcpu.kernels.random import PARTS
from rlcpu.kernels.source import check_source

__all__ = [
    "add_first_step",
    "add_previous_action",
    "add_previous_reward",
    "add_time_left",
    "repeat_action",
    "shape_reward",
    "stack_observations",
    "transform_reward",
]


# ---------------------------------------------------------------- observations


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
    dynamics, n = _find(environment), check_count("n", n)
    if padding not in ("reset", "zero"):
        raise ValueError(f'padding={padding!r}: expected "reset" or "zero"')
    made = _stack_arrays if dynamics.has_arrays else _stack_tuples
    again = functools.partial(stack_observations, dynamics, n, padding)
    return made(dynamics, n, padding == "zero", _renamed(dynamics, f"Stack{n}", again))


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
    dynamics = _find(environment)
    space: Any = dynamics.action_space
    size = dynamics.action_size
    hint: Any
    start: Any
    if isinstance(space, Box):
        hint, start = _tuple_of(float, size), (0.0,) * size
        low, high = space.low.tolist(), space.high.tolist()
        show: Any = _previous_action
    else:
        choices = dynamics.choices or (dynamics.num_actions,)
        hint, start = (_tuple_of(int, size), (-1,) * size) if size else (int, -1)
        low, high = [0.0] * sum(choices), [1.0] * sum(choices)
        ones = _one_hot(choices, bool(size))

        def show(state: Any) -> Any:
            return ones(state.previous_action)

    def after(state: Any, action: Any, reward: Any) -> Any:
        return action

    def put(state: Any, action: Any) -> None:
        state.previous_action = action

    def put_each(state: Any, action: Any) -> None:
        for k in range(size):
            state.previous_action[k] = action[k]

    again = functools.partial(add_previous_action, dynamics)
    field = _Field("previous_action", hint, start, after, show, put_each if size else put)
    return _append(dynamics, field, low, high, _renamed(dynamics, "PreviousAction", again))


def add_previous_reward(environment: str | Dynamics) -> Dynamics:
    """Append the reward of the step before to each observation; 0 before the first step.

    Args:
        environment: id, or a `Dynamics`, whose observations are numbers.

    Returns:
        The environment, with a field `previous_reward` in its state.

    Raises:
        TypeError, ValueError: an environment that cannot be transformed.
    """
    dynamics = _find(environment)

    def after(state: Any, action: Any, reward: Any) -> Any:
        return reward

    def show(state: Any) -> Any:
        return (state.previous_reward,)

    def put(state: Any, reward: Any) -> None:
        state.previous_reward = reward

    again = functools.partial(add_previous_reward, dynamics)
    field = _Field("previous_reward", float, 0.0, after, show, put)
    return _append(
        dynamics, field, [-np.inf], [np.inf], _renamed(dynamics, "PreviousReward", again)
    )


def add_first_step(environment: str | Dynamics) -> Dynamics:
    """Append 1 to the first observation of an episode and 0 to all others.

    Args:
        environment: id, or a `Dynamics`, whose observations are numbers.

    Returns:
        The environment, with a field `has_begun` in its state.

    Raises:
        TypeError, ValueError: an environment that cannot be transformed.
    """
    dynamics = _find(environment)

    def after(state: Any, action: Any, reward: Any) -> Any:
        return True

    def show(state: Any) -> Any:
        return (0.0 if state.has_begun else 1.0,)

    def put(state: Any, has_begun: Any) -> None:
        state.has_begun = has_begun

    again = functools.partial(add_first_step, dynamics)
    field = _Field("has_begun", bool, False, after, show, put)
    return _append(dynamics, field, [0.0], [1.0], _renamed(dynamics, "FirstStep", again))


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
    dynamics = _find(environment)
    if dynamics.max_episode_steps is None:
        raise ValueError(
            f"{dynamics.id} has max_episode_steps=None: no time is left or not; give it a limit, "
            "dataclasses.replace(dynamics, max_episode_steps=1000)"
        )
    limit = float(dynamics.max_episode_steps)

    def after(state: Any, action: Any, reward: Any) -> Any:
        return state.steps_taken + 1

    def show(state: Any) -> Any:
        return (max(1.0 - float(state.steps_taken) / limit, 0.0),)

    def put(state: Any, steps_taken: Any) -> None:
        state.steps_taken = steps_taken

    again = functools.partial(add_time_left, dynamics)
    field = _Field("steps_taken", int, 0, after, show, put)
    return _append(dynamics, field, [0.0], [1.0], _renamed(dynamics, "TimeLeft", again))


# ---------------------------------------------------------------- actions and rewards


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
    dynamics, n = _find(environment), check_count("n", n, limit=PARTS + 1)
    inner, parts = _step_of(dynamics), [_part_of(dynamics, k) for k in range(n)]
    if dynamics.has_arrays:
        step = _repeat_arrays(inner, parts)
    else:
        step = _repeat_tuples(inner, parts, _make_choose(dynamics.state))
    again = functools.partial(repeat_action, dynamics, n)
    changes = _renamed(dynamics, f"Repeat{n}", again)
    limit = dynamics.max_episode_steps
    changes["max_episode_steps"] = None if limit is None else -(-limit // n)
    changes["step_draws"] = n * dynamics.step_draws
    return dataclasses.replace(dynamics, step=_with_signature(dynamics, step), **changes)


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
    dynamics, function = _find(environment), _check_plain("function", function)
    again = functools.partial(transform_reward, dynamics, function)

    def reward(before: Any, after: Any, reward: Any, terminated: Any, params: Any) -> Any:
        return function(reward)

    return _rewarded(dynamics, None, reward, _renamed(dynamics, "Reward", again))


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
    dynamics, potential = _find(environment), _check_plain("potential", potential)
    if isinstance(discount, bool) or not isinstance(discount, int | float):
        raise TypeError(f"discount={discount!r}: expected a number from 0 to 1")
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount={discount!r}: expected a number from 0 to 1")
    factor = float(discount)
    again = functools.partial(shape_reward, dynamics, potential, factor)

    def reward(before: Any, after: Any, reward: Any, terminated: Any, params: Any) -> Any:
        return reward + (factor * (0.0 if terminated else after) - before)

    return _rewarded(dynamics, potential, reward, _renamed(dynamics, "Shaped", again))


# ---------------------------------------------------------------- arguments


def _find(environment: str | Dynamics) -> Dynamics:
    """Return an environment of our own kernels.

    Raises:
        TypeError, ValueError: there is none.
    """
    dynamics = find(environment)
    if dynamics.engine is not None:
        raise TypeError(
            f"{dynamics.id} is stepped by another engine: transforms are for environments of our "
            "own kernels; wrap Gymnasium's in its wrappers, before they are registered"
        )
    return dynamics


def _check_plain(name: str, function: Any) -> Any:
    """Return a function that kernels can take.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"{name}={function!r}: expected a plain Python function")
    try:
        check_source(function)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    return function


def _renamed(dynamics: Dynamics, suffix: str, again: Any) -> dict[str, Any]:
    """Return the fields that every transform changes: the id, and the call that makes it again."""
    name, _, version = dynamics.id.rpartition("-v")
    return {"id": f"{name}{suffix}-v{version}", "transform": again}


def _check_new(dynamics: Dynamics, *names: str) -> None:
    """Raise ValueError if the state has a field that a transform is to add."""
    known = [field.name for field in dynamics.state.fields]
    for name in names:
        if name in known:
            raise ValueError(f"{dynamics.id}: its state has a field {name} already")


# ---------------------------------------------------------------- functions of one form


def _step_of(dynamics: Dynamics) -> Callable[..., Any]:
    """Return a step (state, action, params, draws) -> ([state,] reward, terminated, truncated)."""
    step, draws, cuts = dynamics.step, _takes_draws(dynamics), dynamics.truncates
    if dynamics.has_arrays:

        def finish(result: Any) -> Any:
            return result if cuts else (result[0], result[1], False)

    else:

        def finish(result: Any) -> Any:
            return result if cuts else (result[0], result[1], result[2], False)

    def with_draws(state: Any, action: Any, params: Any, draws: Any) -> Any:
        return finish(step(state, action, params, draws))

    def without(state: Any, action: Any, params: Any, draws: Any) -> Any:
        return finish(step(state, action, params))

    return with_draws if draws else without


def _takes_draws(dynamics: Dynamics) -> bool:
    return dynamics.takes_rng("step") or dynamics.step_draws > 0


def _with_signature(dynamics: Dynamics, step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step whose last argument is named as that of an environment's own is."""

    def with_rng(state: Any, action: Any, params: Any, rng: Any) -> Any:
        return step(state, action, params, rng)

    def with_uniforms(state: Any, action: Any, params: Any, uniforms: Any) -> Any:
        return step(state, action, params, uniforms)

    def without(state: Any, action: Any, params: Any) -> Any:
        return step(state, action, params, ())

    if dynamics.takes_rng("step"):
        return with_rng
    return with_uniforms if dynamics.step_draws else without


def _reset_with_signature(dynamics: Dynamics, reset: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reset ([state,] draws, params) whose draws are named as an environment's own are."""

    def of_array(state: Any, rng: Any, params: Any) -> Any:
        return reset(state, rng, params)

    def of_array_uniforms(state: Any, uniforms: Any, params: Any) -> Any:
        return reset(state, uniforms, params)

    def of_tuple(rng: Any, params: Any) -> Any:
        return reset(rng, params)

    def of_tuple_uniforms(uniforms: Any, params: Any) -> Any:
        return reset(uniforms, params)

    if dynamics.has_arrays:
        return of_array if dynamics.takes_rng("reset") else of_array_uniforms
    return of_tuple if dynamics.takes_rng("reset") else of_tuple_uniforms


def _part_of(dynamics: Dynamics, k: int) -> Callable[[Any], Any]:
    """Return a function of the draws of n repetitions, which returns those of repetition k."""
    first, last = k * dynamics.step_draws, (k + 1) * dynamics.step_draws
    if dynamics.takes_rng("step"):
        return lambda rng: rng.part(k)
    return lambda uniforms: uniforms[first:last]


def _tuple_of(kind: type, count: int) -> Any:
    """Return the type hint of a tuple of `count` values."""
    return tuple[(kind,) * count]  # type: ignore[misc]


def _one_hot(choices: tuple[int, ...], several: bool) -> Callable[[Any], Any]:
    """Return a function of a choice, or of a tuple of them: a number of 0 or 1 for each value."""
    places = [
        (f"chosen[{k}]" if several else "chosen", value)
        for k, count in enumerate(choices)
        for value in range(count)
    ]
    items = source_of_tuple(f"(1.0 if {name} == {value} else 0.0)" for name, value in places)
    return define(f"def one_hot(chosen): return {items}")


def _previous_action(state: Any) -> Any:
    return state.previous_action


# ---------------------------------------------------------------- states of numbers and boards


class _Field(NamedTuple):
    """A number, or several, that a transform keeps in the state and appends to observations.

    Attributes:
        name, hint: of the field.
        start: its value at a reset.
        after: (old state, action, reward) -> its value after a step.
        show: (state) -> the numbers to append.
        put: (state, value): writes it into a state with arrays.
    """

    name: str
    hint: Any
    start: Any
    after: Callable[..., Any]
    show: Callable[..., Any]
    put: Callable[..., None]


def _append(
    dynamics: Dynamics, field: _Field, low: list[float], high: list[float], changes: dict[str, Any]
) -> Dynamics:
    """Return an environment that appends a field to its observations."""
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

    return _extend_tuple(dynamics, (field.name, field.hint), begin, go_on, observe, changes)


def _observe_numbers(dynamics: Dynamics) -> tuple[Callable[..., Any], Box]:
    """Return what shows a state as numbers, and the space of them.

    It is (state, params) -> a tuple of floats, or (state, params, out) for a state with arrays.

    Raises:
        TypeError: an observation is boards.
    """
    observe, space = dynamics.observe, dynamics.observation_space
    numbers: Any = space
    if isinstance(space, MultiBinary):
        raise TypeError(
            f"{dynamics.id}: observation_space={space} is boards, to which no numbers are "
            "appended: show numbers, or stack_observations"
        )
    is_choice, arrays = isinstance(space, Discrete), dynamics.has_arrays
    if is_choice:
        numbers = Box(0.0, 1.0, (dynamics.observation_size,))
    if dynamics.writes_observation or not (is_choice or arrays):
        return observe, numbers
    if not arrays:
        ones = _one_hot((dynamics.observation_size,), False)
        return (lambda state, params: ones(observe(state, params))), numbers
    size = dynamics.observation_size

    def write_choice(state: Any, params: Any, out: Any) -> None:
        out[observe(state, params)] = 1.0

    def write_numbers(state: Any, params: Any, out: Any) -> None:
        seen = observe(state, params)
        for k in range(size):
            out[k] = seen[k]

    return write_choice if is_choice else write_numbers, numbers


def _extend_tuple(
    dynamics: Dynamics,
    field: tuple[str, Any],
    begin: Callable[..., Any],
    go_on: Callable[..., Any],
    observe: Callable[..., Any],
    changes: dict[str, Any],
) -> Dynamics:
    """Return an environment with one more field in its state, a NamedTuple.

    Args:
        dynamics: the environment, whose state has no arrays.
        field: its name and type hint.
        begin: (own state, params) -> the field's value at a reset.
        go_on: (old state, own new state, action, reward, params) -> its value after a step.
        observe: (state, own state, params) -> observation.
        changes: other fields that change.
    """
    own, step = dynamics.state.made, _step_of(dynamics)
    reset, mask, picture = dynamics.reset, dynamics.action_mask, dynamics.picture
    _check_new(dynamics, field[0])
    name = changes["id"].rpartition("/")[2].rpartition("-")[0]
    if own is None:
        kept = {"inner": _tuple_of(float, dynamics.state.fields[0].size)}
        parts, inner_of = "inner", "state.inner"
    else:
        kept = typing.get_type_hints(own)
        parts = ", ".join(f"inner.{each}" for each in own._fields)
        inner_of = f"own({parts.replace('inner.', 'state.')})"
    made: Any = NamedTuple(name, [*kept.items(), field])  # type: ignore[misc]
    join = define(f"def join(inner, value): return made({parts}, value)", made=made)
    split = define(f"def split(state): return {inner_of}", own=own)

    def new_reset(draws: Any, params: Any) -> Any:
        inner = reset(draws, params)
        return join(inner, begin(inner, params))

    def new_step(state: Any, action: Any, params: Any, draws: Any) -> Any:
        inner, reward, terminated, truncated = step(split(state), action, params, draws)
        value = go_on(state, inner, action, reward, params)
        return join(inner, value), reward, terminated, truncated

    changes |= {
        "reset": _reset_with_signature(dynamics, new_reset),
        "step": _with_signature(dynamics, new_step),
        "observe": lambda state, params: observe(state, split(state), params),
        "state": None,
    }
    if mask is not None:
        changes["action_mask"] = lambda state, params: mask(split(state), params)
    if picture is not None:
        changes["picture"] = lambda state, params: picture(split(state), params)
    return dataclasses.replace(dynamics, **changes)


def _stack_tuples(dynamics: Dynamics, n: int, is_zero: bool, changes: dict[str, Any]) -> Dynamics:
    """`stack_observations` where a state has no arrays."""
    space: Any = dynamics.observation_space
    blank: Any
    if isinstance(space, MultiBinary):
        show: Any = dynamics.observe
        planes, *cells = space.shape
        stacked: Any = MultiBinary((n * planes, *cells))
        size, hint, blank = planes, _tuple_of(Board, n * planes), Board()
    else:
        show, space = _observe_numbers(dynamics)
        size, blank = space.shape[0], 0.0
        stacked, hint = _stacked(space, n, is_zero), _tuple_of(float, n * size)
    padding = (blank,) * size

    def observe(state: Any, inner: Any, params: Any) -> Any:
        return state.frames

    def go_on(old: Any, inner: Any, action: Any, reward: Any, params: Any) -> Any:
        return old.frames[size:] + show(inner, params)

    def begin(inner: Any, params: Any) -> Any:
        return before(show(inner, params))

    before = _make_before(n, padding if is_zero else None)
    changes["observation_space"] = stacked
    return _extend_tuple(dynamics, ("frames", hint), begin, go_on, observe, changes)


def _make_before(n: int, padding: Any) -> Callable[[Any], Any]:
    """Return a function of an observation: n of them, the first ones `padding` if there is any."""
    others = ["padding" if padding is not None else "seen"] * (n - 1)
    return define(f"def before(seen): return {' + '.join([*others, 'seen'])}", padding=padding)


def _stacked(space: Box, n: int, is_zero: bool) -> Box:
    """Return the space of n observations, of which those that are missing may be zeros."""
    low, high = (np.concatenate([bound] * n) for bound in (space.low, space.high))
    return Box(np.minimum(low, 0.0), np.maximum(high, 0.0)) if is_zero else Box(low, high)


def _make_choose(layout: Layout) -> Callable[..., Any]:
    """Return a function (condition, x, y) -> the state x where the condition holds, else y."""

    def choose(place: str, size: int) -> str:
        if size == 0:
            return f"(x{place} if condition else y{place})"
        return source_of_tuple(choose(f"{place}[{k}]", 0) for k in range(size))

    if layout.made is None:
        source = choose("", layout.fields[0].size)
    else:
        fields = (f"({choose(f'.{field.name}', field.size)})" for field in layout.fields)
        source = f"made({', '.join(fields)})"
    return define(f"def choose(condition, x, y): return {source}", made=layout.made)


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
    step = _step_of(dynamics)
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

    made = _with_signature(dynamics, of_array if dynamics.has_arrays else of_tuple)
    return dataclasses.replace(dynamics, step=made, reward_threshold=None, **changes)


# ---------------------------------------------------------------- states with arrays


def _extend_arrays(
    dynamics: Dynamics,
    fields: dict[str, Any],
    begin: Callable[..., None],
    go_on: Callable[..., None],
    observe: Callable[..., None],
    changes: dict[str, Any],
) -> Dynamics:
    """Return an environment with more fields in its state, which holds arrays.

    Args:
        dynamics: the environment.
        fields: type hints by name.
        begin: (state, params) writes their values at a reset.
        go_on: (state, action, reward, params) writes them after a step.
        observe: (state, params, out) writes an observation.
        changes: other fields that change.
    """
    own, reset, step = dynamics.state.made, dynamics.reset, _step_of(dynamics)
    _check_new(dynamics, *fields)

    def new_reset(state: Any, draws: Any, params: Any) -> None:
        reset(state, draws, params)
        begin(state, params)

    def new_step(state: Any, action: Any, params: Any, draws: Any) -> Any:
        reward, terminated, truncated = step(state, action, params, draws)
        go_on(state, action, reward, params)
        return reward, terminated, truncated

    changes |= {
        "reset": _reset_with_signature(dynamics, new_reset),
        "step": _with_signature(dynamics, new_step),
        "observe": observe,
        "state": own.sized(**fields),
    }
    return dataclasses.replace(dynamics, **changes)


def _append_to_arrays(
    dynamics: Dynamics, field: _Field, observed: Callable[..., None], changes: dict[str, Any]
) -> Dynamics:
    """`_append` where a state holds arrays."""
    _, hint, start, after, show, put = field
    size, more = dynamics.observation_size, len(changes["observation_space"].low)
    count = more - size

    def begin(state: Any, params: Any) -> None:
        put(state, start)

    def go_on(state: Any, action: Any, reward: Any, params: Any) -> None:
        put(state, after(state, action, reward))

    def observe(state: Any, params: Any, out: Any) -> None:
        observed(state, params, out[0:size])
        numbers = show(state)
        for k in range(count):
            out[size + k] = numbers[k]

    items = getattr(hint, "__args__", ())  # of a tuple
    kept: Any = Array[items[0], len(items)] if items else hint
    return _extend_arrays(dynamics, {field.name: kept}, begin, go_on, observe, changes)


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
    return _extend_arrays(dynamics, fields, begin, go_on, observe, changes)


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
