"""The functions by which a policy chooses the actions of a block inside a rollout's kernel.

A block is `LANES` environments, of which lane i is the i-th; the last block of all has fewer in
use, `count`. A policy is a scalar function, which is called for one lane after the other, or a
network, which runs for a whole block at once: `prepare` writes the observations of all lanes into
its inputs, runs it, and leaves its outputs in scratch memory, from which `choose` draws the action
of each lane.

Inputs and outputs of networks are rows of `lanes` numbers, `count` rounded up to a multiple of 16
(or 1): input k of lane i is at `k * lanes + i`. They are float32 and normalised, see `normalised`.
Where `observe` writes an array, and of groups, each lane has a row of inputs instead.
Where they are zeros and ones, mostly zeros, networks take lists of the ones in their place.

The functions that are made here are inlined into kernels. `env` is a `Structure`, `dtype` that of
the environment's floats; `rows` are the float32 rows of an observation, a tuple or an array, in
which choices and planes are kept by their bits, as int32 and uint32.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.lane import ELAPSED, LANES, Structure, compile_lane
from rlcpu.envs.engine.layout import make_decode
from rlcpu.envs.engine.masks import make_unpack, make_unpack_to_memory
from rlcpu.envs.engine.observations import GroupPart
from rlcpu.envs.engine.record import make_record_access
from rlcpu.envs.policies import MEMORY, NETWORK, STATE_SIZE, VALUE_NETWORK, PolicyCode
from rlcpu.kernels.boards import append_cells
from rlcpu.kernels.compile import define, inline, inline_source, outline, specialise, tuple_of
from rlcpu.kernels.matmul import MANY_ONES
from rlcpu.kernels.memory import address, array_at, place_of, pointer_to, shifted
from rlcpu.kernels.random import uniforms
from rlcpu.kernels.rows import ANY, load_rows, row_access, store_rows
from rlcpu.nn.acting import Tile, job_at, run_network
from rlcpu.nn.heads import UNROLLED, act_categorical, act_gaussian
from rlcpu.nn.network import CLIP

_LOW, _HIGH = np.float32(-CLIP), np.float32(CLIP)
#: Rows of scratch memory for the int32 that say where each lane's ones begin, one more than lanes.
ROWS_OF_STARTS = 2


class Decide(NamedTuple):
    """Inlinable functions of one policy for one environment.

    `policy` is a `KernelPolicy`: its weights, settings, and the mean and scale of normalisation.

    Attributes:
        unpack: (weights, log_std) -> constants, what `choose` needs of the policy's parameters.
        allocate: (settings,) -> scratch, the float32 memory of a block.
        prepare: (state, words, params, policy, count, block, scratch) -> places, once for each step
            of a block. It runs the networks for the first `count` lanes of block number `block`,
            and returns where in scratch their outputs are. `state` and `words` are the block's
            memory, see `rlcpu.envs.engine.lane`.
        choose: (rows, constants, greedy, bits, scratch, places, i) -> (action, log_prob, value) of
            lane i, from the rows of its observation and two words of random bits.
    """

    unpack: Callable[..., Any]
    allocate: Callable[..., Any]
    prepare: Callable[..., Any]
    choose: Callable[..., Any]


@functools.cache
def make_decide(env: Structure, dtype: type, policy: PolicyCode) -> Decide:
    """Make the functions of a policy for an environment; policies compute in float32."""
    draws = uniforms(policy.draws, env.num_draws, np.float32)
    if policy.act is not None:
        return _decide_by_function(env, policy, draws)
    return _decide_by_network(env, dtype, policy, draws)


def _decide_by_function(env: Structure, policy: PolicyCode, draws: Callable[..., Any]) -> Decide:
    """Make the functions of a policy that is a scalar function: it needs no scratch memory.

    Args:
        env: the environment.
        policy: with the function, `act`.
        draws: (a, b) -> its random numbers, from the two words of random bits of a step.
    """
    assert policy.act is not None
    act = specialise(policy.act, np.float32, arrays=env.observation.is_record)
    to_observation = _make_to_observation(env)
    read_params = tuple_of(policy.params_type, policy.num_params)

    @inline
    def allocate(settings):
        return np.empty(0, np.float32)

    @inline
    def prepare(state, words, params, policy, count, block, scratch):
        return 0, 0, 0

    masked, unpack_mask = policy.masked, make_unpack(env.observation_rows, env.num_actions)

    @inline
    def choose(rows, constants, greedy, bits, scratch, places, i):
        observation, uniforms = to_observation(rows), draws(bits[0], bits[1])
        if masked:
            return act(observation, constants, uniforms, unpack_mask(rows))
        return act(observation, constants, uniforms)

    unpack = inline(lambda weights, log_std: read_params(weights))
    return Decide(unpack, allocate, prepare, choose)


def _make_to_observation(env: Structure) -> Callable[..., Any]:
    """Make an inlinable function: rows -> the observation as a scalar policy gets it.

    That is the value that `observe` returns, or an array or record over the memory that it wrote.
    """
    size, shape, zero = env.observation_rows, env.written_shape, np.float32(0)
    if env.observation.is_record:
        record_at, _ = make_record_access(env.observation, np.float32)
        if env.is_int_array:
            # An array of whole numbers is in memory as a record of one field, "image".
            return inline(lambda rows: record_at(rows, 0).image)
        return inline(lambda rows: record_at(rows, 0))
    if shape:
        return inline(lambda rows: array_at(place_of(rows, 0), shape, zero))
    if env.observation.is_plain:
        return _make_to_float32(size)
    return make_decode(env.observation, np.float32)  # returns a choice, planes or a group


@functools.cache
def make_load_observation(env: Structure) -> Callable[..., Any]:
    """Make an inlinable function (observations, i) -> the rows of environment i.

    `observations` is flat float32 memory, one environment's rows after the other's. The rows are
    returned as a tuple, or as an array where `observe` writes into one.
    """
    size, zero = env.shown_rows, np.float32(0)
    if env.writes_observation:  # not a slice, of whose owner numba would count references
        return inline(lambda rows, i: array_at(place_of(rows, i * size), (size,), zero))
    load = load_rows(size, ANY)
    return inline(lambda rows, i: load(rows, 1, i * size))


def _make_observe_lane(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (state, params, i) -> the rows of lane i's observation.

    `state` is a block's memory; where states have arrays, it is the memory of the block's
    observations, which were written before, as `make_load_observation` reads it.
    """
    if env.state.is_record:
        load_observation = make_load_observation(env)
        return inline(lambda observations, params, i: load_observation(observations, i))
    lane = compile_lane(env, dtype)
    load, observe, params_of_lane = lane.load, lane.observe, lane.params_of_lane
    return inline(
        lambda state, params, i: observe(load(state, LANES, i), params_of_lane(params, state, i))
    )


