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
from collections.abc import Callable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box, Dict
from numba import types as nbtypes

from rlcpu.envs.contract.fields import (
    GOALS,
    arguments_of,
    as_whole,
    int_names,
    is_bool,
    params_of,
)
from rlcpu.envs.layout.arrays import ArrayLayout, State
from rlcpu.envs.layout.groups import INT_ARRAY, fault_of_value, is_int_array, written_layout
from rlcpu.envs.layout.values import Layout, holds_ints, is_real, layout_of
from rlcpu.kernels.compiler.functions import convert_items
from rlcpu.kernels.compiler.source import EndlessError, call_bounded
from rlcpu.kernels.compiler.user_compiler import check_results
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Draws, Rng

if TYPE_CHECKING:
    from rlcpu.envs.contract.dynamics import Dynamics

#: Trial resets draw these uniforms: both ends of [0, 1) on a 24-bit grid, and its middle.
_TRIAL_UNIFORMS = (0.0, 0.5, 1.0 - 2.0**-24)
#: Numbers of a state from which on trials draw the middle alone: of a world of thousands of cells
#: they take plain Python a second each.
_LARGE = 2000
#: Actions of a mask that is a tuple. To LLVM its bools are values of their own: 700 take a minute
#: to compile, and 1,000 do not end in two, or in 6 GB.
_MOST_IN_TUPLE = 800


def find_randomized(dynamics: Dynamics) -> tuple[str, ...]:
    """Return the names of the parameters that `randomize` draws, after a trial; () without it."""
    if dynamics.randomize is None:
        return ()
    first, *others = (
        drawn_names(dynamics, _call(dynamics, "randomize", TrialRng(uniform), dynamics.params))
        for uniform in _TRIAL_UNIFORMS
    )
    for names in others:
        if names != first:
            raise TypeError(
                f"{dynamics.id}: randomize has to return the same names each time; returned "
                f"{', '.join(names)} after {', '.join(first)}"
            )
    return first


def drawn_names(dynamics: Dynamics, drawn: Any) -> tuple[str, ...]:
    """Return the names of the parameters, numbers of params, in a result of `randomize`.

    The result has fields of its own, or is a whole params: then those are its numbers that do not
    vary. Raises TypeError for anything else.
    """
    options = {name: v for name, v in dynamics.params._asdict().items() if is_bool(v)}
    numbers = [name for name in dynamics.params._fields if name not in options]
    wanted = f"{dynamics.id}: randomize has to return a NamedTuple of numbers of params"
    if not isinstance(drawn, tuple) or not getattr(drawn, "_fields", ()):
        raise TypeError(f"{wanted}; returned {drawn!r}")
    values: dict[str, Any] = drawn._asdict()  # type: ignore[attr-defined]
    if type(drawn) is type(dynamics.params):
        for name, option in options.items():
            if values[name] is not option:
                raise TypeError(
                    f"{dynamics.id}: randomize sets {name}={values[name]!r}: it has to stay "
                    f"{option}, the same in all envs: it is an option of the machine code"
                )
        values = {name: values[name] for name in numbers if name not in dynamics.varied}
    for name, value in values.items():
        if name not in numbers:
            raise TypeError(f"{wanted} ({', '.join(numbers)}); returned {name}={value!r}")
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
        """Return 32 bits, those of the number, for number k as for any; see `Rng`."""
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
    trial = _Trial(dynamics)
    is_large = dynamics.has_arrays and dynamics.state_size > _LARGE
    uniforms = (0.5,) if is_large else _TRIAL_UNIFORMS
    for uniform, env_params in itertools.product(uniforms, _trial_params(dynamics)):
        params = dynamics.draw_params(TrialRng(uniform), env_params)
        start = trial.reset(uniform, params)
        for takes_last in (False, True):
            trial.take_steps(start, uniform, params, takes_last)
    return trial.layout, trial.num_results == 4, trial.has_whole


