"""Kernels of one step, of a reset and of observations, for N environments in blocks of lanes."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import from_dtype, njit, prange, types

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
from rlcpu.kernels.compile import EXACT, FAST, INLINE, apart, compact, inline, kernel, outline
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
#: What a job of some environments is: to show states, to start episodes, to step.
SHOW, RESTART, STEP = range(3)


class Steps(NamedTuple):
    """Kernels that step the environments of one structure.

    Attributes:
        drivers: the loops over environments, see `make_driver`.
        function: one step of some environments, compiled for C.
        leads: the first arguments of drivers: address of the function, how many environments one
            core takes at a time, and (max(action_size, 1) * LANES,) int64, how many choices each
            number of a block's actions has; (0,) where actions are floats.
    """

    drivers: Kernels
    function: Any
    leads: tuple[int, int, npt.NDArray[np.int64]]


class StepCall(NamedTuple):
    """Numbers and pointers that the function of some environments is given.

    Attributes:
        mode: what it does, of a function that does several things.
        same_step: whether a step that ends an episode starts the next one.
        begin, count: the environments; the first one begins a block where they are in lanes.
        num_envs: of all environments, whose arrays follow.
        state, words, numbers, clock: see `rlcpu.envs.engine.lanes.LaneEngine`.
        mask: (num_envs,) uint8.
        actions: (num_envs, action_size), as users give them.
        observations, rewards, terminated, truncated, finals: outputs. Those of observations are
            (shown rows, num_envs), or (num_envs, shown rows) where states have arrays.
    """

    mode: Any
    same_step: Any
    begin: Any
    count: Any
    num_envs: Any
    state: Any
    words: Any
    numbers: Any
    clock: Any
    mask: Any
    actions: Any
    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any
    finals: Any


@functools.cache
def call_type(dtype: type, is_whole: bool) -> Any:
    """Return numba's type of a `StepCall`."""
    real, single, flags = (types.CPointer(from_dtype(np.dtype(x))) for x in (dtype, "f4", "?"))
    words, size = types.CPointer(types.uint32), types.int64
    actions = types.CPointer(types.int64) if is_whole else single
    memory = real, words, real, words, types.CPointer(types.uint8)
    outputs = single, real, flags, flags, single
    return kind_of(StepCall(size, size, size, size, size, *memory, actions, *outputs))


