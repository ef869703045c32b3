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
from rlcpu.kernels.compile import define, inline, merge, outline, specialise
from rlcpu.kernels.matmul import MANY_ONES
from rlcpu.kernels.memory import address, array_at, place_of, pointer_to, shifted
from rlcpu.kernels.random import uniforms
from rlcpu.kernels.rows import ANY, load_rows, row_access, store_rows
from rlcpu.nn.acting import Tile, job_at, run_network
from rlcpu.nn.heads import UNROLLED, act_categorical, act_gaussian
from rlcpu.nn.network import CLIP

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
    assert policy.act is not None
    act = specialise(policy.act, np.float32, arrays=env.observation.is_record)
    size = env.observation_rows
    single = _make_inputs(env)
    items = "".join(f"weights[{k}], " for k in range(policy.num_params))
    made = f"Params({items})" if policy.params_type else f"({items})"
    unpack = define(f"def unpack(weights, log_std): return {made}", Params=policy.params_type)

    @inline
    def scratch(settings):
        return np.empty(0, np.float32)

    @inline
    def prepare(state, words, params, policy, count, number, scratch):
        return 0, 0, 0

    masked, allowed = policy.masked, make_unpack(size, env.num_actions)

    @inline
    def choose(observation, constants, greedy, bits, scratch, layout, i):
        inputs, numbers = single(observation), draws(bits[0], bits[1])
        if masked:
            return act(inputs, constants, numbers, allowed(observation))
        return act(inputs, constants, numbers)

    return Decide(inline(unpack), scratch, prepare, choose)


def _make_inputs(env: Structure) -> Callable[..., Any]:
    """Inlinable function: rows of an observation -> the observation that a function gets."""
    size, shape, blank = env.observation_rows, env.shape, np.float32(0)
    if env.observation.is_record:
        record_at, _ = make_state_at(env.observation, np.float32)
        return inline(lambda rows: record_at(rows, 0))
    if shape:
        return inline(lambda rows: array_at(place_of(rows, 0), shape, blank))
    return _singles(size) if env.observation.is_plain else make_decode(env.observation, np.float32)


@functools.cache
def make_take(env: Structure) -> Callable[..., Any]:
    """Inlinable function (seen, i) -> rows of the observation of environment i, in flat memory.

    A tuple, or an array where `observe` writes into one.
    """
    size, blank = env.shown_rows, np.float32(0)
    if env.is_written:  # not a slice, whose owner would be counted
        return inline(lambda seen, i: array_at(place_of(seen, i * size), (size,), blank))
    load = load_rows(size, ANY)
    return inline(lambda seen, i: load(seen, 1, i * size))


def _make_read(env: Structure, dtype: type) -> Callable[..., Any]:
    """Inlinable function (state, params, i) -> rows of the observation of lane i of a block.

    With arrays in states, `state` is what `make_take` reads.
    """
    if env.state.is_record:
        take = make_take(env)
        return inline(lambda seen, params, i: take(seen, i))
    lane = compile_lane(env, dtype)
    load, observe, vary = lane.load, lane.observe, lane.vary
    return inline(lambda state, params, i: observe(load(state, LANES, i), vary(params, state, i)))