class _Trial:
    """Trials of an environment, and what they have shown so far."""

    def __init__(self, dynamics: Dynamics) -> None:
        self.dynamics = dynamics
        #: Of states; the first reset shows it, unless a state holds arrays.
        self.layout: Any = dynamics.state if dynamics.has_arrays else None
        self.num_results: int | None = None  # of `step`, with the new state
        self.has_whole = False  # ints or bools in the place of floats

    def reset(self, uniform: float, params: Any) -> Any:
        """Return a new state, checked; all random numbers are `uniform`."""
        state = _call(self.dynamics, "reset", trial_draws(self.dynamics, "reset", uniform), params)
        if self.layout is None:
            self.layout = layout_of(state, self.dynamics.id)
        _check_value(self.dynamics, "reset", "state", state, self.layout)
        self.has_whole |= holds_ints(self.layout, state)
        return state

    def take_steps(self, state: Any, uniform: float, params: Any, takes_last: bool) -> None:
        """Take up to three steps, with the first action that is allowed, or the last one."""
        dynamics, is_over, num_steps = self.dynamics, False, 0
        while not is_over and num_steps < 3:
            self.observe(state, params)
            action = _trial_action(dynamics, state, params, num_steps, takes_last)
            draws = trial_draws(dynamics, "step", uniform)
            result = _call(dynamics, "step", state, action, params, draws)
            # `_check_step` refuses what is no tuple, whatever the number.
            self.num_results = self.num_results or (len(result) if isinstance(result, tuple) else 3)
            _check_step(dynamics, result, self.layout, self.num_results)
            if dynamics.compute_reward is not None:
                _try_goals(dynamics, result, params)
            state, is_over, num_steps = result[0], any(result[2:]), num_steps + 1
            self.has_whole |= holds_ints(self.layout, state)
        self.observe(state, params)
        if dynamics.action_mask:
            mask_of(dynamics, state, params)

    def observe(self, state: Any, params: Any) -> None:
        """Check the observation of a state."""
        dynamics = self.dynamics
        observation = _call(dynamics, "observe", state, params)
        check_result(dynamics, "observe", observation)
        if fault := outside(dynamics, observation):
            code = dynamics.observe.__code__
            raise ValueError(
                f"{dynamics.id}: observe returned {fault}, for state={state!r}, in "
                f"{code.co_filename}, line {code.co_firstlineno}"
            )
        self.has_whole |= holds_ints(dynamics.observation, observation)


def goals_of(observation: Any) -> tuple[Any, Any]:
    """Return what `compute_reward` compares: the achieved and the desired goal."""
    achieved, desired = (getattr(observation, name) for name in GOALS)
    return achieved, desired


def _try_goals(dynamics: Dynamics, result: Any, params: Any) -> None:
    """Raise TypeError or ValueError unless `compute_reward` agrees with a result of `step`."""
    observation = _call(dynamics, "observe", result[0], params)
    check_result(dynamics, "observe", observation)
    goals = goals_of(observation)
    computed = _call(dynamics, "compute_reward", *goals, params)
    check_result(dynamics, "compute_reward", computed)
    reward, *flags = computed if isinstance(computed, tuple) else (computed,)
    is_same = math.isclose(reward, result[1], rel_tol=1e-5, abs_tol=1e-6)
    if not is_same or any(flag != result[2] for flag in flags):
        shown = ", ".join(f"{name}={goal!r}" for name, goal in zip(GOALS, goals, strict=True))
        raise ValueError(
            f"{dynamics.id}: compute_reward returned {computed!r} for {shown} where step returned "
            f"{result[1:3]!r}: expected the same, of the goals alone, which are all that is stored"
        )


def _trial_params(dynamics: Dynamics) -> list[Any]:
    """Return the params of the envs where a parameter has its lowest or highest value.

    `dynamics.varied` has the parameters that differ between envs: arrays (num_envs,) by name.
    """
    envs = {
        int(environment)
        for v in dynamics.varied.values()
        for environment in (v.argmin(), v.argmax())
    }
    return [params_of(dynamics, i) for i in sorted(envs)] or [dynamics.params]


def outside(dynamics: Dynamics, observation: Any, slack: float | None = None) -> str:
    """Return where an observation is outside its space, as "image[2]=7: expected 0 to 5", or "".

    Floats may be beyond a bound by `slack` times the bound; None allows them to be anywhere.
    """
    space = dynamics.observation_space
    spaces: dict[str, Any] = dict(space.items()) if isinstance(space, Dict) else {"": space}
    for name, part in spaces.items():
        if slack is None and isinstance(part, Box) and part.dtype == np.float32:
            continue
        # Whole numbers that `observe` wrote are the one field, `INT_ARRAY`, of a record.
        value = getattr(observation, name or INT_ARRAY, observation)
        if fault := fault_of_value(part, value, slack or 0.0):
            return f"{name or 'observation'}{fault}"
    return ""


def mask_of(dynamics: Dynamics, state: Any, params: Any) -> tuple[bool, ...]:
    """Return the action mask of a state; raise TypeError or ValueError for a bad one."""
    mask: tuple[bool, ...] = _call(dynamics, "action_mask", state, params)
    _check_mask(dynamics, mask)
    return mask


