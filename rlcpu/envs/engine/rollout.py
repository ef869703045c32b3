"""Rollouts: K steps of N environments and their policy in one kernel, and what it records.

Each block of environments (`rlcpu.envs.engine.lane`) runs all its steps before the next block
starts, so that its state and the network's activations stay in cache. There are two kinds of
rollouts with one loop: `simulate` records sums over the episodes that ended, `collect` records
every step. A `BlockRecorder` has the functions in which they differ.

A rollout has two kernels: the function that runs all steps of one block, which knows environment
and policy and is compiled for C; and a driver, a loop over blocks, serial or parallel, that calls
this function by its address. Its one argument besides numbers is a "frame": an array of int64 with
the address and the size of every array, in this order: `EnvArrays`, `KernelPolicy`, the outputs;
then one number for each block, which the function sets to a number above 0 if a number of the block
was not finite (a "fault"). "Opening" arrays is making them again of the addresses in a frame.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import prange, types

from rlcpu.envs.engine.decide import make_decide
from rlcpu.envs.engine.form import Records
from rlcpu.envs.engine.lane import (
    ELAPSED,
    LANES,
    LONG,
    NUM_WORDS,
    PENDING,
    Structure,
    compile_lane,
    env_kernel,
    make_draw_bits,
    make_step_lane,
)
from rlcpu.envs.policies import GREEDY, POLICY_DTYPES, KernelPolicy, PolicyCode
from rlcpu.kernels.compile import EXACT, define, inline, inline_source, kernel, prefer_wide_vectors
from rlcpu.kernels.hooks import address_of
from rlcpu.kernels.memory import array_at, call_at
from rlcpu.kernels.rows import ANY, row_access, store_rows
from rlcpu.kernels.threads import Kernels

u32 = np.uint32
#: Steps after which float32 sums of a lane are added to float64 ones.
FLUSH = 256
#: Returned by a driver if numbers are not finite; see `rlcpu.envs.engine.faults`.
FAULT = -1
#: Sums of `simulate`: finished episodes, their returns, the squares of these, 0 (or NaN if a number
#: was not finite), and the steps of these episodes.
EPISODES, RETURNS, SQUARES, FAULTS, LENGTHS = range(5)
NUM_SUMS = 5


class EnvArrays(NamedTuple):
    """The memory of the environments and their run-time numbers.

    Kernels are called with plain tuples of the same fields: NumPy's arrays in a NamedTuple cost a
    call 0.6 us more.

    Attributes:
        real, words: see `rlcpu.envs.engine.lanes.LaneEngine`.
        numbers: (num_numbers,) of the params.
        bounds: (2 * action_size,) float32, lowest and highest numbers of an action.
        clock: (2,) uint32, counter of the first step's random numbers, limit of an episode's steps.
    """

    real: Any
    words: Any
    numbers: Any
    bounds: Any
    clock: Any


#: Places in a frame of the policy's arrays, of the outputs, and of the faults of blocks.
FIRST_POLICY = 2 * len(EnvArrays._fields)
FIRST_OUTPUT = FIRST_POLICY + 2 * len(KernelPolicy._fields)
FIRST_FAULT = FIRST_OUTPUT + 2 * len(Records._fields)


class BlockRecorder(NamedTuple):
    """Functions that a rollout's loop over steps inlines to record the results of a block.

    `step_rows` are arrays of the block for the results of one step, a row of LANES for each number;
    `state`, `words` and `params` are the block's memory and the parameters.

    Attributes:
        open_outputs: (frame, block) -> the outputs of block number `block`.
        start: (outputs, words, count, num_steps) -> step_rows, before the first step of the block's
            `count` environments.
        put: (step_rows, i, observation, decision, result, final) writes one step of lane i: its
            observation, the policy's (action, log_prob, value), the `LaneStep`, and the observation
            to which the step led.
        save: (step_rows, outputs, step, num_steps, place, count), after all lanes have taken a
            step, brings the rows to the outputs; `place` is that of the block's first lane in flat
            arrays.
        finish: (step_rows, outputs, state, words, params, begin, count) -> a number above 0 if the
            block had a fault, else 0; after the last step. `begin` is the block's first
            environment.
    """

    open_outputs: Callable[..., Any]
    start: Callable[..., Any]
    put: Callable[..., None]
    save: Callable[..., None]
    finish: Callable[..., Any]


class Rollouts(NamedTuple):
    """Kernels that run the rollouts of one environment and policy.

    Attributes:
        drivers: (address, env, policy, num_steps, num_envs, outputs), the loops over blocks. They
            take `EnvArrays` and `KernelPolicy` as plain tuples. They return how many environments
            wait for their reset, in which case they do nothing; 0 after the steps, or `FAULT`.
        function: (frame, num_steps, num_envs, block) runs all steps of a block; compiled for C.
        address: of the function.
    """

    drivers: Kernels
    function: Any
    address: int


@functools.cache
def simulate_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return the kernels of `simulate`, which record sums over the episodes and nothing else.

    The output is `sums`, (blocks + 1, 5) float64, see `EPISODES`: one row per block and, last, one
    of all.
    """
    run = _make_block(env, dtype, policy, _make_sums(env, dtype))
    return compile_rollouts("simulate", env, dtype, run, 16384 if policy.act else 1024)


