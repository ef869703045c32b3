"""Rollouts of environments whose states have arrays: all steps of a block, and what is kept.

A second function of such environments is `simulate`, and a third one `collect`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.engine.decide import make_decide, make_take
from rlcpu.envs.engine.lane import (
    KEY_HIGH,
    KEY_LOW,
    LANES,
    Structure,
    make_draw_words,
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
    make_clip,
    make_fault_of,
    make_fault_of_rows,
    make_fault_of_step,
    make_open_env,
    make_open_policy,
    make_open_records,
    make_open_sums,
    sum_elapsed,
)
from rlcpu.envs.policies import GREEDY, PolicyCode
from rlcpu.kernels.compile import inline, merge
from rlcpu.kernels.functions import reads_argument
from rlcpu.kernels.random import mix
from rlcpu.kernels.rows import ANY, row_access, store_rows

#: Steps of an environment whose random bits are drawn at once.
AHEAD = 32
u32 = np.uint32


@functools.cache
def simulate_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return the kernels of `rlcpu.envs.engine.rollout.simulate_kernels` for records."""
    run = _make_block(env, dtype, policy, _make_sums(env, dtype))
    return compile_rollouts("simulate", env, dtype, run, 1024)


@functools.cache
def collect_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return the kernels of `rlcpu.envs.engine.rollout.collect_kernels` for records."""
    run = _make_block(env, dtype, policy, _make_records(env, dtype))
    return compile_rollouts("collect", env, dtype, run, 1024)


class StepRecorder(NamedTuple):
    """Functions that a rollout's loop inlines for the results of its steps.

    Attributes:
        open: (frame, number) -> outputs, of block `number`.
        watches: whether it keeps observations.
        start: (outputs, words, count, num_steps) -> (LANES,) faults, which are 0, or NaN where a
            number was not finite.
        put: (outputs, faults, place, i, shown, first, decision, end) keeps one step of lane i,
            which is number `place` in time-major order; its observation begins at `shown[first]`.
        end: (outputs, faults, place, i, end, rows, lane_params) keeps the end of an episode; the
            lane still has its last state.
        finish: (outputs, faults, rows, words, begin, count, shown) -> whether the block had numbers
            that are not finite.
    """

    open: Callable[..., Any]
    watches: bool
    start: Callable[..., Any]
    put: Callable[..., None]
    end: Callable[..., None]
    finish: Callable[..., Any]


def _make_block(
    env: Structure, dtype: type, policy: PolicyCode, recorder: StepRecorder
) -> Callable[..., None]:
    """Make a function (frame, num_steps, num_envs, number) that takes all steps of one block.

    Where a function chooses the actions, an environment takes all its steps before the next one
    begins, so that its state stays in the first cache; networks choose those of a whole block.
    """
    _, vary, advance, renew, show = compile_functions(env, dtype)
    decide, clip = make_decide(env, dtype, policy), make_clip(env, dtype)
    unpack, draw_words = make_unpack_params(env), make_draw_words()
    unpack_policy, scratch, prepare, choose = decide
    open_outputs, records, start, put, end_episode, finish = recorder
    open_env, open_policy = make_open_env(env, dtype), make_open_policy()
    group, size = (LANES if policy.act is None else 1), env.shown_rows
    draw_ahead = _make_draw_ahead()
    watches = records or policy.act is None or policy.masked or reads_argument(policy.act, 0)
    take = make_take(env)

    def run(frame, num_steps, num_envs, number):
        env, policy = open_env(frame, number), open_policy(frame)
        outputs = open_outputs(frame, number)
        rows, words, begin = env.real, env.words, number * LANES
        counter, limit = env.clock[0], env.clock[1]
        count = min(LANES, num_envs - begin)
        params, constants = unpack(env.numbers), unpack_policy(policy.weights, policy.log_std)
        greedy = policy.settings[GREEDY] != 0
        space, shown = scratch(policy.settings), np.zeros(LANES * size, np.float32)
        faults = start(outputs, words, count, num_steps)
        bits_ahead: Any = np.empty(2 * AHEAD, np.uint32)
        if watches:
            for i in range(count):
                show(rows, i, vary(params, rows, i), shown, i * size)
        for first in range(0, count, group):
            for step in range(num_steps):
                now = u32(counter + u32(step))
                layout = prepare(shown, words, params, policy, count, number, space)
                for i in range(first, min(first + group, count)):
                    place = step * num_envs + begin + i
                    if group > 1:
                        bits = draw_words(words, i, now)
                    else:
                        if step % AHEAD == 0:
                            draw_ahead(words, i, now, bits_ahead)
                        bits = bits_ahead[step % AHEAD], bits_ahead[AHEAD + step % AHEAD]
                    decision = choose(take(shown, i), constants, greedy, bits, space, layout, i)
                    action = clip(decision[0], env.bounds)
                    end = advance(rows, words, i, action, bits, params, limit)
                    put(outputs, faults, place, i, shown, i * size, decision, end)
                    if end.terminated or end.truncated:
                        end_episode(outputs, faults, place, i, end, rows, vary(params, rows, i))
                        renew(rows, words, i, bits, params)
                    if watches:
                        show(rows, i, vary(params, rows, i), shown, i * size)
        frame[FIRST_FAULT + number] = finish(outputs, faults, rows, words, begin, count, shown)

    return run


@functools.cache
def _make_draw_ahead() -> Callable[..., Any]:
    """Make an inlinable (words, i, counter, bits_ahead): `draw_words` of `AHEAD` steps of lane i.

    They are drawn in vectors, and no step waits for them: a fifth of the time of Snake's.
    """
    get_word, _ = row_access("words")

    @inline
    def draw_ahead(words, i, counter, bits_ahead):
        low, high = get_word(words, KEY_LOW * LANES + i), get_word(words, KEY_HIGH * LANES + i)
        for t in range(AHEAD):
            bits_ahead[t], bits_ahead[AHEAD + t] = mix(low, high, u32(counter + u32(t)))

    return draw_ahead


def _make_sums(env: Structure, dtype: type) -> StepRecorder:
    """Make the recorder of `simulate`: sums over the lanes of a block, (5,) float64."""
    fault_of_step, size = make_fault_of_step(env, dtype), env.state.rows(dtype)
    fault_of_state = make_fault_of(tuple(env.state.real_spans(dtype)), dtype)
    return_row, nothing, real = size * LANES, dtype(0), dtype
    blank = np.zeros
    take = make_take(env)

    @merge
    def start(sums, words, count, num_steps):
        sums[:] = 0.0
        sums[LENGTHS] = count * num_steps + sum_elapsed(words, count)
        faults: Any = blank(LANES, real)
        return faults

    @inline
    def put(sums, faults, place, i, shown, first, decision, end):
        faults[i] += fault_of_step(take(shown, i), decision) + end.reward * nothing

    @inline
    def end_episode(sums, faults, place, i, end, rows, lane_params):
        total = np.float64(end.total)
        sums[EPISODES] += 1.0
        sums[RETURNS] += total
        sums[SQUARES] += total * total

    @merge
    def finish(sums, faults, rows, words, begin, count, shown):
        sums[LENGTHS] -= sum_elapsed(words, count)
        for i in range(count):
            fault = faults[i] + fault_of_state(rows, 1, i * size) + rows[return_row + i] * nothing
            sums[FAULTS] += np.float64(fault)
        return 1 if sums[FAULTS] != 0.0 else 0

    return StepRecorder(make_open_sums(), False, start, put, end_episode, finish)


def _make_records(env: Structure, dtype: type) -> StepRecorder:
    """Make the recorder of `collect`: every step goes to its place in the `Records`."""
    width, size, discrete = max(env.action_size, 1), env.shown_rows, env.action_size == 0
    fault_of_step, fault_of = make_fault_of_step(env, dtype), make_fault_of_rows(env, dtype)
    is_written = env.is_written
    *_, show = compile_functions(env, dtype)
    real, nothing, take = dtype, dtype(0), make_take(env)
    stored: Any = np.float32 if env.action_size and not env.choices else np.int64
    put_actions: Any = store_rows(width, ANY)

    @merge
    def start(records, words, count, num_steps):
        faults: Any = np.zeros(LANES, real)
        return faults

    @inline
    def put(records, faults, place, i, shown, first, decision, end):
        for k in range(size):
            records.observations[place * size + k] = shown[first + k]
        if discrete:
            records.actions[place] = stored(decision[0])
        else:
            put_actions(records.actions, 1, place * width, decision[0])
        records.log_probs[place] = decision[1]
        records.values[place] = decision[2]
        records.rewards[place] = end.reward
        records.flags[place] = end.terminated
        records.flags[records.flags.size // 2 + place] = end.truncated
        fault = fault_of_step(take(shown, i), decision) + end.reward * nothing
        if is_written:  # a loop; `fault_of_step` looks at what is returned
            fault += fault_of(shown, 1, first)
        faults[i] += fault

    @inline
    def end_episode(records, faults, place, i, end, rows, lane_params):
        show(rows, i, lane_params, records.finals, place * size)
        records.totals[place] = end.total
        records.lengths[place] = end.elapsed
        faults[i] += fault_of(records.finals, 1, place * size)

    @merge
    def finish(records, faults, rows, words, begin, count, shown):
        broken = 0
        for i in range(count):
            for k in range(size):
                records.last[(begin + i) * size + k] = shown[i * size + k]
            faults[i] += fault_of(shown, 1, i * size)
            broken += faults[i] != nothing
        return broken

    return StepRecorder(make_open_records(env, dtype), True, start, put, end_episode, finish)
