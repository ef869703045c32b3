"""How a policy chooses the action of one lane inside a fused rollout."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.lane import ELAPSED, LANES, Structure, compile_lane
from rlcpu.envs.engine.layout import make_decode
from rlcpu.envs.engine.masks import make_spread, make_unpack
from rlcpu.envs.engine.observations import GroupPart
from rlcpu.envs.engine.record import make_state_at
from rlcpu.envs.policies import MEMORY, NETWORK, STATE_SIZE, VALUE_NETWORK, PolicyCode
from rlcpu.kernels.boards import append_cells
from rlcpu.kernels.compile import define, inline, merge, outline, specialise, tuple_of
from rlcpu.kernels.matmul import MANY_ONES
from rlcpu.kernels.memory import address, array_at, place_of, pointer_to, shifted
from rlcpu.kernels.random import uniforms
from rlcpu.kernels.rows import ANY, load_rows, row_access, store_rows
from rlcpu.nn.acting import Tile, job_at, run_network
from rlcpu.nn.heads import UNROLLED, act_categorical, act_gaussian
from rlcpu.nn.network import CLIP

_LOW, _HIGH = np.float32(-CLIP), np.float32(CLIP)
#: Rows of scratch memory that hold where the ones of each lane begin.
STARTS = 2


class Decide(NamedTuple):
    """The functions of one policy for one environment.

    Attributes:
        unpack: (weights, log_std) -> constants of `choose`.
        scratch: settings -> arrays for `prepare`, made once a block.
        prepare: (state, words, params, policy, count, number, scratch) -> layout, once a step and
            block: runs the networks of the first `count` lanes of block `number`, and tells where
            in scratch their outputs are.
        choose: (observation, constants, greedy, bits, scratch, layout, i) -> (action, log_prob,
            value) of lane i.
    """

    unpack: Callable[..., Any]
    scratch: Callable[..., Any]
    prepare: Callable[..., Any]
    choose: Callable[..., Any]


@functools.cache
def make_decide(env: Structure, dtype: type, policy: PolicyCode) -> Decide:
    """Make a policy's functions; `dtype` is the environment's, policies compute in float32."""
    draws = uniforms(policy.draws, env.num_draws, np.float32)
    if policy.act is not None:
        return _decide_by_function(env, policy, draws)
    return _decide_by_network(env, dtype, policy, draws)


def _decide_by_function(env: Structure, policy: PolicyCode, draws: Callable[..., Any]) -> Decide:
    """Make the functions of a policy that is a scalar function: it needs no scratch memory."""
    assert policy.act is not None
    act = specialise(policy.act, np.float32, arrays=env.observation.is_record)
    to_inputs = _make_inputs(env)
    read_params = tuple_of(policy.params_type, policy.num_params)

    @inline
    def scratch(settings):
        return np.empty(0, np.float32)

    @inline
    def prepare(state, words, params, policy, count, number, scratch):
        return 0, 0, 0

    masked, unpack_mask = policy.masked, make_unpack(env.observation_rows, env.num_actions)

    @inline
    def choose(observation, constants, greedy, bits, scratch, layout, i):
        inputs, uniforms = to_inputs(observation), draws(bits[0], bits[1])
        if masked:
            return act(inputs, constants, uniforms, unpack_mask(observation))
        return act(inputs, constants, uniforms)

    unpack = inline(lambda weights, log_std: read_params(weights))
    return Decide(unpack, scratch, prepare, choose)


def _make_inputs(env: Structure) -> Callable[..., Any]:
    """Make an inlinable function: rows -> the observation that a scalar policy gets."""
    size, shape, blank = env.observation_rows, env.shape, np.float32(0)
    if env.observation.is_record:
        record_at, _ = make_state_at(env.observation, np.float32)
        if env.is_lone:
            return inline(lambda rows: record_at(rows, 0).image)
        return inline(lambda rows: record_at(rows, 0))
    if shape:
        return inline(lambda rows: array_at(place_of(rows, 0), shape, blank))
    return _singles(size) if env.observation.is_plain else make_decode(env.observation, np.float32)


@functools.cache
def make_take(env: Structure) -> Callable[..., Any]:
    """Make an inlinable function (rows, i) -> the observation of environment i, in flat memory.

    The observation's numbers are a tuple, or an array where `observe` writes into one.
    """
    size, blank = env.shown_rows, np.float32(0)
    if env.is_written:  # not a slice, whose owner would be counted
        return inline(lambda rows, i: array_at(place_of(rows, i * size), (size,), blank))
    load = load_rows(size, ANY)
    return inline(lambda rows, i: load(rows, 1, i * size))


def _make_read(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (state, params, i) -> rows that lane i of a block shows.

    With arrays in states, `state` is what `make_take` reads.
    """
    if env.state.is_record:
        take = make_take(env)
        return inline(lambda rows, params, i: take(rows, i))
    lane = compile_lane(env, dtype)
    load, observe, vary = lane.load, lane.observe, lane.vary
    return inline(lambda state, params, i: observe(load(state, LANES, i), vary(params, state, i)))


