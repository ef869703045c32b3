"""One environment whose state has arrays: its record in memory, and the functions on it.

A record, see `rlcpu.envs.layout.arrays`, is one state's memory. A block of environments has the
records of its `LANES` lanes one after the other, then a row for each number of an `Episode` and one
for each parameter that differs between environments, all in one array of floats, `rows`; and the
array `words` that `rlcpu.envs.engine.lane` describes. A group of observations that `observe` writes
is a record, too.

The functions that are made here are inlined into kernels or called by them. They get the random
bits (a, b) of a lane and step, of which `step_draws` and `reset_draws` make what `step` and `reset`
take: `uniforms` or an `Rng`. `observation_rows` of a `Structure` is how many float32 numbers an
observation has, and `shown_rows` how many with the mask behind it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from rlcpu.envs.engine.episode import SIZE, Episode, begin_of, make_step_episode
from rlcpu.envs.engine.lane import (
    ELAPSED,
    LANES,
    make_draws,
    make_mask_of,
    make_params_of_lane,
    make_redraw_params,
    make_store_params,
)
from rlcpu.envs.engine.structure import Structure, user_functions
from rlcpu.envs.layout.arrays import ArrayLayout
from rlcpu.envs.layout.values import make_encode
from rlcpu.kernels.compiler.compile import define, inline, inline_source, outline
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.memory import address, array_at, place_of, pointer_at, shifted
from rlcpu.kernels.machine.random import RESET_GROUP, STEP_GROUP
from rlcpu.kernels.machine.rows import load_rows, row_access, store_rows

u32 = np.uint32


class Functions(NamedTuple):
    """Functions of one environment, in one dtype, for kernels.

    `rows` and `words` are the memory of a block, `i` is a lane of it, `bits` are the random bits
    (a, b) of a step, `params` the parameters that all environments have in common.
    """

    #: (rows, i) -> the record of lane i.
    record_of_lane: Callable[..., Any]
    #: (params, rows, i) -> the params of lane i, some of which have own rows.
    params_of_lane: Callable[..., Any]
    #: (rows, words, i, action, bits, params, limit) -> `EpisodeStep`; steps lane i, which is in an
    #: episode, and starts no new one. An episode is truncated after `limit` steps.
    step: Callable[..., Any]
    #: (rows, words, i, bits, params) starts a new episode in lane i.
    restart: Callable[..., None]
    #: (rows, i, lane_params, target, place) writes the observation of lane i and its mask,
    #: `shown_rows` float32, to the array `target` from `place` on.
    observe: Callable[..., None]


@functools.cache
def compile_functions(env: Structure, dtype: type) -> Functions:
    """Return the functions of an environment; float64 is exact, float32 fast."""
    users = user_functions(env, dtype)
    user_step, user_reset = users["step"], users["reset"]
    step_draws = make_draws(env.step_draws, env.reset_draws or 0, STEP_GROUP, dtype)
    reset_draws = make_draws(env.reset_draws, 0, RESET_GROUP, dtype)
    record_of_lane, clear = make_record_access(env.state, dtype)
    params_of_lane, to_int64 = make_params_of_lane(env, dtype), _make_ints_64(env)
    redraw_params, store_params = make_redraw_params(env, dtype), make_store_params(env, dtype)
    varies, redraws = bool(env.varied), env.randomize is not None
    get_word, set_word = row_access("words")
    load_episode, store_episode = load_rows(SIZE, "state"), store_rows(SIZE, "state")
    episode_at, begin = env.state.rows(dtype) * LANES, begin_of(dtype)
    step_episode = make_step_episode(dtype, same_step=False, may_wait=False)
    truncates, is_random = env.truncates, env.step_draws != 0

    @inline_source
    def call_step(state, action, params, bits):
        if is_random:
            return user_step(state, to_int64(action), params, step_draws(bits[0], bits[1]))
        return user_step(state, to_int64(action), params)

    @inline_source
    def step(rows, words, i, action, bits, params, limit):
        lane_params = params_of_lane(params, rows, i) if varies else params
        result = call_step(record_of_lane(rows, i), action, lane_params, bits)
        episode = Episode(*load_episode(rows, LANES, episode_at + i))
        elapsed, cuts = get_word(words, ELAPSED * LANES + i), result[2] if truncates else False
        end = step_episode(episode, elapsed, result[0], bool(result[1]), bool(cuts), limit)
        store_episode(rows, LANES, episode_at + i, end.next_episode)
        set_word(words, ELAPSED * LANES + i, end.next_elapsed)
        return end

    @outline
    def restart(rows, words, i, bits, params):
        new_params = params_of_lane(params, rows, i) if varies else params
        if redraws:
            new_params = redraw_params(params, new_params, bits[0], bits[1])
            store_params(rows, i, new_params)
        state = record_of_lane(rows, i)
        clear(state)
        user_reset(state, reset_draws(bits[0], bits[1]), new_params)
        store_episode(rows, LANES, episode_at + i, begin)
        set_word(words, ELAPSED * LANES + i, u32(0))

    observe = _make_observe(env, dtype, record_of_lane)
    return Functions(record_of_lane, params_of_lane, step, restart, observe)


def _make_ints_64(env: Structure) -> Callable[..., Any]:
    """Make an inlinable function: an action -> the action, its whole numbers as int64.

    States have such whole numbers; actions come as int32. Actions of floats are returned as they
    are.
    """
    if env.action_size == 0:
        return inline(lambda action: np.int64(action))
    if not env.choices:
        return inline(lambda action: action)
    items = "".join(f"whole(action[{k}]), " for k in range(env.action_size))
    return inline(define(f"def to_int64(action): return ({items})", whole=np.int64))


def _make_observe(env: Structure, dtype: type, record_of_lane: Any) -> Callable[..., None]:
    """Make `observe` of `Functions`, which calls the author's observe and action mask."""
    write, mask_of = _make_write_observation(env, dtype), make_mask_of(env, dtype)
    size, is_masked = env.observation_rows, env.action_mask is not None
    put_mask = store_rows(env.shown_rows - size, ANY)  # (target, stride, place, tuple)

    @outline
    def observe(rows, i, lane_params, target, place):
        state = record_of_lane(rows, i)
        write(state, lane_params, target, place)
        if is_masked:
            put_mask(target, 1, place + size, mask_of(state, lane_params))

    return observe


