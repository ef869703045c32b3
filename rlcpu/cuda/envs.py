"""Kernels of one step, of a reset and of observations on the device.

One thread runs one environment: row r of environment i stands at `r * num_envs + i`, so that the
32 threads of a warp read 32 neighbours.

A lane is one environment, its steps a `LaneStep` each. The steps of its episode so far, `elapsed`,
are `PENDING` where the episode has ended and the environment waits for its reset.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rlcpu.cuda.compile import Kernel, kernel
from rlcpu.cuda.device import cuda
from rlcpu.envs.engine.lane import PENDING, LaneStep, Structure, compile_lane
from rlcpu.kernels.compile import define, source_of_tuple
from rlcpu.kernels.random import GOLDEN, mix

u32 = np.uint32


@functools.cache
def read(count: int, dtype: type) -> Callable[..., Any]:
    """Return a function (array, begin, stride) -> tuple of `count` numbers, `stride` apart."""
    items = source_of_tuple(f"real(array[begin + {k} * stride])" for k in range(count))
    return define(f"def read(array, begin, stride): return {items}", real=dtype)


@functools.cache
def write(count: int, dtype: type) -> Callable[..., Any]:
    """Return a function (array, begin, stride, values) that writes `count` numbers there."""
    lines = "".join(f"\n    array[begin + {k} * stride] = real(values[{k}])" for k in range(count))
    return define(f"def write(array, begin, stride, values):{lines}", real=dtype)


@functools.cache
def make_step_lane(env: Structure, dtype: type, same_step: bool) -> Callable[..., LaneStep]:
    """Return `(state, elapsed, total, action, bits, params, limit) -> LaneStep`: one step.

    It resets the environment where the autoreset mode says so: in the step that ends an episode
    with `same_step`, else in the next one. As `rlcpu.envs.engine.lane.make_step_lane`, with state,
    steps so far and return so far in registers, and a branch where an episode ends: a warp without
    ends draws no new state. `bits` are two random words.
    """
    lane = compile_lane(env, dtype)
    advance, reset = lane.step, lane.reset
    real, nothing, one, pending_clock = dtype, dtype(0), u32(1), u32(PENDING)

    def turn(state, elapsed, total, action, bits, params, limit):
        """Step one environment, and reset it where that is due."""
        pending = False if same_step else elapsed == pending_clock
        reached, reward, failed, cut = advance(state, action, params, bits[0], bits[1])
        reward = nothing if pending else real(reward)
        total = total + reward
        elapsed = u32(elapsed + one)
        terminated = failed and not pending
        truncated = elapsed >= limit or (cut and not pending)
        renewed = (terminated or truncated) if same_step else pending
        next_state = reached
        if renewed:
            next_state = reset(params, bits[0], bits[1])
        return LaneStep(
            reached, next_state, reward, terminated, truncated, total, elapsed, params, params
        )  # fmt: skip

    return turn


# ---------------------------------------------------------------- drivers


@functools.cache
def step_kernel(env: Structure, dtype: type, same_step: bool, disabled: bool) -> Kernel:
    """Return the driver of one step.

    Its arguments are state_in ((state_size + 1) * n,), words (2 * n,) uint32: the keys, elapsed_in
    (n,) uint32, actions (n,) integers or (n * action_size,) float32, numbers (num_numbers,): the
    environment's parameters, counter of random numbers, and limit of an episode's steps; and the
    outputs state_out, elapsed_out, observations (observation_size * n,) float32, rewards (n,),
    flags (2 * n,) bool: terminated, then truncated, finals: like observations in same-step mode,
    else empty, and fault (1,) int32, which must be 0: if it is 1 afterwards, for a bad action or
    for an environment that has finished while autoreset is disabled, the outputs are to be thrown
    away.
    """
    lane, turn = compile_lane(env, dtype), make_step_lane(env, dtype, same_step)
    unpack, observe = lane.unpack_params, lane.observe
    size = lane.rows
    load, store = read(size, dtype), write(size, dtype)
    put = write(env.observation_rows, np.float32)
    take_action = _make_take_action(env, dtype)
    nothing, zero, pending_clock = dtype(0), u32(0), u32(PENDING)
    clock_at_end = zero if same_step else pending_clock

    @kernel(exact=dtype is np.float64)
    def step(
        state_in, words, elapsed_in, actions, numbers, counter, limit,
        state_out, elapsed_out, observations, rewards, flags, finals, fault,
    ):  # fmt: skip
        """Step environment i, in thread i."""
        n, i = rewards.shape[0], cuda.grid(1)
        if i >= n:
            return
        action, bad = take_action(actions, i)
        elapsed = elapsed_in[i]
        # The next step of an environment that has finished is its reset, and takes any action. All
        # goes on after a fault: a thread that might return would first wait for its action.
        if disabled if elapsed == pending_clock else bad:
            fault[0] = 1
        params, bits = unpack(numbers), mix(words[i], words[n + i], u32(counter))
        state, total = load(state_in, i, n), state_in[size * n + i]
        end = turn(state, elapsed, total, action, bits, params, u32(limit))
        done = end.terminated or end.truncated
        store(state_out, i, n, end.next_state)
        renewed = done if same_step else elapsed == pending_clock
        state_out[size * n + i] = nothing if renewed else end.total
        elapsed_out[i] = clock_at_end if done else end.elapsed
        put(observations, i, n, observe(end.next_state, params))
        if same_step:
            put(finals, i, n, observe(end.reached, params))
        rewards[i] = end.reward
        flags[i] = end.terminated
        flags[n + i] = end.truncated

    return step


def _make_take_action(env: Structure, dtype: type) -> Any:
    """Make (actions, i) -> (action of environment i, whether the environment cannot take it)."""
    if env.action_size == 0:
        count = env.num_actions

        def take_choice(actions, i):
            action = actions[i]
            bad = action < 0 or action >= count
            return np.int32(0 if bad else action), bad

        return take_choice
    width, load = env.action_size, read(env.action_size, dtype)

    def take_numbers(actions, i):
        bad = False
        for k in range(width):
            bad = bad or actions[i * width + k] != actions[i * width + k]
        return load(actions, i * width, 1), bad

    return take_numbers


@functools.cache
def reset_kernel(env: Structure, dtype: type) -> Kernel:
    """Return the driver of a reset: new states of environments where mask (n,) is set.

    Its arguments are state, words, elapsed, mask, numbers and counter, see `step_kernel`. The keys
    of the other environments step back by one, as on the CPU.
    """
    lane = compile_lane(env, dtype)
    unpack, reset, size = lane.unpack_params, lane.reset, lane.rows
    store, nothing, zero = write(size, dtype), dtype(0), u32(0)

    @kernel(exact=dtype is np.float64)
    def reset_batch(state, words, elapsed, mask, numbers, counter):
        """Reset environment i, in thread i."""
        n, i = elapsed.shape[0], cuda.grid(1)
        if i < n:
            if mask[i]:
                bits = mix(words[i], words[n + i], u32(counter))
                store(state, i, n, reset(unpack(numbers), bits[0], bits[1]))
                state[size * n + i] = nothing
                elapsed[i] = zero
            else:  # the counter of all goes on by one, which `mix` multiplies by GOLDEN
                words[i] = u32(words[i] - GOLDEN)

    return reset_batch


@functools.cache
def observe_kernel(env: Structure, dtype: type) -> Kernel:
    """Return the driver (state, params, observations) that overwrites the observations.

    They are (observation_size * n,), in rows.
    """
    lane = compile_lane(env, dtype)
    unpack, observe, size = lane.unpack_params, lane.observe, env.observation_rows
    load, put = read(lane.rows, dtype), write(size, np.float32)

    @kernel(exact=dtype is np.float64)
    def observe_batch(state, numbers, observations):
        """Observe environment i, in thread i."""
        n, i = observations.shape[0] // size, cuda.grid(1)
        if i < n:
            put(observations, i, n, observe(load(state, i, n), unpack(numbers)))

    return observe_batch
