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
from rlcpu.cuda.envs import make_step_lane, read, write
from rlcpu.cuda.networks import DeviceDecide, NetworkFacts, make_decide
from rlcpu.envs.engine.decide import make_to_env_action
from rlcpu.envs.engine.form import Records
from rlcpu.envs.engine.lane import Structure, compile_lane
from rlcpu.envs.policies import PolicyCode
from rlcpu.kernels.random import mix

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
    """Sums that `simulate` makes, for each environment."""

    returns: Any  # (2 * N,) sums of returns, then of their squares
    counts: Any  # (2 * N,) uint32, numbers of episodes, then of their steps


def _copy_to_shared(copy: Any, weights: Any) -> None:
    """Copy a block's weights to its shared memory."""
    for k in range(cuda.threadIdx.x, copy.shape[0], cuda.blockDim.x):
        copy[k] = weights[k]
    cuda.syncthreads()


@functools.cache
def rollout_kernel(
    env: Structure, dtype: type, code: PolicyCode, network: NetworkFacts | None, records: bool
) -> Kernel:
    """Return the driver of K steps, which keeps `Records` or `Sums`.

    Its arguments are state, words, elapsed_steps (see `rlcpu.cuda.engine.CudaEngine`), numbers (the
    environment's parameters), bounds (2 * action_size,) float32, weights (see
    `rlcpu.cuda.networks.pack_policy`); the scalars counter, limit, greedy, skip, which is 0 (see
    `rlcpu.cuda.networks.make_forward`), num_steps; and `out`, `DeviceRecords` or `Sums`.
    """
    lane, decide = compile_lane(env, dtype), make_decide(env, code, network)
    turn, clip = (
        make_step_lane(env, dtype, True),
        make_to_env_action(env.action_size, bool(env.choices), dtype),
    )
    record_observation, record_step, finish = _record(env, dtype, decide) if records else _add_up()
    weights_size, fits, single = decide.size, decide.size <= SHARED_WEIGHTS, np.float32
    unpack, observe, choose = lane.unpack_params, lane.observe, decide.choose
    size, nothing, zero, two = lane.rows, dtype(0), u32(0), u64(2)
    load, store, real, aligns = read(size, dtype), write(size, dtype), dtype, not SIMULATED
    no_sums = nothing, nothing, zero, zero

    @kernel(exact=dtype is np.float64, max_registers=REGISTERS if network else None)
    def rollout(
        state, words, elapsed_steps, numbers, bounds, weights,
        counter, limit, greedy, skip, num_steps, out,
    ):  # fmt: skip
        """Take K steps of environment i, in thread i."""
        n, i = elapsed_steps.shape[0], cuda.grid(1)
        policy, sums = weights, no_sums
        if fits:
            if aligns:  # loads of four numbers need 16 bytes
                policy = cuda.shared.array(weights_size, single, 16)
            else:
                policy = cuda.shared.array(weights_size, single)
            _copy_to_shared(policy, weights)
        if i < n:
            low, high = words[i], words[n + i]
            now, total, elapsed = load(state, i, n), state[size * n + i], elapsed_steps[i]
            for k in range(num_steps):
                # Offsets of weights are 0: the compiler knows but that they are multiples of four.
                bits, offset, at = mix(low, high, u32(counter + k)), u64(skip * k) << two, k * n + i
                observation = observe(now, unpack(numbers))
                record_observation(out, at, observation)
                chosen = choose(observation, policy, offset, greedy, bits)
                params = unpack(numbers)  # every step: registers are worth more than these loads
                action = clip(chosen[0], bounds)
                end = turn(now, elapsed, total, action, bits, params, u32(limit))
                now, total, elapsed = end.next_state, end.total, end.elapsed
                value_offset = u64(skip * elapsed) << two
                sums = record_step(out, sums, at, chosen, end, params, policy, value_offset)
                if end.terminated or end.truncated:
                    total, elapsed = nothing, zero
            store(state, i, n, now)
            state[size * n + i] = real(total)
            elapsed_steps[i] = elapsed
            finish(out, sums, i, observe(now, unpack(numbers)), policy, u64(skip) << two)

    return rollout


# ---------------------------------------------------------------- what is kept

# Functions that the loop inlines: `record_observation` before each step, `record_step` after it,
# which returns the sums so far, and `finish` in the end; `at` is step * N + environment, `chosen`
# (action, log_prob, value), `end` a `LaneStep`, and `offset` is 0, see `make_forward`.


def _record(env: Structure, dtype: type, decide: DeviceDecide) -> tuple[Callable[..., Any], ...]:
    """Make the three functions for `collect`, which record every step."""
    zero, width = np.float32(0), env.observation_rows
    observe, valued = compile_lane(env, dtype).observe, decide.evaluate is not None
    put_observation, put_action = (
        write(width, np.float32),
        write(max(env.action_size, 1), np.float32),
    )
    evaluate: Any = decide.evaluate or _no_value
    numbers = env.action_size

    def record_observation(out, at, observation):
        """Record the observation in front of a step."""
        put_observation(out.observations, at * width, 1, observation)

    def record_step(out, sums, at, chosen, end, params, weights, offset):
        """Record a step, with its end if the episode ends; returns the sums as they are."""
        if numbers:
            put_action(out.actions, at * numbers, 1, chosen[0])
        else:
            out.actions[at] = chosen[0]
        out.log_probs[at], out.values[at], out.rewards[at] = chosen[1], chosen[2], end.reward
        out.flags[at], out.flags[out.rewards.shape[0] + at] = end.terminated, end.truncated
        cut = zero
        if end.terminated or end.truncated:
            last = observe(end.reached, params)
            put_observation(out.finals, at * width, 1, last)
            out.totals[at], out.lengths[at] = end.total, end.elapsed
            if valued and not end.terminated:
                cut = evaluate(last, weights, offset)
        out.final_values[at] = cut
        return sums

    def finish(out, sums, i, observation, weights, offset):
        """Record the last observation and its value."""
        put_observation(out.last, i * width, 1, observation)
        out.last_values[i] = evaluate(observation, weights, offset) if valued else zero

    return record_observation, record_step, finish


def _add_up() -> tuple[Callable[..., Any], ...]:
    """Make the three functions for `simulate`: they add up returns, squares, episodes and steps."""
    one = u32(1)

    def record_observation(out, at, observation):
        """Do nothing."""

    def record_step(out, sums, at, chosen, end, params, weights, offset):
        """Return the sums with those of a step; they change where the episode ends."""
        total, squares, episodes, steps = sums
        if end.terminated or end.truncated:
            total += end.total
            squares += end.total * end.total
            episodes = u32(episodes + one)
            steps = u32(steps + end.elapsed)
        return total, squares, episodes, steps

    def finish(out, sums, i, observation, weights, offset):
        """Write the sums of environment i."""
        n = out.counts.shape[0] // 2
        out.returns[i], out.returns[n + i], out.counts[i], out.counts[n + i] = sums

    return record_observation, record_step, finish


def _no_value(observation, weights, offset):
    return np.float32(0)
