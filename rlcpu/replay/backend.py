"""Functions and classes that differ between devices, for buffers and trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu import backends
from rlcpu.replay.derive import make_storage
from rlcpu.replay.fields import to_array
from rlcpu.replay.items import draw_items
from rlcpu.replay.tree_cpu import Tree


class Cpu:
    """Backend of the CPU; `rlcpu.cuda.replay.Backend` has the same names for a GPU.

    Buffers hold the class itself, as a namespace.
    """

    device = "cpu"
    storage = staticmethod(make_storage)  # (structure, num_envs, length, memmap, derive_next)
    tree = Tree
    empty = staticmethod(np.empty)
    asarray = staticmethod(np.asarray)
    to_host = staticmethod(np.asarray)  # not to be written to
    concatenate = staticmethod(np.concatenate)
    to_array = staticmethod(to_array)
    draw_items = staticmethod(draw_items)


def find(device: str) -> Any:
    """Return the backend of a device, or ValueError, or CudaUnavailableError."""
    if isinstance(device, str) and device == "cpu":
        return Cpu
    return backends.find(device, "replay").Backend
