"""What `reset(options=...)` may say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.dynamics import Dynamics


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> npt.NDArray[np.bool_]:
    """The environments to reset, (num_envs,) bool: all, unless the options hold a mask.

    Raises:
        TypeError: the mask is no bool array.
        ValueError: the mask has another shape, or selects nothing.
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


def reset_bounds(dynamics: Dynamics, options: dict[str, Any] | None) -> Any:
    """The params of one reset: the environment's, with the bounds that the options hold.

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
        try:
            number = float(value)
        except (OverflowError, TypeError, ValueError):
            raise ValueError(f"options[{name!r}]={value!r}: expected a number") from None
        if not math.isfinite(number):
            raise ValueError(f"options[{name!r}]={value!r}: expected a finite number")
        changes.update(dict.fromkeys(dynamics.reset_options[name], number))
    if not changes:
        return dynamics.params
    params = dynamics.with_params(**changes).params
    low, high = getattr(params, "reset_low", 0.0), getattr(params, "reset_high", 0.0)
    if low > high:
        raise ValueError(f'options["low"]={low} is above options["high"]={high}')
    return params
