"""Drivers: one step and the reset of a batch of environments."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange

from rlcpu.envs.lane import (
    COUNTER,
    ELAPSED,
    LANES,
    Structure,
    compile_lane,
    load_rows,
    make_draw_words,
    make_turn,
    store_rows,
)
from rlcpu.kernels.compile import EXACT, FAST, inline, kernel
from rlcpu.kernels.rows import row_access
from rlcpu.kernels.threads import Kernels

#: Blocks that one iteration of a parallel loop takes.
CHUNK = 16
u32 = np.uint32


@functools.cache
def step_kernels(env: Structure, dtype: type, same_step: bool) -> Kernels:
    """Kernels of one step of N environments; see `_make_step` for the arguments."""
    return Kernels(
        _make_step(env, dtype, same_step, parallel=False),
        _make_step(env, dtype, same_step, parallel=True),
        8192,
    )


def _make_step(env: Structure, dtype: type, same_step: bool, parallel: bool) -> Any:
    """Driver: checks all actions, then steps all environments.

    Its arguments are state (blocks, (state_size + 1) * LANES), words (blocks, NUM_WORDS * LANES),
    actions (n,) int64 or (n * action_size,) float32, chosen (blocks, max(action_size, 1) * LANES),
    scratch of int32 or `dtype`, params (num_numbers,), limit uint32, and the outputs observations (observation_size * n,) float32 in rows of n, rewards (n,), flags (2 * n,)
    bool (terminated, then truncated); in same-step mode also finals, like observations. It returns
    the number of bad actions; nothing is written unless that is 0.
    """
    lane = compile_lane(env, dtype)
    step_block = _make_step_block(env, dtype, same_step)
    take_actions = _make_take_actions(env)
    width, outputs = max(env.action_size, 1), env.observation_size
    finals_size = outputs * LANES if same_step else 0
    real = dtype

    @kernel(parallel=parallel, fastmath=FAST if dtype is np.float32 else EXACT, scalars=lane.scalars)
    def step(state, words, actions, chosen, params, limit, observations, rewards, flags, finals):
        n = rewards.shape[0]
        chunks = (state.shape[0] + CHUNK - 1) // CHUNK
        bad = 0
        for c in prange(chunks):
            begin = c * CHUNK * LANES
            end = min(begin + CHUNK * LANES, n)
            bad += take_actions(actions[begin * width : end * width], chosen[c * CHUNK :])
        if bad > 0:
            return bad
        whole = n // LANES
        for c in prange(chunks):
            for block in range(c * CHUNK, min((c + 1) * CHUNK, whole)):
                step_block(
                    LANES, state[block], words[block], chosen[block], params, limit,
                    block * LANES, n, observations, rewards, flags, finals,
                )  # fmt: skip
        rest = n - whole * LANES
        if rest > 0:
            observed = np.empty(outputs * LANES, np.float32)
            rewarded = np.empty(LANES, real)
            flagged = np.empty(2 * LANES, np.bool_)
            ended = np.empty(finals_size, np.float32)
            step_block(
                rest, state[whole], words[whole], chosen[whole], params, limit,
                0, LANES, observed, rewarded, flagged, ended,
            )  # fmt: skip
            rewards[whole * LANES :] = rewarded[:rest]
            copy_rows(flagged, flags, rest, whole * LANES)
            copy_rows(observed, observations, rest, whole * LANES)
            copy_rows(ended, finals, rest, whole * LANES)
        return bad

    return step


@functools.cache
def _make_step_block(env: Structure, dtype: type, same_step: bool) -> Any:
    """One step of the lanes of one block; outputs go to rows of length `stride`, from `begin` on."""
    lane = compile_lane(env, dtype)
    observe, unpack = lane.observe, lane.unpack
    turn, exact = make_turn(env, dtype, same_step), dtype is np.float64
    draw_words = make_draw_words()
    _, set_reward = row_access("rewards")
    _, set_flag = row_access("flags")
    get_action = _make_get_action(env)
    set_observation = store_rows(env.observation_size, "observations", np.float32)
    set_final = store_rows(env.observation_size, "finals", np.float32)

    @inline
    def step_block(
        count, state, words, actions, numbers, limit,
        begin, stride, observations, rewards, flags, finals,
    ):  # fmt: skip
        params = unpack(numbers)
        # libm does not vectorise: the exact mode steps only the lanes that are in use.
        for i in range(count if exact else LANES):
            bits = draw_words(words, i)
            action = get_action(actions, LANES, i)
            end = turn(state, words, i, action, bits, params, limit)
            if same_step:
                set_final(finals, stride, begin + i, observe(end.reached, params))
            set_observation(observations, stride, begin + i, observe(end.kept, params))
            set_reward(rewards, begin + i, end.reward)
            set_flag(flags, begin + i, end.terminated)
            set_flag(flags, stride + begin + i, end.truncated)

    return step_block


def _make_get_action(env: Structure) -> Any:
    """Inlinable function (rows, stride, lane) -> action."""
    peek, _ = row_access("actions")
    if env.action_size == 0:
        return inline(lambda rows, stride, i: peek(rows, i))
    return load_rows(env.action_size, "actions")


def _make_take_actions(env: Structure) -> Any:
    """Inlinable function: copies a slice of actions into rows of blocks and counts the bad ones.

    Discrete actions are narrowed to int32 on the way: an int64 in the loop over lanes would halve
    the width of its vectors.
    """
    size, width = np.uint64(env.num_actions), env.action_size

    def take_discrete(actions, blocks):  # type: ignore[no-untyped-def]
        bad = 0
        for begin in range(0, actions.shape[0], LANES):
            part, rows = actions[begin : begin + LANES], blocks[begin // LANES]
            for i in range(part.shape[0]):
                rows[i] = part[i]
                bad += np.uint64(part[i]) >= size
        return bad

    def take_real(actions, blocks):  # type: ignore[no-untyped-def]
        bad = 0
        for i in range(actions.shape[0] // width):
            for k in range(width):
                action = actions[i * width + k]
                blocks[i // LANES, k * LANES + i % LANES] = action
                bad += action != action
        return bad

    return inline(take_discrete if env.action_size == 0 else take_real)


@functools.cache
def reset_kernel(env: Structure, dtype: type) -> Any:
    """Driver (state, words, mask, params): draws new states where mask (blocks * LANES,) is set."""
    lane = compile_lane(env, dtype)
    load, store, select, reset, unpack = lane.load, lane.store, lane.select, lane.reset, lane.unpack
    return_row, one, zero, real = env.state_size * LANES, u32(1), u32(0), dtype
    draw_words = make_draw_words()

    @kernel(fastmath=FAST if dtype is np.float32 else EXACT, scalars=lane.scalars)
    def reset_batch(state, words, mask, numbers):
        params = unpack(numbers)
        for block in range(state.shape[0]):
            rows, word, chosen = state[block], words[block], mask[block * LANES :]
            for i in range(LANES):
                counter = word[COUNTER * LANES + i]
                bits = draw_words(word, i)
                fresh = reset(params, bits[0], bits[1])
                store(rows, LANES, i, select(chosen[i], fresh, load(rows, LANES, i)))
                total, elapsed = rows[return_row + i], word[ELAPSED * LANES + i]
                rows[return_row + i] = real(0) if chosen[i] else total
                word[COUNTER * LANES + i] = u32(counter + one) if chosen[i] else counter
                word[ELAPSED * LANES + i] = zero if chosen[i] else elapsed

    return reset_batch


@functools.cache
def observe_kernel(env: Structure, dtype: type) -> Any:
    """Driver (state, params, observations): writes observations in rows, one column per lane."""
    lane = compile_lane(env, dtype)
    load, observe, unpack = lane.load, lane.observe, lane.unpack
    put = store_rows(env.observation_size, "observations", np.float32)
    size = env.observation_size

    @kernel(fastmath=FAST if dtype is np.float32 else EXACT, scalars=lane.scalars)
    def observe_batch(state, numbers, observations):
        params, n = unpack(numbers), observations.shape[0] // size
        for block in range(state.shape[0]):
            begin = block * LANES
            for i in range(min(LANES, n - begin)):
                put(observations, n, begin + i, observe(load(state[block], LANES, i), params))

    return observe_batch


@inline
def copy_rows(source, target, count, begin):  # type: ignore[no-untyped-def]
    """Copy `count` items of each row of LANES into the end of the rows of a flat array."""
    stride = begin + count
    for row in range(target.shape[0] // stride):
        for i in range(count):
            target[row * stride + begin + i] = source[row * LANES + i]
