"""Checks of arguments that all layers share."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


#: Counts are below it: sums and products by sizes of arrays stay in int64.
COUNT_LIMIT = 2**48


def check_count(name: str, value: Any, least: int = 1, limit: int = COUNT_LIMIT) -> int:
    """Return a whole number in [least, limit); a float without a fraction, such as 1e6, is one.

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
    """Return a whole number as an int, also a float without digits behind the point."""
    if isinstance(value, float | np.floating) and value.is_integer():
        return int(value)
    try:
        # A masked array is refused: as an index it is the number behind its mask.
        if not isinstance(value, bool | np.bool_ | np.ma.MaskedArray):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{name}={value!r}: expected an int of at least {least}")


def check_seed(seed: Any) -> int:
    """Return a seed: a whole number of 0 to 2**128 - 1.

    Raises:
        TypeError: it is no int.
        ValueError: it is out of range.
    """
    try:
        if isinstance(seed, bool | np.bool_):
            raise TypeError
        value = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed={seed!r}: expected an int") from None
    if not 0 <= value < 2**128:
        raise ValueError(f"seed={value}: expected 0 to 2**128 - 1")
    return value


def as_array(name: str, value: Any) -> Array:
    """Return the value as an array.

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
    """Return the value as an array of real numbers.

    Raises:
        TypeError: it is masked, or holds something else.
    """
    array = as_array(name, value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {array.dtype}: expected real numbers")
    return array
