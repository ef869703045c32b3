"""What a `Dynamics` is checked for when it is made: its fields, and functions by trial steps.

Each fault is one exception that names the environment, the field or function, what it was and what
was expected.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from numba import types as nbtypes

from rlcpu.envs.engine.arrays import ArrayLayout, State, layout_of_class
from rlcpu.envs.engine.groups import (
    LONE,
    check_group,
    describe_space,
    fault_of_value,
    is_lone,
    written_layout,
)
from rlcpu.envs.engine.layout import Layout, floats, holds_whole, is_real, layout_of
from rlcpu.kernels.boards import CELLS, Board
from rlcpu.kernels.checks import as_numbers, check_count
from rlcpu.kernels.random import Draws
from rlcpu.kernels.source import EndlessError, call_bounded, refused_lines

if TYPE_CHECKING:
    from rlcpu.envs.dynamics import Dynamics

#: Trial resets draw these uniforms: both ends of [0, 1) on a 24-bit grid, and its middle.
_TRIAL_UNIFORMS = (0.0, 0.5, 1.0 - 2.0**-24)
#: Whole numbers up to which float32 holds each.
MOST_WHOLE = 2**24
#: Numbers of a state from which on it is tried with the middle alone: a world of thousands of cells
#: takes plain Python a second.
_LARGE = 2000
ARGUMENTS = {
    "step": ("state", "action", "params", "{draws}"),
    "reset": ("{draws}", "params"),
    "observe": ("state", "params"),
    "randomize": ("rng", "params"),
    "action_mask": ("state", "params"),
}
OPTIONAL = ("randomize", "action_mask")


# ---------------------------------------------------------------- fields


def check_description(dynamics: Dynamics) -> None:
    """Check the fields that are plain names and counts; a count such as 1e3 becomes an int."""
    name = dynamics.id
    if not isinstance(name, str) or not re.fullmatch(r"([\w.:-]+/)?[\w.:-]+-v\d+", name):
        raise ValueError(f'id={name!r} has to be a name and a version, such as "CartPole-v1"')
    counts = {"reset_draws": 0, "step_draws": 0, "max_episode_steps": 1}
    for field, least in counts.items():
        value = getattr(dynamics, field)
        if value is None and field == "max_episode_steps":
            continue
        object.__setattr__(dynamics, field, check_count(f"{name}: {field}", value, least))
    threshold, original = dynamics.reward_threshold, dynamics.original
    if threshold is not None and (is_bool(threshold) or not isinstance(threshold, Real)):
        raise TypeError(f"{name}: reward_threshold={threshold!r} has to be a number or None")
    if dynamics.picture is not None and not callable(dynamics.picture):
        raise TypeError(f"{name}: picture={dynamics.picture!r} has to be a function or None")
    if original is not None and not isinstance(original, str):
        raise TypeError(f"{name}: original={original!r} has to be an id of Gymnasium or None")


def check_spaces(dynamics: Dynamics) -> None:
    """Check that spaces are of a kind that kernels know."""
    for field in ("observation_space", "action_space"):
        space, start = getattr(dynamics, field), f"{dynamics.id}: {field}"
        is_written = field == "observation_space" and dynamics.writes_observation
        if field == "observation_space" and isinstance(space, Dict):
            if fault := check_group(space, is_written):
                raise TypeError(f"{start} {fault}")
        elif is_written and isinstance(space, Discrete | MultiBinary):
            raise TypeError(
                f"{start}={describe_space(space)} has to be a Box or a Dict where observe writes "
                "into `out`; return a choice, or boards, from observe(state, params)"
            )
        elif isinstance(space, Discrete):
            if space.start != 0 and field == "action_space":
                raise ValueError(f"{start}={space} has to start at 0")
        elif field == "action_space" and isinstance(space, MultiDiscrete):
            if space.nvec.ndim != 1 or space.nvec.size == 0 or space.start.any():
                raise ValueError(f"{start}={space} has to be of one axis and to start at 0")
        elif field == "observation_space" and isinstance(space, MultiBinary):
            if len(space.shape) != 3 or math.prod(space.shape[1:]) > CELLS:
                shape = f"(planes, rows, columns), at most {CELLS} cells a plane"
                raise ValueError(f"{start}={space} has to be of {shape}")
        elif not (
            isinstance(space, Box)
            and (len(space.shape) == 1 or (len(space.shape) > 1 and is_written))
            and math.prod(space.shape) > 0
            and (space.dtype == np.float32 or (is_written and is_lone(space)))
        ):
            others = "MultiBinary" if field == "observation_space" else "MultiDiscrete"
            kinds = f"a float32 Box of one dimension, Discrete or {others}"
            if is_lone(space) and field == "observation_space":
                kinds += "; whole numbers are written by observe(state, params, out), into arrays"
            raise TypeError(f"{start}={describe_space(space)} has to be {kinds}")
    if dynamics.action_mask is not None and not isinstance(dynamics.action_space, Discrete):
        raise TypeError(
            f"{dynamics.id}: action_mask={dynamics.action_mask!r} has to be None with "
            f"action_space={dynamics.action_space!r}: masks are for Discrete"
        )


def layout_of_state(dynamics: Dynamics) -> ArrayLayout | None:
    """Return what a state with arrays is made of; None for another state.

    Raises:
        TypeError: it is no subclass of `State`, or a field has a bad type hint.
    """
    state = dynamics.state
    if isinstance(state, ArrayLayout):
        return state
    if state is None or isinstance(state, Layout):  # what was found before
        return None
    if not isinstance(state, type) or not issubclass(state, State) or state is State:
        named = hasattr(state, "_fields")
        told = ": leave it out, reset shows what a NamedTuple is made of" if named else ""
        raise TypeError(
            f"{dynamics.id}: state={state!r} has to be a subclass of rlcpu.envs.State{told}"
        )
    try:
        return layout_of_class(state)
    except TypeError as error:
        raise TypeError(f"{dynamics.id}: {error}") from None


def check_plain(what: str, function: Any) -> None:
    """Raise TypeError unless something that an author gives is a plain Python function."""
    if not isinstance(function, types.FunctionType):
        hint = "; give its py_func" if hasattr(function, "py_func") else ""
        raise TypeError(
            f"{what}={function!r} has to be a plain Python function, "
            f"got {type(function).__name__}{hint}"
        )


def check_arguments(what: str, function: Any, names: Iterable[str], note: str = "") -> None:
    """Raise TypeError unless a function takes arguments, by position; `note` says why these."""
    signature = inspect.signature(function)
    try:
        signature.bind(*names)
    except TypeError:
        raise TypeError(
            f"{what} has to take ({', '.join(names)}){note}; it takes {signature}"
        ) from None


def check_function(dynamics: Dynamics, name: str) -> None:
    """Check that a function is plain Python and takes the arguments that drivers give it."""
    function, what = getattr(dynamics, name), f"{dynamics.id}: {name}"
    check_plain(what, function)
    if name == "randomize" and "rng" not in inspect.signature(function).parameters:
        signature = inspect.signature(function)
        raise TypeError(f"{what} has to take (rng, params); it takes {signature}")
    note = f" with step_draws={dynamics.step_draws}"
    check_arguments(what, function, _arguments(dynamics, name), note)
    if name in ("step", "reset") and dynamics.takes_rng(name):
        draws = getattr(dynamics, f"{name}_draws")
        if draws:
            raise ValueError(
                f"{dynamics.id}: {name}_draws={draws}: {name} takes `rng`, which gives as many "
                "numbers as it is asked for; leave it out"
            )


def check_sources(dynamics: Dynamics) -> None:
    """Check that kernels can run the functions: all lines that they cannot are told at once."""
    told: dict[str, None] = {}
    for name in dynamics.functions:
        writes = ("items", "fields") if dynamics.has_arrays and name != "randomize" else ()
        told |= dict.fromkeys(refused_lines(getattr(dynamics, name), set(), writes))
    if told:
        raise TypeError(f"{dynamics.id}: {'; '.join(told)}")


def _arguments(dynamics: Dynamics, name: str) -> tuple[str, ...]:
    """Names of the arguments that drivers give to a function."""
    if name in ("randomize", "action_mask"):
        return ARGUMENTS[name]
    if name == "observe":
        return (*ARGUMENTS[name], *(["out"] if dynamics.writes_observation else []))
    if name == "reset" and dynamics.has_arrays:
        return "state", *_drawing_arguments(dynamics, name)
    return _drawing_arguments(dynamics, name)


def _drawing_arguments(dynamics: Dynamics, name: str) -> tuple[str, ...]:
    rng = dynamics.takes_rng(name)
    names = tuple(each.format(draws="rng" if rng else "uniforms") for each in ARGUMENTS[name])
    return names[:-1] if name == "step" and not (rng or dynamics.step_draws) else names


def is_bool(value: Any) -> bool:
    """Tell whether a value is a bool of Python or NumPy."""
    return isinstance(value, bool | np.bool_)


def is_array(value: Any) -> bool:
    """Tell whether a parameter is one number for each environment."""
    return isinstance(value, list | tuple) or getattr(value, "ndim", 0) > 0


def convert_params(name: str, params: Any, tuples: bool = False) -> Any:
    """Return the params with each number an int or a float, as its field is; or tuples of floats.

    A field is an int whose type hint says so, or that has none and an int as its value.
    """
    if not isinstance(params, tuple) or not hasattr(params, "_fields"):
        raise TypeError(
            f"{name}: params={params!r} has to be an instance of a NamedTuple class, "
            f"got {params.__name__ if isinstance(params, type) else type(params).__name__}"
        )
    converted: list[Any] = []
    whole = () if tuples else whole_names(params)
    for field, value in zip(params._fields, params, strict=True):
        several = tuples and isinstance(value, tuple | list)
        for item in value if several else (value,):
            if not is_bool(item) and not isinstance(item, Real):
                remedy = ", each of its items a field of its own" if isinstance(item, tuple) else ""
                what = f"{name}: {field}={value!r}"
                raise TypeError(f"{what} has to be a number, True or False{remedy}")
            try:
                wrong = "not NaN" if math.isnan(item) else ""
            except OverflowError:
                wrong = "at most 1.8e308"
            if wrong:
                raise ValueError(f"{name}: {field}={value!r} has to be a number, {wrong}")
        if several:
            converted.append(tuple(map(float, value)))
        elif is_bool(value):
            converted.append(bool(value))
        else:
            converted.append(
                _as_whole(f"{name}: {field}", value) if field in whole else float(value)
            )
    kind: Any = type(params)
    return kind(*converted)


@functools.cache
def _int_hints(kind: Any) -> dict[str, bool]:
    """Tell of each field of a NamedTuple that has a type hint whether that is int."""
    hints = getattr(kind, "__annotations__", {})
    # A NamedTuple wraps hints that are texts, of `from __future__ import annotations`.
    return {name: getattr(h, "__forward_arg__", h) in (int, "int") for name, h in hints.items()}


def whole_names(params: Any) -> tuple[str, ...]:
    """Return the names of params that are ints, in Python as in kernels."""
    kind: Any = type(params)
    hints = _int_hints(kind)
    return tuple(
        name
        for name, value in params._asdict().items()
        if hints.get(name, isinstance(value, int)) and not is_bool(value)
    )


def _as_whole(what: str, value: Any) -> int:
    """Return a parameter as an int, which float32 holds exactly."""
    if value != int(value) or abs(value) > MOST_WHOLE:
        raise ValueError(
            f"{what}={value!r} has to be a whole number from {-MOST_WHOLE} to {MOST_WHOLE}, since "
            "its type hint is int: expected another value, or the type hint float"
        )
    return int(value)


def convert_varied(dynamics: Dynamics, params: Any) -> dict[str, npt.NDArray[np.float64]]:
    """Return the parameters that vary, as arrays that cannot be written."""
    varied = dynamics.varied
    if not isinstance(varied, Mapping):
        what = "a dict from names of params to arrays (num_envs,)"
        raise TypeError(f"{dynamics.id}: varied={varied!r} has to be {what}")
    return {name: _varied_of(dynamics.id, params, name, each) for name, each in varied.items()}


def _varied_of(id: str, params: Any, name: str, values: Any) -> npt.NDArray[np.float64]:
    """Return the values of one parameter in all environments."""
    if name not in params._fields:
        raise TypeError(f"{id} has no parameter {name}; it has: {', '.join(params._fields)}")
    if is_bool(getattr(params, name)):
        raise TypeError(
            f"{id}: {name} has to be True or False, the same in all environments: it is an option "
            "of the machine code"
        )
    numbers = as_numbers(f"{id}: {name}", values)
    if numbers.ndim != 1 or numbers.size == 0:
        raise ValueError(f"{id}: {name} has shape {numbers.shape}: expected (num_envs,)")
    bad = np.flatnonzero(np.isnan(numbers))
    if len(bad):
        raise ValueError(f"{id}: {name}[{bad[0]}]={numbers[bad[0]]} has to be a number, not NaN")
    if name in whole_names(params):
        for k in np.flatnonzero((numbers != np.rint(numbers)) | (abs(numbers) > MOST_WHOLE))[:1]:
            _as_whole(f"{id}: {name}[{k}]", numbers[k].item())
    copy = numbers.astype(np.float64)
    copy.setflags(write=False)
    return copy


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
        if name in whole_names(dynamics.params):
            _as_whole(f"{start}: {name}", value)
    return tuple(values)


def check_reset_options(dynamics: Dynamics) -> None:
    """Check that options of a reset are numbers of params."""
    if not isinstance(dynamics.reset_options, Mapping):
        raise TypeError(
            f"{dynamics.id}: reset_options={dynamics.reset_options!r} has to be a dict from "
            "option names to tuples of fields of params"
        )
    for option, fields in dynamics.reset_options.items():
        valid = [f for f in dynamics.params._fields if not is_bool(getattr(dynamics.params, f))]
        if not isinstance(fields, tuple) or not set(fields) <= set(valid):
            raise ValueError(
                f"{dynamics.id}: reset_options[{option!r}]={fields!r} has to be a tuple of "
                f"run-time parameters ({', '.join(valid)})"
            )


# ---------------------------------------------------------------- trials


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
        has_whole |= holds_whole(layout, start)
        for last in (False, True):
            state, terminated, steps = start, False, 0
            while not terminated and steps < 3:
                has_whole |= _try_observe(dynamics, state, params)
                action = _trial_action(dynamics, last, _try_mask(dynamics, state, params, steps))
                inputs = (state, action, params, trial_draws(dynamics, "step", uniform))
                result = _call(dynamics, "step", *inputs[: len(_arguments(dynamics, "step"))])
                results = results or (len(result) if isinstance(result, tuple) else 3)
                _check_step(dynamics, result, layout, results)
                has_whole |= holds_whole(layout, result[0])
                state, terminated, steps = result[0], any(result[2:]), steps + 1
            has_whole |= _try_observe(dynamics, state, params)
            if dynamics.action_mask:
                mask_of(dynamics, state, params)
    return layout, results == 4, has_whole


def _trial_params(dynamics: Dynamics) -> list[Any]:
    """Return the params of those environments in which one that varies is lowest or highest."""
    ends = {int(end) for v in dynamics.varied.values() for end in (v.argmin(), v.argmax())}
    return [params_of(dynamics, i) for i in sorted(ends)] or [dynamics.params]


def params_of(dynamics: Dynamics, i: int) -> Any:
    """Return the params that environment i was given."""
    numbers = {name: values[i].item() for name, values in dynamics.varied.items()}
    return with_numbers(dynamics.params, numbers)


def with_numbers(params: Any, numbers: Mapping[str, Any]) -> Any:
    """Return params with other numbers, each an int or a float as its field is."""
    whole = whole_names(params)
    made = {k: int(v) if k in whole else float(v) for k, v in numbers.items()}
    return params._replace(**made)


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
    return holds_whole(dynamics.observation, observation)


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
        value = getattr(observation, name or LONE, observation)
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
    state = dynamics.state.made() if before is None else copy.copy(before)
    watch(state)
    inputs = (state, *inputs[before is not None :])
    if name == "observe" and dynamics.writes_observation:
        space: Any = dynamics.observation_space
        is_record = isinstance(space, Dict) or is_lone(space)
        out = written_layout(space).made() if is_record else np.zeros(space.shape, np.float32)
        target = getattr(out, LONE) if is_lone(space) else out
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
        names = _arguments(dynamics, name)
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
