"""Environments on the device: their memory, and what `VectorEnv` asks of it.

`rlcpu.envs.engine.batch` answers the same questions on the CPU. One thread runs one environment:
row r of environment i stands at `r * num_envs + i`, so that the 32 threads of a warp read 32
neighbours.

A step reads one copy of the batch and writes another. The host exchanges the two once it knows that
all actions were valid, so that a bad action leaves everything as it was, at no cost in traffic.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.backends import cpu_only
from rlcpu.cuda.compile import Kernel, kernel
from rlcpu.cuda.device import asarray, cuda, empty, launch, to_host, zeros
from rlcpu.envs.engine.lane import PENDING, Structure, Turn, compile_lane, pack
from rlcpu.kernels.compile import define, source_of_tuple
from rlcpu.kernels.random import GOLDEN, keys, mix

u32 = np.uint32


class Memory:
    """State, random streams and episode clocks of N environments.

    Attributes:
        states: two arrays ((state_size + 1) * N,), the present one first: state rows, then the
            return so far; steps write the other one.
        elapsed_steps: two arrays (N,) uint32 likewise: steps of the running episode.
        words: (2 * N,) uint32, low and high words of the keys.
        counter: of random numbers, on the host; every step advances it for all streams alike.
        limit: of an episode's steps.
        bounds: (2 * action_size,) float32, lowest and highest numbers of an action.
        fault: (1,) int32, 0 but after a step that was none.
        may_wait: whether an environment may have finished and not begun anew.
    """

    def __init__(self, env: Any, limit: int) -> None:
        n, self.size = env.num_envs, env.code.state.rows(env.scalar_type)
        self.num_envs, self.limit, self.counter, self.may_wait = n, limit, 0, False
        self.states = [zeros((self.size + 1) * n, env.dtype) for _ in range(2)]
        self.elapsed_steps = [zeros(n, np.uint32) for _ in range(2)]
        self.words, self.fault = zeros(2 * n, np.uint32), zeros(1, np.int32)
        space = env.single_action_space
        bounds = np.concatenate((space.low, space.high)) if env.dynamics.action_size else [0.0]
        self.bounds = asarray(bounds, np.float32)

    def exchange(self) -> None:
        """Make the state that the last step has written the present one."""
        self.states.reverse()
        self.elapsed_steps.reverse()
        self.advance(1)

    def advance(self, steps: int) -> None:
        """Move the counter of random numbers on."""
        self.counter = (self.counter + steps) % 2**32

    def get_state(self) -> Any:
        """(num_envs, state_size), a copy."""
        rows = self.states[0][: self.size * self.num_envs].copy()
        return rows.reshape(self.size, self.num_envs).T

    def set_state(self, state: npt.NDArray[Any]) -> None:
        """Copy (num_envs, state_size) in; finished episodes become running ones."""
        rows, count = self.states[0], self.size * self.num_envs
        waits = self.elapsed_steps[0] == u32(PENDING)
        rows[:count] = asarray(np.ascontiguousarray(state.T)).reshape(-1)
        rows[count:][waits] = 0
        self.elapsed_steps[0][waits] = 0

    def elapsed(self) -> npt.NDArray[np.uint32]:
        """(num_envs,) steps of the running episodes, on the host; `PENDING` where finished."""
        return to_host(self.elapsed_steps[0])

    def finished(self) -> Any:
        """(num_envs,) bool, which episodes wait for their reset; empty if none can."""
        if not self.may_wait:
            return np.zeros(0, np.bool_)
        return self.elapsed_steps[0] == u32(PENDING)

    def seed(self, seeds: npt.NDArray[np.uint64], mask: npt.NDArray[np.bool_]) -> None:
        """Start the streams of the masked environments anew, from one seed each."""
        if not mask.any():
            return
        fresh = keys(seeds)
        fresh[0] -= u32(self.counter * int(GOLDEN) % 2**32)
        if not mask.all():
            fresh = np.where(mask, fresh, to_host(self.words).reshape(2, -1))
        self.words = asarray(fresh.reshape(-1))


# ---------------------------------------------------------------- what VectorEnv asks for


def allocate(env: Any, limit: int) -> None:
    """Give the environments their memory and numbers.

    Raises:
        TypeError: what they are made of is for the CPU alone.
        rlcpu.cuda.CudaMemoryError: the device has too little.
    """
    code = env.code
    for refused, what in (
        (not code.state.is_plain, "states that are not tuples of floats"),
        (not code.observation.is_plain, "observations that are not tuples of floats"),
        (None in (code.reset_draws, code.step_draws), "functions of an `rng`, not of `uniforms`"),
        (code.varied, f"parameters that vary ({', '.join(code.varied)})"),
        (code.action_mask, "action masks"),
        (code.choices, "actions of MultiDiscrete"),
    ):
        if refused:
            raise cpu_only(f"{env.dynamics.id}: {what}", TypeError)
    env.memory = Memory(env, limit)
    env.numbers = asarray(pack(env.dynamics.params, env.scalar_type))


def step(env: Any, actions: Any) -> tuple[Any, ...] | None:
    """Observations, rewards, terminated, truncated and, in same-step mode, what was reached.

    Args:
        env: the environments.
        actions: integers of a `Discrete`, numbers of a `Box`, of the right shape; on the device, or
            on the host.

    Returns:
        None if nothing was stepped: an action is bad, or an environment has finished while
        autoreset is disabled.
    """
    n, memory, shape = env.num_envs, env.memory, env._observation_shape
    size, taken = env.code.observation_rows * n, asarray(actions)
    if not (env.dynamics.is_discrete and taken.dtype == np.int32):
        taken = taken.astype(env._action_dtype, copy=False)
    observations, rewards = empty(size, np.float32), empty(n, env.dtype)
    flags, finals = empty(2 * n, np.bool_), empty(size if env._same_step else 0, np.float32)
    launch(
        step_kernel(env.code, env.scalar_type, env._same_step, env._disabled), n,
        memory.states[0], memory.words, memory.elapsed_steps[0], taken.reshape(-1),
        env.numbers, memory.counter, memory.limit,
        memory.states[1], memory.elapsed_steps[1], observations, rewards, flags, finals,
        memory.fault,
    )  # fmt: skip
    if to_host(memory.fault)[0]:
        memory.fault.fill(0)
        return None
    memory.exchange()
    memory.may_wait = not env._same_step
    reached = finals.reshape(shape) if env._same_step else None
    return observations.reshape(shape), rewards, flags[:n], flags[n:], reached


def restart(env: Any, mask: Any, numbers: Any) -> None:
    """Give the masked environments new states, drawn with the run-time params `numbers`."""
    memory, chosen = env.memory, asarray(mask)
    launch(
        reset_kernel(env.code, env.scalar_type), env.num_envs,
        memory.states[0], memory.words, memory.elapsed_steps[0], chosen, asarray(numbers),
        memory.counter,
    )  # fmt: skip
    memory.advance(1)


def observe(env: Any) -> Any:
    """Return the observations of the present states, (observation rows, num_envs) float32."""
    size, n = env._observation_shape
    observations = empty(size * n, np.float32)
    arguments = env.memory.states[0], env.numbers, observations
    launch(observe_kernel(env.code, env.scalar_type), n, *arguments)
    return observations.reshape(size, n)


def final_observations(finals: Any, done: Any, view: Any) -> Any:
    """Return the last observations of all episodes that ended, as `step` returns observations."""
    return view.show(finals)


# ---------------------------------------------------------------- a state in registers


@functools.cache
def read(count: int, dtype: type) -> Callable[..., Any]:
    """Function (array, begin, stride) -> tuple of `count` numbers."""
    items = source_of_tuple(f"real(array[begin + {k} * stride])" for k in range(count))
    return define(f"def read(array, begin, stride): return {items}", real=dtype)


@functools.cache
def write(count: int, dtype: type) -> Callable[..., Any]:
    """Function (array, begin, stride, values) that writes `count` numbers."""
    lines = "".join(f"\n    array[begin + {k} * stride] = real(values[{k}])" for k in range(count))
    return define(f"def write(array, begin, stride, values):{lines}", real=dtype)


@functools.cache
def make_turn(env: Structure, dtype: type, same_step: bool) -> Callable[..., Turn]:
    """Function (state, elapsed, total, action, bits, params, limit) -> Turn.

    As `rlcpu.envs.engine.lane.make_turn`, with state, clock and return in registers, and a branch
    where an episode ends: a warp without ends draws no new state.
    """
    lane = compile_lane(env, dtype)
    advance, reset = lane.step, lane.reset
    real, nothing, one, mark = dtype, dtype(0), u32(1), u32(PENDING)

    def turn(state, elapsed, total, action, bits, params, limit):
        pending = False if same_step else elapsed == mark
        reached, reward, failed, cut = advance(state, action, params, bits[0], bits[1])
        reward = nothing if pending else real(reward)
        total = total + reward
        elapsed = u32(elapsed + one)
        terminated = failed and not pending
        truncated = elapsed >= limit or (cut and not pending)
        renewed = (terminated or truncated) if same_step else pending
        kept = reached
        if renewed:
            kept = reset(params, bits[0], bits[1])
        return Turn(
            reached, kept, reward, terminated, truncated, total, elapsed, params, params
        )  # fmt: skip

    return turn


# ---------------------------------------------------------------- drivers


@functools.cache
def step_kernel(env: Structure, dtype: type, same_step: bool, disabled: bool) -> Kernel:
    """Driver of one step.

    Its arguments are state_in ((state_size + 1) * n,), words (2 * n,) uint32: the keys, elapsed_in
    (n,) uint32, actions (n,) integers or (n * action_size,) float32, params (num_numbers,),
    counter and limit (see `Memory`); and the outputs state_out, elapsed_out,
    observations (observation_size * n,) float32, rewards (n,), flags (2 * n,) bool: terminated,
    then truncated, finals: like observations in same-step mode, else empty, and fault (1,) int32,
    which must be 0: if it is 1 afterwards, for a bad action or for an environment that has finished
    while autoreset is disabled, the outputs are to be thrown away.
    """
    lane, turn = compile_lane(env, dtype), make_turn(env, dtype, same_step)
    unpack, observe = lane.unpack, lane.observe
    size = lane.rows
    load, store = read(size, dtype), write(size, dtype)
    put = write(env.observation_rows, np.float32)
    take_action = _make_take_action(env, dtype)
    nothing, zero, mark = dtype(0), u32(0), u32(PENDING)
    zero_or_mark = zero if same_step else mark

    @kernel(exact=dtype is np.float64)
    def step(
        state_in, words, elapsed_in, actions, numbers, counter, limit,
        state_out, elapsed_out, observations, rewards, flags, finals, fault,
    ):  # fmt: skip
        n, i = rewards.shape[0], cuda.grid(1)
        if i >= n:
            return
        action, bad = take_action(actions, i)
        elapsed = elapsed_in[i]
        if disabled if elapsed == mark else bad:  # the next step of one that has ended is its reset
            fault[0] = 1
            return
        params, bits = unpack(numbers), mix(words[i], words[n + i], u32(counter))
        state, total = load(state_in, i, n), state_in[size * n + i]
        end = turn(state, elapsed, total, action, bits, params, u32(limit))
        done = end.terminated or end.truncated
        store(state_out, i, n, end.kept)
        renewed = done if same_step else elapsed == mark
        state_out[size * n + i] = nothing if renewed else end.total
        elapsed_out[i] = zero_or_mark if done else end.elapsed
        put(observations, i, n, observe(end.kept, params))
        if same_step:
            put(finals, i, n, observe(end.reached, params))
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
    width, load = env.action_size, read(env.action_size, dtype)

    def take_numbers(actions, i):
        bad = False
        for k in range(width):
            bad = bad or actions[i * width + k] != actions[i * width + k]
        return load(actions, i * width, 1), bad

    return take_numbers


@functools.cache
def reset_kernel(env: Structure, dtype: type) -> Kernel:
    """Driver (state, words, elapsed, mask, params, counter): new states where mask (n,) is set.

    The keys of the other environments step back by one, as on the CPU.
    """
    lane = compile_lane(env, dtype)
    unpack, reset, size = lane.unpack, lane.reset, lane.rows
    store, nothing, zero = write(size, dtype), dtype(0), u32(0)

    @kernel(exact=dtype is np.float64)
    def reset_batch(state, words, elapsed, mask, numbers, counter):
        n, i = elapsed.shape[0], cuda.grid(1)
        if i < n:
            if mask[i]:
                bits = mix(words[i], words[n + i], u32(counter))
                store(state, i, n, reset(unpack(numbers), bits[0], bits[1]))
                state[size * n + i] = nothing
                elapsed[i] = zero
            else:
                words[i] = u32(words[i] - GOLDEN)

    return reset_batch


@functools.cache
def observe_kernel(env: Structure, dtype: type) -> Kernel:
    """Driver (state, params, observations): observations (observation_size * n,) in rows."""
    lane = compile_lane(env, dtype)
    unpack, observe, size = lane.unpack, lane.observe, env.observation_rows
    load, put = read(lane.rows, dtype), write(size, np.float32)

    @kernel(exact=dtype is np.float64)
    def observe_batch(state, numbers, observations):
        n, i = observations.shape[0] // size, cuda.grid(1)
        if i < n:
            put(observations, i, n, observe(load(state, i, n), unpack(numbers)))

    return observe_batch
