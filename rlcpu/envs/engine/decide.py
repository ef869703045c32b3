"""The functions by which a policy chooses the actions of a block inside a rollout's kernel.

A block is `LANES` environments, of which lane i is the i-th; the last block of all has fewer in
use, `count`. Environments write their observations into the block's memory, and a policy reads them
there. It is a scalar function, which is called for one lane after the other, or a network, which
runs for a whole block at once: `prepare` writes the inputs of all lanes, runs it, and leaves its
outputs in scratch memory, from which `choose` draws the action of each lane.

Inputs and outputs of networks are rows of `lanes` numbers, `count` rounded up to a multiple of 16
(or 1): input k of lane i is at `k * lanes + i`. They are float32 and normalised, see `normalised`.
Where `observe` writes an array, and of groups, each lane has a row of inputs instead.
Where they are zeros and ones, mostly zeros, networks take lists of the ones in their place.

The functions that are made here are inlined into kernels. They depend on an environment by its
`Interface` alone: environments that have it in common share the machine code. `observations` is the
memory of a block's observations, (rows * LANES,) float32: a row of LANES numbers for each number of
an observation, or one environment's numbers after the other's. Choices and planes are kept there by
their bits, as int32 and uint32.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.lane import ELAPSED, LANES, Structure
from rlcpu.envs.engine.layout import make_decode
from rlcpu.envs.engine.masks import make_unpack, make_unpack_to_memory, mask_rows
from rlcpu.envs.engine.observations import GroupPart
from rlcpu.envs.engine.record import make_record_access
from rlcpu.envs.engine.steps import is_whole
from rlcpu.envs.policies import MEMORY, NETWORK, STATE_SIZE, VALUE_NETWORK, PolicyCode
from rlcpu.kernels.boards import append_cells
from rlcpu.kernels.compile import define, inline, inline_source, outline, specialise, tuple_of
from rlcpu.kernels.matmul import MANY_ONES
from rlcpu.kernels.memory import address, array_at, place_of, pointer_to, shifted
from rlcpu.kernels.random import uniforms_of_keys
from rlcpu.kernels.rows import ANY, load_rows, row_access
from rlcpu.nn.acting import Tile, job_at, run_network
from rlcpu.nn.heads import UNROLLED, act_categorical, act_gaussian
from rlcpu.nn.layers.kind import UNIT
from rlcpu.nn.network import CLIP

_LOW, _HIGH = np.float32(-CLIP), np.float32(CLIP)
#: Rows of scratch memory for the int32 that say where each lane's ones begin, one more than lanes.
ROWS_OF_STARTS = 2


class Interface(NamedTuple):
    """Facts of an environment on which a policy's functions depend.

    Where nothing reads a fact it has the value that says so: environments that differ there share
    code.
    """

    #: Whether the numbers of observations lie in rows of LANES, not one lane after the other.
    in_rows: bool
    #: See `Structure`.
    action_size: int
    num_actions: int
    #: Whether actions are whole numbers.
    is_whole: bool
    #: Row of an observation where its action mask begins; 0 without masks.
    mask_row: int
    #: What networks read: "floats", "choice", "planes" or "group".
    kind: str
    #: The smallest value of the choice; 0 of other kinds.
    lowest: int
    #: 0 of other kinds than planes.
    num_planes: int
    #: Of a group; () of other kinds.
    parts: tuple[GroupPart, ...]
    #: Of an observation without its mask, for a scalar policy or a group; 0 of others.
    num_rows: int
    #: `Structure.observation` and its attributes of these names, for a scalar policy; None, () and
    #: False for networks.
    layout: Any
    written_shape: tuple[int, ...]
    is_int_array: bool


def interface_of(env: Structure, policy: PolicyCode) -> Interface:
    """Return the facts of an environment on which the functions of a policy depend."""
    is_network, rows = policy.act is None, env.observation_rows
    planes = 0 if env.observation.is_record else env.observation.fields[0].size
    if env.group_parts:
        kind = "group"
    elif env.writes_observation or env.observation.is_plain:
        kind = "floats"
    else:
        kind = "planes" if planes else "choice"
    return Interface(
        in_rows=not env.state.is_record,
        action_size=env.action_size,
        num_actions=env.num_actions,
        is_whole=is_whole(env),
        mask_row=rows if policy.masked else 0,
        kind=kind,
        lowest=sum(env.choice_starts) if kind == "choice" else 0,
        num_planes=planes if kind == "planes" else 0,
        parts=env.group_parts,
        num_rows=0 if is_network and kind != "group" else rows,
        layout=None if is_network else env.observation,
        written_shape=() if is_network else env.written_shape,
        is_int_array=not is_network and env.is_int_array,
    )


class Decide(NamedTuple):
    """Inlinable functions of one policy for one environment.

    `policy` is a `KernelPolicy`: its weights, settings, and the mean and scale of normalisation.
    """

    #: (weights, log_std) -> constants, what `choose` needs of the policy's parameters.
    unpack: Callable[..., Any]
    #: (settings,) -> scratch, the float32 memory of a block.
    allocate: Callable[..., Any]
    #: (observations, words, policy, count, block, scratch) -> `OutputPlaces`, once for each step of
    #: a block. It runs the networks for the first `count` lanes of block number `block`. `words` is
    #: the block's memory, see `rlcpu.envs.engine.lane`.
    prepare: Callable[..., Any]
    #: (observations, i, constants, greedy, bits, keys, scratch, places) -> (action, log_prob,
    #: value) of lane i, from two words of random bits; `keys` are those of the policy's random
    #: numbers, see `make_draw_keys`, and `places` is the result of `prepare`.
    choose: Callable[..., Any]


class OutputPlaces(NamedTuple):
    """Where in scratch memory the outputs of networks are, for `lanes` lanes."""

    lanes: Any
    #: Output k of lane i is at `outputs + k * lanes + i`.
    outputs: Any
    #: Its value is at `values + i`.
    values: Any


@functools.cache
def make_decide(interface: Interface, policy: PolicyCode) -> Decide:
    """Make the functions of a policy; policies compute in float32."""
    if policy.act is not None:
        return _decide_by_function(interface, policy)
    return _decide_by_network(interface, policy)


def _decide_by_function(interface: Interface, policy: PolicyCode) -> Decide:
    """Make the functions of a policy that is a scalar function: it needs no scratch memory."""
    act, load = make_act(interface, policy), _make_load_observation(interface)
    read_params = tuple_of(policy.params_type, policy.num_params)

    @inline
    def allocate(settings):
        return np.empty(0, np.float32)

    @inline
    def prepare(observations, words, policy, count, block, scratch):
        return OutputPlaces(0, 0, 0)  # there are no outputs

    @inline
    def choose(observations, i, constants, greedy, bits, keys, scratch, places):
        return act(load(observations, i), constants, bits, keys)

    return Decide(inline(lambda weights, log_std: read_params(weights)), allocate, prepare, choose)


@functools.cache
def make_act(interface: Interface, policy: PolicyCode) -> Callable[..., Any]:
    """Make an inlinable (rows, constants, bits, keys) -> decision of a scalar policy.

    `rows` are those of one observation; the other arguments and the result are those of `choose`.
    """
    assert policy.act is not None
    act = specialise(policy.act, np.float32, arrays=getattr(interface.layout, "is_record", False))
    to_observation = _make_to_observation(interface)
    draw_uniforms = uniforms_of_keys(policy.draws, np.float32)
    masked, unpack_mask = policy.masked, make_unpack(interface.num_rows, interface.num_actions)

    @inline
    def act_on(rows, constants, bits, keys):
        observation, uniforms = to_observation(rows), draw_uniforms(bits[0], bits[1], keys)
        if masked:
            return act(observation, constants, uniforms, unpack_mask(rows))
        return act(observation, constants, uniforms)

    return act_on


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
        return _make_to_float32(interface.num_rows)
    return make_decode(layout, np.float32)  # returns a choice, planes or a group


def _make_load_observation(interface: Interface) -> Callable[..., Any]:
    """Make an inlinable function (observations, i) -> the rows of environment i, with its mask.

    They are returned as a tuple, or as an array where `observe` writes into one.
    """
    num_masked = interface.num_actions if interface.mask_row else 0
    size, zero = interface.num_rows + mask_rows(num_masked), np.float32(0)
    if interface.in_rows:
        load = load_rows(size, "observations")
        return inline(lambda observations, i: load(observations, LANES, i))
    if interface.written_shape or interface.layout.is_record:
        # Not a slice, of whose owner numba would count references.
        return inline(
            lambda observations, i: array_at(
                place_of(observations, i * (observations.size // LANES)), (size,), zero
            )
        )
    load = load_rows(size, ANY)
    return inline(lambda observations, i: load(observations, 1, i * (observations.size // LANES)))


@functools.cache
def make_number_at(in_rows: bool) -> Callable[..., Any]:
    """Make an inlinable (observations, k, i) -> position of number k of lane i's observation.

    `in_rows` says whether observations are rows of LANES numbers, or one after the other.
    """
    if in_rows:
        return inline(lambda observations, k, i: k * LANES + i)
    return inline(lambda observations, k, i: i * (observations.size // LANES) + k)


def _decide_by_network(interface: Interface, policy: PolicyCode) -> Decide:
    """Make the functions of a policy whose networks run for a block of lanes at once.

    Scratch memory has the rows that `ScratchRows` names, then those of `ROWS_OF_STARTS`, the
    numbers of one group, and last a number for each action where masks are unpacked to memory.
    """
    num_actions, draw_uniforms = interface.num_actions, uniforms_of_keys(policy.draws, np.float32)
    head: Any = policy.head or (act_categorical if num_actions else act_gaussian)
    # As many as the policy says, else a mean for each number of an action, or a logit for each.
    outputs = policy.outputs or interface.action_size or num_actions
    # Constants are a plain tuple: params of the head, or logarithms of deviations.
    read_constants = tuple_of(None, policy.num_params if policy.head else interface.action_size)
    load_outputs, get_output = load_rows(outputs, "outputs"), row_access("outputs")[0]
    masked, load_mask = policy.masked, _make_load_mask(interface)
    unpack_mask, mask_size = make_unpack(0, num_actions), 0
    mask_of = inline(lambda words, scratch: unpack_mask(words))
    if num_actions > UNROLLED and "loops" in inspect.signature(head).parameters:
        # Of many actions, outputs and mask are arrays, over which the head has loops.
        scalar_act = head(outputs, masked, loops=True)
        load_outputs = inline(
            lambda scratch, lanes, first: scratch[first : first + outputs * lanes : lanes]
        )
        if masked:
            mask_of, mask_size = make_unpack_to_memory(0, num_actions), num_actions
    else:
        scalar_act = head(outputs, True) if masked else head(outputs)
    act, no_value = specialise(scalar_act, np.float32), np.float32(0)
    has_value, is_separate = policy.value != "none", policy.value == "separate"
    scratch_rows = _make_scratch_rows(is_separate)
    numbers_behind_rows = ROWS_OF_STARTS * LANES + interface.num_rows + mask_size

    @inline
    def allocate(settings):
        return np.zeros(scratch_rows(settings).end * LANES + numbers_behind_rows, np.float32)

    @inline
    def choose(observations, i, constants, greedy, bits, keys, scratch, places):
        lane_outputs = load_outputs(scratch, places.lanes, places.outputs + i)
        value = get_output(scratch, places.values + i) if has_value else no_value
        uniforms = draw_uniforms(bits[0], bits[1], keys)
        if masked:
            mask = mask_of(load_mask(observations, i), scratch)
            action, log_prob = act(lane_outputs, uniforms, constants, greedy, mask)
        else:
            action, log_prob = act(lane_outputs, uniforms, constants, greedy)
        return action, log_prob, value

    prepare = _make_prepare(interface, is_separate, outputs, mask_size)
    # `log_std` holds the params of the head, where there is one.
    unpack = inline(lambda weights, log_std: read_constants(log_std))
    return Decide(unpack, allocate, prepare, choose)


def _make_load_mask(interface: Interface) -> Callable[..., Any]:
    """Make an inlinable (observations, i) -> tuple of the rows of lane i's action mask."""
    first, number_at = interface.mask_row, make_number_at(interface.in_rows)
    load = load_rows(mask_rows(interface.num_actions), "observations")
    stride = LANES if interface.in_rows else 1
    return inline(
        lambda observations, i: load(observations, stride, number_at(observations, first, i))
    )


