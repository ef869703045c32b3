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


class EnvFacts(NamedTuple):
    """Numbers of an environment, which drivers take first."""

    #: Address of the environment's function, of a view of a `StepCall`.
    function: int
    #: How many environments one core takes at a time.
    share: int
    #: 1 if a step writes outputs of all lanes of a block, in use or not, else 0.
    fills_blocks: int
    #: From a number of an observation to the same one of the next environment: 1 if observations
    #: are rows of N numbers, else the size of an observation.
    env_step: int


class Steps(NamedTuple):
    """Kernels that step the environments of one structure."""

    #: Of a step, see `make_step_driver`.
    drivers: Kernels
    #: Of resets and of observations, see `make_driver`.
    others: Kernels
    #: The function of some environments, compiled for C.
    function: Any
    facts: EnvFacts
    #: (max(action_size, 1) * LANES,) int64, how many choices each number of a block's actions has,
    #: or (0,) where actions are floats.
    limits: npt.NDArray[np.int64]


class StepCall(NamedTuple):
    """Argument of the function that steps, resets or observes some environments.

    It holds numbers, and pointers to the arrays of all environments.
    """

    #: `OBSERVE`, `RESTART` or `STEP`. A step ends an episode without a new one, which the next step
    #: begins, or a restart.
    mode: Any
    #: The environments: `count` from `begin` on, which begins a block where environments are lanes.
    begin: Any
    count: Any
    #: Numbers from one row of observations to the next, where they are in rows.
    stride: Any
    #: Arrays of `rlcpu.envs.engine.lanes.LaneEngine`; `state` is `real`.
    state: Any
    words: Any
    numbers: Any
    clock: Any
    #: uint8 of each environment, whether `RESTART` takes it.
    mask: Any
    #: A block after the other, with a row of LANES for each number of an action: int32, or floats
    #: of the environment's dtype.
    actions: Any
    #: Outputs. Observations are rows of `stride` numbers, or the environments' one after the other
    #: where states have arrays.
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
    """Return the kernels of N environments along lanes."""
    rows, is_single = env.state.rows(dtype), dtype is np.float32
    function = _compile_lanes(env, dtype)
    facts = EnvFacts(
        function=address_of(function),
        share=max(CHUNK_ROWS // (rows + 1 + len(env.varied)), 1) * LANES,
        fills_blocks=int(is_single),
        env_step=1,
    )
    return make_steps(env, dtype, function, facts, grain=GRAIN // rows if is_single else 512)


def make_steps(env: Structure, dtype: type, function: Any, facts: EnvFacts, grain: int) -> Steps:
    """Return the kernels of an environment whose function is compiled already.

    From `grain` environments on several cores share them.
    """
    choices = env.choices or ((env.num_actions,) if env.action_size == 0 else ())
    limits = np.tile(np.array(choices, np.int64), LANES)
    drivers = make_step_driver(dtype, is_whole(env))._replace(grain=grain)
    others = make_driver(dtype, is_whole(env))._replace(grain=grain)
    return Steps(drivers, others, function, facts, limits)


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


class Memory(NamedTuple):
    """Pointers to the arrays of a `LaneEngine`."""

    state: Any
    words: Any
    numbers: Any
    clock: Any


class Outputs(NamedTuple):
    """Pointers to what a step writes, of all environments."""

    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any
    #: Like observations, of the states to which steps led; not written unless `same_step`.
    finals: Any


class Part(NamedTuple):
    """Some of the environments, and where their observations are.

    Number k of environment i's observation is at `k * row_step + i * env_step`, and number k of its
    final observation at `k * final_row_step + i * env_step`.
    """

    begin: Any
    count: Any
    #: Whether a step that ends an episode starts the next one.
    same_step: Any
    #: Numbers of an observation.
    size: Any
    row_step: Any
    env_step: Any
    final_row_step: Any


@functools.cache
def make_driver(dtype: type, is_whole: bool) -> Kernels:
    """Make the driver of the modes `OBSERVE` and `RESTART`, over all environments.

    Its arguments are the `EnvFacts`, the mode, the arrays of the engine, a mask uint8 of the
    environments to reset, and flat observations, which it writes. There are as many environments as
    the mask has numbers. No reset of some changes the streams of others: it advances the counter,
    and their keys step back by one.
    """
    call = make_call(call_type(dtype, is_whole))
    real, action = dtype(0), np.int32(0) if is_whole else dtype(0)

    def run(
        function, share, fills_blocks, env_step,
        mode, state, words, numbers, clock, mask, observations,
    ):  # fmt: skip
        n = mask.shape[0]
        for chunk in prange((n + share - 1) // share):
            begin = chunk * share
            call(
                function,
                StepCall(
                    mode=mode,
                    begin=begin,
                    count=min(share, n - begin),
                    stride=n,
                    state=address(state),
                    words=address(words),
                    numbers=address(numbers),
                    clock=address(clock),
                    mask=address(mask),
                    actions=pointer_to(0, action),
                    observations=address(observations),
                    rewards=pointer_to(0, real),
                    terminated=pointer_to(0, u8(0)),
                    truncated=pointer_to(0, u8(0)),
                ),
            )
        if mode == RESTART:
            for k in range(n):
                if mask[k] == 0:
                    words[k // LANES, KEY_LOW * LANES + k % LANES] -= GOLDEN
            clock[0] += u32(1)

    return Kernels(kernel(run, fastmath=EXACT), kernel(run, fastmath=EXACT, parallel=True), 0)


@functools.cache
def make_step_driver(dtype: type, is_whole: bool) -> Kernels:
    """Make the driver that checks all actions, then steps all environments.

    It returns the number of bad actions; nothing is written unless that is 0. Its arguments are
    the `EnvFacts`, `Steps.limits` and

    - arrays of a `LaneEngine`: state (blocks, rows * LANES), words (blocks, NUM_WORDS * LANES),
      actions (n,) or (n, action_size), int64 or float32, numbers (num_numbers,), clock (2,);
    - outputs: observations (rows, n) or (n, rows), rewards, terminated, truncated (n,), and finals
      like observations, which are empty unless a step that ends an episode starts the next one.
    """
    count_bad: Any = _out_of_range if is_whole else _not_a_number
    step_chunk = _make_step_chunk(dtype, is_whole)

    def step(
        function, share, fills_blocks, env_step, limits,
        state, words, actions, numbers, clock,
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
        row_step = n if env_step == 1 else 1
        memory = Memory(address(state), address(words), address(numbers), address(clock))
        outputs = Outputs(
            observations=address(observations),
            rewards=address(rewards),
            terminated=address(terminated.view(u8)),
            truncated=address(truncated.view(u8)),
            finals=address(finals),
        )
        for chunk in prange((n + share - 1) // share):
            begin = chunk * share
            part = Part(
                begin=begin,
                count=min(share, n - begin),
                same_step=finals.size > 0,
                size=observations.size // n,
                row_step=row_step,
                env_step=env_step,
                final_row_step=row_step,
            )
            step_chunk(function, part, fills_blocks != 0, memory, address(actions), width, outputs)
        clock[0] += u32(1)
        return bad

    return Kernels(kernel(step, fastmath=EXACT), kernel(step, fastmath=EXACT, parallel=True), 0)


def _make_step_chunk(dtype: type, is_whole: bool) -> Callable[..., None]:
    """Make (function, part, fills_blocks, memory, actions, width, outputs), which steps a chunk.

    It writes the actions, `width` numbers each, to rows of blocks. Where blocks are filled, `part`
    begins one, and its last block may be one that is not full. Outputs of such a block go to memory
    with room for LANES lanes, from which those of the lanes in use are copied.
    """
    step_part = _make_step_part(dtype, is_whole)
    write_actions = _make_write_actions(dtype, is_whole)
    zero_action: Any = np.int32(0) if is_whole else dtype(0)
    zero, single = dtype(0), np.float32(0)
    action_bytes, real_bytes = zero_action.itemsize, zero.itemsize

    @outline(exact=True)
    def step_chunk(function, part, fills_blocks, memory, actions, width, outputs):
        begin, count, size = part.begin, part.count, part.size
        lane, rest = begin % LANES, count % LANES if fills_blocks else 0
        rows_bytes = (lane + count + LANES - 1) // LANES * LANES * width * action_bytes
        # A lane of the last block has a reward, the float32 numbers of an observation, two flags.
        last_bytes = (real_bytes + 4 * size + 2) * LANES if rest > 0 else 0
        scratch = np.empty(rows_bytes + last_bytes + LINE, u8)
        place = (scratch.ctypes.data + LINE - 1) // LINE * LINE
        rows = pointer_to(place, zero_action)
        chosen = shifted(actions, begin * width)
        write_actions(chosen, count, fills_blocks, width, shifted(rows, lane))
        # The function counts environments, and so actions, from the first one of all on.
        action_rows = shifted(rows, -(begin - lane) * width)
        if count > rest:
            full = Part(
                begin, count - rest, part.same_step,
                size, part.row_step, part.env_step, part.final_row_step,
            )  # fmt: skip
            step_part(function, full, memory, action_rows, outputs)
        if rest > 0:
            first, place = begin + count - rest, place + rows_bytes
            rewards = pointer_to(place, zero)
            observations = pointer_to(place + real_bytes * LANES, single)
            terminated = pointer_to(place + (real_bytes + 4 * size) * LANES, u8(0))
            truncated = shifted(terminated, LANES)
            last_outputs = Outputs(
                observations=shifted(observations, -first),
                rewards=shifted(rewards, -first),
                terminated=shifted(terminated, -first),
                truncated=shifted(truncated, -first),
                finals=outputs.finals,
            )
            last = Part(first, rest, part.same_step, size, LANES, 1, part.row_step)
            step_part(function, last, memory, action_rows, last_outputs)
            for i in range(rest):
                outputs.rewards[first + i] = rewards[i]
                outputs.terminated[first + i] = terminated[i]
                outputs.truncated[first + i] = truncated[i]
            for row in range(size):
                for i in range(rest):
                    place_of_all = row * part.row_step + first + i
                    outputs.observations[place_of_all] = observations[row * LANES + i]
        scratch[0] = 0  # an access, which keeps the array alive until here

    return step_chunk


def _make_write_actions(dtype: type, is_whole: bool) -> Callable[..., None]:
    """Make (actions, count, fills_blocks, width, rows), which writes actions to rows of blocks.

    A block is a row of LANES for each of the `width` numbers of an action. Where blocks are filled,
    lanes of the last one that nobody sees take an action, too: 0.
    """
    peek, poke = row_access("source")[0], row_access("target")[1]
    action_type: Any = np.int32 if is_whole else dtype
    no_action = action_type(0)

    @inline(exact=True)
    def write_actions(actions, count, fills_blocks, width, rows):
        for first in range(0, count, LANES):
            lanes, block = min(LANES, count - first), shifted(rows, first * width)
            chosen = shifted(actions, first * width)
            for i in range(width * LANES if fills_blocks and lanes < LANES else 0):
                block[i] = no_action
            if width == 1:  # a loop of its own, which becomes vectors
                for i in range(lanes):
                    poke(block, i, action_type(peek(chosen, i)))
            else:
                for i in range(lanes):
                    for k in range(width):
                        block[k * LANES + i] = action_type(chosen[i * width + k])

    return write_actions


def _make_step_part(dtype: type, is_whole: bool) -> Callable[..., None]:
    """Make (function, part, memory, actions, outputs), which steps some environments.

    With `same_step` it keeps the final observations of episodes that ended, and starts the next
    ones.
    """
    call = make_call(call_type(dtype, is_whole))

    @inline_source
    def call_env(function, mode, part, memory, mask, actions, outputs):
        call(
            function,
            StepCall(
                mode, part.begin, part.count, part.row_step,
                memory.state, memory.words, memory.numbers, memory.clock, mask, actions,
                outputs.observations, outputs.rewards, outputs.terminated, outputs.truncated,
            ),
        )  # fmt: skip

    @outline(exact=True)
    def step_part(function, part, memory, actions, outputs):
        call_env(function, STEP, part, memory, pointer_to(0, u8(0)), actions, outputs)
        if not part.same_step:
            return
        begin, end = part.begin, part.begin + part.count
        mask, num_ended = np.zeros(part.count + LANES, u8), 0
        for i in range(begin, end):
            if outputs.terminated[i] | outputs.truncated[i] != 0:
                mask[i - begin] = 1
                num_ended += 1
                for k in range(part.size):
                    number = outputs.observations[k * part.row_step + i * part.env_step]
                    outputs.finals[k * part.final_row_step + i * part.env_step] = number
        if num_ended > 0:
            mask_of_all = shifted(address(mask), -begin)
            call_env(function, RESTART, part, memory, mask_of_all, actions, outputs)
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
