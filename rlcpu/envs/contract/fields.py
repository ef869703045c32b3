"""Checks of the fields of a `Dynamics` when it is made: its spaces, functions and parameters.

Each fault is one exception that names the environment, the field, its value and what was expected.
"Whole" numbers are ints, of parameters whose type hint is int; a parameter "varies" if each
environment has its own number. A "plain" function is one that `def` or a lambda made.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import types
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from rlcpu.envs.layout.arrays import ArrayLayout, State, layout_of_class
from rlcpu.envs.layout.groups import check_group, describe_space, is_int_array
from rlcpu.envs.layout.values import Layout
from rlcpu.kernels.checks import as_numbers, check_count
from rlcpu.kernels.compiler.source import refused_lines
from rlcpu.kernels.machine.boards import CELLS

if TYPE_CHECKING:
    from rlcpu.envs.contract.dynamics import Dynamics

#: Largest whole number up to which float32 holds all of them.
MOST_WHOLE = 2**24
#: Names of the scalar functions.
FUNCTIONS = ("step", "reset", "observe", "randomize", "action_mask", "compute_reward")
#: Functions that an environment may lack.
OPTIONAL = ("randomize", "action_mask", "compute_reward")
#: Parts of an observation with goals: what was achieved, and what should be.
GOALS = ("achieved_goal", "desired_goal")


def check_description(dynamics: Dynamics) -> None:
    """Check the names and counts of an environment; a count such as 1e3 becomes an int."""
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
    """Raise TypeError or ValueError for spaces that kernels do not know."""
    _check_observation_space(dynamics)
    _check_action_space(dynamics)
    if dynamics.action_mask is not None and not dynamics.is_discrete:
        raise TypeError(
            f"{dynamics.id}: action_mask={dynamics.action_mask!r} has to be None with "
            f"action_space={dynamics.action_space!r}: masks are for Discrete and MultiDiscrete"
        )
    if dynamics.compute_reward is not None and (fault := fault_of_goals(dynamics)):
        raise TypeError(f"{dynamics.id}: compute_reward has no goals to compare: {fault}")


def fault_of_goals(dynamics: Dynamics) -> str:
    """Return why an environment has no goals, or "": they are two parts of one space."""
    space: Any = dynamics.observation_space
    parts = dict(space.items()) if isinstance(space, Dict) else {}
    if not {*GOALS} <= parts.keys():
        return (
            f"observation_space={describe_space(space)} has to be a Dict with the parts "
            f"{' and '.join(GOALS)}"
        )
    achieved, desired = (parts[name] for name in GOALS)
    if type(achieved) is not type(desired) or (achieved.shape, achieved.dtype) != (
        desired.shape,
        desired.dtype,
    ):
        return f"desired_goal, {describe_space(desired)}, has to be {describe_space(achieved)} too"
    return ""


def _check_observation_space(dynamics: Dynamics) -> None:
    """Raise TypeError or ValueError unless kernels know the space of observations."""
    space, subject = dynamics.observation_space, f"{dynamics.id}: observation_space"
    is_written = dynamics.writes_observation
    if isinstance(space, Dict):
        if fault := check_group(space, is_written):
            raise TypeError(f"{subject} {fault}")
    elif is_written and isinstance(space, Discrete | MultiBinary):
        raise TypeError(
            f"{subject}={describe_space(space)} has to be a Box or a Dict where observe writes "
            "into `out`; return a choice, or boards, from observe(state, params)"
        )
    elif isinstance(space, MultiBinary):
        if len(space.shape) != 3 or math.prod(space.shape[1:]) > CELLS:
            shape = f"(planes, rows, columns), at most {CELLS} cells a plane"
            raise ValueError(f"{subject}={space} has to be of {shape}")
    elif not isinstance(space, Discrete) and not _is_box(space, is_written):
        kinds = "a float32 Box of one dimension, Discrete or MultiBinary"
        if is_int_array(space):
            kinds += "; whole numbers are written by observe(state, params, out), into arrays"
        raise TypeError(f"{subject}={describe_space(space)} has to be {kinds}")


def _check_action_space(dynamics: Dynamics) -> None:
    """Raise TypeError or ValueError unless kernels know the space of actions."""
    space, subject = dynamics.action_space, f"{dynamics.id}: action_space"
    if isinstance(space, Discrete):
        if space.start != 0:
            raise ValueError(f"{subject}={space} has to start at 0")
    elif isinstance(space, MultiDiscrete):
        if space.nvec.ndim != 1 or space.nvec.size == 0 or space.start.any():
            raise ValueError(f"{subject}={space} has to be of one axis and to start at 0")
    elif not _is_box(space, is_written=False):
        kinds = "a float32 Box of one dimension, Discrete or MultiDiscrete"
        raise TypeError(f"{subject}={describe_space(space)} has to be {kinds}")


def _is_box(space: Any, is_written: bool) -> bool:
    """Tell whether a space is a `Box` that kernels know.

    It has one axis of float32; what `observe` writes may have more axes, or be whole numbers.
    """
    return (
        isinstance(space, Box)
        and (len(space.shape) == 1 or (len(space.shape) > 1 and is_written))
        and math.prod(space.shape) > 0
        and (space.dtype == np.float32 or (is_written and is_int_array(space)))
    )


def layout_of_state(dynamics: Dynamics) -> ArrayLayout | None:
    """Return the layout of states with arrays, of the class that `state` is; None for others.

    Raises TypeError unless it is a subclass of `State` whose fields have good type hints.
    """
    state = dynamics.state
    if isinstance(state, ArrayLayout):
        return state
    if state is None or isinstance(state, Layout):  # a layout that a trial reset found before
        return None
    if not isinstance(state, type) or not issubclass(state, State) or state is State:
        is_named_tuple = hasattr(state, "_fields")
        advice = (
            ": leave it out, reset shows what a NamedTuple is made of" if is_named_tuple else ""
        )
        raise TypeError(
            f"{dynamics.id}: state={state!r} has to be a subclass of rlcpu.envs.State{advice}"
        )
    try:
        return layout_of_class(state)
    except TypeError as error:
        raise TypeError(f"{dynamics.id}: {error}") from None


def check_plain(what: str, function: Any) -> None:
    """Raise TypeError unless `function` is a plain Python function; `what` names it in errors."""
    if not isinstance(function, types.FunctionType):
        hint = "; give its py_func" if hasattr(function, "py_func") else ""
        raise TypeError(
            f"{what}={function!r} has to be a plain Python function, "
            f"got {type(function).__name__}{hint}"
        )


def check_arguments(what: str, function: Any, names: Iterable[str], note: str = "") -> None:
    """Raise TypeError unless a function, `what` in errors, takes these arguments, by position.

    `note` says why it has to take them.
    """
    signature = inspect.signature(function)
    try:
        signature.bind(*names)
    except TypeError:
        raise TypeError(
            f"{what} has to take ({', '.join(names)}){note}; it takes {signature}"
        ) from None


def check_function(dynamics: Dynamics, name: str) -> None:
    """Raise TypeError or ValueError for a function that is not plain or takes other arguments."""
    function, what = getattr(dynamics, name), f"{dynamics.id}: {name}"
    check_plain(what, function)
    if name == "randomize" and not dynamics.takes_rng(name):
        signature = inspect.signature(function)
        raise TypeError(f"{what} has to take (rng, params); it takes {signature}")
    note = f" with step_draws={dynamics.step_draws}"
    check_arguments(what, function, arguments_of(dynamics, name), note)
    num_draws = getattr(dynamics, f"{name}_draws", 0)  # of `step` and `reset`
    if num_draws and dynamics.takes_rng(name):
        raise ValueError(
            f"{what}_draws={num_draws}: {name} takes `rng`, which gives as many numbers as it is "
            "asked for; leave it out"
        )


#: How functions of an environment draw random numbers.
_RANDOM = (
    "random numbers come from `rng`, an argument of reset and the last one of step, as in "
    "rng.uniform(k)"
)


def check_sources(dynamics: Dynamics) -> None:
    """Raise TypeError if kernels cannot run the functions; it names all lines that they cannot."""
    faults: dict[str, None] = {}
    for name in dynamics.functions:
        # What they may write to: items of arrays, and fields of the state.
        writes: tuple[str, ...] = ()
        if dynamics.has_arrays and name not in ("randomize", "compute_reward"):
            writes = ("items", "fields")
        elif dynamics.writes_mask and name == "action_mask":
            writes = ("items",)
        lines = refused_lines(getattr(dynamics, name), set(), writes, _RANDOM)
        faults |= dict.fromkeys(lines)  # each once, where functions share a helper
    if faults:
        raise TypeError(f"{dynamics.id}: {'; '.join(faults)}")


def arguments_of(dynamics: Dynamics, name: str) -> tuple[str, ...]:
    """Return the names of the arguments that kernels give to one of an environment's functions."""
    if name == "randomize":
        return "rng", "params"
    if name == "compute_reward":
        return (*GOALS, "params")
    if name in ("step", "reset"):
        draws = "rng" if dynamics.takes_rng(name) else "uniforms"
        if name == "reset":
            return ("state", draws, "params") if dynamics.has_arrays else (draws, "params")
        takes_draws = draws == "rng" or dynamics.step_draws > 0
        return ("state", "action", "params", *([draws] if takes_draws else []))
    writes = dynamics.writes_mask if name == "action_mask" else dynamics.writes_observation
    return ("state", "params", "out") if writes else ("state", "params")


