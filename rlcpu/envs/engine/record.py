"""One environment whose state has arrays: a record of memory, and the functions on it.

A group of observations that is written is a record, too.
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

from rlcpu.envs.engine.arrays import ArrayLayout
from rlcpu.envs.engine.lane import (
    ELAPSED,
    LANES,
    Structure,
    make_draws,
    make_floats,
    make_redraw,
    make_store_params,
    make_vary,
    user_functions,
)
from rlcpu.envs.engine.layout import make_encode
from rlcpu.envs.engine.masks import make_pack
from rlcpu.kernels.compile import define, inline, merge, outline
from rlcpu.kernels.memory import address, array_at, place_of, pointer_at, shifted
from rlcpu.kernels.random import RESET_GROUP, STEP_GROUP
from rlcpu.kernels.rows import ANY, row_access, store_rows

u32 = np.uint32


class Functions(NamedTuple):
    """Functions of one environment that kernels inline, in one dtype.

    `rows` are a block's numbers, and `i` is a lane of it.

    Attributes:
        state_at: (rows, i) -> the record of a lane.
        vary: (params, rows, i) -> the params of a lane, some of which have rows of their own.
        advance: (rows, words, i, action, bits, params, limit) -> `End`: steps a lane.
        renew: (rows, words, i, bits, params): starts a new episode.
        show: (rows, i, lane_params, target, place): writes an observation and its mask,
            `shown_rows` float32, to `target` from `place` on; `vary` returns the lane's params.
    """

    state_at: Callable[..., Any]
    vary: Callable[..., Any]
    advance: Callable[..., Any]
    renew: Callable[..., None]
    show: Callable[..., None]


class End(NamedTuple):
    """Results of a step, besides the state.

    Attributes:
        reward: of the step.
        terminated, truncated: whether and how the episode ended with it.
        total: return of the episode so far, this step included.
        elapsed: steps of the episode so far, this one included.
    """

    reward: Any
    terminated: Any
    truncated: Any
    total: Any
    elapsed: Any


@functools.cache
def compile_functions(env: Structure, dtype: type) -> Functions:
    """Return the functions of an environment; float64 is exact, float32 fast."""
    users = user_functions(env, dtype)
    user_step, user_reset = users["step"], users["reset"]
    step_draws = make_draws(env.step_draws, env.reset_draws or 0, STEP_GROUP, dtype)
    reset_draws = make_draws(env.reset_draws, 0, RESET_GROUP, dtype)
    state_at, clear = make_state_at(env.state, dtype)
    vary, widened = make_vary(env, dtype), _make_widened(env)
    redraw, store_params = make_redraw(env, dtype), make_store_params(env, dtype)
    get_word, set_word = row_access("words")
    get_return, set_return = row_access("state")
    return_row, real, truncates = env.state.rows(dtype) * LANES, dtype, env.truncates
    nothing, noisy = dtype(0), env.step_draws != 0

    @merge
    def step(state, action, params, bits):
        if noisy:
            return user_step(state, widened(action), params, step_draws(bits[0], bits[1]))
        return user_step(state, widened(action), params)

    @merge
    def advance(rows, words, i, action, bits, params, limit):
        result = step(state_at(rows, i), action, vary(params, rows, i), bits)
        reward = real(result[0])
        total = get_return(rows, return_row + i) + reward
        elapsed = u32(get_word(words, ELAPSED * LANES + i) + u32(1))
        set_return(rows, return_row + i, total)
        set_word(words, ELAPSED * LANES + i, elapsed)
        truncated = elapsed >= limit
        if truncates:
            truncated = truncated | bool(result[2])
        return End(reward, bool(result[1]), truncated, total, elapsed)

    @outline
    def renew(rows, words, i, bits, params):
        new_params = redraw(params, vary(params, rows, i), bits[0], bits[1])
        store_params(rows, i, new_params)
        state = state_at(rows, i)
        clear(state)
        user_reset(state, reset_draws(bits[0], bits[1]), new_params)
        set_return(rows, return_row + i, nothing)
        set_word(words, ELAPSED * LANES + i, u32(0))

    return Functions(state_at, vary, advance, renew, _make_show(env, dtype, state_at))


def _make_widened(env: Structure) -> Callable[..., Any]:
    """Make an inlinable function: an action -> it, with whole numbers of 64 bits as in states."""
    if env.action_size == 0:
        return inline(lambda action: np.int64(action))
    if not env.choices:
        return inline(lambda action: action)
    items = "".join(f"whole(action[{k}]), " for k in range(env.action_size))
    return inline(define(f"def widened(action): return ({items})", whole=np.int64))


def _make_show(env: Structure, dtype: type, state_at: Any) -> Callable[..., None]:
    """Make `show` of `Functions`."""
    users, size, is_written = user_functions(env, dtype), env.observation_rows, env.is_written
    user_observe: Any = users["observe"]
    user_mask: Any = users.get("action_mask")
    encode: Any = None if is_written else make_encode(env.observation, np.float32)
    real_items = make_floats(env.observation, dtype, env.has_whole)
    put, pack_mask = store_rows(1 if is_written else size, ANY), make_pack(env.num_actions)
    put_mask, is_masked = store_rows(env.shown_rows - size, ANY), user_mask is not None
    shape, blank, is_group = env.shape, np.float32(0), env.observation.is_record
    no_group: Any = (None, None)
    record_at, clear = make_state_at(env.observation, np.float32) if is_group else no_group
    part_of = inline((lambda out: out.image) if env.is_lone else (lambda out: out))

    @outline
    def show(rows, i, lane_params, target, place):
        state = state_at(rows, i)
        if is_group:
            out = record_at(shifted(address(target), place), 0)
            clear(out)
            user_observe(state, lane_params, part_of(out))
        elif is_written:
            out = array_at(place_of(target, place), shape, blank)
            out[:] = blank
            user_observe(state, lane_params, out)
        else:
            put(target, 1, place, encode(real_items(user_observe(state, lane_params))))
        if is_masked:
            put_mask(target, 1, place + size, pack_mask(user_mask(state, lane_params)))

    return show


# ---------------------------------------------------------------- memory


@functools.cache
def make_state_at(layout: ArrayLayout, dtype: type) -> tuple[Any, Any]:
    """Make intrinsics (rows, i) -> the record of lane i, and (record), which clears it."""
    kind = _record_type(layout.record(dtype))
    size = layout.record(dtype).itemsize

    @intrinsic
    def state_at(typing, rows, i):
        def generate(context, builder, signature, args):
            first = pointer_at(context, builder, rows, args[0], _I64(0), to=ir.IntType(8))
            place = builder.gep(first, [builder.mul(args[1], _I64(size))])
            return builder.bitcast(place, context.get_value_type(kind))

        return kind(rows, types.intp), generate

    @intrinsic
    def clear(typing, record):
        def generate(context, builder, signature, args):
            place = builder.bitcast(args[0], ir.IntType(8).as_pointer())
            cgutils.memset(builder, place, _I64(size), 0)
            return context.get_dummy_value()

        return types.void(record), generate

    return state_at, clear


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
        kind, offset = record.fields[name][:2]  # type: ignore[index]
        is_bools = kind.base == np.bool_ and kind.shape
        field_type = _Bools(kind.shape) if is_bools else from_dtype(kind)
        fields.append((name, {"type": field_type, "offset": offset, "title": None}))
    return types.Record(fields, record.itemsize, aligned=True)