def _decide_by_network(
    env: Structure, dtype: type, policy: PolicyCode, draws: Callable[..., Any]
) -> Decide:
    """Make the functions of a policy whose networks run for a block of lanes at once.

    Scratch memory has the rows that `_make_scratch_rows` names, then extra rows for observations,
    see `_make_write_ones` and `_make_write_group`, and last a number for each action where masks
    are unpacked to memory.

    Args:
        env: the environment.
        dtype: of its floats.
        policy: with `head`, which makes the function that draws an action from outputs.
        draws: (a, b) -> its random numbers, from the two words of random bits of a step.
    """
    head: Any = policy.head or (act_categorical if env.num_actions else act_gaussian)
    # As many as the policy says, else a mean for each number of an action, or a logit for each.
    outputs = policy.outputs or env.action_size or env.num_actions
    # Constants are a plain tuple: params of the head, or logarithms of deviations.
    read_constants = tuple_of(None, policy.num_params if policy.head else env.action_size)
    load_outputs, get_output = load_rows(outputs, "outputs"), row_access("outputs")[0]
    masked, unpack_mask = policy.masked, make_unpack(env.observation_rows, env.num_actions)
    mask_of, mask_size = inline(lambda rows, scratch: unpack_mask(rows)), 0
    if env.num_actions > UNROLLED and "loops" in inspect.signature(head).parameters:
        # Of many actions, outputs and mask are arrays, over which the head has loops.
        scalar_act = head(outputs, masked, loops=True)
        load_outputs = inline(
            lambda scratch, lanes, first: scratch[first : first + outputs * lanes : lanes]
        )
        if masked:
            mask_of = make_unpack_to_memory(env.observation_rows, env.num_actions)
            mask_size = env.num_actions
    else:
        scalar_act = head(outputs, True) if masked else head(outputs)
    act = specialise(scalar_act, np.float32)
    has_value, no_value = policy.value != "none", np.float32(0)
    is_separate = policy.value == "separate"
    scratch_rows = _make_scratch_rows(is_separate)
    # Choices, planes and groups are kept for a whole block before inputs are made of them.
    keeps_rows = not (env.observation.is_plain or env.writes_observation)
    extra_rows = env.observation_rows + ROWS_OF_STARTS if keeps_rows else 0

    @inline
    def allocate(settings):
        return np.zeros((scratch_rows(settings)[3] + extra_rows) * LANES + mask_size, np.float32)

    @inline
    def choose(rows, constants, greedy, bits, scratch, places, i):
        lanes, first_output, value_row = places
        lane_outputs = load_outputs(scratch, lanes, first_output + i)
        value = get_output(scratch, value_row + i) if has_value else no_value
        uniforms = draws(bits[0], bits[1])
        if masked:
            mask = mask_of(rows, scratch)
            action, log_prob = act(lane_outputs, uniforms, constants, greedy, mask)
        else:
            action, log_prob = act(lane_outputs, uniforms, constants, greedy)
        return action, log_prob, value

    prepare = _make_prepare(env, dtype, is_separate, outputs, mask_size)
    # `log_std` holds the params of the head, where there is one.
    unpack = inline(lambda weights, log_std: read_constants(log_std))
    return Decide(unpack, allocate, prepare, choose)


