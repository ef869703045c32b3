"""What buffers and trees ask of the device that holds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu import backends
from rlcpu.replay.checks import first_offender
from rlcpu.replay.derive import make_storage
from rlcpu.replay.fields import to_array
from rlcpu.replay.items import draw_items
from rlcpu.replay.tree_cpu import Tree


class Cpu:
    """The CPU's answers; `rlcpu.cuda.replay.Backend` has the same names for a GPU.

    Nothing is made of this class: buffers hold the class itself.

    Attributes:
        device: what users call it.
        storage: (structure, num_envs, length, memmap, derive_next) -> rows of transitions.
        tree: (capacity, extremes) -> see `rlcpu.replay.tree_cpu.Tree`.
        empty: (shape, dtype) -> new memory.
        asarray: (host array) -> the same there.
        to_host: (array) -> the same in NumPy's memory, not to be written to.
        concatenate: (arrays, axis) -> one array.
        to_array: (numbers, name) -> an array of what anybody handed over, there or on the host;
            see `rlcpu.replay.fields.to_array`.
        first_offender: see `rlcpu.replay.checks.first_offender`.
        draw_items: see `rlcpu.replay.items.draw_items`.
    """

    device = "cpu"
    storage = staticmethod(make_storage)
    tree = Tree
    empty = staticmethod(np.empty)
    asarray = staticmethod(np.asarray)
    to_host = staticmethod(np.asarray)
    concatenate = staticmethod(np.concatenate)
    to_array = staticmethod(to_array)
    first_offender = staticmethod(first_offender)
    draw_items = staticmethod(draw_items)


def find(device: str) -> Any:
    """The backend of a device.

    Raises:
        ValueError: there is no such device.
        rlcpu.cuda.CudaUnavailableError: "cuda" cannot be used here.
    """
    if isinstance(device, str) and device == "cpu":
        return Cpu
    return backends.find(device, "replay").Backend
