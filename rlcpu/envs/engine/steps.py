"""Kernels of one step, of a reset and of observations, for N environments in blocks of lanes."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import from_dtype, prange, types

from rlcpu.envs.engine.lane import (
    ELAPSED,
    KEY_LOW,
    LANES,
    NUM_WORDS,
    Structure,
    compile_lane,
    env_kernel,
    make_draw_words,
    make_turn,
)
from rlcpu.kernels.calls import View, kind_of, make_call
from rlcpu.kernels.compile import EXACT, apart, compact, inline, kernel, merge, outline
from rlcpu.kernels.hooks import address_of
from rlcpu.kernels.memory import address, pointer_to, shifted
from rlcpu.kernels.random import GOLDEN
from rlcpu.kernels.rows import load_rows, row_access, store_rows
from rlcpu.kernels.threads import Kernels

#: Rows of blocks that one iteration of a parallel loop takes, and numbers of a state, over all
#: environments, from which two cores are faster than one. The larger a state is, the longer its
#: step takes: CartPole's has 4 numbers, LunarLander's 28.
CHUNK_ROWS, GRAIN = 64, 2**16
u32 = np.uint32


class Steps(NamedTuple):
    """Kernels that step the environments of one structure.

    Attributes:
        drivers: the loops over blocks, see `_make_driver`.
        function: one step of some blocks, compiled for C.
        address: of the function.
        limits: (max(action_size, 1) * LANES,) int64, how many choices each number of a block's
            actions has; (0,) where actions are floats.
    """

    drivers: Kernels
    function: Any
    address: int
    limits: npt.NDArray[np.int64]


class StepRows(NamedTuple):
    """Rows that the step of some blocks writes: of length `stride`, of which it has `begin` on.

    Attributes:
        observations, rewards, terminated, truncated, finals: pointers; see `_make_driver`.
    """

    begin: Any
    stride: Any
    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any
    finals: Any


class BlockSteps(NamedTuple):
    """Arguments of the step of some blocks: a count, pointers, and `StepRows`.

    Attributes:
        count: environments of the blocks, of which the last need not be full.
        state, words: rows of the first block, see `rlcpu.envs.engine.lanes`; the others follow.
        actions: (count, action_size), as users give them.
        action_rows: (action_size, LANES), scratch: the actions of a block, a row for each number.
        numbers, clock: params, the counter of random numbers and the limit of an episode's steps.
        outputs: where it writes.
    """

    count: Any
    state: Any
    words: Any
    actions: Any
    action_rows: Any
    numbers: Any
    clock: Any
    outputs: Any


@functools.cache
def step_kernels(env: Structure, dtype: type, same_step: bool) -> Steps:
    """Kernels of one step of N environments, of which that of some blocks is compiled here."""
    function = _compile_blocks(env, dtype, same_step)
    drivers = _make_driver(dtype, _is_whole(env))
    grain = GRAIN // env.state.rows(dtype) if dtype is np.float32 else 512
    choices = env.choices or ((env.num_actions,) if env.action_size == 0 else ())
    limits = np.tile(np.array(choices, np.int64), LANES)
    return Steps(drivers._replace(grain=grain), function, address_of(function), limits)


def _is_whole(env: Structure) -> bool:
    """Tell whether actions are whole numbers: of a `Discrete` or a `MultiDiscrete`."""
    return env.action_size == 0 or bool(env.choices)


@functools.cache
def _blocks_type(dtype: type, is_whole: bool) -> Any:
    """Numba's type of `BlockSteps`."""
    real, single, flags = (types.CPointer(from_dtype(np.dtype(x))) for x in (dtype, "f4", "?"))
    words, whole, narrow = map(types.CPointer, (types.uint32, types.int64, types.int32))
    actions, action_rows = (whole, narrow) if is_whole else (single, real)
    size = types.int64
    outputs = StepRows(size, size, single, real, flags, flags, single)
    return kind_of(BlockSteps(size, real, words, actions, action_rows, real, words, outputs))


