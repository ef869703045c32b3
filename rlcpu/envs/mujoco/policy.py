"""The functions by which a policy chooses the action of one simulation, inlined into a rollout.

`i` is the simulation, `step` the step of the rollout, `job` has the rollout's arrays
(`rlcpu.envs.mujoco.job`), and `policy` is the `KernelPolicy` with the weights, settings and what
scales observations; settings are read by the names of their places, `GREEDY` to `STATE_SIZE`. A
"fault" is 0, or NaN if a number was not finite. What `job_at` returns is the job of a network
itself: that has `size` inputs, `output_size` outputs, `units` numbers of scratch, and `state_size`
numbers that it remembers of a simulation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.envs.mujoco.physics import POLICY_KEY, STEPS
from rlcpu.envs.policies import GREEDY, MEMORY, NETWORK, STATE_SIZE, VALUE_NETWORK, PolicyCode
from rlcpu.kernels.compile import define, inline, source_of_tuple, specialise, tuple_of
from rlcpu.kernels.memory import address, pointer_to, shifted
from rlcpu.kernels.random import mix, mix_key, uniforms
from rlcpu.nn.acting import Tile, job_at, run_network
from rlcpu.nn.heads import act_gaussian
from rlcpu.nn.scaling import scaled

#: Policies compute and record in float32, whatever the dtype of the environments.
single, u32 = np.float32, np.uint32


def make_choose(code: PolicyCode, action_size: int, observation_size: int) -> tuple[Any, Any]:
    """Make the functions `allocate` and `choose` of a policy, for actions of `action_size` numbers.

    A network takes observations of any size.

    Returns:
        `allocate`: (policy,) -> scratch, memory for `choose`. `choose`: (i, step, job, policy,
        scratch) -> fault; it writes the action, clipped to the bounds, to `applied_actions`, and
        records the choice.
    """
    if code.act is None:  # a network; other policies have a scalar function `act`
        return _by_network(code, action_size)
    return _by_function(code, action_size, observation_size)


@inline
def draw_bits(stream):
    """Return the random bits (a, b) of the present step, of a simulation's row of `streams`."""
    return mix_key(stream[POLICY_KEY], stream[STEPS])


@inline
def record_choice(i, step, job, log_prob, value):
    """Record log-probability and value of an action, and return their fault."""
    if job.records:
        job.log_probs[step, i] = log_prob
        job.values[step, i] = value
    return np.float64((single(log_prob) + single(value)) * single(0))


@inline
def apply_number(i, k, step, job, number):
    """Record number k of an action, write it, clipped, to `applied_actions`; return its fault."""
    number = single(number)
    if job.records:
        job.actions[step, i, k] = number
    job.applied_actions[i, k] = min(max(number, job.bounds[0, k]), job.bounds[1, k])
    return np.float64(number * single(0))


def _by_function(code: PolicyCode, action_size: int, observation_size: int) -> tuple[Any, Any]:
    """Make `allocate` and `choose`, see `make_choose`, of a policy that is a scalar function."""
    assert code.act is not None
    act: Any = specialise(code.act, np.float32)
    draws = uniforms(code.draws, 0, np.float32)  # numbers 0 to `code.draws` - 1 of a step
    unpack = tuple_of(code.params_type, code.num_params)
    numbers = source_of_tuple(f"single(row[{k}])" for k in range(observation_size))
    load = inline(define(f"def load(row): return {numbers}", single=single))
    apply_action = _make_apply_action(action_size)

    @inline
    def allocate(policy):
        return policy.weights  # `choose` needs no scratch: any array will do

    @inline
    def choose(i, step, job, policy, scratch):
        a, b = draw_bits(job.streams[i])
        observation = load(job.observation[i])
        action, log_prob, value = act(observation, unpack(policy.weights), draws(a, b))
        fault = apply_action(i, step, job, action)
        return fault + record_choice(i, step, job, log_prob, value)

    return allocate, choose


def _make_apply_action(action_size: int) -> Any:
    """Make (i, step, job, action) -> fault: `apply_number` for every number."""
    faults = " + ".join(f"apply_number(i, {k}, step, job, action[{k}])" for k in range(action_size))
    source = f"def apply_action(i, step, job, action): return {faults}"
    return inline(define(source, apply_number=apply_number))


# Scratch of a network's policy has, one after the other, the inputs, the outputs, the value of a
# network of its own, 1 or 0 for whether an episode begins, and the units of hidden layers.


@inline
def allocate_scratch(policy):
    """Return the scratch for the networks of a policy."""
    network, critic = job_at(policy.settings[NETWORK]), policy.settings[VALUE_NETWORK]
    units = network.units if critic == 0 else max(network.units, job_at(critic).units)
    return np.empty(network.size + network.output_size + 2 + units, np.float32)


