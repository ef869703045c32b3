"""Drivers: K steps of N environments and their policy in one kernel, one thread per environment.

State, clock and return stay in registers from the first step to the last; the policy's weights are
copied to shared memory once a block, where they fit.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.compile import Kernel, kernel
from rlcpu.cuda.envs.decide import Network, make_decide
from rlcpu.cuda.envs.lane import load_rows, make_turn, store_items, store_rows
from rlcpu.cuda.provider import ALIGNS, cuda
from rlcpu.envs.lane import Structure, compile_lane
from rlcpu.envs.policies import PolicyCode
from rlcpu.envs.rollout import make_clip
from rlcpu.kernels.random import mix

u32, u64 = np.uint32, np.uint64
#: Threads of a block at most; four blocks of 128 fill a multiprocessor with 128 registers each.
BLOCK = 128
#: Registers of a thread that runs a network: four blocks of 128 threads on a multiprocessor.
REGISTERS = 128
#: Steps of one launch of `simulate`: float32 sums of a thread are added to float64 after these.
FLUSH = 1024
#: Weights that a block keeps in shared memory: 48 KB are its limit, of which the sums of a block
#: (see `make_add_block`) take 3 KB in float64.
SHARED_WEIGHTS = (48 * 1024 - 2 * BLOCK * (8 + 4)) // 4


class Key(NamedTuple):
    """What decides the machine code of a rollout."""

    env: Structure
    dtype: type
    policy: PolicyCode
    network: Network | None


def stage(copy: Any, weights: Any) -> None:
    """Copy a block's weights to its shared memory."""
    for k in range(cuda.threadIdx.x, copy.shape[0], cuda.blockDim.x):
        copy[k] = weights[k]
    cuda.syncthreads()


@functools.cache
def simulate_kernel(key: Key) -> Kernel:
    """Driver that records nothing but sums of the episodes that ended.

    Its arguments are state, words, elapsed (see `rlcpu.cuda.envs.memory.Memory`), params, bounds
    (2 * action_size,) float32, weights (see `pack_policy`), scalars counter, limit, greedy, skip,
    which is 0 (see `rlcpu.cuda.envs.networks.make_forward`), and num_steps; and the outputs returns
    (2 * blocks,), sums of returns, then of their squares, and counts (2 * blocks,) uint32, numbers
    of episodes, then of their steps.
    """
    env, dtype = key.env, key.dtype
    lane, decide = compile_lane(env, dtype), make_decide(env, key.policy, key.network)
    turn, clip = make_turn(env, dtype, True), make_clip(env, dtype)
    weights_size, fits, single = decide.size, decide.size <= SHARED_WEIGHTS, np.float32
    two = u64(2)
    unpack, observe, choose = lane.unpack, lane.observe, decide.choose
    size, nothing, zero, one = env.state_size, dtype(0), u32(0), u32(1)
    load, store, real = load_rows(size), store_rows(size, dtype), dtype
    add_block = make_add_block(dtype)

    @kernel(
        dtype=dtype, exact=dtype is np.float64, max_registers=REGISTERS if decide.wide else None
    )
    def simulate(
        state, words, elapsed_steps, numbers, bounds, weights,
        counter, limit, greedy, skip, num_steps,
        returns, counts,
    ):  # fmt: skip
        n, i = elapsed_steps.shape[0], cuda.grid(1)
        policy = weights
        if fits:
            if ALIGNS:
                policy = cuda.shared.array(weights_size, single, 16)
            else:
                policy = cuda.shared.array(weights_size, single)
            stage(policy, weights)
        sum_returns, sum_squares, episodes, steps = nothing, nothing, zero, zero
        if i < n:
            params, low, high = unpack(numbers), words[i], words[n + i]
            now, total, elapsed = load(state, n, i), state[size * n + i], elapsed_steps[i]
            for k in range(num_steps):
                bits, offset = mix(low, high, u32(counter + k)), u64(skip * k) << two
                action = choose(observe(now, params), policy, offset, greedy, bits)[0]
                end = turn(now, elapsed, total, clip(action, bounds), bits, params, u32(limit))
                now, total, elapsed = end.kept, end.total, end.elapsed
                if end.terminated or end.truncated:
                    sum_returns += total
                    sum_squares += total * total
                    episodes = u32(episodes + one)
                    steps = u32(steps + elapsed)
                    total, elapsed = nothing, zero
            store(state, n, i, now)
            state[size * n + i] = real(total)
            elapsed_steps[i] = elapsed
        add_block(returns, counts, sum_returns, sum_squares, episodes, steps)

    return simulate


