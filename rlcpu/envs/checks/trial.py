"""The functions of a `Dynamics`, tried when it is made: a few resets, steps and observations.

Each fault is one exception that names the environment, the function, its result and what was
expected. `name` is that of one of the functions, "step", "reset", "observe", "action_mask" or
"randomize".
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

from rlcpu.envs.checks.fields import arguments_of, as_whole, int_names, is_bool, params_of
from rlcpu.envs.engine.arrays import ArrayLayout, State
from rlcpu.envs.engine.groups import INT_ARRAY, fault_of_value, is_int_array, written_layout
from rlcpu.envs.engine.layout import Layout, floats, holds_ints, is_real, layout_of
from rlcpu.kernels.boards import Board
from rlcpu.kernels.random import Draws, Rng
from rlcpu.kernels.source import EndlessError, call_bounded

if TYPE_CHECKING:
    from rlcpu.envs.dynamics import Dynamics

#: Trial resets draw these uniforms: both ends of [0, 1) on a 24-bit grid, and its middle.
_TRIAL_UNIFORMS = (0.0, 0.5, 1.0 - 2.0**-24)
#: Numbers of a state from which on trials draw the middle alone: of a world of thousands of cells
#: they take plain Python a second each.
_LARGE = 2000


def find_randomized(dynamics: Dynamics) -> tuple[str, ...]:
    """Return the names of the parameters that `randomize` draws, after a trial; () without it."""
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
        names_before, names = names, drawn_names(dynamics, drawn)
        if names_before and names != names_before:
            raise TypeError(
                f"{dynamics.id}: randomize has to return the same names each time; returned "
                f"{', '.join(names)} after {', '.join(names_before)}"
            )
    return names


def drawn_names(dynamics: Dynamics, drawn: Any) -> tuple[str, ...]:
    """Return the names of the parameters, numbers of params, in a result of `randomize`.

    The result has fields of its own, or is a whole params: then those are its numbers that do not
    vary. Raises TypeError for anything else.
    """
    defaults = dynamics.params._asdict()
    valid = [name for name, value in defaults.items() if not is_bool(value)]
    wanted = f"{dynamics.id}: randomize has to return a NamedTuple of numbers of params"
    if not isinstance(drawn, tuple) or not getattr(drawn, "_fields", ()):
        raise TypeError(f"{wanted}; returned {drawn!r}")
    values: dict[str, Any] = drawn._asdict()  # type: ignore[attr-defined]
    if type(drawn) is type(dynamics.params):
        for name in defaults.keys() - set(valid):
            if values[name] is not defaults[name]:
                raise TypeError(
                    f"{dynamics.id}: randomize sets {name}={values[name]!r}: it has to stay "
                    f"{defaults[name]}, the same in all envs: it is an option of the "
                    "machine code"
                )
        values = {name: values[name] for name in valid if name not in dynamics.varied}
    for name, value in values.items():
        if name not in valid:
            raise TypeError(f"{wanted} ({', '.join(valid)}); returned {name}={value!r}")
        if name in dynamics.varied:
            raise TypeError(f"{dynamics.id}: randomize draws {name}, which is given as an array")
        if is_bool(value) or not isinstance(value, Real):
            kind = type(value).__name__
            raise TypeError(f"{wanted}; returned {name}={value!r}, which is of type {kind}")
        if math.isnan(value):
            raise TypeError(f"{wanted}, not NaN; returned {name}={value!r}")
        if name in int_names(dynamics.params):
            as_whole(f"{wanted}: {name}", value)
    return tuple(values)


class TrialRng(Draws):
    """An `Rng` whose numbers are all the same."""

    dtype = np.float32

    def __init__(self, number: float) -> None:
        self._number = number

    def __repr__(self) -> str:
        return f"Rng(uniform={self._number})"

    def word(self, k: int | None) -> int:
        """Return 32 bits, those of the number; see `Rng`."""
        return int(self._number * 2.0**32)

    def words(self, k: int | None) -> Callable[[int], int]:
        """Return a function of an index whose words are all the same; see `Rng`."""
        return self.word


def trial_draws(dynamics: Dynamics, name: str, number: float) -> Any:
    """Return random numbers, all `number`, as a function takes them: an `Rng`, or a tuple."""
    if dynamics.takes_rng(name):
        return TrialRng(number)
    return (number,) * getattr(dynamics, f"{name}_draws")


def draw_numbers(dynamics: Dynamics, name: str, rng: np.random.Generator) -> Any:
    """Return random numbers for `reset` or `step`: an `Rng`, or a tuple, on a grid of 24 bits."""
    if dynamics.takes_rng(name):
        return Rng.of_seed(int(rng.integers(2**63)))
    count = getattr(dynamics, f"{name}_draws")
    return tuple((rng.integers(0, 2**24, count) / 2.0**24).tolist())


def try_functions(dynamics: Dynamics) -> tuple[Layout | ArrayLayout, bool, bool]:
    """Reset, observe and take up to three steps from a few starts, with actions that are allowed.

    Returns:
        The layout of states, whether `step` truncates, and whether it or `observe` returns ints or
        bools in the place of floats.

    Raises:
        TypeError, ValueError: a function fails or returns a wrong result.
    """
    layout: Any = dynamics.state if dynamics.has_arrays else floats(0)  # that is not known yet
    num_results, has_whole = 0, False
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
                action = _trial_action(
                    dynamics, last, _allowed_actions(dynamics, state, params, steps)
                )
                inputs = (state, action, params, trial_draws(dynamics, "step", uniform))
                result = _call(dynamics, "step", *inputs[: len(arguments_of(dynamics, "step"))])
                num_results = num_results or (len(result) if isinstance(result, tuple) else 3)
                _check_step(dynamics, result, layout, num_results)
                has_whole |= holds_ints(layout, result[0])
                state, terminated, steps = result[0], any(result[2:]), steps + 1
            has_whole |= _try_observe(dynamics, state, params)
            if dynamics.action_mask:
                mask_of(dynamics, state, params)
    return layout, num_results == 4, has_whole


def _trial_params(dynamics: Dynamics) -> list[Any]:
    """Return the params of the envs where a parameter has its lowest or highest value."""
    envs = {
        int(environment)
        for v in dynamics.varied.values()
        for environment in (v.argmin(), v.argmax())
    }
    return [params_of(dynamics, i) for i in sorted(envs)] or [dynamics.params]


def _try_observe(dynamics: Dynamics, state: Any, params: Any) -> bool:
    """Check an observation; return whether it has ints or bools in the place of floats."""
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
    """Return file and first line of a function, as errors name them."""
    code = function.__code__
    return f"{code.co_filename}, line {code.co_firstlineno}"


def outside(dynamics: Dynamics, observation: Any, slack: float | None = None) -> str:
    """Return where an observation is outside its space, as "image[2]=7: expected 0 to 5", or "".

    Floats are checked only with `slack`, see `rlcpu.envs.engine.groups.fault_of_value`.
    """
    space = dynamics.observation_space
    spaces: dict[str, Any] = dict(space.items()) if isinstance(space, Dict) else {"": space}
    for name, part in spaces.items():
        if slack is None and isinstance(part, Box) and part.dtype == np.float32:
            continue
        # Whole numbers that `observe` wrote are the one field of a record.
        value = getattr(observation, name or INT_ARRAY, observation)
        fault = fault_of_value(part, value, slack or 0)
        if fault:
            return f"{name or 'observation'}{fault}"
    return ""


def _allowed_actions(dynamics: Dynamics, state: Any, params: Any, steps: int) -> list[int]:
    """Return the actions that are allowed in a state, reached after so many steps, after checks."""
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
    """Return the action mask of a state; raise TypeError or ValueError for a bad one."""
    mask: tuple[bool, ...] = _call(dynamics, "action_mask", state, params)
    _check_mask(dynamics, mask)
    return mask


def _check_mask(dynamics: Dynamics, mask: Any) -> None:
    """Raise TypeError or ValueError unless `mask` is a tuple of one bool for each action."""
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
    """Call a plain function of an environment as if no function wrote into its arguments.

    Where states have arrays, functions write into a state or into `out`. Here they get a copy of
    the state and a new `out`, and the result is that of functions that return what they write: a
    new state of `reset`, (new state, *results) of `step`, an observation of `observe`. A function
    that writes and returns a result raises TypeError, and so does one that must not write and does.

    `inputs` are the function's arguments, but for those into which it writes; `watch` is called
    with the state before the function writes into it.
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