def _decide_by_network(
    env: Structure, dtype: type, policy: PolicyCode, draws: Callable[..., Any]
) -> Decide:
    """Make the functions of a policy whose networks run for a block of lanes at once.

    Its scratch memory has the rows of `_make_rows`, then what `_make_write_inputs` needs, and last
    a number for each action where masks are unpacked to memory.
    """
    head: Any = policy.head or (act_categorical if env.num_actions else act_gaussian)
    outputs = policy.outputs or env.action_size or env.num_actions
    read_constants = tuple_of(None, policy.num_params if policy.head else env.action_size)
    load_outputs, get_output = load_rows(outputs, "outputs"), row_access("outputs")[0]
    masked, unpack_mask = policy.masked, make_unpack(env.observation_rows, env.num_actions)
    mask_of, mask_size = inline(lambda observation, scratch: unpack_mask(observation)), 0
    if env.num_actions > UNROLLED and "loops" in inspect.signature(head).parameters:
        scalar_act = head(outputs, masked, loops=True)
        load_outputs = inline(
            lambda scratch, lanes, first: scratch[first : first + outputs * lanes : lanes]
        )
        if masked:
            mask_of = make_spread(env.observation_rows, env.num_actions)
            mask_size = env.num_actions
    else:
        scalar_act = head(outputs, True) if masked else head(outputs)
    act, has_value, no_value = (
        specialise(scalar_act, np.float32),
        policy.value != "none",
        np.float32(0),
    )
    is_separate = policy.value == "separate"
    rows_of = _make_rows(is_separate)
    extra_rows = 0 if env.observation.is_plain or env.is_written else env.observation_rows + STARTS

    @inline
    def scratch(settings):
        return np.zeros((rows_of(settings)[3] + extra_rows) * LANES + mask_size, np.float32)

    @inline
    def choose(observation, constants, greedy, bits, scratch, layout, i):
        lanes, first, value_row = layout
        lane_outputs = load_outputs(scratch, lanes, first + i)
        value = get_output(scratch, value_row + i) if has_value else no_value
        uniforms = draws(bits[0], bits[1])
        if masked:
            mask = mask_of(observation, scratch)
            action, log_prob = act(lane_outputs, uniforms, constants, greedy, mask)
        else:
            action, log_prob = act(lane_outputs, uniforms, constants, greedy)
        return action, log_prob, value

    prepare = _make_prepare(env, dtype, is_separate, outputs, mask_size)
    unpack = inline(lambda weights, log_std: read_constants(log_std))
    return Decide(unpack, scratch, prepare, choose)