@functools.cache
def make_add_block(dtype: type) -> Any:
    """Function that adds four numbers of all threads of a block, in a fixed order."""
    uint32, size = np.uint32, 2 * BLOCK

    def add_block(returns, counts, total, square, episodes, steps):
        reals = cuda.shared.array(size, dtype)
        wholes = cuda.shared.array(size, uint32)  # the simulator tells arrays by their lines
        t, half = cuda.threadIdx.x, cuda.blockDim.x // 2
        reals[t], reals[BLOCK + t] = total, square
        wholes[t], wholes[BLOCK + t] = episodes, steps
        cuda.syncthreads()
        while half > 0:
            if t < half:
                reals[t] += reals[t + half]
                reals[BLOCK + t] += reals[BLOCK + t + half]
                wholes[t] += wholes[t + half]
                wholes[BLOCK + t] += wholes[BLOCK + t + half]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            block, blocks = cuda.blockIdx.x, cuda.gridDim.x
            returns[block], returns[blocks + block] = reals[0], reals[BLOCK]
            counts[block], counts[blocks + block] = wholes[0], wholes[BLOCK]

    return add_block


@functools.cache
def collect_kernel(key: Key) -> Kernel:
    """Driver that records every step.

    Its first arguments are those of `simulate_kernel`; the outputs are those of
    `rlcpu.envs.rollout.Records`, final_values (T * n,) float32, last_observations
    (n * observation_size,) and last_values (n,) float32.
    """
    env, dtype = key.env, key.dtype
    lane, decide = compile_lane(env, dtype), make_decide(env, key.policy, key.network)
    turn, clip = make_turn(env, dtype, True), make_clip(env, dtype)
    weights_size, fits, single = decide.size, decide.size <= SHARED_WEIGHTS, np.float32
    two = u64(2)
    unpack, observe, choose = lane.unpack, lane.observe, decide.choose
    evaluate: Any = decide.evaluate or _no_value
    valued = decide.evaluate is not None
    size, nothing, zero, width = env.state_size, dtype(0), u32(0), env.observation_size
    load, store, real = load_rows(size), store_rows(size, dtype), dtype
    put, put_action, none = store_items(width, np.float32), _make_put_action(env), np.float32(0)

    @kernel(
        dtype=dtype, exact=dtype is np.float64, max_registers=REGISTERS if decide.wide else None
    )
    def collect(
        state, words, elapsed_steps, numbers, bounds, weights,
        counter, limit, greedy, skip, num_steps,
        observations, actions, log_probs, values, rewards, flags, finals, totals, lengths,
        final_values, last_observations, last_values,
    ):  # fmt: skip
        n, i = elapsed_steps.shape[0], cuda.grid(1)
        policy = weights
        if fits:
            if ALIGNS:
                policy = cuda.shared.array(weights_size, single, 16)
            else:
                policy = cuda.shared.array(weights_size, single)
            stage(policy, weights)
        if i >= n:
            return
        low, high = words[i], words[n + i]
        now, total, elapsed = load(state, n, i), state[size * n + i], elapsed_steps[i]
        for k in range(num_steps):
            bits, offset = mix(low, high, u32(counter + k)), u64(skip * k) << two
            seen, at = observe(now, unpack(numbers)), k * n + i
            put(observations, at * width, seen)
            action, log_prob, value = choose(seen, policy, offset, greedy, bits)
            params = unpack(numbers)  # every step: registers are worth more than these loads
            end = turn(now, elapsed, total, clip(action, bounds), bits, params, u32(limit))
            now, total, elapsed = end.kept, end.total, end.elapsed
            put_action(actions, at, action)
            log_probs[at], values[at], rewards[at] = log_prob, value, end.reward
            flags[at], flags[num_steps * n + at] = end.terminated, end.truncated
            cut = none
            if end.terminated or end.truncated:
                last = observe(end.reached, params)
                put(finals, at * width, last)
                totals[at], lengths[at] = total, elapsed
                if valued and not end.terminated:
                    cut = evaluate(last, policy, u64(skip * elapsed) << two)
                total, elapsed = nothing, zero
            final_values[at] = cut
        store(state, n, i, now)
        state[size * n + i] = real(total)
        elapsed_steps[i] = elapsed
        seen = observe(now, unpack(numbers))
        put(last_observations, i * width, seen)
        last_values[i] = evaluate(seen, policy, u64(skip) << two) if valued else none

    return collect


def _no_value(observation, weights, offset):
    return np.float32(0)


def _make_put_action(env: Structure) -> Any:
    """Function (actions, at, action)."""
    if env.action_size:
        width, put = env.action_size, store_items(env.action_size, np.float32)

        def put_numbers(actions, at, action):
            put(actions, at * width, action)

        return put_numbers

    def put_choice(actions, at, action):
        actions[at] = action

    return put_choice