def _decide_by_network(
    env: Structure, dtype: type, policy: PolicyCode, draws: Callable[..., Any]
) -> Decide:
    head: Any = policy.head or (act_categorical if env.num_actions else act_gaussian)
    outputs = policy.outputs or env.action_size or env.num_actions
    constants = policy.num_params if policy.head else env.action_size
    log_stds = "".join(f"log_std[{k}], " for k in range(constants))
    unpack = define(f"def unpack(weights, log_std): return ({log_stds})")
    load_outputs, peek = load_rows(outputs, "outputs"), row_access("outputs")[0]
    masked, unpack_mask = policy.masked, make_unpack(env.observation_rows, env.num_actions)
    allowed, cells = inline(lambda observation, scratch: unpack_mask(observation)), 0
    if env.num_actions > UNROLLED and "loops" in inspect.signature(head).parameters:
        made, load_outputs = head(outputs, masked, loops=True), _make_column(outputs)
        if masked:
            allowed, cells = make_spread(env.observation_rows, env.num_actions), env.num_actions
    else:
        made = head(outputs, True) if masked else head(outputs)
    act = specialise(made, np.float32)
    has_value = policy.value != "none"
    none = np.float32(0)

    plain, size = env.observation.is_plain or env.is_written, env.observation_rows

    rows_of = _make_rows(policy.value == "separate")

    @inline
    def scratch(settings):
        rows = rows_of(settings)[3]
        if not plain:
            rows += size + STARTS
        return np.zeros(rows * LANES + cells, np.float32)

    @inline
    def choose(observation, constants, greedy, bits, scratch, layout, i):
        lanes, first, value_row = layout
        heads = load_outputs(scratch, lanes, first + i)
        value = peek(scratch, value_row + i) if has_value else none
        numbers = draws(bits[0], bits[1])
        if masked:
            mask = allowed(observation, scratch)
            action, log_prob = act(heads, numbers, constants, greedy, mask)
        else:
            action, log_prob = act(heads, numbers, constants, greedy)
        return action, log_prob, value

    prepare = _make_prepare(env, dtype, policy.value, outputs, cells)
    return Decide(inline(unpack), scratch, prepare, choose)


def _make_column(outputs: int) -> Callable[..., Any]:
    """Inlinable function (scratch, lanes, first) -> so many outputs of a lane, as an array."""

    @inline
    def column(scratch, lanes, first):
        return scratch[first : first + outputs * lanes : lanes]

    return column


@functools.cache
def _make_prepare(
    env: Structure, dtype: type, value: str, outputs: int, cells: int
) -> Callable[..., Any]:
    """Function `prepare` of `Decide`: its layout is (lanes, first output, value row).

    The last `cells` numbers of scratch are not its own.
    """
    read, size, is_written = _make_read(env, dtype), env.observation_rows, env.is_written
    see, is_group = _make_see(env, dtype), env.parts != ()
    is_binary = not (env.observation.is_plain or is_written or is_group)
    find: Any = _make_find(env) if is_binary else None
    take = inline(
        (lambda row: row)
        if is_binary or is_written or is_group
        else define(f"def take(row): return ({''.join(f'row[{k}], ' for k in range(size))})")
    )
    put, get_word = store_rows(size, "observations"), row_access("words")[0]

    separate = value == "separate"
    rows_of = _make_rows(separate)

    @merge
    def prepare(state, words, params, policy, count, number, scratch):
        job, few = job_at(policy.settings[NETWORK]), False
        lanes = 1 if count == 1 else (count + 15) // 16 * 16
        inputs, (first, first_value, units, end) = job.size, rows_of(policy.settings)
        mean, scale, begin = take(policy.mean), take(policy.scale), 0
        if is_binary:
            seen = scratch.size - cells - size * LANES
            begin = seen - STARTS * LANES
            rows, starts = scratch[seen : seen + size * LANES], scratch[begin:seen].view(np.int32)
            columns = scratch[: inputs * lanes].view(np.int32)  # in the place of the inputs
            for i in range(lanes):
                put(rows, lanes, i, read(state, params, i))
            takes_ones = job.takes_ones
            if separate:
                takes_ones &= job_at(policy.settings[VALUE_NETWORK]).takes_ones
            if takes_ones != 0 and is_plain_scale(mean, scale):
                most = np.int64(MANY_ONES * inputs * lanes)
                few = find(rows, lanes, count, inputs, starts, columns, most) <= most
            if not few:
                see(rows, lanes, scratch, mean, scale)
        elif is_written:
            for i in range(lanes):
                see(read(state, params, i), mean, scale, scratch, lanes, i)
        elif is_group:
            place_of_rows = scratch.size - cells - size
            own = scratch[place_of_rows : place_of_rows + size]
            for i in range(lanes):
                put(own, 1, 0, read(state, params, i))
                see(own, mean, scale, scratch, lanes, i)
        else:
            for i in range(lanes):
                put(scratch, lanes, i, see(read(state, params, i), mean, scale))
        place, ints = address(scratch), address(scratch.view(np.int32))
        begins, memory = shifted(place, (end - 1) * LANES), place
        stride = policy.settings[STATE_SIZE]
        if stride > 0:
            memory = pointer_to(policy.settings[MEMORY], np.float32(0))
            memory = shifted(memory, number * LANES * stride)
            for i in range(count):
                is_first = get_word(words, ELAPSED * LANES + i) == np.uint32(0)
                scratch[(end - 1) * LANES + i] = np.float32(is_first)
        tile = Tile(
            policy.settings[NETWORK], place, shifted(place, first * LANES),
            shifted(place, units * LANES), lanes, count, few, shifted(ints, begin), ints,
            memory, stride, begins,
        )  # fmt: skip
        run_network(tile)
        value_row = first * LANES + outputs * lanes
        if separate:
            made = shifted(place, first_value * LANES)
            run_network(
                Tile(
                    policy.settings[VALUE_NETWORK], tile.inputs, made, tile.units, lanes, count,
                    few, tile.starts, tile.columns, shifted(memory, job.state_size), stride, begins,
                )
            )  # fmt: skip
            value_row = first_value * LANES
        return lanes, first * LANES, value_row

    return prepare


