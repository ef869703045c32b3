"""The functions of a `Dynamics`, tried when it is made: a few resets, steps and observations.

Each fault is one exception that names the environment, the function, what it returned and what was
expected.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from numba import types as nbtypes

from rlcpu.envs.checks.fields import (
    arguments_of,
    as_whole,
    int_names,
    is_bool,
    params_of,
)
from rlcpu.envs.engine.arrays import ArrayLayout, State
from rlcpu.envs.engine.groups import (
    INT_ARRAY,
    fault_of_value,
    is_int_array,
    written_layout,
)
from rlcpu.envs.engine.layout import Layout, floats, holds_ints, is_real, layout_of
from rlcpu.kernels.boards import Board
from rlcpu.kernels.random import Draws
from rlcpu.kernels.source import EndlessError, call_bounded

if TYPE_CHECKING:
    from rlcpu.envs.dynamics import Dynamics

#: Trial resets draw these uniforms: both ends of [0, 1) on a 24-bit grid, and its middle.
_TRIAL_UNIFORMS = (0.0, 0.5, 1.0 - 2.0**-24)
#: Numbers of a state from which on it is tried with the middle alone: a world of thousands of cells
#: takes plain Python a second.
_LARGE = 2000


def find_randomized(dynamics: Dynamics) -> tuple[str, ...]:
    """Return the parameters that `randomize` draws, from trials of it."""
    names: tuple[str, ...] = ()
    if dynamics.randomize is None:
        return names
    for uniform in _TRIAL_UNIFORMS:
        try:
            drawn = _call(dynamics, "randomize", TrialRng(uniform), dynamics.params)
        except ValueError as error:  # TypeError as the cause from Python 3.13 on
            what, _, unknown = str(error.__cause__).partition("Got unexpected field names: ")
            if what or not unknown:
                raise
            raise TypeError(
                f"{dynamics.id}: randomize replaces {unknown[1:-1]}, which params does not have; "
                f"it has: {', '.join(dynamics.params._fields)}"
            ) from None
        drawn_ones = drawn_names(dynamics, drawn)
        if names and drawn_ones != names:
            raise TypeError(
                f"{dynamics.id}: randomize has to return the same names each time; returned "
                f"{', '.join(drawn_ones)} after {', '.join(names)}"
            )
        names = drawn_ones
    return names


def drawn_names(dynamics: Dynamics, drawn: Any) -> tuple[str, ...]:
    """Names of what `randomize` returned."""
    defaults = dynamics.params._asdict()
    valid = [name for name, value in defaults.items() if not is_bool(value)]
    start = f"{dynamics.id}: randomize has to return a NamedTuple of numbers of params"
    if not isinstance(drawn, tuple) or not getattr(drawn, "_fields", ()):
        raise TypeError(f"{start}; returned {drawn!r}")
    values: dict[str, Any] = drawn._asdict()  # type: ignore[attr-defined]
    if type(drawn) is type(dynamics.params):
        for name in defaults.keys() - set(valid):
            if values[name] is not defaults[name]:
                raise TypeError(
                    f"{dynamics.id}: randomize sets {name}={values[name]!r}: it has to stay "
                    f"{defaults[name]}, the same in all environments: it is an option of the "
                    "machine code"
                )
        values = {name: values[name] for name in valid if name not in dynamics.varied}
    for name, value in values.items():
        if name not in valid:
            raise TypeError(f"{start} ({', '.join(valid)}); returned {name}={value!r}")
        if name in dynamics.varied:
            raise TypeError(f"{dynamics.id}: randomize draws {name}, which is given as an array")
        if is_bool(value) or not isinstance(value, Real):
            kind = type(value).__name__
            raise TypeError(f"{start}; returned {name}={value!r}, which is of type {kind}")
        if math.isnan(value):
            raise TypeError(f"{start}, not NaN; returned {name}={value!r}")
        if name in int_names(dynamics.params):
            as_whole(f"{start}: {name}", value)
    return tuple(values)


class TrialRng(Draws):
    """An `Rng` that always draws the same number."""

    dtype = np.float32

    def __init__(self, number: float) -> None:
        self._number = number

    def __repr__(self) -> str:
        return f"Rng(uniform={self._number})"

    def word(self, k: int | None) -> int:
        """Return the bits of the number; see `Rng`."""
        return int(self._number * 2.0**32)

    def words(self, k: int | None) -> Callable[[int], int]:
        """Return words that are all the same; see `Rng`."""
        return self.word


def trial_draws(dynamics: Dynamics, name: str, number: float) -> Any:
    """Return the random numbers of a function's trial."""
    if dynamics.takes_rng(name):
        return TrialRng(number)
    return (number,) * getattr(dynamics, f"{name}_draws")


