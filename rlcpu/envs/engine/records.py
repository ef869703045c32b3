"""The engine of states with arrays: one environment after the other, each in memory of its own.

A block's memory is as in `rlcpu.envs.engine.lanes`, but for the state: in the place of its rows it
has `LANES` records, one environment's numbers side by side (`rlcpu.envs.engine.arrays`). Nothing
runs along the lanes of a register here. A step changes its record and takes branches as they come;
loops over an array become vectors. What an observation consists of is side by side as well.

One function shows states, starts episodes and steps, and is compiled once; a second one is
`simulate` and a third one `collect`; they are called for some environments, by address.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import prange

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.decide import make_decide, make_take
from rlcpu.envs.engine.lane import (
    ELAPSED,
    KEY_HIGH,
    KEY_LOW,
    LANES,
    NUM_WORDS,
    PENDING,
    Structure,
    env_kernel,
    make_draw_words,
    make_draws,
    make_floats,
    make_redraw,
    make_store_params,
    make_unpack_params,
    make_vary,
    pack,
    user_functions,
)
from rlcpu.envs.engine.lanes import LaneEngine
from rlcpu.envs.engine.layout import make_encode
from rlcpu.envs.engine.masks import make_pack
from rlcpu.envs.engine.record import make_state_at
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
    make_fault_of_rows,
    make_fault_of_step,
    make_open_env,
    make_open_policy,
    make_open_records,
    make_open_sums,
    sum_elapsed,
)
from rlcpu.envs.engine.steps import (
    RESTART,
    SHOW,
    STEP,
    StepCall,
    Steps,
    call_type,
    is_whole,
    make_steps,
)
from rlcpu.envs.policies import GREEDY, PolicyCode
from rlcpu.kernels.calls import View, make_call
from rlcpu.kernels.compile import EXACT, define, inline, kernel, merge, outline
from rlcpu.kernels.functions import reads_argument
from rlcpu.kernels.hooks import address_of
from rlcpu.kernels.memory import address, array_at, place_of, shifted
from rlcpu.kernels.random import GOLDEN, RESET_GROUP, STEP_GROUP, mix
from rlcpu.kernels.rows import ANY, row_access, store_rows
from rlcpu.kernels.threads import Kernels, launch

Array = npt.NDArray[Any]
#: Environments that one core takes at a time, of whose steps some are longer than others.
SHARE = 16
#: Steps of an environment whose random bits are drawn at once.
AHEAD = 32
u32 = np.uint32


# ---------------------------------------------------------------- one environment


class Functions(NamedTuple):
    """Functions of one environment that kernels inline, in one dtype.

    `rows` are a block's numbers, and `i` is a lane of it.

    Attributes:
        state_at: (rows, i) -> the record of a lane.
        vary: (params, rows, i) -> the params of a lane, some of which have rows of their own.
        advance: (rows, words, i, action, bits, params, limit) -> `End`: steps a lane.
        renew: (rows, words, i, bits, params): starts a new episode.
        show: (rows, i, lane_params, target, place): writes an observation and its mask,
            `shown_rows` float32, to `target` from `place` on; `vary` returns the lane's params.
    """

    state_at: Callable[..., Any]
    vary: Callable[..., Any]
    advance: Callable[..., Any]
    renew: Callable[..., None]
    show: Callable[..., None]


class End(NamedTuple):
    """Results of a step, besides the state.

    Attributes:
        reward: of the step.
        terminated, truncated: whether and how the episode ended with it.
        total: return of the episode so far, this step included.
        elapsed: steps of the episode so far, this one included.
    """

    reward: Any
    terminated: Any
    truncated: Any
    total: Any
    elapsed: Any


@functools.cache
def compile_functions(env: Structure, dtype: type) -> Functions:
    """Return the functions of an environment; float64 is exact, float32 fast."""
    users = user_functions(env, dtype)
    user_step, user_reset = users["step"], users["reset"]
    step_draws = make_draws(env.step_draws, env.reset_draws or 0, STEP_GROUP, dtype)
    reset_draws = make_draws(env.reset_draws, 0, RESET_GROUP, dtype)
    state_at, clear = make_state_at(env.state, dtype)
    vary, widened = make_vary(env, dtype), _make_widened(env)
    redraw, store_params = make_redraw(env, dtype), make_store_params(env, dtype)
    get_word, set_word = row_access("words")
    get_return, set_return = row_access("state")
    return_row, real, truncates = env.state.rows(dtype) * LANES, dtype, env.truncates
    nothing, noisy = dtype(0), env.step_draws != 0

    @merge
    def step(state, action, params, bits):
        if noisy:
            return user_step(state, widened(action), params, step_draws(bits[0], bits[1]))
        return user_step(state, widened(action), params)

    @merge
    def advance(rows, words, i, action, bits, params, limit):
        result = step(state_at(rows, i), action, vary(params, rows, i), bits)
        reward = real(result[0])
        total = get_return(rows, return_row + i) + reward
        elapsed = u32(get_word(words, ELAPSED * LANES + i) + u32(1))
        set_return(rows, return_row + i, total)
        set_word(words, ELAPSED * LANES + i, elapsed)
        truncated = elapsed >= limit
        if truncates:
            truncated = truncated | bool(result[2])
        return End(reward, bool(result[1]), truncated, total, elapsed)

    @outline
    def renew(rows, words, i, bits, params):
        new_params = redraw(params, vary(params, rows, i), bits[0], bits[1])
        store_params(rows, i, new_params)
        state = state_at(rows, i)
        clear(state)
        user_reset(state, reset_draws(bits[0], bits[1]), new_params)
        set_return(rows, return_row + i, nothing)
        set_word(words, ELAPSED * LANES + i, u32(0))

    return Functions(state_at, vary, advance, renew, _make_show(env, dtype, state_at))


def _make_widened(env: Structure) -> Callable[..., Any]:
    """Inlinable function: an action whose whole numbers have 64 bits, as those of a state have."""
    if env.action_size == 0:
        return inline(lambda action: np.int64(action))
    if not env.choices:
        return inline(lambda action: action)
    items = "".join(f"whole(action[{k}]), " for k in range(env.action_size))
    return inline(define(f"def widened(action): return ({items})", whole=np.int64))


def _make_show(env: Structure, dtype: type, state_at: Any) -> Callable[..., None]:
    """`show` of `Functions`."""
    users, size, is_written = user_functions(env, dtype), env.observation_rows, env.is_written
    user_observe: Any = users["observe"]
    user_mask: Any = users.get("action_mask")
    encode: Any = None if is_written else make_encode(env.observation, np.float32)
    real_items = make_floats(env.observation, dtype, env.has_whole)
    put, pack_mask = store_rows(1 if is_written else size, ANY), make_pack(env.num_actions)
    put_mask, is_masked = store_rows(env.shown_rows - size, ANY), user_mask is not None
    shape, blank, is_group = env.shape, np.float32(0), env.observation.is_record
    no_group: Any = (None, None)
    record_at, clear = make_state_at(env.observation, np.float32) if is_group else no_group
    part_of = inline((lambda out: out.image) if env.is_lone else (lambda out: out))

    @outline
    def show(rows, i, lane_params, target, place):
        state = state_at(rows, i)
        if is_group:
            out = record_at(shifted(address(target), place), 0)
            clear(out)
            user_observe(state, lane_params, part_of(out))
        elif is_written:
            out = array_at(place_of(target, place), shape, blank)
            out[:] = blank
            user_observe(state, lane_params, out)
        else:
            put(target, 1, place, encode(real_items(user_observe(state, lane_params))))
        if is_masked:
            put_mask(target, 1, place + size, pack_mask(user_mask(state, lane_params)))

    return show


# ---------------------------------------------------------------- steps


@functools.cache
def step_kernels(env: Structure, dtype: type, same_step: bool) -> Steps:
    """Kernels of one step of N environments, as `rlcpu.envs.engine.steps.step_kernels` has them."""
    return make_steps(env, dtype, _compile_job(env, dtype), SHARE, SHARE * 4)


@functools.cache
def _compile_job(env: Structure, dtype: type) -> Any:
    """Function of a view of a `StepCall`, compiled for C: it shows, restarts or steps."""
    _, vary, advance, renew, show = compile_functions(env, dtype)
    unpack, draw_words, size = make_unpack_params(env), make_draw_words(), env.shown_rows
    get_action = _make_get_action(env, dtype)
    get_word, set_word = row_access("words")
    _, set_reward = row_access("rewards")
    _, set_terminated = row_access("terminated")
    _, set_truncated = row_access("truncated")
    stride, nothing = (env.state.rows(dtype) + 1 + len(env.varied)) * LANES, dtype(0)

    @merge
    def restart(job, rows, words, i, k, bits, params):
        """Start an episode where the mask is set; elsewhere the clock's turn changes no stream."""
        if job.mask[k] != 0:
            renew(rows, words, i, bits, params)
        else:
            key = get_word(words, KEY_LOW * LANES + i)
            set_word(words, KEY_LOW * LANES + i, u32(key - GOLDEN))

    @merge
    def take_step(job, rows, words, i, k, bits, params):
        """Step environment k, or start the episode it waits for; write all but observations."""
        reward, terminated, truncated = nothing, False, False
        if get_word(words, ELAPSED * LANES + i) == u32(PENDING):
            renew(rows, words, i, bits, params)
        else:
            action = get_action(job.actions, k)
            end = advance(rows, words, i, action, bits, params, job.clock[1])
            reward, terminated, truncated = end.reward, end.terminated, end.truncated
            if (terminated or truncated) and job.same_step != 0:
                show(rows, i, vary(params, rows, i), job.finals, k * size)
                renew(rows, words, i, bits, params)
            elif terminated or truncated:
                set_word(words, ELAPSED * LANES + i, u32(PENDING))
        set_reward(job.rewards, k, reward)
        set_terminated(job.terminated, k, terminated)
        set_truncated(job.truncated, k, truncated)

    @env_kernel(env, dtype, by_address=True)
    def run(job):
        params, counter, mode = unpack(job.numbers), job.clock[0], job.mode
        for k in range(job.begin, job.begin + job.count):
            i, block = k % LANES, k // LANES
            rows = shifted(job.state, block * stride)
            words = shifted(job.words, block * NUM_WORDS * LANES)
            bits = draw_words(words, i, counter)
            if mode == RESTART:
                restart(job, rows, words, i, k, bits, params)
                continue
            if mode == STEP:
                take_step(job, rows, words, i, k, bits, params)
            show(rows, i, vary(params, rows, i), job.observations, k * size)

    run.compile((View(call_type(dtype, is_whole(env))),))
    return run