@functools.cache
def _make_rows(separate: bool) -> Callable[..., Any]:
    """Inlinable function: settings -> where outputs, values and units begin in scratch, its end.

    All are rows of LANES; the inputs come first, and in the last row beginnings of episodes.
    """

    @inline
    def rows_of(settings):
        job = job_at(settings[NETWORK])
        first = (job.size + 15) // 16 * 16
        begin = first + (job.made + 31) // 16 * 16
        end, units = begin, job.units
        if separate:
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
    """Make the search for inputs that are one, of a choice or of planes, in `count` lanes.

    An inlinable function (rows, lanes, count, inputs, starts, columns, most) -> how many there are,
    which writes `starts` and `columns` as `first_layer` takes them. It stops above `most`.
    """
    planes, lowest = env.observation.fields[0].size, sum(env.starts)

    @inline
    def find_choice(rows, lanes, count, inputs, starts, columns, most):
        chosen, choice = rows.view(np.int32), 0
        for i in range(lanes):
            starts[i] = choice
            if i < count and 0 <= chosen[i] - lowest < inputs:
                columns[choice] = chosen[i] - lowest
                choice += 1
        starts[lanes] = choice
        return choice

    @inline
    def find_cells(rows, lanes, count, inputs, starts, columns, most):
        words, num_ones = rows.view(np.uint32), 0
        for i in range(lanes):
            starts[i] = num_ones
            if i < count and num_ones <= most:
                num_ones = append_cells(
                    words, i, lanes, planes, inputs // planes, columns, num_ones
                )
        starts[lanes] = num_ones
        return num_ones

    return find_cells if planes else find_choice


