"""What the arguments of a vector environment have to be, in one clear exception each."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rlcpu.envs.dynamics import Dynamics

Array = npt.NDArray[Any]
_DTYPES: dict[str, type] = {"float32": np.float32, "float64": np.float64}


def as_array(name: str, value: Any) -> Array:
    """The value as an array.

    Raises:
        TypeError: it is masked, or no array can be made of it.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: expected one without a mask")
    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r}: expected an array of numbers") from None


def as_numbers(name: str, value: Any) -> Array:
    """The value as an array of real numbers.

    Raises:
        TypeError: it is masked, or holds something else.
    """
    array = as_array(name, value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {array.dtype}: expected real numbers")
    return array


def check_mode(mode: Any) -> AutoresetMode:
    """The autoreset mode of a mode or its name."""
    try:
        return AutoresetMode(mode)
    except (TypeError, ValueError):
        known = ", ".join(repr(each.value) for each in AutoresetMode)
        raise ValueError(f"autoreset_mode={mode!r}: expected an AutoresetMode or {known}") from None


def check_dtype(dtype: Any) -> type:
    """`np.float32` or `np.float64`."""
    try:
        return _DTYPES[np.dtype(dtype).name]
    except (TypeError, KeyError):
        raise ValueError(f'dtype={dtype!r}: expected "float32" or "float64"') from None


def convert_actions(actions: Any, dynamics: Dynamics, shape: tuple[int, ...] | None) -> Array:
    """The actions as a contiguous array of the dtype that kernels take.

    Raises:
        TypeError: actions of another kind of dtype.
        ValueError: actions of another shape, or beyond int64.
    """
    array = as_array("actions", actions)
    wanted, kinds = ("an integer", "iu") if dynamics.is_discrete else ("a real", "fiu")
    if array.dtype.kind not in kinds:
        raise TypeError(f"actions have dtype {array.dtype}: expected {wanted} dtype")
    if array.shape != shape:
        raise ValueError(f"actions have shape {array.shape}: expected {shape}")
    beyond = np.flatnonzero(array > np.iinfo(np.int64).max) if array.dtype == np.uint64 else ()
    if len(beyond):
        raise ValueError(describe_bad_actions(array, beyond, dynamics))
    return np.ascontiguousarray(array, np.int64 if dynamics.is_discrete else np.float32)


def find_bad_actions(actions: Array, dynamics: Dynamics) -> Array:
    """Indices of the actions which the environment cannot take."""
    if dynamics.is_discrete:
        return np.flatnonzero((actions < 0) | (actions >= dynamics.num_actions))
    return np.flatnonzero(np.isnan(actions).any(axis=1))


def describe_bad_actions(actions: Array, bad: Any, dynamics: Dynamics) -> str:
    """Message that names the first of the bad actions."""
    wanted = f"0 to {dynamics.num_actions - 1}" if dynamics.is_discrete else "a number"
    first = bad[0]
    return (
        f"actions[{first}]={actions[first]} of {dynamics.id} ({len(bad)} such): expected {wanted}"
    )


def convert_state(state: npt.ArrayLike, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """The state as an array of the environment's dtype.

    Raises:
        TypeError: no real numbers.
        ValueError: another shape, or numbers that are not finite in the dtype.
    """
    given = as_numbers("state", state)
    if given.shape != shape:
        raise ValueError(f"state has shape {given.shape}: expected {shape}")
    with np.errstate(over="ignore"):
        values = given.astype(dtype)
    if not np.isfinite(values).all():
        raise ValueError(f"state holds NaN or infinity in {dtype}: expected finite numbers")
    return values