@inline
def run_one(job, scratch, outputs, units, states, state_size):
    """Run a network for one simulation.

    Args:
        job: address of the network's own job, which `job_at` reads.
        scratch: see above.
        outputs: place of the network's outputs in it.
        units: place of the units in it, behind the flag of a beginning.
        states: pointer to the network's recurrent state of the simulation.
        state_size: numbers between the states of two simulations.
    """
    inputs, unused = address(scratch), address(scratch.view(np.int32))
    tile = Tile(
        job=job,
        inputs=inputs,
        row=np.int64(outputs),  # not 0: inputs are rows of simulations; of one, any length will do
        outputs=shifted(inputs, outputs),
        units=shifted(inputs, units),
        lanes=np.int64(1),
        samples=np.int64(1),
        few=False,  # whether inputs are ones at few `columns`, from `starts` on, and else zeros
        starts=unused,
        columns=unused,
        memory=states,
        stride=state_size,
        begins=shifted(inputs, units - 1),
    )
    run_network(tile)


@inline
def states_of(settings, i):
    """Return a pointer to the recurrent states of simulation i.

    Without memory nobody reads them, and any pointer to float32 will do.
    """
    if settings[STATE_SIZE] == 0:
        return address(settings.view(np.float32))
    first = pointer_to(settings[MEMORY], single(0))
    return shifted(first, np.int64(i) * settings[STATE_SIZE])


@inline
def write_inputs(observation, policy, inputs):
    """Write an observation, as the networks get it, to the first places of `inputs`."""
    for k in range(policy.mean.size):
        inputs[k] = scaled(observation[k], policy.mean[k], policy.scale[k], policy.limit[0])


def _by_network(code: PolicyCode, action_size: int) -> tuple[Any, Any]:
    """Make `allocate` and `choose`, see `make_choose`, of a policy that is a network."""
    # Without a head of its own a policy's outputs are the means of a normal distribution.
    act = _act_gaussian() if code.head is None else _act_by_head(code, action_size)
    has_head, head_outputs = bool(code.head), code.outputs

    @inline(exact=True)
    def choose(i, step, job, policy, scratch):
        """Run the networks for simulation i, draw its action, and apply and record it.

        `critic` is the address of a value's own network, or 0.
        """
        write_inputs(job.observation[i], policy, scratch)
        network, critic = job_at(policy.settings[NETWORK]), policy.settings[VALUE_NETWORK]
        state_size, states = policy.settings[STATE_SIZE], states_of(policy.settings, i)
        # Places in scratch.
        outputs = network.size
        own_value = outputs + network.output_size
        begins, units = own_value + 1, own_value + 2
        scratch[begins] = single(job.elapsed[i] == u32(0))
        run_one(policy.settings[NETWORK], scratch, outputs, units, states, state_size)
        num_outputs, value = head_outputs if has_head else policy.log_std.size, single(0)
        if critic != 0:
            critic_states = shifted(states, network.state_size)
            run_one(critic, scratch, own_value, units, critic_states, state_size)
            value = scratch[own_value]
        elif network.output_size > num_outputs:  # the value shares the policy's network
            value = scratch[outputs + num_outputs]
        log_prob, fault = act(i, step, job, policy, scratch, outputs)
        return fault + record_choice(i, step, job, log_prob, value)

    return allocate_scratch, choose


def _act_gaussian() -> Any:
    """Make `act`, which draws an action of any size from a normal distribution.

    It is (i, step, job, policy, scratch, outputs) -> (log_prob, fault), where `outputs` is the
    place of the means in scratch; see `rlcpu.nn.heads.act_gaussian`.
    """
    act_one: Any = specialise(act_gaussian(1), np.float32)  # of one number of an action
    draw = uniforms(2, 0, np.float32)

    # `exact` keeps the order of the sum: whether LLVM makes a loop of vectors of it depends
    # on the addresses of the arrays.
    @inline(exact=True)
    def act(i, step, job, policy, scratch, outputs):
        a, b = draw_bits(job.streams[i])
        greedy, log_prob, fault = policy.settings[GREEDY] != 0, single(0), 0.0
        for k in range(policy.log_std.size):
            drawn = draw(*mix(a, b, u32(k)))
            mean, log_std = (scratch[outputs + k],), (policy.log_std[k],)
            numbers, log_prob_of_one = act_one(mean, drawn, log_std, greedy)
            log_prob += log_prob_of_one
            fault += apply_number(i, k, step, job, numbers[0])
        return log_prob, fault

    return act


def _act_by_head(code: PolicyCode, action_size: int) -> Any:
    """Make `act`, with the arguments of `_act_gaussian`'s, which draws by the policy's own head."""
    assert code.head is not None
    head: Any = specialise(code.head(code.outputs), np.float32)
    draws, apply_action = uniforms(code.draws, 0, np.float32), _make_apply_action(action_size)
    read_outputs, read_params = tuple_of(None, code.outputs), tuple_of(None, code.num_params)

    @inline(exact=True)
    def act(i, step, job, policy, scratch, outputs):
        a, b = draw_bits(job.streams[i])
        params, greedy = read_params(policy.log_std), policy.settings[GREEDY] != 0
        action, log_prob = head(read_outputs(scratch[outputs:]), draws(a, b), params, greedy)
        return log_prob, apply_action(i, step, job, action)

    return act
