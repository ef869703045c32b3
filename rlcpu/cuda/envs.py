"""Kernels of one step, of a reset and of observations on the device.

One thread runs one environment: row r of environment i stands at `r * num_envs + i`, so that the
32 threads of a warp read 32 neighbours.

A lane is one environment, its steps a `DeviceStep` each. Episodes are counted as on the CPU, by the
function of `rlcpu.envs.engine.episode`. Of a `Structure`, `action_size` are the numbers of an
action, 0 where that is a choice of `num_actions`, and `observation_rows` those of an observation;
`rows` of a compiled lane are the numbers of a state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.cuda.compile import Kernel, kernel
from rlcpu.cuda.device import SIMULATED, cuda
from rlcpu.cuda.faults import report
from rlcpu.envs.engine.episode import (
    PENDING,
    SIZE,
    Episode,
    EpisodeStep,
    begin_of,
    make_step_episode,
)
from rlcpu.envs.engine.lane import compile_lane
from rlcpu.envs.engine.structure import Structure
from rlcpu.kernels.compiler.compile import define, source_of_tuple
from rlcpu.kernels.machine.random import GOLDEN, mix

u32, u64 = np.uint32, np.uint64


class DeviceStates(NamedTuple):
    """N environments between two steps."""

    rows: Any  # ((state_size + SIZE) * N,): rows of the states, then of the running `Episode`s
    elapsed: Any  # (N,) uint32, steps of the running episode, or `PENDING`


#: Kinds of faults of a step, places of `Faults.words`.
BAD_ACTION, HAS_FINISHED = 0, 1


class StepOutputs(NamedTuple):
    """Outputs of `step_kernel` beside the states."""

    observations: Any  # (observation_size * N,) float32
    finals: Any  # like observations; written in same-step mode alone
    rewards: Any  # (N,)
    terminated: Any  # (N,) bool
    truncated: Any


def _sync_warp() -> None:
    """Keep loads that stand before the call before it, at no cost but the place in the code.

    The compiler moves loads to where their numbers are used, into branches too: there a thread
    would wait for memory once more. All threads of a warp have to come here, but those that have
    returned.
    """
    cuda.syncwarp()


#: The simulator has none, and needs none.
keep_loads_here: Any = (lambda: None) if SIMULATED else _sync_warp


@functools.cache
def read(count: int, dtype: type) -> Callable[..., Any]:
    """Return a function (array, begin, stride) -> tuple of `count` numbers, `stride` apart.

    Places are uint64: of a signed one numba asks whether it counts from the end of the array.
    """
    items = source_of_tuple(f"real(array[begin + k{k} * stride])" for k in range(count))
    return define(f"def read(array, begin, stride): return {items}", real=dtype, **_numbers(count))


@functools.cache
def write(count: int, dtype: type) -> Callable[..., Any]:
    """Return a function (array, begin, stride, values) that writes `count` numbers there."""
    lines = "".join(f"\n    array[begin + k{k} * stride] = real(values[{k}])" for k in range(count))
    source = f"def write(array, begin, stride, values):{lines or ' pass'}"
    return define(source, real=dtype, **_numbers(count))


def _numbers(count: int) -> dict[str, Any]:
    """Return uint64 constants by name, k0 and so on: with Python's numbers sums would be real."""
    return {f"k{k}": u64(k) for k in range(count)}


class DeviceStep(NamedTuple):
    """Results of one step of one environment, which may have started a new episode."""

    reached: Any  # the state to which the step led, before a new episode
    next_state: Any  # with which the environment goes on: `reached`, or that of a new episode
    end: Any  # an `EpisodeStep`


@functools.cache
def make_step_lane(env: Structure, dtype: type, same_step: bool) -> Callable[..., DeviceStep]:
    """Return `(state, elapsed, episode, action, bits, params, limit) -> DeviceStep`: one step.

    It resets the environment where the autoreset mode says so: in the step that ends an episode
    with `same_step`, else in the next one. As `rlcpu.envs.engine.lane.make_step_lane`, with state,
    steps so far and `Episode` in registers, and a branch where an episode ends: a warp without ends
    draws no new state. `bits` are two random words. Parameters do not vary on the device.
    """
    lane, step_episode = compile_lane(env, dtype), make_step_episode(dtype, same_step)
    advance, reset = lane.step, lane.reset

    def step_lane(state, elapsed, episode, action, bits, params, limit):
        """Step one environment, and reset it where that is due."""
        reached, reward, ends, cuts = advance(state, action, params, bits[0], bits[1])
        end = step_episode(episode, elapsed, reward, ends, cuts, limit)
        next_state = reached
        if end.begins:
            next_state = reset(params, bits[0], bits[1])
        return DeviceStep(reached, next_state, end)

    return step_lane


# ---------------------------------------------------------------- drivers