def _refuse_result(dynamics: Dynamics, name: str, target: str, result: Any) -> None:
    """Raise TypeError if a function that writes into `target`, its name, returns a result."""
    if result is not None:
        raise TypeError(
            f"{dynamics.id}: {name} has to write into {target} and to return nothing; "
            f"returned {result!r}"
        )


def _call(dynamics: Dynamics, name: str, *inputs: Any) -> Any:
    """Call a function as `call_function` does; raise ValueError if it fails or does not end."""
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
    """Raise TypeError or ValueError unless a function's result is of the right type and finite."""
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
    """Yield an example of each type that a compiled function returns if it may hold a None.

    Numba compiles a branch that returns None beside others that return a number, and most of the
    kernels that call it: they would read a number that is not there.
    """
    for overload in list(function.overloads.values()):
        value = _value_of(overload.signature.return_type)
        if _holds_none(value):
            yield value


def _value_of(kind: Any) -> Any:
    """Return an example of numba's type `kind`, with None where it may be None."""
    if isinstance(kind, nbtypes.BaseTuple):
        items = [_value_of(item) for item in kind]
        is_named = isinstance(kind, nbtypes.BaseNamedTuple)
        return kind.instance_class(*items) if is_named else tuple(items)
    simple = {nbtypes.Optional: None, nbtypes.NoneType: None, nbtypes.Boolean: False}
    simple |= {nbtypes.Integer: 0, nbtypes.Float: 0.0}
    return next((value for base, value in simple.items() if isinstance(kind, base)), Board(0))


