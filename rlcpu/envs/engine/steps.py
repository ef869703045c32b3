"""Kernels of one step, of a reset and of observations, for N environments in blocks of lanes.

`rlcpu.envs.engine.lane` describes blocks and their memory. A step has two kernels: the function of
some blocks, which knows the environment and is compiled for C; and the driver, a loop over groups
of blocks, serial or parallel, which calls that function by its address with a `StepCall`. So the
long function is compiled once for both loops, and the driver once for all environments of a dtype.
"""

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
    make_draw_bits,
    make_step_lane,
)
from rlcpu.kernels.calls import View, kind_of, make_call
from rlcpu.kernels.compile import (
    EXACT,
    FAST,
    INLINE,
    inline,
    kernel,
    never_inline,
    outline,
    prefer_small_code,
)
from rlcpu.kernels.hooks import address_of
from rlcpu.kernels.memory import address, pointer_to, shifted
from rlcpu.kernels.random import GOLDEN
from rlcpu.kernels.rows import load_rows, row_access, store_rows
from rlcpu.kernels.threads import Kernels

#: Rows of blocks that one iteration of a parallel loop takes.
CHUNK_ROWS = 64
#: Numbers of the states of all environments from which two cores are faster than one. The larger a
#: state is, the longer its step takes: CartPole's has 4 numbers, LunarLander's 28.
GRAIN = 2**16
u32 = np.uint32
#: Modes of a `StepCall`: to write observations, to start episodes, to step.
OBSERVE, RESTART, STEP = range(3)


class Steps(NamedTuple):
    """Kernels that step the environments of one structure.

    Attributes:
        drivers: the loops over environments, see `make_driver`.
        function: one step of some environments, compiled for C.
        leads: the first arguments of drivers: address of the function; how many environments one
            core takes at a time; and (max(action_size, 1) * LANES,) int64, how many choices each
            number of a block's actions has, or (0,) where actions are floats.
    """

    drivers: Kernels
    function: Any
    leads: tuple[int, int, npt.NDArray[np.int64]]