@functools.cache
def collect_kernels(env: Structure, dtype: type, policy: PolicyCode) -> Rollouts:
    """Return the kernels of `collect`, which record every step in `Records`, a tuple of arrays."""
    run = _make_block(env, dtype, policy, _make_records(env, dtype))
    return compile_rollouts("collect", env, dtype, run, 8192 if policy.act else 1024)


# ---------------------------------------------------------------- blocks


def compile_rollouts(
    name: str, env: Structure, dtype: type, run: Callable[..., None], grain: int
) -> Rollouts:
    """Return the kernels of "simulate" or "collect", given all steps of one block.

    Args:
        name: "simulate" or "collect".
        env: the environment.
        dtype: of its floats.
        run: (frame, num_steps, num_envs, block) runs all steps of block number `block`.
        grain: steps of all environments from which on several cores share them.
    """
    run.__name__ = run.__qualname__ = name
    function = env_kernel(env, dtype, by_address=True)(run)
    function.compile((types.CPointer(types.int64), types.int64, types.int64, types.int64))
    drivers = {"simulate": SIMULATE, "collect": COLLECT}[name]._replace(grain=grain)
    return Rollouts(drivers, function, address_of(function))


def _make_block(
    env: Structure, dtype: type, policy: PolicyCode, recorder: BlockRecorder
) -> Callable[..., None]:
    """Make the function (frame, num_steps, num_envs, block) that runs all steps of one block."""
    lane, decide = compile_lane(env, dtype), make_decide(env, dtype, policy)
    step_lane, draw_bits = make_step_lane(env, dtype, True), make_draw_bits()
    to_env_action = make_to_env_action(env, dtype)
    unpack, load, observe, params_of_lane = (
        lane.unpack_params,
        lane.load,
        lane.observe,
        lane.params_of_lane,
    )
    unpack_policy, allocate, prepare, choose = decide
    open_outputs, start, put, save, finish = recorder
    open_env, open_policy = make_open_env(env, dtype), make_open_policy()
    exact = dtype is np.float64
    use_wide_vectors = prefer_wide_vectors if env.state.rows(dtype) < LONG else inline(lambda: None)

    def run(frame, num_steps, num_envs, block):
        """Let the policy act in all lanes of the block, step by step, and record the results."""
        use_wide_vectors()
        env, policy = open_env(frame, block), open_policy(frame)
        outputs = open_outputs(frame, block)
        state, words, begin = env.real, env.words, block * LANES
        counter, limit = env.clock[0], env.clock[1]
        count = min(LANES, num_envs - begin)
        params, constants = unpack(env.numbers), unpack_policy(policy.weights, policy.log_std)
        greedy = policy.settings[GREEDY] != 0
        scratch = allocate(policy.settings)
        step_rows = start(outputs, words, count, num_steps)
        for step in range(num_steps):
            now = u32(counter + u32(step))
            places = prepare(state, words, params, policy, count, block, scratch)
            for i in range(count if exact else LANES):
                bits = draw_bits(words, i, now)
                observation = observe(load(state, LANES, i), params_of_lane(params, state, i))
                decision = choose(observation, constants, greedy, bits, scratch, places, i)
                action = to_env_action(decision[0], env.bounds)
                result = step_lane(state, words, i, action, bits, params, limit)
                final = observe(result.reached, result.params)
                put(step_rows, i, observation, decision, result, final)
            save(step_rows, outputs, step, num_steps, step * num_envs + begin, count)
        frame[FIRST_FAULT + block] = finish(step_rows, outputs, state, words, params, begin, count)

    return run