def try_functions(dynamics: Dynamics) -> tuple[Layout | ArrayLayout, bool, bool]:
    """Reset, observe and take up to three steps from a few starts, with actions that are allowed.

    Returns:
        What a state is made of, whether `step` truncates, and whether it or `observe` returns whole
        numbers in the place of floats.
    """
    layout: Any = dynamics.state if dynamics.has_arrays else floats(0)
    results, has_whole = 0, False
    is_large = dynamics.has_arrays and dynamics.state_size > _LARGE
    uniforms = _TRIAL_UNIFORMS[1:2] if is_large else _TRIAL_UNIFORMS
    for uniform, env_params in itertools.product(uniforms, _trial_params(dynamics)):
        draws = trial_draws(dynamics, "reset", uniform)
        params = dynamics.draw_params(TrialRng(uniform), env_params)
        start = _call(dynamics, "reset", draws, params)
        if layout == floats(0):
            layout = layout_of(start, dynamics.id)
        _check_value(dynamics, "reset", "state", start, layout)
        has_whole |= holds_ints(layout, start)
        for last in (False, True):
            state, terminated, steps = start, False, 0
            while not terminated and steps < 3:
                has_whole |= _try_observe(dynamics, state, params)
                action = _trial_action(dynamics, last, _try_mask(dynamics, state, params, steps))
                inputs = (state, action, params, trial_draws(dynamics, "step", uniform))
                result = _call(dynamics, "step", *inputs[: len(arguments_of(dynamics, "step"))])
                results = results or (len(result) if isinstance(result, tuple) else 3)
                _check_step(dynamics, result, layout, results)
                has_whole |= holds_ints(layout, result[0])
                state, terminated, steps = result[0], any(result[2:]), steps + 1
            has_whole |= _try_observe(dynamics, state, params)
            if dynamics.action_mask:
                mask_of(dynamics, state, params)
    return layout, results == 4, has_whole


def _trial_params(dynamics: Dynamics) -> list[Any]:
    """Return the params of those environments in which one that varies is lowest or highest."""
    ends = {int(end) for v in dynamics.varied.values() for end in (v.argmin(), v.argmax())}
    return [params_of(dynamics, i) for i in sorted(ends)] or [dynamics.params]


def _try_observe(dynamics: Dynamics, state: Any, params: Any) -> bool:
    """Check what is observed; return whether it has whole numbers in the place of floats."""
    observation = _call(dynamics, "observe", state, params)
    _check_value(dynamics, "observe", "observation", observation, dynamics.observation)
    fault = outside(dynamics, observation)
    if fault:
        raise ValueError(
            f"{dynamics.id}: observe returned {fault}, for state={state!r}, in "
            f"{_line_of(dynamics.observe)}"
        )
    return holds_ints(dynamics.observation, observation)


def _line_of(function: Any) -> str:
    code = function.__code__
    return f"{code.co_filename}, line {code.co_firstlineno}"


def outside(dynamics: Dynamics, observation: Any, slack: float | None = None) -> str:
    """Describe the part of whole numbers or boards that lies outside a space; "" for none.

    With `slack` floats as well, see `rlcpu.envs.engine.groups.fault_of_value`.
    """
    space = dynamics.observation_space
    spaces: dict[str, Any] = dict(space.items()) if isinstance(space, Dict) else {"": space}
    for name, part in spaces.items():
        if slack is None and isinstance(part, Box) and part.dtype == np.float32:
            continue
        value = getattr(observation, name or INT_ARRAY, observation)
        fault = fault_of_value(part, value, slack or 0)
        if fault:
            return f"{name or 'observation'}{fault}"
    return ""


def _try_mask(dynamics: Dynamics, state: Any, params: Any, steps: int) -> list[int]:
    """Return the actions that are allowed."""
    if dynamics.action_mask is None:
        return list(range(dynamics.num_actions))
    mask = mask_of(dynamics, state, params)
    allowed = [action for action, is_allowed in enumerate(mask) if is_allowed]
    if not allowed:
        raise ValueError(
            f"{dynamics.id}: action_mask allows nothing in step {steps} of an episode, for "
            f"state={state!r}: expected one action at least"
        )
    return allowed