@functools.cache
def _make_prepare(
    env: Structure, dtype: type, is_separate: bool, outputs: int, mask_size: int
) -> Callable[..., Any]:
    """Make the function `prepare` of `Decide`; its layout is (lanes, first output, value row).

    It runs a block of environments, number `number` of the batch, through the networks. Scratch has
    the inputs first, then the networks' units; in front of its end, for networks with memory, which
    lanes are at their first step. The last `mask_size` numbers belong to `choose`.
    """
    write_inputs = _make_write_inputs(env, dtype, is_separate, mask_size)
    rows_of, get_word = _make_rows(is_separate), row_access("words")[0]

    @merge
    def prepare(state, words, params, policy, count, number, scratch):
        """Write the inputs of lanes, run the networks, and return where outputs lie."""
        settings = policy.settings
        job, lanes = job_at(settings[NETWORK]), 1 if count == 1 else (count + 15) // 16 * 16
        first, first_value, units, end = rows_of(settings)
        has_few_ones, starts = write_inputs(state, params, policy, lanes, count, scratch)
        start, ints = address(scratch), address(scratch.view(np.int32))
        is_first_step, memory = shifted(start, (end - 1) * LANES), start
        state_size = settings[STATE_SIZE]
        if state_size > 0:
            memory = pointer_to(settings[MEMORY], np.float32(0))
            memory = shifted(memory, number * LANES * state_size)
            for i in range(count):
                begins = get_word(words, ELAPSED * LANES + i) == np.uint32(0)
                scratch[(end - 1) * LANES + i] = np.float32(begins)
        tile = Tile(
            settings[NETWORK], start, shifted(start, first * LANES), shifted(start, units * LANES),
            lanes, count, has_few_ones, shifted(ints, starts), ints,
            memory, state_size, is_first_step,
        )  # fmt: skip
        run_network(tile)
        value_row = first * LANES + outputs * lanes
        if is_separate:
            run_network(
                Tile(
                    settings[VALUE_NETWORK], start, shifted(start, first_value * LANES), tile.units,
                    lanes, count, has_few_ones, tile.starts, ints,
                    shifted(memory, job.state_size), state_size, is_first_step,
                )
            )  # fmt: skip
            value_row = first_value * LANES
        return lanes, first * LANES, value_row

    return prepare


def _make_write_inputs(
    env: Structure, dtype: type, is_separate: bool, mask_size: int
) -> Callable[..., Any]:
    """Make the step that writes a block's observations, normalised, to the inputs of networks.

    A function (state, params, policy, lanes, count, scratch) -> (has_few_ones, starts). Inputs are
    the first rows of scratch, one row of `lanes` numbers each. Where most inputs are zero, it
    writes instead which are one: `has_few_ones`, with the places of the ones in scratch, as int32,
    and those of the first one of each lane from `starts` on.
    """
    read, see = _make_read(env, dtype), _make_see(env, dtype)
    if env.is_written:  # also by a group

        @merge
        def write_array(state, params, policy, lanes, count, scratch):
            for i in range(lanes):
                see(read(state, params, i), policy.mean, policy.scale, scratch, lanes, i)
            return False, 0

        return write_array
    if env.parts:
        return _make_write_group(env, dtype, mask_size)
    if not env.observation.is_plain:
        return _make_write_ones(env, dtype, is_separate, mask_size)
    size = env.observation_rows
    to_tuple, put = tuple_of(None, size), store_rows(size, "observations")

    @merge
    def write_tuple(state, params, policy, lanes, count, scratch):
        mean, scale = to_tuple(policy.mean), to_tuple(policy.scale)
        for i in range(lanes):
            put(scratch, lanes, i, see(read(state, params, i), mean, scale))
        return False, 0

    return write_tuple


def _make_write_group(env: Structure, dtype: type, mask_size: int) -> Callable[..., Any]:
    """Make `write_inputs` of an observation of several parts, one lane after the other."""
    read, see, size = _make_read(env, dtype), _make_see(env, dtype), env.observation_rows
    put = store_rows(size, "observations")

    @merge
    def write_group(state, params, policy, lanes, count, scratch):
        begin = scratch.size - mask_size - size
        row = scratch[begin : begin + size]
        for i in range(lanes):
            put(row, 1, 0, read(state, params, i))
            see(row, policy.mean, policy.scale, scratch, lanes, i)
        return False, 0

    return write_group