@functools.cache
def _make_prepare(
    env: Structure, dtype: type, is_separate: bool, outputs: int, mask_size: int
) -> Callable[..., Any]:
    """Make `prepare` of `Decide`, which runs the networks of a block.

    It returns the places of outputs in scratch: (lanes, first output, value row); output k of lane
    i is at `first output + k * lanes + i`, its value at `value row + i`.

    Args:
        env: the environment.
        dtype: of its floats.
        is_separate: whether values come from a network of their own.
        outputs: how many the policy's network has, without a value.
        mask_size: numbers at the end of scratch which belong to `choose`.
    """
    write_inputs = _make_write_inputs(env, dtype, is_separate, mask_size)
    scratch_rows, get_word = _make_scratch_rows(is_separate), row_access("words")[0]

    @inline_source
    def prepare(state, words, params, policy, count, block, scratch):
        """Write the inputs of lanes, run the networks, and return where outputs are."""
        settings = policy.settings
        job, lanes = job_at(settings[NETWORK]), 1 if count == 1 else (count + 15) // 16 * 16
        first, first_value, units, end = scratch_rows(settings)
        has_few_ones, starts, row = write_inputs(state, params, policy, lanes, count, scratch)
        inputs, ints = address(scratch), address(scratch.view(np.int32))
        is_first_step, memory = shifted(inputs, (end - 1) * LANES), inputs
        state_size = settings[STATE_SIZE]
        if state_size > 0:  # a network with memory
            memory = pointer_to(settings[MEMORY], np.float32(0))
            memory = shifted(memory, block * LANES * state_size)
            for i in range(count):
                begins = get_word(words, ELAPSED * LANES + i) == np.uint32(0)
                scratch[(end - 1) * LANES + i] = np.float32(begins)
        tile = Tile(
            settings[NETWORK], inputs, row, shifted(inputs, first * LANES),
            shifted(inputs, units * LANES), lanes, count, has_few_ones, shifted(ints, starts), ints,
            memory, state_size, is_first_step,
        )  # fmt: skip
        run_network(tile)
        value_row = first * LANES + outputs * lanes
        if is_separate:
            run_network(
                Tile(
                    settings[VALUE_NETWORK], inputs, row, shifted(inputs, first_value * LANES),
                    tile.units, lanes, count, has_few_ones, tile.starts, ints,
                    shifted(memory, job.state_size), state_size, is_first_step,
                )
            )  # fmt: skip
            value_row = first_value * LANES
        return lanes, first * LANES, value_row

    return prepare


