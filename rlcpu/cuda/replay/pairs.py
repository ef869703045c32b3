"""Indices and priorities on the device, for a tree."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.operands import real_dtype
from rlcpu.replay.checks import check_indices, check_numbers


class Pairs(NamedTuple):
    """What is to be written.

    Attributes:
        indices: (n,) int64.
        priorities: (n,) or (1,), what is checked, as the user gave it.
        leaves: (n,) or (1,), what is written.
        most: largest priority that is allowed; 0 for the tree's own.
        length: items of each environment; 0 if the tree is not divided.
        filled: those that are there, at least one; 0 for all.
    """

    indices: DeviceArray
    priorities: DeviceArray
    leaves: DeviceArray
    most: float = 0.0
    length: int = 0
    filled: int = 0


def check_index_array(indices: Any) -> DeviceArray:
    """Indices as (n,) int64 on the device."""
    if not arrays.is_device_array(indices):
        return arrays.from_host(check_indices(indices))
    array = arrays.take("indices", indices, np.int64)
    if array.ndim > 1:
        raise ValueError(f"indices: expected shape (n,), got {array.shape}")
    return array.view((array.size,))


def check_real_array(name: str, numbers: Any, count: int) -> DeviceArray:
    """Real numbers on the device: `count` of them, or one."""
    if not arrays.is_device_array(numbers):
        return arrays.from_host(check_numbers(name, numbers, count))
    array = arrays.take(name, numbers, real_dtype(name, numbers))
    if array.shape not in ((count,), ()):
        raise ValueError(f"{name}: expected shape ({count},), got {array.shape}")
    return array