def _make_write_observation(env: Structure, dtype: type) -> Callable[..., None]:
    """Make (state, lane_params, target, place), which writes an observation to an array of float32.

    The author's function writes it into `out`, an array of floats or the record of a group over
    that memory, zeros before; or it returns a value, whose rows are stored there.
    """
    user_observe: Any = user_functions(env, dtype)["observe"]
    shape, zero = env.written_shape, np.float32(0)
    if env.observation.is_record:
        record_at, clear = make_record_access(env.observation, np.float32)
        # An array of whole numbers is in memory as a record of one field, "image".
        to_out = inline((lambda group: group.image) if env.is_int_array else (lambda group: group))

        @inline_source
        def write_group(state, lane_params, target, place):
            group = record_at(shifted(address(target), place), 0)
            clear(group)
            user_observe(state, lane_params, to_out(group))

        return write_group
    if env.writes_observation:

        @inline_source
        def write_array(state, lane_params, target, place):
            out = array_at(place_of(target, place), shape, zero)
            out[:] = zero
            user_observe(state, lane_params, out)

        return write_array
    encode, put = make_encode(env.observation, np.float32), store_rows(env.observation_rows, ANY)

    @inline_source
    def write_value(state, lane_params, target, place):
        # Of stride 1: the rows of an observation lie side by side here.
        put(target, 1, place, encode(user_observe(state, lane_params)))

    return write_value


# ---------------------------------------------------------------- memory


@functools.cache
def make_record_access(layout: ArrayLayout, dtype: type) -> tuple[Any, Any]:
    """Make two intrinsics: (memory, i) -> record i, and (record,), which zeroes it.

    `memory` is a pointer to, or an array of, records one after the other, and `dtype` that of their
    floats.
    """
    record_type = _record_type(layout.record(dtype))
    size = layout.record(dtype).itemsize

    @intrinsic
    def record_at(typing, memory, i):
        def generate(context, builder, signature, args):
            """Emit a pointer to byte `i * size` of the memory."""
            first = pointer_at(context, builder, memory, args[0], _I64(0), to=ir.IntType(8))
            place = builder.gep(first, [builder.mul(args[1], _I64(size))])
            return builder.bitcast(place, context.get_value_type(record_type))

        return record_type(memory, types.intp), generate

    @intrinsic
    def clear(typing, record):
        def generate(context, builder, signature, args):
            """Emit a memset of the record's bytes."""
            place = builder.bitcast(args[0], ir.IntType(8).as_pointer())
            cgutils.memset(builder, place, _I64(size), 0)
            return context.get_dummy_value()

        return types.void(record), generate

    return record_at, clear


_I64 = ir.IntType(64)


class _Bools(types.NestedArray):
    """Type of an array of bools in a record, which numba lacks: one byte each, as in NumPy."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        types.Array.__init__(self, types.boolean, len(shape), "C", name=f"bools({shape})")

    @property
    def size(self) -> int:
        """Return the bytes of an item."""
        return 1


register_model(_Bools)(models.NestedArrayModel)


def _record_type(record: np.dtype[Any]) -> Any:
    """Return numba's type of a structured dtype."""
    fields = []
    for name in record.names or ():
        dtype, offset = record.fields[name][:2]  # type: ignore[index]
        is_array_of_bools = dtype.base == np.bool_ and dtype.shape
        field_type = _Bools(dtype.shape) if is_array_of_bools else from_dtype(dtype)
        fields.append((name, {"type": field_type, "offset": offset, "title": None}))
    return types.Record(fields, record.itemsize, aligned=True)