@functools.cache
def _make_prepare(
    interface: Interface, is_separate: bool, outputs: int, mask_size: int
) -> Callable[..., Any]:
    """Make `prepare` of `Decide`, which runs the networks of a block.

    Args:
        interface: of the environment.
        is_separate: whether values come from a network of their own.
        outputs: how many the policy's network has, without a value.
        mask_size: numbers at the end of scratch which belong to `choose`.
    """
    write_inputs = _make_write_inputs(interface, is_separate, mask_size)
    scratch_rows, get_word = _make_scratch_rows(is_separate), row_access("words")[0]

    @inline_source
    def prepare(observations, words, policy, count, block, scratch):
        """Write the inputs of lanes, run the networks, and return where outputs are."""
        settings = policy.settings
        lanes = 1 if count == 1 else _rounded_up(count)
        rows = scratch_rows(settings)
        written = write_inputs(observations, policy, lanes, count, scratch)
        numbers, ints = address(scratch), address(scratch.view(np.int32))
        begins, memory = shifted(numbers, rows.begins * LANES), numbers
        state_size = settings[STATE_SIZE]
        if state_size > 0:  # a network with memory
            memory = pointer_to(settings[MEMORY], np.float32(0))
            memory = shifted(memory, block * LANES * state_size)
            for i in range(count):
                is_first_step = get_word(words, ELAPSED * LANES + i) == np.uint32(0)
                begins[i] = np.float32(is_first_step)
        tile = Tile(
            job=settings[NETWORK],
            inputs=numbers,
            row=written.row,
            outputs=shifted(numbers, rows.outputs * LANES),
            units=shifted(numbers, rows.units * LANES),
            lanes=lanes,
            samples=count,
            few=written.are_few,
            starts=shifted(ints, written.starts),
            columns=ints,
            memory=memory,
            stride=state_size,
            begins=begins,
        )
        run_network(tile)
        if not is_separate:
            values = rows.outputs * LANES + outputs * lanes  # the last output of the network
            return OutputPlaces(lanes, rows.outputs * LANES, values)
        values, state_of_policy = rows.values * LANES, job_at(settings[NETWORK]).state_size
        run_network(
            Tile(
                settings[VALUE_NETWORK], tile.inputs, tile.row, shifted(numbers, values),
                tile.units, tile.lanes, tile.samples, tile.few, tile.starts, tile.columns,
                shifted(memory, state_of_policy), tile.stride, tile.begins,
            )
        )  # fmt: skip
        return OutputPlaces(lanes, rows.outputs * LANES, values)

    return prepare