def _check_mask(dynamics: Dynamics, mask: Any) -> None:
    """Raise TypeError or ValueError unless `mask` is a tuple of one bool for each choice."""
    count = dynamics.num_masked
    wanted = f"{dynamics.id}: action_mask has to return a tuple of {count} bools (True, not 1)"
    if not isinstance(mask, tuple) or not all(map(is_bool, mask)):
        raise TypeError(f"{wanted}; returned {mask!r}")
    if len(mask) != count:
        raise ValueError(f"{wanted}; returned {len(mask)}: {mask!r}")
    if count > _MOST_IN_TUPLE and not dynamics.writes_mask:
        raise ValueError(
            f"{dynamics.id}: action_mask returns a tuple of {count} bools, which takes kernels "
            f"minutes to compile: expected {_MOST_IN_TUPLE} at most, or (state, params, out) that "
            "writes them into out, which are all False"
        )


def _trial_action(
    dynamics: Dynamics, state: Any, params: Any, num_steps: int, takes_last: bool
) -> Any:
    """Return the first or last allowed choices, or the lowest or highest numbers of a `Box`.

    The state was reached after `num_steps`. Raises ValueError if no action is allowed there.
    """
    space = dynamics.action_space
    if isinstance(space, Box):
        bounds = space.high if takes_last else space.low  # which may be infinite
        return tuple(map(float, np.clip(bounds, -1e3, 1e3)))
    has_mask = dynamics.action_mask is not None
    mask = mask_of(dynamics, state, params) if has_mask else (True,) * dynamics.num_choices
    allowed = allowed_choices(dynamics, mask)
    if not all(allowed):
        raise ValueError(
            f"{dynamics.id}: action_mask allows nothing in step {num_steps} of an episode, for "
            f"state={state!r}: expected one action at least"
        )
    action = tuple(numbers[-1 if takes_last else 0] for numbers in allowed)
    return action if dynamics.choices else action[0]


def allowed_choices(dynamics: Dynamics, mask: Sequence[bool]) -> list[list[int]]:
    """Return the allowed choices of each number of a `MultiDiscrete`, or of the one `Discrete`."""
    ends = np.cumsum(dynamics.choices or (dynamics.num_actions,))
    return [np.flatnonzero(part).tolist() for part in np.split(np.array(mask), ends[:-1])]


def call_function(
    dynamics: Dynamics,
    name: str,
    function: Any,
    *inputs: Any,
    watch: Callable[[Any], None] = lambda state: None,
) -> Any:
    """Call a plain function of an environment as if no function wrote into its arguments.

    Where states have arrays, functions write into a state or into `out`, as an action mask may
    anywhere. Here they get a copy of the state and a new `out`, and the result is that of functions
    that return what they write: a new state of `reset`, (new state, *results) of `step`, an
    observation of `observe`, a tuple of bools of `action_mask`. A function that writes and returns
    a result raises TypeError, and so does one that must not write and does.

    Args:
        dynamics: the environment.
        name: of the function.
        function: the function itself, or a twin of it.
        *inputs: its arguments, but for those into which it writes. An `Rng` gives its numbers from
            the first one on; random numbers of a `step` that takes none are left out.
        watch: called with the state before the function writes into it.
    """
    if name == "step":
        inputs = inputs[: len(arguments_of(dynamics, name))]
    inputs = tuple(value.again() if isinstance(value, Rng) else value for value in inputs)
    if name == "action_mask" and dynamics.writes_mask:
        function = functools.partial(_written_mask, dynamics, function)
    if not dynamics.has_arrays or name in ("randomize", "compute_reward"):
        return function(*inputs)
    if name == "reset":
        state = dynamics.state.value_class()
        watch(state)
        _refuse_result(dynamics, name, "its state", function(state, *inputs))
        return state
    before, *others = inputs
    state = copy.copy(before)
    watch(state)
    if name == "observe" and dynamics.writes_observation:
        result = _written_observation(dynamics, function, state, *others)
    else:
        result = function(state, *others)
    if name == "step":
        return (state, *result) if isinstance(result, tuple) else result
    if state != before:
        raise TypeError(f"{dynamics.id}: {name} changes the state {before!r}, to {state!r}")
    return result


def _written_observation(dynamics: Dynamics, observe: Any, state: Any, params: Any) -> Any:
    """Return the observation that `observe` writes: an array, or a record of whole numbers."""
    space: Any = dynamics.observation_space
    if isinstance(space, Dict) or is_int_array(space):
        out = written_layout(space).value_class()
    else:
        out = np.zeros(space.shape, np.float32)
    target = getattr(out, INT_ARRAY) if is_int_array(space) else out
    _refuse_result(dynamics, "observe", "out", observe(state, params, target))
    return out


