"""How a policy acts in one simulation, as functions that are inlined into a rollout.

Networks and scalar functions act as in a block of lanes (`rlcpu.envs.acting.decide`) of which there
is one. The usual normal distribution alone is drawn here, number by number: so one compiled
function serves actions of all sizes, as it serves observations of all sizes.

`i` is the simulation, `at` its place in flat arrays of all steps, `job` the `RolloutJob`, and
`policy` the `KernelPolicy`. A "fault" is 0, or NaN if a number was not finite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.acting.decide import make_decide
from rlcpu.envs.acting.prepare import make_prepare, scratch_places
from rlcpu.envs.contract.policies import PolicyCode
from rlcpu.envs.engine.interface import Interface
from rlcpu.envs.layout.values import floats
from rlcpu.envs.mujoco.physics import POLICY_KEY, STEPS
from rlcpu.kernels.compiler.compile import inline, specialise
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.memory import address, shifted
from rlcpu.kernels.machine.random import mix, mix_key, uniforms
from rlcpu.kernels.machine.rows import store_rows
from rlcpu.nn.network.heads import act_gaussian

#: Policies compute and record in float32, whatever the dtype of the environments.
single, u32 = np.float32, np.uint32


class TaskPolicy(NamedTuple):
    """Inlinable functions of one policy."""

    #: (policy,) -> scratch, float32 memory for one simulation.
    allocate: Callable[..., Any]
    #: (i, at, job, policy, scratch) -> fault. It writes the action, clipped to the bounds, to
    #: `applied_actions`, and records the choice.
    choose: Callable[..., Any]


def make_policy(code: PolicyCode, action_size: int, observation_size: int) -> TaskPolicy:
    """Make the functions of a policy.

    `observation_size` is not read of networks, nor `action_size` of those whose outputs are the
    means of a normal distribution.
    """
    interface = Interface(
        in_rows=False,
        lanes=1,
        action_size=action_size,
        num_actions=0,
        is_whole=False,
        mask_row=0,
        num_masked=0,
        loops=False,
        mask_is_array=False,
        kind="floats",
        lowest=0,
        num_planes=0,
        parts=(),
        num_rows=observation_size,
        layout=floats(observation_size),
        written_shape=(),
        is_int_array=False,
    )
    is_gaussian = code.act is None and code.head is None
    acting = _act_gaussian(interface) if is_gaussian else _act_as_lane(interface, code)
    allocate, prepare, act = acting

    # `exact` keeps the order of sums: whether LLVM makes vectors of a loop depends on the addresses
    # of the arrays.
    @inline(exact=True)
    def choose(i, at, job, policy, scratch):
        memory, bounds = job.memory, job.bounds
        observation, action = memory.observation[i], memory.applied_actions[i]
        elapsed, stream = shifted(address(memory.elapsed), i), memory.streams[i]
        places = prepare(observation, elapsed, policy, i, 1, scratch)
        bits = mix_key(stream[POLICY_KEY], stream[STEPS])
        log_prob, value = act(observation, policy, bits, scratch, places, action)
        fault = single(log_prob) * single(0) + single(value) * single(0)
        for k in range(action.size):
            number = action[k]
            fault += number * single(0)
            if job.records:
                job.actions[at * action.size + k] = number
            action[k] = min(max(number, bounds[0, k]), bounds[1, k])
        if job.records:
            job.log_probs[at] = log_prob
            job.values[at] = value
        return np.float64(fault)

    return TaskPolicy(allocate, choose)


class _Parts(NamedTuple):
    """Inlinable functions of which `make_policy` makes those of a policy."""

    allocate: Callable[..., Any]  # see `TaskPolicy`
    prepare: Callable[..., Any]  # see `rlcpu.envs.acting.prepare.make_prepare`
    #: (observation, policy, bits, scratch, places, action) -> (log_prob, value); it writes the
    #: action. `bits` are the random bits of the step, `places` the result of `prepare`.
    act: Callable[..., Any]


def _act_as_lane(interface: Interface, code: PolicyCode) -> _Parts:
    """Make the functions of a scalar policy, or of a network with a head of its own."""
    unpack, make_keys, allocate, prepare, choose = make_decide(interface, code)
    store = store_rows(interface.action_size, ANY)

    @inline
    def act(observation, policy, bits, scratch, places, action):
        constants, keys = unpack(policy.weights, policy.log_std), make_keys(0)
        decision = choose(observation, 0, constants, policy.greedy, bits, keys, scratch, places)
        store(action, 1, 0, decision[0])
        return decision[1], decision[2]

    return _Parts(allocate, prepare, act)


def _act_gaussian(interface: Interface) -> _Parts:
    """Make the functions of networks whose outputs are the means of a normal distribution."""
    act_one: Any = specialise(act_gaussian(1), single)  # of one number of an action
    draw = uniforms(2, 0, single)

    @inline
    def allocate(policy):
        return np.empty(scratch_places(policy, 1).end, single)

    @inline(exact=True)  # as above
    def act(observation, policy, bits, scratch, places, action):
        log_prob, value = single(0), single(0)
        for k in range(action.size):
            drawn, mean = draw(*mix(bits[0], bits[1], u32(k))), scratch[places.outputs + k]
            log_std = (policy.log_std[k],)
            numbers, log_prob_of_one = act_one((mean,), drawn, log_std, policy.greedy)
            action[k] = numbers[0]
            log_prob += log_prob_of_one
        if policy.has_value_network or policy.network.output_size > action.size:
            value = scratch[places.values]
        return log_prob, value

    return _Parts(allocate, make_prepare(interface, reserved=0), act)
