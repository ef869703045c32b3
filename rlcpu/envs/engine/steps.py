"""Kernels that step, reset and observe N environments.

`rlcpu.envs.engine.lane` describes blocks of environments and their memory. One function is compiled
for an environment, for C: it steps, resets or observes some environments, as a `StepCall` says.
Drivers, loops over all environments, serial or parallel, call it by its address. They know nothing
of the environment but a few sizes: they are compiled once for all environments of a dtype, and so
are rollouts (`rlcpu.envs.engine.rollout`), which call the same function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import from_dtype, prange, types

from rlcpu.envs.dynamics import identity
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
from rlcpu.kernels.compile import EXACT, inline, inline_source, kernel, outline
from rlcpu.kernels.hooks import address_of
from rlcpu.kernels.memory import LINE, address, pointer_to, shifted
from rlcpu.kernels.random import GOLDEN
from rlcpu.kernels.rows import load_rows, row_access, store_rows
from rlcpu.kernels.threads import Kernels

#: Rows of blocks that one iteration of a parallel loop takes.
CHUNK_ROWS = 64
#: Numbers of the states of all environments from which two cores are faster than one. The larger a
#: state is, the longer its step takes: CartPole's has 4 numbers, LunarLander's 28.
GRAIN = 2**16
u8, u32 = np.uint8, np.uint32
#: Modes of a `StepCall`: to observe all, to start some episodes, and to step. The last two write
#: observations, too: of all, or where states have arrays of the episodes that start.
OBSERVE, RESTART, STEP = range(3)


class Steps(NamedTuple):
    """Kernels that step the environments of one structure.

    Attributes:
        drivers: of a step, see `make_step_driver`.
        others: drivers of resets and of observations, see `make_driver`.
        function: the function of some environments, compiled for C.
        leads: the first arguments of drivers, numbers: address of the function; how many
            environments one core takes at a time; 1 if a step writes outputs of all lanes of a
            block, in use or not, else 0; and the distance of the same number of two environments'
            observations: 1 if observations are rows of N numbers, else the size of an observation.
        limits: (max(action_size, 1) * LANES,) int64, how many choices each number of a block's
            actions has, or (0,) where actions are floats.
    """

    drivers: Kernels
    others: Kernels
    function: Any
    leads: tuple[int, int, int, int]
    limits: npt.NDArray[np.int64]


class Strides(NamedTuple):
    """Places of observations: number k of environment i's is at `k * row_step + i * env_step`.

    Final observations have `final_row_step` in the place of `row_step`; `size` are the numbers of
    an observation.
    """

    row_step: Any
    env_step: Any
    final_row_step: Any
    size: Any


class StepCall(NamedTuple):
    """Argument of the function that steps, resets or observes some environments.

    It holds numbers, and pointers to the arrays of all environments.

    Attributes:
        mode: `OBSERVE`, `RESTART` or `STEP`. A step ends an episode without a new one, which the
            next step begins, or a restart.
        begin, count: the environments: so many from `begin` on, which begins a block where
            environments are lanes.
        stride: numbers from one row of observations to the next, where they are in rows.
        state, words, numbers, clock: arrays of `rlcpu.envs.engine.lanes.LaneEngine`; `state` is
            `real`.
        mask: uint8 of each environment, whether `RESTART` takes it.
        actions: a block after the other, with a row of LANES for each number of an action: int32,
            or floats of the environment's dtype.
        observations, rewards, terminated, truncated: outputs. Observations are rows of `stride`
            numbers, or the environments' one after the other where states have arrays.
    """

    mode: Any
    begin: Any
    count: Any
    stride: Any
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


@functools.cache
def call_type(dtype: type, is_whole: bool) -> Any:
    """Return numba's type of a `StepCall` of an environment.

    Args:
        dtype: of the environment's floats.
        is_whole: whether actions are whole numbers.
    """
    # Flags are bytes, since numba reads no bools behind pointers.
    reals, singles, flags = (types.CPointer(from_dtype(np.dtype(x))) for x in (dtype, "f4", "u1"))
    words, number = types.CPointer(types.uint32), types.int64
    return kind_of(
        StepCall(
            mode=number,
            begin=number,
            count=number,
            stride=number,
            state=reals,
            words=words,
            numbers=reals,
            clock=words,
            mask=flags,
            actions=types.CPointer(types.int32) if is_whole else reals,
            observations=singles,
            rewards=reals,
            terminated=flags,
            truncated=flags,
        )
    )


def is_whole(env: Structure) -> bool:
    """Tell whether actions are whole numbers, of a `Discrete` or a `MultiDiscrete`."""
    return env.action_size == 0 or bool(env.choices)


@functools.cache
def step_kernels(env: Structure, dtype: type) -> Steps:
    """Return the kernels of N environments."""
    rows = env.state.rows(dtype) + 1 + len(env.varied)
    is_single = dtype is np.float32
    facts = max(CHUNK_ROWS // rows, 1) * LANES, int(is_single), 1
    grain = GRAIN // env.state.rows(dtype) if is_single else 512
    return make_steps(env, dtype, _compile_lanes(env, dtype), facts, grain)


def make_steps(
    env: Structure, dtype: type, function: Any, facts: tuple[int, int, int], grain: int
) -> Steps:
    """Return the kernels of an environment, of its function that is compiled already.

    Args:
        env: the environment.
        dtype: of its floats.
        function: of a view of a `StepCall`.
        facts: the last three of `Steps.leads`.
        grain: environments from which on several cores share them.
    """
    choices = env.choices or ((env.num_actions,) if env.action_size == 0 else ())
    limits = np.tile(np.array(choices, np.int64), LANES)
    drivers = make_step_driver(dtype, is_whole(env))._replace(grain=grain)
    others = make_driver(dtype, is_whole(env))._replace(grain=grain)
    return Steps(drivers, others, function, (address_of(function), *facts), limits)


# ---------------------------------------------------------------- the function of an environment


def _compile_lanes(env: Structure, dtype: type) -> Any:
    """Compile for C the function of a view of a `StepCall`, for states along the lanes.

    In float32 it runs all lanes of a block, so that loops have a constant length: outputs have room
    for them. libm does not vectorise: in float64, the exact mode, only lanes in use are stepped.
    """
    lane, exact = compile_lane(env, dtype), dtype is np.float64
    unpack, block_size = lane.unpack_params, (lane.rows + 1 + len(env.varied)) * LANES
    step, restart = _make_step_block(env, dtype), _make_restart_block(env, dtype)
    observe, width = _make_observe_block(env, dtype), max(env.action_size, 1)
    step_observes = _observes_states(env)

    @env_kernel(env, dtype, by_address=True)
    def run(job):
        params, mode = unpack(job.numbers), job.mode
        for block in range(job.begin // LANES, (job.begin + job.count + LANES - 1) // LANES):
            state = shifted(job.state, block * block_size)
            words = shifted(job.words, block * NUM_WORDS * LANES)
            place = block * LANES
            lanes = min(LANES, job.begin + job.count - place) if exact else LANES
            if mode == RESTART:
                restart(job, state, words, place, lanes, params)
            if mode == STEP:
                step(job, state, words, place, lanes, params, shifted(job.actions, place * width))
                if step_observes:
                    continue
            observe(job, state, place, lanes, params)

    run.compile((View(call_type(dtype, is_whole(env))),))
    return run


# Below, `state` and `words` are the memory of a block, whose first `lanes` lanes count, and whose
# first environment is number `place`.


def _make_step_block(env: Structure, dtype: type) -> Callable[..., None]:
    """Make (job, state, words, place, lanes, params, actions), which steps a block.

    It writes observations, too, where they are the states: for CartPole a loop of their own takes a
    tenth of the time.
    """
    observes, put = _observes_states(env), store_rows(env.shown_rows, "observations")
    step_lane, draw_bits = make_step_lane(env, dtype, False), make_draw_bits()
    load_action: Any = load_rows(env.action_size, "actions")
    peek_action, is_tuple = row_access("actions")[0], env.action_size > 0
    names = ("rewards", "terminated", "truncated")
    set_reward, set_terminated, set_truncated = (row_access(name)[1] for name in names)
    get_action = inline(
        (lambda actions, i: load_action(actions, LANES, i))
        if is_tuple
        else (lambda actions, i: peek_action(actions, i))
    )

    @inline_source
    def step(job, state, words, place, lanes, params, actions):
        counter, limit = job.clock[0], job.clock[1]
        rewards, terminated, truncated = job.rewards, job.terminated, job.truncated
        observations, stride = job.observations, job.stride
        for i in range(lanes):
            bits = draw_bits(words, i, counter)
            result = step_lane(state, words, i, get_action(actions, i), bits, params, limit)
            if observes:
                put(observations, stride, place + i, result.next_state)
            set_reward(rewards, place + i, result.reward)
            set_terminated(terminated, place + i, result.terminated)
            set_truncated(truncated, place + i, result.truncated)

    return step


def _observes_states(env: Structure) -> bool:
    """Tell whether an observation is the state itself, a tuple of floats, and has no mask."""
    is_state = env.observe.__code__ == identity.__code__ and env.observation.is_plain
    return is_state and env.action_mask is None


def _make_restart_block(env: Structure, dtype: type) -> Callable[..., None]:
    """Make (job, state, words, place, lanes, params): new episodes where the mask is set.

    Both the new and the old state are computed and one is selected, without branches.
    """
    lane, draw_bits = compile_lane(env, dtype), make_draw_bits()
    load, store, select, reset = lane.load, lane.store, lane.select, lane.reset
    params_of_lane, redraw_params = lane.params_of_lane, lane.redraw_params
    select_params, store_params = lane.select_params, lane.store_params
    get_return, set_return = row_access("state")
    # Not "words": stores under that name tell whether the loop of a step became vectors.
    get_elapsed, set_elapsed = row_access("lengths")
    get_mask, return_row, nothing = row_access("source")[0], lane.rows * LANES, dtype(0)

    @inline_source
    def restart(job, state, words, place, lanes, params):
        mask, counter = job.mask, job.clock[0]
        for i in range(lanes):
            bits, is_reset = draw_bits(words, i, counter), get_mask(mask, place + i) != 0
            lane_params = params_of_lane(params, state, i)
            new_params = redraw_params(params, lane_params, bits[0], bits[1])
            new_state = reset(new_params, bits[0], bits[1])
            store(state, LANES, i, select(is_reset, new_state, load(state, LANES, i)))
            store_params(state, i, select_params(is_reset, new_params, lane_params))
            total = get_return(state, return_row + i)
            set_return(state, return_row + i, nothing if is_reset else total)
            elapsed = get_elapsed(words, ELAPSED * LANES + i)
            set_elapsed(words, ELAPSED * LANES + i, u32(0) if is_reset else elapsed)

    return restart


def _make_observe_block(env: Structure, dtype: type) -> Callable[..., None]:
    """Make (job, state, place, lanes, params), which writes the observations of a block.

    It reads states from memory, after a step too: an observation depends on nothing else.
    """
    lane = compile_lane(env, dtype)
    load, observe, params_of_lane = lane.load, lane.observe, lane.params_of_lane
    put = store_rows(env.shown_rows, "observations")

    @inline_source
    def observe_block(job, state, place, lanes, params):
        observations, stride = job.observations, job.stride
        for i in range(lanes):
            observation = observe(load(state, LANES, i), params_of_lane(params, state, i))
            put(observations, stride, place + i, observation)

    return observe_block


# ---------------------------------------------------------------- drivers


@functools.cache
def make_driver(dtype: type, is_whole: bool) -> Kernels:
    """Make the driver of the modes `OBSERVE` and `RESTART`, over all environments.

    Its arguments are `Steps.leads`, the mode, the arrays of the engine, a mask uint8 of the
    environments to reset, and flat observations, which only `OBSERVE` writes. There are as many
    environments as the mask has numbers. No reset of some changes the streams of others: it
    advances the counter, and their keys step back by one.
    """
    call = make_call(call_type(dtype, is_whole))
    real, action = dtype(0), np.int32(0) if is_whole else dtype(0)

    def run(
        function, share, fills_blocks, env_step, mode, state, words, numbers, clock, mask,
        observations,
    ):  # fmt: skip
        n = mask.shape[0]
        for chunk in prange((n + share - 1) // share):
            begin = chunk * share
            call(
                function,
                StepCall(
                    mode, begin, min(share, n - begin), n, address(state), address(words),
                    address(numbers), address(clock), address(mask), pointer_to(0, action),
                    address(observations), pointer_to(0, real), pointer_to(0, u8(0)),
                    pointer_to(0, u8(0)),
                ),
            )  # fmt: skip
        if mode == RESTART:
            for k in range(n):
                key = KEY_LOW * LANES + k % LANES
                if mask[k] == 0:
                    words[k // LANES, key] -= GOLDEN
            clock[0] += u32(1)

    return Kernels(kernel(run, fastmath=EXACT), kernel(run, fastmath=EXACT, parallel=True), 0)


@functools.cache
def make_step_driver(dtype: type, is_whole: bool) -> Kernels:
    """Make the driver that checks all actions, then steps all environments.

    Its arguments are `Steps.leads` and `Steps.limits`; state (blocks, rows * LANES), words (blocks,
    NUM_WORDS * LANES), actions (n,) or (n, action_size), int64 or float32, params (num_numbers,)
    and clock (2,) of a `LaneEngine`; and outputs: observations (rows, n) or (n, rows), rewards,
    terminated, truncated (n,), and finals like observations, which are empty unless a step that
    ends an episode starts the next one. It returns the number of bad actions; nothing is written
    unless that is 0.
    """
    count_bad: Any = _out_of_range if is_whole else _not_a_number
    step_some = _make_step_some(dtype, is_whole)

    def step(
        function, share, fills_blocks, env_step, limits, state, words, actions, params, clock,
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
        arrays = address(state), address(words), address(params), address(clock)
        outputs = (
            address(observations), address(rewards), address(terminated.view(u8)),
            address(truncated.view(u8)), address(finals),
        )  # fmt: skip
        sizes = n, observations.size // n, width, env_step
        for chunk in prange((n + share - 1) // share):
            begin = chunk * share
            some = begin, min(share, n - begin), fills_blocks != 0, finals.size > 0
            step_some(function, some, sizes, arrays, address(actions), outputs)
        clock[0] += u32(1)
        return bad

    return Kernels(kernel(step, fastmath=EXACT), kernel(step, fastmath=EXACT, parallel=True), 0)


def _make_step_some(dtype: type, is_whole: bool) -> Callable[..., None]:
    """Make the function that steps the environments of one chunk, `count` from `begin` on.

    It is (function, some, sizes, arrays, actions, outputs). `some` are begin, count, whether the
    environment's function fills blocks, and whether a step that ends an episode starts the next
    one; `sizes` are n, numbers of an observation and of an action, and `env_step` of `Steps.leads`;
    the other tuples are those of `make_step_driver`. Where blocks are filled, `begin` begins one,
    and the environments of a block that is not full get memory of their own for outputs, from which
    those of the lanes in use are copied; final observations are written to their places at once.
    """
    step_part, (peek, _) = _make_step_part(dtype, is_whole), row_access("source")
    _, poke = row_access("target")
    action_type: Any = np.int32 if is_whole else dtype
    like_action, like_single, like_real = action_type(0), np.float32(0), dtype(0)
    action_item, item = np.dtype(action_type).itemsize, np.dtype(dtype).itemsize

    @outline(exact=True)
    def step_some(function, some, sizes, arrays, actions, outputs):
        (begin, count, fills_blocks, same_step), (n, size, width, env_step) = some, sizes
        lane, rest = begin % LANES, count % LANES if fills_blocks else 0
        action_bytes = (lane + count + LANES - 1) // LANES * LANES * width * action_item
        # Outputs of a block that is not full: of each lane a reward, the float32 numbers of an
        # observation, and two flags.
        partial_bytes = (item + 4 * size + 2) * LANES if rest > 0 else 0
        memory = np.empty(action_bytes + partial_bytes + LINE, u8)
        memory_place = (memory.ctypes.data + LINE - 1) // LINE * LINE
        rows = pointer_to(memory_place, like_action)
        write_actions(actions, some, width, shifted(rows, lane))
        # The function counts environments, and so actions, from the first one of all on.
        action_rows = shifted(rows, -(begin - lane) * width)
        row_step = n if env_step == 1 else 1
        if count > rest:
            strides = Strides(row_step, env_step, row_step, size)
            part = begin, count - rest, same_step
            step_part(function, part, strides, arrays, action_rows, outputs)
        if rest > 0:
            first, place = begin + count - rest, memory_place + action_bytes
            partial_rewards = pointer_to(place, like_real)
            partial_observations = pointer_to(place + item * LANES, like_single)
            partial_terminated = pointer_to(place + (item + 4 * size) * LANES, u8(0))
            partial_truncated = shifted(partial_terminated, LANES)
            partial_outputs = (
                shifted(partial_observations, -first), shifted(partial_rewards, -first),
                shifted(partial_terminated, -first), shifted(partial_truncated, -first), outputs[4],
            )  # fmt: skip
            strides, part = Strides(LANES, 1, n, size), (first, rest, same_step)
            step_part(function, part, strides, arrays, action_rows, partial_outputs)
            observations, rewards, terminated, truncated, _ = outputs
            for i in range(rest):
                rewards[first + i] = partial_rewards[i]
                terminated[first + i] = partial_terminated[i]
                truncated[first + i] = partial_truncated[i]
            for row in range(size):
                for i in range(rest):
                    observations[row * n + first + i] = partial_observations[row * LANES + i]
        memory[0] = 0  # an access, which keeps the array alive until here

    @inline(exact=True)
    def write_actions(actions, some, width, rows):
        """Write the actions of some environments to rows of blocks, LANES numbers each.

        Where blocks are filled, lanes of the last one that nobody sees take an action, too: 0.
        """
        begin, count, fills_blocks, _ = some
        for first in range(0, count, LANES):
            lanes, block = min(LANES, count - first), shifted(rows, first * width)
            chosen = shifted(actions, (begin + first) * width)
            for i in range(width * LANES if fills_blocks and lanes < LANES else 0):
                block[i] = like_action
            if width == 1:  # a loop of its own, which becomes vectors
                for i in range(lanes):
                    poke(block, i, action_type(peek(chosen, i)))
            else:
                for i in range(lanes):
                    for k in range(width):
                        block[k * LANES + i] = action_type(chosen[i * width + k])

    return step_some


def _make_step_part(dtype: type, is_whole: bool) -> Callable[..., None]:
    """Make the function that steps environments, and starts the next episodes in the same step.

    It is (function, part, strides, arrays, actions, outputs); `part` is begin, count and whether
    to start the next episodes.
    """
    call = make_call(call_type(dtype, is_whole))

    @outline(exact=True)
    def step_part(function, part, strides, arrays, actions, outputs):
        (begin, count, same_step), (row_step, env_step, final_row_step, size) = part, strides
        state, words, numbers, clock = arrays
        observations, rewards, terminated, truncated, finals = outputs
        no_mask = pointer_to(0, u8(0))
        call(
            function,
            StepCall(
                STEP, begin, count, row_step, state, words, numbers, clock, no_mask, actions,
                observations, rewards, terminated, truncated,
            ),
        )  # fmt: skip
        if not same_step:
            return
        mask, num_ended = np.zeros(count + LANES, u8), 0
        for i in range(begin, begin + count):
            if terminated[i] | truncated[i] != 0:
                mask[i - begin] = 1
                num_ended += 1
                for k in range(size):
                    number = observations[k * row_step + i * env_step]
                    finals[k * final_row_step + i * env_step] = number
        if num_ended > 0:
            call(
                function,
                StepCall(
                    RESTART, begin, count, row_step, state, words, numbers, clock,
                    shifted(address(mask), -begin), actions,
                    observations, rewards, terminated, truncated,
                ),
            )  # fmt: skip
        mask[0] = 0  # an access, which keeps the array alive until here

    return step_part


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