@functools.cache
def step_kernel(env: Structure, dtype: type, same_step: bool, disabled: bool) -> Kernel:
    """Return the driver (states, words, actions, numbers, counter, limit, faults, out) of one step.

    `states` are `DeviceStates`, which it overwrites, `words` (2 * N,) uint32 low and high words of
    the keys, `actions` (N,) or (N * action_size,) integers or float32, `numbers` (num_numbers,) the
    parameters of the environment, `counter` that of random numbers, `limit` the steps of an
    episode, `faults` the words of `Faults`, and `out` `StepOutputs`.

    An environment with a bad action takes no step, nor does one that has finished, if `disabled`:
    its outputs are those of its present state, and its stream of random numbers stays.
    """
    lane, step_lane = compile_lane(env, dtype), make_step_lane(env, dtype, same_step)
    unpack, observe, size = lane.unpack_params, lane.observe, lane.rows
    load, store = read(size, dtype), write(size, dtype)
    load_episode, store_episode = read(SIZE, dtype), write(SIZE, dtype)
    put = write(env.observation_rows, np.float32)
    take_action, pending, episode_row = _make_take_action(env, dtype), u32(PENDING), u64(size)
    nothing, no, bad, finished = dtype(0), np.bool_(0), BAD_ACTION, HAS_FINISHED

    @kernel(exact=dtype is np.float64)
    def step(states, words, actions, numbers, counter, limit, faults, out):
        """Step environment i, in thread i."""
        n, i = u64(out.rewards.shape[0]), u64(cuda.grid(1))
        if i >= n:
            return
        action, is_bad = take_action(actions, i)
        elapsed, low, high = states.elapsed[i], words[i], words[n + i]
        state = load(states.rows, i, n)
        episode = Episode(*load_episode(states.rows, episode_row * n + i, n))
        params = unpack(numbers)
        keep_loads_here()
        bits = mix(low, high, u32(counter))
        # The step of an environment that waits is its reset, and takes any action. It is computed
        # in any case: a thread that might return would first wait for its action, then for a state.
        waits = elapsed == pending
        step = step_lane(state, elapsed, episode, action, bits, params, u32(limit))
        if disabled if waits else is_bad:
            report(faults, finished if waits else bad, np.int64(i))
            words[i] = u32(low - GOLDEN)  # `mix` adds counter * GOLDEN to this word
            stays = EpisodeStep(nothing, no, no, elapsed, episode, no, elapsed, episode)
            step = DeviceStep(state, state, stays)
        end = step.end
        store(states.rows, i, n, step.next_state)
        store_episode(states.rows, episode_row * n + i, n, end.next_episode)
        states.elapsed[i] = end.next_elapsed
        put(out.observations, i, n, observe(step.next_state, params))
        if same_step:
            put(out.finals, i, n, observe(step.reached, params))
        out.rewards[i] = end.reward
        out.terminated[i] = end.terminated
        out.truncated[i] = end.truncated

    return step


def _make_take_action(env: Structure, dtype: type) -> Any:
    """Make (actions, i) -> (action of environment i, whether it is none that can be taken)."""
    width, one, count, limits = u64(env.action_size), u64(1), env.num_actions, env.choices
    load = read(env.action_size, np.int64 if limits else dtype)
    zeros = (0,) * env.action_size
    items = source_of_tuple(f"whole(values[{k}])" for k in range(env.action_size))
    to_whole = define(f"def to_whole(values): return {items}", whole=np.int32)

    def take_choice(actions, i):
        action = actions[i]
        is_bad = action < 0 or action >= count
        return np.int32(0 if is_bad else action), is_bad

    def take_choices(actions, i):
        action, is_bad = load(actions, i * width, one), False
        for number, limit in zip(action, limits):  # noqa: B905 (the compiler has no `strict`)
            is_bad = is_bad or number < 0 or number >= limit
        return to_whole(zeros if is_bad else action), is_bad

    def take_numbers(actions, i):
        action, is_bad = load(actions, i * width, one), False  # whether a number is NaN
        for number in action:
            is_bad = is_bad or number != number
        return action, is_bad

    if env.choices:
        return take_choices
    return take_numbers if env.action_size else take_choice


@functools.cache
def reset_kernel(env: Structure, dtype: type) -> Kernel:
    """Return the driver (states, words, mask, numbers, counter) of a reset.

    It draws new states of environments where `mask` (N,) is set; for the other arguments see
    `step_kernel`. A reset takes a number of the counter that all environments share: the keys of
    the others step back by one, so that their streams go on where they are, as on the CPU.
    """
    lane = compile_lane(env, dtype)
    unpack, reset, size = lane.unpack_params, lane.reset, lane.rows
    store, store_episode = write(size, dtype), write(SIZE, dtype)
    begin, zero = begin_of(dtype), u32(0)

    @kernel(exact=dtype is np.float64)
    def reset_batch(states, words, mask, numbers, counter):
        """Reset environment i, in thread i."""
        n, i = u64(states.elapsed.shape[0]), u64(cuda.grid(1))
        if i < n:
            if mask[i]:
                bits = mix(words[i], words[n + i], u32(counter))
                store(states.rows, i, n, reset(unpack(numbers), bits[0], bits[1]))
                store_episode(states.rows, u64(size) * n + i, n, begin)
                states.elapsed[i] = zero
            else:  # `mix` adds counter * GOLDEN to this word
                words[i] = u32(words[i] - GOLDEN)

    return reset_batch


@functools.cache
def observe_kernel(env: Structure, dtype: type) -> Kernel:
    """Return the driver (rows, numbers, observations) that overwrites the observations.

    They are (observation_size * N,) float32; `rows` are those of `DeviceStates`.
    """
    lane = compile_lane(env, dtype)
    unpack, observe, size = lane.unpack_params, lane.observe, env.observation_rows
    load, put = read(lane.rows, dtype), write(size, np.float32)

    @kernel(exact=dtype is np.float64)
    def observe_batch(rows, numbers, observations):
        """Observe environment i, in thread i."""
        n, i = u64(observations.shape[0]) // u64(size), u64(cuda.grid(1))
        if i < n:
            put(observations, i, n, observe(load(rows, i, n), unpack(numbers)))

    return observe_batch