def _make_driver(is_sums: bool) -> Kernels:
    """Make the loops over blocks, serial and parallel, of `simulate` (sums) or `collect`."""
    write_env, write_policy = map(_make_write, (len(EnvArrays._fields), len(KernelPolicy._fields)))
    write_outputs = _make_write(1 if is_sums else len(Records._fields))
    to_tuple = inline((lambda sums: (sums,)) if is_sums else (lambda records: records), exact=True)

    def run_blocks(address, env, policy, num_steps, num_envs, outputs):
        """Write the frame, run all blocks, and return a code; see `Rollouts.drivers`."""
        words, clock = env[1], env[4]
        waiting = count_waiting(words, num_envs)
        if waiting > 0:
            return waiting
        blocks = words.shape[0]
        frame = np.zeros(FIRST_FAULT + blocks, np.int64)
        write_env(frame, 0, env)
        write_policy(frame, FIRST_POLICY, policy)
        write_outputs(frame, FIRST_OUTPUT, to_tuple(outputs))
        for block in prange(blocks):
            call_at(address, (frame.ctypes.data, num_steps, num_envs, np.int64(block)))
        if is_sums:
            add_up(outputs)
        clock[0] += u32(num_steps)
        faults = 0
        for block in range(blocks):
            faults += frame[FIRST_FAULT + block]
        return FAULT if faults > 0 else waiting

    serial = kernel(run_blocks, fastmath=EXACT)
    return Kernels(serial, kernel(run_blocks, fastmath=EXACT, parallel=True), 0)


def make_open(dtypes: dict[str, Any], combine: Any, first: int) -> Callable[..., Any]:
    """Make an inlinable function (frame,) -> `combine(*arrays)`, of arrays that a frame names.

    Args:
        dtypes: of each array, by its name, in the order of the frame.
        combine: a NamedTuple, or a function of the arrays.
        first: place in the frame of the first array's address, which its size follows.
    """
    return _define_open(tuple(dtypes.items()), combine, first)


@functools.cache
def _define_open(dtypes: tuple[tuple[str, Any], ...], combine: Any, first: int) -> Any:
    """Return the function of `make_open`, the same one for equal arguments: numba compiles it once.

    Its source is `combine(array_at(frame[0], (frame[1],), like_real), ...)`, where `like_real` is a
    number of the array's dtype.
    """
    names: dict[str, Any] = {"combine": combine, "array_at": array_at}
    arrays = []
    for k, (name, dtype) in enumerate(dtypes):
        names[f"like_{name}"] = dtype(0)
        place = first + 2 * k
        arrays.append(f"array_at(frame[{place}], (frame[{place + 1}],), like_{name})")
    return inline(define(f"def open(frame): return combine({', '.join(arrays)})", **names))


#: `combine` of a single array.
_identity = inline(lambda array: array)