def _make_write_inputs(
    env: Structure, dtype: type, is_separate: bool, mask_size: int
) -> Callable[..., Any]:
    """Make the function that writes a block's observations into the inputs of networks.

    It is (state, params, policy, lanes, count, scratch) -> (has_few_ones, starts, row). Inputs are
    the first rows of scratch, and normalised; `row` is that of `rlcpu.nn.acting.Tile`. If inputs
    are zeros and ones, few of them ones, it may write the places of the ones instead: then
    `has_few_ones` is True, the inputs that are one are int32 in the place of the inputs, lane after
    lane, and from `starts` on in scratch are int32 that say where each lane begins among them.
    """
    observe_lane, normalise = _make_observe_lane(env, dtype), _make_normalise(env)
    if env.writes_observation:  # an array of floats, or a group

        @inline_source
        def write_array(state, params, policy, lanes, count, scratch):
            for i in range(count):
                rows = observe_lane(state, params, i)
                normalise(rows, policy.mean, policy.scale, scratch, i)
            return False, 0, policy.mean.size

        return write_array
    if env.group_parts:
        return _make_write_group(env, dtype, mask_size)
    if not env.observation.is_plain:
        return _make_write_ones(env, dtype, is_separate, mask_size)
    size = env.observation_rows
    to_tuple, put = tuple_of(None, size), store_rows(size, "observations")

    @inline_source
    def write_tuple(state, params, policy, lanes, count, scratch):
        mean, scale = to_tuple(policy.mean), to_tuple(policy.scale)
        for i in range(lanes):
            put(scratch, lanes, i, normalise(observe_lane(state, params, i), mean, scale))
        return False, 0, size if lanes == 1 else 0

    return write_tuple


def _make_write_group(env: Structure, dtype: type, mask_size: int) -> Callable[..., Any]:
    """Make `write_inputs` of an observation of several parts, which `observe` returns.

    Each lane's observation goes to the end of scratch, in front of `mask_size` numbers, and from
    there to the inputs.
    """
    observe_lane, normalise = _make_observe_lane(env, dtype), _make_normalise(env)
    size = env.observation_rows
    put = store_rows(size, "observations")

    @inline_source
    def write_group(state, params, policy, lanes, count, scratch):
        begin = scratch.size - mask_size - size
        rows = scratch[begin : begin + size]
        for i in range(count):
            put(rows, 1, 0, observe_lane(state, params, i))
            normalise(rows, policy.mean, policy.scale, scratch, i)
        return False, 0, policy.mean.size

    return write_group


