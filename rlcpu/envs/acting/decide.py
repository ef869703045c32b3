"""The functions by which a policy chooses the actions of a block inside a rollout's kernel.

A block is `LANES` environments, of which lane i is the i-th; the last block of all has fewer in
use, `count`. Environments write their observations into the block's memory, and a policy reads them
there. It is a scalar function, which is called for one lane after the other, or a network, which
runs for a whole block at once: `prepare` (`rlcpu.envs.acting.prepare`) writes the inputs of all
lanes, runs it, and leaves its outputs in scratch memory, from which `choose` draws the action of
each lane.

Up to `UNROLLED` actions, or numbers of an action, each has lines of its own, and tuples hold them:
lanes become vectors. Beyond, a policy acts in loops, over arrays in scratch memory, its
`ChoiceMemory`. There an action of several numbers is an array, which the next choice overwrites.

The functions that are made here are inlined into kernels. They depend on an environment by its
`Interface` alone: environments that have it in common share the machine code. `observations` is the
memory of a block's observations, (rows * LANES,) float32: a row of LANES numbers for each number of
an observation, or one environment's numbers after the other's. Choices and planes are kept there by
their bits, as int32 and uint32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.acting.choices import is_written, make_choosing
from rlcpu.envs.acting.inputs import ROWS_OF_STARTS
from rlcpu.envs.acting.prepare import OutputPlaces, make_prepare, scratch_places
from rlcpu.envs.contract.policies import Actions, PolicyCode, check_act
from rlcpu.envs.engine.array_lane import make_record_access
from rlcpu.envs.engine.interface import Interface, make_number_at
from rlcpu.envs.engine.lane import LANES
from rlcpu.envs.engine.masks import make_unpack, mask_rows, write_mask
from rlcpu.envs.layout.values import make_decode
from rlcpu.kernels.compiler.compile import define, inline, specialise, tuple_of
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.memory import array_at, place_of
from rlcpu.kernels.machine.rows import load_rows, row_access
from rlcpu.nn.network.heads import act_categorical, act_gaussian


class Decide(NamedTuple):
    """Inlinable functions of one policy for one environment.

    `policy` is a `KernelPolicy`, see `rlcpu.envs.engine.frames`.
    """

    #: (weights, log_std) -> constants, what `choose` needs of the policy's parameters.
    unpack: Callable[..., Any]
    #: (first,) -> keys of the policy's random numbers of a step, of which `first` is the first.
    make_keys: Callable[..., Any]
    #: (policy,) -> scratch, the float32 memory of a block.
    allocate: Callable[..., Any]
    #: (observations, elapsed, policy, first, count, scratch) -> `OutputPlaces`, once for each step
    #: of a block, see `rlcpu.envs.acting.prepare.make_prepare`.
    prepare: Callable[..., Any]
    #: (observations, i, constants, greedy, bits, keys, scratch, places) -> (action, log_prob,
    #: value) of lane i, from two words of random bits; `keys` are those of the policy's random
    #: numbers, and `places` is the result of `prepare`.
    choose: Callable[..., Any]


@functools.cache
def make_decide(interface: Interface, policy: PolicyCode) -> Decide:
    """Make the functions of a policy; policies compute in float32."""
    if policy.act is not None:
        return _decide_by_function(interface, policy)
    return _decide_by_network(interface, policy)


def _decide_by_function(interface: Interface, policy: PolicyCode) -> Decide:
    """Make the functions of a policy that is a scalar function."""
    acting, load = make_act(interface, policy), _make_load_observation(interface)
    unpack, act, size = acting.unpack, acting.act, acting.scratch_size

    @inline
    def allocate(policy):
        return np.zeros(size, np.float32)

    @inline
    def prepare(observations, elapsed, policy, first, count, scratch):
        return OutputPlaces(0, 0, 0)  # there are no outputs

    @inline
    def choose(observations, i, constants, greedy, bits, keys, scratch, places):
        return act(load(observations, i), constants, bits, keys, scratch)

    unpack_weights = inline(lambda weights, log_std: unpack(weights))
    return Decide(unpack_weights, acting.make_keys, allocate, prepare, choose)


class ScalarAct(NamedTuple):
    """Inlinable functions of one scalar policy for one environment."""

    #: (weights,) -> constants, the params that the policy takes.
    unpack: Callable[..., Any]
    #: See `Decide`.
    make_keys: Callable[..., Any]
    #: (rows, constants, bits, keys, scratch) -> (action, log_prob, value). `rows` are those of one
    #: observation, and `scratch` is an array of float32.
    act: Callable[..., Any]
    #: Numbers of scratch memory.
    scratch_size: int


@functools.cache
def make_act(interface: Interface, policy: PolicyCode) -> ScalarAct:
    """Make the functions of a scalar policy."""
    act, to_observation = _specialise_act(interface, policy), _make_to_observation(interface)
    choosing = make_choosing(interface, policy)
    open_choice, draw, unpack_mask = choosing.open, choosing.draw, choosing.unpack_mask
    masked, writes_numbers = policy.masked, interface.loops and interface.action_size > 0

    @inline
    def act_on(rows, constants, bits, keys, scratch):
        observation, choice = to_observation(rows), open_choice(scratch)
        uniforms = draw(bits, keys, choice)
        if masked and writes_numbers:
            mask = unpack_mask(rows, choice)
            log_prob, value = act(observation, constants, uniforms, mask, choice.numbers)
            return choice.numbers, log_prob, value
        if masked:
            return act(observation, constants, uniforms, unpack_mask(rows, choice))
        if writes_numbers:
            log_prob, value = act(observation, constants, uniforms, choice.numbers)
            return choice.numbers, log_prob, value
        return act(observation, constants, uniforms)

    unpack: Any = tuple_of(policy.params_type, policy.num_params)
    if interface.loops:
        unpack = inline(lambda weights: weights)
    return ScalarAct(unpack, choosing.make_keys, act_on, choosing.size)


def _specialise_act(interface: Interface, policy: PolicyCode) -> Any:
    """Return the function of a scalar policy as kernels call it."""
    act = policy.loop_act if interface.loops else policy.act
    assert act is not None
    arrays = interface.layout.is_record or interface.mask_is_array
    return specialise(act, np.float32, arrays=arrays and not interface.loops)


def check_policy_branches(interface: Interface, policy: PolicyCode) -> None:
    """Raise TypeError if a scalar policy, once compiled, has a branch with a wrong result."""
    if policy.act is not None and not interface.loops:
        counts = (interface.num_actions,) if interface.num_actions else ()
        actions = Actions(interface.action_size, interface.is_whole, counts)
        check_act(_specialise_act(interface, policy), actions)


def _make_to_observation(interface: Interface) -> Callable[..., Any]:
    """Make an inlinable function: rows -> the observation as a scalar policy gets it.

    That is the value that `observe` returns, or an array or record over the memory that it wrote.
    `rows` are a tuple, or an array where `observe` writes. Plain floats may still be of the
    environment's dtype, in `simulate`.
    """
    layout, shape, zero = interface.layout, interface.written_shape, np.float32(0)
    if layout.is_record:
        record_at, _ = make_record_access(layout, np.float32)
        if interface.is_int_array:
            # An array of whole numbers is in memory as a record of one field, "image".
            return inline(lambda rows: record_at(rows, 0).image)
        return inline(lambda rows: record_at(rows, 0))
    if shape:
        return inline(lambda rows: array_at(place_of(rows, 0), shape, zero))
    if layout.is_plain:
        items = "".join(f"single(values[{k}]), " for k in range(interface.num_rows))
        source = f"def to_float32(values): return ({items})"
        return inline(define(source, single=np.float32))
    return make_decode(layout, np.float32)  # returns a choice, planes or a group


def _make_load_observation(interface: Interface) -> Callable[..., Any]:
    """Make an inlinable function (observations, i) -> the rows of environment i, with its mask.

    They are returned as a tuple, or as an array where `observe` writes into one.
    """
    size, zero = interface.num_rows + mask_rows(interface.num_masked), np.float32(0)
    if interface.in_rows:
        load = load_rows(size, "observations")
        return inline(lambda observations, i: load(observations, LANES, i))
    if is_written(interface):
        # Not a slice, of whose owner numba would count references.
        return inline(
            lambda observations, i: array_at(
                place_of(observations, i * (observations.size // LANES)), (size,), zero
            )
        )
    # Of stride 1, as an environment's numbers lie side by side. Under `ANY`: "observations" would
    # promise that the rows of different k never overlap, but those of neighbours do.
    load = load_rows(size, ANY)
    return inline(lambda observations, i: load(observations, 1, i * (observations.size // LANES)))


def _decide_by_network(interface: Interface, policy: PolicyCode) -> Decide:
    """Make the functions of a policy whose networks run for a block of lanes at once.

    A head makes the scalar function that draws an action (`rlcpu.nn.network.heads`): it is called
    with the number of outputs, then True for a function that takes a mask, and `loops=True` for one
    that takes arrays in the place of tuples.
    """
    num_actions, loops, masked = interface.num_actions, interface.loops, policy.masked
    head: Any = policy.head or (act_categorical if num_actions else act_gaussian)
    # As many as the policy says, else a mean for each number of an action, or a logit for each.
    num_outputs = policy.outputs or interface.action_size or num_actions
    act: Any = specialise(head(num_outputs, masked, loops=loops), np.float32)
    get_output, _ = row_access("outputs")
    load_outputs = load_rows(0 if loops else num_outputs, "outputs")
    choosing, load_mask = make_choosing(interface, policy), _make_load_mask(interface)
    open_choice, draw = choosing.open, choosing.draw
    has_value, most_lanes = policy.value != "none", interface.lanes
    no_value, writes_numbers = np.float32(0), loops and interface.action_size > 0
    size_behind = ROWS_OF_STARTS * most_lanes + interface.num_rows + choosing.size

    @inline
    def allocate(policy):
        return np.zeros(scratch_places(policy, most_lanes).end + size_behind, np.float32)

    @inline
    def choose(observations, i, constants, greedy, bits, keys, scratch, places):
        lanes, first = places.lanes, places.outputs + i
        if loops:
            lane_outputs = scratch[first : first + num_outputs * lanes : lanes]
        else:
            lane_outputs = load_outputs(scratch, lanes, first)
        value = get_output(scratch, places.values + i) if has_value else no_value
        choice = open_choice(scratch)
        uniforms = draw(bits, keys, choice)
        if masked and writes_numbers:
            mask = load_mask(observations, i, choice)
            log_prob = act(lane_outputs, uniforms, constants, greedy, mask, choice.numbers)
            return choice.numbers, log_prob, value
        if writes_numbers:
            log_prob = act(lane_outputs, uniforms, constants, greedy, choice.numbers)
            return choice.numbers, log_prob, value
        if masked:
            mask = load_mask(observations, i, choice)
            action, log_prob = act(lane_outputs, uniforms, constants, greedy, mask)
        else:
            action, log_prob = act(lane_outputs, uniforms, constants, greedy)
        return action, log_prob, value

    prepare = make_prepare(interface, choosing.size)
    # Params of a head of the policy's own, or logarithms of deviations: a tuple without names.
    # `log_std` holds the params of the head, where there is one.
    read_constants = tuple_of(None, policy.num_params if policy.head else interface.action_size)
    unpack = inline(lambda weights, log_std: read_constants(log_std))
    if loops:
        unpack = inline(lambda weights, log_std: log_std)
    return Decide(unpack, choosing.make_keys, allocate, prepare, choose)


def _make_load_mask(interface: Interface) -> Callable[..., Any]:
    """Make an inlinable (observations, i, choice) -> lane i's mask: a tuple, or `choice.mask`."""
    first, number_at = interface.mask_row, make_number_at(interface.in_rows)
    stride = LANES if interface.in_rows else 1
    load = load_rows(mask_rows(interface.num_masked), "observations")
    unpack = make_unpack(first=0, count=interface.num_masked)

    @inline
    def load_array(observations, i, choice):
        write_mask(observations, number_at(observations, first, i), stride, choice.mask)
        return choice.mask

    if interface.loops:
        return load_array
    return inline(
        lambda observations, i, choice: unpack(
            load(observations, stride, number_at(observations, first, i))
        )
    )
