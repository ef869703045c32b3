"""Rollouts of environments whose states have arrays: `simulate` and `collect`.

As in `rlcpu.envs.engine.rollout`, where frames, faults and drivers are explained, a compiled
function runs all steps of one block, and a recorder has the functions in which the two differ. But
here environments step one after the other, and their results go to their places at once.
`observations` is the block's memory (LANES * size,) float32 of the observations before a step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.decide import interface_of, make_decide
from rlcpu.envs.engine.lane import (
    KEY_HIGH,
    KEY_LOW,
    LANES,
    Structure,
    env_kernel,
    make_draw_bits,
    make_unpack_params,
)
from rlcpu.envs.engine.record import compile_functions
from rlcpu.envs.engine.rollout import (
    EPISODES,
    FAULTS,
    FIRST_FAULT,
    LENGTHS,
    RETURNS,
    SQUARES,
    Rollouts,
    compile_rollouts,
    make_fault_of,
    make_fault_of_rows,
    make_fault_of_step,
    make_open_env,
    make_open_policy,
    make_open_records,
    make_open_sums,
    make_to_env_action,
    sum_elapsed,
)
from rlcpu.envs.engine.steps import is_whole
from rlcpu.envs.policies import GREEDY, PolicyCode
from rlcpu.kernels.compile import inline, inline_source
from rlcpu.kernels.functions import reads_argument
from rlcpu.kernels.memory import array_at, place_of
from rlcpu.kernels.random import make_draw_keys, mix
from rlcpu.kernels.rows import ANY, load_rows, row_access, store_rows

#: Steps of an environment for which random bits are drawn at once.
AHEAD = 32
u32 = np.uint32


@functools.cache
def simulate_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return the kernels of `simulate`, as `rlcpu.envs.engine.rollout.simulate_kernels` does."""
    run = _make_block(env, dtype, policy, _make_sums(env, dtype))
    return compile_rollouts("simulate", env_kernel(env, dtype, by_address=True), run, 1024)