def _make_write_ones(
    env: Structure, dtype: type, is_separate: bool, mask_size: int
) -> Callable[..., Any]:
    """Make `write_inputs` of a choice or of planes, whose inputs are zeros and ones.

    Where both networks take places of ones, and at most `MANY_ONES` of the inputs are one, it
    writes these places and no inputs.
    """
    read, see, size = _make_read(env, dtype), _make_see(env, dtype), env.observation_rows
    find: Any = _make_find(env)
    put = store_rows(size, "observations")

    @merge
    def write_ones(state, params, policy, lanes, count, scratch):
        """Write the places of ones, or all inputs where there are too many."""
        job, has_few_ones = job_at(policy.settings[NETWORK]), False
        inputs, rows_begin = job.size, scratch.size - mask_size - size * LANES
        starts_begin = rows_begin - STARTS * LANES
        rows = scratch[rows_begin : rows_begin + size * LANES]
        starts = scratch[starts_begin:rows_begin].view(np.int32)
        columns = scratch[: inputs * lanes].view(np.int32)  # in the place of the inputs
        for i in range(lanes):
            put(rows, lanes, i, read(state, params, i))
        takes_ones = job.takes_ones
        if is_separate:
            takes_ones &= job_at(policy.settings[VALUE_NETWORK]).takes_ones
        if takes_ones != 0 and is_plain_scale(policy.mean, policy.scale):
            most = np.int64(MANY_ONES * inputs * lanes)
            has_few_ones = find(rows, lanes, count, inputs, starts, columns, most) <= most
        if not has_few_ones:
            see(rows, lanes, scratch, policy.mean, policy.scale)
        return has_few_ones, starts_begin

    return write_ones


@functools.cache
def _make_rows(is_separate: bool) -> Callable[..., Any]:
    """Make an inlinable function: settings -> first rows of outputs, values and units, and the end.

    Scratch memory has rows of LANES numbers. Inputs come first. The last row has 1 for each lane
    whose episode begins.
    """

    @inline
    def rows_of(settings):
        job = job_at(settings[NETWORK])
        first = (job.size + 15) // 16 * 16
        begin = first + (job.output_size + 31) // 16 * 16
        end, units = begin, job.units
        if is_separate:
            end, units = begin + 32, max(units, job_at(settings[VALUE_NETWORK]).units)
        return first, begin, end, end + units + 1

    return rows_of


@inline
def is_plain_scale(mean, scale):
    """Tell whether networks see observations as they are."""
    same = True
    for k in range(mean.size):
        same &= (mean[k] == np.float32(0)) & (scale[k] == np.float32(1))
    return same


def _make_find(env: Structure) -> Callable[..., Any]:
    """Make the search for the inputs that are one, of a choice or of planes, in `count` lanes.

    An inlinable function (rows, lanes, count, inputs, starts, columns, most) -> number of ones. It
    writes which inputs are one to `columns`, lane after lane, and to `starts`, (lanes + 1,), where
    each lane begins in `columns`. It stops above `most`.
    """
    num_planes, lowest = env.observation.fields[0].size, sum(env.starts)

    @inline
    def find_choice(rows, lanes, count, inputs, starts, columns, most):
        """Write the one input of each lane that its choice makes one."""
        choices, num_ones = rows.view(np.int32), 0
        for i in range(lanes):
            starts[i] = num_ones
            if i < count and 0 <= choices[i] - lowest < inputs:
                columns[num_ones] = choices[i] - lowest
                num_ones += 1
        starts[lanes] = num_ones
        return num_ones

    @inline
    def find_cells(rows, lanes, count, inputs, starts, columns, most):
        """Write the cells of each lane's planes that are one."""
        words, num_ones = rows.view(np.uint32), 0
        for i in range(lanes):
            starts[i] = num_ones
            if i < count and num_ones <= most:
                num_ones = append_cells(
                    words, i, lanes, num_planes, inputs // num_planes, columns, num_ones
                )
        starts[lanes] = num_ones
        return num_ones

    return find_cells if num_planes else find_choice


@inline
def normalised(x, mean, scale):
    """Return a number of an observation as networks see it, in float32."""
    return min(max((np.float32(x) - mean) * scale, _LOW), _HIGH)