def _make_get_action(env: Structure, dtype: type) -> Callable[..., Any]:
    """Inlinable function (actions, k) -> the action of environment k."""
    size, kind = max(env.action_size, 1), dtype
    if env.action_size == 0:
        return inline(lambda actions, k: np.int32(actions[k]))
    kind = np.int32 if env.choices else dtype
    items = "".join(f"kind(actions[k * {size} + {n}]), " for n in range(size))
    return inline(define(f"def get_action(actions, k): return ({items})", kind=kind))


@functools.cache
def _make_other(dtype: type, is_whole: bool) -> Kernels:
    """Driver of `SHOW` and `RESTART`."""
    call = make_call(call_type(dtype, is_whole))

    def run(where, mode, state, words, numbers, clock, mask, actions, observations, rewards, flags):
        n = mask.shape[0]
        for c in prange((n + SHARE - 1) // SHARE):
            call(
                where,
                StepCall(
                    mode, 0, c * SHARE, min(SHARE, n - c * SHARE), n, address(state),
                    address(words), address(numbers), address(clock), address(mask),
                    address(actions), address(observations), address(rewards),
                    address(flags), address(flags), address(observations),
                ),
            )  # fmt: skip
        if mode == RESTART:
            clock[0] += u32(1)
        return 0

    return Kernels(
        kernel(run, fastmath=EXACT), kernel(run, fastmath=EXACT, parallel=True), SHARE * 4
    )


# ---------------------------------------------------------------- simulate and collect


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
    """Inlinable function (words, i, counter, bits_ahead): `draw_words` of lane i for `AHEAD` steps.

    They are drawn in vectors, and no step waits for them: a fifth of the time of Snake's.
    """
    get_word, _ = row_access("words")

    @inline
    def draw_ahead(words, i, counter, bits_ahead):
        low, high = get_word(words, KEY_LOW * LANES + i), get_word(words, KEY_HIGH * LANES + i)
        for t in range(AHEAD):
            bits_ahead[t], bits_ahead[AHEAD + t] = mix(low, high, u32(counter + u32(t)))

    return draw_ahead


def _make_fault_of_state(env: Structure, dtype: type) -> Callable[..., Any]:
    """Inlinable function (rows, i) -> 0, or NaN if a float of lane i's state is not finite."""
    spans = env.state.real_spans(dtype)
    size, nothing = env.state.rows(dtype), dtype(0)
    lines = ["def fault_of(rows, i):", "    fault = nothing"]
    for first, count in spans:
        lines += [f"    for k in range({count}):"]
        lines += [f"        fault += rows[i * {size} + {first} + k] * nothing"]
    return inline(define("\n".join([*lines, "    return fault"]), nothing=nothing))


def _make_sums(env: Structure, dtype: type) -> StepRecorder:
    """Sums over the lanes of a block, which `outputs` (5,) float64 gets."""
    fault_of_step, fault_of_state = make_fault_of_step(env, dtype), _make_fault_of_state(env, dtype)
    return_row, nothing, real = env.state.rows(dtype) * LANES, dtype(0), dtype
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
            fault = faults[i] + fault_of_state(rows, i) + rows[return_row + i] * nothing
            sums[FAULTS] += np.float64(fault)
        return 1 if sums[FAULTS] != 0.0 else 0

    return StepRecorder(make_open_sums(), False, start, put, end_episode, finish)


def _make_records(env: Structure, dtype: type) -> StepRecorder:
    """Every step goes to its place in the `Records`."""
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


# ---------------------------------------------------------------- the engine


class ArrayEngine(LaneEngine):
    """Environments whose states have arrays; see `LaneEngine`, whose memory it has but for states.

    Raises:
        MemoryError: this machine has too little.
    """

    is_transposed = True
    step_kernels = staticmethod(step_kernels)
    collect_kernels = staticmethod(collect_kernels)
    simulate_kernels = staticmethod(simulate_kernels)

    def __init__(self, dynamics: Dynamics, num_envs: int, *, dtype: Any, **settings: Any) -> None:
        layout: Any = dynamics.state
        size = layout.record(dtype.type).itemsize
        if num_envs * size > (most := physical_memory()):
            raise MemoryError(
                f"{dynamics.id}: {num_envs} states of {size} bytes take "
                f"{num_envs * size / 2**30:.1f} GiB, and this machine has {most / 2**30:.1f}: "
                f"{layout}"
            )
        super().__init__(dynamics, num_envs, dtype=dtype, **settings)

    def restart(self, mask: npt.NDArray[np.bool_], params: Any) -> None:
        """Start new episodes; see `Engine.restart`."""
        self._run(RESTART, mask, pack(params, self.scalar_type), np.empty(0, np.float32))

    def observe(self) -> Any:
        """Return the observations of the present states, (rows, N) float32."""
        observations = np.empty(self._shape, np.float32)
        every = np.ones(self.num_envs, np.bool_)
        self._run(SHOW, every, self.numbers, observations.reshape(-1))
        return observations.T

    def _run(self, mode: int, mask: Array, numbers: Array, observations: Array) -> None:
        whole = is_whole(self.code)
        where = address_of(_compile_job(self.code, self.scalar_type))
        actions: Any = np.empty(0, np.int64 if whole else np.float32)
        launch(
            _make_other(self.scalar_type, whole), self.num_envs, self.num_threads, where, mode,
            self.real, self.words, numbers, self.clock, mask.view(np.uint8), actions,
            observations, np.empty(0, self.dtype), np.empty(0, np.bool_),
        )  # fmt: skip

    def get_state(self) -> Array:
        """Return a copy of the states, (N, state rows)."""
        records = self.state_rows().transpose(1, 2, 0).reshape(-1, self.state_size)
        return records[: self.num_envs].copy()

    def state_rows(self) -> Array:
        """Return the states as (state rows, blocks, LANES), without a copy."""
        size = self.state_size
        return self.real[:, : size * LANES].reshape(-1, LANES, size).transpose(2, 0, 1)


def physical_memory() -> int:
    """Return the bytes of memory of this machine; a large number where nobody says."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**62
