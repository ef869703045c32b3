"""Drivers: loops over all environments, serial or parallel, which call their function by address.

They know nothing of an environment but `EnvFacts`: they are compiled once for all environments of a
dtype. Environment n of all is lane n % LANES of block n // LANES. Here `is_whole` tells whether
actions are whole numbers, and `width` is how many numbers an action has, at least 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from rlcpu.envs.engine.frames import RESTART, STEP, step_call_of
from rlcpu.envs.engine.lane import KEY_LOW, LANES
from rlcpu.kernels.compiler.compile import EXACT, inline_source, outline
from rlcpu.kernels.machine.memory import LINE, address, call_at, pointer_to, shifted
from rlcpu.kernels.machine.random import GOLDEN
from rlcpu.kernels.machine.rows import row_access
from rlcpu.kernels.machine.threads import Kernels, for_cores

u8, u32 = np.uint8, np.uint32


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


class EngineMemory(NamedTuple):
    """Pointers to the arrays of a `LaneEngine`."""

    state: Any
    words: Any
    numbers: Any
    clock: Any


class OutputPointers(NamedTuple):
    """Pointers to what a step writes, of all environments."""

    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any
    #: Like observations, of the states to which steps led; not written unless `same_step`.
    finals: Any


class EnvRange(NamedTuple):
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
    the mask has numbers. A random number is one of key + counter * `GOLDEN`: a reset of some
    advances the counter of all, and the keys of the others step back by `GOLDEN`, so that their
    streams go on.
    """
    step_call = step_call_of(dtype, is_whole)
    # They give types to pointers to nothing: these modes touch neither actions nor rewards.
    real, action = dtype(0), np.int32(0) if is_whole else dtype(0)

    def run(
        function, share, fills_blocks, env_step,
        mode, state, words, numbers, clock, mask, observations,
    ):  # fmt: skip
        n = mask.shape[0]
        for chunk in prange((n + share - 1) // share):
            begin = chunk * share
            call = step_call(
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
            )
            call_at(function, (call,))
        if mode == RESTART:
            for k in range(n):
                if mask[k] == 0:
                    words[k // LANES, KEY_LOW * LANES + k % LANES] -= GOLDEN
            clock[0] += u32(1)

    return for_cores(run, grain=0, fastmath=EXACT)  # `make_steps` sets an environment's grain


@functools.cache
def make_step_driver(dtype: type, is_whole: bool) -> Kernels:
    """Make the driver that checks all actions, then steps all environments.

    It returns the number of bad actions; nothing is written unless that is 0. Its arguments are
    the `EnvFacts`, `Steps.limits` and

    - arrays of a `LaneEngine`: state (blocks, rows * LANES), words (blocks, NUM_WORDS * LANES),
      actions (n,) or (n, action_size), int64 or float32, numbers (num_numbers,) of the params, and
      clock (2,), the counter of random numbers and the limit of an episode's steps;
    - outputs: observations (rows, n) or (n, rows), rewards, terminated, truncated (n,), and finals
      like observations, which are empty unless a step that ends an episode starts the next one.
    """
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
                chosen = shifted(address(actions), begin * width)
                count: Any = 0
                for k in range(min(LANES, end - begin) * width):
                    if is_whole:  # as unsigned numbers, those below 0 are above every limit
                        count += np.uint64(chosen[k]) >= np.uint64(limits[k])
                    else:
                        count += chosen[k] != chosen[k]  # NaN alone differs from itself
                bad += count
        if bad > 0:
            return bad
        row_step = n if env_step == 1 else 1
        memory = EngineMemory(address(state), address(words), address(numbers), address(clock))
        outputs = OutputPointers(
            observations=address(observations),
            rewards=address(rewards),
            terminated=address(terminated.view(u8)),
            truncated=address(truncated.view(u8)),
            finals=address(finals),
        )
        for chunk in prange((n + share - 1) // share):
            begin = chunk * share
            part = EnvRange(
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

    return for_cores(step, grain=0, fastmath=EXACT)  # `make_steps` sets an environment's grain


def _make_step_chunk(dtype: type, is_whole: bool) -> Callable[..., None]:
    """Make (function, part, fills_blocks, memory, actions, width, outputs), which steps a chunk.

    `function` is the address of the environment's, `part` an `EnvRange`. It writes the actions to
    blocks, a row of LANES for each of the `width` numbers of an action. Where blocks are filled,
    `part` begins one, and its last block may be one that is not full, with `rest` lanes in use.
    Outputs of such a block go to memory with room for LANES lanes, from which those of the lanes in
    use are copied.
    """
    step_part = _make_step_part(dtype, is_whole)
    peek, poke = row_access("source")[0], row_access("target")[1]
    action_type: Any = np.int32 if is_whole else dtype
    zero_action = action_type(0)
    zero, single = dtype(0), np.float32(0)
    action_bytes, real_bytes = zero_action.itemsize, zero.itemsize

    @outline(exact=True)
    def step_chunk(function, part, fills_blocks, memory, actions, width, outputs):
        begin, count, size = part.begin, part.count, part.size
        first_lane, rest = begin % LANES, count % LANES if fills_blocks else 0
        rows_bytes = (first_lane + count + LANES - 1) // LANES * LANES * width * action_bytes
        # A lane of the last block has a reward, the float32 numbers of an observation, two flags.
        last_bytes = (real_bytes + 4 * size + 2) * LANES if rest > 0 else 0
        # The rows of actions, then outputs of the last block; they begin with a line of the cache.
        scratch = np.empty(rows_bytes + last_bytes + LINE, u8)
        place = (scratch.ctypes.data + LINE - 1) // LINE * LINE
        rows = pointer_to(place, zero_action)
        for first in range(0, count, LANES):
            lanes, block = min(LANES, count - first), shifted(rows, first_lane + first * width)
            chosen = shifted(actions, (begin + first) * width)
            for k in range(width * LANES if fills_blocks and lanes < LANES else 0):
                block[k] = zero_action  # lanes that nobody sees take an action, too
            if width == 1:  # a loop of its own, which becomes vectors
                for i in range(lanes):
                    poke(block, i, action_type(peek(chosen, i)))
            else:
                for i in range(lanes):
                    for k in range(width):
                        block[k * LANES + i] = action_type(chosen[i * width + k])
        # The function counts environments, and so actions, from the first one of all on.
        action_rows = shifted(rows, -(begin - first_lane) * width)
        if count > rest:
            full = EnvRange(
                begin, count - rest, part.same_step,
                size, part.row_step, part.env_step, part.final_row_step,
            )  # fmt: skip
            step_part(function, full, memory, action_rows, outputs)
        if rest > 0:
            first, last_place = begin + count - rest, place + rows_bytes
            rewards = pointer_to(last_place, zero)
            observations = pointer_to(last_place + real_bytes * LANES, single)
            terminated = pointer_to(last_place + (real_bytes + 4 * size) * LANES, u8(0))
            truncated = shifted(terminated, LANES)
            # Pointers to where environment 0 would be: `function` counts from it on.
            last_outputs = OutputPointers(
                observations=shifted(observations, -first),
                rewards=shifted(rewards, -first),
                terminated=shifted(terminated, -first),
                truncated=shifted(truncated, -first),
                finals=outputs.finals,
            )
            # Observations in rows of LANES numbers, but final ones where those of all are.
            last = EnvRange(first, rest, part.same_step, size, LANES, 1, part.row_step)
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


def _make_step_part(dtype: type, is_whole: bool) -> Callable[..., None]:
    """Make (function, part, memory, actions, outputs), which steps some environments.

    With `same_step` it keeps the final observations of episodes that ended, and starts the next
    ones.
    """
    step_call = step_call_of(dtype, is_whole)

    @inline_source
    def call_env(function, mode, part, memory, mask, actions, outputs):
        call = step_call(
            mode=mode,
            begin=part.begin,
            count=part.count,
            stride=part.row_step,
            state=memory.state,
            words=memory.words,
            numbers=memory.numbers,
            clock=memory.clock,
            mask=mask,
            actions=actions,
            observations=outputs.observations,
            rewards=outputs.rewards,
            terminated=outputs.terminated,
            truncated=outputs.truncated,
        )
        call_at(function, (call,))

    @outline(exact=True)
    def step_part(function, part, memory, actions, outputs):
        call_env(function, STEP, part, memory, pointer_to(0, u8(0)), actions, outputs)
        if not part.same_step:
            return
        begin, end = part.begin, part.begin + part.count
        # Room for all lanes of the last block, whose masks may be read, too.
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
