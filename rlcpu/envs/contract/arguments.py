"""Checks and conversions of arguments of environments: actions, states, options of a reset."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.kernels.checks import as_array, as_numbers

Array = npt.NDArray[Any]
_DTYPES: dict[str, type] = {"float32": np.float32, "float64": np.float64}


def check_mode(mode: Any) -> AutoresetMode:
    """Return the `AutoresetMode` that a mode or its name is."""
    try:
        return AutoresetMode(mode)
    except (TypeError, ValueError):
        known = ", ".join(repr(each.value) for each in AutoresetMode)
        raise ValueError(f"autoreset_mode={mode!r}: expected an AutoresetMode or {known}") from None


def check_dtype(dtype: Any) -> type:
    """Return `np.float32` or `np.float64`."""
    try:
        return _DTYPES[np.dtype(dtype).name]
    except (TypeError, KeyError):
        raise ValueError(f'dtype={dtype!r}: expected "float32" or "float64"') from None


def check_varied(dynamics: Dynamics, num_envs: int) -> None:
    """Raise ValueError unless parameters that vary have one row for each environment."""
    for name, values in dynamics.varied.items():
        if len(values) != num_envs:
            raise ValueError(
                f"{dynamics.id}: {name} has shape {values.shape}: expected "
                f"{(num_envs, *values.shape[1:])}, one for each environment, or one for all"
            )


def convert_actions(actions: Any, dynamics: Dynamics, shape: tuple[int, ...]) -> Array:
    """Return the actions as a contiguous int64 array, or float32 of a `Box`, for kernels.

    Raises:
        TypeError: actions of another kind of dtype.
        ValueError: actions of another shape than the one given, or beyond int64.
    """
    array = as_array("actions", actions)
    check_actions(array, dynamics, shape)
    if array.dtype == np.uint64:  # the conversion would make negative numbers of large ones
        is_too_large = (array > np.iinfo(np.int64).max).reshape(len(array), -1).any(axis=1)
        if is_too_large.any():
            bad = np.flatnonzero(is_too_large)
            raise ValueError(describe_bad_actions(array, bad, dynamics))
    return np.ascontiguousarray(array, np.int64 if dynamics.is_discrete else np.float32)


def check_actions(actions: Any, dynamics: Dynamics, shape: tuple[int, ...]) -> None:
    """Raise TypeError or ValueError for another kind of dtype or shape of actions on any device."""
    wanted, kinds = ("an integer", "iu") if dynamics.is_discrete else ("a real", "fiu")
    if actions.dtype.kind not in kinds:
        raise TypeError(f"actions have dtype {actions.dtype}: expected {wanted} dtype")
    if actions.shape != shape:
        raise ValueError(f"actions have shape {actions.shape}: expected {shape}")


def find_bad_actions(actions: Array, dynamics: Dynamics) -> Array:
    """Return the indices of environments whose actions are outside of the space, or NaN."""
    if dynamics.choices:
        return np.flatnonzero(((actions < 0) | (actions >= dynamics.choices)).any(axis=1))
    if dynamics.is_discrete:
        return np.flatnonzero((actions < 0) | (actions >= dynamics.num_actions))
    bad = np.isnan(actions) if dynamics.runs_in_kernels else ~np.isfinite(actions)
    return np.flatnonzero(bad.any(axis=1))


def describe_bad_actions(actions: Array, bad: Any, dynamics: Dynamics) -> str:
    """Return an error message that names the first of the bad actions, whose indices are `bad`."""
    first, wanted = bad[0], describe_actions(dynamics)
    return (
        f"actions[{first}]={actions[first]} of {dynamics.id} ({len(bad)} such): expected {wanted}"
    )


def describe_actions(dynamics: Dynamics) -> str:
    """Return which actions an environment takes, as messages say it."""
    if dynamics.choices:
        return f"whole numbers from 0 on, below {list(dynamics.choices)}"
    if dynamics.is_discrete:
        return f"0 to {dynamics.num_actions - 1}"
    # Kernels clip infinity to the bounds.
    return "a number" if dynamics.runs_in_kernels else "finite numbers"


def convert_state(state: npt.ArrayLike, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """Return a state as an array of a dtype.

    Raises TypeError unless it has real numbers, ValueError for another shape, or numbers that are
    not finite in the dtype.
    """
    numbers = as_numbers("state", state)
    if numbers.shape != shape:
        raise ValueError(f"state has shape {numbers.shape}: expected {shape}")
    with np.errstate(over="ignore"):
        values = numbers.astype(dtype)
    if not np.isfinite(values).all():
        raise ValueError(f"state holds NaN or infinity in {dtype}: expected finite numbers")
    return values


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> npt.NDArray[np.bool_]:
    """Return the environments to reset, (num_envs,) bool: all, unless the options hold a mask.

    Raises TypeError unless the mask is a bool array, ValueError if it has another shape or selects
    nothing.
    """
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"options={options!r}: expected a dict or None")
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, np.bool_)
    mask = options["reset_mask"]
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        kind = getattr(mask, "dtype", type(mask).__name__)
        raise TypeError(f'options["reset_mask"] is of {kind}: expected a NumPy array of bool')
    if mask.shape != (num_envs,):
        raise ValueError(f'options["reset_mask"] has shape {mask.shape}: expected ({num_envs},)')
    if not mask.any():
        raise ValueError('options["reset_mask"] is all False: expected at least one True')
    return mask


def params_of_reset(dynamics: Dynamics, options: dict[str, Any] | None) -> Any:
    """Return the params of one reset: the environment's, changed by options such as "low".

    Raises:
        ValueError: an unknown option, a bound that is no number, or a low above its high.
    """
    changes: dict[str, float] = {}
    for name, value in (options or {}).items():
        if name == "reset_mask":
            continue
        if name not in dynamics.reset_options:
            known = ", ".join(["reset_mask", *dynamics.reset_options])
            raise ValueError(f"options[{name!r}] is unknown to {dynamics.id}: expected {known}")
        fields = dynamics.reset_options[name]  # one option may set several fields of params
        for field in fields:
            if field in (*dynamics.varied, *dynamics.randomized):
                raise ValueError(
                    f"options[{name!r}] sets {field} for one reset, which varies from environment "
                    f"to environment of {dynamics.id}: expected no such option"
                )
        changes |= dict.fromkeys(fields, _as_finite(f"options[{name!r}]", value))
    if not changes:
        return dynamics.params
    params = dynamics.with_params(**changes).params
    # By these names, environments of classic control have the bounds of the options "low", "high".
    low, high = getattr(params, "reset_low", 0.0), getattr(params, "reset_high", 0.0)
    if low > high:
        raise ValueError(f'options["low"]={low} is above options["high"]={high}')
    return params


def _as_finite(name: str, value: Any) -> float:
    """Return a value as a float; raise ValueError, with its name, unless it is a finite number."""
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        raise ValueError(f"{name}={value!r}: expected a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{name}={value!r}: expected a finite number")
    return number