class Inputs(NamedTuple):
    """How `write_inputs` wrote the inputs of networks, see `_make_write_inputs`."""

    #: True if they are listed: inputs that are one as int32, in the place of the inputs, lane after
    #: lane.
    are_few: Any
    #: If they are, from here on in scratch are int32 that say where each lane begins in the list.
    starts: Any
    #: That of `rlcpu.nn.acting.Tile`.
    row: Any


def _make_write_inputs(
    interface: Interface, is_separate: bool, mask_size: int
) -> Callable[..., Any]:
    """Make the function that writes a block's observations into the inputs of networks.

    It is (observations, policy, lanes, count, scratch) -> `Inputs`. Inputs are the first rows of
    scratch, and normalised. If inputs are zeros and ones, few of them ones, it may list the ones
    instead.
    """
    if interface.kind == "group":
        return _make_write_group(interface, mask_size)
    if interface.kind != "floats":
        return _make_write_ones(interface, is_separate, mask_size)
    get, set_ = row_access(ANY)[0], row_access("target")[1]

    @inline_source
    def write_floats(observations, policy, lanes, count, scratch):
        mean, scale = policy.mean, policy.scale
        for k in range(mean.size):
            for i in range(lanes):
                x = get(observations, k * LANES + i)
                set_(scratch, k * lanes + i, normalised(x, mean[k], scale[k]))
        return Inputs(False, 0, mean.size if lanes == 1 else 0)

    @inline_source
    def write_arrays(observations, policy, lanes, count, scratch):
        mean, scale = policy.mean, policy.scale
        for i in range(count):
            begin = i * (observations.size // LANES)
            for k in range(mean.size):
                x = get(observations, begin + k)
                set_(scratch, i * mean.size + k, normalised(x, mean[k], scale[k]))
        return Inputs(False, 0, mean.size)

    return write_floats if interface.in_rows else write_arrays


def _make_write_group(interface: Interface, mask_size: int) -> Callable[..., Any]:
    """Make `write_inputs` of an observation of several parts.

    Parts have numbers of several dtypes, side by side: each lane's observation is gathered near the
    end of scratch, in front of `mask_size` numbers, and goes from there to the inputs.
    """
    normalise, place = _make_normalise_group(interface), make_number_at(interface.in_rows)
    size = interface.num_rows

    @inline_source
    def write_group(observations, policy, lanes, count, scratch):
        begin = scratch.size - mask_size - size
        rows = scratch[begin : begin + size]
        for i in range(count):
            for k in range(size):
                rows[k] = observations[place(observations, k, i)]
            normalise(rows, policy.mean, policy.scale, scratch, i)
        return Inputs(False, 0, policy.mean.size)

    return write_group


def _make_write_ones(interface: Interface, is_separate: bool, mask_size: int) -> Callable[..., Any]:
    """Make `write_inputs` of a choice or of planes, whose inputs are zeros and ones.

    If the networks take lists of ones, the observations are not normalised, and at most the
    fraction `MANY_ONES` of the inputs is one, it lists the ones and writes no inputs. The starts of
    the lanes in the list are at the end of scratch, in front of `mask_size` numbers.
    """
    list_ones: Any = _make_list_ones(interface)
    normalise: Any = _make_normalise_ones(interface)

    @inline_source
    def write_ones(observations, policy, lanes, count, scratch):
        """Write the places of ones, or all inputs where there are too many."""
        job, are_few = job_at(policy.settings[NETWORK]), False
        inputs, starts_end = job.size, scratch.size - mask_size
        starts_begin = starts_end - ROWS_OF_STARTS * LANES
        starts = scratch[starts_begin:starts_end].view(np.int32)
        columns = scratch[: inputs * lanes].view(np.int32)  # in the place of the inputs
        takes_ones = job.takes_ones
        if is_separate:
            takes_ones &= job_at(policy.settings[VALUE_NETWORK]).takes_ones
        if takes_ones != 0 and is_plain_scale(policy.mean, policy.scale):
            most = np.int64(MANY_ONES * inputs * lanes)
            num_ones = list_ones(observations, lanes, count, inputs, starts, columns, most)
            are_few = num_ones <= most
        if not are_few:
            normalise(observations, lanes, scratch, policy.mean, policy.scale)
        return Inputs(are_few, starts_begin, inputs if lanes == 1 else 0)

    return write_ones


class ScratchRows(NamedTuple):
    """First rows, of LANES numbers, of parts of scratch memory; the inputs are from row 0 on."""

    outputs: Any
    #: Outputs of a value network of its own.
    values: Any
    #: Memory of the networks' hidden layers.
    units: Any
    #: 1 for each lane whose episode begins.
    begins: Any
    end: Any


@functools.cache
def _make_scratch_rows(is_separate: bool) -> Callable[..., Any]:
    """Make an inlinable function: settings of a `KernelPolicy` -> `ScratchRows`.

    `is_separate` tells whether values come from a network of their own. Outputs have `UNIT` rows
    more than they need, see `rlcpu.nn.acting.Tile`.
    """

    @inline
    def scratch_rows(settings):
        job = job_at(settings[NETWORK])
        outputs, num_units = _rounded_up(job.size), job.units
        values = units = outputs + _rounded_up(job.output_size + UNIT)
        if is_separate:
            units = values + 2 * UNIT  # one output, rounded up
            num_units = max(num_units, job_at(settings[VALUE_NETWORK]).units)
        begins = units + num_units
        return ScratchRows(outputs, values, units, begins, begins + 1)

    return scratch_rows


@inline
def _rounded_up(count):
    """Return the next multiple of `UNIT`."""
    return (count + UNIT - 1) // UNIT * UNIT


@inline
def is_plain_scale(mean, scale):
    """Tell whether `normalised` changes nothing: all means are 0 and all scales are 1."""
    same = True
    for k in range(mean.size):
        same &= (mean[k] == np.float32(0)) & (scale[k] == np.float32(1))
    return same


def _make_list_ones(interface: Interface) -> Callable[..., Any]:
    """Make the function that lists which inputs are one, of a choice or of planes.

    It is (observations, lanes, count, inputs, starts, columns, most) -> number of ones, of `lanes`
    lanes, of which the first `count` count; an observation has `inputs` inputs. It writes the
    inputs that are one to `columns`, lane after lane, and to `starts`, (lanes + 1,), where each
    lane begins there. It stops at more than `most` ones.
    """
    num_planes, lowest, place = (
        interface.num_planes,
        interface.lowest,
        make_number_at(interface.in_rows),
    )

    @inline
    def list_choices(observations, lanes, count, inputs, starts, columns, most):
        """Write the input of each lane that stands for its choice."""
        choices, num_ones = observations.view(np.int32), 0
        for i in range(lanes):
            starts[i] = num_ones
            choice = choices[place(observations, 0, i)] - lowest
            if i < count and 0 <= choice < inputs:
                columns[num_ones] = choice
                num_ones += 1
        starts[lanes] = num_ones
        return num_ones

    @inline
    def list_cells(observations, lanes, count, inputs, starts, columns, most):
        """Write the cells of each lane's planes that are set."""
        words, num_ones = observations.view(np.uint32), 0
        for i in range(lanes):
            starts[i] = num_ones
            if i < count and num_ones <= most:
                first, second = place(observations, 0, i), place(observations, 1, i)
                num_ones = append_cells(
                    words, first, second - first, num_planes, inputs // num_planes, columns,
                    num_ones,
                )  # fmt: skip
        starts[lanes] = num_ones
        return num_ones

    return list_cells if num_planes else list_choices


@inline
def normalised(x, mean, scale):
    """Return a number of an observation as networks get it: shifted, scaled, clipped; float32."""
    return min(max((np.float32(x) - mean) * scale, _LOW), _HIGH)


def _make_normalise_ones(interface: Interface) -> Callable[..., Any]:
    """Make the inlinable function that writes the inputs of a choice or of planes.

    It is (observations, lanes, inputs, mean, scale): it writes the normalised zeros and ones of all
    lanes to `inputs`, one row of `lanes` numbers for each choice or cell. `mean` and `scale` have a
    number for each input.
    """
    zero, one, place = np.float32(0), np.float32(1), make_number_at(interface.in_rows)
    num_planes, lowest = interface.num_planes, interface.lowest

    @inline
    def normalise_choice(observations, lanes, inputs, mean, scale):
        """Write, for each value of the choice, a row with one in the lanes that have it."""
        choices = observations.view(np.int32)
        for k in range(mean.size):
            off, on = normalised(zero, mean[k], scale[k]), normalised(one, mean[k], scale[k])
            row = inputs[k * lanes : (k + 1) * lanes]
            for i in range(row.size):
                row[i] = on if choices[place(observations, 0, i)] - lowest == k else off

    @inline
    def normalise_planes(observations, lanes, inputs, mean, scale):
        """Write, for each cell, a row with one in the lanes where the cell is set."""
        words, cells = observations.view(np.uint32), mean.size // num_planes
        for k in range(mean.size):
            off, on = normalised(zero, mean[k], scale[k]), normalised(one, mean[k], scale[k])
            cell = k % cells
            # A plane is a `Board`: 4 words of 32 bits.
            number, row = k // cells * 4 + cell // 32, inputs[k * lanes : (k + 1) * lanes]
            bit = np.uint32(1 << (cell % 32))
            for i in range(row.size):
                row[i] = on if words[place(observations, number, i)] & bit != 0 else off

    return normalise_planes if num_planes else normalise_choice


def _make_normalise_group(interface: Interface) -> Callable[..., Any]:
    """Make the function (rows, mean, scale, inputs, i) that writes the inputs of lane i.

    `rows` are the numbers of its observation, side by side: for each part it calls a function.
    """
    lines, functions, first_input = ["def normalise(rows, mean, scale, inputs, i):"], {}, 0
    for k, part in enumerate(interface.parts):
        functions[f"normalise{k}"] = _make_normalise_part(part, first_input)
        lines.append(f"    normalise{k}(rows, mean, scale, inputs, i)")
        first_input += part.view.num_inputs
    return inline(define("\n".join(lines), **functions))


def _make_normalise_part(part: GroupPart, first_input: int) -> Callable[..., Any]:
    """Make a function (rows, mean, scale, inputs, i): one part's inputs of lane i.

    Args:
        part: of a group, whose memory `rows` is.
        first_input: the input that is the part's first one.
    """
    view, begin, count, single = part.view, part.begin, part.view.num_inputs, np.float32

    @inline
    def put_input(x, mean, scale, inputs, i, k):
        """Write x as input k of the part."""
        column = first_input + k
        inputs[i * mean.size + column] = normalised(x, mean[column], scale[column])

    if view.kind in ("floats", "numbers"):
        number_type: Any = np.float32 if view.kind == "floats" else np.dtype(view.form).type
        like = number_type(0)

        @outline
        def normalise_numbers(rows, mean, scale, inputs, i):
            numbers = array_at(place_of(rows, 0) + begin, (count,), like)
            for k in range(count):
                put_input(single(numbers[k]), mean, scale, inputs, i, k)

        return normalise_numbers
    if view.kind == "planes":
        num_words, cells = 4 * view.size[0], math.prod(view.size[1:])
        like_word = np.uint32(0)

        @outline
        def normalise_planes(rows, mean, scale, inputs, i):
            words = array_at(place_of(rows, 0) + begin, (num_words,), like_word)
            for k in range(count):
                cell = k % cells
                word = words[k // cells * 4 + cell // 32]  # 4 words of 32 bits are a plane
                bits = word >> np.uint32(cell % 32)
                put_input(single(bits & np.uint32(1)), mean, scale, inputs, i, k)

        return normalise_planes
    sizes, starts, like_choice = np.array(view.size), np.array(view.start), np.int32(0)
    num_choices, zero, one = len(view.size), np.float32(0), np.float32(1)

    @outline
    def normalise_choices(rows, mean, scale, inputs, i):
        choices = array_at(place_of(rows, 0) + begin, (num_choices,), like_choice)
        first = 0
        for n in range(num_choices):
            for k in range(sizes[n]):
                x = one if choices[n] - starts[n] == k else zero
                put_input(x, mean, scale, inputs, i, first + k)
            first += sizes[n]

    return normalise_choices


# ---------------------------------------------------------------- actions


@functools.cache
def make_to_env_action(size: int, is_whole: bool, dtype: type) -> Any:
    """Make an inlinable function (action, bounds) -> the action as the environment's step takes it.

    The policy's numbers are clipped to their bounds, (2 * size,), and converted to the
    environment's dtype; whole numbers are converted to int32.

    Args:
        size: numbers of an action, which is a tuple; 0 of an action that is one whole number.
        is_whole: whether they are whole numbers.
        dtype: of the environment's floats.
    """
    if size == 0:
        return inline(lambda action, bounds: np.int32(action))
    if is_whole:
        whole = "".join(f"whole(action[{k}]), " for k in range(size))
        return inline(define(f"def to_int32(action, bounds): return ({whole})", whole=np.int32))
    items = "".join(
        f"real(min(max(single(action[{k}]), bounds[{k}]), bounds[{size + k}])), "
        for k in range(size)
    )
    source = f"def clip(action, bounds): return ({items})"
    return inline(define(source, real=dtype, single=np.float32))


def _make_to_float32(count: int) -> Callable[..., Any]:
    """Make an inlinable function: tuple of `count` numbers -> the same numbers in float32."""
    items = "".join(f"single(values[{k}]), " for k in range(count))
    return inline(define(f"def to_float32(values): return ({items})", single=np.float32))
