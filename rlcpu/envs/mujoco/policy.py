"""How a policy chooses the action of one simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcpu.envs.engine.decide import normalised
from rlcpu.envs.policies import (
    GREEDY,
    MEMORY,
    NETWORK,
    STATE_SIZE,
    VALUE_NETWORK,
    PolicyCode,
)
from rlcpu.kernels.compile import (
    define,
    inline,
    source_of_tuple,
    specialise,
    tuple_of,
)
from rlcpu.kernels.memory import address, pointer_to, shifted
from rlcpu.kernels.random import mix, uniforms
from rlcpu.nn.acting import Tile, job_at, run_network
from rlcpu.nn.heads import act_gaussian

single, u32 = np.float32, np.uint32
_MASK, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def make_choose(policy: PolicyCode, action_size: int, observation_size: int) -> tuple[Any, Any]:
    """Make `scratch` and `choose` of a policy; a network's take observations of any size.

    Returns:
        (constants) -> scratch, and (i, step, record, arrays, constants, scratch) -> 0, or NaN where
        the policy returned a number that is not finite; the action within the bounds is in
        `applied`, and all that is recorded in its place, if `record` holds.
    """
    if policy.act is None:
        return _by_network(policy, action_size)
    return _by_function(policy, action_size, observation_size)


@inline
def bits_of(stream):
    """Return the 64 random bits of a step."""
    key = stream[0]
    return mix(u32(key & _MASK), u32(key >> _HALF), u32(stream[2]))


@inline
def keep(i, step, record, arrays, log_prob, value):
    """Record what a policy said of its action; NaN where it is not finite."""
    if record:
        arrays.log_probs[step, i] = log_prob
        arrays.values[step, i] = value
    return np.float64((single(log_prob) + single(value)) * single(0))


@inline
def keep_action(i, k, step, record, arrays, number):
    """Record one number of an action, and let it act within its bounds; NaN if it is not finite."""
    number = single(number)
    if record:
        arrays.actions[step, i, k] = number
    arrays.applied[i, k] = min(max(number, arrays.bounds[0, k]), arrays.bounds[1, k])
    return np.float64(number * single(0))


def _by_function(policy: PolicyCode, action_size: int, observation_size: int) -> tuple[Any, Any]:
    """Make `scratch` and `choose`, see `make_choose`, of a policy that is a scalar function."""
    assert policy.act is not None
    act: Any = specialise(policy.act, np.float32)
    draws = uniforms(policy.draws, 0, np.float32)
    unpack = tuple_of(policy.params_type, policy.num_params)
    observed = source_of_tuple(f"single(row[{k}])" for k in range(observation_size))
    load = inline(define(f"def load(row): return {observed}", single=single))
    keep_all = _make_keep_all(action_size)

    @inline
    def scratch(constants):
        return constants.weights

    @inline
    def choose(i, step, record, arrays, constants, scratch):
        """Choose, record and apply the action of simulation i; NaN if a number is not finite."""
        a, b = bits_of(arrays.streams[i])
        observation = load(arrays.observation[i])
        action, log_prob, value = act(observation, unpack(constants.weights), draws(a, b))
        fault = keep_all(i, step, record, arrays, action)
        return fault + keep(i, step, record, arrays, log_prob, value)

    return scratch, choose


def _make_keep_all(action_size: int) -> Any:
    """Make a function that calls `keep_action` for every number of a tuple."""
    faults = " + ".join(
        f"keep(i, {k}, step, record, arrays, action[{k}])" for k in range(action_size)
    )
    source = f"def keep_all(i, step, record, arrays, action): return {faults}"
    return inline(define(source, keep=keep_action))


def _by_network(policy: PolicyCode, action_size: int) -> tuple[Any, Any]:
    """Make `scratch` and `choose`, see `make_choose`, of a policy that is a network."""
    act = _act_gaussian() if policy.head is None else _act_by_head(policy, action_size)
    headed, numbers = bool(policy.head), policy.outputs

    @inline
    def scratch(constants):
        """Return new cells: inputs, outputs, the value, whether an episode begins, and units."""
        job, critic = job_at(constants.settings[NETWORK]), constants.settings[VALUE_NETWORK]
        units = job.units if critic == 0 else max(job.units, job_at(critic).units)
        return np.empty(job.size + job.output_size + 2 + units, np.float32)

    @inline
    def run(job, cells, outputs, units, memory, stride):
        """Run a network for one simulation, on cells.

        Args:
            job: address of the network's `Job`.
            cells: see `scratch`; the inputs come first.
            outputs: position of the outputs in the cells.
            units: position of the units, behind the flag of a beginning.
            memory: pointer to the network's state.
            stride: numbers of a state.
        """
        start, unused = address(cells), address(cells.view(np.int32))
        one, begins = np.int64(1), shifted(start, units - 1)
        tile = Tile(
            job, start, shifted(start, outputs), shifted(start, units), one, one, False,
            unused, unused, memory, stride, begins,
        )  # fmt: skip
        run_network(tile)

    @inline
    def memory_of(settings, i):
        """Return a pointer to what networks remember of simulation i."""
        if settings[STATE_SIZE] == 0:
            return address(settings.view(np.float32))
        place = pointer_to(settings[MEMORY], single(0))
        return shifted(place, np.int64(i) * settings[STATE_SIZE])

    @inline
    def normalise(observation, mean, scale, cells):
        """Write the normalised observation to the first cells."""
        for k in range(mean.size):
            cells[k] = normalised(observation[k], mean[k], scale[k])

    @inline(exact=True)
    def choose(i, step, record, arrays, constants, cells):
        """Draw, record and apply the action of simulation i; NaN if a number is not finite."""
        normalise(arrays.observation[i], constants.mean, constants.scale, cells)
        job, critic = job_at(constants.settings[NETWORK]), constants.settings[VALUE_NETWORK]
        outputs, stride = job.size, constants.settings[STATE_SIZE]  # places of parts of the cells
        value_cell = outputs + job.output_size
        begin_cell, units = value_cell + 1, value_cell + 2
        memory = memory_of(constants.settings, i)
        cells[begin_cell] = single(arrays.elapsed[i] == u32(0))
        run(constants.settings[NETWORK], cells, outputs, units, memory, stride)
        num_outputs, value = numbers if headed else constants.log_std.size, single(0)
        if critic != 0:
            run(critic, cells, value_cell, units, shifted(memory, job.state_size), stride)
            value = cells[value_cell]
        elif job.output_size > num_outputs:  # a network that shares its layers with the policy's
            value = cells[outputs + num_outputs]
        log_prob, fault = act(i, step, record, arrays, constants, cells, outputs)
        return fault + keep(i, step, record, arrays, log_prob, value)

    return scratch, choose


def _act_gaussian() -> Any:
    """Make `act`, which draws an action of any size; see `rlcpu.nn.heads.act_gaussian`."""
    act_one: Any = specialise(act_gaussian(1), np.float32)
    draw = uniforms(2, 0, np.float32)

    # In the written order: which loop LLVM takes depends on where the arrays are.
    @inline(exact=True)
    def act(i, step, record, arrays, constants, cells, first):
        """Draw an action; returns its log_prob, and NaN if a number is not finite."""
        a, b = bits_of(arrays.streams[i])
        greedy, log_prob, fault = constants.settings[GREEDY] != 0, single(0), 0.0
        for k in range(constants.log_std.size):
            drawn = draw(*mix(a, b, u32(k)))
            numbers, density = act_one((cells[first + k],), drawn, (constants.log_std[k],), greedy)
            log_prob += density
            fault += keep_action(i, k, step, record, arrays, numbers[0])
        return log_prob, fault

    return act


def _act_by_head(policy: PolicyCode, action_size: int) -> Any:
    """Make `act`, which draws an action by the policy's own head."""
    assert policy.head is not None
    head: Any = specialise(policy.head(policy.outputs), np.float32)
    draws, keep_all = uniforms(policy.draws, 0, np.float32), _make_keep_all(action_size)
    load_outputs, load_params = (
        inline(define(f"def load(cells, first): return {source_of_tuple(items)}"))
        for items in (
            [f"cells[first + {k}]" for k in range(count)]
            for count in (policy.outputs, policy.num_params)
        )
    )

    @inline(exact=True)
    def act(i, step, record, arrays, constants, cells, first):
        """Draw an action; returns its log_prob, and NaN if a number is not finite."""
        a, b = bits_of(arrays.streams[i])
        params, greedy = load_params(constants.log_std, 0), constants.settings[GREEDY] != 0
        action, log_prob = head(load_outputs(cells, first), draws(a, b), params, greedy)
        return log_prob, keep_all(i, step, record, arrays, action)

    return act