def is_bool(value: Any) -> bool:
    """Tell whether a value is a bool of Python or NumPy."""
    return isinstance(value, bool | np.bool_)


def is_array(value: Any) -> bool:
    """Tell whether a parameter is an array or a list: one number for each environment."""
    return isinstance(value, list | tuple) or getattr(value, "ndim", 0) > 0


def convert_params(name: str, params: Any, tuples: bool = False) -> Any:
    """Return params whose numbers are Python's ints or floats, and whose bools are Python's.

    A field is an int if its type hint says so, or if it has no hint and its value is an int. With
    `tuples` fields may be tuples of numbers, and all numbers are floats. `name` is the
    environment's, for errors: TypeError or ValueError unless `params` is a NamedTuple of numbers.
    """
    if not isinstance(params, tuple) or not hasattr(params, "_fields"):
        raise TypeError(
            f"{name}: params={params!r} has to be an instance of a NamedTuple class, "
            f"got {params.__name__ if isinstance(params, type) else type(params).__name__}"
        )
    converted: list[Any] = []
    ints = () if tuples else int_names(params)
    for field, value in zip(params._fields, params, strict=True):
        what = f"{name}: {field}"
        if tuples and isinstance(value, tuple | list):
            for item in value:
                _check_number(what, value, item)
            converted.append(tuple(map(float, value)))
            continue
        _check_number(what, value, value)
        if is_bool(value):
            converted.append(bool(value))
        else:
            converted.append(as_whole(what, value) if field in ints else float(value))
    params_class: Any = type(params)
    return params_class(*converted)