@functools.cache
def step_kernels(env: Structure, dtype: type, same_step: bool) -> Steps:
    """Return kernels of a step of N environments, of which that of some blocks is compiled here."""
    function = _compile_blocks(env, dtype, same_step)
    grain = GRAIN // env.state.rows(dtype) if dtype is np.float32 else 512
    rows = env.state.rows(dtype) + 1 + len(env.varied)
    return make_steps(env, dtype, function, max(CHUNK_ROWS // rows, 1) * LANES, grain)


def make_steps(env: Structure, dtype: type, function: Any, share: int, grain: int) -> Steps:
    """Return the kernels around a function of a view of a `StepCall`."""
    choices = env.choices or ((env.num_actions,) if env.action_size == 0 else ())
    limits = np.tile(np.array(choices, np.int64), LANES)
    drivers = make_driver(dtype, is_whole(env))._replace(grain=grain)
    return Steps(drivers, function, (address_of(function), share, limits))


def is_whole(env: Structure) -> bool:
    """Tell whether actions are whole numbers: of a `Discrete` or a `MultiDiscrete`."""
    return env.action_size == 0 or bool(env.choices)


@functools.cache
def make_driver(dtype: type, is_whole: bool) -> Kernels:
    """Make the driver that checks all actions, then steps all environments.

    Its arguments are `leads` of `Steps`, state (blocks, rows * LANES), words (blocks, NUM_WORDS
    * LANES), actions (n,) or (n, action_size), int64 or float32, params
    (num_numbers,), clock (2,): the counter of random numbers and the limit of an episode's steps;
    and the outputs of `StepCall`, of which finals are empty unless a step that ends an episode
    starts the next one. It returns the number of bad actions; nothing is written unless that is 0.
    """
    call = make_call(call_type(dtype, is_whole))
    count_bad: Any = _out_of_range if is_whole else _not_a_number

    def step(
        where, share, limits, state, words, actions, params, clock,
        observations, rewards, terminated, truncated, finals,
    ):  # fmt: skip
        n, bad = rewards.shape[0], 0
        width = actions.size // n
        for c in prange((n + share - 1) // share):
            end = min((c + 1) * share, n)
            for begin in range(c * share, end, LANES):
                part = shifted(address(actions), begin * width)
                bad += count_bad(part, address(limits), min(LANES, end - begin) * width)
        if bad > 0:
            return bad
        for c in prange((n + share - 1) // share):
            call(
                where,
                StepCall(
                    STEP, np.int64(finals.size > 0), c * share, min(share, n - c * share), n,
                    address(state), address(words), address(params), address(clock),
                    pointer_to(0, np.uint8(0)), address(actions),
                    address(observations), address(rewards), address(terminated),
                    address(truncated), address(finals),
                ),
            )  # fmt: skip
        clock[0] += u32(1)
        return bad

    return Kernels(kernel(step, fastmath=EXACT), kernel(step, fastmath=EXACT, parallel=True), 0)


def _compile_blocks(env: Structure, dtype: type, same_step: bool) -> Any:
    """Compile the step of some blocks for C: a function of a view of `StepCall`.

    It is compiled once for the loop on one core and that on all, neither of which optimises it
    again. The last block of all may have fewer lanes than it has room for: it writes rows of LANES,
    which are copied to their places.
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
    action_type, size = np.int32 if is_whole(env) else dtype, env.shown_rows
    like_real, like_single, like_action = dtype(0), np.float32(0), action_type(0)
    # Bytes of memory before each of its parts: actions, rewards, observations, finals and flags.
    rewards_at = width * LANES * np.dtype(action_type).itemsize
    observations_at = rewards_at + LANES * np.dtype(dtype).itemsize
    finals_at = observations_at + 4 * LANES * size
    flags_at = finals_at + (4 * LANES * size if same_step else 0)

    @njit(fastmath=EXACT if exact else FAST, **{**INLINE, "forceinline": False})
    def step_blocks(job, first, count, action_rows, stride, begin, outputs):
        """Step `count` environments from `first` on, the first one of a block.

        It writes outputs from `begin` on in rows of `stride`. It is a function of its own: where
        its pointers may be a last block's or those of all environments, LLVM finds no vectors.
        """
        apart()
        observations, rewards, terminated, truncated, finals = outputs
        params, counter, limit = unpack(job.numbers), job.clock[0], job.clock[1]
        for block in range((count + LANES - 1) // LANES):
            state = shifted(job.state, (first // LANES + block) * rows)
            words = shifted(job.words, (first // LANES + block) * NUM_WORDS * LANES)
            actions = shifted(job.actions, (first + block * LANES) * width)
            lanes, place = min(LANES, count - block * LANES), begin + block * LANES
            if lanes < LANES:  # lanes that nobody sees take an action, too
                for i in range(width * LANES):
                    poke(action_rows, i, like_action)
            # Narrow numbers in rows: an int64 in the loop over lanes would halve its vectors.
            for i in range(lanes):
                for k in range(width):
                    poke(action_rows, k * LANES + i, peek(actions, i * width + k))
            # libm does not vectorise: the exact mode steps only the lanes that are in use.
            for i in range(lanes if exact else LANES):
                bits = draw_words(words, i, counter)
                action = get_action(action_rows, LANES, i)
                end = turn(state, words, i, action, bits, params, limit)
                if same_step:
                    set_final(finals, stride, place + i, observe(end.reached, end.params))
                shown = observe(end.next_state, end.next_params)
                set_observation(observations, stride, place + i, shown)
                set_reward(rewards, place + i, end.reward)
                set_terminated(terminated, place + i, end.terminated)
                set_truncated(truncated, place + i, end.truncated)

    @env_kernel(env, dtype, by_address=True)
    def step(job):
        n, begin, rest = job.num_envs, job.begin, job.count % LANES
        full = job.count - rest
        memory = np.empty(flags_at + 2 * LANES if rest > 0 else rewards_at, np.uint8)
        place = memory.ctypes.data
        action_rows = pointer_to(place, like_action)
        if full > 0:
            outputs = job.observations, job.rewards, job.terminated, job.truncated, job.finals
            step_blocks(job, begin, full, action_rows, n, begin, outputs)
        if rest > 0:
            observations = pointer_to(place + observations_at, like_single)
            rewards = pointer_to(place + rewards_at, like_real)
            terminated = pointer_to(place + flags_at, False)
            truncated = shifted(terminated, LANES)
            finals = pointer_to(place + finals_at, like_single)
            rows_of_lanes = observations, rewards, terminated, truncated, finals
            step_blocks(job, begin + full, rest, action_rows, LANES, 0, rows_of_lanes)
            copy_rows(rewards, job.rewards, 1, rest, n)
            copy_rows(terminated, job.terminated, 1, rest, n)
            copy_rows(truncated, job.truncated, 1, rest, n)
            copy_rows(observations, job.observations, size, rest, n)
            if same_step:
                copy_rows(finals, job.finals, size, rest, n)
        memory[0] = 0  # keeps it alive until now: an address does not

    step.compile((View(call_type(dtype, is_whole(env))),))
    return step


def _make_get_action(env: Structure) -> Any:
    """Make an inlinable function (rows, stride, lane) -> action."""
    peek, _ = row_access("actions")
    if env.action_size == 0:
        return inline(lambda rows, stride, i: peek(rows, i))
    return load_rows(env.action_size, "actions")


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
def copy_rows(source, target, rows, count, n):
    """Copy `count` items of each row of LANES to the end of a row of n."""
    apart()
    compact()
    for row in range(rows):
        for i in range(count):
            target[row * n + n - count + i] = source[row * LANES + i]
