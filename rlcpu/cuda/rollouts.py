"""Fused rollouts: K steps of N environments and their policy in one kernel, a thread for each.

State, clock and return stay in registers from the first step to the last; the policy's weights are
copied to shared memory once a block, where they fit. `simulate` keeps sums, `collect` everything,
by one loop.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.compile import Kernel, kernel
from rlcpu.cuda.device import SIMULATED, cuda
from rlcpu.cuda.envs import DeviceStates, keep_loads_here, make_step_lane, read, write
from rlcpu.cuda.networks import DeviceDecide, NetworkFacts, make_decide
from rlcpu.envs.acting.choices import make_to_env_action
from rlcpu.envs.contract.policies import PolicyCode
from rlcpu.envs.engine.episode import SIZE, Episode
from rlcpu.envs.engine.form import Records
from rlcpu.envs.engine.lane import compile_lane
from rlcpu.envs.engine.structure import Structure
from rlcpu.kernels.machine.random import mix

u32, u64 = np.uint32, np.uint64
#: Threads of a block at most; four blocks of 128 fill a multiprocessor with 128 registers each. The
#: simulator runs a thread of the operating system for each.
BLOCK = 4 if SIMULATED else 128
#: Registers of a thread that runs a network: four blocks of 128 threads on a multiprocessor.
REGISTERS = 128
#: Steps of one launch of `simulate`: float32 sums of a thread are added to float64 after these.
FLUSH = 1024
#: Weights that a block keeps in shared memory, of which it has 48 KB.
SHARED_WEIGHTS = 48 * 1024 // 4


#: Arrays that `collect` writes: `Records`, and float32 values of final observations (T * N,) where
#: an episode was cut, else 0, and of the last observations (N,); 0 without a value head.
_FIELDS: Any = (*Records._fields, "final_values", "last_values")
DeviceRecords: Any = namedtuple("DeviceRecords", _FIELDS)  # type: ignore[misc]


class Sums(NamedTuple):
    """Sums that `simulate` makes, for each block of environments."""

    returns: Any  # (2 * blocks,) sums of returns, then of their squares
    counts: Any  # (2 * blocks,) uint32, numbers of episodes, then of their steps


class RolloutInputs(NamedTuple):
    """Arrays that a rollout reads; it overwrites the states with the last ones."""

    states: DeviceStates
    words: Any  # (2 * N,) uint32, low and high words of the keys
    numbers: Any  # parameters of the environment
    bounds: Any  # (2 * action_size,) float32, lowest and highest numbers of an action
    weights: Any  # see `rlcpu.cuda.networks.pack_policy`


class RolloutSettings(NamedTuple):
    """Numbers that a rollout reads."""

    counter: int  # of random numbers
    limit: int  # steps of an episode
    greedy: bool  # whether the policy takes its most likely action
    num_steps: int
    zero: int = 0  # which the compiler must not know, see `rlcpu.cuda.networks.make_forward`


class Recorder(NamedTuple):
    """Functions of what a rollout keeps, which its loop inlines.

    `at` is step * N + environment, `chosen` (action, log_prob, value), `step` a `DeviceStep`,
    `sums` the sums of the environment so far, and `offset` is 0, see
    `rlcpu.cuda.networks.make_forward`.
    """

    #: (out, sums, at, chosen, step, params, weights, offset) -> sums
    record_step: Callable[..., Any]
    finish: Callable[..., Any]  # (out, i, observation, weights, offset), of each environment
    add_up: Callable[..., Any]  # (out, sums), in each thread, also of no environment


@functools.cache
def rollout_kernel(
    env: Structure, dtype: type, code: PolicyCode, network: NetworkFacts | None, records: bool
) -> Kernel:
    """Return the driver (inputs, settings, out) of K steps.

    They are `RolloutInputs`, `RolloutSettings`, and `DeviceRecords` with `records`, else `Sums`.
    """
    lane, decide = compile_lane(env, dtype), make_decide(env, code, network)
    step_lane = make_step_lane(env, dtype, same_step=True)
    to_env_action = make_to_env_action(env.action_size, bool(env.choices), dtype)
    record_step, finish, add_up = _record(env, dtype, decide) if records else _add_up(dtype)
    width, put_observation = u64(env.observation_rows), write(env.observation_rows, np.float32)
    unpack, observe, choose = lane.unpack_params, lane.observe, decide.choose
    size, nothing, zero, one, two = u64(lane.rows), dtype(0), u32(0), u64(1), u64(2)
    load, store = read(lane.rows, dtype), write(lane.rows, dtype)
    load_episode, store_episode = read(SIZE, dtype), write(SIZE, dtype)
    num_weights, fits, single = decide.size, decide.size <= SHARED_WEIGHTS, np.float32
    aligns, crowded = not SIMULATED, network is not None  # the simulator cannot align

    @kernel(exact=dtype is np.float64, max_registers=REGISTERS if network else None)
    def rollout(inputs, settings, out):
        """Take K steps of environment i, in thread i."""
        states, words, numbers, bounds, weights = inputs
        counter, limit, greedy, num_steps, runtime_zero = settings
        n, i = u64(states.elapsed.shape[0]), u64(cuda.grid(1))
        policy, sums = weights, (nothing, nothing, zero, zero)
        if not crowded:
            params = unpack(numbers)
            keep_loads_here()
        if fits:
            if aligns:  # loads of four numbers need 16 bytes
                policy = cuda.shared.array(num_weights, single, 16)
            else:
                policy = cuda.shared.array(num_weights, single)
            for k in range(cuda.threadIdx.x, num_weights, cuda.blockDim.x):
                policy[k] = weights[k]
            cuda.syncthreads()
        if i < n:
            low, high, elapsed = words[i], words[n + i], states.elapsed[i]
            state = load(states.rows, i, n)
            episode = Episode(*load_episode(states.rows, size * n + i, n))
            for k in range(num_steps):
                # Offsets are 0: the compiler knows but that they are multiples of four, and change.
                offset = u64(runtime_zero * k) << two
                if crowded:  # registers are worth more than these loads
                    params, low, high = unpack(numbers), words[i], words[n + i]
                bits, at = mix(low, high, u32(counter + k)), u64(k) * n + i
                observation = observe(state, params)
                if records:  # numbers side by side: 1
                    put_observation(out.observations, at * width, one, observation)
                chosen = choose(observation, policy, offset, greedy, bits)
                action = to_env_action(chosen[0], bounds)
                step = step_lane(state, elapsed, episode, action, bits, params, u32(limit))
                value_offset = u64(runtime_zero * step.end.elapsed) << two
                sums = record_step(out, sums, at, chosen, step, params, policy, value_offset)
                state, episode = step.next_state, step.end.next_episode
                elapsed = step.end.next_elapsed
            store(states.rows, i, n, state)
            store_episode(states.rows, size * n + i, n, episode)
            states.elapsed[i] = elapsed
            observation = observe(state, unpack(numbers))
            finish(out, i, observation, policy, u64(runtime_zero) << two)
        add_up(out, sums)

    return rollout


# ---------------------------------------------------------------- what is kept


def _record(env: Structure, dtype: type, decide: DeviceDecide) -> Recorder:
    """Make the functions for `collect`, which record every step.

    `flags` has `terminated` of all steps, then `truncated` of all; `finals`, `totals` and `lengths`
    are written only where an episode ended: its last observation, return and steps.
    """
    zero, action_size = np.float32(0), env.action_size
    observe, has_value = compile_lane(env, dtype).observe, decide.evaluate is not None
    evaluate: Any = decide.evaluate
    put_observation, put_episode = write(env.observation_rows, np.float32), write(SIZE, dtype)
    put_action, one = write(action_size, np.int64 if env.choices else np.float32), u64(1)
    width, size = u64(env.observation_rows), u64(action_size)

    def record_step(out, sums, at, chosen, step, params, weights, offset):
        """Record a step, with its end if the episode ends; returns the sums as they are."""
        (action, log_prob, value), end, num_all = chosen, step.end, u64(out.rewards.shape[0])
        if action_size:
            put_action(out.actions, at * size, one, action)
        else:
            out.actions[at] = action
        out.log_probs[at], out.values[at], out.rewards[at] = log_prob, value, end.reward
        out.flags[at], out.flags[num_all + at] = end.terminated, end.truncated
        cut = zero
        if end.terminated or end.truncated:
            last = observe(step.reached, params)
            put_observation(out.finals, at * width, one, last)
            put_episode(out.totals, at, num_all, end.episode)
            out.lengths[at] = end.elapsed
            if has_value and not end.terminated:
                cut = evaluate(last, weights, offset)
        out.final_values[at] = cut
        return sums

    def finish(out, i, observation, weights, offset):
        """Record the last observation and its value."""
        put_observation(out.last, i * width, one, observation)
        out.last_values[i] = evaluate(observation, weights, offset) if has_value else zero

    def add_up(out, sums):
        """Do nothing: steps are recorded one by one."""

    return Recorder(record_step, finish, add_up)


def _add_up(dtype: type) -> Recorder:
    """Make the functions for `simulate`: they add up returns, squares, episodes and steps."""
    one = u32(1)

    def record_step(out, sums, at, chosen, step, params, weights, offset):
        """Return the sums with those of a step; they change where the episode ends."""
        (total, squares, episodes, steps), end = sums, step.end
        if end.terminated or end.truncated:
            total += end.episode.total
            squares += end.episode.total * end.episode.total
            episodes = u32(episodes + one)
            steps = u32(steps + end.elapsed)
        return total, squares, episodes, steps

    def finish(out, i, observation, weights, offset):
        """Do nothing: nobody asks for the last observation."""

    def add_up(out, sums):
        """Write the sums of a block, which its threads add up in pairs, always in one order."""
        # Of each thread: returns and their squares; episodes and their steps.
        returns = cuda.shared.array((2, BLOCK), dtype)
        counts = cuda.shared.array((2, BLOCK), u32)
        block, blocks = cuda.blockIdx.x, cuda.gridDim.x
        thread, count = cuda.threadIdx.x, cuda.blockDim.x
        returns[0, thread], returns[1, thread], counts[0, thread], counts[1, thread] = sums
        while count > 1:
            half = (count + 1) // 2
            cuda.syncthreads()
            if thread + half < count:
                for k in range(2):
                    returns[k, thread] += returns[k, thread + half]
                    counts[k, thread] += counts[k, thread + half]
            count = half
        if thread == 0:
            for k in range(2):
                out.returns[k * blocks + block] = returns[k, 0]
                out.counts[k * blocks + block] = counts[k, 0]

    return Recorder(record_step, finish, add_up)