def _make_see(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make the normalising and clipping of observations for networks.

    Of floats, an inlinable function (observation, mean, scale) -> tuple of one lane. Of a choice or
    of planes, (rows, lanes, inputs, mean, scale), which writes zeros and ones, normalised, to the
    first rows of `inputs`: one row of `lanes` numbers for each choice or cell. Of what is written
    by a loop, and of a group, (observation, mean, scale, inputs, lanes, i), which does so for one
    lane.
    """
    if env.parts:
        return _make_see_group(env)
    if env.shape:

        @inline
        def see_written(numbers, mean, scale, inputs, lanes, i):
            for k in range(mean.size):
                inputs[k * lanes + i] = normalised(numbers[k], mean[k], scale[k])

        return see_written
    if env.observation.is_plain:
        rows = range(env.observation_rows)
        items = "".join(f"normalised(numbers[{k}], mean[{k}], scale[{k}]), " for k in rows)
        source = f"def see(numbers, mean, scale): return ({items})"
        return inline(define(source, normalised=normalised))
    zero, one, lowest = np.float32(0), np.float32(1), sum(env.starts)

    @inline
    def see_choice(rows, lanes, inputs, mean, scale):
        choices = rows.view(np.int32)
        for k in range(mean.size):
            off, on = normalised(zero, mean[k], scale[k]), normalised(one, mean[k], scale[k])
            row = inputs[k * lanes : (k + 1) * lanes]
            for i in range(row.size):
                row[i] = on if choices[i] - lowest == k else off

    num_planes = env.observation.fields[0].size

    @inline
    def see_planes(rows, lanes, inputs, mean, scale):
        """Write each cell of all lanes, normalised, a row for each cell."""
        words, cells = rows.view(np.uint32), mean.size // max(num_planes, 1)
        for k in range(mean.size):
            off, on = normalised(zero, mean[k], scale[k]), normalised(one, mean[k], scale[k])
            cell = k % cells
            first = (k // cells * 4 + cell // 32) * lanes
            word, row = words[first : first + lanes], inputs[k * lanes : (k + 1) * lanes]
            bit = np.uint32(1 << (cell % 32))
            for i in range(row.size):
                row[i] = on if word[i] & bit != 0 else off

    return see_planes if num_planes else see_choice


def _make_see_group(env: Structure) -> Callable[..., Any]:
    """Make the normalising of a group, an inlinable (rows, mean, scale, inputs, lanes, i)."""
    lines, names, column = ["def see(rows, mean, scale, inputs, lanes, i):"], {}, 0
    for k, part in enumerate(env.parts):
        names[f"see{k}"] = _make_see_part(part, column)
        lines.append(f"    see{k}(rows, mean, scale, inputs, lanes, i)")
        column += part.view.num_inputs
    return inline(define("\n".join(lines), **names))


def _make_see_part(part: GroupPart, column: int) -> Callable[..., Any]:
    """Make the normalising of one part of a group, whose inputs are those from `column` on."""
    view, begin, count, single = part.view, part.begin, part.view.num_inputs, np.float32

    @inline
    def put_input(x, mean, scale, inputs, lanes, i, k):
        row = column + k
        inputs[row * lanes + i] = normalised(x, mean[row], scale[row])

    if view.kind in ("floats", "numbers"):
        number_type: Any = np.float32 if view.kind == "floats" else np.dtype(view.form).type
        like = number_type(0)

        @outline
        def see_numbers(rows, mean, scale, inputs, lanes, i):
            numbers = array_at(place_of(rows, 0) + begin, (count,), like)
            for k in range(count):
                put_input(single(numbers[k]), mean, scale, inputs, lanes, i, k)

        return see_numbers
    if view.kind == "planes":
        num_words, cells = 4 * view.size[0], math.prod(view.size[1:])
        like_word = np.uint32(0)

        @outline
        def see_planes(rows, mean, scale, inputs, lanes, i):
            words = array_at(place_of(rows, 0) + begin, (num_words,), like_word)
            for k in range(count):
                cell = k % cells
                bits = words[k // cells * 4 + cell // 32] >> np.uint32(cell % 32)
                put_input(single(bits & np.uint32(1)), mean, scale, inputs, lanes, i, k)

        return see_planes
    sizes, starts, like_choice = np.array(view.size), np.array(view.start), np.int32(0)
    num_choices, zero, one = len(view.size), np.float32(0), np.float32(1)

    @outline
    def see_choices(rows, mean, scale, inputs, lanes, i):
        choices = array_at(place_of(rows, 0) + begin, (num_choices,), like_choice)
        first = 0
        for n in range(num_choices):
            for k in range(sizes[n]):
                x = one if choices[n] - starts[n] == k else zero
                put_input(x, mean, scale, inputs, lanes, i, first + k)
            first += sizes[n]

    return see_choices


def _singles(count: int) -> Callable[..., Any]:
    """Make an inlinable function: tuple of `count` numbers -> the same numbers in float32."""
    items = "".join(f"single(values[{k}]), " for k in range(count))
    return inline(define(f"def singles(values): return ({items})", single=np.float32))
