"""How a policy chooses the action of one lane inside a fused rollout."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.lane import LANES, Structure, compile_lane
from rlcpu.envs.engine.layout import make_decode
from rlcpu.envs.engine.masks import make_spread, make_unpack
from rlcpu.envs.policies import PolicyCode
from rlcpu.kernels.boards import append_cells
from rlcpu.kernels.compile import define, inline, merge, specialise
from rlcpu.kernels.matmul import MANY_ONES
from rlcpu.kernels.memory import address, call_at
from rlcpu.kernels.mlp import lanes_for
from rlcpu.kernels.random import uniforms
from rlcpu.kernels.rows import load_rows, row_access, store_rows
from rlcpu.nn.heads import UNROLLED, act_categorical, act_gaussian
from rlcpu.nn.network import CLIP

#: Rows of scratch memory that hold where the ones of each lane begin.
STARTS = 2


class Decide(NamedTuple):
    """The functions of one policy for one environment.

    Attributes:
        unpack: (weights, log_std) -> constants of `choose`.
        scratch: (sizes, value_sizes) -> arrays for `prepare`, made once a block.
        prepare: (state, params, policy, count, scratch) -> layout, once a step and block: runs
            the networks of the first `count` lanes, and tells where in scratch their outputs are.
        choose: (observation, constants, greedy, bits, scratch, layout, i) -> (action, log_prob,
            value) of lane i.
    """

    unpack: Callable[..., Any]
    scratch: Callable[..., Any]
    prepare: Callable[..., Any]
    choose: Callable[..., Any]


@functools.cache
def make_decide(env: Structure, dtype: type, policy: PolicyCode) -> Decide:
    """The functions of a policy; `dtype` is the environment's, policies compute in float32."""
    draws = uniforms(policy.draws, env.num_draws, np.float32)
    if policy.act is not None:
        return _decide_by_function(env, policy, draws)
    return _decide_by_network(env, dtype, policy, draws)


def _decide_by_function(env: Structure, policy: PolicyCode, draws: Callable[..., Any]) -> Decide:
    assert policy.act is not None
    act = specialise(policy.act, np.float32)
    size = env.observation_rows
    single = (
        _singles(size) if env.observation.is_plain else make_decode(env.observation, np.float32)
    )
    items = "".join(f"weights[{k}], " for k in range(policy.num_params))
    made = f"Params({items})" if policy.params_type else f"({items})"
    unpack = define(f"def unpack(weights, log_std): return {made}", Params=policy.params_type)

    @inline
    def scratch(sizes, value_sizes):
        return np.empty(0, np.float32)

    @inline
    def prepare(state, params, policy, count, scratch):
        return 0, 0, 0

    masked, allowed = policy.masked, make_unpack(size, env.num_actions)

    @inline
    def choose(observation, constants, greedy, bits, scratch, layout, i):
        seen, numbers = single(observation), draws(bits[0], bits[1])
        if masked:
            return act(seen, constants, numbers, allowed(observation))
        return act(seen, constants, numbers)

    return Decide(inline(unpack), scratch, prepare, choose)


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

    plain, size = env.observation.is_plain, env.observation_rows

    @inline
    def scratch(sizes, value_sizes):
        rows = sizes.sum() + value_sizes.sum() + 1
        if not plain:
            widest = max(sizes.max(), value_sizes.max())
            rows += size + STARTS + (widest + 15) * 16 // LANES + 1
        return np.empty(rows * LANES + cells, np.float32)

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
    """Function (state, params, policy, count, scratch) -> (lanes, first output, value row).

    The last `cells` numbers of scratch are not its own.
    """
    lane = compile_lane(env, dtype)
    load, observe, vary = lane.load, lane.observe, lane.vary
    size = env.observation_rows
    see, is_binary = _make_see(env, dtype), not env.observation.is_plain
    find: Any = _make_find(env) if is_binary else None
    take = inline(
        (lambda row: row)
        if is_binary
        else define(f"def take(row): return ({''.join(f'row[{k}], ' for k in range(size))})")
    )
    put = store_rows(size, "observations")

    @merge
    def prepare(state, params, policy, count, scratch):
        activation = policy.settings[0]
        lanes = lanes_for(count, activation)
        inputs, few = policy.sizes[0], False
        mean, scale = take(policy.mean), take(policy.scale)
        if is_binary:
            end = scratch.size - cells - size * LANES
            begin = end - STARTS * LANES
            rows, starts = scratch[end : end + size * LANES], scratch[begin:end].view(np.int32)
            columns = scratch[: inputs * lanes].view(np.int32)  # in the place of the inputs
            tile = scratch[(policy.sizes.sum() + policy.value_sizes.sum() + 1) * LANES : begin]
            for i in range(lanes):
                own = vary(params, state, i)
                put(rows, lanes, i, observe(load(state, LANES, i), own))
            ones = address(starts), address(columns), address(tile)
            if lanes > 1 and policy.sizes.size > 2 and is_plain_scale(mean, scale):
                most = np.int64(MANY_ONES * inputs * lanes)
                few = find(rows, lanes, count, inputs, starts, columns, most) <= most
            if not few:
                see(rows, lanes, scratch, mean, scale)
        else:
            for i in range(lanes):
                seen = observe(load(state, LANES, i), vary(params, state, i))
                put(scratch, lanes, i, see(seen, mean, scale))
            ones = address(scratch), address(scratch), address(scratch)  # not looked at
        end = policy.sizes.sum() * lanes
        if value == "separate":
            critic = scratch[end:]
            if not few:
                for k in range(inputs * lanes):
                    critic[k] = scratch[k]
            run(policy.value_weights, policy.value_sizes, policy.settings, critic, lanes, few, ones)
            value_row = end + (policy.value_sizes.sum() - 1) * lanes
        run(policy.weights, policy.sizes, policy.settings, scratch, lanes, few, ones)
        first = end - policy.sizes[-1] * lanes
        if value != "separate":
            value_row = first + outputs * lanes
        return lanes, first, value_row

    return prepare


