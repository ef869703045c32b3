"""The call that steps, resets or observes some environments: the argument of their function.

One such function is compiled for an environment, for C (`rlcpu.envs.engine.steps`). Drivers and
rollouts call it by its address.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types

from rlcpu.kernels.calls import kind_of

#: Modes of a `StepCall`: to observe all, to start some episodes, and to step. The last two write
#: observations, too: of all, or where states have arrays of the episodes that start.
OBSERVE, RESTART, STEP = range(3)


class StepCall(NamedTuple):
    """Argument of the function that steps, resets or observes some environments.

    It holds numbers, and pointers to the arrays of all environments.
    """

    #: `OBSERVE`, `RESTART` or `STEP`. A step ends an episode without a new one, which the next step
    #: begins, or a restart.
    mode: Any
    #: The environments: `count` from `begin` on, which begins a block where environments are lanes.
    begin: Any
    count: Any
    #: Numbers from one row of observations to the next, where they are in rows.
    stride: Any
    #: Arrays of `rlcpu.envs.engine.lanes.LaneEngine`; `state` is `real`.
    state: Any
    words: Any
    numbers: Any
    clock: Any
    #: uint8 of each environment, whether `RESTART` takes it.
    mask: Any
    #: A block after the other, with a row of LANES for each number of an action: int32, or floats
    #: of the environment's dtype.
    actions: Any
    #: Outputs. Observations are rows of `stride` numbers, or the environments' one after the other
    #: where states have arrays.
    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any


@functools.cache
def call_type(dtype: type, is_whole: bool) -> Any:
    """Return numba's type of a `StepCall`; `is_whole` tells whether actions are whole numbers."""
    # Flags are bytes, since numba reads no bools behind pointers.
    reals, singles, flags = (types.CPointer(from_dtype(np.dtype(x))) for x in (dtype, "f4", "u1"))
    words, number = types.CPointer(types.uint32), types.int64
    return kind_of(
        StepCall(
            mode=number,
            begin=number,
            count=number,
            stride=number,
            state=reals,
            words=words,
            numbers=reals,
            clock=words,
            mask=flags,
            actions=types.CPointer(types.int32) if is_whole else reals,
            observations=singles,
            rewards=reals,
            terminated=flags,
            truncated=flags,
        )
    )
