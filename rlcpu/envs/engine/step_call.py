"""The call that steps, resets or observes some environments: the argument of their function.

One such function is compiled for an environment, for C (`rlcpu.envs.engine.steps`). Drivers and
rollouts call it by its address.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.kernels.machine.structs import Array, Struct, Whole

#: Modes of a `StepCall`: to observe all, to start some episodes, and to step. The last two write
#: observations, too: of all, or where states have arrays of the episodes that start.
OBSERVE, RESTART, STEP = range(3)


class StepCall(Struct):
    """Argument of the function that steps, resets or observes some environments.

    It holds numbers, and pointers to the arrays of all environments.
    """

    #: `OBSERVE`, `RESTART` or `STEP`. A step ends an episode without a new one, which the next step
    #: begins, or a restart.
    mode = Whole()
    #: The environments: `count` from `begin` on, which begins a block where environments are lanes.
    begin = Whole()
    count = Whole()
    #: Numbers from one row of observations to the next, where they are in rows.
    stride = Whole()
    #: Arrays of `rlcpu.envs.engine.lanes.LaneEngine`; `state` is `real`.
    state = Array("real")
    words = Array(np.uint32)
    numbers = Array("real")
    clock = Array(np.uint32)
    #: Of each environment, whether `RESTART` takes it.
    mask = Array(np.uint8)
    #: A block after the other, with a row of LANES for each number of an action.
    actions = Array("action")
    #: Outputs. Observations are rows of `stride` numbers, or the environments' one after the other
    #: where states have arrays. Flags are bytes, since numba reads no bools behind pointers.
    observations = Array(np.float32)
    rewards = Array("real")
    terminated = Array(np.uint8)
    truncated = Array(np.uint8)


def step_call_of(dtype: type, is_whole: bool) -> Any:
    """Return the `StepCall` of environments of a dtype; `is_whole` tells of their actions."""
    return StepCall.of(real=dtype, action=np.int32 if is_whole else dtype)
