"""Checks of arguments that all layers share."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


def check_count(name: str, value: Any, least: int = 1, limit: int = 2**48) -> int:
    """A whole number in [least, limit); a float without a fraction, such as 1e6, is one.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is out of range.
    """
    if type(value) is not int:
        value = _to_int(name, value, least)
    if value < least:
        raise ValueError(f"{name}={value}: expected at least {least}")
    if value >= limit:
        raise ValueError(f"{name}={value}: expected less than {limit}")
    return int(value)


def _to_int(name: str, value: Any, least: int) -> int:
    if isinstance(value, float | np.floating) and value.is_integer():
        return int(value)
    try:
        if not isinstance(value, bool | np.bool_ | np.ma.MaskedArray):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{name}={value!r}: expected an int of at least {least}")
