"""Drivers: one step, the reset and the observations of a batch, one thread per environment.

A step reads one copy of the batch and writes another. The host exchanges the two once it knows that
all actions were valid, so that a bad action leaves everything as it was, at no cost in traffic.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rlcpu.cuda.compile import Kernel, kernel
from rlcpu.cuda.envs.lane import load_items, load_rows, make_turn, store_rows
from rlcpu.cuda.provider import cuda
from rlcpu.envs.lane import PENDING, Structure, compile_lane
from rlcpu.kernels.random import GOLDEN, mix

u32 = np.uint32
#: Items of `faults`: bad actions, environments that have finished while autoreset is disabled.
BAD_ACTIONS, FINISHED = range(2)


@functools.cache
def step_kernel(env: Structure, dtype: type, same_step: bool, disabled: bool) -> Kernel:
    """Driver of one step.

    Its arguments are state_in ((state_size + 1) * n,), words (2 * n,) uint32: the keys, elapsed_in
    (n,) uint32, actions (n,) integers or (n * action_size,) float32, params (num_numbers,),
    counter and limit (see `rlcpu.envs.batch.Memory`); and the outputs state_out, elapsed_out,
    observations (observation_size * n,) float32, rewards (n,), flags (2 * n,) bool: terminated,
    then truncated, finals: like observations in same-step mode, else empty, and faults (2,) int32,
    which must be 0: if they are not 0 afterwards, the outputs are to be thrown away.
    """
    lane, turn = compile_lane(env, dtype), make_turn(env, dtype, same_step)
    unpack, observe = lane.unpack, lane.observe
    size = env.state_size
    load, store = load_rows(size), store_rows(size, dtype)
    put = store_rows(env.observation_size, np.float32)
    take_action = _make_take_action(env, dtype)
    nothing, zero, mark = dtype(0), u32(0), u32(PENDING)
    zero_or_mark = zero if same_step else mark

    @kernel(dtype=dtype, exact=dtype is np.float64)
    def step(
        state_in, words, elapsed_in, actions, numbers, counter, limit,
        state_out, elapsed_out, observations, rewards, flags, finals, faults,
    ):  # fmt: skip
        n, i = rewards.shape[0], cuda.grid(1)
        if i >= n:
            return
        action, bad = take_action(actions, i)
        elapsed = elapsed_in[i]
        if bad and elapsed != mark:  # the next step of one that has ended is its reset
            cuda.atomic.add(faults, BAD_ACTIONS, 1)
            return
        if disabled and elapsed == mark:
            cuda.atomic.add(faults, FINISHED, 1)
            return
        params, bits = unpack(numbers), mix(words[i], words[n + i], u32(counter))
        state, total = load(state_in, n, i), state_in[size * n + i]
        end = turn(state, elapsed, total, action, bits, params, u32(limit))
        done = end.terminated or end.truncated
        store(state_out, n, i, end.kept)
        renewed = done if same_step else elapsed == mark
        state_out[size * n + i] = nothing if renewed else end.total
        elapsed_out[i] = zero_or_mark if done else end.elapsed
        put(observations, n, i, observe(end.kept, params))
        if same_step:
            put(finals, n, i, observe(end.reached, params))
        rewards[i] = end.reward
        flags[i] = end.terminated
        flags[n + i] = end.truncated

    return step


def _make_take_action(env: Structure, dtype: type) -> Any:
    """Function (actions, i) -> (action, whether the environment cannot take it)."""
    if env.action_size == 0:
        count = env.num_actions

        def take_choice(actions, i):
            action = actions[i]
            bad = action < 0 or action >= count
            return np.int32(0 if bad else action), bad

        return take_choice
    width, load = env.action_size, load_items(env.action_size, dtype)

    def take_numbers(actions, i):
        bad = False
        for k in range(width):
            bad = bad or actions[i * width + k] != actions[i * width + k]
        return load(actions, i * width), bad

    return take_numbers


@functools.cache
def reset_kernel(env: Structure, dtype: type) -> Kernel:
    """Driver (state, words, elapsed, mask, params, counter): new states where mask (n,) is set.

    The keys of the other environments step back by one, as on the CPU.
    """
    lane = compile_lane(env, dtype)
    unpack, reset, size = lane.unpack, lane.reset, env.state_size
    store, nothing, zero = store_rows(size, dtype), dtype(0), u32(0)

    @kernel(dtype=dtype, exact=dtype is np.float64)
    def reset_batch(state, words, elapsed, mask, numbers, counter):
        n, i = elapsed.shape[0], cuda.grid(1)
        if i < n:
            if mask[i]:
                bits = mix(words[i], words[n + i], u32(counter))
                store(state, n, i, reset(unpack(numbers), bits[0], bits[1]))
                state[size * n + i] = nothing
                elapsed[i] = zero
            else:
                words[i] = u32(words[i] - GOLDEN)

    return reset_batch


@functools.cache
def observe_kernel(env: Structure, dtype: type) -> Kernel:
    """Driver (state, params, observations): observations (observation_size * n,) in rows."""
    lane = compile_lane(env, dtype)
    unpack, observe, size = lane.unpack, lane.observe, env.observation_size
    load, put = load_rows(env.state_size), store_rows(size, np.float32)

    @kernel(dtype=dtype, exact=dtype is np.float64)
    def observe_batch(state, numbers, observations):
        n, i = observations.shape[0] // size, cuda.grid(1)
        if i < n:
            put(observations, n, i, observe(load(state, n, i), unpack(numbers)))

    return observe_batch


@functools.cache
def finished_kernel() -> Kernel:
    """Driver (elapsed, mask, count): mask (n,) bool of finished environments, count (1,) int32."""
    mark = u32(PENDING)

    @kernel
    def find_finished(elapsed, mask, count):
        i = cuda.grid(1)
        if i < elapsed.shape[0]:
            finished = elapsed[i] == mark
            mask[i] = finished
            if finished:
                cuda.atomic.add(count, 0, 1)

    return find_finished


@functools.cache
def either_kernel() -> Kernel:
    """Driver (flags, done): done (n,) where either half of flags (2 * n,) is set."""

    @kernel
    def either(flags, done):
        i = cuda.grid(1)
        if i < done.shape[0]:
            done[i] = flags[i] or flags[done.shape[0] + i]

    return either
