"""Structs that compiled functions of environments and rollouts are handed, by address.

One function is compiled for an environment, for C (`rlcpu.envs.engine.steps`): it takes a
`StepCall`, which drivers and rollouts pack. The function that runs all steps of a rollout in one
block of environments takes (frame, policy, records, number of steps, block). Python packs a
`RolloutFrame` once for an engine, and a `KernelPolicy` for each policy that acts in it. Drivers
pack `RecordArrays`, which may be new in each call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.envs.contract.policies import PolicyArrays
from rlcpu.kernels.machine.structs import Array, Flag, Reference, Struct, Whole
from rlcpu.nn.network.acting import Job

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


class KernelPolicy(Struct):
    """The numbers of a policy; see `rlcpu.envs.contract.policies.PolicyArrays`."""

    num_weights = Whole()
    weights = Array(np.float32, "num_weights")
    num_log_std = Whole()
    log_std = Array(np.float32, "num_log_std")
    num_inputs = Whole()
    mean = Array(np.float32, "num_inputs")
    scale = Array(np.float32, "num_inputs")
    limit = Array(np.float32, 1)
    greedy = Flag()
    #: Read of policies that are networks, and the second if the value has one of its own.
    network = Reference(Job)
    has_value_network = Flag()
    value_network = Reference(Job)
    #: (N, state_size), what the networks remember of each environment; not read without memory.
    state_size = Whole()
    states = Array(np.float32)


def pack_policy(arrays: PolicyArrays) -> KernelPolicy:
    """Return the numbers of a policy as kernels take them; its networks are to be kept alive."""
    names = ("weights", "log_std", "mean", "scale", "limit")
    network, value_network = arrays.network, arrays.value_network
    return KernelPolicy(
        **{name: np.ascontiguousarray(getattr(arrays, name), np.float32) for name in names},
        greedy=arrays.greedy,
        network=0 if network is None else network.place,
        has_value_network=value_network is not None,
        value_network=0 if value_network is None else value_network.place,
        state_size=arrays.state_size,
        states=0,
    )


class RolloutFrame(Struct):
    """The environments, and their memory."""

    num_envs = Whole()
    num_blocks = Whole()
    function = Whole()  #: address of the environment's function, see `rlcpu.envs.engine.steps`
    first_draw = Whole()  #: which random number of a step is the policy's first one
    block_size = Whole()  #: floats of a block in `state`
    episodes_at = Whole()  #: where the numbers of a block's episodes begin there
    mask_row = Whole()  #: rows of an observation without its action mask
    num_rows = Whole()  #: and with it
    #: Memory of `rlcpu.envs.engine.lanes.LaneEngine`, there `real`, `words` and `numbers`.
    state = Array("real")
    words = Array(np.uint32)
    numbers = Array("real")
    bounds = Array(np.float32)  #: (2 * action_size,), lowest and then highest numbers of an action
    #: Counter of the first step's random numbers, limit of an episode's steps.
    clock = Array(np.uint32, 2)
    #: First number and count of each run of floats in an observation, and in a state.
    num_observed_spans = Whole()
    observed_spans = Array(np.int64, "num_observed_spans", 2)
    num_state_spans = Whole()
    state_spans = Array(np.int64, "num_state_spans", 2)
    #: (num_blocks + 1, NUM_SUMS), what `simulate` writes: sums of each block, and last of all.
    sums = Array(np.float64)
    #: Outputs: of each block a number above 0 if one of its numbers was not finite.
    faults = Array(np.int64, "num_blocks")


class RecordArrays(Struct):
    """The memory of a rollout: the fields of `Records`, in their order. Flags are bytes."""

    observations = Array(np.float32)
    actions = Array("action")
    log_probs = Array(np.float32)
    values = Array(np.float32)
    rewards = Array("real")
    flags = Array(np.uint8)
    finals = Array(np.float32)
    totals = Array("real")
    lengths = Array(np.uint32)
    last = Array(np.float32)


def record_arrays_of(dtype: type, is_whole: bool) -> type[RecordArrays]:
    """Return the `RecordArrays` of environments of a dtype; `is_whole` tells of their actions."""
    return RecordArrays.of(real=dtype, action=np.int64 if is_whole else np.float32)
