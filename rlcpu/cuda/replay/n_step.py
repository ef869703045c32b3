"""Returns of n steps, added up on the device when transitions are drawn."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlcpu.cuda import arrays
from rlcpu.cuda.arrays import DeviceArray
from rlcpu.cuda.compile import kernel
from rlcpu.cuda.launch import launch
from rlcpu.cuda.provider import cuda
from rlcpu.cuda.replay.storage import Storage
from rlcpu.replay.n_step import NStep, sum_ahead
from rlcpu.replay.ring import Ring


@functools.cache
def look_ahead_kernel() -> Any:
    """(rewards, terminated, truncated, rows, length, newest, n, gamma, returns, discounts, last).

    See `rlcpu.replay.n_step.look_ahead`; `terminated` and `truncated` are bytes, the sums are of
    the rewards' dtype, and discounts float32.
    """

    @kernel(dtype=np.float64, exact=True)
    def look_ahead(
        rewards,
        terminated,
        truncated,
        rows,
        length,
        newest,
        n,
        gamma,
        returns,
        discounts,
        last,
    ):
        b = cuda.grid(1)
        if b < rows.size:
            ring, settings = (length, newest), (n, gamma)
            found = sum_ahead(rewards, terminated, truncated, rows[b], ring, settings)
            returns[b], discounts[b], last[b] = found

    return look_ahead


def gather(
    n_step: NStep, storage: Storage, ring: Ring, indices: DeviceArray
) -> tuple[list[DeviceArray], DeviceArray]:
    """New arrays of n-step transitions, one for each field, and (batch_size,) discounts."""
    number, size = n_step.wanted[0], indices.size
    returns = arrays.empty(size, storage.structure.fields[number].dtype)
    discounts, last = arrays.empty(size, np.float32), arrays.empty(size, np.int64)
    columns = [storage.column(wanted) for wanted in n_step.wanted]
    settings = ring.length, (ring.added - 1) % ring.length, n_step.n, n_step.gamma
    launch(look_ahead_kernel(), size, *columns, indices, *settings, returns, discounts, last)
    found = {number: returns}
    for rows, numbers in ((indices, n_step.first), (last, n_step.last)):
        found |= {each: storage.gather_field(each, rows) for each in numbers}
    return [found[each] for each in range(len(found))], discounts