def _make_write_ones(
    env: Structure, dtype: type, is_separate: bool, mask_size: int
) -> Callable[..., Any]:
    """Make `write_inputs` of a choice or of planes, whose inputs are zeros and ones.

    If the networks take lists of ones, the observations are not normalised, and at most the
    fraction `MANY_ONES` of the inputs is one, it lists the ones and writes no inputs. The block's
    observations go to the end of scratch, in front of `mask_size` numbers; the starts of the lanes
    in the list are in front of them.
    """
    observe_lane, normalise = _make_observe_lane(env, dtype), _make_normalise(env)
    list_ones: Any = _make_list_ones(env)
    size = env.observation_rows
    put = store_rows(size, "observations")

    @inline_source
    def write_ones(state, params, policy, lanes, count, scratch):
        """Write the places of ones, or all inputs where there are too many."""
        job, has_few_ones = job_at(policy.settings[NETWORK]), False
        inputs, rows_begin = job.size, scratch.size - mask_size - size * LANES
        starts_begin = rows_begin - ROWS_OF_STARTS * LANES
        rows = scratch[rows_begin : rows_begin + size * LANES]
        starts = scratch[starts_begin:rows_begin].view(np.int32)
        columns = scratch[: inputs * lanes].view(np.int32)  # in the place of the inputs
        for i in range(lanes):
            put(rows, lanes, i, observe_lane(state, params, i))
        takes_ones = job.takes_ones
        if is_separate:
            takes_ones &= job_at(policy.settings[VALUE_NETWORK]).takes_ones
        if takes_ones != 0 and is_plain_scale(policy.mean, policy.scale):
            most = np.int64(MANY_ONES * inputs * lanes)
            has_few_ones = list_ones(rows, lanes, count, inputs, starts, columns, most) <= most
        if not has_few_ones:
            normalise(rows, lanes, scratch, policy.mean, policy.scale)
        return has_few_ones, starts_begin, inputs if lanes == 1 else 0

    return write_ones


@functools.cache
def _make_scratch_rows(is_separate: bool) -> Callable[..., Any]:
    """Make an inlinable function: settings -> (outputs, values, units, end), rows of scratch.

    Scratch memory has rows of LANES numbers: the inputs of the networks, from row 0 on, the
    outputs, the values of a network of their own, the units of hidden layers, and a last row with 1
    for each lane whose episode begins; there are `end` rows. `settings` are a `KernelPolicy`'s.
    """

    @inline
    def scratch_rows(settings):
        job = job_at(settings[NETWORK])
        outputs = (job.size + 15) // 16 * 16
        values = outputs + (job.output_size + 31) // 16 * 16
        units_begin, units = values, job.units
        if is_separate:
            units_begin, units = values + 32, max(units, job_at(settings[VALUE_NETWORK]).units)
        return outputs, values, units_begin, units_begin + units + 1

    return scratch_rows


@inline
def is_plain_scale(mean, scale):
    """Tell whether `normalised` changes nothing: all means are 0 and all scales are 1."""
    same = True
    for k in range(mean.size):
        same &= (mean[k] == np.float32(0)) & (scale[k] == np.float32(1))
    return same


def _make_list_ones(env: Structure) -> Callable[..., Any]:
    """Make the function that lists which inputs are one, of a choice or of planes.

    It is (rows, lanes, count, inputs, starts, columns, most) -> number of ones. `rows` are the
    observations of `lanes` lanes, of which the first `count` count; an observation has `inputs`
    inputs. It writes the inputs that are one to `columns`, lane after lane, and to `starts`,
    (lanes + 1,), where each lane begins there. It stops at more than `most` ones.
    """
    num_planes = env.observation.fields[0].size
    lowest = sum(env.choice_starts)  # of the one choice; planes have none

    @inline
    def list_choices(rows, lanes, count, inputs, starts, columns, most):
        """Write the input of each lane that stands for its choice."""
        choices, num_ones = rows.view(np.int32), 0
        for i in range(lanes):
            starts[i] = num_ones
            if i < count and 0 <= choices[i] - lowest < inputs:
                columns[num_ones] = choices[i] - lowest
                num_ones += 1
        starts[lanes] = num_ones
        return num_ones

    @inline
    def list_cells(rows, lanes, count, inputs, starts, columns, most):
        """Write the cells of each lane's planes that are set."""
        words, num_ones = rows.view(np.uint32), 0
        for i in range(lanes):
            starts[i] = num_ones
            if i < count and num_ones <= most:
                num_ones = append_cells(
                    words, i, lanes, num_planes, inputs // num_planes, columns, num_ones
                )
        starts[lanes] = num_ones
        return num_ones

    return list_cells if num_planes else list_choices