def _holds_none(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and any(map(_holds_none, value)))


def _check_step(dynamics: Dynamics, result: Any, layout: Any, num_results: int) -> None:
    """Raise TypeError or ValueError unless `result` is one of `step`, by `call_function`.

    It has to have `num_results` items, as the first one had: (new state, reward, terminated), and
    perhaps truncated.
    """
    start = f"{dynamics.id}: step has to return"
    skipped = 1 if dynamics.has_arrays else 0  # the state, which `call_function` added
    is_step = isinstance(result, tuple) and len(result) in (3, 4)
    if not is_step or (skipped and isinstance(result[1], State)):
        wanted = "(reward, terminated)" if skipped else "(new_state, reward, terminated)"
        shown = result[skipped:] if isinstance(result, tuple) else result
        raise TypeError(f"{start} {wanted}; returned {shown!r}")
    if len(result) != num_results:
        raise TypeError(
            f"{start} as many values each time; returned {len(result) - skipped} after "
            f"{num_results - skipped}: {result[skipped:]!r}"
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
    """Raise TypeError or ValueError unless a state or an observation is of a layout, and finite.

    For errors `name` is the function's that returned it, and `what` "state", "new_state" or
    "observation". An array is one that `observe` wrote.
    """
    if isinstance(value, np.ndarray):
        if not np.isfinite(value).all():
            index = tuple(np.argwhere(~np.isfinite(value))[0].tolist())
            raise ValueError(
                f"{dynamics.id}: {name} has to write finite numbers; out{list(index)} is "
                f"{value[index]}"
            )
        return
    if layout.is_plain:
        _check_numbers(dynamics, name, what, value, layout.fields[0].size)
        return
    fault = layout.fault_of(value)
    if fault and isinstance(value, State) and name == "observe":
        field = layout.names_not_finite(value)[0]
        raise ValueError(
            f"{dynamics.id}: observe has to write finite numbers; out.{field} is "
            f"{getattr(value, field)}"
        )
    if fault:
        raise TypeError(f"{dynamics.id}: {name} has to return {what} as {fault}")


def _check_numbers(dynamics: Dynamics, name: str, what: str, values: Any, size: int) -> None:
    """Raise TypeError or ValueError unless `values` is a tuple of `size` finite floats.

    `name` and `what` are those of `_check_value`.
    """
    wanted = f"{dynamics.id}: {name} has to return {what} as a tuple of {size} floats"
    if not isinstance(values, tuple):
        raise TypeError(f"{wanted}; returned {values!r}")
    if len(values) != size:
        raise ValueError(f"{wanted}; returned {len(values)}: {values!r}")
    if not all(map(is_real, values)):
        raise TypeError(f"{wanted}; returned {values!r}")
    if not all(map(math.isfinite, values)):
        raise ValueError(f"{wanted} that are finite; returned {values!r}")