def mask_of(dynamics: Dynamics, state: Any, params: Any) -> tuple[bool, ...]:
    """Return the action mask of a state.

    Raises:
        TypeError, ValueError: it is no tuple of one bool for each action.
    """
    mask: tuple[bool, ...] = _call(dynamics, "action_mask", state, params)
    _check_mask(dynamics, mask)
    return mask


def _check_mask(dynamics: Dynamics, mask: Any) -> None:
    count = dynamics.num_actions
    wanted = f"{dynamics.id}: action_mask has to return a tuple of {count} bools (True, not 1)"
    if not isinstance(mask, tuple) or not all(map(is_bool, mask)):
        raise TypeError(f"{wanted}; returned {mask!r}")
    if len(mask) != count:
        raise ValueError(f"{wanted}; returned {len(mask)}: {mask!r}")


def _trial_action(dynamics: Dynamics, last: bool, allowed: list[int]) -> Any:
    """Return the first or last allowed action of a `Discrete`, the lowest or highest of others."""
    space = dynamics.action_space
    if isinstance(space, Discrete):
        return allowed[-1 if last else 0]
    if isinstance(space, MultiDiscrete):
        return tuple(count - 1 if last else 0 for count in dynamics.choices)
    return tuple(map(float, np.clip(space.high if last else space.low, -1e3, 1e3)))


def call_function(
    dynamics: Dynamics,
    name: str,
    function: Any,
    *inputs: Any,
    watch: Callable[[Any], None] = lambda state: None,
) -> Any:
    """Call one of the functions of an environment, which changes none of its inputs.

    What writes into a state with arrays, or an observation, is given a new one: `reset` returns the
    state then, and `step` the state before its other results, as where states have no arrays.
    `watch` is given each such state before.
    """
    if not dynamics.has_arrays or name == "randomize":
        return function(*inputs)
    before = None if name == "reset" else inputs[0]
    state = dynamics.state.value_class() if before is None else copy.copy(before)
    watch(state)
    inputs = (state, *inputs[before is not None :])
    if name == "observe" and dynamics.writes_observation:
        space: Any = dynamics.observation_space
        is_record = isinstance(space, Dict) or is_int_array(space)
        out = (
            written_layout(space).value_class() if is_record else np.zeros(space.shape, np.float32)
        )
        target = getattr(out, INT_ARRAY) if is_int_array(space) else out
        _refuse_result(dynamics, name, "out", function(*inputs, target))
        result: Any = out
    else:
        result = function(*inputs)
    if name in ("observe", "action_mask") and state != before:
        raise TypeError(f"{dynamics.id}: {name} changes the state {before!r}, to {state!r}")
    if name == "reset":
        _refuse_result(dynamics, name, "its state", result)
        return state
    return (state, *result) if name == "step" and isinstance(result, tuple) else result


def _refuse_result(dynamics: Dynamics, name: str, what: str, result: Any) -> None:
    if result is not None:
        raise TypeError(
            f"{dynamics.id}: {name} has to write into {what} and to return nothing; "
            f"returned {result!r}"
        )


def _call(dynamics: Dynamics, name: str, *inputs: Any) -> Any:
    """Return what a function returns, within bounds; raise ValueError if it does not end or raises.

    `inputs` are those that drivers give it, but for what it writes into.
    """
    function = functools.partial(call_function, dynamics, name, getattr(dynamics, name))
    try:
        return call_bounded(function, *inputs)
    except EndlessError as error:
        raise ValueError(
            f"{dynamics.id}: {name} does not end: {error} is run again and again"
        ) from None
    except Exception as error:
        names = arguments_of(dynamics, name)
        names = names[1:] if name == "reset" and dynamics.has_arrays else names
        shown = ", ".join(f"{k}={v!r}" for k, v in zip(names, inputs, strict=False))
        raise ValueError(f"{dynamics.id}: {name} raised {error!r} for {shown}") from error