class StepCall(NamedTuple):
    """Argument of the function that steps some environments: numbers, and pointers to arrays.

    Attributes:
        mode: `STEP`, or another one of a function that has several.
        same_step: whether a step that ends an episode starts the next one.
        begin, count: the environments: so many from `begin` on, which begins a block where
            environments are lanes.
        num_envs: of all environments, whose arrays follow.
        state, words, numbers, clock: arrays of `rlcpu.envs.engine.lanes.LaneEngine`; `state` is
            `real`.
        mask: (num_envs,) uint8, which environments to reset.
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
    """Return numba's type of a `StepCall` of an environment.

    Args:
        dtype: of the environment's floats.
        is_whole: whether actions are int64, not float32.
    """
    reals, singles, flags = (types.CPointer(from_dtype(np.dtype(x))) for x in (dtype, "f4", "?"))
    words, number = types.CPointer(types.uint32), types.int64
    return kind_of(
        StepCall(
            mode=number,
            same_step=number,
            begin=number,
            count=number,
            num_envs=number,
            state=reals,
            words=words,
            numbers=reals,
            clock=words,
            mask=types.CPointer(types.uint8),
            actions=types.CPointer(types.int64) if is_whole else singles,
            observations=singles,
            rewards=reals,
            terminated=flags,
            truncated=flags,
            finals=singles,
        )
    )


@functools.cache
def step_kernels(env: Structure, dtype: type, same_step: bool) -> Steps:
    """Return the kernels of a step of N environments; `same_step` is the autoreset mode."""
    function = _compile_blocks(env, dtype, same_step)
    grain = GRAIN // env.state.rows(dtype) if dtype is np.float32 else 512
    rows = env.state.rows(dtype) + 1 + len(env.varied)
    return make_steps(env, dtype, function, max(CHUNK_ROWS // rows, 1) * LANES, grain)


def make_steps(env: Structure, dtype: type, function: Any, share: int, grain: int) -> Steps:
    """Return the kernels of a step, of a function that is compiled already.

    Args:
        env: the environment.
        dtype: of its floats.
        function: one step of some environments, of a view of a `StepCall`.
        share: environments that one core takes at a time.
        grain: environments from which on several cores share them.
    """
    choices = env.choices or ((env.num_actions,) if env.action_size == 0 else ())
    limits = np.tile(np.array(choices, np.int64), LANES)
    drivers = make_driver(dtype, is_whole(env))._replace(grain=grain)
    return Steps(drivers, function, (address_of(function), share, limits))


def is_whole(env: Structure) -> bool:
    """Tell whether actions are whole numbers, of a `Discrete` or a `MultiDiscrete`."""
    return env.action_size == 0 or bool(env.choices)


@functools.cache
def make_driver(dtype: type, is_whole: bool) -> Kernels:
    """Make the driver that checks all actions, then steps all environments.

    Its arguments are `Steps.leads` (`function`, `share`, `limits`); state (blocks, rows * LANES),
    words (blocks, NUM_WORDS * LANES), actions (n,) or (n, action_size), int64 or float32, params
    (num_numbers,) and clock (2,) of a `LaneEngine`; and the outputs of `StepCall`, of which finals
    are empty unless a step that ends an episode starts the next one. It returns the number of bad
    actions; nothing is written unless that is 0.
    """
    call = make_call(call_type(dtype, is_whole))
    count_bad: Any = _out_of_range if is_whole else _not_a_number

    def step(
        function, share, limits, state, words, actions, params, clock,
        observations, rewards, terminated, truncated, finals,
    ):  # fmt: skip
        n, bad = rewards.shape[0], 0
        width = actions.size // n
        for chunk in prange((n + share - 1) // share):
            end = min((chunk + 1) * share, n)
            for begin in range(chunk * share, end, LANES):
                part = shifted(address(actions), begin * width)
                bad += count_bad(part, address(limits), min(LANES, end - begin) * width)
        if bad > 0:
            return bad
        for chunk in prange((n + share - 1) // share):
            begin = chunk * share
            call(
                function,
                StepCall(
                    STEP, np.int64(finals.size > 0), begin, min(share, n - begin), n,
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
    """Compile for C the step of some blocks: a function of a view of a `StepCall`.

    The last block of all may have fewer environments than lanes. Its outputs are written to memory
    of `LANES` environments, and those of the environments that there are copied to their places.
    """
    lane = compile_lane(env, dtype)
    observe, unpack = lane.observe, lane.unpack_params
    step_lane, exact = make_step_lane(env, dtype, same_step), dtype is np.float64
    draw_bits, width = make_draw_bits(), max(env.action_size, 1)
    _, set_reward = row_access("rewards")
    _, set_terminated = row_access("terminated")
    _, set_truncated = row_access("truncated")
    (peek, _), (_, poke) = row_access("source"), row_access("actions")
    get_action = _make_get_action(env)
    set_observation = store_rows(env.shown_rows, "observations")
    set_final = store_rows(env.shown_rows, "finals")
    block_size = (env.state.rows(dtype) + 1 + len(env.varied)) * LANES
    action_type, size = np.int32 if is_whole(env) else dtype, env.shown_rows
    # Examples of the items behind pointers, from which `pointer_to` reads their type.
    like_real, like_single, like_action = dtype(0), np.float32(0), action_type(0)
    # First bytes of the parts of a block's own memory: actions, which begin it, then outputs.
    rewards_at = width * LANES * np.dtype(action_type).itemsize
    observations_at = rewards_at + LANES * np.dtype(dtype).itemsize
    finals_at = observations_at + 4 * LANES * size
    flags_at = finals_at + (4 * LANES * size if same_step else 0)

    @njit(fastmath=EXACT if exact else FAST, **{**INLINE, "forceinline": False})
    def step_blocks(job, first, count, action_rows, stride, begin, outputs):
        """Step `count` environments from number `first` on, which begins a block.

        It writes outputs, pointers to rows of `stride` numbers, from column `begin` on.
        `action_rows` is memory for the actions of a block, one row for each number of an action. A
        function of its own: where the same pointers may be those of a last block or those of all
        environments, LLVM finds no vectors.
        """
        never_inline()
        observations, rewards, terminated, truncated, finals = outputs
        params, counter, limit = unpack(job.numbers), job.clock[0], job.clock[1]
        for block in range((count + LANES - 1) // LANES):
            state = shifted(job.state, (first // LANES + block) * block_size)
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
                bits = draw_bits(words, i, counter)
                action = get_action(action_rows, LANES, i)
                result = step_lane(state, words, i, action, bits, params, limit)
                if same_step:
                    set_final(finals, stride, place + i, observe(result.reached, result.params))
                observation = observe(result.next_state, result.next_params)
                set_observation(observations, stride, place + i, observation)
                set_reward(rewards, place + i, result.reward)
                set_terminated(terminated, place + i, result.terminated)
                set_truncated(truncated, place + i, result.truncated)

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
            outputs_of_block = observations, rewards, terminated, truncated, finals
            step_blocks(job, begin + full, rest, action_rows, LANES, 0, outputs_of_block)
            copy_rows(rewards, job.rewards, 1, rest, n)
            copy_rows(terminated, job.terminated, 1, rest, n)
            copy_rows(truncated, job.truncated, 1, rest, n)
            copy_rows(observations, job.observations, size, rest, n)
            if same_step:
                copy_rows(finals, job.finals, size, rest, n)
        memory[0] = 0  # an access, which keeps the array alive until here; its address does not

    step.compile((View(call_type(dtype, is_whole(env))),))
    return step


def _make_get_action(env: Structure) -> Any:
    """Make an inlinable function (rows, stride, i) -> the action in column i of rows of actions."""
    peek, _ = row_access("actions")
    if env.action_size == 0:
        return inline(lambda rows, stride, i: peek(rows, i))
    return load_rows(env.action_size, "actions")


@inline
def _out_of_range(actions, limits, count):
    """Count, of the first `count` actions, those below 0 or not below their limits."""
    bad: Any = 0
    for i in range(count):
        bad += np.uint64(actions[i]) >= np.uint64(limits[i])
    return bad


@inline
def _not_a_number(actions, limits, count):
    """Count the NaN among the first `count` numbers of actions; `limits` are not read."""
    bad: Any = 0
    for i in range(count):
        bad += actions[i] != actions[i]
    return bad


@functools.cache
def reset_kernel(env: Structure, dtype: type) -> Any:
    """Make the driver (state, words, mask, numbers, clock) of a reset of all environments or some.

    It starts new episodes where mask, (blocks * LANES,) bool, is set; `numbers` are those of
    params. The counter of random numbers advances by one; the keys of the other environments step
    back by one, so that the reset does not change their streams. Both the new and the old state are
    computed and one is selected, without branches.
    """
    lane = compile_lane(env, dtype)
    load, store, select, reset, unpack = (
        lane.load,
        lane.store,
        lane.select,
        lane.reset,
        lane.unpack_params,
    )
    params_of_lane, redraw_params = lane.params_of_lane, lane.redraw_params
    select_params, store_params = lane.select_params, lane.store_params
    return_row, zero, real = lane.rows * LANES, u32(0), dtype
    draw_bits = make_draw_bits()

    @env_kernel(env, dtype)
    def reset_batch(state, words, mask, numbers, clock):
        """Draw new states of the environments of a mask; see `reset_kernel`."""
        params, counter = unpack(numbers), clock[0]
        for block in range(state.shape[0]):
            rows, word, is_reset = state[block], words[block], mask[block * LANES :]
            for i in range(LANES):
                bits = draw_bits(word, i, counter)
                lane_params = params_of_lane(params, rows, i)
                new_params = redraw_params(params, lane_params, bits[0], bits[1])
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
    """Make the driver (state, numbers, observations) that writes all observations.

    `observations`, (shown rows * n,) float32, has a row for each number and a column for each
    environment.
    """
    lane = compile_lane(env, dtype)
    load, observe, unpack, params_of_lane = (
        lane.load,
        lane.observe,
        lane.unpack_params,
        lane.params_of_lane,
    )
    put, size = store_rows(env.shown_rows, "observations"), env.shown_rows

    @env_kernel(env, dtype)
    def observe_batch(state, numbers, observations):
        params, n = unpack(numbers), observations.shape[0] // size
        for block in range(state.shape[0]):
            begin = block * LANES
            for i in range(min(LANES, n - begin)):
                lane_params = params_of_lane(params, state[block], i)
                observation = observe(load(state[block], LANES, i), lane_params)
                put(observations, n, begin + i, observation)

    return observe_batch


@outline
def copy_rows(source, target, rows, count, n):
    """Copy `count` items of each of `rows` rows of LANES to the end of a row of n in `target`."""
    never_inline()
    prefer_small_code()
    for row in range(rows):
        for i in range(count):
            target[row * n + n - count + i] = source[row * LANES + i]