@functools.cache
def collect_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return the kernels of `collect`, as `rlcpu.envs.engine.rollout.collect_kernels` does."""
    run = _make_block(env, dtype, policy, _make_records(env, dtype))
    return compile_rollouts("collect", env_kernel(env, dtype, by_address=True), run, 1024)


class StepRecorder(NamedTuple):
    """Functions that a rollout's loop inlines to record the results of its steps.

    `outputs` are those of the rollout; `faults`, (LANES,), have 0 for each lane, or NaN after a
    number that was not finite.

    Attributes:
        open_outputs: (frame, block) -> outputs of block number `block`.
        keeps_observations: whether it records observations.
        start: (outputs, words, count, num_steps) -> faults, before the first step.
        put: (outputs, faults, place, i, observations, first, decision, result) records one step of
            lane i, which is number `place` in time-major order; its observation begins at
            `observations[first]`, `decision` is the policy's (action, log_prob, value), `result`
            the `StepResult`.
        put_end: (outputs, faults, place, i, result, rows, lane_params) records the end of an
            episode; the memory `rows` of the lane still has its last state.
        finish: (outputs, faults, rows, words, begin, count, observations) -> a number above 0 if
            the block had a fault, else 0; after the last step.
    """

    open_outputs: Callable[..., Any]
    keeps_observations: bool
    start: Callable[..., Any]
    put: Callable[..., None]
    put_end: Callable[..., None]
    finish: Callable[..., Any]


def _make_block(
    env: Structure, dtype: type, policy: PolicyCode, recorder: StepRecorder
) -> Callable[..., None]:
    """Make the function (frame, num_steps, num_envs, block) that runs all steps of one block.

    Where a function chooses the actions, an environment takes all its steps before the next one
    begins, so that its state stays in the first cache; networks choose those of a whole block, so
    that all lanes step together. Observations are written only if somebody reads them.
    """
    _, params_of_lane, step_lane, restart, observe = compile_functions(env, dtype)
    decide = make_decide(interface_of(env, policy), policy)
    to_env_action = make_to_env_action(env.action_size, bool(env.choices), dtype)
    unpack, draw_bits = make_unpack_params(env), make_draw_bits()
    unpack_policy, allocate, prepare, choose = decide
    open_outputs, keeps_observations, start, put, put_end, finish = recorder
    open_env, open_policy = make_open_env(dtype), make_open_policy()
    first_draw, make_keys = env.num_draws, make_draw_keys(policy.draws)
    group, size = (LANES if policy.act is None else 1), env.shown_rows
    draw_ahead = _make_draw_ahead()
    policy_observes = policy.act is None or policy.masked or reads_argument(policy.act, 0)
    observes = keeps_observations or policy_observes

    def run(frame, num_steps, num_envs, block):
        env, policy = open_env(frame, block), open_policy(frame)
        outputs = open_outputs(frame, block)
        rows, words, begin = env.real, env.words, block * LANES
        counter, limit = env.clock[0], env.clock[1]
        count = min(LANES, num_envs - begin)
        params, constants = unpack(env.numbers), unpack_policy(policy.weights, policy.log_std)
        greedy, keys = policy.settings[GREEDY] != 0, make_keys(first_draw)
        scratch, observations = allocate(policy.settings), np.zeros(LANES * size, np.float32)
        faults = start(outputs, words, count, num_steps)
        bits_ahead: Any = np.empty(2 * AHEAD, np.uint32)
        if observes:
            for i in range(count):
                observe(rows, i, params_of_lane(params, rows, i), observations, i * size)
        for first in range(0, count, group):
            for step in range(num_steps):
                now = u32(counter + u32(step))
                places = prepare(observations, words, policy, count, block, scratch)
                for i in range(first, min(first + group, count)):
                    place = step * num_envs + begin + i
                    if group > 1:
                        bits = draw_bits(words, i, now)
                    else:
                        if step % AHEAD == 0:
                            draw_ahead(words, i, now, bits_ahead)
                        bits = bits_ahead[step % AHEAD], bits_ahead[AHEAD + step % AHEAD]
                    decision = choose(
                        observations, i, constants, greedy, bits, keys, scratch, places
                    )
                    action = to_env_action(decision[0], env.bounds)
                    result = step_lane(rows, words, i, action, bits, params, limit)
                    put(outputs, faults, place, i, observations, i * size, decision, result)
                    if result.terminated or result.truncated:
                        lane_params = params_of_lane(params, rows, i)
                        put_end(outputs, faults, place, i, result, rows, lane_params)
                        restart(rows, words, i, bits, params)
                    if observes:
                        observe(rows, i, params_of_lane(params, rows, i), observations, i * size)
        frame[FIRST_FAULT + block] = finish(
            outputs, faults, rows, words, begin, count, observations
        )

    return run


@functools.cache
def _make_load_observation(env: Structure) -> Callable[..., Any]:
    """Make an inlinable function (observations, i) -> the rows of environment i.

    They are returned as a tuple, or as an array where `observe` writes into one.
    """
    size, zero = env.shown_rows, np.float32(0)
    if env.writes_observation:  # not a slice, of whose owner numba would count references
        return inline(lambda rows, i: array_at(place_of(rows, i * size), (size,), zero))
    load = load_rows(size, ANY)
    return inline(lambda rows, i: load(rows, 1, i * size))


@functools.cache
def _make_draw_ahead() -> Callable[..., Any]:
    """Make an inlinable (words, i, counter, bits_ahead): random bits of `AHEAD` steps of lane i.

    It writes their first halves to `bits_ahead`, (2 * AHEAD,) uint32, and then the second ones.
    They are drawn in vectors, and no step waits for them: that saves a fifth of the time of
    Snake's.
    """
    get_word, _ = row_access("words")

    @inline
    def draw_ahead(words, i, counter, bits_ahead):
        low, high = get_word(words, KEY_LOW * LANES + i), get_word(words, KEY_HIGH * LANES + i)
        for t in range(AHEAD):
            bits_ahead[t], bits_ahead[AHEAD + t] = mix(low, high, u32(counter + u32(t)))

    return draw_ahead


def _make_sums(env: Structure, dtype: type) -> StepRecorder:
    """Make the recorder of `simulate`, whose output is the sums of a block, (5,) float64."""
    fault_of_step, size = make_fault_of_step(env, dtype), env.state.rows(dtype)
    fault_of_state = make_fault_of(tuple(env.state.float_spans(dtype)), dtype)
    return_row, nothing, real = size * LANES, dtype(0), dtype
    zeros = np.zeros
    load_observation = _make_load_observation(env)

    @inline_source
    def start(sums, words, count, num_steps):
        sums[:] = 0.0
        sums[LENGTHS] = count * num_steps + sum_elapsed(words, count)
        faults: Any = zeros(LANES, real)
        return faults

    @inline
    def put(sums, faults, place, i, observations, first, decision, result):
        observation = load_observation(observations, i)
        faults[i] += fault_of_step(observation, decision) + result.reward * nothing

    @inline
    def put_end(sums, faults, place, i, result, rows, lane_params):
        total = np.float64(result.total)
        sums[EPISODES] += 1.0
        sums[RETURNS] += total
        sums[SQUARES] += total * total

    @inline_source
    def finish(sums, faults, rows, words, begin, count, observations):
        # Episodes that ended have the steps taken here and before, but not those of running ones.
        sums[LENGTHS] -= sum_elapsed(words, count)
        for i in range(count):
            fault = faults[i] + fault_of_state(rows, 1, i * size) + rows[return_row + i] * nothing
            sums[FAULTS] += np.float64(fault)
        return 1 if sums[FAULTS] != 0.0 else 0

    return StepRecorder(make_open_sums(), False, start, put, put_end, finish)


def _make_records(env: Structure, dtype: type) -> StepRecorder:
    """Make the recorder of `collect`, which writes every step to its place in the `Records`."""
    width, size, discrete = max(env.action_size, 1), env.shown_rows, env.action_size == 0
    fault_of_step, fault_of = make_fault_of_step(env, dtype), make_fault_of_rows(env, dtype)
    is_written = env.writes_observation
    observe = compile_functions(env, dtype).observe
    real, nothing, load_observation = dtype, dtype(0), _make_load_observation(env)
    action_type: Any = np.float32 if env.action_size and not env.choices else np.int64
    put_actions: Any = store_rows(width, ANY)
    like = np.float32(0)

    @inline_source
    def start(records, words, count, num_steps):
        faults: Any = np.zeros(LANES, real)
        return faults

    @inline
    def put(records, faults, place, i, observations, first, decision, result):
        # An index into all observations might be negative, for all that the compiler knows, and
        # then no vectors are copied.
        row = array_at(place_of(observations, first), (size,), like)
        target = array_at(place_of(records.observations, place * size), (size,), like)
        for k in range(size):
            target[k] = row[k]
        if discrete:
            records.actions[place] = action_type(decision[0])
        else:
            put_actions(records.actions, 1, place * width, decision[0])
        records.log_probs[place] = decision[1]
        records.values[place] = decision[2]
        records.rewards[place] = result.reward
        records.flags[place] = result.terminated
        records.flags[records.flags.size // 2 + place] = result.truncated
        observation = load_observation(observations, i)
        fault = fault_of_step(observation, decision) + result.reward * nothing
        if is_written:  # `fault_of_step` checks only observations that are returned
            fault += fault_of(row, 1, 0)
        faults[i] += fault

    @inline
    def put_end(records, faults, place, i, result, rows, lane_params):
        observe(rows, i, lane_params, records.finals, place * size)
        records.totals[place] = result.total
        records.lengths[place] = result.elapsed
        faults[i] += fault_of(records.finals, 1, place * size)

    @inline_source
    def finish(records, faults, rows, words, begin, count, observations):
        num_faulty = 0
        for i in range(count):
            for k in range(size):
                records.last[(begin + i) * size + k] = observations[i * size + k]
            faults[i] += fault_of(observations, 1, i * size)
            num_faulty += faults[i] != nothing
        return num_faulty

    return StepRecorder(make_open_records(is_whole(env), dtype), True, start, put, put_end, finish)