@functools.cache
def _make_driver(dtype: type, is_whole: bool) -> Kernels:
    """Make the driver that checks all actions, then steps all environments.

    Its arguments are address and limits of `Steps`, state (blocks, rows * LANES), words (blocks,
    NUM_WORDS * LANES), actions (n,) or (n, action_size), int64 or float32, params (num_numbers,),
    clock (2,): the counter of random numbers and the limit of an episode's steps; and the outputs
    observations (shown rows, n) float32, rewards (n,), terminated and truncated (n,) bool, and
    finals, which is like observations in same-step mode and empty otherwise. It returns the number
    of bad actions; nothing is written unless that is 0.
    """
    step_blocks = make_call(_blocks_type(dtype, is_whole))
    count_bad: Any = count_bad_of(is_whole)
    action_type = np.int32 if is_whole else dtype
    like_real, like_single, real_bytes = dtype(0), np.float32(0), np.dtype(dtype).itemsize

    @merge
    def step_part(where, arrays, begin, count, width, action_rows, outputs):
        """Step `count` environments from `begin` on, the first one of a block."""
        state, words, actions, params, clock = arrays
        blocks = BlockSteps(
            count,
            shifted(address(state), begin // LANES * state.shape[1]),
            shifted(address(words), begin // LANES * words.shape[1]),
            shifted(address(actions), begin * width),
            action_rows, address(params), address(clock), outputs,
        )  # fmt: skip
        step_blocks(where, blocks)

    @merge
    def step_rest(where, arrays, begin, count, width, results):
        """Step a last block that is not full in rows of LANES, which are copied to their places."""
        observations, rewards, terminated, truncated, finals = results
        observations_at = (1 + width) * LANES * real_bytes
        finals_at = observations_at + 4 * LANES * observations.shape[0]
        flags_at = finals_at + 4 * LANES * finals.shape[0]
        memory = np.empty(flags_at + 2 * LANES, np.uint8)
        first = memory.ctypes.data
        reward_row = pointer_to(first, like_real)
        action_rows = pointer_to(first + LANES * real_bytes, action_type(0))
        observation_rows = pointer_to(first + observations_at, like_single)
        final_rows = pointer_to(first + finals_at, like_single)
        terminated_row = pointer_to(first + flags_at, False)
        truncated_row = shifted(terminated_row, LANES)
        outputs = StepRows(
            0, LANES, observation_rows, reward_row, terminated_row, truncated_row, final_rows
        )
        step_part(where, arrays, begin, count, width, action_rows, outputs)
        copy_rows(reward_row, address(rewards), 1, count, begin)
        copy_rows(terminated_row, address(terminated), 1, count, begin)
        copy_rows(truncated_row, address(truncated), 1, count, begin)
        copy_rows(observation_rows, address(observations), observations.shape[0], count, begin)
        copy_rows(final_rows, address(finals), finals.shape[0], count, begin)
        memory[0] = 0  # keeps it alive until now: an address does not

    def step(
        where, limits, state, words, actions, params, clock,
        observations, rewards, terminated, truncated, finals,
    ):  # fmt: skip
        arrays = state, words, actions, params, clock
        n, rest = rewards.shape[0], rewards.shape[0] % LANES
        width, size = actions.size // n, max(CHUNK_ROWS * LANES // state.shape[1], 1) * LANES
        bad = 0
        for c in prange((n + size - 1) // size):
            for begin in range(c * size, min((c + 1) * size, n), LANES):
                block_actions = shifted(address(actions), begin * width)
                bad += count_bad(block_actions, address(limits), min(LANES, n - begin) * width)
        if bad > 0:
            return bad
        for c in prange((n - rest + size - 1) // size):
            action_rows: Any = np.empty(width * LANES, action_type)
            begin, count = c * size, min(size, n - rest - c * size)
            outputs = StepRows(
                begin, n, address(observations), address(rewards),
                address(terminated), address(truncated), address(finals),
            )  # fmt: skip
            step_part(where, arrays, begin, count, width, address(action_rows), outputs)
            action_rows[0] = like_real  # keeps it alive until now: an address does not
        if rest > 0:
            results = observations, rewards, terminated, truncated, finals
            step_rest(where, arrays, n - rest, rest, width, results)
        clock[0] += u32(1)
        return bad

    return Kernels(kernel(step, fastmath=EXACT), kernel(step, fastmath=EXACT, parallel=True), 0)


def _compile_blocks(env: Structure, dtype: type, same_step: bool) -> Any:
    """Compile the step of some blocks for C: a function of a view of `BlockSteps`.

    It is compiled once for the loop on one core and that on all, neither of which optimises it
    again.
    """
    lane = compile_lane(env, dtype)
    observe, unpack = lane.observe, lane.unpack
    turn, exact = make_turn(env, dtype, same_step), dtype is np.float64
    draw_words, width = make_draw_words(), max(env.action_size, 1)
    _, set_reward = row_access("rewards")
    _, set_terminated = row_access("terminated")
    _, set_truncated = row_access("truncated")
    (peek, _), (_, poke) = row_access("source"), row_access("actions")
    get_action = _make_get_action(env)
    set_observation = store_rows(env.shown_rows, "observations")
    set_final = store_rows(env.shown_rows, "finals")
    rows = (env.state.rows(dtype) + 1 + len(env.varied)) * LANES
    action_type = np.int32 if _is_whole(env) else dtype

    @env_kernel(env, dtype, by_address=True)
    def step(blocks):
        size, action_rows, outputs = blocks.count, blocks.action_rows, blocks.outputs
        params, counter, limit = unpack(blocks.numbers), blocks.clock[0], blocks.clock[1]
        stride, observations, rewards = outputs.stride, outputs.observations, outputs.rewards
        terminated, truncated, finals = outputs.terminated, outputs.truncated, outputs.finals
        for block in range((size + LANES - 1) // LANES):
            state = shifted(blocks.state, block * rows)
            words = shifted(blocks.words, block * NUM_WORDS * LANES)
            actions = shifted(blocks.actions, block * width * LANES)
            begin, count = outputs.begin + block * LANES, min(LANES, size - block * LANES)
            if count < LANES:  # lanes that nobody sees take an action that there is
                for i in range(width * LANES):
                    poke(action_rows, i, action_type(0))
            # Narrow numbers in rows: an int64 in the loop over lanes would halve its vectors.
            for i in range(count):
                for k in range(width):
                    poke(action_rows, k * LANES + i, peek(actions, i * width + k))
            # libm does not vectorise: the exact mode steps only the lanes that are in use.
            for i in range(count if exact else LANES):
                bits = draw_words(words, i, counter)
                action = get_action(action_rows, LANES, i)
                end = turn(state, words, i, action, bits, params, limit)
                if same_step:
                    set_final(finals, stride, begin + i, observe(end.reached, end.params))
                set_observation(
                    observations, stride, begin + i, observe(end.next_state, end.next_params)
                )
                set_reward(rewards, begin + i, end.reward)
                set_terminated(terminated, begin + i, end.terminated)
                set_truncated(truncated, begin + i, end.truncated)

    step.compile((View(_blocks_type(dtype, _is_whole(env))),))
    return step


def _make_get_action(env: Structure) -> Any:
    """Inlinable function (rows, stride, lane) -> action."""
    peek, _ = row_access("actions")
    if env.action_size == 0:
        return inline(lambda rows, stride, i: peek(rows, i))
    return load_rows(env.action_size, "actions")


def count_bad_of(is_whole: bool) -> Any:
    """Inlinable function (actions, limits, count) -> how many of the first numbers are bad."""
    return _out_of_range if is_whole else _not_a_number


@inline
def _out_of_range(actions, limits, count):
    """Count the numbers, of the first `count`, that are below 0 or not below their limits."""
    bad: Any = 0
    for i in range(count):
        bad += np.uint64(actions[i]) >= np.uint64(limits[i])
    return bad


@inline
def _not_a_number(actions, limits, count):
    """Count the NaN among the first `count` numbers."""
    bad: Any = 0
    for i in range(count):
        bad += actions[i] != actions[i]
    return bad


@functools.cache
def reset_kernel(env: Structure, dtype: type) -> Any:
    """Make the driver (state, words, mask, params, clock) of a reset.

    It writes new states where mask, (blocks * LANES,) bool, is set. The counter of random numbers
    advances by one; the keys of the other environments step back by one, so that their streams do
    not depend on the reset.
    """
    lane = compile_lane(env, dtype)
    load, store, select, reset, unpack = lane.load, lane.store, lane.select, lane.reset, lane.unpack
    vary, redraw = lane.vary, lane.redraw
    select_params, store_params = lane.select_params, lane.store_params
    return_row, zero, real = lane.rows * LANES, u32(0), dtype
    draw_words = make_draw_words()

    @env_kernel(env, dtype)
    def reset_batch(state, words, mask, numbers, clock):
        """Draw new states of the environments of a mask; see `reset_kernel`."""
        params, counter = unpack(numbers), clock[0]
        for block in range(state.shape[0]):
            rows, word, is_reset = state[block], words[block], mask[block * LANES :]
            for i in range(LANES):
                bits = draw_words(word, i, counter)
                lane_params = vary(params, rows, i)
                new_params = redraw(params, lane_params, bits[0], bits[1])
                new_state = reset(new_params, bits[0], bits[1])
                store(rows, LANES, i, select(is_reset[i], new_state, load(rows, LANES, i)))
                store_params(rows, i, select_params(is_reset[i], new_params, lane_params))
                total, elapsed = rows[return_row + i], word[ELAPSED * LANES + i]
                rows[return_row + i] = real(0) if is_reset[i] else total
                key = word[KEY_LOW * LANES + i]
                word[KEY_LOW * LANES + i] = key if is_reset[i] else u32(key - GOLDEN)
                word[ELAPSED * LANES + i] = zero if is_reset[i] else elapsed
        clock[0] += u32(1)

    return reset_batch


@functools.cache
def observe_kernel(env: Structure, dtype: type) -> Any:
    """Make the driver (state, params, observations) that writes all observations.

    `observations`, (shown rows * n,) float32, has a row for each number and a column for each lane.
    """
    lane = compile_lane(env, dtype)
    load, observe, unpack, vary = lane.load, lane.observe, lane.unpack, lane.vary
    put, size = store_rows(env.shown_rows, "observations"), env.shown_rows

    @env_kernel(env, dtype)
    def observe_batch(state, numbers, observations):
        params, n = unpack(numbers), observations.shape[0] // size
        for block in range(state.shape[0]):
            begin = block * LANES
            for i in range(min(LANES, n - begin)):
                lane_params = vary(params, state[block], i)
                observation = observe(load(state[block], LANES, i), lane_params)
                put(observations, n, begin + i, observation)

    return observe_batch


@outline
def copy_rows(source, target, rows, count, begin):
    """Copy `count` items of each row of LANES to the end of a row of `begin + count`."""
    apart()
    compact()
    for row in range(rows):
        for i in range(count):
            target[row * (begin + count) + begin + i] = source[row * LANES + i]