def _check_number(what: str, value: Any, item: Any) -> None:
    """Raise TypeError or ValueError unless `item`, a value or a part of it, is a number or a bool.

    `what` names the value in the error.
    """
    if not is_bool(item) and not isinstance(item, Real):
        remedy = ", each of its items a field of its own" if isinstance(item, tuple) else ""
        raise TypeError(f"{what}={value!r} has to be a number, True or False{remedy}")
    try:
        wrong = "not NaN" if math.isnan(item) else ""
    except OverflowError:
        wrong = "at most 1.8e308"
    if wrong:
        raise ValueError(f"{what}={value!r} has to be a number, {wrong}")


@functools.cache
def _int_hints(params_class: Any) -> dict[str, bool]:
    """Return, for each field of a NamedTuple with a type hint, whether the hint is int."""
    hints = getattr(params_class, "__annotations__", {})
    # A NamedTuple wraps hints that are texts, of `from __future__ import annotations`.
    return {name: getattr(h, "__forward_arg__", h) in (int, "int") for name, h in hints.items()}


def int_names(params: Any) -> tuple[str, ...]:
    """Return the names of the params that are ints."""
    params_class: Any = type(params)
    hints = _int_hints(params_class)
    return tuple(
        name
        for name, value in params._asdict().items()
        if hints.get(name, isinstance(value, int)) and not is_bool(value)
    )


def as_whole(what: str, value: Any) -> int:
    """Return a parameter as an int; raise ValueError unless float32 holds it exactly.

    `what` names the parameter in the error.
    """
    if abs(value) > MOST_WHOLE or value != int(value):
        raise ValueError(
            f"{what}={value!r} has to be a whole number from {-MOST_WHOLE} to {MOST_WHOLE}, since "
            "its type hint is int: expected another value, or the type hint float"
        )
    return int(value)


def convert_varied(dynamics: Dynamics, params: Any) -> dict[str, npt.NDArray[np.float64]]:
    """Return the parameters that vary by name, read-only arrays (num_envs,) float64, checked."""
    varied = dynamics.varied
    if not isinstance(varied, Mapping):
        what = "a dict from names of params to arrays (num_envs,)"
        raise TypeError(f"{dynamics.id}: varied={varied!r} has to be {what}")
    return {name: _varied_of(dynamics.id, params, name, each) for name, each in varied.items()}


def _varied_of(id: str, params: Any, name: str, values: Any) -> npt.NDArray[np.float64]:
    """Return the values of a parameter in all environments, a read-only copy (num_envs,) float64.

    `id` is the environment's, for errors.
    """
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
    nan_indices = np.flatnonzero(np.isnan(numbers))
    if len(nan_indices):
        raise ValueError(
            f"{id}: {name}[{nan_indices[0]}]={numbers[nan_indices[0]]} has to be a number, not NaN"
        )
    if name in int_names(params):
        for k in np.flatnonzero((numbers != np.rint(numbers)) | (abs(numbers) > MOST_WHOLE))[:1]:
            as_whole(f"{id}: {name}[{k}]", numbers[k].item())
    copy = numbers.astype(np.float64)
    copy.setflags(write=False)
    return copy


def check_reset_options(dynamics: Dynamics) -> None:
    """Raise TypeError or ValueError unless options of a reset are names of numbers of params."""
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


def params_of(dynamics: Dynamics, i: int) -> Any:
    """Return the params of environment i, before `randomize` draws any."""
    numbers = {name: values[i].item() for name, values in dynamics.varied.items()}
    return with_numbers(dynamics.params, numbers)


def with_numbers(params: Any, numbers: Mapping[str, Any]) -> Any:
    """Return params with other numbers by name, each an int or a float as its field is."""
    ints = int_names(params)
    return params._replace(**{k: int(v) if k in ints else float(v) for k, v in numbers.items()})