def check_result(dynamics: Dynamics | Any, name: str, result: Any) -> None:
    """Raise TypeError or ValueError unless a function returned what it has to."""
    if name == "step":
        _check_step(dynamics, result, dynamics.state, 3 + dynamics.truncates)
    elif name == "reset":
        _check_value(dynamics, name, "state", result, dynamics.state)
    elif name == "observe":
        _check_value(dynamics, name, "observation", result, dynamics.observation)
    elif name == "action_mask":
        _check_mask(dynamics, result)
    else:
        drawn_names(dynamics, result)


def results_with_none(function: Any) -> Iterator[Any]:
    """Yield a value of each type that a compiled function returns if it may hold a None.

    Numba compiles a branch that returns None beside others that return a number, and most of the
    kernels that call it: they would read a number that is not there.
    """
    for overload in list(function.overloads.values()):
        value = _value_of(overload.signature.return_type)
        if _holds_none(value):
            yield value


def _value_of(kind: Any) -> Any:
    """Return a value of a type of numba's: None if it may be None."""
    if isinstance(kind, nbtypes.BaseTuple):
        items = [_value_of(item) for item in kind]
        is_named = isinstance(kind, nbtypes.BaseNamedTuple)
        return kind.instance_class(*items) if is_named else tuple(items)
    simple = {nbtypes.Optional: None, nbtypes.NoneType: None, nbtypes.Boolean: False}
    simple |= {nbtypes.Integer: 0, nbtypes.Float: 0.0}
    return next((value for base, value in simple.items() if isinstance(kind, base)), Board(0))


def _holds_none(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and any(map(_holds_none, value)))


def _check_step(dynamics: Dynamics, result: Any, layout: Any, results: int) -> None:
    start = f"{dynamics.id}: step has to return"
    skipped = 1 if dynamics.has_arrays else 0  # the state, which `call_function` added
    is_old = skipped and isinstance(result, tuple) and isinstance(result[1], State)
    if not isinstance(result, tuple) or len(result) not in (3, 4) or is_old:
        wanted = "(reward, terminated)" if skipped else "(new_state, reward, terminated)"
        shown = result[skipped:] if isinstance(result, tuple) else result
        raise TypeError(f"{start} {wanted}; returned {shown!r}")
    if len(result) != results:
        raise TypeError(
            f"{start} as many values each time; returned {len(result) - skipped} after "
            f"{results - skipped}: {result[skipped:]!r}"
        )
    new_state, reward, *flags = result
    _check_value(dynamics, "step", "new_state", new_state, layout)
    if not is_real(reward):
        raise TypeError(f"{start} reward as a number; returned {reward!r}")
    if not math.isfinite(reward):
        raise ValueError(f"{start} a finite reward; returned {reward!r}")
    for name, flag in zip(("terminated", "truncated"), flags, strict=False):
        if not is_bool(flag):
            raise TypeError(f"{start} {name} as a bool; returned {flag!r}")


def _check_value(dynamics: Dynamics, name: str, what: str, value: Any, layout: Any) -> None:
    """Raise unless a value is what its layout says."""
    if isinstance(value, np.ndarray):  # an observation that was written
        if not np.isfinite(value).all():
            place = tuple(np.argwhere(~np.isfinite(value))[0].tolist())
            raise ValueError(
                f"{dynamics.id}: {name} has to write finite numbers; out{list(place)} is "
                f"{value[place]}"
            )
        return
    if layout.is_plain:
        _check_numbers(dynamics, name, what, value, layout.fields[0].size)
        return
    fault = layout.fault_of(value)
    if fault and isinstance(value, State) and name == "observe":
        bad = layout.names_not_finite(value)[0]
        told = f"out.{bad} is {getattr(value, bad)}"
        raise ValueError(f"{dynamics.id}: observe has to write finite numbers; {told}")
    if fault:
        raise TypeError(f"{dynamics.id}: {name} has to return {what} as {fault}")


def _check_numbers(dynamics: Dynamics, name: str, what: str, values: Any, size: int) -> None:
    """Raise unless `values` is a tuple of `size` finite floats."""
    start = f"{dynamics.id}: {name} has to return {what} as a tuple of {size} floats"
    if not isinstance(values, tuple):
        raise TypeError(f"{start}; returned {values!r}")
    if len(values) != size:
        raise ValueError(f"{start}; returned {len(values)}: {values!r}")
    if not all(map(is_real, values)):
        raise TypeError(f"{start}; returned {values!r}")
    if not all(map(math.isfinite, values)):
        raise ValueError(f"{start} that are finite; returned {values!r}")