@inline
def run(weights, sizes, settings, cells, lanes, few, ones):
    """Return the layers of a network on a block: `rlcpu.kernels.mlp.run_layers`, at its address."""
    call_at(
        settings[2],
        (
            address(weights), weights.size, address(sizes), sizes.size, settings[0],
            address(cells), cells.size, lanes, ones[0], ones[1], ones[2], np.int64(few),
        ),
    )  # fmt: skip


@inline
def is_plain_scale(mean, scale):
    """Tell whether networks see observations as they are."""
    same = True
    for k in range(mean.size):
        same &= (mean[k] == np.float32(0)) & (scale[k] == np.float32(1))
    return same


def _make_find(env: Structure) -> Callable[..., Any]:
    """Which inputs of the first `count` lanes are one, of a choice or of planes.

    An inlinable function (rows, lanes, count, inputs, starts, columns, most) -> how many there are,
    which writes `starts` and `columns` as `first_layer` takes them. It stops above `most`.
    """
    planes = env.observation.fields[0].size

    @inline
    def find_choice(rows, lanes, count, inputs, starts, columns, most):
        chosen, found = rows.view(np.int32), 0
        for i in range(lanes):
            starts[i] = found
            if i < count and 0 <= chosen[i] < inputs:
                columns[found] = chosen[i]
                found += 1
        starts[lanes] = found
        return found

    @inline
    def find_cells(rows, lanes, count, inputs, starts, columns, most):
        words, found = rows.view(np.uint32), 0
        for i in range(lanes):
            starts[i] = found
            if i < count and found <= most:
                found = append_cells(words, i, lanes, planes, inputs // planes, columns, found)
        starts[lanes] = found
        return found

    return find_cells if planes else find_choice


def _make_see(env: Structure, dtype: type) -> Callable[..., Any]:
    """What networks see of observations, normalised and clipped.

    Of floats, an inlinable function (observation, mean, scale) -> tuple of one lane. Of a choice or
    of planes, (rows, lanes, inputs, mean, scale), which writes zeros and ones, normalised, to the
    first rows of `inputs`: one row of `lanes` numbers for each choice or cell.
    """
    single, low, high = np.float32, np.float32(-CLIP), np.float32(CLIP)
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

    @inline
    def see_choice(rows, lanes, inputs, mean, scale):
        chosen = rows.view(np.int32)
        for k in range(mean.size):
            off, on = seen_as(zero, mean[k], scale[k]), seen_as(one, mean[k], scale[k])
            row = inputs[k * lanes : (k + 1) * lanes]
            for i in range(row.size):
                row[i] = on if chosen[i] == k else off

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


def _singles(count: int) -> Callable[..., Any]:
    """Inlinable function: a tuple of numbers in float32."""
    items = "".join(f"single(values[{k}]), " for k in range(count))
    return inline(define(f"def singles(values): return ({items})", single=np.float32))