def _make_see(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make the normalising and clipping of observations for networks.

    Of floats, an inlinable function (observation, mean, scale) -> tuple of one lane. Of a choice or
    of planes, (rows, lanes, inputs, mean, scale), which writes zeros and ones, normalised, to the
    first rows of `inputs`: one row of `lanes` numbers for each choice or cell. Of what is written
    by a loop, and of a group, (observation, mean, scale, inputs, lanes, i), which does so for one
    lane.
    """
    single, low, high = np.float32, np.float32(-CLIP), np.float32(CLIP)
    if env.parts:
        return _make_see_group(env)
    if env.shape:

        @inline
        def see_written(seen, mean, scale, inputs, lanes, i):
            for k in range(mean.size):
                inputs[k * lanes + i] = min(max((seen[k] - mean[k]) * scale[k], low), high)

        return see_written
    if env.observation.is_plain:
        items = "".join(
            f"min(max((single(seen[{k}]) - mean[{k}]) * scale[{k}], low), high), "
            for k in range(env.observation_rows)
        )
        source = f"def see(seen, mean, scale): return ({items})"
        return inline(define(source, single=single, low=low, high=high))
    zero, one = single(0), single(1)

    @inline
    def seen_as(x, mean, scale):
        return min(max((x - mean) * scale, low), high)

    lowest = sum(env.starts)

    @inline
    def see_choice(rows, lanes, inputs, mean, scale):
        chosen = rows.view(np.int32)
        for k in range(mean.size):
            off, on = seen_as(zero, mean[k], scale[k]), seen_as(one, mean[k], scale[k])
            row = inputs[k * lanes : (k + 1) * lanes]
            for i in range(row.size):
                row[i] = on if chosen[i] - lowest == k else off

    planes = env.observation.fields[0].size

    @inline
    def see_planes(rows, lanes, inputs, mean, scale):
        words, cells = rows.view(np.uint32), mean.size // max(planes, 1)
        for k in range(mean.size):
            off, on = seen_as(zero, mean[k], scale[k]), seen_as(one, mean[k], scale[k])
            cell = k % cells
            first = (k // cells * 4 + cell // 32) * lanes
            word, row = words[first : first + lanes], inputs[k * lanes : (k + 1) * lanes]
            bit = np.uint32(1 << (cell % 32))
            for i in range(row.size):
                row[i] = on if word[i] & bit != 0 else off

    return see_planes if planes else see_choice


def _make_see_group(env: Structure) -> Callable[..., Any]:
    """`_make_see` of a group: an inlinable function (rows, mean, scale, inputs, lanes, i)."""
    lines, names, column = ["def see(rows, mean, scale, inputs, lanes, i):"], {}, 0
    for k, part in enumerate(env.parts):
        names[f"see{k}"] = _make_see_part(part, column)
        lines.append(f"    see{k}(rows, mean, scale, inputs, lanes, i)")
        column += part.view.num_inputs
    return inline(define("\n".join(lines), **names))


def _make_see_part(part: GroupPart, column: int) -> Callable[..., Any]:
    """Function of `_make_see_group` for one part, whose inputs begin at a column."""
    view, begin, count = part.view, part.begin, part.view.num_inputs
    single, low, high = np.float32, np.float32(-CLIP), np.float32(CLIP)

    @inline
    def give(x, mean, scale, inputs, lanes, i, k):
        row = column + k
        inputs[row * lanes + i] = min(max((x - mean[row]) * scale[row], low), high)

    if view.kind in ("floats", "numbers"):
        kind: Any = np.float32 if view.kind == "floats" else np.dtype(view.form).type
        like = kind(0)

        @outline
        def see_numbers(rows, mean, scale, inputs, lanes, i):
            numbers = array_at(place_of(rows, 0) + begin, (count,), like)
            for k in range(count):
                give(single(numbers[k]), mean, scale, inputs, lanes, i, k)

        return see_numbers
    if view.kind == "planes":
        words_of_all, cells = 4 * view.size[0], math.prod(view.size[1:])
        word = np.uint32(0)

        @outline
        def see_planes(rows, mean, scale, inputs, lanes, i):
            words = array_at(place_of(rows, 0) + begin, (words_of_all,), word)
            for k in range(count):
                cell = k % cells
                bits = words[k // cells * 4 + cell // 32] >> np.uint32(cell % 32)
                give(single(bits & np.uint32(1)), mean, scale, inputs, lanes, i, k)

        return see_planes
    sizes, starts, whole = np.array(view.size), np.array(view.start), np.int32(0)
    number, zero, one = len(view.size), np.float32(0), np.float32(1)

    @outline
    def see_choices(rows, mean, scale, inputs, lanes, i):
        chosen, first = array_at(place_of(rows, 0) + begin, (number,), whole), 0
        for n in range(number):
            for k in range(sizes[n]):
                x = one if chosen[n] - starts[n] == k else zero
                give(x, mean, scale, inputs, lanes, i, first + k)
            first += sizes[n]

    return see_choices


def _singles(count: int) -> Callable[..., Any]:
    """Inlinable function: a tuple of numbers in float32."""
    items = "".join(f"single(values[{k}]), " for k in range(count))
    return inline(define(f"def singles(values): return ({items})", single=np.float32))