@inline
def normalised(x, mean, scale):
    """Return a number of an observation as networks get it: shifted, scaled, clipped; float32."""
    return min(max((np.float32(x) - mean) * scale, _LOW), _HIGH)


def _make_normalise(env: Structure) -> Callable[..., Any]:
    """Make the inlinable function that makes inputs of networks of an observation.

    What it takes depends on the kind of observation. `mean` and `scale` have a number for each
    input.

    - A tuple of floats: (numbers, mean, scale) -> tuple of inputs, of one lane.
    - A choice or planes: (rows, lanes, inputs, mean, scale) writes the zeros and ones of all lanes
      to `inputs`, one row of `lanes` numbers for each choice or cell.
    - An array that `observe` writes, and a group: (rows, mean, scale, inputs, i) writes row i of
      `inputs`, those of lane i.
    """
    if env.group_parts:
        return _make_normalise_group(env)
    if env.written_shape:

        @inline
        def normalise_array(numbers, mean, scale, inputs, i):
            row = array_at(place_of(inputs, i * mean.size), (mean.size,), _LOW)
            for k in range(mean.size):
                row[k] = normalised(numbers[k], mean[k], scale[k])

        return normalise_array
    if env.observation.is_plain:
        rows = range(env.observation_rows)
        items = "".join(f"normalised(numbers[{k}], mean[{k}], scale[{k}]), " for k in rows)
        source = f"def normalise(numbers, mean, scale): return ({items})"
        return inline(define(source, normalised=normalised))
    zero, one = np.float32(0), np.float32(1)
    lowest = sum(env.choice_starts)  # of the one choice; planes have none

    @inline
    def normalise_choice(rows, lanes, inputs, mean, scale):
        """Write, for each value of the choice, a row with one in the lanes that have it."""
        choices = rows.view(np.int32)
        for k in range(mean.size):
            off, on = normalised(zero, mean[k], scale[k]), normalised(one, mean[k], scale[k])
            row = inputs[k * lanes : (k + 1) * lanes]
            for i in range(row.size):
                row[i] = on if choices[i] - lowest == k else off

    num_planes = env.observation.fields[0].size  # 0 of a choice

    @inline
    def normalise_planes(rows, lanes, inputs, mean, scale):
        """Write, for each cell, a row with one in the lanes where the cell is set."""
        words, cells = rows.view(np.uint32), mean.size // num_planes
        for k in range(mean.size):
            off, on = normalised(zero, mean[k], scale[k]), normalised(one, mean[k], scale[k])
            cell = k % cells
            # A plane is a `Board`: 4 words of 32 bits.
            first = (k // cells * 4 + cell // 32) * lanes
            word, row = words[first : first + lanes], inputs[k * lanes : (k + 1) * lanes]
            bit = np.uint32(1 << (cell % 32))
            for i in range(row.size):
                row[i] = on if word[i] & bit != 0 else off

    return normalise_planes if num_planes else normalise_choice


def _make_normalise_group(env: Structure) -> Callable[..., Any]:
    """Make `_make_normalise`'s function of a group: it calls one for each part."""
    lines, functions, first_input = ["def normalise(rows, mean, scale, inputs, i):"], {}, 0
    for k, part in enumerate(env.group_parts):
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


def _make_to_float32(count: int) -> Callable[..., Any]:
    """Make an inlinable function: tuple of `count` numbers -> the same numbers in float32."""
    items = "".join(f"single(values[{k}]), " for k in range(count))
    return inline(define(f"def to_float32(values): return ({items})", single=np.float32))