def make_open_env(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (frame, block) -> `EnvArrays`, whose memory is one block's."""
    dtypes = {"real": dtype, "words": u32, "numbers": dtype, "bounds": np.float32, "clock": u32}
    open_all = make_open(dtypes, EnvArrays, 0)
    block_size = (env.state.rows(dtype) + 1 + len(env.varied)) * LANES
    words_size = NUM_WORDS * LANES

    @inline
    def open_env(frame, block):
        """Return views of the arrays of all blocks, cut to the block's part."""
        arrays = open_all(frame)
        return EnvArrays(
            arrays.real[block * block_size : (block + 1) * block_size],
            arrays.words[block * words_size : (block + 1) * words_size],
            arrays.numbers,
            arrays.bounds,
            arrays.clock,
        )

    return open_env


def make_open_policy(first: int = FIRST_POLICY) -> Callable[..., Any]:
    """Make an inlinable function (frame,) -> `KernelPolicy`; `first` is its place in the frame."""
    return make_open(POLICY_DTYPES, KernelPolicy, first)


def _make_write(count: int) -> Any:
    """Make an inlinable function (frame, first, arrays) that writes the arrays into a frame.

    It writes address and size of each of the `count` arrays, from place `first` on.
    """
    lines = ["def write(frame, first, arrays):"]
    for k in range(count):
        lines.append(f"frame[first + {2 * k}] = arrays[{k}].ctypes.data")
        lines.append(f"frame[first + {2 * k + 1}] = arrays[{k}].size")
    source = "\n    ".join(lines)
    return inline(define(source), exact=True)


@inline
def count_waiting(words, num_envs):
    """Count the environments, of the first `num_envs`, that wait for their reset."""
    waiting = 0
    for block in range(words.shape[0]):
        for i in range(min(LANES, num_envs - block * LANES)):
            waiting += words[block, ELAPSED * LANES + i] == u32(PENDING)
    return waiting


@functools.cache
def make_to_env_action(env: Structure, dtype: type) -> Any:
    """Make an inlinable function (action, bounds) -> the action as the environment's step takes it.

    The policy's numbers are clipped to their bounds, (2 * action_size,), and converted to the
    environment's dtype; whole numbers are converted to int32.
    """
    if env.action_size == 0:  # one choice, of a `Discrete`
        return inline(lambda action, bounds: np.int32(action))
    size = env.action_size
    if env.choices:  # of a `MultiDiscrete`
        whole = "".join(f"whole(action[{k}]), " for k in range(size))
        return inline(define(f"def to_int32(action, bounds): return ({whole})", whole=np.int32))
    items = "".join(
        f"real(min(max(single(action[{k}]), bounds[{k}]), bounds[{size + k}])), "
        for k in range(size)
    )
    source = f"def clip(action, bounds): return ({items})"
    return inline(define(source, real=dtype, single=np.float32))


@functools.cache
def make_fault_of_step(env: Structure, dtype: type) -> Any:
    """Make an inlinable (rows, decision) -> 0, or NaN if a number of a step is not finite.

    A mask that allows no action gives NaN too. `rows` are those of an observation, whose floats
    alone are checked; `decision` is a policy's (action, log_prob, value). Zero times a number is
    NaN only for NaN and infinity: one operation for each number, without a branch or a comparison.
    """
    spans = () if env.writes_observation else env.float_spans
    numbers = [f"rows[{first + k}]" for first, count in spans for k in range(count)]
    action_floats = 0 if env.choices else env.action_size
    numbers += [f"decision[0][{k}]" for k in range(action_floats)] + ["decision[1]", "decision[2]"]
    terms = [f"real({number}) * zero" for number in numbers]
    mask_rows = range(env.observation_rows, env.shown_rows)
    if mask_rows:
        words = " | ".join(f"single(rows[{row}]).view(word)" for row in mask_rows)
        terms.append(f"(nan if ({words}) == 0 else zero)")
    source = f"def fault_of_step(rows, decision): return {' + '.join(terms)}"
    names = {"single": np.float32, "word": np.uint32, "nan": dtype(np.nan)}
    return inline(define(source, real=dtype, zero=dtype(0), **names))


def make_fault_of_rows(env: Structure, dtype: type) -> Any:
    """Make `make_fault_of`'s function for the floats of an observation."""
    return make_fault_of(env.float_spans, dtype)


@functools.cache
def make_fault_of(spans: tuple[tuple[int, int], ...], dtype: type) -> Any:
    """Make an inlinable (rows, stride, i) -> 0, or NaN if a float of these spans is not finite.

    Args:
        spans: (first row, number of rows) of each run of floats; row k is rows[k * stride + i].
        dtype: of the result.
    """
    lines = ["def fault_of(rows, stride, i):", "    fault = nothing"]
    for first, count in spans:
        lines += [f"    for k in range({count}):"]
        lines += [f"        fault += real(rows[({first} + k) * stride + i]) * nothing"]
    source = "\n".join([*lines, "    return fault"])
    return inline(define(source, real=dtype, nothing=dtype(0)))


# ---------------------------------------------------------------- sums


def _make_sums(env: Structure, dtype: type) -> BlockRecorder:
    """Make the recorder of `simulate`, whose output is the sums of a block, (5,) float64.

    `step_rows` are (4, LANES) sums of each lane: episodes, their returns, the squares of these, and
    faults; every `FLUSH` steps they are added to the output.
    """
    get, set_ = row_access("rewards")
    one, zero, real = dtype(1), dtype(0), dtype
    fault_of_step = make_fault_of_step(env, dtype)
    spans = *env.state.float_spans(dtype), (env.state.rows(dtype), 1)  # the last: returns
    float_rows = tuple(first + k for first, count in spans for k in range(count))

    @inline_source
    def start(sums, words, count, num_steps):
        sums[:] = 0.0
        sums[LENGTHS] = count * num_steps + sum_elapsed(words, count)
        step_rows: Any = np.zeros(4 * LANES, real)
        return step_rows

    @inline
    def put(step_rows, i, observation, decision, result, final):
        is_done = result.terminated | result.truncated
        total = result.total if is_done else zero
        set_(step_rows, i, get(step_rows, i) + (one if is_done else zero))
        set_(step_rows, LANES + i, get(step_rows, LANES + i) + total)
        set_(step_rows, 2 * LANES + i, get(step_rows, 2 * LANES + i) + total * total)
        # A network's NaN would choose action 0 of a `Discrete`, and no other number would show it.
        fault = fault_of_step(observation, decision)
        set_(step_rows, 3 * LANES + i, get(step_rows, 3 * LANES + i) + fault)

    @inline_source
    def save(step_rows, sums, step, num_steps, place, count):
        if step % FLUSH == FLUSH - 1 or step == num_steps - 1:
            for k in range(4):
                total = 0.0
                for i in range(LANES):
                    total += get(step_rows, k * LANES + i) if i < count else zero
                    set_(step_rows, k * LANES + i, zero)
                sums[k] += total

    @inline_source
    def finish(step_rows, sums, state, words, params, begin, count):
        # Episodes that ended have the steps taken here and before, but not those of running ones.
        sums[LENGTHS] -= sum_elapsed(words, count)
        sums[FAULTS] += sums[RETURNS] * 0.0
        for row in float_rows:
            for i in range(count):
                sums[FAULTS] += state[row * LANES + i] * zero
        return 1 if sums[FAULTS] != 0.0 else 0

    return BlockRecorder(make_open_sums(), start, put, save, finish)


@functools.cache
def make_open_sums() -> Callable[..., Any]:
    """Make an inlinable function (frame, block) -> the sums of a block, (5,) float64."""
    open_all = make_open({"sums": np.float64}, _identity, FIRST_OUTPUT)

    @inline
    def open_sums(frame, block):
        return open_all(frame)[block * NUM_SUMS : (block + 1) * NUM_SUMS]

    return open_sums


@inline
def sum_elapsed(words, count):
    """Return the sum of the steps of the running episodes in a block's first `count` lanes."""
    total: Any = 0
    for i in range(count):
        total += np.int64(words[ELAPSED * LANES + i])
    return total


@inline(exact=True)
def add_up(sums):
    """Add all rows but the last into the last one, in their order."""
    last = sums.shape[0] - 1
    sums[last, :] = 0.0
    for block in range(last):
        for k in range(sums.shape[1]):
            sums[last, k] += sums[block, k]


# ---------------------------------------------------------------- records


def _make_records(env: Structure, dtype: type) -> BlockRecorder:
    """Make the recorder of `collect`, whose outputs are the `Records` of all environments.

    `step_rows` are a `Records` for one step of the block, in rows of LANES numbers, see there.
    """
    return BlockRecorder(
        open_outputs=make_open_records(env, dtype),
        start=_make_start(env, dtype),
        put=_make_put(env, dtype),
        save=_make_save(env, dtype),
        finish=_make_finish(env, dtype),
    )


def _make_start(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make `start` of the recorder of `collect`, which makes `step_rows`."""
    width, size = max(env.action_size, 1), env.shown_rows
    action_type: Any = np.float32 if env.action_size and not env.choices else np.int32
    real = dtype

    @inline_source
    def start(records, words, count, num_steps):
        return Records(
            observations=np.empty(size * LANES, np.float32),
            actions=np.empty(width * LANES, action_type),
            log_probs=np.empty(LANES, np.float32),
            values=np.empty(LANES, np.float32),
            rewards=np.empty(LANES, real),
            flags=np.empty(2 * LANES, np.bool_),
            finals=np.empty(size * LANES, np.float32),
            totals=np.empty(LANES, real),
            lengths=np.empty(LANES, np.uint32),
            last=np.zeros(LANES, real),  # faults
        )

    return start


def _make_put(env: Structure, dtype: type) -> Callable[..., None]:
    """Make `put` of the recorder of `collect`, which writes a lane's results to `step_rows`.

    A `decision` is the policy's (action, log_prob, value); `last` adds up each lane's faults, 0
    or NaN: a number times zero is NaN where it is not finite.
    """
    width, size, is_discrete = max(env.action_size, 1), env.shown_rows, env.action_size == 0
    put_observation = store_rows(size, "observations")
    put_final = store_rows(size, "finals")
    put_actions: Any = store_rows(width, "actions")
    _, put_action = row_access("actions")
    names = ("log_probs", "values", "rewards", "terminated", "totals", "lengths")
    put_log_prob, put_value, put_reward, put_flag, put_total, put_length = (
        row_access(name)[1] for name in names
    )
    (get_fault, put_fault), fault_of_step = row_access("faults"), make_fault_of_step(env, dtype)
    real, zero = dtype, dtype(0)

    @inline
    def put(step_rows, i, observation, decision, result, final):
        put_observation(step_rows.observations, LANES, i, observation)
        if is_discrete:
            put_action(step_rows.actions, i, np.int32(decision[0]))
        else:
            put_actions(step_rows.actions, LANES, i, decision[0])
        put_log_prob(step_rows.log_probs, i, decision[1])
        put_value(step_rows.values, i, decision[2])
        put_reward(step_rows.rewards, i, result.reward)
        put_flag(step_rows.flags, i, result.terminated)
        put_flag(step_rows.flags, LANES + i, result.truncated)
        put_final(step_rows.finals, LANES, i, final)
        put_total(step_rows.totals, i, real(result.total))
        put_length(step_rows.lengths, i, result.elapsed)
        fault = fault_of_step(observation, decision) + result.reward * zero
        put_fault(step_rows.last, i, get_fault(step_rows.last, i) + fault)

    return put


def _make_save(env: Structure, dtype: type) -> Callable[..., None]:
    """Make `save` of the recorder of `collect`, which copies `step_rows` into the `Records`.

    Finals, totals and lengths are copied only of the lanes whose episode ended.
    """
    width, size = max(env.action_size, 1), env.shown_rows
    fault_of_rows = make_fault_of_rows(env, dtype)
    peek, poke = row_access(ANY)[0], row_access("target")[1]

    @inline
    def copy(source, first, target, begin, count):
        for i in range(count):
            poke(target, begin + i, peek(source, first + i))

    @inline
    def transpose(source, target, begin, count, width):
        """Copy `width` rows of LANES to `count` environments with `width` numbers each."""
        for i in range(count):
            for k in range(width):
                poke(target, (begin + i) * width + k, peek(source, k * LANES + i))

    @inline_source
    def save(step_rows, records, step, num_steps, place, count):
        half = records.flags.shape[0] // 2
        copy(step_rows.log_probs, 0, records.log_probs, place, count)
        copy(step_rows.values, 0, records.values, place, count)
        copy(step_rows.rewards, 0, records.rewards, place, count)
        copy(step_rows.flags, 0, records.flags, place, count)
        copy(step_rows.flags, LANES, records.flags, half + place, count)
        transpose(step_rows.observations, records.observations, place, count, size)
        transpose(step_rows.actions, records.actions, place, count, width)
        for i in range(count):
            if step_rows.flags[i] or step_rows.flags[LANES + i]:
                records.totals[place + i] = step_rows.totals[i]
                records.lengths[place + i] = step_rows.lengths[i]
                for k in range(size):
                    records.finals[(place + i) * size + k] = step_rows.finals[k * LANES + i]
                step_rows.last[i] += fault_of_rows(step_rows.finals, LANES, i)

    return save


def _make_finish(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make `finish` of the recorder of `collect`.

    It writes the observations after the last step, and returns in how many of the block's `count`
    lanes there was a fault, in any step: `step_rows.last` sums up the faults of each lane, numbers
    that are not finite, and is not zero after one.
    """
    lane, size, zero = compile_lane(env, dtype), env.shown_rows, dtype(0)
    load, observe, params_of_lane = lane.load, lane.observe, lane.params_of_lane
    put_observation, fault_of_rows = (
        store_rows(size, "observations"),
        make_fault_of_rows(env, dtype),
    )

    @inline_source
    def finish(step_rows, records, state, words, params, begin, count):
        num_faulty = 0
        for i in range(count):
            observation = observe(load(state, LANES, i), params_of_lane(params, state, i))
            put_observation(records.last, 1, (begin + i) * size, observation)
            step_rows.last[i] += fault_of_rows(records.last, 1, (begin + i) * size)
            num_faulty += step_rows.last[i] != zero
        return num_faulty

    return finish


def make_open_records(env: Structure, dtype: type) -> Callable[..., Any]:
    """Make an inlinable function (frame, block) -> the `Records` of all environments."""
    action_type = np.float32 if env.action_size and not env.choices else np.int64
    dtypes: dict[str, Any] = dict.fromkeys(Records._fields, np.float32)
    dtypes |= {"actions": action_type, "rewards": dtype, "totals": dtype}
    open_all = make_open(dtypes | {"lengths": u32, "flags": np.bool_}, Records, FIRST_OUTPUT)

    @inline
    def open_records(frame, block):
        return open_all(frame)

    return open_records


SIMULATE, COLLECT = _make_driver(True), _make_driver(False)