def _written_mask(dynamics: Dynamics, mask: Any, state: Any, params: Any) -> tuple[bool, ...]:
    """Return the action mask that a function writes."""
    out = np.zeros(dynamics.num_masked, np.bool_)
    _refuse_result(dynamics, "action_mask", "out", mask(state, params, out))
    return tuple(out.tolist())


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
        # `call_function` adds the state that a `reset` of arrays writes to.
        names = names[1:] if name == "reset" and dynamics.has_arrays else names
        shown = ", ".join(f"{k}={v!r}" for k, v in zip(names, inputs, strict=False))
        raise ValueError(f"{dynamics.id}: {name} raised {error!r} for {shown}") from error


def check_result(dynamics: Dynamics | Any, name: str, result: Any) -> None:
    """Raise TypeError or ValueError unless a function's result is of the right type and finite."""
    if name == "step":
        # New state, reward, terminated, and perhaps truncated.
        _check_step(dynamics, result, dynamics.state, num_results=3 + dynamics.truncates)
    elif name == "reset":
        _check_value(dynamics, name, "state", result, dynamics.state)
    elif name == "observe":
        _check_value(dynamics, name, "observation", result, dynamics.observation)
    elif name == "action_mask":
        _check_mask(dynamics, result)
    elif name == "compute_reward":
        _check_goal_reward(dynamics, result)
    else:
        drawn_names(dynamics, result)


def check_branches(dynamics: Dynamics | Any, name: str, function: Any) -> None:
    """Raise TypeError for a branch of a compiled function that returns what `check_result` refuses.

    Numba compiles a branch that returns None beside others that return a number, or a float beside
    bools, and most of the kernels that call it: they would read what is not there.
    """

    def check(value: Any) -> None:
        result = example_of(value)
        if name == "randomize" and not _holds_none(result):
            return  # options of params are no constants here
        if name == "step" and dynamics.has_arrays and isinstance(result, tuple):
            result = (dynamics.state.value_class(), *result)  # as `call_function` returns it
        check_result(dynamics, name, result)

    check_results(function, check)


class _Number(int):
    """A number of which the compiler knows the type alone: `math.floor` may be a float to it."""

    def __repr__(self) -> str:
        return "a number"


def example_of(value: Any) -> Any:
    """Return an example of what a branch returns, a `Returned` of `rlcpu.kernels.compiler`."""
    if isinstance(value, tuple):
        return convert_items(value, example_of)
    if isinstance(value, nbtypes.BaseTuple):
        items = map(example_of, value)
        is_named = isinstance(value, nbtypes.BaseNamedTuple)
        return value.instance_class(*items) if is_named else tuple(items)
    if not isinstance(value, nbtypes.Type):
        is_infinite = isinstance(value, float) and not math.isfinite(value)
        return _Number() if is_infinite else value  # which a result may not be: that is told later
    simple = {nbtypes.Optional: None, nbtypes.NoneType: None, nbtypes.Boolean: False}
    numbers = nbtypes.Integer, nbtypes.Float, nbtypes.IntEnumMember
    simple |= dict.fromkeys(numbers, _Number())
    # All other types are those of boards.
    return next((example for kind, example in simple.items() if isinstance(value, kind)), Board(0))


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
    _check_outcome(start, reward, flags)


def _check_goal_reward(dynamics: Dynamics, result: Any) -> None:
    """Raise TypeError or ValueError unless `result` is a reward, or (reward, terminated)."""
    start = f"{dynamics.id}: compute_reward has to return"
    reward, *flags = result if isinstance(result, tuple) and result else (result,)
    if len(flags) > 1:
        raise TypeError(f"{start} a reward, or (reward, terminated); returned {result!r}")
    _check_outcome(start, reward, flags)


def _check_outcome(start: str, reward: Any, flags: Sequence[Any]) -> None:
    """Raise TypeError or ValueError unless a reward is a finite number, and flags are bools."""
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
    "observation". An array is one that `observe` wrote. `layout.fault_of` says what is wrong with a
    value, "" for nothing; `layout.is_plain` tells whether values are tuples of floats.
    """
    if isinstance(value, np.ndarray):
        if not np.isfinite(value).all():
            index = tuple(np.argwhere(~np.isfinite(value))[0].tolist())
            raise ValueError(
                f"{dynamics.id}: {name} has to write finite numbers; out{list(index)} is "
                f"{value[index]}"
            )
        return
    fault = layout.fault_of(value)
    if fault and isinstance(value, State) and name == "observe":  # written: of the right type
        field = layout.names_not_finite(value)[0]
        raise ValueError(
            f"{dynamics.id}: observe has to write finite numbers; out.{field} is "
            f"{getattr(value, field)}"
        )
    if fault:
        # Numbers are as good as floats: too many or few of them, or NaN, are of the right type.
        is_wrong_value = layout.is_plain and isinstance(value, tuple) and all(map(is_real, value))
        error = ValueError if is_wrong_value else TypeError
        raise error(f"{dynamics.id}: {name} has to return {what} as {fault}")
